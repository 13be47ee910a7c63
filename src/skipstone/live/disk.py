"""The files of a live table: their places, the lock of the writer, and the steps that write them.

Every call of ``Disk`` can be counted: each is one step, and a writer may die after any of them. A
step is durable once ``sync`` has returned. ``Disk(durable=False)`` leaves that to the operating
system: commits survive the death of the process, but not that of the machine.

One writer at a time holds an advisory lock on ``_lock`` of the table, which contains the name of
the holder. The kernel releases it when the process ends, however it ends; the remaining text then
has no meaning. Readers take no lock.
"""

from __future__ import annotations

import mmap
import os
import socket
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.storage.atomic_replace import (
    TEMPORARY,
    put_atomically,
    remove_temporary,
    sync_directory,
)
from skipstone.storage.base import naming

from .definition import MARKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Disk:
    """Writes files; ``durable``: whether ``sync`` waits for the medium."""

    durable: bool = True

    @contextmanager
    def writing(self, path: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor to write to; ``create`` makes the file, or empties it."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        descriptor = os.open(path, flags, 0o666)
        try:
            with naming(path):
                yield descriptor
        finally:
            os.close(descriptor)

    def write(self, descriptor: int, pieces: Iterable[bytes | memoryview], offset: int) -> int:
        """Write the pieces from ``offset`` on; returns the offset after the last."""
        for piece in pieces:
            left = memoryview(piece)
            while len(left):
                done = os.pwrite(descriptor, left, offset)
                offset += done
                left = left[done:]
        return offset

    def sync(self, descriptor: int) -> None:
        """Make the writes to the file durable."""
        if self.durable:
            os.fsync(descriptor)

    def cut(self, path: str, size: int) -> None:
        """End the file after ``size`` bytes."""
        with self.writing(path) as descriptor:
            os.ftruncate(descriptor, size)
            self.sync(descriptor)

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""
        if self.durable:
            sync_directory(path)

    def make_directory(self, path: str) -> None:
        """Make the directory and its missing parents, with durable names."""
        home = Path(path)
        missing = [each for each in (home, *home.parents) if not each.exists()]
        home.mkdir(parents=True, exist_ok=True)
        for each in missing:
            self.sync_directory(str(each.parent))

    def put(self, path: str, data: bytes) -> None:
        """Write a small file atomically, and durably in any case."""
        place = Path(path)
        remove_temporary(place)
        put_atomically(place, data, ())

    def remove(self, directory: str, names: Iterable[str]) -> None:
        """Remove these files of a directory, and then the directory."""
        for name in names:
            Path(directory, name).unlink(missing_ok=True)
        Path(directory).rmdir()


def content(path: str) -> bytes:
    """The content of a small file; an error names it."""
    with naming(path):
        return Path(path).read_bytes()


def mapped(path: str, size: int = 0) -> memoryview:
    """The content of a file, memory-mapped; empty for an empty file. ``FormatError`` where it has
    fewer than ``size`` bytes."""
    with naming(path), Path(path).open("rb") as file:
        has = os.fstat(file.fileno()).st_size
        if has < size:
            raise FormatError(f"{Path(path).name} is cut short", file=path, expected=size, got=has)
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if has else b"")


LOCK = "_lock"


class WriterLock:
    """Held from its creation to ``release``."""

    def __init__(self, root: str) -> None:
        """``SkipstoneError`` where another writer holds it; ``UnsupportedError`` without POSIX."""
        self._process = os.getpid()
        try:
            from fcntl import LOCK_EX, LOCK_NB, flock
        except ImportError:
            raise UnsupportedError(
                f"{root}: a live table on a system without POSIX locks",
                hint="write from Linux or macOS; reading works everywhere",
            ) from None
        self._descriptor = os.open(Path(root, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            flock(self._descriptor, LOCK_EX | LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 256, 0).decode("utf-8", "replace").strip()
            self.release()
            if not isinstance(error, BlockingIOError):
                raise UnsupportedError(
                    f"{root}: its file system has no locks: {error.strerror}",
                    hint="put live tables on a file system with POSIX locks",
                ) from None
            raise SkipstoneError(
                f"{root} is being written to by {holder or 'another writer'}",
                hint="a live table has one writer at a time: wait until it is done, or close its"
                " LiveTable; readers need no lock",
            ) from None
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = f"process {os.getpid()} of {socket.gethostname()} since {now}\n".encode()
        # Not written through Disk: no reader depends on it.
        try:
            with naming(f"{root}/{LOCK}"):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, text, 0)
        except BaseException:
            self.release()
            raise

    @property
    def held(self) -> bool:
        """True until ``release``."""
        return self._descriptor >= 0

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._descriptor >= 0:
            from fcntl import LOCK_UN, flock

            # A forked child shares the lock: closing keeps it for the parent, unlocking does not.
            if self._process == os.getpid():
                flock(self._descriptor, LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        # A table that was garbage-collected without close must not block other writers.
        if getattr(self, "_descriptor", -1) >= 0:
            with suppress(ImportError):  # at the end of the interpreter
                self.release()


def local_root(root: str) -> str:
    """The canonical path; ``UnsupportedError`` for an object store."""
    path = canonical_path(root)
    if "://" in path:
        raise UnsupportedError(
            f"{root} lies in an object store: a live table needs a POSIX file system",
            hint="name a local directory",
        )
    return path


def refuse_foreign(root: str) -> None:
    """``UnsupportedError`` if a QuestDB owns the directory."""
    there = [name for name in ("_meta", "_cv", "_txn") if Path(root, name).exists()]
    if there and not Path(root, MARKER).exists():
        raise UnsupportedError(
            f"{root} is a table of a QuestDB: it has {', '.join(there)}, and no {MARKER}",
            hint="only QuestDB writes to its tables; read it with Table(path), or name a new path",
        )


def refuse_taken(root: str) -> None:
    """``SkipstoneError`` if the directory is not empty, or is a file."""
    if Path(root).exists() and not Path(root).is_dir():
        raise SkipstoneError(
            f"{root} is a file: a live table is a directory",
            hint="name a new directory; the rows come from another path",
        )
    if not Path(root).exists():
        return
    # The files of a creator that died before it wrote the definition do not count.
    names = (each.name for each in Path(root).iterdir())
    if any(name != LOCK and not TEMPORARY.fullmatch(name) for name in names):
        raise SkipstoneError(
            f"{root} is not empty", hint="open the existing live table, or choose a new path"
        )
