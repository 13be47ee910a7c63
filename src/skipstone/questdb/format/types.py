"""QuestDB's type codes: a tag in bits 0 to 7, and the tag's parameters above them.

    TIMESTAMP   bit 17 designated, bit 18 nanoseconds (else microseconds), bit 20 descending
    GEO…        bits << 8 | 1 << 16
                1..7 GEOBYTE, 8..15 GEOSHORT, 16..31 GEOINT, 32..60 GEOLONG
    DECIMAL…    precision << 8 | scale << 18
                precision 1..2, 3..4, 5..9, 10..18, 19..38, 39..76 for 8, 16, 32, 64, 128, 256 bits
    ARRAY       element tag << 8 (6 bits) | (dimensions - 1) << 14 (5 bits) | weak dimensions << 19

How QuestDB writes each into Parquet is ``ColumnType.parquet``; values that stand for null (the
least integer, NaN, …) are written as Parquet nulls. A code that is not one of these, like the -1 of
a column whose Parquet type has no equal here, has no ``ColumnType``: nothing may be concluded from
the statistics of such a column.

``readable`` gives values of statistics as text: instants as ISO 8601 in UTC, decimals with their
point, UUIDs and addresses in their usual form, geohashes as QuestDB prints them: ``#`` and base 32
where the bits divide by five, else ``##`` and the bits. Bytes that are not text are hex. A value of
another width than its type has no text.

Source: QuestDB's ColumnType and col_type.rs, which agree.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from uuid import UUID

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.parquet.format.enums import ConvertedType, Type
from skipstone.parquet.format.metadata import (
    DecimalType,
    IntType,
    LogicalType,
    TimestampType,
    TimeUnit,
)
from skipstone.parquet.thrift.structs import Empty

if TYPE_CHECKING:
    from .values import PmColumn


#: TYPE of a column whose Parquet type has no equal in QuestDB.
UNKNOWN: Final = -1


class Tag(IntEnum):
    """The tags that a partition can hold."""

    BOOLEAN = 1
    BYTE = 2
    SHORT = 3
    CHAR = 4
    INT = 5
    LONG = 6
    DATE = 7
    TIMESTAMP = 8
    FLOAT = 9
    DOUBLE = 10
    STRING = 11
    SYMBOL = 12
    LONG256 = 13
    GEOBYTE = 14
    GEOSHORT = 15
    GEOINT = 16
    GEOLONG = 17
    BINARY = 18
    UUID = 19
    LONG128 = 24
    IPV4 = 25
    VARCHAR = 26
    ARRAY = 27
    DECIMAL8 = 28
    DECIMAL16 = 29
    DECIMAL32 = 30
    DECIMAL64 = 31
    DECIMAL128 = 32
    DECIMAL256 = 33


_DESIGNATED, _NANOS, _DESCENDING = 1 << 17, 1 << 18, 1 << 20
_GEOHASH, _WEAK = 1 << 16, 1 << 19
_TAGS: Final = {int(tag): tag for tag in Tag}
#: The least and the most bits of a geohash.
_GEO_BITS: Final = {
    Tag.GEOBYTE: (1, 7),
    Tag.GEOSHORT: (8, 15),
    Tag.GEOINT: (16, 31),
    Tag.GEOLONG: (32, 60),
}
#: The least and the largest precision, and the bytes.
_DECIMALS: Final = {
    Tag.DECIMAL8: (1, 2, 1),
    Tag.DECIMAL16: (3, 4, 2),
    Tag.DECIMAL32: (5, 9, 4),
    Tag.DECIMAL64: (10, 18, 8),
    Tag.DECIMAL128: (19, 38, 16),
    Tag.DECIMAL256: (39, 76, 32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetForm:
    """How a type lies in Parquet: ``length`` is that of a FIXED_LEN_BYTE_ARRAY, else 0."""

    type: Type
    length: int = 0
    logical: LogicalType | None = None
    converted: ConvertedType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """A type code in its parts; those that do not belong to the tag are 0 or ``False``."""

    tag: Tag
    designated: bool = False
    nanos: bool = False
    descending: bool = False
    geo_bits: int = 0
    precision: int = 0
    scale: int = 0
    element: int = 0
    dimensions: int = 0
    weak_dimensions: bool = False

    @classmethod
    def of(cls, code: int) -> Self | None:
        """The type of this code, ``None`` for one that is not known."""
        tag = _TAGS.get(code & 0xFF) if code > 0 else None
        if tag is None:
            return None
        if tag is Tag.TIMESTAMP:
            found = cls(
                tag=tag,
                designated=bool(code & _DESIGNATED),
                nanos=bool(code & _NANOS),
                descending=bool(code & _DESCENDING),
            )
        elif tag in _GEO_BITS:
            found = cls(tag=tag, geo_bits=code >> 8 & 0xFF)
        elif tag in _DECIMALS:
            found = cls(tag=tag, precision=code >> 8 & 0xFF, scale=code >> 18 & 0xFF)
        elif tag is Tag.ARRAY:
            found = cls(
                tag=tag,
                element=code >> 8 & 0x3F,
                dimensions=(code >> 14 & 0x1F) + 1,
                weak_dimensions=bool(code & _WEAK),
            )
        else:
            found = cls(tag=tag)
        # Bits that no part accounts for mean a type that is not known here.
        return found if found.code == code and found._in_range() else None

    @classmethod
    def decimal(cls, precision: int, scale: int) -> Self | None:
        """The DECIMAL of this precision and scale, ``None`` where QuestDB has none."""
        for tag, (least, most, _) in _DECIMALS.items():
            if least <= precision <= most and 0 <= scale <= precision:
                return cls(tag=tag, precision=precision, scale=scale)
        return None

    def _in_range(self) -> bool:
        if self.tag in _GEO_BITS:
            least, most = _GEO_BITS[self.tag]
            return least <= self.geo_bits <= most
        if self.tag in _DECIMALS:
            least, most, _ = _DECIMALS[self.tag]
            return least <= self.precision <= most and self.scale <= self.precision
        return self.tag is not Tag.ARRAY or self.element == Tag.DOUBLE

    @property
    def code(self) -> int:
        code = int(self.tag)
        code |= (_DESIGNATED if self.designated else 0) | (_NANOS if self.nanos else 0)
        code |= _DESCENDING if self.descending else 0
        if self.geo_bits:
            code |= self.geo_bits << 8 | _GEOHASH
        if self.tag in _DECIMALS:
            code |= self.precision << 8 | self.scale << 18
        if self.tag is Tag.ARRAY:
            code |= self.element << 8 | (self.dimensions - 1) << 14
        return code | (_WEAK if self.weak_dimensions else 0)

    @property
    def name(self) -> str:
        """QuestDB's name of the tag, in lower case."""
        return self.tag.name.lower()

    @property
    def is_decimal(self) -> bool:
        """True for the six DECIMALs."""
        return self.tag in _DECIMALS

    @property
    def decimal_width(self) -> int:
        """Bytes of a decimal as QuestDB stores it, 0 for other types."""
        return _DECIMALS[self.tag][2] if self.tag in _DECIMALS else 0

    @property
    def parquet(self) -> ParquetForm:
        """How QuestDB writes it."""
        if self.is_decimal:
            logical = DecimalType(scale=self.scale, precision=self.precision)
            return ParquetForm(
                type=Type.FIXED_LEN_BYTE_ARRAY,
                length=self.decimal_width,
                logical=LogicalType(DECIMAL=logical),
                converted=ConvertedType.DECIMAL,
            )
        if self.tag is Tag.TIMESTAMP and self.nanos:
            return _stamp(TimeUnit(NANOS=Empty()), None)
        return _FORMS[self.tag]

    def fits(self, physical: int, length: int) -> bool:
        """True where a column of this type may have this physical type.

        Besides the types that QuestDB writes, it accepts from other writers: DATE in days, decimals
        of any form, INT96, and arrays as nested lists of their elements.
        """
        form = self.parquet
        if physical == form.type and length == form.length:
            return True
        if self.is_decimal:
            return physical in (Type.INT32, Type.INT64, Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY)
        return (self.tag, physical) in _ALSO

    def to_dict(self) -> dict[str, Any]:
        """Code, tag, name, and the parts that belong to it."""
        found: dict[str, Any] = {"code": self.code, "tag": int(self.tag), "name": self.name}
        if self.tag is Tag.TIMESTAMP:
            found |= {"designated": self.designated, "nanos": self.nanos}
        elif self.geo_bits:
            found["geo_bits"] = self.geo_bits
        elif self.is_decimal:
            found |= {"precision": self.precision, "scale": self.scale}
        elif self.tag is Tag.ARRAY:
            found |= {"elem": Tag(self.element).name.lower(), "dims": self.dimensions}
        return found


def _stamp(unit: TimeUnit, converted: ConvertedType | None) -> ParquetForm:
    logical = LogicalType(TIMESTAMP=TimestampType(isAdjustedToUTC=True, unit=unit))
    return ParquetForm(type=Type.INT64, logical=logical, converted=converted)


def _integer(bits: int, converted: ConvertedType, *, signed: bool = True) -> ParquetForm:
    return ParquetForm(
        type=Type.INT64 if bits == 64 else Type.INT32,
        logical=LogicalType(INTEGER=IntType(bitWidth=bits, isSigned=signed)),
        converted=converted,
    )


_TEXT: Final = ParquetForm(
    type=Type.BYTE_ARRAY, logical=LogicalType(STRING=Empty()), converted=ConvertedType.UTF8
)
_FORMS: Final = {
    Tag.BOOLEAN: ParquetForm(type=Type.BOOLEAN),
    Tag.BYTE: _integer(8, ConvertedType.INT_8),
    Tag.GEOBYTE: _integer(8, ConvertedType.INT_8),
    Tag.SHORT: _integer(16, ConvertedType.INT_16),
    Tag.GEOSHORT: _integer(16, ConvertedType.INT_16),
    Tag.CHAR: _integer(16, ConvertedType.UINT_16, signed=False),
    Tag.INT: ParquetForm(type=Type.INT32),
    Tag.GEOINT: _integer(32, ConvertedType.INT_32),
    Tag.IPV4: _integer(32, ConvertedType.UINT_32, signed=False),
    Tag.LONG: ParquetForm(type=Type.INT64),
    Tag.GEOLONG: _integer(64, ConvertedType.INT_64),
    Tag.DATE: _stamp(TimeUnit(MILLIS=Empty()), ConvertedType.TIMESTAMP_MILLIS),
    Tag.TIMESTAMP: _stamp(TimeUnit(MICROS=Empty()), ConvertedType.TIMESTAMP_MICROS),
    Tag.FLOAT: ParquetForm(type=Type.FLOAT),
    Tag.DOUBLE: ParquetForm(type=Type.DOUBLE),
    Tag.STRING: _TEXT,
    Tag.SYMBOL: _TEXT,
    Tag.VARCHAR: _TEXT,
    Tag.BINARY: ParquetForm(type=Type.BYTE_ARRAY),
    Tag.UUID: ParquetForm(
        type=Type.FIXED_LEN_BYTE_ARRAY, length=16, logical=LogicalType(UUID=Empty())
    ),
    Tag.LONG128: ParquetForm(type=Type.FIXED_LEN_BYTE_ARRAY, length=16),
    Tag.LONG256: ParquetForm(type=Type.FIXED_LEN_BYTE_ARRAY, length=32),
    Tag.ARRAY: ParquetForm(type=Type.BYTE_ARRAY),
}
_ALSO: Final = frozenset(
    [(Tag.DATE, Type.INT32), (Tag.TIMESTAMP, Type.INT96), (Tag.ARRAY, Type.DOUBLE)]
)


_BASE32: Final = "0123456789bcdefghjkmnpqrstuvwxyz"
_NUMBERS: Final = {
    Type.BOOLEAN: "<?",
    Type.INT32: "<i",
    Type.INT64: "<q",
    Type.FLOAT: "<f",
    Type.DOUBLE: "<d",
}
_TEXTS: Final = (Tag.STRING, Tag.SYMBOL, Tag.VARCHAR)


def type_text(code: int) -> str:
    """A type code as in a declaration: ``timestamp_ns designated``, ``decimal64(18,3)``."""
    type = ColumnType.of(code)
    if type is None:
        return f"unknown ({code})"
    if type.tag is Tag.TIMESTAMP:
        said = ["timestamp_ns" if type.nanos else "timestamp"]
        said += ["designated"] * type.designated + ["descending"] * type.descending
        return " ".join(said)
    if type.geo_bits:
        return f"{type.name}({type.geo_bits}b)"
    if type.is_decimal:
        return f"{type.name}({type.precision},{type.scale})"
    if type.tag is Tag.ARRAY:
        return f"{Tag(type.element).name.lower()}{'[]' * type.dimensions}"
    return type.name


def readable(column: PmColumn, value: bytes) -> str | None:
    """The value of a bound of this column, as text; ``None`` if it is not known."""
    type = ColumnType.of(column.type)
    layout = _NUMBERS.get(column.physical_type)  # type: ignore[call-overload]
    if layout is not None:
        if len(value) != struct.calcsize(layout):
            return None
        (number,) = struct.unpack(layout, value)
        if isinstance(number, bool):
            return "true" if number else "false"
        if isinstance(number, float):
            # The shortest text of a FLOAT is that of its own width.
            return str(np.float32(number)) if layout == "<f" else str(number)
        if type is not None and type.tag is Tag.DATE and column.physical_type == Type.INT32:
            return str(np.datetime64(number, "D"))
        return str(number) if type is None else _integer_text(type, number)
    if column.physical_type == Type.FIXED_LEN_BYTE_ARRAY and len(value) != column.fixed_byte_len:
        return None
    if type is None:
        return None
    if type.is_decimal:
        return _scaled(int.from_bytes(value, "big", signed=True), type.scale)
    if type.tag is Tag.UUID:
        return str(UUID(bytes=value)) if len(value) == 16 else None
    if type.tag in (Tag.LONG128, Tag.LONG256):
        return f"0x{int.from_bytes(value, 'little'):x}"
    if type.tag in _TEXTS:
        return value.decode("utf-8", "replace")
    return f"0x{value.hex()}" if type.tag is Tag.BINARY else None


def _integer_text(type: ColumnType, number: int) -> str:
    if type.is_decimal:
        return _scaled(number, type.scale)
    if type.geo_bits:
        return _geohash(number, type.geo_bits)
    if type.tag is Tag.TIMESTAMP:
        return _instant(number, "ns" if type.nanos else "us")
    if type.tag is Tag.DATE:
        return _instant(number, "ms")
    if type.tag is Tag.IPV4:
        return str(IPv4Address(number & 0xFFFF_FFFF))
    if type.tag is Tag.CHAR:
        letter = chr(number & 0xFFFF)
        return letter if letter.isprintable() else f"U+{number & 0xFFFF:04X}"
    return str(number)


def _instant(number: int, unit: Literal["ms", "us", "ns"]) -> str:
    text = str(np.datetime64(number, unit))
    return text if text == "NaT" else f"{text}Z"


def _scaled(number: int, scale: int) -> str:
    if not scale:
        return str(number)
    digits = f"{abs(number):0{scale + 1}d}"
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _geohash(number: int, bits: int) -> str:
    if number < 0:
        return "null"
    binary = f"{number:0{bits}b}"[-bits:]
    if bits % 5:
        return f"##{binary}"
    return "#" + "".join(_BASE32[int(binary[at : at + 5], 2)] for at in range(0, bits, 5))
