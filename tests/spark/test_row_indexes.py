"""Row indexes on the Spark paths: files in which no row matches are not read, and rows are the
same.

The layout: ten files of 100 rows. ``k`` has the values 0 … 999 spread over all files, each in one
file only, so that bounds say nothing; ``m`` is ``k % 7``; ``s`` the text of ``k``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.spark.pruner import FILE_INDEX
from skipstone.store.sidecars import export_containers

from .layout import read_by_spark, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = 1_600_000_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir()
    spread = np.random.default_rng(3).permutation(1_000).reshape(10, 100)
    for file, k in enumerate(spread):
        data = pa.table({"k": k, "m": k % 7, "s": [f"v{each}" for each in k.tolist()]})
        pq.write_table(data, folder / f"{file}.parquet")
        os.utime(folder / f"{file}.parquet", (OLD, OLD))
    return folder


INDEXES = ["k:bitmap", "m:rangebitmap", "s:bloom-filter(items=100,fpp=0.001)", "k:minmax"]
QUESTIONS = [
    ("k = 77", 1),
    ("k IN (77, 78, 5000)", 2),
    ("k = 77 AND m = 3", 0),  # 77 % 7 is 0: each index alone has rows, together none
    ("(k = 77 OR k = 500) AND m < 7", 2),
    ("s = 'v77' AND k > 0", 1),
]


def test_files_without_a_matching_row_are_not_read(home: Path, spark: SparkSession) -> None:
    report = Table(str(home)).build(spark, INDEXES)
    assert report.files_built == 10
    plain = spark.read.parquet(str(home))
    frame = skipstone.skip(plain)
    for where, most in QUESTIONS:
        found, files = read_by_spark(frame.where(where))
        assert found == rows(plain.where(where)), where
        assert files <= most, where
    explained = str(skipstone.explain(frame.where("k = 77 AND m = 3")))
    assert "rows" in explained


def test_the_job_writes_what_this_process_writes(home: Path, spark: SparkSession) -> None:
    here, there = Table(str(home), index_location=f"{home}-here"), Table(str(home))
    there.build(spark, INDEXES)
    here.build(indexes=INDEXES)
    written = []
    for table in (here, there):
        out = f"{table.location.root}-out"
        matched = table.match(table.listing())
        export_containers(matched, table=table.path, destination=out, options={})
        written.append([(Path(out) / f"{file}.parquet.index").read_bytes() for file in range(10)])
    assert written[0] == written[1]


def test_switched_off_they_say_nothing(home: Path, spark: SparkSession) -> None:
    Table(str(home)).build(spark, INDEXES[:3])
    spark.conf.set(FILE_INDEX, "false")
    try:
        frame = skipstone.skip(spark.read.parquet(str(home)))
        found, files = read_by_spark(frame.where("k = 77"))
    finally:
        spark.conf.unset(FILE_INDEX)
    assert (len(found), files) == (1, 10)


def test_rows_of_other_formats_have_no_positions(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.csv").write_text("k\n1\n2\n")
    table = Table(str(tmp_path / "c"), format="csv", options={"header": "true"}, schema="k INT")
    with pytest.raises(UnsupportedError, match="positions"):
        table.build(spark, ["k:bitmap"])
