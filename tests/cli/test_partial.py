"""Tables with a ``_txn`` on the command line: ``--partial``, and what every result then says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from skipstone.cli import cli
from tests.txn_tables import DAY, TxnFolder, micros, rows_at

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

MONDAY = micros(2024, 1, 1)


@pytest.fixture
def trades(tmp_path: Path) -> str:
    """Two days in Parquet, the third not: a live table."""
    table = TxnFolder(tmp_path / "trades")
    for at in range(3):
        start = MONDAY + at * DAY
        table.add(start, rows_at(start, range(10 * at, 10 * at + 10)), parquet=at < 2)
    table.commit()
    return str(table.root)


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


def test_a_live_table_is_refused_with_the_name_and_what_to_do(trades: str) -> None:
    result = run("explain", trades, "id = 3")
    assert result.exit_code == 1
    assert "partition 2024-01-03 of" in result.stderr
    assert "--partial" in result.stderr
    assert result.stdout == ""


def test_what_is_left_out_is_said(trades: str) -> None:
    result = run("explain", trades, "ts >= '2024-01-02T00:00:00Z'", "--partial")
    assert result.exit_code == 0, result.stderr
    assert "these are 2 of 3 partitions, without 2024-01-03: not Parquet" in result.stdout
    assert "read 1 of 2 files of 2 of 3 partitions" in result.stdout
    found = json.loads(run("explain", trades, "id = 3", "--partial", "--json").stdout)
    assert found["partitions"] == {"read": 2, "total": 3, "left_out": ["2024-01-03"]}
    assert found["files"] == {"kept": 1, "total": 2}
    assert "these are 2 of 3 partitions" in run("describe", trades, "--partial").stdout


def test_the_life_of_an_index(trades: str) -> None:
    built = run("build", trades, "-c", "id:minmax", "--no-spark", "--partial", "--json")
    assert built.exit_code == 0, built.stderr
    assert json.loads(built.stdout)["files_built"] == 2
    explained = run("explain", trades, "id = 13", "--partial")
    assert "id  minmax" in explained.stdout
    assert run("check", trades, "--partial").exit_code == 0
    assert run("check", trades, "--partial", "--deep").exit_code == 0
    assert run("compact", trades, "--partial").exit_code == 0


def test_partial_is_for_tables_of_partitions(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    result = run("describe", str(plain), "--partial")
    assert result.exit_code == 1
    assert "has no _txn" in result.stderr
