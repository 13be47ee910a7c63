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
from tests.interop.hdfs import hadoop_jars, running
from tests.interop.java_systems import JavaProgram, all_jars
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


def lay_out(table: Path) -> None:
    table.mkdir()
    for number in range(4):
        path = table / f"{number}.parquet"
        pq.write_table(pa.table({"id": range(1000 * number, 1000 * number + 1000)}), path)
        os.utime(path, (1_700_000_000, 1_700_000_000))


def run(*command: str | Path, **env: str) -> str:
    """What the command prints."""
    done = subprocess.run(
        command,
        env={k: v for k, v in os.environ.items() if k not in _OURS} | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of the driver; its archive lies next to it."""
    home = tmp_path_factory.mktemp("archive")
    env, archive = home / "env", home / "env.tar.gz"
    run(sys.executable, "-m", "build", "--wheel", "--outdir", home, ROOT)
    [wheel] = home.glob("skipstone-*.whl")
    run(sys.executable, "-m", "venv", env)
    pip = (env / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, wheel, "pandas>=2.2,<3", "venv-pack", "setuptools<81")
    run(env / "bin" / "venv-pack", "-p", env, "-o", archive, "--compress-level", "1")
    return env


def test_an_environment_in_an_archive(env: Path, tmp_path: Path) -> None:
    archive = env.parent / "env.tar.gz"
    table, out = tmp_path / "lake", tmp_path / "out.json"
    lay_out(table)
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


#: its first build kills an executor
LOSING = """
import json, os, signal, sys
from pathlib import Path
import skipstone
from pyspark.sql import SparkSession
from skipstone.indexes.minmax import MinMax

path, out, marker = sys.argv[1:]


class Killing(MinMax):
    def build(self, type, budget):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return super().build(type, budget)
        # The executor is the parent of the process that forks Python workers.
        status = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
        signal.pause()


def place(_):
    import skipstone
    return [os.getppid(), skipstone.__file__]


spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
before = sc.parallelize(range(8), 8).map(place).collect()
table = skipstone.Table(path)
found = {"master": sc.master, "built": table.build(spark, [Killing("id"), "id:bitmap"]).files_built}
spark.range(9000, 9100).coalesce(1).write.mode("append").parquet(path)
found["refreshed"] = table.refresh(spark).files_built
frame = skipstone.skip(spark.read.parquet(path)).where("id = 1500")
found["rows"] = [row.id for row in frame.collect()]
found["kept"] = skipstone.last_scan(spark).files_kept
found["read"] = [row.id for row in table.read(spark, "id = 9050").collect()]
paged = spark.read.format("skipstone").option("where", "id = 1500").load(path)
found["paged"] = [row.id for row in paged.collect()]
found["check"] = table.check(deep=True).ok
after = sc.parallelize(range(8), 8).map(place).collect()
found["lost"] = len({each for each, _ in before} - {each for each, _ in after}) > 0
found["places"] = sorted({each for _, each in [*before, *after]})
Path(out).write_text(json.dumps(found))
spark.stop()
"""


#: what it finds
SURVIVED = {
    "built": 4,
    "refreshed": 1,
    "rows": [1500],
    "kept": 1,
    "read": [9050],
    "paged": [1500],
    "check": True,
    "lost": True,
}


def test_yarn_in_client_mode_loses_an_executor(env: Path, tmp_path: Path) -> None:
    jars = [*hadoop_jars(), *all_jars("hadoop.xml")]
    program = JavaProgram("MiniYarn", jars, tmp_path, flags=["-Xmx512m"])
    table, out, marker = (tmp_path / each for each in ("lake", "out.json", "killed"))
    lay_out(table)
    (tmp_path / "job.py").write_text(LOSING)
    with running(program, tmp_path, str(tmp_path)):
        run(
            spark_home() / "bin" / "spark-submit",
            *("--master", "yarn", "--deploy-mode", "client", "--num-executors", "2"),
            *("--archives", f"{env.parent / 'env.tar.gz'}#environment"),
            *("--conf", f"spark.yarn.jars=local:{spark_home()}/jars/*"),
            *("--conf", f"spark.yarn.stagingDir=file:{tmp_path}/staging"),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.executor.memory=512m", "--conf", "spark.yarn.am.memory=512m"),
            *(tmp_path / "job.py", table, out, marker),
            SPARK_HOME=str(spark_home()),
            SPARK_LOCAL_IP="127.0.0.1",
            HADOOP_CONF_DIR=str(tmp_path),
            PYSPARK_DRIVER_PYTHON=str(env / "bin" / "python"),
            PYSPARK_PYTHON="./environment/bin/python",
        )
    assert marker.exists()
    found = json.loads(out.read_text())
    assert all("/environment/" in each for each in found.pop("places"))
    assert found.pop("master") == "yarn"
    assert found == SURVIVED
