"""Spark Connect: what the client skips, Spark does not read, and every row is there.

``ten_files`` has ids 0 to 99, ten to a file, under awkward names. The filter itself is also run on
a classic session, where Spark tells how many files it read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from skipstone.errors import PredicateError
from skipstone.pruning.plan import Plan
from skipstone.spark.read_path import read_connect, skip_filter
from skipstone.spark.session import is_connect
from skipstone.storage import Listing
from tests.spark.layout import read_by_spark, rows, ten_files, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@dataclass
class Known:
    """A table whose plan keeps the files with these ids, as listed when it was made."""

    root: Path
    ids: tuple[int, ...]
    zones: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.made = self.make()

    @property
    def path(self) -> str:
        return str(self.root)

    def make(self) -> Plan:
        import pyarrow.parquet as pq

        paths = sorted(self.root.rglob("*.parquet"))
        stats = [path.stat() for path in paths]
        listing = Listing(
            root=str(self.root),
            paths=[str(path) for path in paths],
            sizes=np.array([s.st_size for s in stats], np.int64),
            mtimes=np.array([s.st_mtime_ns for s in stats], np.int64),
        )
        found = [set(pq.ParquetFile(p).read(["id"])["id"].to_pylist()) for p in paths]
        keep = np.array([not found_ids.isdisjoint(self.ids) for found_ids in found], np.bool_)
        return Plan(
            table=self.path,
            predicate="",
            listing=listing,
            keep=keep,
            must=np.zeros(len(paths), np.bool_),
            row_counts=np.full(len(paths), 10, np.int64),
        )

    def plan(self, where: Any = None, *, time_zone: str = "UTC", **how: Any) -> Plan:
        self.zones.append(time_zone)
        return self.made


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return ten_files(tmp_path / "t é% 'q'")


def test_which_sessions_are_remote(spark: SparkSession, spark_connect: SparkSession) -> None:
    assert is_connect(spark_connect)
    assert is_connect(spark_connect.range(1))
    assert not is_connect(spark)
    assert not is_connect(spark.range(1))


def test_rows_and_files(spark_connect: SparkSession, table: Path) -> None:
    known = Known(table, (5, 25, 99))
    frame = read_connect(spark_connect, known.path, known.plan, "id IN (5, 25, 99)", {})
    plain = spark_connect.read.parquet(str(table)).where("id IN (5, 25, 99)")
    assert frame.columns == plain.columns
    assert rows(frame) == rows(plain)
    read = {row.file for row in frame.selectExpr("_metadata.file_name AS file").collect()}
    assert len(read) == 3
    assert known.zones == ["UTC"]
    everything = read_connect(spark_connect, known.path, known.plan, None, {})
    assert everything.count() == 100
    none = Known(table, ())
    nothing = read_connect(spark_connect, none.path, none.plan, "id = 1000", {})
    assert rows(nothing) == []


def test_spark_reads_only_what_is_kept(spark: SparkSession, table: Path) -> None:
    """The filter on a classic session, for every file of awkward name in turn."""
    for number in range(10):
        text = skip_filter(Known(table, (number * 10,)).made)
        assert text is not None
        frame = spark.read.parquet(str(table)).where(text).where(f"id >= 0 AND id % 10 < {3}")
        found, files = read_by_spark(frame)
        assert len(found) == 3
        assert files == 1
    assert skip_filter(Known(table, tuple(range(100))).made) is None
    empty = skip_filter(Known(table, ()).made)
    assert empty is not None
    assert read_by_spark(spark.read.parquet(str(table)).where(empty)) == ([], 0)


def test_new_and_replaced_files_are_read(spark_connect: SparkSession, table: Path) -> None:
    """After the client has listed: a new one, one of another time, one of another size."""
    known = Known(table, (25,))
    frame = read_connect(spark_connect, known.path, known.plan, "id = 25", {})
    assert frame.count() == 1
    write(table / "later.parquet", range(20, 30))
    touched = table / "a b.parquet"
    size = touched.stat().st_size
    write(touched, range(20, 30))
    assert touched.stat().st_size == size
    os.utime(touched, ns=(0, 10**18))
    write(table / "c,d.parquet", range(20, 35))
    again = read_connect(spark_connect, known.path, known.plan, "id = 25", {})
    assert again.count() == 4


def test_past_the_limit_the_largest_are_skipped(spark: SparkSession, table: Path) -> None:
    write(table / "large.parquet", range(100, 5_000))
    text = skip_filter(Known(table, ()).made, limit=3)
    assert text is not None
    assert text.count("|") == 2 + 2 * 3
    assert "large.parquet|" in text
    assert read_by_spark(spark.read.parquet(str(table)).where(text))[1] == 11 - 3


def test_partition_folders_and_seconds(spark: SparkSession, tmp_path: Path) -> None:
    """Hive's escapes in folders are escaped once more in URIs; a store may know seconds only."""
    for part in ("a%2Fb%3Dc", "é ü", "100%25"):
        (tmp_path / "h" / f"p={part}").mkdir(parents=True)
        write(tmp_path / "h" / f"p={part}" / "x.parquet", range(3))
    made = Known(tmp_path / "h", ()).made
    listing = made.listing
    coarse = replace(listing, mtimes=listing.mtimes // 10**9, unit="s")
    for plan in (made, replace(made, listing=coarse)):
        text = skip_filter(plan)
        assert text is not None
        assert read_by_spark(spark.read.parquet(str(tmp_path / "h")).where(text)) == ([], 0)


@pytest.mark.parametrize("trouble", ["predicate", "setting", "column"])
def test_trouble_reads_everything_and_says_so(
    spark_connect: SparkSession, table: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    known = Known(table, ())  # a plan that would skip everything
    setting = "spark.sql.parquet.fieldId.read.enabled"
    if trouble == "predicate":

        def plan(where: Any = None, **how: Any) -> Plan:
            raise PredicateError("what is this")

        known.plan = plan  # type: ignore[method-assign]
    elif trouble == "setting":
        spark_connect.conf.set(setting, "true")
    else:
        other = spark_connect.read.parquet(str(table)).selectExpr("*", "struct(s) AS _metadata")
        other.write.parquet(str(table.parent / "own"))
        known.root = table.parent / "own"
    try:
        assert read_connect(spark_connect, known.path, known.plan, "id = 25", {}).count() == 1
    finally:
        spark_connect.conf.unset(setting)
    assert "is read in full" in caplog.text
