"""Numbers for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.human import aligned, duration, of_total, percent, plural, size


@pytest.mark.parametrize(
    "nbytes, shown",
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (11_200_000, "11.2 MB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (6_900_000_000, "6.9 GB"),
        (10**18, "1,000.0 PB"),
        (-2_500, "-2.5 kB"),
    ],
)
def test_sizes(nbytes: float, shown: str) -> None:
    assert size(nbytes) == shown


@pytest.mark.parametrize(
    "milliseconds, shown",
    [
        (0, "0.0 ms"),
        (0.42, "0.4 ms"),
        (9.96, "10 ms"),
        (38.4, "38 ms"),
        (999.6, "1.0 s"),
        (2_100, "2.1 s"),
        (59_960, "1m00s"),
        (131_000, "2m11s"),
        (3_599_800, "1h00m"),
        (3_900_000, "1h05m"),
        (86_400_000, "1d00h"),
    ],
)
def test_durations(milliseconds: float, shown: str) -> None:
    assert duration(milliseconds) == shown


@pytest.mark.parametrize(
    "part, whole, shown",
    [
        (0, 0, "0 %"),
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 4, "25 %"),
        (998, 1000, "99.8 %"),
        (999_999, 1_000_000, "99.9 %"),
        (1, 1_000_000, "0.1 %"),
    ],
)
def test_percent(part: float, whole: float, shown: str) -> None:
    assert percent(part, whole) == shown


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_only_nothing_is_0_percent_and_only_all_is_100(part: int, whole: int) -> None:
    part = min(part, whole)
    assert (percent(part, whole) == "0 %") == (part == 0)
    assert (percent(part, whole) == "100 %") == (part == whole)


def test_counts() -> None:
    assert of_total(2, 1240, "files") == "2 of 1,240 files"
    assert [plural(n, "part") for n in (0, 1, 3000)] == ["0 parts", "1 part", "3,000 parts"]


def test_tables() -> None:
    rows = [("a", "10", "x"), ("long", "9", "")]
    assert aligned(rows, numbers={1}) == "a     10  x\nlong   9"
