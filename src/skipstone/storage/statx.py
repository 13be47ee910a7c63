"""The state of many files of one directory at once, by statx(2).

``os.stat`` takes the system a microsecond and Python two more, and a listing is nothing else. Here
the calls are made by a compiled loop that has nothing to do with the interpreter. To import the
compiler takes longer than most processes look at files for, so it is not done before that long has
been spent on looking, or somebody else has done it.

    offset  0 mask u32   28 mode u16   32 ino u64   40 size u64   96 ctime   112 mtime   of 256
    a timestamp: sec i64, nsec u32, 4 unused

Source: statx(2), linux/stat.h; the layout is the same on every architecture.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from itertools import pairwise
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Names", "Patience"]

IntArray: TypeAlias = "NDArray[np.int64]"

_TIME: Final = np.dtype([("sec", "<i8"), ("nsec", "<u4"), ("", "<i4")])
_STATX: Final = np.dtype(
    {
        "names": ["mask", "mode", "ino", "size", "ctime", "mtime"],
        "formats": ["<u4", "<u2", "<u8", "<u8", _TIME, _TIME],
        "offsets": [0, 28, 32, 40, 96, 112],
        "itemsize": 256,
    }
)
# Type, mode, mtime, ctime, inode and size: what is not filled in cannot be compared.
_WANTED: Final = 0x3C3
# Files for which another thread pays, and threads at most.
_EACH: Final = 256
_MOST_THREADS: Final = 8
# Seconds whose nanoseconds fit into int64.
_MOST_SECONDS: Final = 9_223_372_035


@dataclass(slots=True)
class Patience:
    """Seconds that this process has spent on looking file by file, and after how many of them the
    compiler is worth its import."""

    seconds: float = 0.0
    enough: ClassVar[float] = 0.5
    failed: bool = False

    def call(self) -> Callable[..., Any] | None:
        """The compiled loop, once it pays; ``None`` where there is none."""
        if self.failed or (self.seconds < self.enough and "numba" not in sys.modules):
            return None
        try:
            from .statx_jit import compiled

            return compiled()
        except Exception:  # no such call here, or no compiler: file by file it works everywhere
            self.failed = True
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names below one directory as the system wants them: ``text`` with a zero after each, the
    first bytes at ``starts``."""

    text: NDArray[np.uint8]
    starts: IntArray

    @classmethod
    def of(cls, names: Sequence[str]) -> Names:
        """In this order. Names of a file system hold no zero."""
        text = np.frombuffer(b"".join(os.fsencode(name) + b"\0" for name in names), np.uint8)
        ends = np.flatnonzero(text == 0)
        return cls(text, np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1]))

    def look(self, directory: int, call: Callable[..., Any]) -> IntArray | None:
        """Mode, size, mtime (ns), inode and ctime (ns), int64 ``(5, n)``, of the files below the
        open ``directory``; ``None`` when a file is gone or has what cannot be told like this."""
        found = np.zeros(len(self.starts), _STATX)
        count = len(found)
        parts = max(min(count // _EACH, os.cpu_count() or 1, _MOST_THREADS), 1)
        cuts = [count * part // parts for part in range(parts + 1)]
        failed: list[int] = []

        def look(first: int, stop: int) -> None:
            bytes_ = found[first:stop].view(np.uint8)
            if call(directory, self.text, self.starts[first:stop], bytes_):
                failed.append(first)

        # The loop holds no lock of the interpreter.
        others = [Thread(target=look, args=cut) for cut in pairwise(cuts[1:])]
        for thread in others:
            thread.start()
        look(*cuts[:2])
        for thread in others:
            thread.join()
        if failed or np.any(found["mask"] & _WANTED != _WANTED):
            return None
        state = np.empty((5, len(found)), np.int64)
        state[0] = found["mode"]
        state[1] = found["size"]
        state[3] = found["ino"]
        for row, time in ((2, found["mtime"]), (4, found["ctime"])):
            if np.any(np.abs(time["sec"]) > _MOST_SECONDS):
                return None
            state[row] = time["sec"] * 10**9 + time["nsec"]
        return state
