"""Skipstone: data skipping and secondary indexes for plain Parquet, on Spark, in Python.

>>> import skipstone
>>> df = skipstone.skip(spark.read.parquet("events/"))      # the same DataFrame, fewer files
>>> df.where("user_id = 'u-8814'").show()
>>> skipstone.last_scan(spark)                              # what was read, what was not, and why

The public names are those of ``__all__``. Each is imported when it is first asked for, so that
``import skipstone`` alone loads neither Spark nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skipstone.errors import SkipstoneError
    from skipstone.formats.parquet.encryption.keys import Decryption
    from skipstone.plan import Plan
    from skipstone.rewrite.writing import write_table
    from skipstone.scan.file import ParquetFile, read_rows
    from skipstone.scan.file_index import FileIndex
    from skipstone.table import Table, explain, last_scan, read, skip
    from skipstone.table.ingesting import ingest
    from skipstone.table.watching import watch

__version__ = "0.1.0"

__all__ = [
    "Decryption",
    "FileIndex",
    "ParquetFile",
    "Plan",
    "SkipstoneError",
    "Table",
    "explain",
    "ingest",
    "last_scan",
    "read",
    "read_rows",
    "skip",
    "watch",
    "write_table",
]

_HOMES = {
    "Decryption": "skipstone.formats.parquet.encryption.keys",
    "FileIndex": "skipstone.scan.file_index",
    "ParquetFile": "skipstone.scan.file",
    "Plan": "skipstone.plan",
    "SkipstoneError": "skipstone.errors",
    "Table": "skipstone.table",
    "explain": "skipstone.table",
    "ingest": "skipstone.table.ingesting",
    "last_scan": "skipstone.table",
    "read": "skipstone.table",
    "read_rows": "skipstone.scan.file",
    "skip": "skipstone.table",
    "watch": "skipstone.table.watching",
    "write_table": "skipstone.rewrite.writing",
}


if not TYPE_CHECKING:  # a type checker knows the names from above, and so sees a misspelt one

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
