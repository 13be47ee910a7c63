"""Every older version of Spark that is supported runs the main job, in an environment of its own
that `make long` makes. `make versions` runs more tests there."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.folders import ROOT
from tests.java import options_of


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("version", ["3.5", "4.0", "4.1"])
def test_the_main_job(version: str) -> None:
    home = ROOT / f".venv-spark{version}"
    python = home / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment with PySpark {version}: `make long` makes it")
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "tests.main_job"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "SPARK_HOME"}}
        | options_of(home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"PySpark {version}." in done.stdout
