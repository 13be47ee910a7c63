"""Finds the store of a table: our own, or one of Xskipper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import SkipstoneError
from skipstone.identity import canonical_path
from skipstone.storage import open_storage
from skipstone.xskipper.format.naming import directory_names

from .location import KeyedLocation, XskipperLocation
from .store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage


def find_store(
    table: str,
    index_location: str | XskipperLocation | KeyedLocation | None = None,
    options: Mapping[str, str] | None = None,
    keys: LabelledKeys | None = None,
    storage: Storage | None = None,
) -> Store:
    """The store of ``table``: in its default place, or at ``index_location``.

    ``keys`` open an encrypted one, ours or foreign. ``UnsupportedError`` as for
    ``Location.of_table``. An empty place is for our own facts. ``storage`` as for
    ``Store.of_table``.
    """
    if isinstance(index_location, KeyedLocation):
        keys, index_location = index_location.keys, index_location.path
    if index_location is None:
        return Store.of_table(table, None, options, keys, storage)
    is_text = isinstance(index_location, str)
    named = XskipperLocation(index_location) if isinstance(index_location, str) else index_location
    base = canonical_path(named.path)
    storage = open_storage(base, options)
    if not is_text or not _is_own(storage, base, table):
        from .xskipper_store import foreign_store, store_in

        found = foreign_store(table, named, storage, keys)
        if found is not None or not is_text:
            return found or store_in(base, named, storage, keys)
    return Store.of_table(table, named.path, options, keys)


def _is_own(storage: Storage, base: str, table: str) -> bool:
    """Whether ``base`` surely has no store of Xskipper: it has our facts, or nothing."""
    try:
        names = directory_names(canonical_path(table))
        if any(storage.has_children(f"{base}/{name}") for name in names):
            return False
        return storage.has_children(f"{base}/facts") or not storage.has_children(base)
    except SkipstoneError:
        return False
