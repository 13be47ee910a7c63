"""Evaluates a leaf on bounds of a column's values: the min/max logic of all levels.

A unit (file, row group, page) has ``lo`` and ``hi`` with ``lo <= v <= hi`` for each of its non-null
values ``v``. They may be truncated, or those of a filtered writer, so they need not be attained.
Either may be unknown. Order is Spark's: NaN largest, 0.0 equal to -0.0, strings by their bytes.

Per leaf two sets are found first, over the **non-null** values:

| leaf | some value may match unless | every value matches when |
|---|---|---|
| ``= k`` | ``hi < k`` or ``k < lo`` | ``lo = hi = k`` |
| ``<> k`` | ``lo = hi = k`` | ``hi < k`` or ``k < lo`` |
| ``< k`` | ``lo >= k`` | ``hi < k`` |
| ``<= k`` | ``lo > k`` | ``hi <= k`` |
| ``> k`` ``>= k`` | the mirror images | |
| ``IN L`` | no member of ``L`` is in ``[lo, hi]`` | ``lo = hi`` and it is in ``L`` |
| ``NOT IN L`` | ``lo = hi`` and it is in ``L`` | no member of ``L`` is in ``[lo, hi]`` |
| starts with ``p`` | ``hi < p`` or ``lo`` above all that do | ``lo >= p``, ``hi`` begins so |
| not starts with ``p`` | the right column above | the left column above |
| ``LIKE`` | as "starts with" of its literal prefix | never |
| ``NOT LIKE`` | never excluded | never |

``lo = hi = k`` proves that every value is ``k``, even if neither bound is attained: no other value
fits between. A range whose ``lo`` is above its ``hi`` comes from a damaged source and counts
as unknown (``Intervals.checked``). Strings that begin with ``p`` are exactly those from ``p`` up
to the last that begins with it, without a gap, so ``lo`` and ``hi`` are enough.

Then nulls: value leaves match no null, so ``must`` requires a null count of 0 and a unit of only
nulls is outside ``may``; ``NOT <=>`` matches all nulls; ``IS [NOT] NULL`` uses the counts alone. A
null count or row count of -1 is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from skipstone import _compute as pc
from skipstone._arrays import numbers
from skipstone._dataclasses import dataclass
from skipstone.predicate.literals import Keys, compare, order_key
from skipstone.predicate.members import keys_among
from skipstone.predicate.tree import COMPLEMENTS, Op

from . import BoolArray, Bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.predicate.literals import Key
    from skipstone.predicate.tree import Leaf


IntArray: TypeAlias = "NDArray[np.int64]"
Both: TypeAlias = "tuple[BoolArray, BoolArray]"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Intervals:
    """Bounds of one column of ``type`` over ``n`` units.

    - ``lo``, ``hi``: keys (``literals.order_keys``) of length ``n``, not valid where unknown;
    - ``rows``, ``nulls``: int64 ``(n,)``, -1 unknown.
    """

    type: pa.DataType
    lo: Keys
    hi: Keys
    rows: IntArray
    nulls: IntArray

    @classmethod
    def checked(
        cls, *, type: pa.DataType, lo: Keys, hi: Keys, rows: IntArray, nulls: IntArray
    ) -> Intervals:
        """Bounds as read; ``lo`` above ``hi`` and an impossible null count count as unknown."""
        wrong = pairwise(lo, hi, "greater")
        if wrong.any():
            lo, hi = Keys(lo.data, lo.valid & ~wrong), Keys(hi.data, hi.valid & ~wrong)
        if nulls.any():
            odd = (nulls < -1) | ((nulls > rows) & (rows >= 0))
            nulls = np.where(odd, -1, nulls)
        return cls(type=type, lo=lo, hi=hi, rows=rows, nulls=nulls)

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, at: IntArray) -> Intervals:
        """The units at these positions."""
        return Intervals(
            type=self.type,
            lo=self.lo.take(at),
            hi=self.hi.take(at),
            rows=self.rows[at],
            nulls=self.nulls[at],
        )

    @classmethod
    def concat(cls, parts: Sequence[Intervals]) -> Intervals:
        """The units of all parts, in order; all of one type."""
        return cls(
            type=parts[0].type,
            lo=Keys.concat([each.lo for each in parts]),
            hi=Keys.concat([each.hi for each in parts]),
            rows=np.concatenate([each.rows for each in parts]),
            nulls=np.concatenate([each.nulls for each in parts]),
        )

    def only(self, known: BoolArray) -> Intervals:
        """These bounds for the units ``known``, and unknown bounds for all others."""
        return Intervals(
            type=self.type,
            lo=Keys(self.lo.data, self.lo.valid & known),
            hi=Keys(self.hi.data, self.hi.valid & known),
            rows=np.where(known, self.rows, -1),
            nulls=np.where(known, self.nulls, -1),
        )


def interval_bounds(leaf: Leaf, units: Intervals) -> Bounds[BoolArray] | None:
    """Bounds of ``leaf``, whose values are in the domain of ``units.type``.

    ``None`` where ranges and null counts cannot answer such a leaf (NOT LIKE; LIKE without a
    literal prefix).
    """
    if leaf.op in (Op.IS_NULL, Op.NOT_NULL):
        return null_bounds(leaf.op, units.rows, units.nulls)
    found = over_values(leaf, units)
    return None if found is None else with_nulls(leaf.op, *found, units.rows, units.nulls)


def with_nulls(
    op: Op, some: BoolArray, every: BoolArray, rows: IntArray, nulls: IntArray
) -> Bounds[BoolArray]:
    """Bounds of a leaf on values, from flags of the **non-null** values of each unit.

    ``some``: False where surely no non-null value matches; ``every``: True only where surely each
    one matches (also where there is none). ``rows`` and ``nulls`` as counts, -1 unknown.
    """
    if not nulls.any():  # the usual case: no need to compare the counts
        may = some & (rows != 0)
        return Bounds(every & may, may)
    only_nulls = (nulls == rows) & (rows >= 0)
    if op is Op.NE_OR_NULL:
        may = (some & ~only_nulls) | (nulls != 0)
        must = every | only_nulls
    else:
        may = some & ~only_nulls
        must = every & (nulls == 0)
    may &= rows != 0
    return Bounds(must & may, may)


def null_bounds(op: Op, rows: IntArray, nulls: IntArray) -> Bounds[BoolArray]:
    """Bounds of any leaf with this ``op`` from row and null counts alone, -1 unknown.

    Exact for IS NULL and IS NOT NULL of units that are all null or without nulls. For a leaf on
    values it proves only that units of nulls alone do not match (or, for ``NOT <=>``, do).
    """
    if op not in (Op.IS_NULL, Op.NOT_NULL):
        every = np.zeros(len(rows), np.bool_)
        return with_nulls(op, ~every, every, rows, nulls)
    full, none = (nulls == rows) & (rows >= 0), nulls == 0
    if op is Op.IS_NULL:
        may, must = ~none & (rows != 0), full
    else:
        may, must = ~full & (rows != 0), none
    return Bounds(must & may, may)


# -- leaves on values -----------------------------------------------------------------------------


def over_values(leaf: Leaf, units: Intervals) -> Both | None:
    """Flags of the non-null values for ``with_nulls``, of a leaf on values; ``None`` as above."""
    op = leaf.op
    if op is Op.NOT_LIKE or (op is Op.LIKE and not leaf.values[2]):
        return None
    if op in (Op.IN, Op.NOT_IN):
        some, every = _members(keys_among(leaf), units)
        return (some, every) if op is Op.IN else (~every, ~some)
    if op is Op.LIKE:
        some = ~_outside(_prefix(leaf.values[2]), units)
        return some, np.zeros_like(some)
    if op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        prefix = _prefix(leaf.values[0])
        some, every = ~_outside(prefix, units), _inside(prefix, units)
        return (some, every) if op is Op.STARTS_WITH else (~every, ~some)
    key, lo, hi = order_key(leaf.values[0], leaf.type), units.lo, units.hi
    if op in (Op.EQ, Op.NE, Op.NE_OR_NULL):
        outside = compare(hi, Op.LT, key) | compare(lo, Op.GT, key)
        one = compare(lo, Op.EQ, key) & compare(hi, Op.EQ, key)
        return (~outside, one) if op is Op.EQ else (~one, outside)
    # `near` proves that no value matches, `far` that all do.
    near, far = (lo, hi) if op in (Op.LT, Op.LE) else (hi, lo)
    return ~compare(near, COMPLEMENTS[op], key), compare(far, op, key)


def _prefix(value: object) -> tuple[bytes, bytes | None]:
    """The range of keys with this prefix: from the first to before the second; ``None`` where no
    key is above them."""
    key = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    assert isinstance(key, bytes)
    stem = key.rstrip(b"\xff")
    return key, stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _outside(prefix: tuple[bytes, bytes | None], units: Intervals) -> BoolArray:
    """Flags of units where surely no non-null value has the prefix."""
    first, after = prefix
    below = compare(units.hi, Op.LT, first)
    return below if after is None else below | compare(units.lo, Op.GE, after)


def _inside(prefix: tuple[bytes, bytes | None], units: Intervals) -> BoolArray:
    """Flags of units where every non-null value has the prefix."""
    first, after = prefix
    above = compare(units.lo, Op.GE, first)
    return above & (units.hi.valid if after is None else compare(units.hi, Op.LT, after))


def _members(members: Keys, units: Intervals) -> Both:
    """For ``IN members``: flags "some non-null value may be a member", and "all are"."""
    lo, hi, n = units.lo, units.hi, len(units)
    if not len(members):
        return np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    first, last = _key(members, 0), _key(members, -1)
    # Sorted tables: most units lie outside the list's own range. Unsorted: most cover an end of it.
    some = ~(compare(hi, Op.LT, first) | compare(lo, Op.GT, last))
    known = lo.valid & hi.valid
    covers = np.zeros(n, np.bool_)
    for end in {first, last}:
        covers |= ~(compare(hi, Op.LT, end) | compare(lo, Op.GT, end))
    one = covers & pairwise(lo, hi, "equal")
    rest = np.flatnonzero(known & some & ~covers)
    if len(rest):
        low, high = lo.take(rest), hi.take(rest)
        if not lo.is_int:
            some[rest] = near = _near(members, low, high)
            rest, low, high = rest[near], low.take(near), high.take(near)
        following = members.take(search(members, low))  # there is one: `last` is above
        some[rest] = pairwise(following, high, "less_equal")
        one[rest] = pairwise(following, low, "equal") & pairwise(low, high, "equal")
    return some, one


def window(members: Keys, units: Intervals) -> tuple[IntArray, IntArray]:
    """For each unit, which of ascending keys lie within its bounds: the first, and the one after
    the last."""
    first = np.zeros(len(units), np.int64)
    after = np.full(len(units), len(members), np.int64)
    if len(members):
        low, high = units.lo.valid, units.hi.valid
        first[low] = search(members, units.lo.take(low))
        ends = units.hi.take(high)
        at = search(members, ends)
        inside = at < len(members)
        at[inside] += pairwise(members.take(at[inside]), ends.take(inside), "equal")
        after[high] = at
    return first, after


def _near(members: Keys, low: Keys, high: Keys) -> BoolArray:
    """For byte strings: flags of units with a member between their bounds, by 8 bytes of each.

    All bounds lie between the first and the last member, so they share the common prefix of those.
    The next 8 bytes, as a number, order the strings correctly, except for ties.
    """
    first, last = members.data[0].as_py(), members.data[-1].as_py()
    pairs = zip(first, last, strict=False)
    skip = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))
    asked, below, above = (keys.words(skip) for keys in (members, low, high))
    return np.searchsorted(asked, below, "left") < np.searchsorted(asked, above, "right")


def _key(keys: Keys, at: int) -> Key:
    return int(keys.data[at]) if keys.is_int else cast("bytes", keys.data[at].as_py())


def pairwise(left: Keys, right: Keys, how: str) -> BoolArray:
    """``left[i] how right[i]``; False where either is null."""
    if isinstance(left.data, np.ndarray) and isinstance(right.data, np.ndarray):
        found = getattr(np, how)(left.data, right.data)
    else:
        found = getattr(pc, how)(left.data, right.data)
        found = numbers(found)
    return np.asarray(found & left.valid & right.valid, dtype=np.bool_)


def search(ascending: Keys, keys: Keys) -> IntArray:
    """For each key, the number of ``ascending`` keys below it; both without nulls."""
    if isinstance(ascending.data, np.ndarray) and isinstance(keys.data, np.ndarray):
        return np.searchsorted(ascending.data, keys.data, side="left").astype(np.int64)
    low = np.zeros(len(keys), np.int64)
    high = np.full(len(keys), len(ascending), np.int64)
    # Bisection of all keys at once: one gather and one comparison per step.
    for _ in range(len(ascending).bit_length()):
        middle = np.minimum((low + high) // 2, len(ascending) - 1)
        active = low < high
        below = pairwise(ascending.take(middle), keys, "less")
        low = np.where(active & below, middle + 1, low)
        high = np.where(active & ~below, middle, high)
    return low
