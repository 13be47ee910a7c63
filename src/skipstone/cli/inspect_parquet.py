"""`inspect` of a Parquet file that belongs to no index store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skipstone.inspect.file_inspection import FileInspection
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.storage import Storage

    from .inspect import Asked

__all__ = ["is_parquet", "look"]


def is_parquet(storage: Storage, path: str) -> bool:
    """True for a file with Parquet's magic at either end: a torn one is still worth a look."""
    from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED

    from .inspect_target import is_file

    if not is_file(storage, path):
        return False
    with storage.open(path) as file:
        head = file.read(4)
    _, tail = storage.read_tail(path, 4)
    return not {head, bytes(tail)}.isdisjoint({MAGIC, MAGIC_ENCRYPTED})


def look(path: str, asked: Asked) -> FileInspection:
    """All that was asked for."""
    from skipstone.errors import KeyUnavailableError
    from skipstone.inspect.file_inspection import inspect_file

    try:
        return inspect_file(
            path,
            columns=asked.columns,
            pages=asked.pages,
            verify=asked.verify,
            rows=asked.rows,
            storage_options=asked.storage_options,
            decryption=_keys(asked.keys),
        )
    except KeyUnavailableError as error:
        raise KeyUnavailableError(error.message, hint="give the keys with --keys FILE") from error


def _keys(path: str | None) -> Decryption | None:
    if path is None:
        return None
    from pathlib import Path

    from skipstone.parquet.encryption.key_file import decryption_from_json

    return decryption_from_json(Path(path).read_text(encoding="utf-8"), file=path)
