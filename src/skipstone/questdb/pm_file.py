"""``PmFile``: a single ``_pm`` of QuestDB, as its users see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.human import Report, aligned, of_total, plural, size
from skipstone.identity import canonical_path
from skipstone.parquet.format.enums import Type
from skipstone.parquet.reading.file import ParquetFile
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Bound, leaves
from skipstone.predicate.types import column_path
from skipstone.pruning import Fetched, RowSet, Units
from skipstone.pruning.evaluation import evaluate
from skipstone.storage import ByteRange, open_storage

from .evidence.opened_pm import OpenedPm, open_pm
from .evidence.row_groups import PmSource
from .format.layout import COLUMN_DESCENDING
from .format.types import ColumnType, Tag, type_text
from .format.values import PmHead
from .txn_snapshot import DATA, PM, TxnSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.pruning.plan import Step


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowGroupSelection:
    """The answer of a ``_pm`` to a predicate: no row outside ``row_groups`` matches, and every row
    of ``certain`` does. ``rows`` are the rows of ``row_groups``; ``steps`` list the effect of each
    kind of metadata."""

    row_groups: tuple[int, ...]
    certain: tuple[int, ...]
    rows: RowSet
    row_group_count: int
    row_count: int
    steps: tuple[Step, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether all of ``rows`` match."""
        return self.certain == self.row_groups

    def __len__(self) -> int:
        return len(self.row_groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupPlace:
    """Where an instant lies: in ``row_group``, or (``boundary``) right after it; -1 is before all.

    ``encoded`` is QuestDB's own number of the answer: ``2 * (row_group + 1)``, and 1 more for a
    boundary, which needs no decoding.
    """

    row_group: int
    boundary: bool

    @property
    def encoded(self) -> int:
        """One number for both."""
        return 2 * (self.row_group + 1) + self.boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class PmDescription(Report):
    """What a snapshot holds. ``columns`` are (name, QuestDB's type); the names of sorting columns
    and of columns with Bloom filters follow in the order of the file."""

    path: str
    size: int
    parquet_size: int
    rows: int
    row_groups: int
    snapshots: int
    columns: tuple[tuple[str, str], ...]
    designated_timestamp: str | None
    sorting_columns: tuple[str, ...]
    bloom_columns: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.path or '_pm'}: {size(self.size)},"
            f" of a Parquet file of {size(self.parquet_size)}",
            f"{plural(self.rows, 'row')} in {plural(self.row_groups, 'row group')},"
            f" {plural(self.snapshots, 'snapshot')}",
            f"designated timestamp: {self.designated_timestamp or 'none'}",
            f"Bloom filters: {of_total(len(self.bloom_columns), len(self.columns), 'columns')}",
        ]
        return "\n".join([*lines, *(f"  {line}" for line in aligned(self.columns).splitlines())])


class PmFile:
    """The metadata of one Parquet partition of QuestDB, a ``_pm``: a file or bytes.

    >>> pm = skipstone.PmFile("trades/2026-03-10/_pm")  # of the data.parquet next to it
    >>> pm.select("price < 4.5").row_groups  # row groups that may match
    >>> pm.select("price < 4.5").certain  # of these, those whose rows all match
    >>> pm.find_row_group(datetime(2026, 3, 10, 13, 5))  # where a late row belongs
    >>> skipstone.PmFile.in_table("trades", "2026-03-10")  # the snapshot that _txn names

    A ``_pm`` holds one snapshot for each version of its Parquet file. The size of the Parquet file
    selects one: ``parquet_size``, or what the data file has now, or the newest where neither is
    known. The CRC is verified once. The data file is read only for its schema, for Bloom filters
    that lie in it, and for instants that have no statistics.

    A ``_pm`` does not keep Parquet's logical types. Columns answer where QuestDB's type is certain:
    all columns that QuestDB wrote, and of other files those whose type in ``schema`` (by default
    that of the data file) is the same.

    ``source`` is a path or bytes. ``data`` is the Parquet file, by default ``data.parquet`` in the
    directory of a file that is called ``_pm``, where there is one. ``parquet_size`` selects the
    snapshot, by default the size of ``data``. ``schema`` has the columns' Arrow types.

    ``FormatError`` for bytes that are not a ``_pm``, are damaged, or have no snapshot of that size;
    ``UnsupportedError`` for a newer version.
    """

    def __init__(
        self,
        source: str | Path | bytes | memoryview,
        *,
        data: str | Path | None = None,
        parquet_size: int | None = None,
        schema: pa.Schema | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._schema = schema
        self._options = storage_options
        self.bytes_read = 0
        self.path = ""
        #: the Parquet file, where it is known
        self.data: str | None = None if data is None else canonical_path(data)
        if isinstance(source, str | Path):
            self.path = canonical_path(source)
            storage = open_storage(self.path, storage_options)
            source = storage.read(self.path)
            folder, _, name = self.path.rpartition("/")
            if self.data is None and name == PM and storage.exists(f"{folder}/{DATA}"):
                self.data = f"{folder}/{DATA}"
        if parquet_size is None and self.data is not None:
            parquet_size = open_storage(self.data, storage_options).stat(self.data).size
        self.snapshot = open_pm(source, parquet_size=parquet_size, file=self.path or None)

    @classmethod
    def in_table(
        cls, root: str | Path, partition: str, *, storage_options: Mapping[str, str] | None = None
    ) -> PmFile:
        """The ``_pm`` of a partition of the table at ``root``, with the snapshot that the table's
        ``_txn`` names. ``partition`` is its directory, with or without ``.<name txn>``.

        ``LookupError`` for a partition that the table does not have in Parquet.
        """
        root = canonical_path(root)
        snapshot = TxnSnapshot.open(root, open_storage(root, storage_options), partial=True)
        for file in snapshot.files:
            if partition in (file.directory, file.directory.partition(".")[0]):
                return cls(
                    file.pm,
                    data=file.path,
                    parquet_size=file.size,
                    storage_options=storage_options,
                )
        raise LookupError(f"{partition!r} is not a Parquet partition of {root}")

    def __repr__(self) -> str:
        where = repr(self.path) if self.path else "bytes"
        return f"PmFile({where}, {self.row_group_count:,} row groups)"

    @property
    def size(self) -> int:
        """Bytes of the snapshot."""
        return self.snapshot.size

    @property
    def row_group_count(self) -> int:
        """Row groups of the snapshot."""
        return self.snapshot.row_group_count

    @property
    def row_count(self) -> int:
        """Rows of the data file."""
        return int(self._opened.row_starts[-1])

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, in their order."""
        return self.snapshot.pm.names

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that predicates can name, with their types."""
        if self._opened.schema is not None:
            return self._opened.schema
        fields = []
        for name in self._opened.columns:
            known = self._opened.stored(name)
            assert known is not None
            # A column whose type has no order has null counts, too.
            fields.append(pa.field(column_path(name)[0], known[1].type or pa.binary()))
        return pa.schema(fields)

    @cached_property
    def _opened(self) -> OpenedPm:
        schema = self._schema
        if schema is None and self.data is not None:
            try:
                data = ParquetFile(self.data, storage_options=self._options)
                schema = data.file_schema.spark
            except (SkipstoneError, OSError, ValueError):
                schema = None  # an append may be under way: the _pm has QuestDB's types itself
        return OpenedPm.of(self.snapshot, path=self.data or "", schema=schema)

    def describe(self) -> PmDescription:
        """The contents of the snapshot: ``str()`` for people, ``to_dict()`` for programs."""
        pm, head = self.snapshot.pm, PmHead.of(self.snapshot.pm)
        designated = pm.designated_timestamp
        return PmDescription(
            path=self.path,
            size=self.size,
            parquet_size=self.snapshot.parquet_size,
            rows=self.row_count,
            row_groups=self.row_group_count,
            snapshots=sum(1 for _ in pm.snapshots()),
            columns=tuple((each.name, type_text(each.type)) for each in head.columns),
            designated_timestamp=None if designated < 0 else pm.name(designated),
            sorting_columns=tuple(map(pm.name, pm.sorting_columns)),
            bloom_columns=tuple(map(pm.name, pm.bloom_columns)),
        )

    def select(self, where: str | Bound, *, time_zone: str = "UTC") -> RowGroupSelection:
        """The row groups that may match ``where``: SQL text, or a bound tree. ``time_zone`` is that
        of timestamps in the text that name none.

        Damaged statistics prove nothing: their step says why. ``PredicateError`` for text that is
        not a predicate or names a column that is not in ``schema``.
        """
        tree = where
        if isinstance(where, str):
            tree = bind(parse_sql(where), self.schema, session_zone=time_zone, text=where)
        assert not isinstance(tree, str)
        columns = frozenset(leaf.column for leaf in leaves(tree))
        source = PmSource({0: self._opened})
        whole = Units.objects(np.zeros(1, np.int64), np.array([self.row_count]))
        units, _ = source.split(whole, columns)
        found = evaluate(tree, source.evidence(units, columns), units, fetch=self.fetch)
        may, must = found.bounds.may, found.bounds.must & found.bounds.may
        starts = self._opened.row_starts
        return RowGroupSelection(
            row_groups=tuple(np.flatnonzero(may).tolist()),
            certain=tuple(np.flatnonzero(must).tolist()),
            rows=RowSet(starts[:-1][may], starts[1:][may]),
            row_group_count=self.row_group_count,
            row_count=self.row_count,
            steps=found.steps,
        )

    def count(self, where: str | Bound, *, time_zone: str = "UTC") -> int | None:
        """How many rows match, where the row groups decide exactly; else ``None``."""
        found = self.select(where, time_zone=time_zone)
        return len(found.rows) if found.exact else None

    def find_row_group(
        self,
        timestamp: int | datetime,
        row_lo: int = 0,
        row_hi: int | None = None,
        *,
        column: int | None = None,
    ) -> RowGroupPlace:
        """The row group of an instant, as QuestDB's merge of late rows looks it up.

        ``timestamp`` is a ``datetime`` (UTC unless it has a zone) or a number in the column's own
        unit. ``row_lo`` and ``row_hi``, both inclusive, limit the rows of the search; ``None`` is
        the last one. ``column`` is a position, by default the designated timestamp.

        Row groups ascend in time and may touch at one instant. Empty ones are skipped, and so are
        those that end before ``row_lo``. The first that begins after ``row_hi + 1`` ends the
        search: one that begins at ``row_hi + 1`` is still considered. The first row group whose
        last instant is after ``timestamp`` decides: the row belongs into it, or right before it if
        its first instant is after ``timestamp``, too. An instant that equals a row group's last one
        belongs to the next row group, so that equal ones keep their order.

        First and last instant are the statistics, or read from the data file where these are
        absent. ``FormatError`` where there is neither; ``UnsupportedError`` for a column that is
        not INT64 or that descends.
        """
        pm = self.snapshot.pm
        at = pm.designated_timestamp if column is None else column
        if not 0 <= at < pm.column_count:
            raise UnsupportedError("no designated timestamp", hint="name a column by its position")
        described = pm.descriptors[at]
        if described["PHYSICAL_TYPE"] != Type.INT64 or described["FLAGS"] & COLUMN_DESCENDING:
            raise UnsupportedError(f"column {at} is not an ascending timestamp of 64 bits")
        if isinstance(timestamp, datetime):
            timestamp = _in_unit_of(timestamp, int(described["TYPE"]))
        stats = self.snapshot.stats([at])
        (low, has_low), (high, has_high) = (stats.fixed(end, np.int64) for end in ("MIN", "MAX"))
        starts = self._opened.row_starts
        for group in np.flatnonzero(self._opened.rows).tolist():
            if row_hi is not None and starts[group] > row_hi + 1:
                break
            if starts[group + 1] <= row_lo:
                continue
            if has_low[group, 0] and has_high[group, 0]:
                first, last = int(low[group, 0]), int(high[group, 0])
            else:
                first, last = self._ends(at, group)
            if timestamp < first:
                return RowGroupPlace(row_group=group - 1, boundary=True)
            if timestamp < last:
                return RowGroupPlace(row_group=group, boundary=False)
        return RowGroupPlace(row_group=self.row_group_count - 1, boundary=True)

    def _ends(self, column: int, group: int) -> tuple[int, int]:
        """The first and the last value of a row group, from its data."""
        if self.data is None:
            raise FormatError(
                f"row group {group} has no bounds of the timestamp",
                file=self.path or None,
                expected="MIN_STAT and MAX_STAT, or the data file",
            )
        name = self.snapshot.pm.name(column)
        file = ParquetFile(
            self.data, size=self.snapshot.parquet_size, storage_options=self._options
        )
        first, stop = self._opened.row_starts[group : group + 2].tolist()
        rows = [(first, first + 1), (stop - 1, stop)] if stop > first + 1 else [(first, stop)]
        values = file.read_rows([name], rows).column(0).cast(pa.int64())
        self.bytes_read += file.bytes_read
        return values[0].as_py(), values[-1].as_py()

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Bytes of the data file: blocks of Bloom filters; none where it is not known."""
        if self.data is None:
            return {}
        found: dict[ByteRange, Any] = dict(
            open_storage(self.data, self._options).read_ranges(ranges)
        )
        self.bytes_read += sum(each.length for each in found)
        return found


def _in_unit_of(instant: datetime, code: int) -> int:
    """An instant in the unit of a column of this type code."""
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    type = ColumnType.of(code)
    micros = (aware - _EPOCH) // timedelta(microseconds=1)
    if type is not None and type.tag is Tag.DATE:
        return micros // 1_000
    return micros * 1_000 if type is not None and type.nanos else micros
