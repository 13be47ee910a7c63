"""Restates conditions by others that leaves can express: TRUE and FALSE for the same rows.

A bound tree is a set of rows, so its complement is one too (``complement``), although SQL has no
operator for it: NOT of NULL is NULL. With it, a CASE is the union of its branches, each over the
rows for which its condition is TRUE and no earlier one is. ``(p) IS NULL`` has the rows for which p
is neither TRUE nor FALSE. ``coalesce``, ``nullif``, ``least`` and ``greatest`` are such CASEs.

If a part cannot be a leaf after all, the whole is computed on the rows: computing it in pieces is
not worth it, and a piece might fail on rows that CASE would not give it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from .operands import Unusable, plain_pattern
from .tree import (
    COMPLEMENTS,
    CONDITIONS,
    FLIPPED,
    And,
    Bound,
    Call,
    Cast,
    Comparison,
    Const,
    Expr,
    Leaf,
    Literal,
    Membership,
    Not,
    NullTest,
    Op,
    Opaque,
    Operand,
    Or,
    PatternMatch,
    Truth,
    conjunction,
    disjunction,
    pieces,
    without_expressions,
)
from .types import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable

    from .typed import Typed

    Bind: TypeAlias = Callable[[Expr, bool], Bound]

# A condition, ``None`` for all other rows, and the value where it is TRUE.
Branches: TypeAlias = "list[tuple[Expr | None, Operand]]"
_MOST = 8


def condition_of(operand: Operand) -> Expr | None:
    """A function as a condition, if leaves can express it."""
    if isinstance(operand, CONDITIONS):
        return operand
    if not isinstance(operand, Call):
        return None
    match operand.name, operand.args:
        case ("startswith" | "endswith" | "contains") as name, (value, Literal(str() as text)):
            if name == "startswith":
                return PatternMatch(value, text, prefix_only=True)
            plain = plain_pattern(text)
            return PatternMatch(value, f"%{plain}%" if name == "contains" else f"%{plain}")
        case "like", (value, Literal(str() as text), Literal(str() as escape)):
            return PatternMatch(value, text, escape)
        case "isnull", (value,):
            return NullTest(value)
        case "isnotnull", (value,):
            return Not(NullTest(value))
    return None


# -- truth values ----------------------------------------------------------------------------------


def truth_test(expr: Comparison, negated: bool, bind: Bind) -> Bound | None:
    """``(p) = TRUE``, ``(p) IS FALSE`` and others; ``None`` for another comparison."""
    for asked, other in ((expr.left, expr.right), (expr.right, expr.left)):
        condition = condition_of(asked)
        if condition is None or not isinstance(other, Literal):
            continue
        value, op = other.value, expr.op
        if op == "<=>" and value is None:
            return _decided(null_test(condition, negated, bind))
        if not isinstance(value, bool) or op not in ("=", "<>", "<=>"):
            return None
        if op == "<=>":
            held = bind(condition, not value)
            return _decided(complement(without_expressions(held)) if negated else held)
        return bind(condition, negated ^ (not value) ^ (op == "<>"))
    return None


def null_test(condition: Expr, negated: bool, bind: Bind) -> Bound:
    """``(p) IS NULL``: neither TRUE nor FALSE."""
    known = [without_expressions(bind(condition, negated)) for negated in (False, True)]
    found = disjunction(known) if negated else conjunction([complement(each) for each in known])
    return _decided(found)


def _decided(found: Bound) -> Bound:
    """``Unusable`` if a part of it is not a leaf."""
    for piece in pieces(found):
        if isinstance(piece, Opaque):
            raise Unusable(piece.reason)
    return found


_EXACT = {Op.IS_NULL: Op.NOT_NULL, Op.NOT_NULL: Op.IS_NULL, Op.NE_OR_NULL: Op.EQ}


def complement(tree: Bound) -> Bound:
    """All rows that are not in the set of ``tree``, by De Morgan's laws down to the leaves. A null
    is only in the sets of ``IS_NULL`` and ``NE_OR_NULL``."""
    match tree:
        case And() | Or():
            parts = [complement(child) for child in tree.children]  # type: ignore[arg-type]
            return disjunction(parts) if isinstance(tree, And) else conjunction(parts)
        case Const():
            return Const(not tree.value)
        case Leaf(op=Op.EQ):
            return replace(tree, op=Op.NE_OR_NULL)
        case Leaf():
            if tree.op in _EXACT:
                return replace(tree, op=_EXACT[tree.op])
            null = Leaf(tree.column, tree.type, Op.IS_NULL)
            return disjunction([replace(tree, op=COMPLEMENTS[tree.op]), null])
    return Opaque(f"({tree.sql}) IS NOT TRUE", tree.reason)


# -- formatted times -------------------------------------------------------------------------------

# Patterns of ``date_format`` whose texts have the order of the times, by the unit that they cut to.
_PATTERNS = {
    "year": ("yyyy",),
    "month": ("yyyy-MM", "yyyyMM", "yyyy/MM"),
    "day": ("yyyy-MM-dd", "yyyyMMdd", "yyyy/MM/dd"),
    "hour": ("yyyy-MM-dd HH",),
    "minute": ("yyyy-MM-dd HH:mm",),
    "second": ("yyyy-MM-dd HH:mm:ss",),
}
_UNITS = {pattern: unit for unit, patterns in _PATTERNS.items() for pattern in patterns}
_LETTERS = {"yyyy": "Y", "MM": "m", "dd": "d", "HH": "H", "mm": "M", "ss": "S"}
_LAST_DAY = (date(9999, 12, 31) - date(1970, 1, 1)).days
_AFTER_MANILA = (date(1845, 1, 2) - date(1970, 1, 1)).days
_UNKNOWN = (date(9998, 1, 1) - date(1970, 1, 1)).days


def unformatted(
    expr: Expr | Bound, typed: Callable[[Operand], Typed], *, fixed: bool
) -> Expr | None:
    """A comparison of ``date_format(x, pattern)`` with texts as one of times; ``None`` for others.

    Texts of such a pattern have their digits at fixed places for all times of the years 0 to 9999.
    So texts are equal if the times, cut to the unit, are, and both have the same order. Texts of
    other years begin with a sign, which sorts before all digits. ``fixed``: the zone has one
    offset; in others the clock shows some hours twice, and may skip a day. A date of such a day is
    formatted as the next one (``_through_zone``).
    """
    match expr:
        case Comparison(op, Call("date_format", args), Literal() as text):
            pass
        case Comparison(op, Literal() as text, Call("date_format", args)):
            op = FLIPPED.get(op, op)
        case Membership(Call("date_format", args), tuple() as values):
            op, text = "IN", Literal(None)
        case _:
            return None
    pattern = args[1].value if isinstance(args[1], Literal) else None
    unit, type = _UNITS.get(str(pattern)), typed(args[0]).type
    if unit is None or type not in (pa.date32(), TIMESTAMP):
        return None
    if not fixed and unit in ("hour", "minute", "second"):
        return None
    if isinstance(expr, Membership):
        times = [_time(value, str(pattern)) for value in values]
    else:
        times = [_time(text, str(pattern))]
    known = tuple(each for each in times if each is not None)
    if len(known) < len(times):
        return None
    day: Operand = args[0] if type == pa.date32() else Cast(args[0], pa.date32())
    cut = day
    if type == pa.date32() and not fixed and any(map(_through_zone, known)):
        cut = Cast(Cast(day, TIMESTAMP), pa.date32())
    if unit in ("year", "month"):
        cut = Call("trunc", (cut, Literal(unit, pa.string())))
    elif unit != "day":
        cut = Call("date_trunc", (Literal(unit, pa.string()), args[0]))
    if isinstance(expr, Membership):
        return Membership(cut, known)
    compared = Comparison(op, cut, known[0])
    last = Comparison(">", day, Literal(_LAST_DAY, pa.date32()))
    if op in ("<", "<="):
        return Or((compared, last))
    return And((compared, Not(last))) if op in (">", ">=") else compared


def _through_zone(time: Literal) -> bool:
    """Whether a date that is compared with it may be one that a zone skipped, as Manila did in
    1844, and other zones since 1970. Future rules are unknown."""
    day = time.value
    return (
        time.type == pa.date32()
        and isinstance(day, int)
        and (day < _AFTER_MANILA or 0 <= day < _UNKNOWN)
    )


def _time(text: Operand, pattern: str) -> Literal | None:
    """The time that a text of this pattern shows; ``None`` for another text."""
    if not isinstance(text, Literal) or not isinstance(text.value, str):
        return None
    wanted = re.sub("|".join(_LETTERS), lambda found: f"%{_LETTERS[found[0]]}", pattern)
    if not re.fullmatch(re.sub("[a-zA-Z]", r"[0-9]", pattern), text.value):
        return None
    try:
        found = datetime.strptime(text.value, wanted)
    except ValueError:
        return None
    if "HH" in pattern:
        return Literal(found.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0"), TIMESTAMP)
    return Literal((found - datetime(1970, 1, 1)).days, pa.date32())


# -- cases -----------------------------------------------------------------------------------------


def by_cases(
    expr: Expr, negated: bool, bind: Bind, typed: Callable[[Operand], Typed]
) -> Bound | None:
    """A condition on a CASE as the union of its branches; ``None`` for another condition."""
    match expr:
        case Comparison():
            names = ["left", "right"]
        case Membership() | NullTest() | PatternMatch():
            names = ["operand"]
        case _:
            return None
    for name in names:
        operand = getattr(expr, name)
        branches = _branches(operand)
        if branches is not None:
            type = typed(operand).type
            rest: Bound = Const(True)
            parts: list[Bound] = []
            for condition, value in branches:
                held = Const(True) if condition is None else bind(condition, False)
                cast = value if typed(value).type == type else Cast(value, type)
                branch = replace(expr, **{name: cast})  # type: ignore[arg-type]  # an operand
                parts.append(conjunction([rest, held, bind(branch, negated)]))
                rest = conjunction([rest, complement(without_expressions(held))])
            return _decided(disjunction(parts))
    return None


def _branches(operand: Operand) -> Branches | None:
    if not isinstance(operand, Call) or len(operand.args) > 2 * _MOST:
        return None
    args = operand.args
    match operand.name:
        case "case" | "if" | "iff":
            conditions = [_as_condition(each) for each in args[:-1:2]]
            return [*zip(conditions, args[1::2], strict=False), (None, args[-1])]
        case "coalesce" | "nvl" | "ifnull" if args:
            return [*((Not(NullTest(each)), each) for each in args[:-1]), (None, args[-1])]
        case "nvl2":
            return [(Not(NullTest(args[0])), args[1]), (None, args[2])]
        case "nullif":
            return [(Comparison("=", *args), Literal(None)), (None, args[0])]
        case "least" | "greatest" if len(args) == 2:
            left, right = args
            if not isinstance(right, Literal):
                left, right = right, left
            if isinstance(right, Literal) and right.value is not None:
                op = "<=" if operand.name == "least" else ">="
                return [(Comparison(op, left, right), left), (None, right)]
    return None


def _as_condition(operand: Operand) -> Expr:
    return operand if isinstance(operand, (*CONDITIONS, Opaque)) else Truth(operand)
