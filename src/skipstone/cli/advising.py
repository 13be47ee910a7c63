"""`advise`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import index_options, reporting, table_of

if TYPE_CHECKING:
    from .output import Output

__all__ = ["advise"]


@click.command()
@index_options
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Files to look at, spread over the table.",
)
@reporting
def advise(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    sample: int,
    out: Output,
) -> None:
    """Propose indexes for TABLE, with a reason each, from a sample of its files.

    Nothing is written. The last line is a `skipstone build` that is ready to run.
    """
    out.result(table_of(table, index_location, storage_options).advise(sample=sample))
