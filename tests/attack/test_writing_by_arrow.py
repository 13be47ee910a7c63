"""What ``write_table`` writes, attacked: types of Arrow that few writers use, values that are equal
and stored otherwise, and every reader that then looks."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile, write_table
from skipstone.parquet.format.bloom_filter import xxh64
from skipstone.rewrite import retrofit

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.parquet.format.bloom_filter import BloomFilter

# A NaN that no reader asks for, whose bits are not those of NaN as literals are.
ODD_NAN = float(np.frombuffer(struct.pack("<Q", 0xFFF8000000000001), "<f8")[0])
# Equal values, and the bits by which they are asked for.
EQUALS = ((-0.0, 0.0), (0.0, -0.0), (ODD_NAN, float("nan")))


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("many", [10, 70_000])
@pytest.mark.parametrize("stored, asked", EQUALS)
def test_a_filter_holds_what_equals_a_value(
    tmp_path: Path, stored: float, asked: float, many: int, dictionary: bool
) -> None:
    """Spark looks for the bits of its literal: by our filters ``f = 0.0`` found no -0.0, which
    it found without them; NaN likewise."""
    numbers = np.arange(1.0, many)
    for type, code in ((pa.float64(), "<d"), (pa.float32(), "<f")):
        rows = pa.table({"f": pa.array([stored, *numbers.tolist()], type)})
        ours, theirs = tmp_path / "ours.parquet", tmp_path / "theirs.parquet"
        options = {"use_dictionary": dictionary, "dictionary_pagesize_limit": 1 << 24}
        write_table(rows, ours, bloom={"f": 0.001}, arrow_options=options)
        pq.write_table(rows, theirs, write_statistics=False, **options)
        retrofit(theirs, bloom={"f": 0.001})
        for path in (ours, theirs):
            filled = ParquetFile(path).bloom_filter(0, "f")
            assert filled is not None
            assert _has(filled, struct.pack(code, asked))
            literal = f"CAST('{asked}' AS DOUBLE)"
            assert ParquetFile(path).count(f"f = {literal}") == 1
            found = duckdb.read_parquet(str(path)).filter(f"f = {literal}").fetchall()
            assert len(found) == 1
            assert ParquetFile(path).verify().ok


def _has(filled: BloomFilter, value: bytes) -> bool:
    return bool(filled.check(np.array([xxh64(value)], np.uint64))[0])


def test_a_filter_without_zeros_holds_none(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_table(pa.table({"f": [1.0, 2.0, 3.0]}), path, bloom={"f": 0.0001})
    filled = ParquetFile(path).bloom_filter(0, "f")
    assert filled is not None
    assert not _has(filled, struct.pack("<d", 0.0))
    assert not _has(filled, struct.pack("<d", float("nan")))


@pytest.mark.parametrize("keys", [["n"], []])
def test_lists_without_an_offset_index_have_no_tree(tmp_path: Path, keys: list[str]) -> None:
    """DataFusion reads on behind the last page of such a list, and took an index page there for
    a data page: an error, where every reader is to read the file."""
    lists = [[n, n + 1][: n % 3] for n in range(100)]
    maps = pa.array([[("k", n)] for n in range(100)], pa.map_(pa.string(), pa.int64()))
    rows = pa.table({"n": range(100), "l": lists, "m": maps})
    path = tmp_path / "a.parquet"
    report = write_table(
        rows, path, row_group_rows=30, page_rows=7, page_index=False, index_pages=keys
    )
    assert "has no offset index" in str(report)
    file = ParquetFile(path)
    told = file.footer.chunk("index_page_offset") >= 0
    assert told.tolist() == [[True, False, False, False]] * 4
    context: Any = datafusion.SessionContext()
    read = context.read_parquet(str(path)).to_arrow_table()
    assert read["l"].to_pylist() == lists
    assert polars.read_parquet(path)["l"].to_list() == lists
    assert duckdb.read_parquet(str(path)).to_arrow_table()["l"].to_pylist() == lists
    assert file.query("n >= 93", ["l"])["l"].to_pylist() == lists[93:]


@pytest.mark.parametrize("values", [[None, None], [], [[b"x", b"y"], None, [b"z", None], None]])
@pytest.mark.parametrize("element", [pa.binary_view(), pa.list_view(pa.int64())])
def test_fixed_lists_of_views_with_nulls(
    tmp_path: Path, values: list[Any], element: pa.DataType
) -> None:
    """Arrow has no ``take`` for views, and its cast to lists of a fixed size takes."""
    if element != pa.binary_view():
        values = [each and [None if x is None else [*x] for x in each] for each in values]
    rows = pa.table(
        {"v": pa.array(values, pa.list_(element, 2)), "k": pa.array(range(len(values)))}
    )
    path = tmp_path / "a.parquet"
    write_table(rows, path, page_rows=1)
    file = ParquetFile(path)
    assert file.query()["v"].to_pylist() == values
    assert file.query("k > 1")["v"].to_pylist() == values[2:]
    assert file.query().schema.field("v").type == pq.read_table(path).schema.field("v").type


@pytest.mark.parametrize("inner", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("outer", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_lists_of_lists_of_nothing(tmp_path: Path, outer: Any, inner: Any) -> None:
    """Arrow's cast between lists of the type null forgets elements: such a column could not be
    read."""
    values = [[None, [], [None] * 5, [None] * 2], None, [], [[None]]]
    rows = pa.table({"k": range(4), "v": pa.array(values, outer(inner(pa.null())))})
    path = tmp_path / "a.parquet"
    write_table(rows, path, page_rows=2)
    file = ParquetFile(path)
    assert file.query()["v"].to_pylist() == values
    assert file.query("k = 3")["v"].to_pylist() == values[3:]
    file.query().validate(full=True)
