"""What a comparison is made of: columns resolved in a schema, constants, prefixes of patterns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.errors import PredicateError

from .coercion import Unusable
from .literals import to_domain
from .types import TIMESTAMP, TIMESTAMP_NTZ, MapKey, column_name, spark_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .tree import ColumnRef
    from .types import Value


# Functions that Spark calls without parentheses, where no column has the name.
_BARE = """
current_date current_time current_timestamp current_user current_catalog current_database
current_schema localtimestamp session_user user
"""
BARE_FUNCTIONS = frozenset(_BARE.split())


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
            found = _value_of_key(part, found if map_keys else None, tuple(spelled))
            spelled.append(part)
            continue
        if found is not None:
            if map_keys and pa.types.is_map(found.type):
                key = MapKey(part)  # m.k is m['k']
                found = _value_of_key(key, found, tuple(spelled))
                spelled.append(key)
                continue
            if not pa.types.is_struct(found.type):
                raise LookupError(f"{column_name(tuple(spelled))} is no struct")
            fields = list(found.type)
        wanted = part if case_sensitive else part.lower()
        matches = [f for f in fields if (f.name if case_sensitive else f.name.lower()) == wanted]
        if len(matches) > 1:
            raise PredicateError(
                f"column {column_name(ref.path)} could be any of "
                + ", ".join(column_name((*spelled, f.name)) for f in matches),
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
                hint=None if _nearest(name, schema) else _hint(schema),
            )
        found = matches[0]
        spelled.append(found.name)
    assert found is not None
    return tuple(spelled), found


def _hint(schema: pa.Schema) -> str:
    if not schema.names:
        return "there are no columns: check that the path has data files"
    names = schema.names
    more = f", … ({len(names)} in all)" if len(names) > 8 else ""
    return f"the columns are {', '.join(names[:8])}{more}"


def _value_of_key(key: MapKey, map_: pa.Field | None, path: tuple[str, ...]) -> pa.Field:
    """The value of a map's key as a field, with the metadata of the map."""
    if (
        map_ is None
        or not pa.types.is_map(map_.type)
        or spark_type(map_.type.key_type) != pa.string()
    ):
        raise LookupError(f"{column_name((*path, key))} is an element of a column")
    return pa.field(str(key), map_.type.item_type, True, metadata=map_.metadata)


def _nearest(name: str, schema: pa.Schema) -> str | None:
    known: dict[str, str] = {}

    def add(fields: Iterable[pa.Field], prefix: tuple[str, ...]) -> None:
        for field in fields:
            path = (*prefix, field.name)
            known.setdefault(column_name(path).lower(), column_name(path))
            if pa.types.is_struct(field.type) and len(path) < 8:
                add(field.type, path)

    add(schema, ())
    close = get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return known[close[0]] if close else None


@dataclass(frozen=True, slots=True)
class Column:
    """A column under casts that keep order: its type, then the types that it is cast to, in order.

    ``units``: Spark's type, where it is an interval: a cast then counts in other units.
    """

    name: str
    chain: tuple[pa.DataType, ...]
    units: str = ""

    @property
    def type(self) -> pa.DataType:
        return self.chain[0]

    @property
    def top(self) -> pa.DataType:
        return self.chain[-1]

    def cast(self, type: pa.DataType) -> Column:
        return self if type == self.top else Column(self.name, (*self.chain, type), self.units)


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
                raise Unusable("the pattern has an escape character before nothing special")
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
