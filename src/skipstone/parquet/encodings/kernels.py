"""The sequential loops of the encodings, with NumPy. ``jit.py`` has the same, compiled.

Compiled ones are ten to a thousand times faster, but take time to load: ``choose`` weighs that, as
``_numba`` says. ``Kernels`` has the operations; all arrays of bytes are ``as_bytes`` ones.

A negative result means that the data end too early or are wrong: ``~at``, where the item at byte
``at`` cannot be read. No kernel reads or writes outside its arrays.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from skipstone._dataclasses import dataclass
from skipstone._numba import CompiledKernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.values import I64, U8


# Values unpacked at a time: their bits, a byte each, stay in the cache.
_CHUNK: Final = 8_192
# Strings are read as runs of one length: ``_WINDOW`` are compared with the first at once, at first.
# After a run shorter than ``_FEW``, at first ``_SINGLY`` are read one by one.
_WINDOW: Final = 256
_FEW: Final = 32
_SINGLY: Final = 64
_LENGTH: Final = struct.Struct("<I").unpack_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The operations.

    - ``plain(data, count)``: ``count`` strings, each after 4 bytes of length; offsets, bytes, end
      (``count`` is at most a quarter of the data);
    - ``hybrid(data, width, out)``: fills ``out`` (uint8, int32 or uint64) with values of ``width``
      (1 to 64) bits from a hybrid's runs; end;
    - ``held(data, width, count)``: how many of ``count`` values the hybrid's runs hold;
    - ``delta(data, at, per_miniblock, miniblocks, out)``: fills ``out[1:]`` (int32 or int64) with
      ``out[0]`` and the deltas of the blocks from ``at``; end;
    - ``lengths(offsets, indices, ends)``: fills ``ends`` with the offsets of the strings taken;
      their bytes, or ``~i`` for the first index out of range;
    - ``copy(data, offsets, indices, ends)``: the bytes of the strings taken;
    - ``expand(prefixes, data, offsets, ends)``: bytes of strings, each made of the first bytes of
      the one before and its own suffix (``ends`` is right for them);
    - ``shared(data, offsets)``: how many first bytes each string shares with the one before;
    - ``rows(values, indices, out)``: fills ``out`` with rows of ``(n, k)`` bytes or items of
      ``(n,)`` numbers; False where an index is out of range;
    - ``join(data, width, out)``: fills ``out`` with values of ``width`` bytes from as many streams.
    """

    plain: Callable[[U8, int], tuple[I64, U8, int]]
    hybrid: Callable[[U8, int, npt.NDArray[Any]], int]
    held: Callable[[U8, int, int], int]
    delta: Callable[[U8, int, int, int, npt.NDArray[Any]], int]
    lengths: Callable[[I64, npt.NDArray[Any], I64], int]
    copy: Callable[[U8, I64, npt.NDArray[Any], I64], U8]
    expand: Callable[[I64, U8, I64, I64], U8]
    shared: Callable[[U8, I64], I64]
    rows: Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]], bool]
    join: Callable[[U8, int, U8], None]


def choose(work: int) -> Kernels:
    """The kernels for ``work`` values."""
    return COMPILED.for_work(work) or NUMPY


def varint(data: U8 | bytes | memoryview, at: int) -> tuple[int, int]:
    """An unsigned LEB128 of at most 64 bits, and where it ends; -1 if it is cut or longer."""
    value = shift = 0
    for place in range(at, min(len(data), at + 10)):
        byte = int(data[place])
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, place + 1) if value < 1 << 64 else (0, -1)
        shift += 7
    return 0, -1


def unpack(data: U8, width: int, count: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    """``count`` numbers of ``width`` (1 to 64) bits, packed from the least significant bit on.

    ``data`` holds them all; the result is uint8 to uint64, the narrowest.
    """
    size = next(size for size in (1, 2, 4, 8) if width <= 8 * size)
    made = np.empty(count, f"<u{size}")
    for start in range(0, count, _CHUNK):
        here = made[start : start + _CHUNK]
        first = start * width >> 3  # whole bytes: a chunk is a multiple of 8 values
        packed = data[first : first + (len(here) * width + 7 >> 3)]
        bits = np.zeros((len(here), 8 * size), np.uint8)
        flat = np.unpackbits(packed, count=len(here) * width, bitorder="little")
        bits[:, :width] = flat.reshape(-1, width)
        here[:] = np.packbits(bits, axis=1, bitorder="little").reshape(-1).view(made.dtype)
    return made


def _plain(data: U8, count: int) -> tuple[I64, U8, int]:
    raw, parts, lengths = data.data, list[bytes](), list[int]()
    at, window, singly = 0, _WINDOW, _SINGLY
    while len(lengths) < count:
        # Strings of one length are found together.
        length = _LENGTH(raw, at)[0] if at + 4 <= len(raw) else len(raw)
        most = min(count - len(lengths), (len(raw) - at) // (4 + length), window)
        rows = data[at : at + most * (4 + length)].reshape(most, 4 + length)
        others = np.flatnonzero((rows[:, :4] != rows[:1, :4]).any(axis=1))
        run = int(others[0]) if len(others) else most
        parts.append(rows[:run, 4:].tobytes())
        lengths += [length] * run
        at += run * (4 + length)
        if run >= _FEW:
            window, singly = 2 * window, _SINGLY
            continue
        window, singly = _WINDOW, 2 * singly
        for _ in range(min(singly, count - len(lengths))):
            start = at + 4
            stop = start + _LENGTH(raw, at)[0] if start <= len(raw) else start
            if stop > len(raw):
                return np.zeros(1, np.int64), np.empty(0, np.uint8), ~at
            parts.append(raw[start:stop].tobytes())
            lengths.append(stop - start)
            at = stop
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, np.frombuffer(b"".join(parts), np.uint8), at


def _hybrid(data: U8, width: int, out: npt.NDArray[Any]) -> int:
    at = filled = 0
    size = width + 7 >> 3
    while filled < len(out):
        header, start = varint(data, at)
        if start < 0 or header >> 63:
            return ~at
        left = len(out) - filled
        if header & 1:
            taken = min(left, (header >> 1) * 8)
            # The last run may be cut where its padding begins.
            if taken * width + 7 >> 3 > len(data) - start:
                return ~at
            out[filled : filled + taken] = unpack(data[start:], width, taken)
            at = min(len(data), start + (header >> 1) * width)
        else:
            taken = min(left, header >> 1)
            value = int.from_bytes(data[start : start + size].tobytes(), "little")
            if size > len(data) - start or value >> width:
                return ~at
            if out.dtype == np.int32 and value >> 31:
                value -= 1 << 32
            out[filled : filled + taken] = value
            at = start + size
        filled += taken
    return at


def _held(data: U8, width: int, count: int) -> int:
    at = held = 0
    size = width + 7 >> 3
    while held < count and at < len(data):
        header, start = varint(data, at)
        if start < 0 or header >> 63:
            break
        if header & 1:
            held += min((header >> 1) * 8, (len(data) - start) * 8 // width)
            at = start + (header >> 1) * width
        else:
            held, at = held + (header >> 1), start + size
    return min(held, count)


def _delta(data: U8, at: int, per_miniblock: int, miniblocks: int, out: npt.NDArray[Any]) -> int:
    deltas = np.zeros(len(out), np.uint64)
    deltas[:1] = out[:1].astype(np.int64).view(np.uint64)
    filled = 1
    while filled < len(out):
        zigzag, widths = varint(data, at)
        if widths < 0 or widths + miniblocks > len(data):
            return ~at
        least = np.uint64((zigzag >> 1) ^ (-(zigzag & 1) & (1 << 64) - 1))
        body = widths + miniblocks
        for miniblock in range(miniblocks):
            taken = min(per_miniblock, len(out) - filled)
            if not taken:
                break
            width = int(data[widths + miniblock])
            if width > 64 or taken * width + 7 >> 3 > len(data) - body:
                return ~at
            here = deltas[filled : filled + taken]
            if width:
                here[:] = unpack(data[body:], width, taken)
            here += least
            filled += taken
            body = min(len(data), body + (per_miniblock * width >> 3))
        at = body
    # The low bits of a sum do not depend on the high bits of what is summed.
    out[:] = np.cumsum(deltas).view(np.int64).astype(out.dtype)
    return at


def _lengths(offsets: I64, indices: npt.NDArray[Any], ends: I64) -> int:
    wrong = np.flatnonzero((indices < 0) | (indices >= len(offsets) - 1))
    if len(wrong):
        return ~int(wrong[0])
    ends[0] = 0
    np.cumsum(offsets[1:][indices] - offsets[:-1][indices], out=ends[1:])
    return int(ends[-1])


def _copy(data: U8, offsets: I64, indices: npt.NDArray[Any], ends: I64) -> U8:
    starts, stops = offsets[:-1][indices].tolist(), offsets[1:][indices].tolist()
    view = data.data
    parts = [view[start:stop] for start, stop in zip(starts, stops, strict=True)]
    return np.frombuffer(b"".join(parts), np.uint8)


def _expand(prefixes: I64, data: U8, offsets: I64, ends: I64) -> U8:
    view, last, parts = data.data, b"", []
    starts = offsets.tolist()
    for i, prefix in enumerate(prefixes.tolist()):
        last = last[:prefix] + bytes(view[starts[i] : starts[i + 1]])
        parts.append(last)
    return np.frombuffer(b"".join(parts), np.uint8)


def _shared(data: U8, offsets: I64) -> I64:
    view, shared, last = data.data, [], b""
    for start, stop in pairwise(offsets.tolist()):
        value = bytes(view[start:stop])
        most = min(len(last), len(value))
        if last[:most] != value[:most]:
            # The highest bit in which two big-endian numbers differ is in the first byte that
            # differs.
            other = int.from_bytes(last[:most], "big") ^ int.from_bytes(value[:most], "big")
            most -= other.bit_length() + 7 >> 3
        shared.append(most)
        last = value
    return np.array(shared, np.int64)


def _rows(values: npt.NDArray[Any], indices: npt.NDArray[Any], out: npt.NDArray[Any]) -> bool:
    if len(indices) and (indices.min() < 0 or indices.max() >= len(values)):
        return False
    if len(indices):
        np.take(values, indices, axis=0, out=out)
    return True


def _join(data: U8, width: int, out: U8) -> None:
    out.reshape(-1, width)[:] = data.reshape(width, -1).T


NUMPY: Final = Kernels(
    plain=_plain,
    hybrid=_hybrid,
    held=_held,
    delta=_delta,
    lengths=_lengths,
    copy=_copy,
    expand=_expand,
    shared=_shared,
    rows=_rows,
    join=_join,
)

#: In values: NumPy decodes about five per microsecond. Where numba is imported, 256 are enough.
COMPILED: Final = CompiledKernels[Kernels](
    module=f"{__package__}.jit",
    once=524_288,
    total=2_000_000,
    share=1 / 2_048,
    least=256,
    plain=NUMPY,
)
