"""What is left of a footer of which only the first part is there, or whose middle is damaged.

    FileMetaData   1 version  2 schema  3 num_rows  4 row groups  5 key-value pairs …
    RowGroup       1 columns  2 total_byte_size  3 num_rows …

Writers write fields in this order. The schema has to be whole; of the chunks those are taken whose
metadata are, up to the first that is torn. They are claims: who uses them compares them with the
pages that lie there.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone.errors import FormatError
from skipstone.parquet.format.metadata import ColumnChunk, ColumnMetaData, SchemaElement
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.thrift.compact import I32, LIST, STRUCT, Reader

__all__ = ["TornFooter", "torn_footer"]

_SCHEMA, _ROW_GROUPS, _COLUMNS = 2, 4, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TornFooter:
    """The schema, and the metadata of the first chunks."""

    schema: tuple[SchemaElement, ...]
    chunks: tuple[ColumnMetaData, ...] = ()


def torn_footer(data: memoryview, at: int, end: int, *, chunks: bool = True) -> TornFooter | None:
    """What is left of the footer that begins at ``at``; ``None`` if none begins there."""
    if bytes(data[at : at + 1]) != b"\x15":
        return None
    reader = Reader(data, at, end)
    try:
        kind, id = reader.field_head(0)
        if (kind, id) != (I32, 1) or reader.integer(32) not in (1, 2):
            return None
        kind, id = reader.field_head(id)
        if (kind, id) != (LIST, _SCHEMA):
            return None
        kind, size = reader.list_head()
        if kind != STRUCT or not size:
            return None
        elements = tuple([SchemaElement.read(reader) for _ in range(size)])
        Schema.of(elements)
    except (FormatError, RecursionError):
        return None
    found: list[ColumnMetaData] = []
    try:
        if chunks:
            _chunks(reader, id, found)
    except (FormatError, RecursionError):
        pass
    return TornFooter(schema=elements, chunks=tuple(found))


def _chunks(reader: Reader, id: int, found: list[ColumnMetaData]) -> None:
    """Those of the row groups behind field ``id``, until something is torn."""
    while id < _ROW_GROUPS:
        kind, id = reader.field_head(id)
        if not kind or id > _ROW_GROUPS:
            return
        if id != _ROW_GROUPS:
            reader.value(kind)
    kind, groups = reader.list_head()
    if kind != STRUCT:
        return
    for _ in range(groups):
        id = 0
        while True:
            kind, id = reader.field_head(id)
            if not kind:
                break
            if id != _COLUMNS or kind != LIST:
                reader.value(kind)
                continue
            kind, columns = reader.list_head()
            if kind != STRUCT:
                return
            for _ in range(columns):
                meta = ColumnChunk.read(reader).meta_data
                if meta is not None:
                    found.append(meta)
