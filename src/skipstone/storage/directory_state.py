"""The state of a local directory when it was walked, and whether it has changed since.

A table is listed for every query, and most times nothing has changed. Comparing every name and
every file's state is cheaper than building a new listing: where no directory has changed, the old
listing holds.

``os.stat`` takes about a microsecond in the system and two in Python. A compiled loop calls
statx(2) without the interpreter. Importing the compiler takes longer than most processes spend on
looking, so it is loaded only after that much time was spent, or when it is loaded already.

    offset  0 mask u32   28 mode u16   32 ino u64   40 size u64   96 ctime   112 mtime   of 256
    a timestamp: sec i64, nsec u32, 4 unused

Source: statx(2), linux/stat.h; the layout is the same on every architecture.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from skipstone._numba import CompiledKernels

from .listing import int64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


IntArray: TypeAlias = "NDArray[np.int64]"

# Directories with fewer files use os.stat.
_MANY = 64
_TIME: Final = np.dtype([("sec", "<i8"), ("nsec", "<u4"), ("", "<i4")])
_STATX: Final = np.dtype(
    {
        "names": ["mask", "mode", "ino", "size", "ctime", "mtime"],
        "formats": ["<u4", "<u2", "<u8", "<u8", _TIME, _TIME],
        "offsets": [0, 28, 32, 40, 96, 112],
        "itemsize": 256,
    }
)
# Type, mode, mtime, ctime, inode and size: all are needed to compare.
_WANTED: Final = 0x3C3
# Files per thread, and the most threads.
_EACH: Final = 256
_MOST_THREADS: Final = 8
# Seconds whose nanoseconds fit into int64.
_MOST_SECONDS: Final = 9_223_372_035


#: The unit of work is a second spent on os.stat.
COMPILED: Final[CompiledKernels[Callable[..., Any]]] = CompiledKernels(
    module=f"{__package__}.statx_jit", total=0.5, share=0.0
)


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names of one directory as statx(2) takes them: ``text`` has a zero byte after each name, and
    ``starts`` the offset of each."""

    text: NDArray[np.uint8]
    starts: IntArray

    @classmethod
    def of(cls, names: Sequence[str]) -> Names:
        """The names in this order. File names contain no zero byte."""
        text = np.frombuffer(b"".join(os.fsencode(name) + b"\0" for name in names), np.uint8)
        ends = np.flatnonzero(text == 0)
        return cls(text, np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1]))

    def look(self, directory: int, call: Callable[..., Any]) -> IntArray | None:
        """Mode, size, mtime (ns), inode and ctime (ns), int64 ``(5, n)``, of the files below the
        open ``directory``; ``None`` when a file is gone or its state cannot be represented."""
        found = np.zeros(len(self.starts), _STATX)
        count = len(found)
        parts = max(min(count // _EACH, os.cpu_count() or 1, _MOST_THREADS), 1)
        cuts = [count * part // parts for part in range(parts + 1)]
        failed: list[int] = []

        def look(first: int, stop: int) -> None:
            bytes_ = found[first:stop].view(np.uint8)
            if call(directory, self.text, self.starts[first:stop], bytes_):
                failed.append(first)

        # The loop runs without the GIL.
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
        for row, at in ((2, found["mtime"]), (4, found["ctime"])):
            if np.any(np.abs(at["sec"]) > _MOST_SECONDS):
                return None
            state[row] = at["sec"] * 10**9 + at["nsec"]
        return state


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """``names`` are all entries in the order of the directory, ``visible`` those that are not
    hidden; ``state`` is int64 ``(5, visible)``, see ``_state``."""

    path: str
    names: list[str]
    visible: list[str]
    state: IntArray
    #: the same names for statx(2), once they were used
    _names: list[Names] = field(default_factory=list)

    @classmethod
    def of(
        cls, path: str, names: list[str], seen: Sequence[tuple[str, os.stat_result]]
    ) -> Directory:
        """``seen`` are the visible names and the state of each."""
        visible = [name for name, _ in seen]
        if visible == names:
            visible = names
        return cls(path, names, visible, _state([status for _, status in seen]))

    def is_unchanged(self) -> bool:
        """Whether it still has the same entries, with the same versions of the same files."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if os.listdir(descriptor) != self.names:  # noqa: PTH208 - of a descriptor
                return False
            found = self._look(descriptor)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return bool(np.array_equal(found, self.state))

    def _look(self, descriptor: int) -> IntArray:
        """The state of the files now, below the open directory; ``OSError`` when one is gone."""
        many = len(self.visible) >= _MANY
        if many and (call := COMPILED.for_work(0.0)) is not None:
            if not self._names:
                self._names.append(Names.of(self.visible))
            found = self._names[0].look(descriptor, call)
            if found is not None:
                found[1:, (found[0] & 0o170000) == 0o040000] = 0
                return found
        started = time.perf_counter()
        # By names below an open directory: a third less than by whole paths.
        state = _state([os.stat(name, dir_fd=descriptor) for name in self.visible])
        COMPILED.spent += time.perf_counter() - started
        return state


def _state(found: Sequence[os.stat_result]) -> IntArray:
    """Mode, size, mtime, inode and change time: they tell one version of a file from another.

    For a directory only the mode counts: its entries have a state of their own.
    """
    made = np.empty((5, len(found)), np.int64)
    try:
        made[0] = [each.st_mode for each in found]
        made[1] = [each.st_size for each in found]
        made[2] = [each.st_mtime_ns for each in found]
        made[3] = [each.st_ino for each in found]
        made[4] = [each.st_ctime_ns for each in found]
    except OverflowError:  # times beyond int64
        made[1] = [int64(each.st_size) for each in found]
        made[2] = [int64(each.st_mtime_ns) for each in found]
        made[3] = [hash(each.st_ino) for each in found]
        made[4] = [int64(each.st_ctime_ns) for each in found]
    made[1:, (made[0] & 0o170000) == 0o040000] = 0
    return made
