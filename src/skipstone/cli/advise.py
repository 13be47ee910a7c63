"""`advise`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

import click

from .keys import data_keys
from .options import index_options, reporting, table_of

if TYPE_CHECKING:
    from .output import Output


@click.command()
@index_options
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many files to look at, spread over the table.",
)
@click.option(
    "--queries",
    type=click.File("r", encoding="utf-8"),
    help="Predicates that the indexes should serve, one per line, or a JSON list; - for stdin. "
    "A number and a tab before a predicate is its weight.",
)
@data_keys
@reporting
def advise(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    sample: int,
    queries: TextIO | None,
    out: Output,
) -> None:
    """Propose indexes for TABLE, with a reason each, from a sample of its files.

    With --queries, advise builds candidate indexes over the sample, plans the queries with them,
    and compares the bytes that each index saves with its size. It writes nothing. The last line is
    a `skipstone build` command that is ready to run.
    """
    found = table_of(table, index_location, storage_options)
    if queries is None:
        out.result(found.advise(sample=sample))
        return
    from skipstone.advisor import parse_queries

    try:
        text = queries.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--queries: {queries.name} is not UTF-8: {error}") from error
    out.result(found.advise(sample=sample, queries=parse_queries(text)))
