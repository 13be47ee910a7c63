"""`describe`, `explain` and `check`: show indexes, what they skip, and whether they are true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .errors import FOUND
from .keys import data_keys
from .options import index_options, reporting, source_options, table_of

if TYPE_CHECKING:
    from skipstone.table.planning import PlanOptions

    from .output import Output


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
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of rows.")
@click.option("--facts-only", is_flag=True, help="Use the index alone; open no data file.")
@click.option("--analyze", is_flag=True, help="Run the query, and add what it took.")
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

    WHERE is SQL text in Spark's dialect. For each level (files, row groups, pages, rows), explain
    shows which indexes were used, and why others were not. It reads footers and page indexes of
    data files where that should save more than it costs. It reads rows only with --analyze. With
    --json, `paths` are the files to read.

    \b
      skipstone explain data/events "user_id = 'u-8814' and ts >= '2026-01-01'"
      skipstone explain data/events "user_id = 'u-8814'" --columns ts,amount --analyze
      skipstone explain data/events "user_id = 'u-8814'" --footer-key env:FOOTER_KEY
    """
    from .rows import columns_of

    query: PlanOptions = {
        "columns": columns_of(columns),
        "order_by": order_by,
        "limit": limit,
        "inside": not facts_only,
    }
    opened = table_of(table, index_location, storage_options)
    out.result(opened.scan(where, **query).analyze() if analyze else opened.explain(where, **query))


@click.command()
@index_options
@source_options
@click.option(
    "--deep",
    is_flag=True,
    help="Also compare the facts of a sample of files with their data.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many files a deep check reads.",
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

    Exit code 3 when there are any. Stale and missing facts cost time, never rows: such files are
    read in full until the next refresh.

    With keys, check also finds encrypted files that were swapped, replaced by an older version or
    by a file of another table, decrypted, or removed. --aad-prefix is the name of the table, for
    tables without a list of their encrypted files.
    """
    report = table_of(table, index_location, storage_options).check(deep=deep, sample=sample)
    out.result(report)
    if not report.ok:
        click.get_current_context().exit(FOUND)
