"""Data files, metadata and indexes written anew from what is there, without Spark.

>>> from skipstone.rewrite import Encryption, encrypt
>>> encrypt("orders.parquet", encryption=Encryption(footer_key=key))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skipstone.formats.parquet.encryption.encryption import Encryption

    from .column_files import SplitReport, split_columns
    from .encrypting import EncryptReport, decrypt, encrypt
    from .index_pages_adding import add_index_pages
    from .index_pages_report import IndexPagesReport
    from .rekeying import RekeyReport, rekey
    from .retrofit_report import RetrofitReport
    from .retrofitting import retrofit
    from .salvage_report import SalvageReport
    from .salvaging import salvage
    from .write_report import WriteReport
    from .writing import write_table

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
    "EncryptReport": "skipstone.rewrite.encrypting",
    "IndexPagesReport": "skipstone.rewrite.index_pages_report",
    "add_index_pages": "skipstone.rewrite.index_pages_adding",
    "RekeyReport": "skipstone.rewrite.rekeying",
    "RetrofitReport": "skipstone.rewrite.retrofit_report",
    "SplitReport": "skipstone.rewrite.column_files",
    "split_columns": "skipstone.rewrite.column_files",
    "SalvageReport": "skipstone.rewrite.salvage_report",
    "WriteReport": "skipstone.rewrite.write_report",
    "Encryption": "skipstone.formats.parquet.encryption.encryption",
    "decrypt": "skipstone.rewrite.encrypting",
    "encrypt": "skipstone.rewrite.encrypting",
    "rekey": "skipstone.rewrite.rekeying",
    "retrofit": "skipstone.rewrite.retrofitting",
    "salvage": "skipstone.rewrite.salvaging",
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
