"""Why chunks have no column index, as `skipstone retrofit` says it of a table and of one file."""

from __future__ import annotations

import datetime
import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone.cli import cli
from skipstone.table import Table
from tests.folders import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

NAN = "some values are NaN"
ORDER = "the order of the values is not known"
CROSSING = "rows continue in the next page"


def write(path: Path, *, nan: bool) -> Path:
    """Two row groups of 200 rows. f has NaN in row group 1, if at all; t is INT96."""
    numbers = [float(n) for n in range(400)]
    if nan:
        numbers[300] = float("nan")
    data = pa.table(
        {
            "id": range(400),
            "f": numbers,
            "t": [datetime.datetime(2026, 1, 1 + n % 28) for n in range(400)],
        }
    )
    pq.write_table(data, path, row_group_size=200, use_deprecated_int96_timestamps=True)
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Three files of 6 chunks; only the first has NaN."""
    root = tmp_path / "lake"
    root.mkdir()
    for at in range(3):
        write(root / f"{at}.parquet", nan=at == 0)
    return root


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli, ["retrofit", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


EXPECTED = {ORDER: {"t": 6}, NAN: {"f": 1}}
TEXT = f"""\
no column index: 7 of 18 chunks
  {ORDER}: 6 chunks (t)
  {NAN}: 1 chunk (f)
"""


@pytest.mark.parametrize("options", [["--dry-run"], []])
def test_a_table_says_why_chunks_have_no_column_index(lake: Path, options: list[str]) -> None:
    """By a run that writes (or would), and by one that finds every file complete."""
    found: dict[str, Any] = json.loads(run(lake, "--json", *options))
    assert found["rewritten"] == 3
    assert found["without_column_index"] == EXPECTED
    assert found["added"]["column index"] == 18 - 7
    assert found["files"][1]["without_column_index"] == {ORDER: {"t": 2}}
    assert TEXT in run(lake, *options)
    again = Table(str(lake)).retrofit(dry_run=True)
    assert len(again.of("complete")) == (0 if options else 3)
    assert again.without_column_index == EXPECTED


def test_a_table_says_how_much_was_added_and_which_rows_are_sorted(lake: Path) -> None:
    """Only the files are counted that are written: the second run writes the two without a filter.

    id ascends in all row groups, f only where there are no NaN.
    """
    assert run(lake / "2.parquet", "--bloom", "id", "--sorting", "f")
    found = json.loads(run(lake, "--bloom", "id", "--sorting", "f", "--dry-run", "--json"))
    assert (found["rewritten"], found["complete"], found["sorted_groups"]) == (2, 1, 3)
    text = run(lake, "--bloom", "id", "--sorting", "f")
    assert text.startswith(f"wrote 2 of 3 files of {lake}\n")
    size = found["bytes_of"]["checksums"]
    assert size == 4 * sum(each["pages"] for each in found["files"])
    assert f"\n  checksums: 12 of 12 chunks, {size} B\n" in text
    assert "\n  sorting columns: 3 of 4 row groups\n" in text
    assert "\n1 of 3 files had everything already\n" in text


def test_one_file_says_it_too(lake: Path) -> None:
    path = lake / "0.parquet"
    expected = "\n".join(
        [
            "  no column index: 3 of 6 chunks",
            f"    {ORDER}: 2 chunks (t)",
            f"    {NAN}: 1 chunk (f)",
        ]
    )
    assert expected in run(path)
    complete = run(path)
    assert "has everything already" in complete
    assert expected in complete


def test_rows_that_cross_pages_have_none_until_the_pages_are_cut(tmp_path: Path) -> None:
    """Lists of hyparquet's file, whose rows continue in the next page."""
    file = "hyparquet/test/files/continued_page.parquet"
    shutil.copy(GOLDEN / file, tmp_path)
    for _ in range(2):
        found = json.loads(run(tmp_path, "--json"))
        assert found["without_column_index"] == {CROSSING: {"int_list.list.element": 1}}
    found = json.loads(run(tmp_path, "--page-rows", "10", "--json"))
    assert found["without_column_index"] == {}
    assert found["added"]["column index"] == 1


def test_a_table_whose_chunks_all_have_one_says_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(10), "s": ["a"] * 10}), tmp_path / "a.parquet")
    assert "no column index" not in run(tmp_path)
    assert "no column index" not in run(tmp_path)
    assert json.loads(run(tmp_path, "--json"))["without_column_index"] == {}
