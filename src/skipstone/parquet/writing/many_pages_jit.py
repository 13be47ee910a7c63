"""Compiled loops of ``many_pages``: statistics of many pages of a chunk in one call.

Neither holds the lock of the interpreter. ``pages`` is a page table of ``bulk_chunks``. A page gets
a ``status`` other than 0 where anything is not as expected, and is left to the decoder that
explains errors.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
from numba.extending import register_jitable

from skipstone._numba import compile_kernel
from skipstone.parquet.encodings import jit_runs
from skipstone.parquet.format import enums, metadata
from skipstone.parquet.format.enums import CompressionCodec, Encoding
from skipstone.parquet.pages import page_headers as headers
from skipstone.parquet.reading import bulk_chunks, bulk_pages_jit
from skipstone.parquet.reading.bulk_chunks import (
    AT,
    BEHIND,
    COLUMNS,
    COMPRESSED,
    ENCODING,
    HOW,
    LEVELS,
    OTHER,
    PLACE,
    ROOM,
    SIZE,
    SNAPPY,
    SNAPPY_RATIO,
    STORED,
    VALUES,
    VERSION,
)
from skipstone.parquet.reading.bulk_pages_jit import (
    codes_of,
    fill_page,
    hybrid,
    is_one_run,
    levels_of,
    unpacked,
)
from skipstone.parquet.thrift import compact

from . import many_pages
from .many_pages import FLOATING, LEFT, MOST_BYTES, MOST_VALUES, UNSIGNED, PageKernels

_PLAIN: Final = int(Encoding.PLAIN)
_PLAIN_DICTIONARY: Final = int(Encoding.PLAIN_DICTIONARY)
_RLE_DICTIONARY: Final = int(Encoding.RLE_DICTIONARY)
_UNCOMPRESSED: Final = int(CompressionCodec.UNCOMPRESSED)
_SNAPPY: Final = int(CompressionCodec.SNAPPY)


@register_jitable
def _planned(row: Any, codec: Any, end: Any, page: Any) -> Any:
    """Fills a row of the page table from the integers of a header, but for its place; returns
    whether the page has the usual form."""
    usual = fill_page(page, row, False, np.int64(MOST_VALUES))
    size, stored = page[SIZE], page[STORED]
    at = row[headers.OFFSET] + row[headers.HEADER_LENGTH]
    page[AT] = at
    if codec != _UNCOMPRESSED and page[COMPRESSED] != 0:
        # ``snappy`` may read bytes behind a page.
        page[HOW] = SNAPPY if codec == _SNAPPY and at + stored + ROOM <= end else OTHER
    # So that values are aligned: in v2 pages they begin behind the levels, in v1 pages they
    # usually end with the page.
    page[PLACE] = -(page[LEVELS] if page[VERSION] == 2 else size) & 7
    usual = usual and page[VALUES] > 0 and (page[VERSION] == 1 or page[LEVELS] >= 0)
    return usual and size <= SNAPPY_RATIO * stored + 8


def plan(
    rows: Any, codec: Any, is_number: Any, has_dictionary: Any, keep: Any, end: Any, pages: Any,
    status: Any,
) -> Any:  # fmt: skip
    """Fills the page table, and ``status`` with ``LEFT`` for pages that no kernel looks at. Pages
    that need not stay in ``plain`` (``keep``) share its beginning.

    Returns the bytes of ``plain``, the most values of a page, and how many pages have another
    codec, PLAIN numbers, and indices.
    """
    shared, most, others, numbers, coded = np.int64(0), np.int64(0), 0, 0, 0
    for n in range(len(rows)):
        page = pages[n]
        usual = _planned(rows[n], codec, end, page)
        encoding = page[ENCODING]
        if encoding == _PLAIN:
            usual = usual and is_number
        else:
            usual = usual and has_dictionary
            usual = usual and encoding in (_RLE_DICTIONARY, _PLAIN_DICTIONARY)
        status[n] = 0 if usual else LEFT
        if usual and not keep and page[HOW] != OTHER:
            shared = max(shared, page[SIZE])
    shared = (shared + BEHIND + 15) >> 3 << 3
    to: Any = shared
    for n in range(len(rows)):
        page = pages[n]
        span = (page[SIZE] + BEHIND + 15) >> 3 << 3
        alone = keep or page[HOW] == OTHER
        if status[n] != 0 or shared > MOST_BYTES or (alone and span > MOST_BYTES - to):
            status[n] = LEFT
            continue
        if alone:
            page[PLACE] += to
            to += span
        most = max(most, page[VALUES])
        others += page[HOW] == OTHER
        numbers += page[ENCODING] == _PLAIN
        coded += page[ENCODING] != _PLAIN
    return min(to, np.int64(MOST_BYTES)), most, others, numbers, coded


@register_jitable
def _opened(
    data: Any, page: Any, plain: Any, highest: Any, width: Any, levels: Any, counts: Any
) -> Any:
    """Decompresses a page and counts its definition levels, of ``width`` bits up to ``highest``.
    Returns where its values begin, and how many there are, -1 where the page is damaged."""
    start, count, no = page[PLACE], page[VALUES], np.int64(-1)
    if not unpacked(data, page, plain, page[SIZE]):
        return start, no
    if highest == 0:
        return start + max(page[LEVELS], np.int64(0)), count
    start, stop = levels_of(plain, page)
    if stop < 0:
        return start, no
    body = plain[start:stop]
    if is_one_run(body, count, highest):
        counts[highest] = count
        return stop, count
    found = levels[:count]
    if hybrid(body, width, found) < 0:
        return start, no
    if highest == 1:
        ones: Any = np.int64(0)
        for k in range(count):
            ones += np.int64(found[k])
        counts[0], counts[1] = count - ones, ones
    else:
        for k in range(count):
            level = np.int64(found[k])
            if level > highest:
                return start, no
            counts[level] += 1
    return stop, counts[highest]


def numbers(
    data: Any, pages: Any, highest: Any, width: Any, order: Any, infinite: Any, plain: Any,
    levels: Any, counts: Any, starts: Any, low: Any, high: Any, nans: Any, status: Any,
) -> None:  # fmt: skip
    """Of pages of PLAIN numbers: ``low`` and ``high`` as signed ones of the same bits, without NaN
    (those above ``infinite``), and where their values begin in ``plain``."""
    item = low.itemsize
    least, most = np.iinfo(low.dtype).min, np.iinfo(low.dtype).max
    for n in range(len(pages)):
        page = pages[n]
        if status[n] != 0 or page[ENCODING] != _PLAIN:
            continue
        start, held = _opened(data, page, plain, highest, width, levels, counts[n])
        stop = page[PLACE] + page[SIZE]
        if held < 0 or start > stop or held * item > stop - start or start % item != 0:
            status[n] = LEFT
            continue
        starts[n] = start
        values = plain[start : start + held * item].view(low.dtype)
        lower, upper = most, least
        if order == FLOATING:
            missing = np.int64(0)
            for k in range(held):
                value = values[k]
                key = value ^ (most if value < 0 else np.int64(0))
                is_nan = value & most > infinite
                missing += np.int64(is_nan)
                lower = min(lower, most if is_nan else key)
                upper = max(upper, least if is_nan else key)
            nans[n] = missing
        elif order == UNSIGNED:
            for k in range(held):
                lower, upper = min(lower, values[k] ^ least), max(upper, values[k] ^ least)
        else:
            for k in range(held):
                lower, upper = min(lower, values[k]), max(upper, values[k])
        low[n], high[n] = lower, upper


def indices(
    data: Any, pages: Any, highest: Any, width: Any, entries: Any, ranks: Any, lengths: Any,
    plain: Any, levels: Any, codes: Any, counts: Any, used: Any, low: Any, high: Any, sizes: Any,
    status: Any,
) -> None:  # fmt: skip
    """Of pages of indices into a dictionary: the least and the highest rank, the sum of the
    ``lengths`` and the flags of ``used`` entries, where these are not empty."""
    for n in range(len(pages)):
        page = pages[n]
        if status[n] != 0 or page[ENCODING] == _PLAIN:
            continue
        start, held = _opened(data, page, plain, highest, width, levels, counts[n])
        stop = page[PLACE] + page[SIZE]
        some = codes[: max(held, np.int64(0))]
        if held < 0 or (held > 0 and not codes_of(plain, start, stop, entries, some)):
            status[n] = LEFT
            continue
        if held == 0:
            continue
        lower = upper = ranks[some[0]]
        for k in range(held):
            rank = ranks[np.uint64(np.int64(some[k]))]
            lower, upper = min(lower, rank), max(upper, rank)
        low[n], high[n] = lower, upper
        if len(lengths) > 0:
            total: Any = np.int64(0)
            for k in range(held):
                total += lengths[np.uint64(np.int64(some[k]))]
            sizes[n] = total
        if len(used) > 0:
            for k in range(held):
                used[np.uint64(np.int64(some[k]))] = 1


def compiled() -> PageKernels:
    modules = [
        many_pages,
        bulk_pages_jit,
        bulk_chunks,
        jit_runs,
        headers,
        metadata,
        enums,
        compact,
    ]
    compile = partial(compile_kernel, over=modules)
    return PageKernels(
        plan=compile(plan),
        numbers=compile(numbers),
        indices=compile(indices),
        walk=headers.COMPILED.load(),
    )


def warm_up(kernels: PageKernels) -> None:
    """Compiles every kernel for the types of its arguments, by calls without pages."""
    data, plain = np.frombuffer(b"", np.uint8), np.zeros(0, np.uint8)
    pages, counts, none = np.zeros((0, COLUMNS), np.int64), np.zeros((0, 2), np.int64), plain
    long, ranks = np.zeros(0, np.int64), np.zeros(0, np.int32)
    rows = np.zeros((0, headers.FIELDS), np.int64)
    kernels.walk(data, 0, 0, rows, np.zeros(headers.STACK, np.int64))
    kernels.plan(rows, 0, True, True, True, 0, pages, long)
    for kind in (np.int32, np.int64):
        bounds = np.zeros(0, kind)
        kernels.numbers(
            data, pages, 1, 1, 0, bounds.dtype.type(0), plain, none, counts, long, bounds, bounds,
            long, long,
        )  # fmt: skip
    kernels.indices(
        data, pages, 1, 1, 1, ranks, long, plain, none, ranks, counts, none, long, long, long, long
    )  # fmt: skip
