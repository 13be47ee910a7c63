"""The examples of README.md and docs/guide.md run, from top to bottom."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import skipstone
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def blocks(page: str) -> list[str]:
    """The examples in Python, but for those that are marked ``no-run``."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(found) >= 3
    return found


def run(page: str, examples: list[str], names: dict[str, Any], home: Path) -> None:
    """In ``home``: the JVM of a session has a working directory of its own."""
    for number, block in enumerate(examples):
        block = re.sub(r'"((?:lake/)?events)\b', lambda m: f'"{home}/{m[1]}', block)
        exec(compile(block, f"{page}, example {number + 1}", "exec"), names)


def test_the_examples_of_the_guide(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    names: dict[str, Any] = {"spark": spark}
    run("docs/guide.md", blocks("docs/guide.md"), names, tmp_path)
    assert names["top"].count() == 10
    assert names["plan"].files_kept == 1


def test_the_examples_of_the_readme(spark: SparkSession, tmp_path: Path) -> None:
    """About the table of the guide, under the name that it has there."""
    made = blocks("docs/guide.md")[0].replace("lake/events", "events")
    names: dict[str, Any] = {"spark": spark}
    run("docs/guide.md", [made], names, tmp_path)
    run("README.md", blocks("README.md"), names, tmp_path)
    [scan] = skipstone.explain(names["df"].where("user_id = 'u-8814'")).scans
    assert scan.files_kept == 1
