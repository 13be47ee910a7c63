"""Skipstone: data skipping and secondary indexes for plain Parquet, on Spark, in Python.

>>> import skipstone
>>> df = skipstone.skip(spark.read.parquet("events/"))      # the same DataFrame, fewer files
>>> df.where("user_id = 'u-8814'").show()
>>> skipstone.last_scan(spark)                              # what was read, what was not, and why

The public names are those of ``__all__``, and two packages with functions on single files,
``skipstone.rewrite`` and ``skipstone.salvage``. Each is imported on first use, so that ``import
skipstone`` alone loads neither Spark nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from skipstone._version import __version__ as __version__

if TYPE_CHECKING:
    from skipstone import rewrite as rewrite
    from skipstone import salvage as salvage
    from skipstone.errors import SkipstoneError
    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.facts.location import XskipperLocation
    from skipstone.live import LiveTable
    from skipstone.paimon.file_index import PaimonFileIndex
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.parquet.writing.table_writer import write_table
    from skipstone.pruning.plan import Plan
    from skipstone.questdb.pm_file import PmFile
    from skipstone.spark.enable import disable, enable
    from skipstone.table import Table, explain, last_scan, read, skip, watch
    from skipstone.table.ingest import ingest

__all__ = [
    "Decryption",
    "Encryption",
    "IndexEncryption",
    "LiveTable",
    "PaimonFileIndex",
    "ParquetFile",
    "Plan",
    "PmFile",
    "SkipstoneError",
    "Table",
    "XskipperLocation",
    "disable",
    "enable",
    "explain",
    "ingest",
    "last_scan",
    "read",
    "skip",
    "watch",
    "write_table",
]

# Where each name is defined.
_HOMES = {
    "Decryption": "skipstone.parquet.encryption.decryption",
    "Encryption": "skipstone.parquet.encryption.encryption",
    "IndexEncryption": "skipstone.facts.index_encryption",
    "LiveTable": "skipstone.live",
    "PaimonFileIndex": "skipstone.paimon.file_index",
    "ParquetFile": "skipstone.parquet.reading.file",
    "Plan": "skipstone.pruning.plan",
    "PmFile": "skipstone.questdb.pm_file",
    "SkipstoneError": "skipstone.errors",
    "Table": "skipstone.table",
    "XskipperLocation": "skipstone.facts.location",
    "disable": "skipstone.spark.enable",
    "enable": "skipstone.spark.enable",
    "explain": "skipstone.table",
    "ingest": "skipstone.table.ingest",
    "last_scan": "skipstone.table",
    "read": "skipstone.table",
    "skip": "skipstone.table",
    "watch": "skipstone.table",
    "write_table": "skipstone.parquet.writing.table_writer",
}
_PACKAGES = ("rewrite", "salvage")


if not TYPE_CHECKING:  # a type checker knows the names from above, and so sees a misspelt one

    def __getattr__(name: str) -> object:
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
