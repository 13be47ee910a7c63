"""Turns physical values into Arrow arrays of a leaf's type.

Values first become *storage*, the contents of Arrow's buffers. Storage is spread over the slots of
the array (nulls get zeros), and wrapped:

    bool                         (n,) bool
    fixed width                  (n,) numbers, or (n, k) uint8
    binary, string               ByteArrays

    decimal   INT32, INT64: sign-extended; bytes: big-endian, sign-extended, reversed
    INT96     8 bytes nanoseconds of the day, 4 bytes Julian day, little-endian: microseconds since
              1970-01-01, the rest of the nanoseconds cut off
    (u)int8 … (u)int32           the low bytes of an INT32

Other types for the same values (dictionaries, views, other units) are cast from these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings.dictionary import gather
from skipstone.parquet.format.enums import Type
from skipstone.parquet.pages.column_values import LeafColumn, join_values
from skipstone.parquet.values import JULIAN_EPOCH, ByteArrays, Values, sign_extended

from .arrow_types import is_binary, leaf_type, storage_type

if TYPE_CHECKING:
    import numpy.typing as npt

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.values import U8


_US_PER_DAY = 86_400 * 10**6
_LONGEST = (1 << 31) - 1
# The most bytes for one column chunk that the file does not hold (values repeated from a
# dictionary, room for nulls): 4 GiB.
_MOST_BYTES = 1 << 32

_NUMBERS: dict[pa.DataType, tuple[Type, type[np.generic]]] = {
    pa.int8(): (Type.INT32, np.int8),
    pa.int16(): (Type.INT32, np.int16),
    pa.int32(): (Type.INT32, np.int32),
    pa.uint8(): (Type.INT32, np.uint8),
    pa.uint16(): (Type.INT32, np.uint16),
    pa.uint32(): (Type.INT32, np.uint32),
    pa.date32(): (Type.INT32, np.int32),
    pa.time32("ms"): (Type.INT32, np.int32),
    pa.int64(): (Type.INT64, np.int64),
    pa.uint64(): (Type.INT64, np.uint64),
    pa.time64("us"): (Type.INT64, np.int64),
    pa.time64("ns"): (Type.INT64, np.int64),
    pa.float32(): (Type.FLOAT, np.float32),
    pa.float64(): (Type.DOUBLE, np.float64),
    pa.bool_(): (Type.BOOLEAN, np.bool_),
}


class TooLongError(UnsupportedError):
    """More bytes or elements than an Arrow array with 32-bit offsets holds: take fewer rows."""


def leaf_array(
    column: LeafColumn,
    valid: npt.NDArray[np.bool_] | None,
    type_: pa.DataType | None = None,
    own: pa.DataType | None = None,
) -> pa.Array:
    """The leaf's values as an array of ``type_`` (by default ``leaf_type``).

    ``valid`` says which slots have a value; ``None``: all of them. ``own`` is ``leaf_type`` of the
    leaf, where it is known. FormatError where values do not fit the type.
    """
    leaf = column.leaf
    own = leaf_type(leaf) if own is None else own
    wanted = own if type_ is None else type_
    if isinstance(wanted, pa.BaseExtensionType):
        storage = leaf_array(column, valid, storage_type(wanted))
        return pa.ExtensionArray.from_storage(wanted, storage)
    length = column.num_values if valid is None else len(valid)
    if pa.types.is_null(wanted):
        return pa.nulls(length)
    if pa.types.is_dictionary(wanted):
        return _dictionary_array(column, valid, wanted)
    made = wanted if _holds(wanted, leaf, own) else own
    if pa.types.is_null(made):
        return pa.nulls(length).cast(wanted)
    parts: list[Any] = []
    for run in column.runs:
        values = _storage(run.values, leaf, made)
        if run.indices is not None:
            _check_repeated(values, run.indices, leaf)
            values = gather(values, run.indices)
        parts.append(values)
    whole = join_values(parts, leaf) if parts else None
    if not is_binary(made):
        _check_size(length * made.bit_width // 8, leaf.name)
    array = _wrap(whole, valid, length, made)
    return array if made == wanted else _cast(array, wanted, leaf)


def _cast(array: pa.Array, wanted: pa.DataType, leaf: ColumnDescriptor) -> pa.Array:
    try:
        return array.cast(wanted, safe=False)
    except pa.ArrowException as error:
        raise UnsupportedError(f"column {leaf.name} as {wanted}: {error}") from error


def _dictionary_array(
    column: LeafColumn, valid: npt.NDArray[np.bool_] | None, wanted: pa.DataType
) -> pa.Array:
    plain = leaf_array(column, valid, wanted.value_type)
    coded = plain.dictionary_encode()
    indices = _cast(coded.indices, wanted.index_type, column.leaf)
    return pa.DictionaryArray.from_arrays(indices, coded.dictionary, ordered=wanted.ordered)


def _holds(type_: pa.DataType, leaf: ColumnDescriptor, own: pa.DataType) -> bool:
    """Whether the leaf's values, of its ``own`` type, can become storage of this type."""
    if type_ in _NUMBERS:
        # A decimal or a timestamp is not a plain number, whatever its storage is.
        return _NUMBERS[type_][0] is leaf.type and (own == type_ or own in _NUMBERS)
    if pa.types.is_decimal(type_) or pa.types.is_timestamp(type_):
        same = type_.scale if pa.types.is_decimal(type_) else type_.unit
        return type(own) is type(type_) and same == (
            own.scale if pa.types.is_decimal(own) else own.unit
        )
    if pa.types.is_duration(type_):
        return leaf.type is Type.INT64 and own == pa.int64()
    if is_binary(type_):
        return leaf.type is Type.BYTE_ARRAY and is_binary(own)
    return bool(own == type_)


def _storage(values: Values, leaf: ColumnDescriptor, type_: pa.DataType) -> Values:
    if pa.types.is_decimal(type_):
        return _decimals(values, leaf, type_.bit_width // 8)
    if isinstance(values, ByteArrays):
        return values
    if leaf.type is Type.INT96:
        return _from_int96(values)
    if pa.types.is_float16(type_):
        return np.ascontiguousarray(values).view("<f2").reshape(-1)
    if type_ in _NUMBERS:
        return values.astype(_NUMBERS[type_][1], copy=False)
    return values


def _from_int96(values: U8) -> npt.NDArray[np.int64]:
    values = np.ascontiguousarray(values)
    # Both parts count as unsigned, and the sum wraps, as in Arrow.
    nanoseconds = np.ascontiguousarray(values[:, :8]).view("<u8").reshape(-1)
    days = np.ascontiguousarray(values[:, 8:]).view("<u4").reshape(-1).astype(np.int64)
    micros = (nanoseconds // np.uint64(1000)).astype(np.int64)
    made: npt.NDArray[np.int64] = (days - JULIAN_EPOCH) * _US_PER_DAY + micros
    return made


def _decimals(values: Values, leaf: ColumnDescriptor, width: int) -> U8:
    if not isinstance(values, ByteArrays) and values.ndim == 1:
        wide = np.empty((len(values), width // 8), np.int64)
        wide[:, 0] = values
        wide[:, 1:] = (wide[:, 0] >> 63)[:, np.newaxis]
        return wide.view(np.uint8).reshape(len(values), width)
    if isinstance(values, ByteArrays):
        lengths = values.lengths
        if len(lengths) and not 1 <= lengths.min() <= lengths.max() <= width:
            raise FormatError(
                f"bytes of a decimal in column {leaf.name}",
                expected=f"1 to {width}",
                got=f"{lengths.min()} to {lengths.max()}",
            )
        return sign_extended(values.data, values.offsets[:-1], lengths, width)
    given = values.shape[1]
    made = np.empty((len(values), width), np.uint8)
    if given > width:
        # Only sign bytes may precede the bytes that the precision needs.
        surplus = values[:, : given - width]
        sign = np.where(values[:, given - width] > 127, 255, 0).astype(np.uint8)
        if (surplus != sign[:, np.newaxis]).any():
            raise FormatError(f"a decimal of column {leaf.name} exceeds its precision")
        values, given = values[:, given - width :], width
    made[:, :given] = values[:, ::-1]
    made[:, given:] = np.where(values[:, :1] > 127, 255, 0)
    return made


def _check_repeated(values: Values, indices: npt.NDArray[np.int32], leaf: ColumnDescriptor) -> None:
    # A few bytes can repeat a long value any number of times.
    if not isinstance(values, ByteArrays):
        _check_size(len(indices) * values.itemsize * int(np.prod(values.shape[1:])), leaf.name)
        return
    lengths = values.lengths
    if not len(lengths) or len(indices) * int(lengths.max()) <= _LONGEST:
        return
    total = int(lengths[indices].sum())
    _check_size(total, leaf.name)
    if total > _LONGEST:
        raise TooLongError(f"{total} bytes in an Arrow array of column {leaf.name}")


def _check_size(size: int, name: str) -> None:
    if size > _MOST_BYTES:
        raise UnsupportedError(
            f"{size} bytes of repeated values or nulls in column {name}: at most {_MOST_BYTES}"
        )


def _wrap(
    storage: Values | None,
    valid: npt.NDArray[np.bool_] | None,
    length: int,
    type_: pa.DataType,
) -> pa.Array:
    if valid is not None and bool(valid.all()):
        valid = None
    bits = None
    if valid is not None:
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if is_binary(type_):
        if storage is None:
            storage = ByteArrays(np.empty(0, np.uint8), np.zeros(1, np.int64))
        assert isinstance(storage, ByteArrays)
        return _wrap_binary(storage, valid, bits, length, type_)
    assert not isinstance(storage, ByteArrays)
    if storage is None:
        return pa.nulls(length, type_)
    if valid is not None:
        spread = np.zeros((length, *storage.shape[1:]), storage.dtype)
        spread[valid] = storage
        storage = spread
    if storage.dtype == np.bool_:
        buffer = pa.py_buffer(np.packbits(storage, bitorder="little"))
    else:
        buffer = pa.py_buffer(np.ascontiguousarray(storage).reshape(-1))
    return pa.Array.from_buffers(type_, length, [bits, buffer])


def _wrap_binary(
    storage: ByteArrays,
    valid: npt.NDArray[np.bool_] | None,
    bits: pa.Buffer | None,
    length: int,
    type_: pa.DataType,
) -> pa.Array:
    offsets, data = storage.offsets - storage.offsets[0], storage.content
    if valid is not None:
        places = np.zeros(length + 1, np.int64)
        np.cumsum(valid, out=places[1:])
        offsets = offsets[places]
    if pa.types.is_binary(type_) or pa.types.is_string(type_):
        if len(data) > _LONGEST:
            raise TooLongError(f"{len(data)} bytes in an Arrow array of {type_}")
        offsets = offsets.astype(np.int32)
    return pa.Array.from_buffers(
        type_, length, [bits, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )
