"""Code that remote storages share: the choice of data files, and reads of ranges.

A range is read by one request. Requests of one wave run in parallel. The ends of objects, which
hold footers, are kept for some time by the version of the object.
"""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, cast

from skipstone._cache import LruCache

from .base import ByteRange, SeekableBytes, Span, carried, coalesce, fill, stale
from .listing import SUMMARY, Listing, hidden_by_spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from skipstone.identity import ObjectId


# A request takes as long as reading this many bytes, so ranges this near are joined, if there are
# more than are sent at once.
_NEAR: Final = 4 * 1024
_TAIL: Final = 64 * 1024
# The most bytes that are kept: of the ends of objects, and of ranges that ``keep_ahead`` read.
_KEPT_ENDS: Final = 64 << 20
_KEPT_EARLY: Final = 16 << 20
# How many roots' last listings are kept.
_LISTINGS: Final = 4


class DataFiles(NamedTuple):
    """Positions of the data files among entries, the number of empty ones, and ``Listing.top``."""

    positions: list[int]
    empty: int
    top: frozenset[str]


def data_files(entries: Iterable[tuple[str, int]]) -> DataFiles:
    """The data files among the names below a root, each with its size, by Spark's rules. A name
    that ends in a slash is a folder."""
    hidden: dict[str, bool] = {}
    top: set[str] = set()
    positions: list[int] = []
    empty = 0
    for at, (key, size) in enumerate(entries):
        folder, slash, name = key.rpartition("/")
        if folder not in hidden:
            hidden[folder] = any(map(hidden_by_spark, folder.split("/")))
        top.add(f"{folder.partition('/')[0]}/" if slash else name)
        if hidden[folder] or hidden_by_spark(name):
            continue
        if size:
            positions.append(at)
        else:
            empty += not key.endswith("/")
    return DataFiles(positions, empty, frozenset(top))


class RemoteReads:
    """Reads of ranges below ``base`` by ``read_range`` and ``stat``, at most ``at_once`` at a time.

    ``gap``: the most bytes between two ranges that one request joins, where there are more requests
    than run at once; ``limit``: the longest joined request.
    """

    remote = True
    at_once: int

    def __init__(self, base: str, gap: int, limit: int) -> None:
        self.base = base
        self.gap, self.near, self.limit = gap, min(_NEAR, gap), limit
        # By version: ends of objects, and ranges that ``keep_ahead`` read.
        self._ends: LruCache[ObjectId, memoryview] = LruCache(most_bytes=_KEPT_ENDS, size=len)
        self._early: LruCache[ObjectId, list[tuple[int, memoryview]]] = LruCache(
            most_bytes=_KEPT_EARLY, size=lambda held: sum(len(data) for _, data in held)
        )
        # By root: the summary file that its last listing saw, and that listing.
        self._summaries: dict[str, ObjectId | None] = {}
        self._listings: LruCache[str, Listing] = LruCache(_LISTINGS)

    def holds(self, path: str) -> bool:
        """See ``Storage``."""
        return path == self.base or path.startswith(f"{self.base}/")

    def read_tail(self, path: str, length: int) -> tuple[ObjectId, memoryview]:
        """See ``Storage``."""
        version = self.stat(path)
        size = version.size or 0
        start = max(0, size - length)
        return version, self.read_range(path, start, size - start, version)

    def summary(self, root: str) -> ObjectId | None:
        """See ``Storage``."""
        if root in self._summaries:
            return self._summaries[root]
        try:
            return self.stat(f"{root}/{SUMMARY}")
        except OSError:
            return None

    def _latest(self, root: str, listing: Listing) -> Listing:
        """``listing``, or the last equal one of ``root``, to use again what was derived from it."""
        last = self._listings.get(root)
        if (
            last is not None
            and (last.empty, last.top) == (listing.empty, listing.top)
            and last.same_files(listing)
        ):
            return last
        return self._listings.put(root, listing)

    def stat(self, path: str) -> ObjectId:
        """See ``Storage``."""
        raise NotImplementedError

    def read_range(
        self, path: str, offset: int, length: int, version: ObjectId | None = None
    ) -> memoryview:
        """``length`` bytes from ``offset``, fewer at the end; checked against ``version``."""
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        """See ``Storage``."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def keep_end(self, version: ObjectId, data: memoryview) -> None:
        """See ``Storage``."""
        if len(data):
            self._ends.put(version, data)

    def keep_ahead(self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId]) -> None:
        """See ``Storage``."""
        found: dict[ObjectId, list[tuple[int, memoryview]]] = {}
        for each, data in self.read_ranges(ranges, versions).items():
            found.setdefault(versions[each.path], []).append((each.offset, data))
        for version, held in found.items():
            self._early.put(version, held)

    def _kept(self, wanted: ByteRange, version: ObjectId | None) -> memoryview | None:
        """A range from the kept bytes of this version, ``None`` if they do not hold it."""
        if version is None:
            return None
        end, kept = self._ends.get(version), list(self._early.get(version) or ())
        if end is not None and version.size is not None:
            kept.append((version.size - len(end), end))
        for offset, data in kept:
            start = wanted.offset - offset
            if start >= 0 and start + wanted.length <= len(data):
                return data[start : start + wanted.length]
        return None

    def read_ranges(
        self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId] | None = None
    ) -> dict[ByteRange, memoryview]:
        """See ``Storage``."""
        versions = versions or {}
        kept: dict[ByteRange, memoryview] = {}
        if versions and (len(self._ends) or len(self._early)):
            for each in ranges:
                if (data := self._kept(each, versions.get(each.path))) is not None:
                    kept[each] = data
        spans = self.spans([each for each in ranges if each not in kept])

        def fetch(span: Span) -> list[tuple[ByteRange, memoryview]]:
            version = versions.get(span.path)
            try:
                data = self.read_range(span.path, span.offset, span.length, version)
            except OSError:
                return []
            return list(span.cut(data))

        if len(spans) <= 1:
            return kept | dict(pair for span in spans for pair in fetch(span))
        with ThreadPoolExecutor(min(self.at_once, len(spans))) as pool:
            return kept | dict(pair for pairs in pool.map(carried(fetch), spans) for pair in pairs)

    def spans(self, ranges: Sequence[ByteRange]) -> list[Span]:
        """The requests for ``ranges``. As many requests as run at once stay separate, so that few
        other bytes are read."""
        gap = self.near
        spans = coalesce(ranges, gap, self.limit)
        while len(spans) > self.at_once and gap < self.gap:
            gap = min(4 * gap, self.gap)
            spans = coalesce(ranges, gap, self.limit)
        return spans

    def read_into(
        self, path: str, offsets: Sequence[int], into: Sequence[memoryview], version: ObjectId
    ) -> bool:
        """See ``Storage``."""
        return fill(self.read_ranges, path, offsets, into, version)

    def open(self, path: str, version: ObjectId | None = None) -> BinaryIO:
        """See ``Storage``."""
        current = version if version is not None and version.size is not None else self.stat(path)
        if version is not None and not version.same_version(current):
            raise stale(path)
        # All reads must be of one version, also when the caller did not name it.
        return cast("BinaryIO", io.BufferedReader(_RangedFile(self, path, current), 1))

    def now(self) -> int:
        """See ``Storage``."""
        return time.time_ns()


class _RangedFile(SeekableBytes):
    """A seekable view of one version of an object; one request reads its last 64 KiB."""

    def __init__(self, storage: RemoteReads, path: str, version: ObjectId) -> None:
        super().__init__(version.size or 0)
        self._storage, self._path, self._version = storage, path, version
        self._tail: memoryview | None = None

    def _fetch(self, offset: int, length: int) -> memoryview:
        start = max(0, self._size - _TAIL)
        if offset < start:
            return self._storage.read_range(self._path, offset, length, self._version)
        if self._tail is None:
            self._tail = self._storage.read_range(
                self._path, start, self._size - start, self._version
            )
        return self._tail[offset - start : offset - start + length]
