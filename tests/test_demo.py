"""The demo, on a small table: it ends well, and it would say so if it did not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from tests.folders import ROOT
from tools import demo
from tools.scanned import Scanned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.long
def test_the_demo_on_a_small_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.demo", "--scale", "0.02", "--files", "40"]
    done = subprocess.run(
        [*command, "--home", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for verb in ("advise", "build", "describe"):
        assert f"$ skipstone {verb}" in done.stdout
    assert done.stdout.count(" of 40 files") >= len(demo.queries(1.0))
    assert "All rows are the same." in done.stdout


def asked(monkeypatch: pytest.MonkeyPatch, with_index: demo.Run) -> list[str]:
    """What the demo complains about when the index gives this, and plain Spark three rows."""
    plain = demo.Run(pa.table({"a": [1, 2, 3]}), Scanned(40, 1000), 1.0)

    def ask(spark: object, table: Path, where: str, *, skipping: bool) -> demo.Run:
        return with_index if skipping else plain

    monkeypatch.setattr(demo, "ask", ask)
    return demo.compare(cast("SparkSession", SimpleNamespace()), Path("t"), 1.0)[1]


def test_other_rows_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    run = demo.Run(pa.table({"a": [1, 2, 4]}), Scanned(1, 10), 0.1)
    complaints = asked(monkeypatch, run)
    assert len(complaints) == len(demo.queries(1.0))
    assert complaints[0].startswith("the rows differ for l_orderkey")


def test_skipping_nothing_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    run = demo.Run(pa.table({"a": [1, 2, 3]}), Scanned(40, 1000), 0.1)
    complaints = asked(monkeypatch, run)
    assert complaints[0].startswith("nothing was skipped for l_orderkey")


def test_equal_rows_from_fewer_files_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, demo.Run(pa.table({"a": [1, 2, 3]}), Scanned(1, 9), 0.1)) == []
