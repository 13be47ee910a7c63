"""The part of binding that is about expressions: what becomes leaves, and what is computed on rows.

1. A condition in terms of others (``equivalents.py``): truth values, CASE, ``coalesce``.
2. An expression that keeps the order of one column (``monotone.py``) is that column under steps.
3. The rest is typed (``expressions.py``) and computed on the rows, with the leaves that it implies
   (``text_bounds.py``).

All of it follows ANSI rules; without ANSI mode an expression is ``Opaque``, and Spark decides it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from .operands import Column, Constant, Unusable
from .tree import (
    Bound,
    Call,
    ColumnRef,
    Comparison,
    Computed,
    Const,
    Expr,
    Leaf,
    Literal,
    NullTest,
    Opaque,
    Operand,
    Truth,
    conjunction,
)
from .types import INTERVAL, UNCOMPARABLE, MapKey, column_name, indexable

if TYPE_CHECKING:
    from .typed import Typed
    from .zones import Zone


# Conditions that are put in terms of others; nested ones multiply.
_MOST_CASES = 500


class ExpressionBinder:
    """What ``binding.py`` does with an expression."""

    session: Zone | None
    ansi: bool
    cases = _MOST_CASES

    def bind(self, expr: Expr | Bound, *, negated: bool) -> Bound:
        raise NotImplementedError

    def literal(self, literal: Literal) -> Constant:
        raise NotImplementedError

    def resolved(self, ref: ColumnRef) -> tuple[tuple[str, ...], pa.Field]:
        raise NotImplementedError

    def column(self, ref: ColumnRef) -> Column:
        raise NotImplementedError

    def equivalent(self, expr: Expr | Bound, negated: bool) -> Bound | None:
        """A condition in terms of others; ``None`` where it may be a leaf by itself."""
        if isinstance(expr, Leaf | Const | Opaque):
            return None
        from .equivalents import by_cases, condition_of, null_test, truth_test

        def bind(each: Expr, negated: bool) -> Bound:
            self.cases -= 1
            if self.cases < 0:
                raise Unusable("there are too many cases")
            return self.bind(each, negated=negated)

        if isinstance(expr, Truth):
            test = condition_of(expr.operand)
            if test is not None:
                return self.bind(test, negated=negated)
            if not self.ansi:
                return None
            match expr.operand:
                case Call("isnan", (operand,)) if pa.types.is_floating(self.typed(operand).type):
                    # isnan(NULL) is FALSE.
                    nan = Literal(float("nan"), self.typed(operand).type)
                    return self.bind(Comparison("<=>", operand, nan), negated=negated)
                case _:
                    expr = Comparison("=", expr.operand, Literal(True, pa.bool_()))
        if not self.ansi:
            return None
        if isinstance(expr, NullTest) and (asked := condition_of(expr.operand)) is not None:
            return null_test(asked, negated, bind)
        found = truth_test(expr, negated, bind) if isinstance(expr, Comparison) else None
        return by_cases(expr, negated, bind, self.typed) if found is None else found

    def computed(self, expr: Expr | Bound, negated: bool, reason: str) -> Bound:
        """What no index answers: decided on rows where that is possible, under ANSI rules."""
        from .render import to_sql

        sql = to_sql(expr)
        sql = f"NOT ({sql})" if negated else sql
        if not self.ansi or isinstance(expr, Opaque):
            return Opaque(sql, reason)
        from .functions import boolean
        from .functions import negated as opposite

        try:
            typed = boolean(self.typed(expr), self.session)  # type: ignore[arg-type]
        except Unusable as undecided:
            why = str(undecided)
            return Opaque(sql, reason if why in reason else f"{reason}; {why}")
        if typed.is_constant:
            return Const(typed.value is not None and typed.value is not negated)
        found = Computed(sql, reason, opposite(typed) if negated else typed, self.session)
        from .text_bounds import bounds_of

        known = bounds_of(typed, not negated)
        if known is None:
            return found
        return known[0] if known[1] else conjunction([known[0], found])

    def typed(self, operand: Operand) -> Typed:
        from .expressions import Typer

        return Typer(self.typed_column, self.literal, self.session).of(operand)

    def typed_column(self, ref: ColumnRef) -> Typed:
        from .typed import Typed

        path, field = self.resolved(ref)
        type, metadata = indexable(field), field.metadata or {}
        if UNCOMPARABLE in metadata or INTERVAL in metadata:
            why = metadata.get(UNCOMPARABLE) or metadata[INTERVAL]
            raise Unusable(f"column {column_name(path)}: {why.decode()}")
        return Typed(type or field.type, "column", (), column_name(path))

    def carried(self, operand: Operand) -> Column | Constant:
        """An expression that keeps the order of a column, or a constant one."""
        if not self.ansi:
            raise Unusable("without ANSI mode, expressions are left to Spark")
        match operand:
            case Call("element_at" | "subscript", (ColumnRef() as maps, Literal(str() as key))):
                return self.column(ColumnRef((*maps.path, MapKey(key)), maps.position))
            case _:
                pass
        typed = self.typed(operand)
        if typed.is_constant:
            return Constant(typed.value, typed.type)
        from .monotone import column_of

        return column_of(typed, self.session)
