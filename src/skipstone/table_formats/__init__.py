"""Tables of table formats, each through its own library: Delta Lake, Apache Iceberg, Apache
Paimon, Apache Hudi.

A format is one module with a ``SnapshotSource`` (``snapshot.py``); ``open_table`` and
``open_named`` know them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skipstone.errors import SkipstoneError, UnsupportedError

from .snapshot import SnapshotListing, SnapshotSource, SnapshotTable, TableSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from skipstone.storage import Storage

    from .iceberg import IcebergSource

__all__ = [
    "SnapshotListing",
    "SnapshotSource",
    "SnapshotTable",
    "TableSnapshot",
    "open_named",
    "open_table",
]

DELTA: Final = "Delta Lake"
ICEBERG: Final = "Apache Iceberg"
PAIMON: Final = "Apache Paimon"
HUDI: Final = "Apache Hudi"
#: the beginning of the name of a catalog's table: ``iceberg:catalog.namespace.table``
_NAMED: Final = "iceberg:"


def open_table(
    format: str | None,
    root: str,
    storage: Storage,
    options: Mapping[str, str],
    version: int | str | None,
    timestamp: str | datetime | None,
) -> SnapshotTable | None:
    """The table of ``format`` (``storage.table_format``) at ``root``, at a version or a time if one
    is given; ``None`` for a table of no format.

    ``UnsupportedError`` without the library of the format, and for a version or a time of a table
    of no format.
    """
    at = version, timestamp
    if format is None and at == (None, None):
        return None
    if format is None:
        raise UnsupportedError(
            f"{root} has no versions: it is not a table of a table format",
            hint="leave out version and timestamp",
        )
    if format == DELTA:
        from .delta import DeltaSource

        return SnapshotTable(root, storage, DeltaSource(root, options, *at))
    if format == ICEBERG:
        from .iceberg import IcebergSource, in_folder

        found = IcebergSource(*in_folder(root, storage, options), *at)
        return SnapshotTable(root, storage, found)
    if format == PAIMON:
        from .paimon import PaimonSource

        return SnapshotTable(root, storage, PaimonSource(root, options, *at))
    if format == HUDI:
        from .hudi import HudiSource

        return SnapshotTable(root, storage, HudiSource(root, options, *at))
    raise AssertionError(format)


def open_named(
    name: object,
    options: Mapping[str, str],
    version: int | str | None,
    timestamp: str | datetime | None,
) -> IcebergSource | None:
    """The table of a catalog, ``None`` where ``name`` does not name one but is a path.

    ``SkipstoneError`` for a version and a time at once.
    """
    if version is not None and timestamp is not None:
        raise SkipstoneError(
            "a table is read at a version or at a time, not at both", hint="leave out one of them"
        )
    if not isinstance(name, str) or not name.startswith(_NAMED):
        return None
    from .iceberg import IcebergSource, by_name

    opened = by_name(name.removeprefix(_NAMED), options)
    return IcebergSource(*opened, version, timestamp, options)
