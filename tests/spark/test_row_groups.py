"""Row group metadata on the Spark paths: files are dropped by columns that have no index.

Six files of ten row groups of ten rows. ``k`` has an index; ``r`` is 3 times the row's number plus
the file's, in row groups with gaps of 3; ``t`` a timestamp, of which file 0 has one before 1900.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from tests.spark.layout import read_by_spark, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OLD = 1_600_000_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "t é%"
    folder.mkdir()
    for file in range(6):
        number = np.arange(100)
        first = dt.datetime(1583 if file == 0 else 2020, 1, 1, tzinfo=dt.UTC)
        data = pa.table(
            {
                "k": number + file,
                "r": number * 3 + 1_000 * file,
                "t": pa.array([first + dt.timedelta(days=i) for i in range(100)]),
            }
        )
        pq.write_table(data, folder / f"{file}.parquet", row_group_size=10)
        os.utime(folder / f"{file}.parquet", (OLD, OLD))
    return folder


def test_files_are_dropped_by_columns_without_an_index(home: Path, spark: SparkSession) -> None:
    report = Table(str(home)).build(spark, ["k:bloom"])
    assert report.files_built == 6
    assert Table(str(home)).describe().pm_files == 6
    plain = spark.read.parquet(str(home))
    frame = skipstone.skip(plain)
    for where, most in (("r = 2030", 1), ("r = 2900", 0), ("r < 500 OR k = 4711", 1)):
        assert rows(plain.where(where)) == (found := read_by_spark(frame.where(where)))[0], where
        assert found[1] <= most, where
    plan = skipstone.last_scan(spark).scans[-1].report
    assert plan is not None
    assert any(each.index == "_pm statistics" for each in plan.steps)


def test_an_old_calendar_says_nothing(home: Path, spark: SparkSession) -> None:
    """No Spark wrote file 0: whether its first days are Julian nobody can say."""
    Table(str(home)).build(None, ["k:bloom"])
    frame = skipstone.skip(spark.read.parquet(str(home)))
    found, files = read_by_spark(frame.where("t < TIMESTAMP '1700-01-01 00:00:00'"))
    assert len(found) == 100
    assert files == 1
    found, files = read_by_spark(frame.where("t > TIMESTAMP '2100-01-01 00:00:00'"))
    assert (found, files) == ([], 1)


def test_the_last_scan_shows_every_level(home: Path, spark: SparkSession) -> None:
    """One row of file 3 matches: of its ten row groups one is left, of its rows one."""
    Table(str(home)).build(None, ["k:bitmap"])
    frame = skipstone.skip(spark.read.parquet(str(home)))
    assert frame.where("k = 34 AND r BETWEEN 3000 AND 3200").count() == 1
    scans = skipstone.last_scan(spark)
    text = str(scans)
    for line in (
        r"\n *files +k +\S+ +",
        r"\n *row groups +k +_pm statistics +\d+ -> \d+ row groups",
        r"\n *rows +k +bitmap +\d+ -> 1 rows",
        r"\n *left: 1 of 6 files, 1 of 600 rows\n",
        r"reads whole files: 1 of 100 rows in them may match",
        r"read 1 of 6 files, ",
    ):
        assert re.search(line, text), (line, text)
    steps = scans.to_dict()["scans"][0]["report"]["steps"]
    assert {"files", "row groups", "rows"} <= {each["level"] for each in steps}
    assert "reads whole files" in scans._repr_html_()
