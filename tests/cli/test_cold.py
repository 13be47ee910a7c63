"""What a command does not load, because starting would take longer than the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone

SOURCE = Path(skipstone.__file__).resolve().parent.parent
# Runs in an interpreter of its own; the last line that it prints is JSON.
EXPLAIN = """
import json, sys
from skipstone.cli import cli
try:
    cli(["explain", sys.argv[1], "id = 5", "--json"])
except SystemExit as done:
    code = done.code
heavy = {"pandas", "pyspark", "numba", "fsspec", "obstore", "sqlglot"} & set(sys.modules)
"""


def fresh(code: str, *arguments: str) -> object:
    """What the code prints last, run by a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_explain_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "t" / "a.parquet")
    skipstone.Table(str(tmp_path / "t")).build(indexes=["id:minmax", "id:bloom", "id:valuelist"])
    told = fresh(EXPLAIN + "print(json.dumps([code, sorted(heavy)]))", str(tmp_path / "t"))
    assert told == [0, []]


def test_arrow_finds_pandas_again_when_it_is_asked_for_it() -> None:
    code = """
import json, sys
from skipstone.cli.options import hide_pandas
hide_pandas()
import pyarrow as pa
spared = "pandas" not in sys.modules
frame = pa.table({"a": [1, 2]}).to_pandas()
import pandas
print(json.dumps([spared, isinstance(frame, pandas.DataFrame), pa.array(frame["a"]).to_pylist()]))
"""
    assert fresh(code) == [True, True, [1, 2]]


def test_pandas_that_is_there_is_left_alone() -> None:
    code = """
import json, sys
import pandas
from skipstone.cli.options import hide_pandas
hide_pandas()
import pyarrow as pa
found = pa.array(pandas.Series([1.0, None])).null_count
print(json.dumps([found, sys.modules["pandas"] is pandas]))
"""
    assert fresh(code) == [1, True]
