"""Completion in shells: paths, the columns of the named table, and index kinds.

click asks these functions with the words so far. The columns are those of one file of the table,
because a listing of all could take seconds. After any failure, nothing is completed.

The scripts of the shells are click's, with fixes for names with commas in fish, and for names with
spaces and colons in bash. zsh needs its completion system, which a start-up file may not have
started.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click
    import pyarrow as pa


# How many folders of a table are searched for a file.
_MOST_FOLDERS = 100


@add_completion_class
class _Bash(BashComplete):
    # Bash inserts a value without quotes, and divides words at colons.
    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)",
        """[[ ${COMP_WORDS[COMP_CWORD]} == [\\"\\']* ]] || printf -v value %%q "$value"
            COMPREPLY+=("${value//\\\\,/,}")""",
    ) + ("COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n")


@add_completion_class
class _Zsh(ZshComplete):
    source_template = ZshComplete.source_template.replace(
        "    compdef ",
        """    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
    compdef """,
    )


@add_completion_class
class _Fish(FishComplete):
    # A value and its description may contain commas.
    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split --max 1 ","'
    )


def paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and directories: the shell lists them."""
    return [CompletionItem(incomplete, type="file")]


def column_list(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """``A,B``: the columns that are not named yet, after the last comma."""
    before, comma, last = incomplete.rpartition(",")
    named = {each.strip() for each in before.split(",")}
    return [
        CompletionItem(f"{before}{comma}{name}")
        for name in _columns(ctx)
        if name.startswith(last) and name not in named
    ]


def column(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """One column."""
    return [CompletionItem(name) for name in _columns(ctx) if name.startswith(incomplete)]


def definition(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """``COLUMN:KIND``: first the column, then the kinds of index, also after a comma."""
    from skipstone.indexes.registry import known_kinds

    if ":" not in incomplete:
        fitting = [name for name in _columns(ctx) if name.startswith(incomplete)]
        if len(fitting) != 1:
            return [CompletionItem(f"{name}:") for name in fitting]
        incomplete = f"{fitting[0]}:"
    head = incomplete[: max(incomplete.rfind(":"), incomplete.rfind(",")) + 1]
    kinds = [kind for kind in known_kinds() if kind.startswith(incomplete.removeprefix(head))]
    return [CompletionItem(f"{head}{kind}") for kind in kinds]


def index(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """An index that the table has."""
    found: list[str] = []
    with suppress(Exception):
        from skipstone.table import Table

        where = ctx.params.get("index_location")
        store = Table(_table(ctx), index_location=where).store
        found = [f"{each.column}:{each.kind}" for each in store.snapshot().definitions]
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _table(ctx: click.Context) -> str:
    """The named table. click passes none next to an option without its value; then the table is the
    first word after the verb that is a path."""
    given = ctx.params.get("table")
    if given is not None:
        return str(given)
    words = split_arg_string(os.environ.get("COMP_WORDS", ""))[2:]
    paths = (os.path.expanduser(word) for word in words if not word.startswith("-"))  # noqa: PTH111
    return next(filter(os.path.exists, paths))


def _columns(ctx: click.Context) -> list[str]:
    found: list[str] = []
    with suppress(Exception):
        import pyarrow.parquet as pq

        table = _table(ctx)
        file = next(_files(table))
        found = list(_atomic(pq.read_schema(file), ""))
        folders = file.removeprefix(table).split("/")[:-1]
        found += [name for name, equals, _ in (each.partition("=") for each in folders) if equals]
    return found


def _atomic(fields: pa.Schema | pa.StructType, above: str) -> Iterator[str]:
    import pyarrow as pa

    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _atomic(field.type, f"{above}{field.name}.")
        else:
            yield f"{above}{field.name}"


def _files(table: str) -> Iterator[str]:
    if os.path.isfile(table):  # noqa: PTH113
        yield table
    for _, (folder, below, names) in zip(range(_MOST_FOLDERS), os.walk(table), strict=False):
        below[:] = [each for each in below if not each.startswith(("_", "."))]
        yield from (f"{folder}/{name}" for name in names if name.endswith(".parquet"))
