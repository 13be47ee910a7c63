"""Decodes and encodes values and levels: one module per encoding, and the choice among them.

``decode_values`` and ``encode_values`` are for the values of data pages; ``rle`` is for levels, too
(``pages/levels.py``). The types that each encoding holds:

=========================  ===========================================================
PLAIN                      all
PLAIN_/RLE_DICTIONARY      all, as indices into the dictionary of the chunk
RLE                        BOOLEAN
DELTA_BINARY_PACKED        INT32, INT64
DELTA_LENGTH_BYTE_ARRAY    BYTE_ARRAY
DELTA_BYTE_ARRAY           BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY
BYTE_STREAM_SPLIT          INT32, INT64, FLOAT, DOUBLE, FIXED_LEN_BYTE_ARRAY
=========================  ===========================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import Encoding, Type
from skipstone.parquet.values import Buffer, ByteArrays, Values

from . import byte_stream_split, delta, plain, rle
from . import dictionary as dictionary_

if TYPE_CHECKING:
    from collections.abc import Mapping, Set


__all__ = ["TYPES_OF", "ByteArrays", "Values", "decode_values", "encode_values"]

_INTEGERS: Final = {Type.INT32, Type.INT64}
#: the types that each encoding holds
TYPES_OF: Final[Mapping[int, Set[Type]]] = {
    Encoding.PLAIN: set(Type),
    Encoding.PLAIN_DICTIONARY: set(Type),
    Encoding.RLE_DICTIONARY: set(Type),
    Encoding.RLE: {Type.BOOLEAN},
    Encoding.DELTA_BINARY_PACKED: _INTEGERS,
    Encoding.DELTA_LENGTH_BYTE_ARRAY: {Type.BYTE_ARRAY},
    Encoding.DELTA_BYTE_ARRAY: {Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY},
    Encoding.BYTE_STREAM_SPLIT: {*_INTEGERS, Type.FLOAT, Type.DOUBLE, Type.FIXED_LEN_BYTE_ARRAY},
}
# By number: making and hashing members of an enumeration for each page takes longer.
_PAIRS: Final = {
    (encoding, int(type_)): Encoding(encoding)
    for encoding, types in TYPES_OF.items()
    for type_ in types
}


def decode_values(
    encoding: int, data: Buffer, count: int, type_: Type, type_length: int | None = None
) -> Values:
    """``count`` values of a data page, whose bytes after the levels are ``data``.

    ``count`` excludes nulls. A repeated value takes few bytes, and only ``count`` bounds the
    result: check it against the page and the row group first. FormatError where the data cannot be
    read, the encoding does not hold the type, or the data are indices (``dictionary.py``);
    UnsupportedError for ALP and unknown encodings.
    """
    known = _known(encoding, type_)
    if known is Encoding.PLAIN:
        return plain.decode(data, count, type_, type_length)
    if known is Encoding.RLE:
        return rle.decode_booleans(data, count)
    if known is Encoding.DELTA_BINARY_PACKED:
        return delta.decode_binary_packed(data, count, plain.DTYPES[type_])[0]
    if known is Encoding.DELTA_LENGTH_BYTE_ARRAY:
        return delta.decode_length_byte_array(data, count)[0]
    if known is Encoding.DELTA_BYTE_ARRAY:
        if type_ is Type.BYTE_ARRAY:
            return delta.decode_byte_array(data, count)[0]
        return delta.decode_fixed(data, count, plain.fixed_length(type_, type_length))[0]
    if known is Encoding.BYTE_STREAM_SPLIT:
        return byte_stream_split.decode(data, count, type_, type_length)
    raise FormatError(f"a page of {known.name} in a column chunk without a dictionary page")


def encode_values(
    encoding: int,
    values: Values,
    type_: Type,
    type_length: int | None = None,
) -> bytes:
    """``values`` as the bytes of a data page after its levels; dictionary encodings take indices.

    A dictionary page has its values PLAIN. ValueError where rows of bytes are not of
    ``type_length``.
    """
    known = _known(encoding, type_)
    if not isinstance(values, ByteArrays) and values.ndim == 2:
        width = plain.fixed_length(type_, type_length)
        if values.shape[1] != width:
            raise ValueError(f"values of {values.shape[1]} bytes in a column of {width}")
    if known is Encoding.PLAIN:
        return plain.encode(values, type_)
    if isinstance(values, ByteArrays):
        if known is Encoding.DELTA_LENGTH_BYTE_ARRAY:
            return delta.encode_length_byte_array(values)
        if known is Encoding.DELTA_BYTE_ARRAY:
            return delta.encode_byte_array(values)
        raise TypeError(f"{known.name} takes an array of numbers")
    if known is Encoding.RLE_DICTIONARY or known is Encoding.PLAIN_DICTIONARY:
        return dictionary_.encode_indices(values)
    if known is Encoding.RLE:
        return rle.encode_booleans(values)
    if known is Encoding.DELTA_BINARY_PACKED:
        return delta.encode_binary_packed(values.astype(plain.DTYPES[type_], copy=False))
    if known is Encoding.DELTA_BYTE_ARRAY:
        return delta.encode_fixed(values)
    if known is Encoding.BYTE_STREAM_SPLIT:
        return byte_stream_split.encode(values)
    raise TypeError(f"{known.name} takes ByteArrays")


def _known(encoding: int, type_: Type) -> Encoding:
    found = _PAIRS.get((int(encoding), int(type_)))
    if found is not None:
        return found
    try:
        known = Encoding(encoding)
    except ValueError:
        raise UnsupportedError(f"encoding {encoding} is unknown") from None
    if known is Encoding.ALP:
        raise UnsupportedError(
            "encoding ALP is not supported: it is a preview of the format's 2.14"
        )
    if known is Encoding.BIT_PACKED:
        raise FormatError("encoding BIT_PACKED is for levels, and not for values")
    raise FormatError(f"encoding {known.name} does not hold {Type(type_).name}")
