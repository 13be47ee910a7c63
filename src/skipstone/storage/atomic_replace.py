"""Replaces a file atomically: readers see the old content or the whole new one.

    _tmp-NAME-<32 hex digits>  written, synced  ->  renamed over NAME  ->  the directory synced

The temporary file lies in the same directory; readers of tables ignore names that begin with an
underscore. Other users may write into that directory. So the name is random, the file must not
exist before (``O_EXCL``), and only users who may read the files that it is made from can open it
(``permissions.py``).

The temporary file is locked while it is written. Two writers of one file find each other's
temporary file by its name. An unlocked one was left by a killed writer, and the next writer removes
it. Files of other users are not touched.

A file with checkpoints is called ``_unfinished-NAME`` while it is written. Its rows can be salvaged
up to the last checkpoint. So it is never overwritten, and after its first checkpoint an error
leaves it in place.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import random
import re
import secrets
import shutil
import stat
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from skipstone.errors import SkipstoneError, UnsupportedError

from .base import naming
from .permissions import Access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


PREFIX: Final = "_tmp-"
UNFINISHED: Final = "_unfinished-"
_EXISTING: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_BUFFER: Final = 1 << 20
# After this many bytes a thread begins to sync what was written.
_SYNCED: Final = 64 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_ATTEMPTS: Final = 4
# The longest name of a file in bytes is 255.
_LONGEST: Final = 255 - len(PREFIX) - 33
_RANDOM: Final = re.compile(r"[0-9a-f]{32}")
#: the name of a temporary file
TEMPORARY: Final = re.compile(rf"{PREFIX}.+-[0-9a-f]{{32}}", re.DOTALL)
# Errors of file systems without locks. Names are random, so writers do not collide there either.
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


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
        self.at += len(piece)


class BufferedFile:
    """Writes to a descriptor, and joins small pieces. Its errors name ``path``.

    A thread syncs a long file while it is written, so that ``sync`` waits only for its last bytes.
    Call ``settle`` before the descriptor is closed.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor, self.path, self.at = descriptor, path, 0
        self._held: list[bytes | memoryview] = []
        self._size = self._volatile = 0
        self._syncing: threading.Thread | None = None
        self._failure: OSError | None = None

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
            with naming(self.path):
                done = os.writev(self.descriptor, held)
            left -= done
            self._volatile += done
            while held and done >= len(held[0]):
                done -= len(held.pop(0))
            if done:
                held[0] = memoryview(held[0])[done:]
        if self._volatile >= _SYNCED and (self._syncing is None or not self._syncing.is_alive()):
            self._volatile = 0
            thread = threading.Thread(target=self._sync_behind, name="skipstone-sync")
            with suppress(RuntimeError):  # no more threads: ``sync`` does it all
                thread.start()
                self._syncing = thread

    def _sync_behind(self) -> None:
        try:
            os.fsync(self.descriptor)
        except OSError as error:  # the system reports it once: ``sync`` must not lose it
            self._failure = error

    def settle(self) -> None:
        """Wait until no thread uses the descriptor."""
        if self._syncing is not None:
            self._syncing.join()

    def sync(self) -> None:
        """Make what was written durable."""
        self.settle()
        with naming(self.path):
            if self._failure is not None:
                raise self._failure
            os.fsync(self.descriptor)


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
    sources: Iterable[str | Path] = (),
    still: Callable[[], None] | None = None,
    worth_keeping: Callable[[], bool] | None = None,
) -> Iterator[BufferedFile]:
    """Write the new content of ``path``; it replaces the old one when the block ends.

    An error in the block leaves the old file unchanged. ``still`` is called before the rename, and
    may raise too. The new file gets the owner and permissions of the old one. Only users who may
    read all ``sources``, the files that it is made from, may read it. ``worth_keeping`` is for
    files with checkpoints: after an error it says whether the unfinished file stays.
    """
    create = _exclusive if worth_keeping is None else _unfinished
    with _replacing(path, sources, create, still, worth_keeping) as made:
        yield made


def put_atomically(path: Path, data: bytes | memoryview, sources: Iterable[str | Path]) -> None:
    """Make ``data`` the content of ``path``; the last of several writers at once wins."""
    with _replacing(path, sources, _created) as made:
        made.write(data)


@contextmanager
def _replacing(
    path: Path,
    sources: Iterable[str | Path],
    create: Callable[[Path, Access], tuple[Path, int]],
    still: Callable[[], None] | None = None,
    worth_keeping: Callable[[], bool] | None = None,
) -> Iterator[BufferedFile]:
    access = Access.of(path, sources)
    temporary, descriptor = create(path, access)
    made = BufferedFile(descriptor, path)
    try:
        yield made
        made.flush()
        access.grant(descriptor)
        made.sync()
        if still is not None:
            still()
        temporary.rename(path)
    except BaseException:
        if worth_keeping is None or not worth_keeping():
            temporary.unlink(missing_ok=True)
        raise
    finally:
        made.settle()
        os.close(descriptor)
    # The rename itself must survive a power cut before anything that it replaces is deleted.
    sync_directory(path.parent)


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """A locked temporary file in the directory of ``path``, removed at the end of the block. A
    killed process leaves it behind, as in ``replace_atomically``."""
    remove_temporary(path)
    temporary, descriptor = _created(path, Access.of(path, ()))
    try:
        yield temporary
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)


def _exclusive(path: Path, access: Access) -> tuple[Path, int]:
    """As ``_created``, but ``SkipstoneError`` while another process writes ``path``."""
    for attempt in range(_ATTEMPTS):
        if attempt:  # two writers that began at once have found each other
            time.sleep(random.uniform(0.001, 0.01))
        temporary, descriptor = _created(path, access)
        try:
            if not _is_being_written(path, temporary.name):
                return temporary, descriptor
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
    raise _in_use(path)


def _created(path: Path, access: Access) -> tuple[Path, int]:
    """A new temporary file for ``path``, locked."""
    for _ in range(_ATTEMPTS):
        temporary, descriptor = path.with_name(f"{_stem(path)}{secrets.token_hex(16)}"), -1
        try:
            descriptor = os.open(temporary, _NEW, access.at_first)
            # Another process may have taken it for left over before it was locked.
            if _lock(descriptor, temporary):
                return temporary, descriptor
        except BaseException as error:  # Ctrl-C may come between any two calls
            if descriptor >= 0:
                os.close(descriptor)
            if not isinstance(error, OSError) or descriptor >= 0:
                temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is not None:
                error.filename = os.fspath(path)  # the user knows no other name
            raise
        os.close(descriptor)
    raise _in_use(path)


def _unfinished(path: Path, access: Access) -> tuple[Path, int]:
    """The file of a writer with checkpoints, locked."""
    temporary = path.with_name((UNFINISHED + path.name).replace("=", "%3D"))
    if (found := _own(temporary)) is not None:
        descriptor, status = found
        try:
            if not _lock(descriptor, temporary):
                raise _in_use(path)
            if status.st_size:
                raise SkipstoneError(
                    f"{temporary} is the rest of a file that was not finished",
                    hint="skipstone salvage saves its rows; then remove it",
                )
            temporary.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
    try:
        descriptor = os.open(temporary, _NEW, access.at_first)
    except FileExistsError:
        raise SkipstoneError(
            f"{temporary} is a link, not a regular file, or another user's", hint="remove it"
        ) from None
    if not _lock(descriptor, temporary):
        os.close(descriptor)
        raise _in_use(path)
    return temporary, descriptor


def _in_use(path: Path) -> SkipstoneError:
    return SkipstoneError(
        f"{path} is being rewritten by another process", hint="wait until it is done"
    )


def _lock(descriptor: int, place: Path) -> bool:
    """Lock the file; False when another process has locked, renamed or removed it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        return os.path.samestat(os.fstat(descriptor), place.lstat())
    except FileNotFoundError:
        return False


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yields the folder to write the files of the new directory ``path`` into. Afterwards ``path``
    has all of them, or does not exist.

    They lie in a locked folder ``_tmp-NAME-<32 hex digits>`` meanwhile. Unlocked ones were left by
    killed writers, and are removed. ``FileExistsError`` where ``path`` exists at the end.
    """
    _remove_folders(path)
    folder = path.with_name(f"{_stem(path)}{secrets.token_hex(16)}")
    folder.mkdir(parents=True)
    descriptor = os.open(folder, _FOLDER)
    try:
        if not _lock(descriptor, folder):
            raise _in_use(path)
        yield folder / "files"
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
        (folder / "files").rename(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


# -- what killed writers left ----------------------------------------------------------------------


def _remove_folders(path: Path) -> None:
    """Remove the folders of killed writers of the directory ``path``: those without a lock."""
    for folder in path.parent.glob(f"{glob.escape(_stem(path))}*"):
        if not TEMPORARY.fullmatch(folder.name):
            continue
        with suppress(OSError):  # not a folder, another user's, or being written
            descriptor = os.open(folder, _FOLDER)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid():
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def remove_temporary(path: Path) -> None:
    """Remove the temporary files of killed writers of ``path``; not those of running ones."""
    _is_being_written(path, "")


def left_overs(directory: str | Path) -> dict[Path, OSError | None]:
    """The temporary files in ``directory`` that no process is writing: those of this user, or of
    any user for root. The value is the error of a file that cannot be opened, else ``None``."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - as above
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {Path(directory): error}
    found: dict[Path, OSError | None] = {}
    for place in (Path(directory, name) for name in names if TEMPORARY.fullmatch(name)):
        try:
            if _is_left_over(place):
                found[place] = None
        except OSError as error:
            found[place] = error
    return found


def _is_being_written(path: Path, but: str) -> bool:
    """Whether a temporary file of ``path`` other than ``but`` is locked; removes unlocked ones."""
    stem, locked = _stem(path), False
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 - of many names, few become paths
    except OSError as error:
        error.filename = os.fspath(path)  # the user knows no other name
        raise
    for name in names:
        if name.startswith(stem) and name != but and _RANDOM.fullmatch(name, len(stem)):
            place = path.with_name(name)
            found = _own(place)
            if found is None:
                continue
            try:
                if _lock(found[0], place):
                    place.unlink(missing_ok=True)
                else:
                    locked = locked or os.path.lexists(place)
            finally:
                os.close(found[0])
    return locked


def _is_left_over(place: Path) -> bool:
    """Whether no process is writing the temporary file; ``OSError`` if it cannot be opened."""
    try:
        status = place.lstat()
    except FileNotFoundError:
        return False
    if not _is_of_user(status, anybody=os.geteuid() == 0):
        return False
    try:
        descriptor = os.open(place, _EXISTING)
    except FileNotFoundError:
        return False
    try:
        return _lock(descriptor, place)
    finally:
        os.close(descriptor)


def _own(place: Path) -> tuple[int, os.stat_result] | None:
    """A descriptor and the state of a regular file of this user; ``None`` for anything else."""
    try:
        descriptor = os.open(place, _EXISTING)
    except OSError:
        return None
    status = os.fstat(descriptor)
    if _is_of_user(status):
        return descriptor, status
    os.close(descriptor)
    return None


def _is_of_user(status: os.stat_result, *, anybody: bool = False) -> bool:
    """Whether it is a regular file of this user, or of ``anybody``."""
    return stat.S_ISREG(status.st_mode) and (anybody or status.st_uid == os.geteuid())


def _stem(path: Path) -> str:
    """The name of a temporary file without its random end."""
    # Spark lists names with "=" as partitions.
    name = path.name.replace("=", "%3D")
    if len(os.fsencode(name)) > _LONGEST:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f"{PREFIX}{name}-"


def sync_directory(path: str | Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
