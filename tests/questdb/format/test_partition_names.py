"""Directories of partitions, and the unit that they show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.questdb.format.txn import Partition, Partitioning, directory, infer_partitioning


def micros(*parts: int) -> int:
    year, month, day, hour, minute, second, fraction = (*parts, 0, 0, 0, 0)[:7]
    start = datetime(year, month, day, hour, minute, second, fraction, tzinfo=UTC)
    return (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def at(timestamp: int, name_txn: int = -1) -> Partition:
    return Partition(timestamp=timestamp, row_count=1, name_txn=name_txn)


@pytest.mark.parametrize(
    "unit, start, expected",
    [
        ("none", (1970, 1, 1), "default"),
        ("year", (2024, 1, 1), "2024"),
        ("month", (2024, 2, 1), "2024-02"),
        ("week", (2024, 1, 1), "2024-W01"),
        ("week", (2023, 1, 2), "2023-W01"),
        ("week", (2020, 12, 28), "2020-W53"),
        ("day", (2024, 2, 29), "2024-02-29"),
        ("hour", (2024, 2, 29, 0), "2024-02-29T00"),
        ("hour", (2024, 2, 29, 13), "2024-02-29T13"),
        # Split off: the day, then as much of the time as is not zero.
        ("year", (2024, 5, 3), "2024-05-03"),
        ("month", (2024, 5, 3, 4), "2024-05-03T04"),
        ("day", (2024, 5, 3, 4, 0, 9), "2024-05-03T040009"),
        ("hour", (2024, 5, 3, 0, 0, 0, 1), "2024-05-03T000000-000001"),
        ("week", (2024, 1, 5), "2024-W01-5"),
        ("week", (2024, 1, 7, 23, 5), "2024-W01-7T230500"),
    ],
)
def test_names(unit: str, start: tuple[int, ...], expected: str) -> None:
    timestamp = micros(*start)
    assert directory(at(timestamp), Partitioning(unit)) == expected  # type: ignore[arg-type]
    assert directory(at(timestamp, 12), Partitioning(unit)) == f"{expected}.12"  # type: ignore[arg-type]
    nanos = directory(at(timestamp * 1000), Partitioning(unit, nanos=True))  # type: ignore[arg-type]
    assert nanos == expected + ("000" if "-000001" in expected else "")


@given(
    st.sampled_from(["year", "month", "week", "day", "hour"]),
    st.lists(st.integers(1, 9_000), min_size=1, max_size=6, unique=True),
    st.booleans(),
)
def test_the_unit_is_found_among_foreign_directories(
    unit: str, steps: list[int], nanos: bool
) -> None:
    partitioning = Partitioning(unit, nanos)  # type: ignore[arg-type]
    day = 86_400_000_000
    scale = 1000 if nanos else 1
    starts = {
        "year": [micros(1971 + n % 250, 1, 1) for n in steps],
        "month": [micros(1971 + n // 12 % 250, 1 + n % 12, 1) for n in steps],
        "week": [micros(1970, 1, 5) + n * 7 * day for n in steps],
        "day": [n * day for n in steps],
        "hour": [n * day // 24 for n in steps],
    }
    stamps = sorted({start * scale for start in starts[unit]})
    partitions = [at(stamp, index - 1) for index, stamp in enumerate(stamps)]
    directories = [directory(each, partitioning) for each in partitions]
    assume(max(stamps) < 1 << 63)
    listed = [*directories, "_meta", "wal1", "1999", "2024-01-01.7"]
    assert infer_partitioning(partitions, listed) == partitioning


def test_two_units_that_fit_are_an_error() -> None:
    new_year = at(micros(2024, 1, 1))
    with pytest.raises(FormatError, match="year, day"):
        infer_partitioning([new_year], ["2024", "2024-01-01"])


def test_a_missing_directory_is_named() -> None:
    partitions = [at(micros(2024, 1, 2)), at(micros(2024, 1, 3), 4)]
    with pytest.raises(FormatError, match=r"2024-01-03\.4"):
        infer_partitioning(partitions, ["2024-01-02", "2024-01-03"])
    with pytest.raises(FormatError, match="without partitions"):
        infer_partitioning([], ["default"])


def test_a_split_day_is_no_table_of_hours() -> None:
    partitions = [at(micros(2024, 1, 2)), at(micros(2024, 1, 2, 5))]
    found = infer_partitioning(partitions, ["2024-01-02", "2024-01-02T05"])
    assert found == Partitioning("day")


def test_a_table_without_partitioning() -> None:
    assert infer_partitioning([at(0, 3)], ["default.3"]) == Partitioning("none")


@pytest.mark.parametrize("timestamp", [1 << 62, -(1 << 63), (1 << 63) - 1])
def test_times_that_have_no_name_are_refused(timestamp: int) -> None:
    with pytest.raises(FormatError, match="9999"):
        directory(at(timestamp), Partitioning("day"))
