"""What a live table has, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .commits import NO_BATCH
from .directories import base_name, named, unnamed
from .partition import snapshot_of

if TYPE_CHECKING:
    from skipstone.questdb.format.txn import Txn

    from .definition import LiveDefinition

__all__ = ["LiveDescription", "PartitionDescription", "described"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition; ``dead_bytes`` of the ``bytes`` of data.parquet belong to no snapshot's rows.

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
        """What a compaction would keep."""
        return self.bytes - self.dead_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDescription:
    """A snapshot. ``batch_id`` is the last one committed, ``None`` where there was none.

    ``superseded`` are directories of older snapshots that ``vacuum`` has not removed yet.
    """

    root: str
    txn: int
    batch_id: int | None
    partitions: tuple[PartitionDescription, ...]
    superseded: tuple[str, ...]

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
        """Those of them that no snapshot of now reads."""
        return sum(each.dead_bytes for each in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        totals = {
            "rows": self.rows,
            "row_groups": self.row_groups,
            "bytes": self.bytes,
            "dead_bytes": self.dead_bytes,
        }
        return {**asdict(self), **totals}


def described(root: str, definition: LiveDefinition, txn: Txn) -> LiveDescription:
    """Of the snapshot ``txn``: a footer of each ``_pm`` is read, and nothing else."""
    found = []
    for partition, name, count in zip(
        txn.partitions, named(txn, definition.partitioning), txn.row_counts, strict=True
    ):
        size = partition.parquet_file_size
        snapshot = snapshot_of(f"{root}/{name}", size)
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
