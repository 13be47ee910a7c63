"""What the scan of a footer notes per chunk and per row group, and in which slot.

    wide    int64, slot × chunk: sizes, offsets and counts
    narrow  int32, slot × chunk: small values, and places: indices into the footer's bytes
    groups  int64, row group × slot

They hold each value plus one, so that 0 is "absent": memory that begins as zeros costs nothing
where nothing is written, and most fields are absent from a whole file. A footer is at most 2 GiB
long here, so that places fit 32 bits. The slot numbers repeat the order of the names because
compiled code wants plain constants.
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
    "AT_SIZE_STATISTICS",
    "AT_STATISTICS",
    "BLOOM_FILTER_LENGTH",
    "BLOOM_FILTER_OFFSET",
    "BYTES",
    "CODEC",
    "COLUMN_INDEX_LENGTH",
    "COLUMN_INDEX_OFFSET",
    "DATA_PAGE_OFFSET",
    "DICTIONARY_PAGE_OFFSET",
    "DICT_ONLY",
    "DISTINCT_COUNT",
    "ENCODINGS",
    "GROUPS",
    "GROUP_SLOTS",
    "G_AT",
    "G_AT_SORTING",
    "G_FILE_OFFSET",
    "G_NUM_ROWS",
    "G_ORDINAL",
    "G_TOTAL_BYTE_SIZE",
    "G_TOTAL_COMPRESSED_SIZE",
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
    "PARTS",
    "TOTAL_COMPRESSED_SIZE",
    "TOTAL_UNCOMPRESSED_SIZE",
    "UNENCODED",
    "WIDE",
    "WIDE_SLOTS",
]

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

# Places of structs and lists, which know their end themselves.
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
