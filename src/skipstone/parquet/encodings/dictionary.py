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

from . import rle
from .kernels import choose
from .values import as_bytes, check_count, check_room, empty_like, gather

if TYPE_CHECKING:
    import numpy.typing as npt

    from .kernels import I32, U8
    from .values import Buffer, Values


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


def decode(
    data: Buffer,
    count: int,
    dictionary: Values,
    *,
    out: npt.NDArray[Any] | None = None,
) -> Values:
    """``count`` values of the ``dictionary``; in ``out`` if given (not for byte arrays).

    FormatError where an index is outside it.
    """
    width, runs = _width(data, count)
    if width and isinstance(dictionary, np.ndarray) and _is_plain(dictionary):
        chosen = choose(count)
        if rle.count_held(runs, count, width, chosen) == count:
            out = empty_like(dictionary, count) if out is None else out
            if chosen.coded(runs, width, dictionary, out) >= 0:
                return out
        # The longer way below finds the error.
    indices = decode_indices(data, count)
    try:
        return gather(dictionary, indices, out=out)
    except IndexError as error:
        raise FormatError(
            f"indices into a dictionary: {error}", expected=f"below {len(dictionary)}"
        ) from None


def _is_plain(dictionary: npt.NDArray[Any]) -> bool:
    wide = dictionary.itemsize in (4, 8)
    return wide and dictionary.ndim == 1 and dictionary.flags.c_contiguous


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


def encode_indices(indices: npt.NDArray[np.integer[Any]], bit_width: int | None = None) -> bytes:
    """A data page of ``indices``; the default width is that of the largest, and at least 1."""
    if bit_width is None:
        bit_width = max(1, int(indices.max(initial=0)).bit_length())
    return bytes([bit_width]) + rle.encode(indices, bit_width)
