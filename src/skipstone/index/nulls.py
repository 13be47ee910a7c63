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

from .interval import null_bounds
from .kind import Builder, Built
from .perfile import PerFile
from .types import atomic, refuse

if TYPE_CHECKING:
    from skipstone.bounds import BoolArray, Bounds
    from skipstone.predicate.tree import Leaf

    from .kind import Chunk, Stored
    from .perfile import Rows

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
