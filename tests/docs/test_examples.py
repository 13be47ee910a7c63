"""Every example of README.md and docs/ runs, and every command in them is one that exists."""

from __future__ import annotations

import logging
import os
import shlex
from typing import TYPE_CHECKING, Any

import click
import pytest

import skipstone
from skipstone.cli import VERBS, cli
from tests.docs.pages import PAGES, blocks, python_examples, run_examples

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


def commands() -> list[tuple[str, list[str]]]:
    """Every command line of the pages that begins with ``skipstone``: page and words."""
    found = []
    for page in PAGES:
        for _, text in blocks(page, "console", "bash"):
            for line in text.splitlines():
                command = line.removeprefix("$ ")
                if command.startswith("skipstone "):
                    found.append((page, shlex.split(command, comments=True)[1:]))
    return found


def test_commands_are_found() -> None:
    assert len(commands()) >= 20


@pytest.mark.parametrize("page, words", commands())
def test_a_command_is_understood(page: str, words: list[str]) -> None:
    """The verb exists and takes these options and as many arguments; nothing is run."""
    assert words[0] in VERBS, page
    # Click keeps the help option of the first context that asks a command for it.
    names = cli.context_settings["help_option_names"]
    context = click.Context(cli, info_name="skipstone", help_option_names=names)
    command = cli.get_command(context, words[0])
    assert command is not None
    with click.Context(command, info_name=words[0], parent=context) as inner:
        command.make_parser(inner).parse_args(words[1:])
