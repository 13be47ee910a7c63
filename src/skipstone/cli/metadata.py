"""`metadata`: the footers of a table's files in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import index_options, reporting, table_of

if TYPE_CHECKING:
    from .output import Output

__all__ = ["metadata"]


@click.command()
@index_options
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
@reporting
def metadata(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    dry_run: bool,
    out: Output,
) -> None:
    """Write _metadata and _common_metadata into TABLE, or bring them up to date.

    _metadata holds the footers of all files: plans read it in place of them, with one request,
    where the files are still those that it was made of. Footers of files that have not changed
    since the last time are not read again. Run it after writing to the table.
    """
    with out.progress("metadata") as progress:
        report = table_of(table, index_location, storage_options).write_metadata(
            dry_run=dry_run, progress=progress
        )
    out.result(report)
