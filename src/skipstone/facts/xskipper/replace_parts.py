"""How the parts of a store are replaced while others may be reading it.

A reader takes one part's schema for all, and a null in ``minmax`` or ``valuelist`` for "no value in
this file". So parts with different index columns must never lie side by side: the columns that the
one has and the other lacks would read as null, and files would be skipped.

- Same index columns before and after: the new parts are written first, then the old ones deleted.
  In between a file has two rows that say the same.
- Otherwise the old parts go first. In between there are no rows, which reads every file.

Each part appears whole or not at all (``Storage.put``), under a name of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import SkipstoneError
from skipstone.xskipper.format.part import part_name, read_footer

from .snapshot import source
from .store import part_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from skipstone.storage import Storage
    from skipstone.xskipper.format.schema import StoreSchema

__all__ = ["replace_parts"]


def replace_parts(
    storage: Storage,
    directory: str,
    parts: Sequence[pa.Buffer],
    schema: StoreSchema,
    decryption: object | None = None,
) -> int:
    """Make ``parts``, all of ``schema``, the parts of the store at ``directory``; their bytes.

    ``decryption`` as for ``read_footer``, to tell what an encrypted store there has.
    """
    before = list(part_files(storage, directory))
    alike = all(_columns_of(storage, path, decryption) == _columns(schema) for path in before)
    if not alike:
        _delete(storage, before)
    written = [f"{directory}/{part_name(number)}" for number in range(len(parts))]
    for path, data in zip(written, parts, strict=True):
        storage.put(path, memoryview(data))
    if alike:
        _delete(storage, before)
    return sum(part.size for part in parts)


def _columns(schema: StoreSchema) -> frozenset[tuple[str, str, str | None]]:
    return frozenset((index.name, index.type, index.key_metadata) for index in schema.indexes)


def _columns_of(
    storage: Storage, path: str, decryption: object | None
) -> frozenset[tuple[str, str, str | None]] | None:
    try:
        with source(storage, path) as file:
            return _columns(read_footer(file, file=path, decryption=decryption).schema)
    except (SkipstoneError, OSError):
        return None


def _delete(storage: Storage, paths: Sequence[str]) -> None:
    for path in paths:
        storage.delete(path)
