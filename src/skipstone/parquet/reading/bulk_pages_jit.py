"""Compiled loops over the pages of many column chunks: their headers, and Snappy.

Each function works on all chunks of a batch in one call, without the lock of the interpreter.
The page table is described in ``bulk_chunks``. A chunk with anything unexpected gets a ``status``
other than 0, and is left to the readers that explain errors.

Sources: parquet.thrift (PageHeader), Snappy's format description.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba.extending import register_jitable

from skipstone.parquet.encodings import jit_runs as runs
from skipstone.parquet.encodings.jit_runs import load, store
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import (
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    PageHeader,
)
from skipstone.parquet.thrift import kernel_wire
from skipstone.parquet.thrift.compact import FALSE, I32, STRUCT
from skipstone.parquet.thrift.structs import field_ids

from .bulk_chunks import (
    AT,
    CHUNK,
    COMPRESSED,
    COPIED,
    CRC,
    ENCODING,
    FIRST,
    HOW,
    LEVELS,
    NEXT,
    PLACE,
    READY,
    SIZE,
    SNAPPY,
    STORED,
    VALUES,
    VERSION,
)
from .bulk_words_jit import copy32

_HEADER = field_ids(PageHeader)
_TYPE: Final = _HEADER["type"]
_SIZE: Final = _HEADER["uncompressed_page_size"]
_STORED: Final = _HEADER["compressed_page_size"]
_CRC: Final = _HEADER["crc"]
_V1: Final = _HEADER["data_page_header"]
_DICTIONARY: Final = _HEADER["dictionary_page_header"]
_V2: Final = _HEADER["data_page_header_v2"]
_VALUES: Final = 1  # of all three
_ENCODING_V1: Final = field_ids(DataPageHeader)["encoding"]
_LEVELS_V1: Final = field_ids(DataPageHeader)["definition_level_encoding"]
_ENCODING_D: Final = field_ids(DictionaryPageHeader)["encoding"]
_ENCODING_V2: Final = field_ids(DataPageHeaderV2)["encoding"]
_DEFINITION: Final = field_ids(DataPageHeaderV2)["definition_levels_byte_length"]
_REPETITION: Final = field_ids(DataPageHeaderV2)["repetition_levels_byte_length"]
_IS_COMPRESSED: Final = field_ids(DataPageHeaderV2)["is_compressed"]
_DATA_PAGE: Final = int(PageType.DATA_PAGE)
_DATA_PAGE_V2: Final = int(PageType.DATA_PAGE_V2)
_DICTIONARY_PAGE: Final = int(PageType.DICTIONARY_PAGE)
_PLAIN: Final = int(Encoding.PLAIN)
_PLAIN_DICTIONARY: Final = int(Encoding.PLAIN_DICTIONARY)
_RLE: Final = int(Encoding.RLE)
_RLE_DICTIONARY: Final = int(Encoding.RLE_DICTIONARY)
# Decompression goes on this many bytes at a time.
_STEP: Final = 1 << 12
# The integers of page headers have 32 bits. Sums of larger ones might wrap.
_MOST: Final = 0x7FFF_FFFF

_wire = {name: register_jitable(getattr(kernel_wire, name)) for name in (
    "failed", "zigzag", "count", "field", "items", "flat", "skip",
)}  # fmt: skip
_hybrid = register_jitable(runs.hybrid)
_zigzag, _field, _skip = kernel_wire.zigzag, kernel_wire.field, kernel_wire.skip


@register_jitable
def _inner(data: Any, at: Any, end: Any, id: Any, page: Any, stack: Any) -> Any:
    """The header of a page's type: fills a row, and gives the place after it."""
    last = 0
    definition, repetition = np.int64(0), np.int64(0)
    levels = np.int64(_RLE)
    while True:
        kind, last, at = _field(data, at, end, last)
        if at < 0:
            return at
        if kind == 0:
            break
        if kind == I32:
            value, at = _zigzag(data, at, end)
            if at < 0 or not -_MOST <= value <= _MOST:
                return -1
            if last == _VALUES:
                page[VALUES] = value
            elif id == _V1 and last == _ENCODING_V1:
                page[ENCODING] = value
            elif id == _V1 and last == _LEVELS_V1:
                levels = value
            elif (id == _DICTIONARY and last == _ENCODING_D) or (
                id == _V2 and last == _ENCODING_V2
            ):
                page[ENCODING] = value
            elif id == _V2 and last == _DEFINITION:
                definition = value
            elif id == _V2 and last == _REPETITION:
                repetition = value
        else:
            if id == _V2 and last == _IS_COMPRESSED and kind == FALSE:
                page[COMPRESSED] = 0
            at = _skip(data, at, end, kind, stack)
            if at < 0:
                return at
    if id == _V2:
        if definition < 0 or repetition != 0:
            return -1
        page[LEVELS] = definition
    elif levels != _RLE:
        page[LEVELS] = -2
    return at


def walk(data: Any, starts: Any, stops: Any, rows: Any, status: Any, pages: Any, stack: Any) -> Any:
    """Fills ``pages`` with those of all chunks; their number, or -1 where there are more than fit.
    A walk ends when a chunk has its values: ``rows[c]`` are those before it."""
    n: Any = 0
    for chunk in range(len(starts)):
        at, end, left, first = starts[chunk], stops[chunk], rows[chunk + 1] - rows[chunk], True
        while left > 0:
            if n == len(pages):
                return -1
            page = pages[n]
            page[CHUNK] = chunk
            page[VERSION] = -1
            page[ENCODING] = -1
            page[VALUES] = -1
            page[LEVELS] = -1
            page[COMPRESSED] = 1
            page[CRC] = -1
            page[SIZE] = -1
            page[STORED] = -1
            page[FIRST] = rows[chunk + 1] - left
            page[HOW] = COPIED
            page[READY] = -1
            page[NEXT] = 0
            what, last, inside = np.int64(-1), 0, np.int64(-1)
            while True:
                kind, last, at = _field(data, at, end, last)
                if at < 0 or kind == 0:
                    break
                if kind == I32:
                    value, at = _zigzag(data, at, end)
                    if at >= 0 and not -_MOST - 1 <= value <= _MOST:
                        at = -1
                    if at < 0:
                        break
                    if last == _TYPE:
                        what = value
                    elif last == _SIZE:
                        page[SIZE] = value
                    elif last == _STORED:
                        page[STORED] = value
                    elif last == _CRC:
                        page[CRC] = value & 0xFFFFFFFF
                elif kind == STRUCT and last in (_V1, _V2, _DICTIONARY):
                    # Two of them would fill one row.
                    at = _inner(data, at, end, last, page, stack) if inside < 0 else -1
                    if at < 0:
                        break
                    inside = last
                else:
                    at = _skip(data, at, end, kind, stack)
                    if at < 0:
                        break
            stored, size = page[STORED], page[SIZE]
            if at < 0 or stored < 0 or size < 0 or stored > end - at:
                status[chunk] = 1
                break
            page[AT] = at
            at += stored
            if what == _DICTIONARY_PAGE and inside == _DICTIONARY:
                page[VERSION] = 0
                plain = page[ENCODING] == _PLAIN or page[ENCODING] == _PLAIN_DICTIONARY
                if not first or not plain or page[VALUES] < 0:
                    status[chunk] = 1
                    break
            elif (what == _DATA_PAGE and inside == _V1) or (
                what == _DATA_PAGE_V2 and inside == _V2
            ):
                page[VERSION] = 1 if inside == _V1 else 2
                if page[VALUES] < 0 or page[VALUES] > left or page[LEVELS] > min(stored, size):
                    status[chunk] = 1
                    break
                left -= page[VALUES]
            else:
                status[chunk] = 1
                break
            first = False
            n += 1
    return n


@register_jitable(forceinline=True)
def move(data: Any, at: Any, out: Any, to: Any, length: Any) -> None:
    """Copies bytes; up to 31 more where both have them."""
    k = 0
    if at + length + 32 <= len(data) and to + length + 32 <= len(out):
        while k < length:
            copy32(out, to + k, data, at + k)
            k += 32
    else:
        while k < length:
            out[to + k] = data[at + k]
            k += 1


@register_jitable
def snappy_length(data: Any, at: Any, end: Any) -> Any:
    """The length before a raw block of Snappy, and the place behind it, or -1."""
    declared: Any = 0
    shift = 0
    while at < end and shift <= 28:
        byte = np.int64(data[at])
        at += 1
        declared |= (byte & 127) << shift
        if byte < 128:
            return declared, at
        shift += 7
    return declared, np.int64(-1)


@register_jitable
def snappy(
    data: Any, at: Any, end: Any, out: Any, start: Any, to: Any, stop: Any, goal: Any
) -> Any:
    """Goes on with a raw block, whose output is from ``start`` to ``stop``, until it has reached
    ``goal``: the places in ``data`` and ``out``, -1 where it is not a block.

    ``data`` and ``out`` go on for ROOM bytes behind the last page.
    """
    no = np.int64(-1)
    while to < goal:
        if at >= end:
            return no, to
        word = load(data, at)
        tag = word & np.uint64(255)
        kind = tag & np.uint64(3)
        if kind == np.uint64(0):
            length: Any = np.int64(tag >> np.uint64(2)) + 1
            at += 1
            if length > 60:
                more = length - 60
                mask = (np.uint64(1) << np.uint64(8 * more)) - np.uint64(1)
                length = np.int64(word >> np.uint64(8) & mask) + 1
                at += more
            if length > end - at or length > stop - to:
                return no, to
            copy32(out, to, data, at)
            for k in range(32, length, 32):
                copy32(out, to + k, data, at + k)
            at += length
        else:
            length = np.int64(tag >> np.uint64(2)) + 1
            if kind == np.uint64(1):
                length = 4 + np.int64(tag >> np.uint64(2) & np.uint64(7))
                high = (tag >> np.uint64(5)) << np.uint64(8)
                back = np.int64(high | word >> np.uint64(8) & np.uint64(0xFF))
                at += 2
            elif kind == np.uint64(2):
                back = np.int64(word >> np.uint64(8) & np.uint64(0xFFFF))
                at += 3
            else:
                back = np.int64(word >> np.uint64(8) & np.uint64(0xFFFFFFFF))
                at += 5
            if at > end or back <= 0 or back > to - start or length > stop - to:
                return no, to
            if back >= 16:
                store(out, to, load(out, to - back))
                store(out, to + 8, load(out, to - back + 8))
                for k in range(16, length, 8):
                    store(out, to + k, load(out, to - back + k))
            elif back >= 8:
                for k in range(0, length, 8):
                    store(out, to + k, load(out, to - back + k))
            else:
                for k in range(length):
                    out[to + k] = out[to - back + k]
        to += length
    return at, to


@register_jitable
def unpacked(data: Any, page: Any, plain: Any, enough: Any) -> Any:
    """Decompresses a page up to ``enough`` bytes of its body, and some more, if it is not yet;
    whether it is."""
    if page[READY] >= enough:
        return True
    enough = min(page[SIZE], enough + _STEP)
    size, place, at = page[SIZE], page[PLACE], page[AT]
    end = at + page[STORED]
    if page[HOW] == COPIED:
        if page[STORED] != size:
            return False
        move(data, at, plain, place, size)
        page[READY] = size
        return True
    if page[HOW] != SNAPPY:
        return False
    start = place + max(page[LEVELS], np.int64(0))
    if page[READY] < 0:
        # The levels of a v2 page are not compressed, nor is an empty rest.
        move(data, at, plain, place, start - place)
        at += start - place
        if at < end or start < place + size:
            declared, at = snappy_length(data, at, end)
            if at < 0 or declared != size - (start - place):
                return False
        page[READY], page[NEXT] = start - place, at
    at, to = snappy(
        data, page[NEXT], end, plain, start, place + page[READY], place + size, place + enough
    )
    if at < 0 or (to == place + size and at != end):
        return False
    page[READY], page[NEXT] = to - place, at
    return True


def unpack(data: Any, pages: Any, wanted: Any, status: Any, plain: Any) -> None:
    """Decompresses the ``wanted`` pages into ``plain``, each to its place."""
    for n in range(len(pages)):
        page = pages[n]
        chunk = page[CHUNK]
        if not wanted[n] or status[chunk] != 0:
            continue
        if not unpacked(data, page, plain, page[SIZE]):
            status[chunk] = 2
