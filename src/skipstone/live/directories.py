"""The directories of a live table: those that ``_txn`` names, and the removal of the others.

A directory that a commit makes ends in the number of that commit; the first of a partition has no
number. So its name shows its state:

    never committed   its number is beyond the current txn, or the table has no such partition at
                      all: a writer died before its commit. No reader has ever opened it.
    superseded        any other: readers of an older snapshot may be reading it.

``recover`` removes the first kind, and only directories with the name of a partition of the table's
unit, in which only our own files lie. Compaction writes a partition again without its dead bytes:

    due           more than half of data.parquet is dead, or more than 1 GiB of it
    superseded    by the commit of the new directory; the old one gets a mark, whose time counts
    removed       by ``vacuum``, when the mark is a day old

A reader reads ``_txn`` first, and opens the files later, perhaps one by one. So the old directory
is kept. Open files stay readable.

A commit writes the next record of ``_txn`` (``next_record``, ``publish``).
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.human import Report
from skipstone.questdb import TXN
from skipstone.questdb.format.txn import (
    NO_MAX,
    NO_MIN,
    Partition,
    Partitioning,
    Txn,
    commit,
    created,
    directory,
)
from skipstone.questdb.txn_snapshot import DATA, PM, read_txn
from skipstone.storage import open_storage

from .disk import Disk, content
from .partition import PartitionState, snapshot_of
from .rows import encode, merged, read_row_groups, txn_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from skipstone.parquet.writing.arrow_encoder import EncodedRowGroups

    from .definition import LiveDefinition


#: Marks a superseded directory; its modification time is that of the mark.
SUPERSEDED: Final = "_superseded"
OWN_FILES: Final = (DATA, PM, SUPERSEDED)

# By the unit of the table: other names are not partitions of it.
_NAMES: Final = {
    "none": "default",
    "year": r"\d{4}",
    "month": r"\d{4}-\d{2}",
    "day": r"\d{4}-\d{2}-\d{2}",
    "hour": r"\d{4}-\d{2}-\d{2}T\d{2}",
}


class Unnamed(NamedTuple):
    """Directories that no partition of the snapshot uses, sorted by name."""

    never_committed: tuple[str, ...]
    superseded: tuple[str, ...]


def base_name(name: str) -> str:
    """The name of a directory without its number."""
    return name.partition(".")[0]


def named(txn: Txn, partitioning: Partitioning) -> tuple[str, ...]:
    """The directory of each partition."""
    return tuple([directory(partition, partitioning) for partition in txn.partitions])


def unnamed(root: str, txn: Txn, partitioning: Partitioning) -> Unnamed:
    """The directories of partitions that ``txn`` does not name."""
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


def recover(disk: Disk, root: str, definition: LiveDefinition) -> None:
    """Truncate ``data.parquet`` to its committed size, and remove never committed directories.

    Call it only under the writer's lock. A ``_pm`` is never truncated. ``FormatError`` where
    committed bytes are missing; nothing is removed then, because another directory may hold them.
    """
    partitioning = definition.partitioning
    if not Path(root, TXN).exists():
        new = Txn(txn=0, seq_txn=NO_BATCH)
        found = unnamed(root, new, partitioning)
        if found.never_committed or found.superseded:
            raise FormatError(
                "the table has partitions and no _txn, which says what of them was committed",
                file=f"{root}/{TXN}",
                hint="restore it from where the table was copied from; nothing was changed",
            )
        # Nothing was ever committed: the creator died before it wrote _txn.
        disk.put(f"{root}/{TXN}", created(new))
    txn = read_txn(root, open_storage(root))
    longer: list[tuple[str, int]] = []
    for partition, name in zip(txn.partitions, named(txn, partitioning), strict=True):
        path, size = f"{root}/{name}/{DATA}", partition.parquet_file_size
        try:
            length = Path(path).stat().st_size
        except FileNotFoundError:
            raise FormatError(
                "a partition without its file", file=path, expected=size, got="no such file"
            ) from None
        if length < size:
            raise FormatError("data.parquet is cut short", file=path, expected=size, got=length)
        if length > size:
            longer.append((path, size))
    for name in unnamed(root, txn, partitioning).never_committed:
        disk.remove(f"{root}/{name}", OWN_FILES)
    for path, size in longer:
        disk.cut(path, size)


KEPT_SECONDS: Final = 86_400.0
_MOST_DEAD: Final = 1 << 30


def is_due(size: int, dead: int) -> bool:
    """Whether compaction is due. Both comparisons are strict, as in QuestDB."""
    return 2 * dead > size or dead > _MOST_DEAD


def compacted(definition: LiveDefinition, state: PartitionState) -> Iterator[EncodedRowGroups]:
    """All rows, in row groups that are full except the last. At most two are in memory at once.

    In an ordered partition they follow one another in time as before. Under another order the rows
    of each new row group are sorted.
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


def _encoded(definition: LiveDefinition, rows: pa.Table) -> EncodedRowGroups:
    return encode(definition, merged(definition, [rows]))


def mark_superseded(disk: Disk, directory: str, txn: int) -> None:
    """Mark a directory that snapshots from ``txn`` on do not use."""
    with disk.writing(f"{directory}/{SUPERSEDED}", create=True) as descriptor:
        disk.write(descriptor, [f"by txn {txn}\n".encode()], 0)


def remove_superseded(
    disk: Disk, root: str, superseded: Sequence[str], *, older_than: float
) -> tuple[str, ...]:
    """Remove the directories that were marked ``older_than`` seconds ago; returns their names."""
    removed = []
    for name in superseded:
        mark = Path(root, name, SUPERSEDED)
        if not mark.exists():
            # The writer died between the commit and the mark, so the time counts from now.
            mark_superseded(disk, f"{root}/{name}", 0)
        if time.time() - mark.stat().st_mtime >= older_than:
            disk.remove(f"{root}/{name}", OWN_FILES)
            removed.append(name)
    return tuple(removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription(Report):
    """One partition; the snapshot does not use ``dead_bytes`` of the ``bytes`` of data.parquet.

    ``name`` is its directory without the number of its last compaction.
    """

    name: str
    directory: str
    rows: int
    row_groups: int
    bytes: int
    dead_bytes: int

    @property
    def live_bytes(self) -> int:
        """The bytes that compaction keeps."""
        return self.bytes - self.dead_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDescription(Report):
    """A snapshot. ``batch_id`` is the last committed one, ``None`` if there was none.

    ``superseded`` are directories of older snapshots that ``vacuum`` has not removed yet.
    """

    root: str
    txn: int
    batch_id: int | None
    partitions: tuple[PartitionDescription, ...]
    superseded: tuple[str, ...]

    computed = ("rows", "row_groups", "bytes", "dead_bytes")

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return sum(each.rows for each in self.partitions)

    @property
    def row_groups(self) -> int:
        """Row groups of all partitions."""
        return sum(each.row_groups for each in self.partitions)

    @property
    def bytes(self) -> int:
        """Bytes of all ``data.parquet``."""
        return sum(each.bytes for each in self.partitions)

    @property
    def dead_bytes(self) -> int:
        """The bytes of all ``data.parquet`` that the snapshot does not use."""
        return sum(each.dead_bytes for each in self.partitions)


def described(root: str, definition: LiveDefinition, txn: Txn) -> LiveDescription:
    """The description of the snapshot ``txn``; reads only one footer of each ``_pm``."""
    found = []
    for partition, name, count in zip(
        txn.partitions, named(txn, definition.partitioning), txn.row_counts, strict=True
    ):
        size = partition.parquet_file_size
        try:
            snapshot = snapshot_of(f"{root}/{name}", size)
        except FileNotFoundError as error:
            raise FormatError(
                f"_txn names the partition {name}, which has no {PM}", file=f"{root}/{TXN}"
            ) from error
        found.append(
            PartitionDescription(
                name=base_name(name),
                directory=name,
                rows=count,
                row_groups=snapshot.row_group_count,
                bytes=size,
                dead_bytes=snapshot.unused_bytes,
            )
        )
    return LiveDescription(
        root=root,
        txn=txn.txn,
        batch_id=None if txn.seq_txn == NO_BATCH else txn.seq_txn,
        partitions=tuple(found),
        superseded=unnamed(root, txn, definition.partitioning).superseded,
    )


log = logging.getLogger("skipstone")

#: seqTxn of a table without batches: Spark's first batch is 0.
NO_BATCH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The result of a call; if ``applied`` is False, it did nothing, and ``reason`` says why.

    ``txn`` is that of the table after the call. ``rows`` counts added rows. ``row_groups`` and
    ``bytes_written`` include old rows that late rows were merged with.
    """

    txn: int
    applied: bool
    rows: int = 0
    partitions: tuple[str, ...] = ()
    row_groups: int = 0
    bytes_written: int = 0
    reason: str | None = None


def already_committed(root: str, txn: Txn, batch_id: int | None) -> Commit | None:
    """The result for a batch that is committed already; ``None`` for a new one, or no batch."""
    if batch_id is None:
        return None
    given: object = batch_id
    if not isinstance(given, Integral) or not 0 <= batch_id < 1 << 63:
        raise SkipstoneError(f"batch_id={batch_id!r}", hint="a whole number from 0 to 2^63 - 1")
    if batch_id > txn.seq_txn:
        return None
    if batch_id < txn.seq_txn:
        # A stream repeats only its last batch.
        log.warning(
            "%s: batch %d is skipped, %d is committed; the ids of a new checkpoint begin"
            " with 0 again",
            root,
            batch_id,
            txn.seq_txn,
        )
    return Commit(
        txn=txn.txn,
        applied=False,
        reason=f"batch {batch_id} is not newer than {txn.seq_txn}, which is committed",
    )


def next_record(
    definition: LiveDefinition,
    txn: Txn,
    states: Mapping[int, PartitionState],
    *,
    batch_id: int | None = None,
    name_txn: int | None = None,
) -> Txn:
    """``txn`` with these partitions, by their timestamp, replaced or added.

    ``name_txn``: the number of their directories, if it is new.
    """
    entries = {
        partition.timestamp: replace(partition, row_count=count)
        for partition, count in zip(txn.partitions, txn.row_counts, strict=True)
    }
    for begin, state in states.items():
        old = entries[begin].name_txn if begin in entries else -1
        entries[begin] = Partition(
            timestamp=begin,
            row_count=state.rows,
            name_txn=old if name_txn is None else name_txn,
            parquet_file_size=state.size,
            parquet_format=True,
        )
    partitions = tuple([entries[begin] for begin in sorted(entries)])
    low, high = txn.min_timestamp, txn.max_timestamp
    if partitions and (first := states.get(partitions[0].timestamp)):
        low = txn_time(definition, min(first.lows))
    if partitions and (last := states.get(partitions[-1].timestamp)):
        high = txn_time(definition, max(last.highs))
    counts = [each.row_count for each in partitions]
    directories = [
        [(each.timestamp, each.name_txn) for each in of] for of in (partitions, txn.partitions)
    ]
    return replace(
        txn,
        txn=txn.txn + 1,
        seq_txn=txn.seq_txn if batch_id is None else batch_id,
        partitions=partitions,
        transient_row_count=counts[-1] if counts else 0,
        fixed_row_count=sum(counts[:-1]),
        min_timestamp=low if counts else NO_MIN,
        max_timestamp=high if counts else NO_MAX,
        partition_table_version=txn.partition_table_version + (directories[0] != directories[1]),
    )


def publish(disk: Disk, root: str, txn: Txn) -> None:
    """Write the record and its place durably, then the version durably: that is the commit."""
    path = f"{root}/{TXN}"
    record, place, version = commit(content(path), txn)
    with disk.writing(path) as descriptor:
        # The place is that of the record that is not current, so no reader uses either yet.
        disk.write(descriptor, [record.data], record.offset)
        disk.write(descriptor, [place.data], place.offset)
        disk.sync(descriptor)
        disk.write(descriptor, [version.data], version.offset)
        disk.sync(descriptor)
