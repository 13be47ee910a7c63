"""The estimates are honest: of distinct values, and of the size that a real build then has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.advisor.measure import distinct_in_all
from skipstone.advisor.sampling import spread
from skipstone.table import Table
from tests.advisor.tables import advise_on, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def zipf(rng: np.random.Generator) -> np.ndarray:
    return rng.zipf(1.3, 100_000)


@pytest.mark.parametrize(
    "make, within",
    [
        (lambda rng: rng.permutation(100_000), 1.02),
        (lambda rng: rng.integers(0, 50, 100_000), 1.02),
        (lambda rng: rng.integers(0, 20_000, 100_000), 1.1),
        (lambda rng: rng.integers(0, 200_000, 100_000), 1.1),
        (lambda rng: np.arange(100_000) // 100, 1.05),
        (zipf, 1.3),
    ],
    ids=["unique", "50", "20,000", "200,000", "runs", "zipf"],
)
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_distinct_values_from_a_part(
    make: Callable[[np.random.Generator], np.ndarray], within: float, share: float
) -> None:
    """The first rows of 100,000 tell how many distinct values there are in all."""
    values = make(np.random.default_rng(7))
    read = int(share * len(values))
    seen, early = len(np.unique(values[:read])), len(np.unique(values[: read // 2]))
    estimate = distinct_in_all(seen, early, read, len(values))
    truth = len(np.unique(values))
    assert truth / within <= estimate <= truth * within


@pytest.mark.parametrize(
    "seen, early, read, total, expected",
    [(0, 0, 10, 100, 0), (7, 7, 100, 100, 7), (7, 7, 200, 2000, 7), (1, 0, 1, 1000, 1000)],
)
def test_distinct_values_at_the_edges(
    seen: int, early: int, read: int, total: int, expected: float
) -> None:
    assert distinct_in_all(seen, early, read, total) == pytest.approx(expected)


@pytest.mark.parametrize(
    "total, count, expected",
    [(3, 5, [0, 1, 2]), (9, 1, [4]), (10, 2, [0, 9]), (9, 3, [0, 4, 8]), (0, 4, [])],
)
def test_spread(total: int, count: int, expected: list[int]) -> None:
    assert spread(total, count) == expected


def keys(i: int) -> pa.Table:
    """5,000 random ids, as numbers and as text: two blooms."""
    rng = np.random.default_rng(i)
    ids = rng.integers(0, 10**12, 5000)
    return pa.table({"id": ids, "s": [f"customer-{n:012d}" for n in ids]})


def lists(i: int) -> pa.Table:
    """300 of 5,000 numbers in each file: value lists."""
    return pa.table({"v": np.random.default_rng(i).integers(0, 5000, 300)})


def names(i: int) -> pa.Table:
    """15 of 600 names in each file: short lists of strings."""
    chosen = np.random.default_rng(i).integers(0, 600, 15)
    return pa.table({"v": [f"name-{n * 7919 % 600}-of-something" for n in chosen.repeat(4)]})


def in_order(i: int) -> pa.Table:
    """Sorted instants and numbers: ranges, whose store is mostly rows and footers."""
    n = np.arange(i * 1000, (i + 1) * 1000)
    return pa.table({"ts": pa.array(n * 10**6, pa.timestamp("us")), "k": n})


def skewed(i: int) -> pa.Table:
    """Ids; one file in ten is 200 times as large as the others."""
    return pa.table({"id": np.random.default_rng(i).integers(0, 10**12, 200 if i % 10 else 40_000)})


def days(i: int) -> pa.Table:
    """Days of a month that moves on: dates."""
    day = np.random.default_rng(i).integers(i * 3, i * 3 + 30, 500).astype("int32")
    return pa.table({"d": pa.array(day, pa.date32())})


def nested(i: int) -> pa.Table:
    """Fields of a struct: 64 random digits (longer than a bound may be), and a number."""
    rng = np.random.default_rng(i)
    rows = [{"hash": rng.bytes(40).hex(), "n": i * 100 + int(n)} for n in rng.integers(0, 300, 400)]
    return pa.table({"u": pa.array(rows)})


@pytest.mark.parametrize("files", [30, 150])
@pytest.mark.parametrize("make", [keys, lists, names, in_order, skewed, days, nested])
def test_a_real_build_is_within_twice_the_estimate(
    tmp_path: Path, make: Callable[[int], pa.Table], files: int
) -> None:
    table = write(tmp_path / "t", files, make)
    advice = advise_on(table)
    assert advice.indexes
    report = Table(str(table)).build(None, indexes=advice.indexes)
    assert report.files_built == files
    assert report.bytes_index / 2 <= advice.bytes_estimate <= report.bytes_index * 2


def test_many_columns_and_row_groups_count(tmp_path: Path) -> None:
    """The metadata of row groups is a part of every index, whatever columns it is over."""
    (tmp_path / "t").mkdir()
    for at in range(12):
        rows = pa.table({f"c{n}": range(at * 500, at * 500 + 500) for n in range(24)})
        pq.write_table(rows, tmp_path / "t" / f"{at}.parquet", row_group_size=100)
    advice = advise_on(tmp_path / "t")
    assert len(advice.indexes) == 24
    report = Table(str(tmp_path / "t")).build(None, indexes=advice.indexes)
    assert advice.bytes_estimate / 1.5 <= report.bytes_index <= advice.bytes_estimate * 1.5
