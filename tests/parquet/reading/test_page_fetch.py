"""Rows by position: any ranges, any columns, any nesting, as slicing the whole file gives them."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from skipstone.errors import SkipstoneError
from skipstone.parquet.encodings import kernels
from skipstone.parquet.reading import fetch
from skipstone.parquet.reading.file import ParquetFile

if TYPE_CHECKING:
    from collections.abc import Iterator

from tests.parquet.reading.tables import row_ranges, sliced, tables, write, writer_settings


def same(found: pa.Table, expected: pa.Table) -> None:
    """Equal schemas, and values that are equal with NaN equal to itself."""
    assert found.schema.equals(expected.schema)
    assert found.num_rows == expected.num_rows
    found.validate(full=True)
    for name, mine, theirs in zip(
        expected.column_names, found.columns, expected.columns, strict=True
    ):
        assert repr(mine.to_pylist()) == repr(theirs.to_pylist()), name


def by_arrow(path: Path, rows: int) -> pa.Table:
    """The whole file. Arrow loses rows of lists that are all empty and cannot be null, and does not
    read dictionaries below lists from several row groups."""
    try:
        whole = pq.ParquetFile(path).read()
    except (pa.ArrowInvalid, NotImplementedError):
        reject()
    assume(len(whole) == rows)
    return whole


@contextmanager
def monkeypatched(name: str, value: int) -> Iterator[None]:
    """A constant of the page fetch, and compiled decoders at hand, for one example."""
    kernels.COMPILED.load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, name, value)
        patch.setattr(fetch, "_FEW_PAGES", 0 if value > 16 else 4)
        yield


@given(data=st.data(), table=tables(), settings=writer_settings())
def test_any_ranges_of_any_columns(data: st.DataObject, table: pa.Table, settings: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a é%.parquet"
        write(table, path, settings)
        whole = by_arrow(path, len(table))
        file = ParquetFile(str(path))
        assert file.schema.equals(whole.schema)
        same(file.read_rows(), whole)
        for _ in range(3):
            ranges = data.draw(row_ranges(len(table)))
            columns = data.draw(st.lists(st.sampled_from(table.column_names), unique=True))
            # 0: our own decoders for every flat column; 1000: Arrow for all
            with monkeypatched("_FEW", data.draw(st.sampled_from([0, 16, 1_000]))):
                found = file.read_rows(columns, ranges)
            same(found, sliced(whole, ranges).select(columns))


@given(data=st.data(), table=tables(depth=3), settings=writer_settings())
def test_any_leaf_of_nested_columns(data: st.DataObject, table: pa.Table, settings: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        write(table, path, settings)
        whole = by_arrow(path, len(table))
        file = ParquetFile(str(path))
        ranges = data.draw(row_ranges(len(table)))
        leaf = data.draw(st.sampled_from(file.footer.schema.leaves))
        (found,) = file.read_rows([leaf.name], ranges).columns
        rows = sliced(whole, ranges).column(leaf.path[0]).to_pylist()
        names = leaf.path[1:]
        assert repr(found.to_pylist()) == repr([pruned(row, names, leaf, 1) for row in rows])


def pruned(value: Any, names: tuple[str, ...], leaf: Any, depth: int) -> Any:
    """What is left of a value when only one leaf below it is read."""
    if value is None or not names:
        return value
    node = leaf.ancestors[depth]
    if node.is_map:
        at = 0 if names[1] == "key" else 1
        return [{names[1]: pruned(pair[at], names[2:], leaf, depth + 2)} for pair in value]
    if node.is_list:
        return [pruned(each, names[2:], leaf, depth + 2) for each in value]
    return {names[0]: pruned(value[names[0]], names[1:], leaf, depth + 1)}


def test_only_the_pages_that_hold_the_rows_are_read(tmp_path: Path) -> None:
    """10 row groups of 1,000 rows in pages of 100: int64 without dictionary, 800 bytes a page."""
    path = tmp_path / "t.parquet"
    table = pa.table({"a": pa.array(range(10_000)), "b": pa.array(range(10_000))})
    pq.write_table(
        table, path, row_group_size=1_000, max_rows_per_page=100, write_batch_size=100,
        use_dictionary=False, compression="none", write_page_index=True,
    )  # fmt: skip
    file = ParquetFile(str(path))
    file.read_rows(["a"], [(0, 10_000)])  # offset indexes are known from here on
    before = file.bytes_read
    assert file.read_rows(["a"], [(4_250, 4_251)]).column("a").to_pylist() == [4_250]
    page = file.bytes_read - before
    assert 800 < page < 900
    before = file.bytes_read
    ranges = [(4_299, 4_301), (9_000, 9_001)]
    found = file.read_rows(["a", "b"], ranges)
    assert found.to_pylist() == [{"a": n, "b": n} for n in (4_299, 4_300, 9_000)]
    assert 6 * 800 < file.bytes_read - before < 6 * 900


def test_the_page_walk_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"a": [[n, None] for n in range(3_000)]})
    pq.write_table(table, path, max_rows_per_page=100, write_batch_size=100, use_dictionary=False)
    file = ParquetFile(str(path))
    file.read_rows(["a"], [(5, 6)])
    before = file.bytes_read
    assert file.read_rows(["a"], [(2_000, 2_001)]).to_pylist() == [{"a": [2_000, None]}]
    assert file.bytes_read - before < path.stat().st_size / 4


def test_rows_that_span_pages_are_whole(tmp_path: Path) -> None:
    """Old writers end v1 pages within a row; pyarrow does so where a batch is one value."""
    path = tmp_path / "t.parquet"
    table = pa.table({"a": [list(range(at, at + 50)) for at in range(40)]})
    pq.write_table(table, path, data_page_size=64, write_batch_size=7, use_dictionary=False)
    file = ParquetFile(str(path))
    for row in range(40):
        assert (
            file.read_rows(["a"], [(row, row + 1)]).to_pylist() == table.slice(row, 1).to_pylist()
        )


def test_batches_come_wave_by_wave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": range(1_000)}), path, row_group_size=100)
    monkeypatch.setattr("skipstone.parquet.reading.file_reader._WAVE", 1)
    batches = list(ParquetFile(str(path)).iter_rows(["a"], [(50, 950)]))
    assert len(batches) == 10
    assert [n for batch in batches for n in batch.column(0).to_pylist()] == list(range(50, 950))


def test_no_columns_and_no_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", None, "y"]}), path)
    assert ParquetFile(path).read_rows([], [(1, 3)]).num_rows == 2
    assert ParquetFile(path).read_rows(["b"], []).schema.names == ["b"]
    assert ParquetFile(path).read_rows(["b", "a"], [(1, 2)]).to_pylist() == [{"b": None, "a": 2}]
    assert ParquetFile(path).read_rows(None, [(7, 9)]).num_rows == 0


def test_a_column_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"amount": [1]}), path)
    with pytest.raises(SkipstoneError, match=r"no column 'amuont'.*did you mean 'amount'"):
        ParquetFile(path).read_rows(["amuont"])
