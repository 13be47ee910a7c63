"""Page headers, the header of a Bloom filter, and the two structs of the page index.

``compressed_page_size`` counts the bytes after the header, as stored. ``crc`` covers exactly these,
after compression and encryption, as a signed i32. A v2 page begins with its levels (repetition,
then definition), which are never compressed; the values after them are compressed unless
``is_compressed`` is false.
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

from .enums import BoundaryOrder, Encoding, PageType
from .metadata import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPageHeader(Declared):
    """Header of a v1 data page; ``num_values`` includes nulls."""

    num_values: int = required(1, I32)
    encoding: Encoding | int = required(2, enum(Encoding))
    definition_level_encoding: Encoding | int = required(3, enum(Encoding))
    repetition_level_encoding: Encoding | int = required(4, enum(Encoding))
    statistics: Statistics | None = optional(5, struct(Statistics))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPageHeader(Declared):
    """Header of an index page of 2013 (``index_pages.py``): the number of its entries.

    parquet.thrift leaves the struct empty; README.md of 2013 says that the number is in it.
    """

    num_entries: int | None = optional(1, I32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DictionaryPageHeader(Declared):
    """Header of the dictionary, the first page of its chunk."""

    num_values: int = required(1, I32)
    encoding: Encoding | int = required(2, enum(Encoding))
    is_sorted: bool | None = optional(3, BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPageHeaderV2(Declared):
    """Header of a v2 data page, which begins with a row."""

    num_values: int = required(1, I32)
    num_nulls: int = required(2, I32)
    num_rows: int = required(3, I32)
    encoding: Encoding | int = required(4, enum(Encoding))
    definition_levels_byte_length: int = required(5, I32)
    repetition_levels_byte_length: int = required(6, I32)
    is_compressed: bool | None = optional(7, BOOL)
    statistics: Statistics | None = optional(8, struct(Statistics))


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHeader(Declared):
    """The header before every page, with one of four inner headers; none for an unknown type."""

    type: PageType | int = required(1, enum(PageType))
    uncompressed_page_size: int = required(2, I32)
    compressed_page_size: int = required(3, I32)
    crc: int | None = optional(4, I32)
    data_page_header: DataPageHeader | None = optional(5, struct(DataPageHeader))
    index_page_header: IndexPageHeader | None = optional(6, struct(IndexPageHeader))
    dictionary_page_header: DictionaryPageHeader | None = optional(7, struct(DictionaryPageHeader))
    data_page_header_v2: DataPageHeaderV2 | None = optional(8, struct(DataPageHeaderV2))


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBlockAlgorithm(Declared):
    """Blocks of 256 bits, eight words each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterAlgorithm(Declared):
    """A union with one member so far."""

    BLOCK: SplitBlockAlgorithm | None = optional(1, struct(SplitBlockAlgorithm))


@dataclass(frozen=True, slots=True, kw_only=True)
class XxHash(Declared):
    """XXH64, seed 0, over the PLAIN bytes of a value (byte arrays without their length)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterHash(Declared):
    """A union with one member so far."""

    XXHASH: XxHash | None = optional(1, struct(XxHash))


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncompressed(Declared):
    """The bitset as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterCompression(Declared):
    """A union with one member so far."""

    UNCOMPRESSED: Uncompressed | None = optional(1, struct(Uncompressed))


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterHeader(Declared):
    """The header before the bitset of ``numBytes`` bytes."""

    numBytes: int = required(1, I32)
    algorithm: BloomFilterAlgorithm = required(2, struct(BloomFilterAlgorithm))
    hash: BloomFilterHash = required(3, struct(BloomFilterHash))
    compression: BloomFilterCompression = required(4, struct(BloomFilterCompression))


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
