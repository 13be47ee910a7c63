"""Local files: one ``scandir`` walk, ``pread`` for ranges, write-fsync-rename for puts.

Symbolic links are followed as Spark does: the path is the link's, the rest is the target's. A
dangling link is skipped. A link to a directory that contains it is an error, where Spark would read
the same files some forty times.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import time
from contextlib import suppress
from dataclasses import replace
from itertools import compress, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from skipstone._cache import LruCache
from skipstone._numba import CompiledKernels
from skipstone.errors import SkipstoneError, StaleError
from skipstone.identity import ObjectId

from .base import ByteRange, Span, coalesce, count_read, is_metered, naming, parent, runs, stale
from .listing import SUMMARY, Directory, Listing, hidden_by_spark, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray


# Roots whose last walk is cached.
_ROOTS = 4
# The most attempts to read the end of a file that changes meanwhile, and to write a file.
_ATTEMPTS = 3
# Views that one call fills; Linux takes 1,024.
_MOST_VIEWS = 512

#: The unit of work is a file.
COMPILED: Final[CompiledKernels[Callable[..., Any]]] = CompiledKernels(
    module=f"{__package__}.read_jit", total=4_000, share=1 / 16, least=4, patience=1.0
)


def _no_such(root: str) -> SkipstoneError:
    """The error for a path that is not there, with what its folder has instead."""
    from difflib import get_close_matches as close

    path, hint = Path(root), "check the spelling of the path"
    with suppress(OSError):
        others = [each.name for each in path.parent.glob("[!_.]*") if each.exists()]
        near = [path.stem] if path.stem in others else close(path.name, others, 1, 0.7)
        hint += f": did you mean {path.with_name(near[0])}?" if near else ""
    return SkipstoneError(f"no such file or directory: {root}", hint=hint)


class LocalStorage:
    """Files of this machine, or of a mounted network file system.

    ``gap``: the most bytes between two ranges that one read joins; ``limit``: the longest joined
    read.
    """

    remote = False

    def __init__(self, *, gap: int = 16 * 1024, limit: int = 8 * 1024 * 1024) -> None:
        self.gap, self.near, self.limit = gap, gap, limit
        self.requests = 0
        self._walked: LruCache[str, tuple[list[Directory], Listing]] = LruCache(_ROOTS)

    # -- listing ----------------------------------------------------------------------------------

    def holds(self, path: str) -> bool:
        return "://" not in path

    def list_all(self, prefix: str) -> Listing:
        return _listing(prefix, self._walk(prefix, lambda name: False) or ())

    def list_files(self, root: str, known: Callable[[], Sequence[str]] | None = None) -> Listing:
        last = self._walked.get(root)
        if last is not None:
            self.requests += len(last[0])
            if all(each.is_unchanged() for each in last[0]):
                return last[1]
        found = self._walk(root, hidden_by_spark)
        if found is None:
            try:
                alone = state_of(Path(root).stat())
            except (FileNotFoundError, NotADirectoryError):
                raise _no_such(root) from None
            folder, _, name = root.rpartition("/")
            listing = _listing(root, [Directory.of(folder, [name], [name], list(alone))])
        else:
            listing = _listing(root, found)
        filled = listing.sizes > 0
        if not filled.all():
            listing = replace(listing.where(filled), empty=int(np.count_nonzero(~filled)))
        self._walked.pop(root)
        if found is not None:
            self._walked.put(root, (found, listing))
        return listing

    def _walk(self, root: str, hides: Callable[[str], bool]) -> list[Directory] | None:
        """``root`` and the directories below it; ``None`` when it is not a directory."""
        visited: list[Directory] = []
        pending: list[tuple[str, frozenset[str]]] = [(root, frozenset())]
        while pending:
            directory, above = pending.pop()
            self.requests += 1
            try:
                entries = os.scandir(directory)
            except (FileNotFoundError, NotADirectoryError):
                if directory == root:
                    return None
                continue  # gone since its parent was read
            except OSError as error:
                raise _cannot_list(directory, error) from error
            names: list[str] = []
            visible: list[str] = []
            # Numbers alone: objects for each of many files would keep the collector busy.
            states: list[int] = []
            with entries:
                for entry in entries:
                    name = entry.name
                    names.append(name)
                    if hides(name):
                        continue
                    try:
                        state = state_of(entry.stat())
                        if modes.S_ISDIR(state[0]):
                            pending.append((entry.path, _below(entry, directory, above)))
                        visible.append(name)
                        states += state
                    except FileNotFoundError:
                        continue  # gone since, or a dangling link
                    except OSError as error:
                        if entry.is_symlink():
                            continue  # a link to itself
                        raise _cannot_list(entry.path, error) from error
            visited.append(Directory.of(directory, names, visible, states))
        return visited

    def summary(self, root: str) -> ObjectId | None:
        try:
            return self.stat(f"{root}/{SUMMARY}")
        except OSError:
            return None

    def has_children(self, prefix: str) -> bool:
        self.requests += 1
        try:
            with os.scandir(prefix) as entries:
                return next(entries, None) is not None
        except OSError:
            return False

    # -- reading ----------------------------------------------------------------------------------

    def stat(self, path: str) -> ObjectId:
        self.requests += 1
        return ObjectId.of_local(path, Path(path).stat())

    def exists(self, path: str) -> bool:
        self.requests += 1
        return os.path.lexists(path)

    def read(self, path: str) -> bytes:
        with self.open(path) as file, naming(path):
            return file.read()

    def spans(self, ranges: Sequence[ByteRange]) -> list[Span]:
        return coalesce(ranges, self.gap, self.limit)

    def keep_end(self, version: ObjectId, data: memoryview) -> None:
        pass  # the system does that

    def keep_ahead(self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId]) -> None:
        pass

    def read_tail(self, path: str, length: int) -> tuple[ObjectId, memoryview]:
        self.requests += 1
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not modes.S_ISREG(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, "no regular file", path)
            for _ in range(_ATTEMPTS):  # the file may be rewritten in place
                wanted = min(length, status.st_size)
                with naming(path):
                    data = _read_at(descriptor, wanted, status.st_size - wanted)
                count_read(path, status.st_size - wanted, len(data))
                before, status = status, os.fstat(descriptor)
                if _unchanged(before, status):
                    break
        finally:
            os.close(descriptor)
        return ObjectId.of_local(path, before), memoryview(data)

    def read_ranges(
        self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId] | None = None
    ) -> dict[ByteRange, memoryview]:
        fetched: dict[ByteRange, memoryview] = {}
        ordered = sorted(set(ranges))
        for path, spans in groupby(
            runs(ordered, self.gap, self.limit), lambda span: ordered[span[0]].path
        ):
            self.requests += 1
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                found = self._of_file(path, descriptor, ordered, spans, (versions or {}).get(path))
            finally:
                os.close(descriptor)
            fetched.update(found)
        return fetched

    def _of_file(
        self,
        path: str,
        descriptor: int,
        ordered: Sequence[ByteRange],
        spans: Iterable[tuple[int, int, int, int]],
        expected: ObjectId | None,
    ) -> dict[ByteRange, memoryview]:
        """The ranges of one file; empty if it is another version, or changes meanwhile."""
        status = os.fstat(descriptor)
        if not modes.S_ISREG(status.st_mode):
            return {}
        if expected and not expected.is_local(path, status):
            return {}
        found: dict[ByteRange, memoryview] = {}
        size, counts = status.st_size, is_metered()
        with naming(path):
            for first, last, start, end in spans:
                # A length from a damaged index must not become an allocation.
                if start > size:
                    continue
                self.requests += 1
                held = memoryview(_read_at(descriptor, min(end, size) - start, start))
                if counts:
                    count_read(path, start, len(held))
                if last == first + 1:
                    if len(held) == ordered[first].length:
                        found[ordered[first]] = held
                    continue
                for each in ordered[first:last]:
                    at, length = each.offset - start, each.length
                    part = held if length == len(held) else held[at : at + length]
                    if len(part) == length:
                        found[each] = part
        # Some of the bytes may be those of a file that replaced this one.
        return found if not expected or _unchanged(status, os.fstat(descriptor)) else {}

    def read_into(
        self, path: str, offsets: Sequence[int], into: Sequence[memoryview], version: ObjectId
    ) -> bool:
        self.requests += 1
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            status = os.fstat(descriptor)
            if not modes.S_ISREG(status.st_mode):
                return False
            if not version.is_local(path, status):
                return False
            with naming(path):
                for offset, views in _neighbours(offsets, into):
                    self.requests += 1
                    length = sum(map(len, views))
                    if os.preadv(descriptor, views, offset) != length:
                        return False
                    count_read(path, offset, length)
            return _unchanged(status, os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def read_files(
        self,
        versions: Sequence[ObjectId],
        first: NDArray[np.int64],
        ranges: NDArray[np.int64],
        into: NDArray[np.uint8],
    ) -> NDArray[np.bool_] | None:
        """``read_into`` for many files in compiled code: flags of the files that could be read, or
        ``None`` if the caller must read them one by one.

        ``ranges`` are offset, length, and the place in ``into``; ``first[n]`` to ``first[n + 1]``
        are those of version ``n``.
        """
        call = COMPILED.for_work(len(versions))
        if call is None:
            return None
        try:
            states = np.array([_state(each) for each in versions], np.int64).reshape(-1, 4)
        except (ValueError, OverflowError):
            return None
        names = [os.fsencode(each.path) + b"\0" for each in versions]
        ends = np.cumsum([len(name) for name in names])
        offset, length, place = ranges.T
        if np.any(length < 0) or np.any(place < 0) or np.any(place + length > len(into)):
            raise ValueError("ranges beyond the memory for them")
        vectors = np.stack([into.ctypes.data + place, length], axis=1)
        done = np.zeros(len(names), np.uint8)
        text = np.frombuffer(b"".join(names), np.uint8)
        call(text, np.diff(ends, prepend=0), states, first, offset.copy(), vectors, done)
        self._count(versions, first, ranges, done)
        return done.view(np.bool_)

    def _count(
        self,
        versions: Sequence[ObjectId],
        first: NDArray[np.int64],
        ranges: NDArray[np.int64],
        done: NDArray[np.uint8],
    ) -> None:
        """Counts a request for each file, and one for each run of consecutive ranges."""
        offset, length = ranges[:, 0], ranges[:, 1]
        begins = np.ones(len(ranges), np.bool_)
        begins[1:] = offset[1:] != (offset + length)[:-1]
        begins[first[:-1][np.diff(first) > 0]] = True
        at = np.flatnonzero(begins)
        self.requests += len(versions) + len(at)
        if is_metered() and len(at):
            files = np.searchsorted(first, at, side="right") - 1
            sizes = np.add.reduceat(length, at)
            starts = offset[at].tolist()
            for file, start, size in zip(files.tolist(), starts, sizes.tolist(), strict=True):
                if done[file]:
                    count_read(versions[file].path, start, size)

    def open(self, path: str, version: ObjectId | None = None) -> BinaryIO:
        self.requests += 1
        try:
            file = open(path, "rb", opener=open_regular)  # noqa: SIM115 - the caller closes it
        except FileNotFoundError as error:
            if version is None:
                raise
            raise StaleError(f"{path} is gone since it was listed") from error
        if version is not None:
            current = ObjectId.of_local(path, os.fstat(file.fileno()))
            if not version.same_version(current):
                file.close()
                raise stale(path)
        return file

    # -- writing ----------------------------------------------------------------------------------

    def put(self, path: str, data: bytes | memoryview, sources: Iterable[str] = ()) -> None:
        from .atomic_replace import put_atomically

        self.requests += 1
        for left in reversed(range(_ATTEMPTS)):
            Path(parent(path)).mkdir(parents=True, exist_ok=True)
            try:
                put_atomically(Path(path), data, sources)
                return
            except FileNotFoundError:
                # Others remove directories that are empty (``remove_empty``).
                if not left or Path(parent(path)).exists():
                    raise

    def delete(self, *paths: str) -> None:
        from .atomic_replace import sync_directory

        changed: dict[str, None] = {}
        for path in paths:
            self.requests += 1
            with suppress(FileNotFoundError):
                Path(path).unlink()
                changed[parent(path)] = None
        for directory in changed:
            with suppress(FileNotFoundError):
                sync_directory(directory)

    def remove_empty(self, prefix: str) -> None:
        self.requests += 1
        with suppress(OSError):
            Path(prefix).rmdir()

    def left_overs(self, directory: str) -> dict[str, OSError | None]:
        from .atomic_replace import left_overs

        self.requests += 1
        return {str(place): error for place, error in left_overs(directory).items()}

    def now(self) -> int:
        return time.time_ns()


def _state(version: ObjectId) -> tuple[int, int, int, int]:
    """Size, mtime, inode and change time; ``ValueError`` where they are not known."""
    inode, _, changed = (version.etag or "").partition("-")
    if version.unit != "ns" or version.size is None:
        raise ValueError(f"no version of a local file: {version}")
    return version.size, version.mtime, int(inode), int(changed)


def _neighbours(
    offsets: Sequence[int], into: Sequence[memoryview]
) -> Iterator[tuple[int, list[memoryview]]]:
    """Runs of consecutive ranges, each for one call: where it begins, and its views."""
    start, stop, held = 0, -1, list[memoryview]()
    for offset, view in sorted(zip(offsets, into, strict=True), key=lambda each: each[0]):
        if offset != stop or len(held) == _MOST_VIEWS:
            if held:
                yield start, held
            start, held = offset, []
        held.append(view)
        stop = offset + len(view)
    if held:
        yield start, held


def open_regular(path: str, flags: int) -> int:
    """A descriptor of a regular file. Opening a FIFO without ``O_NONBLOCK`` waits for a writer."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if modes.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if modes.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)


def _unchanged(one: os.stat_result, other: os.stat_result) -> bool:
    return state_of(one) == state_of(other)


def _read_at(descriptor: int, length: int, offset: int) -> bytes:
    data = os.pread(descriptor, length, offset)
    if len(data) == length:
        return data
    pieces = []
    while data:  # a short read, or the file was truncated since its size was read
        pieces.append(data)
        offset, length = offset + len(data), length - len(data)
        data = os.pread(descriptor, length, offset)
    return b"".join(pieces)


def _below(entry: os.DirEntry[str], directory: str, above: frozenset[str]) -> frozenset[str]:
    """The real directories of the links on the way to ``entry``; ``SkipstoneError`` if it links to
    a directory that contains it."""
    if not entry.is_symlink():
        return above
    here, target = os.path.realpath(directory), os.path.realpath(entry.path)
    above |= {here}
    inside = f"{target}/" if target != "/" else target
    if any(place == target or place.startswith(inside) for place in above):
        raise SkipstoneError(
            f"{entry.path} is a symbolic link to a directory that contains it",
            hint="remove the link: reading through it would read the same files again and again",
        )
    return above


def _cannot_list(path: str, error: OSError) -> SkipstoneError:
    return SkipstoneError(
        f"cannot list {path}: {error.strerror or error}",
        hint="grant read access to it, or point to a directory without it",
    )


def _listing(root: str, visited: Sequence[Directory]) -> Listing:
    """The regular files of these directories."""
    paths: list[str] = []
    etags: list[str] = []
    states = []
    for each in visited:
        regular = (each.state[0] & 0o170000) == 0o100000
        state = each.state[:, regular]
        start = each.path if each.path.endswith("/") else f"{each.path}/"
        paths += [start + name for name in compress(each.visible, regular.tolist())]
        etags += compress(each.etags, regular.tolist())
        states.append(state)
    order = sorted(range(len(paths)), key=paths.__getitem__)
    state = np.concatenate([np.empty((5, 0), np.int64), *states], axis=1)[:, order]
    return Listing(
        root=root,
        paths=[paths[at] for at in order],
        sizes=state[1],
        mtimes=state[2],
        unit="ns",
        etags=[etags[at] for at in order],
    )
