"""``ParquetFile.verify`` finds every kind of lie that a file can tell, and none in a good one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Decryption, ParquetFile
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.format.page_index import ColumnIndex, OffsetIndex
from tests import strategies
from tests.folders import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from skipstone.parquet.format.metadata import ColumnChunk, FileMetaData, RowGroup

TESTING = GOLDEN / "parquet-testing" / "data"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """2 row groups of 300 rows in pages of 100: ``id`` ascends and has a Bloom filter; ``s`` is
    null in every third row; ``l`` is a list; the row groups claim to be sorted by ``id``."""
    table = pa.table(
        {
            "id": np.arange(600),
            "s": [None if at % 3 == 0 else f"text {at}" for at in range(600)],
            "l": [[at] * (at % 3) for at in range(600)],
        }
    )
    found = tmp_path / "a b é%=.parquet"
    pq.write_table(
        table,
        found,
        row_group_size=300,
        max_rows_per_page=100,
        write_batch_size=100,
        write_page_index=True,
        write_page_checksum=True,
        compression="none",
        sorting_columns=[pq.SortingColumn(0)],
        bloom_filter_options={"id": {"ndv": 300, "fpp": 0.01}},
    )
    return found


def claims(path: Path, columns: list[str] | None = None) -> set[tuple[int, str, str]]:
    """Row group, column and claim of everything that does not hold."""
    found = ParquetFile(str(path)).verify(columns)
    assert found.ok == (not found.problems)
    return {(each.row_group, each.column, each.claim) for each in found.problems}


def with_footer(path: Path, change: Callable[[FileMetaData], FileMetaData]) -> None:
    """The same file with another footer."""
    data = path.read_bytes()
    metadata = read_metadata(data)
    body = data[: len(data) - 8 - int.from_bytes(data[-8:-4], "little")]
    footer = change(metadata).to_bytes()
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def with_chunk(
    metadata: FileMetaData, r: int, c: int, change: Callable[[ColumnChunk], ColumnChunk]
) -> FileMetaData:
    def columns(group: RowGroup) -> tuple[ColumnChunk, ...]:
        return tuple(change(each) if at == c else each for at, each in enumerate(group.columns))

    return replace(
        metadata,
        row_groups=tuple(
            replace(group, columns=columns(group)) if at == r else group
            for at, group in enumerate(metadata.row_groups)
        ),
    )


def meta(**fields: Any) -> Callable[[ColumnChunk], ColumnChunk]:
    """Other values in the ``ColumnMetaData``; those of its statistics by their own names."""

    def change(chunk: ColumnChunk) -> ColumnChunk:
        assert chunk.meta_data is not None
        assert chunk.meta_data.statistics is not None
        own = {name: fields[name] for name in fields if hasattr(chunk.meta_data, name)}
        rest = {name: fields[name] for name in fields if name not in own}
        statistics = replace(chunk.meta_data.statistics, **rest)
        return replace(chunk, meta_data=replace(chunk.meta_data, statistics=statistics, **own))

    return change


def patch(path: Path, offset: int, old: bytes, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    assert len(old) == len(new)
    assert data[offset : offset + len(old)] == old
    data[offset : offset + len(old)] = new
    path.write_bytes(data)


def test_a_good_file_has_no_problems_and_the_counts_say_what_was_checked(path: Path) -> None:
    found = ParquetFile(str(path)).verify()
    assert (found.ok, found.chunks, found.chunks_total) == (True, 6, 6)
    # three data pages and a dictionary in each chunk
    assert found.pages == 6 * 4
    assert found.checked["checksum"] == found.pages
    assert found.checked["bloom filter"] == 2
    assert found.checked["sorting columns"] == 2
    assert found.checked["offset index"] == found.checked["column index"] == 6
    assert found.to_dict()["ok"] is True
    # the list's too, which say nothing of rows
    assert found.checked["statistics"] == found.claimed["statistics"] == 6
    assert "statistics       6 checked" in str(found)


def test_sorting_columns_that_hold_are_relied_on(path: Path) -> None:
    file = ParquetFile(str(path))
    assert file.indexed.verified == set()
    file.verify()
    assert file.indexed.verified == {(0, 0), (1, 0)}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_order_is_that_of_the_claim(tmp_path: Path, descending: bool, nulls_first: bool) -> None:
    values: list[float | None] = [1.0, 2.0, 2.0, float("nan")]
    if descending:
        values.reverse()
    values = [None, *values] if nulls_first else [*values, None]
    claim = pq.SortingColumn(0, descending=descending, nulls_first=nulls_first)
    second = pq.SortingColumn(1, descending=True, nulls_first=True)
    path = tmp_path / "sorted.parquet"
    ties = [9, 8, 7, 6, 5]
    table = pa.table({"f": pa.array(values), "tie": ties})
    pq.write_table(table, path, sorting_columns=[claim, second])
    assert claims(path) == set()
    # equal values are ordered by the second column; 2.0 and 2.0 are the only ones
    at = values.index(2.0)
    ties[at], ties[at + 1] = ties[at + 1], ties[at]
    table = pa.table({"f": pa.array(values), "tie": ties})
    pq.write_table(table, path, sorting_columns=[claim, second])
    assert claims(path) == {(0, "f", "sorting columns")}
    table = pa.table({"f": pa.array(values[::-1])})
    pq.write_table(table, path, sorting_columns=[claim])
    assert claims(path) == {(0, "f", "sorting columns")}


def test_a_flipped_byte_is_a_checksum_that_is_wrong(path: Path) -> None:
    where = ParquetFile(str(path)).metadata.row_groups[1].columns[0].meta_data
    assert where is not None
    data = bytearray(path.read_bytes())
    data[where.data_page_offset + 200] ^= 1
    path.write_bytes(data)
    found = claims(path)
    assert (1, "id", "checksum") in found
    assert {(row_group, column) for row_group, column, _ in found} == {(1, "id")}


def test_bounds_and_counts_of_statistics(path: Path) -> None:
    low = (1).to_bytes(8, "little")
    with_footer(path, lambda m: with_chunk(m, 0, 0, meta(min_value=low)))
    assert claims(path) == {(0, "id", "statistics")}
    with_footer(path, lambda m: with_chunk(m, 0, 0, meta(min_value=bytes(8), null_count=5)))
    assert claims(path) == {(0, "id", "null_count")}
    with_footer(path, lambda m: with_chunk(m, 1, 1, meta(max_value=b"text 5")))
    assert (1, "s", "statistics") in claims(path)


def test_bounds_below_a_list(path: Path) -> None:
    with_footer(path, lambda m: with_chunk(m, 1, 2, meta(min_value=(400).to_bytes(8, "little"))))
    assert claims(path) == {(1, "l.list.element", "statistics")}


def test_bounds_of_no_known_order_are_counted_and_not_checked(path: Path) -> None:
    with_footer(path, lambda m: replace(m, column_orders=None))
    found = ParquetFile(path).verify(["s"])
    assert (found.checked["statistics"], found.claimed["statistics"]) == (0, 2)
    assert "statistics    0 of 2 checked" in str(found)
    assert found.to_dict()["claimed"] == {"statistics": 2}


def test_counts_of_values_and_rows(path: Path) -> None:
    def more(metadata: FileMetaData) -> FileMetaData:
        groups = (replace(metadata.row_groups[0], num_rows=301), metadata.row_groups[1])
        return replace(metadata, row_groups=groups)

    with_footer(path, more)
    found = claims(path)
    assert {(0, "id", "num_rows"), (0, "s", "num_rows")} <= found
    assert not any(row_group == 1 for row_group, _, _ in found)


def test_a_column_index_that_lies(path: Path) -> None:
    chunk = ParquetFile(str(path)).metadata.row_groups[0].columns[0]
    offset, length = chunk.column_index_offset, chunk.column_index_length
    assert offset is not None
    assert length is not None
    old = path.read_bytes()[offset : offset + length]
    index = ColumnIndex.from_bytes(old)
    highs = (index.max_values[0], (150).to_bytes(8, "little"), index.max_values[2])
    patch(path, offset, old, replace(index, max_values=highs).to_bytes())
    problems = ParquetFile(str(path)).verify().problems
    assert [(each.claim, each.column) for each in problems] == [("column index", "id")]
    assert "49 of 100 values are beyond max_value" in problems[0].text


def test_an_offset_index_that_lies(path: Path) -> None:
    chunk = ParquetFile(str(path)).metadata.row_groups[0].columns[1]
    offset, length = chunk.offset_index_offset, chunk.offset_index_length
    assert offset is not None
    assert length is not None
    old = path.read_bytes()[offset : offset + length]
    index = OffsetIndex.from_bytes(old)
    first, second, third = index.page_locations
    lie = replace(index, page_locations=(first, replace(second, first_row_index=101), third))
    patch(path, offset, old, lie.to_bytes())
    assert (0, "s", "offset index") in claims(path)


def test_a_bloom_filter_without_the_values(path: Path) -> None:
    where = ParquetFile(str(path)).metadata.row_groups[1].columns[0].meta_data
    assert where is not None
    assert where.bloom_filter_offset is not None
    assert where.bloom_filter_length is not None
    data = bytearray(path.read_bytes())
    start = where.bloom_filter_offset + 100
    stop = where.bloom_filter_offset + where.bloom_filter_length
    data[start:stop] = bytes(stop - start)
    path.write_bytes(data)
    assert claims(path) == {(1, "id", "bloom filter")}


def test_columns_are_chosen_and_a_column_without_its_key_is_named() -> None:
    encrypted = TESTING / "encrypt_columns_and_footer.parquet.encrypted"
    if not encrypted.is_file():
        pytest.skip("no golden files: ../shared/golden")
    keys = Decryption(footer_key=b"0123456789012345")
    found = ParquetFile(str(encrypted), decryption=keys).verify()
    assert found.ok
    assert (found.chunks, found.chunks_total) == (6, 8)
    assert len(found.unread) == 2
    assert any("float_field" in text and "kc2" in text for text in found.unread)
    assert not any(str(encrypted) in text for text in found.unread)
    assert str(found).endswith("no problems in what was read")
    one = ParquetFile(str(encrypted), decryption=keys).verify(["ba_field"])
    assert (one.chunks, one.chunks_total, one.unread) == (1, 1, ())


def test_every_file_that_arrow_writes_is_sound(tmp_path: Path) -> None:
    """All types, with NaN, zeros of both signs, nulls and empty columns, in many small pages."""
    from hypothesis import HealthCheck, given, settings

    @given(table=strategies.tables())
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def check(table: pa.Table) -> None:
        target = tmp_path / "any.parquet"
        pq.write_table(
            table,
            target,
            row_group_size=7,
            max_rows_per_page=3,
            write_batch_size=3,
            write_page_index=True,
            write_page_checksum=True,
        )
        found = ParquetFile(str(target)).verify()
        assert found.ok, found

    check()
