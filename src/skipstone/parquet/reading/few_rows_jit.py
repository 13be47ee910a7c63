"""Compiled loops over the pages that hold a few rows of a file; see ``few_rows``.

Sources: Encodings.md (PLAIN, RLE, RLE_DICTIONARY), parquet.thrift (data pages of both versions).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numba.extending import register_jitable

from skipstone._numba import compile_kernel, fingerprint
from skipstone.parquet.encodings import jit_runs as runs
from skipstone.parquet.encodings.jit_runs import CHECKED, load
from skipstone.parquet.format.enums import Encoding
from skipstone.parquet.thrift import compact, kernel_wire

from . import bulk_chunks, bulk_jit, bulk_pages_jit, few_rows
from .bulk_chunks import (
    AT,
    CHUNK,
    COLUMNS,
    COMPRESSED,
    CRC,
    ENCODING,
    LEVELS,
    SIZE,
    SNAPPY_RATIO,
    STORED,
    VALUES,
    VERSION,
)
from .bulk_pages_jit import move, snappy, snappy_length
from .few_rows import DAMAGED, FULL, FewRowsKernels

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN: Final = int(Encoding.PLAIN)
_PLAIN_DICTIONARY: Final = int(Encoding.PLAIN_DICTIONARY)
_RLE_DICTIONARY: Final = int(Encoding.RLE_DICTIONARY)

# Bytes that are decompressed beyond those that are needed.
_STEP: Final = 4_096

_hybrid = register_jitable(runs.hybrid)


def choose(
    table: Any, of: Any, dictionary: Any, rows: Any, picks: Any, ranges: Any, stops: Any,
    values: Any,
) -> Any:  # fmt: skip
    """The entries of ``table`` that hold any of ``rows``, and the ranges of the file to read for
    them, near ones as one; how many of both. ``stops`` and ``values`` are the bytes up to the end
    of each column, and the rows of its entries."""
    chosen, spans, size = 0, 0, np.int64(0)
    for c in range(len(of) - 1):
        k, held, begun = 0, np.int64(0), False
        for e in range(of[c], of[c + 1]):
            first, count = table[e, 2], table[e, 3]
            while k < len(rows) and rows[k] < first:
                k += 1
            if k == len(rows):
                break
            if rows[k] >= first + count:
                continue
            if not begun and dictionary[c, 1] > 0:
                spans = _span(ranges, spans, dictionary[c, 0], dictionary[c, 1])
                size += dictionary[c, 1]
            begun = True
            spans = _span(ranges, spans, table[e, 0], table[e, 1])
            size += table[e, 1]
            picks[chosen] = e
            chosen += 1
            held += count
        stops[c], values[c] = size, held
    return chosen, spans


@register_jitable
def _span(ranges: Any, count: Any, offset: Any, length: Any) -> Any:
    if count > 0 and ranges[count - 1, 0] + ranges[count - 1, 1] == offset:
        ranges[count - 1, 1] += length
        return count
    ranges[count, 0] = offset
    ranges[count, 1] = length
    return count + 1


def claims(pages: Any, codecs: Any, verify: Any, found: Any) -> Any:
    """What pages claim, into ``found``: the largest sizes of a dictionary and of a data page, the
    most entries and rows of one, and the bytes of pages that the kernels cannot decompress.

    0 where all is done, 1 where checksums must be checked or such pages decompressed, ``DAMAGED``
    where a page claims more than its bytes can hold.
    """
    left = np.int64(0)
    found[:] = 0
    for n in range(len(pages)):
        page = pages[n]
        size, values, codec = page[SIZE], page[VALUES], codecs[page[CHUNK]]
        compressed = page[COMPRESSED] == 1
        if codec == 1 and compressed and size > SNAPPY_RATIO * page[STORED] + 8:
            return np.int64(DAMAGED)
        if verify and page[CRC] >= 0:
            left = np.int64(1)
        if page[VERSION] == 0:
            if values > size:
                return np.int64(DAMAGED)
            found[0] = max(found[0], size)
            found[2] = max(found[2], values)
        else:
            found[1] = max(found[1], size)
            found[3] = max(found[3], values)
        if codec > 1 and compressed:
            left = np.int64(1)
            found[4] += size
    return left


@register_jitable
def _begin(data: Any, other: Any, page: Any, plain: Any, to: Any, how: Any, state: Any) -> Any:
    """Where the body of a page begins, in which array (0 ``data``, 1 ``other``, 2 ``plain``, where
    it is decompressed to ``to`` as far as it is needed; -1 where it is damaged), and up to where it
    is there."""
    at, stored, size = page[AT], page[STORED], page[SIZE]
    if page[COMPRESSED] == 2:
        return at, 1, at + size
    if how != 1 or page[COMPRESSED] == 0:
        return at, 0 if stored == size else -1, at + size
    levels = max(page[LEVELS], np.int64(0))
    move(data, at, plain, to, levels)
    if stored == levels and size == levels:
        return to, 2, to + size
    declared, block = snappy_length(data, at + levels, at + stored)
    if declared != size - levels:
        block = np.int64(-1)
    state[0], state[1] = block, at + stored
    state[2], state[3], state[4] = to + levels, to + levels, to + size
    return to, 2 if block >= 0 else -1, to + levels


@register_jitable
def _until(data: Any, plain: Any, state: Any, have: Any, need: Any, stop: Any) -> Any:
    """Decompresses a body up to ``need`` at least; up to where it is there, or -1."""
    if need <= have:
        return have
    if need > stop or have >= stop:
        return np.int64(-1)
    # Few bytes at a time would be many calls.
    most = min(need + _STEP, stop)
    at, to = snappy(data, state[0], state[1], plain, state[2], state[3], state[4], most)
    if at < 0 or to < need:
        return np.int64(-1)
    state[0], state[3] = at, to
    return to


@register_jitable
def _held(body: Any, start: Any, length: Any, count: Any, valid: Any) -> Any:
    """How many of ``count`` rows have a value, by levels of one bit, with a flag for each in
    ``valid``; -1 where levels are wrong."""
    flags = valid[:count]
    if count > 0 and _hybrid(body[start : start + length], 1, flags) < 0:
        return np.int64(-1)
    held = np.int64(0)
    for k in range(count):
        held += np.int64(flags[k])
    return held


@register_jitable
def _keep(body: Any, at: Any, length: Any, heap: Any, end: Any) -> Any:
    """Copies a string to the heap; its end, or ``FULL``."""
    if length + 8 > len(heap) - end:
        return np.int64(FULL)
    move(body, at, heap, end, length)
    return end + length


@register_jitable
def _length(body: Any, at: Any) -> Any:
    return np.int64(load(body, at) & np.uint64(0xFFFFFFFF))


def take(
    data: Any, other: Any, pages: Any, picks: Any, table: Any, of: Any, columns: Any, rows: Any,
    plain: Any, room: Any, valid: Any, codes: Any, starts: Any, words: Any, sizes: Any, set_: Any,
    to: Any, heap: Any, end: Any,
) -> Any:  # fmt: skip
    """The values of ``rows`` in all columns, into ``words``, ``sizes`` and ``set_`` from ``to`` on;
    the end of ``heap``, or ``FULL`` or ``DAMAGED``.

    ``columns`` are width (0 for strings), whether a row may be null, and the codec. ``plain``
    has ``room`` bytes for a dictionary, then a page. ``starts`` takes where the strings of a
    dictionary begin, with their lengths.
    """
    damaged = np.int64(DAMAGED)
    of_page, of_words = np.zeros(5, np.int64), np.zeros(5, np.int64)
    p, q = 0, 0
    for c in range(len(of) - 1):
        width, optional, how = columns[c, 0], columns[c, 1] != 0, columns[c, 2]
        k, head, where_words = 0, -1, -1
        entries, known = np.int64(0), np.int64(0)
        first_word, have_words, stop_words = np.int64(0), np.int64(0), np.int64(0)
        if p < len(pages) and pages[p, CHUNK] == c and pages[p, VERSION] == 0:
            head, entries = p, pages[p, VALUES]
            p += 1
        while q < len(picks) and picks[q] < of[c + 1]:
            row = table[picks[q], 2]
            after = row + table[picks[q], 3]
            q += 1
            while row < after:
                if p == len(pages) or pages[p, CHUNK] != c or row + pages[p, VALUES] > after:
                    return damaged
                page = pages[p]
                count, first, begin = page[VALUES], k, row
                while k < len(rows) and rows[k] < row + count:
                    k += 1
                row += count
                p += 1
                if k == first:
                    continue
                # Levels, and how many values there are.
                at, where, have = _begin(data, other, page, plain, room, how, of_page)
                if where < 0:
                    return damaged
                body = data if where == 0 else (other if where == 1 else plain)
                stop, held = at + page[SIZE], count
                length = max(page[LEVELS], np.int64(0))
                if optional and page[VERSION] == 1:
                    have = _until(data, plain, of_page, have, at + 4, stop)
                    if have < 0 or page[LEVELS] == -2:
                        return damaged
                    length = _length(body, at)
                    at += 4
                if length > stop - at:
                    return damaged
                if optional:
                    have = _until(data, plain, of_page, have, at + length, stop)
                    if have < 0:
                        return damaged
                    held = _held(body, at, length, count, valid)
                    if held < 0:
                        return damaged
                at += length
                # Indices into the dictionary.
                encoding = page[ENCODING]
                coded = encoding in (_RLE_DICTIONARY, _PLAIN_DICTIONARY)
                if not coded and encoding != _PLAIN:
                    return damaged
                if coded and held > 0:
                    have = _until(data, plain, of_page, have, stop, stop)
                    if have < 0 or head < 0 or at >= stop or body[at] > 31:
                        return damaged
                    bits = np.int64(body[at])
                    if bits == 0:
                        codes[:held] = 0
                    elif _hybrid(body[at + 1 : stop], bits, codes[:held]) < 0:
                        return damaged
                    if where_words < 0:
                        first_word, where_words, have_words = _begin(
                            data, other, pages[head], plain, np.int64(0), how, of_words
                        )
                        stop_words = first_word + pages[head, SIZE]
                        least = np.int64(4) if width == 0 else width
                        if where_words < 0 or least * entries > pages[head, SIZE]:
                            return damaged
                source = data if where_words == 0 else (other if where_words == 1 else plain)
                rank, seen = np.int64(0), begin
                for i in range(first, k):
                    passed = rows[i] - seen
                    if optional:
                        passed = np.int64(0)
                        for n in range(seen - begin, rows[i] - begin):
                            passed += np.int64(valid[n])
                    if not coded and width == 0:
                        for _ in range(passed):
                            if at + 4 > have:
                                have = _until(data, plain, of_page, have, at + 4, stop)
                                if have < 0:
                                    return damaged
                            at += 4 + _length(body, at)
                            if at > stop:
                                return damaged
                    rank += passed
                    seen = rows[i]
                    out = to + i
                    if optional and valid[seen - begin] == 0:
                        set_[c, out], words[c, out], sizes[c, out] = 0, 0, 0
                        continue
                    set_[c, out] = 1
                    if not coded and width > 0:
                        place = at + rank * width
                        have = _until(data, plain, of_page, have, place + width, stop)
                        if have < 0:
                            return damaged
                        words[c, out] = load(body, place)
                        continue
                    if not coded:
                        have = _until(data, plain, of_page, have, at + 4, stop)
                        if have < 0:
                            return damaged
                        length = _length(body, at)
                        have = _until(data, plain, of_page, have, at + 4 + length, stop)
                        if have < 0:
                            return damaged
                        found = _keep(body, at + 4, length, heap, end)
                    else:
                        code = np.int64(codes[rank])
                        if code < 0 or code >= entries:
                            return damaged
                        if width > 0:
                            place = first_word + code * width
                            have_words = _until(
                                data, plain, of_words, have_words, place + width, stop_words
                            )
                            if have_words < 0:
                                return damaged
                            words[c, out] = load(source, place)
                            continue
                        while known <= code + 1:
                            place = first_word
                            if known > 0:
                                place = starts[known - 1]
                                if place + 4 > have_words:
                                    have_words = _until(
                                        data, plain, of_words, have_words, place + 4, stop_words
                                    )
                                    if have_words < 0:
                                        return damaged
                                place += 4 + _length(source, place)
                                if place > stop_words:
                                    return damaged
                            starts[known] = place
                            known += 1
                        place, length = starts[code], starts[code + 1] - starts[code] - 4
                        have_words = _until(
                            data, plain, of_words, have_words, place + 4 + length, stop_words
                        )
                        if have_words < 0:
                            return damaged
                        found = _keep(source, place + 4, length, heap, end)
                    if found < 0:
                        return found
                    words[c, out], sizes[c, out] = np.uint64(end), length
                    end = found
        if k != len(rows):
            return damaged
    return end


def gather(heap: Any, places: Any, sizes: Any, offsets: Any, out: Any) -> None:
    """Strings of the heap, one after another; ``out`` has room for all, and eight bytes more."""
    end = np.int64(0)
    for k in range(len(places)):
        move(heap, np.int64(places[k]), out, end, sizes[k])
        end += sizes[k]
        offsets[k + 1] = end


def _versioned(kernel: Callable[..., Any], version: int) -> Callable[..., Any]:
    """``kernel`` with a version that is part of the key of numba's cache."""
    called = register_jitable(kernel)

    def call(*arguments: Any) -> Any:
        _ = version
        return called(*arguments)

    call.__qualname__ = call.__name__ = kernel.__name__
    return call


def compiled() -> FewRowsKernels:
    found = fingerprint(bulk_chunks, bulk_pages_jit, few_rows, runs, kernel_wire, compact)
    compile = partial(compile_kernel, cache=found is not None and not CHECKED)
    return FewRowsKernels(
        **{
            name: compile(_versioned(kernel, found or 0))
            for name, kernel in (
                ("choose", choose),
                ("claims", claims),
                ("take", take),
                ("gather", gather),
            )
        },
        walk=bulk_jit.compiled().walk,
    )


def warm_up(kernels: FewRowsKernels) -> None:
    """Compiles every kernel for the types of its arguments, by calls without columns."""
    bytes_, numbers, one = np.zeros(64, np.uint8), np.zeros(0, np.int64), np.zeros(1, np.int64)
    table, pairs = np.zeros((0, 4), np.int64), np.zeros((0, 2), np.int64)
    pages, some = np.zeros((0, COLUMNS), np.int64), np.zeros(0, np.int32)
    kernels.choose(table, one, pairs, numbers, numbers, pairs, numbers, numbers)
    kernels.walk(bytes_, numbers, numbers, one, numbers, pages, np.zeros(80, np.int64))
    kernels.claims(pages, numbers, True, np.zeros(5, np.int64))
    kernels.take(
        bytes_, bytes_, pages, numbers, table, one, np.zeros((0, 3), np.int64), numbers, bytes_, 0,
        bytes_, some, numbers, np.zeros((0, 0), np.uint64), np.zeros((0, 0), np.int64),
        np.zeros((0, 0), np.uint8), 0, bytes_, 0,
    )  # fmt: skip
    kernels.gather(bytes_, np.zeros(0, np.uint64), numbers, np.zeros(1, np.int32), bytes_)
