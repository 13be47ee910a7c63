"""Aggregates from the indexes: how many rows match, the least and greatest value, the first rows.

Where a file's facts do not decide the result, its pages that may hold matches are read. ``extreme``
takes the value of a file from ``minmax`` where all of its rows match and the bounds are exact; in
the other files it finds the row that ORDER BY with LIMIT 1 returns. Nulls do not count; NaN is the
greatest value.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial
from operator import index as whole
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._arrays import arrow
from skipstone._dataclasses import dataclass
from skipstone.errors import PredicateError, UnsupportedError
from skipstone.facts.renamed import under
from skipstone.human import of_total, plural
from skipstone.predicate.literals import from_key, order_keys, stored
from skipstone.predicate.types import column_name, decimal_text
from skipstone.pruning.column_types import is_text
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.plan import Plan, SortKey
from skipstone.table_formats.snapshot import names_of

from .open_table import OpenTable, Where
from .planning import PlanRequest, of_one_listing
from .sort_keys import orders_of, sort_column

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime, timedelta

    from numpy.typing import NDArray

    from skipstone.execution.table_scan import TableScan
    from skipstone.facts import Snapshot
    from skipstone.paimon.adjacent_index import AdjacentRows
    from skipstone.paimon.kinds import RangeBitmap
    from skipstone.paimon.top_rows import TopCandidate
    from skipstone.pruning import Fetched, Reason, RowSet
    from skipstone.pruning.interval import Intervals
    from skipstone.pruning.plan import Coverage
    from skipstone.storage import ByteRange

    from .key_sets import KeySets


#: a value of a column, as pyarrow gives it; ``None`` for null
ColumnValue: TypeAlias = (
    "bool | int | float | str | bytes | Decimal | date | datetime | timedelta | None"
)


class Partial(int):
    """A row count over some partitions only; its text has the coverage."""

    coverage: Coverage

    def __new__(cls, value: int, coverage: Coverage) -> Partial:
        made = super().__new__(cls, value)
        made.coverage = coverage
        return made

    def __repr__(self) -> str:
        return f"{int(self)} (of {self.coverage})"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return (Partial, (int(self), self.coverage))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FirstRows:
    """The first rows of an order: ``rows`` by path, ``None`` for all rows of a file. With ``exact``
    these are the rows; else the rows are among these, and a reader sorts them and takes ``limit``.
    ``files_asked`` of ``files_total`` files gave rows from their index, ``files_passed`` were
    skipped by their bounds, and the rest must be read.
    """

    rows: dict[str, RowSet | None]
    exact: bool
    limit: int
    files_asked: int
    files_passed: int
    files_total: int
    reasons: tuple[Reason, ...] = ()

    def __len__(self) -> int:
        """Rows, without those of whole files."""
        return sum(len(rows) for rows in self.rows.values() if rows is not None)

    def __str__(self) -> str:
        files = of_total(len(self.rows), self.files_total, "files")
        verb = "the first rows" if self.exact else "the first rows are among these"
        whole = sum(rows is None for rows in self.rows.values())
        count = f"{len(self):,} rows" if len(self) or not whole else "rows"
        more = f" and all of {plural(whole, 'file')}" if whole and len(self) else ""
        lines = [f"{verb}: {count}{more} in {files}"]
        lines += [
            f"  {path}: {'all rows' if rows is None else f'{len(rows):,} rows'}"
            for path, rows in self.rows.items()
        ]
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values; a range of rows is [first, last], ``None`` is all rows."""
        return {
            "exact": self.exact,
            "limit": self.limit,
            "files": {
                "asked": self.files_asked,
                "passed": self.files_passed,
                "total": self.files_total,
            },
            "rows": {path: _ranges(rows) for path, rows in self.rows.items()},
            "reasons": [str(reason) for reason in self.reasons],
        }


def _ranges(rows: RowSet | None) -> list[list[int]] | None:
    if rows is None:
        return None
    starts, stops = rows.ranges()
    found: list[list[int]] = np.stack([starts, stops - 1], axis=1).tolist()
    return found


class AggregateVerbs(OpenTable):
    """The verbs that answer from the indexes; see ``Table``."""

    def count(
        self, where: Where = None, *, keys: KeySets | None = None, time_zone: str = "UTC"
    ) -> int:
        """How many rows match ``where``: from the indexes, where they prove it exactly.

        >>> table.count("ts >= '2026-01-01'")

        In other files the pages that may hold matches are read; Parquet tables only. ``keys`` as
        for ``query``. ``explain(where, columns=[])`` shows the plan.
        """
        request = PlanRequest(where=where, columns=(), keys=keys, time_zone=time_zone, shown=False)
        return of_one_listing(self, request, self._counted)

    def _counted(self, scan: TableScan) -> int:
        plan = scan.plan
        if scan.query is None and plan.count() is None:
            raise UnsupportedError(
                f"{self.path} must be read to count, which needs Spark",
                hint="count with Table.read(spark, where).count()",
            )
        count = scan.count()
        return count if plan.coverage is None else Partial(count, plan.coverage)

    def min(
        self,
        column: str,
        where: Where = None,
        *,
        keys: KeySets | None = None,
        time_zone: str = "UTC",
    ) -> ColumnValue:
        """The least value of ``column`` among the rows that match; ``None`` where there is none.

        >>> table.min("ts", "user_id = 'u-8814'")

        From ``minmax`` where its bound is exact; in other files the pages that may hold the value
        are read.
        """
        request = PlanRequest(where=where, keys=keys, time_zone=time_zone)
        return _extreme(self, column, request, greatest=False)

    def max(
        self,
        column: str,
        where: Where = None,
        *,
        keys: KeySets | None = None,
        time_zone: str = "UTC",
    ) -> ColumnValue:
        """The greatest value, as ``min``; NaN is the greatest of floats.

        >>> table.max("ts")
        """
        request = PlanRequest(where=where, keys=keys, time_zone=time_zone)
        return _extreme(self, column, request, greatest=True)

    def top(
        self,
        order_by: str | Sequence[str],
        limit: int,
        *,
        where: Where = None,
        keys: KeySets | None = None,
        time_zone: str = "UTC",
    ) -> FirstRows:
        """The positions of the rows that come first by ``order_by``.

        >>> table.top("age desc nulls last", 10)

        From the range bitmaps of the first sort key, before any data is read. With one key the
        result is exactly ``limit`` rows (all, if there are fewer), with several all that tie by the
        first. A file without such an index, or where ``where`` is not decided, keeps all of its
        candidate rows, and ``exact`` is False.
        """
        limit = whole(limit)  # TypeError for anything but whole numbers
        if limit < 0:
            raise ValueError(f"limit is 0 or more, not {limit}")
        orders = orders_of(order_by)
        if not orders:
            raise PredicateError("no sort key is named", hint="name a column: 'age DESC'")
        request = PlanRequest(where=where, keys=keys, time_zone=time_zone)
        return of_one_listing(self, request, lambda scan: self._first(scan.plan, orders, limit))

    def _first(self, plan: Plan, orders: Sequence[SortKey], limit: int) -> FirstRows:
        from skipstone.paimon.kinds import RangeBitmap
        from skipstone.paimon.top_rows import top_rows

        listing = plan.listing
        schema = self.schema(listing)
        columns = [column_name(sort_column(self, schema, order.column)) for order in orders]
        order = SortKey(columns[0], orders[0].descending, orders[0].nulls_first)
        matched = self.match(listing)
        indexes = [
            index
            for each in under(matched, names_of(listing))
            for index in each.evidence({order.column})
            if isinstance(index, RangeBitmap) and index.column == order.column
        ]
        adjacent = self.sidecars_of(listing, {order.column})
        if not self.file_index.read_enabled:
            indexes = []
        # Where a folder and the files both have a column, Spark takes the folder's value.
        folders = PartitionColumns.of(listing).values
        if order.column.lower() in {name.lower() for name in folders}:
            indexes, adjacent = [], None
        found = top_rows(
            [
                _candidate(plan, file, indexes, adjacent, order.column)
                for file in np.flatnonzero(plan.keep).tolist()
            ],
            limit,
            order,
            ties=len(orders) > 1,
            fetch=_fetch(matched.snapshot, adjacent),
        )
        return FirstRows(
            rows={listing.paths[file]: rows for file, rows in found.rows.items()},
            exact=found.exact,
            limit=limit,
            files_asked=found.asked,
            files_passed=found.passed,
            files_total=len(listing),
            reasons=found.reasons,
        )


def _candidate(
    plan: Plan,
    file: int,
    indexes: Sequence[RangeBitmap],
    adjacent: AdjacentRows | None,
    column: str,
) -> TopCandidate:
    """A file of the plan, with its index if all candidate rows match."""
    from skipstone.paimon.top_rows import TopCandidate, TopFile

    rows = int(plan.row_counts[file])
    detail = plan.details.get(file)
    among = None if detail is None else detail.rows
    sure = bool(plan.must[file]) or (detail is not None and detail.exact)
    for index in indexes if sure else ():
        stored = index.stored
        assert stored is not None
        row = int(stored.row_of_file[file])
        place = index.blob(row) if row >= 0 and stored.values[row].is_valid else None
        if place is None:
            continue
        return TopCandidate(
            file=file,
            rows=rows,
            among=None if plan.must[file] else among,
            index=TopFile(
                blob=place,
                type=index.paimon_type(stored.type),
                row_count=int(stored.rows[row]),
                verified=partial(index.verified, row, place),
            ),
            no_nulls=int(stored.nulls[row]) == 0,
        )
    found = adjacent.top_file(file, column) if adjacent is not None and sure else None
    return TopCandidate(file=file, rows=rows, among=among, index=found)


def _fetch(snapshot: Snapshot, adjacent: AdjacentRows | None) -> Any:
    def fetch(ranges: Sequence[ByteRange]) -> Fetched:
        theirs = [] if adjacent is None else [r for r in ranges if r.path in adjacent.versions]
        ours = [each for each in ranges if each not in set(theirs)]
        found = dict(snapshot.read_ranges(ours)) if ours else {}
        if adjacent is not None and theirs:
            found.update(adjacent.fetch(theirs))
        return found

    return fetch


def _extreme(table: OpenTable, column: str, request: PlanRequest, *, greatest: bool) -> ColumnValue:
    way = "desc nulls last" if greatest else "asc nulls last"
    aim = f"take the {'greatest' if greatest else 'least'} value of"
    request = replace(request, columns=[column], order_by=[f"{column} {way}"], limit=1, aim=aim)
    return of_one_listing(table, request, partial(_extreme_of, table, column, greatest))


def _extreme_of(table: OpenTable, column: str, greatest: bool, scan: TableScan) -> ColumnValue:
    from skipstone.execution.sorting import order_of, require_sortable

    plan, query = scan.plan, scan.query
    if query is None:
        raise UnsupportedError(
            f"{table.path} must be read, which needs Spark",
            hint="query with Table.read(spark, where)",
        )
    field = query.schema.field(0)
    bounds = query.bounds(column) if query.bounds is not None else None
    known = np.zeros_like(plan.keep)
    type = require_sortable(field.type, column)
    found: list[pa.Array] = []
    if bounds is not None and type == bounds.type and not is_text(type):
        known = plan.must & _exact(bounds, plan)
        ends = (bounds.hi if greatest else bounds.lo).take(known & bounds.lo.valid).to_list()
        keys = [key for key in ends if key is not None]
        if keys:
            value = from_key(max(keys) if greatest else min(keys), type)
            found.append(_array_of(value, type))
    rest = replace(plan, keep=plan.keep & ~known)
    if rest.keep.any():
        read = stored(replace(scan, plan=rest).to_arrow().column(0), type)
        found.append(read.drop_null())
    every = pa.concat_arrays(found) if found else pa.nulls(0, type)
    if not len(every):
        return None
    order = SortKey(column, descending=greatest, nulls_first=False)
    place = int(order_of([every], [order], 1)[0])
    return _python_value(every.slice(place, 1), field)


def _python_value(array: pa.Array, field: pa.Field) -> ColumnValue:
    """The one value of ``array``; ``UnsupportedError`` where Python has no such value."""
    if pa.types.is_duration(field.type):
        array = array.view(field.type)
    try:
        found: ColumnValue = array[0].as_py()
    except (ValueError, OverflowError) as error:
        key = order_keys(array, array.type).to_list()[0]
        shown = f"X'{key.hex().upper()}'" if isinstance(key, bytes) else key
        raise UnsupportedError(
            f"{field.name} has {shown} there: Python has no such value of {field.type}: {error}",
            hint=f"query(order_by={field.name!r}, limit=1) gives it as Arrow",
        ) from error
    return found


def _exact(bounds: Intervals, plan: Plan) -> NDArray[np.bool_]:
    """Files with only nulls, or whose bounds are values of the file (bounds of texts are cut)."""
    only_null = (bounds.nulls >= 0) & (bounds.nulls == plan.row_counts)
    return np.asarray((bounds.lo.valid & bounds.hi.valid) | only_null)


def _array_of(value: Any, type: pa.DataType) -> pa.Array:
    """A value of the stored domain as an array of its type."""

    if pa.types.is_decimal(type):
        return pa.array([Decimal(decimal_text(value, type.scale))], type)
    if pa.types.is_boolean(type):
        return arrow(np.array([bool(value)]))
    if pa.types.is_date(type):
        return arrow(np.array([int(value)], np.int32)).cast(type)
    if pa.types.is_timestamp(type) or pa.types.is_duration(type):
        return arrow(np.array([int(value)], np.int64)).cast(type)
    return pa.array([value], type)
