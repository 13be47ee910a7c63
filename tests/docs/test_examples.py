"""Every example in Python of README.md and docs/ runs."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

import skipstone
from tests.docs.pages import PAGES, python_examples, run_examples

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# Pages whose examples need a session; the example of own-index-kinds.md is a package of its own,
# which tests/indexes/test_registry.py installs and uses.
WITH_SPARK = {"README.md", "docs/guide.md", "docs/spark.md"}
ELSEWHERE = {"docs/own-index-kinds.md"}
ALONE = [p for p in PAGES if p not in WITH_SPARK | ELSEWHERE and python_examples(p)]


def test_pages_with_examples_are_found() -> None:
    assert len(ALONE) >= 4
    assert {"docs/tutorial.md", "docs/parquet.md", "docs/paimon.md"} <= set(ALONE)


def test_every_public_name_has_an_example() -> None:
    examples = "\n".join(text for page in PAGES for text in python_examples(page))
    lacking = [
        name
        for name in [*skipstone.__all__, "rewrite", "salvage"]
        if not re.search(rf"\bskipstone\.{name}\b|\bimport .*\b{name}\b", examples)
    ]
    assert lacking == ["Plan"]  # ``Table.plan`` makes it
    assert "table.plan(" in examples


@pytest.mark.parametrize("page", ALONE)
def test_examples_run_without_spark(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(page, {})


@pytest.mark.spark
def test_the_examples_of_the_guide(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    names: dict[str, Any] = {"spark": spark}
    # The JVM of a session has a working directory of its own.
    run_examples("docs/guide.md", names, {"events": str(tmp_path)})
    assert names["top"].count() == 10
    assert names["plan"].files_kept == 1


@pytest.mark.spark
def test_the_examples_of_the_readme(spark: SparkSession, tmp_path: Path) -> None:
    """About the table of the guide, under the name that it has there."""
    made = python_examples("docs/guide.md")[0].replace("lake/events", f"{tmp_path}/events")
    names: dict[str, Any] = {"spark": spark}
    exec(compile(made, "the table of docs/guide.md", "exec"), names)
    run_examples("README.md", names, {"events": str(tmp_path)})
    [scan] = skipstone.explain(names["df"].where("user_id = 'u-8814'")).scans
    assert scan.files_kept == 1


@pytest.mark.spark
def test_the_examples_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """About a table ``db.events`` of the catalog."""
    spark.sql("CREATE DATABASE db")
    try:
        spark.sql(
            f"CREATE TABLE db.events USING parquet LOCATION '{(tmp_path / 'events').as_uri()}' AS "
            "SELECT concat('u-', id) AS user_id, timestamp_seconds(1700000000 + id) AS ts "
            "FROM range(8000, 9000)"
        )
        for file in (tmp_path / "events").glob("*.parquet"):
            os.utime(file, (1_700_000_000, 1_700_000_000))
        names: dict[str, Any] = {"spark": spark}
        run_examples("docs/spark.md", names)
        assert spark.table("db.events").where("user_id = 'u-8814'").count() == 1
        assert skipstone.last_scan(spark).files_kept == 1
    finally:
        logging.getLogger("skipstone").setLevel(logging.NOTSET)
        skipstone.disable(spark)
        spark.sql("DROP DATABASE db CASCADE")
