"""`drop`, `compact`, `vacuum` and `export`: maintain and publish an existing index."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError

from .completion import index as index_name
from .completion import paths
from .keys import index_keys
from .options import TableArguments, age, index_options, reporting

if TYPE_CHECKING:
    from datetime import timedelta

    from skipstone.facts.reports import Description

    from .output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldDrop:
    """What ``drop`` would remove: names as ``build`` takes them, and bytes."""

    table: str
    indexes: tuple[str, ...]
    total: int
    bytes: int

    @classmethod
    def of(cls, found: Description, index: str | None) -> WouldDrop:
        """The indexes of ``found`` that ``index`` names (``column:kind``), all for ``None``."""
        from skipstone.facts.coverage import named_indexes

        chosen = found.indexes if index is None else named_indexes(found, index)
        return cls(
            table=found.table,
            indexes=tuple(each.name for each in chosen),
            total=len(found.indexes),
            bytes=found.bytes_index if index is None else sum(each.bytes for each in chosen),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "dry_run": True,
            "dropped": list(self.indexes),
            "bytes_removed": self.bytes,
        }

    def __str__(self) -> str:
        from skipstone.human import of_total, size

        count = of_total(len(self.indexes), self.total, "indexes")
        head = f"would drop {count} of {self.table}, {size(self.bytes)}"
        return "\n".join([head, *(f"  {name}" for name in self.indexes)])


@click.command()
@index_options
@click.argument("index", required=False, shell_complete=index_name)
@click.option("--yes", is_flag=True, help="Do not ask; needed without a terminal.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@reporting
def drop(
    table: TableArguments,
    index: str | None,
    yes: bool,
    dry_run: bool,
    out: Output,
) -> None:
    """Remove INDEX (as in user_id:bloom) of TABLE, or all its indexes.

    The other indexes stay as they are. No data file is changed.
    """
    if not (yes or dry_run or out.can_ask()):
        raise click.UsageError("no terminal for a question: give --yes, or --dry-run to look first")
    target = table.open()
    if dry_run:
        out.result(WouldDrop.of(target.describe(), index))
        return
    what = f"index {index}" if index else "every index"
    if not yes and not out.confirm(f"Drop {what} of {table.path}?"):
        raise SkipstoneError("nothing was dropped", hint="answer y, or give --yes")
    out.result(target.drop(index))


@click.command()
@partial(index_options, versions=False)
@click.option(
    "--upgrade",
    is_flag=True,
    help="TABLE is the directory of an Xskipper store: upgrade it to version 4, in place.",
)
@reporting
def compact(
    table: TableArguments,
    upgrade: bool,
    out: Output,
) -> None:
    """Merge the parts of the index of TABLE into few.

    Facts about files that are gone or have changed are removed. An Xskipper export next to the
    index is published again.
    """
    if upgrade:
        from skipstone.xskipper.upgrade import upgrade_store

        options, keys = table.storage_options, index_keys()
        out.result(upgrade_store(table.path, options=options, keys=keys))
        return
    out.result(table.open().compact())


@click.command()
@partial(index_options, versions=False)
@click.option(
    "--older-than",
    metavar="AGE",
    callback=age,
    default="1d",
    show_default=True,
    help="Keep younger files, by the clock of the store: a running build may still refer to them.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@reporting
def vacuum(
    table: TableArguments,
    older_than: timedelta,
    dry_run: bool,
    out: Output,
) -> None:
    """Delete files that no part of the index of TABLE refers to."""
    target = table.open()
    out.result(target.vacuum(older_than=older_than, dry_run=dry_run))


@click.command()
@index_options
@click.argument("destination", metavar="[DEST]", shell_complete=paths, required=False)
@click.option("--xskipper", is_flag=True, help="As a metadata directory of Xskipper, version 4.")
@click.option("--paimon", is_flag=True, help="As Paimon's file indexes, <data file>.index.")
@click.option("--questdb", is_flag=True, help="As QuestDB's row group metadata, _pm.")
@click.option(
    "--puffin",
    is_flag=True,
    help="Experimental: Bloom filters of a snapshot of Apache Iceberg, as a Puffin file.",
)
@reporting
def export(
    table: TableArguments,
    destination: str | None,
    xskipper: bool,
    paimon: bool,
    questdb: bool,
    puffin: bool,
    out: Output,
) -> None:
    """Publish the index of TABLE below the directory DEST, for other systems.

    --xskipper without DEST publishes next to the index, and again with every `compact`.
    """
    chosen = {"xskipper": xskipper, "paimon": paimon, "questdb": questdb, "puffin": puffin}
    kinds = [kind for kind, yes in chosen.items() if yes]
    if len(kinds) != 1:
        raise click.UsageError("name one format: --xskipper, --paimon, --questdb or --puffin")
    if kinds != ["xskipper"] and destination is None:
        raise click.UsageError("name the directory DEST for the export")
    target = table.open()
    out.result(target.export(destination, kind=kinds[0]))
