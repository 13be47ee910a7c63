"""Converts PLAIN bytes of statistics into keys in Spark's order, by the type of the leaf column.

| physical | logical | canonical type | keys from |
|---|---|---|---|
| BOOLEAN | | boolean | one byte, 0 or 1 |
| INT32, INT64 | none, INT(8 … 64, signed) | int … bigint | two's complement |
| INT32, INT64 | INT(8 … 64, unsigned) | the narrowest that holds it | unsigned |
| INT32, INT64, FLBA, BYTE_ARRAY | DECIMAL | decimal | the signed unscaled value |
| INT32 | DATE | date | days |
| INT64 | TIMESTAMP | timestamp, timestamp_ntz | microseconds |
| INT96 | | timestamp | microseconds |
| FLOAT, DOUBLE, FLBA(2) FLOAT16 | | float, double | ``literals.float_keys`` |
| BYTE_ARRAY, FLBA | STRING, ENUM, JSON, BSON, UUID, none | string, binary | the bytes, unsigned |

Nanoseconds are rounded down for a lower bound and up for an upper one. So they bound the values
whether a reader rounds those down or keeps them. All other types (INTERVAL, TIME, GEOMETRY,
GEOGRAPHY, VARIANT, FILE, annotations that are unknown or do not fit the physical type) have no
order here: their bounds are ignored, their null counts are used.

Bytes of a wrong length, decimals of more than 16 bytes and instants beyond 64 bits of microseconds
are unknown, never an error. A whole column of bounds is converted at once.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.parquet.format.enums import PLAIN_WIDTHS, Type
from skipstone.parquet.values import JULIAN_EPOCH, ByteArrays, sign_extended
from skipstone.predicate.literals import Keys, float_keys, wide, wide_keys
from skipstone.predicate.types import TIMESTAMP, TIMESTAMP_NTZ, Kind, kind_of
from skipstone.pruning.column_types import StoredLeaf, is_text, restate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.values import I64
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray


class Form(Enum):
    """How a column's bytes become keys."""

    BOOLEAN = "boolean"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    DECIMAL = "decimal"
    TIMESTAMP = "timestamp"
    INT96 = "int96"
    FLOATING = "floating"
    TEXT = "text"
    NONE = "none"


# The decimal digits that the physical type holds.
_DIGITS = {Type.INT32: 9, Type.INT64: 18, Type.BYTE_ARRAY: 38, Type.FIXED_LEN_BYTE_ARRAY: 38}
# Ticks per microsecond; for coarser units, microseconds per tick as a negative number.
_UNITS = {"ns": 1000, "us": 1, "ms": -1000}
_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNSIGNED = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """The values of a leaf column: its canonical ``type`` (``None`` where no order is known)."""

    column: ColumnDescriptor
    form: Form
    type: pa.DataType | None
    unit: str = ""

    @classmethod
    def of(cls, column: ColumnDescriptor) -> StoredColumn:
        """From the schema; see the module."""
        form, type_, unit = _form(column)
        return cls(column, form, type_, unit)

    def restate(self, leaf: Leaf) -> StoredLeaf | None:
        """``leaf`` restated for the stored values; ``None`` if that is not exactly possible."""
        if self.type is None:
            return None
        if self.form is Form.TEXT and is_text(leaf.type):
            return leaf  # strings and binary compare alike, as bytes
        if self.form is Form.INT96 and leaf.type in (TIMESTAMP, TIMESTAMP_NTZ):
            return leaf  # INT96 does not say whether it is an instant
        return restate(leaf, self.type)

    @property
    def rounds(self) -> bool:
        """True where keys are coarser than values, which are nanoseconds."""
        return self.form is Form.INT96 or self.unit == "ns"

    def keys(self, values: ByteArrays, known: BoolArray, *, upper: bool = False) -> Keys:
        """Keys of n PLAIN values (byte arrays without their length). A key is valid if its value is
        ``known`` and its bytes are a value of the type. ``upper`` rounds up."""
        match self.form:
            case Form.NONE:
                return no_keys(self.type, len(values))
            case Form.TEXT:
                return _texts(values, known)
            case Form.DECIMAL if self.column.type in (
                Type.BYTE_ARRAY,
                Type.FIXED_LEN_BYTE_ARRAY,
            ):
                return self._decimals(values, known)
            case _:
                return self._fixed(values, known, upper)

    def _fixed(self, values: ByteArrays, known: BoolArray, upper: bool) -> Keys:
        width = PLAIN_WIDTHS.get(self.column.type, self.column.type_length)
        valid = known & (values.lengths == width)
        found = np.zeros((len(values), width), np.uint8)
        at = np.flatnonzero(valid)
        if len(at):
            windows = np.lib.stride_tricks.sliding_window_view(values.data, width)
            found[at] = windows[values.offsets[at]]
        return self.fixed_keys(found, valid, upper=upper)

    def fixed_keys(
        self, found: NDArray[np.uint8], valid: BoolArray, *, upper: bool = False
    ) -> Keys:
        """Keys of n values of a fixed width, ``(n, width)``; not of decimals in bytes."""
        width = found.shape[1]
        match self.form:
            case Form.BOOLEAN:
                return Keys(found[:, 0].astype(np.int64), valid & (found[:, 0] <= 1))
            case Form.FLOATING:
                numbers = found.view({2: "<f2", 4: "<f4", 8: "<f8"}[width]).ravel()
                if width == 8:
                    return Keys(float_keys(numbers), valid)
                with np.errstate(invalid="ignore"):  # signalling NaN
                    return Keys(float_keys(numbers.astype(np.float64)), valid)
            case Form.INT96:
                return _int96(found, valid, upper)
            case Form.UNSIGNED:
                words = found.view(f"<u{width}").ravel()
                if width == 8:
                    return wide_keys(np.zeros(len(words), np.int64), words, valid)
                return Keys(words.astype(np.int64), valid)
            case _:
                numbers = found.view(f"<i{width}").ravel().astype(np.int64)
        if self.form is Form.DECIMAL and self.type is not None and wide(self.type):
            return wide_keys(numbers >> 63, numbers.view(np.uint64), valid)
        if self.form is Form.TIMESTAMP:
            return _microseconds(numbers, _UNITS[self.unit], valid, upper)
        return Keys(numbers, valid)

    def _decimals(self, values: ByteArrays, known: BoolArray) -> Keys:
        """Big-endian two's complement of any length from 1 to 16."""
        lengths = values.lengths
        valid = known & (lengths > 0) & (lengths <= 16)
        if self.column.type is Type.FIXED_LEN_BYTE_ARRAY:
            valid &= lengths == self.column.type_length
        found = np.zeros((len(values), 16), np.uint8)
        at = np.flatnonzero(valid)
        found[at] = sign_extended(values.data, values.offsets[at], lengths[at], 16)
        words = found.view("<i8")
        low, high = words[:, 0], words[:, 1]
        assert self.type is not None
        if wide(self.type):
            return wide_keys(high, low.view(np.uint64), valid)
        fits = high == low >> 63
        return Keys(np.where(fits, low, 0), valid & fits)


def no_keys(type: pa.DataType | None, count: int) -> Keys:
    """``count`` unknown keys, of the kind that ``type`` has."""
    none = np.zeros(count, np.bool_)
    if type is not None and (kind_of(type) in (Kind.STRING, Kind.BINARY) or wide(type)):
        return Keys(pa.nulls(count, pa.large_binary()), none)
    return Keys(np.zeros(count, np.int64), none)


def _texts(values: ByteArrays, known: BoolArray) -> Keys:
    if known.all():
        return Keys(values.to_arrow(), known)
    mask = pa.py_buffer(np.packbits(known, bitorder="little"))
    whole = values.to_arrow()
    buffers = [mask, *whole.buffers()[1:]]
    return Keys(pa.Array.from_buffers(pa.large_binary(), len(whole), buffers), known)


def _microseconds(ticks: I64, per: int, valid: BoolArray, upper: bool) -> Keys:
    if per == 1:
        return Keys(ticks, valid)
    if per > 1:
        return Keys(-(-ticks // per) if upper else ticks // per, valid)
    most = (1 << 63) // -per
    fits = (ticks < most) & (ticks > -most)
    return Keys(np.where(fits, ticks, 0) * -per, valid & fits)


def _int96(found: NDArray[np.uint8], valid: BoolArray, upper: bool) -> Keys:
    """Nanoseconds of the day, then the Julian day."""
    nanos = np.ascontiguousarray(found[:, :8]).view("<i8").ravel().astype(np.int64)
    days = np.ascontiguousarray(found[:, 8:]).view("<i4").ravel().astype(np.int64) - JULIAN_EPOCH
    # The order is by day: more nanoseconds than a day has break it.
    fits = (nanos >= 0) & (nanos < 1000 * _DAY) & (np.abs(days) < (1 << 63) // _DAY - 1)
    days, nanos = np.where(fits, days, 0), np.where(fits, nanos, 0)
    return Keys(days * _DAY + (-(-nanos // 1000) if upper else nanos // 1000), valid & fits)


# -- the form of a column -------------------------------------------------------------------------

_NOTHING = (Form.NONE, None, "")


def _form(column: ColumnDescriptor) -> tuple[Form, pa.DataType | None, str]:
    element, physical, kind = column.element, column.type, column.element.annotation
    name = kind.name
    if kind.unknown or (name is None and element.converted_type is not None):
        return _NOTHING
    if kind.DECIMAL is not None:
        return _decimal(physical, kind.DECIMAL.precision, kind.DECIMAL.scale)
    if physical is Type.BYTE_ARRAY:
        return _TEXTS.get(name, _NOTHING)
    if physical is Type.FIXED_LEN_BYTE_ARRAY:
        if name == "FLOAT16" and column.type_length == 2:
            return Form.FLOATING, pa.float32(), ""
        return _TEXTS[None] if name in (None, "UUID") else _NOTHING
    if name is None:
        return _PLAIN[physical]
    if kind.INTEGER is not None:
        return _integer(physical, kind.INTEGER.bitWidth, kind.INTEGER.isSigned)
    if name == "DATE" and physical is Type.INT32:
        return Form.SIGNED, pa.date32(), ""
    stamp = kind.TIMESTAMP
    if physical is not Type.INT64 or stamp is None or stamp.unit.arrow is None:
        return _NOTHING
    return Form.TIMESTAMP, TIMESTAMP if stamp.isAdjustedToUTC else TIMESTAMP_NTZ, stamp.unit.arrow


_TEXT = (Form.TEXT, pa.string(), "")
_BYTES = (Form.TEXT, pa.binary(), "")
_TEXTS = {
    None: _BYTES,
    "BSON": _BYTES,
    "STRING": _TEXT,
    "ENUM": _TEXT,
    "JSON": _TEXT,
}
_PLAIN = {
    Type.BOOLEAN: (Form.BOOLEAN, pa.bool_(), ""),
    Type.INT32: (Form.SIGNED, pa.int32(), ""),
    Type.INT64: (Form.SIGNED, pa.int64(), ""),
    Type.INT96: (Form.INT96, TIMESTAMP, ""),
    Type.FLOAT: (Form.FLOATING, pa.float32(), ""),
    Type.DOUBLE: (Form.FLOATING, pa.float64(), ""),
}


def _decimal(physical: Type, precision: int, scale: int) -> tuple[Form, pa.DataType | None, str]:
    if not (1 <= precision <= _DIGITS.get(physical, 0) and 0 <= scale <= precision):
        return _NOTHING
    return Form.DECIMAL, pa.decimal128(precision, scale), ""


def _integer(physical: Type, bits: int, signed: bool) -> tuple[Form, pa.DataType | None, str]:
    fits = {Type.INT32: (8, 16, 32), Type.INT64: (64,)}.get(physical, ())
    if bits not in fits:
        return _NOTHING
    return (Form.SIGNED, _INTEGERS[bits], "") if signed else (Form.UNSIGNED, _UNSIGNED[bits], "")
