"""``kernels.Kernels`` compiled by numba: imported only where there is enough to decode.

Machine code is cached in a folder that can be written, so that only the first process on a machine
compiles it; each kernel is compiled when it is first called.

Strings are copied eight bytes at a time (``words.py``), so that up to 7 bytes too many are read and
written: room is left for them, and the next string overwrites them. The loop is written out where
it is needed, because numba counts references to each array that is passed to a function, which
takes longer than most strings.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numba import njit
from numba.extending import register_jitable

from .kernels import NUMPY, Kernels
from .values import as_bytes
from .words import CHECKED, load, store

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .values import I64, U8

__all__ = ["COMPILED"]

# What may be written beyond the last string.
_ROOM: Final = 16


@register_jitable
def _number(data: Any, bit: Any, width: Any) -> Any:
    at = bit >> 3
    value = np.uint64(data[at]) >> np.uint64(bit & 7)
    got = 8 - (bit & 7)
    while got < width:
        at += 1
        value |= np.uint64(data[at]) << np.uint64(got)
        got += 8
    return value & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width))


@register_jitable
def _leb128(data: Any, at: Any) -> Any:
    value = np.uint64(0)
    for k in range(10):
        if at + k >= len(data):
            break
        byte = np.uint64(data[at + k])
        if k == 9 and byte > np.uint64(1):
            break
        value |= (byte & np.uint64(0x7F)) << np.uint64(7 * k)
        if byte < np.uint64(0x80):
            return value, at + k + 1
    return np.uint64(0), -1


@register_jitable
def _unpack(data: Any, at: Any, width: Any, out: Any, to: Any, count: Any) -> None:
    w = np.uint64(width)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    done = 0
    if width <= 8:  # one word holds eight values
        while count - done >= 8 and at + 8 <= len(data):
            word = load(data, at)
            for k in range(8):
                out[to + done + k] = word & mask
                word >>= w
            at, done = at + width, done + 8
    elif width <= 57:  # one word holds a value, whatever bit of its first byte it begins with
        b1, b2, b3, b4 = width >> 3, 2 * width >> 3, 3 * width >> 3, 4 * width >> 3
        b5, b6, b7 = 5 * width >> 3, 6 * width >> 3, 7 * width >> 3
        seven = np.uint64(7)
        s1, s2, s3 = w & seven, np.uint64(2) * w & seven, np.uint64(3) * w & seven
        s4, s5 = np.uint64(4) * w & seven, np.uint64(5) * w & seven
        s6, s7 = np.uint64(6) * w & seven, np.uint64(7) * w & seven
        while count - done >= 8 and at + b7 + 8 <= len(data):
            i = to + done
            out[i] = load(data, at) & mask
            out[i + 1] = (load(data, at + b1) >> s1) & mask
            out[i + 2] = (load(data, at + b2) >> s2) & mask
            out[i + 3] = (load(data, at + b3) >> s3) & mask
            out[i + 4] = (load(data, at + b4) >> s4) & mask
            out[i + 5] = (load(data, at + b5) >> s5) & mask
            out[i + 6] = (load(data, at + b6) >> s6) & mask
            out[i + 7] = (load(data, at + b7) >> s7) & mask
            at, done = at + width, done + 8
    bit = 8 * at
    if width > 57:  # one word, and what the next byte has
        while done < count and (bit >> 3) + 9 <= len(data):
            shift = np.uint64(bit & 7)
            rest = np.uint64(data[(bit >> 3) + 8]) << np.uint64(1) << (np.uint64(63) - shift)
            out[to + done] = (load(data, bit >> 3) >> shift | rest) & mask
            bit, done = bit + width, done + 1
    for k in range(count - done):
        out[to + done + k] = _number(data, bit + k * width, width)


def _plain(data: Any, offsets: Any, out: Any) -> Any:
    at: Any = 0
    to: Any = 0
    offsets[0] = 0
    for i in range(len(offsets) - 1):
        if len(data) - at < 4:
            return ~at
        if len(data) - at < 8:
            length = np.int64(_number(data, 8 * at, 32))
        else:
            length = np.int64(load(data, at) & np.uint64(0xFFFFFFFF))
        start = at + 4
        if length > len(data) - start:
            return ~at
        if length + _ROOM > len(data) - start:
            for k in range(length):
                out[to + k] = data[start + k]
        else:
            store(out, to, load(data, start))
            store(out, to + 8, load(data, start + 8))
            for k in range(16, length, 8):
                store(out, to + k, load(data, start + k))
        at = start + length
        to += length
        offsets[i + 1] = to
    return at


def _hybrid(data: Any, width: Any, out: Any) -> Any:
    at: Any = 0
    filled: Any = 0
    size = (width + 7) >> 3
    while filled < len(out):
        word, start = _leb128(data, at)
        header = np.int64(word)
        if start < 0 or header < 0:
            return ~at
        run, left, rest = header >> 1, len(out) - filled, len(data) - start
        if header & 1:
            taken = left if run >= (left + 7) >> 3 else run * 8
            if (taken * width + 7) >> 3 > rest:
                return ~at
            _unpack(data, start, width, out, filled, taken)
            at = len(data) if run > rest // width else start + run * width
        else:
            taken = min(run, left)
            if size > rest:
                return ~at
            value = _number(data, 8 * start, 8 * size)
            if width < 64 and value >> np.uint64(width):
                return ~at
            for k in range(taken):
                out[filled + k] = value
            at = start + size
        filled += taken
    return at


def _held(data: Any, width: Any, count: Any) -> Any:
    at: Any = 0
    held: Any = 0
    size = (width + 7) >> 3
    while held < count and at < len(data):
        word, start = _leb128(data, at)
        header = np.int64(word)
        if start < 0 or header < 0:
            break
        run, rest = header >> 1, len(data) - start
        if header & 1:
            held += rest * 8 // width if run >= (rest * 8 // width + 7) >> 3 else run * 8
            at = len(data) if run > rest // width else start + run * width
        else:
            held += min(run, count)
            at = start + size
    return min(held, count)


def _delta(data: Any, at: Any, per_miniblock: Any, miniblocks: Any, out: Any, some: Any) -> Any:
    value = np.uint64(np.int64(out[0]))
    filled: Any = 1
    while filled < len(out):
        zigzag, widths = _leb128(data, at)
        if widths < 0 or miniblocks > len(data) - widths:
            return ~at
        least = (zigzag >> np.uint64(1)) ^ (np.uint64(0) - (zigzag & np.uint64(1)))
        body = widths + miniblocks
        for miniblock in range(miniblocks):
            taken = min(per_miniblock, len(out) - filled)
            if taken == 0:
                break
            width = np.int64(data[widths + miniblock])
            if width > 64 or (taken * width + 7) >> 3 > len(data) - body:
                return ~at
            if width == 0:
                for k in range(taken):
                    value += least
                    out[filled + k] = np.int64(value)
            else:
                # In steps, so that what is unpacked stays in the nearest cache.
                for first in range(0, taken, len(some)):
                    here = min(len(some), taken - first)
                    _unpack(data, body + (first * width >> 3), width, some, 0, here)
                    for k in range(here):
                        value += least + some[k]
                        out[filled + first + k] = np.int64(value)
            filled += taken
            body = min(len(data), body + (per_miniblock * width >> 3))
        at = body
    return at


def _lengths(offsets: Any, indices: Any, ends: Any) -> Any:
    total: Any = 0
    ends[0] = 0
    for i in range(len(indices)):
        index = np.int64(indices[i])
        if index < 0 or index >= len(offsets) - 1:
            return ~i
        total += offsets[index + 1] - offsets[index]
        ends[i + 1] = total
    return total


def _copy(data: Any, offsets: Any, indices: Any, ends: Any, out: Any) -> None:
    for i in range(len(indices)):
        to, length, start = ends[i], ends[i + 1] - ends[i], offsets[np.int64(indices[i])]
        if length + _ROOM > len(data) - start:
            for k in range(length):
                out[to + k] = data[start + k]
        else:
            store(out, to, load(data, start))
            store(out, to + 8, load(data, start + 8))
            for k in range(16, length, 8):
                store(out, to + k, load(data, start + k))


def _expand(prefixes: Any, data: Any, offsets: Any, ends: Any, out: Any) -> None:
    last: Any = 0
    for i in range(len(prefixes)):
        to, prefix = ends[i], prefixes[i]
        # The string before ends at or before `to`: what is read beyond it is overwritten.
        for k in range(0, prefix, 8):
            store(out, to + k, load(out, last + k))
        last = to
        to, length, start = to + prefix, offsets[i + 1] - offsets[i], offsets[i]
        if length + _ROOM > len(data) - start:
            for k in range(length):
                out[to + k] = data[start + k]
        else:
            store(out, to, load(data, start))
            store(out, to + 8, load(data, start + 8))
            for k in range(16, length, 8):
                store(out, to + k, load(data, start + k))


def _shared(data: Any, offsets: Any, shared: Any) -> None:
    for i in range(1, len(shared)):
        last, start = offsets[i - 1], offsets[i]
        most = min(start - last, offsets[i + 1] - start)
        same = 0
        while same < most and data[last + same] == data[start + same]:
            same += 1
        shared[i] = same


def _items(values: Any, indices: Any, out: Any) -> bool:
    for i in range(len(indices)):
        index = np.int64(indices[i])
        if index < 0 or index >= len(values):
            return False
        out[i] = values[index]
    return True


def _rows(data: Any, width: Any, indices: Any, out: Any) -> bool:
    whole = width >> 3 << 3
    for i in range(len(indices)):
        index = np.int64(indices[i])
        if index < 0 or (index + 1) * width > len(data):
            return False
        start, to = index * width, i * width
        for k in range(0, whole, 8):
            store(out, to + k, load(data, start + k))
        for k in range(whole, width):
            out[to + k] = data[start + k]
    return True


def _join4(data: Any, out: Any) -> None:
    n = len(out)
    for i in range(n):
        out[i] = (
            np.uint32(data[i])
            | np.uint32(data[n + i]) << np.uint32(8)
            | np.uint32(data[2 * n + i]) << np.uint32(16)
            | np.uint32(data[3 * n + i]) << np.uint32(24)
        )


def _join8(data: Any, out: Any) -> None:
    n = len(out)
    for i in range(n):
        out[i] = (
            np.uint64(data[i])
            | np.uint64(data[n + i]) << np.uint64(8)
            | np.uint64(data[2 * n + i]) << np.uint64(16)
            | np.uint64(data[3 * n + i]) << np.uint64(24)
            | np.uint64(data[4 * n + i]) << np.uint64(32)
            | np.uint64(data[5 * n + i]) << np.uint64(40)
            | np.uint64(data[6 * n + i]) << np.uint64(48)
            | np.uint64(data[7 * n + i]) << np.uint64(56)
        )


def _join(data: Any, width: Any, out: Any) -> None:
    n = len(data) // width
    for start in range(0, n, 512):  # the part of the result that is written stays in the cache
        for k in range(width):
            for i in range(start, min(n, start + 512)):
                out[i * width + k] = data[k * n + i]


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        made: Callable[..., Any] = njit(cache=not CHECKED, nogil=True)(function)
    except RuntimeError:  # no folder for the cache can be written
        made = njit(nogil=True)(function)
    return made


def _fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, read-only: one kind of array is one compilation."""
    made = array.view()
    made.flags.writeable = False
    return made


def plain(data: U8, count: int) -> tuple[I64, U8, int]:
    offsets, out = np.empty(count + 1, np.int64), np.empty(len(data) + _ROOM, np.uint8)
    end = int(_compile(_plain)(data, offsets, out))
    return offsets, out[: 0 if end < 0 else int(offsets[-1])], end


def hybrid(data: U8, width: int, out: npt.NDArray[Any]) -> int:
    return int(_compile(_hybrid)(data, width, out))


def held(data: U8, width: int, count: int) -> int:
    return int(_compile(_held)(data, width, count))


def delta(data: U8, at: int, per_miniblock: int, miniblocks: int, out: npt.NDArray[Any]) -> int:
    some = np.empty(256, np.uint64)
    return int(_compile(_delta)(data, at, per_miniblock, miniblocks, out, some))


def lengths(offsets: I64, indices: npt.NDArray[Any], ends: I64) -> int:
    return int(_compile(_lengths)(_fixed(offsets), _fixed(indices), ends))


def copy(data: U8, offsets: I64, indices: npt.NDArray[Any], ends: I64) -> U8:
    total = int(ends[-1])
    out = np.empty(total + _ROOM, np.uint8)
    _compile(_copy)(data, _fixed(offsets), _fixed(indices), _fixed(ends), out)
    return out[:total]


def expand(prefixes: I64, data: U8, offsets: I64, ends: I64) -> U8:
    total = int(ends[-1])
    out = np.empty(total + _ROOM, np.uint8)
    _compile(_expand)(_fixed(prefixes), data, _fixed(offsets), _fixed(ends), out)
    return out[:total]


def shared(data: U8, offsets: I64) -> I64:
    made = np.zeros(len(offsets) - 1, np.int64)
    _compile(_shared)(data, _fixed(offsets), made)
    return made


def rows(values: npt.NDArray[Any], indices: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    if not values.flags.c_contiguous or not values.nbytes:
        return NUMPY.rows(values, indices)
    if values.ndim == 1 and values.itemsize in (4, 8):
        word = np.dtype(f"u{values.itemsize}")
        items, out = _fixed(values.view(word)), np.empty(len(indices), word)
        return out.view(values.dtype) if _compile(_items)(items, _fixed(indices), out) else None
    if values.ndim == 2 and values.dtype == np.uint8:
        width = values.shape[1]
        out = np.empty((len(indices), width), np.uint8)
        taken = _compile(_rows)(as_bytes(values), width, _fixed(indices), out.reshape(-1))
        return out if taken else None
    return NUMPY.rows(values, indices)


def join(data: U8, width: int) -> U8:
    count = len(data) // width
    if width in (4, 8):
        words = np.empty(count, f"u{width}")
        _compile(_join4 if width == 4 else _join8)(data, words)
        return words.view(np.uint8)
    out = np.empty(len(data), np.uint8)
    _compile(_join)(data, width, out)
    return out


COMPILED: Final = Kernels(
    plain=plain,
    hybrid=hybrid,
    held=held,
    delta=delta,
    lengths=lengths,
    copy=copy,
    expand=expand,
    shared=shared,
    rows=rows,
    join=join,
)
