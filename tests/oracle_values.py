"""Values of rows and literals as Spark has them, and its casts, for the oracle.

Numbers are exact (``int``, and ``Fraction`` of decimals), floats are floats; dates are days,
timestamps microseconds. A
local time that does not exist moves forward by the gap, one that exists twice is the earlier
instant.
"""

from __future__ import annotations

import math
import re
import zoneinfo
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from skipstone.predicate.tree import Literal

DAY = 86_400_000_000


#: Spark's name of a type, its bits, its precision and its scale
Kind = tuple[str, int, int, int]


class SparkError(Exception):
    """Spark would fail the query."""


class NotModelled(Exception):
    """There is no rule for this here."""


class Typed(NamedTuple):
    """A value with Spark's name of its type: ``int64``, ``decimal``, ``string``, ``null``, …"""

    value: Any
    kind: str
    bits: int = 0
    precision: int = 0
    scale: int = 0


# -- from Arrow to values --------------------------------------------------------------------------


def kind_of(type: pa.DataType) -> Kind:
    """The kind of an Arrow type as Spark reads it."""
    t = pa.types
    if t.is_dictionary(type):
        return kind_of(type.value_type)
    if t.is_null(type):
        return "null", 0, 0, 0
    if t.is_boolean(type):
        return "boolean", 0, 0, 0
    if t.is_uint64(type):
        return "decimal", 0, 20, 0
    if t.is_unsigned_integer(type):
        return "int", type.bit_width * 2, 0, 0
    if t.is_integer(type):
        return "int", type.bit_width, 0, 0
    if t.is_floating(type):
        return "float", max(type.bit_width, 32), 0, 0
    if t.is_decimal(type):
        return "decimal", 0, type.precision, type.scale
    if t.is_string(type) or t.is_large_string(type) or t.is_string_view(type):
        return "string", 0, 0, 0
    if t.is_date(type):
        return "date", 0, 0, 0
    if t.is_timestamp(type):
        return ("timestamp" if type.tz else "ntz"), 0, 0, 0
    if t.is_duration(type):
        return "duration", 0, 0, 0
    if t.is_struct(type):
        return "struct", 0, 0, 0
    if "binary" in str(type):
        return "binary", 0, 0, 0
    return str(type), 0, 0, 0


def values_of(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as this module has them, ``None`` for nulls.

    A byte of a string column that is not UTF-8 is a lone surrogate (``surrogateescape``).
    """
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in values_of(chunk)]
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    t = pa.types
    if t.is_struct(array.type):
        children = [values_of(child) for child in array.flatten()]
        names = [array.type.field(i).name for i in range(array.type.num_fields)]
        return [
            dict(zip(names, row, strict=True)) if ok else None
            for ok, row in zip(
                array.is_valid().to_pylist(),
                zip(*children, strict=True) if children else [()] * len(array),
                strict=True,
            )
        ]
    if t.is_timestamp(array.type) or t.is_duration(array.type):
        ticks = array.cast(pa.int64()).to_pylist()
        up, down = {"s": (10**6, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}[
            array.type.unit
        ]
        return [None if tick is None else tick * up // down for tick in ticks]
    if t.is_string(array.type):
        raw = array.view(pa.binary()).to_pylist()
        return [None if each is None else each.decode("utf-8", "surrogateescape") for each in raw]
    plain: list[Any] = array.to_pylist()
    if t.is_date(array.type):
        return [None if day is None else (day - date(1970, 1, 1)).days for day in plain]
    if t.is_decimal(array.type):
        return [None if number is None else Fraction(number) for number in plain]
    return plain


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table: column name to value."""
    columns = [values_of(column) for column in table.columns]
    return [
        dict(zip(table.column_names, row, strict=True))
        for row in (zip(*columns, strict=True) if columns else [()] * len(table))
    ]


def place_of(schema: pa.Schema, path: tuple[str, ...]) -> tuple[list[str], Kind]:
    """The names on a path as the schema has them, found without regard to case, and what the
    column there is."""
    fields: list[pa.Field] = list(schema)
    names: list[str] = []
    type: pa.DataType = pa.null()
    for part in path:
        field = next(f for f in fields if f.name.lower() == part.lower())
        names.append(field.name)
        type = field.type
        fields = list(type) if pa.types.is_struct(type) else []
    return names, kind_of(type)


def value_at(row: dict[str, Any], names: list[str]) -> Any:
    """The value of a row at a place; a field of a null struct is null."""
    value: Any = row
    for name in names:
        value = None if value is None else value[name]
    return value


# -- literals --------------------------------------------------------------------------------------


def literal_of(literal: Literal, zone: tzinfo) -> Typed:
    """A literal's value: of its type, or of the type that Spark gives such a Python value."""
    value: Any = literal.value
    type = literal.type
    if type is not None:
        known = kind_of(type)
        if value is None:
            return Typed(None, *known)
        if known[0] == "timestamp" and isinstance(value, str):
            return cast(Typed(value, "string"), ("timestamp", 0, 0, 0), zone)
        if known[0] == "decimal":
            return Typed(Fraction(value, 10 ** known[3]), *known)
        return Typed(int(value) if known[0] == "int" else value, *known)
    match value:
        case None:
            return Typed(None, "null")
        case bool():
            return Typed(value, "boolean")
        case int() if -(2**63) <= value < 2**63:
            return Typed(value, "int", 32 if -(2**31) <= value < 2**31 else 64)
        case int():
            return Typed(value, "decimal", 0, len(str(abs(value))), 0)
        case float():
            return Typed(value, "float", 64)
        case Decimal():
            scale = max(0, -int(value.as_tuple().exponent))
            digits = len(str(abs(int(Fraction(value) * 10**scale))))
            return Typed(Fraction(value), "decimal", 0, max(digits, scale), scale)
        case str():
            return Typed(value, "string")
        case bytes():
            return Typed(value, "binary")
        case datetime() if value.tzinfo is not None:
            epoch = datetime(1970, 1, 1, tzinfo=UTC)
            return Typed((value - epoch) // timedelta(microseconds=1), "timestamp")
        case datetime():
            return Typed((value - datetime(1970, 1, 1)) // timedelta(microseconds=1), "ntz")
        case date():
            return Typed((value - date(1970, 1, 1)).days, "date")
    raise NotModelled(f"literal {value!r}")


# -- casts -----------------------------------------------------------------------------------------


def to_instant(local: int, zone: tzinfo) -> int:
    """Microseconds at a local time: the earlier of two, past the gap if there is none."""
    at = (datetime(1970, 1, 1) + timedelta(microseconds=local)).replace(tzinfo=zone)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def to_local(instant: int, zone: tzinfo) -> int:
    """The local time that clocks show at an instant."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)
    return (at.astimezone(zone).replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(
        microseconds=1
    )


def start_of_day(day: int, zone: tzinfo) -> int:
    """The first instant whose local date is ``day`` or later."""
    low, high = day * DAY - 2 * DAY, day * DAY + 2 * DAY
    while low < high:
        middle = (low + high) // 2
        if to_local(middle, zone) // DAY >= day:
            high = middle
        else:
            low = middle + 1
    return low


def cast(x: Typed, target: Kind, zone: tzinfo) -> Typed:
    """``CAST(x AS target)``, ANSI."""
    kind, bits, precision, scale = target
    if x.value is None or x[1:] == target:
        return Typed(x.value, *target)
    number = x.value if x.kind in ("int", "decimal") else None
    found: Any = None
    match x.kind, kind:
        case "boolean", "int":
            found = int(x.value)
        case "int" | "decimal" | "float", "int":
            if number is None and not math.isfinite(x.value):
                raise SparkError("CAST_OVERFLOW")
            found = math.trunc(x.value)
        case "string", "int":
            if not re.fullmatch(r"[+-]?\d+", x.value.strip()):
                raise SparkError("CAST_INVALID_INPUT")
            found = int(x.value)
        case "int" | "decimal" | "float", "float":
            if bits == 64:
                found = float(x.value)
            elif number is not None and number.denominator == 1 and abs(number) < 2**63:
                found = float(np.int64(int(number)).astype(np.float32))
            else:
                with np.errstate(over="ignore"):
                    found = float(np.float32(float(x.value)))
        case "string", "float":
            try:
                found = float(x.value)
            except ValueError:
                raise SparkError("CAST_INVALID_INPUT") from None
            if bits == 32:
                found = float(np.float32(found))
        case "int" | "decimal", "decimal":
            found = half_up(x.value, scale)
        case "string", "binary":
            found = x.value.encode()
        case "string", "boolean":
            word = x.value.strip().lower()
            if word not in ("t", "true", "y", "yes", "1", "f", "false", "n", "no", "0"):
                raise SparkError("CAST_INVALID_INPUT")
            found = word in ("t", "true", "y", "yes", "1")
        case "string", "date":
            found = to_local(from_iso(x.value, UTC), UTC) // DAY
        case "string", "timestamp":
            found = from_iso(x.value, zone)
        case "string", "ntz":
            found = from_iso(x.value, UTC)
        case "date", "ntz":
            found = x.value * DAY
        case "date", "timestamp":
            found = start_of_day(x.value, zone)
        case "ntz", "timestamp":
            found = to_instant(x.value, zone)
        case "timestamp", "ntz":
            found = to_local(x.value, zone)
        case "ntz", "date":
            found = x.value // DAY
        case "timestamp", "date":
            found = to_local(x.value, zone) // DAY
        case _:
            raise NotModelled(f"cast from {x.kind} to {kind}")
    if kind == "int" and not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
        raise SparkError("CAST_OVERFLOW")
    if kind == "decimal" and abs(found) >= 10 ** (precision - scale):
        raise SparkError("NUMERIC_VALUE_OUT_OF_RANGE")
    return Typed(found, *target)


def half_up(value: Fraction, scale: int) -> Fraction:
    """Rounded to ``scale`` digits, halves away from zero."""
    unscaled = math.floor(abs(value) * 10**scale + Fraction(1, 2))
    return Fraction(-unscaled if value < 0 else unscaled, 10**scale)


def from_iso(text: str, zone: tzinfo) -> int:
    """Microseconds of an ISO text: at its own offset, else in ``zone``."""
    text, region = text.strip(), ""
    match = re.fullmatch(r"(.*\d) ?([A-Z][A-Za-z]+/[A-Za-z_/]+)", text)
    if match:
        text, region = match.groups()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise NotModelled(f"date or time {text!r}") from None
    if at.tzinfo is not None:
        return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    local = (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return to_instant(local, zoneinfo.ZoneInfo(region) if region else zone)


# -- where types meet ------------------------------------------------------------------------------

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


@cache
def meeting(a: Kind, b: Kind) -> Kind:
    """The type at which two types are compared."""
    if a == b or b[0] == "null":
        return a
    if a[0] == "null":
        return b
    if "string" in (a[0], b[0]):
        other = b if a[0] == "string" else a
        match other[0]:
            case "int":
                return "int", 64, 0, 0
            case "float" | "decimal":
                return "float", 64, 0, 0
            case "boolean" | "binary" | "date" | "timestamp" | "ntz":
                return other
    numbers = {a[0], b[0]}
    if numbers == {"int"}:
        return max(a, b)
    if numbers <= {"int", "decimal"}:
        p, q = (("decimal", 0, _DIGITS[x[1]], 0) if x[0] == "int" else x for x in (a, b))
        whole, scale = max(p[2] - p[3], q[2] - q[3]), max(p[3], q[3])
        scale = min(scale, 38 - whole)
        return "decimal", 0, whole + scale, scale
    if numbers <= {"int", "decimal", "float"}:
        return "float", 64, 0, 0
    for later, earlier in (
        ("timestamp", {"timestamp", "ntz", "date"}),
        ("ntz", {"ntz", "date"}),
    ):
        if later in numbers and numbers <= earlier:
            return later, 0, 0, 0
    raise SparkError(f"DATATYPE_MISMATCH {a} {b}")
