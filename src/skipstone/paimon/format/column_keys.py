"""A column of one data file as keys: by row, as codes, or grouped by key; and literals as keys.

Each Paimon type takes the Arrow types that store it:

| Paimon | Arrow |
|---|---|
| BOOLEAN | bool |
| TINYINT … BIGINT | int8 … int64, unsigned where it fits |
| FLOAT, DOUBLE | float32, float64 |
| DECIMAL(p, s) | decimal of the same scale, unscaled values that fit 64 bits |
| DATE | date32 |
| TIME(p) | time32, time64 |
| TIMESTAMP, of either kind | timestamp of any unit |
| CHAR, VARCHAR; BINARY, VARBINARY | string, binary and their large, view and fixed kinds |

Digits that do not fit a key are cut off towards -∞.

``CodedColumn`` is what writers take. There is no object per row or per value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.parquet.values import ByteArrays

from .keys import I64, Key, KeyArray, PaimonType, Root, ordinals_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


LARGEST_ROW_COUNT = 2**31 - 1
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_PLAIN = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "uint8": "SMALLINT",
    "int32": "INT",
    "uint16": "INT",
    "int64": "BIGINT",
    "uint32": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date32[day]": "DATE",
    **dict.fromkeys(("string", "large_string", "string_view"), "STRING"),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), "BYTES"),
}
_INTEGERS = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """``keys[i]`` is the key of row ``rows[i]`` (uint32, ascending); other rows are null."""

    row_count: int
    rows: NDArray[np.uint32]
    keys: KeyArray


def column_of(type: PaimonType, column: pa.Array | pa.ChunkedArray) -> KeyColumn:
    """The keys of an Arrow column. ``UnsupportedError`` for other Arrow types than the module
    lists, values that do not fit, and columns of 2^31 rows and more."""
    if len(column) > LARGEST_ROW_COUNT:
        raise UnsupportedError(f"{len(column):,} rows: a file index counts them in 31 bits")
    if isinstance(column, pa.ChunkedArray):
        if not type.width:  # strings of 2 GiB and more do not fit 32-bit offsets
            column = column.cast(pa.large_binary())
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # Arrow merges the chunks
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        valid = np.asarray(column.is_valid())
        rows = np.flatnonzero(valid).astype(np.uint32)
    else:
        rows = np.arange(len(column), dtype=np.uint32)
    count, column = len(column), column.drop_null()
    values = _ordinals(column, type) if type.width else _strings(column, type)
    return KeyColumn(count, rows, KeyArray(type, values))


def type_of(stored: pa.DataType) -> PaimonType:
    """The type that a column of this Arrow type has in Paimon: the narrowest that holds it.

    ``UnsupportedError`` for nested types, unsigned numbers of 64 bits, and others.
    """
    if pa.types.is_dictionary(stored):
        return type_of(stored.value_type)
    plain = _PLAIN.get(str(stored))
    if plain is not None:
        return PaimonType.parse(plain)
    if pa.types.is_decimal(stored) and 0 <= stored.scale <= stored.precision <= 38:
        return PaimonType(Root.DECIMAL, stored.precision, stored.scale)
    if pa.types.is_time(stored):
        return PaimonType(Root.TIME, _DIGITS[stored.unit])
    if pa.types.is_timestamp(stored):
        root = Root.TIMESTAMP if stored.tz is None else Root.TIMESTAMP_LTZ
        return PaimonType(root, _DIGITS[stored.unit])
    if pa.types.is_fixed_size_binary(stored) and stored.byte_width:
        return PaimonType(Root.BINARY, stored.byte_width)
    raise UnsupportedError(f"a column of {stored} has no file index of any kind")


def _strings(array: pa.Array, type: PaimonType) -> ByteArrays:
    stored = array.type
    fits = _PLAIN.get(str(stored)) in ("STRING", "BYTES") or pa.types.is_fixed_size_binary(stored)
    if not fits:
        raise _mismatch(stored, type)
    return ByteArrays.from_arrow(array.cast(pa.large_binary()))


def _ordinals(array: pa.Array, type: PaimonType) -> I64:
    stored, root = array.type, type.root
    if root is Root.BOOLEAN and pa.types.is_boolean(stored):
        return np.asarray(array.cast(pa.uint8())).astype(np.int64)
    if root in _INTEGERS and pa.types.is_integer(stored):
        return _fitting(np.asarray(array), type)
    if root is Root.FLOAT and pa.types.is_float32(stored):
        return ordinals_of(np.asarray(array).view(np.int32), type)
    if root is Root.DOUBLE and pa.types.is_float64(stored):
        return ordinals_of(np.asarray(array).view(np.int64), type)
    if root is Root.DATE and pa.types.is_date32(stored):
        return np.asarray(array.view(pa.int32())).astype(np.int64)
    if root is Root.TIME and pa.types.is_time(stored):
        raw = np.asarray(array.view(pa.int32() if stored.bit_width == 32 else pa.int64()))
        return _scaled(raw.astype(np.int64), stored.unit, "ms")
    if type.is_timestamp and pa.types.is_timestamp(stored):
        raw = np.asarray(array.view(pa.int64()))
        return _scaled(raw, stored.unit, "ms" if type.in_millis else "us")
    if root is Root.DECIMAL and pa.types.is_decimal(stored) and stored.scale == type.scale:
        return _unscaled(array, type)
    raise _mismatch(stored, type)


def _fitting(values: NDArray[Any], type: PaimonType) -> I64:
    bound = 1 << (8 * type.width - 1)
    if len(values) and not (-bound <= int(values.min()) and int(values.max()) < bound):
        raise UnsupportedError(f"a value does not fit {type}")
    return values.astype(np.int64, copy=False)


def _scaled(values: I64, unit: str, wanted: str) -> I64:
    """From one unit of time to another, down to the full unit below."""
    have, want = _PER_SECOND[unit], _PER_SECOND[wanted]
    if have >= want:
        return values if have == want else values // (have // want)
    factor = want // have
    bound = (2**63 - 1) // factor
    if len(values) and not -bound <= int(values.min()) <= int(values.max()) <= bound:
        raise UnsupportedError("an instant does not fit 64 bits of microseconds")
    return values * factor


def _unscaled(array: pa.Array, type: PaimonType) -> I64:
    wide = array.cast(pa.decimal128(38, type.scale))
    limbs = np.frombuffer(wide.buffers()[1] or b"", np.int64)
    limbs = limbs[2 * wide.offset : 2 * (wide.offset + len(wide))].reshape(-1, 2)
    if not np.array_equal(limbs[:, 1], limbs[:, 0] >> 63):
        raise UnsupportedError(f"an unscaled value of {type} does not fit 64 bits")
    return np.ascontiguousarray(limbs[:, 0])


def _mismatch(stored: pa.DataType, type: PaimonType) -> UnsupportedError:
    return UnsupportedError(f"a column of {stored} is not a column of {type}")


def key_of(type: PaimonType, value: bool | float | str | bytes) -> Key:
    """The key of one value in the type's stored domain: numbers as they are, decimals unscaled,
    days, milliseconds of the day, microseconds since 1970-01-01 for timestamps of every
    precision, text or bytes. A number is not checked against the type's limits: as a literal it
    may lie outside."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        if type.width:
            raise UnsupportedError(f"{value!r} is not a value of {type}")
        return value
    if not type.width:
        raise UnsupportedError(f"{value!r} is not a value of {type}")
    if type.is_float:
        wide = np.array([value], np.float64 if type.root is Root.DOUBLE else np.float32)
        return int(ordinals_of(wide.view(f"i{type.width}"), type)[0])
    if isinstance(value, float):
        raise UnsupportedError(f"{value!r} is not a value of {type}")
    if type.is_timestamp and type.in_millis:
        return int(value) // 1_000
    return int(value)


@dataclass(frozen=True, slots=True, eq=False)
class CodedColumn:
    """A whole column: its distinct ``keys``, ascending, each in some row; and each row's place
    among them (``codes``, int32), -1 for null."""

    keys: KeyArray
    codes: NDArray[np.int32]

    @property
    def type(self) -> PaimonType:
        """The column's type."""
        return self.keys.type

    @property
    def row_count(self) -> int:
        """Rows, nulls included."""
        return len(self.codes)

    @property
    def rows(self) -> NDArray[np.uint32]:
        """The rows that hold a value, ascending."""
        return np.flatnonzero(self.codes >= 0).astype(np.uint32)


class GroupedRows(NamedTuple):
    """``rows[starts[c]:starts[c + 1]]`` (uint32, ascending) hold key c; ``nulls`` hold none."""

    starts: I64
    rows: NDArray[np.uint32]
    nulls: NDArray[np.uint32]


def group_rows(column: CodedColumn) -> GroupedRows:
    """The rows of each key, in the order of the keys.

    Sorting is by counting, 16 bits of the code at a time: about 30 bytes per row.
    """
    rows = column.rows
    codes = column.codes[rows]
    order = _order(codes.astype(np.uint64), max(len(column.keys) - 1, 0).bit_length())
    counts = np.bincount(codes, minlength=len(column.keys)) if len(rows) else np.empty(0, np.int64)
    starts = np.append(0, np.cumsum(counts)).astype(np.int64)
    return GroupedRows(starts, rows[order], np.flatnonzero(column.codes < 0).astype(np.uint32))


def _order(values: NDArray[np.uint64], bits: int) -> I64:
    """The stable order of values below ``2 ** bits``. NumPy counts 16-bit values, no wider ones."""
    order = np.arange(len(values)) if not bits else None
    for shift in range(0, bits, 16):
        digit = (values >> np.uint64(shift)).astype(np.uint16)
        if order is None:
            order = np.argsort(digit, kind="stable")
        else:
            order = order[np.argsort(digit[order], kind="stable")]
    return np.asarray(order)
