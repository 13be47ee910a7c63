"""The main job where Spark is not in this process: a standalone cluster, and Spark Connect.

The layout is that of ``tests/main_job.py``: 20 files of 500 rows, told apart by a filter on ``id``,
by the range of ``day``, and by the values of ``kind``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import skipstone
from skipstone import Table
from tests.main_job import FILES, ROWS, lay_out
from tests.spark_servers import drive

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

INDEXES = ["id:bloom(fpp=0.001)", "day:minmax", "kind:valuelist"]

SCRIPT = """
import skipstone
root = sys.argv[2]
spark = builder.getOrCreate()
report = skipstone.Table(root).build(spark, indexes=json.loads(sys.argv[3]))
again = skipstone.Table(root).refresh(spark)
out = {"built": report.files_built, "again": again.files_built}
for where in ("id = 4711", "day = 3 AND kind = 'odd'"):
    plain = spark.read.parquet(root).where(where)
    expected = sorted(map(repr, plain.collect()))
    got = sorted(map(repr, skipstone.skip(plain).collect()))
    out[where] = [got == expected, len(got), skipstone.last_scan(spark).files_kept]
spark.stop()
print("RESULT " + json.dumps(out))
"""


def test_build_and_query_on_a_cluster(spark_cluster: str, tmp_path: Path) -> None:
    """Executors build the facts and publish them; the driver plans with them."""
    lay_out(tmp_path / "events")
    out, _ = drive(tmp_path, SCRIPT, spark_cluster, tmp_path / "events", json.dumps(INDEXES))
    assert out == {
        "built": FILES,
        "again": 0,
        "id = 4711": [True, 1, 1],
        "day = 3 AND kind = 'odd'": [True, ROWS, 1],
    }


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
