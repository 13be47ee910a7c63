"""The least and the largest value of a column in each file: built, truncated and read back.

``minmax`` stores them, and so do the row indexes of Paimon. Floats are in Spark's order: NaN is the
largest, -0.0 is stored as 0.0.

**Truncation.** Bounds of long strings and byte arrays are cut to a length: sound, not attained. A
lower bound is cut to its first ``limit`` bytes: a prefix sorts before all that it begins. An
upper bound is cut and then counted up, so that it sorts after all that begin with the cut part:
the last byte below ff (binary), or the last code point below U+10FFFF (string; the surrogates,
which UTF-8 has no form of, are stepped over), is increased by one and what follows it dropped.
UTF-8 has the same order by bytes and by code points, so the bound stays correct and valid UTF-8; it
may be three bytes longer than ``limit`` where the increased code point takes more bytes. Where
nothing can be increased there is no upper bound: ``None``, which readers treat as unbounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import validity
from skipstone.predicate.literals import order_keys

from .column_types import is_text
from .interval import Intervals
from .kind import Builder, Built

if TYPE_CHECKING:
    from .kind import Chunk, Stored


#: bytes that a bound of a string or byte array may take, unless said otherwise
TRUNCATE = 64

_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def cut_lower(value: bytes, limit: int, *, utf8: bool) -> bytes:
    """A lower bound of all that ``value`` bounds from below, at most ``limit`` bytes long."""
    return value if len(value) <= limit else _prefix(value, limit, utf8=utf8)


def cut_upper(value: bytes, limit: int, *, utf8: bool) -> bytes | None:
    """An upper bound of all that ``value`` bounds from above; ``None`` where there is no short one.

    ``value`` must be valid where ``utf8`` (``UnicodeDecodeError``).
    """
    if len(value) <= limit:
        return value
    prefix = _prefix(value, limit, utf8=utf8)
    if utf8:
        text = prefix.decode("utf-8")
        for at in range(len(text) - 1, -1, -1):
            following = ord(text[at]) + 1
            if following in _SURROGATES:
                following = _SURROGATES.stop
            if following <= _LAST:
                return (text[:at] + chr(following)).encode("utf-8")
        return None
    for at in range(len(prefix) - 1, -1, -1):
        if prefix[at] < 0xFF:
            return prefix[:at] + bytes((prefix[at] + 1,))
    return None


def _prefix(value: bytes, limit: int, *, utf8: bool) -> bytes:
    """The first ``limit`` bytes, less what would split a code point."""
    end = limit
    while utf8 and end > 0 and value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]


# -- the least and the largest value -------------------------------------------------------------


def range_type(type: pa.DataType) -> pa.StructType:
    """The type of a stored range: ``struct<min, max>``, both null where there is no value."""
    return pa.struct([pa.field("min", type), pa.field("max", type)])


def intervals_of(stored: Stored) -> Intervals:
    """The bounds in the fields ``min`` and ``max`` of the stored values as keys, made once."""
    found: Intervals | None = stored.cache.get("intervals")
    if found is None:
        values, rows, nulls = stored.values, stored.rows, stored.nulls
        lo = order_keys(pc.struct_field(values, "min"), stored.type)
        hi = order_keys(pc.struct_field(values, "max"), stored.type)
        if not pa.types.is_floating(stored.type):
            # Two nulls and no counts (a foreign store) mean that there are no values: any counts
            # that say so will do. For floats they may also mean a NaN, if the bounds came from
            # Parquet's statistics.
            here = validity(values)
            blank = ~lo.valid & ~hi.valid & (nulls < 0) & here
            rows = np.where(blank & (rows < 0), 1, rows)
            nulls = np.where(blank, rows, nulls)
        found = Intervals.checked(type=stored.type, lo=lo, hi=hi, rows=rows, nulls=nulls)
        stored.cache["intervals"] = found
    return found


class RangeBuilder(Builder):
    """Builds ``struct<min, max>`` of one file's column; ``truncate`` is the bytes of a bound of
    text."""

    def __init__(self, type: pa.DataType, truncate: int = TRUNCATE) -> None:
        self.type, self.stored, self.truncate = type, range_type(type), truncate
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
    # -0.0 + 0.0 is 0.0.
    return pa.array(np.array([low, high]) + numbers.dtype.type(0.0), values.type)
