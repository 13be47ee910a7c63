"""``ReadAhead``: reads parts of a store's objects before they are needed, many in one wave.

In an object store, a request costs more than the bytes. So the ends of all parts and of their bit
slices are read together, with the beginning of each part, which holds the identities of up to a
thousand files. Then all columns of a plan are read together. Later readers find the bytes here, or
read them: a range that is not here only costs a request.

Bytes stay until the plan is made. They are of the versions that the store's listing named.

``Background`` reads what later plans need while the present ones go on.
"""

from __future__ import annotations

import io
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, cast

from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass
from skipstone.storage import ByteRange
from skipstone.storage.base import SeekableBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import BinaryIO

    from skipstone.identity import ObjectId
    from skipstone.storage import Storage


#: bytes of an object's beginning and of its end that are read first
END = 64 * 1024
# Reading this many bytes takes no longer than another round trip.
_WHOLE = 1 << 20
# The most bytes that are held.
_MOST = 128 << 20


class Background:
    """Reads in background threads; each key is read once."""

    def __init__(self) -> None:
        self.threads: dict[object, Thread] = {}

    def is_running(self, key: object, read: Callable[[], object]) -> bool:
        """Starts the thread that calls ``read``, once for each ``key``; whether it still runs."""

        def run() -> None:
            with suppress(Exception):  # whoever needs the values reads them, and gets the error
                read()

        if key not in self.threads:
            mine = Thread(target=run, name="skipstone-facts")
            # Of several callers at once one starts a thread. At the end of a process none starts.
            if self.threads.setdefault(key, mine) is mine:
                with suppress(RuntimeError):
                    mine.start()
        return self.threads[key].is_alive()


class ReadAhead:
    """Ranges of objects in ``storage``; see the module."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._held = self._empty()

    @staticmethod
    def _empty() -> LruCache[str, list[tuple[int, memoryview]]]:
        return LruCache(
            most_bytes=_MOST, size=lambda held: sum(len(each) for _, each in held), growing=True
        )

    def fetch(self, ranges: Iterable[ByteRange], versions: Mapping[str, ObjectId]) -> None:
        """Reads the ranges that are not here yet, of these versions, in one wave; those that cannot
        be read are left out."""
        wanted = [each for each in dict.fromkeys(ranges) if self.get(*each) is None]
        if not wanted:
            return
        found: dict[str, list[tuple[int, memoryview]]] = {}
        for each, data in self.storage.read_ranges(wanted, versions).items():
            found.setdefault(each.path, []).append((each.offset, data))
        for path, held in found.items():
            self._held.put(path, [*(self._held.get(path) or ()), *held])

    def get(self, path: str, offset: int, length: int) -> memoryview | None:
        """These bytes, if they are here."""
        for start, data in self._held.get(path) or ():
            if start <= offset and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
        return None

    def read_ranges(self, ranges: Sequence[ByteRange]) -> dict[ByteRange, memoryview]:
        """As ``Storage.read_ranges``."""
        found = {each: data for each in ranges if (data := self.get(*each)) is not None}
        rest = [each for each in ranges if each not in found]
        return {**found, **self.storage.read_ranges(rest)} if rest else found

    def clear(self) -> None:
        """Drops all bytes."""
        self._held = self._empty()


def ends_of(ids: Sequence[ObjectId]) -> list[ByteRange]:
    """The beginning and the end of each object; small objects whole, and all objects whole where
    they are small together."""
    small = 2 * END if sum(id.size or 0 for id in ids) > _WHOLE else _WHOLE
    found = []
    for id in ids:
        size = id.size or 0
        if size <= small:
            found.append(ByteRange(id.path, 0, size))
        else:
            found += [ByteRange(id.path, 0, END), ByteRange(id.path, size - END, END)]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class HeldObject:
    """One version of an object, of which ranges are in ``ahead``."""

    ahead: ReadAhead
    id: ObjectId

    def ranges(self, places: Iterable[tuple[int, int]]) -> list[ByteRange]:
        """Byte ranges of these places, offset and length."""
        size = self.id.size or 0
        return [
            ByteRange(self.id.path, offset, length)
            for offset, length in places
            if offset >= 0 and 0 < length <= size - offset
        ]

    def fetch(self, places: Iterable[tuple[int, int]]) -> None:
        """Reads these places that are not held."""
        self.ahead.fetch(self.ranges(places), {self.id.path: self.id})

    def open(self) -> BinaryIO:
        """A seekable view, which requests the bytes that are not held."""
        return cast("BinaryIO", io.BufferedReader(_HeldFile(self), 1))


class _HeldFile(SeekableBytes):
    def __init__(self, of: HeldObject) -> None:
        super().__init__(of.id.size or 0)
        self._of = of
        self._rest: BinaryIO | None = None

    def _fetch(self, offset: int, length: int) -> bytes | memoryview:
        id, ahead = self._of.id, self._of.ahead
        held = ahead.get(id.path, offset, length)
        if held is not None:
            return held
        if self._rest is None:
            self._rest = ahead.storage.open(id.path, id)
        self._rest.seek(offset)
        return self._rest.read(length)
