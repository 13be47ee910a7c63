"""Opens files concurrently and keeps them by identity; takes footers from a table's ``_metadata``.

An opened file holds its parsed footer and the indexes that were read. This makes the second query
fast. It is kept as long as the listing shows the same version; every read checks the version again.

``SummaryFooters`` reads the footers of many files from ``_metadata`` with one request, when several
files must be opened and their footers would take longer. A file's footer comes from there only if
its size, mtime and etag in the listing are those that the summary recorded
(``parquet/format/summary_file.py``). Any other file (added, replaced or appended to since) is
opened itself. A summary by another writer is not used: it does not record file versions, and
nothing else can prove them. Pages are read only from the listed version.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import islice
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from skipstone._cache import LruCache
from skipstone.errors import SkipstoneError, StaleError, UnsupportedError
from skipstone.human import of_total, size
from skipstone.identity import ObjectId
from skipstone.parquet.format.footer import TAIL_GUESS, TAIL_LENGTH, Tail
from skipstone.pruning import Cause, Reason
from skipstone.storage.base import carried
from skipstone.storage.listing import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from skipstone.parquet.format.summary_file import Summary
    from skipstone.parquet.reading.bulk_columns import Scratch
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.parquet.reading.pinned_file import OpenedFooter, PinnedReader
    from skipstone.storage import Listing, Storage


T = TypeVar("T")
R = TypeVar("R")

#: Files whose footers are held. A footer takes a few kilobytes, of a wide table a few megabytes.
KEPT = 4096
# Concurrent requests to an object store.
_REMOTE = 32
#: a page index up to this size is read whole, a longer one only for the columns of a query
WITH_INDEX = 512 << 10
# Up to so many calls run on the calling thread: a local open is faster than another thread.
_FEW = 4
# From this many local files on, footers are scanned together, not one by one.
_MANY = 24
# Of many files, the first so many show how long footers are, and whether reads wait for the disk:
# each takes more than ``_WAITS`` seconds.
_FIRST = 8
_WAITS = 2e-4
_LEAST_TAIL = 4096


class OpenFiles:
    """The opened files of a table, by path; see the module."""

    def __init__(self, storage: Storage, storage_options: Mapping[str, str] | None = None) -> None:
        self.storage = storage
        self.options = dict(storage_options or {})
        #: further arguments of ``ParquetFile`` for a file of this version, such as ``size``
        self.opening: Callable[[ObjectId], Mapping[str, Any]] = lambda id: {}
        #: whether pages are checked against the checksums that their headers state
        self.verify_checksums = True
        #: the most bytes that are decoded together, ``None`` for the default
        self.memory: int | None = None
        #: footers from the table's ``_metadata``
        self.summary: SummaryFooters | None = None
        self._kept: LruCache[str, ParquetFile] = LruCache(KEPT)
        #: the number of concurrent calls
        self.workers = _REMOTE if storage.remote else min(os.cpu_count() or 1, 16)

    @cached_property
    def scratch(self) -> Scratch:
        """Memory for batches of chunks."""
        from skipstone.parquet.reading.bulk_columns import Scratch

        return Scratch(1 if self.storage.remote else self.workers)

    def open(
        self, ids: Sequence[ObjectId], ends: Sequence[int] | None = None
    ) -> list[ParquetFile | Exception]:
        """The files of these versions; an exception for one that cannot be opened. ``ends`` are the
        bytes from the page index, or else the footer, to the end of each, -1 where unknown.

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
            held = self.summary.files([ids[at] for at in missing])
            have = {at: file for at, file in zip(missing, held, strict=True) if file is not None}
            for file in have.values():
                file.verify_checksums, file.memory = self.verify_checksums, self.memory
            found.update({at: self._kept.put(file.path, file) for at, file in have.items()})
            missing = [at for at in missing if at not in have]
        ends_of = [-1 if ends is None else ends[at] for at in missing]
        opened = self._opened([ids[at] for at in missing], ends_of)
        found.update(zip(missing, opened, strict=True))
        return [found[at] for at in range(len(ids))]

    def holds(self, id: ObjectId) -> bool:
        """Whether this version of a file is open."""
        return self._known(id) is not None

    def _opened(
        self, ids: Sequence[ObjectId], ends: Sequence[int]
    ) -> Iterable[ParquetFile | Exception]:
        if self.storage.remote or len(ids) < _MANY or any(map(self.opening, ids)):
            return self.map(lambda one: self._open(*one), list(zip(ids, ends, strict=True)))
        from skipstone.parquet.reading.pinned_file import load_footers

        tails = self._tails([id.path for id in ids])
        read = [each for each in tails if not isinstance(each, Exception)]
        loaded = iter(zip(read, load_footers(self.storage, read), strict=True))
        return [
            each if isinstance(each, Exception) else self._made(*next(loaded)) for each in tails
        ]

    def _made(
        self,
        read: tuple[ObjectId, memoryview],
        loaded: tuple[PinnedReader, OpenedFooter] | Exception,
    ) -> ParquetFile | Exception:
        if isinstance(loaded, Exception):
            return loaded
        from skipstone.parquet.reading.file import ParquetFile

        file = ParquetFile.of_footer(
            read[0], *loaded, verify_checksums=self.verify_checksums, memory=self.memory
        )
        return self._kept.put(file.path, file)

    def _tails(self, paths: Sequence[str]) -> list[tuple[ObjectId, memoryview] | Exception]:
        """The last bytes of each file: about as many as the footers of the first ones take."""

        def tail(path: str) -> tuple[ObjectId, memoryview] | Exception:
            try:
                return self.storage.read_tail(path, guess)
            except (OSError, ValueError, LookupError) as error:
                return error

        guess, started = TAIL_GUESS, perf_counter()
        found = [tail(path) for path in paths[:_FIRST]]
        waits = perf_counter() - started > _WAITS * len(found)
        guess = _guess(found)
        # Where no read waits for the disk, starting another thread takes longer than reading.
        rest = self.map(tail, paths[_FIRST:]) if waits else map(tail, paths[_FIRST:])
        return [*found, *rest]

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

        Where storage is local, a ``small`` item runs on the calling thread, because that is faster
        than another thread, and so does the last one, for which the caller would wait. When the
        caller stops, running calls finish and no more start.
        """
        queue: deque[R | Future[R]] = deque()
        pool: ThreadPoolExecutor | None = None
        try:
            local = not self.storage.remote
            for item, last in _with_last(items) if local else ((item, False) for item in items):
                if self.workers == 1 or (local and (last or small(item))):
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

    def _open(self, id: ObjectId, end: int) -> ParquetFile | Exception:
        from skipstone.parquet.reading.file import ParquetFile
        from skipstone.parquet.reading.pinned_file import PinnedReader

        try:
            how = self.opening(id)
            if self.storage.remote and "size" not in how:
                # One client for all files, whose connections stay open.
                # A small file is read whole, which takes no longer.
                small = (id.size or 0) <= TAIL_GUESS
                length = end if 0 < end <= WITH_INDEX and not small else TAIL_GUESS
                reader = PinnedReader(self.storage)
                file = ParquetFile.of_tail(reader, id, length, **how)
                file.verify_checksums, file.memory = self.verify_checksums, self.memory
                return self._kept.put(file.path, file)
            file = ParquetFile(
                id.path,
                storage_options=self.options or None,
                verify_checksums=self.verify_checksums,
                memory=self.memory,
                **how,
            )
        except (OSError, ValueError, LookupError) as error:
            return error
        if "size" in how and _same_file(file.id, id):
            # A file that only grew still begins with the listed bytes.
            file.id = id
        return self._kept.put(file.path, file)


def _guess(read: Sequence[tuple[ObjectId, memoryview] | Exception]) -> int:
    """The bytes at the end of other files of the table that probably hold the footer."""
    longest = 0
    for each in read:
        if not isinstance(each, Exception):
            length = int.from_bytes(each[1][-TAIL_LENGTH:-4], "little")
            longest = max(longest, length + TAIL_LENGTH)
    return min(max(2 * longest, _LEAST_TAIL), TAIL_GUESS)


def _same_file(one: ObjectId, other: ObjectId) -> bool:
    """Whether two identities of local files have the same inode and size."""
    inodes = {(each.etag or "").partition("-")[0] for each in (one, other)}
    return one.size == other.size and len(inodes) == 1 and "" not in inodes


def _with_last(items: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """Each item, and whether it is the last. So one item is taken ahead."""
    rest = iter(items)
    held = list(islice(rest, 1))
    for following in rest:
        yield held[0], False
        held = [following]
    for item in held:
        yield item, True


def _result(found: R | Future[R]) -> R:
    return found.result() if isinstance(found, Future) else found


# With fewer files, opening them is faster.
_FEW_FOOTERS = 2
# Reading this many bytes of a summary takes as long as opening one file.
_WORTH, _REMOTE_WORTH = 256 << 10, 1 << 20
# A longer summary is checked at its end first: one by another writer is useless.
_AT_ONCE = 8 << 20
# The largest summary that is held in memory.
_LONGEST = 1 << 30


def load_summary(storage: Storage, id: ObjectId) -> Summary:
    """Reads the summary in this version of ``_metadata``.

    ``UnsupportedError`` for a summary by another writer, ``FormatError`` for a damaged one,
    ``StaleError`` and other ``OSError`` where it cannot be read.
    """
    from skipstone.parquet.format.summary_file import Summary, is_own

    length = id.size or 0
    if length > _LONGEST:
        raise UnsupportedError(f"it is {size(length)} long, and at most 1 GiB is held")
    wanted = length if length <= _AT_ONCE else TAIL_GUESS
    found, data = storage.read_tail(id.path, wanted)
    if found.size is not None and found.size > len(data):
        if is_own(data):
            found, data = storage.read_tail(id.path, found.size)
        else:
            data = data[:0]
    if not found.same_version(id):
        raise StaleError("it is being replaced")
    if not is_own(data):
        raise UnsupportedError("it does not name the versions of its files")
    return Summary.from_bytes(data)


class SummaryFooters:
    """The footers in the ``_metadata`` of the table at ``root``; see the module."""

    def __init__(self, root: str, storage: Storage) -> None:
        self.root, self.storage = root, storage
        self._lock = Lock()
        self._id: ObjectId | None = None
        self._summary: Summary | None = None
        self._at: dict[str, int] = {}
        self._why: Reason | None = None
        self._counted: tuple[Listing, Summary, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles a table for its workers: the lock and the footers are left out.
        return (type(self), (self.root, self.storage))

    def files(self, ids: Sequence[ObjectId]) -> list[ParquetFile | None]:
        """The files of these versions, by their footers in the summary; ``None`` where it has none.

        Reads nothing but the summary.
        """
        summary, found = self._looked_up(ids)
        if summary is None:
            return [None] * len(ids)
        return [
            None if at is None else self._file(summary, id, at)
            for id, at in zip(ids, found, strict=True)
        ]

    def known(self, listing: Listing) -> int:
        """The number of files of ``listing`` whose footers are in memory from the summary."""
        with self._lock:
            if self._summary is None:
                return 0
            held = self._counted
            if held is None or held[1] is not self._summary or not held[0].same_files(listing):
                ids = [listing.object_id(at) for at in range(len(listing))]
                count = len(ids) - self._find(ids).count(None)
                held = self._counted = listing, self._summary, count
            return held[2]

    def reasons(self, listing: Listing) -> tuple[Reason, ...]:
        """Why the summary was not used for all files of ``listing``; empty if it was not read."""
        lacking, why = len(listing) - self.known(listing), self._why
        if why is not None:
            return (why,)
        if not lacking or self._summary is None:
            return ()
        files = of_total(lacking, len(listing), "files")
        text = f"{files} are new, or changed: their own footers are read"
        return (Reason(cause=Cause.STALE, subject=SUMMARY, text=text),)

    def _looked_up(self, ids: Sequence[ObjectId]) -> tuple[Summary | None, list[int | None]]:
        """The summary, read again where that pays, and each file's position in it, or ``None``."""
        with self._lock:
            found = self._find(ids)
            missing = found.count(None)
            if missing >= _FEW_FOOTERS and self._renew(missing):
                found = self._find(ids)
            return self._summary, found

    def _renew(self, missing: int) -> bool:
        """Reads the summary again if it has changed and that pays for the ``missing`` files."""
        current = self.storage.summary(self.root)
        if current is None:
            self._forget(None)
            return False
        if self._id is not None and self._id.same_version(current):
            return False
        worth = _REMOTE_WORTH if self.storage.remote else _WORTH
        if (current.size or 0) > worth * missing:
            return False
        self._forget(current)
        try:
            self._summary = load_summary(self.storage, current)
        except (SkipstoneError, OSError, ValueError) as error:
            self._why = _reason(error)
            return False
        self._at = {
            f"{self.root}/{each.path}": at for at, each in enumerate(self._summary.versions.files)
        }
        return True

    def _forget(self, id: ObjectId | None) -> None:
        self._id, self._summary, self._at, self._why = id, None, {}, None

    def _find(self, ids: Sequence[ObjectId]) -> list[int | None]:
        """The index of each file in the summary, or ``None`` if it does not have that version."""
        summary = self._summary
        if summary is None:
            return [None] * len(ids)
        files, unit = summary.versions.files, summary.versions.unit
        found: list[int | None] = []
        for id in ids:
            at = self._at.get(id.path)
            if at is not None:
                held = files[at]
                version = ObjectId(
                    path=id.path, size=held.size, mtime=held.mtime, unit=unit, etag=held.etag
                )
                if not version.same_version(id) or not summary.is_sound(at):
                    at = None
            found.append(at)
        return found

    def _file(self, summary: Summary, id: ObjectId, at: int) -> ParquetFile:
        from skipstone.parquet.reading.file import ParquetFile
        from skipstone.parquet.reading.pinned_file import OpenedFooter, PinnedReader

        length = summary.versions.files[at].footer_length
        reader = PinnedReader(self.storage)
        reader.pin(id)
        tail = Tail(id.size or 0, length, False)
        return ParquetFile.of_footer(id, reader, OpenedFooter(tail=tail, footer=summary.part(at)))


def _reason(error: Exception) -> Reason:
    found = Reason.of_error(SUMMARY, error)
    cause = Cause.STALE if isinstance(error, StaleError) else found.cause
    return replace(found, cause=cause, text=f"{found.text}: the files' own footers are read")
