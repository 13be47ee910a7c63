"""DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes.

::

    DELTA_BINARY_PACKED lengths (INT32), then the bytes of all values without gaps

The bytes are not copied: the values share the memory of the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError

from . import delta_binary_packed
from .values import ByteArrays, as_bytes, check_room

if TYPE_CHECKING:
    from .kernels import Kernels
    from .values import Buffer


def decode(data: Buffer, count: int, *, kernels: Kernels | None = None) -> tuple[ByteArrays, int]:
    """``count`` values, and the number of bytes used."""
    view = as_bytes(data)
    lengths, start = delta_binary_packed.decode(view, count, np.int32, kernels=kernels)
    if count and lengths.min() < 0:
        raise FormatError("length of a byte array", expected="0 or more", got=int(lengths.min()))
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    size = int(offsets[-1])
    check_room(f"bytes of {count} byte arrays", size, len(view) - start, start)
    return ByteArrays(view[start : start + size], offsets), start + size


def encode(values: ByteArrays) -> bytes:
    """The values; each is shorter than 2 GiB."""
    lengths = values.lengths
    if len(lengths) and lengths.max() >> 31:
        raise ValueError(f"a byte array of {lengths.max()} bytes: lengths are INT32")
    return delta_binary_packed.encode(lengths.astype(np.int32)) + values.content.tobytes()
