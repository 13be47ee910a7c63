"""A local directory as it was when it was walked, and whether it still is.

A table is listed anew for every query, and most times nothing has changed. To see that takes a look
at every name and every file, but none of the sorting and joining that makes a listing of them:
where all directories are as they were, so is the listing.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .listing import int64
from .statx import Names, Patience

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Directory"]

IntArray: TypeAlias = "NDArray[np.int64]"

# Fewer files than this are looked at one by one.
_MANY = 64
_PATIENCE = Patience()


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """``names`` are all entries in the order of the directory, ``looked_at`` those of them that are
    not hidden; ``state`` is int64 ``(5, looked_at)``, see ``_state``."""

    path: str
    names: list[str]
    looked_at: list[str]
    state: IntArray
    #: for the system, where it was asked of all at once before
    _names: list[Names] = field(default_factory=list)

    @classmethod
    def of(
        cls, path: str, names: list[str], seen: Sequence[tuple[str, os.stat_result]]
    ) -> Directory:
        """``seen`` are names with what the walk was told of each."""
        looked_at = [name for name, _ in seen]
        if looked_at == names:
            looked_at = names
        return cls(path, names, looked_at, _state([status for _, status in seen]))

    def is_unchanged(self) -> bool:
        """Whether it has the same entries, and these are the same versions of the same files."""
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
        many = len(self.looked_at) >= _MANY
        if many and (call := _PATIENCE.call()) is not None:
            if not self._names:
                self._names.append(Names.of(self.looked_at))
            found = self._names[0].look(descriptor, call)
            if found is not None:
                found[1:, (found[0] & 0o170000) == 0o040000] = 0
                return found
        started = time.perf_counter()
        # By names below an open directory: a third less than by whole paths.
        state = _state([os.stat(name, dir_fd=descriptor) for name in self.looked_at])
        _PATIENCE.seconds += time.perf_counter() - started
        return state


def _state(found: Sequence[os.stat_result]) -> IntArray:
    """What tells one version of a file from another: mode, size, mtime, inode, change time.

    Of a directory the mode alone: what is in it is looked at by itself.
    """
    made = np.empty((5, len(found)), np.int64)
    try:
        made[0] = [each.st_mode for each in found]
        made[1] = [each.st_size for each in found]
        made[2] = [each.st_mtime_ns for each in found]
        made[3] = [each.st_ino for each in found]
        made[4] = [each.st_ctime_ns for each in found]
    except OverflowError:  # times that no clock shows
        made[1] = [int64(each.st_size) for each in found]
        made[2] = [int64(each.st_mtime_ns) for each in found]
        made[3] = [hash(each.st_ino) for each in found]
        made[4] = [int64(each.st_ctime_ns) for each in found]
    made[1:, (made[0] & 0o170000) == 0o040000] = 0
    return made
