"""The rows of ``query`` as text: aligned over all of them, with the names of the columns always."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two files; values grow longer within the first, and in the second."""
    root = tmp_path / "lake"
    root.mkdir()
    for part, longest in enumerate((9, 40)):
        names = ["x" * (1 + n * longest // 1500) for n in range(1500)]
        rows = pa.table({"name": names, "n": range(1500), "note": names})
        pq.write_table(rows, root / f"p{part}.parquet")
    return root


def test_columns_stay_aligned_over_batches(run: Run, lake: Path) -> None:
    lines = run("query", lake).stdout.splitlines()
    assert lines[-1] == "(3,000 rows)"
    starts: list[int] = []
    for above, line in pairwise(lines[:-1]):
        if set(line) <= {"-", " "}:
            assert above.split() == ["name", "n", "note"]
            starts = [at for at in range(len(line)) if line[at] == "-" and line[at - 1 : at] != "-"]
        elif not line.startswith("name"):
            name, number, note = line.split()
            assert line.index(name) == starts[0]
            assert line.rindex(note) == starts[2]
            assert line[: starts[2]].rstrip().endswith(f" {number}")
    heads = sum(line.startswith("name") for line in lines)
    assert 1 < heads <= 4  # again where a page needs wider columns


def test_long_values_are_cut_but_for_the_last(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    pq.write_table(pa.table({"a": ["y" * 100], "b": ["z" * 100]}), root / "p.parquet")
    row = run("query", root).stdout.splitlines()[2]
    assert row == f"{'y' * 59}…  {'z' * 100}"


def test_no_row_has_the_names_of_the_columns(run: Run, lake: Path) -> None:
    done = run("query", lake, "n < 0", "--columns", "n,name")
    assert done.stdout.splitlines() == ["n  name", "-  ----", "(0 rows)"]


@pytest.mark.parametrize("text", ["", ",", "n,,name", "n, "])
def test_a_column_without_a_name_is_an_error(run: Run, lake: Path, text: str) -> None:
    for verb in ("query", "explain"):
        done = run(verb, lake, "n = 1", "--columns", text)
        assert done.exit_code == 2
        assert "write A,B" in done.stderr


def test_notebooks_show_tables_and_reports(lake: Path) -> None:
    table = Table(str(lake))
    built = table.build(indexes=["n:minmax"])
    assert "indexed 2 of 2 files" in built._repr_html_()
    shown = table.describe()._repr_html_()
    assert "<td>minmax</td>" in shown
    assert shown in table._repr_html_()
    assert "all is well" in table.check()._repr_html_()
    assert "<table>" in table.advise()._repr_html_()
    assert "no such file" in Table(f"{lake}<b>")._repr_html_()
    assert "<b>&#x27;)" not in Table(f"{lake}<b>")._repr_html_()


def test_a_uuid_as_text_finds_nothing_and_a_note_says_how_it_is_written(
    run: Run, tmp_path: Path
) -> None:
    one = uuid.UUID(int=7)
    pq.write_table(pa.table({"u": pa.array([one.bytes], pa.uuid())}), tmp_path / "a.parquet")
    for verb in ("query", "count"):
        done = run(verb, tmp_path, f"u = '{one}'")
        assert (done.exit_code, done.stderr.count("note: u holds UUIDs as 16 bytes")) == (0, 1)
        assert f"write X'{one.hex.upper()}'" in done.stderr
    assert str(one) in run("query", tmp_path, f"u = X'{one.hex}'").stdout


def test_floats_have_their_own_digits(run: Run, tmp_path: Path) -> None:
    values = pa.array([0.1, None, float("inf"), 1e-7, 16777216], pa.float32())
    pq.write_table(pa.table({"f": values}), tmp_path / "a.parquet")
    lines = run("query", tmp_path, "--csv").stdout.splitlines()
    assert lines == ["f", "0.1", '""', "inf", "1e-07", "16777216.0"]
