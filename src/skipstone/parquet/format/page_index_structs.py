"""``OffsetIndex`` and ``ColumnIndex`` as declared structs; ``page_index.py`` has them as arrays.

``compressed_page_size`` of a location includes the page's header; ``first_row_index`` counts from
the start of the row group. Bounds of a null page are placeholders. An absent ``null_counts`` is
unknown, never zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone.parquet.thrift.structs import (
    BINARY,
    BOOL,
    I32,
    I64,
    Declared,
    enum,
    list_of,
    optional,
    required,
    struct,
)

from .enums import BoundaryOrder

__all__ = ["ColumnIndex", "OffsetIndex", "PageLocation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLocation(Declared):
    """Where a data page lies."""

    offset: int = required(1, I64)
    compressed_page_size: int = required(2, I32)
    first_row_index: int = required(3, I64)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetIndex(Declared):
    """Where the data pages of a chunk lie, in their order; a page begins with a row."""

    page_locations: tuple[PageLocation, ...] = required(1, list_of(struct(PageLocation)))
    unencoded_byte_array_data_bytes: tuple[int, ...] | None = optional(2, list_of(I64))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnIndex(Declared):
    """Bounds of each data page of a chunk, in the column's order."""

    null_pages: tuple[bool, ...] = required(1, list_of(BOOL))
    min_values: tuple[bytes, ...] = required(2, list_of(BINARY))
    max_values: tuple[bytes, ...] = required(3, list_of(BINARY))
    boundary_order: BoundaryOrder | int = required(4, enum(BoundaryOrder))
    null_counts: tuple[int, ...] | None = optional(5, list_of(I64))
    repetition_level_histograms: tuple[int, ...] | None = optional(6, list_of(I64))
    definition_level_histograms: tuple[int, ...] | None = optional(7, list_of(I64))
    nan_counts: tuple[int, ...] | None = optional(8, list_of(I64))
