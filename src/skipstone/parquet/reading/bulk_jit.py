"""Compiled loops over the column chunks of many files: levels and values.

Each function works on all chunks of a batch in one call, without the lock of the interpreter.
``pages`` is the page table of ``bulk_chunks``, ``plain`` the decompressed bodies. A chunk with
anything unexpected gets a ``status`` other than 0, and is left to the readers that explain errors.

Source: Encodings.md (PLAIN, RLE, RLE_DICTIONARY).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
from numba.extending import register_jitable

from skipstone._numba import compile_kernel
from skipstone.parquet.encodings import jit_runs as runs
from skipstone.parquet.encodings.jit_runs import load
from skipstone.parquet.format import enums, metadata
from skipstone.parquet.format.enums import Encoding
from skipstone.parquet.pages import page_headers
from skipstone.parquet.thrift import compact

from . import bulk_chunks, bulk_pages_jit, bulk_search_jit, bulk_select_jit
from .bulk_chunks import (
    CHUNK,
    COLUMNS,
    ENCODING,
    FIRST,
    PLACE,
    SIZE,
    VALUES,
    VERSION,
    BulkKernels,
)
from .bulk_pages_jit import codes_of, move, unpack, unpacked, walk
from .bulk_search_jit import candidates
from .bulk_select_jit import (
    after_levels,
    choose,
    copy_some,
    gather,
    locate,
)

_PLAIN: Final = int(Encoding.PLAIN)
_PLAIN_DICTIONARY: Final = int(Encoding.PLAIN_DICTIONARY)
_RLE_DICTIONARY: Final = int(Encoding.RLE_DICTIONARY)


@register_jitable
def _spread(out: Any, valid: Any, to: Any, count: Any, held: Any) -> None:
    """Moves ``held`` packed values to the places of the set flags, from the last to the first."""
    k = to + held
    for i in range(to + count - 1, to - 1, -1):
        if valid[i]:
            k -= 1
            out[i] = out[k]
        else:
            out[i] = 0


@register_jitable
def _noted(
    optional: Any, valid: Any, nulls: Any, chunk: Any, to: Any, count: Any, held: Any
) -> Any:
    """Records the nulls of a page; returns whether there are any."""
    if held < count:
        nulls[chunk] += count - held
        return True
    if optional:
        valid[to : to + count] = 1
    return False


def indices(
    plain: Any, pages: Any, optional: Any, base: Any, entries: Any, status: Any,
    out: Any, valid: Any, nulls: Any,
) -> None:  # fmt: skip
    """Indices into the dictionaries of all chunks, that of chunk ``c`` beginning at ``base[c]``
    with ``entries[c]`` values."""
    for n in range(len(pages)):
        page = pages[n]
        chunk, to = page[CHUNK], page[FIRST]
        if page[VERSION] == 0 or status[chunk] != 0:
            continue
        count, stop = page[VALUES], page[PLACE] + page[SIZE]
        start, held = after_levels(plain, page, optional, valid, to)
        if held < 0 or start > stop:
            status[chunk] = 4
            continue
        some = out[to : to + held]
        if held > 0 and not codes_of(plain, start, stop, entries[chunk], some):
            status[chunk] = 4
            continue
        if base[chunk]:
            shift = np.int32(base[chunk])
            for k in range(held):
                some[k] += shift
        if _noted(optional, valid, nulls, chunk, to, count, held):
            _spread(out, valid, to, count, held)


def flags(
    data: Any, plain: Any, pages: Any, optional: Any, base: Any, entries: Any,
    status: Any, of_words: Any, out: Any, valid: Any, nulls: Any, some: Any,
) -> None:  # fmt: skip
    """For each row of a dictionary-encoded page, the flag of its entry in ``of_words``, 0 for
    nulls. Chunks without a flag are skipped: ``out`` is 0. The indices stay in ``some``, which the
    processor's cache holds."""
    for n in range(len(pages)):
        page = pages[n]
        chunk, to = page[CHUNK], page[FIRST]
        encoding = page[ENCODING]
        if page[VERSION] == 0 or status[chunk] != 0 or encoding == _PLAIN:
            continue
        if encoding != _RLE_DICTIONARY and encoding != _PLAIN_DICTIONARY:
            status[chunk] = 3
            continue
        mine = of_words[base[chunk] : base[chunk] + entries[chunk]]
        if entries[chunk] > 0 and mine.max() == 0:
            continue
        if not unpacked(data, page, plain, page[SIZE]):
            status[chunk] = 2
            continue
        count, stop = page[VALUES], page[PLACE] + page[SIZE]
        start, held = after_levels(plain, page, optional, valid, to)
        codes = some[: max(held, np.int64(0))]
        if held < 0 or (held > 0 and not codes_of(plain, start, stop, entries[chunk], codes)):
            status[chunk] = 4
            continue
        for k in range(held):
            out[to + k] = mine[np.uint64(np.int64(codes[k]))]
        if _noted(optional, valid, nulls, chunk, to, count, held):
            _spread(out, valid, to, count, held)


def validity(
    data: Any, plain: Any, pages: Any, optional: Any, status: Any, valid: Any, nulls: Any
) -> None:
    """For each row whether it has a value, by the levels alone."""
    for n in range(len(pages)):
        page = pages[n]
        chunk, to = page[CHUNK], page[FIRST]
        if page[VERSION] == 0 or status[chunk] != 0:
            continue
        if not unpacked(data, page, plain, page[SIZE]):
            status[chunk] = 2
            continue
        _, held = after_levels(plain, page, optional, valid, to)
        if held < 0:
            status[chunk] = 4
            continue
        _noted(optional, valid, nulls, chunk, to, page[VALUES], held)


def fixed(
    data: Any, plain: Any, pages: Any, optional: Any, dictionary: Any,
    entries: Any, items: Any, status: Any, out: Any, valid: Any, nulls: Any, some: Any,
) -> None:  # fmt: skip
    """Values of a fixed width, plain or by a dictionary at byte ``dictionary[c]`` of ``plain``.
    ``items`` is ``out`` as bytes; ``some`` is scratch."""
    width = len(items) // max(len(out), 1)
    for n in range(len(pages)):
        page = pages[n]
        chunk, to = page[CHUNK], page[FIRST]
        if status[chunk] != 0:
            continue
        # Page by page, because decompressed bytes are still in the processor's cache.
        if not unpacked(data, page, plain, page[SIZE]):
            status[chunk] = 2
            continue
        if page[VERSION] == 0:
            continue
        count, stop = page[VALUES], page[PLACE] + page[SIZE]
        start, held = after_levels(plain, page, optional, valid, to)
        if held < 0 or start > stop:
            status[chunk] = 4
            continue
        encoding = page[ENCODING]
        if encoding == _PLAIN:
            if held * width > stop - start:
                status[chunk] = 4
                continue
            move(plain, start, items, to * width, held * width)
        elif encoding in (_RLE_DICTIONARY, _PLAIN_DICTIONARY):
            found = some[:held]
            if held > 0 and not codes_of(plain, start, stop, entries[chunk], found):
                status[chunk] = 4
                continue
            origin = dictionary[chunk]
            for k in range(held):
                out[to + k] = load(plain, origin + np.int64(found[k]) * width)
        else:
            status[chunk] = 3
            continue
        if _noted(optional, valid, nulls, chunk, to, count, held):
            _spread(out, valid, to, count, held)


def words(
    plain: Any, pages: Any, base: Any, entries: Any, status: Any, offsets: Any,
    out: Any,
) -> None:  # fmt: skip
    """The strings of the dictionary pages, those of chunk ``c`` from ``base[c]`` on."""
    end = np.int64(0)
    for n in range(len(pages)):
        page = pages[n]
        chunk = page[CHUNK]
        if page[VERSION] != 0 or entries[chunk] == 0:
            continue
        encoding, to = page[ENCODING], base[chunk]
        at, stop, k = page[PLACE], page[PLACE] + page[SIZE], np.int64(0)
        good = status[chunk] == 0 and encoding in (_PLAIN, _PLAIN_DICTIONARY)
        while good and k < entries[chunk]:
            if stop - at < 4:
                break
            length = np.int64(load(plain, at) & np.uint64(0xFFFFFFFF))
            at += 4
            if length > stop - at:
                break
            move(plain, at, out, end, length)
            at += length
            end += length
            k += 1
            offsets[to + k] = end
        if k < entries[chunk]:
            status[chunk] = 4
            offsets[to + k + 1 : to + entries[chunk] + 1] = end


def strings(
    plain: Any, pages: Any, optional: Any, first: Any, base: Any, entries: Any,
    starts: Any, letters: Any, status: Any, offsets: Any, out: Any, valid: Any, nulls: Any,
    some: Any,
) -> Any:  # fmt: skip
    """Strings back to back, plain or from the dictionaries (``starts`` and ``letters``, as from
    ``words``). ``offsets`` are of all rows. Returns the bytes in ``out``, or -1 if they do not
    fit."""
    end, n = np.int64(0), 0
    for chunk in range(len(first) - 1):
        to = first[chunk]
        while n < len(pages) and pages[n, CHUNK] == chunk:
            page = pages[n]
            n += 1
            if page[VERSION] == 0 or status[chunk] != 0:
                continue
            count, stop, encoding = page[VALUES], page[PLACE] + page[SIZE], page[ENCODING]
            at, held = after_levels(plain, page, optional, valid, to)
            if held < 0 or at > stop:
                status[chunk] = 4
                continue
            coded = encoding in (_RLE_DICTIONARY, _PLAIN_DICTIONARY)
            found = some[:held]
            if coded and held > 0 and not codes_of(plain, at, stop, entries[chunk], found):
                status[chunk] = 4
                continue
            if not coded and encoding != _PLAIN:
                status[chunk] = 3
                continue
            k, whole = np.int64(0), held == count
            for i in range(to, to + count):
                if whole or valid[i]:
                    if coded:
                        word = base[chunk] + np.int64(found[k])
                        start = np.int64(starts[word])
                        length = np.int64(starts[word + 1]) - start
                        if end + length + 8 > len(out):
                            return -1
                        move(letters, start, out, end, length)
                    else:
                        if stop - at < 4:
                            break
                        length = np.int64(load(plain, at) & np.uint64(0xFFFFFFFF))
                        at += 4
                        if length > stop - at:
                            break
                        if end + length + 8 > len(out):
                            return -1
                        move(plain, at, out, end, length)
                        at += length
                    end += length
                    k += 1
                offsets[i + 1] = end
            if k != held:
                status[chunk] = 4
                continue
            _noted(optional, valid, nulls, chunk, to, count, held)
            to += count
        offsets[to + 1 : first[chunk + 1] + 1] = end
    return end


def compiled() -> BulkKernels:
    modules = [
        bulk_chunks,
        bulk_pages_jit,
        bulk_search_jit,
        bulk_select_jit,
        runs,
        page_headers,
        metadata,
        enums,
        compact,
    ]
    compile = partial(compile_kernel, over=modules)
    return BulkKernels(
        walk=compile(walk),
        unpack=compile(unpack),
        indices=compile(indices),
        flags=compile(flags),
        validity=compile(validity),
        fixed=compile(fixed),
        words=compile(words),
        strings=compile(strings),
        candidates=compile(candidates),
        choose=compile(choose),
        locate=compile(locate),
        gather=compile(gather),
        copy_some=compile(copy_some),
    )


def warm_up(kernels: BulkKernels) -> None:
    """Compiles every kernel for the types of its arguments, by calls without chunks."""
    bytes_, numbers = np.zeros(128, np.uint8), np.zeros(0, np.int64)
    pages, some, status = np.zeros((0, COLUMNS), np.int64), np.zeros(0, np.int32), numbers.copy()
    valid, nulls, offsets = np.zeros(0, np.uint8), numbers.copy(), np.zeros(1, np.int32)
    one, bounds = np.zeros(1, np.int64), np.zeros(0, np.uint64)
    needle = np.frombuffer(b"", np.uint8)  # read-only, as that of ``bulk_values``
    kernels.walk(bytes_, numbers, numbers, one, status, pages, one, one)
    kernels.unpack(bytes_, pages, np.zeros(0, np.bool_), status, bytes_)
    some_pages, pairs = np.zeros((0, 4), np.int64), np.zeros((0, 2), np.int64)
    kernels.choose(some_pages, one, pairs, numbers, one, pairs, numbers, one, numbers, numbers)
    kernels.words(bytes_, pages, numbers, numbers, status, offsets, bytes_)
    for optional in (False, True):
        kernels.indices(bytes_, pages, optional, numbers, numbers, status, some, valid, nulls)
        kernels.flags(
            bytes_, bytes_, pages, optional, numbers, numbers, status, valid, valid, valid, nulls,
            some,
        )  # fmt: skip
        kernels.validity(bytes_, bytes_, pages, optional, status, valid, nulls)
        kernels.strings(
            bytes_, pages, optional, one, numbers, numbers, offsets, bytes_, status, offsets,
            bytes_, valid, nulls, some,
        )  # fmt: skip
        kernels.candidates(
            bytes_, pages, bytes_, optional, numbers, numbers, status, 0, bounds, bounds, bounds,
            needle, 0, 0, 0, numbers, numbers, numbers, valid,
        )  # fmt: skip
        for width in (4, 8):
            out = np.zeros(0, f"u{width}")
            kernels.fixed(
                bytes_, bytes_, pages, optional, numbers, numbers, out.view(np.uint8), status, out,
                valid, nulls, some,
            )  # fmt: skip
            kernels.gather(bytes_, numbers, numbers, out, valid)
    kernels.locate(
        bytes_, pages, bytes_, valid, numbers, status, numbers, numbers, numbers, numbers, valid,
        numbers, numbers, some, numbers,
    )  # fmt: skip
    kernels.copy_some(bytes_, numbers, numbers, offsets, bytes_)
