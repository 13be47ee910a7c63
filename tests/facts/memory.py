"""A storage in memory whose every operation can be cut off, or entered by somebody else."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

from skipstone.identity import ObjectId
from skipstone.storage import Listing
from skipstone.storage.base import coalesce, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from skipstone.storage import ByteRange
    from skipstone.storage.base import Span


class Crash(BaseException):
    """The process ends here."""


class MemoryStorage:
    """Objects in a dictionary; a clock that ticks with every write."""

    remote = False
    gap = near = 0
    limit = 1 << 20

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.time = 1_700_000_000 * 10**9
        self.requests = 0

    def _id(self, path: str) -> ObjectId:
        if path not in self.objects:
            raise FileNotFoundError(2, "No such file or directory", path)
        data, mtime = self.objects[path]
        return ObjectId(path=path, size=len(data), mtime=mtime, unit="ns", etag=str(mtime))

    def list_all(self, prefix: str) -> Listing:
        return Listing.of(prefix, [self._id(p) for p in self.objects if p.startswith(f"{prefix}/")])

    def holds(self, path: str) -> bool:
        return True

    def list_files(self, root: str, known: Callable[[], Sequence[str]] | None = None) -> Listing:
        return self.list_all(root)

    def spans(self, ranges: Sequence[ByteRange]) -> list[Span]:
        return coalesce(ranges, 0, 1 << 30)

    def keep_end(self, version: ObjectId, data: memoryview) -> None:
        pass

    def keep_ahead(self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId]) -> None:
        pass

    def summary(self, root: str) -> ObjectId | None:
        path = f"{root}/_metadata"
        return self._id(path) if path in self.objects else None

    def has_children(self, prefix: str) -> bool:
        return any(path.startswith(f"{prefix}/") for path in self.objects)

    def stat(self, path: str) -> ObjectId:
        return self._id(path)

    def exists(self, path: str) -> bool:
        return path in self.objects

    def read(self, path: str) -> bytes:
        self._id(path)
        return self.objects[path][0]

    def read_tail(self, path: str, length: int) -> tuple[ObjectId, memoryview]:
        return self._id(path), memoryview(self.objects[path][0][-length:])

    def read_ranges(
        self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId] | None = None
    ) -> dict[ByteRange, memoryview]:
        found = {}
        for each in ranges:
            data = self.objects.get(each.path, (b"", 0))[0][each.offset : each.offset + each.length]
            if len(data) == each.length:
                found[each] = memoryview(data)
        return found

    def read_into(
        self, path: str, offsets: Sequence[int], into: Sequence[memoryview], version: ObjectId
    ) -> bool:
        return fill(self.read_ranges, path, offsets, into, version)

    def open(self, path: str, version: ObjectId | None = None) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def put(self, path: str, data: bytes | memoryview, sources: Iterable[str] = ()) -> None:
        self.time += 10**6
        self.objects[path] = (bytes(data), self.time)

    def delete(self, *paths: str) -> None:
        for path in paths:
            self._delete(path)

    def _delete(self, path: str) -> None:
        self.objects.pop(path, None)

    def remove_empty(self, prefix: str) -> None:
        pass

    def left_overs(self, directory: str) -> dict[str, OSError | None]:
        return {}

    def now(self) -> int:
        self.time += 10**6
        return self.time


class Interrupted(MemoryStorage):
    """The objects of ``inner``; before its operation number ``at``, ``action`` happens once.

    With ``halfway`` a put that is interrupted by a crash leaves a temporary object of half its
    bytes, as a local put does; with ``late`` the crash comes right after the operation took effect.
    """

    def __init__(
        self,
        inner: MemoryStorage,
        at: int,
        action: Callable[[], None],
        *,
        halfway: bool = False,
        late: bool = False,
    ) -> None:
        super().__init__()
        self.inner, self.objects = inner, inner.objects
        self.at, self.action, self.halfway, self.late = at, action, halfway, late
        self.count = 0

    def _now_is_the_time(self) -> bool:
        self.count += 1
        return self.count == self.at

    def _enter(self) -> None:
        if self._now_is_the_time():
            self.action()

    def list_all(self, prefix: str) -> Listing:
        self._enter()
        return super().list_all(prefix)

    def open(self, path: str, version: ObjectId | None = None) -> BinaryIO:
        self._enter()
        return super().open(path, version)

    def stat(self, path: str) -> ObjectId:
        self._enter()
        return super().stat(path)

    def put(self, path: str, data: bytes | memoryview, sources: Iterable[str] = ()) -> None:
        hit = self._now_is_the_time()
        if hit and self.halfway:
            folder = path.rpartition("/")[0]
            self.inner.put(f"{folder}/_tmp-x-{self.inner.time:032x}", bytes(data)[: len(data) // 2])
        if hit and not self.late:
            self.action()
        self.inner.put(path, data)
        if hit and self.late:
            self.action()

    def _delete(self, path: str) -> None:
        hit = self._now_is_the_time()
        if hit and not self.late:
            self.action()
        self.inner.delete(path)
        if hit and self.late:
            self.action()

    def now(self) -> int:
        return self.inner.now()
