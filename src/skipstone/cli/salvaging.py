"""`salvage`: a good file out of one whose footer is lost, torn or damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .asking import FOUND
from .options import reporting

if TYPE_CHECKING:
    from .output import Output

__all__ = ["salvage"]


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--schema", help="A Parquet file, an Arrow schema file, or text: message m { … }.")
@click.option("--output", metavar="OUT", help="The new file; by default FILE.salvaged.parquet.")
@click.option("--skip-bad-pages", is_flag=True, help="Nulls for damaged pages of optional columns.")
@click.option(
    "--row-group-rows",
    type=click.IntRange(min=1),
    help="Rows of every row group but the last, where columns look alike.",
)
@click.option(
    "--footer-only",
    is_flag=True,
    help="Nothing but the footer is lost: a row group ends with the last page.",
)
@reporting
def salvage(
    file: str,
    schema: str | None,
    output: str | None,
    skip_bad_pages: bool,
    row_group_rows: int | None,
    footer_only: bool,
    out: Output,
) -> None:
    """Save what can be saved of FILE, a Parquet file whose footer is lost, torn or damaged.

    Pages are found by their headers and decoded, every one. All whole row groups go into a new
    file; what is damaged or uncertain is left out, and said. FILE itself is only read. The schema
    is taken from --schema, from what is left of the footer, or from the files beside FILE.

    Exit code 3 when something was left out.
    """
    from skipstone.rewrite.salvaging import salvage as save

    report = save(
        file,
        output=output,
        schema=schema,
        skip_bad_pages=skip_bad_pages,
        row_group_rows=row_group_rows,
        footer_only=footer_only,
    )
    out.result(report)
    if not report.ok:
        click.get_current_context().exit(FOUND)
