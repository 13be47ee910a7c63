"""The ``Storage`` protocol, coalesced byte ranges, and the meter of what is read.

Neighbouring byte ranges become one request. A ``Meter`` counts the reads made while it is installed
(``metered``): those of the installing thread, and of threads that it gives work to (``carried``).
"""

from __future__ import annotations

import io
import os
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, Self, TypeVar

from skipstone.errors import StaleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from skipstone.identity import ObjectId

    from .listing import Listing


class _ByteRange(NamedTuple):
    path: str
    offset: int
    length: int


class ByteRange(_ByteRange):
    """``length`` bytes from ``offset`` of the object at ``path``.

    A tuple, because a lookup hashes hundreds of them.
    """

    __slots__ = ()

    def __new__(cls, path: str, offset: int, length: int) -> Self:
        if offset < 0 or length < 0:
            raise ValueError(f"negative byte range: offset {offset}, length {length}")
        return tuple.__new__(cls, (path, offset, length))


class Storage(Protocol):
    """Objects by canonical path.

    A missing object raises ``FileNotFoundError``, other failures an ``OSError``. ``list_all`` and
    ``list_files`` raise ``SkipstoneError`` with a hint instead.
    """

    #: Requests made so far (for local files: system calls), for tests and reports.
    requests: int
    #: True where requests are slow, so that several are sent at once.
    remote: bool
    #: The most bytes between two ranges that one request joins; those ``near`` are always joined.
    gap: int
    near: int
    #: the most bytes of a request that joins several ranges
    limit: int

    def holds(self, path: str) -> bool:
        """Whether ``path`` (canonical) is in this storage."""

    def list_all(self, prefix: str) -> Listing:
        """Every object below the directory ``prefix``, also hidden ones; empty if there is none."""

    def list_files(self, root: str, known: Callable[[], Sequence[str]] | None = None) -> Listing:
        """The data files below ``root`` (or ``root`` itself, if it is a file), by Spark's rules.
        ``known`` returns paths that should be there, sorted: a store may divide its listing
        there."""

    def summary(self, root: str) -> ObjectId | None:
        """The identity of ``_metadata`` in the directory ``root``, ``None`` if there is none. A
        remote storage takes it from its last ``list_files`` of ``root``, if there was one."""

    def has_children(self, prefix: str) -> bool:
        """True when the directory ``prefix`` is not empty."""

    def stat(self, path: str) -> ObjectId:
        """The current identity of the object."""

    def exists(self, path: str) -> bool:
        """True when there is an object at ``path``."""

    def read(self, path: str) -> bytes:
        """The whole object."""

    def read_tail(self, path: str, length: int) -> tuple[ObjectId, memoryview]:
        """The version of the object, and its last ``length`` bytes (all of a shorter object)."""

    def keep_end(self, version: ObjectId, data: memoryview) -> None:
        """A remote storage keeps ``data``, the end of an object, for some time, and takes ranges of
        the same version from it. So they are read even if the object is gone or replaced."""

    def keep_ahead(self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId]) -> None:
        """A remote storage reads ``ranges`` of these versions and keeps them."""

    def read_ranges(
        self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId] | None = None
    ) -> dict[ByteRange, memoryview]:
        """The ranges that could be read completely; neighbours are one request.

        A range is left out when its object is gone, too short, or not the version that ``versions``
        names for its path. To callers, a missing range proves nothing.
        """

    def spans(self, ranges: Sequence[ByteRange]) -> list[Span]:
        """The requests that ``read_ranges`` makes of these ranges."""

    def read_into(
        self, path: str, offsets: Sequence[int], into: Sequence[memoryview], version: ObjectId
    ) -> bool:
        """Fills each view with the bytes of this version of the object from its offset on; False
        unless all of them could be read, and of this version."""

    def open(self, path: str, version: ObjectId | None = None) -> BinaryIO:
        """A seekable file; ``StaleError`` when the object is not ``version``, or is replaced."""

    def put(self, path: str, data: bytes | memoryview, sources: Iterable[str] = ()) -> None:
        """Write an object atomically and durably. Local users may read it only if they may read all
        local files among ``sources``."""

    def delete(self, *paths: str) -> None:
        """Remove those objects that exist, durably: a loss of power does not bring them back."""

    def remove_empty(self, prefix: str) -> None:
        """Remove the directory ``prefix`` if it is empty."""

    def left_overs(self, directory: str) -> dict[str, OSError | None]:
        """The temporary objects in ``directory`` that a killed ``put`` left. The value is the error
        of an object that cannot be opened, else ``None``."""

    def now(self) -> int:
        """Nanoseconds since the epoch, by the clock of this machine."""


def stale(path: str) -> StaleError:
    """The error for an object that was replaced since it was listed."""
    return StaleError(f"{path} is not the version that was listed")


def is_current(storage: Storage, version: ObjectId) -> bool:
    """Whether the object is there, and is this version."""
    try:
        return storage.stat(version.path).same_version(version)
    except FileNotFoundError:
        return False


def fill(
    read_ranges: Callable[..., Mapping[ByteRange, memoryview]],
    path: str,
    offsets: Sequence[int],
    into: Sequence[memoryview],
    version: ObjectId,
) -> bool:
    """``Storage.read_into`` by ``Storage.read_ranges``."""
    ranges = [ByteRange(path, at, len(view)) for at, view in zip(offsets, into, strict=True)]
    found = read_ranges(ranges, {path: version})
    if any(each not in found for each in ranges):
        return False
    for each, view in zip(ranges, into, strict=True):
        view[:] = found[each]
    return True


class SeekableBytes(io.RawIOBase):
    """A seekable view of ``size`` bytes, which ``_fetch`` reads."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        wanted = min(len(view), self._size - self._at)
        if wanted <= 0:
            return 0
        data = self._fetch(self._at, wanted)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _fetch(self, offset: int, length: int) -> bytes | memoryview:
        raise NotImplementedError


def remove_left_overs(storage: Storage, directory: str) -> None:
    """Remove what killed writers left in ``directory``, as far as that is possible."""
    for path, error in storage.left_overs(directory).items():
        if error is None:
            with suppress(OSError):
                storage.delete(path)


class Span(NamedTuple):
    """One request: ``length`` bytes from ``offset``, and the ranges that it serves."""

    path: str
    offset: int
    length: int
    members: tuple[ByteRange, ...]

    def cut(self, data: memoryview) -> Iterator[tuple[ByteRange, memoryview]]:
        """The members that ``data``, read from ``offset`` on, contains whole."""
        for member in self.members:
            start = member.offset - self.offset
            if start + member.length <= len(data):
                yield member, data[start : start + member.length]


def runs(ordered: Sequence[ByteRange], gap: int, limit: int) -> Iterator[tuple[int, int, int, int]]:
    """``(first, last, offset, end)``: ``ordered[first:last]`` are one request for these bytes.

    ``ordered`` is sorted. Ranges of one object at most ``gap`` bytes apart are joined, up to
    ``limit`` bytes; a longer range stays one request.
    """
    at, count = 0, len(ordered)
    while at < count:
        first = at
        path, start, length = ordered[at]
        end = start + length
        at += 1
        while at < count:
            other, offset, length = ordered[at]
            stop = offset + length
            if offset > end + gap or other != path or max(end, stop) - start > limit:
                break
            if stop > end:
                end = stop
            at += 1
        yield first, at, start, end


def coalesce(ranges: Sequence[ByteRange], gap: int, limit: int) -> list[Span]:
    """The requests for ``ranges``, in any order; see ``runs``."""
    ordered = sorted(set(ranges))
    return [
        Span(ordered[first].path, start, end - start, tuple(ordered[first:last]))
        for first, last, start, end in runs(ordered, gap, limit)
    ]


def parent(path: str) -> str:
    """The directory of ``path``: ``/a/b`` -> ``/a``."""
    return path.rpartition("/")[0]


T = TypeVar("T")
R = TypeVar("R")


class Meter:
    """``requests`` and ``bytes_read`` so far, and the ``paths`` that were read.

    A request reads consecutive bytes; asking for a file's identity does not count. ``outer`` counts
    the same reads.
    """

    def __init__(self, outer: Meter | None = None) -> None:
        self.requests = 0
        self.bytes_read = 0
        self._outer = outer
        self._read: dict[str, list[tuple[int, int]]] = {}
        self._lock = Lock()

    def add(self, path: str, offset: int, length: int) -> None:
        """Count one request that read ``length`` bytes."""
        with self._lock:
            self.requests += 1
            self.bytes_read += length
            self._read.setdefault(path, []).append((offset, offset + length))
        if self._outer is not None:
            self._outer.add(path, offset, length)

    @property
    def paths(self) -> set[str]:
        """The objects that were read."""
        return set(self._read)

    @property
    def bytes_of_objects(self) -> int:
        """Bytes that were read, each byte of an object counted once, however often it was read."""
        total = 0
        for ranges in self._read.values():
            end = 0
            for start, stop in sorted(ranges):
                total += max(0, stop - max(start, end))
                end = max(end, stop)
        return total


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds ``path`` to errors in the block: errors of a descriptor name no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


def is_metered() -> bool:
    """Whether reads are counted."""
    return _METER.get() is not None


def count_read(path: str, offset: int, length: int) -> None:
    """Storages call this after each read."""
    meter = _METER.get()
    if meter is not None:
        meter.add(path, offset, length)


@contextmanager
def metered() -> Iterator[Meter]:
    """Counts the reads in the block; nested meters both count."""
    meter = Meter(_METER.get())
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)


def carried(call: Callable[[T], R]) -> Callable[[T], R]:
    """``call`` for another thread: its reads count for the meter of this thread."""
    meter = _METER.get()
    if meter is None:
        return call

    def counted(item: T) -> R:
        token = _METER.set(meter)
        try:
            return call(item)
        finally:
            _METER.reset(token)

    return counted
