"""PLAIN: values one after the other.

======================  ===========================================================
BOOLEAN                 1 bit each, from the least significant bit of a byte on
INT32, FLOAT            4 bytes, little-endian
INT64, DOUBLE           8 bytes, little-endian
INT96                   12 bytes (deprecated: nanoseconds of the day, Julian day)
BYTE_ARRAY              4 bytes of length, little-endian, then the bytes
FIXED_LEN_BYTE_ARRAY    ``type_length`` bytes
======================  ===========================================================

Dictionary pages have this form too. Bytes after the last value are padding and are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import Type
from skipstone.parquet.values import (
    U8,
    Buffer,
    ByteArrays,
    Values,
    as_bytes,
    check_count,
    check_room,
    room,
    too_short,
)

from .kernels import choose

if TYPE_CHECKING:
    from collections.abc import Mapping


#: The types that are NumPy numbers.
DTYPES: Final[Mapping[Type, np.dtype[Any]]] = {
    Type.INT32: np.dtype("<i4"),
    Type.INT64: np.dtype("<i8"),
    Type.FLOAT: np.dtype("<f4"),
    Type.DOUBLE: np.dtype("<f8"),
}
_LONGEST: Final = (1 << 31) - 1


def fixed_length(type_: Type, type_length: int | None) -> int:
    """Bytes of a value of a type of fixed length, 12 for INT96. FormatError without a length."""
    if type_ is Type.INT96:
        return 12
    if type_length is None or not 0 <= type_length <= _LONGEST:
        raise FormatError("type_length of a column", expected="0 or more", got=type_length)
    return type_length


def decode(data: Buffer, count: int, type_: Type, type_length: int | None = None) -> Values:
    """The first ``count`` values.

    Numbers share the memory of ``data`` where they are aligned; then they are read-only.
    FormatError where the data hold fewer values.
    """
    check_count(count)
    view = as_bytes(data)
    if type_ is Type.BYTE_ARRAY:
        return _decode_byte_arrays(view, count)
    if type_ is Type.BOOLEAN:
        check_room(f"{count} booleans", count + 7 >> 3, len(view))
        return np.unpackbits(view, count=count, bitorder="little").view(np.bool_)
    if (dtype := DTYPES.get(type_)) is not None:
        values = _first(view, count, dtype.itemsize).view(dtype)
        if values.flags.aligned:
            return values
        made = room(count, dtype)
        made[:] = values
        return made
    width = fixed_length(type_, type_length)
    return _first(view, count, width).reshape(count, width)


def _first(view: U8, count: int, width: int) -> U8:
    if count * width > len(view):
        raise too_short(f"{count} values of {width} bytes", 0, count * width, len(view))
    return view[: count * width]


def _decode_byte_arrays(view: U8, count: int) -> ByteArrays:
    check_room(f"lengths of {count} byte arrays", 4 * count, len(view))
    offsets, content, end = choose(count).plain(view, count)
    if end < 0:
        at = ~end
        length = int.from_bytes(view[at : at + 4].tobytes(), "little")
        left = len(view) - at
        check_room("length of a byte array", 4, left, at)
        check_room("a byte array", 4 + length, left, at)
    return ByteArrays(content, offsets)


def encode(values: Values, type_: Type) -> bytes:
    """``values``, of the kind that ``decode`` gives for the type."""
    if isinstance(values, ByteArrays):
        return _encode_byte_arrays(values)
    if type_ is Type.BOOLEAN:
        return np.packbits(values.astype(np.bool_, copy=False), bitorder="little").tobytes()
    if type_ in DTYPES:
        return values.astype(DTYPES[type_], copy=False).tobytes()
    return values.astype(np.uint8, copy=False).tobytes()


def _encode_byte_arrays(values: ByteArrays) -> bytes:
    lengths = values.lengths
    if len(lengths) and lengths.max() > _LONGEST:
        raise ValueError(f"a byte array of {lengths.max()} bytes: PLAIN has signed 32-bit lengths")
    out = np.empty(values.nbytes + 4 * len(values), np.uint8)
    starts = values.offsets[:-1] - values.offsets[0] + 4 * np.arange(len(values))
    is_length = np.zeros(len(out), np.bool_)
    is_length[starts[:, np.newaxis] + np.arange(4)] = True
    out[is_length] = lengths.astype("<u4").view(np.uint8)
    out[~is_length] = values.content
    return out.tobytes()
