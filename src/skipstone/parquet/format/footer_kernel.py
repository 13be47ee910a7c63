"""Scans the row groups of a footer into flat arrays, in one pass.

Each function runs as plain Python and compiled by numba (see ``kernel_wire``). ``wide``, ``narrow``
and ``groups`` are laid out by ``footer_layout``; ``stack`` is scratch for ``skip``.
"""

from __future__ import annotations

from typing import Any

from skipstone.parquet.thrift.compact import BINARY, I16, I32, I64, LIST, STRUCT
from skipstone.parquet.thrift.kernel_wire import (
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

from .column_metadata_kernel import (
    encoding_stats,
    encodings,
    meta_data,
    place,
    size_of,
    size_statistics,
    small,
    statistics,
    tally,
)
from .footer_layout import (
    AT_CHUNK,
    AT_CRYPTO,
    AT_ENCRYPTED,
    AT_FILE_PATH,
    AT_META_DATA,
    CHUNK_COLUMN_INDEX_LENGTH,
    CHUNK_COLUMN_INDEX_OFFSET,
    CHUNK_CRYPTO_METADATA,
    CHUNK_ENCRYPTED_COLUMN_METADATA,
    CHUNK_FILE_PATH,
    CHUNK_META_DATA,
    CHUNK_OFFSET_INDEX_LENGTH,
    CHUNK_OFFSET_INDEX_OFFSET,
    COLUMN_INDEX_LENGTH,
    COLUMN_INDEX_OFFSET,
    ELEMENT_TYPE,
    G_AT,
    G_AT_SORTING,
    G_FILE_OFFSET,
    G_NUM_ROWS,
    G_ORDINAL,
    G_TOTAL_BYTE_SIZE,
    G_TOTAL_COMPRESSED_SIZE,
    GROUP_COLUMNS,
    GROUP_FILE_OFFSET,
    GROUP_NUM_ROWS,
    GROUP_ORDINAL,
    GROUP_SLOTS,
    GROUP_SORTING_COLUMNS,
    GROUP_TOTAL_BYTE_SIZE,
    GROUP_TOTAL_COMPRESSED_SIZE,
    OFFSET_INDEX_LENGTH,
    OFFSET_INDEX_OFFSET,
)

# Bytes of the required fields; encrypted metadata has a nonce and a tag of 28 bytes more.
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
            if previous == ELEMENT_TYPE and kind == I32:
                physical, at = zigzag(data, at, end)
                if at >= 0 and not 0 <= physical < 8:
                    return 0, failed(at, IMPLAUSIBLE)
            else:
                at = skip(data, at, end, kind, stack)
            if at < 0:
                return 0, at
        # The root is a group, even if a writer gave it a type.
        if physical >= 0 and i > 0:
            types[leaves] = physical
            leaves += 1
    return leaves, at


def column_chunk(
    data: Any,
    at: Any,
    end: Any,
    wide: Any,
    narrow: Any,
    n: Any,
    row: Any,
    expected: Any,
    stack: Any,
) -> Any:
    """``ColumnChunk`` number ``row`` of ``n``, whose column is of the type ``expected``."""
    start = at
    previous = 0
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0:
            return at
        if kind == 0:
            break
        if kind == STRUCT and previous == CHUNK_META_DATA:
            at = meta_data(data, at, end, wide, narrow, n, row, expected, stack)
        elif kind == I64 and previous == CHUNK_OFFSET_INDEX_OFFSET:
            at = size_of(data, at, end, wide, OFFSET_INDEX_OFFSET * n + row)
        elif kind == I32 and previous == CHUNK_OFFSET_INDEX_LENGTH:
            at = small(data, at, end, narrow, OFFSET_INDEX_LENGTH * n + row)
        elif kind == I64 and previous == CHUNK_COLUMN_INDEX_OFFSET:
            at = size_of(data, at, end, wide, COLUMN_INDEX_OFFSET * n + row)
        elif kind == I32 and previous == CHUNK_COLUMN_INDEX_LENGTH:
            at = small(data, at, end, narrow, COLUMN_INDEX_LENGTH * n + row)
        elif kind == BINARY and previous == CHUNK_FILE_PATH:
            at = place(data, at, end, narrow, n, AT_FILE_PATH * n + row)
        elif kind == BINARY and previous == CHUNK_ENCRYPTED_COLUMN_METADATA:
            at = place(data, at, end, narrow, n, AT_ENCRYPTED * n + row)
        else:
            if kind == STRUCT and previous == CHUNK_CRYPTO_METADATA:
                narrow[AT_CRYPTO * n + row] = at + 1
            at = skip(data, at, end, kind, stack)
        if at < 0:
            return at
    if not narrow[AT_META_DATA * n + row] and not narrow[AT_ENCRYPTED * n + row]:
        return failed(start, NO_META_DATA)
    narrow[AT_CHUNK * n + row] = start + 1
    narrow[(AT_CHUNK + 1) * n + row] = at - start + 1
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
    n = sizes[0] * leaves
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
            if kind == LIST and previous == GROUP_COLUMNS:
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
                    row = r * leaves + c
                    at = column_chunk(data, at, end, wide, narrow, n, row, types[c], stack)
                    if at < 0:
                        return at
            elif kind == I64 and previous == GROUP_TOTAL_BYTE_SIZE:
                at = size_of(data, at, end, groups, g + G_TOTAL_BYTE_SIZE)
            elif kind == I64 and previous == GROUP_NUM_ROWS:
                at = size_of(data, at, end, groups, g + G_NUM_ROWS)
            elif kind == I64 and previous == GROUP_FILE_OFFSET:
                at = tally(data, at, end, groups, g + G_FILE_OFFSET)
            elif kind == I64 and previous == GROUP_TOTAL_COMPRESSED_SIZE:
                at = size_of(data, at, end, groups, g + G_TOTAL_COMPRESSED_SIZE)
            elif kind == I16 and previous == GROUP_ORDINAL:
                at = tally(data, at, end, groups, g + G_ORDINAL)
            else:
                before = at
                at = skip(data, at, end, kind, stack)
                if kind == LIST and previous == GROUP_SORTING_COLUMNS and at >= 0:
                    groups[g + G_AT_SORTING] = before + 1
                    groups[g + G_AT_SORTING + 1] = at - before + 1
            if at < 0:
                return at
        if not columns or not groups[g + G_NUM_ROWS] or not groups[g + G_TOTAL_BYTE_SIZE]:
            return failed(start, MISSING)
        groups[g + G_AT] = start + 1
        groups[g + G_AT + 1] = at - start + 1
    return at


# The functions that are compiled.
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
    statistics,
    size_statistics,
    encodings,
    encoding_stats,
    meta_data,
    column_chunk,
)
