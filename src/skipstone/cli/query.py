"""`query` and `count`: rows of a table, read in this process without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .keys import data_keys
from .options import index_options, reporting, source_options, table_of

if TYPE_CHECKING:
    from .output import Output


@click.command()
@index_options
@source_options
@click.argument("where", required=False)
@click.option("--columns", metavar="A,B", help="Columns of the result; all by default.")
@click.option(
    "--order-by", metavar="KEYS", help='Sort keys: "ts desc, id", or "amount desc nulls last".'
)
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of rows.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, names first.")
@data_keys
@reporting
def query(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    where: str | None,
    columns: str | None,
    order_by: str | None,
    limit: int | None,
    as_csv: bool,
    out: Output,
) -> None:
    """Print the rows of TABLE that match WHERE (all, without it).

    query reads only the pages that may hold a match, and decides every row exactly, with Spark's
    meaning of NaN, nulls and zeros. --order-by KEYS with --limit N gives the first N rows (Top-N):
    files, row groups and pages whose bounds cannot come first are not read.

    \b
      skipstone query data/events "user_id = 'u-8814'" --columns ts,amount
      skipstone query data/events --order-by "amount desc" --limit 10
      skipstone query data/events "id = 7" --footer-key env:FOOTER_KEY
    """
    from .rows import Rows, columns_of

    if as_csv and out.as_json:
        raise click.UsageError("either --csv or --json")
    found = table_of(table, index_location, storage_options)
    names = columns_of(columns)
    scan = found.scan(where, columns=names, order_by=order_by, limit=limit)
    rows = Rows(scan, "csv" if as_csv else "table")
    if out.as_json:
        out.result(rows)
    else:
        out.lines(rows.lines())


@click.command()
@index_options
@source_options
@click.argument("where", required=False)
@data_keys
@reporting
def count(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    where: str | None,
    out: Output,
) -> None:
    """Print how many rows of TABLE match WHERE.

    count uses the indexes alone where they are exact. From the other files it reads the pages that
    may hold a match.
    """
    from .rows import Count

    out.result(Count(table_of(table, index_location, storage_options).count(where)))
