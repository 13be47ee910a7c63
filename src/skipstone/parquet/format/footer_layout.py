"""The arrays that the scan of a footer fills, slot by slot, and the field ids that it looks for.

    wide    int64, slot × chunk: sizes, offsets and counts
    narrow  int32, slot × chunk: small values, and places: indices into the footer's bytes
    groups  int64, row group × slot

They hold each value plus one, so 0 means "absent". Zeroed memory costs nothing where nothing is
written, and most fields are absent from a whole file. A footer is at most 2 GiB long here, so
places fit 32 bits. Compiled code wants plain constants: so each slot number is repeated under a
name, and so is each field id of the structs that ``metadata`` declares.
"""

from __future__ import annotations

from typing import Final

from skipstone.parquet.thrift.structs import field_ids

from .metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    PageEncodingStats,
    RowGroup,
    SchemaElement,
    SizeStatistics,
    Statistics,
)

WIDE = {
    "num_values": 0,
    "total_uncompressed_size": 1,
    "total_compressed_size": 2,
    "data_page_offset": 3,
    "index_page_offset": 4,
    "dictionary_page_offset": 5,
    "bloom_filter_offset": 6,
    "encodings": 7,
    "null_count": 8,
    "distinct_count": 9,
    "nan_count": 10,
    "unencoded_byte_array_data_bytes": 11,
    "offset_index_offset": 12,
    "column_index_offset": 13,
}
NUM_VALUES: Final = 0
TOTAL_UNCOMPRESSED_SIZE: Final = 1
TOTAL_COMPRESSED_SIZE: Final = 2
DATA_PAGE_OFFSET: Final = 3
INDEX_PAGE_OFFSET: Final = 4
DICTIONARY_PAGE_OFFSET: Final = 5
BLOOM_FILTER_OFFSET: Final = 6
ENCODINGS: Final = 7
NULL_COUNT: Final = 8
DISTINCT_COUNT: Final = 9
NAN_COUNT: Final = 10
UNENCODED: Final = 11
OFFSET_INDEX_OFFSET: Final = 12
COLUMN_INDEX_OFFSET: Final = 13
WIDE_SLOTS: Final = 14

NARROW = {
    "codec": 0,
    "bloom_filter_length": 1,
    "is_max_value_exact": 2,
    "is_min_value_exact": 3,
    "dict_only": 4,
    "offset_index_length": 5,
    "column_index_length": 6,
}
CODEC: Final = 0
BLOOM_FILTER_LENGTH: Final = 1
MAX_EXACT: Final = 2
MIN_EXACT: Final = 3
DICT_ONLY: Final = 4
OFFSET_INDEX_LENGTH: Final = 5
COLUMN_INDEX_LENGTH: Final = 6

# Places of bytes and their length, two slots each.
BYTES = {
    "max": 7,
    "min": 9,
    "max_value": 11,
    "min_value": 13,
    "file_path": 15,
    "encrypted_column_metadata": 17,
    "column_chunk": 19,
}
AT_MAX: Final = 7
AT_MIN: Final = 9
AT_MAX_VALUE: Final = 11
AT_MIN_VALUE: Final = 13
AT_FILE_PATH: Final = 15
AT_ENCRYPTED: Final = 17
AT_CHUNK: Final = 19

# Places of structs and lists, which need no length.
PARTS = {
    "meta_data": 21,
    "statistics": 22,
    "size_statistics": 23,
    "geospatial_statistics": 24,
    "key_value_metadata": 25,
    "encoding_stats": 26,
    "crypto_metadata": 27,
}
AT_META_DATA: Final = 21
AT_STATISTICS: Final = 22
AT_SIZE_STATISTICS: Final = 23
AT_GEOSPATIAL: Final = 24
AT_KEY_VALUE: Final = 25
AT_ENCODING_STATS: Final = 26
AT_CRYPTO: Final = 27
NARROW_SLOTS: Final = 28

GROUPS = {
    "num_rows": 0,
    "total_byte_size": 1,
    "total_compressed_size": 2,
    "file_offset": 3,
    "ordinal": 4,
    "row_group_start": 5,
    "row_group_length": 6,
    "sorting_columns_start": 7,
    "sorting_columns_length": 8,
}
G_NUM_ROWS: Final = 0
G_TOTAL_BYTE_SIZE: Final = 1
G_TOTAL_COMPRESSED_SIZE: Final = 2
G_FILE_OFFSET: Final = 3
G_ORDINAL: Final = 4
G_AT: Final = 5
G_AT_SORTING: Final = 7
GROUP_SLOTS: Final = 9


# Field ids: struct and field.
_STATISTICS: Final = field_ids(Statistics)
STATS_DISTINCT_COUNT: Final = _STATISTICS["distinct_count"]
STATS_IS_MAX_VALUE_EXACT: Final = _STATISTICS["is_max_value_exact"]
STATS_IS_MIN_VALUE_EXACT: Final = _STATISTICS["is_min_value_exact"]
STATS_MAX: Final = _STATISTICS["max"]
STATS_MAX_VALUE: Final = _STATISTICS["max_value"]
STATS_MIN: Final = _STATISTICS["min"]
STATS_MIN_VALUE: Final = _STATISTICS["min_value"]
STATS_NAN_COUNT: Final = _STATISTICS["nan_count"]
STATS_NULL_COUNT: Final = _STATISTICS["null_count"]

_SIZE_STATISTICS: Final = field_ids(SizeStatistics)
SIZES_UNENCODED_BYTE_ARRAY_DATA_BYTES: Final = _SIZE_STATISTICS["unencoded_byte_array_data_bytes"]

_PAGE_ENCODING_STATS: Final = field_ids(PageEncodingStats)
PAGES_COUNT: Final = _PAGE_ENCODING_STATS["count"]
PAGES_ENCODING: Final = _PAGE_ENCODING_STATS["encoding"]
PAGES_PAGE_TYPE: Final = _PAGE_ENCODING_STATS["page_type"]

_COLUMN_META_DATA: Final = field_ids(ColumnMetaData)
META_BLOOM_FILTER_LENGTH: Final = _COLUMN_META_DATA["bloom_filter_length"]
META_BLOOM_FILTER_OFFSET: Final = _COLUMN_META_DATA["bloom_filter_offset"]
META_CODEC: Final = _COLUMN_META_DATA["codec"]
META_DATA_PAGE_OFFSET: Final = _COLUMN_META_DATA["data_page_offset"]
META_DICTIONARY_PAGE_OFFSET: Final = _COLUMN_META_DATA["dictionary_page_offset"]
META_ENCODINGS: Final = _COLUMN_META_DATA["encodings"]
META_ENCODING_STATS: Final = _COLUMN_META_DATA["encoding_stats"]
META_GEOSPATIAL_STATISTICS: Final = _COLUMN_META_DATA["geospatial_statistics"]
META_INDEX_PAGE_OFFSET: Final = _COLUMN_META_DATA["index_page_offset"]
META_KEY_VALUE_METADATA: Final = _COLUMN_META_DATA["key_value_metadata"]
META_NUM_VALUES: Final = _COLUMN_META_DATA["num_values"]
META_SIZE_STATISTICS: Final = _COLUMN_META_DATA["size_statistics"]
META_STATISTICS: Final = _COLUMN_META_DATA["statistics"]
META_TOTAL_COMPRESSED_SIZE: Final = _COLUMN_META_DATA["total_compressed_size"]
META_TOTAL_UNCOMPRESSED_SIZE: Final = _COLUMN_META_DATA["total_uncompressed_size"]
META_TYPE: Final = _COLUMN_META_DATA["type"]

_SCHEMA_ELEMENT: Final = field_ids(SchemaElement)
ELEMENT_TYPE: Final = _SCHEMA_ELEMENT["type"]

_COLUMN_CHUNK: Final = field_ids(ColumnChunk)
CHUNK_COLUMN_INDEX_LENGTH: Final = _COLUMN_CHUNK["column_index_length"]
CHUNK_COLUMN_INDEX_OFFSET: Final = _COLUMN_CHUNK["column_index_offset"]
CHUNK_CRYPTO_METADATA: Final = _COLUMN_CHUNK["crypto_metadata"]
CHUNK_ENCRYPTED_COLUMN_METADATA: Final = _COLUMN_CHUNK["encrypted_column_metadata"]
CHUNK_FILE_PATH: Final = _COLUMN_CHUNK["file_path"]
CHUNK_META_DATA: Final = _COLUMN_CHUNK["meta_data"]
CHUNK_OFFSET_INDEX_LENGTH: Final = _COLUMN_CHUNK["offset_index_length"]
CHUNK_OFFSET_INDEX_OFFSET: Final = _COLUMN_CHUNK["offset_index_offset"]

_ROW_GROUP: Final = field_ids(RowGroup)
GROUP_COLUMNS: Final = _ROW_GROUP["columns"]
GROUP_FILE_OFFSET: Final = _ROW_GROUP["file_offset"]
GROUP_NUM_ROWS: Final = _ROW_GROUP["num_rows"]
GROUP_ORDINAL: Final = _ROW_GROUP["ordinal"]
GROUP_SORTING_COLUMNS: Final = _ROW_GROUP["sorting_columns"]
GROUP_TOTAL_BYTE_SIZE: Final = _ROW_GROUP["total_byte_size"]
GROUP_TOTAL_COMPRESSED_SIZE: Final = _ROW_GROUP["total_compressed_size"]

_FILE_META_DATA: Final = field_ids(FileMetaData)
FILE_ROW_GROUPS: Final = _FILE_META_DATA["row_groups"]
FILE_SCHEMA: Final = _FILE_META_DATA["schema"]
