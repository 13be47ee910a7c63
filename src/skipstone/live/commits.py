"""The next record of ``_txn``, and its commit."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skipstone.errors import SkipstoneError
from skipstone.questdb.format.txn import NO_MAX, NO_MIN, Partition, Txn, commit
from skipstone.questdb.txn_snapshot import TXN

from .rows import txn_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .definition import LiveDefinition
    from .disk import Disk
    from .partition import PartitionState

__all__ = ["NO_BATCH", "Commit", "already_committed", "next_record", "publish"]

log = logging.getLogger("skipstone")

#: seqTxn of a table without batches: Spark's first batch is 0.
NO_BATCH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What a call did; if ``applied`` is False, it did nothing, and ``reason`` says why.

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
    for time, state in states.items():
        old = entries[time].name_txn if time in entries else -1
        entries[time] = Partition(
            timestamp=time,
            row_count=state.rows,
            name_txn=old if name_txn is None else name_txn,
            parquet_file_size=state.size,
            parquet_format=True,
        )
    partitions = tuple([entries[time] for time in sorted(entries)])
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
    record, place, version = commit(Path(path).read_bytes(), txn)
    with disk.writing(path) as descriptor:
        # The place is that of the record that is not current, so no reader looks at either yet.
        disk.write(descriptor, [record.data], record.offset)
        disk.write(descriptor, [place.data], place.offset)
        disk.sync(descriptor)
        disk.write(descriptor, [version.data], version.offset)
        disk.sync(descriptor)
