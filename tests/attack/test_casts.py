"""Casts whose meaning hangs on more than the two types: the zone they were made in, the units.

A cast keeps the session time zone of the moment when the DataFrame was made, also where the zone is
changed before it runs; and an interval is counted in units that its stored number does not show.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[None]:
    """Whatever a test does to the session's zone is undone."""
    before = spark.conf.get(ZONE)
    assert before is not None
    yield
    spark.conf.set(ZONE, before)


@pytest.fixture
def hours(tmp_path: Path) -> str:
    """Six files: `ts` in file n is 2024-01-01 at n × 4 hours and a half, in UTC."""
    root = tmp_path / "hours"
    root.mkdir()
    for n in range(6):
        instant = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=4 * n, minutes=30)
        path = root / f"{n}.parquet"
        pq.write_table(pa.table({"ts": pa.array([instant], pa.timestamp("us", "UTC"))}), path)
        os.utime(path, (1_600_000_000, 1_600_000_000))
    Table(str(root)).build(indexes=["ts:minmax"])
    return str(root)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    "where",
    [
        "date(ts) IN (date'2024-01-02', date'2023-12-31')",
        "NOT (date(ts) IN (date'2024-01-01', date'2023-12-31'))",
        "date(ts) = date'2024-01-02'",
        "CAST(ts AS timestamp_ntz) >= timestamp_ntz'2024-01-02 00:00:00'",
    ],
)
def test_a_cast_keeps_the_zone_it_was_made_in(spark: SparkSession, hours: str, where: str) -> None:
    """In Tokyo the files from 16:30 UTC on are of the next day, whatever the zone is later."""

    def ask(*, skipping: bool) -> list[str]:
        spark.conf.set(ZONE, "Asia/Tokyo")
        frame = spark.read.parquet(hours).where(where)
        if skipping:
            frame = skipstone.skip(frame)
        spark.conf.set(ZONE, "UTC")
        return sorted(map(repr, frame.collect()))

    plain = ask(skipping=False)
    assert len(plain) == 2
    assert ask(skipping=True) == plain


@pytest.fixture
def intervals(spark: SparkSession, tmp_path: Path) -> str:
    """Three rows, a file each: 1, 2 and 3 years; a day and as many hours; 1, 12 and 3."""
    root = tmp_path / "intervals"
    years = "make_ym_interval(n, 0)"
    spark.sql(
        f"SELECT CAST({years} AS interval year) y, named_struct('y', {years}) s, "
        "make_dt_interval(1, n) d, IF(n = 2, 12, n) i FROM (SELECT explode(array(1, 2, 3)) n)"
    ).repartitionByRange(3, "y").write.parquet(str(root))
    for path in root.glob("*.parquet"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    indexes = ["y:minmax", "y:valuelist", "s.y:minmax", "d:minmax", "i:minmax", "i:bloom"]
    Table(str(root)).build(indexes=indexes)
    return str(root)


@pytest.mark.parametrize(
    "where, rows",
    [
        ("CAST(y AS int) = 1", 1),
        ("CAST(y AS decimal(10, 0)) = 2", 1),
        ("CAST(s.y AS interval year) = INTERVAL '3' YEAR", 1),
        ("CAST(d AS interval day) = INTERVAL '1' DAY", 3),
        ("CAST(i AS interval year) = INTERVAL '1' YEAR", 1),
        ("CAST(i AS interval month) = INTERVAL '1' YEAR", 1),
        ("y > INTERVAL '18' MONTH", 2),
        ("y = INTERVAL '2' YEAR", 1),
    ],
)
def test_an_interval_is_counted_in_its_own_units(
    spark: SparkSession, intervals: str, where: str, rows: int
) -> None:
    """The stored number is months or microseconds, and what a cast makes of it is years or days."""
    frame = spark.read.parquet(intervals).where(where).select("i")
    assert len(frame.collect()) == rows
    assert len(skipstone.skip(frame).collect()) == rows


def test_an_interval_under_a_cast_prunes_nothing_without_spark(intervals: str) -> None:
    """As text the same: `y` is 12, 24 and 36 months."""
    plan = Table(intervals).plan("CAST(y AS int) = 12")
    assert plan.keep.tolist() == [True, True, True]
    assert not plan.must.any()
