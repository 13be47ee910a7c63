"""Compiled loops over runs and miniblocks, and the access to eight bytes that they use.

``load(data, at)`` and ``store(data, at, word)`` take eight bytes at any place as one little-endian
number. NumPy has no such access, and bytes one by one are several times slower. Callers ensure
``0 <= at <= len(data) - 8``; ``NUMBA_BOUNDSCHECK=1`` checks it, as for numba's own accesses.
The loops are plain functions: ``jit.py`` compiles those that ``kernels.Kernels`` names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, register_jitable

#: Whether accesses are checked. On disk, files of checked code have other names
#: (``_numba.compile_kernel``).
CHECKED = bool(config.BOUNDSCHECK)  # type: ignore[attr-defined]

_tools: Any = cgutils  # llvmlite and numba's code generation have no types


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    held = context.make_array(kind)(context, builder, array)
    if CHECKED:
        length = builder.extract_value(held.shape, 0)
        least = context.get_constant(types.intp, 7)
        _tools.do_boundscheck(context, builder, at, builder.sub(length, least), 0)
    place = builder.gep(held.data, [at])
    return builder.bitcast(place, context.get_value_type(types.uint64).as_pointer())


def _load(typing_context: Any, data: Any, at: Any) -> Any:
    """The number at byte ``at``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], arguments[0], arguments[1])
        return builder.load(place, align=1)

    return types.uint64(data, types.intp), code


def _store(typing_context: Any, data: Any, at: Any, word: Any) -> Any:
    """Writes the number at byte ``at``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], arguments[0], arguments[1])
        builder.store(arguments[2], place, align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, types.uint64), code


# numba passes the typing context; a type checker would expect it from the callers.
load: Any = intrinsic(_load)
store: Any = intrinsic(_store)


@register_jitable
def number(data: Any, bit: Any, width: Any) -> Any:
    """The ``width`` (1 to 64) bits from ``bit`` on."""
    at = bit >> 3
    value = np.uint64(data[at]) >> np.uint64(bit & 7)
    got = 8 - (bit & 7)
    while got < width:
        at += 1
        value |= np.uint64(data[at]) << np.uint64(got)
        got += 8
    return value & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width))


@register_jitable
def leb128(data: Any, at: Any) -> Any:
    """An unsigned number of at most 64 bits, and the place after it; -1 if it is cut or longer."""
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
                out[np.uint64(to + done + k)] = word & mask
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
            i = np.uint64(to + done)
            out[i] = load(data, at) & mask
            out[i + np.uint64(1)] = (load(data, at + b1) >> s1) & mask
            out[i + np.uint64(2)] = (load(data, at + b2) >> s2) & mask
            out[i + np.uint64(3)] = (load(data, at + b3) >> s3) & mask
            out[i + np.uint64(4)] = (load(data, at + b4) >> s4) & mask
            out[i + np.uint64(5)] = (load(data, at + b5) >> s5) & mask
            out[i + np.uint64(6)] = (load(data, at + b6) >> s6) & mask
            out[i + np.uint64(7)] = (load(data, at + b7) >> s7) & mask
            at, done = at + width, done + 8
    bit = 8 * at
    if width > 57:  # one word, and bits of the next byte
        while done < count and (bit >> 3) + 9 <= len(data):
            shift = np.uint64(bit & 7)
            rest = np.uint64(data[(bit >> 3) + 8]) << np.uint64(1) << (np.uint64(63) - shift)
            out[to + done] = (load(data, bit >> 3) >> shift | rest) & mask
            bit, done = bit + width, done + 1
    for k in range(count - done):
        out[to + done + k] = number(data, bit + k * width, width)


def hybrid(data: Any, width: Any, out: Any) -> Any:
    """Fills ``out`` with values of ``width`` bits; returns the end, or ``~at`` (``kernels.py``)."""
    at: Any = 0
    filled: Any = 0
    size = (width + 7) >> 3
    whole = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * size)
    while filled < len(out):
        header, start = np.int64(data[at]) if at < len(data) else np.int64(0x80), at + 1
        if header >= 0x80:
            word, start = leb128(data, at)
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
            if rest >= 8:
                value = load(data, start) & whole
            else:
                value = number(data, 8 * start, 8 * size)
            if width < 64 and value >> np.uint64(width):
                return ~at
            out[filled : filled + taken] = value
            at = start + size
        filled += taken
    return at


def held(data: Any, width: Any, count: Any) -> Any:
    """How many of ``count`` values the runs hold."""
    at: Any = 0
    held: Any = 0
    size = (width + 7) >> 3
    while held < count and at < len(data):
        word, start = leb128(data, at)
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


def delta(data: Any, at: Any, per_miniblock: Any, miniblocks: Any, out: Any, some: Any) -> Any:
    """Fills ``out[1:]`` from the blocks at ``at``; ``some`` is scratch for unpacked numbers."""
    value = np.uint64(np.int64(out[0]))
    filled: Any = 1
    while filled < len(out):
        zigzag, widths = leb128(data, at)
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
                        out[np.uint64(filled + first + k)] = np.int64(value)
            filled += taken
            body = min(len(data), body + (per_miniblock * width >> 3))
        at = body
    return at
