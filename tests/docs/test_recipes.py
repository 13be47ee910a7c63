"""The recipes of docs/recipes.md are run, or parsed where a cloud would be needed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from tests.docs.pages import blocks
from tests.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

PAGE = "docs/recipes.md"


def block(language: str, holding: str) -> str:
    """The only block in this language that holds the text."""
    [found] = [text for _, text in blocks(PAGE, language) if holding in text]
    return found


def write(folder: Path, parts: range) -> Path:
    """A file of 1,000 rows for each number; none of them overlap."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        ids = range(1000 * part, 1000 * part + 1000)
        table = pa.table(
            {"user_id": [f"u-{n}" for n in ids], "ts": ids, "country": [f"c{part}"] * 1000}
        )
        pq.write_table(table, folder / f"part-{part}.parquet")
    return folder


def files_kept(table: Path, where: str) -> int:
    return skipstone.Table(str(table)).plan(where, inside=False).files_kept


@pytest.mark.spark
def test_the_job_builds_and_then_refreshes(spark: SparkSession, tmp_path: Path) -> None:
    code = block("python", "index_table.py TABLE").replace("spark.stop()", "")
    table = write(tmp_path / "events", range(3))

    def job(*arguments: str) -> str:
        out: list[str] = []
        names = {"print": lambda text: out.append(str(text))}
        before, sys.argv = sys.argv, ["index_table.py", str(table), *arguments]
        try:
            with pytest.raises(SystemExit) as ended:
                exec(compile(code, "index_table.py", "exec"), names)
        finally:
            sys.argv = before
        assert ended.value.code == 0
        return out[0]

    indexes = shlex.split("user_id:bloom ts:minmax")
    assert job(*indexes).startswith("indexed 3 of 3 files")
    assert "3 had their facts already" in job(*indexes)
    write(table, range(3, 4))
    assert job().startswith("indexed 1 of 4 files")
    assert files_kept(table, "user_id = 'u-3500'") == 1


def test_the_function_of_the_airflow_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decorators of Airflow, reduced to what they do for a function that is called."""
    found: dict[str, Callable[..., Any]] = {}

    class Task:
        def __init__(self, function: Callable[..., Any]) -> None:
            found[function.__name__] = function

        def __call__(self) -> Task:
            return self

        def __rshift__(self, other: Task) -> Task:
            return other

    def decorator(*functions: Callable[..., Any], **options: Any) -> Any:
        return Task(*functions) if functions else Task

    sdk = ModuleType("airflow.sdk")
    sdk.task, sdk.dag = decorator, lambda **options: lambda function: function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    exec(compile(block("python", "airflow"), "dags/events.py", "exec"), {})
    table = write(tmp_path / "events", range(2))
    skipstone.Table(str(table)).build(indexes=["user_id:bloom"])
    write(table, range(2, 3))
    assert found["refresh_index"](str(table)) == {"built": 1, "of": 3}
    (table / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(RuntimeError, match=r"torn\.parquet"):
        found["refresh_index"](str(table))


def test_every_target_of_the_makefile(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make on this machine")
    write(tmp_path / "lake" / "events", range(3))
    (tmp_path / "Makefile").write_text(block("make", "addprefix"))
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "skipstone"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m skipstone "$@"\n')
    command.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    for target in ("index", "refresh", "check", "tidy"):
        done = subprocess.run(
            [make, "-C", tmp_path, target], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{target}: {done.stderr}"
    assert files_kept(tmp_path / "lake" / "events", "country = 'c2' and user_id = 'u-2001'") == 1


def test_a_table_that_is_overwritten(tmp_path: Path) -> None:
    table = write(tmp_path / "events", range(4))
    skipstone.Table(str(table)).build(indexes=["user_id:bloom", "ts:minmax"])
    shutil.rmtree(table)
    write(table, range(2, 6))
    opened = skipstone.Table(str(table))
    assert files_kept(table, "user_id = 'u-5001'") == 4
    assert opened.query("user_id = 'u-5001'").num_rows == 1
    assert opened.refresh().files_built == 4
    assert files_kept(table, "user_id = 'u-5001'") == 1
    assert skipstone.Table(str(table)).describe().orphaned == 2
    opened.compact()
    after = skipstone.Table(str(table)).describe()
    assert (after.orphaned, after.fresh, after.files_total) == (0, 4, 4)
    opened.vacuum(older_than=timedelta(0))
    assert opened.query("user_id = 'u-5001'").num_rows == 1

    # Beside the old one, and a link that is moved.
    night = write(tmp_path / "events-2", range(9, 11))
    skipstone.Table(str(night)).build(indexes=["user_id:bloom"])
    link = tmp_path / "current"
    link.symlink_to("events-2")
    assert skipstone.Table(str(link)).query("user_id = 'u-9001'").num_rows == 1
    assert files_kept(link.resolve(), "user_id = 'u-9001'") == 1


def test_the_documents_in_yaml_and_json() -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load(block("yaml", "ScheduledSparkApplication"))
    assert job["spec"]["template"]["mainApplicationFile"].endswith("index_table.py")
    bundle = yaml.safe_load(block("yaml", "bundle:"))
    [task] = bundle["resources"]["jobs"]["index_events"]["tasks"]
    assert task["libraries"] == [{"pypi": {"package": "skipstone"}}]
    command = block("bash", "add-steps")
    steps = json.loads(command.partition("--steps '")[2].partition("'")[0])
    assert steps[0]["Args"][0] == "spark-submit"
    assert "--archives" in steps[0]["Args"]
    submitted = shlex.split(block("bash", "gcloud dataproc").replace("\\\n", " "))
    assert "--archives=gs://my-bucket/jobs/skipstone-env.tar.gz#environment" in submitted
