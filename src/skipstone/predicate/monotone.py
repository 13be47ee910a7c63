"""Expressions that keep the order of one column: a ``Column`` with steps, which are inverted for
comparisons.

Each rule gives the preimage of a range of keys (``preimage.py``): exactly the stored values for
which the expression has a value there. So a comparison with a constant becomes a set of ranges of
the column that is TRUE and FALSE for the same rows. Every kind of index answers it, and no row is
computed.

| expression | preimage of [lo, hi] |
|---|---|
| ``c + k``, ``c - k``, ``k - c``, ``-c``, integers and decimals | moved by k, mirrored |
| ``c * k``, integers and decimals, k ≠ 0 | divided by k, rounding inwards |
| ``c + k``, ``c - k``; ``c * k``, ``c / k`` with k > 0; doubles | bisection |
| ``year(x)`` | first day of lo to last day of hi |
| ``trunc``, ``date_trunc`` | first unit that begins at lo or later, to the end of the unit of hi |
| ``date + n``, ``x + INTERVAL`` | moved; bisection for months |
| ``unix_timestamp`` and others | multiplied by the unit |

Sums and products of integers are one to one: on overflow, Spark fails or wraps around, and then the
range wraps too. IEEE operations round to the nearest, which keeps order, and NaN stays the largest.
A truncated time f(x) has f(x) <= x < next(f(x)). The last days of months meet, but a later day is
never moved before an earlier one. Steps compose: the preimage of a step is the range of the step
below it. All of these are null exactly where the column is, except TRY_CAST and Catalyst's sums,
which may be ``try_add`` (``Column.total``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from .literals import float_key, float_of_key
from .operands import Column, Unusable
from .preimage import Image, Ranges, extent, inwards
from .types import TIMESTAMP, Kind, indexable, kind_of
from .zones import DAY, HOUR, SECOND, civil_date, civil_day

if TYPE_CHECKING:
    from collections.abc import Callable

    from .preimage import Back
    from .typed import Interval, Typed
    from .zones import Zone


def column_of(typed: Typed, session: Zone | None) -> Column:
    """The column below an expression, with the steps from it; ``Unusable`` with the reason."""
    rule = _RULES.get(typed.kernel)
    if rule is None:
        raise Unusable(f"{_name(typed)} of a column is decided on rows")
    return rule(typed, session)


def _name(typed: Typed) -> str:
    names = {
        "compare": "a comparison",
        "case": "CASE",
        "map_value": "an element",
        "%": "a remainder",
    }
    if typed.kernel in ("field", "trim"):
        return str(typed.value)
    return names.get(typed.kernel, typed.kernel)


def _column(typed: Typed, session: Zone | None) -> Column:
    if indexable(pa.field("", typed.type)) is None:
        raise Unusable(f"no index supports column {typed.value}: type {typed.type}")
    return Column(str(typed.value), (typed.type,))


def _cast(typed: Typed, session: Zone | None) -> Column:
    found = column_of(typed.args[0], session).cast(typed.type)
    return found.partial() if typed.value else found


# -- arithmetic ------------------------------------------------------------------------------------


def _parts(typed: Typed, session: Zone | None) -> tuple[Column, int | float, bool]:
    """The column at the type of the result, the constant there, and whether that is on the left.

    The constant of a decimal is unscaled, at the scale of the result.
    """
    left, right = typed.args
    if not left.is_constant and not right.is_constant:
        raise Unusable("two columns are combined")
    column, constant = (right, left) if left.is_constant else (left, right)
    if constant.value is None:
        raise Unusable("an operation with NULL")
    value = constant.value
    if pa.types.is_decimal(typed.type) and typed.kernel in ("+", "-"):
        more = typed.type.scale - constant.type.scale
        if more < 0:
            raise Unusable("a decimal of so many digits is rounded")
        return column_of(column, session).cast(typed.type), value * 10**more, left.is_constant
    return column_of(column, session), value, left.is_constant


def _sum(typed: Typed, session: Zone | None) -> Column:
    column, k, left = _parts(typed, session)
    type = typed.type
    wraps = typed.value == "wraps" and kind_of(type) is Kind.INTEGER
    if kind_of(type) is Kind.FLOATING:
        if left and typed.kernel == "-":
            raise Unusable("a constant minus a floating column is decided on rows")
        return column.apply(type, _rounded(type, k if typed.kernel == "+" else -k, "+"))
    if typed.kernel == "-" and left:
        found = column.apply(type, partial(_mirrored, type, wraps, int(k)))
    else:
        more = int(k) if typed.kernel == "+" else -int(k)
        found = column.apply(type, partial(_moved, type, wraps, more))
    return found.partial() if typed.value == "wraps" else found


def _moved(type: pa.DataType, wraps: bool, k: int, lo: int, hi: int) -> Ranges:
    """The preimage of x + k."""
    return _around(type, lo - k, hi - k) if wraps else [(lo - k, hi - k)]


def _mirrored(type: pa.DataType, wraps: bool, k: int, lo: int, hi: int) -> Ranges:
    """The preimage of k - x. One step, not two: -x may overflow where k - x does not."""
    return _around(type, k - hi, k - lo) if wraps else [(k - hi, k - lo)]


def _around(type: pa.DataType, lo: int, hi: int) -> Ranges:
    """A range of unbounded integers in a type that wraps around."""
    low, high = extent(type)
    size = high - low + 1
    if hi - lo + 1 >= size:
        return [(low, high)]
    a = (lo - low) % size + low
    b = a + hi - lo
    return [(a, b)] if b <= high else [(low, b - size), (a, high)]


def _negate(typed: Typed, session: Zone | None) -> Column:
    if kind_of(typed.type) is Kind.FLOATING:
        raise Unusable("the negative of a floating column is decided on rows")
    wraps = typed.value == "wraps" and kind_of(typed.type) is Kind.INTEGER
    mirrored = partial(_mirrored, typed.type, wraps, 0)
    found = column_of(typed.args[0], session).apply(typed.type, mirrored)
    return found.partial() if typed.value == "wraps" else found


def _product(typed: Typed, session: Zone | None) -> Column:
    column, k, _ = _parts(typed, session)
    if kind_of(typed.type) is Kind.FLOATING:
        return column.apply(typed.type, _rounded(typed.type, k, "*"))
    scales = sum(arg.type.scale for arg in typed.args) if pa.types.is_decimal(typed.type) else 0
    if not k or (scales and typed.type.scale != scales):
        raise Unusable("a product that is rounded, or zero")
    return column.apply(typed.type, partial(_divided, int(k)))


def _divided(k: int, lo: int, hi: int) -> Ranges:
    return inwards(lo, hi, k) if k > 0 else inwards(-hi, -lo, -k)


def _quotient(typed: Typed, session: Zone | None) -> Column:
    column, k, left = _parts(typed, session)
    if left or kind_of(typed.type) is not Kind.FLOATING:
        raise Unusable("this quotient is decided on rows")
    return column.apply(typed.type, _rounded(typed.type, k, "/"))


def _rounded(type: pa.DataType, k: float, op: str) -> Back:
    """Doubles, by bisection: IEEE rounds to the nearest, which keeps order."""
    if type.bit_width != 64 or not math.isfinite(k) or (op != "+" and k <= 0):
        raise Unusable("this operation of floating numbers is decided on rows")

    def there(value: float) -> float:
        if op == "/":
            return value / k
        return value + k if op == "+" else value * k

    def back(value: float) -> float:
        if op == "/":
            return value * k
        return value - k if op == "+" else value / k

    return Image(
        lambda key: float_key(there(float_of_key(key))),
        lambda key: float_key(back(float_of_key(key))),
        *extent(type),
    ).back


# -- dates and timestamps --------------------------------------------------------------------------


def _field(typed: Typed, session: Zone | None) -> Column:
    if typed.value != "year":
        raise Unusable(f"{typed.value} begins again and again: it keeps no order of dates")
    return column_of(typed.args[0], session).apply(pa.int32(), _years)


def _first_day(year: int) -> int:
    found = civil_day(year, 1, 1)
    assert found is not None
    return found


def _years(lo: int, hi: int) -> Ranges:
    return [(_first_day(lo), _first_day(hi + 1) - 1)]


def _unit_of(day: int, unit: str) -> tuple[int, int]:
    """The first day of the unit that holds a day, and that of the next."""
    if unit == "week":
        first = day - (day + 3) % 7
        return first, first + 7
    year, month, _ = civil_date(day)
    months = {"year": 12, "quarter": 3, "month": 1}[unit]
    at = year * 12 + (month - 1) // months * months
    found = [civil_day(each // 12, each % 12 + 1, 1) for each in (at, at + months)]
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def _units(unit: str, lo: int, hi: int) -> Ranges:
    first, following = _unit_of(lo, unit)
    return [(first if first == lo else following, _unit_of(hi, unit)[1] - 1)]


def _trunc(typed: Typed, session: Zone | None) -> Column:
    return column_of(typed.args[0], session).apply(pa.date32(), partial(_units, typed.value))


_SIZES = {"hour": HOUR, "minute": 60 * SECOND, "second": SECOND, "millisecond": 1_000}


def _date_trunc(typed: Typed, session: Zone | None) -> Column:
    column, unit = column_of(typed.args[0], session), typed.value
    if unit == "microsecond":
        return column
    if unit not in _SIZES:
        column = column.cast(pa.date32())
        if unit != "day":
            column = column.apply(pa.date32(), partial(_units, unit))
        return column.cast(TIMESTAMP)
    offset = 0
    if unit in ("hour", "minute"):
        if session is None or session.fixed is None:
            raise Unusable(f"{unit}s of a zone whose clocks change are decided on rows")
        offset = session.fixed
    return column.apply(TIMESTAMP, partial(_floored, _SIZES[unit], offset))


def _floored(size: int, offset: int, lo: int, hi: int) -> Ranges:
    """The preimage of x floored to multiples of ``size`` in local time."""
    return [
        (-(-(lo + offset) // size) * size - offset, ((hi + offset) // size + 1) * size - 1 - offset)
    ]


def _unix(typed: Typed, session: Zone | None) -> Column:
    size, cut = typed.value

    def back(lo: int, hi: int) -> Ranges:
        first, last = lo * size, hi * size + size - 1
        if cut and lo <= 0:
            first -= size - 1
        if cut and hi < 0:
            last -= size - 1
        return [(first, last)]

    return column_of(typed.args[0], session).apply(typed.type, back)


def _add_days(typed: Typed, session: Zone | None) -> Column:
    days, count = typed.args
    if not count.is_constant or count.value is None or days.is_constant:
        raise Unusable("two columns are combined")
    # Java's sum of days wraps around.
    moved = partial(_moved, pa.date32(), True, typed.value * count.value)
    return column_of(days, session).apply(pa.date32(), moved)


def _shift(typed: Typed, session: Zone | None) -> Column:
    column, interval = column_of(typed.args[0], session), typed.args[1].value
    if kind_of(typed.type) is Kind.DATE:
        return column.apply(typed.type, _later(typed.type, interval, 1))
    zoned = typed.type == TIMESTAMP and (interval.months or interval.days)
    if zoned and (session is None or session.fixed is None):
        # Months and days follow the clocks of the zone; bounds near a change of the clocks are
        # refused (``zones.py``). The rest of the interval is a time between instants, independent
        # of the clocks.
        calendar = replace(interval, micros=0)
        column = column.cast(pa.timestamp("us"))
        moved = partial(_open, typed.type, _later(typed.type, calendar, DAY))
        column = column.apply(pa.timestamp("us"), moved).cast(TIMESTAMP)
        if not interval.micros:
            return column
        return column.apply(TIMESTAMP, partial(_moved, TIMESTAMP, False, interval.micros))
    offset = session.fixed if zoned and session is not None and session.fixed is not None else 0
    return column.apply(typed.type, _later(typed.type, interval, DAY, offset))


def _open(type: pa.DataType, back: Back, lo: int, hi: int) -> Ranges:
    """A range up to an end of the type stays there: the rules of zones are unknown at the end."""
    low, high = extent(type)
    found = back(lo, hi)
    return [(low if lo == low else a, high if hi == high else b) for a, b in found]


def _later(type: pa.DataType, interval: Interval, day: int, offset: int = 0) -> Back:
    """The preimage of x plus an interval; ``day`` is a day in the units of the keys."""
    rest = interval.days * day + interval.micros
    if not interval.months:
        return partial(_moved, type, False, rest)

    def there(key: int) -> int:
        days, clock = divmod(key + offset, day)
        year, month, of_month = civil_date(days)
        at = year * 12 + month - 1 + interval.months
        last = of_month
        while (found := civil_day(at // 12, at % 12 + 1, last)) is None:
            last -= 1
        return found * day + clock - offset + rest

    back = -(interval.months * 30 * day + rest)
    return Image(there, lambda key: key + back, *extent(type)).back


_RULES: dict[str, Callable[[Typed, Zone | None], Column]] = {
    "column": _column,
    "cast": _cast,
    "+": _sum,
    "-": _sum,
    "*": _product,
    "/": _quotient,
    "negate": _negate,
    "field": _field,
    "trunc": _trunc,
    "date_trunc": _date_trunc,
    "unix": _unix,
    "add_days": _add_days,
    "shift": _shift,
}
