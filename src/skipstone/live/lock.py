"""One writer at a time: an advisory lock on ``_lock`` of the table, with the holder's name in it.

The kernel lets go of it when the process ends, however it ends; what is left in the file then is
only text. Readers take no lock.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from skipstone.errors import SkipstoneError, UnsupportedError

__all__ = ["LOCK", "WriterLock"]

LOCK = "_lock"


class WriterLock:
    """Held from its making to ``release``."""

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
                    f"{root}: its file system knows no locks: {error.strerror}",
                    hint="put live tables on a file system with POSIX locks",
                ) from None
            raise SkipstoneError(
                f"{root} is being written to by {holder or 'another writer'}",
                hint="a live table has one writer at a time: wait until it is done, or close its"
                " LiveTable; readers need no lock",
            ) from None
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = f"process {os.getpid()} of {socket.gethostname()} since {now}\n".encode()
        # Not through Disk: no reader depends on it.
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)

    @property
    def held(self) -> bool:
        """True until it was released."""
        return self._descriptor >= 0

    def release(self) -> None:
        """Let another writer in; once more does nothing."""
        if self._descriptor >= 0:
            from fcntl import LOCK_UN, flock

            # A forked child shares the lock: closing leaves it with the other, unlocking does not.
            if self._process == os.getpid():
                flock(self._descriptor, LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        # A table that nobody closed and nobody can use any more keeps no other out.
        if getattr(self, "_descriptor", -1) >= 0:
            with suppress(ImportError):  # at the end of the interpreter
                self.release()
