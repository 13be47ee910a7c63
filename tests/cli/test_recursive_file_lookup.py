"""`--recursive-file-lookup`: each verb that opens a table sees the same files."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.cli import cli
from tests.table.test_nested_folders import write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

LOOKUP = "--recursive-file-lookup"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "t", ["", "x/", "p=1/"])
    (tmp_path / "t" / "p=1").rename(tmp_path / "t" / "y")
    return tmp_path / "t"


def answer(run: Run, *words: object) -> Any:
    done = run(*words, "--json", "--quiet")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("lookup, files", [((), 1), ((LOOKUP,), 3)])
def test_each_verb_sees_the_same_files(
    run: Run, root: Path, tmp_path: Path, lookup: tuple[str, ...], files: int
) -> None:
    assert (
        answer(run, "build", root, "-c", "id:minmax", "--no-spark", *lookup)["files_built"] == files
    )
    assert answer(run, "refresh", root, "--no-spark", *lookup)["files_total"] == files
    assert answer(run, "describe", root, *lookup)["files_total"] == files
    assert answer(run, "check", root, *lookup)["files_total"] == files
    assert answer(run, "count", root, "id >= 0", *lookup)["rows"] == files
    found = run("query", root, "id >= 0", "--quiet", *lookup)
    assert f"({files} row" in found.stdout
    assert answer(run, "explain", root, "id >= 0", *lookup)["files"]["total"] == files
    assert answer(run, "advise", root, *lookup)["files_total"] == files
    assert answer(run, "retrofit", root, "--dry-run", *lookup)["files_total"] == files
    assert answer(run, "migrate", root, "--dry-run", *lookup)["files_total"] == files
    assert answer(run, "write-metadata", root, "--dry-run", *lookup)["files"] == files
    out = tmp_path / "out"
    assert answer(run, "export", root, "--xskipper", out, *lookup)["files_total"] == files
    assert answer(run, "compact", root, *lookup)["facts_after"] == files
    assert answer(run, "drop", root, "--yes", *lookup)["files"] == files


def test_the_settings_file_has_the_option(run: Run, root: Path) -> None:
    settings = root.parent / "skipstone.toml"
    settings.write_text("recursive-file-lookup = true\n")
    assert answer(run, "count", root, "id >= 0")["rows"] == 3
    assert answer(run, "build", root, "-c", "id:minmax", "--no-spark")["files_built"] == 3
    settings.write_text("recursive-file-lookup = false\n")
    assert answer(run, "count", root, "id >= 0")["rows"] == 1
    assert answer(run, "count", root, "id >= 0", LOOKUP)["rows"] == 3
    found = run("check", root)
    assert found.exit_code == 3
    assert "2 facts of files that are gone, or not part of the table" in found.stdout


def test_each_verb_over_a_table_has_the_option() -> None:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    options = {
        name: {text for param in verb.params for text in param.opts}
        for name, verb in found.items()
        if verb is not None
    }
    of_tables = {name for name, own in options.items() if "--index-location" in own}
    assert {"query", "build", "encrypt", "salvage", "retrofit"} <= of_tables
    assert {name for name, own in options.items() if LOOKUP in own} == of_tables


def test_the_error_names_the_option(run: Run, root: Path) -> None:
    (root / "f.parquet").unlink()
    done = run("count", root)
    assert done.exit_code == 1
    assert "2 files in folders that are not partitions" in done.stderr
    assert LOOKUP in done.stderr
    assert answer(run, "count", root, LOOKUP)["rows"] == 2


def test_the_command_of_advise_builds_for_the_same_files(run: Run, tmp_path: Path) -> None:
    for at, folder in enumerate("xy"):
        (tmp_path / "t" / folder).mkdir(parents=True)
        content = pa.table({"id": range(at * 1_000, at * 1_000 + 1_000)})
        pq.write_table(content, tmp_path / "t" / folder / "f.parquet")
    command = answer(run, "advise", tmp_path / "t", LOOKUP)["command"]
    assert LOOKUP in shlex.split(command)
    done = run(*shlex.split(command)[1:], "--no-spark")
    assert "of 2 files" in done.output
