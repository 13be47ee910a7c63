"""The operands of a comparison: columns, constants, and the common type of two of them.

Common types and casts of constants follow Spark 4's rules under ANSI (its default). ``common_type``
follows ``AnsiTypeCoercion``. The common type of two integers is the wider one; of an integer and a
float, double; of decimals, a decimal that holds both, which loses scale first past 38 digits; of a
decimal and a float, double; of a string and an integer, bigint; of a string and a fraction or
decimal, double; of a string and anything else, the other type; of date, timestamp_ntz and
timestamp, the later one in this order. Everything else is an error in Spark.

``cast_constant`` is Spark's cast of one value. It raises ``Unusable`` for what Spark would refuse,
and for what is not certain (text with an unusual time zone, for example): then the predicate prunes
nothing, and Spark decides.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import PredicateError
from skipstone.human import some_of

from .literals import to_domain
from .types import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Kind,
    MapKey,
    column_name,
    kind_of,
    spark_name,
    value_of_key,
)
from .zones import (
    DAY,
    SPACE,
    UnknownLocalTime,
    known_zone,
    parse_date,
    parse_local,
    parse_timestamp,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .tree import ColumnRef
    from .types import Value
    from .zones import Zone


# Functions that need no parentheses in Spark, if no column has the name.
_BARE = """
current_date current_time current_timestamp current_user current_catalog current_database
current_schema localtimestamp session_user user
"""
BARE_FUNCTIONS = frozenset(_BARE.split())

# The most columns that a message about an ambiguous name lists.
_SHOWN = 4


def resolve(
    ref: ColumnRef,
    schema: pa.Schema,
    *,
    case_sensitive: bool = False,
    text: str | None = None,
    map_keys: bool = False,
) -> tuple[tuple[str, ...], pa.Field]:
    """The path as the schema spells it, and the field there; ``PredicateError`` as in ``bind``.

    ``LookupError`` when the path continues inside a list, a map or an atomic type; with
    ``map_keys`` it may contain the key of a map from strings (``m['k']``, ``m.k``).
    """
    fields: Sequence[pa.Field] = list(schema)
    spelled: list[str] = []
    found: pa.Field | None = None
    for part in ref.path:
        if isinstance(part, MapKey):
            found = _key_field(part, found if map_keys else None, spelled)
            spelled.append(part)
            continue
        if found is not None:
            if map_keys and pa.types.is_map(found.type):
                key = MapKey(part)  # m.k is m['k']
                found = _key_field(key, found, spelled)
                spelled.append(key)
                continue
            if not pa.types.is_struct(found.type):
                raise LookupError(f"{column_name(tuple(spelled))} is not a struct")
            fields = list(found.type)
        wanted = part if case_sensitive else part.lower()
        matches = [f for f in fields if (f.name if case_sensitive else f.name.lower()) == wanted]
        if len(matches) > 1:
            raise PredicateError(
                f"column {column_name(ref.path)} could be any of "
                + some_of([column_name((*spelled, f.name)) for f in matches], _SHOWN),
                text=text,
                position=ref.position,
                hint="name columns so that they differ in more than case",
            )
        if not matches:
            name = column_name(ref.path)
            raise PredicateError(
                f"no column {name}",
                text=text,
                position=ref.position,
                nearest=_nearest(name, schema),
                hint=None if _nearest(name, schema) else _hint(schema, name),
            )
        found = matches[0]
        spelled.append(found.name)
    assert found is not None
    return tuple(spelled), found


def _hint(schema: pa.Schema, name: str) -> str:
    if not (names := schema.names):
        return "there are no columns: check that the path has data files"
    text = f"; a text is written '{name}'" if name.isidentifier() else ""
    return f"the columns are {some_of(names, 8)}{text}"


def _key_field(key: MapKey, map_: pa.Field | None, path: Sequence[str]) -> pa.Field:
    found = value_of_key(map_, key)
    if found is None:
        raise LookupError(f"{column_name((*path, key))} is an element of a column")
    return found


def _nearest(name: str, schema: pa.Schema) -> str | None:
    from difflib import get_close_matches

    known: dict[str, str] = {}

    def add(fields: Iterable[pa.Field], prefix: tuple[str, ...]) -> None:
        for field in fields:
            path = (*prefix, field.name)
            known.setdefault(column_name(path).lower(), column_name(path))
            if pa.types.is_struct(field.type) and len(path) < 8:
                add(field.type, path)

    add(schema, ())
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return known[close[0]] if close else None


@dataclass(frozen=True, slots=True)
class Column:
    """A column under casts and functions that keep order: its type, then the types of these, in
    order. ``steps`` has the preimage of each of them, ``None`` for a cast.

    ``units``: Spark's type, where it is an interval: a cast then counts in other units. ``total``:
    the value is null only where the column is.
    """

    name: str
    chain: tuple[pa.DataType, ...]
    units: str = ""
    steps: tuple[Callable[[int, int], list[tuple[int, int]]] | None, ...] = ()
    total: bool = True

    @property
    def type(self) -> pa.DataType:
        return self.chain[0]

    @property
    def top(self) -> pa.DataType:
        return self.chain[-1]

    def cast(self, type: pa.DataType) -> Column:
        return self if type == self.top else self._under(type, None)

    def apply(self, type: pa.DataType, back: Callable[[int, int], list[tuple[int, int]]]) -> Column:
        """This column under a function to ``type`` with this preimage."""
        return self._under(type, back)

    def partial(self) -> Column:
        """This column, but null for some values."""
        return replace(self, total=False)

    def _under(
        self, type: pa.DataType, step: Callable[[int, int], list[tuple[int, int]]] | None
    ) -> Column:
        return replace(self, chain=(*self.chain, type), steps=(*self.steps, step))


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a canonical type (``null`` for a bare NULL); ``value`` None is NULL."""

    value: Value | None
    type: pa.DataType


def typed(value: object) -> Constant:
    """A Python value as the literal that Spark makes of it."""
    if isinstance(value, np.generic):
        value = value.item()
    match value:
        case None:
            return Constant(None, pa.null())
        case bool():
            return Constant(value, pa.bool_())
        case int():
            for bits, type in ((32, pa.int32()), (64, pa.int64())):
                if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
                    return Constant(value, type)
            return _decimal(Decimal(value))
        case float():
            return Constant(value + 0.0, pa.float64())
        case Decimal():
            return _decimal(value)
        case str():
            return Constant(value, pa.string())
        case bytes() | bytearray() | memoryview():
            return Constant(bytes(value), pa.binary())
        case datetime():
            type = TIMESTAMP_NTZ if value.tzinfo is None else TIMESTAMP
        case date():
            type = pa.date32()
        case _:
            raise Unusable(f"a literal of Python type {value.__class__.__name__}")
    try:
        return Constant(to_domain(value, type), type)
    except ValueError as error:
        raise Unusable(str(error)) from None


def _decimal(value: Decimal) -> Constant:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return Constant(
            float(value) if value.is_nan() else math.copysign(math.inf, value), pa.float64()
        )
    scale = max(-exponent, 0)
    unscaled = int("".join(map(str, digits)) or "0") * 10 ** min(max(exponent, 0), 40)
    precision = max(len(str(unscaled)), scale, 1)
    if precision > 38:
        raise Unusable("a decimal of more than 38 digits")
    return Constant(-unscaled if sign else unscaled, pa.decimal128(precision, scale))


def plain_pattern(text: str) -> str:
    """``text`` as a LIKE pattern that matches itself."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def literal_prefix(pattern: str, escape: str) -> tuple[str, bool, bool]:
    """(literal prefix, prefix decides alone, no wildcard at all) of a LIKE pattern."""
    prefix: list[str] = []
    at = 0
    open_ended = False
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == escape:
            if at == len(pattern) or (pattern[at] not in "_%" and pattern[at] != escape):
                raise Unusable("the pattern escapes a character that needs no escape")
            if not open_ended:
                prefix.append(pattern[at])
            at += 1
        elif char in "_%":
            if not open_ended:
                open_ended, rest = True, pattern[at - 1 :]
        elif not open_ended:
            prefix.append(char)
    text = "".join(prefix)
    if not open_ended:
        return text, False, True
    return text, set(rest) == {"%"} and escape != "%", False


# -- common types, and casts of constants ----------------------------------------------------------


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
    """True where Spark without ANSI mode compares two types as another type than ``common_type``.

    The common type there is float for an integer and a float, and the number's own type for a
    string and a number. A string in a list (``listed``) makes the others strings.
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


_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_SPECIAL = {"nan": "nan", "inf": "inf", "infinity": "inf"}
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}


# How a value of a kind is written in a predicate.
_LOOKS: dict[Kind, str] = {
    Kind.DATE: "a date is DATE '2026-01-31'",
    Kind.TIMESTAMP: "a time is TIMESTAMP '2026-01-31 12:00:00'",
    Kind.TIMESTAMP_NTZ: "a time is TIMESTAMP '2026-01-31 12:00:00'",
    Kind.INTEGER: "a number is 42, without quotes",
    Kind.FLOATING: "a number is 4.2, without quotes",
    Kind.DECIMAL: "a number is 4.2, without quotes",
    Kind.BOOLEAN: "it is TRUE or FALSE",
}


def looks_like(type: pa.DataType) -> str:
    """``": "`` and how a value of this type is written, or nothing."""
    looks = _LOOKS.get(kind_of(type))
    return f": {looks}" if looks else ""


def _refusal(value: Value, source: pa.DataType, target: pa.DataType) -> str:
    """Why a literal is not read as another type, and how one of that type looks."""
    shown = f" {value!r}" if isinstance(value, str) and len(value) <= 40 else ""
    looks = looks_like(target) if shown else ""
    return (
        f"{spark_name(source)} literal{shown} cannot be read as {spark_name(target)}"
        f"{looks or ' with certainty'}"
    )


def cast_constant(
    value: Value, source: pa.DataType, target: pa.DataType, session: Zone | None
) -> Value:
    """``CAST(value AS target)`` of a value in the stored domain of ``source``; see the module."""
    if source == target:
        return value
    refused = Unusable(_refusal(value, source, target))
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
            return _from_text(value.strip(SPACE), kind, value, target, session)
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
