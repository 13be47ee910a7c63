"""Rows by position: cuts ranges by row group, takes rows out of columns, and checks a sort order.

Few ranges are taken as slices, many by Arrow's ``take``. Arrow has no ``take`` for views of strings
and bytes, nor for types that contain them: those are taken as ``large_string`` and
``large_binary``, and become views again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.predicate.literals import Keys, order_keys
from skipstone.pruning import RowSet
from skipstone.pruning.column_types import without_views

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.metadata import SortingColumn
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.values import I64


#: half-open ranges of row positions: pairs, an integer array of two columns, or a ``RowSet``
RowRanges: TypeAlias = "RowSet | Sequence[tuple[int, int]] | NDArray[np.integer]"

# Marks row groups that agree with a column: counts are 0 or more, absent ones -1.
_AGREES = -2
# Ranges of rows up to which slices are cheaper than a take.
_SLICES = 16


def row_set(row_ranges: RowRanges | None) -> RowSet | None:
    """The rows, ``None`` for all; ``TypeError`` for anything that is not ranges."""
    if row_ranges is None or isinstance(row_ranges, RowSet):
        return row_ranges
    try:
        pairs = np.asarray(row_ranges)
    except ValueError:  # tuples of different lengths
        pairs = np.empty(0, np.object_)
    if pairs.shape[0:1] == (0,) and pairs.dtype != np.object_:
        return RowSet()
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise TypeError("row_ranges are pairs of whole numbers: [(start, stop), …]")
    return RowSet(pairs[:, 0], pairs[:, 1])


def check_row_counts(footer: FooterArrays) -> None:
    """``FormatError`` for a row group whose ``num_rows`` agrees with none of its columns.

    Chunks of columns without lists have one value per row. If all chunks that have metadata
    contradict their row group, its rows cannot be counted or separated.
    """
    values = footer.by_row_group(_contradicting)
    wrong = values != _AGREES
    if wrong.any():
        at = int(np.argmax(wrong))
        raise FormatError(
            f"num_rows of row group {at} agrees with none of its columns",
            expected=int(values[at]),
            got=int(footer.group("num_rows")[at]),
        )


def _contradicting(footer: FooterArrays) -> I64:
    """For row groups that all columns contradict, the values of the first one, else ``_AGREES``."""
    flat = [leaf.ordinal for leaf in footer.schema.leaves if not leaf.max_repetition_level]
    rows = footer.group("num_rows")
    if not flat:
        return np.full_like(rows, _AGREES)
    known = footer.chunk("has_meta_data")[:, flat] == 1
    values = footer.chunk("num_values")[:, flat]
    wrong = known.any(axis=1) & ~(known & (values == rows[:, None])).any(axis=1)
    first = values[np.arange(len(rows)), np.argmax(known, axis=1)]
    return np.where(wrong, first, _AGREES)


@dataclass(frozen=True, slots=True, eq=False)
class GroupRows:
    """Wanted rows of one row group, counted from its first: ascending ranges that do not touch."""

    row_group: int
    starts: I64
    stops: I64

    @property
    def count(self) -> int:
        """How many rows."""
        return int((self.stops - self.starts).sum())


def group_rows(rows: RowSet | None, row_starts: I64) -> list[GroupRows]:
    """``rows`` of the file by row group; ``None`` is all rows.

    Row groups without wanted rows, and rows past the end of the file, are left out.
    """
    found: list[GroupRows] = []
    if rows is None:
        for r, count in enumerate(np.diff(row_starts).tolist()):
            if count:
                found.append(GroupRows(r, np.zeros(1, np.int64), np.array([count])))
        return found
    starts, stops = rows.ranges()
    lows = np.searchsorted(stops, row_starts[:-1], side="right")
    highs = np.searchsorted(starts, row_starts[1:], side="left")
    for r in np.flatnonzero((lows < highs) & (np.diff(row_starts) > 0)).tolist():
        begin, end, own = int(row_starts[r]), int(row_starts[r + 1]), slice(lows[r], highs[r])
        start = np.maximum(starts[own], begin) - begin
        found.append(GroupRows(r, start, np.minimum(stops[own], end) - begin))
    return found


def take_ranges(column: pa.ChunkedArray, start: I64, length: I64) -> pa.ChunkedArray:
    """The rows of all these ranges, in their order."""
    if len(start) == 1:
        return column.slice(int(start[0]), int(length[0]))
    if len(start) > _SLICES:
        ends = np.cumsum(length)
        return _take(column, np.arange(ends[-1]) + np.repeat(start - (ends - length), length))
    return _slices(column, start, length)


def _slices(column: pa.ChunkedArray, start: I64, length: I64) -> pa.ChunkedArray:
    pieces = [
        piece
        for at, count in zip(start.tolist(), length.tolist(), strict=True)
        for piece in column.slice(at, count).chunks
    ]
    return pa.chunked_array(pieces, column.type)


def _take(column: pa.ChunkedArray, at: I64) -> pa.ChunkedArray:
    """The values at these positions, in their order."""
    places = arrow(at)
    try:
        return pc.take(column, places)
    except pa.ArrowNotImplementedError:
        first = np.flatnonzero(np.diff(at, prepend=-2) != 1)
        if len(first) > _SLICES:
            try:
                return column.cast(without_views(column.type)).take(places).cast(column.type)
            except pa.ArrowNotImplementedError:
                pass
        return _slices(column, at[first], np.diff(first, append=len(at)))


def column_at(table: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    """A column by its path; below a null struct there are nulls."""
    column = table.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def take_rows(table: pa.Table, at: I64) -> pa.Table:
    """The rows at these positions, in their order."""
    try:
        return pc.take(table, arrow(at))
    except pa.ArrowNotImplementedError:
        columns = [_take(column, at) for column in table.columns]
        return pa.Table.from_arrays(columns, schema=table.schema)


def rows_alone(count: int) -> pa.Table:
    """``count`` rows without columns."""
    return pa.table({"": pa.nulls(count)}).select([])


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One or more tables of one schema, one after another. Arrow loses rows without columns."""
    if len(tables) == 1:
        return tables[0]
    if not tables[0].num_columns:
        return rows_alone(sum(each.num_rows for each in tables))
    return pa.concat_tables(tables)


def are_sorted(
    keys: Iterable[tuple[SortingColumn, ColumnDescriptor, Any, pa.DataType | None]],
) -> bool | None:
    """Whether rows have the order of ``keys``; ``None`` where a type has no order.

    Each key has its leaf, the values of the leaf's field of the root, and the leaf's canonical type
    (``None``: without order).
    """
    undecided: Any = None
    for each, leaf, column, type_ in keys:
        if type_ is None:
            return None
        values: Any = column.combine_chunks()
        for part in leaf.path[1:]:
            values = values.field(part) if values.null_count == 0 else _child(values, part)
        order = _steps(order_keys(values, type_), each)
        if undecided is None:
            undecided = np.ones(len(order), np.bool_)
        if np.any(undecided & (order > 0)):
            return False
        undecided &= order == 0
    return True


def _child(values: Any, name: str) -> Any:
    """A field of a struct array, null where the struct is null."""
    return pc.struct_field(values, name)


def _steps(keys: Keys, claim: SortingColumn) -> Any:
    """For each row but the first: -1, 0, 1 where the previous row sorts before, with, after it."""
    if isinstance(keys.data, np.ndarray):
        before, after = keys.data[:-1], keys.data[1:]
        steps = (before > after).astype(np.int8) - (before < after).astype(np.int8)
    else:
        before, after = keys.data[:-1], keys.data[1:]
        more = numbers(pc.greater(before, after))
        less = numbers(pc.less(before, after))
        steps = more.astype(np.int8) - less.astype(np.int8)
    if claim.descending:
        steps = -steps
    here, there = keys.valid[:-1], keys.valid[1:]
    steps[~here & ~there] = 0
    nulls_late = -1 if claim.nulls_first else 1
    steps[~here & there] = nulls_late
    steps[here & ~there] = -nulls_late
    return steps


def check_entries(column: pa.ChunkedArray, rows: I64, entries: I64, name: str) -> None:
    """``FormatError`` unless the first ``rows[0]`` rows have ``entries[0]`` entries, the next
    ``rows[1]`` rows ``entries[1]``, …. ``column`` is one leaf of lists, decoded alone.

    A page header counts the entries of a page, nulls and empty lists included, and an offset index
    says which rows they are. A row has at least one entry, so the first rows of a run of pages have
    as many entries as the pages only if they are the rows of these pages. With a wrong
    ``first_row_index`` a row would get the values of another.
    """
    counts = [entries_per_row(chunk) for chunk in column.chunks]
    before = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(np.concatenate([np.zeros(0, np.int64), *counts]))]
    )
    found = np.diff(before[np.concatenate([[0], np.cumsum(rows)])], prepend=0)[1:]
    wrong = np.flatnonzero(found != entries)
    if len(wrong):
        at = int(wrong[0])
        raise FormatError(
            f"pages of {name} hold other rows than in their index",
            expected=f"{int(entries[at])} entries in {int(rows[at])} rows",
            got=int(found[at]),
        )


def entries_per_row(array: pa.Array) -> I64:
    """Entries per row, of structs of one field, lists of one element, and leaves."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_struct(array.type):
        return entries_per_row(array.field(0))
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return np.ones(len(array), np.int64)
    offsets = numbers(array.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    inner = array.values.slice(first, last - first)
    if pa.types.is_nested(inner.type):
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(entries_per_row(inner))])
        offsets = before[offsets - first]
    return np.asarray(np.maximum(np.diff(offsets), 1))
