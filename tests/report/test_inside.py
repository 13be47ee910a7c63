"""The inside of files on a page, against what the files say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile, report
from skipstone.errors import SkipstoneError
from skipstone.pruning import RowSet
from skipstone.report import file_page as module
from skipstone.report.file_page import PLACES, Budget, inside
from tests.report.data import parsed
from tests.report.layered import WHERE

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone import Table


def drawn(file: ParquetFile, rows: RowSet | None = None, **budget: int) -> dict[str, Any]:
    return inside(file, rows, {"k"}, Budget(**budget))


def kept(table: Table) -> ParquetFile:
    """A file with matches."""
    return ParquetFile(table.plan(WHERE).paths[0])


def test_row_groups_columns_and_pages_are_those_of_the_file(table: Table) -> None:
    file = kept(table)
    found = drawn(file)
    groups, chunks = file.row_groups(), file.chunks()
    assert found["groups"]["rows"] == groups["num_rows"].to_pylist()
    assert found["groups"]["first"] == groups["first_row"].to_pylist()
    assert [column["name"] for column in found["columns"]] == ["t", "k", "x", "s"]
    for at, column in enumerate(found["columns"]):
        own = chunks.filter(pa.compute.equal(chunks["leaf"], at))
        assert column["bytes"] == own["total_compressed_size"].to_pylist()
        assert column["values"] == own["num_values"].to_pylist()
        assert column["nulls"] == own["null_count"].to_pylist()
        assert column["min"] == own["min_text"].to_pylist()
        assert column["max"] == own["max_text"].to_pylist()
        assert column["encodings"] == [", ".join(each) for each in own["encodings"].to_pylist()]
        assert column["named"] is (column["name"] == "k")
        pages = file.pages([column["name"]])
        of_data = pages.filter(pa.compute.equal(pages["page_type"], "DATA_PAGE"))
        for name, theirs in (
            ("first", "first_row_index"),
            ("rows", "num_rows"),
            ("bytes", "compressed_size"),
            ("min", "min_text"),
            ("max", "max_text"),
            ("nulls", "null_count"),
        ):
            ours = [each for part in column["pages"] for each in part[name]]
            assert ours == of_data[theirs].to_pylist(), name
    assert found["stored_total"] == sum(chunks["total_compressed_size"].to_pylist())


def test_rows_to_read_are_counted_by_row_group_and_page(table: Table) -> None:
    file = kept(table)
    rows = [0, 1, 2, 499, 500, 1999, 2000, 3999]
    found = drawn(file, RowSet.of(rows))
    assert found["groups"]["hit"] == [6, 2]
    for column in found["columns"]:
        assert [part["hit"] for part in column["pages"]] == [[4, 1, 0, 1], [1, 0, 0, 1]]
    whole = drawn(file)
    assert whole["groups"]["hit"] == whole["groups"]["rows"] == [2000, 2000]
    none = drawn(file, RowSet())
    assert none["groups"]["hit"] == [0, 0]


def test_sorted_and_unsorted_columns_say_so(table: Table) -> None:
    orders = {each["name"]: each["order"] for each in drawn(kept(table))["columns"]}
    assert orders == {"t": "ascending", "k": "unsorted", "x": "unsorted", "s": "unsorted"}


def test_bloom_filters_say_how_full_they_are(table: Table) -> None:
    file = kept(table)
    *others, s = drawn(file)["columns"]
    assert all(each["bloom"] == [None, None] for each in others)
    for group, (size, fill) in enumerate(s["bloom"]):
        found = file.bloom_filter(group, "s")
        assert found is not None
        bits = np.unpackbits(np.frombuffer(found.bitset(), np.uint8))
        assert size == found.num_bytes
        assert fill == round(1000 * bits.mean())
    assert [fill for _, fill in drawn(file, filters=0)["columns"][3]["bloom"]] == [-1, -1]


def test_pages_beyond_the_budget_say_why_they_are_absent(table: Table) -> None:
    found = drawn(kept(table), pages=9)
    have = [part is not None for column in found["columns"] for part in column["pages"]]
    assert have == [True, True] + [False] * 6
    assert "too many" in found["columns"][3]["why"][0]
    assert found["columns"][3]["min"][0] is not None


def test_without_a_page_index_the_headers_are_walked(tmp_path: Path) -> None:
    path = tmp_path / "plain.parquet"
    pq.write_table(
        pa.table({"k": np.arange(4000), "list": [[1, 2]] * 4000}),
        path,
        write_batch_size=500,
        max_rows_per_page=500,
        use_dictionary=False,
    )
    file = ParquetFile(path)
    flat, nested = drawn(file)["columns"]
    assert flat["pages"][0]["rows"] == [500] * 8
    assert flat["pages"][0]["lo"] == [-1] * 8
    assert flat["pages"][0]["encoding"] == ["PLAIN"] * 8
    pages = file.pages(["k"])
    assert flat["pages"][0]["bytes"] == pages["compressed_size"].to_pylist()
    assert "no page index" in flat["why"][0]
    assert nested["pages"] == [None]
    assert drawn(file, headers=3)["columns"][0]["pages"] == [None]


def test_columns_of_the_predicate_come_before_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_COLUMNS", 3)
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({name: [1, 2, 3] for name in "abcdk"}), path, row_group_size=1)
    found = drawn(ParquetFile(path))
    assert [column["name"] for column in found["columns"]] == ["a", "b", "k"]
    assert (found["columns_total"], found["groups_total"]) == (5, 3)
    assert found["groups"]["rows"] == [1, 1]


def test_awkward_values_are_drawn(tmp_path: Path) -> None:
    nan = float("nan")
    path = tmp_path / "odd é%=.parquet"
    pq.write_table(
        pa.table(
            {
                "nulls": pa.array([None, None], pa.int64()),
                "nan": [nan, nan],
                "huge": [-1.7e308, 1.7e308],
                "zeros": [0.0, -0.0],
                "bytes": [b"\xff\x00", b""],
                "wide": pa.array([-(10**30), 10**30], pa.decimal128(38, 0)),
                "big": pa.array([0, 2**64 - 1], pa.uint64()),
                "long": ["x" * 500, "y"],
                "k": [True, False],
            }
        ),
        path,
        write_page_index=True,
    )
    report.write_file(path, tmp_path / "out.html", "k = true")
    columns = {each["name"]: each for each in parsed(tmp_path / "out.html").inside(0)["columns"]}
    assert columns["nulls"]["lo"] == [-1]
    assert columns["nulls"]["low"] is None
    assert columns["huge"]["lo"] == [0]
    assert columns["huge"]["hi"] == [PLACES]
    assert columns["zeros"]["lo"] == columns["zeros"]["hi"] == [PLACES // 2]
    assert columns["wide"]["scale"] == "order"
    assert columns["wide"]["lo"] == [0]
    assert columns["big"]["high"] == str(2**64 - 1)
    assert (columns["big"]["lo"], columns["big"]["hi"]) == ([0], [PLACES])
    assert all(len(text) <= 80 for text in columns["long"]["min"] + columns["long"]["max"] if text)


def test_a_file_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), path)
    report.write_file(path, tmp_path / "out.html")
    found = parsed(tmp_path / "out.html").inside(0)
    assert found["rows"] == 0
    assert [each["name"] for each in found["columns"]] == ["k"]


def test_one_file_with_a_predicate(table: Table, tmp_path: Path) -> None:
    file = kept(table)
    written = report.write_file(file, tmp_path / "file.html", WHERE)
    found = parsed(tmp_path / "file.html")
    assert found.data["kind"] == "file"
    assert sum(found.inside(0)["groups"]["hit"]) == file.plan(WHERE).rows_kept
    assert (written.files.opened, written.files.kept, written.files.total) == (1, 1, 1)
    report.write_file(file, tmp_path / "file.html", "k = -7")
    assert sum(parsed(tmp_path / "file.html").inside(0)["groups"]["hit"]) == 0


def test_a_predicate_that_is_none_is_an_error_and_writes_nothing(
    table: Table, tmp_path: Path
) -> None:
    with pytest.raises(SkipstoneError):
        report.write_file(kept(table), tmp_path / "file.html", "nosuch = 1")
    assert not (tmp_path / "file.html").exists()


def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    from skipstone import Table as Opened
    from tests.accept.tables import write

    for name in "ab":
        write(tmp_path / "t" / f"{name}.parquet", {"k": [50, 51]})
    table = Opened(str(tmp_path / "t"))
    plan = table.plan(WHERE, inside=False)
    (tmp_path / "t" / "b.parquet").write_bytes(b"PAR1 is all that is left PAR1")
    plan = Opened(str(tmp_path / "t")).plan(WHERE, inside=False, schema=table.scan().schema)
    written = report.write(plan, tmp_path / "out.html")
    found = parsed(tmp_path / "out.html")
    assert found.inside(1)["trouble"]
    assert found.inside(0)["rows"] == 2
    assert (written.files.opened, written.files.kept) == (1, 2)
