"""Files of odd shapes: no row groups, empty ones, one row per page, chunks in other files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import StaleError
from skipstone.parquet.reading.file import ParquetFile

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [("a", pa.int64()), ("l", pa.list_(pa.string())), ("s", pa.struct([("x", pa.int32())]))]
)
TABLE = pa.table(
    {"a": [1, 2, None], "l": [["x"], [], None], "s": [{"x": 1}, None, {"x": None}]}, schema=SCHEMA
)


def test_a_file_without_row_groups(tmp_path: Path) -> None:
    pq.ParquetWriter(tmp_path / "t.parquet", SCHEMA).close()
    file = ParquetFile(str(tmp_path / "t.parquet"))
    assert (file.count(), file.count("a = 1"), file.count("s.x IS NULL")) == (0, 0, 0)
    assert file.query("a IS NULL").schema.equals(SCHEMA)
    assert file.read_rows(["a"], [(0, 5)]).num_rows == 0
    assert file.pages().num_rows == file.chunks().num_rows == 0
    assert file.verify().ok


@pytest.mark.parametrize("index", [True, False])
def test_row_groups_without_rows_between_others(tmp_path: Path, index: bool) -> None:
    path = tmp_path / "t.parquet"
    with pq.ParquetWriter(path, SCHEMA, write_page_index=index) as writer:
        for rows in (0, 3, 0, 0, 3, 0):
            writer.write_table(TABLE.slice(0, rows))
    file = ParquetFile(str(path))
    assert file.row_groups().column("num_rows").to_pylist() == [0, 3, 0, 0, 3, 0]
    assert file.query().to_pylist() == 2 * TABLE.to_pylist()
    for where, count in {"a = 1": 2, "s.x IS NULL": 4, "s.x = 1 OR a IS NULL": 4}.items():
        assert file.count(where) == file.query(where).num_rows == count
    assert file.read_rows(["a"], [(2, 4)]).column("a").to_pylist() == [None, 1]
    assert file.verify().ok


@pytest.mark.parametrize("index", [True, False])
def test_one_row_per_page(tmp_path: Path, index: bool) -> None:
    count = 2_000
    table = pa.table({"a": range(count), "l": [[n] * (n % 2) for n in range(count)]})
    path = tmp_path / "t.parquet"
    pq.write_table(
        table, path, max_rows_per_page=1, write_batch_size=1, use_dictionary=False,
        write_page_index=index,
    )  # fmt: skip
    file = ParquetFile(str(path))
    assert file.query("a IN (5, 1999, 1000)").equals(table.take([5, 1000, 1999]))
    odd = [(n, n + 1) for n in range(1, count, 2)]
    assert file.read_rows(None, odd).equals(table.take(list(range(1, count, 2))))


def test_rows_that_span_pages(tmp_path: Path) -> None:
    lists = [list(range(5_000)), [], None, list(range(7_000)), [1]]
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"l": lists, "k": range(5)}), path, data_page_size=100, write_batch_size=10,
        use_dictionary=False,
    )  # fmt: skip
    file = ParquetFile(str(path))
    assert file.read_rows(["l"], [(3, 5)]).column("l").to_pylist() == lists[3:]
    assert file.query("k = 0", ["l"]).column("l").to_pylist() == lists[:1]


@pytest.fixture
def summary(tmp_path: Path) -> Path:
    """4 files of 10 rows in folders with odd names, and a ``_metadata`` of all."""
    root = tmp_path / "of %20é=1"
    collected: list[pq.FileMetaData] = []
    for at, folder in enumerate(["p=a b", "p=%2F", "p=é", "plain"]):
        (root / folder).mkdir(parents=True)
        name = f"{folder}/x y%.parquet"
        table = pa.table({"a": range(10 * at, 10 * at + 10), "s": [folder] * 10})
        pq.write_table(
            table, root / name, row_group_size=5, write_page_index=True,
            metadata_collector=collected,
        )  # fmt: skip
        collected[-1].set_file_path(name)
    pq.write_metadata(table.schema, root / "_metadata", collected)
    return root


def test_pages_and_indexes_of_a_summary(summary: Path) -> None:
    file = ParquetFile(str(summary / "_metadata"))
    assert file.query("a IN (3, 17, 38)").column("s").to_pylist() == ["p=a b", "p=%2F", "plain"]
    pages = file.pages(["a"]).filter(pa.compute.field("page_type") == "DATA_PAGE")
    assert pages.num_rows == 8
    assert pages.column("num_rows").to_pylist() == [5] * 8
    bounds, places = file.column_index(5, "a"), file.offset_index(5, "a")
    assert bounds is not None
    assert places is not None
    assert [bytes(each) for each in bounds.min_values] == [(25).to_bytes(8, "little")]
    assert places.first_row_index.tolist() == [0]
    assert file.verify().ok


def test_a_file_of_a_summary_that_changes_while_it_is_read(summary: Path) -> None:
    file = ParquetFile(str(summary / "_metadata"))
    assert file.query("a = 21").num_rows == 1
    changed = summary / "p=é" / "x y%.parquet"
    data = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(data[:100] + b"?" + data[101:])
    with pytest.raises(StaleError):
        file.query("a = 22", ["s"])
    assert file.query("a = 1").num_rows == 1
