"""What a table does with its own files: each written anew in its place, or saved beside it."""

from __future__ import annotations

from .encrypt import decrypt_table, encrypt_table, rekey_table
from .retrofit import retrofit_table
from .salvage import salvage_table
from .write_metadata import write_table_metadata

__all__ = ["Rewriting"]


class Rewriting:
    """Of ``Table``: one file after the other, here or as a Spark job; see the functions."""

    retrofit = retrofit_table
    encrypt = encrypt_table
    decrypt = decrypt_table
    rekey = rekey_table
    salvage = salvage_table
    write_metadata = write_table_metadata
