"""Types meeting in a comparison, and constants cast: Spark 4's rules under ANSI (its default).

``common_type`` follows ``AnsiTypeCoercion``: two integers meet at the wider one; an integer and a
float at double; decimals at a decimal that holds both, giving up scale first past 38 digits; a
decimal and a float at double; a string meets an integer at bigint, a fraction or decimal at
double, anything else at the other type; date, timestamp_ntz and timestamp in this order.
Everything else is an error in Spark.

``cast_constant`` is Spark's cast of one value. It raises ``Unusable`` for what Spark would refuse,
and for what is not certain (text with an unusual time zone, for example): then the predicate prunes
nothing, and Spark decides.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from .types import TIMESTAMP, TIMESTAMP_NTZ, Kind, kind_of, spark_name
from .zones import DAY, UnknownLocalTime, known_zone, parse_date, parse_local, parse_timestamp

if TYPE_CHECKING:
    from .types import Value
    from .zones import Zone


class Unusable(Exception):
    """Why no index can answer an expression; it becomes an ``Opaque`` with this reason."""


def decimal_for(type: pa.DataType) -> pa.DataType:
    """The decimal type that Spark uses for an integer type."""
    return pa.decimal128({8: 3, 16: 5, 32: 10, 64: 20}[type.bit_width], 0)


def _wider_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    whole = max(a.precision - a.scale, b.precision - b.scale)
    scale = min(max(a.scale, b.scale), 38 - whole)
    return pa.decimal128(whole + scale, scale)


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type at which Spark compares two canonical types, ``None`` where it refuses to."""
    if a == b:
        return a
    if pa.types.is_null(a) or pa.types.is_null(b):
        return b if pa.types.is_null(a) else a
    kinds = {kind_of(a), kind_of(b)}
    if Kind.STRING in kinds:
        other = b if kind_of(a) is Kind.STRING else a
        match kind_of(other):
            case Kind.INTEGER:
                return pa.int64()
            case Kind.FLOATING | Kind.DECIMAL:
                return pa.float64()
            case Kind.DURATION:
                return None
            case _:
                return other
    if kinds == {Kind.INTEGER}:
        return a if a.bit_width > b.bit_width else b
    if kinds <= {Kind.INTEGER, Kind.DECIMAL}:
        left = decimal_for(a) if kind_of(a) is Kind.INTEGER else a
        right = decimal_for(b) if kind_of(b) is Kind.INTEGER else b
        return _wider_decimal(left, right)
    if kinds <= {Kind.INTEGER, Kind.DECIMAL, Kind.FLOATING}:
        return pa.float64()
    if kinds == {Kind.DATE, Kind.TIMESTAMP_NTZ}:
        return TIMESTAMP_NTZ
    if kinds <= {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}:
        return TIMESTAMP
    return None


def meets_elsewhere(a: pa.DataType, b: pa.DataType, *, listed: bool) -> bool:
    """True where Spark without ANSI mode compares two types at another type than ``common_type``.

    An integer and a float meet at float there, a string meets a number at the number's own type;
    in a list (``listed``) a string draws the others to string.
    """
    if a == b or pa.types.is_null(a) or pa.types.is_null(b):
        return False
    kinds = {kind_of(a), kind_of(b)}
    if Kind.STRING in kinds:
        return listed or bool(kinds & {Kind.INTEGER, Kind.FLOATING, Kind.DECIMAL})
    return kinds == {Kind.INTEGER, Kind.FLOATING} and pa.float32() in (a, b)


def float32_of(value: Fraction) -> float:
    """The float (32 bits) nearest to ``value``, ties to even: one rounding, as Java's."""
    largest = Fraction(float(np.finfo(np.float32).max))
    # From the midpoint between the largest float and 2^128 on, rounding gives infinity.
    if abs(value) > largest:
        size = float(largest) if abs(value) < largest + Fraction(2) ** 103 else float("inf")
        return size if value > 0 else -size
    near = np.float32(float(value))
    # Rounding twice, to a double first, is wrong by at most one neighbour.
    with np.errstate(over="ignore"):
        neighbours = [np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf)]
    return float(
        min(
            (c for c in (near, *neighbours) if np.isfinite(c)),
            key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.int32)) & 1),
        )
    )


_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
_SPECIAL = {"nan": "nan", "inf": "inf", "infinity": "inf"}
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_SPACE = "".join(map(chr, range(0x21))) + "\x7f"


def cast_constant(
    value: Value, source: pa.DataType, target: pa.DataType, session: Zone | None
) -> Value:
    """``CAST(value AS target)`` of a value in the stored domain of ``source``; see the module."""
    if source == target:
        return value
    refused = Unusable(
        f"{spark_name(source)} literal cannot be read as {spark_name(target)} with certainty"
    )
    try:
        found = _cast(value, source, target, session)
    except UnknownLocalTime as error:
        raise Unusable(str(error)) from None
    except (ArithmeticError, ValueError):
        raise refused from None
    if found is None:
        raise refused
    return found


def _cast(
    value: Value, source: pa.DataType, target: pa.DataType, session: Zone | None
) -> Value | None:
    match kind_of(source), kind_of(target), value:
        case Kind.INTEGER, Kind.INTEGER, int() if source.bit_width < target.bit_width:
            return value
        case Kind.STRING, kind, str():
            return _from_text(value.strip(_SPACE), kind, value, target, session)
        case Kind.DATE, Kind.TIMESTAMP_NTZ, int():
            return value * DAY
        case Kind.DATE, Kind.TIMESTAMP, int():
            return known_zone(session).start_of_day(value)
        case Kind.TIMESTAMP_NTZ, Kind.TIMESTAMP, int():
            return known_zone(session).to_instant(value)
        case Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, int():
            return known_zone(session).to_local(value)
        case Kind.TIMESTAMP_NTZ, Kind.DATE, int():
            return value // DAY
        case Kind.TIMESTAMP, Kind.DATE, int():
            return known_zone(session).to_local(value) // DAY
        case Kind.FLOATING, Kind.FLOATING, float():
            if target.bit_width == 64 or not np.isfinite(value):
                return value
            return float32_of(Fraction(value))
        case ((Kind.INTEGER | Kind.DECIMAL | Kind.FLOATING | Kind.BOOLEAN), _, _):
            if isinstance(value, str | bytes):
                return None
            scale = source.scale if kind_of(source) is Kind.DECIMAL else 0
            return _from_number(Fraction(value) / 10**scale, target)
    return None


def _from_number(value: Fraction, target: pa.DataType) -> Value | None:
    match kind_of(target):
        case Kind.INTEGER:
            whole = int(value)  # Spark truncates towards zero
            half = 1 << (target.bit_width - 1)
            return whole if -half <= whole < half else None
        case Kind.FLOATING:
            if target.bit_width == 32:
                return float32_of(value)
            return value.numerator / value.denominator
        case Kind.DECIMAL:
            scaled = value * 10**target.scale
            # Half up: away from zero.
            unscaled = int(abs(scaled) + Fraction(1, 2))
            unscaled = -unscaled if scaled < 0 else unscaled
            return unscaled if abs(unscaled) < 10**target.precision else None
    return None


def _from_text(
    text: str, kind: Kind, original: str, target: pa.DataType, session: Zone | None
) -> Value | None:
    match kind:
        case Kind.BINARY:
            return original.encode("utf-8", "replace")
        case Kind.BOOLEAN:
            word = text.lower()
            return True if word in _TRUE else False if word in _FALSE else None
        case Kind.INTEGER:
            return _from_number(Fraction(int(text)), target) if _WHOLE.fullmatch(text) else None
        case Kind.FLOATING:
            sign, word = text[:1] in ("+", "-"), text.lower()
            special = _SPECIAL.get(word[1:] if sign else word)
            if special is not None and not (sign and special == "nan"):
                return float(("-" if word[0] == "-" else "") + special)
            if not _NUMBER.fullmatch(text):
                return None
            return float32_of(Fraction(text)) if target.bit_width == 32 else float(text)
        case Kind.DECIMAL:
            if not _NUMBER.fullmatch(text):
                return None
            return _from_number(Fraction(Decimal(text)), target)
        case Kind.DATE:
            return parse_date(original)
        case Kind.TIMESTAMP_NTZ:
            return parse_local(original)
        case Kind.TIMESTAMP:
            return parse_timestamp(original, session)
    return None
