"""``--keys FILE:COLUMN``: files with the keys that a column is looked up in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .completion import paths

if TYPE_CHECKING:
    from skipstone.table import Table


_META = "skipstone.key_sets"


def asked_keys(table: Table) -> dict[str, object] | None:
    """The keys of the files that were named, by column of ``table``; ``None`` without any."""
    named: dict[str, tuple[str, str]] = click.get_current_context().meta.get(_META) or {}
    if not named:
        return None
    from skipstone.errors import PredicateError
    from skipstone.pruning.table_schema import find_field
    from skipstone.table.key_sets import keys_of_file

    schema = table.schema(table.listing())
    for column, (file, theirs) in named.items():
        if "," in column and find_field(schema, column) is None:
            first, _, second = column.partition(",")
            if theirs != column:
                first = f"{theirs}={first}"
            raise PredicateError(
                f"no column {column}",
                hint="--keys names one column, and is given again for another: "
                f"--keys {file}:{first} --keys {file}:{second}",
            )
    return {column: keys_of_file(table, column, *place) for column, place in named.items()}


def _keys(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The file with the keys of encrypted files; files with keys of columns are kept in the
    context."""
    named: dict[str, tuple[str, str]] = {}
    opening: list[str] = []
    for value in values:
        file, colon, columns = value.rpartition(":")
        if Path(value).exists() or not colon or columns.startswith("//"):
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
        if "://" not in file:
            click.Path(exists=True).convert(file, param, ctx)
        if not Path(file).is_file() or not _is_json(file):
            raise _without_column(file)
    return opening[0] if opening else None


def _is_json(file: str) -> bool:
    with Path(file).open("rb") as opened:
        return opened.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def _without_column(file: str) -> Exception:
    """The error for a file of keys of no column."""
    from skipstone.errors import SkipstoneError
    from skipstone.human import some_of
    from skipstone.table import Table
    from skipstone.table.key_sets import columns_of_file

    names = columns_of_file(file, Table)
    if names is None:
        meant = f"its lines may be keys of a column of the table: --keys {file}:COLUMN"
        text = f"--keys {file} is not a JSON file with the keys of encrypted files"
        return SkipstoneError(text, hint=meant)
    return SkipstoneError(
        f"--keys {file} does not say which column has the keys: write FILE:COLUMN",
        hint=f"its columns are {some_of(names, 8)}: --keys {file}:"
        f"{names[0] if names else 'COLUMN'}, or {file}:A=B for the column B of the table",
    )


keys_option = click.option(
    "--keys",
    metavar="FILE:COLUMN",
    shell_complete=paths,
    multiple=True,
    callback=_keys,
    help="Only rows whose COLUMN is one of the values in FILE: the column of that name in a "
    "Parquet or CSV file, or the lines of a text file; FILE:A=B looks up B among the values of A. "
    "May be given again for another column. Without a colon: a JSON file with the keys of "
    "encrypted files.",
)
