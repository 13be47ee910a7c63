"""The main job under Spark Connect; ``test_cluster`` has that of a cluster.

The layout is that of ``tests/main_job.py``: 20 files of 500 rows, told apart by a filter on ``id``,
by the range of ``day``, and by the values of ``kind``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import skipstone
from skipstone import Table
from tests.main_job import FILES, ROWS, lay_out

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

INDEXES = ["id:bloom(fpp=0.001)", "day:minmax", "kind:valuelist"]


def test_build_and_read_under_connect(spark_connect: SparkSession, tmp_path: Path) -> None:
    """The job runs on the server; ``read`` prunes in the client, and Spark lists the survivors."""
    lay_out(tmp_path / "events")
    table = Table(str(tmp_path / "events"))
    report = table.build(spark_connect, indexes=INDEXES)
    assert report.files_built == FILES
    for where, rows in (("id = 4711", 1), ("day >= 18", 2 * ROWS), ("day = 99", 0)):
        frame = skipstone.read(spark_connect, str(tmp_path / "events"), where=where)
        plain = spark_connect.read.parquet(str(tmp_path / "events")).where(where)
        got = sorted(map(repr, frame.collect()))
        assert got == sorted(map(repr, plain.collect()))
        assert len(got) == rows
        files = frame.selectExpr("_metadata.file_path").distinct().count()
        assert files == table.plan(where).files_kept
