"""ORDER BY with LIMIT: the rows that come first, without reading those that cannot.

Row groups and pages of the first sort column have bounds. Their rows are read in the order of the
best value that a unit can hold, a few units at a time; when ``limit`` rows are found, a unit whose
best value is worse than the last of them is not read, and neither is any after it. Only sort
columns (and those of the predicate) are read on the way; the other columns of the rows that come
first are fetched at the end, by position.

A unit without bounds, or that may hold nulls where nulls come first, promises anything, and is read
first. With several sort keys units that tie with the last row are read, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.bounds import Level, Reason, RowSet, Units
from skipstone.index.parquet import page_source
from skipstone.index.parquet.value_bounds import joined
from skipstone.predicate.literals import Keys, compare, order_keys
from skipstone.predicate.tree import Op
from skipstone.predicate.types import column_name

from .reading import Piece, TableReader
from .sorting import order_of, require_sortable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.index.parquet.value_bounds import ValueBounds
    from skipstone.plan import Plan
    from skipstone.plan.top import Order

    from .columns import FileColumns

__all__ = ["Found", "first_rows", "sorted_rows"]

IntArray: TypeAlias = "NDArray[np.int64]"

# Rows of the first units that are read, at least; every later wave has twice as many.
_FIRST_ROWS = 1 << 14
_MOST_ROWS = 1 << 24


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Units:
    """Runs of rows and what they promise: the best key of the first sort column, where it is
    known; whether a null may be among them, and a value."""

    file: IntArray
    first: IntArray
    rows: IntArray
    best: Keys
    may_be_null: NDArray[np.bool_]
    has_value: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.file)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Rows in order: their sort columns, file ordinals and row positions."""

    columns: tuple[pa.ChunkedArray, ...]
    file: IntArray
    row: IntArray

    def __len__(self) -> int:
        return len(self.file)

    def take(self, at: IntArray) -> Found:
        places = pa.array(at)
        return Found(
            tuple(column.take(places) for column in self.columns), self.file[at], self.row[at]
        )

    def plus(self, others: Sequence[Found]) -> Found:
        every = [self, *others]
        columns = tuple(
            pa.chunked_array([chunk for each in every for chunk in each.columns[at].chunks], type)
            for at, type in enumerate(column.type for column in self.columns)
        )
        return Found(
            columns,
            np.concatenate([each.file for each in every]),
            np.concatenate([each.row for each in every]),
        )


class _Top:
    """The search for the first ``limit`` rows of a plan; ``orders`` name fields of the root."""

    def __init__(
        self, reader: TableReader, plan: Plan, orders: Sequence[Order], limit: int | None
    ) -> None:
        self.reader, self.plan, self.orders, self.limit = reader, plan, orders, limit
        names = dict.fromkeys(order.column for order in orders)
        keys = [column_name((name,)) for name in names]
        self.keys = TableReader(reader.footers, reader.tree, keys)
        types = []
        for order in orders:
            field = self.keys.schema.field(order.column)
            types.append(require_sortable(field.type, order.column))
        self.type = types[0]
        self.pieces_read = self.pieces_passed = 0

    def found(self) -> Found:
        """The rows that come first, in order."""
        best = self._empty()
        pieces = list(self.keys.pieces(self.plan))
        if self.limit is None:
            return self._sorted(best.plus(list(self._read(pieces))))
        if not self.limit or not pieces:
            return best
        sure = {piece.file.ordinal: piece.sure for piece in pieces}
        files = {piece.file.ordinal: piece.file for piece in pieces}
        alive: dict[int, RowSet] = {}
        for piece in pieces:
            rows = piece.rows if piece.rows is not None else RowSet.all(piece.file.opened.num_rows)
            known = alive.get(piece.file.ordinal)
            alive[piece.file.ordinal] = rows if known is None else known | rows
        units = self._units(files, alive)
        order = self._by_promise(units)
        at, size = 0, max(_FIRST_ROWS, 4 * self.limit)
        while at < len(order):
            rest = order[at:]
            open_units = rest[~self._hopeless(units, rest, best)]
            if not len(open_units):
                break
            take = int(np.searchsorted(np.cumsum(units.rows[open_units]), size)) + 1
            chosen = open_units[:take]
            at += int(np.flatnonzero(rest == chosen[-1])[0]) + 1
            wave = []
            for file in np.unique(units.file[chosen]).tolist():
                mine = chosen[units.file[chosen] == file]
                rows = RowSet(units.first[mine], units.first[mine] + units.rows[mine])
                wanted = rows & alive[file]
                if wanted:
                    wave.append(Piece(files[file], wanted, sure[file]))
            cut = [part for piece in wave for part in self.keys.cut(piece)]
            best = self._sorted(best.plus(list(self._read(cut))))
            self.pieces_read += len(chosen)
            size = min(2 * size, _MOST_ROWS)
        self.pieces_passed = len(units) - self.pieces_read
        return best

    def _empty(self) -> Found:
        none = np.empty(0, np.int64)
        columns = tuple(
            pa.chunked_array([], self.keys.schema.field(order.column).type) for order in self.orders
        )
        return Found(columns, none, none)

    def _read(self, pieces: Sequence[Piece]) -> Iterator[Found]:
        yield from self.keys.files.ahead(self._one, pieces, lambda piece: piece.is_small)

    def _one(self, piece: Piece) -> Found:
        rows, table = self.keys.read_with_rows(piece)
        found = Found(
            tuple(table.column(order.column) for order in self.orders),
            np.full(len(rows), piece.file.ordinal),
            rows,
        )
        if self.limit is None or len(found) <= self.limit:
            return found
        return found.take(np.sort(order_of(found.columns, self.orders, self.limit)))

    def _sorted(self, found: Found) -> Found:
        if not len(found):
            return found
        place = np.lexsort((found.row, found.file))
        found = found.take(place)
        return found.take(order_of(found.columns, self.orders, self.limit))

    # -- what units promise ------------------------------------------------------------------------

    def _units(self, files: dict[int, FileColumns], alive: dict[int, RowSet]) -> _Units:
        """The pages of the first sort column that hold a row in question, else its row groups."""
        column = column_name((self.orders[0].column,))
        indexed = self.keys.footers.index(list(files), frozenset([column]))
        parts: list[_Units] = []
        groups: list[tuple[int, int]] = []
        for ordinal, view in files.items():
            starts = view.opened.row_starts
            file = indexed.get(ordinal)
            leaf = None if file is None else file.columns.get(column)
            for group in _groups_of(alive[ordinal], starts):
                first, rows = int(starts[group]), int(starts[group + 1] - starts[group])
                if leaf is None:
                    missing = file is not None and view.path(column) is None
                    parts.append(self._blank(ordinal, first, rows, only_null=missing))
                else:
                    groups.append((ordinal, group))
        if not groups:
            return _joined_units(parts)
        file_of = np.array([each[0] for each in groups])
        group_of = np.array([each[1] for each in groups])
        first_of = np.array([int(files[o].opened.row_starts[g]) for o, g in groups])
        rows_of = np.array(
            [int(np.diff(files[o].opened.row_starts[g : g + 2])[0]) for o, g in groups]
        )
        whole = Units(
            level=Level.ROW_GROUP,
            file=file_of,
            ordinal=group_of,
            first_row=first_of,
            rows=rows_of,
        )
        pages = page_source(indexed, self.keys.footers.fetch)
        pages.split(whole, frozenset([column]))  # reads the page indexes, all in one wave
        for ordinal, group in groups:
            file = indexed[ordinal]
            leaf = file.columns[column]
            start = int(files[ordinal].opened.row_starts[group])
            bounds = file.bounds_of_pages(group, leaf)
            firsts = file.first_rows(group, leaf)
            if isinstance(bounds, Reason) or firsts is None:
                bounds = file.chunk_bounds(leaf).where(np.array([group]))
                firsts = np.zeros(1, np.int64)
            count = int(np.diff(files[ordinal].opened.row_starts[group : group + 2])[0])
            lengths = np.diff(firsts, append=count)
            parts.append(self._bounded(ordinal, firsts + start, lengths, bounds))
        return _joined_units(parts)

    def _blank(self, file: int, first: int, rows: int, *, only_null: bool) -> _Units:
        none = np.zeros(1, np.bool_)
        best: Keys
        if _is_int_keyed(self.type):
            best = Keys(np.zeros(1, np.int64), none)
        else:
            best = Keys(pa.array([None], pa.large_binary()), none)
        return _Units(
            file=np.array([file]),
            first=np.array([first]),
            rows=np.array([rows]),
            best=best,
            may_be_null=~none,
            has_value=none if only_null else ~none,
        )

    def _bounded(self, file: int, first: IntArray, rows: IntArray, bounds: ValueBounds) -> _Units:
        count = len(first)
        stored = bounds.stored.type
        alike = stored is not None and _same_keys(stored, self.type) and len(bounds) == count
        every = np.full(count, file)
        if not alike:
            blank = [
                self._blank(file, int(at), int(length), only_null=False)
                for at, length in zip(first, rows, strict=True)
            ]
            return _joined_units(blank)
        best = bounds.all.hi if self.orders[0].descending else bounds.all.lo
        nulls = bounds.all.nulls
        return _Units(
            file=every,
            first=first,
            rows=rows,
            best=best,
            may_be_null=np.asarray(nulls != 0),
            has_value=np.asarray((nulls < 0) | (nulls < rows)),
        )

    def _by_promise(self, units: _Units) -> IntArray:
        """Positions: those that promise anything, then by the best key, then only nulls."""
        first = self.orders[0]
        anything = ~units.best.valid & units.has_value
        if first.nulls_first:
            anything |= units.may_be_null
        rank = np.where(anything, 0, np.where(units.has_value, 1, 2)).astype(np.int8)
        data = units.best.data
        if not isinstance(data, np.ndarray):
            data = data.fill_null(b"") if data.null_count else data
        table = pa.table({"rank": rank, "best": data, "file": units.file, "first": units.first})
        way = "descending" if first.descending else "ascending"
        found = pc.sort_indices(
            table,
            sort_keys=[
                ("rank", "ascending"),
                ("best", way),
                ("file", "ascending"),
                ("first", "ascending"),
            ],
        )
        return np.asarray(found.to_numpy()).astype(np.int64)

    def _hopeless(self, units: _Units, at: IntArray, best: Found) -> NDArray[np.bool_]:
        """Which of these units hold no row that comes before the last of those found."""
        assert self.limit is not None
        none = np.zeros(len(at), np.bool_)
        if len(best) < self.limit:
            return none
        first = self.orders[0]
        last = order_keys(best.columns[0].slice(len(best) - 1, 1), self.type)
        only = len(self.orders) == 1
        value, maybe_null = units.has_value[at], units.may_be_null[at]
        keys = units.best.take(at)
        if not last.valid[0]:
            if first.nulls_first:
                # All found are null; nothing comes before them, and nulls tie.
                return np.ones(len(at), np.bool_) if only else ~maybe_null
            return ~value if only else none
        key = last.to_list()[0]
        assert key is not None
        if first.descending:
            worse = compare(keys, Op.LE if only else Op.LT, key)
        else:
            worse = compare(keys, Op.GE if only else Op.GT, key)
        worse |= ~value
        # A null comes before every value, or after it.
        return worse & ~maybe_null if first.nulls_first else worse


def first_rows(
    reader: TableReader, plan: Plan, orders: Sequence[Order], limit: int | None
) -> Found:
    """Where the first ``limit`` rows of ``plan`` lie, in order; ``sorted_rows`` reads them."""
    return _Top(reader, plan, orders, limit).found()


def sorted_rows(reader: TableReader, file: IntArray, row: IntArray) -> pa.Table:
    """The output columns of these rows, in this order."""
    if not len(file):
        return reader.schema.empty_table()
    pieces = []
    for ordinal in np.unique(file).tolist():
        rows = RowSet.of(row[file == ordinal])
        pieces += list(reader.cut(Piece(reader.footers.opened[ordinal], rows, True)))
    tables = list(reader.files.ahead(reader.read, pieces, lambda piece: piece.is_small))
    placed = np.lexsort((row, file))
    back = np.empty(len(placed), np.int64)
    back[placed] = np.arange(len(placed))
    return pa.concat_tables(tables).take(pa.array(back))


def _groups_of(rows: RowSet, starts: IntArray) -> list[int]:
    from ..fetch import group_rows

    return [group.row_group for group in group_rows(rows, starts)]


def _is_int_keyed(type: pa.DataType) -> bool:
    return order_keys(pa.nulls(0, type), type).is_int


def _same_keys(stored: pa.DataType, type: pa.DataType) -> bool:
    """Whether keys of both types mean the same."""
    if stored == type:
        return True
    whole = pa.types.is_integer
    return bool(whole(stored) and whole(type))


def _joined_units(parts: Sequence[_Units]) -> _Units:
    if len(parts) == 1:
        return parts[0]
    return _Units(
        file=np.concatenate([each.file for each in parts]),
        first=np.concatenate([each.first for each in parts]),
        rows=np.concatenate([each.rows for each in parts]),
        best=joined([each.best for each in parts]),
        may_be_null=np.concatenate([each.may_be_null for each in parts]),
        has_value=np.concatenate([each.has_value for each in parts]),
    )
