"""Tables of Apache Hudi that Spark writes now: every instant has the rows that Hudi reads."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

import skipstone
from skipstone.errors import UnsupportedError
from tests.folders import ROOT
from tests.interop.java_systems import all_jars
from tests.table_formats.test_hudi import text, wanted

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop


def test_every_instant_has_the_rows_of_hudi(tmp_path: Path) -> None:
    python = ROOT / ".venv-spark3.5" / "bin" / "python"
    if not python.exists():
        pytest.skip("no environment with PySpark 3.5: `make versions` makes it")
    (jar,) = all_jars("hudi.xml")
    done = subprocess.run(
        [python, "-m", "tests.table_formats.hudi_spark", tmp_path, jar],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python), "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    read, refused = 0, 0
    for name in ("whole", "parted", "logs", "cleaned"):
        path = str(tmp_path / name)
        for instant, rows in wanted(tmp_path, name).items():
            try:
                assert text(skipstone.Table(path, version=instant).query()) == rows
                read += 1
            except UnsupportedError:
                assert name == "logs"
                refused += 1
    assert read > 15
    assert refused > 0
