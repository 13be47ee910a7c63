"""Which values of a column pass a comparison after a cast: sets of key ranges, carried back.

A predicate on one column is a set of its non-null values. With values numbered in their order,
without gaps (``range_key``: the stored domain's integer; for a float its distance from zero in
floats, NaN one above infinity), such a set is a sorted list of closed ranges. NOT is then the
complement; and ``CAST(c AS wider) < v`` is the set ``[lowest, v)`` of the wider type, carried back
through the cast:

    back([lo, hi]) = { x : lo <= cast(x) <= hi }

For a monotonic cast that never fails, the result is one range. It is computed exactly, or by
bisection on the cast itself where the cast rounds (bigint to double: 2^53 and 2^53 + 1 become one
double, and both pass). A cast that is not listed is not carried back.

| cast | carried back |
|---|---|
| integer → wider integer, boolean → integer | cut to the narrower range |
| integer or decimal → decimal with room for it | divide by the power of ten, rounding inwards |
| float, integer, decimal → double | bisection |
| date → timestamp_ntz | divide by a day, rounding inwards |
| timestamp_ntz → date | first and last instant of the days |
| date → timestamp, timestamp → date, timestamp ↔ timestamp_ntz | session zone (``zones.py``) |
| integer → narrower integer, under ANSI rules | the same range: others fail |
| decimal → integer, under ANSI rules | cut towards zero |

Integer → float is not listed: Spark's optimizer drops the float, and its rounding, from
int → float → double, so the meaning of such a cast depends on its context.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass

from .literals import float_key, float_of_key
from .operands import Unusable
from .tree import And, Bound, Const, Leaf, Op, Or
from .types import Kind, kind_of, spark_name
from .zones import (
    DAY,
    UnknownLocalTime,
    days_of_instants,
    instants_of_days,
    instants_of_local,
    local_of_instants,
)

if TYPE_CHECKING:
    from .types import Value
    from .zones import Zone


Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = list[Range]
Back: TypeAlias = Callable[[int, int], Ranges]

# Bits of infinity: NaN is one above.
_INFINITE = {32: 0x7F80_0000, 64: 0x7FF0_0000_0000_0000}


# -- sets of keys ----------------------------------------------------------------------------------


def extent(type: pa.DataType) -> Range:
    """The lowest and highest range key of a type."""
    match kind_of(type):
        case Kind.BOOLEAN:
            return 0, 1
        case Kind.FLOATING:
            return -_INFINITE[type.bit_width], _INFINITE[type.bit_width] + 1
        case Kind.DECIMAL:
            return 1 - 10**type.precision, 10**type.precision - 1
        case _:
            half = 1 << (type.bit_width - 1)
            return -half, half - 1


def range_key(value: Value, type: pa.DataType) -> int:
    """The number of a value of the stored domain among all values of ``type``."""
    if not isinstance(value, float):
        return int(value)
    if type.bit_width == 64:
        return float_key(value)
    if value != value:
        return _INFINITE[32] + 1
    bits = int(np.float32(abs(value)).view(np.int32))
    return -bits if value < 0 else bits


def _value(key: int, type: pa.DataType) -> Value:
    match kind_of(type):
        case Kind.FLOATING if type.bit_width == 32:
            return _float_of(key)
        case Kind.FLOATING:
            return float_of_key(key)
        case Kind.BOOLEAN:
            return bool(key)
        case _:
            return key


def _float_of(key: int) -> float:
    """The float (32 bits) with this range key."""
    if key > _INFINITE[32]:
        return float("nan")
    value = float(np.int32(abs(key)).view(np.float32))
    return -value if key < 0 else value


def ranges_of(op: str, key: int, type: pa.DataType) -> Ranges:
    """The set of keys of ``type`` in the relation ``op`` to ``key``."""
    low, high = extent(type)
    found: Ranges = {
        "=": [(key, key)],
        "<>": [(low, key - 1), (key + 1, high)],
        "<": [(low, key - 1)],
        "<=": [(low, key)],
        ">": [(key + 1, high)],
        ">=": [(key, high)],
    }[op]
    return [(a, b) for a, b in found if a <= b]


def complement(ranges: Ranges, type: pa.DataType) -> Ranges:
    """All keys of ``type`` that are in none of ``ranges`` (sorted and disjoint)."""
    low, high = extent(type)
    gaps: Ranges = []
    for a, b in ranges:
        if low < a:
            gaps.append((low, a - 1))
        low = b + 1
    if low <= high:
        gaps.append((low, high))
    return gaps


def union(ranges: Ranges) -> Ranges:
    """The union, sorted and disjoint, with neighbours joined."""
    out: Ranges = []
    for a, b in sorted(ranges):
        if out and a <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out


# -- casts, backwards ------------------------------------------------------------------------------


def exact_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """True when the cast keeps values and their order exactly, in any session zone.

    Files of a table may have a column in ``source`` where the table has ``target``: facts about
    such a file then hold for the table's column too.
    """
    a, b = kind_of(source), kind_of(target)
    if source == target:
        return True
    if a is b is Kind.INTEGER or a is b is Kind.FLOATING:
        return bool(source.bit_width <= target.bit_width)
    if a is Kind.INTEGER and b is Kind.DECIMAL:
        return bool(target.precision - target.scale >= _digits(source))
    if a is b is Kind.DECIMAL:
        return bool(
            target.scale >= source.scale
            and target.precision - target.scale >= source.precision - source.scale
        )
    return a is Kind.DATE and b is Kind.TIMESTAMP_NTZ


def _digits(type: pa.DataType) -> int:
    return len(str(1 << (type.bit_width - 1)))


def carry_back(
    ranges: Ranges,
    source: pa.DataType,
    target: pa.DataType,
    session: Zone | None,
    *,
    ansi: bool = False,
) -> Ranges:
    """The keys of ``source`` whose cast to ``target`` is in ``ranges``; else ``Unusable``.

    ``ansi``: a value that ``target`` cannot hold fails, or is NULL under TRY_CAST, and so is in no
    range. Else Spark wraps it around, and narrowing casts are not carried back.
    """
    if source == target:
        return ranges
    back = _back(source, target, session) or (_narrowed(source, target) if ansi else None)
    if back is None:
        raise Unusable(inexact(source, target))
    return carried(back, ranges, source)


def carried(back: Back, ranges: Ranges, source: pa.DataType) -> Ranges:
    """The keys of ``source`` that a step with this preimage takes into ``ranges``."""
    low, high = extent(source)
    try:
        found = [piece for a, b in ranges for piece in back(a, b)]
    except UnknownLocalTime as error:
        raise Unusable(str(error)) from None
    kept = [(max(a, low), min(b, high)) for a, b in found]
    return union([(a, b) for a, b in kept if a <= b])


def inexact(source: pa.DataType, target: pa.DataType) -> str:
    """The reason for a cast that is not carried back."""
    names = f"{spark_name(source)} to {spark_name(target)}"
    return f"a cast from {names} does not keep values and order exactly"


def _back(source: pa.DataType, target: pa.DataType, session: Zone | None) -> Back | None:
    a, b = kind_of(source), kind_of(target)
    if a is Kind.BOOLEAN and b is Kind.INTEGER:
        return _same
    if exact_cast(source, target):
        if a is Kind.FLOATING:
            return _by_bisection(source, target)
        if a is Kind.DATE:
            return lambda lo, hi: inwards(lo, hi, DAY)
        if b is Kind.DECIMAL:
            factor = 10 ** (target.scale - (source.scale if a is Kind.DECIMAL else 0))
            return lambda lo, hi: inwards(lo, hi, factor)
        return _same
    if b is Kind.FLOATING and a in (Kind.INTEGER, Kind.DECIMAL):
        return _by_bisection(source, target)
    if a is Kind.TIMESTAMP_NTZ and b is Kind.DATE:
        return lambda lo, hi: [(lo * DAY, hi * DAY + DAY - 1)]
    if session is None:
        return None
    match a, b:
        case Kind.DATE, Kind.TIMESTAMP:
            return partial(days_of_instants, session)
        case Kind.TIMESTAMP, Kind.DATE:
            return partial(instants_of_days, session)
        case Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ:
            return partial(instants_of_local, session)
        case Kind.TIMESTAMP_NTZ, Kind.TIMESTAMP:
            return partial(local_of_instants, session)
    return None


def _narrowed(source: pa.DataType, target: pa.DataType) -> Back | None:
    """A cast to an integer that fails where it does not fit; ``ranges`` lie within ``target``."""
    if kind_of(target) is not Kind.INTEGER:
        return None
    match kind_of(source):
        case Kind.INTEGER:
            return _same
        case Kind.DECIMAL:
            return partial(_cut, 10**source.scale)
    return None


def _cut(factor: int, lo: int, hi: int) -> Ranges:
    """The preimage of x / factor, cut towards zero."""
    first = lo * factor if lo > 0 else lo * factor - factor + 1
    last = hi * factor if hi < 0 else hi * factor + factor - 1
    return [(first, last)]


def _same(lo: int, hi: int) -> Ranges:
    return [(lo, hi)]


def inwards(lo: int, hi: int, factor: int) -> Ranges:
    """The preimage of x * factor."""
    a, b = -(-lo // factor), hi // factor
    return [(a, b)] if a <= b else []


@dataclass(frozen=True, slots=True)
class Image:
    """A monotonic function of the keys ``low`` to ``high``, and a guess of its inverse."""

    cast: Callable[[int], int]
    guess: Callable[[int], int]
    low: int
    high: int

    def back(self, lo: int, hi: int) -> Ranges:
        a, b = self.first_at_least(lo), self.first_at_least(hi + 1) - 1
        return [(a, b)] if a <= b else []

    def first_at_least(self, key: int) -> int:
        """The lowest key whose cast is at least ``key``; ``high + 1`` when there is none."""
        low, high = self.low, self.high + 1
        near = self.guess(key)
        for there in (near, near + 1):
            if low < there < high and self.cast(there - 1) < key <= self.cast(there):
                return there
        while low < high:
            middle = (low + high) // 2
            if self.cast(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low


def _by_bisection(source: pa.DataType, target: pa.DataType) -> Back | None:
    match kind_of(source), target.bit_width:
        case Kind.FLOATING, 64:
            return Image(_float_in_double, _float_near, *extent(source)).back
        case (Kind.INTEGER | Kind.DECIMAL) as kind, 64:
            # Division of integers rounds once and correctly, as Java's conversion does.
            divisor = 10**source.scale if kind is Kind.DECIMAL else 1

            def guess(key: int) -> int:
                value = float_of_key(key)
                return int(Fraction(value) * divisor) if math.isfinite(value) else 0

            return Image(lambda key: float_key(key / divisor), guess, *extent(source)).back
    return None


def _float_in_double(key: int) -> int:
    return float_key(_float_of(key))


def _float_near(key: int) -> int:
    with np.errstate(over="ignore"):
        return range_key(float(np.float32(float_of_key(key))), pa.float32())


# -- sets as leaves --------------------------------------------------------------------------------


def leaves_of(column: str, type: pa.DataType, ranges: Ranges, *, points: int = 1) -> Bound:
    """The bound tree that is TRUE for exactly the non-null values in ``ranges``.

    Up to ``points`` values are listed one by one, because more kinds of index can answer that than
    ranges; the same holds for up to ``points`` excluded values.
    """
    low, high = extent(type)

    def leaf(op: Op, *keys: int) -> Leaf:
        return Leaf(column, type, op, tuple(_value(key, type) for key in keys))

    if not ranges:
        return Const(False)
    missing = complement(ranges, type)
    if not missing:
        return Leaf(column, type, Op.NOT_NULL)
    if (named := _named(ranges, points)) is not None:
        return leaf(Op.EQ if len(named) == 1 else Op.IN, *named)
    if len(ranges) > 1 and (named := _named(missing, points)) is not None:
        return leaf(Op.NE if len(named) == 1 else Op.NOT_IN, *named)
    parts: list[Bound] = []
    if single := [a for a, b in ranges if a == b]:
        parts.append(leaf(Op.EQ if len(single) == 1 else Op.IN, *single))
    for a, b in ranges:
        if a == b:
            continue
        sides = [leaf(Op.GE, a)] if a > low else []
        sides += [leaf(Op.LE, b)] if b < high else []
        parts.append(sides[0] if len(sides) == 1 else And(tuple(sides)))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _named(ranges: Ranges, limit: int) -> list[int] | None:
    """The keys in ``ranges``, if there are at most ``limit``."""
    if sum(b - a + 1 for a, b in ranges) > limit:
        return None
    return [key for a, b in ranges for key in range(a, b + 1)]
