"""The field ids that the scan of a footer looks for, from the declared structs of ``metadata``.

Compiled code wants plain constants, so each id has a name of its own: struct and field.
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
