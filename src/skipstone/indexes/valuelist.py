"""``valuelist``: the distinct values of a column in each file, where they are few.

Stored value: ``list<T>``, T the column's type: the distinct non-null values, ascending; -0.0
stored as 0.0, all NaNs as one. A file with more than ``max_values`` of them (1,000), or more than
``max_bytes`` bytes (64 KiB), is left out, with the reason.

A leaf is evaluated on values, so it is exact for every operator, LIKE with its whole pattern
included: a file may match when a value of its list does, and every row matches when all do and
there is no null.

For many files, the values of all lists are dictionary-encoded once. A leaf is evaluated on each
distinct value once; counting codes gives the files, without a loop over files. For a few files of
many, their lists are gathered and evaluated as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone.predicate.literals import Keys, order_keys
from skipstone.predicate.tree import Op
from skipstone.pruning.column_types import atomic, is_text, refuse
from skipstone.pruning.interval import with_nulls
from skipstone.pruning.kind import Builder, Built, Chunk, PerFile, Rows
from skipstone.pruning.residual import matching_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Bounds
    from skipstone.pruning.kind import Stored


IntArray: TypeAlias = "NDArray[np.int64]"

#: most values of a file's list by default
MAX_VALUES = 1_000
#: most bytes of a file's list: its values, and 4 for the offset of each string
MAX_BYTES = 64 * 1024

# For fewer than one file in this many, their lists are gathered instead of encoding all.
_FEW = 16
# Codes that match are looked up one by one up to this many, then all codes by a table.
_SINGLE = 4


class ValueList(PerFile):
    """Distinct values per file, up to ``max_values`` and ``max_bytes``; see the module."""

    name = "valuelist"
    aliases = ("value_list", "values")
    parameters = ("max_values", "max_bytes")
    cost = 2.0
    ops = frozenset(Op) - {Op.IS_NULL, Op.NOT_NULL}

    def __init__(
        self, column: str, max_values: int = MAX_VALUES, max_bytes: int = MAX_BYTES
    ) -> None:
        super().__init__(column)
        if max_values < 1 or max_bytes < 1:
            raise ValueError("max_values and max_bytes are at least 1")
        self.max_values, self.max_bytes = max_values, max_bytes

    @property
    def params(self) -> Mapping[str, str]:
        """The limits, where they are not the defaults."""
        limits = {"max_values": MAX_VALUES, "max_bytes": MAX_BYTES}
        return {k: str(getattr(self, k)) for k, v in limits.items() if getattr(self, k) != v}

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        return cls(
            column,
            max_values=int(params.get("max_values", MAX_VALUES)),
            max_bytes=int(params.get("max_bytes", MAX_BYTES)),
        )

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """``list<element: type>`` of any atomic type."""
        if not atomic(type):
            raise refuse(self.name, self.column, type, ())
        return pa.list_(pa.field("element", type))

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """Holds at most the limits' worth of values."""
        return _ValueListBuilder(
            type, self.stored_type(type), self.max_values, min(self.max_bytes, budget)
        )

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """Bounds from the distinct values; ``may`` is exact."""
        some, every = _reduce(leaf, rows)
        return with_nulls(leaf.op, some, every, rows.rows, rows.nulls)


# -- reading back ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Lists:
    """Lists of many files: ``values`` of all, one after the other, ``counts`` int64 per file."""

    type: pa.DataType
    values: pa.Array
    counts: IntArray

    @classmethod
    def of(cls, lists: pa.Array, type: pa.DataType) -> _Lists:
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        return cls(type, lists.flatten(), counts.astype(np.int64))

    @cached_property
    def owner(self) -> NDArray[np.int32]:
        """The file of each value."""
        return np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)

    @cached_property
    def encoded(self) -> tuple[NDArray[np.int32], pa.Array]:
        """Code of each value, and the distinct values; a foreign store's nulls have a code too."""
        found = self.values.dictionary_encode(null_encoding="encode")
        return found.indices.to_numpy(zero_copy_only=False), found.dictionary

    @cached_property
    def distinct_keys(self) -> Keys:
        """Keys of the distinct values."""
        return order_keys(self.encoded[1], self.type)

    def per_file(self, matching: NDArray[np.int64]) -> IntArray:
        """How many of each file's values are at these positions."""
        return np.bincount(self.owner[matching], minlength=len(self.counts))


def _reduce(leaf: Leaf, rows: Rows) -> tuple[BoolArray, BoolArray]:
    """Per file: some value of the list matches, all do."""
    stored = rows.stored
    if rows.at is not None and len(rows) * _FEW < len(stored.rows) and "lists" not in stored.cache:
        lists = _Lists.of(rows.values, stored.type)
        keys = order_keys(lists.values, stored.type)
        matching = lists.per_file(np.flatnonzero(matching_values(leaf, keys)))
        return matching > 0, matching == lists.counts
    every = _every(stored)
    matching = _matching(every, matching_values(leaf, every.distinct_keys))
    some, all_ = matching > 0, matching == every.counts
    return (some, all_) if rows.at is None else (some[rows.at], all_[rows.at])


def _every(stored: Stored) -> _Lists:
    found: _Lists | None = stored.cache.get("lists")
    if found is None:
        found = stored.cache["lists"] = _Lists.of(stored.values, stored.type)
    return found


def _matching(lists: _Lists, match: BoolArray) -> IntArray:
    """How many of each file's values match, given which distinct values do."""
    codes = lists.encoded[0]
    hits = np.flatnonzero(match)
    if len(hits) <= _SINGLE:
        total = np.zeros(len(lists.counts), np.int64)
        for code in hits:
            total += lists.per_file(np.flatnonzero(codes == np.int32(code)))
        return total
    if 2 * len(hits) > len(match):
        return lists.counts - lists.per_file(np.flatnonzero(_look_up(~match, codes)))
    return lists.per_file(np.flatnonzero(_look_up(match, codes)))


def _look_up(table: BoolArray, codes: NDArray[np.int32]) -> BoolArray:
    """``table[codes]``; Arrow takes 32-bit positions as they are, NumPy widens ten million first.

    No check of bounds: Arrow made the codes from the dictionary of this table.
    """
    found = pc.take(pa.array(table.view(np.int8)), pa.array(codes), boundscheck=False)
    return np.asarray(found.to_numpy(zero_copy_only=False)).view(np.bool_)


# -- building -------------------------------------------------------------------------------------


class _ValueListBuilder(Builder):
    def __init__(
        self, type: pa.DataType, stored: pa.DataType, max_values: int, max_bytes: int
    ) -> None:
        self.type, self.stored = type, stored
        self.max_values, self.max_bytes = max_values, max_bytes
        self.seen = pa.array([], type)
        self.over: str | None = None

    @property
    def nbytes(self) -> int:
        return int(self.seen.nbytes)

    def add(self, chunk: Chunk) -> None:
        if self.over is not None:
            return
        # A few values first: the distinct values of a long run of a key column are never wanted.
        look = 4 * self.max_values + 1_024
        if len(chunk.values) > 4 * look and not self._take(
            Chunk(chunk.values.slice(0, look)).distinct
        ):
            return
        self._take(chunk.distinct)

    def _take(self, values: pa.Array) -> bool:
        """Add distinct values; False once there are too many."""
        if pa.types.is_floating(self.type):
            values = _one_zero_one_nan(values)
        joined = pa.concat_arrays([self.seen, values]) if len(self.seen) else values
        self.seen = joined.unique() if len(self.seen) or pa.types.is_floating(self.type) else joined
        size = _size(self.seen)
        if len(self.seen) > self.max_values:
            self.over = f"more than {self.max_values:,} distinct values"
        elif size > self.max_bytes:
            self.over = f"its distinct values take more than {self.max_bytes:,} bytes"
        if self.over is not None:
            self.seen = self.seen.slice(0, 0)
        return self.over is None

    def finish(self) -> Built:
        if self.over is not None:
            return Built(None, self.over)
        values = self.seen
        if pa.types.is_string(self.type):
            try:
                values.validate(full=True)
            except pa.ArrowInvalid:
                return Built(None, "a value is not UTF-8")
        if len(values) > 1:
            values = values.take(_ascending(values))
        offsets = pa.array([0, len(values)], pa.int32())
        return Built(pa.ListArray.from_arrays(offsets, values, type=self.stored))


def _ascending(values: pa.Array) -> pa.Array:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return pc.sort_indices(values)


def _one_zero_one_nan(values: pa.Array) -> pa.Array:
    numbers = values.to_numpy(zero_copy_only=False)
    numbers = numbers + numbers.dtype.type(0.0)
    numbers[np.isnan(numbers)] = np.nan
    return pa.array(numbers, values.type)


def _size(values: pa.Array) -> int:
    if is_text(values.type):
        total = pc.sum(pc.binary_length(values)).as_py() or 0
        return int(total) + 4 * len(values)
    return len(values) * int(values.type.bit_width) // 8
