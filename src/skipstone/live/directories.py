"""Directories below a live table's root that ``_txn`` does not name, and what became of them.

A directory that a commit makes ends in the number of that commit, or in none for a partition's
first. So a name tells its past:

    never committed   its number is beyond the current txn, or the table has no such partition at
                      all: a writer died before its commit. Nobody has ever read it.
    superseded        any other: readers of an older snapshot may be reading it.

Nothing is removed but directories with the name of a partition of the table's unit, in which only
our own files lie.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from skipstone.questdb.format.partition_names import Partitioning, directory
from skipstone.questdb.txn_snapshot import DATA, PM

if TYPE_CHECKING:
    from skipstone.questdb.format.txn import Txn

__all__ = ["OWN_FILES", "SUPERSEDED", "Unnamed", "base_name", "named", "unnamed"]

#: Marks a directory of older snapshots; its time of change says since when.
SUPERSEDED: Final = "_superseded"
OWN_FILES: Final = (DATA, PM, SUPERSEDED)

# By the table's own unit: a directory that looks like another's is somebody else's.
_NAMES: Final = {
    "none": "default",
    "year": r"\d{4}",
    "month": r"\d{4}-\d{2}",
    "week": r"\d{4}-W\d{2}",
    "day": r"\d{4}-\d{2}-\d{2}",
    "hour": r"\d{4}-\d{2}-\d{2}T\d{2}",
}


class Unnamed(NamedTuple):
    """Names of directories, sorted."""

    never_committed: tuple[str, ...]
    superseded: tuple[str, ...]


def base_name(name: str) -> str:
    """A directory's name without its number."""
    return name.partition(".")[0]


def named(txn: Txn, partitioning: Partitioning) -> tuple[str, ...]:
    """The directory of each partition."""
    return tuple([directory(partition, partitioning) for partition in txn.partitions])


def unnamed(root: str, txn: Txn, partitioning: Partitioning) -> Unnamed:
    """Our directories that ``txn`` does not name."""
    current = set(named(txn, partitioning))
    bases = {base_name(name) for name in current}
    never: list[str] = []
    superseded: list[str] = []
    own = re.compile(rf"({_NAMES[partitioning.unit]})(?:\.(\d+))?")
    for entry in sorted(Path(root).iterdir()):
        found = own.fullmatch(entry.name)
        if found is None or entry.name in current or entry.is_symlink() or not entry.is_dir():
            continue
        if any(each.name not in OWN_FILES for each in entry.iterdir()):
            continue
        base, number = found.groups()
        unborn = base not in bases or (number is not None and int(number) > txn.txn)
        (never if unborn else superseded).append(entry.name)
    return Unnamed(tuple(never), tuple(superseded))
