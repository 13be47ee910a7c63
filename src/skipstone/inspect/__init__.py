"""Shows the content of a store or a file of any of the formats, as text and as JSON.

``inspect_path`` recognises the format; each module inspects one format, or the stores.
"""

from __future__ import annotations

from skipstone.errors import FormatError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.storage import Storage, open_storage

from .inspection import Inspection, InspectionReport, InspectOptions, is_file
from .paimon_index import inspect_file_index, is_file_index
from .parquet_file import inspect_parquet, is_parquet
from .questdb_files import inspect_questdb, kind_by_content, kind_by_name
from .stores import inspect_encrypted_pack, inspect_fact_store, inspect_xskipper_store

# In this order: a fact part is also a Parquet file with an Xskipper schema.
_STORES = (inspect_fact_store, inspect_encrypted_pack, inspect_xskipper_store)


class WrongOptionError(UnsupportedError):
    """The option does not apply to the format at the path."""


def inspect_path(path: str, options: InspectOptions | None = None) -> InspectionReport:
    """Inspect the store or file at ``path``.

    Raises ``FileNotFoundError``, ``FormatError`` for a damaged file or an unknown format,
    ``UnsupportedError`` for a directory without a store, ``WrongOptionError`` for an option of
    another format, and ``KeyUnavailableError`` if a key is missing.
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
    of_parquet, of_index = options.parquet_option, options.file_index_option
    of_pm = options.pm_option
    kind = kind_by_name(storage, canonical)
    if kind is None and of_pm is not None and of_parquet is None and of_index is None:
        kind = kind_by_content(storage, canonical)
    if kind is not None:
        _refuse(of_parquet, "Parquet files", path)
        _refuse(of_index, "file indexes", path)
    if kind != "_pm":
        _refuse(of_pm, "a _pm", path)
    if kind is not None:
        return inspect_questdb(canonical, kind, options)
    if of_parquet is None and is_file_index(storage, canonical):
        return inspect_file_index(canonical, options)
    _refuse(of_index, "file indexes", path)
    if of_parquet is None:
        for inspect_store in _STORES:
            found = inspect_store(storage, canonical, options.rows, options.index_keys)
            if found:
                return Inspection(path=canonical, found=tuple(found))
    if is_parquet(storage, canonical):
        return inspect_parquet(canonical, options)
    _refuse(of_parquet, "Parquet files", path)
    kind = kind_by_content(storage, canonical)
    if kind is not None:
        return inspect_questdb(canonical, kind, options)
    raise _unknown_format(storage, canonical)


def _refuse(option: str | None, what: str, path: str) -> None:
    if option is not None:
        raise WrongOptionError(f"{option} is for {what}; {path} is not one")


def _unknown_format(storage: Storage, path: str) -> Exception:
    if not is_file(storage, path):
        return UnsupportedError(
            f"{path} is not an index store",
            hint="if it is a table, `skipstone describe` shows its index",
        )
    if not storage.stat(path).size:
        return FormatError("the file is empty: 0 bytes", file=path, hint="write it again")
    return FormatError(
        "unknown format",
        file=path,
        hint="inspect shows fact parts, encrypted packs, Xskipper stores, file indexes, _pm, _txn"
        " and Parquet files",
    )
