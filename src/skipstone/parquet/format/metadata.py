"""``FileMetaData`` and the structs in it, with the names of parquet.thrift (format 2.14).

    FileMetaData
      schema       SchemaElement*          depth first, the root first; see ``schema.py``
      row_groups   RowGroup*
        columns    ColumnChunk*            one per leaf, in schema order
          meta_data  ColumnMetaData        absent where it is encrypted
            statistics, size_statistics, geospatial_statistics

Offsets are bytes from the start of the file, or of ``file_path`` where a chunk names another file
(``_metadata`` summaries). Sizes of chunks include page headers. Reading 100,000 chunks into these
objects takes seconds, so ``footer_arrays.py`` scans them into arrays instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone.parquet.thrift.structs import (
    BINARY,
    BOOL,
    DOUBLE,
    I16,
    I32,
    I64,
    STRING,
    Declared,
    enum,
    list_of,
    optional,
    required,
    struct,
)

from .enums import CompressionCodec, ConvertedType, Encoding, FieldRepetitionType, PageType, Type
from .logical_types import LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Declared):
    """Statistics of a column chunk or a page."""

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
    """Statistics of GEOMETRY and GEOGRAPHY columns; ``geospatial_types`` are WKB codes."""

    bbox: BoundingBox | None = optional(1, struct(BoundingBox))
    geospatial_types: tuple[int, ...] | None = optional(2, list_of(I32))


@dataclass(frozen=True, slots=True, kw_only=True)
class AesGcmV1(Declared):
    """All modules with AES-GCM."""

    aad_prefix: bytes | None = optional(1, BINARY)
    aad_file_unique: bytes | None = optional(2, BINARY)
    supply_aad_prefix: bool | None = optional(3, BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class AesGcmCtrV1(Declared):
    """Pages with AES-CTR, everything else with AES-GCM."""

    aad_prefix: bytes | None = optional(1, BINARY)
    aad_file_unique: bytes | None = optional(2, BINARY)
    supply_aad_prefix: bool | None = optional(3, BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionAlgorithm(Declared):
    """One of two."""

    AES_GCM_V1: AesGcmV1 | None = optional(1, struct(AesGcmV1))
    AES_GCM_CTR_V1: AesGcmCtrV1 | None = optional(2, struct(AesGcmCtrV1))


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionWithFooterKey(Declared):
    """The column is encrypted with the key of the footer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionWithColumnKey(Declared):
    """The column has a key of its own; ``key_metadata`` says how to get it."""

    path_in_schema: tuple[str, ...] = required(1, list_of(STRING))
    key_metadata: bytes | None = optional(2, BINARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCryptoMetaData(Declared):
    """One of two."""

    ENCRYPTION_WITH_FOOTER_KEY: EncryptionWithFooterKey | None = optional(
        1, struct(EncryptionWithFooterKey)
    )
    ENCRYPTION_WITH_COLUMN_KEY: EncryptionWithColumnKey | None = optional(
        2, struct(EncryptionWithColumnKey)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCryptoMetaData(Declared):
    """The plaintext struct before an encrypted footer."""

    encryption_algorithm: EncryptionAlgorithm = required(1, struct(EncryptionAlgorithm))
    key_metadata: bytes | None = optional(2, BINARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaElement(Declared):
    """A node of the schema: a leaf has ``type``, a group ``num_children``."""

    type: Type | int | None = optional(1, enum(Type))
    type_length: int | None = optional(2, I32)
    repetition_type: FieldRepetitionType | int | None = optional(3, enum(FieldRepetitionType))
    name: str = required(4, STRING)
    num_children: int | None = optional(5, I32)
    converted_type: ConvertedType | int | None = optional(6, enum(ConvertedType))
    scale: int | None = optional(7, I32)
    precision: int | None = optional(8, I32)
    field_id: int | None = optional(9, I32)
    logicalType: LogicalType | None = optional(10, struct(LogicalType))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue(Declared):
    """One pair of free metadata."""

    key: str = required(1, STRING)
    value: str | None = optional(2, STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortingColumn(Declared):
    """One key of the sort order of a row group; ``column_idx`` is the ordinal of a leaf."""

    column_idx: int = required(1, I32)
    descending: bool = required(2, BOOL)
    nulls_first: bool = required(3, BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEncodingStats(Declared):
    """How many pages of one type have one encoding."""

    page_type: PageType | int = required(1, enum(PageType))
    encoding: Encoding | int = required(2, enum(Encoding))
    count: int = required(3, I32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMetaData(Declared):
    """Where a column chunk lies, and what it contains."""

    type: Type | int = required(1, enum(Type))
    encodings: tuple[Encoding | int, ...] = required(2, list_of(enum(Encoding)))
    path_in_schema: tuple[str, ...] | None = optional(3, list_of(STRING))
    codec: CompressionCodec | int = required(4, enum(CompressionCodec))
    num_values: int = required(5, I64)
    total_uncompressed_size: int = required(6, I64)
    total_compressed_size: int = required(7, I64)
    key_value_metadata: tuple[KeyValue, ...] | None = optional(8, list_of(struct(KeyValue)))
    data_page_offset: int = required(9, I64)
    index_page_offset: int | None = optional(10, I64)
    dictionary_page_offset: int | None = optional(11, I64)
    statistics: Statistics | None = optional(12, struct(Statistics))
    encoding_stats: tuple[PageEncodingStats, ...] | None = optional(
        13, list_of(struct(PageEncodingStats))
    )
    bloom_filter_offset: int | None = optional(14, I64)
    bloom_filter_length: int | None = optional(15, I32)
    size_statistics: SizeStatistics | None = optional(16, struct(SizeStatistics))
    geospatial_statistics: GeospatialStatistics | None = optional(17, struct(GeospatialStatistics))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChunk(Declared):
    """One column of one row group."""

    file_path: str | None = optional(1, STRING)
    file_offset: int | None = optional(2, I64)
    meta_data: ColumnMetaData | None = optional(3, struct(ColumnMetaData))
    offset_index_offset: int | None = optional(4, I64)
    offset_index_length: int | None = optional(5, I32)
    column_index_offset: int | None = optional(6, I64)
    column_index_length: int | None = optional(7, I32)
    crypto_metadata: ColumnCryptoMetaData | None = optional(8, struct(ColumnCryptoMetaData))
    encrypted_column_metadata: bytes | None = optional(9, BINARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup(Declared):
    """A horizontal slice of the table."""

    columns: tuple[ColumnChunk, ...] = required(1, list_of(struct(ColumnChunk)))
    total_byte_size: int = required(2, I64)
    num_rows: int = required(3, I64)
    sorting_columns: tuple[SortingColumn, ...] | None = optional(4, list_of(struct(SortingColumn)))
    file_offset: int | None = optional(5, I64)
    total_compressed_size: int | None = optional(6, I64)
    ordinal: int | None = optional(7, I16)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDefinedOrder(Declared):
    """The order of the logical or else the physical type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IEEE754TotalOrder(Declared):
    """-NaN < -inf < … < -0 < +0 < … < inf < NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Int96TimestampOrder(Declared):
    """By day, then by nanosecond of the day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOrder(Declared):
    """The order of ``min_value`` and ``max_value``; readers ignore both in an unknown order."""

    TYPE_ORDER: TypeDefinedOrder | None = optional(1, struct(TypeDefinedOrder))
    IEEE_754_TOTAL_ORDER: IEEE754TotalOrder | None = optional(2, struct(IEEE754TotalOrder))
    INT96_TIMESTAMP_ORDER: Int96TimestampOrder | None = optional(3, struct(Int96TimestampOrder))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMetaData(Declared):
    """The footer."""

    version: int = required(1, I32)
    schema: tuple[SchemaElement, ...] = required(2, list_of(struct(SchemaElement)))
    num_rows: int = required(3, I64)
    row_groups: tuple[RowGroup, ...] = required(4, list_of(struct(RowGroup)))
    key_value_metadata: tuple[KeyValue, ...] | None = optional(5, list_of(struct(KeyValue)))
    created_by: str | None = optional(6, STRING)
    column_orders: tuple[ColumnOrder, ...] | None = optional(7, list_of(struct(ColumnOrder)))
    encryption_algorithm: EncryptionAlgorithm | None = optional(8, struct(EncryptionAlgorithm))
    footer_signing_key_metadata: bytes | None = optional(9, BINARY)
