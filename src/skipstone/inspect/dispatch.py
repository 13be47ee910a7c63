"""``inspect_path``: finds out what lies at a path, and lets the module of that format show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import FormatError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.storage import open_storage

from . import facts, packs, paimon_index, parquet_file, questdb, xskipper
from .found import Inspection, is_file
from .options import InspectOptions

if TYPE_CHECKING:
    from skipstone.storage import Storage

    from .file_description import FileInspection
    from .paimon_index import FileIndexInspection
    from .pm_description import PmInspection
    from .txn import TxnInspection

__all__ = ["WrongOptionError", "inspect_path"]

# In this order: a fact part is also a Parquet file with an Xskipper schema.
_STORES = (facts, packs, xskipper)


class WrongOptionError(UnsupportedError):
    """An option is for another format than the one at the path."""


def inspect_path(
    path: str, options: InspectOptions | None = None
) -> Inspection | FileInspection | FileIndexInspection | PmInspection | TxnInspection:
    """What is inside the store or file at ``path``, as a value with ``to_dict()`` and ``str()``.

    Raises ``FileNotFoundError``, ``FormatError`` for a damaged file or an unknown format,
    ``UnsupportedError`` for a directory without a store, ``WrongOptionError`` for an option of
    another format, and ``KeyUnavailableError`` where a key is missing.
    """
    options = InspectOptions() if options is None else options
    canonical = canonical_path(path)
    storage = open_storage(canonical, options.storage_options)
    if not storage.has_children(canonical):
        try:
            storage.open(canonical).close()
        except (FileNotFoundError, IsADirectoryError) as error:
            text = "no such file or directory, or an empty one"
            raise FileNotFoundError(error.errno, text, path) from error
    of_parquet, of_index, of_pm = (
        options.parquet_option,
        options.file_index_option,
        options.pm_option,
    )
    kind = questdb.by_name(storage, canonical)
    if kind is None and of_pm is not None and of_parquet is None and of_index is None:
        kind = questdb.by_content(storage, canonical)
    if kind is not None:
        _refuse(of_parquet, "Parquet files", path)
        _refuse(of_index, "file indexes", path)
    if kind != "_pm":
        _refuse(of_pm, "a _pm", path)
    if kind is not None:
        return questdb.look(canonical, kind, options)
    if of_parquet is None and paimon_index.is_file_index(storage, canonical):
        return paimon_index.look(canonical, options)
    _refuse(of_index, "file indexes", path)
    if of_parquet is None:
        for store in _STORES:
            found = store.look(storage, canonical, options.rows, options.index_keys)
            if found:
                return Inspection(path=canonical, found=tuple(found))
    if parquet_file.is_parquet(storage, canonical):
        return parquet_file.look(canonical, options)
    _refuse(of_parquet, "Parquet files", path)
    kind = questdb.by_content(storage, canonical)
    if kind is not None:
        return questdb.look(canonical, kind, options)
    raise _unknown_format(storage, canonical)


def _refuse(option: str | None, what: str, path: str) -> None:
    if option is not None:
        raise WrongOptionError(f"{option} is for {what}, and {path} is none")


def _unknown_format(storage: Storage, path: str) -> Exception:
    if not is_file(storage, path):
        return UnsupportedError(
            f"{path} is no index store",
            hint="if it is a table, `skipstone describe` shows its index",
        )
    return FormatError(
        "unknown format",
        file=path,
        hint="inspect shows fact parts, encrypted packs, Xskipper stores, file indexes, _pm, _txn"
        " and Parquet files",
    )
