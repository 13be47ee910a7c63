"""A job on a standalone cluster of two workers, by ``spark-submit``: built and queried as it is,
with speculative attempts, and while a worker is killed.

60 files of 2,000 rows; ``id`` counts through all of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone.run
from skipstone import Table
from skipstone.spark.relation import ENABLED
from tests.spark_servers import environment, spark_home, standalone

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.long]

FILES, ROWS = 60, 2_000

JOB = """
import sys
from pyspark.sql import SparkSession
import skipstone
spark = SparkSession.builder.getOrCreate()
report = skipstone.Table(sys.argv[1]).build(spark, ["id:minmax", "s:bloom"])
print("BUILT", report.files_built, len(report.files_failed))
print("FOUND", spark.read.parquet(sys.argv[1]).where("id = 4711").collect()[0].s)
print("KEPT", skipstone.last_scan(spark).files_kept)
"""


def lay_out(root: Path) -> None:
    root.mkdir()
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        path = root / f"{number:02}.parquet"
        pq.write_table(pa.table({"id": ids, "s": [f"s{i}" for i in ids.tolist()]}), path)
        os.utime(path, (1_700_000_000, 1_700_000_000))


def test_a_worker_is_killed_in_the_middle_of_a_build(tmp_path: Path) -> None:
    root, parts = tmp_path / "t", tmp_path / "_t.skipstone" / "facts"
    lay_out(root)
    (tmp_path / "job.py").write_text(JOB)
    confs = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.1",
        ENABLED: "true",
    }
    given = [part for key, value in confs.items() for part in ("--conf", f"{key}={value}")]
    submit = [str(spark_home() / "bin" / "spark-submit")]
    job = [skipstone.run.__file__, str(tmp_path / "job.py"), str(root)]
    with standalone(tmp_path, 2) as (url, workers):
        with (tmp_path / "driver.log").open("wb") as log:
            driver = subprocess.Popen(
                [*submit, "--master", url, *given, *job],
                env=environment(tmp_path),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        while not (parts.is_dir() and any(parts.glob("part-*"))):
            assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-4_000:]
            time.sleep(0.02)  # between two looks; the loop ends by what it sees
        os.killpg(workers[0].process.pid, signal.SIGKILL)
        covered = Table(str(root)).describe().fresh
        out, _ = driver.communicate()
    told = (tmp_path / "driver.log").read_text()
    assert driver.returncode == 0, told[-4_000:]
    assert b"FOUND s4711" in out
    assert b"KEPT 1\n" in out
    assert covered < FILES, "the build had ended before the worker was killed"
    # Facts that two attempts published are about the same versions: each file counts once.
    found = Table(str(root)).describe()
    assert (found.fresh, found.stale, found.missing) == (FILES, 0, 0)
    assert {index.files for index in found.indexes} == {FILES}
    assert Table(str(root)).check(deep=True).ok
    assert Table(str(root)).query("s = 's4711'").num_rows == 1
