"""What the scan of a footer notes per chunk and per row group, and in which slot.

    wide    int64 per chunk: sizes, offsets and counts
    narrow  int32 per chunk: small values; a place is two slots, start and length
    groups  int64 per row group

-1 is absent everywhere. A footer is at most 2 GiB long here, so that places fit 32 bits. The slot
numbers repeat the order of the names because compiled code wants plain constants.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AT_CHUNK",
    "AT_CRYPTO",
    "AT_ENCODING_STATS",
    "AT_ENCRYPTED",
    "AT_FILE_PATH",
    "AT_GEOSPATIAL",
    "AT_KEY_VALUE",
    "AT_MAX",
    "AT_MAX_VALUE",
    "AT_META_DATA",
    "AT_MIN",
    "AT_MIN_VALUE",
    "AT_PATH",
    "AT_SIZE_STATISTICS",
    "AT_STATISTICS",
    "BLOOM_FILTER_LENGTH",
    "BLOOM_FILTER_OFFSET",
    "CODEC",
    "COLUMN_INDEX_LENGTH",
    "COLUMN_INDEX_OFFSET",
    "DATA_PAGE_OFFSET",
    "DICTIONARY_PAGE_OFFSET",
    "DICT_ONLY",
    "DISTINCT_COUNT",
    "ENCODINGS",
    "ENCRYPTED",
    "FILE_OFFSET",
    "GROUPS",
    "GROUP_SLOTS",
    "G_AT",
    "G_AT_SORTING",
    "G_FILE_OFFSET",
    "G_NUM_ROWS",
    "G_ORDINAL",
    "G_TOTAL_BYTE_SIZE",
    "G_TOTAL_COMPRESSED_SIZE",
    "HAS_META_DATA",
    "INDEX_PAGE_OFFSET",
    "MAX_EXACT",
    "MIN_EXACT",
    "NAN_COUNT",
    "NARROW",
    "NARROW_SLOTS",
    "NULL_COUNT",
    "NUM_VALUES",
    "OFFSET_INDEX_LENGTH",
    "OFFSET_INDEX_OFFSET",
    "TOTAL_COMPRESSED_SIZE",
    "TOTAL_UNCOMPRESSED_SIZE",
    "TYPE",
    "UNENCODED",
    "WIDE",
    "WIDE_SLOTS",
]

WIDE = (
    "file_offset",
    "offset_index_offset",
    "column_index_offset",
    "num_values",
    "total_uncompressed_size",
    "total_compressed_size",
    "data_page_offset",
    "index_page_offset",
    "dictionary_page_offset",
    "bloom_filter_offset",
    "null_count",
    "distinct_count",
    "nan_count",
    "unencoded_byte_array_data_bytes",
    "encodings",
)
FILE_OFFSET: Final = 0
OFFSET_INDEX_OFFSET: Final = 1
COLUMN_INDEX_OFFSET: Final = 2
NUM_VALUES: Final = 3
TOTAL_UNCOMPRESSED_SIZE: Final = 4
TOTAL_COMPRESSED_SIZE: Final = 5
DATA_PAGE_OFFSET: Final = 6
INDEX_PAGE_OFFSET: Final = 7
DICTIONARY_PAGE_OFFSET: Final = 8
BLOOM_FILTER_OFFSET: Final = 9
NULL_COUNT: Final = 10
DISTINCT_COUNT: Final = 11
NAN_COUNT: Final = 12
UNENCODED: Final = 13
ENCODINGS: Final = 14
WIDE_SLOTS: Final = 15

NARROW = (
    "offset_index_length",
    "column_index_length",
    "type",
    "codec",
    "bloom_filter_length",
    "is_max_value_exact",
    "is_min_value_exact",
    "dict_only",
    "has_meta_data",
    "encrypted",
    ("column_chunk", 2),
    ("meta_data", 2),
    ("max", 2),
    ("min", 2),
    ("max_value", 2),
    ("min_value", 2),
    ("file_path", 2),
    ("statistics", 2),
    ("size_statistics", 2),
    ("geospatial_statistics", 2),
    ("key_value_metadata", 2),
    ("encoding_stats", 2),
    ("path_in_schema", 2),
    ("crypto_metadata", 2),
    ("encrypted_column_metadata", 2),
)
OFFSET_INDEX_LENGTH: Final = 0
COLUMN_INDEX_LENGTH: Final = 1
TYPE: Final = 2
CODEC: Final = 3
BLOOM_FILTER_LENGTH: Final = 4
MAX_EXACT: Final = 5
MIN_EXACT: Final = 6
DICT_ONLY: Final = 7
HAS_META_DATA: Final = 8
ENCRYPTED: Final = 9
AT_CHUNK: Final = 10
AT_META_DATA: Final = 12
AT_MAX: Final = 14
AT_MIN: Final = 16
AT_MAX_VALUE: Final = 18
AT_MIN_VALUE: Final = 20
AT_FILE_PATH: Final = 22
AT_STATISTICS: Final = 24
AT_SIZE_STATISTICS: Final = 26
AT_GEOSPATIAL: Final = 28
AT_KEY_VALUE: Final = 30
AT_ENCODING_STATS: Final = 32
AT_PATH: Final = 34
AT_CRYPTO: Final = 36
AT_ENCRYPTED: Final = 38
NARROW_SLOTS: Final = 40

GROUPS = (
    "num_rows",
    "total_byte_size",
    "total_compressed_size",
    "file_offset",
    "ordinal",
    "row_group_start",
    "row_group_length",
    "sorting_columns_start",
    "sorting_columns_length",
)
G_NUM_ROWS: Final = 0
G_TOTAL_BYTE_SIZE: Final = 1
G_TOTAL_COMPRESSED_SIZE: Final = 2
G_FILE_OFFSET: Final = 3
G_ORDINAL: Final = 4
G_AT: Final = 5
G_AT_SORTING: Final = 7
GROUP_SLOTS: Final = 9
