"""What was published in the clear, and must not stay when its columns become secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import KeyUnavailableError, SkipstoneError
from skipstone.xskipper.format.part import read_footer

from .snapshot import source

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.storage import Storage

__all__ = ["remove_clear"]


def remove_clear(storage: Storage, base: str, is_secret: Callable[[str], bool]) -> tuple[str, ...]:
    """Remove the parts below ``base`` that hold an index over a column that ``is_secret``, and are
    not encrypted; their paths. A part that nobody can read is taken for such a one."""
    gone = tuple(
        path
        for path in storage.list_all(base).paths
        if path.endswith(".parquet") and _tells(storage, path, is_secret)
    )
    for path in gone:
        storage.delete(path)
    return gone


def _tells(storage: Storage, path: str, is_secret: Callable[[str], bool]) -> bool:
    try:
        with source(storage, path) as file:
            schema = read_footer(file, file=path).schema
    except KeyUnavailableError:
        return False
    except SkipstoneError:
        return True
    if schema.encryption is not None:
        return False
    return any(is_secret(name) for index in schema.indexes for name in index.columns)
