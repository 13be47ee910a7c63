"""A file in the place of another: whole or not at all, whatever happens in between.

    _tmp-NAME  written, synced  ->  renamed over NAME  ->  the directory synced

The temporary file lies in the same directory; readers of tables pass over names that begin with an
underscore. It is locked while it is written, so that two writers of one file do not meet; what a
killed one left is taken over by the next.

A file with checkpoints is ``_unfinished-NAME`` meanwhile. What is left of such a one is worth
something: it is never taken over, and stays behind an error too once it has a checkpoint.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Counting", "Output", "Written", "local_path", "remove_abandoned", "replacing"]

PREFIX: Final = "_tmp-"
UNFINISHED: Final = "_unfinished-"
_BUFFER: Final = 1 << 20


class Output(Protocol):
    """What takes the bytes of a new file, one behind the other."""

    #: the bytes so far
    at: int

    def write(self, piece: bytes | memoryview) -> None:
        """Append."""
        ...


class Counting:
    """Bytes that go nowhere: how large a file would be."""

    def __init__(self) -> None:
        self.at = 0

    def write(self, piece: bytes | memoryview) -> None:
        """Count."""
        self.at += len(piece)


class Written:
    """Bytes that go into a descriptor, small pieces together."""

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
        """Hand everything to the system."""
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
    """A file of this machine; links are followed, so that the file is replaced and not the link."""
    if "://" in path:
        raise UnsupportedError(
            f"{path} lies in an object store: only local files are rewritten",
            hint="copy it here, rewrite it, and copy it back",
        )
    return Path(path).resolve()


@contextmanager
def replacing(
    path: Path,
    *,
    still: Callable[[], None] | None = None,
    worth_keeping: Callable[[], bool] | None = None,
) -> Iterator[Written]:
    """Write the new content of ``path``, which is there when the block has ended without an error.

    ``still`` is called before the rename; what it raises leaves everything as it was. The new file
    has the permissions of the old one. ``worth_keeping``, of a file with checkpoints, is asked
    after an error: whether what was written stays.
    """
    temporary = _temporary(path, UNFINISHED if worth_keeping else PREFIX)
    descriptor = _opened(temporary)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Renamed between open and lock, it is somebody's finished file by now.
            free = os.path.samestat(os.fstat(descriptor), temporary.stat())
        except (BlockingIOError, FileNotFoundError):
            free = False
        if not free:
            raise SkipstoneError(
                f"{path} is being rewritten by another process", hint="wait until it is done"
            )
        if worth_keeping is not None and os.fstat(descriptor).st_size:
            raise SkipstoneError(
                f"{temporary} is what is left of a file that was not finished",
                hint="skipstone salvage saves its rows; then remove it",
            )
        try:
            os.ftruncate(descriptor, 0)
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if path.exists():
                os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR)
            made = Written(descriptor)
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
    _sync_directory(path.parent)


def _opened(temporary: Path) -> int:
    """A link in its place, of either kind, would lead what is written elsewhere."""
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


def remove_abandoned(path: Path) -> None:
    """Remove what a killed writer of ``path`` left; not what somebody is writing now."""
    temporary = _temporary(path, PREFIX)
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # As above: renamed meanwhile, it is no longer a temporary file.
        if os.path.samestat(os.fstat(descriptor), temporary.stat()):
            temporary.unlink()
    except (BlockingIOError, FileNotFoundError):
        pass
    finally:
        os.close(descriptor)


def _temporary(path: Path, prefix: str) -> Path:
    # With a "=" in its name it would be a partition's, and listed.
    return path.with_name((prefix + path.name).replace("=", "%3D"))


def _like(descriptor: int, path: Path, mode: int) -> None:
    """Give a new file what the one at ``path`` has; ``mode`` where there is none."""
    try:
        old = path.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, mode)
        return
    with suppress(PermissionError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
    if sys.platform == "linux":
        with suppress(OSError):  # a file system without them, or some that are not ours to give
            for name in os.listxattr(path):
                os.setxattr(descriptor, name, os.getxattr(path, name))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
