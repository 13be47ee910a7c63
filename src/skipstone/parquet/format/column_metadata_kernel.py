"""Scans ``ColumnMetaData`` of one chunk into its slots of ``footer_layout``.

In the style of ``kernel_wire``. ``row`` is the chunk's number among ``n``, so that slot ``S`` of it
is ``S * n + row``; ``stack`` is scratch for ``skip``. Of a field that occurs twice the last value
counts, as in the declared structs.
"""

from __future__ import annotations

from typing import Any, Final

from skipstone.parquet.thrift.compact import BINARY, FALSE, I32, I64, LIST, STRUCT
from skipstone.parquet.thrift.kernel_wire import (
    ELEMENTS,
    IMPLAUSIBLE,
    MISSING,
    OTHER_TYPE,
    count,
    failed,
    field,
    items,
    skip,
    zigzag,
)

from .footer_layout import (
    AT_ENCODING_STATS,
    AT_GEOSPATIAL,
    AT_KEY_VALUE,
    AT_MAX,
    AT_MAX_VALUE,
    AT_META_DATA,
    AT_MIN,
    AT_MIN_VALUE,
    AT_SIZE_STATISTICS,
    AT_STATISTICS,
    BLOOM_FILTER_LENGTH,
    BLOOM_FILTER_OFFSET,
    CODEC,
    DATA_PAGE_OFFSET,
    DICT_ONLY,
    DICTIONARY_PAGE_OFFSET,
    DISTINCT_COUNT,
    ENCODINGS,
    INDEX_PAGE_OFFSET,
    MAX_EXACT,
    META_BLOOM_FILTER_LENGTH,
    META_BLOOM_FILTER_OFFSET,
    META_CODEC,
    META_DATA_PAGE_OFFSET,
    META_DICTIONARY_PAGE_OFFSET,
    META_ENCODING_STATS,
    META_ENCODINGS,
    META_GEOSPATIAL_STATISTICS,
    META_INDEX_PAGE_OFFSET,
    META_KEY_VALUE_METADATA,
    META_NUM_VALUES,
    META_SIZE_STATISTICS,
    META_STATISTICS,
    META_TOTAL_COMPRESSED_SIZE,
    META_TOTAL_UNCOMPRESSED_SIZE,
    META_TYPE,
    MIN_EXACT,
    NAN_COUNT,
    NULL_COUNT,
    NUM_VALUES,
    PAGES_COUNT,
    PAGES_ENCODING,
    PAGES_PAGE_TYPE,
    SIZES_UNENCODED_BYTE_ARRAY_DATA_BYTES,
    STATS_DISTINCT_COUNT,
    STATS_IS_MAX_VALUE_EXACT,
    STATS_IS_MIN_VALUE_EXACT,
    STATS_MAX,
    STATS_MAX_VALUE,
    STATS_MIN,
    STATS_MIN_VALUE,
    STATS_NAN_COUNT,
    STATS_NULL_COUNT,
    TOTAL_COMPRESSED_SIZE,
    TOTAL_UNCOMPRESSED_SIZE,
    UNENCODED,
)

# No file is larger; sums of a size and an offset stay inside 64 bits.
LARGEST: Final = 1 << 60
LARGEST_SMALL: Final = (1 << 31) - 2
OTHER_ENCODING: Final = 61


def place(data: Any, at: Any, end: Any, narrow: Any, n: Any, slot: Any) -> Any:
    """Note where a binary value lies."""
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
    """An i64 count of statistics; a negative one is how parquet-java once wrote "not counted"."""
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
    if narrow[AT_STATISTICS * n + row]:
        for slot in range(NULL_COUNT, NAN_COUNT + 1):
            wide[slot * n + row] = 0
        for slot in range(AT_MAX, AT_MIN_VALUE + 2):
            narrow[slot * n + row] = 0
        narrow[MAX_EXACT * n + row] = 0
        narrow[MIN_EXACT * n + row] = 0
    narrow[AT_STATISTICS * n + row] = at + 1
    previous = 0
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0 or kind == 0:
            return at
        if kind == BINARY and previous == STATS_MAX:
            at = place(data, at, end, narrow, n, AT_MAX * n + row)
        elif kind == BINARY and previous == STATS_MIN:
            at = place(data, at, end, narrow, n, AT_MIN * n + row)
        elif kind == I64 and previous == STATS_NULL_COUNT:
            at = tally(data, at, end, wide, NULL_COUNT * n + row)
        elif kind == I64 and previous == STATS_DISTINCT_COUNT:
            at = tally(data, at, end, wide, DISTINCT_COUNT * n + row)
        elif kind == BINARY and previous == STATS_MAX_VALUE:
            at = place(data, at, end, narrow, n, AT_MAX_VALUE * n + row)
        elif kind == BINARY and previous == STATS_MIN_VALUE:
            at = place(data, at, end, narrow, n, AT_MIN_VALUE * n + row)
        elif kind <= FALSE and previous == STATS_IS_MAX_VALUE_EXACT:
            narrow[MAX_EXACT * n + row] = 3 - kind
        elif kind <= FALSE and previous == STATS_IS_MIN_VALUE_EXACT:
            narrow[MIN_EXACT * n + row] = 3 - kind
        elif kind == I64 and previous == STATS_NAN_COUNT:
            at = tally(data, at, end, wide, NAN_COUNT * n + row)
        else:
            at = skip(data, at, end, kind, stack)
        if at < 0:
            return at


def size_statistics(
    data: Any, at: Any, end: Any, wide: Any, narrow: Any, n: Any, row: Any, stack: Any
) -> Any:
    """``SizeStatistics`` of a chunk; the histograms are left to the lazy reader."""
    wide[UNENCODED * n + row] = 0
    narrow[AT_SIZE_STATISTICS * n + row] = at + 1
    previous = 0
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0 or kind == 0:
            return at
        if kind == I64 and previous == SIZES_UNENCODED_BYTE_ARRAY_DATA_BYTES:
            at = tally(data, at, end, wide, UNENCODED * n + row)
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
            if kind == I32 and previous == PAGES_PAGE_TYPE:
                page, at = zigzag(data, at, end)
            elif kind == I32 and previous == PAGES_ENCODING:
                encoding, at = zigzag(data, at, end)
            elif kind == I32 and previous == PAGES_COUNT:
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
    if narrow[AT_META_DATA * n + row]:
        for slot in range(NUM_VALUES, UNENCODED + 1):
            wide[slot * n + row] = 0
        for slot in range(CODEC, DICT_ONLY + 1):
            narrow[slot * n + row] = 0
        for slot in range(AT_MAX, AT_MIN_VALUE + 2):
            narrow[slot * n + row] = 0
        for slot in range(AT_STATISTICS, AT_ENCODING_STATS + 1):
            narrow[slot * n + row] = 0
    narrow[AT_META_DATA * n + row] = start + 1
    previous = 0
    physical = -1
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0:
            return at
        if kind == 0:
            break
        if kind == I64:
            if previous == META_NUM_VALUES:
                at = size_of(data, at, end, wide, NUM_VALUES * n + row)
            elif previous == META_TOTAL_UNCOMPRESSED_SIZE:
                at = size_of(data, at, end, wide, TOTAL_UNCOMPRESSED_SIZE * n + row)
            elif previous == META_TOTAL_COMPRESSED_SIZE:
                at = size_of(data, at, end, wide, TOTAL_COMPRESSED_SIZE * n + row)
            elif previous == META_DATA_PAGE_OFFSET:
                at = size_of(data, at, end, wide, DATA_PAGE_OFFSET * n + row)
            elif previous == META_INDEX_PAGE_OFFSET:
                at = size_of(data, at, end, wide, INDEX_PAGE_OFFSET * n + row)
            elif previous == META_DICTIONARY_PAGE_OFFSET:
                at = size_of(data, at, end, wide, DICTIONARY_PAGE_OFFSET * n + row)
                # Byte 0 holds the magic: some writers mean "none".
                if at >= 0 and wide[DICTIONARY_PAGE_OFFSET * n + row] == 1:
                    wide[DICTIONARY_PAGE_OFFSET * n + row] = 0
            elif previous == META_BLOOM_FILTER_OFFSET:
                at = size_of(data, at, end, wide, BLOOM_FILTER_OFFSET * n + row)
            else:
                at = skip(data, at, end, kind, stack)
        elif kind == I32:
            if previous == META_TYPE:
                physical, at = zigzag(data, at, end)
                if at >= 0 and physical != expected:
                    return failed(at, OTHER_TYPE)
            elif previous == META_CODEC:
                at = small(data, at, end, narrow, CODEC * n + row)
            elif previous == META_BLOOM_FILTER_LENGTH:
                at = small(data, at, end, narrow, BLOOM_FILTER_LENGTH * n + row)
            else:
                at = skip(data, at, end, kind, stack)
        elif kind == LIST:
            if previous == META_ENCODINGS:
                at = encodings(data, at, end, wide, ENCODINGS * n + row)
            elif previous == META_ENCODING_STATS:
                narrow[AT_ENCODING_STATS * n + row] = at + 1
                at = encoding_stats(data, at, end, narrow, DICT_ONLY * n + row, stack)
            else:
                if previous == META_KEY_VALUE_METADATA:
                    narrow[AT_KEY_VALUE * n + row] = at + 1
                at = skip(data, at, end, kind, stack)
        elif kind == STRUCT:
            if previous == META_STATISTICS:
                at = statistics(data, at, end, wide, narrow, n, row, stack)
            elif previous == META_SIZE_STATISTICS:
                at = size_statistics(data, at, end, wide, narrow, n, row, stack)
            else:
                if previous == META_GEOSPATIAL_STATISTICS:
                    narrow[AT_GEOSPATIAL * n + row] = at + 1
                at = skip(data, at, end, kind, stack)
        else:
            at = skip(data, at, end, kind, stack)
        if at < 0:
            return at
    if (
        physical < 0
        or not narrow[CODEC * n + row]
        or not wide[ENCODINGS * n + row]
        or not wide[DATA_PAGE_OFFSET * n + row]
        or not wide[NUM_VALUES * n + row]
        or not wide[TOTAL_UNCOMPRESSED_SIZE * n + row]
        or not wide[TOTAL_COMPRESSED_SIZE * n + row]
    ):
        return failed(start, MISSING)
    # Without page counts the list of encodings may prove it, as in parquet-java: it names all
    # encodings used. Writers of v1 pages name PLAIN_DICTIONARY (bit 2) for data pages, and PLAIN as
    # soon as one page falls back; RLE (3) and BIT_PACKED (4) encode levels. RLE_DICTIONARY proves
    # nothing, because PLAIN may be the dictionary's. In booleans RLE encodes values.
    if not narrow[AT_ENCODING_STATS * n + row] and physical != 0:
        mask = wide[ENCODINGS * n + row] - 1
        if mask & 4 and not mask & ~(4 | 8 | 16):
            narrow[DICT_ONLY * n + row] = 2
    return at
