"""``FileMetaData`` and ``PageHeader`` and the structs in them, named as in parquet.thrift 2.14.

    FileMetaData
      schema       SchemaElement*          depth first, the root first; see ``schema.py``
      row_groups   RowGroup*
        columns    ColumnChunk*            one per leaf, in schema order
          meta_data  ColumnMetaData        absent where it is encrypted
            statistics, size_statistics, geospatial_statistics

Offsets are bytes from the start of the file, or of ``file_path`` where a chunk names another file
(``_metadata`` summaries). Sizes of chunks include page headers. Reading 100,000 chunks into these
objects takes seconds, so ``footer_arrays.py`` scans them into arrays instead.

``compressed_page_size`` of a page counts the bytes after the header, as stored. ``crc`` covers
exactly these, after compression and encryption, as a signed i32. A v2 page begins with its levels
(repetition, then definition), which are never compressed; the values after them are compressed
unless ``is_compressed`` is false.
"""

from __future__ import annotations

from typing import Final

from skipstone.parquet.thrift.structs import (
    BINARY,
    BOOL,
    DOUBLE,
    I8,
    I16,
    I32,
    I64,
    STRING,
    Declared,
    Empty,
    declared,
    enum,
    list_of,
    optional,
    required,
    struct,
)

from .enums import (
    CompressionCodec,
    ConvertedType,
    EdgeInterpolationAlgorithm,
    Encoding,
    FieldRepetitionType,
    PageType,
    Type,
)

_EMPTY = struct(Empty)


@declared
class DecimalType(Declared):
    """Value = unscaled × 10^-scale; INT32, INT64, or big-endian two's complement bytes."""

    scale: int = required(1, I32)
    precision: int = required(2, I32)


@declared
class TimeUnit(Declared):
    """A union: one of the three units is set."""

    MILLIS: Empty | None = optional(1, _EMPTY)
    MICROS: Empty | None = optional(2, _EMPTY)
    NANOS: Empty | None = optional(3, _EMPTY)

    @property
    def arrow(self) -> str | None:
        """Arrow's name of the unit, ``None`` for an unknown unit."""
        if self.MILLIS is not None:
            return "ms"
        if self.MICROS is not None:
            return "us"
        return "ns" if self.NANOS is not None else None


@declared
class TimeType(Declared):
    """Time since midnight: INT32 for MILLIS, else INT64."""

    isAdjustedToUTC: bool = required(1, BOOL)
    unit: TimeUnit = required(2, struct(TimeUnit))


@declared
class TimestampType(Declared):
    """Time since the epoch, INT64: an instant if adjusted to UTC, else a local date and time."""

    isAdjustedToUTC: bool = required(1, BOOL)
    unit: TimeUnit = required(2, struct(TimeUnit))


@declared
class IntType(Declared):
    """8, 16, 32 or 64 bits, signed or not, in an INT32 or INT64."""

    bitWidth: int = required(1, I8)
    isSigned: bool = required(2, BOOL)


@declared
class VariantType(Declared):
    """A group of ``metadata`` and ``value``, and perhaps ``typed_value``."""

    specification_version: int | None = optional(1, I8)


@declared
class GeometryType(Declared):
    """WKB with straight edges."""

    crs: str | None = optional(1, STRING)


@declared
class GeographyType(Declared):
    """WKB on an ellipsoid."""

    crs: str | None = optional(1, STRING)
    algorithm: EdgeInterpolationAlgorithm | int | None = optional(
        2, enum(EdgeInterpolationAlgorithm)
    )


@declared
class LogicalType(Declared):
    """What the values of a column mean: a union, of which one field is set.

    A type that is newer than this reader is in ``unknown``: the column is read as its physical
    type. The types without fields of their own:

        STRING, ENUM, JSON   UTF-8 text in a BYTE_ARRAY
        BSON                 a BSON document
        MAP                  a group of repeated key and value
        LIST                 a group of a repeated element
        DATE                 days since 1970-01-01 in an INT32
        UNKNOWN              nothing but nulls; the physical type was guessed
        UUID                 16 bytes
        FLOAT16              IEEE half precision, 2 bytes little-endian
        FILE                 a reference to a file; its fields are kept as they are
    """

    STRING: Empty | None = optional(1, _EMPTY)
    MAP: Empty | None = optional(2, _EMPTY)
    LIST: Empty | None = optional(3, _EMPTY)
    ENUM: Empty | None = optional(4, _EMPTY)
    DECIMAL: DecimalType | None = optional(5, struct(DecimalType))
    DATE: Empty | None = optional(6, _EMPTY)
    TIME: TimeType | None = optional(7, struct(TimeType))
    TIMESTAMP: TimestampType | None = optional(8, struct(TimestampType))
    INTEGER: IntType | None = optional(10, struct(IntType))
    UNKNOWN: Empty | None = optional(11, _EMPTY)
    JSON: Empty | None = optional(12, _EMPTY)
    BSON: Empty | None = optional(13, _EMPTY)
    UUID: Empty | None = optional(14, _EMPTY)
    FLOAT16: Empty | None = optional(15, _EMPTY)
    VARIANT: VariantType | None = optional(16, struct(VariantType))
    GEOMETRY: GeometryType | None = optional(17, struct(GeometryType))
    GEOGRAPHY: GeographyType | None = optional(18, struct(GeographyType))
    FILE: Empty | None = optional(19, _EMPTY)

    @property
    def name(self) -> str | None:
        """The name of the type that is set; ``None`` for an unknown type."""
        return next(iter(self.to_dict()), None) if not self.unknown else None


@declared
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


@declared
class SizeStatistics(Declared):
    """Bytes of the byte arrays without their lengths, and how often each level occurs."""

    unencoded_byte_array_data_bytes: int | None = optional(1, I64)
    repetition_level_histogram: tuple[int, ...] | None = optional(2, list_of(I64))
    definition_level_histogram: tuple[int, ...] | None = optional(3, list_of(I64))


@declared
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


@declared
class GeospatialStatistics(Declared):
    """Statistics of GEOMETRY and GEOGRAPHY columns; ``geospatial_types`` are WKB codes."""

    bbox: BoundingBox | None = optional(1, struct(BoundingBox))
    geospatial_types: tuple[int, ...] | None = optional(2, list_of(I32))


@declared
class AesGcmV1(Declared):
    """All modules are encrypted with AES-GCM."""

    aad_prefix: bytes | None = optional(1, BINARY)
    aad_file_unique: bytes | None = optional(2, BINARY)
    supply_aad_prefix: bool | None = optional(3, BOOL)


@declared
class AesGcmCtrV1(Declared):
    """Pages are encrypted with AES-CTR, all other modules with AES-GCM."""

    aad_prefix: bytes | None = optional(1, BINARY)
    aad_file_unique: bytes | None = optional(2, BINARY)
    supply_aad_prefix: bool | None = optional(3, BOOL)


@declared
class EncryptionAlgorithm(Declared):
    """A union: one of the two algorithms is set."""

    AES_GCM_V1: AesGcmV1 | None = optional(1, struct(AesGcmV1))
    AES_GCM_CTR_V1: AesGcmCtrV1 | None = optional(2, struct(AesGcmCtrV1))


@declared
class EncryptionWithColumnKey(Declared):
    """The column has a key of its own; ``key_metadata`` says how to get it."""

    path_in_schema: tuple[str, ...] = required(1, list_of(STRING))
    key_metadata: bytes | None = optional(2, BINARY)


@declared
class ColumnCryptoMetaData(Declared):
    """A union: the key of a column is that of the footer, or one of its own."""

    ENCRYPTION_WITH_FOOTER_KEY: Empty | None = optional(1, _EMPTY)
    ENCRYPTION_WITH_COLUMN_KEY: EncryptionWithColumnKey | None = optional(
        2, struct(EncryptionWithColumnKey)
    )


@declared
class FileCryptoMetaData(Declared):
    """The plaintext struct before an encrypted footer."""

    encryption_algorithm: EncryptionAlgorithm = required(1, struct(EncryptionAlgorithm))
    key_metadata: bytes | None = optional(2, BINARY)


@declared
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

    @property
    def annotation(self) -> LogicalType:
        """The logical type, or else the one that the converted type stands for.

        Its ``name`` is ``None`` if there is neither, or the type is unknown, and for INTERVAL. An
        unknown logical type hides the converted type, as it does for Arrow.
        """
        if self.logicalType is not None:
            return self.logicalType
        if self.converted_type == ConvertedType.DECIMAL:
            decimal = DecimalType(scale=self.scale or 0, precision=self.precision or 0)
            return LogicalType(DECIMAL=decimal)
        return _OF_CONVERTED.get(self.converted_type, _PLAIN)


_PLAIN: Final = LogicalType()
_MILLIS, _MICROS = TimeUnit(MILLIS=Empty()), TimeUnit(MICROS=Empty())
_OF_CONVERTED: Final[dict[int | None, LogicalType]] = {
    ConvertedType.UTF8: LogicalType(STRING=Empty()),
    ConvertedType.MAP: LogicalType(MAP=Empty()),
    ConvertedType.MAP_KEY_VALUE: LogicalType(MAP=Empty()),
    ConvertedType.LIST: LogicalType(LIST=Empty()),
    ConvertedType.ENUM: LogicalType(ENUM=Empty()),
    ConvertedType.DATE: LogicalType(DATE=Empty()),
    ConvertedType.TIME_MILLIS: LogicalType(TIME=TimeType(isAdjustedToUTC=True, unit=_MILLIS)),
    ConvertedType.TIME_MICROS: LogicalType(TIME=TimeType(isAdjustedToUTC=True, unit=_MICROS)),
    ConvertedType.TIMESTAMP_MILLIS: LogicalType(
        TIMESTAMP=TimestampType(isAdjustedToUTC=True, unit=_MILLIS)
    ),
    ConvertedType.TIMESTAMP_MICROS: LogicalType(
        TIMESTAMP=TimestampType(isAdjustedToUTC=True, unit=_MICROS)
    ),
    ConvertedType.JSON: LogicalType(JSON=Empty()),
    ConvertedType.BSON: LogicalType(BSON=Empty()),
    **{
        ConvertedType[f"{'' if signed else 'U'}INT_{bits}"]: LogicalType(
            INTEGER=IntType(bitWidth=bits, isSigned=signed)
        )
        for bits in (8, 16, 32, 64)
        for signed in (True, False)
    },
}


@declared
class KeyValue(Declared):
    """One pair of free metadata."""

    key: str = required(1, STRING)
    value: str | None = optional(2, STRING)


@declared
class SortingColumn(Declared):
    """One key of the sort order of a row group; ``column_idx`` is the ordinal of a leaf."""

    column_idx: int = required(1, I32)
    descending: bool = required(2, BOOL)
    nulls_first: bool = required(3, BOOL)


@declared
class PageEncodingStats(Declared):
    """How many pages of one type have one encoding."""

    page_type: PageType | int = required(1, enum(PageType))
    encoding: Encoding | int = required(2, enum(Encoding))
    count: int = required(3, I32)


@declared
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


@declared
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


@declared
class RowGroup(Declared):
    """Some rows of the table: one chunk of each column."""

    columns: tuple[ColumnChunk, ...] = required(1, list_of(struct(ColumnChunk)))
    total_byte_size: int = required(2, I64)
    num_rows: int = required(3, I64)
    sorting_columns: tuple[SortingColumn, ...] | None = optional(4, list_of(struct(SortingColumn)))
    file_offset: int | None = optional(5, I64)
    total_compressed_size: int | None = optional(6, I64)
    ordinal: int | None = optional(7, I16)


@declared
class ColumnOrder(Declared):
    """The order of ``min_value`` and ``max_value``; readers ignore both in an unknown order.

    TYPE_ORDER              the order of the logical or else the physical type
    IEEE_754_TOTAL_ORDER    -NaN < -inf < … < -0 < +0 < … < inf < NaN
    INT96_TIMESTAMP_ORDER   by day, then by nanosecond of the day
    """

    TYPE_ORDER: Empty | None = optional(1, _EMPTY)
    IEEE_754_TOTAL_ORDER: Empty | None = optional(2, _EMPTY)
    INT96_TIMESTAMP_ORDER: Empty | None = optional(3, _EMPTY)


TYPE_ORDER: Final = ColumnOrder(TYPE_ORDER=Empty())


@declared
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


@declared
class DataPageHeader(Declared):
    """Header of a v1 data page; ``num_values`` includes nulls."""

    num_values: int = required(1, I32)
    encoding: Encoding | int = required(2, enum(Encoding))
    definition_level_encoding: Encoding | int = required(3, enum(Encoding))
    repetition_level_encoding: Encoding | int = required(4, enum(Encoding))
    statistics: Statistics | None = optional(5, struct(Statistics))


@declared
class IndexPageHeader(Declared):
    """Header of an index page of 2013 (``pages/index_page.py``): the number of its entries.

    parquet.thrift leaves the struct empty; README.md of 2013 says that the number is in it.
    """

    num_entries: int | None = optional(1, I32)


@declared
class DictionaryPageHeader(Declared):
    """Header of the dictionary, the first page of its chunk."""

    num_values: int = required(1, I32)
    encoding: Encoding | int = required(2, enum(Encoding))
    is_sorted: bool | None = optional(3, BOOL)


@declared
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


@declared
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
