"""What a live table has, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["LiveDescription", "PartitionDescription"]


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
