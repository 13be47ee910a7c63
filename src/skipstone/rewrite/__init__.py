"""Rewrites Parquet files: encryption, keys, indexes, columns in their own files. Also the list of a
table's encrypted files, its ``_metadata``, and the orders of rows for clustering.

>>> from skipstone import Encryption
>>> from skipstone.rewrite import encrypt
>>> encrypt("orders.parquet", encryption=Encryption(footer_key=key))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .column_splitter import SplitReport, split_columns
    from .encrypt_file import EncryptReport, decrypt, encrypt
    from .index_pages_file import IndexPagesReport, add_index_pages
    from .rekey_file import RekeyReport, rekey
    from .retrofit_file import RetrofitReport, retrofit

__all__ = [
    "EncryptReport",
    "IndexPagesReport",
    "RekeyReport",
    "RetrofitReport",
    "SplitReport",
    "add_index_pages",
    "decrypt",
    "encrypt",
    "rekey",
    "retrofit",
    "split_columns",
]

_HOMES = {
    "EncryptReport": "skipstone.rewrite.encrypt_file",
    "IndexPagesReport": "skipstone.rewrite.index_pages_file",
    "add_index_pages": "skipstone.rewrite.index_pages_file",
    "RekeyReport": "skipstone.rewrite.rekey_file",
    "RetrofitReport": "skipstone.rewrite.retrofit_file",
    "SplitReport": "skipstone.rewrite.column_splitter",
    "split_columns": "skipstone.rewrite.column_splitter",
    "decrypt": "skipstone.rewrite.encrypt_file",
    "encrypt": "skipstone.rewrite.encrypt_file",
    "rekey": "skipstone.rewrite.rekey_file",
    "retrofit": "skipstone.rewrite.retrofit_file",
}


if not TYPE_CHECKING:  # a type checker reads the imports above and reports misspelt names

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
