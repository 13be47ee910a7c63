"""What units of rows promise to an order: the best key that each can hold, and whether nulls.

A unit is a file, a row group or a run of pages. One without bounds, or that may hold nulls where
nulls come first, promises anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.parquet.evidence.value_bounds import joined
from skipstone.predicate.literals import Keys, compare, order_keys
from skipstone.predicate.tree import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.paimon.top_rows import Order
    from skipstone.pruning.interval import Intervals

__all__ = ["Promises", "same_keys"]

IntArray: TypeAlias = "NDArray[np.int64]"
BoolArray: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Promises:
    """Over n units: the best key of the first sort column where it is known; whether a null may be
    among the rows, and whether a value."""

    best: Keys
    may_be_null: BoolArray
    has_value: BoolArray

    def __len__(self) -> int:
        return len(self.has_value)

    @classmethod
    def of(cls, bounds: Intervals, order: Order) -> Promises:
        """From bounds of the first sort column."""
        nulls, rows = bounds.nulls, bounds.rows
        return cls(
            best=bounds.hi if order.descending else bounds.lo,
            may_be_null=np.asarray(nulls != 0),
            has_value=np.asarray((nulls < 0) | (rows < 0) | (nulls < rows)),
        )

    @classmethod
    def anything(cls, type: pa.DataType, *, only_null: bool = False) -> Promises:
        """One unit of which nothing is known, or that all of its rows are null."""
        none = np.zeros(1, np.bool_)
        best = Keys(pa.array([None], pa.large_binary()), none)
        if order_keys(pa.nulls(0, type), type).is_int:
            best = Keys(np.zeros(1, np.int64), none)
        return cls(best=best, may_be_null=~none, has_value=none if only_null else ~none)

    @classmethod
    def concat(cls, parts: Sequence[Promises]) -> Promises:
        """All units of all parts."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            best=joined([each.best for each in parts]),
            may_be_null=np.concatenate([each.may_be_null for each in parts]),
            has_value=np.concatenate([each.has_value for each in parts]),
        )

    def order(self, order: Order, *then: IntArray) -> IntArray:
        """Positions: units that promise anything, then by the best key, then those of nulls only;
        ties by ``then``."""
        anything = ~self.best.valid & self.has_value
        if order.nulls_first:
            anything |= self.may_be_null
        rank = np.where(anything, 0, np.where(self.has_value, 1, 2)).astype(np.int8)
        data = self.best.data
        if not isinstance(data, np.ndarray):
            data = data.fill_null(b"") if data.null_count else data
        columns = {"rank": rank, "best": data} | {f"then{i}": each for i, each in enumerate(then)}
        ways = dict.fromkeys(columns, "ascending")
        ways["best"] = "descending" if order.descending else "ascending"
        found = pc.sort_indices(pa.table(columns), sort_keys=list(ways.items()))
        return np.asarray(found.to_numpy()).astype(np.int64)

    def hopeless(self, at: IntArray, last: Keys, order: Order, *, only: bool) -> BoolArray:
        """Which of the units ``at`` hold no row that must come before ``last``, the key of the last
        row that is wanted so far; ``only``: there is no other sort key, and ties need not come."""
        value, maybe_null = self.has_value[at], self.may_be_null[at]
        if not last.valid[0]:
            if order.nulls_first:
                # All wanted so far are null: nothing comes before them, and nulls tie.
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
    """Whether keys of both types mean the same."""
    return bool(stored == type or (pa.types.is_integer(stored) and pa.types.is_integer(type)))
