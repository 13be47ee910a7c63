"""The arrays that the scan of a footer fills, slot by slot, and the fields that it looks for.

    wide    int64, slot × chunk: sizes, offsets and counts
    narrow  int32, slot × chunk: small values, and places: indices into the footer's bytes
    groups  int64, row group × slot

They hold each value plus one, so 0 means "absent". Zeroed memory costs nothing where nothing is
written, and most fields are absent from a whole file. A footer is at most 2 GiB long here, so
places fit 32 bits. Slots have the names of the fields that ``metadata`` declares. Compiled code
wants plain constants: a slot or an id that the kernel names is a constant here, and the others are
in tables by field id, one per struct and wire type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skipstone.parquet.thrift.compact import BINARY, I32, I64, TRUE
from skipstone.parquet.thrift.structs import Declared, field_ids

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

if TYPE_CHECKING:
    from collections.abc import Mapping


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
NUM_VALUES: Final = WIDE["num_values"]
TOTAL_UNCOMPRESSED_SIZE: Final = WIDE["total_uncompressed_size"]
TOTAL_COMPRESSED_SIZE: Final = WIDE["total_compressed_size"]
DATA_PAGE_OFFSET: Final = WIDE["data_page_offset"]
DICTIONARY_PAGE_OFFSET: Final = WIDE["dictionary_page_offset"]
ENCODINGS: Final = WIDE["encodings"]
NULL_COUNT: Final = WIDE["null_count"]
NAN_COUNT: Final = WIDE["nan_count"]
UNENCODED: Final = WIDE["unencoded_byte_array_data_bytes"]
WIDE_SLOTS: Final = len(WIDE)

NARROW = {
    "codec": 0,
    "bloom_filter_length": 1,
    "is_max_value_exact": 2,
    "is_min_value_exact": 3,
    "dict_only": 4,
    "offset_index_length": 5,
    "column_index_length": 6,
}
CODEC: Final = NARROW["codec"]
MAX_EXACT: Final = NARROW["is_max_value_exact"]
MIN_EXACT: Final = NARROW["is_min_value_exact"]
DICT_ONLY: Final = NARROW["dict_only"]

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
AT_MAX: Final = BYTES["max"]
AT_MIN_VALUE: Final = BYTES["min_value"]
AT_ENCRYPTED: Final = BYTES["encrypted_column_metadata"]
AT_CHUNK: Final = BYTES["column_chunk"]

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
AT_META_DATA: Final = PARTS["meta_data"]
AT_STATISTICS: Final = PARTS["statistics"]
AT_SIZE_STATISTICS: Final = PARTS["size_statistics"]
AT_GEOSPATIAL: Final = PARTS["geospatial_statistics"]
AT_KEY_VALUE: Final = PARTS["key_value_metadata"]
AT_ENCODING_STATS: Final = PARTS["encoding_stats"]
AT_CRYPTO: Final = PARTS["crypto_metadata"]
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
G_NUM_ROWS: Final = GROUPS["num_rows"]
G_TOTAL_BYTE_SIZE: Final = GROUPS["total_byte_size"]
G_FILE_OFFSET: Final = GROUPS["file_offset"]
G_ORDINAL: Final = GROUPS["ordinal"]
G_AT: Final = GROUPS["row_group_start"]
G_AT_SORTING: Final = GROUPS["sorting_columns_start"]
GROUP_SLOTS: Final = len(GROUPS)


# -- fields by their ids ---------------------------------------------------------------------------

#: the tables hold ids below this one
IDS: Final = 18


def _slots(kind: type[Declared], wire_type: int, slots: Mapping[str, int]) -> tuple[int, ...]:
    """By field id, the slot of a field of this wire type; -1 for other ids."""
    names = {id: name for name, id in field_ids(kind, wire_type).items()}
    return tuple([slots.get(names.get(id, ""), -1) for id in range(IDS)])


STATISTICS_BYTES: Final = _slots(Statistics, BINARY, BYTES)
STATISTICS_COUNTS: Final = _slots(Statistics, I64, WIDE)
STATISTICS_FLAGS: Final = _slots(Statistics, TRUE, NARROW)
META_SIZES: Final = _slots(ColumnMetaData, I64, WIDE)
META_NUMBERS: Final = _slots(ColumnMetaData, I32, NARROW)
CHUNK_OFFSETS: Final = _slots(ColumnChunk, I64, WIDE)
CHUNK_LENGTHS: Final = _slots(ColumnChunk, I32, NARROW)
CHUNK_BYTES: Final = _slots(ColumnChunk, BINARY, BYTES)
GROUP_SIZES: Final = _slots(RowGroup, I64, GROUPS)

_SIZE_STATISTICS: Final = field_ids(SizeStatistics)
SIZES_UNENCODED_BYTE_ARRAY_DATA_BYTES: Final = _SIZE_STATISTICS["unencoded_byte_array_data_bytes"]

_PAGE_ENCODING_STATS: Final = field_ids(PageEncodingStats)
PAGES_COUNT: Final = _PAGE_ENCODING_STATS["count"]
PAGES_ENCODING: Final = _PAGE_ENCODING_STATS["encoding"]
PAGES_PAGE_TYPE: Final = _PAGE_ENCODING_STATS["page_type"]

_COLUMN_META_DATA: Final = field_ids(ColumnMetaData)
META_ENCODINGS: Final = _COLUMN_META_DATA["encodings"]
META_ENCODING_STATS: Final = _COLUMN_META_DATA["encoding_stats"]
META_GEOSPATIAL_STATISTICS: Final = _COLUMN_META_DATA["geospatial_statistics"]
META_KEY_VALUE_METADATA: Final = _COLUMN_META_DATA["key_value_metadata"]
META_SIZE_STATISTICS: Final = _COLUMN_META_DATA["size_statistics"]
META_STATISTICS: Final = _COLUMN_META_DATA["statistics"]
META_TYPE: Final = _COLUMN_META_DATA["type"]

ELEMENT_TYPE: Final = field_ids(SchemaElement)["type"]

_COLUMN_CHUNK: Final = field_ids(ColumnChunk)
CHUNK_CRYPTO_METADATA: Final = _COLUMN_CHUNK["crypto_metadata"]
CHUNK_META_DATA: Final = _COLUMN_CHUNK["meta_data"]

_ROW_GROUP: Final = field_ids(RowGroup)
GROUP_COLUMNS: Final = _ROW_GROUP["columns"]
GROUP_ORDINAL: Final = _ROW_GROUP["ordinal"]
GROUP_SORTING_COLUMNS: Final = _ROW_GROUP["sorting_columns"]

_FILE_META_DATA: Final = field_ids(FileMetaData)
FILE_ROW_GROUPS: Final = _FILE_META_DATA["row_groups"]
FILE_SCHEMA: Final = _FILE_META_DATA["schema"]
