"""DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY.

**DELTA_BINARY_PACKED**: integers as bit-packed differences. ::

    header     := ULEB128 block size        # values in a block, a multiple of 128
                  ULEB128 miniblocks        # in a block; each holds a multiple of 32 values
                  ULEB128 total count       # of values
                  zigzag  first value
    block      := zigzag  min delta
                  uint8   width             # one per miniblock, 0 to 64 bits
                  miniblock                 # block size / miniblocks values of `width` bits, packed
                                            # from the least significant bit of a byte on
    value      := value before + min delta + packed value      (mod 2^32 or 2^64)

The last miniblock with values is padded, but some writers omit the padding. Miniblocks after it
have a width, of any value, and no bytes. All sums wrap around. INT32 is decoded with 64 bits and
truncated: the low bits of a sum depend only on low bits, so the results of writers that calculate
with either width are correct.

Blocks are limited to 2^16 values (writers use 128 to 1,024). Otherwise one byte could represent any
number of values.

**DELTA_LENGTH_BYTE_ARRAY**: all lengths, DELTA_BINARY_PACKED (INT32), then the bytes of all values
without gaps. The bytes are not copied: the values share the memory of the page.

**DELTA_BYTE_ARRAY**: a prefix length into the previous value, and a suffix (front compression). ::

    DELTA_BINARY_PACKED prefix lengths (INT32), then DELTA_LENGTH_BYTE_ARRAY suffixes
    value := first `prefix` bytes of the previous value, suffix

For BYTE_ARRAY and FIXED_LEN_BYTE_ARRAY. A prefix is never longer than the previous value; the
first one is 0. A page may represent far more bytes than it has: ``values.MAX_BYTES`` at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError, MemoryLimitError
from skipstone.parquet.values import (
    MAX_BYTES,
    ByteArrays,
    as_bytes,
    check_count,
    check_room,
    room,
    too_short,
)

from .kernels import choose, varint
from .rle import pack, uleb128

if TYPE_CHECKING:
    import numpy.typing as npt

    from skipstone.parquet.values import U8, Buffer


_MOST: Final = 1 << 16
_WRAP: Final = 1 << 64


def decode_binary_packed(
    data: Buffer, count: int, dtype: npt.DTypeLike = np.int64
) -> tuple[npt.NDArray[Any], int]:
    """``count`` values (int32 or int64), and the number of bytes used.

    FormatError where the data hold another number of values, or cannot be read.
    """
    check_count(count)
    view = as_bytes(data)
    if not count and not len(view):
        return np.zeros(0, dtype), 0
    fields, at = [], 0
    for name in ("block size", "number of miniblocks", "number of values", "first value"):
        value, end = varint(view, at)
        if end < 0:
            raise too_short(f"{name} of deltas", at, "a varint", f"{len(view) - at} bytes")
        fields.append(value)
        at = end
    block, miniblocks, total, first = fields
    if not 0 < block <= _MOST or block % 128:
        raise FormatError(
            "block size of deltas", offset=0, expected=f"128 k, at most {_MOST}", got=block
        )
    if not miniblocks or block % miniblocks or block // miniblocks % 32:
        raise FormatError(
            "miniblocks of deltas",
            offset=0,
            expected=f"blocks of {block} in parts of 32 k values",
            got=miniblocks,
        )
    if total != count:
        raise FormatError("number of deltas", offset=0, expected=count, got=total)
    most = 1 + (len(view) - at) // (1 + miniblocks) * block
    if count > most:
        raise too_short("deltas", at, f"{count} values", f"at most {most} in {len(view)} bytes")
    values = room(count, dtype)
    if not count:
        return values, at
    low = (first >> 1 ^ -(first & 1)) % _WRAP
    values[:1] = np.array([low], np.uint64).astype(f"u{values.itemsize}").view(values.dtype)
    chosen = choose(count)
    end = chosen.delta(view, at, block // miniblocks, miniblocks, values)
    if end < 0:
        raise too_short(
            "a block of deltas", ~end, "widths to 64, and their bits", f"{len(view) - ~end} bytes"
        )
    return values, end


def encode_binary_packed(
    values: npt.NDArray[Any], block_size: int = 128, miniblocks: int = 4
) -> bytes:
    """Values of int32 or int64."""
    signed, unsigned = f"i{values.itemsize}", np.dtype(f"u{values.itemsize}")
    first = int(values[0]) if len(values) else 0
    parts = [uleb128(each) for each in (block_size, miniblocks, len(values), _zigzag(first))]
    per = block_size // miniblocks
    words = np.ascontiguousarray(values).view(unsigned)
    deltas = words[1:] - words[:-1]
    blocks = -(-len(deltas) // block_size)
    least = np.empty(blocks, signed)
    packed = np.zeros((blocks * miniblocks, per), np.uint64)
    for number in range(blocks):
        here = deltas[number * block_size : (number + 1) * block_size]
        least[number] = here.view(signed).min()
        rest = here - least[number : number + 1].view(unsigned)
        packed.reshape(-1)[number * block_size :][: len(rest)] = rest
    widths = [int(each).bit_length() for each in packed.max(axis=1, initial=0)]
    for number in range(blocks):
        these = range(number * miniblocks, (number + 1) * miniblocks)
        # Miniblocks after the last value have a width and no bytes, like one of width 0.
        parts += [uleb128(_zigzag(int(least[number]))), bytes(widths[each] for each in these)]
        parts += [pack(packed[each], widths[each]) for each in these if widths[each]]
    return b"".join(parts)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def decode_length_byte_array(data: Buffer, count: int) -> tuple[ByteArrays, int]:
    """``count`` values, and the number of bytes used."""
    view = as_bytes(data)
    lengths, start = decode_binary_packed(view, count, np.int32)
    if count and lengths.min() < 0:
        raise FormatError("length of a byte array", expected="0 or more", got=int(lengths.min()))
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    size = int(offsets[-1])
    check_room(f"bytes of {count} byte arrays", size, len(view) - start, start)
    return ByteArrays(view[start : start + size], offsets), start + size


def encode_length_byte_array(values: ByteArrays) -> bytes:
    """The bytes of a page; ``ValueError`` for a value of 2 GiB or more."""
    lengths = values.lengths
    if len(lengths) and lengths.max() >> 31:
        raise ValueError(f"a byte array of {lengths.max()} bytes: lengths are INT32")
    return encode_binary_packed(lengths.astype(np.int32)) + values.content.tobytes()


def decode_byte_array(
    data: Buffer, count: int, most_bytes: int = MAX_BYTES
) -> tuple[ByteArrays, int]:
    """``count`` values of at most ``most_bytes`` together, and the number of bytes used."""
    view = as_bytes(data)
    prefixes, start = decode_binary_packed(view, count, np.int32)
    suffixes, used = decode_length_byte_array(view[start:], count)
    if not count:
        return suffixes, start + used
    kept = prefixes.astype(np.int64)
    lengths = kept + suffixes.lengths
    before = np.concatenate([[0], lengths[:-1]])
    wrong = np.flatnonzero((kept < 0) | (kept > before))
    if len(wrong):
        at = int(wrong[0])
        raise FormatError(
            f"prefix of byte array {at}", expected=f"0 to {before[at]}", got=int(kept[at])
        )
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    most = min(most_bytes, MAX_BYTES)
    if ends[-1] > most:
        raise FormatError(
            "byte arrays of one page",
            expected=f"at most {most} bytes",
            got=int(ends[-1]),
            hint=None if most == MAX_BYTES else MemoryLimitError.default_hint,
        )
    chosen = choose(count)
    content = chosen.expand(kept, suffixes.data, suffixes.offsets, ends)
    return ByteArrays(content, ends), start + used


def decode_fixed(data: Buffer, count: int, width: int) -> tuple[U8, int]:
    """``count`` values of ``width`` bytes, ``(count, width)``, and the number of bytes used."""
    values, used = decode_byte_array(data, count)
    wrong = np.flatnonzero(values.lengths != width)
    if len(wrong):
        at = int(wrong[0])
        raise FormatError(
            f"length of fixed byte array {at}", expected=width, got=int(values.lengths[at])
        )
    return values.content.reshape(count, width), used


def encode_byte_array(values: ByteArrays) -> bytes:
    """The values, each with the longest prefix that it shares with the previous one."""
    offsets = np.ascontiguousarray(values.offsets)
    chosen = choose(len(values))
    prefixes = chosen.shared(as_bytes(values.data), offsets)
    lengths = values.lengths - prefixes
    # Places in the data of the bytes after each prefix.
    places = np.repeat(offsets[1:] - np.cumsum(lengths), lengths) + np.arange(lengths.sum())
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    suffixes = ByteArrays(values.data[places], ends)
    return encode_binary_packed(prefixes.astype(np.int32)) + encode_length_byte_array(suffixes)


def encode_fixed(values: U8) -> bytes:
    """Values ``(n, k)`` of FIXED_LEN_BYTE_ARRAY."""
    count, width = values.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return encode_byte_array(ByteArrays(as_bytes(np.ascontiguousarray(values)), offsets))
