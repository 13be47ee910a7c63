"""Brute force: which rows of a table in memory match a predicate, with Spark's semantics.

Every row is evaluated by itself, three-valued, straight from the unbound tree: no binding, no
NOT pushed anywhere, no ranges, no code of the package but the tree's classes. What it assumes of
Spark is checked against Spark itself (``tests/predicate/test_against_spark.py``):

- two types meet where Spark's ANSI rules say, and both sides are cast there, row by row
  (``oracle_values.py``);
- NaN equals NaN and is the largest, 0.0 equals -0.0, strings compare as UTF-8, bytes unsigned;
- NULL in a comparison is NULL; AND, OR, NOT are Kleene's; ``x IN (…, NULL)`` is TRUE or NULL;
- an integer compared with a decimal literal beyond bigint is decided by Spark's analyzer, and for
  nulls too.

``MAYBE`` stands for what an ``Opaque`` says, which nobody here knows. ``SparkError`` is raised
where Spark would fail the query (a string that is not a number, an overflow), ``NotModelled`` where
there is no rule here.
"""

from __future__ import annotations

import math
import operator
import re
import zoneinfo
from functools import cache
from typing import TYPE_CHECKING, Any

from skipstone.predicate.tree import (
    And,
    Call,
    Cast,
    ColumnRef,
    Comparison,
    Const,
    Expr,
    Literal,
    Membership,
    Not,
    NullTest,
    Opaque,
    Or,
    PatternMatch,
    Truth,
)
from tests.oracle_values import (
    Kind,
    NotModelled,
    SparkError,
    Typed,
    cast,
    kind_of,
    literal_of,
    meeting,
    place_of,
    rows_of,
    value_at,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    import pyarrow as pa

__all__ = [
    "MAYBE",
    "NotModelled",
    "Oracle",
    "SparkError",
    "kind_of",
    "matching_rows",
    "place_of",
    "rows_of",
    "sort_key",
    "value_at",
    "values_of",
]

MAYBE = "maybe"

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<=>": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def sort_key(value: Any) -> Any:
    """A key that Python compares as Spark compares the value."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    if isinstance(value, str):
        # Bytes that are not UTF-8 come as \udc80 to \udcff; literals may have other surrogates.
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def compare(op: str, left: Typed, right: Typed, zone: tzinfo) -> Any:
    """``left op right``: True, False or None."""
    target = meeting(left[1:], right[1:])
    x, y = cast(left, target, zone).value, cast(right, target, zone).value
    if op == "<=>" and (x is None or y is None):
        return x is None and y is None
    if x is None or y is None:
        return None
    return _OPERATORS[op](sort_key(x), sort_key(y))


@cache
def like(pattern: str, escape: str) -> re.Pattern[str]:
    """The regular expression of a pattern of SQL's LIKE."""
    out, chars = [], iter(pattern)
    for char in chars:
        if char == escape:
            following = next(chars, None)
            if following is None or following not in ("_", "%", escape):
                raise SparkError("INVALID_FORMAT escape")
            out.append(re.escape(following))
        else:
            out.append({"_": ".", "%": ".*"}.get(char) or re.escape(char))
    return re.compile("".join(out), re.DOTALL)


# -- the tree --------------------------------------------------------------------------------------


class Oracle:
    """Evaluates trees as written over rows of one schema, in one session zone."""

    def __init__(self, schema: pa.Schema, session_zone: str = "UTC") -> None:
        self.schema, self.zone = schema, zoneinfo.ZoneInfo(session_zone)
        # What is the same for each row.
        self._places: dict[tuple[str, ...], tuple[list[str], Kind]] = {}
        self._literals: dict[int, tuple[Literal, Typed]] = {}
        self._lists: dict[tuple[int, Kind], tuple[Membership, Kind, set[Any], bool]] = {}

    def operand(self, node: Any, row: dict[str, Any]) -> Typed | str:
        match node:
            case ColumnRef():
                if node.path not in self._places:
                    self._places[node.path] = place_of(self.schema, node.path)
                names, kind = self._places[node.path]
                return Typed(value_at(row, names), *kind)
            case Literal():
                if id(node) not in self._literals:
                    self._literals[id(node)] = node, literal_of(node, self.zone)
                return self._literals[id(node)][1]
            case Cast():
                inner = self.operand(node.operand, row)
                if isinstance(inner, str):
                    return MAYBE
                if node.type is None:
                    raise NotModelled("a cast to an unknown type")
                return cast(inner, kind_of(node.type), self.zone)
            case Call(name="startswith" | "endswith" | "contains" as name, args=(value, text)):
                return self.found(name, self.operand(value, row), self.operand(text, row))
            case _:  # Spark alone knows what other functions give
                return MAYBE

    def found(self, name: str, value: Typed | str, text: Typed | str) -> Typed | str:
        if isinstance(value, str) or isinstance(text, str):
            return MAYBE
        if {value.kind, text.kind} - {"string", "null"}:
            raise NotModelled(f"{name} of something else than strings")
        if value.value is None or text.value is None:
            return Typed(None, "boolean")
        test = {
            "startswith": str.startswith,
            "endswith": str.endswith,
            "contains": str.__contains__,
        }
        return Typed(test[name](value.value, text.value), "boolean")

    def truth(self, node: Any, row: dict[str, Any]) -> Any:
        """True, False, None (SQL's NULL) or MAYBE."""
        match node:
            case And():
                found = [self.truth(child, row) for child in node.children]
                return next((x for x in (False, MAYBE, None) if x in found), True)
            case Or():
                found = [self.truth(child, row) for child in node.children]
                return next((x for x in (True, MAYBE, None) if x in found), False)
            case Not():
                inner = self.truth(node.child, row)
                return inner if inner is None or inner is MAYBE else not inner
            case Const():
                return node.value
            case Opaque():
                return MAYBE
            case Comparison():
                left, right = self.operand(node.left, row), self.operand(node.right, row)
                if isinstance(left, str) or isinstance(right, str):
                    return MAYBE
                if (decided := beyond_long(node, left, right)) is not None:
                    return decided
                if isinstance(node.right, Literal):
                    right = shortest(left, right)
                if isinstance(node.left, Literal):
                    left = shortest(right, left)
                return compare(node.op, left, right, self.zone)
            case _:
                return self.test(node, row)

    def test(self, node: Any, row: dict[str, Any]) -> Any:
        operand = self.operand(node.operand, row)
        if isinstance(operand, str):
            return MAYBE
        match node:
            case NullTest():
                return operand.value is None
            case Truth():
                if operand.kind not in ("boolean", "null"):
                    raise SparkError("DATATYPE_MISMATCH")
                return operand.value
            case PatternMatch():
                if operand.kind not in ("string", "null"):
                    raise NotModelled("LIKE over something else than strings")
                if operand.value is None:
                    return None
                if node.prefix_only:
                    return operand.value.startswith(node.pattern)
                return like(node.pattern, node.escape).fullmatch(operand.value) is not None
            case Membership():
                if not node.values:
                    return False
                target, keys, nulls = self.members(node, operand[1:])
                value = cast(operand, target, self.zone).value
                if value is None:
                    return None
                if keys and sort_key(value) in keys:
                    return True
                return None if nulls else False
        raise NotModelled(repr(node))

    def members(self, node: Membership, kind: Kind) -> tuple[Kind, set[Any], bool]:
        """The type at which an operand of ``kind`` meets a list, the keys of the list's values
        there, and whether NULL is among them."""
        if (id(node), kind) not in self._lists:
            listed = [value for value in node.values if isinstance(value, Literal)]
            if len(listed) < len(node.values):
                raise NotModelled("a list of other things than literals")
            members = [literal_of(value, self.zone) for value in listed]
            target = kind
            for member in members:
                target = meeting(target, member[1:])
            values = [cast(member, target, self.zone).value for member in members]
            keys = {sort_key(value) for value in values if value is not None}
            self._lists[id(node), kind] = node, target, keys, None in values
        return self._lists[id(node), kind][1:]


def beyond_long(node: Comparison, left: Typed, right: Typed) -> bool | None:
    """Spark's analyzer decides an integer against a decimal literal beyond bigint, nulls too."""
    if node.op not in ("<", "<=", ">", ">="):
        return None
    below = node.op in ("<", "<=")
    for number, literal, written, smaller in (
        (left, right, node.right, below),
        (right, left, node.left, not below),
    ):
        if number.kind == "int" and literal.kind == "decimal" and isinstance(written, Literal):
            if literal.value is None:
                return None
            if literal.value > 2**63 - 1:
                return smaller
            if literal.value < -(2**63):
                return not smaller
    return None


def shortest(other: Typed, literal: Typed) -> Typed:
    """An integer literal next to a decimal counts with the digits that it has."""
    if other.kind == "decimal" and literal.kind == "int" and literal.value is not None:
        return Typed(literal.value, "decimal", 0, len(str(abs(int(literal.value)))), 0)
    return literal


def matching_rows(
    table: pa.Table, predicate: Expr | str, *, session_zone: str = "UTC", may: bool = False
) -> list[int]:
    """The positions of the rows for which ``predicate`` is TRUE (or, with ``may``, MAYBE).

    SQL text is read by ``parse_sql``; a tree is taken as it is.
    """
    if isinstance(predicate, str):
        from skipstone.predicate.sql import parse_sql

        predicate = parse_sql(predicate)
    oracle = Oracle(table.schema, session_zone)
    try:
        found = [oracle.truth(predicate, row) for row in rows_of(table)]
    except OverflowError as error:
        raise NotModelled(f"Python has no such date: {error}") from None
    return [at for at, x in enumerate(found) if x is True or (may and x is MAYBE)]
