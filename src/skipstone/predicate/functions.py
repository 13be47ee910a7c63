"""The functions and operators that are computed on rows: one table, by Spark's names.

Each entry says how many arguments there are and gives the typed expression, with the implicit casts
of ANSI Spark. ``kernels/`` evaluates it. A function that is not here is ``Opaque``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass

from .functions_of_types import NESTED, TIMES, add_days
from .operands import Unusable, common_type, literal_prefix
from .typed import INTERVAL_TYPE, Interval, Typed, constant
from .typed_casts import (
    as_decimal,
    cast_to,
    decimal_result,
    is_null_type,
    kind,
    literal_int,
    meeting,
    name_of,
    refused,
    shared_type,
)
from .types import TIMESTAMP, Kind, is_list, spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .functions_of_types import Typing
    from .zones import Zone


@dataclass(frozen=True, slots=True)
class Function:
    """``least`` to ``most`` arguments (``None``: any number), and the typed expression of them."""

    least: int
    most: int | None
    typed: Typing


# -- arithmetic ------------------------------------------------------------------------------------


def _number(arg: Typed, what: str, session: Zone | None) -> Typed:
    """A number; text is cast to the type of the other side by the caller."""
    if is_null_type(arg.type):
        return cast_to(arg, pa.float64(), session)
    if kind(arg) not in (Kind.INTEGER, Kind.FLOATING, Kind.DECIMAL):
        raise refused(what, arg)
    return arg


def _binary(op: str, args: Sequence[Typed], session: Zone | None) -> Typed:
    left, right = args
    if op in ("+", "-") and (moved := _moved(op, left, right, session)) is not None:
        return moved
    kinds = {kind(left), kind(right)}
    if Kind.STRING in kinds:
        type = meeting(left.type, right.type)
        if kinds == {Kind.STRING} or type is None:
            type = pa.float64()
        left, right = cast_to(left, type, session), cast_to(right, type, session)
    left, right = (_number(each, op, session) for each in (left, right))
    kinds = {kind(left), kind(right)}
    if kinds == {Kind.INTEGER} or Kind.FLOATING in kinds:
        type = common_type(left.type, right.type)
        assert type is not None
        if op == "/":
            type = pa.float64()
        if op == "div":
            if kinds != {Kind.INTEGER}:
                raise Unusable("div of other numbers than integers is not computed")
            type = pa.int64()
        return Typed(type, op, (cast_to(left, type, session), cast_to(right, type, session)))
    if op == "div":
        raise Unusable("div of other numbers than integers is not computed")
    a, b = as_decimal(left), as_decimal(right)
    result = decimal_result(op, a, b)
    if op in ("%", "pmod"):
        scale = max(a.scale, b.scale)
        whole = max(a.precision - a.scale, b.precision - b.scale)
        if whole + scale > 18 or op == "pmod":
            raise Unusable("a remainder of decimals of more than 18 digits is not computed")
        # The remainder at the wider type fits the result, which is as small as the divisor.
        a = b = pa.decimal128(whole + scale, scale)
        found = Typed(a, op, (cast_to(left, a, session), cast_to(right, b, session)))
        return cast_to(found, result, session)
    if op == "/":
        from .kernels.numbers import divisible

        if not divisible(a, b, result):
            raise Unusable("a quotient of decimals of so many digits is not computed")
    if op == "*" and a.precision + b.precision + 1 > 76:
        raise Unusable("a product of decimals of so many digits is not computed")
    return Typed(result, op, (cast_to(left, a, session), cast_to(right, b, session)))


def _moved(op: str, left: Typed, right: Typed, session: Zone | None) -> Typed | None:
    """Dates and timestamps plus or minus intervals and days; ``None`` for numbers."""
    if left.type == INTERVAL_TYPE and op == "+":
        left, right = right, left
    if right.type == INTERVAL_TYPE:
        interval = right.value
        assert isinstance(interval, Interval)
        if op == "-":
            interval = interval.negative()
        if kind(left) is Kind.STRING or kind(left) is None:
            raise Unusable("an interval and a text are not added")
        if kind(left) is Kind.DATE and not interval.dates:
            left = cast_to(left, TIMESTAMP, session)
        if kind(left) not in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
            raise refused("a sum with an interval", left)
        if left.type == TIMESTAMP and session is None:
            raise Unusable("the session time zone is not one that is known with certainty")
        return Typed(left.type, "shift", (left, constant(interval, INTERVAL_TYPE)))
    if kind(right) is Kind.DATE and kind(left) is Kind.INTEGER and op == "+":
        left, right = right, left
    if kind(left) is Kind.DATE and kind(right) is Kind.INTEGER:
        return add_days(1 if op == "+" else -1, (left, right), session)
    return None


def _negate(args: Sequence[Typed], session: Zone | None) -> Typed:
    (arg,) = args
    if arg.type == INTERVAL_TYPE:
        return constant(arg.value.negative(), INTERVAL_TYPE)
    if kind(arg) is Kind.STRING:
        arg = cast_to(arg, pa.float64(), session)
    arg = _number(arg, "-", session)
    return Typed(arg.type, "negate", (arg,))


def _abs(args: Sequence[Typed], session: Zone | None) -> Typed:
    arg = args[0]
    if kind(arg) is Kind.STRING:
        arg = cast_to(arg, pa.float64(), session)
    arg = _number(arg, "abs", session)
    return Typed(arg.type, "abs", (arg,))


# -- text ------------------------------------------------------------------------------------------


def text(arg: Typed, session: Zone | None, *, binary: bool = False) -> Typed:
    """The argument as text, as Spark casts it."""
    if binary and kind(arg) is Kind.BINARY:
        return arg
    return cast_to(arg, pa.string(), session)


def _cased(kernel: str, args: Sequence[Typed], session: Zone | None) -> Typed:
    return Typed(pa.string(), kernel, (text(args[0], session),))


def _length(args: Sequence[Typed], session: Zone | None) -> Typed:
    return Typed(pa.int32(), "length", (text(args[0], session, binary=True),))


def _trim(side: str, args: Sequence[Typed], session: Zone | None) -> Typed:
    return Typed(pa.string(), "trim", (text(args[0], session),), side)


def _substring(args: Sequence[Typed], session: Zone | None) -> Typed:
    operand = text(args[0], session, binary=True)
    place = literal_int(args[1], "the place of a substring")
    count = literal_int(args[2], "the length of a substring") if len(args) > 2 else None
    if place is None or (len(args) > 2 and count is None):
        return constant(None, operand.type)
    return Typed(operand.type, "substring", (operand,), (place, count))


def _side(right: bool, args: Sequence[Typed], session: Zone | None) -> Typed:
    """``left`` and ``right``: the first or last ``n``."""
    operand = text(args[0], session, binary=not right)
    count = literal_int(args[1], "the length of a part of a text")
    if count is None:
        return constant(None, operand.type)
    if right:
        place = (-count, None) if count > 0 else (1, 0)
        return Typed(operand.type, "substring", (operand,), place)
    return Typed(operand.type, "substring", (operand,), (1, count))


def _concat(args: Sequence[Typed], session: Zone | None) -> Typed:
    if not args:
        return constant("", pa.string())
    if any(is_list(arg.type) for arg in args):
        raise Unusable("concat of lists is not computed")
    binary = all(kind(arg) is Kind.BINARY for arg in args)
    cast = tuple(arg if binary else text(arg, session) for arg in args)
    return Typed(cast[0].type, "concat", cast)


def _has(kernel: str, args: Sequence[Typed], session: Zone | None) -> Typed:
    operand = text(args[0], session, binary=True)
    wanted = args[1] if kind(args[1]) is Kind.BINARY else text(args[1], session)
    if operand.type != wanted.type:
        operand, wanted = text(operand, session), text(wanted, session)
    if not wanted.is_constant:
        raise Unusable(f"the second argument of {kernel} is not a literal")
    if wanted.value is None:
        return constant(None, pa.bool_())
    value = wanted.value
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    return Typed(pa.bool_(), kernel, (operand,), value)


def like(args: Sequence[Typed], session: Zone | None) -> Typed:
    """``LIKE``, of a text, a constant pattern and its escape."""
    operand, pattern, escape = args
    operand = text(operand, session)
    if not pattern.is_constant:
        raise Unusable("the pattern is not a literal")
    if pattern.value is None:
        return constant(None, pa.bool_())
    literal_prefix(str(pattern.value), str(escape.value))  # raises
    return Typed(pa.bool_(), "like", (operand,), (pattern.value, escape.value))


def _ilike(args: Sequence[Typed], session: Zone | None) -> Typed:
    """``ILIKE``: Spark compares the lower case of both sides."""
    operand, pattern, escape = args
    if not pattern.is_constant or isinstance(pattern.value, bytes):
        raise Unusable("the pattern is not a literal")
    lower = Typed(pa.string(), "lower", (text(operand, session),))
    if pattern.value is None:
        return constant(None, pa.bool_())
    return like((lower, constant(str(pattern.value).lower(), pa.string()), escape), session)


def _rlike(args: Sequence[Typed], session: Zone | None) -> Typed:
    from .kernels.java_regex import java_regex

    operand, pattern = text(args[0], session), text(args[1], session)
    if not pattern.is_constant:
        raise Unusable("the regular expression is not a literal")
    if pattern.value is None:
        return constant(None, pa.bool_())
    return Typed(pa.bool_(), "rlike", (operand,), java_regex(str(pattern.value)))


# -- conditions ------------------------------------------------------------------------------------


def boolean(arg: Typed) -> Typed:
    if is_null_type(arg.type):
        return constant(None, pa.bool_())
    if kind(arg) is not Kind.BOOLEAN:
        raise Unusable(f"a condition of type {name_of(arg.type)}")
    return arg


def case(args: Sequence[Typed], session: Zone | None) -> Typed:
    """``condition, value, …`` and the value otherwise."""
    conditions = [boolean(arg) for arg in args[:-1:2]]
    values = [*args[1::2], args[-1]]
    type = shared_type(values, "branches")
    values = [cast_to(value, type, session) for value in values]
    parts = [part for pair in zip(conditions, values, strict=False) for part in pair]
    return Typed(type, "case", (*parts, values[-1]))


def _coalesce(args: Sequence[Typed], session: Zone | None) -> Typed:
    if not args:
        raise Unusable("coalesce without arguments")
    type = shared_type(args, "arguments")
    return Typed(type, "coalesce", tuple(cast_to(arg, type, session) for arg in args))


def _nullif(args: Sequence[Typed], session: Zone | None) -> Typed:
    same = compare("=", args, session)
    return case((same, constant(None, args[0].type), args[0]), session)


def _nvl2(args: Sequence[Typed], session: Zone | None) -> Typed:
    return case((is_null(args[0]), args[2], args[1]), session)


def _extreme(kernel: str, args: Sequence[Typed], session: Zone | None) -> Typed:
    type = shared_type(args, "arguments")
    if spark_type(type) is None:
        raise Unusable(f"{kernel} of {name_of(type)} is not computed")
    return Typed(type, kernel, tuple(cast_to(arg, type, session) for arg in args))


def compare(op: str, args: Sequence[Typed], session: Zone | None) -> Typed:
    """A comparison at Spark's common type."""
    left, right = args
    a, b = left.type, right.type
    if pa.types.is_decimal(a) and kind(right) is Kind.INTEGER:
        b = as_decimal(right)
    if pa.types.is_decimal(b) and kind(left) is Kind.INTEGER:
        a = as_decimal(left)
    type = meeting(a, b)
    if type is None or not (is_null_type(type) or spark_type(type)):
        raise Unusable(f"{name_of(left.type)} and {name_of(right.type)} do not compare")
    if is_null_type(type):
        return constant(True if op == "<=>" else None, pa.bool_())
    return Typed(
        pa.bool_(), "compare", (cast_to(left, type, session), cast_to(right, type, session)), op
    )


def is_null(arg: Typed) -> Typed:
    return Typed(pa.bool_(), "is_null", (arg,))


def _is_null_of(args: Sequence[Typed], session: Zone | None) -> Typed:
    return is_null(args[0])


def negated(arg: Typed) -> Typed:
    return Typed(pa.bool_(), "not", (arg,))


def _is_not_null(args: Sequence[Typed], session: Zone | None) -> Typed:
    return negated(is_null(args[0]))


def _is_nan(args: Sequence[Typed], session: Zone | None) -> Typed:
    arg = args[0]
    if kind(arg) is not Kind.FLOATING:
        arg = cast_to(arg, pa.float64(), session)
    return Typed(pa.bool_(), "is_nan", (arg,))


# Names of the tree that are no functions of Spark.
WRITTEN_OTHERWISE = frozenset({"+", "-", "*", "/", "%", "div", "negate", "case", "subscript"})


def _wrapping(op: str, args: Sequence[Typed], session: Zone | None) -> Typed:
    """A sum of Spark that may wrap around; only ``monotone.py`` reads it."""
    found = _negate(args, session) if op == "negate" else _binary(op, args, session)
    if found.kernel != op:
        raise Unusable("this sum is not carried back")
    return replace(found, value="wraps")


_TYPES = {
    "s": pa.string(),
    "b": pa.binary(),
    "i": pa.int32(),
    "l": pa.int64(),
    "t": TIMESTAMP,
}
# Functions that only Spark computes, and that an index may be built on. One letter per argument
# gives its type, in capitals if it is optional; the last letter is the type of the value.
_BY_SPARK = """
get_json_object:ss:s regexp_extract:ssI:s regexp_replace:sss:s date_format:ts:s initcap:s:s
reverse:s:s replace:sss:s translate:sss:s substring_index:ssi:s lpad:sis:s rpad:sis:s
md5:b:s sha1:b:s sha:b:s sha2:bi:s crc32:b:l
"""


#: their names
BY_SPARK = frozenset(each.partition(":")[0] for each in _BY_SPARK.split())


def _by_spark(
    name: str, types: str, result: str, args: Sequence[Typed], session: Zone | None
) -> Typed:
    cast = tuple(
        cast_to(arg, _TYPES[type.lower()], session) for arg, type in zip(args, types, strict=False)
    )
    if name == "regexp_extract" and len(cast) == 2:
        cast += (constant(1, pa.int32()),)
    return Typed(_TYPES[result], "spark", cast, "sha1" if name == "sha" else name)


def _table_of_spark() -> dict[str, Function]:
    found = {}
    for name, types, result in (each.split(":") for each in _BY_SPARK.split()):
        least = sum(type.islower() for type in types)
        found[name] = Function(least, len(types), partial(_by_spark, name, types, result))
    return found


# -- the table -------------------------------------------------------------------------------------


FUNCTIONS: dict[str, Function] = {
    **{op: Function(2, 2, partial(_binary, op)) for op in ("+", "-", "*", "/", "%", "div")},
    **{f"wrapping {op}": Function(2, 2, partial(_wrapping, op)) for op in ("+", "-")},
    "wrapping negate": Function(1, 1, partial(_wrapping, "negate")),
    "mod": Function(2, 2, partial(_binary, "%")),
    "pmod": Function(2, 2, partial(_binary, "pmod")),
    **{name: Function(1, 1, _negate) for name in ("negate", "negative")},
    "abs": Function(1, 1, _abs),
    # text
    **{name: Function(1, 1, partial(_cased, "upper")) for name in ("upper", "ucase")},
    **{name: Function(1, 1, partial(_cased, "lower")) for name in ("lower", "lcase")},
    **{
        name: Function(1, 1, _length)
        for name in ("length", "len", "char_length", "character_length")
    },
    **{name: Function(1, 1, partial(_trim, name)) for name in ("trim", "ltrim", "rtrim")},
    "btrim": Function(1, 1, partial(_trim, "trim")),
    **{name: Function(2, 3, _substring) for name in ("substr", "substring")},
    "left": Function(2, 2, partial(_side, False)),
    "right": Function(2, 2, partial(_side, True)),
    "concat": Function(0, None, _concat),
    **{
        name: Function(2, 2, partial(_has, name)) for name in ("startswith", "endswith", "contains")
    },
    "like": Function(3, 3, like),
    "ilike": Function(3, 3, _ilike),
    **{name: Function(2, 2, _rlike) for name in ("rlike", "regexp", "regexp_like")},
    **{name: Function(least, most, typed) for name, (least, most, typed) in TIMES.items()},
    # conditions
    "case": Function(3, None, case),
    **{name: Function(3, 3, case) for name in ("if", "iff")},
    "coalesce": Function(1, None, _coalesce),
    **{name: Function(2, 2, _coalesce) for name in ("nvl", "ifnull")},
    "nvl2": Function(3, 3, _nvl2),
    "nullif": Function(2, 2, _nullif),
    "least": Function(2, None, partial(_extreme, "least")),
    "greatest": Function(2, None, partial(_extreme, "greatest")),
    "isnull": Function(1, 1, _is_null_of),
    "isnotnull": Function(1, 1, _is_not_null),
    "isnan": Function(1, 1, _is_nan),
    **{name: Function(least, most, typed) for name, (least, most, typed) in NESTED.items()},
    **_table_of_spark(),
}
