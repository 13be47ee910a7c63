"""Compiled loops that take a few values among many.

``choose`` finds the pages that hold chosen rows. ``locate`` finds where these rows are stored. It
decompresses only the pages that hold one, and the beginning of a dictionary.

Every length and place in a page is checked before use. See ``bulk_jit``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba.extending import register_jitable

from skipstone.parquet.encodings import jit_runs as runs
from skipstone.parquet.encodings.jit_runs import load
from skipstone.parquet.format.enums import Encoding

from .bulk_chunks import (
    CHUNK,
    ENCODING,
    FIRST,
    LEVELS,
    PLACE,
    READY,
    SIZE,
    VALUES,
    VERSION,
)
from .bulk_pages_jit import hybrid, is_one_run, levels_of, move, unpacked

_PLAIN: Final = int(Encoding.PLAIN)
_PLAIN_DICTIONARY: Final = int(Encoding.PLAIN_DICTIONARY)
_RLE_DICTIONARY: Final = int(Encoding.RLE_DICTIONARY)
# Most bytes of a page of indices: ``_CODED`` per row, levels included, and ``_CODED_MORE``. A
# longer page is plain, and so are the pages after it, because writers do not go back to a
# dictionary. If one does, ``locate`` lacks the dictionary, and ``FileReader`` reads the rows.
_CODED: Final = 6
_CODED_MORE: Final = 4096
_number = register_jitable(runs.number)


@register_jitable
def _validity(body: Any, count: Any, valid: Any, to: Any) -> Any:
    """Decodes levels of one bit into flags; returns how many are set, or -1."""
    if is_one_run(body, count, 1):
        return count
    flags = valid[to : to + count]
    if hybrid(body, 1, flags) < 0:
        return -1
    total: Any = 0
    for k in range(count):
        total += np.int64(flags[k])
    return total


@register_jitable
def after_levels(plain: Any, page: Any, optional: Any, valid: Any, to: Any) -> Any:
    """Where the values of a page begin, and how many there are; -1 where levels are wrong."""
    start, count = page[PLACE], page[VALUES]
    if not optional:
        return start + max(page[LEVELS], np.int64(0)), count
    start, stop = levels_of(plain, page)
    if stop < 0:
        return start, np.int64(-1)
    return stop, _validity(plain[start:stop], count, valid, to)


@register_jitable
def _some_codes(body: Any, width: Any, wanted: Any, out: Any) -> Any:
    """Decodes the indices at the places ``wanted``, ascending; returns whether the runs hold
    them."""
    at: Any = 0
    first: Any = np.int64(0)
    k, size = 0, (width + 7) >> 3
    while k < len(wanted):
        word, start = runs.leb128(body, at)
        header = np.int64(word)
        if start < 0 or header < 0:
            return False
        run, rest = header >> 1, len(body) - start
        if header & 1:
            if run > rest // width:
                held, at = 8 * rest // width, len(body)
            else:
                held, at = 8 * run, start + run * width
            while k < len(wanted) and wanted[k] - first < held:
                bit = 8 * start + (wanted[k] - first) * width
                byte = bit >> 3
                if byte + 8 <= len(body):
                    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
                    out[k] = np.int32(load(body, byte) >> np.uint64(bit & 7) & mask)
                else:
                    out[k] = np.int32(_number(body, bit, width))
                k += 1
        else:
            if size > rest:
                return False
            value = _number(body, 8 * start, 8 * size)
            if value >> np.uint64(width):
                return False
            held, at = run, start + size
            while k < len(wanted) and wanted[k] - first < held:
                out[k] = np.int32(value)
                k += 1
        first += held
        if at >= len(body) and k < len(wanted):
            return False
    return True


@register_jitable
def _coded(plain: Any, start: Any, stop: Any, entries: Any, wanted: Any, out: Any) -> Any:
    """The largest of the indices of a page at the places ``wanted``; -1 where one is wrong."""
    if start >= stop:
        return np.int64(-1)
    width = np.int64(plain[start])
    if width == 0:
        out[:] = 0
    elif width > 31 or not _some_codes(plain[start + 1 : stop], width, wanted, out):
        return np.int64(-1)
    most = np.int64(0)
    for k in range(len(wanted)):
        most = max(most, np.int64(out[k]))
    return most if most < entries else np.int64(-1)


@register_jitable
def _levels(data: Any, page: Any, plain: Any, optional: Any) -> Any:
    """Decompresses the levels of a page; returns whether it has them."""
    if not optional:
        return unpacked(data, page, plain, max(page[LEVELS], np.int64(0)))
    if page[VERSION] == 2:
        return unpacked(data, page, plain, page[LEVELS])
    if page[SIZE] < 4 or not unpacked(data, page, plain, np.int64(4)):
        return False
    length = np.int64(load(plain, page[PLACE]) & np.uint64(0xFFFFFFFF))
    return length <= page[SIZE] - 4 and unpacked(data, page, plain, 4 + length)


@register_jitable
def _find_strings(
    data: Any, plain: Any, page: Any, start: Any, wanted: Any, where: Any, size: Any, slot: Any
) -> Any:
    """Finds place and length of the ``wanted`` plain strings, counted from ``start``; returns
    whether the page has them."""
    origin, passed, place = page[PLACE], np.int64(0), start
    stop = origin + page[SIZE]
    for n in range(len(wanted)):
        while True:
            if stop - place < 4:
                return False
            after = place - origin + 4
            if page[READY] < after and not unpacked(data, page, plain, after):
                return False
            length = np.int64(load(plain, place) & np.uint64(0xFFFFFFFF))
            place += 4
            if length > stop - place:
                return False
            passed += 1
            if passed > wanted[n]:
                break
            place += length
        if not unpacked(data, page, plain, place - origin + length):
            return False
        where[slot[n]], size[slot[n]] = place, length
        place += length
    return True


@register_jitable
def _in_page(
    data: Any, plain: Any, page: Any, rows: Any, width: Any, optional: Any, entries: Any,
    where: Any, size: Any, valid: Any, wanted: Any, slot: Any, codes: Any,
) -> Any:  # fmt: skip
    """Finds the values of ``rows`` in one page; in a page by dictionary their indices, with -2 as
    sizes. Returns the largest index, -1 without any, or -2 if the page is damaged."""
    wrong, origin = np.int64(-2), page[PLACE]
    stop = origin + page[SIZE]
    if not _levels(data, page, plain, optional):
        return wrong
    start, held = after_levels(plain, page, optional, valid, 0)
    if held < 0 or start > stop:
        return wrong
    found: Any = np.int64(0)
    if held == page[VALUES]:
        for k in range(len(rows)):
            wanted[k], slot[k] = rows[k] - page[FIRST], k
        found = len(rows)
    else:
        rank, row = np.int64(0), np.int64(0)
        for k in range(len(rows)):
            at = rows[k] - page[FIRST]
            while row < at:
                rank += np.int64(valid[row])
                row += 1
            if valid[at]:
                wanted[found], slot[found] = rank, k
                found += 1
            else:
                where[k], size[k] = 0, -1
    if found == 0:
        return np.int64(-1)
    encoding = page[ENCODING]
    if encoding in (_RLE_DICTIONARY, _PLAIN_DICTIONARY):
        if not unpacked(data, page, plain, page[SIZE]):
            return wrong
        some = codes[:found]
        most = _coded(plain, start, stop, entries, wanted[:found], some)
        if most < 0:
            return wrong
        for k in range(found):
            where[slot[k]], size[slot[k]] = np.int64(some[k]), -2
        return most
    if encoding != _PLAIN:
        return wrong
    if width > 0:
        last = start + (wanted[found - 1] + 1) * width
        if held * width > stop - start or not unpacked(data, page, plain, last - origin):
            return wrong
        for k in range(found):
            where[slot[k]], size[slot[k]] = start + wanted[k] * width, width
        return np.int64(-1)
    if not _find_strings(data, plain, page, start, wanted[:found], where, size, slot):
        return wrong
    return np.int64(-1)


@register_jitable
def _of_dictionary(
    data: Any, page: Any, plain: Any, width: Any, most: Any, where: Any, size: Any, starts: Any
) -> Any:
    """Turns indices, at most ``most``, into places; returns whether the dictionary has them."""
    place = page[PLACE]
    if width > 0:
        if (most + 1) * width > page[SIZE]:
            return False
        if not unpacked(data, page, plain, (most + 1) * width):
            return False
        for k in range(len(where)):
            if size[k] == -2:
                where[k], size[k] = place + where[k] * width, width
        return True
    at: Any = np.int64(0)
    for k in range(most + 1):
        if page[SIZE] - at < 4:
            return False
        if page[READY] < at + 4 and not unpacked(data, page, plain, at + 4):
            return False
        at += 4
        starts[k] = place + at
        at += np.int64(load(plain, place + at - 4) & np.uint64(0xFFFFFFFF))
        if at > page[SIZE]:
            return False
    if not unpacked(data, page, plain, at):
        return False
    for k in range(len(where)):
        if size[k] == -2:
            where[k] = starts[where[k]]
            size[k] = np.int64(load(plain, where[k] - 4) & np.uint64(0xFFFFFFFF))
    return True


def choose(
    table: Any, of: Any, dictionary: Any, rows: Any, rows_of: Any, ranges: Any, spans: Any,
    first: Any, begins: Any, at: Any,
) -> Any:  # fmt: skip
    """Finds the entries (``few_rows``) of one column that hold any of ``rows``. Returns how many,
    or -1 if a row is in none. Part ``p`` has the entries ``table[of[p]:of[p + 1]]`` and the rows
    from ``rows_of[p]`` on.

    ``spans`` are the numbers of ``ranges`` to read for the parts, ``first`` the rows of the chosen
    entries before each part, ``begins`` those before each entry, ``at`` where ``rows`` are among
    them.
    """
    chosen, count, held = 0, 0, np.int64(0)
    for p in range(len(of) - 1):
        k, stop, before = rows_of[p], rows_of[p + 1], count
        for e in range(of[p], of[p + 1]):
            start, after = table[e, 2], table[e, 2] + table[e, 3]
            if k == stop or rows[k] < start:
                break
            if rows[k] >= after:
                continue
            is_coded = table[e, 1] <= _CODED * table[e, 3] + _CODED_MORE
            if is_coded and count == before and dictionary[p, 1] > 0:
                ranges[count, 0], ranges[count, 1] = dictionary[p, 0], dictionary[p, 1]
                count += 1
            ranges[count, 0], ranges[count, 1] = table[e, 0], table[e, 1]
            count += 1
            begins[chosen] = held
            chosen += 1
            most = min(after - rows[k], stop - k)
            if rows[k + most - 1] - rows[k] == most - 1:  # these follow one another
                inside = held + rows[k] - start
                for j in range(most):
                    at[k + j] = inside + j
                k += most
            while k < stop and rows[k] < after:
                at[k] = held + rows[k] - start
                k += 1
            held += table[e, 3]
        if k < stop:
            return -1
        spans[p], first[p + 1] = count - before, held
    return chosen


def locate(
    data: Any, pages: Any, plain: Any, optional: Any, entries: Any, status: Any, rows: Any,
    widths: Any, where: Any, size: Any, valid: Any, wanted: Any, slot: Any, codes: Any, starts: Any,
) -> None:  # fmt: skip
    """Place and length in ``plain`` of the values of ``rows``, ascending; the length is -1 for
    nulls. By chunk, ``optional`` says whether it has levels, and ``widths`` are those of a number,
    0 for strings. The last five are scratch."""
    j, n = 0, 0
    while n < len(pages) and j < len(rows):
        chunk, lo, most, dictionary = pages[n, CHUNK], j, np.int64(-1), -1
        width, has_levels = widths[chunk], optional[chunk] != 0
        while n < len(pages) and pages[n, CHUNK] == chunk:
            page, k = pages[n], j
            n += 1
            if page[VERSION] == 0:
                dictionary = n - 1
                continue
            while k < len(rows) and rows[k] < page[FIRST] + page[VALUES]:
                k += 1
            if k > j and status[chunk] == 0:
                found = _in_page(
                    data, plain, page, rows[j:k], width, has_levels, entries[chunk], where[j:k],
                    size[j:k], valid, wanted, slot, codes,
                )  # fmt: skip
                most = max(most, found)
                if found < -1:
                    status[chunk] = 4
            j = k
        if most < 0 or status[chunk] != 0:
            continue
        if dictionary < 0 or not _of_dictionary(
            data, pages[dictionary], plain, width, most, where[lo:j], size[lo:j], starts
        ):
            status[chunk] = 4


def gather(plain: Any, where: Any, size: Any, out: Any, valid: Any) -> Any:
    """Copies numbers that ``locate`` found, and flags non-nulls; returns how many are null."""
    nulls = 0
    for k in range(len(where)):
        if size[k] < 0:
            out[k], valid[k] = 0, 0
            nulls += 1
        else:
            out[k], valid[k] = load(plain, where[k]), 1
    return nulls


def copy_some(plain: Any, where: Any, size: Any, offsets: Any, out: Any) -> None:
    """Strings that were found, one after another; ``offsets`` say where each begins."""
    for k in range(len(where)):
        if size[k] > 0:
            move(plain, where[k], out, np.int64(offsets[k]), size[k])
