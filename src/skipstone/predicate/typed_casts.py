"""Casts of typed expressions, their common types, and the types of decimal arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from .operands import Unusable, cast_constant, common_type, decimal_for
from .typed import INTERVAL_TYPE, Typed, constant
from .types import Kind, kind_of, spark_name, spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .zones import Zone


def name_of(type: pa.DataType) -> str:
    """Spark's name of a type, for messages."""
    return "interval" if type == INTERVAL_TYPE else spark_name(type)


def kind(typed: Typed) -> Kind | None:
    """The kind of an expression's type; ``None`` for NULL, intervals, lists, maps and structs."""
    if pa.types.is_null(typed.type) or spark_type(typed.type) is None:
        return None
    return kind_of(typed.type)


def literal_int(arg: Typed, what: str) -> int | None:
    """A constant integer; ``None`` for NULL."""
    if not arg.is_constant or (arg.value is not None and kind(arg) is not Kind.INTEGER):
        raise Unusable(f"{what} is not a literal integer")
    return None if arg.value is None else int(arg.value)


# -- types that meet ------------------------------------------------------------------------------


def shared_type(args: Sequence[Typed], what: str) -> pa.DataType:
    """The type to which Spark casts the branches of a CASE and the elements of a list."""
    found = args[0].type
    for each in args[1:]:
        common = meeting(found, each.type)
        if common is None:
            raise Unusable(f"{what} of {name_of(found)} and {name_of(each.type)}")
        found = common
    return found


def meeting(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """``common_type`` of any two types; lists, maps and structs only have one with themselves."""
    if a == b or is_null_type(a) or is_null_type(b):
        return b if is_null_type(a) else a
    return None if spark_type(a) is None or spark_type(b) is None else common_type(a, b)


def is_null_type(type: pa.DataType) -> bool:
    return bool(pa.types.is_null(type))


def refused(what: str, arg: Typed) -> Unusable:
    return Unusable(f"{what} of {name_of(arg.type)} is not computed")


# -- casts -----------------------------------------------------------------------------------------


def cast_to(
    typed: Typed, target: pa.DataType, session: Zone | None, *, tolerant: bool = False
) -> Typed:
    """``CAST(typed AS target)``; ``Unusable`` if it is not computed exactly."""
    if typed.type == target:
        return typed
    if typed.is_null:
        return constant(None, target)
    if typed.is_constant and not tolerant:
        found = cast_constant(typed.value, typed.type, target, session)
        return constant(found + 0.0 if isinstance(found, float) else found, target)
    source = kind(typed)
    if pa.types.is_null(typed.type):
        return Typed(target, "cast", (typed,), tolerant)
    if source is None or spark_type(target) is None or not _computed(typed.type, target):
        raise Unusable(f"a cast from {name_of(typed.type)} to {name_of(target)} is not computed")
    zoned = {source, kind_of(target)} & {Kind.TIMESTAMP}
    others = {source, kind_of(target)} & {Kind.DATE, Kind.TIMESTAMP_NTZ, Kind.STRING}
    if zoned and others and session is None:
        raise Unusable("the session time zone is not one that is known with certainty")
    return Typed(target, "cast", (typed,), tolerant)


_NUMBERS = {Kind.INTEGER, Kind.FLOATING, Kind.DECIMAL}
_TIMES = {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}


def _computed(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a kernel has this cast. Casts of floats to texts, and of floats or texts to decimals,
    are left out."""
    a, b = kind_of(source), kind_of(target)
    if a in _NUMBERS | {Kind.BOOLEAN} and b in _NUMBERS | {Kind.BOOLEAN}:
        return not (a is Kind.FLOATING and b is Kind.DECIMAL) and not (
            a is Kind.DECIMAL and b is Kind.FLOATING and target.bit_width == 32
        )
    if a in _TIMES and b in _TIMES:
        return True
    if a is Kind.STRING:
        return b in {Kind.INTEGER, Kind.BOOLEAN, Kind.BINARY, *_TIMES} or (
            b is Kind.FLOATING and target.bit_width == 64
        )
    if b is Kind.STRING:
        return a in {Kind.INTEGER, Kind.BOOLEAN, Kind.BINARY, *_TIMES} or (
            a is Kind.DECIMAL and source.scale <= 6
        )
    return False


# -- types of arithmetic ---------------------------------------------------------------------------


def as_decimal(typed: Typed) -> pa.DataType:
    """The decimal type that Spark takes for a number next to a decimal: a literal integer has only
    the digits that it has."""
    if pa.types.is_decimal(typed.type):
        return typed.type
    if typed.is_constant and isinstance(typed.value, int):
        return pa.decimal128(len(str(abs(typed.value))), 0)
    return decimal_for(typed.type)


def decimal_result(op: str, a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type of an operation of two decimals: by Spark's rule, which drops digits of the scale
    down to 6 if more than 38 are needed."""
    whole, scale = max(a.precision - a.scale, b.precision - b.scale), max(a.scale, b.scale)
    if op in ("+", "-"):
        precision = whole + scale + 1
    elif op == "*":
        precision, scale = a.precision + b.precision + 1, a.scale + b.scale
    elif op == "/":
        scale = max(6, a.scale + b.precision + 1)
        precision = a.precision - a.scale + b.scale + scale
    else:
        precision = min(a.precision - a.scale, b.precision - b.scale) + scale
    if precision > 38:
        integral = precision - scale
        scale = max(38 - integral, min(scale, 6))
        precision = 38
    return pa.decimal128(precision, scale)
