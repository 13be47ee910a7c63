"""Where a live table may be: a local directory that belongs to nobody else."""

from __future__ import annotations

from pathlib import Path

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path

from .definition import MARKER
from .lock import LOCK

__all__ = ["local_root", "refuse_foreign", "refuse_taken"]


def local_root(root: str) -> str:
    """The canonical path; ``UnsupportedError`` for an object store."""
    path = canonical_path(root)
    if "://" in path:
        raise UnsupportedError(
            f"{root} lies in an object store: a live table needs a POSIX file system",
            hint="name a local directory",
        )
    return path


def refuse_foreign(root: str) -> None:
    """``UnsupportedError`` where a QuestDB owns the directory."""
    there = [name for name in ("_meta", "_cv", "_txn") if Path(root, name).exists()]
    if there and not Path(root, MARKER).exists():
        raise UnsupportedError(
            f"{root} is a table of a QuestDB: it has {', '.join(there)}, and no {MARKER}",
            hint="only QuestDB writes to its tables; read it with Table(path), or take a new path",
        )


def refuse_taken(root: str) -> None:
    """``SkipstoneError`` where something is in the directory, or it is a file."""
    if Path(root).exists() and not Path(root).is_dir():
        raise SkipstoneError(
            f"{root} is a file: a live table is a directory",
            hint="name its directory, one that is not there yet; the rows come from another path",
        )
    if not Path(root).exists():
        return
    # What a maker that died before its mark leaves behind is nothing.
    if any(each.name not in (LOCK, f"{MARKER}.tmp") for each in Path(root).iterdir()):
        raise SkipstoneError(
            f"{root} is not empty", hint="open the live table that is there, or take a new path"
        )
