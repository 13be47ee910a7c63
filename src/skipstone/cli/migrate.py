"""`migrate`: row group metadata for data files that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .explain import FOUND
from .options import index_options, reporting, table_of

if TYPE_CHECKING:
    from .output import Output

__all__ = ["migrate"]


@click.command()
@index_options
@click.argument("destination", metavar="[DEST]", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
@reporting
def migrate(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    destination: str | None,
    dry_run: bool,
    out: Output,
) -> None:
    """Make a _pm for every data file of TABLE that lacks a good one.

    No rows are read: footers and Bloom filters say it all. Of a table of QuestDB (a directory with
    a _txn) each Parquet partition gets its _pm beside data.parquet; stop the server first. Of any
    other table they go below DEST, by default beside the index (data/_events.skipstone/pm). TABLE
    may also be one _pm, which is brought up to date without its data file.

    A good _pm is never written again. Exit code 3 when none could be made for some file.
    """
    with out.progress("migrate") as progress:
        report = table_of(table, index_location, storage_options).migrate(
            destination, dry_run=dry_run, progress=progress
        )
    out.result(report)
    if not report.ok:
        click.get_current_context().exit(FOUND)
