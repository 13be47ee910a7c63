"""`inspect` of QuestDB's ``_pm`` and ``_txn``, told by name or, under any other, by content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from skipstone.errors import SkipstoneError
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.txn import read

from .inspect_target import is_file

if TYPE_CHECKING:
    from skipstone.inspect.pm_inspection import PmInspection
    from skipstone.inspect.txn_inspection import TxnInspection
    from skipstone.storage import Storage

    from .inspect import Asked

__all__ = ["by_content", "by_name", "look"]

Kind: TypeAlias = Literal["_pm", "_txn"]

# What has no name of theirs and is larger is not read to find out.
_LARGEST = 1 << 28


def by_name(storage: Storage, path: str) -> Kind | None:
    """What a file is called: ``_pm``, ``x._pm``, ``x.pm``, ``_txn``, ``x._txn``."""
    name = path.rpartition("/")[2]
    if name == "_pm" or name.endswith(("._pm", ".pm")):
        return "_pm" if is_file(storage, path) else None
    if name == "_txn" or name.endswith("._txn"):
        return "_txn" if is_file(storage, path) else None
    return None


def by_content(storage: Storage, path: str) -> Kind | None:
    """What a file is by its bytes: neither has a magic number, so all of its structure counts."""
    if not is_file(storage, path) or (storage.stat(path).size or 0) > _LARGEST:
        return None
    data = storage.read(path)
    try:
        Pm(data).snapshot().verify()
    except SkipstoneError:
        pass
    else:
        return "_pm"
    try:
        return None if read(data) is None else "_txn"
    except SkipstoneError:
        return None


def look(path: str, kind: Kind, asked: Asked) -> PmInspection | TxnInspection:
    """All that was asked for."""
    from skipstone.inspect.pm_inspection import inspect_pm
    from skipstone.inspect.txn_inspection import inspect_txn

    if kind == "_txn":
        return inspect_txn(path, storage_options=asked.storage_options)
    return inspect_pm(
        path,
        parquet_size=asked.parquet_size,
        check_crc=not asked.no_crc,
        storage_options=asked.storage_options,
    )
