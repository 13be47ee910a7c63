"""`inspect`: what lies at a path decides who looks at it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click

from skipstone.errors import FormatError, UnsupportedError

from .options import reporting, storage_option

if TYPE_CHECKING:
    from skipstone.storage import Storage

    from .inspection import Inspection
    from .output import Output

__all__ = ["inspect"]

#: modules that look, in this order: a fact part is also a Parquet file with an Xskipper schema
LOOKERS = ("skipstone.cli.inspect_facts", "skipstone.cli.inspect_xskipper")


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
@reporting
def inspect(path: str, storage_options: dict[str, str], rows: int, out: Output) -> None:
    """Show what is inside STORE or FILE.

    A directory: the index of a table (data/_events.skipstone), a metadata directory of Xskipper of
    any version from 0 to 4, or a directory above such. A file: a fact part, or a part of an
    Xskipper store. Encryption is shown by its key labels.
    """
    out.result(_inspect(path, storage_options, rows))


def _inspect(path: str, storage_options: dict[str, str], rows: int) -> Inspection:
    from skipstone.identity import canonical_path
    from skipstone.storage import open_storage

    from .inspection import Inspection

    canonical = canonical_path(path)
    storage = open_storage(canonical, storage_options or None)
    if not storage.has_children(canonical):
        try:
            storage.open(canonical).close()
        except (FileNotFoundError, IsADirectoryError) as error:
            text = "no such file or directory, or an empty one"
            raise FileNotFoundError(error.errno, text, path) from error
    for name in LOOKERS:
        found = import_module(name).look(storage, canonical, rows)
        if found:
            return Inspection(path=canonical, found=tuple(found))
    raise _nothing_known(storage, canonical)


def _nothing_known(storage: Storage, path: str) -> Exception:
    from .inspection import is_file

    if not is_file(storage, path):
        return UnsupportedError(
            f"{path} is no index store",
            hint="if it is a table, `skipstone describe` shows its index",
        )
    with storage.open(path) as file:
        head = file.read(4)
    if head == b"PAR1":
        return UnsupportedError(
            f"{path} is a Parquet file, and of no index store",
            hint="inspect shows index stores and their parts; footers of data files come later",
        )
    return FormatError(
        "no format that is known here",
        file=path,
        hint="inspect shows fact parts and Xskipper stores",
    )
