"""Replaces a file atomically: readers see the old content or the whole new one.

    _tmp-NAME  written, synced  ->  renamed over NAME  ->  the directory synced

The temporary file lies in the same directory; readers of tables ignore names that begin with an
underscore. It is locked while it is written, so two writers of one file exclude each other. The
next writer overwrites the temporary file of one that was killed.

A file with checkpoints is called ``_unfinished-NAME`` while it is written. Its rows can be salvaged
up to the last checkpoint. So it is never overwritten, and after its first checkpoint an error
leaves it in place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from skipstone.errors import SkipstoneError, UnsupportedError

from .local import sync_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PREFIX: Final = "_tmp-"
UNFINISHED: Final = "_unfinished-"
_BUFFER: Final = 1 << 20


class ByteSink(Protocol):
    """Takes the bytes of a new file in order."""

    #: bytes written so far
    at: int

    def write(self, piece: bytes | memoryview) -> None:
        """Append."""
        ...


class CountingSink:
    """Counts the bytes of a file without writing it."""

    def __init__(self) -> None:
        self.at = 0

    def write(self, piece: bytes | memoryview) -> None:
        """Count."""
        self.at += len(piece)


class BufferedFile:
    """Writes to a descriptor, and joins small pieces."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.at = descriptor, 0
        self._held: list[bytes | memoryview] = []
        self._size = 0

    def write(self, piece: bytes | memoryview) -> None:
        """Append."""
        self._held.append(piece)
        self._size += len(piece)
        self.at += len(piece)
        if self._size >= _BUFFER or len(self._held) >= 512:
            self.flush()

    def flush(self) -> None:
        """Write the buffered pieces."""
        held, self._held, self._size = self._held, [], 0
        left = sum(map(len, held))
        while left:
            done = os.writev(self.descriptor, held)
            left -= done
            while held and done >= len(held[0]):
                done -= len(held.pop(0))
            if done:
                held[0] = memoryview(held[0])[done:]


def local_path(path: str) -> Path:
    """A local path with symbolic links resolved, so that the file is replaced and not the link."""
    if "://" in path:
        raise UnsupportedError(
            f"{path} lies in an object store: only local files are rewritten",
            hint="copy it here, rewrite it, and copy it back",
        )
    return Path(path).resolve()


@contextmanager
def replace_atomically(
    path: Path,
    *,
    still: Callable[[], None] | None = None,
    worth_keeping: Callable[[], bool] | None = None,
) -> Iterator[BufferedFile]:
    """Write the new content of ``path``; it replaces the old one when the block ends.

    An error in the block leaves the old file unchanged. ``still`` is called before the rename, and
    may raise too. The new file gets the owner and permissions of the old one. ``worth_keeping`` is
    for files with checkpoints: after an error it says whether the unfinished file stays.
    """
    temporary = _temporary(path, UNFINISHED if worth_keeping else PREFIX)
    descriptor = _opened(temporary)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Renamed between open and lock, it is the finished file of another writer.
            free = os.path.samestat(os.fstat(descriptor), temporary.stat())
        except (BlockingIOError, FileNotFoundError):
            free = False
        if not free:
            raise SkipstoneError(
                f"{path} is being rewritten by another process", hint="wait until it is done"
            )
        if worth_keeping is not None and os.fstat(descriptor).st_size:
            raise SkipstoneError(
                f"{temporary} is the rest of a file that was not finished",
                hint="skipstone salvage saves its rows; then remove it",
            )
        try:
            os.ftruncate(descriptor, 0)
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if path.exists():
                os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR)
            made = BufferedFile(descriptor)
            yield made
            made.flush()
            _like(descriptor, path, mode)
            os.fsync(descriptor)
            if still is not None:
                still()
            temporary.rename(path)
        except BaseException:
            if worth_keeping is None or not worth_keeping():
                temporary.unlink(missing_ok=True)
            raise
    finally:
        os.close(descriptor)
    sync_directory(path.parent)


def _opened(temporary: Path) -> int:
    """A descriptor of a regular file. A link of either kind would redirect the writes."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(temporary, flags, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        descriptor = -1
    if descriptor >= 0:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink < 2:
            return descriptor
        os.close(descriptor)
    raise SkipstoneError(f"{temporary} is a link, or no file", hint="remove it") from None


def remove_temporary(path: Path) -> None:
    """Remove the temporary file of a killed writer of ``path``; not that of a running one."""
    temporary = _temporary(path, PREFIX)
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # As above: a renamed file is no longer temporary.
        if os.path.samestat(os.fstat(descriptor), temporary.stat()):
            temporary.unlink()
    except (BlockingIOError, FileNotFoundError):
        pass
    finally:
        os.close(descriptor)


def _temporary(path: Path, prefix: str) -> Path:
    # Spark lists names with "=" as partitions.
    return path.with_name((prefix + path.name).replace("=", "%3D"))


def _like(descriptor: int, path: Path, mode: int) -> None:
    """Give a new file the owner, mode and attributes of ``path``; ``mode`` if there is none."""
    try:
        old = path.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, mode)
        return
    with suppress(PermissionError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
    if sys.platform == "linux":
        with suppress(OSError):  # not supported, or not permitted
            for name in os.listxattr(path):
                os.setxattr(descriptor, name, os.getxattr(path, name))
