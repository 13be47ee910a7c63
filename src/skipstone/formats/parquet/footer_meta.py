"""``ColumnMetaData`` of one chunk into its slots of ``footer_layout``.

In the style of ``footer_wire``. ``w`` and ``n`` are where the chunk's slots begin in ``wide`` and
``narrow``; ``stack`` is scratch for ``skip``. A field that occurs twice counts as its last occurrence, as ``declared`` has it.
"""

from __future__ import annotations

from typing import Any, Final

from .footer_layout import (
    AT_CRYPTO,
    AT_ENCODING_STATS,
    AT_FILE_PATH,
    AT_GEOSPATIAL,
    AT_KEY_VALUE,
    AT_MAX,
    AT_MAX_VALUE,
    AT_META_DATA,
    AT_MIN,
    AT_MIN_VALUE,
    AT_PATH,
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
    HAS_META_DATA,
    INDEX_PAGE_OFFSET,
    MAX_EXACT,
    MIN_EXACT,
    NAN_COUNT,
    NULL_COUNT,
    NUM_VALUES,
    TOTAL_COMPRESSED_SIZE,
    TOTAL_UNCOMPRESSED_SIZE,
    TYPE,
    UNENCODED,
    WIDE_SLOTS,
)
from .footer_wire import (
    ELEMENTS,
    IMPLAUSIBLE,
    MISSING,
    OTHER_TYPE,
    OUT_OF_RANGE,
    count,
    failed,
    field,
    items,
    skip,
    zigzag,
)
from .thrift import (
    BINARY,
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
)

__all__ = [
    "encoding_stats",
    "encodings",
    "length_of",
    "meta_data",
    "place",
    "size_of",
    "size_statistics",
    "small",
    "statistics",
    "tally",
]

# No file is larger; sums of a size and an offset stay inside 64 bits.
LARGEST: Final = 1 << 60
TWO_31: Final = 1 << 31
OTHER_ENCODING: Final = 62


def place(data: Any, at: Any, end: Any, narrow: Any, slot: Any) -> Any:
    """Note where a binary value lies."""
    length, at = count(data, at, end)
    if at < 0:
        return at
    narrow[slot] = at
    narrow[slot + 1] = length
    return at + length


def size_of(data: Any, at: Any, end: Any, wide: Any, slot: Any) -> Any:
    """An i64 that is a size, a count or an offset."""
    value, at = zigzag(data, at, end)
    if at >= 0:
        if value < 0 or value > LARGEST:
            return failed(at, IMPLAUSIBLE)
        wide[slot] = value
    return at


def tally(data: Any, at: Any, end: Any, wide: Any, slot: Any) -> Any:
    """An i64 count of statistics; a negative one is how parquet-java once wrote "not counted"."""
    value, at = zigzag(data, at, end)
    if at >= 0:
        wide[slot] = value if value >= 0 else -1
    return at


def small(data: Any, at: Any, end: Any, narrow: Any, slot: Any) -> Any:
    """An i32."""
    value, at = zigzag(data, at, end)
    if at >= 0:
        if not -TWO_31 <= value < TWO_31:
            return failed(at, OUT_OF_RANGE)
        narrow[slot] = value
    return at


def length_of(data: Any, at: Any, end: Any, narrow: Any, slot: Any) -> Any:
    """An i32 that is a length."""
    at = small(data, at, end, narrow, slot)
    if at >= 0 and narrow[slot] < 0:
        return failed(at, IMPLAUSIBLE)
    return at


def statistics(
    data: Any, at: Any, end: Any, wide: Any, w: Any, narrow: Any, n: Any, stack: Any
) -> Any:
    """``Statistics`` of a chunk."""
    for slot in range(w + NULL_COUNT, w + NAN_COUNT + 1):
        wide[slot] = -1
    for slot in range(n + AT_MAX, n + AT_MIN_VALUE + 2):
        narrow[slot] = -1
    narrow[n + MAX_EXACT] = -1
    narrow[n + MIN_EXACT] = -1
    previous = 0
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0 or kind == 0:
            return at
        if kind == BINARY and previous == 1:
            at = place(data, at, end, narrow, n + AT_MAX)
        elif kind == BINARY and previous == 2:
            at = place(data, at, end, narrow, n + AT_MIN)
        elif kind == I64 and previous == 3:
            at = tally(data, at, end, wide, w + NULL_COUNT)
        elif kind == I64 and previous == 4:
            at = tally(data, at, end, wide, w + DISTINCT_COUNT)
        elif kind == BINARY and previous == 5:
            at = place(data, at, end, narrow, n + AT_MAX_VALUE)
        elif kind == BINARY and previous == 6:
            at = place(data, at, end, narrow, n + AT_MIN_VALUE)
        elif kind <= FALSE and previous == 7:
            narrow[n + MAX_EXACT] = 2 - kind
        elif kind <= FALSE and previous == 8:
            narrow[n + MIN_EXACT] = 2 - kind
        elif kind == I64 and previous == 9:
            at = tally(data, at, end, wide, w + NAN_COUNT)
        else:
            at = skip(data, at, end, kind, stack)
        if at < 0:
            return at


def size_statistics(data: Any, at: Any, end: Any, wide: Any, w: Any, stack: Any) -> Any:
    """``SizeStatistics`` of a chunk; the histograms are left to the lazy reader."""
    wide[w + UNENCODED] = -1
    previous = 0
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0 or kind == 0:
            return at
        if kind == I64 and previous == 1:
            at = tally(data, at, end, wide, w + UNENCODED)
        else:
            at = skip(data, at, end, kind, stack)
        if at < 0:
            return at


def encodings(data: Any, at: Any, end: Any, wide: Any, slot: Any) -> Any:
    """The list of encodings as a bit mask; those that no mask can hold are bit 62."""
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
    wide[slot] = mask
    return at


def encoding_stats(data: Any, at: Any, end: Any, narrow: Any, slot: Any, stack: Any) -> Any:
    """``dict_only`` out of the pages per type and encoding: 1, 0, or -1 if none is a data page.

    A count of zero or less names no page that could be trusted to be there, and a page of an
    encoding that is not known is not a dictionary page.
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
            if kind == I32 and previous == 1:
                page, at = zigzag(data, at, end)
            elif kind == I32 and previous == 2:
                encoding, at = zigzag(data, at, end)
            elif kind == I32 and previous == 3:
                pages, at = zigzag(data, at, end)
            else:
                at = skip(data, at, end, kind, stack)
            if at < 0:
                return at
        # DATA_PAGE 0, INDEX_PAGE 1, DICTIONARY_PAGE 2, DATA_PAGE_V2 3; PLAIN_DICTIONARY 2,
        # RLE_DICTIONARY 8. A type that is not known may be a data page of tomorrow.
        if page != 1 and page != 2 and pages != 0:
            proof = (page == 0 or page == 3) and (encoding == 2 or encoding == 8) and pages > 0
            if not proof:
                verdict = 0
            elif verdict < 0:
                verdict = 1
    narrow[slot] = verdict
    return at


def meta_data(
    data: Any, at: Any, end: Any, wide: Any, w: Any, narrow: Any, n: Any, stack: Any
) -> Any:
    """``ColumnMetaData`` of the chunk at ``w`` and ``n``, whose type is there already."""
    start = at
    for slot in range(w + NUM_VALUES, w + WIDE_SLOTS):
        wide[slot] = -1
    for slot in range(n + CODEC, n + DICT_ONLY + 1):
        narrow[slot] = -1
    for slot in range(n + AT_META_DATA, n + AT_FILE_PATH):
        narrow[slot] = -1
    for slot in range(n + AT_STATISTICS, n + AT_CRYPTO):
        narrow[slot] = -1
    previous = 0
    physical = -1
    while True:
        kind, previous, at = field(data, at, end, previous)
        if at < 0:
            return at
        if kind == 0:
            break
        before = at
        if kind == I64 and previous == 5:
            at = size_of(data, at, end, wide, w + NUM_VALUES)
        elif kind == I64 and previous == 6:
            at = size_of(data, at, end, wide, w + TOTAL_UNCOMPRESSED_SIZE)
        elif kind == I64 and previous == 7:
            at = size_of(data, at, end, wide, w + TOTAL_COMPRESSED_SIZE)
        elif kind == I64 and previous == 9:
            at = size_of(data, at, end, wide, w + DATA_PAGE_OFFSET)
        elif kind == I64 and previous == 10:
            at = size_of(data, at, end, wide, w + INDEX_PAGE_OFFSET)
        elif kind == I64 and previous == 11:
            at = size_of(data, at, end, wide, w + DICTIONARY_PAGE_OFFSET)
            # Byte 0 holds the magic: some writers mean "none".
            if at >= 0 and wide[w + DICTIONARY_PAGE_OFFSET] == 0:
                wide[w + DICTIONARY_PAGE_OFFSET] = -1
        elif kind == I64 and previous == 14:
            at = size_of(data, at, end, wide, w + BLOOM_FILTER_OFFSET)
        elif kind == I32 and previous == 1:
            physical, at = zigzag(data, at, end)
            if at >= 0 and physical != narrow[n + TYPE]:
                return failed(at, OTHER_TYPE)
        elif kind == I32 and previous == 4:
            at = small(data, at, end, narrow, n + CODEC)
            if at >= 0 and narrow[n + CODEC] < 0:
                return failed(at, IMPLAUSIBLE)
        elif kind == I32 and previous == 15:
            at = length_of(data, at, end, narrow, n + BLOOM_FILTER_LENGTH)
        elif kind == LIST and previous == 2:
            at = encodings(data, at, end, wide, w + ENCODINGS)
        elif kind == STRUCT and previous == 12:
            at = statistics(data, at, end, wide, w, narrow, n, stack)
            if at >= 0:
                narrow[n + AT_STATISTICS] = before
                narrow[n + AT_STATISTICS + 1] = at - before
        elif kind == STRUCT and previous == 16:
            at = size_statistics(data, at, end, wide, w, stack)
            if at >= 0:
                narrow[n + AT_SIZE_STATISTICS] = before
                narrow[n + AT_SIZE_STATISTICS + 1] = at - before
        elif kind == LIST and previous == 13:
            at = encoding_stats(data, at, end, narrow, n + DICT_ONLY, stack)
            if at >= 0:
                narrow[n + AT_ENCODING_STATS] = before
                narrow[n + AT_ENCODING_STATS + 1] = at - before
        else:
            at = skip(data, at, end, kind, stack)
            slot = -1
            if kind == LIST and previous == 3:
                slot = n + AT_PATH
            elif kind == LIST and previous == 8:
                slot = n + AT_KEY_VALUE
            elif kind == STRUCT and previous == 17:
                slot = n + AT_GEOSPATIAL
            if slot >= 0 and at >= 0:
                narrow[slot] = before
                narrow[slot + 1] = at - before
        if at < 0:
            return at
    missing = physical < 0 or narrow[n + CODEC] < 0
    missing = missing or wide[w + ENCODINGS] < 0 or wide[w + DATA_PAGE_OFFSET] < 0
    for slot in range(w + NUM_VALUES, w + TOTAL_COMPRESSED_SIZE + 1):
        missing = missing or wide[slot] < 0
    if missing:
        return failed(start, MISSING)
    # Without page counts the list of encodings may prove it, as parquet-java holds too: it names
    # all encodings used. PLAIN_DICTIONARY (bit 2) for data pages is what writers of v1 say, who
    # then say PLAIN as soon as one page falls back; RLE (3) and BIT_PACKED (4) are the levels'.
    # RLE_DICTIONARY proves nothing: PLAIN may be its dictionary's. Of booleans RLE is for values.
    if narrow[n + AT_ENCODING_STATS] < 0 and physical != 0:
        mask = wide[w + ENCODINGS]
        if mask & 4 and not mask & ~(4 | 8 | 16):
            narrow[n + DICT_ONLY] = 1
    narrow[n + HAS_META_DATA] = 1
    narrow[n + AT_META_DATA] = start
    narrow[n + AT_META_DATA + 1] = at - start
    return at
