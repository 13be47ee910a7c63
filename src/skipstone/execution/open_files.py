"""Opens files concurrently and keeps them by identity.

An opened file holds its parsed footer and the indexes that were read. This makes the second query
fast. It is kept as long as the listing shows the same version; every read checks the version again.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from skipstone._cache import LruCache
from skipstone.parquet.reading.file import ParquetFile
from skipstone.storage.base import carried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from skipstone.identity import ObjectId
    from skipstone.storage import Storage

    from .summary_footers import SummaryFooters


T = TypeVar("T")
R = TypeVar("R")

# Files whose footers are held. A footer takes a few kilobytes, of a wide table a few megabytes.
_KEPT = 4096
# Concurrent requests to an object store.
_REMOTE = 32
# Fewer calls run on the calling thread: a local open is faster than a hand-over.
_FEW = 4


def side_by_side(storage: Storage) -> int:
    """The number of concurrent calls."""
    return _REMOTE if storage.remote else min(os.cpu_count() or 1, 16)


class OpenFiles:
    """The opened files of a table, by path; see the module."""

    def __init__(self, storage: Storage, storage_options: Mapping[str, str] | None = None) -> None:
        self.storage = storage
        self._options = dict(storage_options or {}) or None
        #: further arguments of ``ParquetFile`` for a file of this version, such as ``size``
        self.opening: Callable[[ObjectId], Mapping[str, Any]] = lambda id: {}
        #: footers from the table's ``_metadata``
        self.summary: SummaryFooters | None = None
        self._kept: LruCache[str, ParquetFile] = LruCache(_KEPT)
        self.workers = side_by_side(storage)

    @property
    def options(self) -> Mapping[str, str]:
        """The options of the object store."""
        return self._options or {}

    def open(self, ids: Sequence[ObjectId]) -> list[ParquetFile | Exception]:
        """The files of these versions; an exception for one that cannot be opened.

        A file that has changed since ``ids`` were taken is opened in its new version. The caller
        compares ``ParquetFile.id``.
        """
        found: dict[int, ParquetFile | Exception] = {}
        missing: list[int] = []
        for at, id in enumerate(ids):
            known = self._known(id)
            if known is None:
                missing.append(at)
            else:
                found[at] = known
        if self.summary is not None and missing:
            told = self.summary.files([ids[at] for at in missing])
            known_ = {at: file for at, file in zip(missing, told, strict=True) if file is not None}
            found.update({at: self._kept.put(file.path, file) for at, file in known_.items()})
            missing = [at for at in missing if at not in known_]
        opened = self.map(lambda at: self._open(ids[at]), missing)
        found.update(zip(missing, opened, strict=True))
        return [found[at] for at in range(len(ids))]

    def map(self, call: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
        """The results of ``call`` in order; several calls run at a time."""
        few = 1 if self.storage.remote else _FEW
        if len(items) <= few or self.workers == 1:
            return [call(item) for item in items]
        with ThreadPoolExecutor(min(self.workers, len(items))) as pool:
            return list(pool.map(carried(call), items))

    def ahead(
        self, call: Callable[[T], R], items: Iterable[T], small: Callable[[T], bool]
    ) -> Iterator[R]:
        """The results of ``call`` in order; a few calls run ahead of the caller.

        A ``small`` item runs on the calling thread where storage is local: that is faster than a
        hand-over. When the caller stops, running calls finish and no more start.
        """
        queue: deque[R | Future[R]] = deque()
        pool: ThreadPoolExecutor | None = None
        try:
            for item in items:
                if self.workers == 1 or (not self.storage.remote and small(item)):
                    if not queue:
                        yield call(item)
                        continue
                    queue.append(call(item))
                else:
                    pool = pool or ThreadPoolExecutor(self.workers)
                    queue.append(pool.submit(carried(call), item))
                if len(queue) > self.workers:
                    yield _result(queue.popleft())
            while queue:
                yield _result(queue.popleft())
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    def forget(self, path: str) -> None:
        """Drops a file that has changed."""
        self._kept.pop(path)

    def _known(self, id: ObjectId) -> ParquetFile | None:
        found = self._kept.get(id.path)
        if found is None or found.id.same_version(id):
            return found
        self._kept.pop(id.path)
        return None

    def _open(self, id: ObjectId) -> ParquetFile | Exception:
        try:
            how = self.opening(id)
            file = ParquetFile(id.path, storage_options=self._options, **how)
        except (OSError, ValueError, LookupError) as error:
            return error
        if "size" in how and _same_file(file.id, id):
            # A file that only grew still begins with the listed bytes.
            file.id = id
        return self._kept.put(file.path, file)


def _same_file(one: ObjectId, other: ObjectId) -> bool:
    """Whether two identities of local files have the same inode and size."""
    inodes = {(each.etag or "").partition("-")[0] for each in (one, other)}
    return one.size == other.size and len(inodes) == 1 and "" not in inodes


def _result(found: R | Future[R]) -> R:
    return found.result() if isinstance(found, Future) else found
