"""A live table brought back to what its ``_txn`` says, after a writer died or failed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from skipstone.errors import FormatError
from skipstone.questdb.format.txn import Txn, created
from skipstone.questdb.txn_snapshot import DATA, TXN, read_txn
from skipstone.storage import open_storage

from .commits import NO_BATCH
from .directories import OWN_FILES, named, unnamed

if TYPE_CHECKING:
    from .definition import LiveDefinition
    from .disk import Disk

__all__ = ["recover"]


def recover(disk: Disk, root: str, definition: LiveDefinition) -> None:
    """Cut the tails of ``data.parquet``, remove directories that were never committed.

    Only under the writer's lock. A ``_pm`` is never cut. ``FormatError`` where committed bytes are
    missing; nothing is removed then, as what is left may be these bytes under another name.
    """
    if not Path(root, TXN).exists():
        # Nothing was ever committed: its maker died between the mark and this.
        disk.put(f"{root}/{TXN}", created(Txn(txn=0, seq_txn=NO_BATCH)))
    txn, partitioning = read_txn(root, open_storage(root)), definition.partitioning
    longer: list[tuple[str, int]] = []
    for partition, name in zip(txn.partitions, named(txn, partitioning), strict=True):
        path, size = f"{root}/{name}/{DATA}", partition.parquet_file_size
        try:
            length = Path(path).stat().st_size
        except FileNotFoundError:
            raise FormatError(
                "a partition without its file", file=path, expected=size, got="no such file"
            ) from None
        if length < size:
            raise FormatError("data.parquet is cut short", file=path, expected=size, got=length)
        if length > size:
            longer.append((path, size))
    for name in unnamed(root, txn, partitioning).never_committed:
        disk.remove(f"{root}/{name}", OWN_FILES)
    for path, size in longer:
        disk.cut(path, size)
