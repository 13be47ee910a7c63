"""What a writer does to files, in calls that can be counted: each is one step that may be the last.

A step is durable once ``sync`` has returned. ``Disk(sync=False)`` leaves that to the operating
system: what was committed survives the death of the process, but not that of the machine.
"""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Disk", "mapped"]


@dataclass(frozen=True, slots=True)
class Disk:
    """Writes; ``durable`` says whether ``sync`` waits for the medium."""

    durable: bool = True

    @contextmanager
    def writing(self, path: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor to write to; ``create`` takes a file that is not there or empties it."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        descriptor = os.open(path, flags, 0o666)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def write(self, descriptor: int, pieces: Iterable[bytes | memoryview], offset: int) -> int:
        """Pieces one behind the other from ``offset`` on; the offset behind the last."""
        for piece in pieces:
            left = memoryview(piece)
            while len(left):
                done = os.pwrite(descriptor, left, offset)
                offset += done
                left = left[done:]
        return offset

    def sync(self, descriptor: int) -> None:
        """What was written to the file so far stays."""
        if self.durable:
            os.fsync(descriptor)

    def cut(self, path: str, size: int) -> None:
        """End the file after ``size`` bytes."""
        with self.writing(path) as descriptor:
            os.ftruncate(descriptor, size)
            self.sync(descriptor)

    def sync_directory(self, path: str) -> None:
        """The names in the directory stay."""
        if self.durable:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def make_directory(self, path: str) -> None:
        """The directory, and those above it that are not there; their names stay."""
        home = Path(path)
        missing = [each for each in (home, *home.parents) if not each.exists()]
        home.mkdir(parents=True, exist_ok=True)
        for each in missing:
            self.sync_directory(str(each.parent))

    def put(self, path: str, data: bytes) -> None:
        """A small file, whole or not at all."""
        temporary = f"{path}.tmp"
        with self.writing(temporary, create=True) as descriptor:
            self.write(descriptor, [data], 0)
            self.sync(descriptor)
        Path(temporary).rename(path)
        self.sync_directory(str(Path(path).parent))

    def remove(self, directory: str, names: Iterable[str]) -> None:
        """These files of a directory, and then the directory."""
        for name in names:
            Path(directory, name).unlink(missing_ok=True)
        Path(directory).rmdir()


def mapped(path: str) -> memoryview:
    """The bytes of a file as they are now; an empty file gives none."""
    with Path(path).open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
