"""Lists the objects below a prefix; of many objects, several pages at once.

An answer of S3 has 1,000 keys and names the next one, so pages come one after another. But a
request may begin anywhere (``start-after``). If some keys are known, from the last listing or from
facts, each request asks for the keys between two of them. Otherwise the folders below the prefix
are listed side by side.

Known keys only say where to begin: every key is between two of them, so none is missed and none
found twice, even if keys were added or removed since. A store that does not begin there, or returns
keys in another order, is listed page by page.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import obstore

from skipstone._cache import LruCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from obstore.store import ObjectStore

    Meta: TypeAlias = Mapping[str, Any]


#: keys in an answer of S3
_PAGE: Final = 1000
# How many known keys lie between two requests: fewer than a page, so that some new ones fit.
_APART: Final = 900
# How many prefixes' keys are remembered.
_REMEMBERED: Final = 64
#: requests at a time
AT_ONCE: Final = 32
# How many pages are listed one after another before the rest is listed in parallel.
_FIRST: Final = 2


class _OutOfOrderError(Exception):
    """The store does not list keys in their order, or from a key on."""


class ObjectLister:
    """Lists the objects of ``store``; ``count`` is called for each request.

    ``ordered``: the store lists keys in ascending order, and from any key on.
    """

    def __init__(self, store: ObjectStore, count: Callable[[], None]) -> None:
        self._store, self._count = store, count
        self.ordered = _is_ordered(store)
        self._known: LruCache[str, Sequence[str]] = LruCache(_REMEMBERED)

    def below(self, prefix: str, known: Callable[[], Sequence[str]] | None = None) -> list[Meta]:
        """The objects below ``prefix``, in no order. ``known`` gives keys that should be there,
        sorted; it is called where there are many objects and their names are not remembered."""
        found: list[Meta] | None = None
        if self.ordered and (keys := self._known.get(prefix)) is not None:
            found = self._between(prefix, None, keys)
        if found is None:
            found = self._from_start(prefix, known)
        if self.ordered and len(found) > _PAGE:
            self._known.put(prefix, sorted(meta["path"] for meta in found)[_APART::_APART])
        else:
            self._known.pop(prefix)
        return found

    def _pages(self, prefix: str, after: str | None = None) -> Iterator[Sequence[Meta]]:
        for page in obstore.list(self._store, prefix or None, offset=after, chunk_size=_PAGE):
            self._count()
            yield page

    def _from_start(
        self, prefix: str, known: Callable[[], Sequence[str]] | None = None
    ) -> list[Meta]:
        pages = self._pages(prefix)
        found = [meta for page in islice(pages, _FIRST) for meta in page]
        if len(found) < _FIRST * _PAGE:
            return found
        last = found[-1]["path"]
        if self.ordered and known is not None:
            later = [key for key in known() if key > last][_APART::_APART]
            rest = self._between(prefix, last, later) if later else None
            if rest is not None:
                return found + rest
        start = len(prefix) + 1 if prefix else 0
        has_folders = any("/" in meta["path"][start:] for meta in found)
        unordered = any(first["path"] >= second["path"] for first, second in pairwise(found))
        if unordered or not has_folders:
            return found + [meta for page in pages for meta in page]
        return found + self._folders(prefix, last)

    def _folders(self, prefix: str, last: str) -> list[Meta]:
        """The objects after the key ``last``, folders in parallel."""
        self._count()
        listed = obstore.list_with_delimiter(self._store, prefix or None)
        rest: list[Meta] = [meta for meta in listed["objects"] if meta["path"] > last]
        folders = [f"{each}/" for each in listed["common_prefixes"]]
        folders = [each for each in folders if each > last or last.startswith(each)]
        if folders:
            with ThreadPoolExecutor(min(AT_ONCE, len(folders))) as pool:
                for found in pool.map(self._from_start, [each[:-1] for each in folders]):
                    rest += [meta for meta in found if meta["path"] > last]
        return rest

    def _between(self, prefix: str, after: str | None, keys: Sequence[str]) -> list[Meta] | None:
        """The objects after the key ``after``, the gaps between ``keys`` in parallel; ``None`` if
        the store cannot do that."""
        ends = [after, *keys, None]
        with ThreadPoolExecutor(min(AT_ONCE, len(ends) - 1)) as pool:
            try:
                parts = list(pool.map(lambda each: self._gap(prefix, *each), pairwise(ends)))
            except _OutOfOrderError:
                self.ordered = False
                return None
        return [meta for part in parts for meta in part]

    def _gap(self, prefix: str, after: str | None, last: str | None) -> list[Meta]:
        """The objects with a key after ``after``, up to ``last`` included."""
        found: list[Meta] = []
        before = after or ""
        for page in self._pages(prefix, after):
            for meta in page:
                key = meta["path"]
                if key <= before:
                    raise _OutOfOrderError
                if last is not None and key > last:
                    return found
                before = key
                found.append(meta)
            if before == last:
                return found
        return found


def _is_ordered(store: ObjectStore) -> bool:
    """Whether listing from a key on saves requests. Directory buckets of S3 have no order, and the
    clients of other stores receive all keys and drop those before it."""
    if type(store).__name__ != "S3Store":
        return False
    return not str(getattr(store, "config", {}).get("bucket", "")).endswith("--x-s3")
