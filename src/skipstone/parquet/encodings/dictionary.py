"""RLE_DICTIONARY and PLAIN_DICTIONARY: indices into the values of the chunk's dictionary page.

::

    data page        := uint8 bit width (0 to 32), hybrid of indices (rle.py, without a length)
    dictionary page  := the distinct values, PLAIN

Both names mean the same: old writers name PLAIN_DICTIONARY for dictionary and data pages. A page
without values may be empty, and a dictionary may have no entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.values import (
    MAX_BYTES,
    Buffer,
    ByteArrays,
    Values,
    as_bytes,
    check_count,
    check_room,
    room,
)

from . import rle
from .kernels import choose

if TYPE_CHECKING:
    import numpy.typing as npt

    from skipstone.parquet.values import I32, U8


def decode_indices(data: Buffer, count: int) -> I32:
    """``count`` indices, not checked against any dictionary (32-bit ones wrap to negative)."""
    width, runs = _width(data, count)
    try:
        indices, _ = rle.decode(runs, count, width)
    except FormatError as error:
        raise FormatError(
            "indices into a dictionary: runs cannot be read",
            offset=(error.offset or 0) + 1,
            expected=error.expected,
            got=error.got,
        ) from None
    return indices


def _width(data: Buffer, count: int) -> tuple[int, U8]:
    check_count(count)
    view = as_bytes(data)
    if not count:
        return 0, view[:0]
    check_room("bit width of indices", 1, len(view))
    width = int(view[0])
    if width > 32:
        raise FormatError("bit width of indices", offset=0, expected="0 to 32", got=width)
    return width, view[1:]


def encode_indices(indices: npt.NDArray[np.integer[Any]]) -> bytes:
    """A data page of ``indices``, in the width of the largest, and at least 1."""
    bit_width = max(1, int(indices.max(initial=0)).bit_length())
    return bytes([bit_width]) + rle.encode(indices, bit_width)


def gather(values: Values, indices: npt.NDArray[np.integer[Any]]) -> Values:
    """The values at ``indices``, of the same kind. IndexError where an index is out of range."""
    if isinstance(values, ByteArrays):
        return gather_bytes(values, indices)
    shape = (len(indices), *values.shape[1:])
    out = room(int(np.prod(shape)), values.dtype).reshape(shape)
    if not choose(len(indices)).rows(values, np.ascontiguousarray(indices), out):
        raise _no_index(len(values), indices)
    return out


def gather_bytes(values: ByteArrays, indices: npt.NDArray[np.integer[Any]]) -> ByteArrays:
    """As ``gather``; FormatError for more than ``MAX_BYTES`` bytes."""
    chosen, indices = choose(len(indices)), np.ascontiguousarray(indices)
    offsets, ends = np.ascontiguousarray(values.offsets), np.empty(len(indices) + 1, np.int64)
    total = chosen.lengths(offsets, indices, ends)
    if total < 0:
        raise _no_index(len(values), indices)
    if total > MAX_BYTES:
        raise FormatError(
            "byte arrays of one page", expected=f"at most {MAX_BYTES} bytes", got=total
        )
    return ByteArrays(chosen.copy(as_bytes(values.data), offsets, indices, ends), ends)


def _no_index(size: int, indices: npt.NDArray[np.integer[Any]]) -> IndexError:
    """The error for the first index that is not below ``size``."""
    wrong = indices[(indices < 0) | (indices >= size)]
    return IndexError(f"index {int(wrong[0])} into {size} values")
