"""Partitions written anew without their dead bytes, and when the old ones may go.

    due           more than half of data.parquet is dead, or more than 1 GiB of it
    superseded    the commit of the new directory; the old one gets a mark, whose time counts
    removed       by ``vacuum``, when the mark is a day old

Between a reader's look at ``_txn`` and its opening of the files lies time, and it may open them one
by one: so the old directory is kept. What a reader has opened stays readable to it after that.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from . import rows as incoming
from .directories import OWN_FILES, SUPERSEDED
from .encode import encode
from .reading import read_row_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.parquet.writing.arrow_encoder import Encoded

    from .definition import LiveDefinition
    from .disk import Disk
    from .partition import PartitionState

__all__ = ["KEPT_SECONDS", "is_due", "parts", "supersede", "vacuum"]

KEPT_SECONDS: Final = 86_400.0
_MOST_DEAD: Final = 1 << 30


def is_due(size: int, dead: int) -> bool:
    """Both comparisons strict, as QuestDB has them."""
    return 2 * dead > size or dead > _MOST_DEAD


def parts(definition: LiveDefinition, state: PartitionState) -> Iterator[Encoded]:
    """All rows in row groups that are full, but the last; at most two of them in memory at once.

    In an ordered partition they follow one another in time as before. Under another order the rows
    of each new row group are sorted, as those of the old ones were.
    """
    full, held, count = definition.row_group_rows, list[pa.Table](), 0
    every = range(len(state.footer.rows))
    for rows in read_row_groups(definition, state.directory, state.size, every):
        held.append(rows)
        count += len(rows)
        while count >= full:
            table = pa.concat_tables(held)
            yield _encoded(definition, table.slice(0, full))
            held, count = [table.slice(full)], count - full
    if count:
        yield _encoded(definition, pa.concat_tables(held))


def _encoded(definition: LiveDefinition, rows: pa.Table) -> Encoded:
    return encode(definition, incoming.together(definition, [rows]))


def supersede(disk: Disk, directory: str, txn: int) -> None:
    """Mark a directory that no snapshot from ``txn`` on names."""
    with disk.writing(f"{directory}/{SUPERSEDED}", create=True) as descriptor:
        disk.write(descriptor, [f"by txn {txn}\n".encode()], 0)


def vacuum(
    disk: Disk, root: str, superseded: Sequence[str], *, older_than: float
) -> tuple[str, ...]:
    """Remove those of the directories that were marked ``older_than`` seconds ago; their names."""
    removed = []
    for name in superseded:
        mark = Path(root, name, SUPERSEDED)
        if not mark.exists():
            # Its writer died between the commit and the mark: from now on it counts.
            supersede(disk, f"{root}/{name}", 0)
        if time.time() - mark.stat().st_mtime >= older_than:
            disk.remove(f"{root}/{name}", OWN_FILES)
            removed.append(name)
    return tuple(removed)
