"""The functions of dates and timestamps, for the table of ``functions.py``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from .operands import Unusable
from .typed import INTERVAL_TYPE, Interval, Typed, constant
from .typed_casts import cast_to, kind, literal_int, name_of
from .types import TIMESTAMP, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .zones import Zone


def _date(arg: Typed, session: Zone | None) -> Typed:
    return cast_to(arg, pa.date32(), session)


def _timestamp(arg: Typed, session: Zone | None) -> Typed:
    if session is None:
        raise Unusable("the session time zone is not one that is known with certainty")
    return cast_to(arg, TIMESTAMP, session)


def _field(name: str, args: Sequence[Typed], session: Zone | None) -> Typed:
    arg = args[0]
    if name in ("hour", "minute", "second"):
        if kind(arg) is not Kind.TIMESTAMP_NTZ:
            arg = _timestamp(arg, session)
    else:
        arg = _date(arg, session)
    return Typed(pa.int32(), "field", (arg,), name)


_YEAR = dict.fromkeys(("year", "yyyy", "yy"), "year")
_MONTH = dict.fromkeys(("month", "mon", "mm"), "month")
_DATE_UNITS = {**_YEAR, **_MONTH, "quarter": "quarter", "week": "week"}
_UNITS = {
    **_DATE_UNITS,
    **dict.fromkeys(("day", "dd"), "day"),
    **{name: name for name in ("hour", "minute", "second", "millisecond", "microsecond")},
}


def _unit(arg: Typed, units: dict[str, str]) -> str | None:
    """The unit that a literal names; ``None`` where Spark gives NULL."""
    if not arg.is_constant or (arg.value is not None and kind(arg) is not Kind.STRING):
        raise Unusable("the unit is not a literal text")
    return None if arg.value is None else units.get(str(arg.value).lower())


def _trunc(args: Sequence[Typed], session: Zone | None) -> Typed:
    unit = _unit(args[1], _DATE_UNITS)
    if unit is None:
        return constant(None, pa.date32())
    return Typed(pa.date32(), "trunc", (_date(args[0], session),), unit)


def _date_trunc(args: Sequence[Typed], session: Zone | None) -> Typed:
    unit = _unit(args[0], _UNITS)
    if unit is None:
        return constant(None, TIMESTAMP)
    return Typed(TIMESTAMP, "date_trunc", (_timestamp(args[1], session),), unit)


def _to_date(args: Sequence[Typed], session: Zone | None) -> Typed:
    return _date(args[0], session)


def add_days(sign: int, args: Sequence[Typed], session: Zone | None) -> Typed:
    days = args[1]
    if kind(days) is not Kind.INTEGER or days.type == pa.int64():
        raise Unusable(f"a number of days of type {name_of(days.type)} is not computed")
    return Typed(pa.date32(), "add_days", (_date(args[0], session), days), sign)


def _add_months(args: Sequence[Typed], session: Zone | None) -> Typed:
    months = literal_int(args[1], "the number of months")
    if months is None:
        return constant(None, pa.date32())
    interval = constant(Interval(months=months), INTERVAL_TYPE)
    return Typed(pa.date32(), "shift", (_date(args[0], session), interval))


def _date_diff(args: Sequence[Typed], session: Zone | None) -> Typed:
    return Typed(pa.int32(), "date_diff", (_date(args[0], session), _date(args[1], session)))


def _unix(size: int, args: Sequence[Typed], session: Zone | None, *, cut: bool = False) -> Typed:
    return Typed(pa.int64(), "unix", (_timestamp(args[0], session),), (size, cut))


def _unix_date(args: Sequence[Typed], session: Zone | None) -> Typed:
    return Typed(pa.int32(), "unix", (_date(args[0], session),), (1, False))


def _unix_timestamp(args: Sequence[Typed], session: Zone | None) -> Typed:
    if kind(args[0]) is Kind.STRING:
        raise Unusable("unix_timestamp of text is not computed")
    return _unix(1_000_000, args, session, cut=True)


# How many arguments, and the typed expression of them.
TIMES: dict[str, tuple[int, int, Callable[[Sequence[Typed], Zone | None], Typed]]] = {
    **{
        name: (1, 1, partial(_field, name))
        for name in (
            *("year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekday"),
            *("hour", "minute", "second"),
        )
    },
    "dayofmonth": (1, 1, partial(_field, "day")),
    "trunc": (2, 2, _trunc),
    "date_trunc": (2, 2, _date_trunc),
    "to_date": (1, 1, _to_date),
    **{name: (2, 2, partial(add_days, 1)) for name in ("date_add", "dateadd")},
    "date_sub": (2, 2, partial(add_days, -1)),
    "add_months": (2, 2, _add_months),
    **dict.fromkeys(("datediff", "date_diff"), (2, 2, _date_diff)),
    "unix_timestamp": (1, 1, _unix_timestamp),
    "unix_seconds": (1, 1, partial(_unix, 1_000_000)),
    "unix_millis": (1, 1, partial(_unix, 1_000)),
    "unix_micros": (1, 1, partial(_unix, 1)),
    "unix_date": (1, 1, _unix_date),
}
