"""A footer of some of the columns of another: a file of these alone, and whole in itself.

Elements of the schema, chunks and orders are taken over as they are, with all that nobody knows
yet. What speaks of columns by their numbers (sorting columns) or of all of them (key-values) is
left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import FormatError
from skipstone.parquet.thrift.compact import (
    BINARY,
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["subset_footer"]

_SCHEMA, _ROW_GROUPS, _KEY_VALUES, _COLUMN_ORDERS = 2, 4, 5, 7
_COLUMNS, _TOTAL_BYTE_SIZE, _SORTING, _FILE_OFFSET, _COMPRESSED = 1, 2, 4, 5, 6
_NUM_CHILDREN: Final = 5
_FILE_PATH, _META_DATA, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 1, 3, 6, 7


def subset_footer(
    footer: bytes,
    fields: Sequence[int],
    leaves: Sequence[int],
    starts: Sequence[int],
    key_values: Mapping[str, str],
) -> bytes:
    """The ``FileMetaData`` of the ``fields`` of the root, which have these ``leaves``.

    ``starts`` are where the row groups begin in the new file; chunks must lie rightly already.
    """
    top = read_struct(footer, limits=Limits(values=max(1 << 16, 2 * len(footer))))[0]
    elements = _structs(top, _SCHEMA)
    spans = _spans(elements)
    root = elements[0].replace(_NUM_CHILDREN, I32, len(fields))
    schema = [root, *(each for at in fields for each in elements[spans[at][0] : spans[at][1]])]
    groups = [
        _group(group, leaves, start)
        for group, start in zip(_structs(top, _ROW_GROUPS), starts, strict=True)
    ]
    pairs = [
        Struct(()).replace(1, BINARY, key.encode()).replace(2, BINARY, value.encode())
        for key, value in key_values.items()
    ]
    top = top.replace(_SCHEMA, LIST, ListOf(STRUCT, tuple(schema)))
    top = top.replace(_ROW_GROUPS, LIST, ListOf(STRUCT, tuple(groups)))
    top = top.replace(_KEY_VALUES, LIST, ListOf(STRUCT, tuple(pairs)))
    orders = top.get(_COLUMN_ORDERS)
    if isinstance(orders, ListOf):
        held = tuple([orders.values[leaf] for leaf in leaves])
        top = top.replace(_COLUMN_ORDERS, LIST, ListOf(orders.type, held))
    return write_struct(top)


def _structs(struct: Struct, id: int) -> Sequence[Any]:
    found = struct.get(id)
    return found.values if isinstance(found, ListOf) else ()


def _spans(elements: Sequence[Struct]) -> list[tuple[int, int]]:
    """Where the elements of each field of the root begin and end."""
    found: list[tuple[int, int]] = []
    at = 1
    while at < len(elements):
        start, open_ = at, 1
        while open_:
            if at >= len(elements):
                raise FormatError("a schema that ends within a group")
            children = elements[at].get(_NUM_CHILDREN)
            open_ += (children if isinstance(children, int) else 0) - 1
            at += 1
        found.append((start, at))
    return found


def _group(group: Struct, leaves: Sequence[int], start: int) -> Struct:
    columns = _structs(group, _COLUMNS)
    chunks = [columns[leaf].without(_FILE_PATH) for leaf in leaves]
    metas = [each.get(_META_DATA) for each in chunks]
    sizes = [sum(meta.get(id) for meta in metas) for id in (_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE)]
    group = group.replace(_COLUMNS, LIST, ListOf(STRUCT, tuple(chunks)))
    group = group.replace(_TOTAL_BYTE_SIZE, I64, sizes[0]).without(_SORTING)
    return group.replace(_FILE_OFFSET, I64, start).replace(_COMPRESSED, I64, sizes[1])
