"""Bytes that an index would take, by kind, from what a sample shows.

| kind | bytes for N files |
|---|---|
| ``minmax`` | 2 N w; strings and binary: w at most 64, and 4 for each length |
| ``valuelist`` | N n w, or by a dictionary D w + N n log2(D) / 8 where that is less; and N n / 8 |
| ``bloomfilter`` | N (-n ln(fpp) / ln(2)^2 bits, at most 8 MiB, and a header of 300 bytes) |

``n`` distinct values in a file, ``D`` in all files, of ``w`` bytes each (4 more for the length of a
string or byte array). Filters do not compress, and numbers are taken not to; of text half is left.
On top, each file has a row (path, identity, counts) and each part a footer, whatever is built.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skipstone.indexes.bloom import FPP
from skipstone.indexes.bloom import MAX_BYTES as BLOOM_BYTES
from skipstone.indexes.minmax import TRUNCATE
from skipstone.pruning.column_types import is_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["bloom_bytes", "minmax_bytes", "store_bytes", "valuelist_bytes"]

_BLOOM_HEADER = 300
# What is left of text: hexadecimal digits halve, words shrink more, random letters less.
_TEXT = 0.5
# What a row of the store takes beside its indexes, compressed; and a part, of which a build leaves
# about two, with its footer and what the footer says of each column.
_PER_FILE, _PER_PART, _PER_COLUMN, _PARTS = 30, 8_000, 900, 2


def store_bytes(files: int, columns: int) -> int:
    """Bytes of a store over ``files`` files, beside the indexes of ``columns`` columns."""
    return _PER_FILE * files + _PARTS * (_PER_PART + _PER_COLUMN * columns)


def minmax_bytes(type: pa.DataType, width: float) -> float:
    """Bytes of one file's bounds."""
    return 2 * _of_value(type, min(width, TRUNCATE) if is_text(type) else width)


def valuelist_bytes(
    type: pa.DataType, width: float, distinct: float, files: int = 1, distinct_total: float = 0
) -> float:
    """Bytes of ``files`` lists of ``distinct`` values each, ``distinct_total`` in all of them."""
    values, size = files * distinct, _of_value(type, width)
    total = max(distinct, distinct_total, 1)
    coded = total * size + values * math.ceil(math.log2(total + 1)) / 8
    return min(values * size, coded) + values / 8


def bloom_bytes(distinct: float, fpp: float = FPP) -> float:
    """Bytes of one file's filter."""
    bits = -max(distinct, 1) * math.log(fpp) / math.log(2) ** 2
    return min(8 * math.ceil(bits / 64), BLOOM_BYTES) + _BLOOM_HEADER


def _of_value(type: pa.DataType, width: float) -> float:
    return _TEXT * (width + 4) if is_text(type) else width
