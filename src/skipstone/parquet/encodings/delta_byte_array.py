"""DELTA_BYTE_ARRAY: a prefix length into the previous value, and a suffix (front compression).

::

    DELTA_BINARY_PACKED prefix lengths (INT32), then DELTA_LENGTH_BYTE_ARRAY suffixes
    value := first `prefix` bytes of the previous value, suffix

For BYTE_ARRAY and FIXED_LEN_BYTE_ARRAY. A prefix is never longer than the previous value; the
first one is 0. A page may represent far more bytes than it has: ``values.MAX_BYTES`` at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError

from . import delta_binary_packed, delta_length_byte_array
from .kernels import choose
from .values import MAX_BYTES, ByteArrays, as_bytes

if TYPE_CHECKING:
    from skipstone.parquet.encodings.kernels import U8

    from .kernels import Kernels
    from .values import Buffer


def decode(data: Buffer, count: int, *, kernels: Kernels | None = None) -> tuple[ByteArrays, int]:
    """``count`` values, and the number of bytes used."""
    view = as_bytes(data)
    prefixes, start = delta_binary_packed.decode(view, count, np.int32, kernels=kernels)
    suffixes, used = delta_length_byte_array.decode(view[start:], count, kernels=kernels)
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
    if ends[-1] > MAX_BYTES:
        raise FormatError(
            "byte arrays of one page", expected=f"at most {MAX_BYTES} bytes", got=int(ends[-1])
        )
    chosen = kernels or choose(count)
    content = chosen.expand(kept, suffixes.data, suffixes.offsets, ends)
    return ByteArrays(content, ends), start + used


def decode_fixed(
    data: Buffer, count: int, width: int, *, kernels: Kernels | None = None
) -> tuple[U8, int]:
    """``count`` values of ``width`` bytes, ``(count, width)``, and the number of bytes used."""
    values, used = decode(data, count, kernels=kernels)
    wrong = np.flatnonzero(values.lengths != width)
    if len(wrong):
        at = int(wrong[0])
        raise FormatError(
            f"length of fixed byte array {at}", expected=width, got=int(values.lengths[at])
        )
    return values.content.reshape(count, width), used


def encode(values: ByteArrays, *, kernels: Kernels | None = None) -> bytes:
    """The values, each with the longest prefix that it shares with the previous one."""
    offsets = np.ascontiguousarray(values.offsets)
    chosen = kernels or choose(len(values))
    prefixes = chosen.shared(as_bytes(values.data), offsets)
    lengths = values.lengths - prefixes
    # Places in the data of the bytes after each prefix.
    places = np.repeat(offsets[1:] - np.cumsum(lengths), lengths) + np.arange(lengths.sum())
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    suffixes = ByteArrays(values.data[places], ends)
    return delta_binary_packed.encode(prefixes.astype(np.int32)) + delta_length_byte_array.encode(
        suffixes
    )


def encode_fixed(values: U8, *, kernels: Kernels | None = None) -> bytes:
    """Values ``(n, k)`` of FIXED_LEN_BYTE_ARRAY."""
    count, width = values.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return encode(ByteArrays(as_bytes(np.ascontiguousarray(values)), offsets), kernels=kernels)
