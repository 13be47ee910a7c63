"""Scans the row groups of a footer into flat arrays, in one pass.

Each function runs as plain Python and compiled by numba (see ``kernel_wire``). ``wide``, ``narrow``
and ``groups`` are laid out by ``footer_layout``: ``row`` is the number of a chunk among ``n``, so
that slot ``S`` of it is ``S * n + row``. ``stack`` is scratch for ``skip``. Where a field
occurs twice, its last value counts, as in the declared structs.
"""

from __future__ import annotations

from typing import Any, Final

from skipstone.parquet.thrift.compact import BINARY, FALSE, I16, I32, I64, LIST, STRUCT
from skipstone.parquet.thrift.kernel_wire import (
    ELEMENTS,
    IMPLAUSIBLE,
    MISSING,
    NO_META_DATA,
    OTHER_COLUMNS,
    OTHER_TYPE,
    TWICE,
    count,
    failed,
    field,
    flat,
    items,
    skip,
    zigzag,
)

from . import footer_layout as layout

# Bytes of the required fields; encrypted metadata has a nonce and a tag of 28 bytes more.
SMALLEST_CHUNK = 17
SMALLEST_ROW_GROUP = 7
# No file is larger; sums of a size and an offset stay inside 64 bits.
LARGEST: Final = 1 << 60
LARGEST_SMALL: Final = (1 << 31) - 2
OTHER_ENCODING: Final = 61


def place(data: Any, at: Any, end: Any, narrow: Any, n: Any, slot: Any) -> Any:
    """Records the place and length of a binary value."""
    length, at = count(data, at, end)
    if at < 0:
        return at
    narrow[slot] = at + 1
    narrow[slot + n] = length + 1
    return at + length


def size_of(data: Any, at: Any, end: Any, wide: Any, slot: Any) -> Any:
    """An i64 that is a size, a count or an offset."""
    value, at = zigzag(data, at, end)
    if at >= 0:
        if value < 0 or value > LARGEST:
            return failed(at, IMPLAUSIBLE)
        wide[slot] = value + 1
    return at


def tally(data: Any, at: Any, end: Any, wide: Any, slot: Any) -> Any:
    """An i64 count of statistics; parquet-java once wrote a negative one for "not counted"."""
    value, at = zigzag(data, at, end)
    if at >= 0:
        wide[slot] = value + 1 if 0 <= value <= LARGEST else 0
    return at


def small(data: Any, at: Any, end: Any, narrow: Any, slot: Any) -> Any:
    """An i32 that is a length or a number of an enumeration."""
    value, at = zigzag(data, at, end)
    if at >= 0:
        if value < 0 or value > LARGEST_SMALL:
            return failed(at, IMPLAUSIBLE)
        narrow[slot] = value + 1
    return at


def statistics(
    data: Any, at: Any, end: Any, wide: Any, narrow: Any, n: Any, row: Any, stack: Any
) -> Any:
    """``Statistics`` of a chunk."""
    if narrow[layout.AT_STATISTICS * n + row]:
        for slot in range(layout.NULL_COUNT, layout.NAN_COUNT + 1):
            wide[slot * n + row] = 0
        for slot in range(layout.AT_MAX, layout.AT_MIN_VALUE + 2):
            narrow[slot * n + row] = 0
        narrow[layout.MAX_EXACT * n + row] = 0
        narrow[layout.MIN_EXACT * n + row] = 0
    narrow[layout.AT_STATISTICS * n + row] = at + 1
    previous = 0
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0 or kind == 0:
            return at
        known = 0 <= previous < layout.IDS
        if known and kind == BINARY and layout.STATISTICS_BYTES[previous] >= 0:
            slot = layout.STATISTICS_BYTES[previous]
            at = place(data, at, end, narrow, n, slot * n + row)
        elif known and kind == I64 and layout.STATISTICS_COUNTS[previous] >= 0:
            at = tally(data, at, end, wide, layout.STATISTICS_COUNTS[previous] * n + row)
        elif known and kind <= FALSE and layout.STATISTICS_FLAGS[previous] >= 0:
            narrow[layout.STATISTICS_FLAGS[previous] * n + row] = 3 - kind
        else:
            at = skip(data, at, end, kind, stack)
        if at < 0:
            return at


def size_statistics(
    data: Any, at: Any, end: Any, wide: Any, narrow: Any, n: Any, row: Any, stack: Any
) -> Any:
    """``SizeStatistics`` of a chunk; the histograms are left to the lazy reader."""
    wide[layout.UNENCODED * n + row] = 0
    narrow[layout.AT_SIZE_STATISTICS * n + row] = at + 1
    previous = 0
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0 or kind == 0:
            return at
        if kind == I64 and previous == layout.SIZES_UNENCODED_BYTE_ARRAY_DATA_BYTES:
            at = tally(data, at, end, wide, layout.UNENCODED * n + row)
        else:
            at = skip(data, at, end, kind, stack)
        if at < 0:
            return at


def encodings(data: Any, at: Any, end: Any, wide: Any, slot: Any) -> Any:
    """The list of encodings as a bit mask; numbers beyond the mask set its highest bit."""
    element, size, at = items(data, at, end)
    if at < 0:
        return at
    if size and element != I32:
        return failed(at, ELEMENTS)
    mask = 0
    for _ in range(size):
        value, at = zigzag(data, at, end)
        if at < 0:
            return at
        if 0 <= value < OTHER_ENCODING:
            mask |= 1 << value
        else:
            mask |= 1 << OTHER_ENCODING
    wide[slot] = mask + 1
    return at


def encoding_stats(data: Any, at: Any, end: Any, narrow: Any, slot: Any, stack: Any) -> Any:
    """``dict_only`` from the pages per type and encoding: 1, 0, or absent without data pages.

    A negative count proves nothing. Neither does an unknown type of page, which may be a data page
    of a later format.
    """
    element, size, at = items(data, at, end)
    if at < 0:
        return at
    if size and element != STRUCT:
        return failed(at, ELEMENTS)
    verdict = -1
    for _ in range(size):
        previous = 0
        page = -1
        encoding = -1
        pages = -1
        while True:
            kind, previous, at = field(data, at, end, previous)
            if at < 0:
                return at
            if kind == 0:
                break
            if kind == I32 and previous == layout.PAGES_PAGE_TYPE:
                page, at = zigzag(data, at, end)
            elif kind == I32 and previous == layout.PAGES_ENCODING:
                encoding, at = zigzag(data, at, end)
            elif kind == I32 and previous == layout.PAGES_COUNT:
                pages, at = zigzag(data, at, end)
            else:
                at = skip(data, at, end, kind, stack)
            if at < 0:
                return at
        # DATA_PAGE 0, INDEX_PAGE 1, DICTIONARY_PAGE 2, DATA_PAGE_V2 3; PLAIN_DICTIONARY 2,
        # RLE_DICTIONARY 8.
        if page != 1 and page != 2 and pages != 0:
            if (page != 0 and page != 3) or (encoding != 2 and encoding != 8) or pages < 0:
                verdict = 0
            elif verdict < 0:
                verdict = 1
    narrow[slot] = verdict + 1
    return at


def forget(wide: Any, narrow: Any, n: Any, row: Any) -> None:
    """Clears the slots of a ``ColumnMetaData``, because the chunk has another one."""
    for slot in range(layout.NUM_VALUES, layout.UNENCODED + 1):
        wide[slot * n + row] = 0
    for slot in range(layout.CODEC, layout.DICT_ONLY + 1):
        narrow[slot * n + row] = 0
    for slot in range(layout.AT_MAX, layout.AT_MIN_VALUE + 2):
        narrow[slot * n + row] = 0
    for slot in range(layout.AT_STATISTICS, layout.AT_ENCODING_STATS + 1):
        narrow[slot * n + row] = 0


def is_complete(wide: Any, narrow: Any, n: Any, row: Any) -> Any:
    """Whether a chunk has all required numbers; a slot of 0 is an absent one."""
    return (
        narrow[layout.CODEC * n + row] != 0
        and wide[layout.ENCODINGS * n + row] != 0
        and wide[layout.DATA_PAGE_OFFSET * n + row] != 0
        and wide[layout.NUM_VALUES * n + row] != 0
        and wide[layout.TOTAL_UNCOMPRESSED_SIZE * n + row] != 0
        and wide[layout.TOTAL_COMPRESSED_SIZE * n + row] != 0
    )


def dict_only_by_encodings(wide: Any, narrow: Any, n: Any, row: Any) -> None:
    """Sets ``dict_only`` if the encodings prove that all data pages refer to a dictionary.

    As in parquet-java, if page counts are absent: the list names all encodings used. Writers of v1
    pages name PLAIN_DICTIONARY (bit 2) for data pages, and PLAIN as soon as one page falls back;
    RLE (3) and BIT_PACKED (4) encode levels. RLE_DICTIONARY proves nothing, because PLAIN may be
    the dictionary's. In booleans RLE encodes values.
    """
    mask = wide[layout.ENCODINGS * n + row] - 1
    if mask & 4 and not mask & ~(4 | 8 | 16):
        narrow[layout.DICT_ONLY * n + row] = 2


def meta_data(
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
    """``ColumnMetaData`` of chunk ``row`` of ``n``, whose column is of the type ``expected``."""
    start = at
    if narrow[layout.AT_META_DATA * n + row]:
        forget(wide, narrow, n, row)
    narrow[layout.AT_META_DATA * n + row] = start + 1
    previous = 0
    physical = -1
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0:
            return at
        if kind == 0:
            break
        known = 0 <= previous < layout.IDS
        if known and kind == I64 and layout.META_SIZES[previous] >= 0:
            slot = layout.META_SIZES[previous]
            at = size_of(data, at, end, wide, slot * n + row)
            # Byte 0 holds the magic: some writers mean "none".
            if slot == layout.DICTIONARY_PAGE_OFFSET and at >= 0 and wide[slot * n + row] == 1:
                wide[slot * n + row] = 0
        elif known and kind == I32 and layout.META_NUMBERS[previous] >= 0:
            at = small(data, at, end, narrow, layout.META_NUMBERS[previous] * n + row)
        elif kind == I32 and previous == layout.META_TYPE:
            physical, at = zigzag(data, at, end)
            if at >= 0 and physical != expected:
                return failed(at, OTHER_TYPE)
        elif kind == LIST and previous == layout.META_ENCODINGS:
            at = encodings(data, at, end, wide, layout.ENCODINGS * n + row)
        elif kind == LIST and previous == layout.META_ENCODING_STATS:
            narrow[layout.AT_ENCODING_STATS * n + row] = at + 1
            at = encoding_stats(data, at, end, narrow, layout.DICT_ONLY * n + row, stack)
        elif kind == STRUCT and previous == layout.META_STATISTICS:
            at = statistics(data, at, end, wide, narrow, n, row, stack)
        elif kind == STRUCT and previous == layout.META_SIZE_STATISTICS:
            at = size_statistics(data, at, end, wide, narrow, n, row, stack)
        else:
            if kind == LIST and previous == layout.META_KEY_VALUE_METADATA:
                narrow[layout.AT_KEY_VALUE * n + row] = at + 1
            elif kind == STRUCT and previous == layout.META_GEOSPATIAL_STATISTICS:
                narrow[layout.AT_GEOSPATIAL * n + row] = at + 1
            at = skip(data, at, end, kind, stack)
        if at < 0:
            return at
    if physical < 0 or not is_complete(wide, narrow, n, row):
        return failed(start, MISSING)
    if not narrow[layout.AT_ENCODING_STATS * n + row] and physical != 0:
        dict_only_by_encodings(wide, narrow, n, row)
    return at


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
            if previous == layout.ELEMENT_TYPE and kind == I32:
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
        known = 0 <= previous < layout.IDS
        if kind == STRUCT and previous == layout.CHUNK_META_DATA:
            at = meta_data(data, at, end, wide, narrow, n, row, expected, stack)
        elif known and kind == I64 and layout.CHUNK_OFFSETS[previous] >= 0:
            at = size_of(data, at, end, wide, layout.CHUNK_OFFSETS[previous] * n + row)
        elif known and kind == I32 and layout.CHUNK_LENGTHS[previous] >= 0:
            at = small(data, at, end, narrow, layout.CHUNK_LENGTHS[previous] * n + row)
        elif known and kind == BINARY and layout.CHUNK_BYTES[previous] >= 0:
            at = place(data, at, end, narrow, n, layout.CHUNK_BYTES[previous] * n + row)
        else:
            if kind == STRUCT and previous == layout.CHUNK_CRYPTO_METADATA:
                narrow[layout.AT_CRYPTO * n + row] = at + 1
            at = skip(data, at, end, kind, stack)
        if at < 0:
            return at
    if not narrow[layout.AT_META_DATA * n + row] and not narrow[layout.AT_ENCRYPTED * n + row]:
        return failed(start, NO_META_DATA)
    narrow[layout.AT_CHUNK * n + row] = start + 1
    narrow[(layout.AT_CHUNK + 1) * n + row] = at - start + 1
    return at


def column_chunks(
    data: Any,
    at: Any,
    end: Any,
    wide: Any,
    narrow: Any,
    n: Any,
    first: Any,
    leaves: Any,
    types: Any,
    stack: Any,
) -> Any:
    """The list of the chunks of a row group, from number ``first`` of ``n`` on."""
    element, size, at = items(data, at, end)
    if at < 0:
        return at
    if size != leaves:
        return failed(at, OTHER_COLUMNS)
    if size and element != STRUCT:
        return failed(at, ELEMENTS)
    for c in range(leaves):
        at = column_chunk(data, at, end, wide, narrow, n, first + c, types[c], stack)
        if at < 0:
            return at
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
        g = r * layout.GROUP_SLOTS
        previous = 0
        columns = False
        while True:
            kind, previous, at = field(data, at, end, previous)
            if at < 0:
                return at
            if kind == 0:
                break
            if kind == LIST and previous == layout.GROUP_COLUMNS:
                if columns:
                    return failed(at, TWICE)
                columns = True
                at = column_chunks(data, at, end, wide, narrow, n, r * leaves, leaves, types, stack)
            elif kind == I64 and 0 <= previous < layout.IDS and layout.GROUP_SIZES[previous] >= 0:
                slot = layout.GROUP_SIZES[previous]
                if slot == layout.G_FILE_OFFSET:
                    at = tally(data, at, end, groups, g + slot)
                else:
                    at = size_of(data, at, end, groups, g + slot)
            elif kind == I16 and previous == layout.GROUP_ORDINAL:
                at = tally(data, at, end, groups, g + layout.G_ORDINAL)
            else:
                before = at
                at = skip(data, at, end, kind, stack)
                if kind == LIST and previous == layout.GROUP_SORTING_COLUMNS and at >= 0:
                    groups[g + layout.G_AT_SORTING] = before + 1
                    groups[g + layout.G_AT_SORTING + 1] = at - before + 1
            if at < 0:
                return at
        if (
            not columns
            or not groups[g + layout.G_NUM_ROWS]
            or not groups[g + layout.G_TOTAL_BYTE_SIZE]
        ):
            return failed(start, MISSING)
        groups[g + layout.G_AT] = start + 1
        groups[g + layout.G_AT + 1] = at - start + 1
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
    forget,
    is_complete,
    dict_only_by_encodings,
    meta_data,
    column_chunk,
    column_chunks,
)
