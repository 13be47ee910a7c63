"""``last_scan`` is about the last query of the thread, or says why that query has no scan.

``events`` has an index next to it, ``plain`` has none. Both have ids 0 to 99, ten to a file.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import skipstone
from skipstone import Table
from skipstone.errors import NoIndexError, UnsupportedError
from skipstone.spark.relation import INDEX_LOCATION
from tests.spark.layout import ten_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = ten_files(tmp_path_factory.mktemp("last") / "events")
    Table(str(root)).build(indexes=["id:minmax"])
    return root


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ten_files(tmp_path_factory.mktemp("last") / "plain")


def scanned(spark: SparkSession, events: Path) -> None:
    """A query that read one file of ten, so that an older scan is there to be shown."""
    skipstone.skip(spark.read.parquet(str(events))).where("id = 25").collect()
    assert skipstone.last_scan(spark).files_kept == 1


def why(spark: SparkSession) -> str:
    """Why the last query has no scan."""
    found = skipstone.last_scan(spark)
    assert found.scans == ()
    assert found.execution is not None
    assert f"query {found.execution} has no scan of Skipstone" in str(found)
    return "; ".join(map(str, found.untouched))


def test_a_table_without_an_index(spark: SparkSession, events: Path, plain: Path) -> None:
    scanned(spark, events)
    skipstone.skip(spark.read.parquet(str(plain))).where("id = 25").collect()
    assert why(spark) == f"{plain}: has no index: `skipstone advise {plain}` proposes some"


def test_sql_that_was_not_wrapped(spark: SparkSession, events: Path) -> None:
    scanned(spark, events)
    spark.sql(f"SELECT * FROM parquet.`{events}` WHERE id = 25").collect()
    assert "has an index at" in why(spark)
    assert "enable(spark)" in why(spark)


def test_a_query_of_no_table(spark: SparkSession, events: Path) -> None:
    scanned(spark, events)
    spark.range(7).collect()
    assert "reads no files" in why(spark)


def test_a_dataframe_that_runs_again_has_its_scan(
    spark: SparkSession, events: Path, plain: Path
) -> None:
    frame = skipstone.skip(spark.read.parquet(str(events))).where("id = 25")
    frame.collect()
    spark.read.parquet(str(plain)).collect()
    assert skipstone.last_scan(spark).scans == ()
    frame.collect()
    assert skipstone.last_scan(spark).files_kept == 1


def test_a_join_says_which_side_has_no_index(
    spark: SparkSession, events: Path, plain: Path
) -> None:
    left = skipstone.skip(spark.read.parquet(str(events)))
    left.where("id = 25").join(spark.read.parquet(str(plain)), "id").collect()
    found = skipstone.last_scan(spark)
    assert [scan.files_kept for scan in found] == [1]
    assert [reason.subject for reason in found.untouched] == [str(plain)]


def test_rows_that_were_read_from_a_cache(spark: SparkSession, events: Path) -> None:
    frame = skipstone.skip(spark.read.parquet(str(events))).where("id < 25").cache()
    try:
        frame.count()
        assert skipstone.last_scan(spark).files_kept == 3
        frame.where("id = 3").collect()
        assert "cache" in why(spark)
    finally:
        frame.unpersist()


def test_table_read_has_its_scan_until_another_query(
    spark: SparkSession, events: Path, plain: Path
) -> None:
    spark.read.parquet(str(plain)).collect()
    frame = Table(str(events)).read(spark, "id = 25")
    frame.collect()
    assert skipstone.last_scan(spark).files_kept == 1
    frame.count()
    assert skipstone.last_scan(spark).files_kept == 1
    spark.range(7).collect()
    assert "reads no files" in why(spark)


def test_queries_of_other_threads_do_not_count(
    spark: SparkSession, events: Path, plain: Path
) -> None:
    def other() -> None:
        skipstone.skip(spark.read.parquet(str(plain))).where("id = 25").collect()

    scanned(spark, events)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert skipstone.last_scan(spark).files_kept == 1


def test_enabled_session_with_a_mistyped_location(
    spark: SparkSession, events: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scanned(spark, events)
    spark.conf.set(INDEX_LOCATION, "/lake/mistyped")
    skipstone.enable(spark)
    try:
        spark.sql(f"SELECT * FROM parquet.`{events}` WHERE id = 25").collect()
        assert "there is no index at /lake/mistyped" in why(spark)
    finally:
        skipstone.disable(spark)
        spark.conf.unset(INDEX_LOCATION)
    assert "/lake/mistyped" in caplog.text


def test_skip_after_disable_wraps_again(spark: SparkSession, events: Path) -> None:
    skipstone.enable(spark)
    frame = spark.read.parquet(str(events))
    skipstone.disable(spark)
    skipstone.skip(frame).where("id = 25").collect()
    assert skipstone.last_scan(spark).files_kept == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda spark, root: skipstone.skip(spark.read.parquet(root), "/lake/mistyped"),
        lambda spark, root: skipstone.skip(spark.read.parquet(root), {root: "/lake/mistyped"}),
        lambda spark, root: skipstone.read(spark, root, index_location="/lake/mistyped"),
        lambda spark, root: skipstone.read(spark, root, "id = 1", index_location="/lake/mistyped"),
    ],
)
def test_a_mistyped_location_is_an_error(
    spark: SparkSession, events: Path, call: Callable[[SparkSession, str], object]
) -> None:
    with pytest.raises(NoIndexError, match="there is no index at /lake/mistyped"):
        call(spark, str(events))


def test_connect_has_a_way_out(spark_connect: SparkSession) -> None:
    with pytest.raises(UnsupportedError, match=r"needs a classic session.*skipstone\.explain"):
        skipstone.last_scan(spark_connect)
