"""Compiled loops over the column chunks of many files: levels and values.

Each function works on all chunks of a batch in one call, without the lock of the interpreter.
``pages`` is the page table of ``bulk_chunks``; ``plain`` holds the decompressed bodies, each at its
place in ``places``. A chunk with anything unexpected gets a ``status`` other than 0, and is left to
the readers that explain errors.

Source: Encodings.md (PLAIN, RLE, RLE_DICTIONARY).
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

from . import bulk_chunks, bulk_pages_jit
from .bulk_chunks import CHUNK, COLUMNS, ENCODING, LEVELS, SIZE, VALUES, VERSION, BulkKernels
from .bulk_pages_jit import decompress, move, walk

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN: Final = int(Encoding.PLAIN)
_PLAIN_DICTIONARY: Final = int(Encoding.PLAIN_DICTIONARY)
_RLE_DICTIONARY: Final = int(Encoding.RLE_DICTIONARY)

_hybrid = register_jitable(runs.hybrid)


@register_jitable
def _validity(body: Any, count: Any, valid: Any, to: Any) -> Any:
    """Levels of one bit into flags; how many are set, or -1."""
    # Nearly always one run of ones.
    if len(body) >= 2:
        head: Any = np.int64(0)
        shift, at, byte = 0, 0, np.int64(128)
        while byte >= 128 and at < len(body) and at < 5:
            byte = np.int64(body[at])
            head |= (byte & 127) << shift
            at += 1
            shift += 7
        is_run = byte < 128 and head & 1 == 0 and head >> 1 >= count
        if is_run and at < len(body) and body[at] == 1:
            return count
    flags = valid[to : to + count]
    if _hybrid(body, 1, flags) < 0:
        return -1
    total: Any = 0
    for k in range(count):
        total += np.int64(flags[k])
    return total


@register_jitable
def _after_levels(plain: Any, page: Any, place: Any, optional: Any, valid: Any, to: Any) -> Any:
    """Where the values of a page begin, and how many there are; -1 where levels are wrong."""
    start, count = place, page[VALUES]
    if not optional:
        return start + max(page[LEVELS], np.int64(0)), count
    stop = place + page[SIZE]
    if page[VERSION] == 2:
        length = page[LEVELS]
    elif page[LEVELS] == -2:
        return start, np.int64(-1)
    else:
        if stop - start < 4:
            return start, np.int64(-1)
        length = np.int64(load(plain, start) & np.uint64(0xFFFFFFFF))
        start += 4
        if length > stop - start:
            return start, np.int64(-1)
    found = _validity(plain[start : start + length], count, valid, to)
    return start + length, found


@register_jitable
def _spread(out: Any, valid: Any, to: Any, count: Any, held: Any) -> None:
    """Moves ``held`` values to the places of the set flags, the last first."""
    k = to + held
    for i in range(to + count - 1, to - 1, -1):
        if valid[i]:
            k -= 1
            out[i] = out[k]
        else:
            out[i] = 0


@register_jitable
def _codes(plain: Any, start: Any, stop: Any, entries: Any, out: Any) -> Any:
    """Fills ``out`` with indices below ``entries``; whether they are."""
    if start >= stop or entries == 0:
        return False
    width = np.int64(plain[start])
    if width == 0:
        out[:] = 0
        return True
    if width > 31 or _hybrid(plain[start + 1 : stop], width, out) < 0:
        return False
    most, least = np.int64(0), np.int64(0)
    for k in range(len(out)):
        most = max(most, np.int64(out[k]))
        least = min(least, np.int64(out[k]))
    return least >= 0 and most < entries


@register_jitable
def _noted(
    optional: Any, valid: Any, nulls: Any, chunk: Any, to: Any, count: Any, held: Any
) -> Any:
    """Notes the nulls of a page; whether there are any."""
    if held < count:
        nulls[chunk] += count - held
        return True
    if optional:
        valid[to : to + count] = 1
    return False


def indices(
    plain: Any, pages: Any, places: Any, optional: Any, first: Any, base: Any, entries: Any,
    status: Any, out: Any, valid: Any, nulls: Any,
) -> None:  # fmt: skip
    """Indices into the dictionaries of all chunks, that of chunk ``c`` beginning at ``base[c]``
    with ``entries[c]`` values. ``first[c]`` is the first row of a chunk in ``out``."""
    before, to = np.int64(-1), np.int64(0)
    for n in range(len(pages)):
        page = pages[n]
        chunk = page[CHUNK]
        if chunk != before:
            before, to = chunk, first[chunk]
        if page[VERSION] == 0 or status[chunk] != 0:
            continue
        count, stop = page[VALUES], places[n] + page[SIZE]
        start, held = _after_levels(plain, page, places[n], optional, valid, to)
        if held < 0 or start > stop:
            status[chunk] = 4
            continue
        some = out[to : to + held]
        if held > 0 and not _codes(plain, start, stop, entries[chunk], some):
            status[chunk] = 4
            continue
        if base[chunk]:
            shift = np.int32(base[chunk])
            for k in range(held):
                some[k] += shift
        if _noted(optional, valid, nulls, chunk, to, count, held):
            _spread(out, valid, to, count, held)
        to += count


def flags(
    plain: Any, pages: Any, places: Any, optional: Any, first: Any, base: Any, entries: Any,
    status: Any, of_words: Any, out: Any, valid: Any, nulls: Any, some: Any,
) -> None:  # fmt: skip
    """For each row the flag in ``of_words`` of its dictionary entry, 0 for nulls. The indices stay
    in ``some``, which the processor's cache holds."""
    before, to = np.int64(-1), np.int64(0)
    for n in range(len(pages)):
        page = pages[n]
        chunk = page[CHUNK]
        if chunk != before:
            before, to = chunk, first[chunk]
        if page[VERSION] == 0 or status[chunk] != 0:
            continue
        count, stop = page[VALUES], places[n] + page[SIZE]
        start, held = _after_levels(plain, page, places[n], optional, valid, to)
        codes = some[: max(held, np.int64(0))]
        if held < 0 or (held > 0 and not _codes(plain, start, stop, entries[chunk], codes)):
            status[chunk] = 4
            continue
        mine = of_words[base[chunk] : base[chunk] + entries[chunk]]
        for k in range(held):
            out[to + k] = mine[np.uint64(np.int64(codes[k]))]
        if _noted(optional, valid, nulls, chunk, to, count, held):
            _spread(out, valid, to, count, held)
        to += count


def validity(
    plain: Any, pages: Any, places: Any, optional: Any, first: Any, status: Any, valid: Any,
    nulls: Any,
) -> None:  # fmt: skip
    """For each row whether it has a value, by the levels alone."""
    before, to = np.int64(-1), np.int64(0)
    for n in range(len(pages)):
        page = pages[n]
        chunk = page[CHUNK]
        if chunk != before:
            before, to = chunk, first[chunk]
        if page[VERSION] == 0 or status[chunk] != 0:
            continue
        _, held = _after_levels(plain, page, places[n], optional, valid, to)
        if held < 0:
            status[chunk] = 4
            continue
        _noted(optional, valid, nulls, chunk, to, page[VALUES], held)
        to += page[VALUES]


def fixed(
    plain: Any, pages: Any, places: Any, optional: Any, first: Any, dictionary: Any,
    entries: Any, items: Any, status: Any, out: Any, valid: Any, nulls: Any, some: Any,
) -> None:  # fmt: skip
    """Values of a fixed width, plain or by a dictionary at byte ``dictionary[c]`` of ``plain``.
    ``items`` is ``out`` as bytes; ``some`` is scratch."""
    width = len(items) // max(len(out), 1)
    before, to = np.int64(-1), np.int64(0)
    for n in range(len(pages)):
        page = pages[n]
        chunk = page[CHUNK]
        if chunk != before:
            before, to = chunk, first[chunk]
        if page[VERSION] == 0 or status[chunk] != 0:
            continue
        count, stop = page[VALUES], places[n] + page[SIZE]
        start, held = _after_levels(plain, page, places[n], optional, valid, to)
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
            if held > 0 and not _codes(plain, start, stop, entries[chunk], found):
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
        to += count


def words(
    plain: Any, pages: Any, places: Any, base: Any, entries: Any, status: Any, offsets: Any,
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
        at, stop, k = places[n], places[n] + page[SIZE], np.int64(0)
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
    plain: Any, pages: Any, places: Any, optional: Any, first: Any, base: Any, entries: Any,
    starts: Any, letters: Any, status: Any, offsets: Any, out: Any, valid: Any, nulls: Any,
    some: Any,
) -> Any:  # fmt: skip
    """Strings back to back, plain or from the dictionaries (``starts`` and ``letters``, as from
    ``words``). ``offsets`` are of all rows. The bytes in ``out``, or -1 where they do not fit."""
    end, n = np.int64(0), 0
    for chunk in range(len(first) - 1):
        to = first[chunk]
        while n < len(pages) and pages[n, CHUNK] == chunk:
            page, place = pages[n], places[n]
            n += 1
            if page[VERSION] == 0 or status[chunk] != 0:
                continue
            count, stop, encoding = page[VALUES], place + page[SIZE], page[ENCODING]
            at, held = _after_levels(plain, page, place, optional, valid, to)
            if held < 0 or at > stop:
                status[chunk] = 4
                continue
            coded = encoding in (_RLE_DICTIONARY, _PLAIN_DICTIONARY)
            found = some[:held]
            if coded and held > 0 and not _codes(plain, at, stop, entries[chunk], found):
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


def _versioned(kernel: Callable[..., Any], version: int) -> Callable[..., Any]:
    """``kernel`` with a version that is part of the key of numba's cache."""
    called = register_jitable(kernel)

    def call(*arguments: Any) -> Any:
        _ = version
        return called(*arguments)

    call.__qualname__ = call.__name__ = kernel.__name__
    return call


def compiled() -> BulkKernels:
    found = fingerprint(bulk_chunks, bulk_pages_jit, runs, kernel_wire, compact)
    compile = partial(compile_kernel, cache=found is not None and not CHECKED)
    return BulkKernels(
        **{
            name: compile(_versioned(kernel, found or 0))
            for name, kernel in (
                ("walk", walk),
                ("decompress", decompress),
                ("indices", indices),
                ("flags", flags),
                ("validity", validity),
                ("fixed", fixed),
                ("words", words),
                ("strings", strings),
            )
        }
    )


def warm_up(kernels: BulkKernels) -> None:
    """Compiles every kernel for the types of its arguments, by calls without chunks."""
    bytes_, numbers = np.zeros(64, np.uint8), np.zeros(0, np.int64)
    pages, some, status = np.zeros((0, COLUMNS), np.int64), np.zeros(0, np.int32), numbers.copy()
    valid, nulls, offsets = np.zeros(0, np.uint8), numbers.copy(), np.zeros(1, np.int32)
    one = np.zeros(1, np.int64)
    kernels.walk(bytes_, numbers, numbers, numbers, status, pages, np.zeros(80, np.int64))
    kernels.decompress(bytes_, pages, numbers, numbers, status, bytes_)
    kernels.words(bytes_, pages, numbers, numbers, numbers, status, offsets, bytes_)
    for optional in (False, True):
        kernels.indices(
            bytes_, pages, numbers, optional, numbers, numbers, numbers, status, some, valid, nulls
        )
        kernels.flags(
            bytes_, pages, numbers, optional, numbers, numbers, numbers, status, valid, valid,
            valid, nulls, some,
        )  # fmt: skip
        kernels.validity(bytes_, pages, numbers, optional, numbers, status, valid, nulls)
        kernels.strings(
            bytes_, pages, numbers, optional, one, numbers, numbers, offsets, bytes_, status,
            offsets, bytes_, valid, nulls, some,
        )  # fmt: skip
        for width in (4, 8):
            out = np.zeros(0, f"u{width}")
            kernels.fixed(
                bytes_, pages, numbers, optional, numbers, numbers, numbers, out.view(np.uint8),
                status, out, valid, nulls, some,
            )  # fmt: skip
