"""BYTE_STREAM_SPLIT: the first bytes of all values, then all second bytes, and so on.

::

    values          AA BB CC DD   00 11 22 33   A3 B4 C5 D6
    encoded         AA 00 A3   BB 11 B4   CC 22 C5   DD 33 D6

For FLOAT, DOUBLE, INT32, INT64 and FIXED_LEN_BYTE_ARRAY (float16 is one of 2 bytes). Only the
number of values determines where a stream ends, so there is no padding: ``count * width`` bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.values import Buffer, as_bytes, check_count, room

from .kernels import choose
from .plain import DTYPES, fixed_length

if TYPE_CHECKING:
    import numpy.typing as npt

    from skipstone.parquet.format.enums import Type


def decode(
    data: Buffer, count: int, type_: Type, type_length: int | None = None
) -> npt.NDArray[Any]:
    """``count`` values of the type.

    FormatError if the length of the data is not that of the streams.
    """
    check_count(count)
    view = as_bytes(data)
    number = type_ in DTYPES
    width = DTYPES[type_].itemsize if number else fixed_length(type_, type_length)
    if len(view) != count * width:
        raise FormatError(
            f"{width} streams of {count} bytes",
            offset=0,
            expected=f"{count * width} bytes",
            got=len(view),
        )
    if number:
        out = room(count, DTYPES[type_])
    else:
        out = room(count * width, np.uint8).reshape(count, width)
    if len(view):
        choose(count).join(view, width, out.reshape(-1).view(np.uint8))
    return out


def encode(values: npt.NDArray[Any]) -> bytes:
    """The streams of ``values``: numbers ``(n,)``, or rows of bytes ``(n, k)``."""
    rows = values if values.ndim == 2 else values.astype(values.dtype.newbyteorder("<"), copy=False)
    width = values.shape[1] if values.ndim == 2 else values.itemsize
    if not rows.nbytes:
        return b""
    return np.ascontiguousarray(rows).view(np.uint8).reshape(-1, width).T.tobytes()
