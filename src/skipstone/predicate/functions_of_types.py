"""The functions of dates, timestamps, lists and maps, for the table of ``functions.py``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from .operands import Unusable
from .typed import INTERVAL_TYPE, Interval, Typed, constant
from .typed_casts import cast_to, kind, literal_int, meeting, name_of, refused, shared_type
from .types import TIMESTAMP, Kind, is_list, spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from .zones import Zone

    Typing: TypeAlias = Callable[[Sequence[Typed], Zone | None], Typed]
    Table: TypeAlias = dict[str, tuple[int, int | None, Typing]]


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


# -- lists and maps --------------------------------------------------------------------------------


def _size(args: Sequence[Typed], session: Zone | None) -> Typed:
    if not is_list(args[0].type) and not pa.types.is_map(args[0].type):
        raise refused("size", args[0])
    return Typed(pa.int32(), "size", (args[0],))


def _element(lists: Typed, what: str) -> pa.DataType:
    element = spark_type(lists.type.value_type) if is_list(lists.type) else None
    if element is None:
        raise refused(what, lists)
    return element


def _array(args: Sequence[Typed], session: Zone | None) -> Typed:
    type = shared_type(args, "elements")
    if spark_type(type) is None or pa.types.is_null(type):
        raise Unusable(f"an array of {name_of(type)} is not computed")
    return Typed(pa.list_(type), "array", tuple(cast_to(arg, type, session) for arg in args))


def _arrays_overlap(args: Sequence[Typed], session: Zone | None) -> Typed:
    types = [_element(arg, "arrays_overlap") for arg in args]
    common = meeting(*types)
    if common is None or not (types[0] == types[1] or all(map(pa.types.is_integer, types))):
        raise Unusable("arrays_overlap of elements of two types is not computed")
    return Typed(pa.bool_(), "arrays_overlap", tuple(args), common)


def _map_side(kernel: str, args: Sequence[Typed], session: Zone | None) -> Typed:
    """``map_keys`` and ``map_values``."""
    (maps,) = args
    if not pa.types.is_map(maps.type):
        raise refused(kernel, maps)
    side = maps.type.key_type if kernel == "map_keys" else maps.type.item_type
    return Typed(pa.list_(spark_type(side) or side), kernel, (maps,))


def _map_contains_key(args: Sequence[Typed], session: Zone | None) -> Typed:
    return _array_contains((_map_side("map_keys", args[:1], session), args[1]), session)


def _array_contains(args: Sequence[Typed], session: Zone | None) -> Typed:
    lists, wanted = args
    element = _element(lists, "array_contains")
    if wanted.is_null:
        return constant(None, pa.bool_())
    common = meeting(element, wanted.type)
    # Spark widens the elements, which changes no integer.
    wider = pa.types.is_integer(element) and pa.types.is_integer(wanted.type)
    if common is None or (common != element and not wider):
        raise Unusable("array_contains of another type than the elements is not computed")
    return Typed(pa.bool_(), "array_contains", (lists, cast_to(wanted, common, session)), common)


def _element_at(args: Sequence[Typed], session: Zone | None) -> Typed:
    maps, key = args
    if not pa.types.is_map(maps.type):
        raise refused("an element", maps)
    keys, items = spark_type(maps.type.key_type), spark_type(maps.type.item_type)
    if keys is None or items is None:
        raise refused("an element", maps)
    if meeting(keys, key.type) != keys:
        raise Unusable("a key of another type than the keys of the map")
    return Typed(items, "map_value", (maps, cast_to(key, keys, session)), keys)


# -- the tables -----------------------------------------------------------------------------------


# By name: how many arguments a function takes, and its typed expression.
TIMES: Table = {
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
NESTED: Table = {
    **dict.fromkeys(("size", "cardinality"), (1, 1, _size)),
    "array": (1, None, _array),
    "array_contains": (2, 2, _array_contains),
    "arrays_overlap": (2, 2, _arrays_overlap),
    **{name: (1, 1, partial(_map_side, name)) for name in ("map_keys", "map_values")},
    "map_contains_key": (2, 2, _map_contains_key),
    **dict.fromkeys(("element_at", "subscript"), (2, 2, _element_at)),
}
