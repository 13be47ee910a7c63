"""Spliced footers: Arrow reads what was put together, and not a byte more than needed changes."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.footer import MAGIC, TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import (
    ColumnCryptoMetaData,
    FileMetaData,
    RowGroup,
    Statistics,
)
from skipstone.parquet.format.page_index import OffsetIndex, PageLocation
from skipstone.parquet.thrift.compact import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    Field,
    ListOf,
    Struct,
    read_struct,
    write_struct,
)
from skipstone.parquet.thrift.structs import Empty
from skipstone.parquet.writing.footer_editor import (
    FooterEditor,
    moved_offset_index,
    moved_row_group,
    row_group_bytes,
)
from tests.parquet.format.files import golden_files, same_table
from tests.parquet.format.test_footer_arrays import CHUNK, META, a_footer
from tests.parquet.format.wire import footer_of
from tests.parquet.writing.footers import in_file, with_fields, with_more

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([("i", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.float64()))])

tables = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "s": st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=5)),
            "l": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.floats()), max_size=3)),
        }
    ),
    max_size=12,
).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))


def written(table: pa.Table, **options: Any) -> tuple[bytes, FooterArrays]:
    """The file up to its footer, and the footer."""
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=5, **options)
    data = file.getvalue()
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    footer = data[tail.offset : -TAIL_LENGTH]
    return data[: tail.offset], FooterArrays.scan(footer, tail.offset)


def closed(data: bytes, footer: bytes) -> bytes:
    return data + footer + len(footer).to_bytes(4, "little") + MAGIC


def concatenated(
    one: tuple[bytes, FooterArrays], other: tuple[bytes, FooterArrays]
) -> tuple[bytes, FooterArrays]:
    """The data of both files behind each other, with one footer; page indexes come along."""
    (data, footer), (more, added) = one, other
    delta = len(data) - len(MAGIC)
    data += more[len(MAGIC) :]
    groups = [
        moved_row_group(row_group_bytes(added, r), delta, ordinal=footer.num_row_groups + r)
        for r in range(added.num_row_groups)
    ]
    joined = FooterArrays.scan(with_more(footer, groups), len(data))
    # An offset index holds offsets, so it is written anew, behind everything.
    changes: dict[tuple[int, int], dict[str, object]] = {}
    for r in range(footer.num_row_groups, joined.num_row_groups):
        for c in range(joined.num_leaves):
            at = int(joined.chunk("offset_index_offset")[r, c])
            if at >= 0:
                index = moved_offset_index(data[at:], delta)
                changes[r, c] = {
                    "offset_index_offset": len(data),
                    "offset_index_length": len(index),
                }
                data += index
    return data, FooterArrays.scan(with_fields(joined, changes), len(data))


@given(tables, tables, st.booleans(), st.sampled_from(["snappy", "none"]))
def test_arrow_reads_two_files_put_together(
    one: pa.Table, other: pa.Table, indexed: bool, compression: str
) -> None:
    options = {"write_page_index": indexed, "compression": compression, "data_page_size": 40}
    first, second = written(one, **options), written(other, **options)
    assert FooterEditor.of(first[1]).columns == FooterEditor.of(second[1]).columns
    data, footer = concatenated(first, second)
    footer.check_extent(len(data))
    whole = closed(data, footer.data)
    theirs = pq.read_table(io.BytesIO(whole))
    assert same_table(theirs, pa.concat_tables([one, other]))
    assert pq.read_metadata(io.BytesIO(whole)).num_rows == len(one) + len(other)
    for r in range(footer.num_row_groups):
        for c in range(footer.num_leaves):
            at = int(footer.chunk("offset_index_offset")[r, c])
            assert (at >= 0) == (indexed and bool(footer.group("num_rows")[r]))
            if at >= 0:
                index = OffsetIndex.from_bytes(data[at:])
                first_page = int(footer.chunk("data_page_offset")[r, c])
                assert index.page_locations[0].offset == first_page


def test_what_is_not_changed_keeps_its_bytes(golden: Path) -> None:
    """Nothing appended, set or moved: the footers of golden files stay as they are."""
    for path in golden_files(golden):
        data, offset = footer_of(path)
        footer = FooterArrays.scan(data, offset)
        assert with_more(footer, []) == data[: footer.end], path.name
        assert with_fields(footer, {}) == data[: footer.end]
        if footer.num_row_groups and footer.num_leaves:
            same: dict[tuple[int, int], dict[str, object]] = {(0, footer.num_leaves - 1): {}}
            assert with_fields(footer, same) == data[: footer.end], path.name
            group = row_group_bytes(footer, 0)
            assert moved_row_group(group, 0) == group
            there = moved_row_group(group, 1 << 40)
            assert RowGroup.from_bytes(there) != RowGroup.from_bytes(group)
            assert moved_row_group(there, -(1 << 40)) == group


def test_a_footer_without_row_groups_takes_some() -> None:
    data, footer = written(SCHEMA.empty_table())
    empty = FooterArrays.scan(
        dataclasses.replace(footer.metadata, row_groups=()).to_bytes(), len(data)
    )
    table = pa.Table.from_pylist([{"i": 1}], SCHEMA)
    more, added = written(table)
    grown = with_more(empty, [row_group_bytes(added, 0)])
    assert same_table(pq.read_table(io.BytesIO(closed(more, grown))), table)


def test_list_heads_grow_when_they_must() -> None:
    """14 row groups have a head of one byte, 15 of two, 128 of three."""
    _, footer = written(pa.Table.from_pylist([{"i": 1}], SCHEMA))
    group = row_group_bytes(footer, 0)
    for count in (13, 14, 127):
        grown = FooterArrays.scan(with_more(footer, [group] * count))
        assert grown.num_row_groups == grown.num_rows == count + 1
        assert grown.metadata.row_groups == footer.metadata.row_groups * (count + 1)
        for name in ("created_by", "key_value_metadata", "column_orders", "schema_elements"):
            assert getattr(grown, name) == getattr(footer, name)


def test_unknown_fields_survive_everywhere() -> None:
    tomorrow = (Field(99, BINARY, b"tomorrow"),)
    meta = dataclasses.replace(META, unknown=tomorrow)
    chunk = dataclasses.replace(CHUNK, meta_data=meta, offset_index_offset=60, unknown=tomorrow)
    footer = FooterArrays.scan(a_footer(chunk, file_offset=4, unknown=tomorrow))
    moved = RowGroup.from_bytes(moved_row_group(row_group_bytes(footer, 0), 1_000))
    assert moved.file_offset == 1_004
    assert moved.unknown == moved.columns[0].unknown == tomorrow
    found = moved.columns[0].meta_data
    assert found is not None
    assert (found.unknown, found.data_page_offset) == (tomorrow, 1_004)
    assert moved.columns[0].offset_index_offset == 1_060
    assert moved.columns[0].file_offset == 0
    changed = FileMetaData.from_bytes(
        with_fields(footer, {(0, 0): {"bloom_filter_offset": 7, "offset_index_offset": None}})
    )
    column = changed.row_groups[0].columns[0]
    assert column == dataclasses.replace(
        chunk,
        offset_index_offset=None,
        meta_data=dataclasses.replace(meta, bloom_filter_offset=7),
    )
    index = write_struct(
        read_struct(
            OffsetIndex(
                page_locations=(
                    PageLocation(
                        offset=4, compressed_page_size=9, first_row_index=0, unknown=tomorrow
                    ),
                ),
                unknown=tomorrow,
            ).to_bytes()
        )[0]
    )
    there = OffsetIndex.from_bytes(moved_offset_index(index, 500))
    assert there.unknown == there.page_locations[0].unknown == tomorrow
    assert there.page_locations[0].offset == 504


def test_fields_of_chunks_are_set_removed_and_left() -> None:
    _, footer = written(pa.Table.from_pylist([{"i": 1}] * 7, SCHEMA))
    before = footer.metadata
    statistics = Statistics(min_value=b"\x01", is_min_value_exact=False, nan_count=0)
    after = FooterArrays.scan(
        with_fields(
            footer,
            {
                (0, 1): {"bloom_filter_offset": 99, "bloom_filter_length": 47},
                (0, 0): {"statistics": statistics, "column_index_offset": 1 << 40},
                (0, 2): {"file_path": "é.parquet", "statistics": None},
            },
        )
    )
    assert after.chunk("bloom_filter_offset").tolist() == [[-1, 99, -1], [-1] * 3]
    assert after.chunk("bloom_filter_length").tolist() == [[-1, 47, -1], [-1] * 3]
    assert after.chunk("column_index_offset")[0, 0] == 1 << 40
    first = after.column_meta_data(0, 0)
    assert first is not None
    assert first.statistics == statistics
    assert after.value_bytes("file_path", 0, 2) == "é.parquet".encode()
    assert after.parts("statistics")[0].tolist()[2] == -1
    groups = after.metadata.row_groups
    assert [each.num_rows for each in groups] == [each.num_rows for each in before.row_groups]
    with pytest.raises(KeyError):
        with_fields(footer, {(0, 0): {"path_in_schema": 3}})
    with pytest.raises(ValueError, match="selection"):
        with_fields(footer.select([0]), {})


def test_encrypted_columns_cannot_move_nor_change() -> None:
    crypto = ColumnCryptoMetaData(ENCRYPTION_WITH_FOOTER_KEY=Empty())
    footer = FooterArrays.scan(a_footer(dataclasses.replace(CHUNK, crypto_metadata=crypto)))
    with pytest.raises(UnsupportedError):
        moved_row_group(row_group_bytes(footer, 0), 10)
    with pytest.raises(UnsupportedError):
        with_fields(footer, {(0, 0): {"bloom_filter_offset": 1}})
    places = with_fields(footer, {(0, 0): {"offset_index_offset": 1}})
    assert FooterArrays.scan(places).chunk("offset_index_offset").tolist() == [[1]]


def test_chunks_in_other_files_do_not_move() -> None:
    footer = FooterArrays.scan(a_footer(CHUNK))
    named = in_file(row_group_bytes(footer, 0), "a b.parquet")
    assert RowGroup.from_bytes(named).columns[0].file_path == "a b.parquet"
    assert moved_row_group(named, 1_000) == named
    assert in_file(named, None) == row_group_bytes(footer, 0)


def test_nothing_moves_before_the_file() -> None:
    footer = FooterArrays.scan(a_footer(CHUNK))
    with pytest.raises(ValueError, match="cannot move"):
        moved_row_group(row_group_bytes(footer, 0), -5)


def test_ordinals_beyond_16_bits_are_left_out() -> None:
    footer = FooterArrays.scan(a_footer(CHUNK, ordinal=3))
    group = row_group_bytes(footer, 0)
    assert RowGroup.from_bytes(moved_row_group(group, 0, ordinal=32_767)).ordinal == 32_767
    assert RowGroup.from_bytes(moved_row_group(group, 0, ordinal=32_768)).ordinal is None
    without = row_group_bytes(FooterArrays.scan(a_footer(CHUNK)), 0)
    assert moved_row_group(without, 0, ordinal=4) == without


_NOTHING = Struct(())
_NO_STRUCTS = [
    b"\x00",
    b"",
    write_struct(_NOTHING.replace(1, LIST, ListOf(I64, (1,)))),
    write_struct(_NOTHING.replace(1, I64, 1)),
]


@pytest.mark.parametrize("data", _NO_STRUCTS)
def test_what_is_no_row_group_and_no_offset_index(data: bytes) -> None:
    with pytest.raises(FormatError):
        moved_row_group(data, 1)
    with pytest.raises(FormatError):
        moved_offset_index(data, 1)


def test_a_chunk_without_metadata_cannot_move() -> None:
    chunk = _NOTHING.replace(1, I64, 5)
    with pytest.raises(FormatError):
        moved_row_group(write_struct(_NOTHING.replace(1, LIST, ListOf(STRUCT, (chunk,)))), 1)


def test_footers_of_other_columns_are_told_apart() -> None:
    _, one = written(SCHEMA.empty_table())
    _, other = written(pa.table({"i": pa.array([1], pa.int32())}))
    assert FooterEditor.of(one).columns == FooterEditor.of(one).columns
    assert FooterEditor.of(one).columns != FooterEditor.of(other).columns
