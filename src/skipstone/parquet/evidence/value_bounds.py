"""Bounds and null counts of values: how files write them, and what they prove about a predicate
leaf.

**Chunks** (``Statistics``). ``min_value`` and ``max_value`` are used where ``column_orders`` names
their order. The deprecated ``min`` and ``max`` are ordered as signed bytes or numbers, whatever the
type. They are used where the others are absent and

- the type's own order is that one: signed integers, dates, timestamps, booleans, floats, decimals
  stored as integers; or
- they are equal: then all values are equal, in any order. For byte arrays the writer must be known,
  and must not be parquet-mr before 1.8, which wrote bytes of other values there (PARQUET-251).

They are never used for INT96. An absent null count is unknown, and 0 where the column cannot be
null. For dictionary-encoded strings and bytes, Arrow's C++ writer counts only the nulls of the
column, not those of its group: there a null count below an optional group is ignored. A chunk that
does not hold one value per row contradicts itself. So does a chunk with bounds that has only nulls.
No bound or count of such a chunk is used.

**Pages** (page index). The rows of a page come from the offset index; the column must have one
value per row. A null page is accepted where the column can be null and its null count, if there is
one, equals its rows: some writers mark pages without statistics as null pages. A page that
contradicts itself has no bounds. ``boundary_order`` says that bounds ascend, never that pages are
disjoint, and nothing here depends on it.

A page index must agree with its chunk. An index of an older version of the file, or of another
chunk, is well-formed and wrong: its pages lie elsewhere, its null counts add up to another number,
or its bounds lie outside those of the chunk. Then it is not used.

**NaN.** Parquet's bounds of floats leave NaN out, and NaN is the largest value here. So they are
read twice:

    numbers   lo <= v <= hi for the values that are not NaN
    all       lo <= v, and v <= hi only where the count of NaN is known to be 0

A leaf that no NaN matches (``f = 100``, ``f < 3``) is excluded by ``numbers``; a leaf that every
NaN matches (``f > 100``, ``f <> 3``) holds everywhere by ``numbers``. The other two halves use
``all``: ``f > 100`` never loses a NaN. Bounds that are NaN themselves:

| order | a NaN bound means |
|---|---|
| TYPE_ORDER | the comparison of an old writer failed on it: neither bound is used |
| IEEE_754_TOTAL_ORDER | both are: every value is NaN; one is: neither is used |

In either order a count of NaN that equals the number of values says that every value is NaN.
IEEE_754_TOTAL_ORDER needs a count; without one no bound is used. In it -0.0 is below 0.0, and may
be its bound. That makes no difference here: both have the same key.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.format.enums import FieldRepetitionType, Type
from skipstone.parquet.values import ByteArrays
from skipstone.predicate.literals import Keys, compare, float_key
from skipstone.predicate.members import lists_nan
from skipstone.predicate.tree import Const, Leaf, Op
from skipstone.pruning import BoolArray, Bounds
from skipstone.pruning.interval import (
    Intervals,
    interval_bounds,
    null_bounds,
    over_values,
    with_nulls,
)

from .stored_values import Form, StoredColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
    from skipstone.parquet.values import I64


_NAN = float_key(math.nan)


class Order:
    """Names of the supported column orders; anything else is ``UNKNOWN``."""

    TYPE = "TYPE_ORDER"
    IEEE = "IEEE_754_TOTAL_ORDER"
    INT96 = "INT96_TIMESTAMP_ORDER"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ValueBounds:
    """Bounds of ``stored`` over n units; ``numbers`` is set for floats, see the module.

    ``rows`` and ``nulls`` int64 ``(n,)``, -1 unknown.
    """

    stored: StoredColumn
    all: Intervals
    numbers: Intervals | None = None

    def __len__(self) -> int:
        return len(self.all)

    @classmethod
    def of(
        cls,
        stored: StoredColumn,
        order: str,
        *,
        lo: Keys,
        hi: Keys,
        rows: I64,
        nulls: I64,
        nans: I64 | None,
    ) -> ValueBounds:
        """From bounds as written in ``order``; ``nans`` int64 ``(n,)``, -1 unknown, and ``None``
        where they are all unknown."""
        if not _ordered(stored.form, order):
            none = np.zeros(len(rows), np.bool_)
            lo, hi = Keys(lo.data, none), Keys(hi.data, none)
        type_ = pa.int64() if stored.type is None else stored.type
        if stored.form is not Form.FLOATING:
            checked = Intervals.checked(type=type_, lo=lo, hi=hi, rows=rows, nulls=nulls)
            return cls(stored=stored, all=checked)
        assert isinstance(lo.data, np.ndarray)
        assert isinstance(hi.data, np.ndarray)
        low_nan, high_nan = lo.valid & (lo.data == _NAN), hi.valid & (hi.data == _NAN)
        if nans is None and not (low_nan | high_nan).any() and order != Order.IEEE:
            # Whether a unit holds NaN is unknown for all units.
            numbers = Intervals.checked(type=type_, lo=lo, hi=hi, rows=rows, nulls=nulls)
            top = Keys(numbers.hi.data, np.zeros(len(rows), np.bool_))
            all_ = Intervals(type=type_, lo=numbers.lo, hi=top, rows=rows, nulls=numbers.nulls)
            return cls(stored=stored, all=all_, numbers=numbers)
        nans = np.full(len(rows), -1, np.int64) if nans is None else nans
        counted = (nans > 0) & (nulls >= 0) & (nans == rows - nulls)
        only_nan = counted & (low_nan | ~lo.valid) & (high_nan | ~hi.valid)
        bad = low_nan | high_nan
        if order == Order.IEEE:
            only_nan |= low_nan & high_nan & (nans > 0) & (counted | (nulls < 0) | (rows < 0))
            bad |= nans < 0
        known = ~bad & ~only_nan
        lo, hi = Keys(lo.data, lo.valid & known), Keys(hi.data, hi.valid & known)
        # Bounds that contradict each other are removed from `numbers`, and so from `all`.
        numbers = Intervals.checked(type=type_, lo=lo, hi=hi, rows=rows, nulls=nulls)
        all_ = Intervals(
            type=type_,
            lo=_or_nan(numbers.lo, only_nan),
            hi=_or_nan(Keys(numbers.hi.data, numbers.hi.valid & (nans == 0)), only_nan),
            rows=rows,
            nulls=numbers.nulls,
        )
        return cls(stored=stored, all=all_, numbers=numbers)

    def where(self, at: I64) -> ValueBounds:
        """The units at these positions."""
        numbers = None if self.numbers is None else self.numbers.where(at)
        return ValueBounds(stored=self.stored, all=self.all.where(at), numbers=numbers)

    def of_elements(self) -> ValueBounds:
        """A copy without null counts: those of elements do not count rows."""
        unknown = np.full(len(self), -1, np.int64)
        numbers = None if self.numbers is None else replace(self.numbers, nulls=unknown)
        return replace(self, all=replace(self.all, nulls=unknown), numbers=numbers)

    @classmethod
    def concat(cls, parts: Sequence[ValueBounds]) -> ValueBounds:
        """The units of all parts, in order; all of one stored type."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        numbers = [each.numbers for each in parts if each.numbers is not None]
        return cls(
            stored=first.stored,
            all=Intervals.concat([each.all for each in parts]),
            numbers=Intervals.concat(numbers) if numbers else None,
        )

    def bounds_of(self, leaf: Leaf) -> Bounds[BoolArray] | None:
        """Bounds of ``leaf``; ``None`` where ranges and null counts cannot answer it."""
        if leaf.op in (Op.IS_NULL, Op.NOT_NULL) or self.stored.type is None:
            return null_bounds(leaf.op, self.all.rows, self.all.nulls)
        local = self.stored.restate(leaf)
        if local is None:
            return null_bounds(leaf.op, self.all.rows, self.all.nulls)
        if isinstance(local, Const):
            return (Bounds.everything if local.value else Bounds.nothing)(len(self))
        if self.numbers is None or local.op in (Op.IS_NULL, Op.NOT_NULL):
            return interval_bounds(local, self.all)
        of_numbers = over_values(local, self.numbers)
        if of_numbers is None:
            return None
        some, every = of_numbers
        takes_nan = _takes_nan(local)
        # Where `all` has no upper bound in any unit, there may be a NaN in every one.
        found = over_values(local, self.all) if self.all.hi.valid.any() else None
        if takes_nan:
            some = np.ones_like(some) if found is None else found[0]
            every = every if found is None else every | found[1]
        else:
            some = some if found is None else some & found[0]
            every = np.zeros_like(every) if found is None else found[1]
        return with_nulls(local.op, some, every, self.all.rows, self.all.nulls)


def _ordered(form: Form, order: str) -> bool:
    if form is Form.NONE:
        return False
    if form is Form.INT96:
        return order == Order.INT96
    return order == Order.TYPE or (order == Order.IEEE and form is Form.FLOATING)


def _or_nan(keys: Keys, only_nan: BoolArray) -> Keys:
    return Keys(np.where(only_nan, _NAN, np.asarray(keys.data)), keys.valid | only_nan)


def _takes_nan(leaf: Leaf) -> bool:
    """Whether a NaN matches a leaf on values."""
    among = lists_nan(leaf)
    match leaf.op:
        case Op.EQ | Op.IN | Op.LE:
            return among
        case Op.NE | Op.NE_OR_NULL | Op.NOT_IN | Op.GT:
            return not among
        case _:
            return leaf.op is Op.GE


_BYTES = (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY)
_SIGNED = (Form.BOOLEAN, Form.SIGNED, Form.TIMESTAMP, Form.FLOATING, Form.DECIMAL)
_PARQUET_MR = re.compile(r"parquet-mr(?: version (\d+)\.(\d+))?")


def order_of(footer: FooterArrays, leaf: int) -> str:
    """The order in which bounds of this leaf are written."""
    try:
        orders = footer.column_orders
    except FormatError:
        return Order.UNKNOWN
    if orders is None:
        return Order.ABSENT
    if len(orders) != footer.num_leaves or orders[leaf].unknown:
        return Order.UNKNOWN
    named = orders[leaf]
    found = [
        name for name in (Order.TYPE, Order.IEEE, Order.INT96) if getattr(named, name) is not None
    ]
    return found[0] if len(found) == 1 else Order.UNKNOWN


def chunk_bounds(
    footer: FooterArrays, stored: StoredColumn, *, below_lists: bool = False
) -> ValueBounds:
    """Bounds of all row groups of one leaf, in their order.

    ``below_lists``: also bounds of a leaf that has any number of values per row. They bound values,
    not rows.
    """
    leaf = stored.column.ordinal
    order = order_of(footer, leaf)
    rows = footer.group("num_rows")
    values = footer.chunk("num_values")[:, leaf]
    nulls = footer.chunk("null_count")[:, leaf]
    nans = footer.chunk("nan_count")[:, leaf]
    if below_lists and stored.column.max_repetition_level:
        rows = values
    whole = values == rows
    if not stored.column.max_definition_level:
        nulls = np.zeros_like(rows)
    if miscounts_nulls(footer, stored):
        nulls = np.full_like(rows, -1)
    nulls = np.where(whole, nulls, -1)
    nans = np.where(nans > values, -1, nans)

    groups = slice(None)
    starts_lo, lengths_lo = footer.bytes_of("min_value", groups, leaf)
    starts_hi, lengths_hi = footer.bytes_of("max_value", groups, leaf)
    known_lo, known_hi = lengths_lo >= 0, lengths_hi >= 0
    if order == Order.ABSENT:
        known_lo, known_hi = np.zeros_like(known_lo), np.zeros_like(known_hi)
    if _is_long_decimal(stored):
        # The first byte has the sign and the length the magnitude: a prefix bounds nothing.
        known_lo &= footer.chunk("is_min_value_exact")[:, leaf] != 0
        known_hi &= footer.chunk("is_max_value_exact")[:, leaf] != 0
    if order in (Order.ABSENT, Order.TYPE) and stored.form not in (Form.NONE, Form.INT96):
        old, old_places = _deprecated(footer, stored, ~known_lo & ~known_hi)
        if old.any():
            places = (starts_lo, lengths_lo, starts_hi, lengths_hi)
            starts_lo, lengths_lo, starts_hi, lengths_hi = (
                np.where(old, one, other) for one, other in zip(old_places, places, strict=True)
            )
            known_lo, known_hi = known_lo | old, known_hi | old
        order = Order.TYPE
    # A chunk of only nulls has no bounds.
    odd = (nulls == rows) & (rows > 0) & (known_lo | known_hi)
    nulls, whole = np.where(odd, -1, nulls), whole & ~odd
    known_lo, known_hi = known_lo & whole, known_hi & whole
    return ValueBounds.of(
        stored,
        order,
        lo=stored.keys(_gather(footer.data, starts_lo, lengths_lo, known_lo), known_lo),
        hi=stored.keys(_gather(footer.data, starts_hi, lengths_hi, known_hi), known_hi, upper=True),
        rows=rows,
        nulls=nulls,
        nans=nans,
    )


def _deprecated(
    footer: FooterArrays, stored: StoredColumn, lacking: BoolArray
) -> tuple[BoolArray, tuple[I64, ...]]:
    """In which of the ``lacking`` row groups the deprecated bounds of a leaf can be used; see the
    module. Also starts and lengths of ``min``, then of ``max``, in the footer."""
    leaf, is_bytes = stored.column.ordinal, stored.column.type in _BYTES
    lo, lengths_lo = footer.bytes_of("min", slice(None), leaf)
    hi, lengths_hi = footer.bytes_of("max", slice(None), leaf)
    usable = lacking & (lengths_lo >= 0) & (lengths_hi >= 0)
    if stored.form not in _SIGNED or is_bytes:
        if is_bytes and not _trusted(footer.created_by):
            usable[:] = False
        for at in np.flatnonzero(usable).tolist():
            low = footer.data[lo[at] : lo[at] + lengths_lo[at]]
            usable[at] = low == footer.data[hi[at] : hi[at] + lengths_hi[at]]
    return usable, (lo, lengths_lo, hi, lengths_hi)


def miscounts_nulls(footer: FooterArrays, stored: StoredColumn) -> bool:
    """Whether null counts of this leaf may be too low; see the module."""
    column = stored.column
    return (
        column.type is Type.BYTE_ARRAY
        and (footer.created_by or "").startswith("parquet-cpp")
        and any(node.repetition is FieldRepetitionType.OPTIONAL for node in column.ancestors[1:])
    )


def _is_long_decimal(stored: StoredColumn) -> bool:
    return stored.form is Form.DECIMAL and stored.column.type in _BYTES


def _trusted(created_by: str | None) -> bool:
    """Whether deprecated bounds of byte arrays are those of the column."""
    if not created_by:
        return False
    found = _PARQUET_MR.match(created_by)
    if found is None:
        return True
    return found[1] is not None and (int(found[1]), int(found[2])) >= (1, 8)


def _gather(data: bytes, starts: I64, lengths: I64, known: BoolArray) -> ByteArrays:
    """Slices of ``data``, empty where not ``known``."""
    places = zip(starts.tolist(), lengths.tolist(), known.tolist(), strict=True)
    return ByteArrays.from_list(
        [data[start : start + length] if ok else b"" for start, length, ok in places]
    )


def page_bounds(
    stored: StoredColumn,
    order: str,
    index: ColumnIndexArrays,
    offsets: OffsetIndexArrays,
    *,
    num_rows: int,
    null_count: int,
    chunk: ValueBounds,
) -> ValueBounds:
    """Bounds of each page; ``null_count`` is that of the chunk, -1 unknown, and ``chunk`` its
    bounds (one unit).

    ``FormatError`` when the two indexes are of different numbers of pages, or of another chunk.
    """
    if len(index) != len(offsets):
        raise FormatError(
            "a column index of another number of pages than the offset index",
            expected=len(offsets),
            got=len(index),
        )
    rows = offsets.rows(num_rows)
    unknown = np.full(len(rows), -1, np.int64)
    counted = unknown if index.null_counts is None else index.null_counts
    if not stored.column.max_definition_level or null_count == 0:
        claimed = index.null_pages & (rows > 0)
        nulls = np.zeros_like(rows)
        null_pages = np.zeros_like(index.null_pages)
    else:
        claimed = index.null_pages
        null_pages = claimed & ((counted == rows) | (index.null_counts is None))
        nulls = np.where(null_pages, rows, counted)
    # The bounds of a page that is wrongly marked as null are placeholders.
    known = ~index.null_pages
    nulls = np.where(claimed & ~null_pages & (nulls != 0), -1, nulls)
    nans = unknown if index.nan_counts is None else index.nan_counts
    if bool(np.any((rows == 0) & known)):
        raise FormatError("a page without rows that has values")
    counts = index.null_counts
    if counts is not None and null_count >= 0 and len(counts) and counts.min() >= 0:
        total = int(counts.sum())
        if total != null_count:
            raise FormatError(
                "null counts of pages that are not those of their chunk",
                expected=null_count,
                got=total,
            )
    made = ValueBounds.of(
        stored,
        Order.UNKNOWN if order == Order.ABSENT else order,
        lo=stored.keys(index.min_values, known),
        hi=stored.keys(index.max_values, known, upper=True),
        rows=rows,
        nulls=nulls,
        nans=np.where(nans > rows, -1, nans),
    )
    _check_within(made.numbers or made.all, chunk.numbers or chunk.all)
    return made


def with_nulls_by_level(index: ColumnIndexArrays) -> ColumnIndexArrays:
    """A copy with null counts from its histograms of definition levels, or without any."""
    levels = index.definition_level_histograms
    return replace(index, null_counts=None if levels is None else levels[:, :-1].sum(axis=1))


def check_page_range(offsets: OffsetIndexArrays, start: int, stop: int) -> None:
    """``FormatError`` unless the pages lie one after the other within bytes ``start:stop``."""
    if not len(offsets):
        return
    first, ends = int(offsets.offset[0]), offsets.offset + offsets.compressed_page_size
    if first < start or int(ends[-1]) > stop or bool(np.any(offsets.offset[1:] < ends[:-1])):
        raise FormatError(
            "an offset index that leaves its chunk",
            offset=first,
            expected=f"{start} to {stop}",
            got=f"{first} to {int(ends[-1])}",
        )


def _check_within(pages: Intervals, chunk: Intervals) -> None:
    """``FormatError`` if the bounds of a page and of its chunk do not overlap."""
    (low,), (high,) = chunk.lo.to_list(), chunk.hi.to_list()
    if (high is not None and bool(compare(pages.lo, Op.GT, high).any())) or (
        low is not None and bool(compare(pages.hi, Op.LT, low).any())
    ):
        raise FormatError("bounds of a page outside those of its chunk")
