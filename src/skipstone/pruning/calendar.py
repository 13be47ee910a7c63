"""Which dates and timestamps of a Parquet file mean what they say.

Spark before 3.0 (3.1 for INT96), Hive, and Spark in its LEGACY modes wrote the hybrid calendar:
Julian up to 1582-10-04, Gregorian from 1582-10-15, and local mean times of old. What a reader
makes of ancient values then depends on its session. From 1582-10-15 (dates) and
1900-01-01T00:00:00Z (timestamps) on both calendars agree, so a column of such a file is indexed
only if none of its values is older.

A file says which it is in its footer: ``org.apache.spark.version``, and the keys
``org.apache.spark.legacyDateTime`` and ``org.apache.spark.legacyINT96``, whose presence alone
counts. A file that no Spark wrote says nothing, and is treated like an old one.

Source: Spark's ``DataSourceUtils`` and ``RebaseDateTime``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping


#: 1582-10-15, in days since the epoch: the first date that both calendars agree on
FIRST_DATE = -141_427
#: 1900-01-01T00:00:00Z in microseconds: from here on no zone has a local mean time of its own
FIRST_TIMESTAMP = -2_208_988_800_000_000

# The first and the last microsecond of the years 1 and 9999.
_COMMON_ERA = (-62_135_596_800_000_000, 253_402_300_799_999_999)

_VERSION = b"org.apache.spark.version"
_LEGACY = {False: b"org.apache.spark.legacyDateTime", True: b"org.apache.spark.legacyINT96"}
# Compared as text, as Spark does.
_SINCE = {False: b"3.0.0", True: b"3.1.0"}


def proleptic(metadata: Mapping[bytes, bytes] | None, *, int96: bool) -> bool:
    """True when the footer's ``metadata`` says that old values are in the calendar of today."""
    version = (metadata or {}).get(_VERSION)
    if version is None or metadata is None:
        return False
    return version >= _SINCE[int96] and _LEGACY[int96] not in metadata


def ancient(values: pa.Array) -> str | None:
    """Why dates or timestamps (microseconds) cannot be trusted in a hybrid calendar; else
    ``None``."""
    if pa.types.is_dictionary(values.type) or not len(values):
        return None
    if pa.types.is_date32(values.type):
        first, limit, text = values.view(pa.int32()), FIRST_DATE, "1582-10-15"
    elif pa.types.is_timestamp(values.type):
        scale = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(values.type.unit)
        if scale is None:
            return None
        first, limit, text = values.view(pa.int64()), FIRST_TIMESTAMP // scale, "1900-01-01"
    else:
        return None
    least = pc.min(first).as_py()
    if least is None or least >= limit:
        return None
    return f"has values before {text} that may be in the legacy calendar"


def overflown(values: pa.Array) -> str | None:
    """Why timestamps (microseconds) that were INT96 cannot be trusted; else ``None``.

    Days before the Julian epoch, and sums past 64 bits, wrap around in Spark's writer. Its own
    reader undoes that; Arrow's, which takes days and nanoseconds for unsigned, does not.
    """
    found = pc.min_max(values.view(pa.int64()))
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is None or (least >= _COMMON_ERA[0] and most <= _COMMON_ERA[1]):
        return None
    return "has INT96 values outside the years 1 to 9999, which readers take differently"
