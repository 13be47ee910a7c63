"""The rows of ``query`` as text: aligned over all of them, with the names of the columns always."""

from __future__ import annotations

import csv
import io
import json
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


def test_a_memory_limit_may_be_any_number(run: Run, lake: Path) -> None:
    done = run("count", lake, "--memory", f"{'9' * 400}GB")
    assert (done.exit_code, done.stderr) == (0, "")


def test_csv_has_line_ends_within_quotes(run: Run, tmp_path: Path) -> None:
    columns = {"a\rb": ["x\ry", "\r", None], "c\nd": ["p\nq", "", "\r\n"]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    text = run("query", tmp_path, "--csv").stdout_bytes.decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    values = zip(*columns.values(), strict=True)
    assert rows == [list(columns), *([value or "" for value in row] for row in values)]


FAR = {
    "us": ["287168-08-24 16:00:00.000000", "-290308-12-21 19:59:05.224192", "294247-01-10"],
    "ms": ["285200616-07-24 16:00:00.000", "-292275055-05-16 16:47:04.192", "292278994-08-17"],
    "ns": ["2255-03-14 16:00:00.000000000", "1677-09-21 00:12:43.145224192", "2262-04-11"],
}


@pytest.mark.parametrize("unit", FAR)
def test_times_have_their_text_in_every_year(run: Run, tmp_path: Path, unit: str) -> None:
    ticks = pa.array([9 * 10**18, -(2**63), 2**63 - 1, None], pa.int64())
    instants = ticks.view(pa.timestamp(unit, "UTC"))
    nested = pa.StructArray.from_arrays([instants], ["x"])
    columns = {"t": ticks.view(pa.timestamp(unit)), "z": instants, "s": nested}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    done = run("query", tmp_path, "--json")
    *rows, none = json.loads(done.stdout)["rows"]
    assert none == [None, None, {"x": None}]
    for (time, instant, inside), expected in zip(rows, FAR[unit], strict=True):
        assert time.startswith(expected)
        assert instant == f"{time}Z"
        assert inside == {"x": instant}
    days = pa.array([2**31 - 1, -(2**31), 0, None], pa.int32()).view(pa.date32())
    pq.write_table(pa.table({"d": days}), tmp_path / "a.parquet")
    lines = run("query", tmp_path, "--csv").stdout.splitlines()
    assert lines == ["d", "5881580-07-11", "-5877641-06-23", "1970-01-01", '""']
    shown = run("inspect", tmp_path / "a.parquet").stdout
    assert "-5877641-06-23  5881580-07-11" in shown


def test_durations_have_one_text_whatever_their_neighbours_are(run: Run, tmp_path: Path) -> None:
    ticks = [1_500_000_000, 1, -1, 2**63 - 1, None]
    spans = pa.array(ticks, pa.int64()).view(pa.duration("ns"))
    lists = pa.ListArray.from_arrays(list(range(len(ticks) + 1)), spans)
    pq.write_table(pa.table({"u": spans, "n": lists}), tmp_path / "a.parquet")
    rows = json.loads(run("query", tmp_path, "--json").stdout)["rows"]
    assert rows == [
        [text, [text]]
        for text in (
            "0:00:01.500000",
            "0:00:00.000000001",
            "-1 day, 23:59:59.999999999",
            "106751 days, 23:47:16.854775807",
            None,
        )
    ]


def test_floats_within_lists_have_their_own_digits(run: Run, tmp_path: Path) -> None:
    column = pa.array([[0.1, None, float("nan")], None], pa.list_(pa.float32()))
    pq.write_table(pa.table({"f": column}), tmp_path / "a.parquet")
    rows = json.loads(run("query", tmp_path, "--json").stdout)["rows"]
    assert rows == [[[0.1, None, "NaN"]], [None]]
