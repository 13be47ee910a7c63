"""`report`: a page that draws what a query skips, or what is inside a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .keys import data_keys, file_keys
from .options import index_options, reporting, source_options, table_of

if TYPE_CHECKING:
    from .output import Output


@click.command()
@index_options
@source_options
@click.argument("where", required=False)
@click.option(
    "-o",
    "--output",
    metavar="PAGE",
    default="report.html",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="The page to write; an existing file is replaced.",
)
@data_keys
@reporting
def report(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    where: str | None,
    output: str,
    out: Output,
) -> None:
    """Draw what a query of TABLE with condition WHERE reads and skips, as one page of HTML.

    Each file is a cell, coloured by the level that skipped it. Files to read open into row groups,
    columns and pages. If TABLE is one Parquet file, the page shows its inside. The page needs no
    network.

    \b
      skipstone report data/events "user_id = 'u-8814'" -o report.html
      skipstone report data/events/part-0.parquet -o file.html
    """
    from skipstone.identity import canonical_path
    from skipstone.report import write, write_file
    from skipstone.storage import open_storage

    path = canonical_path(table)
    storage = open_storage(path, storage_options or None)
    if storage.has_children(path):
        found = table_of(table, index_location, storage_options)
        options = storage_options or None
        out.result(write(found.scan(where), output, storage_options=options))
    else:
        options = storage_options or None
        keys = file_keys()
        out.result(write_file(table, output, where, storage_options=options, decryption=keys))
