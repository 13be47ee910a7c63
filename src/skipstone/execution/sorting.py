"""ORDER BY over Arrow tables, in Spark's order. NaN is the largest value, 0.0 equals -0.0, and
strings compare by their bytes. By default nulls come first in ascending order and last in
descending order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.predicate.literals import Keys, compare, order_keys
from skipstone.predicate.tree import Op
from skipstone.predicate.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.pruning.interval import Intervals
    from skipstone.pruning.plan import SortKey


def require_sortable(type: pa.DataType, name: str) -> pa.DataType:
    """The canonical type of a sort column; ``UnsupportedError`` for a type without an order.

    A duration is sorted by its number, in any unit.
    """
    found = spark_type(type)
    if found is not None and pa.types.is_duration(found):
        return pa.int64()
    if found is None:
        raise UnsupportedError(
            f"cannot sort by {name}: it is {type}",
            hint="sort by columns of numbers, texts, times or booleans",
        )
    return found


def order_of(
    columns: Sequence[pa.ChunkedArray | pa.Array],
    orders: Sequence[SortKey],
    limit: int | None = None,
) -> NDArray[np.int64]:
    """Positions of the (first ``limit``) rows in order; rows that tie keep their order.

    ``columns`` are the sort columns, one per order.
    """
    rows = len(columns[0])
    made: list[tuple[str, pa.Array | NDArray[np.int64], str]] = []
    for at, (column, order) in enumerate(zip(columns, orders, strict=True)):
        keys = order_keys(column, require_sortable(column.type, order.column))
        if not keys.valid.all():
            # Nulls get a sort key of their own: Arrow places the nulls of all keys alike.
            first = keys.valid if order.nulls_first else ~keys.valid
            made.append((f"n{at}", first.astype(np.int8), "ascending"))
        data = keys.data
        if not isinstance(data, np.ndarray):
            data = data.fill_null(b"") if data.null_count else data
        made.append((f"k{at}", data, "descending" if order.descending else "ascending"))
    place = ("place", np.arange(rows), "ascending")
    if limit is not None and limit < rows:
        top = _narrowed(made, limit)
        if top is not None:
            made = [(name, _taken(data, top), way) for name, data, way in made]
            place = ("place", top, "ascending")
    made.append(place)
    arrays = [data if isinstance(data, pa.Array) else arrow(data) for _, data, _ in made]
    table = pa.table(arrays, names=[name for name, _, _ in made])
    ways = [(name, way) for name, _, way in made]
    found = pc.sort_indices(table, sort_keys=ways)
    ordered = place[1][numbers(found)]
    chosen: NDArray[np.int64] = ordered if limit is None else ordered[:limit]
    return chosen


def _narrowed(
    keys: Sequence[tuple[str, pa.Array | NDArray[np.int64], str]], limit: int
) -> NDArray[np.int64] | None:
    """Rows that include the first ``limit``, by a single integer key; ``None``: all rows."""
    if limit == 0 or len(keys) != 1 or not isinstance(keys[0][1], np.ndarray):
        return None
    data, way = keys[0][1], keys[0][2]
    if way == "descending":
        worst = np.partition(data, len(data) - limit)[len(data) - limit]
        return np.flatnonzero(data >= worst)
    worst = np.partition(data, limit - 1)[limit - 1]
    return np.flatnonzero(data <= worst)


def _taken(
    data: pa.Array | NDArray[np.int64], at: NDArray[np.int64]
) -> pa.Array | NDArray[np.int64]:
    return data[at] if isinstance(data, np.ndarray) else data.take(arrow(at))


IntArray: TypeAlias = "NDArray[np.int64]"
BoolArray: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SortBounds:
    """Bounds of the first sort column over n units of rows.

    ``best`` is the key that sorts first, where known. ``may_be_null`` and ``has_value`` say whether
    the unit may hold a null, and a value.
    """

    best: Keys
    may_be_null: BoolArray
    has_value: BoolArray

    def __len__(self) -> int:
        return len(self.has_value)

    @classmethod
    def of(cls, bounds: Intervals, order: SortKey) -> SortBounds:
        """From bounds of the first sort column."""
        nulls, rows = bounds.nulls, bounds.rows
        return cls(
            best=bounds.hi if order.descending else bounds.lo,
            may_be_null=np.asarray(nulls != 0),
            has_value=np.asarray((nulls < 0) | (rows < 0) | (nulls < rows)),
        )

    @classmethod
    def unbounded(cls, type: pa.DataType, *, only_null: bool = False) -> SortBounds:
        """One unit without bounds; with ``only_null`` all its rows are null."""
        none = np.zeros(1, np.bool_)
        best = Keys(pa.nulls(1, pa.large_binary()), none)
        if order_keys(pa.nulls(0, type), type).is_int:
            best = Keys(np.zeros(1, np.int64), none)
        return cls(best=best, may_be_null=~none, has_value=none if only_null else ~none)

    @classmethod
    def concat(cls, parts: Sequence[SortBounds]) -> SortBounds:
        """All units of all parts."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            best=Keys.concat([each.best for each in parts]),
            may_be_null=np.concatenate([each.may_be_null for each in parts]),
            has_value=np.concatenate([each.has_value for each in parts]),
        )

    def order(self, order: SortKey, *then: IntArray) -> IntArray:
        """Positions in order: units without bounds, then by the best key, then units of nulls only;
        ties by ``then``."""
        unbounded = ~self.best.valid & self.has_value
        if order.nulls_first:
            unbounded |= self.may_be_null
        rank = np.where(unbounded, 0, np.where(self.has_value, 1, 2)).astype(np.int8)
        data = self.best.data
        if not isinstance(data, np.ndarray):
            data = data.fill_null(b"") if data.null_count else data
        columns = {"rank": rank, "best": data} | {f"then{i}": each for i, each in enumerate(then)}
        ways = dict.fromkeys(columns, "ascending")
        ways["best"] = "descending" if order.descending else "ascending"
        arrays = [each if isinstance(each, pa.Array) else arrow(each) for each in columns.values()]
        table = pa.table(arrays, names=list(columns))
        found = pc.sort_indices(table, sort_keys=list(ways.items()))
        return numbers(found).astype(np.int64)

    def hopeless(self, at: IntArray, last: Keys, order: SortKey, *, only: bool) -> BoolArray:
        """Flags of the units ``at`` that hold no row before ``last``, the key of the last row of
        the result so far. ``only``: there is no other sort key, so ties need not be read."""
        value, maybe_null = self.has_value[at], self.may_be_null[at]
        if not last.valid[0]:
            if order.nulls_first:
                # The result so far is all null: nothing comes before it, and nulls tie.
                return np.ones(len(at), np.bool_) if only else ~maybe_null
            return ~value if only else np.zeros(len(at), np.bool_)
        key = last.to_list()[0]
        assert key is not None
        if order.descending:
            worse = compare(self.best.take(at), Op.LE if only else Op.LT, key)
        else:
            worse = compare(self.best.take(at), Op.GE if only else Op.GT, key)
        worse = worse | ~value
        # A null comes before every value, or after it.
        return worse & ~maybe_null if order.nulls_first else worse


def same_keys(stored: pa.DataType, type: pa.DataType) -> bool:
    """Whether keys of both types are comparable."""
    return bool(stored == type or (pa.types.is_integer(stored) and pa.types.is_integer(type)))
