"""One pass over the row groups of a footer: the structs of parquet.thrift into flat arrays.

In the style of ``footer_wire``: plain Python and compiled by numba alike. ``wide``, ``narrow`` and
``groups`` are laid out by ``footer_layout``; ``w``, ``n`` and ``g`` are where a chunk's or a row
group's slots begin. ``stack`` is scratch for ``skip``.
"""

from __future__ import annotations

from typing import Any

from .footer_layout import (
    AT_CHUNK,
    AT_CRYPTO,
    AT_ENCRYPTED,
    AT_FILE_PATH,
    COLUMN_INDEX_LENGTH,
    COLUMN_INDEX_OFFSET,
    ENCRYPTED,
    FILE_OFFSET,
    G_AT,
    G_AT_SORTING,
    G_FILE_OFFSET,
    G_NUM_ROWS,
    G_ORDINAL,
    G_TOTAL_BYTE_SIZE,
    G_TOTAL_COMPRESSED_SIZE,
    GROUP_SLOTS,
    HAS_META_DATA,
    NARROW_SLOTS,
    OFFSET_INDEX_LENGTH,
    OFFSET_INDEX_OFFSET,
    TYPE,
    WIDE_SLOTS,
)
from .footer_meta import (
    encoding_stats,
    encodings,
    length_of,
    meta_data,
    place,
    size_of,
    size_statistics,
    small,
    statistics,
    tally,
)
from .footer_wire import (
    ELEMENTS,
    IMPLAUSIBLE,
    MISSING,
    NO_META_DATA,
    OTHER_COLUMNS,
    TWICE,
    count,
    failed,
    field,
    flat,
    items,
    skip,
    zigzag,
)
from .thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
)

__all__ = ["HELPERS", "SMALLEST_CHUNK", "SMALLEST_ROW_GROUP", "row_groups", "schema"]

# What the required fields alone take; encrypted metadata has a nonce and a tag, 28 bytes.
SMALLEST_CHUNK = 17
SMALLEST_ROW_GROUP = 7


def schema(data: Any, at: Any, end: Any, elements: Any, types: Any, stack: Any) -> Any:
    """Number of leaves among ``elements`` schema elements, and the place after; fills ``types``."""
    leaves = 0
    for i in range(elements):
        previous = 0
        physical = -1
        while True:
            kind, previous, at = field(data, at, end, previous)
            if at < 0:
                return 0, at
            if kind == 0:
                break
            if previous == 1 and kind == I32:
                physical, at = zigzag(data, at, end)
                if at >= 0 and not 0 <= physical < 8:
                    return 0, failed(at, IMPLAUSIBLE)
            else:
                at = skip(data, at, end, kind, stack)
            if at < 0:
                return 0, at
        # The root is a group, whatever a writer says of its type.
        if physical >= 0 and i > 0:
            types[leaves] = physical
            leaves += 1
    return leaves, at


def column_chunk(
    data: Any, at: Any, end: Any, wide: Any, w: Any, narrow: Any, n: Any, stack: Any
) -> Any:
    """``ColumnChunk``; its rows of ``wide`` and ``narrow`` are filled but for the type."""
    start = at
    previous = 0
    for slot in range(w, w + WIDE_SLOTS):
        wide[slot] = -1
    for slot in range(n, n + NARROW_SLOTS):
        if slot != n + TYPE:
            narrow[slot] = -1
    narrow[n + HAS_META_DATA] = 0
    narrow[n + ENCRYPTED] = 0
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0:
            return at
        if kind == 0:
            break
        before = at
        if kind == STRUCT and previous == 3:
            at = meta_data(data, at, end, wide, w, narrow, n, stack)
        elif kind == I64 and previous == 2:
            wide[w + FILE_OFFSET], at = zigzag(data, at, end)
        elif kind == I64 and previous == 4:
            at = size_of(data, at, end, wide, w + OFFSET_INDEX_OFFSET)
        elif kind == I32 and previous == 5:
            at = length_of(data, at, end, narrow, n + OFFSET_INDEX_LENGTH)
        elif kind == I64 and previous == 6:
            at = size_of(data, at, end, wide, w + COLUMN_INDEX_OFFSET)
        elif kind == I32 and previous == 7:
            at = length_of(data, at, end, narrow, n + COLUMN_INDEX_LENGTH)
        elif kind == BINARY and previous == 1:
            at = place(data, at, end, narrow, n + AT_FILE_PATH)
        elif kind == BINARY and previous == 9:
            at = place(data, at, end, narrow, n + AT_ENCRYPTED)
        else:
            at = skip(data, at, end, kind, stack)
            if kind == STRUCT and previous == 8 and at >= 0:
                narrow[n + ENCRYPTED] = 1
                narrow[n + AT_CRYPTO] = before
                narrow[n + AT_CRYPTO + 1] = at - before
        if at < 0:
            return at
    if narrow[n + HAS_META_DATA] == 0 and narrow[n + AT_ENCRYPTED] < 0:
        return failed(start, NO_META_DATA)
    narrow[n + AT_CHUNK] = start
    narrow[n + AT_CHUNK + 1] = at - start
    return at


def row_groups(
    data: Any,
    at: Any,
    end: Any,
    sizes: Any,
    types: Any,
    groups: Any,
    wide: Any,
    narrow: Any,
    stack: Any,
) -> Any:
    """The place after ``sizes[0]`` row groups of ``sizes[1]`` columns of these ``types``."""
    leaves = sizes[1]
    for r in range(sizes[0]):
        start = at
        g = r * GROUP_SLOTS
        previous = 0
        columns = False
        while True:
            kind, previous, at = field(data, at, end, previous)
            if at < 0:
                return at
            if kind == 0:
                break
            if kind == LIST and previous == 1:
                if columns:
                    return failed(at, TWICE)
                columns = True
                element, size, at = items(data, at, end)
                if at < 0:
                    return at
                if size != leaves:
                    return failed(at, OTHER_COLUMNS)
                if size and element != STRUCT:
                    return failed(at, ELEMENTS)
                for c in range(leaves):
                    w = (r * leaves + c) * WIDE_SLOTS
                    n = (r * leaves + c) * NARROW_SLOTS
                    narrow[n + TYPE] = types[c]
                    at = column_chunk(data, at, end, wide, w, narrow, n, stack)
                    if at < 0:
                        return at
            elif kind == I64 and previous == 2:
                at = size_of(data, at, end, groups, g + G_TOTAL_BYTE_SIZE)
            elif kind == I64 and previous == 3:
                at = size_of(data, at, end, groups, g + G_NUM_ROWS)
            elif kind == I64 and previous == 5:
                groups[g + G_FILE_OFFSET], at = zigzag(data, at, end)
            elif kind == I64 and previous == 6:
                at = size_of(data, at, end, groups, g + G_TOTAL_COMPRESSED_SIZE)
            elif kind == I16 and previous == 7:
                groups[g + G_ORDINAL], at = zigzag(data, at, end)
            else:
                before = at
                at = skip(data, at, end, kind, stack)
                if kind == LIST and previous == 4 and at >= 0:
                    groups[g + G_AT_SORTING] = before
                    groups[g + G_AT_SORTING + 1] = at - before
            if at < 0:
                return at
        if not columns or groups[g + G_NUM_ROWS] < 0 or groups[g + G_TOTAL_BYTE_SIZE] < 0:
            return failed(start, MISSING)
        groups[g + G_AT] = start
        groups[g + G_AT + 1] = at - start
    return at


# What the compiled kernels call; they themselves are schema, row_groups, meta_data and skip.
HELPERS = (
    schema,
    row_groups,
    failed,
    zigzag,
    count,
    field,
    items,
    flat,
    skip,
    place,
    size_of,
    tally,
    small,
    length_of,
    statistics,
    size_statistics,
    encodings,
    encoding_stats,
    meta_data,
    column_chunk,
)
