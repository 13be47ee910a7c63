"""When the rows of a partition are, as evidence: a directory ``2024-01-05`` has that day's only.

Every row of a partition lies at or after the partition's timestamp and before the end of its unit,
by the table's designated timestamp. That holds of the whole file whatever is appended to it, and
no file is opened for it. Which column the designated timestamp is, the partition's metadata say,
file by file: where it was renamed, a file may have another column of that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from skipstone.predicate.literals import order_keys
from skipstone.pruning import Answer, BaseEvidence, Cause, Fetched, Level, Units
from skipstone.pruning.interval import Intervals, interval_bounds

from .format.partition_names import unit_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from skipstone.predicate.tree import Leaf
    from skipstone.storage import ByteRange

    from .format.partition_names import Partitioning

__all__ = ["PartitionTimes"]

_INT64: Final = np.iinfo(np.int64)
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PartitionTimes(BaseEvidence):
    """Evidence for the designated timestamp ``column``; see the module.

    ``first`` and ``last`` are nanoseconds since the epoch per file of the listing, both inclusive
    and of any size; ``None`` where nothing is known, as for a file that has another column for it.
    """

    column: str
    first: Sequence[int | None]
    last: Sequence[int | None]

    name: ClassVar[str] = "partition"
    level: ClassVar[Level] = Level.OBJECT
    cost: ClassVar[float] = 0.1

    @classmethod
    def of(
        cls,
        column: str,
        timestamps: Sequence[int],
        partitioning: Partitioning,
        designated: Sequence[str | None],
    ) -> PartitionTimes:
        """From the partitions' timestamps and each one's designated timestamp, by its name."""
        scale = 1 if partitioning.nanos else 1000
        first: list[int | None] = []
        last: list[int | None] = []
        for timestamp, name in zip(timestamps, designated, strict=True):
            end = unit_end(timestamp, partitioning) if name == column else None
            known = end is not None and timestamp < end
            first.append(timestamp * scale if known else None)
            last.append(end * scale - 1 if end is not None and known else None)
        return cls(column=column, first=first, last=last)

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """Nothing: it is all in the table's ``_txn``."""
        return ()

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """Bounds per leaf, or silence where the column is no timestamp to who asks."""
        import pyarrow as pa

        found = []
        for leaf in leaves:
            if not pa.types.is_timestamp(leaf.type):
                text = f"the partitions are by a timestamp, the table says {leaf.type}"
                subject = f"partition({self.column})"
                found.append(Answer.silent(Cause.UNSUPPORTED, subject, text))
                continue
            intervals = Intervals(
                type=leaf.type,
                lo=order_keys(self._array(self.first, units, leaf.type), leaf.type),
                hi=order_keys(self._array(self.last, units, leaf.type), leaf.type),
                rows=units.rows,
                nulls=np.full(len(units.file), -1, np.int64),
            )
            found.append(Answer(bounds=interval_bounds(leaf, intervals)))
        return found

    def _array(self, times: Sequence[int | None], units: Units, type: pa.DataType) -> pa.Array:
        """``times`` of these units in the unit of ``type``, rounded down as readers do."""
        import pyarrow as pa

        step = 10**9 // _PER_SECOND[type.unit]
        values = [None if time is None else time // step for time in times]
        held = [
            None if value is None or not _INT64.min <= value <= _INT64.max else value
            for value in values
        ]
        # A bound beyond what the type can say is no bound.
        return pa.array(held, pa.int64()).take(pa.array(units.file)).view(type)
