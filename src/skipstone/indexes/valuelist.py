"""``valuelist``: the distinct values of a column in each file, where they are few.

Stored value: ``list<T>``, T the column's type: the distinct non-null values, ascending; -0.0
stored as 0.0, all NaNs as one. A file with more than ``max_values`` of them (1,000), or more than
``max_bytes`` bytes (64 KiB), is left out, with the reason.

A leaf is evaluated on values, so it is exact for every operator, LIKE with its whole pattern
included: a file may match when a value of its list does, and every row matches when all do and
there is no null.

For many files, the files of each distinct value are listed once. A leaf is evaluated on each
distinct value; counting their files gives the answer, without a look at the others. For a few files
of many, their lists are gathered and evaluated as they are.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, numbers
from skipstone._dataclasses import dataclass
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


IntArray: TypeAlias = "NDArray[np.int64]"

#: most values of a file's list by default
MAX_VALUES = 1_000
#: most bytes of a file's list: its values, and 4 for the offset of each string
MAX_BYTES = 64 * 1024

# For fewer than one file in this many, their lists are gathered instead of encoding all.
_FEW = 16
# Runs of distinct values whose files are taken one by one.
_RUNS = 64


class ValueList(PerFile):
    """Distinct values per file, up to ``max_values`` and ``max_bytes``; see the module."""

    asks_jointly = True
    name = "valuelist"
    parameters = ("max_values", "max_bytes")
    cost = 2.0
    of_elements = like_pm = True
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
class _Postings:
    """The files of each distinct value: ``files[starts[v] : starts[v + 1]]`` for value ``v``.
    ``counts`` int64 are the values of each file."""

    keys: Keys
    starts: IntArray
    files: NDArray[np.int32]
    counts: IntArray

    @classmethod
    def of(cls, lists: pa.Array, type: pa.DataType) -> _Postings:
        """From the lists of many files. A foreign store's null in a list is a value, too."""
        counts = _counts(lists)
        found = pc.dictionary_encode(pc.list_flatten(lists), null_encoding="encode")
        codes, values = numbers(found.indices), found.dictionary
        if len(values) <= 1 << 16:
            # In their order, so that the values of a range are one run.
            order = numbers(pc.sort_indices(values))
            place = np.empty(len(order), np.uint16)
            place[order] = np.arange(len(order), dtype=np.uint16)
            codes, values = place[codes], pc.take(values, arrow(order))
        owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        starts = np.zeros(len(values) + 1, np.int64)
        np.cumsum(np.bincount(codes, minlength=len(values)), out=starts[1:])
        return cls(order_keys(values, type), starts, owner[_by_code(codes)], counts)

    @cached_property
    def empty(self) -> BoolArray:
        """Flags of the files without values."""
        return np.asarray(self.counts == 0)

    def matching(self, match: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Per file: some value matches, all do, given which distinct values match."""
        sizes = np.diff(self.starts)
        inverse = 2 * int(sizes[match].sum()) > len(self.files)
        files = self._files(~match if inverse else match, sizes)
        if _FEW * len(files) < len(self.counts):
            return self._of_few(np.sort(files), inverse=inverse)
        found = np.bincount(files, minlength=len(self.counts))
        if inverse:
            return found < self.counts, found == 0
        return found > 0, found == self.counts

    def _of_few(self, files: NDArray[np.int32], *, inverse: bool) -> tuple[BoolArray, BoolArray]:
        """The flags from the ascending files of values that match, or with ``inverse`` do not."""
        first = np.flatnonzero(np.concatenate(([True], files[1:] != files[:-1])))[: len(files)]
        at, count = files[first], np.diff(first, append=len(files))
        if inverse:
            some, every = ~self.empty, np.ones(len(self.counts), np.bool_)
            some[at], every[at] = count < self.counts[at], False
        else:
            some, every = np.zeros(len(self.counts), np.bool_), self.empty.copy()
            some[at], every[at] = True, count == self.counts[at]
        return some, every

    def _files(self, match: BoolArray, sizes: IntArray) -> NDArray[np.int32]:
        """The file of each value that matches."""
        edges = np.flatnonzero(np.diff(match, prepend=False, append=False)).reshape(-1, 2)
        if len(edges) > _RUNS:
            return self.files[np.repeat(match, sizes)]
        spans = self.starts[edges].tolist()
        return np.concatenate([self.files[:0], *(self.files[a:b] for a, b in spans)])


def _counts(lists: pa.Array) -> IntArray:
    """The length of each list, 0 for null."""
    return numbers(pc.list_value_length(lists)).astype(np.int64)


def _by_code(codes: NDArray[np.uint16] | NDArray[np.int32]) -> NDArray[np.intp]:
    """The positions of the codes in their order: NumPy sorts 16 bits by radix."""
    order = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    if codes.dtype == np.uint16:
        return order
    return order[np.argsort((codes[order] >> 16).astype(np.uint16), kind="stable")]


def _reduce(leaf: Leaf, rows: Rows) -> tuple[BoolArray, BoolArray]:
    """Per file: some value of the list matches, all do."""
    stored = rows.stored
    found: _Postings | None = stored.cache.get("lists")
    if found is None and rows.at is not None and len(rows) * _FEW < len(stored.rows):
        counts = _counts(rows.values)
        match = matching_values(leaf, order_keys(pc.list_flatten(rows.values), stored.type))
        matching = np.bincount(np.repeat(np.arange(len(counts)), counts)[match],
                               minlength=len(counts))  # fmt: skip
        return matching > 0, matching == counts
    if found is None:
        found = stored.cache["lists"] = _Postings.of(stored.values, stored.type)
    some, all_ = found.matching(matching_values(leaf, found.keys))
    return (some, all_) if rows.at is None else (some[rows.at], all_[rows.at])


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
