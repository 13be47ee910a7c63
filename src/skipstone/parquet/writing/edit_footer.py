"""A new footer from an old one: what is not changed stays as it is, unknown fields above all.

    FileMetaData   row_groups anew; column_orders added where there are none; all else as it was
      RowGroup     sizes, offsets and sorting columns anew
        ColumnChunk, ColumnMetaData    the fields that are given; ``None`` removes one

The old footer is read as plain Thrift (``thrift.Struct``), field by field in its order, so that a
field that nobody knows yet is written back as it was read. Key-values and ``created_by`` stay:
readers work around the faults of old writers by the latter, and the pages are still theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import FormatError
from skipstone.parquet.format.metadata import ColumnOrder, TypeDefinedOrder
from skipstone.parquet.thrift.compact import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Limits,
    ListOf,
    Struct,
    read_struct,
    write_struct,
)
from skipstone.parquet.thrift.structs import Declared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ChunkEdit", "GroupEdit", "edited_footer"]

_NUM_ROWS, _ROW_GROUPS, _KEY_VALUES, _COLUMN_ORDERS = 3, 4, 5, 7
_COLUMNS, _META_DATA = 1, 3
_STRUCTS: Final = -1

_CHUNK: Final[dict[str, tuple[int, int]]] = {
    "file_path": (1, BINARY),
    "file_offset": (2, I64),
    "offset_index_offset": (4, I64),
    "offset_index_length": (5, I32),
    "column_index_offset": (6, I64),
    "column_index_length": (7, I32),
    "crypto_metadata": (8, STRUCT),
    "encrypted_column_metadata": (9, BINARY),
}
_META: Final[dict[str, tuple[int, int]]] = {
    "encodings": (2, I32 * _STRUCTS),
    "num_values": (5, I64),
    "total_uncompressed_size": (6, I64),
    "total_compressed_size": (7, I64),
    "data_page_offset": (9, I64),
    "index_page_offset": (10, I64),
    "dictionary_page_offset": (11, I64),
    "statistics": (12, STRUCT),
    "encoding_stats": (13, STRUCT * _STRUCTS),
    "bloom_filter_offset": (14, I64),
    "bloom_filter_length": (15, I32),
    "size_statistics": (16, STRUCT),
    "geospatial_statistics": (17, STRUCT),
}
_GROUP: Final[dict[str, tuple[int, int]]] = {
    "total_byte_size": (2, I64),
    "num_rows": (3, I64),
    "sorting_columns": (4, STRUCT * _STRUCTS),
    "file_offset": (5, I64),
    "total_compressed_size": (6, I64),
    "ordinal": (7, I16),
}


@dataclass(slots=True, kw_only=True)
class ChunkEdit:
    """Fields by their names in parquet.thrift, of ``ColumnChunk`` and of its ``meta_data``."""

    chunk: dict[str, object] = field(default_factory=dict)
    meta: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class GroupEdit:
    """Fields of a ``RowGroup``, and an edit for each of its chunks."""

    chunks: Sequence[ChunkEdit]
    fields: dict[str, object] = field(default_factory=dict)


def edited_footer(
    data: bytes,
    groups: Sequence[GroupEdit],
    *,
    column_orders: int = 0,
    key_values: Mapping[str, str] | None = None,
) -> bytes:
    """``FileMetaData`` of the bytes ``data`` with all of its row groups edited.

    ``column_orders``: the number of leaves, where their orders are to be TYPE_ORDER from now on and
    the footer names none. ``key_values`` are added to those that there are.
    """
    top = _read(data)
    held = top.get(_ROW_GROUPS)
    if not isinstance(held, ListOf) or len(held.values) != len(groups):
        raise FormatError("row groups of a footer", expected=len(groups))
    made = tuple([_group(old, edit) for old, edit in zip(held.values, groups, strict=True)])
    top = top.replace(_ROW_GROUPS, LIST, ListOf(STRUCT, made))
    if column_orders and top.get(_COLUMN_ORDERS) is None:
        order = _read(ColumnOrder(TYPE_ORDER=TypeDefinedOrder()).to_bytes())
        top = top.replace(_COLUMN_ORDERS, LIST, ListOf(STRUCT, (order,) * column_orders))
    if key_values:
        old = top.get(_KEY_VALUES)
        pairs = old.values if isinstance(old, ListOf) else ()
        added = [
            Struct(()).replace(1, BINARY, key.encode()).replace(2, BINARY, value.encode())
            for key, value in key_values.items()
        ]
        top = top.replace(_KEY_VALUES, LIST, ListOf(STRUCT, (*pairs, *added)))
    return write_struct(top)


def _read(data: bytes) -> Struct:
    return read_struct(data, limits=Limits(values=max(1 << 16, 2 * len(data))))[0]


def _group(group: Struct, edit: GroupEdit) -> Struct:
    columns = group.get(_COLUMNS)
    if not isinstance(columns, ListOf) or len(columns.values) != len(edit.chunks):
        raise FormatError("columns of a row group", expected=len(edit.chunks))
    chunks = tuple([_chunk(*each) for each in zip(columns.values, edit.chunks, strict=True)])
    return _set(group.replace(_COLUMNS, LIST, ListOf(STRUCT, chunks)), _GROUP, edit.fields)


def _chunk(chunk: Struct, edit: ChunkEdit) -> Struct:
    meta = chunk.get(_META_DATA)
    if edit.meta:
        if not isinstance(meta, Struct):
            raise FormatError("a column chunk without metadata")
        chunk = chunk.replace(_META_DATA, STRUCT, _set(meta, _META, edit.meta))
    return _set(chunk, _CHUNK, edit.chunk)


def _set(
    struct: Struct, places: Mapping[str, tuple[int, int]], fields: Mapping[str, object]
) -> Struct:
    for name, value in fields.items():
        id, kind = places[name]
        if value is None:
            struct = struct.without(id)
        elif kind < 0:
            assert isinstance(value, tuple)
            listed = tuple([_wire(each, kind * _STRUCTS) for each in value])
            struct = struct.replace(id, LIST, ListOf(kind * _STRUCTS, listed))
        else:
            struct = struct.replace(id, kind, _wire(value, kind))
    return struct


def _wire(value: Any, kind: int) -> Any:
    if isinstance(value, Declared):
        return _read(value.to_bytes())
    if kind == BINARY:
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return int(value)
