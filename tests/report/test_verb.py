"""`skipstone report` on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from skipstone.cli import cli
from tests.report.data import parsed
from tests.report.layered import WHERE

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone import Table


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["report", *map(str, arguments)])


def test_a_table(table: Table, tmp_path: Path) -> None:
    page = tmp_path / "out é.html"
    done = run(table.path, WHERE, "-o", page, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["files"] == {"opened": 3, "kept": 3, "total": 12}
    assert found["bytes"] == page.stat().st_size
    assert parsed(page).data["predicate"] == WHERE


def test_without_a_condition_all_is_read(table: Table, tmp_path: Path) -> None:
    done = run(table.path, "-o", tmp_path / "out.html")
    assert "the inside of 12 of 12 files to read (12 listed)" in done.stdout
    assert set(parsed(tmp_path / "out.html").data["state"]) == {"0"}


def test_a_file(table: Table, tmp_path: Path) -> None:
    path = table.plan(WHERE).paths[0]
    done = run(path, WHERE, "-o", tmp_path / "out.html")
    assert done.exit_code == 0, done.output
    assert parsed(tmp_path / "out.html").data["kind"] == "file"


def test_what_is_neither_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path / "nothing", WHERE, "-o", tmp_path / "out.html")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    assert run(tmp_path / "text.parquet", "-o", tmp_path / "out.html").exit_code == 1
    assert not (tmp_path / "out.html").exists()


def test_a_page_that_cannot_be_written(table: Table, tmp_path: Path) -> None:
    done = run(table.path, WHERE, "-o", tmp_path / "no" / "folder" / "out.html")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
