"""ORDER BY over Arrow tables with Spark's order: NaN is the largest, 0.0 equals -0.0, strings by
their bytes, nulls first where it ascends and last where it descends, unless told otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import UnsupportedError
from skipstone.predicate.literals import order_keys
from skipstone.predicate.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.paimon.top_rows import Order

__all__ = ["order_of", "require_sortable"]


def require_sortable(type: pa.DataType, name: str) -> pa.DataType:
    """The canonical type of a sort column; ``UnsupportedError`` for one that has no order here."""
    found = spark_type(type.value_type if pa.types.is_dictionary(type) else type)
    if found is None:
        raise UnsupportedError(
            f"cannot sort by {name}: it is {type}",
            hint="sort by columns of numbers, texts, times or booleans",
        )
    return found


def order_of(
    columns: Sequence[pa.ChunkedArray | pa.Array], orders: Sequence[Order], limit: int | None = None
) -> NDArray[np.int64]:
    """Positions of the rows in order (the first ``limit`` of them); rows that tie keep theirs.

    ``columns`` are the sort columns, one per order.
    """
    rows = len(columns[0])
    made: list[tuple[str, pa.Array | NDArray[np.int64], str]] = []
    for at, (column, order) in enumerate(zip(columns, orders, strict=True)):
        keys = order_keys(column, require_sortable(column.type, order.column))
        if not keys.valid.all():
            # A key of its own for nulls: Arrow has one place for those of all keys.
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
    table = pa.table({name: data for name, data, _ in made})
    ways = [(name, way) for name, _, way in made]
    found = pc.sort_indices(table, sort_keys=ways)
    ordered = np.asarray(table["place"].to_numpy())[found.to_numpy()]
    chosen: NDArray[np.int64] = ordered if limit is None else ordered[:limit]
    return chosen


def _narrowed(
    keys: Sequence[tuple[str, pa.Array | NDArray[np.int64], str]], limit: int
) -> NDArray[np.int64] | None:
    """Rows among which the first ``limit`` are, by a single key of integers; ``None``: all."""
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
    return data[at] if isinstance(data, np.ndarray) else data.take(pa.array(at))
