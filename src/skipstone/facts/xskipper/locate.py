"""Which store serves a table: our own facts, or a store of Xskipper where the user names one.

A place that the user names is taken for a store of Xskipper when it is

- a base path that holds ``<sha256 of the table's identifier>/``, under any of the rules for
  identifiers (``formats/xskipper/naming.py``);
- a directory with parts of such a store.

Nothing is looked for where nobody named it: beside a table lie our own facts only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.facts.location import KeyedLocation, Location
from skipstone.facts.store import Store
from skipstone.identity import canonical_path
from skipstone.storage import open_storage
from skipstone.xskipper.format.naming import directory_name, table_identifier
from skipstone.xskipper.format.part import read_footer

from .snapshot import source
from .store import XskipperStore, part_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage
    from skipstone.xskipper.format.naming import IdentifierStyle

__all__ = ["XskipperLocation", "find_store", "store_directory"]

_STYLES: tuple[IdentifierStyle, ...] = ("bucket", "cos", "path")
# Parts to look at before a directory is taken for something else.
_LOOKS = 4


@dataclass(frozen=True, slots=True)
class XskipperLocation:
    """Where a store of Xskipper lies, and what it takes to read it.

    - ``path``: the directory of the store, or the base path that it lies below;
    - ``decryption``: pyarrow's ``FileDecryptionProperties``, for an encrypted store; a column whose
      key is missing says nothing;
    - ``same_reader``: the table is read with the options, the schema and the session time zone that
      it had when the store was built. Nobody can check it, so it must be said for CSV, JSON and
      ORC: without it such a store is silent.
    """

    path: str
    decryption: object | None = None
    same_reader: bool = False


def store_directory(storage: Storage, base: str, table: str) -> str | None:
    """The directory of the Xskipper store of ``table`` at or below ``base``, if there is one."""
    for identifier in dict.fromkeys(table_identifier(table, style) for style in _STYLES):
        directory = f"{base}/{directory_name(identifier)}"
        if storage.has_children(directory):
            return directory
    if not storage.has_children(base) or storage.has_children(f"{base}/facts"):
        return None
    for path in list(part_files(storage, base))[:_LOOKS]:
        try:
            with source(storage, path) as file:
                read_footer(file, file=path)
        except (KeyUnavailableError, UnsupportedError):
            return base
        except (SkipstoneError, OSError):
            continue
        return base
    return None


def find_store(
    table: str,
    index_location: str | XskipperLocation | KeyedLocation | None = None,
    options: Mapping[str, str] | None = None,
    keys: LabelledKeys | None = None,
) -> Store:
    """The store of ``table``: beside it, or what lies at ``index_location``.

    ``keys`` open an encrypted one, whoever made it. ``UnsupportedError`` as ``Location.of_table``
    has it. A place where nothing is yet is one for our own facts.
    """
    if isinstance(index_location, KeyedLocation):
        keys, index_location = index_location.keys, index_location.path
    if index_location is None:
        return Store.of_table(table, None, options, keys)
    named = index_location
    if isinstance(named, str):
        named = XskipperLocation(named)
    base = canonical_path(named.path)
    storage = open_storage(base, options)
    try:
        directory = store_directory(storage, base, canonical_path(table))
    except SkipstoneError:  # cannot be listed: whoever reads it next says so
        directory = None
    if directory is None and isinstance(index_location, str):
        return Store.of_table(table, index_location, options, keys)
    decryption = named.decryption
    if decryption is None and keys is not None:
        from skipstone.parquet.encryption.master_keys import arrow_decryption

        decryption = arrow_decryption(keys)
    return XskipperStore(
        Location(directory or base),
        storage,
        decryption=decryption,
        same_reader=named.same_reader,
    )
