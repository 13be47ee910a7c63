"""ORDER BY with LIMIT: finds the first rows and skips units that cannot hold any of them.

Row groups and pages of the first sort column have bounds. Units are read in the order of the best
value that they can hold, a few at a time. Once ``limit`` rows are found, a unit whose best value is
worse than the last of them is skipped, and so is every unit after it. The search reads only sort
columns and columns of the predicate. The other columns of the result are read at the end, by row
position.

A unit without bounds, or one that may hold nulls where nulls come first, is read first. With
several sort keys, units that tie with the last row are read too.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, no_rows
from skipstone._dataclasses import dataclass
from skipstone.parquet.evidence import PageSource
from skipstone.parquet.evidence.value_bounds import ValueBounds
from skipstone.parquet.reading.row_ranges import group_rows, take_rows
from skipstone.predicate.literals import Keys, compare, float_key, order_keys, stored
from skipstone.predicate.tree import Op
from skipstone.predicate.types import column_name
from skipstone.pruning import Level, Reason, RowSet, Units
from skipstone.pruning.residual import unfit

from .._arrays import distinct
from .plan_rows import TableReader, plan_of
from .sorting import SortBounds, order_of, require_sortable, same_keys
from .table_files import Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.pruning.interval import Intervals
    from skipstone.pruning.plan import Plan, SortKey

    from .batches import Batch
    from .file_columns import FileColumns


IntArray: TypeAlias = "NDArray[np.int64]"
BoolArray: TypeAlias = "NDArray[np.bool_]"
#: gives bounds of a column over the files of a listing, or ``None``
FileBounds: TypeAlias = "Callable[[str], Intervals | None]"

# The first wave reads at least this many rows; every later wave doubles it.
_FIRST_ROWS = 1 << 14
_LIKELY_ROWS = 1 << 18
_MOST_ROWS = 1 << 24
#: files that are opened together, where facts order the files
FILES = 64


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Units:
    """Runs of rows, and bounds of their first sort column."""

    file: IntArray
    first: IntArray
    rows: IntArray
    bounds: SortBounds

    def __len__(self) -> int:
        return len(self.file)

    @classmethod
    def concat(cls, parts: Sequence[_Units]) -> _Units:
        return cls(
            file=np.concatenate([each.file for each in parts]),
            first=np.concatenate([each.first for each in parts]),
            rows=np.concatenate([each.rows for each in parts]),
            bounds=SortBounds.concat([each.bounds for each in parts]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SortedRows:
    """Rows in order: their sort columns in canonical types, file ordinals and row positions."""

    columns: tuple[pa.ChunkedArray, ...]
    file: IntArray
    row: IntArray

    def __len__(self) -> int:
        return len(self.file)

    def take(self, at: IntArray) -> SortedRows:
        places = arrow(at)
        return SortedRows(
            tuple(pc.take(column, places) for column in self.columns), self.file[at], self.row[at]
        )

    def plus(self, others: Sequence[SortedRows]) -> SortedRows:
        every = [self, *others]
        columns = tuple(
            pa.chunked_array([chunk for each in every for chunk in each.columns[at].chunks], type)
            for at, type in enumerate(column.type for column in self.columns)
        )
        return SortedRows(
            columns,
            np.concatenate([each.file for each in every]),
            np.concatenate([each.row for each in every]),
        )


class _Top:
    """The search for the first ``limit`` rows of a plan; ``orders`` name fields of the root."""

    def __init__(
        self,
        reader: TableReader,
        plan: Plan,
        orders: Sequence[SortKey],
        limit: int | None,
        bounds: FileBounds | None,
    ) -> None:
        self.reader, self.plan, self.orders, self.limit = reader, plan, orders, limit
        names = dict.fromkeys(order.column for order in orders)
        keys = [column_name((name,)) for name in names]
        self.keys = TableReader(reader.footers, reader.tree, keys)
        schema = self.keys.schema
        self.types = [
            require_sortable(schema.field(order.column).type, order.column) for order in orders
        ]
        self.type = self.types[0]
        self.bounds = bounds

    def found(self) -> SortedRows:
        """The first rows, in order."""
        best = self._empty()
        if self.limit is None:
            pieces = self.keys.pieces(self.plan)
            many = int(np.count_nonzero(self.plan.keep))
            return self._sorted(best.plus(list(self._read(pieces, many))))
        if not self.limit:
            return best
        for files in self._files():
            hopeful = self._hopeful(files, best)
            if len(hopeful):
                best = self._search(hopeful, best)
        return best

    # -- files -------------------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> Intervals | None:
        """Bounds of the first sort column over the files, from their facts."""
        name = self.orders[0].column
        if self.bounds is None or name in self.keys.table.partitions.values:
            return None
        found = self.bounds(column_name((name,)))
        return found if found is not None and same_keys(found.type, self.type) else None

    @cached_property
    def _file_bounds(self) -> SortBounds | None:
        return None if self._facts is None else SortBounds.of(self._facts, self.orders[0])

    @cached_property
    def _without_nan(self) -> BoolArray | None:
        """Flags of the files that hold no NaN: it would be their upper bound."""
        if self._facts is None or not pa.types.is_floating(self._facts.type):
            return None
        hi = self._facts.hi
        return hi.valid & ~compare(hi, Op.EQ, float_key(math.nan))

    def _files(self) -> list[IntArray]:
        """The files of the plan in batches, ordered by their bounds; one batch where facts have no
        bounds."""
        kept = np.flatnonzero(self.plan.keep)
        if len(kept) <= FILES:  # facts need not be read
            return [kept]
        bounds = self._file_bounds
        if bounds is None:
            return [kept]
        order = bounds.order(self.orders[0], np.arange(len(bounds)))
        order = order[self.plan.keep[order]]
        return [order[at : at + FILES] for at in range(0, len(order), FILES)]

    def _hopeful(self, files: IntArray, best: SortedRows) -> IntArray:
        last = self._last(best)
        if last is None or self._file_bounds is None:
            return files
        only = len(self.orders) == 1
        return files[~self._file_bounds.hopeless(files, last, self.orders[0], only=only)]

    def _last(self, best: SortedRows) -> Keys | None:
        """The key of the last row of the result, ``None`` while there are too few rows."""
        if self.limit is None or len(best) < self.limit:
            return None
        return order_keys(best.columns[0].slice(len(best) - 1, 1), self.type)

    # -- rows --------------------------------------------------------------------------------------

    def _search(self, among: IntArray, best: SortedRows) -> SortedRows:
        """The first rows among ``best`` and these files."""
        assert self.limit is not None
        sure: dict[int, bool] = {}
        files: dict[int, FileColumns] = {}
        alive: dict[int, RowSet] = {}
        for piece in self.keys.pieces(plan_of(self.plan, among)):
            ordinal = piece.file.ordinal
            sure[ordinal], files[ordinal] = piece.sure, piece.file
            rows = piece.rows if piece.rows is not None else RowSet.all(piece.file.opened.num_rows)
            known = alive.get(ordinal)
            alive[ordinal] = rows if known is None else known | rows
        if not files:
            return best
        units = self._units(files, alive)
        order = units.bounds.order(self.orders[0], units.file, units.first)
        only = len(self.orders) == 1
        # The first ``limit`` units have at least ``limit`` best values. Where pages are small and
        # bounds are attained, the first wave is enough.
        likely = int(units.rows[order[: self.limit]].sum()) if self.limit <= len(order) else 0
        at, size = 0, max(_FIRST_ROWS, 4 * self.limit, likely if likely <= _LIKELY_ROWS else 0)
        if not units.bounds.best.valid.any():
            size = int(units.rows.sum())  # nothing can be left out
        while at < len(order):
            rest = order[at:]
            last = self._last(best)
            if last is not None:
                hopeless = units.bounds.hopeless(rest, last, self.orders[0], only=only)
                rest = rest[~hopeless]
            if not len(rest):
                break
            take = int(np.searchsorted(np.cumsum(units.rows[rest]), size)) + 1
            chosen = rest[:take]
            at += int(np.flatnonzero(order[at:] == chosen[-1])[0]) + 1
            wave = []
            for file in distinct(units.file[chosen]).tolist():
                mine = chosen[units.file[chosen] == file]
                rows = RowSet(units.first[mine], units.first[mine] + units.rows[mine])
                wanted = rows & alive[file]
                if wanted:
                    every = len(wanted) == files[file].opened.num_rows
                    wave.append(Piece(files[file], None if every else wanted, sure[file]))
            cut = [part for piece in wave for part in self.keys.cut(piece)]
            best = self._sorted(best.plus(list(self._read(cut, len(wave)))))
            size = min(2 * size, _MOST_ROWS)
        return best

    def _empty(self) -> SortedRows:
        none = np.empty(0, np.int64)
        return SortedRows(tuple(pa.chunked_array([], type) for type in self.types), none, none)

    def _read(self, pieces: Iterable[Piece], files: int) -> Iterator[SortedRows]:
        """The candidates among ``pieces`` of this many files."""
        units = self.keys.units(pieces, files)
        for found in self.keys.files.ahead(self._of_unit, units, lambda unit: unit.is_small):
            yield from found

    def _of_unit(self, unit: Piece | Batch) -> list[SortedRows]:
        if isinstance(unit, Piece):
            return [self._one(unit)]
        read = self.keys.batch_with_rows(unit)
        if read is None:
            return [self._one(each.piece) for each in unit.pieces]
        path = unit.pieces[0].piece.file.opened.path
        return [self._best(*unit.places(read[0]), read[1], path)]

    def _one(self, piece: Piece) -> SortedRows:
        rows, table = self.keys.read_with_rows(piece)
        file = np.full(len(rows), piece.file.ordinal)
        return self._best(file, rows, table, piece.file.opened.path)

    def _best(self, file: IntArray, rows: IntArray, table: pa.Table, path: str) -> SortedRows:
        """The rows of ``table`` that may be among the first."""
        columns = []
        for order, type in zip(self.orders, self.types, strict=True):
            column = table.column(order.column)
            try:
                columns.append(pa.chunked_array([stored(column, type)], type))
            except pa.ArrowInvalid as error:
                raise unfit(order.column, column.type, type, path) from error
        found = SortedRows(tuple(columns), file, rows)
        if self.limit is None or len(found) <= self.limit:
            return found
        return found.take(np.sort(order_of(found.columns, self.orders, self.limit)))

    def _sorted(self, found: SortedRows) -> SortedRows:
        if not len(found):
            return found
        place = np.lexsort((found.row, found.file))
        found = found.take(place)
        return found.take(order_of(found.columns, self.orders, self.limit))

    # -- bounds of units ---------------------------------------------------------------------------

    def _units(self, files: dict[int, FileColumns], alive: dict[int, RowSet]) -> _Units:
        """The pages of the first sort column in the row groups that hold ``alive`` rows; where
        there is no page index, the row groups."""
        column = column_name((self.orders[0].column,))
        indexed = self.keys.footers.index(list(files), frozenset([column]))
        parts: list[_Units] = []
        groups: list[tuple[int, int]] = []
        for ordinal, view in files.items():
            starts = view.opened.row_starts
            file = indexed.get(ordinal)
            leaf = None if file is None else file.columns.get(column)
            for group in (each.row_group for each in group_rows(alive[ordinal], starts)):
                first, rows = int(starts[group]), int(starts[group + 1] - starts[group])
                if leaf is None:
                    missing = (
                        view.given(self.orders[0].column) is None and view.path(column) is None
                    )
                    missing = missing and file is not None
                    parts.append(self._blank(ordinal, first, rows, only_null=missing))
                else:
                    groups.append((ordinal, group))
        if not groups:
            return _Units.concat(parts)
        starts_of = {ordinal: view.opened.row_starts for ordinal, view in files.items()}
        file_of, group_of = np.array(groups).T
        first_of = np.array([starts_of[at][group] for at, group in groups])
        rows_of = np.array([starts_of[at][group + 1] for at, group in groups]) - first_of
        whole = Units(
            level=Level.ROW_GROUP,
            file=file_of,
            ordinal=group_of,
            first_row=first_of,
            rows=rows_of,
        )
        pages = PageSource(indexed, self.keys.footers.fetch)
        pages.split(whole, frozenset([column]))  # reads the page indexes, all in one wave
        paged: dict[int, list[tuple[IntArray, IntArray, ValueBounds]]] = {}
        for (ordinal, group), start, count in zip(groups, first_of, rows_of, strict=True):
            file = indexed[ordinal]
            leaf = file.columns[column]
            bounds = file.bounds_of_pages(group, leaf)
            firsts = file.first_rows(group, leaf)
            if isinstance(bounds, Reason) or firsts is None:
                bounds = file.chunk_bounds(leaf).where(np.array([group]))
                firsts = np.zeros(1, np.int64)
            run = firsts + start, np.diff(firsts, append=count), bounds
            if len(bounds) == len(firsts):
                paged.setdefault(ordinal, []).append(run)
            else:
                parts.append(self._bounded(ordinal, *run))
        for ordinal, runs in paged.items():
            firsts, lengths = (np.concatenate([run[at] for run in runs]) for at in (0, 1))
            bounds = ValueBounds.concat([run[2] for run in runs])
            parts.append(self._bounded(ordinal, firsts, lengths, bounds))
        return _Units.concat(parts)

    def _blank(self, file: int, first: int, rows: int, *, only_null: bool) -> _Units:
        return _Units(
            file=np.array([file]),
            first=np.array([first]),
            rows=np.array([rows]),
            bounds=SortBounds.unbounded(self.type, only_null=only_null),
        )

    def _bounded(self, file: int, first: IntArray, rows: IntArray, bounds: ValueBounds) -> _Units:
        count = len(first)
        stored = bounds.stored.type
        alike = stored is not None and same_keys(stored, self.type) and len(bounds) == count
        if alike:
            intervals = bounds.all
            if bounds.numbers is not None:
                known = self._without_nan
                intervals = bounds.numbers if known is not None and known[file] else intervals
            sort_bounds = SortBounds.of(intervals, self.orders[0])
        else:
            sort_bounds = SortBounds.concat([SortBounds.unbounded(self.type)] * count)
        return _Units(file=np.full(count, file), first=first, rows=rows, bounds=sort_bounds)


def first_rows(
    reader: TableReader,
    plan: Plan,
    orders: Sequence[SortKey],
    limit: int | None,
    bounds: FileBounds | None = None,
) -> SortedRows:
    """The places of the first ``limit`` rows of ``plan``, in order; ``sorted_rows`` reads them.

    ``bounds`` gives bounds of a column over the files of the listing before they are opened.
    """
    return _Top(reader, plan, orders, limit, bounds).found()


def sorted_rows(reader: TableReader, file: IntArray, row: IntArray) -> pa.Table:
    """The output columns of these rows, in this order."""
    if not len(file):
        return no_rows(reader.schema)
    pieces, files = [], distinct(file).tolist()
    for ordinal in files:
        rows = RowSet.of(row[file == ordinal])
        pieces += list(reader.cut(Piece(reader.footers.opened[ordinal], rows, True)))
    tables = list(reader.tables_of(pieces, len(files)))
    placed = np.lexsort((row, file))
    back = np.empty(len(placed), np.int64)
    back[placed] = np.arange(len(placed))
    return take_rows(pa.concat_tables(tables), back)
