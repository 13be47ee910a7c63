"""The snapshot of a table of a table format: all that a plan gets from the format's library.

A ``SnapshotSource`` is a format. It returns a ``TableSnapshot`` with everything that the format
knows about its data files: paths and sizes, partition values, the schema of the table, statistics
and deleted rows. Data files never change, so facts about them hold in every snapshot that has them.

The storage is listed too, once for a snapshot, for the identities that facts and readers compare
(``identity.py``): the times of a log are not those of the storage, and a log has no etags. A file
that is gone from the storage was vacuumed, and is an error before anything is planned. If a file
goes later, its read fails, and the storage is listed again (``SnapshotTable.forget``).

**Statistics** are evidence like facts (``FormatStatistics``). They count stored rows, those that
are deleted among them: bounds of more rows are still bounds of the rows that are left.

**Deleted rows** are row sets by file. ``Plan.without_rows`` takes them out of a plan, so every
reader of the plan leaves them out, and no count comes from a row count that includes them. Those
that take a read to find (``LazyRows``) are found for the files that a plan keeps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from skipstone._arrays import numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, StaleError, UnsupportedError
from skipstone.human import of_total, plural
from skipstone.planning.table_facts import SnapshotFacts
from skipstone.predicate.literals import order_keys
from skipstone.predicate.tree import leaves
from skipstone.predicate.types import is_list, spark_type
from skipstone.pruning import Answer, BaseEvidence, Cause, Fetched, Level, Reason, Units
from skipstone.pruning.interval import Intervals, interval_bounds
from skipstone.pruning.table_schema import FileSchema, TableSchema, merge_schemas
from skipstone.storage import Listing, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.identity import ObjectId
    from skipstone.paimon.adjacent_index import AdjacentIndexes, AdjacentRows
    from skipstone.predicate.naming import Namings
    from skipstone.predicate.tree import Bound, Leaf
    from skipstone.pruning import RowSet


class FileStatistics(ABC):
    """What a format knows of the values in its files; each column is read once."""

    def __init__(self) -> None:
        self._read: dict[str, Intervals | None] = {}

    def __call__(self, column: str) -> Intervals | None:
        """See ``read``."""
        if column not in self._read:
            self._read[column] = self.read(column)
        return self._read[column]

    @abstractmethod
    def read(self, column: str) -> Intervals | None:
        """The bounds and counts of a column over the files, ``None`` where there are none."""


class LazyRows(Mapping[int, "RowSet"]):
    """Deleted rows by file. ``find`` gives those of some of ``files``, which are all that may have
    some, ascending; each file is asked for once."""

    def __init__(
        self, files: NDArray[np.int64], find: Callable[[Sequence[int]], Mapping[int, RowSet]]
    ) -> None:
        self.files, self._find, self._lock = files, find, Lock()
        self._known: dict[int, RowSet] = {}
        self._asked = np.zeros(len(files), np.bool_)

    @property
    def pending(self) -> int:
        """How many files were not asked for yet."""
        return int(np.count_nonzero(~self._asked))

    def among(self, keep: NDArray[np.bool_] | None = None) -> Mapping[int, RowSet]:
        """The deleted rows of the files that ``keep`` marks, or of all."""
        wanted = np.ones(len(self.files), np.bool_) if keep is None else keep[self.files]
        with self._lock:
            fresh = np.flatnonzero(wanted & ~self._asked)
            if len(fresh):
                self._known |= self._find(self.files[fresh].tolist())
                self._asked[fresh] = True
            chosen = self.files[wanted].tolist()
            return {at: self._known[at] for at in chosen if at in self._known}

    def __getitem__(self, file: int) -> RowSet:
        if self.pending:
            self.among()
        return self._known[file]

    def __iter__(self) -> Iterator[int]:
        return iter(self.among())

    def __len__(self) -> int:
        return len(self.among())


@dataclass(frozen=True, slots=True)
class Connector:
    """How the format's own connector for Spark reads a snapshot, and no other one."""

    name: str
    path: str
    options: Mapping[str, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class TableSnapshot:
    """One version of a table, as its format has it. Arrays are over the files, sorted by path.

    - ``format``, ``version``: for people; ``reopened``: the version by which a source has the same
      rows in the same columns again: columns may change without a snapshot;
    - ``paths``, ``sizes``: the data files, by canonical path; ``row_counts``: their stored rows,
      deleted ones among them, -1 where unknown;
    - ``schema``: the columns of the table in canonical types, partition columns in their places;
    - ``partitions``: the values of the partition columns, in the types of ``schema``;
    - ``statistics``: the bounds and counts of a column;
    - ``deleted``: the deleted rows by file, of files that have some;
    - ``committed``: when the version was made, ``None`` where the log does not say;
    - ``names``: the names of the columns in the files, ``None`` where all have those of ``schema``;
    - ``former``: the columns by names that they once had, and that no column has now;
    - ``defaults``: the values of columns in the files that lack them, where these are not null;
    - ``containers``, ``sidecars``: Paimon's file indexes by the path of their data file, the bytes
      of those in the metadata, and the paths of the others;
    - ``connector``: of Spark, ``None`` where none is known.
    """

    format: str
    version: str
    reopened: str
    paths: list[str]
    sizes: NDArray[np.int64]
    row_counts: NDArray[np.int64]
    schema: pa.Schema
    partitions: Mapping[str, pa.Array]
    statistics: FileStatistics
    deleted: Mapping[int, RowSet]
    committed: Callable[[], datetime | None]
    names: Namings | None = None
    former: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, pa.Scalar] = field(default_factory=dict)
    containers: Mapping[str, bytes] = field(default_factory=dict)
    sidecars: Mapping[str, str] = field(default_factory=dict)
    connector: Connector | None = None

    def __str__(self) -> str:
        return f"{self.format}, version {self.version}"

    @cached_property
    def table_schema(self) -> TableSchema:
        """The schema of the table, for which no file is opened."""
        merged = merge_schemas([("", FileSchema.canonical(self.schema))])
        total = len(self.paths)
        return TableSchema(merged=merged, distinct=1, files_total=total, said_by=str(self))

    @cached_property
    def of_files(self) -> pa.Schema:
        """The columns in the files: all but the partition columns."""
        schema = self.table_schema.merged.spark
        for name in self.partitions:
            schema = schema.remove(schema.get_field_index(name))
        return schema

    @property
    def notes(self) -> list[str]:
        """The notes of ``describe``: version, time and deleted rows."""
        made = self.committed()
        found = [f"{self}" if made is None else f"{self}, of {made:%Y-%m-%d %H:%M:%S} UTC"]
        return found + self._of_deleted

    @property
    def _of_deleted(self) -> list[str]:
        """A note on deleted rows, if there are or may be some."""
        if isinstance(self.deleted, LazyRows) and self.deleted.pending:
            files = of_total(len(self.deleted.files), len(self.paths), "files")
            return [f"deleted rows may be in {files}, and are found when a file is read"]
        return self._of_known

    @cached_property
    def _of_known(self) -> list[str]:
        if not self.deleted:
            return []
        rows = sum(map(len, self.deleted.values()))
        files = of_total(len(self.deleted), len(self.paths), "files")
        return [f"{plural(rows, 'deleted row')} in {files} left out"]

    def deleted_among(self, keep: NDArray[np.bool_]) -> Mapping[int, RowSet]:
        """The deleted rows of the files that ``keep`` marks."""
        if isinstance(self.deleted, LazyRows):
            return self.deleted.among(keep)
        return {
            at: self.deleted[at] for at in self._with_deleted[keep[self._with_deleted]].tolist()
        }

    @cached_property
    def _with_deleted(self) -> NDArray[np.int64]:
        return np.fromiter(self.deleted, np.int64, len(self.deleted))

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons of ``explain``: deleted rows."""
        cause = Cause.NOT_APPLICABLE
        said = self._of_deleted
        return tuple(Reason(cause=cause, subject=str(self), text=text) for text in said)


_NO_FILES = Listing.of("", ())


class SnapshotSource(Protocol):
    """A table of a format, opened by the format's library."""

    @property
    def format(self) -> str:
        """The name of the format."""

    @property
    def pinned(self) -> bool:
        """Whether a version or a time was named."""

    def snapshot(self) -> TableSnapshot:
        """The newest snapshot, or the one that was named; the same object while it is the same."""


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """A ``SnapshotSource`` of one snapshot."""

    kept: TableSnapshot
    pinned: ClassVar[bool] = True

    @property
    def format(self) -> str:
        return self.kept.format

    def snapshot(self) -> TableSnapshot:
        return self.kept


@dataclass(frozen=True, eq=False, kw_only=True)
class SnapshotListing(Listing):
    """The data files of a snapshot, in its order, with the identities that the storage has.
    ``sidecars`` are those of Paimon's file indexes, by the path of the data file."""

    snapshot: TableSnapshot
    sidecars: Mapping[str, ObjectId]

    @property
    def has_indexes(self) -> bool:
        """Whether Paimon's file indexes are in the metadata or next to the files."""
        return bool(self.sidecars or self.snapshot.containers)

    def indexes(
        self, opener: AdjacentIndexes, columns: Iterable[str], given: Mapping[str, bytes]
    ) -> AdjacentRows | None:
        """The evidence of these file indexes, and of the containers that the caller has."""
        containers = {**self.snapshot.containers, **given}
        if not containers and not self.sidecars:
            return None
        return opener.rows_of(self, columns, containers, sidecars=self.sidecars)


class SnapshotTable:
    """A table of a table format at ``root``."""

    def __init__(self, root: str, storage: Storage, source: SnapshotSource) -> None:
        self.root, self.storage, self.source = root, storage, source
        self._last: SnapshotListing | None = None

    @property
    def pinned(self) -> bool:
        """Whether a version or a time was named."""
        return self.source.pinned

    def kept(self) -> SnapshotTable:
        """The table at the snapshot of now."""
        return SnapshotTable(self.root, self.storage, _Kept(self.source.snapshot()))

    def listing(self, stored: Listing | None = None) -> SnapshotListing:
        """The files of the snapshot. ``stored`` are all files below the root, where the caller has
        them.

        Where a file is gone, ``SkipstoneError`` for a version that was named, and ``StaleError``
        for the newest, which may have been replaced meanwhile.
        """
        snapshot, last = self.source.snapshot(), self._last
        if last is None or last.snapshot is not snapshot:
            if stored is None:
                stored = self.storage.list_files(self.root) if snapshot.paths else _NO_FILES
            last = self._last = self._matched(snapshot, stored)
        return last

    def forget(self) -> None:
        """Makes the next listing read the storage."""
        self._last = None

    def _matched(self, snapshot: TableSnapshot, stored: Listing) -> SnapshotListing:
        below = f"{self.root.rstrip('/')}/"
        outside = [path for path in snapshot.paths if not path.startswith(below)]
        if outside:
            count = of_total(len(outside), len(snapshot.paths), "files")
            raise UnsupportedError(
                f"{self.root}: {count} of {snapshot} lie elsewhere, such as {outside[0]}",
                hint="a clone has the files of another table, and a moved table those of its old"
                " place",
            )
        place = dict(zip(stored.paths, range(len(stored)), strict=True))
        at = [place.get(path, -1) for path in snapshot.paths]
        if -1 in at:
            # A folder whose name hides it from Spark may have files of a snapshot, such as Hudi's
            # folder of a null (``__HIVE_DEFAULT_PARTITION__``).
            stored = self.storage.list_all(self.root)
            place = dict(zip(stored.paths, range(len(stored)), strict=True))
            at = [place.get(path, -1) for path in snapshot.paths]
        gone = [path for path, found in zip(snapshot.paths, at, strict=True) if found < 0]
        if gone:
            count = of_total(len(gone), len(snapshot.paths), "files")
            state, hint = "gone", "a vacuum removes the files of old versions: open a newer version"
            if any(pa.types.is_floating(each.type) for each in snapshot.partitions.values()):
                state = "not there"
                hint += (
                    "; or the writer spells floats in folders in another way, as Infinity for inf:"
                    f" then read it through {snapshot.format}"
                )
            raise (SkipstoneError if self.pinned else StaleError)(
                f"{self.root}: {count} of {snapshot} are {state}, such as {gone[0]}", hint=hint
            )
        chosen = stored.where(np.array(at, np.int64))
        other = np.flatnonzero(chosen.sizes != snapshot.sizes)
        if len(other):
            one = int(other[0])
            raise SkipstoneError(
                f"{snapshot.paths[one]} has {chosen.sizes[one]:,} bytes, and {snapshot} says "
                f"{snapshot.sizes[one]:,}",
                hint="data files of a table format never change: the file was replaced",
            )
        return SnapshotListing(
            root=self.root,
            paths=chosen.paths,
            sizes=chosen.sizes,
            mtimes=chosen.mtimes,
            unit=chosen.unit,
            etags=chosen.etags,
            folder_values=snapshot.partitions,
            snapshot=snapshot,
            sidecars={
                path: stored.object_id(place[index])
                for path, index in snapshot.sidecars.items()
                if index in place
            },
        )


def known_time(made: datetime | None) -> Callable[[], datetime | None]:
    """``TableSnapshot.committed`` where the time is known already; it can be pickled."""
    return partial(_same, made)


def _same(made: datetime | None) -> datetime | None:
    return made


def canonical_type(type: pa.DataType) -> pa.DataType:
    """The type in which plans have a column, at any depth."""
    if pa.types.is_struct(type):
        return pa.struct([pa.field(each.name, canonical_type(each.type)) for each in type])
    if is_list(type):
        return pa.list_(pa.field("element", canonical_type(type.value_type)))
    if pa.types.is_map(type):
        return pa.map_(canonical_type(type.key_type), canonical_type(type.item_type))
    return spark_type(type) or type


def canonical_schema(root: str, schema: pa.Schema) -> pa.Schema:
    """The columns of the table at ``root`` in canonical types."""
    for each in schema:
        if "[ns" in str(each.type):
            raise UnsupportedError(f"{root}: {each.name!r} has nanoseconds: not read here")
    return pa.schema([pa.field(each.name, canonical_type(each.type)) for each in schema])


#: the most microseconds that writers lose by cutting timestamps to milliseconds
_CUT = 1_000


def outer_bounds(
    low: pa.Array, high: pa.Array, rows: NDArray[np.int64], nulls: NDArray[np.int64]
) -> Intervals:
    """Turns the bounds of writers into bounds of all values. Bounds of timestamps are moved
    outwards, because they may be cut. Upper bounds of floats are left out, because they may not
    count NaN."""
    type = low.type
    if pa.types.is_timestamp(type):
        low, high = _moved(low, -_CUT), _moved(high, _CUT)
    if pa.types.is_floating(type):
        high = pa.nulls(len(high), type)
    lo, hi = order_keys(low, type), order_keys(high, type)
    return Intervals.checked(type=type, lo=lo, hi=hi, rows=rows, nulls=nulls)


def _moved(values: pa.Array, by: int) -> pa.Array:
    limits = np.iinfo(np.int64)
    known = numbers(values.cast(pa.int64()), 0)
    moved = np.clip(known, limits.min + _CUT, limits.max - _CUT) + by
    return pa.array(moved, mask=~np.asarray(values.is_valid())).cast(values.type)


def instant(timestamp: str | datetime) -> datetime:
    """The time as an instant; a time without a zone is in UTC."""
    try:
        found = timestamp if isinstance(timestamp, datetime) else datetime.fromisoformat(timestamp)
    except (ValueError, TypeError):
        raise SkipstoneError(
            f"{timestamp!r} is not a time", hint="write 2026-01-31 12:00:00, or with +02:00"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def names_of(listing: Listing) -> Namings | None:
    """The names of columns in the files of ``listing``; ``None`` where they are the table's."""
    return listing.snapshot.names if isinstance(listing, SnapshotListing) else None


def facts_of(listing: Listing, tree: Bound) -> SnapshotFacts:
    """What a plan for ``tree`` gets from the snapshot of ``listing``, if it has one."""
    if not isinstance(listing, SnapshotListing):
        return SnapshotFacts()
    snapshot, evidence = listing.snapshot, []
    for column in dict.fromkeys(leaf.column for leaf in leaves(tree)):
        known = None if column in snapshot.partitions else snapshot.statistics(column)
        if known is not None:
            evidence.append(FormatStatistics(snapshot.format, column, known))
    return SnapshotFacts(
        row_counts=snapshot.row_counts, evidence=evidence, deleted=snapshot.deleted_among
    )


class FormatStatistics(BaseEvidence):
    """The statistics that a format has of one column, as evidence."""

    level: ClassVar[Level] = Level.OBJECT
    cost: ClassVar[float] = 0.2

    def __init__(self, name: str, column: str, known: Intervals) -> None:
        self.name, self.column, self.known = name, column, known

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """Bounds per leaf, for leaves of the column's type."""
        known = self.known.where(units.file)
        found = []
        for leaf in leaves:
            if not leaf.type.equals(known.type):
                text = f"it has {known.type}, and the table {leaf.type}"
                reason = Reason(cause=Cause.UNSUPPORTED, subject=self.subject, text=text)
                found.append(Answer(bounds=None, reasons=(reason,)))
                continue
            bounds = interval_bounds(leaf, known)
            found.append(self.silent(leaf) if bounds is None else Answer(bounds=bounds))
        return found
