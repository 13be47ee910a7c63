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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.predicate.literals import order_keys
from skipstone.predicate.tree import Op
from skipstone.pruning.column_types import atomic, is_text, refuse
from skipstone.pruning.interval import Intervals, interval_bounds
from skipstone.pruning.kind import Builder, Built
from skipstone.pruning.per_file import PerFile, Rows
from skipstone.pruning.truncate import cut_lower, cut_upper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Bounds
    from skipstone.pruning.kind import Chunk, Stored

__all__ = ["TRUNCATE", "MinMax", "intervals_of"]

#: bytes that a bound of a string or byte array may take, unless said otherwise
TRUNCATE = 64


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
        return _MinMaxBuilder(type, self.stored_type(type), self.truncate)

    def judge(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """What the bounds say (``interval.py``)."""
        intervals = intervals_of(rows.stored)
        return interval_bounds(leaf, intervals if rows.at is None else intervals.where(rows.at))


def intervals_of(stored: Stored) -> Intervals:
    """The bounds in the fields ``min`` and ``max`` of the stored values as keys, made once."""
    found: Intervals | None = stored.cache.get("intervals")
    if found is None:
        values, rows, nulls = stored.values, stored.rows, stored.nulls
        lo = order_keys(pc.struct_field(values, "min"), stored.type)
        hi = order_keys(pc.struct_field(values, "max"), stored.type)
        if not pa.types.is_floating(stored.type):
            # Two nulls and no counts (a foreign store) mean no values: any count that says so will
            # do. Of floats they may also mean a NaN, where the bounds came from Parquet's
            # statistics.
            here = values.is_valid().to_numpy(zero_copy_only=False)
            blank = ~lo.valid & ~hi.valid & (nulls < 0) & here
            rows = np.where(blank & (rows < 0), 1, rows)
            nulls = np.where(blank, rows, nulls)
        found = Intervals.checked(type=stored.type, lo=lo, hi=hi, rows=rows, nulls=nulls)
        stored.cache["intervals"] = found
    return found


class _MinMaxBuilder(Builder):
    def __init__(self, type: pa.DataType, stored: pa.StructType, truncate: int) -> None:
        self.type, self.stored, self.truncate = type, stored, truncate
        self.pairs: list[pa.Array] = []

    def add(self, chunk: Chunk) -> None:
        values = chunk.values
        if pa.types.is_dictionary(values.type):
            values = chunk.distinct
        pair = _float_range(values) if pa.types.is_floating(self.type) else _range(values)
        if pair is not None:
            self.pairs.append(pair)
            if len(self.pairs) > 64:
                self._fold()

    def _fold(self) -> None:
        joined = pa.concat_arrays(self.pairs)
        pair = _float_range(joined) if pa.types.is_floating(self.type) else _range(joined)
        self.pairs = [pair]

    def finish(self) -> Built:
        if not self.pairs:
            return Built(pa.array([{"min": None, "max": None}], self.stored))
        self._fold()
        pair = self.pairs[0]
        if is_text(self.type):
            low, high = pair.cast(pa.binary()).to_pylist()
            utf8 = bool(pa.types.is_string(self.type))
            try:
                low, high = (
                    end.decode("utf-8").encode("utf-8") if utf8 else end for end in (low, high)
                )
            except UnicodeDecodeError:
                return Built(None, "a value is not UTF-8")
            bounds = [
                cut_lower(low, self.truncate, utf8=utf8),
                cut_upper(high, self.truncate, utf8=utf8),
            ]
            pair = pa.array(bounds, pa.binary()).cast(self.type)
        low, high = pair.slice(0, 1), pair.slice(1, 1)
        return Built(pa.StructArray.from_arrays([low, high], fields=list(self.stored)))


def _range(values: pa.Array) -> pa.Array | None:
    """Least and largest of the non-null values, ``None`` where there are none."""
    plain = values.view(pa.int64()) if pa.types.is_duration(values.type) else values
    found = pc.min_max(plain)
    low, high = found["min"], found["max"]
    return pa.array([low, high], plain.type).view(values.type) if low.is_valid else None


def _float_range(values: pa.Array) -> pa.Array | None:
    """As ``_range`` in Spark's order, where NaN is largest and -0.0 is 0.0."""
    if values.null_count:
        values = values.drop_null()
    numbers = values.to_numpy(zero_copy_only=False)
    if not len(numbers):
        return None
    low, high = numbers.min(), numbers.max()
    if np.isnan(low):
        low = np.fmin.reduce(numbers)
    # Adding 0.0 makes 0.0 of -0.0.
    return pa.array(np.array([low, high]) + numbers.dtype.type(0.0), values.type)
