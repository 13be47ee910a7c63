"""``minmax``: the least and the largest value of a column in each file; ``nulls``: its null count.

Stored value: ``struct<min: T, max: T>``, T the column's type, as in Xskipper's stores.

- Floats in Spark's order: NaN largest, -0.0 stored as 0.0.
- Strings and byte arrays longer than ``truncate`` bytes (64) are cut soundly (see
  ``pruning/file_bounds.py``): ``min`` to a prefix, ``max`` to a value above all that begin with its
  prefix. If there is none, ``max`` is null, which reads as "unbounded".
- A file without non-null values has a struct of two nulls. Unbounded files differ from it by
  ``min``, which they always have; known null counts decide too.
- Decimals, dates, timestamps and intervals as they are.

``nulls``: the null count of a column. The fact store keeps null and row counts of each indexed
column in columns of their own (``Stored.nulls``, ``Stored.rows``), so this evidence exists for each
of them; the stored value repeats the null count. ``IS NULL`` and ``IS NOT NULL`` are
exact for files that are all null or have no nulls. In a file of only nulls, no row matches a leaf
on values, and every row matches ``NOT (c <=> v)``. A column that a data file lacks is all null
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from skipstone.predicate.tree import Op
from skipstone.pruning import Bounds
from skipstone.pruning.column_types import atomic, refuse
from skipstone.pruning.file_bounds import TRUNCATE, RangeBuilder, intervals_of, range_type
from skipstone.pruning.interval import interval_bounds, null_bounds
from skipstone.pruning.kind import Builder, Built, PerFile, Rows
from skipstone.pruning.pairs import Bounded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Units
    from skipstone.pruning.kind import Chunk, Stored


class MinMax(PerFile):
    """Least and largest value per file; see the module. ``truncate``: bytes of a bound, 1 or
    more."""

    name = "minmax"
    parameters = ("truncate",)
    of_elements = like_pm = True
    ops = frozenset(Op) - {Op.IS_NULL, Op.NOT_NULL, Op.NOT_LIKE}
    sweeps = True

    def __init__(self, column: str, truncate: int = TRUNCATE) -> None:
        super().__init__(column)
        if truncate < 1:
            raise ValueError(f"truncate is a number of bytes, at least 1, not {truncate}")
        self.truncate = truncate

    @property
    def params(self) -> Mapping[str, str]:
        """``truncate``, where it is not the default."""
        return {} if self.truncate == TRUNCATE else {"truncate": str(self.truncate)}

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        return cls(column, truncate=int(params.get("truncate", TRUNCATE)))

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """``struct<min, max>`` of any atomic type."""
        if not atomic(type):
            raise refuse(self.name, self.column, type, ())
        return range_type(type)

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """A builder that holds two values."""
        return RangeBuilder(type, self.truncate)

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """Bounds of ``leaf`` from the stored ranges (``interval.py``)."""
        intervals = intervals_of(rows.stored)
        return interval_bounds(leaf, intervals if rows.at is None else intervals.where(rows.at))

    def bounded(self, units: Units) -> Sequence[Bounded]:
        """Bounds of the files of ``units``."""
        if self.stored is None:
            return ()
        row = self.stored.row_of_file[units.file]
        held = row >= 0
        held[held] = self.known(self.stored)[row[held]]
        if not held.any():
            return ()
        found = intervals_of(self.stored).where(np.where(held, row, int(row[held][0])))
        type = self.stored.type
        return (Bounded(found.only(held), "integer" if pa.types.is_integer(type) else type),)


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
        """A builder that counts."""
        self.stored_type(type)
        return _NullBuilder()

    def known(self, stored: Stored) -> BoolArray:
        """Flags of the rows with counts; the stored value does not matter."""
        return stored.nulls >= 0

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """Bounds from the counts alone."""
        if leaf.op not in (Op.IS_NULL, Op.NOT_NULL) and rows.filled:
            return Bounds.unknown(len(rows))
        return null_bounds(leaf.op, rows.rows, rows.nulls)


class _NullBuilder(Builder):
    def __init__(self) -> None:
        self.nulls = 0

    def add(self, chunk: Chunk) -> None:
        self.nulls += chunk.null_count

    def finish(self) -> Built:
        return Built(pa.array([self.nulls], pa.int64()))
