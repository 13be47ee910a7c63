"""Metadata that are well-formed and wrong: of another chunk, of an older version, miscounted.

Where the file contradicts itself, what is wrong says nothing or is a ``FormatError``; a wrong row
never comes of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.format.metadata import ColumnChunk, FileMetaData
from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.row_ranges import check_entries
from skipstone.planning.explain import Explanation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 100
TABLE = pa.table(
    {
        "a": pa.array(range(ROWS), pa.int64()),
        "b": pa.array([37 * n % ROWS for n in range(ROWS)], pa.int64()),
        "x": pa.array([None if n % 3 == 0 else n for n in range(ROWS)], pa.int64()),
        "l": pa.array([[n] * (n % 3) for n in range(ROWS)], pa.list_(pa.int64())),
    }
)
A, X, L = 0, 2, 3
QUESTIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "a = 15": lambda row: row["a"] == 15,
    "a BETWEEN 15 AND 24": lambda row: 15 <= row["a"] <= 24,
    "a >= 5": lambda row: row["a"] >= 5,
    "b = 5 AND a >= 0": lambda row: row["b"] == 5,
    "x IS NULL": lambda row: row["x"] is None,
    "x IS NOT NULL": lambda row: row["x"] is not None,
    "x = 13": lambda row: row["x"] == 13,
    "a < 10 OR x IS NULL": lambda row: row["a"] < 10 or row["x"] is None,
}


class Lying:
    """A file of 2 row groups of 5 pages of 10 rows; its footer and indexes can be changed."""

    def __init__(self, path: Path, version: str = "1.0") -> None:
        self.path = path
        pq.write_table(
            TABLE, path, row_group_size=50, max_rows_per_page=10, write_batch_size=1,
            use_dictionary=False, compression="none", write_page_index=True,
            data_page_version=version,
        )  # fmt: skip
        data = path.read_bytes()
        length = int.from_bytes(data[-8:-4], "little")
        self.body, self.footer = data[: -8 - length], FileMetaData.from_bytes(data[-8 - length :])

    def chunk(self, row_group: int, leaf: int) -> ColumnChunk:
        return self.footer.row_groups[row_group].columns[leaf]

    def group(self, at: int, **fields: Any) -> None:
        groups = list(self.footer.row_groups)
        groups[at] = replace(groups[at], **fields)
        self.footer = replace(self.footer, row_groups=tuple(groups))

    def set(self, leaf: int, **fields: Any) -> None:
        """Fields of the chunk in the first row group."""
        columns = list(self.footer.row_groups[0].columns)
        columns[leaf] = replace(columns[leaf], **fields)
        self.group(0, columns=tuple(columns))

    def statistics(self, leaf: int, **fields: Any) -> None:
        meta = self.chunk(0, leaf).meta_data
        assert meta is not None
        assert meta.statistics is not None
        self.set(leaf, meta_data=replace(meta, statistics=replace(meta.statistics, **fields)))

    def bounds(self, leaf: int, change: Callable[[ColumnIndexArrays], ColumnIndexArrays]) -> None:
        at = self.chunk(0, leaf).column_index_offset
        data = change(ColumnIndexArrays.from_bytes(self.body[at:])).to_bytes()
        self.set(leaf, column_index_offset=len(self.body), column_index_length=len(data))
        self.body += data

    def places(self, leaf: int, change: Callable[[OffsetIndexArrays], OffsetIndexArrays]) -> None:
        at = self.chunk(0, leaf).offset_index_offset
        data = change(OffsetIndexArrays.from_bytes(self.body[at:])).to_bytes()
        self.set(leaf, offset_index_offset=len(self.body), offset_index_length=len(data))
        self.body += data

    def open(self) -> ParquetFile:
        footer = self.footer.to_bytes()
        self.path.write_bytes(self.body + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        return ParquetFile(str(self.path))

    def check(self) -> int:
        """Every question gives its rows or a ``FormatError``; how many gave rows."""
        answered = 0
        self.open()
        for where, wanted in QUESTIONS.items():
            expected = [row for row in TABLE.to_pylist() if wanted(row)]
            for ask, right in ((ParquetFile.query, expected), (ParquetFile.count, len(expected))):
                try:
                    found = ask(ParquetFile(str(self.path)), where)
                except FormatError:
                    continue
                assert (found.to_pylist() if isinstance(found, pa.Table) else found) == right, where
                answered += 1
        return answered


def index_of(chunk: ColumnChunk, *names: str) -> dict[str, Any]:
    return {
        f"{name}_{part}": getattr(chunk, f"{name}_{part}")
        for name in names
        for part in ("offset", "length")
    }


@pytest.fixture
def lying(tmp_path: Path) -> Lying:
    return Lying(tmp_path / "t.parquet")


def test_an_honest_file_answers_all(lying: Lying) -> None:
    assert lying.check() == 2 * len(QUESTIONS)


@pytest.mark.parametrize("source", [(0, A + 1), (1, A)], ids=["other column", "other row group"])
@pytest.mark.parametrize("names", [("offset_index",), ("column_index", "offset_index")])
def test_the_offset_index_of_another_chunk(
    lying: Lying, source: tuple[int, int], names: tuple[str, ...]
) -> None:
    """Its pages do not lie in the chunk. Other columns are still read."""
    lying.set(A, **index_of(lying.chunk(*source), *names))
    lying.check()
    assert lying.open().query("x = 13", ["b"]).to_pylist() == [{"b": 37 * 13 % ROWS}]


def test_the_column_index_of_another_row_group(lying: Lying) -> None:
    """Its bounds begin where those of the chunk end; without it all is answered."""
    lying.set(A, **index_of(lying.chunk(1, A), "column_index"))
    assert lying.check() == 2 * len(QUESTIONS)
    assert "bounds of a page outside those of its chunk" in str(
        Explanation(lying.open().plan("a = 15"))
    )


@pytest.mark.parametrize("wrong", [0, 1, -1])
def test_null_counts_of_pages_that_add_up_to_another_number(lying: Lying, wrong: int) -> None:
    def miscount(index: ColumnIndexArrays) -> ColumnIndexArrays:
        assert index.null_counts is not None
        return replace(index, null_counts=index.null_counts * (wrong != 0) + wrong)

    lying.bounds(X, miscount)
    assert lying.check() == 2 * len(QUESTIONS)


def test_bounds_of_a_chunk_of_nothing_but_nulls(lying: Lying) -> None:
    lying.statistics(X, null_count=50)
    assert lying.check() == 2 * len(QUESTIONS)


def test_a_page_of_values_without_rows(lying: Lying) -> None:
    """The third page is said to begin where the second one does: row 15 would be in neither."""

    def empty(index: OffsetIndexArrays) -> OffsetIndexArrays:
        return replace(index, first_row_index=np.array([0, 10, 10, 30, 40]))

    lying.places(A, empty)
    lying.check()


@pytest.mark.parametrize("rows", [0, 49, 51, 1 << 40])
def test_a_row_group_of_another_number_of_rows_than_its_columns(lying: Lying, rows: int) -> None:
    lying.group(0, num_rows=rows)
    assert lying.check() == 0
    with pytest.raises(FormatError, match="num_rows of row group 0"):
        lying.open().count()
    with pytest.raises(FormatError, match="num_rows of row group 0"):
        lying.open().read_rows([], [(0, 10)])
    # What it says can still be looked at.
    assert lying.open().row_groups().column("num_rows").to_pylist() == [rows, 50]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 1), (22, 23)],
        [(5, 6), (21, 22)],
        [(0, 1), (11, 12), (31, 32)],
        [(15, 16), (31, 32)],
        [(1, 2)],
        [(0, 50)],
    ],
)
def test_lists_whose_pages_begin_at_other_rows(
    tmp_path: Path, version: str, ranges: list[tuple[int, int]]
) -> None:
    """9, 11, 11 and 9 rows for pages of 10: together they are as many as they should be."""
    lying = Lying(tmp_path / "t.parquet", version)
    assert lying.open().read_rows(["l"], ranges).num_rows == sum(b - a for a, b in ranges)

    def shifted(index: OffsetIndexArrays) -> OffsetIndexArrays:
        return replace(index, first_row_index=np.array([0, 9, 20, 31, 40]))

    lying.places(L, shifted)
    with pytest.raises(FormatError, match="pages of l"):
        lying.open().read_rows(["l"], ranges)


@given(st.data())
def test_entries_tell_whether_rows_are_those_of_their_pages(data: st.DataObject) -> None:
    """Any nesting of lists: right borders pass, others do not."""
    inner: st.SearchStrategy[Any] = st.none() | st.integers(0, 3)
    kind: pa.DataType = pa.int8()
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()):
            inner, kind = st.none() | st.fixed_dictionaries({"v": inner}), pa.struct([("v", kind)])
        inner, kind = st.none() | st.lists(inner, max_size=3), pa.list_(kind)
    values = data.draw(st.lists(inner, min_size=2, max_size=8))
    rows = data.draw(st.integers(1, len(values) - 1))
    counted = np.array([sum(map(entries, values[:rows])), sum(map(entries, values[rows:]))])
    column = pa.chunked_array([pa.array([[], *values], kind)[1:]], kind)
    check_entries(column, np.array([rows, len(values) - rows]), counted, "l")
    other = data.draw(st.integers(1, len(values) - 1).filter(lambda n: n != rows) | st.just(0))
    with pytest.raises(FormatError, match="other rows"):
        check_entries(column, np.array([other, len(values) - other]), counted, "l")


def entries(value: Any) -> int:
    """Entries of levels that a value takes."""
    if isinstance(value, dict):
        return entries(value["v"])
    if isinstance(value, list):
        return sum(map(entries, value)) or 1
    return 1


@pytest.mark.parametrize("index", [True, False])
def test_null_counts_that_leave_out_nulls_of_the_group_above(tmp_path: Path, index: bool) -> None:
    """Arrow's own writer says 0 nulls of a dictionary below null structs. Every ``d`` that is
    there is ``a``; all rows of the first pages are null."""
    names = pa.array(["a"] * ROWS).dictionary_encode()
    null = [n < 40 or n % 4 == 0 for n in range(ROWS)]
    table = pa.table({"s": pa.StructArray.from_arrays([names], ["d"], mask=pa.array(null))})
    path = tmp_path / "t.parquet"
    pq.write_table(
        table, path, row_group_size=50, max_rows_per_page=10, write_batch_size=1,
        write_page_index=index,
    )  # fmt: skip
    file = ParquetFile(str(path))
    statistics = file.metadata.row_groups[0].columns[0].meta_data
    assert statistics is not None
    assert statistics.statistics is not None
    assert statistics.statistics.null_count == 0
    for where, count in {
        "s.d IS NULL": sum(null),
        "s.d IS NOT NULL": ROWS - sum(null),
        "s.d = 'a'": ROWS - sum(null),
        "s.d < 'b' OR s.d IS NULL": ROWS,
        "NOT (s.d <=> 'a')": sum(null),
        "s.d = 'b'": 0,
    }.items():
        assert file.count(where) == count, where
        assert file.query(where).num_rows == count, where
    if index:
        # Histograms of levels tell what the counts do not: no page of 10 nulls is read.
        before = file.bytes_read
        rows = ParquetFile(str(path)).plan("s.d IS NOT NULL").files[0].detail.rows
        assert rows is not None
        assert rows.ranges()[0].tolist() == [40]
        assert file.bytes_read == before
