"""``Table.migrate``: where the ``_pm`` files of a table go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.questdb.migrate import migrate
from skipstone.questdb.txn_snapshot import is_txn_table

if TYPE_CHECKING:
    from skipstone.questdb.migrate import MigrateReport

    from .data_files import Progress
    from .table import Table

__all__ = ["migrate_table"]


def migrate_table(
    table: Table,
    destination: str | None,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MigrateReport:
    """Make a ``_pm`` for every data file that lacks a good one."""
    if destination is None and not is_txn_table(table.path, table.storage):
        destination = f"{table.location.root}/pm"
    return migrate(
        table.path,
        table.storage,
        listing=table.listing,
        destination=destination,
        dry_run=dry_run,
        storage_options=table.storage_options,
        progress=progress,
    )
