"""Decodes whole files in memory by Skipstone's own decoders, without the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.arrow.arrow_types import arrow_schema, shape_of
from skipstone.parquet.arrow.assembly import assemble_rows
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.format.schema import ColumnDescriptor, Schema
from skipstone.parquet.pages.column_values import LeafColumn, check_num_values, decode_pages
from skipstone.parquet.pages.page import chunk_range, walk_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skipstone.parquet.format.metadata import ColumnMetaData, FileMetaData, RowGroup


def with_instants(table: pa.Table, schema: pq.ParquetSchema) -> pa.Table:
    """What pyarrow read with ``coerce_int96_timestamp_unit="us"``, with UTC for INT96."""
    leaves = (schema.column(at).physical_type for at in range(len(schema)))
    fields = [field.with_type(_instants(field.type, leaves)) for field in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def _instants(type: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """The type with UTC for INT96; ``leaves`` has the physical types of its leaves, and more."""
    if pa.types.is_struct(type):
        return pa.struct([each.with_type(_instants(each.type, leaves)) for each in type])
    if pa.types.is_map(type):
        key, item = _instants(type.key_type, leaves), _instants(type.item_type, leaves)
        return pa.map_(type.key_field.with_type(key), type.item_field.with_type(item))
    if pa.types.is_list(type):
        return pa.list_(type.value_field.with_type(_instants(type.value_type, leaves)))
    return pa.timestamp("us", "UTC") if next(leaves) == "INT96" else type


def read_table(data: bytes | memoryview, *, verify_crc: bool = False) -> pa.Table:
    """All rows of an unencrypted file in memory.

    FormatError where the file is damaged (with ``verify_crc`` also where a page has another
    checksum than it states), UnsupportedError for what is not read.
    """
    metadata = read_metadata(data)
    schema = Schema.of(metadata.schema)
    wanted = arrow_schema(schema, metadata.schema, metadata.key_value_metadata)
    chunks: list[list[pa.Array]] = [[] for _ in wanted]
    num_rows = 0
    for row_group in metadata.row_groups:
        columns = read_row_group(data, metadata, row_group, schema, verify_crc=verify_crc)
        for index, (node, field) in enumerate(zip(schema.root.children, wanted, strict=True)):
            shape = shape_of(node, field.type, range(node.first_leaf, node.stop_leaf))
            mine = {k: columns[k] for k in shape.leaves}
            chunks[index] += assemble_rows(shape, mine, row_group.num_rows)
        num_rows += row_group.num_rows
    arrays = [
        pa.chunked_array(mine, field.type) for mine, field in zip(chunks, wanted, strict=True)
    ]
    if not arrays:
        return pa.table({"": pa.nulls(num_rows)}).select([])
    return pa.Table.from_arrays(arrays, schema=wanted)


def read_row_group(
    data: bytes | memoryview,
    metadata: FileMetaData,
    row_group: RowGroup,
    schema: Schema,
    *,
    verify_crc: bool = False,
) -> dict[int, LeafColumn]:
    """All leaves of a row group, by ordinal, of a whole file in memory."""
    if len(row_group.columns) != len(schema.leaves):
        raise FormatError(
            "columns of a row group", expected=len(schema.leaves), got=len(row_group.columns)
        )
    view = memoryview(data)
    found: dict[int, LeafColumn] = {}
    for leaf, chunk in zip(schema.leaves, row_group.columns, strict=True):
        meta = chunk.meta_data
        if meta is None or chunk.crypto_metadata is not None:
            raise UnsupportedError(f"column {leaf.name} is encrypted")
        if chunk.file_path is not None:
            raise UnsupportedError(f"column {leaf.name} lies in another file, {chunk.file_path}")
        start, stop = chunk_range(meta, file_size=len(data), created_by=metadata.created_by)
        _check_rows(leaf, meta.num_values, row_group.num_rows)
        found[leaf.ordinal] = decode_chunk(
            view[start:stop], meta, leaf, base=start, verify_crc=verify_crc
        )
    return found


def decode_chunk(
    data: bytes | memoryview,
    meta: ColumnMetaData,
    leaf: ColumnDescriptor,
    *,
    base: int = 0,
    verify_crc: bool = False,
) -> LeafColumn:
    """All entries of a chunk whose bytes (``page.chunk_range``) are ``data``, at byte ``base``."""
    check_num_values(meta.num_values, len(data))
    pages = walk_pages(data, base=base, num_values=meta.num_values)
    column = decode_pages(pages, leaf, meta.codec, verify_crc=verify_crc)
    if meta.type != leaf.type or column.num_entries != meta.num_values:
        raise FormatError(
            f"values in the pages of column {leaf.name}",
            offset=base,
            expected=meta.num_values,
            got=column.num_entries,
        )
    return column


def _check_rows(leaf: ColumnDescriptor, num_values: int, num_rows: int) -> None:
    if num_rows < 0 or (num_values != num_rows and not leaf.max_repetition_level):
        raise FormatError(f"values of column {leaf.name}", expected=num_rows, got=num_values)
