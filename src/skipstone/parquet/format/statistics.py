"""What a writer says of the values of a chunk or page: ``Statistics`` and its younger kin.

``min_value`` and ``max_value`` are PLAIN bytes (byte arrays without their length) in the column's
``ColumnOrder``; they bound the values and need not occur unless the exactness flags say so. ``min``
and ``max`` are deprecated: signed byte order, whatever the type. An absent count is unknown, never
zero. What may be concluded from them is decided in ``skipstone.parquet.evidence``.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone.parquet.thrift.structs import (
    BINARY,
    BOOL,
    DOUBLE,
    I32,
    I64,
    Declared,
    list_of,
    optional,
    required,
    struct,
)

__all__ = ["BoundingBox", "GeospatialStatistics", "SizeStatistics", "Statistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Declared):
    """Of a column chunk or a page."""

    max: bytes | None = optional(1, BINARY)
    min: bytes | None = optional(2, BINARY)
    null_count: int | None = optional(3, I64)
    distinct_count: int | None = optional(4, I64)
    max_value: bytes | None = optional(5, BINARY)
    min_value: bytes | None = optional(6, BINARY)
    is_max_value_exact: bool | None = optional(7, BOOL)
    is_min_value_exact: bool | None = optional(8, BOOL)
    nan_count: int | None = optional(9, I64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStatistics(Declared):
    """Bytes of the byte arrays without their lengths, and how often each level occurs."""

    unencoded_byte_array_data_bytes: int | None = optional(1, I64)
    repetition_level_histogram: tuple[int, ...] | None = optional(2, list_of(I64))
    definition_level_histogram: tuple[int, ...] | None = optional(3, list_of(I64))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundingBox(Declared):
    """Smallest and largest coordinate of each axis; ``xmin > xmax`` wraps around."""

    xmin: float = required(1, DOUBLE)
    xmax: float = required(2, DOUBLE)
    ymin: float = required(3, DOUBLE)
    ymax: float = required(4, DOUBLE)
    zmin: float | None = optional(5, DOUBLE)
    zmax: float | None = optional(6, DOUBLE)
    mmin: float | None = optional(7, DOUBLE)
    mmax: float | None = optional(8, DOUBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeospatialStatistics(Declared):
    """Of GEOMETRY and GEOGRAPHY columns; ``geospatial_types`` are WKB codes."""

    bbox: BoundingBox | None = optional(1, struct(BoundingBox))
    geospatial_types: tuple[int, ...] | None = optional(2, list_of(I32))
