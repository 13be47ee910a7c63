"""BIT_PACKED (deprecated): levels of a fixed width, packed from the most significant bit on.

::

    values 0 to 7 in 3 bits:   00000101 00111001 01110111
                               AAABBBCC CDDDEEEF FFGGGHHH

There are no runs, no length, and padding only in the last byte: ``count`` values take
``ceil(count * width / 8)`` bytes. The order of bits in a byte is the reverse of that in rle.py.
Files may declare this encoding for levels of width 0, where it has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import FormatError

from .values import as_bytes, check_count, check_room

if TYPE_CHECKING:
    import numpy.typing as npt

    from .values import Buffer


def decode(
    data: Buffer, count: int, bit_width: int, *, dtype: npt.DTypeLike = np.int32
) -> tuple[npt.NDArray[Any], int]:
    """``count`` levels of ``bit_width`` (0 to 32) bits, and the number of bytes used."""
    check_count(count)
    if not 0 <= bit_width <= min(32, 8 * np.dtype(dtype).itemsize):
        raise FormatError("bit width of levels", expected="0 to 32", got=bit_width)
    view, used = as_bytes(data), count * bit_width + 7 >> 3
    check_room(f"{count} levels of {bit_width} bits", used, len(view))
    made = np.zeros(count, dtype)
    if not bit_width:
        return made, 0
    for start in range(0, count, 8_192):  # whole bytes, and few enough for the cache
        here = made[start : start + 8_192]
        packed = view[start * bit_width >> 3 : (start + len(here)) * bit_width + 7 >> 3]
        bits = np.zeros((len(here), 32), np.uint8)
        flat = np.unpackbits(packed, count=len(here) * bit_width)
        bits[:, 32 - bit_width :] = flat.reshape(-1, bit_width)
        here[:] = np.packbits(bits, axis=1).reshape(-1).view(">u4").astype(made.dtype)
    return made, used


def encode(values: npt.NDArray[Any], bit_width: int) -> bytes:
    """Levels of at most ``bit_width`` (0 to 32) bits. ValueError where one is wider."""
    if not bit_width or not len(values):
        return b""
    if values.max() >> bit_width:
        raise ValueError(f"a level of more than {bit_width} bits")
    words = values.astype(">u4").view(np.uint8).reshape(-1, 4)
    bits = np.unpackbits(words, axis=1)[:, 32 - bit_width :]
    return np.packbits(bits.reshape(-1)).tobytes()
