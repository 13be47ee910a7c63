"""`describe`, `explain` and `check`: what there is, what it does, whether it is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .errors import FOUND
from .keys import data_keys
from .options import index_options, reporting, source_options, table_of

if TYPE_CHECKING:
    from .output import Output

__all__ = ["FOUND", "check", "describe", "explain"]


@click.command()
@index_options
@source_options
@reporting
def describe(
    table: str, index_location: str | None, storage_options: dict[str, str], out: Output
) -> None:
    """Show the indexes of TABLE, and how many of its files they cover."""
    out.result(table_of(table, index_location, storage_options).describe())


@click.command()
@index_options
@source_options
@click.argument("where", required=False)
@click.option("--columns", metavar="A,B", help="Columns that the query reads; all by default.")
@click.option("--order-by", metavar="KEYS", help='Sort keys: "ts desc, id".')
@click.option("--limit", type=click.IntRange(min=0), help="Rows at most.")
@click.option("--facts-only", is_flag=True, help="Look into no data file: ask the index alone.")
@click.option("--analyze", is_flag=True, help="Run it, and add what really happened.")
@data_keys
@reporting
def explain(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    where: str | None,
    columns: str | None,
    order_by: str | None,
    limit: int | None,
    facts_only: bool,
    analyze: bool,
    out: Output,
) -> None:
    """Show what a query of TABLE with condition WHERE would read.

    WHERE is SQL text as Spark takes it. Level by level (files, row groups, pages, rows) each index
    says whether it was used, and because of what. Footers and page indexes of data files are looked
    at where that is expected to save more than it costs; no row is read, but with --analyze. With
    --json, `paths` are the files to read.

    \b
      skipstone explain data/events "user_id = 'u-8814' and ts >= '2026-01-01'"
      skipstone explain data/events "user_id = 'u-8814'" --columns ts,amount --analyze
      skipstone explain data/events "user_id = 'u-8814'" --footer-key env:FOOTER_KEY
    """
    from .rows import columns_of

    names = columns_of(columns)
    plan = table_of(table, index_location, storage_options).explain(
        where, columns=names, order_by=order_by, limit=limit, inside=not facts_only
    )
    out.result(plan.analyze() if analyze else plan)


@click.command()
@index_options
@source_options
@click.option("--deep", is_flag=True, help="Also read sampled files, and prove their facts true.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Files that a deep check reads.",
)
@data_keys
@reporting
def check(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    deep: bool,
    sample: int,
    out: Output,
) -> None:
    """Find facts of TABLE that are stale, missing, orphaned, corrupt or untrue.

    Exit code 3 when there are any. Stale and missing facts cost time and never rows: such files are
    read in full until the next refresh.

    With keys, also find files that are not those which were encrypted: in the place of another, of
    another table, older, in the clear, or gone. --aad-prefix is the name of the table, where the
    list of its encrypted files is not there to tell it.
    """
    report = table_of(table, index_location, storage_options).check(deep=deep, sample=sample)
    out.result(report)
    if not report.ok:
        click.get_current_context().exit(FOUND)
