"""Who may read a new file: only users who may read every file that it is made from.

A new file has the permissions of the file that it replaces, else those that the process gives its
files. From these, every source file removes what it does not grant itself: what its mode denies to
its group and to others; for the group also what others do not have, where the new file has another
group or an access list overrides the mode; and what a directory above it forbids, unless that
directory is above the new file, too.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skipstone._dataclasses import dataclass

from .base import naming

if TYPE_CHECKING:
    from collections.abc import Iterable


_PRIVATE: Final = stat.S_IRUSR | stat.S_IWUSR
_GROUP, _OTHERS = stat.S_IRWXG, stat.S_IRWXO
_ALL: Final = 0o666
_ACCESS_LIST: Final = "system.posix_acl_access"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The permissions of a new file at ``path``.

    ``replaced`` is the state of the file that it replaces. ``most`` are the bits that all sources
    grant, ``groups`` their groups; ``sourced`` says that there are any.
    """

    path: Path
    replaced: os.stat_result | None = None
    most: int = 0o777
    groups: frozenset[int] = field(default_factory=frozenset)
    sourced: bool = False

    @classmethod
    def of(cls, path: Path, sources: Iterable[str | Path] = ()) -> Access:
        """The permissions of a file at ``path`` that is made from the local files ``sources``."""
        try:
            replaced = path.stat()
        except OSError:
            replaced = None
        most, groups, sourced = 0o777, set(), False
        above: dict[str, int] = {}
        shared = {str(path), *map(str, path.parents)}
        for source in map(str, sources):
            if "://" in source:
                continue
            try:
                status = os.stat(source)  # noqa: PTH116 - many files
            except OSError:
                continue
            sourced = True
            if replaced is not None and os.path.samestat(status, replaced):
                continue
            groups.add(status.st_gid)
            granted = status.st_mode
            if _has_access_list(source):
                granted &= ~_GROUP | (granted & _OTHERS) << 3
            most &= granted & _let_through(os.path.dirname(source), shared, above)  # noqa: PTH120
        return cls(
            path=path, replaced=replaced, most=most, groups=frozenset(groups), sourced=sourced
        )

    @property
    def at_first(self) -> int:
        """The mode to create the file with: only its owner can open it before ``grant``."""
        return _PRIVATE if self.sourced or self.replaced is not None else _ALL

    def grant(self, descriptor: int) -> None:
        """Give the complete file its owner, mode and attributes."""
        with naming(self.path):
            self._grant(descriptor)

    def _grant(self, descriptor: int) -> None:
        old, groups = self.replaced, set(self.groups)
        if old is not None:
            with suppress(PermissionError):
                os.fchown(descriptor, old.st_uid, old.st_gid)
            groups.add(old.st_gid)
            mode = stat.S_IMODE(old.st_mode)
        elif self.sourced:
            mode = _ALL & ~_umask()
            if len(groups) == 1 and os.fstat(descriptor).st_gid not in groups:
                with suppress(PermissionError):
                    os.fchown(descriptor, -1, next(iter(groups)))
        else:
            return
        mode &= self.most | ~(_GROUP | _OTHERS)
        if groups - {os.fstat(descriptor).st_gid}:
            mode &= ~_GROUP | (mode & _OTHERS) << 3
        if old is not None and sys.platform == "linux":
            with suppress(OSError):  # not supported, or not permitted
                for name in os.listxattr(self.path):
                    if name != _ACCESS_LIST or not self.groups:
                        os.setxattr(descriptor, name, os.getxattr(self.path, name))
        os.fchmod(descriptor, mode)


def _let_through(directory: str, shared: set[str], known: dict[str, int]) -> int:
    """The bits that ``directory`` and those above it allow a file, up to a ``shared`` directory."""
    if directory in shared or directory in ("", "/"):
        return 0o777
    if directory not in known:
        bits = _let_through(os.path.dirname(directory), shared, known)  # noqa: PTH120
        with suppress(OSError):
            mode = os.stat(directory).st_mode  # noqa: PTH116 - many directories
            bits &= ~_GROUP if not mode & stat.S_IXGRP else bits
            bits &= ~_OTHERS if not mode & stat.S_IXOTH else bits
        known[directory] = bits
    return known[directory]


def _has_access_list(path: str) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return _ACCESS_LIST in os.listxattr(path)
    except OSError:
        return False


def _umask() -> int:
    """The umask of this process. ``os.umask`` would change it while other threads create files."""
    with suppress(OSError, ValueError):
        text = Path("/proc/self/status").read_bytes()
        return int(text[text.index(b"\nUmask:") + 7 :].split(maxsplit=1)[0], 8)
    return 0o022
