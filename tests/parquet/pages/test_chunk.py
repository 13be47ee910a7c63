"""Column chunks: pages joined, counts that must agree, rows cut out, encryption taken off."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.arrow.arrow_types import shape_of
from skipstone.parquet.arrow.assembly import assemble
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.pages.column_values import LeafColumn, concat, decode_pages
from skipstone.parquet.pages.page import chunk_range, walk_pages
from tests.parquet.format.files import nested_types, same, written
from tests.parquet.whole_file import decode_chunk, read_row_group, read_table

if TYPE_CHECKING:
    from skipstone.parquet.format.metadata import ColumnMetaData
    from skipstone.parquet.format.schema import ColumnDescriptor
    from tests.parquet.format.files import Written


def file_of(table: pa.Table, **options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def first_chunk(data: bytes) -> tuple[bytes, ColumnMetaData, ColumnDescriptor]:
    metadata = read_metadata(data)
    meta = metadata.row_groups[0].columns[0].meta_data
    assert meta is not None
    start, stop = chunk_range(meta, file_size=len(data))
    return data[start:stop], meta, Schema.of(metadata.schema).leaves[0]


def values_of(column: LeafColumn) -> list[object]:
    found = column.values()
    return list(found) if not isinstance(found, np.ndarray) else found.tolist()


# -- one chunk -------------------------------------------------------------------------------------


def test_dictionary_pages_and_the_plain_ones_after_them() -> None:
    # 600 distinct strings of 20 bytes pass a dictionary limit of 1,000 bytes after 50 or so: the
    # first pages are indices, the later ones plain.
    texts = [f"value {i:014}" if i % 9 else None for i in range(600)]
    data = file_of(
        pa.table({"a": texts}),
        dictionary_pagesize_limit=1000,
        data_page_size=300,
        write_batch_size=10,
    )
    column = decode_chunk(*first_chunk(data))
    kinds = [run.indices is not None for run in column.runs]
    assert kinds == [True, False]
    assert column.num_rows == column.num_entries == 600
    assert values_of(column) == [text.encode() for text in texts if text]
    starts = np.arange(0, 600, 7)
    chosen = [text for i, text in enumerate(texts) if i % 7 < 3 and text]
    ranges = column.ranges(starts, np.minimum(starts + 3, 600))
    assert values_of(ranges) == [text.encode() for text in chosen]


def test_indices_of_one_dictionary_are_joined_not_looked_up() -> None:
    data = file_of(pa.table({"a": ["x", "y", None] * 500}), data_page_size=50, write_batch_size=20)
    chunk, meta, leaf = first_chunk(data)
    assert len(list(walk_pages(chunk))) > 10
    column = decode_chunk(chunk, meta, leaf)
    (run,) = column.runs
    assert run.indices is not None
    assert len(run.values) == 2
    assert (column.num_entries, column.num_values, column.num_nulls) == (1500, 1000, 500)


@pytest.mark.parametrize("codec", [1, 6])
def test_pages_in_another_codec(codec: int) -> None:
    ints = pa.table({"a": pa.array(range(30), pa.int32())})
    chunk, meta, leaf = first_chunk(file_of(ints, compression="none"))
    assert decode_pages(walk_pages(chunk, num_values=30), leaf, meta.codec).num_values == 30
    with pytest.raises(FormatError):
        decode_pages(walk_pages(chunk, num_values=30), leaf, codec)


def test_more_values_than_so_few_bytes_are_trusted_to_hold() -> None:
    chunk, meta, leaf = first_chunk(file_of(pa.table({"a": [1, 2]})))
    with pytest.raises(UnsupportedError, match="values in"):
        decode_chunk(chunk, dataclasses.replace(meta, num_values=1 << 40), leaf)


def test_errors_tell_the_page_and_the_column() -> None:
    data = file_of(pa.table({"a": ["x" * 50, "y"]}), compression="none", use_dictionary=False)
    chunk, meta, leaf = first_chunk(data)
    page = next(walk_pages(chunk, base=4))
    broken = chunk[: page.header_length] + b"\xff" * len(page.body)
    with pytest.raises(FormatError, match="page of column a") as caught:
        decode_chunk(broken, meta, leaf, base=4)
    assert caught.value.offset == 4


def test_indices_without_a_dictionary_or_outside_it() -> None:
    chunk, meta, leaf = first_chunk(file_of(pa.table({"a": ["x", "y", "z"]}), compression="none"))
    dictionary, *data_pages = list(walk_pages(chunk, num_values=meta.num_values))
    with pytest.raises(FormatError, match="no dictionary"):
        decode_pages(data_pages, leaf, meta.codec)
    fewer = dictionary._replace(num_values=2)
    with pytest.raises(FormatError, match="outside the dictionary"):
        decode_pages([fewer, *data_pages], leaf, meta.codec)


# -- rows of a chunk -------------------------------------------------------------------------------


@given(written(nested_types(max_leaves=4), max_rows=120), st.data())
def test_rows_cut_out_are_the_rows_of_the_whole(file: Written, data: st.DataObject) -> None:
    assume(file.data)
    metadata = read_metadata(file.data)
    assume(metadata.row_groups)
    schema = Schema.of(metadata.schema)
    whole = read_table(file.data)
    group = metadata.row_groups[0]
    columns = read_row_group(file.data, metadata, group, schema)
    start = data.draw(st.integers(0, group.num_rows))
    stop = data.draw(st.integers(start, group.num_rows))
    for node, expected in zip(schema.root.children, whole.columns, strict=True):
        mine = {k: columns[k].rows(start, stop) for k in range(node.first_leaf, node.stop_leaf)}
        found = assemble(shape_of(node, expected.type, mine), mine)
        found.validate(full=True)
        assert same(found, expected.chunk(0).slice(start, stop - start))


@given(written(nested_types(max_leaves=4), max_rows=120), st.integers(1, 9), st.integers(1, 3))
def test_ranges_are_the_rows_of_the_whole(file: Written, step: int, most: int) -> None:
    assume(file.data)
    metadata = read_metadata(file.data)
    assume(metadata.row_groups)
    schema = Schema.of(metadata.schema)
    whole = read_table(file.data)
    group = metadata.row_groups[0]
    columns = read_row_group(file.data, metadata, group, schema)
    starts = np.arange(0, group.num_rows, step)
    stops = np.minimum(starts + min(most, step), group.num_rows)
    assume(len(starts))
    for node, expected in zip(schema.root.children, whole.columns, strict=True):
        mine = {k: columns[k].ranges(starts, stops) for k in range(node.first_leaf, node.stop_leaf)}
        found = assemble(shape_of(node, expected.type, mine), mine)
        found.validate(full=True)
        pairs = zip(starts.tolist(), stops.tolist(), strict=True)
        slices = [expected.chunk(0).slice(start, stop - start) for start, stop in pairs]
        assert same(found, pa.concat_arrays(slices))


@given(written(nested_types(max_leaves=3), max_rows=120))
def test_pages_decoded_one_by_one_are_the_chunk(file: Written) -> None:
    assume(file.data)
    metadata = read_metadata(file.data)
    schema = Schema.of(metadata.schema)
    for group in metadata.row_groups:
        for leaf, chunk in zip(schema.leaves, group.columns, strict=True):
            meta = chunk.meta_data
            assert meta is not None
            start, stop = chunk_range(meta, file_size=len(file.data))
            stored = file.data[start:stop]
            whole = decode_chunk(stored, meta, leaf, base=start)
            pages = list(walk_pages(stored, num_values=meta.num_values))
            dictionary = [page for page in pages if not page.is_data]
            parts = [
                decode_pages([*dictionary, page], leaf, meta.codec)
                for page in pages
                if page.is_data
            ]
            for page, part in zip((each for each in pages if each.is_data), parts, strict=True):
                header = page.header.data_page_header_v2
                assert part.num_entries == page.num_values
                if header is not None:
                    assert part.num_rows == header.num_rows
                    assert part.num_nulls == header.num_nulls
            joined = concat(leaf, parts)
            assert levels(joined) == levels(whole)
            assert repr(values_of(joined)) == repr(values_of(whole))


def levels(column: LeafColumn) -> tuple[object, object, int]:
    definition, repetition = column.definition_levels, column.repetition_levels
    return (
        None if definition is None else definition.tolist(),
        None if repetition is None else repetition.tolist(),
        column.num_entries,
    )
