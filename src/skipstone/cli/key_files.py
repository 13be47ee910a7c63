"""``--keys FILE:COLUMN``: files with the values that a column is looked up among."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from skipstone.table import Table


_META = "skipstone.key_sets"


def asked_keys(table: Table) -> dict[str, object] | None:
    """The keys of the files that were named, by column of ``table``; ``None`` without any."""
    named: dict[str, tuple[str, str]] = click.get_current_context().meta.get(_META) or {}
    if not named:
        return None
    from skipstone.table.key_sets import keys_of_file

    return {column: keys_of_file(table, column, *place) for column, place in named.items()}


def _keys(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The file with the keys of encrypted files; those of columns are kept in the context."""
    named: dict[str, tuple[str, str]] = {}
    opening: list[str] = []
    for value in values:
        file, colon, columns = value.rpartition(":")
        if Path(value).is_file() or not colon:
            opening.append(value)
            continue
        theirs, equals, ours = columns.partition("=")
        column = ours if equals else theirs
        if not file or not theirs or not column:
            raise click.BadParameter(f"{value!r}: write FILE:COLUMN", ctx, param)
        if column in named:
            raise click.BadParameter(f"keys of {column} are given twice", ctx, param)
        named[column] = (file, theirs)
    if named:
        ctx.meta[_META] = named
    if len(opening) > 1:
        raise click.BadParameter("one JSON file has all keys of encrypted files", ctx, param)
    for file in opening:
        click.Path(exists=True, dir_okay=False).convert(file, param, ctx)
    return opening[0] if opening else None


keys_option = click.option(
    "--keys",
    metavar="FILE:COLUMN",
    multiple=True,
    callback=_keys,
    help="Only rows whose COLUMN is one of the values in FILE: the column of that name in a "
    "Parquet or CSV file, or the lines of a text file; FILE:A=B looks up B among the values of A. "
    "May be given again for another column. Without a colon: a JSON file with the keys of "
    "encrypted files.",
)
