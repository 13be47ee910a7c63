"""Names of columns that meet: in folders and files, in two spellings, in the session's rules; and
names of files that look like patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import skipstone
from skipstone import Table
from skipstone.build.column_indexes import BuildSettings
from skipstone.build.job import BuildJob
from skipstone.indexes.minmax import MinMax
from skipstone.spark.hadoop_build import build_through_spark
from tests.accept.tables import write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def both_ways(spark: SparkSession, path: Path, where: str) -> tuple[int, int, int]:
    """Rows of plain Spark, rows through the index, files kept."""
    plain = spark.read.parquet(str(path)).where(where).count()
    frame = skipstone.skip(spark.read.parquet(str(path)).where(where))
    rows = frame.count()
    scans = skipstone.last_scan(spark)
    assert scans is not None
    return plain, rows, scans.files_kept


def test_a_folder_stands_before_a_column_of_the_files(spark: SparkSession, tmp_path: Path) -> None:
    """Folders p=1 and p=2; the file below p=1 has a column p of 99s: Spark reads p as 1."""
    root = tmp_path / "table"
    write(root / "p=1" / "a.parquet", {"p": pa.array([99, 99], pa.int32()), "v": [1, 2]})
    write(root / "p=2" / "b.parquet", {"p": pa.array([98, 98], pa.int32()), "v": [3, 4]})
    # Built over one folder, where p is a column of the file like any other.
    Table(str(root / "p=1")).build(indexes=["p:minmax"])
    Table(str(root)).build(indexes=["v:minmax"])
    assert both_ways(spark, root, "p = 1") == (2, 2, 1)
    assert both_ways(spark, root, "p = 99")[:2] == (0, 0)
    assert both_ways(spark, root, "p = 1 OR v = 4") == (3, 3, 2)
    plan = Table(str(root)).plan("p = 1")
    assert [path.rpartition("/")[2] for path in plan.paths] == ["a.parquet"]
    alone = root / "p=1"
    assert both_ways(spark, alone, "p = 99") == (2, 2, 1)
    assert both_ways(spark, alone, "p = 1")[:2] == (0, 0)


def test_a_session_that_minds_case_is_told_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """One file has `id`, the other `ID`: one column by default, two where case matters."""
    root = tmp_path / "table"
    write(root / "a.parquet", {"id": [1, 2]})
    write(root / "b.parquet", {"ID": [8, 9]})
    Table(str(root)).build(indexes=["id:minmax"])
    assert both_ways(spark, root, "id = 9") == (1, 1, 1)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame = spark.read.schema("id long").parquet(str(root)).where("id IS NULL")
        assert frame.count() == 2
        assert skipstone.skip(frame).count() == 2
        scans = skipstone.last_scan(spark)
        assert "caseSensitive" in str(scans)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


PATTERNS = ["a[1]", "a1", "b{x,y}", "c*d", "e?f", "p q%20", "back\\slash", "plain"]


def test_names_that_look_like_patterns_are_read_once_through_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, name in enumerate(PATTERNS):
        write(tmp_path / "t" / f"{name}.parquet", {"id": [number]})
    table = Table(str(tmp_path / "t"))
    job = BuildJob(
        table=table.path,
        location=table.location.root,
        storage_options={},
        definitions=(MinMax("id"),),
        schema=pa.schema([("id", pa.int64())]),
        settings=BuildSettings(settle=0),
    )
    listing = table.listing()
    found = build_through_spark(spark, job, listing, None)
    assert sorted((each.path, each.error) for each in found) == [
        (path, None) for path in sorted(listing.paths)
    ]
    for number, name in enumerate(PATTERNS):
        plan = Table(table.path).plan(f"id = {number}", inside=False)
        assert [path.rpartition("/")[2] for path in plan.paths] == [f"{name}.parquet"]
