"""What the bounds of one leaf column say about a predicate leaf, over row groups or pages alike.

Parquet's bounds of floats leave NaN out, and NaN is the largest value here. So they are read twice:

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
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.predicate.literals import Keys, float_key
from skipstone.predicate.tree import Const, Op
from skipstone.pruning import Bounds
from skipstone.pruning.interval import Intervals, interval_bounds, null_bounds

from .stored_values import Form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray

    from .stored_values import Stored


IntArray: TypeAlias = "NDArray[np.int64]"
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

    stored: Stored
    all: Intervals
    numbers: Intervals | None = None

    def __len__(self) -> int:
        return len(self.all)

    @classmethod
    def of(
        cls,
        stored: Stored,
        order: str,
        *,
        lo: Keys,
        hi: Keys,
        rows: IntArray,
        nulls: IntArray,
        nans: IntArray,
    ) -> ValueBounds:
        """From bounds as written in ``order``; ``nans`` int64 ``(n,)``, -1 unknown."""
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

    def where(self, at: IntArray) -> ValueBounds:
        """The units at these positions."""
        numbers = None if self.numbers is None else self.numbers.where(at)
        return ValueBounds(stored=self.stored, all=self.all.where(at), numbers=numbers)

    @classmethod
    def concat(cls, parts: Sequence[ValueBounds]) -> ValueBounds:
        """The units of all parts, in order; all of one stored type."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        numbers = [each.numbers for each in parts if each.numbers is not None]
        return cls(
            stored=first.stored,
            all=_concat([each.all for each in parts]),
            numbers=_concat(numbers) if numbers else None,
        )

    def bounds_of(self, leaf: Leaf) -> Bounds[BoolArray] | None:
        """Bounds of ``leaf``; ``None`` where ranges and null counts say nothing about it."""
        if leaf.op in (Op.IS_NULL, Op.NOT_NULL) or self.stored.type is None:
            return null_bounds(leaf.op, self.all.rows, self.all.nulls)
        local = self.stored.restate(leaf)
        if local is None:
            return null_bounds(leaf.op, self.all.rows, self.all.nulls)
        if isinstance(local, Const):
            return (Bounds.everything if local.value else Bounds.nothing)(len(self))
        found = interval_bounds(local, self.all)
        if self.numbers is None or found is None or local.op in (Op.IS_NULL, Op.NOT_NULL):
            return found
        numbers = interval_bounds(local, self.numbers)
        if numbers is None:
            return found
        if _takes_nan(local):
            return Bounds(found.must | numbers.must, found.may)
        return Bounds(found.must, found.may & numbers.may)


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
    among = any(isinstance(v, float) and math.isnan(v) for v in leaf.values)
    match leaf.op:
        case Op.EQ | Op.IN | Op.LE:
            return among
        case Op.NE | Op.NE_OR_NULL | Op.NOT_IN | Op.GT:
            return not among
        case _:
            return leaf.op is Op.GE


def _concat(parts: Sequence[Intervals]) -> Intervals:
    return Intervals(
        type=parts[0].type,
        lo=joined([each.lo for each in parts]),
        hi=joined([each.hi for each in parts]),
        rows=np.concatenate([each.rows for each in parts]),
        nulls=np.concatenate([each.nulls for each in parts]),
    )


def joined(parts: Sequence[Keys]) -> Keys:
    """The keys of all parts, in order."""
    valid = np.concatenate([each.valid for each in parts])
    if parts[0].is_int:
        return Keys(np.concatenate([np.asarray(each.data) for each in parts]), valid)
    return Keys(pa.concat_arrays([each.data for each in parts]), valid)
