"""The oldest supported PySpark runs the main job, in an environment that `make venv41` makes."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.folders import ROOT

PYTHON = ROOT / ".venv-spark41" / "bin" / "python"


@pytest.mark.spark
@pytest.mark.slow
def test_the_main_job_on_pyspark_41() -> None:
    if not PYTHON.exists():
        pytest.skip("no environment with PySpark 4.1: `make venv41` makes it")
    done = subprocess.run(
        [PYTHON, "-m", "tests.main_job"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "SPARK_HOME"}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PySpark 4.1." in done.stdout
