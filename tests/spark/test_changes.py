"""Files that change, appear or go between index, listing and query; and all that can fail.

``ten_files`` has ids 0 to 99, ten to a file. A query must give plain Spark's rows throughout.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.spark.last_query import last_scan
from skipstone.spark.relation import FileListing
from skipstone.spark.session import Jvm
from skipstone.spark.skip import skip
from skipstone.storage.file_status import ListingError
from tests.spark.fake import finder
from tests.spark.layout import read_by_spark, rows, ten_files, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return ten_files(tmp_path / "t")


def replace(path: Path, ids: range) -> None:
    """Put other rows into the file, of equal size, and restore its modification time."""
    before = path.stat()
    new = path.with_suffix(".new")
    write(new, ids)
    assert new.stat().st_size == before.st_size
    new.replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_replaced_under_a_cached_listing_is_read(spark: SparkSession, table: Path) -> None:
    """Equal size, restored time, and Spark's list is from before: only inode and ctime tell."""
    df = skip(spark.read.parquet(str(table)), finder(table)).where("id = 25")
    assert read_by_spark(df)[1] == 1
    again = skip(spark.read.parquet(str(table)), finder(table))
    assert again.where("id = 25").count() == 1
    replace(table / "a b.parquet", range(20, 30))  # ids 10 to 19 become 20 to 29
    found, read = read_by_spark(again.where("id = 25"))
    assert len(found) == 2
    assert read == 2
    scans = last_scan(spark)
    assert scans is not None
    assert "changed since" in str(scans)


def test_a_file_rewritten_with_another_size(spark: SparkSession, table: Path) -> None:
    df = skip(spark.read.parquet(str(table)), finder(table))
    df.where("id = 25").count()
    write(table / "plain.parquet", range(20, 31))
    assert df.where("id = 25").count() == 2


def test_new_and_changed_files_are_read(spark: SparkSession, table: Path) -> None:
    """The facts are from before; Spark lists now."""
    find = finder(table)
    write(table / "later.parquet", range(20, 30))
    write(table / "c,d.parquet", range(20, 31))
    df = spark.read.parquet(str(table))
    found, read = read_by_spark(skip(df, find).where("id = 25"))
    assert found == rows(df.where("id = 25"))
    assert len(found) == 3
    assert read == 3


def test_a_refresh_of_spark_is_noticed(spark: SparkSession, table: Path) -> None:
    """Another DataFrame's index object is refreshed: the list behind ours changes with it."""
    df = spark.read.parquet(str(table))
    find = finder(table)
    skipping = skip(df, find)
    assert skipping.where("id = 25").count() == 1
    write(table / "later.parquet", range(20, 30))
    location = df._jdf.queryExecution().analyzed().relation().location()
    location.refresh()
    assert df.where("id = 25").count() == 2
    assert skipping.where("id = 25").count() == 2
    assert find.pruners[str(table)].matches == 2
    (table / "later.parquet").unlink()
    skipped = skipping._jdf.queryExecution().analyzed().relation().location()
    skipped.refresh()
    assert skipping.where("id = 25").count() == 1


def test_the_listing_is_matched_once(spark: SparkSession, table: Path) -> None:
    find = finder(table)
    df = skip(spark.read.parquet(str(table)), find)
    for i in range(5):
        assert df.where(f"id = {i * 10}").count() == 1
    assert find.pruners[str(table)].matches == 1


@pytest.mark.parametrize("phase", ["match", "prune", "still_valid"])
def test_a_pruner_that_fails_reads_everything(spark: SparkSession, table: Path, phase: str) -> None:
    find = finder(table)
    find.pruners[str(table)].fail = phase
    df = spark.read.parquet(str(table))
    found, read = read_by_spark(skip(df, find).where("id = 25"))
    scans = last_scan(spark)
    assert found == rows(df.where("id = 25"))
    assert read == 10
    assert scans is not None
    assert (scans.files_kept, scans.files_total) == (10, 10)
    assert "RuntimeError: no " in str(scans)


@pytest.mark.parametrize("broken", ["shape", "dtype", "none"])
def test_a_decision_of_the_wrong_shape_reads_everything(
    spark: SparkSession, table: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = finder(table)
    pruner = find.pruners[str(table)]
    honest = pruner.prune

    def prune(*args: Any) -> Any:
        pruning = honest(*args)
        keep: Any = {"shape": pruning.keep[:-1], "dtype": pruning.keep.astype(int), "none": None}
        object.__setattr__(pruning, "keep", keep[broken])
        return pruning

    monkeypatch.setattr(pruner, "prune", prune)
    found, read = read_by_spark(skip(spark.read.parquet(str(table)), find).where("id = 25"))
    assert (len(found), read) == (1, 10)


def test_a_listing_that_does_not_parse_reads_everything(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(texts: object) -> None:
        raise ListingError("a file status that prints otherwise")

    df = skip(spark.read.parquet(str(table)), finder(table))
    monkeypatch.setattr(FileListing, "parse", parse)
    found, read = read_by_spark(df.where("id = 25"))
    assert (len(found), read) == (1, 10)
    assert "prints otherwise" in str(last_scan(spark))


@pytest.mark.parametrize("lie", ["order", "count"])
def test_uris_in_another_order_are_not_believed(
    spark: SparkSession, table: Path, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Survivors are picked by position: should Spark ever list its paths in another order."""
    honest = Jvm.strings

    def strings(self: Jvm, array: object) -> list[str]:
        uris = honest(self, array)
        return uris[::-1] if lie == "order" else uris[1:]

    monkeypatch.setattr(Jvm, "strings", strings)
    found, read = read_by_spark(
        skip(spark.read.parquet(str(table)), finder(table)).where("id IN (25, 77)")
    )
    assert (len(found), read) == (2, 2)


def test_a_first_query_that_skips_nothing_vouches_for_nothing(
    spark: SparkSession, table: Path
) -> None:
    """What the files were when they were listed is not what they are at the next query."""
    df = skip(spark.read.parquet(str(table)), finder(table))
    assert df.where("parity = 1").count() == 50
    replace(table / "a b.parquet", range(20, 30))
    assert df.where("id = 25").count() == 2


def test_a_log_that_fails_does_not_stop_a_query(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("no log today")

    df = skip(spark.read.parquet(str(table)), finder(table))
    from skipstone.spark.scan_log import ScanLog

    monkeypatch.setattr(ScanLog, "record", broken)
    monkeypatch.setattr(ScanLog, "touch", broken)
    found, read = read_by_spark(df.where("id = 25"))
    assert (len(found), read) == (1, 1)


def test_an_error_of_spark_stays_an_error(spark: SparkSession, table: Path) -> None:
    """A file that is gone fails as it does without us."""
    df = skip(spark.read.parquet(str(table)), finder(table)).where("id = 25")
    (table / "100%25.parquet").unlink()
    with pytest.raises(Exception, match=r"(?i)not.?exist|FILE_NOT_EXIST|FAILED_READ_FILE"):
        df.collect()


def test_empty_and_hidden_files(spark: SparkSession, table: Path) -> None:
    """Spark lists but never reads empty files, and not even lists hidden ones."""
    (table / "empty.parquet").touch()
    (table / "_hidden.parquet").write_bytes(b"x")
    (table / ".hidden.parquet").write_bytes(b"x")
    find = finder_without(table, "empty.parquet", "_hidden.parquet", ".hidden.parquet")
    found, read = read_by_spark(skip(spark.read.parquet(str(table)), find).where("id = 25"))
    assert (len(found), read) == (1, 1)
    scans = last_scan(spark)
    assert scans is not None
    assert scans.files_total == 10


def finder_without(table: Path, *names: str) -> Any:
    """A finder whose facts leave out some files, which are no Parquet."""
    away = table.parent / "away"
    away.mkdir()
    for name in names:
        (table / name).replace(away / name)
    find = finder(table)
    for name in names:
        (away / name).replace(table / name)
    return find
