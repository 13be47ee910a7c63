"""From a path or URI to its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.identity import canonical_path

from .local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .base import Storage
    from .listing import Listing

__all__ = ["list_files", "open_storage"]


def open_storage(path: str, options: Mapping[str, str] | None = None) -> Storage:
    """The storage that ``path`` lies in; ``options`` are an object store's (``ObjectStorage``)."""
    if "://" not in (canonical := canonical_path(path)):
        return LocalStorage()
    from .objects import ObjectStorage

    return ObjectStorage.at(canonical, options or {})


def list_files(root: str, options: Mapping[str, str] | None = None) -> Listing:
    """The data files below ``root`` by Spark's rules (``listing.py``), sorted by path.

    Raises ``SkipstoneError`` when there is no such directory, or a part of it cannot be listed.
    """
    return open_storage(root, options).list_files(canonical_path(root))
