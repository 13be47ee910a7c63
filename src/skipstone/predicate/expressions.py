"""``Typer`` turns expressions as written into typed ones, and computes constant ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import ExpressionError, UnsupportedError

from .functions import FUNCTIONS, boolean, compare, is_null, like, negated
from .literals import from_key, order_keys
from .operands import Constant, Unusable
from .tree import (
    And,
    Call,
    Cast,
    ColumnRef,
    Comparison,
    Const,
    Literal,
    Membership,
    Not,
    NullTest,
    Opaque,
    Operand,
    Or,
    PatternMatch,
    Truth,
    flat,
)
from .typed import INTERVAL_TYPE, Typed, constant
from .typed_casts import cast_to, name_of, shared_type
from .types import is_list, spark_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from .zones import Zone


class Typer:
    """``column`` and ``literal`` are methods of ``binding.Binder``."""

    def __init__(
        self,
        column: Callable[[ColumnRef], Typed],
        literal: Callable[[Literal], Constant],
        session: Zone | None,
    ) -> None:
        self.column, self.literal, self.session = column, literal, session

    def of(self, operand: Operand) -> Typed:
        """The typed expression; ``Unusable`` if it cannot be computed."""
        match operand:
            case ColumnRef():
                return self.column(operand)
            case Literal():
                if isinstance(operand.value, tuple) or operand.type == INTERVAL_TYPE:
                    return constant(operand.value, INTERVAL_TYPE)  # type: ignore[arg-type]
                found = self.literal(operand)
                return constant(found.value, found.type)
            case Cast():
                return self.cast(operand)
            case Call():
                return self.folded(self.call(operand))
            case _:
                return self.folded(self.condition(operand))

    def cast(self, cast: Cast) -> Typed:
        inner = self.of(cast.operand)
        target = None if cast.type is None else spark_type(cast.type)
        if target is None:
            raise Unusable("a cast to a type that is not computed")
        return self.folded(cast_to(inner, target, self.session, tolerant=cast.tolerant))

    def call(self, call: Call) -> Typed:
        function = FUNCTIONS.get(call.name)
        if function is None:
            raise Unusable(f"function {call.name} is not computed")
        count = len(call.args)
        if count < function.least or (function.most is not None and count > function.most):
            raise Unusable(f"{call.name} does not take {count} arguments")
        return function.typed([self.of(arg) for arg in call.args], self.session)

    def condition(self, expr: Operand) -> Typed:
        session = self.session
        match expr:
            case And() | Or():
                name = "and" if isinstance(expr, And) else "or"
                parts = [boolean(self.of(child)) for child in flat(expr)]  # type: ignore[arg-type]
                return Typed(pa.bool_(), name, tuple(parts))
            case Not():
                return negated(boolean(self.of(expr.child)))
            case Const():
                return constant(expr.value, pa.bool_())
            case Truth():
                return boolean(self.of(expr.operand))
            case NullTest():
                return is_null(self.of(expr.operand))
            case Comparison():
                op = {"==": "=", "!=": "<>"}.get(expr.op, expr.op)
                return compare(op, (self.of(expr.left), self.of(expr.right)), session)
            case PatternMatch():
                return self.pattern(expr)
            case Membership():
                return self.membership(expr)
            case Opaque():
                raise Unusable(expr.reason)
            case _:
                raise Unusable("an expression that is not computed")

    def pattern(self, expr: PatternMatch) -> Typed:
        operand, pattern = self.of(expr.operand), constant(expr.pattern, pa.string())
        if expr.prefix_only:
            return FUNCTIONS["startswith"].typed((operand, pattern), self.session)
        return like((operand, pattern, constant(expr.escape, pa.string())), self.session)

    def membership(self, expr: Membership) -> Typed:
        operand = self.of(expr.operand)
        if not isinstance(expr.values, tuple):
            raise Unusable("")  # ``Binder.among`` gives the reason
        values = [self.of(value) for value in expr.values]
        if not values:
            return constant(False, pa.bool_())
        type = shared_type((operand, *values), "a list")
        texts = any(pa.types.is_string(value.type) for value in values)
        if pa.types.is_decimal(type) and texts:
            raise Unusable("a list mixes strings with decimals")
        if spark_type(type) is None:
            raise Unusable(f"a list of {name_of(type)}")
        operand = cast_to(operand, type, self.session)
        known = [cast_to(value, type, self.session) for value in values]
        if all(value.is_constant for value in known):
            listed = tuple(value.value for value in known if value.value is not None)
            return Typed(pa.bool_(), "in", (operand,), (listed, len(listed) < len(known)))
        tests = [compare("=", (operand, value), self.session) for value in known]
        return Typed(pa.bool_(), "or", tuple(tests))

    def folded(self, typed: Typed) -> Typed:
        """The value, if all arguments are constants. What fails stays, and fails on rows."""
        if not typed.args or not all(arg.is_constant for arg in typed.args) or is_list(typed.type):
            return typed
        from .kernels.numbers import Failure
        from .kernels.rows import RowValues
        from .kernels.text import doubtful_case

        if doubtful_case(typed, ()):
            return typed
        try:
            found = RowValues({}, 1, self.session).of(typed)
        except (Failure, ExpressionError, UnsupportedError):
            return typed
        if not found.is_valid()[0].as_py():
            return constant(None, typed.type)
        (key,) = order_keys(found, typed.type).to_list()
        assert key is not None
        return constant(from_key(key, typed.type), typed.type)
