"""``minmax``: the least and the largest value of a column in each file.

Stored value: ``struct<min: T, max: T>``, T the column's type, as in Xskipper's stores.

- Floats in Spark's order: NaN largest, -0.0 stored as 0.0.
- Strings and byte arrays longer than ``truncate`` bytes (64) are cut soundly (``truncate.py``):
  ``min`` to a prefix, ``max`` to something above all that begins as it does. Where no such thing
  exists ``max`` is null, which reads as "unbounded".
- A file without non-null values has a struct of two nulls. It is told from unbounded by ``min``,
  which there always is otherwise; null counts decide where they are known.
- Decimals, dates, timestamps and intervals as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pyarrow as pa

from skipstone.predicate.tree import Op
from skipstone.pruning.column_types import atomic, refuse
from skipstone.pruning.file_bounds import TRUNCATE, MinMaxBuilder, intervals_of
from skipstone.pruning.interval import interval_bounds
from skipstone.pruning.per_file import PerFile, Rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Bounds
    from skipstone.pruning.kind import Builder

__all__ = ["MinMax"]


class MinMax(PerFile):
    """Least and largest value per file; see the module. ``truncate``: bytes of a bound, at least
    1."""

    name = "minmax"
    aliases = ("min_max",)
    parameters = ("truncate",)
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
        """The definition behind ``params``."""
        return cls(column, truncate=int(params.get("truncate", TRUNCATE)))

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """``struct<min, max>`` of any atomic type."""
        if not atomic(type):
            raise refuse(self.name, self.column, type, ())
        return pa.struct([pa.field("min", type), pa.field("max", type)])

    def in_xskipper(self, type: pa.DataType) -> bool:
        """All but binary, local timestamps and intervals."""
        local = pa.types.is_timestamp(type) and type.tz is None
        return not (local or pa.types.is_binary(type) or pa.types.is_duration(type))

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """Holds two values."""
        return MinMaxBuilder(type, self.stored_type(type), self.truncate)

    def judge(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """What the bounds say (``interval.py``)."""
        intervals = intervals_of(rows.stored)
        return interval_bounds(leaf, intervals if rows.at is None else intervals.where(rows.at))
