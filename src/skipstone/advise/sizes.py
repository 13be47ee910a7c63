"""Bytes that an index would take, by kind, from what a sample shows.

| kind | bytes per file |
|---|---|
| ``minmax`` | 2 w; strings and binary: w at most 64, and 4 for each length |
| ``valuelist`` | n w; strings and binary: 4 more for each length |
| ``bloomfilter`` | -n ln(fpp) / ln(2)^2 bits, at most 8 MiB, and a header of 300 bytes |

``n`` distinct values of ``w`` bytes each. Lists and bounds are compressed in the fact parts, most
of all where files are alike, so these are upper estimates of them; filters do not compress. On
top, each file has a row of its own whatever is built: its path, identity, counts (``PER_FILE``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skipstone.index.bloom import FPP
from skipstone.index.bloom import MAX_BYTES as BLOOM_BYTES
from skipstone.index.minmax import TRUNCATE
from skipstone.index.types import is_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PER_FILE", "bloom_bytes", "minmax_bytes", "valuelist_bytes"]

PER_FILE = 60
_BLOOM_HEADER = 300


def minmax_bytes(type: pa.DataType, width: float) -> float:
    """Bytes of one file's bounds."""
    return 2 * (min(width, TRUNCATE) + 4) if is_text(type) else 2 * width


def valuelist_bytes(type: pa.DataType, width: float, distinct: float) -> float:
    """Bytes of one file's list of ``distinct`` values."""
    return distinct * (width + 4 if is_text(type) else width)


def bloom_bytes(distinct: float, fpp: float = FPP) -> float:
    """Bytes of one file's filter."""
    bits = -max(distinct, 1) * math.log(fpp) / math.log(2) ** 2
    return min(8 * math.ceil(bits / 64), BLOOM_BYTES) + _BLOOM_HEADER
