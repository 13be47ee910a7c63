"""Looks into QuestDB's ``_pm`` and ``_txn``: recognises them, and gathers a ``PmInspection``.

A name says which of the two a file is; under any other name its content does. ``inspect_pm`` shows
one snapshot and the chain of those before it. It computes each CRC of the chain in one pass over
the file.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Literal, TypeAlias

from skipstone.errors import FormatError, SkipstoneError
from skipstone.identity import canonical_path
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.txn import read
from skipstone.storage import open_storage

from .found import is_file
from .pm_description import Link, PmInspection
from .txn import inspect_txn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.questdb.format.pm import PmSnapshot
    from skipstone.storage import Storage

    from .options import InspectOptions
    from .txn import TxnInspection

__all__ = ["by_content", "by_name", "inspect_pm", "look"]

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


def look(path: str, kind: Kind, options: InspectOptions) -> PmInspection | TxnInspection:
    """All that was asked for."""
    if kind == "_txn":
        return inspect_txn(path, storage_options=options.storage_options)
    return inspect_pm(
        path,
        parquet_size=options.parquet_size,
        check_crc=not options.no_crc,
        storage_options=options.storage_options,
    )


def inspect_pm(
    path: str,
    *,
    parquet_size: int | None = None,
    check_crc: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> PmInspection:
    """Look into the ``_pm`` at ``path``.

    ``parquet_size`` picks the snapshot of a Parquet file of so many bytes, ``None`` the newest.
    ``FormatError`` where it is damaged; a wrong CRC is only shown without ``check_crc``.
    """
    path = canonical_path(path)
    storage = open_storage(path, storage_options)
    data = storage.read(path)
    pm = Pm(data, file=path)
    snapshot = pm.snapshot(parquet_size)
    notes: list[str] = []
    chain = _chain(snapshot, notes)
    if check_crc and not chain[0].ok:
        raise FormatError(
            "CRC32",
            file=path,
            offset=snapshot.size - 8,
            expected=f"{chain[0].crc:#010x}",
            got=f"{snapshot.crc:#010x}",
            hint="the file is damaged: --no-crc shows it nevertheless",
        )
    beside = f"{path.rpartition('/')[0]}/data.parquet"
    if parquet_size is None and path.endswith("/_pm") and storage.exists(beside):
        size = storage.stat(beside).size
        if size is not None and size != snapshot.parquet_size:
            notes.append(
                f"data.parquet beside it has {size:,} bytes, this snapshot is of one of"
                f" {snapshot.parquet_size:,}: --parquet-size picks another"
            )
    return PmInspection(
        path=path,
        physical_length=len(data),
        snapshot=snapshot,
        chain=chain,
        notes=tuple(notes),
    )


def _chain(snapshot: PmSnapshot, notes: list[str]) -> tuple[Link, ...]:
    """The snapshot and those before it, with the CRC of each."""
    pm, found, listed = snapshot.pm, [], 0
    try:
        for each in pm.snapshots():
            if each.size > snapshot.size:
                continue
            # Footers lie one behind the other, so all their entries take no more than the file.
            listed += each.row_group_count
            if 4 * listed > pm.size:
                raise FormatError("footers that overlap", file=pm.file, offset=each.footer_offset)
            found.append(each)
    except SkipstoneError as error:
        text = error.message.removeprefix(f"{pm.file}: ")
        notes.append(f"the chain of snapshots ends early: {text}")
    links, crc, done = [], 0, 8
    for each in reversed(found or [snapshot]):
        crc = zlib.crc32(pm.data[done : each.size - 8], crc)
        done = each.size - 8
        links.append(Link(snapshot=each, crc=crc))
    return tuple(reversed(links))
