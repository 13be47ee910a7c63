"""Data files, metadata and indexes written anew from what is there, without Spark.

>>> from skipstone.rewrite import Encryption, encrypt
>>> encrypt("orders.parquet", encryption=Encryption(footer_key=key))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.writing.column_splitter import SplitReport, split_columns
    from skipstone.parquet.writing.table_writer import write_table
    from skipstone.parquet.writing.write_report import WriteReport
    from skipstone.salvage.report import SalvageReport
    from skipstone.salvage.salvage_file import salvage

    from .encrypt_file import EncryptReport, decrypt, encrypt
    from .index_pages_file import add_index_pages
    from .index_pages_report import IndexPagesReport
    from .rekey_file import RekeyReport, rekey
    from .retrofit_file import retrofit
    from .retrofit_report import RetrofitReport

__all__ = [
    "EncryptReport",
    "Encryption",
    "IndexPagesReport",
    "RekeyReport",
    "RetrofitReport",
    "SalvageReport",
    "SplitReport",
    "WriteReport",
    "add_index_pages",
    "decrypt",
    "encrypt",
    "rekey",
    "retrofit",
    "salvage",
    "split_columns",
    "write_table",
]

_HOMES = {
    "EncryptReport": "skipstone.rewrite.encrypt_file",
    "IndexPagesReport": "skipstone.rewrite.index_pages_report",
    "add_index_pages": "skipstone.rewrite.index_pages_file",
    "RekeyReport": "skipstone.rewrite.rekey_file",
    "RetrofitReport": "skipstone.rewrite.retrofit_report",
    "SplitReport": "skipstone.parquet.writing.column_splitter",
    "split_columns": "skipstone.parquet.writing.column_splitter",
    "SalvageReport": "skipstone.salvage.report",
    "WriteReport": "skipstone.parquet.writing.write_report",
    "Encryption": "skipstone.parquet.encryption.encryption",
    "decrypt": "skipstone.rewrite.encrypt_file",
    "encrypt": "skipstone.rewrite.encrypt_file",
    "rekey": "skipstone.rewrite.rekey_file",
    "retrofit": "skipstone.rewrite.retrofit_file",
    "salvage": "skipstone.salvage.salvage_file",
    "write_table": "skipstone.parquet.writing.table_writer",
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
