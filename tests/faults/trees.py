"""What lies below a folder, and how it is put back."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

#: random parts of names, as many verbs make them
_RANDOM = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32,64}|\.[0-9a-f]{12}\."
)
#: the number of a directory of a live table, which counts the runs
_NUMBER = re.compile(r"(?<=\d)\.\d+(?=/|$)")


@dataclass(frozen=True)
class Entry:
    """A file (``data``), or a directory (``None``); ``version`` is what identifies a file."""

    data: bytes | None
    mode: int
    mtime: int
    version: tuple[int, int]


def entries(root: str) -> dict[str, Entry]:
    """Everything below ``root``, by its relative path."""
    found: dict[str, Entry] = {}
    for path in sorted(Path(root).rglob("*")):
        status = path.lstat()
        data = None if path.is_dir() else path.read_bytes()
        version = (status.st_ino, status.st_ctime_ns)
        name = os.path.relpath(path, root)
        found[name] = Entry(data, status.st_mode & 0o7777, status.st_mtime_ns, version)
    return found


def restore(root: str, wanted: dict[str, Entry]) -> bool:
    """Make ``root`` as it was; False where data files had to be written again.

    A written file has another inode, and so facts about it are stale.
    """
    same, there = True, set[str]()
    for folder, folders, files in os.walk(root, topdown=False):
        for name in [*files, *folders]:
            path = Path(folder, name)
            relative = os.path.relpath(path, root)
            entry = wanted.get(relative)
            status = path.lstat()
            if entry is None or (entry.data is None) != path.is_dir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif entry.data is None or entry.version == (status.st_ino, status.st_ctime_ns):
                there.add(relative)
    for relative, entry in wanted.items():
        path = Path(root, relative)
        if relative in there:
            continue
        if entry.data is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry.data)
        path.chmod(entry.mode)
        os.utime(path, ns=(entry.mtime, entry.mtime))
        same = same and ".skipstone" in relative
    return same


def names(root: str) -> set[str]:
    """The relative paths below ``root`` without random parts; directories end in a slash."""
    found = set()
    for folder, folders, files in os.walk(root):
        at = "" if folder == root else os.path.relpath(folder, root) + "/"
        found |= {plain(at + each) for each in files}
        found |= {plain(at + each) + "/" for each in folders}
    return found


def plain(name: str) -> str:
    """A path without its random parts and numbers of runs."""
    return _NUMBER.sub(".N", _RANDOM.sub("*", name))
