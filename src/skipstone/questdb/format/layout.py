"""The bytes of a ``_pm`` file, all little-endian.

    HEADER     32   COLUMN_COUNT x DESCRIPTOR 32   SORTING_COLUMN_COUNT x u32
               names, UTF-8, back to back: no padding, length or end mark
               header sections in bit order:  bit 0  u32 n, n x u32     bit 3  i64
    zeros to 8
    BLOCK      u64 NUM_ROWS   COLUMN_COUNT x CHUNK 64   out-of-line region (no size)
    …          each block at a multiple of 8 from the start of the file
    FOOTER     40   ROW_GROUP_COUNT x u32 (block offset >> 3)
               bloom section when header bit 0:  ROW_GROUP_COUNT x n entries, row-major
                   inlined    u32, offset >> 3 of (i32 length, bitset); 0 = absent
                   external   u64 offset, u64 length in the Parquet file; (0, 0) = absent
               footer sections in bit order:  bit 0  i64 SEQ_TXN
                   bit 1  u32 n, n x (u32 code, u32 length, bytes)
               u32 CRC32 over [8, here), u32 FOOTER_LENGTH = bytes from FOOTER through CRC32

The first 8 bytes are the committed size, patched last: what lies beyond it does not count. An
update appends changed blocks and a new FOOTER after the old one. So the bytes up to each committed
size stay a complete file, and PREV_PARQUET_META_FILE_SIZE chains these sizes. A footer belongs to
the Parquet file of PARQUET_FOOTER_OFFSET + PARQUET_FOOTER_LENGTH + 8 bytes. The CRC is zlib's; that
of an update continues from the stored one of its predecessor.

Flags 0..31 are optional: unknown ones are ignored. 32..63 are required: none is known, and a file
with one of them set is refused. STAT_SIZES holds the size of an inlined minimum in its low nibble,
of an inlined maximum in the high one. A statistic of 1..8 bytes lies in its slot (low bytes first,
verbatim as in Parquet, zeros above); a longer one lies out of line, and the slot is
``offset << 16 | length``, counted from the start of the out-of-line region. QuestDB writes that
region by kind (minimum and maximum of each column, then the bloom filters) with a partition, and by
column where it converts a footer; readers follow references only. A bloom filter is an i32 length
and the bitset, at a multiple of 8.

Smallest file: 80 bytes. Without out-of-line bytes: 32 + 32 C + names + padding + R (8 + 64 C) + 48
+ 4 R; 200 columns of 40 row groups take 545 kB. Source: QuestDB's docs/parquet-metadata.md, and
QuestDB 9.4.4 where the two differ (bit 3, no padding of names, order of the out-of-line region);
footer bits 0 and 1 are of its development branch.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
Structs: TypeAlias = npt.NDArray[Any]

HEADER: Final = np.dtype(
    [
        ("PARQUET_META_FILE_SIZE", "<u8"),
        ("FEATURE_FLAGS", "<u8"),
        ("DESIGNATED_TIMESTAMP", "<i4"),
        ("SORTING_COLUMN_COUNT", "<u4"),
        ("COLUMN_COUNT", "<u4"),
        ("RESERVED", "<u4"),
    ]
)
DESCRIPTOR: Final = np.dtype(
    [
        ("NAME_OFFSET", "<u8"),
        ("ID", "<i4"),
        ("TYPE", "<i4"),
        ("FLAGS", "<i4"),
        ("FIXED_BYTE_LEN", "<i4"),
        ("NAME_LENGTH", "<u4"),
        ("PHYSICAL_TYPE", "u1"),
        ("MAX_REP_LEVEL", "u1"),
        ("MAX_DEF_LEVEL", "u1"),
        ("RESERVED", "u1"),
    ]
)
CHUNK: Final = np.dtype(
    [
        ("CODEC", "u1"),
        ("ENCODINGS", "u1"),
        ("STAT_FLAGS", "u1"),
        ("STAT_SIZES", "u1"),
        ("RESERVED", "<u4"),
        ("NUM_VALUES", "<u8"),
        ("BYTE_RANGE_START", "<u8"),
        ("TOTAL_COMPRESSED", "<u8"),
        ("NULL_COUNT", "<u8"),
        ("DISTINCT_COUNT", "<u8"),
        ("MIN_STAT", "<u8"),
        ("MAX_STAT", "<u8"),
    ]
)
FOOTER: Final = np.dtype(
    [
        ("PARQUET_FOOTER_OFFSET", "<u8"),
        ("PARQUET_FOOTER_LENGTH", "<u4"),
        ("ROW_GROUP_COUNT", "<u4"),
        ("UNUSED_BYTES", "<u8"),
        ("PREV_PARQUET_META_FILE_SIZE", "<u8"),
        ("FOOTER_FEATURE_FLAGS", "<u8"),
    ]
)
CHUNK_SIZE: Final = 64
#: An entry of the bloom section under BLOOM_FILTERS_EXTERNAL: a place in the Parquet file.
EXTERNAL_BLOOM: Final = np.dtype([("offset", "<u8"), ("length", "<u8")])

# The same bytes as HEADER and FOOTER: one header is read faster without an array.
HEADER_STRUCT: Final = struct.Struct("<QQiIII")
FOOTER_STRUCT: Final = struct.Struct("<QIIQQQ")
#: CRC32, FOOTER_LENGTH.
TRAILER: Final = struct.Struct("<II")
#: Header, footer and trailer of a file without columns and row groups.
SMALLEST: Final = 80

# FEATURE_FLAGS of the header.
BLOOM_FILTERS: Final = 1 << 0
BLOOM_FILTERS_EXTERNAL: Final = 1 << 1
SORTING_IS_DTS_ASC: Final = 1 << 2
SQUASH_TRACKER: Final = 1 << 3
KNOWN_HEADER_FLAGS: Final = (
    BLOOM_FILTERS | BLOOM_FILTERS_EXTERNAL | SORTING_IS_DTS_ASC | SQUASH_TRACKER
)
# FOOTER_FEATURE_FLAGS.
SEQ_TXN: Final = 1 << 0
SCRATCHPAD: Final = 1 << 1
KNOWN_FOOTER_FLAGS: Final = SEQ_TXN | SCRATCHPAD

# FLAGS of a descriptor; bits 2 and 3 are FIELD_REPETITION: 0 required, 1 optional, 2 repeated.
COLUMN_LOCAL_KEY_IS_GLOBAL: Final = 1 << 0
COLUMN_IS_ASCII: Final = 1 << 1
FIELD_REPETITION_SHIFT: Final = 2
COLUMN_DESCENDING: Final = 1 << 4

# STAT_FLAGS of a chunk.
MIN_STAT_PRESENT: Final = 1 << 0
MIN_STAT_INLINED: Final = 1 << 1
MIN_STAT_EXACT: Final = 1 << 2
MAX_STAT_PRESENT: Final = 1 << 3
MAX_STAT_INLINED: Final = 1 << 4
MAX_STAT_EXACT: Final = 1 << 5
DISTINCT_COUNT_PRESENT: Final = 1 << 6
NULL_COUNT_PRESENT: Final = 1 << 7


class BoundBits(NamedTuple):
    """One of the two bounds of a CHUNK: its field, its STAT_FLAGS, its place in STAT_SIZES."""

    slot: str
    present: int
    inlined: int
    exact: int
    shift: int


End: TypeAlias = Literal["MIN", "MAX"]
BOUNDS: Final[dict[End, BoundBits]] = {
    "MIN": BoundBits("MIN_STAT", MIN_STAT_PRESENT, MIN_STAT_INLINED, MIN_STAT_EXACT, 0),
    "MAX": BoundBits("MAX_STAT", MAX_STAT_PRESENT, MAX_STAT_INLINED, MAX_STAT_EXACT, 4),
}

MAX_BLOCK_OFFSET: Final = ((1 << 32) - 1) << 3
MAX_OUT_OF_LINE: Final = (1 << 16) - 1
MAX_SCRATCHPAD: Final = 1 << 20
