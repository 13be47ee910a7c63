"""Tables of table formats, each through its own library: Delta Lake.

A format is one module with a ``Source`` (``snapshot.py``); ``open_source`` knows them by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skipstone.errors import UnsupportedError

from .snapshot import Snapshot, SnapshotListing, SnapshotTable, Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from skipstone.storage import Storage

__all__ = ["Snapshot", "SnapshotListing", "SnapshotTable", "Source", "open_table"]

DELTA: Final = "Delta Lake"


def open_table(
    format: str,
    root: str,
    storage: Storage,
    options: Mapping[str, str],
    version: int | str | None,
    timestamp: str | datetime | None,
) -> SnapshotTable:
    """The table of ``format`` (``storage.table_format``) at ``root``, at a version or a time if one
    is given.

    ``UnsupportedError`` for a format that has no reader here, and without its library.
    """
    if format != DELTA:
        raise UnsupportedError(
            f"{root} is a table of {format}: its directory holds files that are not part "
            "of the table",
            hint=f"read it through {format}, which has its own file statistics",
        )
    from .delta import DeltaSource

    return SnapshotTable(root, storage, DeltaSource(root, options, version, timestamp))
