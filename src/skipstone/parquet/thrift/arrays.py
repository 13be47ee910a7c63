"""Lists of Thrift's compact protocol as NumPy arrays: integers, flags and byte strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone.parquet.values import ByteArrays

from . import compact as thrift

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .compact import Reader


IntArray: TypeAlias = "NDArray[np.int64]"
BoolArray: TypeAlias = "NDArray[np.bool_]"
U8: TypeAlias = "NDArray[np.uint8]"

# How far the groups of seven bits of a varint are shifted.
_SHIFTS = np.arange(0, 70, 7, dtype=np.uint64)


def list_size(reader: Reader, *kinds: int) -> int:
    """The size of a list whose elements are of one of ``kinds``."""
    kind, size = reader.list_head()
    if size and kind not in kinds:
        raise reader.fail("a list of other elements", expected=kinds[0], got=kind)
    return size


def rest(reader: Reader) -> U8:
    """The bytes that are left."""
    return np.frombuffer(reader.data, np.uint8, reader.end - reader.at, reader.at)


def flags(reader: Reader) -> BoolArray:
    """A list of booleans."""
    size = list_size(reader, thrift.TRUE, thrift.FALSE)
    found: BoolArray = rest(reader)[:size] == 1
    reader.take(size)
    return found


def integers(reader: Reader) -> IntArray:
    """A list of integers."""
    size = list_size(reader, thrift.I64, thrift.I32)
    buffer = rest(reader)[: 10 * size]
    starts, ends = _tokens(reader, buffer, size)
    values = zigzag(reader, buffer, starts, ends)
    reader.take(int(ends[-1]) + 1 if size else 0)
    return values


def _tokens(reader: Reader, buffer: U8, count: int) -> tuple[IntArray, IntArray]:
    """First and last byte of each of the first ``count`` varints: a byte below 128 ends one."""
    ends = np.flatnonzero(buffer < 0x80)[:count]
    if len(ends) < count:
        raise reader.fail("ends within a varint")
    starts = np.empty(count, np.int64)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    return starts, ends


def zigzag(reader: Reader, buffer: U8, starts: IntArray, ends: IntArray) -> IntArray:
    """The zigzag varints between these places."""
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    if longest > 9 or (longest == 9 and buffer[ends[lengths == 9]].max() > 1):
        raise reader.fail("a varint of more than 64 bits")
    raw = (buffer[starts] & 0x7F).astype(np.uint64)
    for at in range(1, longest + 1):
        here = np.flatnonzero(lengths >= at)
        part = (buffer[starts[here] + at] & 0x7F).astype(np.uint64)
        raw[here] |= part << np.uint64(7 * at)
    return ((raw >> np.uint64(1)) ^ (~(raw & np.uint64(1)) + np.uint64(1))).view(np.int64)


def byte_strings(reader: Reader, nulls: BoolArray | None) -> ByteArrays:
    """A list of byte strings. ``nulls`` marks those that are empty if the others have one width."""
    size = list_size(reader, thrift.BINARY)
    if nulls is not None and len(nulls) == size:
        fixed = _fixed(reader, nulls)
        if fixed is not None:
            return fixed
    data, end, at = reader.data, reader.end, reader.at
    pieces: list[bytes | memoryview] = []
    append = pieces.append
    for _ in range(size):
        if at < end and data[at] < 0x80:
            length = data[at]
            at += 1
        else:
            reader.at = at
            length = reader.varint()
            at = reader.at
        stop = at + length
        if stop > end:
            reader.at = at
            raise reader.fail("ends within bytes", expected=length, got=end - at)
        append(data[at:stop])
        at = stop
    reader.at = at
    offsets = np.zeros(size + 1, np.int64)
    np.cumsum(np.fromiter(map(len, pieces), np.int64, size), out=offsets[1:])
    return ByteArrays(np.frombuffer(b"".join(pieces), np.uint8), offsets)


def _fixed(reader: Reader, nulls: BoolArray) -> ByteArrays | None:
    """Byte strings of one width below 128, empty where ``nulls``; ``None`` for any others."""
    buffer = rest(reader)
    full = np.flatnonzero(~nulls)
    if not len(full) or full[0] >= len(buffer):
        return None
    width = int(buffer[full[0]])  # every string before it is empty: one byte each
    if not 0 < width < 0x80:
        return None
    lengths = np.where(nulls, 0, width)
    offsets = np.zeros(len(nulls) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    heads = offsets[:-1] + np.arange(len(nulls))
    total = int(offsets[-1]) + len(nulls)
    if total > len(buffer) or np.any(buffer[heads] != lengths):
        return None
    reader.take(total)
    values = np.lib.stride_tricks.sliding_window_view(buffer[:total], width)[heads[full] + 1]
    return ByteArrays(values.ravel(), offsets)


def varints(values: IntArray) -> tuple[U8, BoolArray]:
    """Zigzag varints as 10 bytes each, and which of these are written."""
    raw = (values.astype(np.uint64) << np.uint64(1)) ^ (values >> np.int64(63)).view(np.uint64)
    shifted = raw[:, np.newaxis] >> _SHIFTS
    written: BoolArray = shifted != 0
    written[:, 0] = True
    groups: U8 = shifted.astype(np.uint8) & np.uint8(0x7F)
    groups[:, :-1] |= written[:, 1:].astype(np.uint8) << 7
    return groups, written
