"""Settings that change what a file is read as: set between build and query, or after ``skip``."""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from skipstone.spark.session import set_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

OLD = (1_600_000_000, 1_600_000_000)
EXACT_STRINGS = "spark.sql.json.enableExactStringParsing"


@contextmanager
def setting(spark: SparkSession, **values: str) -> Iterator[None]:
    """Settings for a while; ``__`` stands for a dot."""
    with set_to(spark, {key.replace("__", "."): value for key, value in values.items()}):
        yield


def test_a_json_string_is_another_under_another_way_to_read_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One file has 1.0E3 and {"a": 1.50} where the schema says string, the other one "x"."""
    try:
        spark.conf.get(EXACT_STRINGS)
    except Exception:
        pytest.skip("this Spark has one way to read them")
    root = tmp_path / "strings"
    root.mkdir()
    (root / "a.json").write_text('{"s": 1.0E3}\n{"s": {"a": 1.50}}\n')
    (root / "b.json").write_text('{"s": "x"}\n')
    for path in root.iterdir():
        os.utime(path, OLD)
    table = Table(str(root), format="json", schema="s string")
    table.build(spark, indexes=["s:valuelist", "s:minmax"])

    for exact in ("true", "false"):
        with setting(spark, spark__sql__json__enableExactStringParsing=exact):
            frame = spark.read.schema("s string").json(str(root))
            values = [row.s for row in frame.collect()]
            assert len(values) == 3
            for value in values:
                found = skipstone.skip(frame.where(frame.s == value)).collect()
                assert [row.s for row in found] == [value], f"exact={exact}"


def test_a_conversion_of_timestamps_that_is_set_after_skip(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two files of INT96 that Spark did not write: noon of 1 January and of 1 June 2024.

    With the conversion, Spark takes them for local times of the session's zone.
    """
    root = tmp_path / "instants"
    root.mkdir()
    for month in (1, 6):
        column = pa.array([datetime(2024, month, 1, 12)], pa.timestamp("us"))
        path = root / f"{month}.parquet"
        pq.write_table(pa.table({"ts": column}), path, use_deprecated_int96_timestamps=True)
        os.utime(path, OLD)
    Table(str(root)).build(indexes=["ts:minmax", "ts:bloom"])
    with setting(spark, spark__sql__session__timeZone="America/Los_Angeles"):
        frame = spark.read.parquet(str(root)).where("ts = timestamp'2024-01-01 12:00:00'")
        frame = skipstone.skip(frame)
        with setting(spark, spark__sql__parquet__int96TimestampConversion="true"):
            assert len(frame.collect()) == 1


def test_int96_beyond_what_a_sum_of_64_bits_holds(spark: SparkSession, tmp_path: Path) -> None:
    """A file of the year 290000, which wraps around as it is written and as it is read."""
    root = tmp_path / "years"
    for year in ("+290000", "2024"):
        spark.sql(f"SELECT timestamp_ltz'{year}-01-01 00:00:00 UTC' ts").coalesce(1).write.mode(
            "append"
        ).parquet(str(root))
    for path in root.glob("*.parquet"):
        os.utime(path, OLD)
    Table(str(root)).build(indexes=["ts:minmax"])
    frame = spark.read.parquet(str(root)).where("ts > timestamp'9000-01-01'")
    assert frame.count() == 1
    assert skipstone.skip(frame).count() == 1
