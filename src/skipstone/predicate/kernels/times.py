"""Fields of dates and timestamps, truncation, intervals: proleptic Gregorian, any year, as Java.

A timestamp has the local time of the session zone. A local time that the zone skips moves forward
by the gap. One that occurs twice is the earlier; truncated to an hour or minute, it keeps its
offset. Rows outside the years in which ``zones.py`` knows a region's rules fail.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._arrays import numbers, validity
from skipstone.errors import UnsupportedError

from ..types import TIMESTAMP
from ..zones import DAY, HOUR, SECOND, UnknownLocalTime
from .numbers import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ..typed import Interval, Typed
    from ..zones import Zone

Longs: TypeAlias = "NDArray[np.int64]"


# -- local time ------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _changes_of(zone: Zone, year: int) -> tuple[tuple[int, int, int], ...]:
    first = int(days_of(np.array([year]), np.array([1]))[0]) * DAY
    return tuple(zone.changes(first, first + 366 * DAY))


def _offsets(zone: Zone, values: Longs, *, local: bool) -> Longs:
    """The offset of each instant, or of each ``local`` time."""
    if zone.fixed is not None:
        return np.full(len(values), zone.fixed)
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    years = civil(np.array([low, high]) // DAY)[0].tolist()
    try:
        start = zone.to_local(low - DAY) - (low - DAY)
        if not -1 <= years[1] - 1970 <= 8030:
            zone.to_local(high)
        found = [each for y in range(years[0] - 1, years[1] + 1) for each in _known(zone, y)]
    except UnknownLocalTime as error:
        raise UnsupportedError(f"{error}: a row has another time") from None
    found = sorted({each for each in found if each[0] > low - DAY})
    # A skipped local time counts with the offset before the gap, a repeated one too.
    bounds = [at + max(before, after) if local else at for at, before, after in found]
    offsets = np.array([start, *(after for _, _, after in found)])
    return offsets[np.searchsorted(np.array(bounds, np.int64), values, side="right")]


def _known(zone: Zone, year: int) -> tuple[tuple[int, int, int], ...]:
    return () if year < 1970 else _changes_of(zone, year)


def to_local(zone: Zone, instants: Longs) -> Longs:
    return instants + _offsets(zone, instants, local=False)


def to_instant(zone: Zone, local: Longs) -> Longs:
    return local - _offsets(zone, local, local=True)


def _nearest(zone: Zone, local: Longs, offsets: Longs) -> Longs:
    """The instants of local times, at these offsets where the zone has them then: Java keeps the
    offset of a time that it moves."""
    found = local - offsets
    if zone.fixed is not None:
        return found
    kept = _offsets(zone, found, local=False) == offsets
    return np.where(kept, found, to_instant(zone, local))


def day_starts(zone: Zone, days: Longs) -> Longs:
    """The first instant of each date."""
    if zone.fixed is not None:
        return days * DAY - zone.fixed
    first, place = np.unique(days, return_inverse=True)
    try:
        return np.array([zone.start_of_day(day) for day in first.tolist()], np.int64)[place]
    except UnknownLocalTime as error:
        raise UnsupportedError(f"{error}: a row has another date") from None


def ticks(values: pa.Array) -> tuple[Longs, NDArray[np.bool_]]:
    """Days or microseconds, and which are not null. A null has the first value that is not null."""
    valid = validity(values)
    raw = values.view(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    found = numbers(raw).astype(np.int64)
    if not valid.all() and valid.any():
        found[~valid] = found[valid][0]
    return found, valid


def _clock(values: pa.Array, session: Zone | None) -> tuple[Longs, NDArray[np.bool_]]:
    """Local microseconds."""
    found, valid = ticks(values)
    if pa.types.is_date(values.type):
        return found * DAY, valid
    if values.type == TIMESTAMP:
        assert session is not None
        return to_local(session, found) if valid.any() else found, valid
    return found, valid


def array_of(found: Longs, valid: NDArray[np.bool_], type: pa.DataType) -> pa.Array:
    """An array of a date, timestamp or number type; ``Failure`` where it cannot hold a value."""
    narrow = type.bit_width == 32
    if narrow and np.any(valid & (found != found.astype(np.int32))):
        raise Failure("a date out of range")
    number = pa.int32() if narrow else pa.int64()
    return pa.array(found.astype(np.int32) if narrow else found, number, mask=~valid).view(type)


# -- the calendar ----------------------------------------------------------------------------------


def civil(days: Longs) -> tuple[Longs, Longs, Longs]:
    """Year, month and day of days since 1970-01-01: eras of 400 years that begin in March."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = np.where(month < 10, month + 3, month - 9)
    return year + era * 400 + (month <= 2), month, day


def days_of(year: Longs, month: Longs, day: Any = 1) -> Longs:
    """Days since 1970-01-01, the inverse of ``civil``."""
    year = year - (month <= 2)
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    found: Longs = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return found


def month_length(year: Longs, month: Longs) -> Longs:
    after: Longs = days_of(year + month // 12, month % 12 + 1)
    return after - days_of(year, month)


def truncated_days(days: Longs, unit: str) -> Longs:
    """The first day of the year, quarter, month or week (Monday) of each day."""
    if unit == "week":
        return days - (days + 3) % 7
    year, month, _ = civil(days)
    if unit == "year":
        month = np.ones_like(month)
    elif unit == "quarter":
        month = (month - 1) // 3 * 3 + 1
    return days_of(year, month)


# -- kernels ---------------------------------------------------------------------------------------


def _field(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``value``: the name of the field."""
    clock, valid = _clock(values[0], session)
    days = clock // DAY
    year, month, day = civil(days)
    found = _FIELDS[node.value](year, month, day, days, clock - days * DAY)
    return pa.array(found.astype(np.int32), mask=~valid)


# Each takes year, month, day, days since 1970-01-01, and microseconds of the day.
_FIELDS: dict[str, Callable[[Longs, Longs, Longs, Longs, Longs], Longs]] = {
    "year": lambda year, month, day, days, clock: year,
    "quarter": lambda year, month, day, days, clock: (month + 2) // 3,
    "month": lambda year, month, day, days, clock: month,
    "day": lambda year, month, day, days, clock: day,
    "dayofyear": lambda year, month, day, days, clock: days - days_of(year, month * 0 + 1) + 1,
    "dayofweek": lambda year, month, day, days, clock: (days + 4) % 7 + 1,
    "weekday": lambda year, month, day, days, clock: (days + 3) % 7,
    "hour": lambda year, month, day, days, clock: clock // HOUR,
    "minute": lambda year, month, day, days, clock: clock // (60 * SECOND) % 60,
    "second": lambda year, month, day, days, clock: clock // SECOND % 60,
}


def _trunc(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """Dates; ``value``: the unit."""
    days, valid = ticks(values[0])
    return array_of(truncated_days(days, node.value), valid, node.type)


_SIZES = {
    "day": DAY,
    "hour": HOUR,
    "minute": 60 * SECOND,
    "second": SECOND,
    "millisecond": 1_000,
    "microsecond": 1,
}


def _date_trunc(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """Timestamps; ``value``: the unit."""
    assert session is not None
    instants, valid = ticks(values[0])
    size = _SIZES.get(node.value)
    if size is not None and size <= SECOND:
        return array_of(instants - instants % size, valid, node.type)
    if not valid.any():
        return values[0]
    offsets = _offsets(session, instants, local=False)
    local = instants + offsets
    if size is None:
        found = day_starts(session, truncated_days(local // DAY, node.value))
    else:
        found = _nearest(session, local - local % size, offsets)
    return array_of(found, valid, node.type)


def _shift(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """A date or timestamp and an interval, whose days and months are those of the calendar."""
    interval: Interval = values[1]
    found, valid = ticks(values[0])
    dates = pa.types.is_date(node.type)
    zoned = node.type == TIMESTAMP and session is not None and valid.any()
    if interval.months or interval.days:
        offsets = found * 0
        if zoned and session is not None:
            offsets = _offsets(session, found, local=False)
        clock = found + offsets
        days = clock if dates else clock // DAY
        moved = _months_later(days, interval.months) + interval.days
        clock = moved if dates else moved * DAY + clock % DAY
        found = _nearest(session, clock, offsets) if zoned and session is not None else clock
    later = found + interval.micros
    if np.any(valid & ((later < found) != (interval.micros < 0))):
        raise Failure("a timestamp out of range")
    return array_of(later, valid, node.type)


def _months_later(days: Longs, months: int) -> Longs:
    """The same day of a later month, or its last."""
    if not months:
        return days
    year, month, day = civil(days)
    count = year * 12 + month - 1 + months
    year, month = count // 12, count % 12 + 1
    return days_of(year, month, np.minimum(day, month_length(year, month)))


def _add_days(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``value``: 1 or -1, the sign of the number of days."""
    days, valid = ticks(values[0])
    if isinstance(values[1], pa.Scalar):
        return array_of(
            days + node.value * (values[1].as_py() or 0), valid & values[1].is_valid, node.type
        )
    return array_of(
        days + node.value * numbers(values[1]).astype(np.int64),
        valid & validity(values[1]),
        node.type,
    )


def _date_diff(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    left, valid = ticks(values[0])
    other = values[1] if isinstance(values[1], pa.Array) else pa.repeat(values[1], len(left))
    right, known = ticks(other)
    return array_of(left - right, valid & known, node.type)


def _unix(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """Instants in units of microseconds, floored or cut towards zero; dates in days."""
    found, valid = ticks(values[0])
    size, cut = node.value
    return array_of((found + (size - 1) * (cut & (found < 0))) // size, valid, node.type)


KERNELS: dict[str, Callable[[Typed, Sequence[Any], Zone | None], pa.Array]] = {
    "field": _field,
    "trunc": _trunc,
    "date_trunc": _date_trunc,
    "shift": _shift,
    "add_days": _add_days,
    "date_diff": _date_diff,
    "unix": _unix,
}
FALLIBLE = frozenset(KERNELS)
