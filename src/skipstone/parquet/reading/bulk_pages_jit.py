"""Compiled loops over the pages of many column chunks: their headers, and Snappy. Also access to
several bytes at once: 32 are copied, 64 are compared. Callers ensure that the bytes exist;
``NUMBA_BOUNDSCHECK=1`` checks it.

Each loop works on all chunks of a batch in one call, without the lock of the interpreter.
The page table is described in ``bulk_chunks``. A chunk with anything unexpected gets a ``status``
other than 0, and is left to the readers that explain errors.

Sources: parquet.thrift (PageHeader), Snappy's format description.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from skipstone.parquet.encodings import jit_runs as runs
from skipstone.parquet.encodings.jit_runs import CHECKED, load, store
from skipstone.parquet.format.enums import Encoding
from skipstone.parquet.pages import page_headers as headers

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

_tools: Any = cgutils  # has no types
_BYTE: Any = ir.IntType(8)


def _vector(context: Any, builder: Any, kind: Any, array: Any, at: Any, count: int) -> Any:
    """A pointer to ``count`` bytes."""
    held = context.make_array(kind)(context, builder, array)
    if CHECKED:
        length = builder.extract_value(held.shape, 0)
        least = context.get_constant(types.intp, count - 1)
        _tools.do_boundscheck(context, builder, at, builder.sub(length, least), 0)
    return builder.bitcast(builder.gep(held.data, [at]), ir.VectorType(_BYTE, count).as_pointer())


def _copy32(typing_context: Any, out: Any, to: Any, data: Any, at: Any) -> Any:
    """Copies 32 bytes, all of which are read before one is written."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        source = _vector(context, builder, kinds[2], arguments[2], arguments[3], 32)
        word = builder.load(source, align=1)
        place = _vector(context, builder, kinds[0], arguments[0], arguments[1], 32)
        builder.store(word, place, align=1)
        return context.get_dummy_value()

    return types.void(out, types.intp, data, types.intp), code


def _equal64(typing_context: Any, data: Any, at: Any, byte: Any) -> Any:
    """Compares 64 bytes with ``byte``: one bit each, the first byte the lowest."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = _vector(context, builder, signature.args[0], arguments[0], arguments[1], 64)
        word = builder.load(source, align=1)
        one = builder.insert_element(
            ir.Constant(word.type, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0)
        )
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        every = builder.shuffle_vector(one, ir.Constant(word.type, ir.Undefined), zeros)
        return builder.bitcast(builder.icmp_unsigned("==", word, every), ir.IntType(64))

    return types.uint64(data, types.intp, types.uint8), code


def _lowest(typing_context: Any, word: Any) -> Any:
    """The place of the lowest bit of a number that is not 0."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code


def _swapped(typing_context: Any, word: Any) -> Any:
    """The bytes in reverse order."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), code


def _as_float(typing_context: Any, word: Any) -> Any:
    """The float of the lower 32 bits."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.trunc(arguments[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.uint64), code


def _as_word(typing_context: Any, value: Any) -> Any:
    """The bits of a double."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), code


# numba passes the typing context; a type checker would expect it from the callers.
copy32: Any = intrinsic(_copy32)
equal64: Any = intrinsic(_equal64)
lowest: Any = intrinsic(_lowest)
swapped: Any = intrinsic(_swapped)
as_word: Any = intrinsic(_as_word)
as_float: Any = intrinsic(_as_float)

_PLAIN: Final = int(Encoding.PLAIN)
_PLAIN_DICTIONARY: Final = int(Encoding.PLAIN_DICTIONARY)
_RLE: Final = int(Encoding.RLE)
# How many bytes are decompressed at a time.
_STEP: Final = 1 << 12

hybrid: Any = register_jitable(runs.hybrid)
for _helper in headers.HELPERS:
    register_jitable(_helper)


@register_jitable
def fill_page(page: Any, header: Any, first: Any, left: Any) -> Any:
    """Fills a row of the page table from the integers of a header. Returns whether the page may
    come next: a dictionary must be the ``first``, and ``left`` values are missing."""
    kind = header[headers.TYPE]
    page[STORED], page[SIZE] = header[headers.COMPRESSED], header[headers.UNCOMPRESSED]
    page[VALUES], page[ENCODING] = header[headers.NUM_VALUES], header[headers.ENCODING]
    page[CRC] = header[headers.CRC] & 0xFFFFFFFF if header[headers.HAS_CRC] else -1
    page[COMPRESSED], page[LEVELS] = header[headers.IS_COMPRESSED], -1
    page[HOW], page[READY], page[NEXT] = COPIED, -1, 0
    if kind == headers.DICTIONARY_PAGE:
        page[VERSION] = 0
        return first and (page[ENCODING] == _PLAIN or page[ENCODING] == _PLAIN_DICTIONARY)
    if kind == headers.DATA_PAGE:
        page[VERSION] = 1
        if header[headers.DEFINITION] != _RLE:
            page[LEVELS] = -2
    elif kind == headers.DATA_PAGE_V2 and header[headers.REPETITION_LENGTH] == 0:
        page[VERSION], page[LEVELS] = 2, header[headers.DEFINITION_LENGTH]
    else:
        return False
    return page[VALUES] <= left and page[LEVELS] <= min(page[STORED], page[SIZE])


def walk(
    data: Any, starts: Any, stops: Any, rows: Any, status: Any, pages: Any, header: Any, stack: Any
) -> Any:
    """Fills ``pages`` with those of all chunks; returns their number, or -1 if they do not fit. The
    walk of a chunk ends when it has its values: ``rows[c]`` counts those of the chunks before.
    ``header`` and ``stack`` are scratch of ``page_headers``."""
    n: Any = 0
    for chunk in range(len(starts)):
        at, end, left, first = starts[chunk], stops[chunk], rows[chunk + 1] - rows[chunk], True
        while left > 0:
            if n == len(pages):
                return -1
            page = pages[n]
            for k in range(len(header)):
                header[k] = headers.BLANK[k]
            at = headers.header(data, at, end, header, stack)
            if at < 0 or not fill_page(page, header, first, left):
                status[chunk] = 1
                break
            page[CHUNK], page[AT], page[FIRST] = chunk, at, rows[chunk + 1] - left
            at += page[STORED]
            left -= page[VALUES] if page[VERSION] > 0 else 0
            first = False
            n += 1
    return n


@register_jitable(forceinline=True)
def move(data: Any, at: Any, out: Any, to: Any, length: Any) -> None:
    """Copies bytes, and up to 31 more if both buffers have them."""
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
    """Decompresses more of a raw block, whose output is from ``start`` to ``stop``, until ``goal``.
    Returns the places in ``data`` and ``out``; -1 where it is not a block.

    ``data`` and ``out`` have ROOM bytes after the last page.
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
def levels_of(plain: Any, page: Any) -> Any:
    """Where the definition levels of a page begin and end; the end is -1 where they are wrong."""
    start, stop = page[PLACE], page[PLACE] + page[SIZE]
    if page[VERSION] == 2:
        return start, start + page[LEVELS]
    if page[LEVELS] == -2 or stop - start < 4:
        return start, np.int64(-1)
    length = np.int64(load(plain, start) & np.uint64(0xFFFFFFFF))
    start += 4
    return start, start + length if length <= stop - start else np.int64(-1)


@register_jitable
def is_one_run(levels: Any, count: Any, level: Any) -> Any:
    """Whether encoded ``levels`` are one run of this ``level``, as nearly always."""
    word, at = runs.leb128(levels, 0)
    head = np.int64(word)
    return 0 <= at < len(levels) and head & 1 == 0 and head >> 1 >= count and levels[at] == level


@register_jitable
def codes_of(plain: Any, start: Any, stop: Any, entries: Any, out: Any) -> Any:
    """Fills ``out`` with indices; returns whether all are below ``entries``."""
    if start >= stop or entries == 0:
        return False
    width = np.int64(plain[start])
    if width == 0:
        out[:] = 0
        return True
    if width > 31 or hybrid(plain[start + 1 : stop], width, out) < 0:
        return False
    most, least = np.int64(0), np.int64(0)
    for k in range(len(out)):
        most = max(most, np.int64(out[k]))
        least = min(least, np.int64(out[k]))
    return least >= 0 and most < entries


@register_jitable
def unpacked(data: Any, page: Any, plain: Any, enough: Any) -> Any:
    """Decompresses a page up to at least ``enough`` bytes of its body, unless that is done; returns
    whether it succeeded."""
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
