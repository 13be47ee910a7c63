"""The directory of a store: which files are its parts, how it is found, and how it is changed.

A directory that the user names is a store of Xskipper when it is

- a base path that holds ``<sha256 of the table's identifier>/``, under any of the rules for
  identifiers (``format/naming.py``);
- a directory with parts of such a store.

**Replacing parts while others read them.** A reader takes one part's schema for all parts, and a
null in ``minmax`` or ``valuelist`` for "no value in this file". So parts with different index
columns must never lie in one directory: a column that one part lacks would read as null, and files
would be skipped.

- Same index columns before and after: the new parts are written first, then the old ones deleted.
  In between a file has two rows that say the same.
- Otherwise the old parts go first. In between there are no rows, and every file is read.

Each part appears whole or not at all (``Storage.put``), under a name of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.identity import UNITS_PER_SECOND
from skipstone.storage import hidden_by_spark

from .format.naming import directory_name, table_identifier
from .format.part import part_name, read_footer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skipstone.storage import Storage

    from .format.naming import IdentifierStyle
    from .format.part import Footer
    from .format.schema import StoreSchema


_STYLES: tuple[IdentifierStyle, ...] = ("bucket", "cos", "path")
# Parts to look at before a directory is taken for something else.
_LOOKS = 4


def open_file(storage: Storage, path: str) -> pa.NativeFile:
    """The file at ``path`` as Arrow reads it."""
    return pa.PythonFile(storage.open(path), mode="r")


def footer_at(storage: Storage, path: str, decryption: object | None = None) -> Footer:
    """The footer of the part at ``path``; errors as ``read_footer`` has them."""
    with open_file(storage, path) as file:
        return read_footer(file, file=path, decryption=decryption)


def part_files(storage: Storage, directory: str) -> dict[str, tuple[int, int]]:
    """Size and mtime (ns) of every part of the store at ``directory``, by its path."""
    listing = storage.list_all(directory)
    start = len(directory) + 1
    scale = 10**9 // UNITS_PER_SECOND[listing.unit]
    found = {}
    for path, size, mtime in zip(
        listing.paths, listing.sizes.tolist(), listing.mtimes.tolist(), strict=True
    ):
        name = path[start:]
        if "/" not in name and name.endswith(".parquet") and not hidden_by_spark(name):
            found[path] = (size, mtime * scale)
    return found


def find_directory(storage: Storage, base: str, table: str) -> str | None:
    """The directory of the Xskipper store of ``table`` at or below ``base``, if there is one."""
    for identifier in dict.fromkeys(table_identifier(table, style) for style in _STYLES):
        directory = f"{base}/{directory_name(identifier)}"
        if storage.has_children(directory):
            return directory
    if not storage.has_children(base) or storage.has_children(f"{base}/facts"):
        return None
    for path in list(part_files(storage, base))[:_LOOKS]:
        try:
            footer_at(storage, path)
        except (KeyUnavailableError, UnsupportedError):
            return base
        except (SkipstoneError, OSError):
            continue
        return base
    return None


def replace_parts(
    storage: Storage,
    directory: str,
    parts: Sequence[pa.Buffer],
    schema: StoreSchema,
    decryption: object | None = None,
) -> int:
    """Make ``parts``, all of ``schema``, the parts of the store at ``directory``; their bytes.

    ``decryption`` as for ``read_footer``, for the parts of an encrypted store.
    """
    before = list(part_files(storage, directory))
    alike = all(_columns_at(storage, path, decryption) == _columns(schema) for path in before)
    if not alike:
        _delete(storage, before)
    for number, data in enumerate(parts):
        storage.put(f"{directory}/{part_name(number)}", memoryview(data))
    if alike:
        _delete(storage, before)
    return sum(part.size for part in parts)


def _columns(schema: StoreSchema) -> frozenset[tuple[str, str, str | None]]:
    return frozenset((index.name, index.type, index.key_metadata) for index in schema.indexes)


def _columns_at(
    storage: Storage, path: str, decryption: object | None
) -> frozenset[tuple[str, str, str | None]] | None:
    try:
        return _columns(footer_at(storage, path, decryption).schema)
    except (SkipstoneError, OSError):
        return None


def _delete(storage: Storage, paths: Sequence[str]) -> None:
    for path in paths:
        storage.delete(path)


def remove_plaintext(
    storage: Storage, base: str, is_secret: Callable[[str], bool]
) -> tuple[str, ...]:
    """Remove the parts below ``base`` that hold an index over a column that ``is_secret`` in the
    clear; their paths. An unreadable part counts as such a part."""

    def reveals(path: str) -> bool:
        try:
            schema = footer_at(storage, path).schema
        except KeyUnavailableError:
            return False
        except SkipstoneError:
            return True
        if schema.encryption is not None:
            return False
        return any(is_secret(name) for index in schema.indexes for name in index.columns)

    listed = storage.list_all(base).paths
    gone = tuple(path for path in listed if path.endswith(".parquet") and reveals(path))
    _delete(storage, gone)
    return gone
