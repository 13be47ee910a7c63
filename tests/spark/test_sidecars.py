"""Paimon's sidecars beside the data files, on the Spark paths: fewer files, the same rows.

The layout: six files of 100 rows. ``k`` has the values 0 … 599 spread over all files, each in one
file only, so that bounds say nothing; ``s`` is the text of ``k``. No index of ours.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from skipstone.spark.relation import FILE_INDEX
from tests.spark.layout import read_by_spark, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

OLD, NEW = 1_600_000_000, 1_600_000_100
NAMES = ["a b", "50%é", "p", "q=1; x", "it's", "z,"]
QUESTIONS = [
    ("k = 77", 1),
    ("k IN (77, 78, 5000)", 2),
    ("k = 77 AND s = 'v78'", 0),
    ("k BETWEEN 1 AND 2 OR s = 'v500'", 3),
    ("s LIKE 'v59%' AND k < 0", 0),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Data files and their sidecars."""
    folder = tmp_path / "t"
    folder.mkdir()
    spread = np.random.default_rng(3).permutation(600).reshape(6, 100)
    for name, k in zip(NAMES, spread, strict=True):
        data = pa.table({"k": k, "s": [f"v{each}" for each in k.tolist()]})
        pq.write_table(data, folder / f"{name}.parquet")
        os.utime(folder / f"{name}.parquet", (OLD, OLD))
    table = Table(str(folder))
    table.build(indexes=["k:bitmap", "s:rangebitmap"])
    table.export(str(tmp_path / "out"), kind="paimon")
    for sidecar in (tmp_path / "out").iterdir():
        shutil.copy(sidecar, folder)
        os.utime(folder / sidecar.name, (NEW, NEW))
    shutil.rmtree(tmp_path / "_t.skipstone")
    return folder


def of_pattern(spark: SparkSession, home: Path) -> DataFrame:
    return spark.read.option("pathGlobFilter", "*.parquet").parquet(str(home))


def of_files(spark: SparkSession, home: Path) -> DataFrame:
    return spark.read.parquet(*[str(path) for path in sorted(home.glob("*.parquet"))])


def of_glob(spark: SparkSession, home: Path) -> DataFrame:
    return spark.read.parquet(f"{home}/*.parquet")


@pytest.mark.parametrize("plainly", [of_pattern, of_files, of_glob])
def test_the_sidecars_of_the_files_that_spark_lists(
    home: Path, spark: SparkSession, plainly: object
) -> None:
    assert callable(plainly)
    plain: DataFrame = plainly(spark, home)
    frame = skipstone.skip(plain)
    for where, most in QUESTIONS:
        found, files = read_by_spark(frame.where(where))
        assert found == rows(plain.where(where)), where
        assert files <= most, where
    assert frame.count() == 600
    assert "of 6 files" in str(skipstone.explain(frame.where("k = 77")))


def test_the_table_is_read_whole_and_with_later_filters(home: Path, spark: SparkSession) -> None:
    """Plain Spark fails at the sidecars; the table leaves them out."""
    plain = of_pattern(spark, home)
    frame = Table(str(home)).read(spark)
    assert frame.count() == 600
    for where, most in QUESTIONS:
        found, files = read_by_spark(frame.where(where))
        assert found == rows(plain.where(where)), where
        assert files <= most, where
    assert Table(str(home)).read(spark, where="k = 77").count() == 1
    assert Table(str(home)).read(spark, mergeSchema="true").count() == 600
    assert Table(str(home)).read(spark, pathGlobFilter="p.*t").count() == 100


def test_a_file_that_is_replaced_is_read(home: Path, spark: SparkSession) -> None:
    """After skip(df), by another of as many rows, with the time put back."""
    frame = skipstone.skip(of_pattern(spark, home))
    assert frame.where("k = 9999").count() == 0
    path = home / "p.parquet"
    data = pa.table({"k": [9999] * 100, "s": ["x"] * 100})
    pq.write_table(data, path)
    os.utime(path, (OLD, OLD))
    assert frame.where("k = 9999").count() in (0, 100)  # Spark's listing may be that of before
    again = skipstone.skip(of_pattern(spark, home))
    assert again.where("k = 9999").count() == 100
    assert again.where("k = 9999 AND s = 'x'").count() == 100


def test_it_can_be_switched_off(home: Path, spark: SparkSession) -> None:
    spark.conf.set(FILE_INDEX, "false")
    try:
        found, files = read_by_spark(skipstone.skip(of_pattern(spark, home)).where("k = 77"))
    finally:
        spark.conf.unset(FILE_INDEX)
    assert (len(found), files) == (1, 6)
    off = Table(str(home), sidecars=False).plan("k = 77 AND s = 'v78'")
    assert off.count() != 0


def test_case_sensitive_sessions_do_not_ask_them(home: Path, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame = skipstone.skip(of_pattern(spark, home))
        assert read_by_spark(frame.where("k = 77")) == (["Row(k=77, s='v77')"], 6)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
