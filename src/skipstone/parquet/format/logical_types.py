"""Logical types: what the values of a column mean (format 2.14).

``LogicalType`` is a union: one of its fields is set. A type that is newer than this reader is in
``unknown``, and the column is read as its physical type.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone.parquet.thrift.structs import (
    BOOL,
    I8,
    I32,
    STRING,
    Declared,
    enum,
    optional,
    required,
    struct,
)

from .enums import EdgeInterpolationAlgorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class StringType(Declared):
    """UTF-8 text in a BYTE_ARRAY."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapType(Declared):
    """A group of repeated key and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListType(Declared):
    """A group of a repeated element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumType(Declared):
    """UTF-8 text in a BYTE_ARRAY, of an enumeration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalType(Declared):
    """Value = unscaled × 10^-scale; INT32, INT64, or big-endian two's complement bytes."""

    scale: int = required(1, I32)
    precision: int = required(2, I32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DateType(Declared):
    """Days since 1970-01-01 in an INT32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MilliSeconds(Declared):
    """10^-3 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroSeconds(Declared):
    """10^-6 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NanoSeconds(Declared):
    """10^-9 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnit(Declared):
    """One of three."""

    MILLIS: MilliSeconds | None = optional(1, struct(MilliSeconds))
    MICROS: MicroSeconds | None = optional(2, struct(MicroSeconds))
    NANOS: NanoSeconds | None = optional(3, struct(NanoSeconds))

    @property
    def arrow(self) -> str | None:
        """Arrow's name of the unit, ``None`` for an unknown unit."""
        if self.MILLIS is not None:
            return "ms"
        if self.MICROS is not None:
            return "us"
        return "ns" if self.NANOS is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeType(Declared):
    """Time since midnight: INT32 for MILLIS, else INT64."""

    isAdjustedToUTC: bool = required(1, BOOL)
    unit: TimeUnit = required(2, struct(TimeUnit))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampType(Declared):
    """Time since the epoch, INT64: an instant if adjusted to UTC, else a local date and time."""

    isAdjustedToUTC: bool = required(1, BOOL)
    unit: TimeUnit = required(2, struct(TimeUnit))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntType(Declared):
    """8, 16, 32 or 64 bits, signed or not, in an INT32 or INT64."""

    bitWidth: int = required(1, I8)
    isSigned: bool = required(2, BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class NullType(Declared):
    """Nothing but nulls; the physical type was guessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonType(Declared):
    """JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BsonType(Declared):
    """A BSON document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UUIDType(Declared):
    """16 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Float16Type(Declared):
    """IEEE half precision, 2 bytes little-endian."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantType(Declared):
    """A group of ``metadata`` and ``value``, and perhaps ``typed_value``."""

    specification_version: int | None = optional(1, I8)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryType(Declared):
    """WKB with straight edges."""

    crs: str | None = optional(1, STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeographyType(Declared):
    """WKB on an ellipsoid."""

    crs: str | None = optional(1, STRING)
    algorithm: EdgeInterpolationAlgorithm | int | None = optional(
        2, enum(EdgeInterpolationAlgorithm)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileType(Declared):
    """A reference to a file; its fields are kept as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalType(Declared):
    """A union of all logical types."""

    STRING: StringType | None = optional(1, struct(StringType))
    MAP: MapType | None = optional(2, struct(MapType))
    LIST: ListType | None = optional(3, struct(ListType))
    ENUM: EnumType | None = optional(4, struct(EnumType))
    DECIMAL: DecimalType | None = optional(5, struct(DecimalType))
    DATE: DateType | None = optional(6, struct(DateType))
    TIME: TimeType | None = optional(7, struct(TimeType))
    TIMESTAMP: TimestampType | None = optional(8, struct(TimestampType))
    INTEGER: IntType | None = optional(10, struct(IntType))
    UNKNOWN: NullType | None = optional(11, struct(NullType))
    JSON: JsonType | None = optional(12, struct(JsonType))
    BSON: BsonType | None = optional(13, struct(BsonType))
    UUID: UUIDType | None = optional(14, struct(UUIDType))
    FLOAT16: Float16Type | None = optional(15, struct(Float16Type))
    VARIANT: VariantType | None = optional(16, struct(VariantType))
    GEOMETRY: GeometryType | None = optional(17, struct(GeometryType))
    GEOGRAPHY: GeographyType | None = optional(18, struct(GeographyType))
    FILE: FileType | None = optional(19, struct(FileType))

    @property
    def name(self) -> str | None:
        """The name of the type that is set; ``None`` for an unknown type."""
        return next(iter(self.to_dict()), None) if not self.unknown else None
