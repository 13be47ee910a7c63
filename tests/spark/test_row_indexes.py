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
from skipstone.facts.export import export_containers
from skipstone.spark.relation import FILE_INDEX
from tests.spark.layout import read_by_spark, read_remotely, rows

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


def test_a_remote_session_reads_no_others(home: Path, spark_connect: SparkSession) -> None:
    table = Table(str(home))
    table.build(indexes=INDEXES)
    plain = spark_connect.read.parquet(str(home))
    assert read_remotely(plain)[1] == 10  # the server does tell
    for where, most in QUESTIONS:
        found, files = read_remotely(table.read(spark_connect, where))
        assert found == rows(plain.where(where)), where
        assert files <= most, where
    off = Table(str(home), options={"file-index.read.enabled": "false"})
    found, files = read_remotely(off.read(spark_connect, "m = 3 AND k = 77"))
    assert (found, files) == ([], 10)  # bounds of k tell nothing, and its bitmap is not asked


def test_a_remote_session_without_facts_of_some_files(
    home: Path, spark_connect: SparkSession
) -> None:
    """One file is replaced and one comes: both are read. Then all containers are lost: all are."""
    table = Table(str(home))
    table.build(indexes=["k:bitmap"], options={"file-index.in-manifest-threshold": "0 b"})
    pq.write_table(pa.table({"k": [77], "m": [0], "s": ["new"]}), home / "new.parquet")
    pq.write_table(pa.table({"k": [77, 1], "m": [0, 1], "s": ["x", "y"]}), home / "3.parquet")
    plain = spark_connect.read.parquet(str(home))
    found, files = read_remotely(table.read(spark_connect, "k = 77"))
    assert found == rows(plain.where("k = 77"))
    assert 2 <= files <= 3
    for pack in Path(table.location.packs).iterdir():
        pack.write_bytes(b"")
    found, files = read_remotely(Table(str(home)).read(spark_connect, "k = 77"))
    assert found == rows(plain.where("k = 77"))
    assert files == 11


def test_keys_of_maps_skip_files(tmp_path: Path, spark: SparkSession) -> None:
    """Four files: of file i, m['k'] is "v<i>", missing in one row and without a map in another."""
    (tmp_path / "t").mkdir()
    type = pa.map_(pa.string(), pa.string())
    for file in range(4):
        data = pa.array([[("k", f"v{file}"), ("k2", "x")], [("k2", "y")], None], type)
        pq.write_table(pa.table({"m": data}), tmp_path / "t" / f"{file}.parquet")
        os.utime(tmp_path / "t" / f"{file}.parquet", (OLD, OLD))
    Table(str(tmp_path / "t")).build(spark, ["m['k']:bitmap"])
    plain = spark.read.parquet(str(tmp_path / "t"))
    frame = skipstone.skip(plain)
    for where, most in (
        ("m['k'] = 'v2'", 1),
        ("m['k'] IN ('v0', 'v3')", 2),
        ("element_at(m, 'k') = 'v2'", 4),
        ("m['k'] IS NULL", 4),
        ("m['k2'] = 'x'", 4),
        ("m['k'] = 'none'", 0),
    ):
        found, files = read_by_spark(frame.where(where))
        assert found == rows(plain.where(where)), where
        assert files <= most, where


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
