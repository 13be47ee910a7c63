"""Where bytes lie: list, read ranges, put. Local files and object stores behind one protocol.

Paths are canonical and whole everywhere (``/data/t/a b.parquet``, ``s3://bucket/t/x``), so that a
``ByteRange`` means the same to whoever holds it.
"""

from .base import ByteRange, Storage, coalesce
from .listing import Listing, hidden_by_spark, int64, table_format
from .local import LocalStorage
from .resolve import list_files, open_storage

__all__ = [
    "ByteRange",
    "Listing",
    "LocalStorage",
    "Storage",
    "coalesce",
    "hidden_by_spark",
    "int64",
    "list_files",
    "open_storage",
    "table_format",
]
