"""A skipping query on a standalone cluster: plans with a Python file index in them reach executors.

The driver is a process of its own, because this one has a local session already.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.spark.layout import ten_files
from tests.spark_servers import ROOT, environment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from skipstone.spark.scan_log import last_scan
from skipstone.spark.skip import skip
from tests.spark.fake import finder
from tests.spark.layout import rows

master, root = sys.argv[1], Path(sys.argv[2])
spark = (
    SparkSession.builder.master(master)
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.executor.memory", "512m")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
plain = spark.read.parquet(str(root))
df = skip(plain, finder(root))
out = {"executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()}
needle = df.where("id = 25")
out["needle"] = rows(needle) == rows(plain.where("id = 25")), last_scan(spark).files_kept
both = df.where("id < 15").join(df.where("id > 8").withColumnRenamed("s", "t"), "id")
out["join"] = [both.count(), last_scan(spark).files_kept]
out["udf"] = df.where("id = 7").rdd.map(lambda row: row.s * 2).collect()
spark.stop()
print("RESULT " + json.dumps(out))
"""


def test_a_skipping_query_on_a_cluster(spark_cluster: str, tmp_path: Path) -> None:
    root = ten_files(tmp_path / "t")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, spark_cluster, str(root)],
        env=environment(tmp_path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    out = json.loads(line.removeprefix("RESULT "))
    assert out["executors"] == 2  # the driver's block manager and one executor
    assert out["needle"] == [True, 1]
    assert out["join"] == [6, 4]  # ids 9 to 14; each side infers the other's bound: two files
    assert out["udf"] == ["s7s7"]
