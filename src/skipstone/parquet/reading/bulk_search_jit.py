"""Compiled loops that find values that may meet a condition, in plain pages and in dictionaries.

Numbers, and eight bytes of texts, are compared as unsigned numbers with spans; or a text
is searched for in all bytes of a page at once (``pruning.sought`` says why that is sound).

Every length and place in a page is checked before use. See ``bulk_jit``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba.extending import register_jitable

from skipstone.parquet.encodings.jit_runs import load
from skipstone.parquet.format.enums import Encoding

from .bulk_chunks import CHUNK, ENCODING, FIRST, PLACE, SIZE, VALUES, VERSION
from .bulk_pages_jit import as_float, as_word, equal64, lowest, swapped, unpacked
from .bulk_select_jit import after_levels

_PLAIN: Final = int(Encoding.PLAIN)
# Physical types of ``candidates``.
_STRING: Final = 0
_INT32: Final = 1
_INT64: Final = 2
_FLOAT: Final = 3
_DOUBLE: Final = 4
# How many numbers are compared before any result is examined.
_BLOCK: Final = 64
# With more spans, only the hash is tested: each step of a search waits for memory, and the exact
# decision searches for the remaining ones in order.
_SEARCHED: Final = 1 << 14


# Inlined, because a call that passes arrays with their reference counts takes longer than these
# functions.
@register_jitable(forceinline=True)
def _text_key(plain: Any, at: Any, length: Any) -> Any:
    """The first eight bytes of a text as a number."""
    word = swapped(load(plain, at))
    if length < 8:
        word = word >> np.uint64(64 - 8 * max(length, 1)) << np.uint64(64 - 8 * max(length, 1))
    return word if length > 0 else np.uint64(0)


@register_jitable(forceinline=True)
def _number_key(plain: Any, at: Any, kind: Any) -> Any:
    """A number as an unsigned one of the same order."""
    word, high = load(plain, at), np.uint64(1) << np.uint64(63)
    if kind == _INT64:
        key = word ^ high
    elif kind == _INT32:
        key = np.uint64(np.int64(np.int32(word & np.uint64(0xFFFFFFFF)))) ^ high
    else:
        if kind == _FLOAT:
            word = as_word(np.float64(as_float(word)))
        key = ~word if word & high else word | high
    return key


@register_jitable(forceinline=True)
def _wide_key(plain: Any, at: Any, negative: Any) -> Any:
    """``_number_key`` for eight bytes, without a branch; ``negative`` are the bits to invert in a
    negative number, besides its sign."""
    word = load(plain, at)
    turned = np.uint64(np.int64(word) >> 63) & negative
    return word ^ (turned | np.uint64(1) << np.uint64(63))


@register_jitable(forceinline=True)
def _hash(key: Any, shift: Any) -> Any:
    return (key * np.uint64(0x9E3779B97F4A7C15)) >> shift


@register_jitable
def _shift(bits: Any) -> Any:
    """The shift that makes a hash a place in ``bits``, whose words are a power of two."""
    left, words = np.uint64(58), len(bits)
    while words > 1:
        words >>= 1
        left -= np.uint64(1)
    return left


@register_jitable
def _inside(key: Any, lows: Any, highs: Any) -> Any:
    """Whether a key is in one of the spans, which ascend."""
    first, last = 0, len(lows)
    while first < last:
        middle = (first + last) >> 1
        if highs[middle] < key:
            first = middle + 1
        else:
            last = middle
    return first < len(lows) and lows[first] <= key


@register_jitable
def _ends(lows: Any, highs: Any) -> Any:
    """The first and the last span; two empty ones where there is none."""
    if len(lows) == 0:
        one, none = np.uint64(1), np.uint64(0)
        return one, none, one, none
    return lows[0], highs[0], lows[-1], highs[-1]


@register_jitable
def _search(plain: Any, at: Any, stop: Any, needle: Any, one: Any, two: Any) -> Any:
    """Where ``needle`` first occurs between ``at`` and ``stop``, or -1. It holds a text in two
    spellings, and each byte may be that of either. The bytes ``one`` and ``two`` are compared in 64
    places at once."""
    size = len(needle) >> 1
    last, first, second = stop - size, needle[one], needle[two]
    other, another = needle[size + one], needle[size + two]
    any_case = first != other or second != another
    while at <= last:
        bits, more = equal64(plain, at + one, first), equal64(plain, at + two, second)
        if any_case:
            bits |= equal64(plain, at + one, other)
            more |= equal64(plain, at + two, another)
        bits &= more
        while bits:
            found = at + lowest(bits)
            bits &= bits - np.uint64(1)
            if found > last:
                return np.int64(-1)
            k = 0
            while k < size and plain[found + k] in (needle[k], needle[size + k]):
                k += 1
            if k == size:
                return found
        at += 64
    return np.int64(-1)


@register_jitable
def _texts(
    plain: Any, start: Any, stop: Any, count: Any, needle: Any, one: Any, two: Any, skip: Any,
    lows: Any, highs: Any, bits: Any, slot: Any, where: Any, size: Any, m: Any,
) -> Any:  # fmt: skip
    """Adds the candidates among ``count`` strings. Returns how many there are now, -1 if there is
    no room for them, -2 if a length is wrong."""
    at, to, found = start, start, np.int64(-1)
    searched, spans, shift = len(needle) >> 1, len(lows), _shift(bits)
    low, high, low2, high2 = _ends(lows, highs)
    if searched > 0:
        found = _search(plain, at, stop, needle, one, two)
        if found < 0:  # whatever the lengths are
            return m
    for k in range(count):
        if stop - at < 4:
            return np.int64(-2)
        length = np.int64(load(plain, at) & np.uint64(0xFFFFFFFF))
        at += 4
        if length > stop - at:
            return np.int64(-2)
        to = at + length
        if searched > 0:
            if found < at:
                found = _search(plain, at, stop, needle, one, two)
            if found < 0:
                return m
            if found + searched > to:
                at = to
                continue
        elif spans > 0:
            key = np.uint64(0)
            if length > skip:
                key = _text_key(plain, at + skip, length - skip)
            if spans > 2:
                hash = _hash(key, shift)
                if not bits[hash >> np.uint64(6)] >> (hash & np.uint64(63)) & np.uint64(1):
                    at = to
                    continue
                if spans <= _SEARCHED and not _inside(key, lows, highs):
                    at = to
                    continue
            elif not (low <= key <= high or low2 <= key <= high2):
                at = to
                continue
        if m == len(slot):
            return np.int64(-1)
        slot[m], where[m], size[m] = k, at, length
        m += 1
        at = to
    return m


@register_jitable
def _numbers(
    plain: Any, start: Any, stop: Any, count: Any, width: Any, kind: Any, lows: Any, highs: Any,
    bits: Any, slot: Any, where: Any, size: Any, m: Any,
) -> Any:  # fmt: skip
    """``_texts`` for numbers."""
    if count * width > stop - start:
        return np.int64(-2)
    if len(lows) > 2:
        shift = _shift(bits)
        for k in range(count):
            key = _number_key(plain, start + k * width, kind)
            hash = _hash(key, shift)
            if not bits[hash >> np.uint64(6)] >> (hash & np.uint64(63)) & np.uint64(1):
                continue
            if len(lows) > _SEARCHED or _inside(key, lows, highs):
                if m == len(slot):
                    return np.int64(-1)
                slot[m], where[m], size[m] = k, start + k * width, width
                m += 1
        return m
    low, high, low2, high2 = _ends(lows, highs)
    negative = ~np.uint64(0) if kind == _DOUBLE else np.uint64(0)
    # Most blocks have no candidate, and a loop without branches compares several numbers at once.
    for block in range(0, count, _BLOCK):
        end, some = min(block + _BLOCK, count), False
        if width == 8:
            for k in range(block, end):
                key = _wide_key(plain, start + k * 8, negative)
                some |= ((low <= key) & (key <= high)) | ((low2 <= key) & (key <= high2))
        else:
            for k in range(block, end):
                key = _number_key(plain, start + k * 4, kind)
                some |= ((low <= key) & (key <= high)) | ((low2 <= key) & (key <= high2))
        if not some:
            continue
        for k in range(block, end):
            key = _number_key(plain, start + k * width, kind)
            if (low <= key <= high) or (low2 <= key <= high2):
                if m == len(slot):
                    return np.int64(-1)
                slot[m], where[m], size[m] = k, start + k * width, width
                m += 1
    return m


@register_jitable
def _to_rows(slot: Any, first: Any, whole: Any, valid: Any) -> None:
    """Places among the values of a page, ascending, into rows; ``whole``: none is null."""
    if whole:
        for k in range(len(slot)):
            slot[k] += first
        return
    k, rank = 0, np.int64(0)
    for row in range(len(valid)):
        if valid[row]:
            if k < len(slot) and slot[k] == rank:
                slot[k] = first + row
                k += 1
            rank += 1


def candidates(
    data: Any, pages: Any, plain: Any, optional: Any, base: Any, entries: Any, status: Any,
    kind: Any, lows: Any, highs: Any, bits: Any, needle: Any, one: Any, two: Any, skip: Any,
    slot: Any, where: Any, size: Any, valid: Any,
) -> Any:  # fmt: skip
    """Finds the values of plain pages and of dictionaries that are in one of the spans, or contain
    ``needle``; all without either. Stores place and length in ``plain``; returns how many, or -1 if
    there is no room. Spans are about texts without their first ``skip`` bytes.

    ``slot`` is the row, or ``~w`` for entry ``w`` of the dictionaries, which begin at ``base``.
    """
    m: Any = np.int64(0)
    for n in range(len(pages)):
        page = pages[n]
        chunk, count, first = page[CHUNK], page[VALUES], page[FIRST]
        is_words = page[VERSION] == 0
        if status[chunk] != 0 or (not is_words and page[ENCODING] != _PLAIN):
            continue
        if not unpacked(data, page, plain, page[SIZE]):
            status[chunk] = 2
            continue
        start, stop, held = page[PLACE], page[PLACE] + page[SIZE], entries[chunk]
        if not is_words:
            start, held = after_levels(plain, page, optional, valid, 0)
        if held < 0 or start > stop:
            status[chunk] = 4
            continue
        before = m
        if kind == _STRING:
            m = _texts(
                plain, start, stop, held, needle, one, two, skip, lows, highs, bits, slot, where,
                size, m,
            )  # fmt: skip
        elif kind == _INT32:
            m = _numbers(
                plain, start, stop, held, 4, _INT32, lows, highs, bits, slot, where, size, m
            )
        elif kind == _INT64:
            m = _numbers(
                plain, start, stop, held, 8, _INT64, lows, highs, bits, slot, where, size, m
            )
        elif kind == _FLOAT:
            m = _numbers(
                plain, start, stop, held, 4, _FLOAT, lows, highs, bits, slot, where, size, m
            )
        else:
            m = _numbers(
                plain, start, stop, held, 8, _DOUBLE, lows, highs, bits, slot, where, size, m
            )
        if m == -1:
            return m
        if m < 0:
            status[chunk] = 4
            m = before
        elif is_words:
            for k in range(before, m):
                slot[k] = ~(base[chunk] + slot[k])
        else:
            _to_rows(slot[before:m], first, held == count, valid[:count])
    return m
