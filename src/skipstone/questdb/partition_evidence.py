"""Evidence about the partitions of a table with a ``_txn``: their times, and their row groups.

``PartitionTimes``: every row of a partition lies at or after the partition's timestamp and before
the end of its unit, by the table's designated timestamp. A directory ``2024-01-05`` has the rows of
that day only. That holds for the whole file whatever is appended to it, and no file is opened for
it. The ``_pm`` of each partition names the designated timestamp: where it was renamed, a file may
have another column of that name.

``PartitionPms``: row groups of each partition, from the ``_pm`` next to its data file. A ``_pm``
holds several snapshots; only the one of the size in ``_txn`` is used, and only if its row count is
that of ``_txn``, and its designated timestamp lies within the partition: partitions of equal size
and row count are told apart by their times. A ``_pm`` that is missing, damaged or of another file
proves nothing, and gives the reason. Columns are found by their names in the data file, as its
readers do.
"""

from __future__ import annotations

import logging
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.identity import UNITS_PER_SECOND
from skipstone.parquet.format.enums import Type
from skipstone.predicate.literals import order_keys
from skipstone.pruning import Answer, BaseEvidence, Cause, Evidence, Fetched, Level, Reason, Units
from skipstone.pruning.evidence import Source
from skipstone.pruning.interval import Intervals, interval_bounds

from .evidence.opened_pm import OpenedPm, SnapshotCache
from .evidence.row_groups import PmSource
from .format.txn import Partitioning, unit_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.storage import Storage

    from .format.pm import PmSnapshot
    from .txn_snapshot import PartitionFile, TxnListing


_LOG = logging.getLogger("skipstone")

#: The most partitions whose row groups are split, and the most bytes of one ``_pm``.
_MOST_FILES: Final = 10_000
_LARGEST: Final = 256 << 20

IntArray: TypeAlias = "NDArray[np.int64]"


class OpenPartitions:
    """The ``_pm`` files of partitions, kept open between plans. A commit changes their key."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._opened = SnapshotCache(most=_MOST_FILES)

    def snapshot(self, file: PartitionFile) -> PmSnapshot:
        """The snapshot of the size in ``_txn``.

        ``FileNotFoundError`` if there is no ``_pm``, ``FormatError`` if it is damaged or of another
        file.
        """

        def load() -> bytes:
            size = self.storage.stat(file.pm).size or 0
            if size > _LARGEST:
                limit = f"at most {_LARGEST:,} bytes"
                raise FormatError("the size of a _pm", file=file.pm, expected=limit, got=size)
            return self.storage.read(file.pm)

        return self._opened.snapshot(
            (file.pm, file.id),
            load,
            parquet_size=file.size,
            file=file.pm,
            check=lambda snapshot: _compare(snapshot, file),
        )

    def designated(self, file: PartitionFile) -> str | None:
        """The name of the designated timestamp, ``None`` if its ``_pm`` does not name one."""
        try:
            pm = self.snapshot(file).pm
            return pm.name(pm.designated_timestamp) if pm.designated_timestamp >= 0 else None
        except (SkipstoneError, OSError, ValueError):
            return None


def _compare(snapshot: PmSnapshot, file: PartitionFile) -> None:
    """``FormatError`` where a snapshot has other rows or times than the partition can have."""
    rows, pm = int(snapshot.num_rows.sum()), snapshot.pm
    if rows != file.rows:
        raise FormatError("rows of a _pm", file=file.pm, expected=file.rows, got=rows)
    at = pm.designated_timestamp
    if file.end is None or not 0 <= at < pm.column_count:
        return
    if pm.descriptors[at]["PHYSICAL_TYPE"] != Type.INT64:
        return
    stats = snapshot.stats([at])
    (low, has_low), (high, has_high) = (stats.fixed(end, np.int64) for end in ("MIN", "MAX"))
    outside = (has_low & (low < file.timestamp)) | (has_high & (high >= file.end))
    outside = outside[:, 0] & (snapshot.num_rows > 0)
    if outside.any():
        group = int(np.argmax(outside))
        raise FormatError(
            f"the times of row group {group} of a _pm",
            file=file.pm,
            expected=f"{file.timestamp} to {file.end - 1}, those of the partition",
            got=f"{low[group, 0]} to {high[group, 0]}",
            hint="it is of another partition: remove it, and skipstone migrate makes a new one",
        )


@dataclass(slots=True, eq=False)
class PartitionPms(Source):
    """A source of the planner: row groups of the partitions of ``listing``; see the module.

    ``schema`` is the table's.
    """

    listing: TxnListing
    opened: OpenPartitions
    schema: pa.Schema
    level: Level = Level.ROW_GROUP
    #: a ``_pm`` is a small file next to the data
    limits_cost: ClassVar[bool] = True
    damaged: list[Reason] = field(default_factory=list)
    absent: int = 0
    _source: PmSource | None = None

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, IntArray]:
        """The row groups of files that no other source has split."""
        rows = self.listing.row_counts
        whole = np.flatnonzero(units.rows == rows[units.file])[:_MOST_FILES]
        files: dict[int, OpenedPm] = {}
        for at in units.file[whole].tolist():
            found = self._open(at)
            if found is not None:
                files[at] = found
        here = whole[np.isin(units.file[whole], list(files))]
        self._source = PmSource(files)
        parts, parent = self._source.split(units.where(here), columns)
        return parts, here[parent]

    def _open(self, at: int) -> OpenedPm | None:
        file = self.listing.files[at]
        try:
            snapshot = self.opened.snapshot(file)
            return OpenedPm.of(snapshot, path=file.path, schema=self.schema)
        except FileNotFoundError:
            self.absent += 1
        except (SkipstoneError, OSError, ValueError) as error:
            reason = Reason.of_error(f"_pm of {file.path}", error)
            if not self.damaged:
                _LOG.warning("the row groups of %s prove nothing: %s", file.path, reason.text)
            self.damaged.append(replace(reason, units=1))
        return None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why some partitions prove nothing."""
        if not self.absent:
            return tuple(self.damaged)
        text = "partitions that have none"
        lacking = Reason(cause=Cause.ABSENT, subject="_pm", text=text, units=self.absent)
        return (lacking, *self.damaged)

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """Bounds, null counts, Bloom filters."""
        return () if self._source is None else self._source.evidence(units, columns)


_INT64: Final = np.iinfo(np.int64)


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

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """Bounds per leaf; a silent answer if the column is not a timestamp in the predicate."""
        import pyarrow as pa

        found = []
        for leaf in leaves:
            if not pa.types.is_timestamp(leaf.type):
                text = f"the partitions are by a timestamp, the table has {leaf.type}"
                found.append(Answer.silent(Cause.UNSUPPORTED, self.subject, text))
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

        step = 10**9 // UNITS_PER_SECOND[type.unit]
        values = [None if time is None else time // step for time in times]
        held = [
            None if value is None or not _INT64.min <= value <= _INT64.max else value
            for value in values
        ]
        # A bound outside the range of the type does not count.
        return pa.array(held, pa.int64()).take(pa.array(units.file)).view(type)
