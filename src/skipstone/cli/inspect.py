"""`inspect`: what lies at a path decides who looks at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from skipstone.errors import FormatError, UnsupportedError

from .explain import FOUND
from .options import index_key_options, index_keys, reporting, storage_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage

    from .output import Output, Reportable

__all__ = ["Asked", "inspect"]

#: modules that look, in this order: a fact part is also a Parquet file with an Xskipper schema
LOOKERS = (
    "skipstone.cli.inspect_facts",
    "skipstone.cli.inspect_packs",
    "skipstone.cli.inspect_xskipper",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants to see: ``rows`` of stores and Parquet files, ``columns`` to ``keys`` of
    Parquet files, ``where`` to ``data`` of file indexes, ``parquet_size`` and ``no_crc`` of a
    ``_pm``, ``index_keys`` of an encrypted index."""

    rows: int = 3
    columns: tuple[str, ...] = ()
    pages: bool = False
    verify: bool = False
    keys: str | None = None
    where: str | None = None
    types: tuple[tuple[str, str], ...] = ()
    data: str | None = None
    parquet_size: int | None = None
    no_crc: bool = False
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    index_keys: LabelledKeys | None = field(default=None, repr=False)

    @property
    def of_parquet(self) -> str | None:
        """The first option that only a Parquet file understands."""
        asked = {"--column": self.columns, "--pages": self.pages, "--verify": self.verify}
        return next((name for name, value in asked.items() if value), None)

    @property
    def of_index(self) -> str | None:
        """The first option that only a file index understands."""
        asked = {"--where": self.where, "--type": self.types, "--data": self.data}
        return next((name for name, value in asked.items() if value), None)

    @property
    def of_pm(self) -> str | None:
        """The first option that only a ``_pm`` understands."""
        asked = {"--parquet-size": self.parquet_size is not None, "--no-crc": self.no_crc}
        return next((name for name, value in asked.items() if value), None)


def _types(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    found = []
    for value in values:
        column, equals, type = value.rpartition("=")
        if not (column and equals and type):
            raise click.BadParameter(f"{value!r} is not of the form COLUMN=TYPE", ctx, param)
        found.append((column, type))
    return tuple(found)


@click.command()
@click.argument("path", metavar="STORE|FILE")
@storage_option
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Rows to show of each store or file.",
)
@click.option("--pages", is_flag=True, help="Parquet: every page, page index and Bloom filter too.")
@click.option(
    "--column",
    "columns",
    metavar="NAME",
    multiple=True,
    help="Parquet: only this column (a.b for a part of a group); may be given again.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Parquet: read everything; hold checksums, counts, bounds and filters against the values.",
)
@click.option(
    "--keys",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Parquet: a JSON file with the keys of an encrypted file.",
)
@click.option("--where", metavar="WHERE", help="File index: which rows it says match, as SQL text.")
@click.option(
    "--type",
    "types",
    metavar="COLUMN=TYPE",
    multiple=True,
    callback=_types,
    help="File index: the type of a column, as Paimon spells it; may be given again.",
)
@click.option(
    "--data",
    metavar="FILE",
    help="File index: the Parquet file that it is of, for the types; x for x.index by default.",
)
@click.option(
    "--parquet-size",
    type=click.IntRange(min=0),
    metavar="N",
    help="_pm: the snapshot of the Parquet file of N bytes; the newest by default.",
)
@click.option("--no-crc", is_flag=True, help="_pm: show one whose CRC is wrong, too.")
@index_key_options
@reporting
def inspect(
    path: str,
    storage_options: dict[str, str],
    rows: int,
    pages: bool,
    columns: tuple[str, ...],
    verify: bool,
    keys: str | None,
    where: str | None,
    types: tuple[tuple[str, str], ...],
    data: str | None,
    parquet_size: int | None,
    no_crc: bool,
    out: Output,
) -> None:
    """Show what is inside STORE or FILE.

    A directory: the index of a table (data/_events.skipstone), a metadata directory of Xskipper of
    any version from 0 to 4, or a directory above such. A file: a fact part, a sealed pack, a part
    of an Xskipper store, a file index of Paimon (x.parquet.index): its columns, kinds, sizes,
    distinct values, least and greatest, and with --where the rows; a _pm or _txn of QuestDB:
    header, columns, row groups, bounds, Bloom filters and snapshots, or partitions; or any Parquet
    file: its schema, row groups, columns, indexes, Bloom filters and encryption. Of what is
    encrypted, key labels are shown.

    The keys are JSON, each in hex, base64:… or text:…:
    {"footer_key": "…", "column_keys": {"a.b": "…"}, "aad_prefix": "…"}

    Those of an encrypted index are --index-key, label by label; what they open is shown.

    Exit code 3 when --verify finds something, or --no-crc shows a wrong CRC.
    """
    asked = Asked(
        rows=rows,
        columns=columns,
        pages=pages,
        verify=verify,
        keys=keys,
        where=where,
        types=types,
        data=data,
        parquet_size=parquet_size,
        no_crc=no_crc,
        storage_options=storage_options or None,
        index_keys=_labelled(index_keys().get("index_keys")),
    )
    found = _inspect(path, asked)
    out.result(found)
    if not getattr(found, "sound", True):
        click.get_current_context().exit(FOUND)


def _labelled(source: Any) -> LabelledKeys | None:
    if source is None:
        return None
    from skipstone.parquet.encryption.master_keys import LabelledKeys as _LabelledKeys

    return _LabelledKeys(source)


def _inspect(path: str, asked: Asked) -> Reportable:
    from skipstone.identity import canonical_path
    from skipstone.storage import open_storage

    from . import inspect_paimon, inspect_parquet, inspect_questdb
    from .inspect_target import Inspection

    canonical = canonical_path(path)
    storage = open_storage(canonical, asked.storage_options)
    if not storage.has_children(canonical):
        try:
            storage.open(canonical).close()
        except (FileNotFoundError, IsADirectoryError) as error:
            text = "no such file or directory, or an empty one"
            raise FileNotFoundError(error.errno, text, path) from error
    option = asked.of_parquet
    other = option or asked.of_index
    kind = inspect_questdb.by_name(storage, canonical)
    if kind is None and asked.of_pm is not None and other is None:
        kind = inspect_questdb.by_content(storage, canonical)
    if other is not None and kind is not None:
        what = "Parquet files" if other == option else "file indexes"
        raise click.UsageError(f"{other} is for {what}, and {path} is none")
    if asked.of_pm is not None and kind != "_pm":
        raise click.UsageError(f"{asked.of_pm} is for a _pm, and {path} is none")
    if kind is not None:
        return inspect_questdb.look(canonical, kind, asked)
    if option is None and inspect_paimon.is_file_index(storage, canonical):
        return inspect_paimon.look(canonical, asked)
    if asked.of_index is not None:
        raise click.UsageError(f"{asked.of_index} is for file indexes, and {path} is none")
    if option is None:
        for name in LOOKERS:
            found = import_module(name).look(storage, canonical, asked.rows, asked.index_keys)
            if found:
                return Inspection(path=canonical, found=tuple(found))
    if inspect_parquet.is_parquet(storage, canonical):
        return inspect_parquet.look(canonical, asked)
    if option is not None:
        raise click.UsageError(f"{option} is for Parquet files, and {path} is none")
    kind = inspect_questdb.by_content(storage, canonical)
    if kind is not None:
        return inspect_questdb.look(canonical, kind, asked)
    raise _nothing_known(storage, canonical)


def _nothing_known(storage: Storage, path: str) -> Exception:
    from .inspect_target import is_file

    if not is_file(storage, path):
        return UnsupportedError(
            f"{path} is no index store",
            hint="if it is a table, `skipstone describe` shows its index",
        )
    return FormatError(
        "no format that is known here",
        file=path,
        hint="inspect shows fact parts, sealed packs, Xskipper stores, file indexes, _pm, _txn and"
        " Parquet files",
    )
