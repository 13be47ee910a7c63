"""From the wheel to a cluster that has no Skipstone: an environment in ``--archives`` is all that
the job brings, as the page on installing says.

Needs a package index that pip can reach.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.folders import ROOT
from tests.spark_servers import spark_home, standalone

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.spark]

JOB = """
import json, sys
from pathlib import Path
import skipstone
from pyspark.sql import SparkSession

path, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
report = skipstone.Table(path).build(spark, ["id:bloom", "id:bitmap"])
rows = skipstone.skip(spark.read.parquet(path)).where("id = 1500").collect()
kept = skipstone.last_scan(spark).files_kept
paged = spark.read.format("skipstone").option("where", "id = 1500").load(path).collect()

def place(_):
    import skipstone
    return skipstone.__file__

places = spark.sparkContext.parallelize(range(8), 8).map(place).collect()
found = {
    "built": report.files_built,
    "rows": [row.id for row in rows],
    "kept": kept,
    "paged": [row.id for row in paged],
    "driver": skipstone.__file__,
    "places": places,
}
Path(out).write_text(json.dumps(found))
"""

_OURS = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def run(*command: str | Path, **env: str) -> None:
    done = subprocess.run(
        command,
        env={k: v for k, v in os.environ.items() if k not in _OURS} | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_an_environment_in_an_archive(tmp_path: Path) -> None:
    env, archive = tmp_path / "env", tmp_path / "env.tar.gz"
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT)
    [wheel] = tmp_path.glob("skipstone-*.whl")
    run(sys.executable, "-m", "venv", env)
    pip = (env / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, wheel, "pandas>=2.2,<3", "venv-pack", "setuptools<81")
    run(env / "bin" / "venv-pack", "-p", env, "-o", archive, "--compress-level", "1")
    table, out = tmp_path / "lake", tmp_path / "out.json"
    table.mkdir()
    for number in range(4):
        path = table / f"{number}.parquet"
        pq.write_table(pa.table({"id": range(1000 * number, 1000 * number + 1000)}), path)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (tmp_path / "job.py").write_text(JOB)
    nothing = ["env", *(part for name in _OURS for part in ("-u", name))]
    with standalone(tmp_path, 2, nothing) as (url, _):
        run(
            spark_home() / "bin" / "spark-submit",
            *("--master", url, "--archives", f"{archive}#environment"),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.executor.memory=512m"),
            *(tmp_path / "job.py", table, out),
            SPARK_HOME=str(spark_home()),
            SPARK_LOCAL_IP="127.0.0.1",
            PYSPARK_DRIVER_PYTHON=str(env / "bin" / "python"),
            PYSPARK_PYTHON="./environment/bin/python",
        )
    found = json.loads(out.read_text())
    assert found.pop("driver").startswith(str(env))
    places = found.pop("places")
    below = str(tmp_path / "work")
    assert all(path.startswith(below) and "/environment/" in path for path in places), places
    assert found == {"built": 4, "rows": [1500], "kept": 1, "paged": [1500]}
