"""Row and null counts: what the facts say of every indexed column, with or without an index on it.

``IS NULL`` and ``IS NOT NULL`` are exact for files that are all null or have no nulls. A file of
nothing but nulls holds no match for any leaf on values, and every one of its rows matches
``NOT (c <=> v)``. A column that a data file lacks is all null there, and is a fact like any other.

The counts live in columns of the fact store of their own (``Stored.nulls``, ``Stored.rows``), so
the evidence is there for each column that has any index; the stored value of this kind, for those
who want nothing else of a column, repeats the null count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.pruning.column_types import atomic, refuse
from skipstone.pruning.interval import null_bounds
from skipstone.pruning.kind import Builder, Built
from skipstone.pruning.per_file import PerFile

if TYPE_CHECKING:
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Bounds
    from skipstone.pruning.kind import Chunk, Stored
    from skipstone.pruning.per_file import Rows

__all__ = ["NullCounts"]


class NullCounts(PerFile):
    """The counts of a column; see the module."""

    name = "nulls"
    cost = 0.5
    sweeps = True

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """``int64``, for any atomic type."""
        if not atomic(type):
            raise refuse(self.name, self.column, type, ())
        return pa.int64()

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """Counts."""
        self.stored_type(type)
        return _NullBuilder()

    def known(self, stored: Stored) -> BoolArray:
        """Where the counts are; the stored value does not matter."""
        return stored.nulls >= 0

    def judge(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """Bounds from the counts alone."""
        return null_bounds(leaf.op, rows.rows, rows.nulls)


class _NullBuilder(Builder):
    def __init__(self) -> None:
        self.nulls = 0

    def add(self, chunk: Chunk) -> None:
        self.nulls += chunk.null_count

    def finish(self) -> Built:
        return Built(pa.array([self.nulls], pa.int64()))
