"""The package without an installation: as a zip on the path, as `--py-files` ships it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.folders import ROOT
from tests.spark_servers import spark_home

SOURCE = ROOT / "src"
JOB = """
import json, sys
from pathlib import Path

import skipstone
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
path = sys.argv[1]
report = skipstone.Table(path).build(spark, ["id:bloom", "id:bitmap"])
df = skipstone.skip(spark.read.parquet(path)).where("id = 1500")
rows = [row.id for row in df.collect()]
scan = skipstone.last_scan(spark).scans[0]


def place(_):
    import skipstone

    return skipstone.__file__


paged = spark.read.format("skipstone").option("where", "id = 1500").load(path)
found = {
    "driver": skipstone.__file__,
    "executor": spark.sparkContext.parallelize([1], 1).map(place).first(),
    "built": report.files_built,
    "rows": rows,
    "files": scan.files_kept,
    "paged": [row.id for row in paged.collect()],
}
Path(sys.argv[2]).write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `git archive` or `zip -r` make of the folder `src`."""
    made = tmp_path_factory.mktemp("zip") / "skipstone.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(SOURCE.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                out.write(file, file.relative_to(SOURCE))
    return made


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four files of 1,000 ids."""
    folder = tmp_path / "lake"
    folder.mkdir()
    for part in range(4):
        rows = pa.table({"id": range(1000 * part, 1000 * part + 1000)})
        pq.write_table(rows, folder / f"part-{part}.parquet")
    return folder


def run(*command: str | Path, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(path)},
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_zip_builds_and_queries(archive: Path, table: Path) -> None:
    code = (
        "import skipstone, sys\n"
        f"table = skipstone.Table({str(table)!r})\n"
        "table.build(indexes=['id:bloom', 'id:bitmap'])\n"
        "print(skipstone.__file__, table.plan('id = 1500').files_kept,"
        " table.query('id = 1500')['id'].to_pylist(), table.count('id < 1500'))"
    )
    found = run("-c", code, path=archive)
    assert found == f"{archive}/skipstone/__init__.py 1 [1500] 1500\n"


def test_the_command_line_in_a_zip(archive: Path, table: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("-m", "skipstone", "report", table, "id = 1500", "-o", page, path=archive)
    assert "<html" in page.read_text("utf-8")
    found = json.loads(run("-m", "skipstone", "doctor", table, "--json", path=archive))
    assert found["ok"], found
    texts = [each["text"] for each in found["findings"] if each["area"] == "caches"]
    assert any("inside an archive" in text for text in texts), texts


@pytest.mark.spark
@pytest.mark.long
def test_spark_submit_with_py_files(archive: Path, table: Path, tmp_path: Path) -> None:
    """Executors of their own, which have nothing but what is shipped to them."""
    pytest.importorskip("pyspark")
    job, out = tmp_path / "job.py", tmp_path / "out.json"
    job.write_text(JOB)
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [
            submit,
            *("--master", "local-cluster[1,1,1024]", "--py-files", archive),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
            *(job, str(table), out),
        ],
        env={
            **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.exists(), done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(out.read_text())
    assert "skipstone.zip" in found.pop("driver")
    assert "skipstone.zip" in found.pop("executor")
    assert found == {"built": 4, "rows": [1500], "files": 1, "paged": [1500]}
