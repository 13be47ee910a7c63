"""Partitions by their time: every unit's end, nanoseconds, and what is not known."""

from __future__ import annotations

import pytest

from skipstone.questdb.format.txn import Partitioning, PartitionUnit, unit_end
from skipstone.questdb.partition_evidence import PartitionTimes
from tests.txn_tables import micros

DAY = Partitioning("day")


@pytest.mark.parametrize(
    "unit, start, end",
    [
        ("hour", (2024, 2, 29, 23), (2024, 3, 1)),
        ("day", (2024, 2, 29), (2024, 3, 1)),
        ("day", (2024, 2, 29, 13, 5), (2024, 3, 1)),
        ("week", (2020, 12, 28), (2021, 1, 4)),
        ("week", (2020, 12, 31, 4), (2021, 1, 4)),
        ("month", (2024, 12, 1), (2025, 1, 1)),
        ("month", (2024, 2, 10), (2024, 3, 1)),
        ("year", (2024, 1, 1), (2025, 1, 1)),
        ("year", (1969, 5, 1), (1970, 1, 1)),
    ],
)
def test_the_end_of_a_unit(
    unit: PartitionUnit, start: tuple[int, ...], end: tuple[int, ...]
) -> None:
    at, then = micros(*start), micros(*end)
    assert unit_end(at, Partitioning(unit)) == then
    assert unit_end(at * 1000, Partitioning(unit, nanos=True)) == then * 1000


def test_there_is_not_always_an_end() -> None:
    assert unit_end(0, Partitioning("none")) is None
    assert unit_end(micros(9999, 1, 1), Partitioning("year")) is None
    assert unit_end(1 << 62, DAY) is None


def test_files_of_another_column_are_not_known() -> None:
    start = micros(2024, 1, 1)
    times = PartitionTimes.of("ts", [start, start, start], DAY, ["ts", "at", None])
    assert times.first == [start * 1000, None, None]
    assert times.last == [micros(2024, 1, 2) * 1000 - 1, None, None]
