"""Least and largest value of each file: how they are built, and read back as intervals.

Several kinds store them: ``minmax``, and those row indexes that know more. The stored value is a
struct with fields ``min`` and ``max`` of the column's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.predicate.literals import order_keys

from .column_types import is_text
from .interval import Intervals
from .kind import Builder, Built
from .truncate import cut_lower, cut_upper

if TYPE_CHECKING:
    from .kind import Chunk, Stored

__all__ = ["TRUNCATE", "MinMaxBuilder", "intervals_of"]

#: bytes that a bound of a string or byte array may take, unless said otherwise
TRUNCATE = 64


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


class MinMaxBuilder(Builder):
    """Builds ``struct<min, max>`` of one file's column; ``truncate``: bytes of a bound at most."""

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
