"""Binds expressions: decides which become leaves, and which are computed on rows.

1. A condition is restated by others (``equivalents.py``): truth values, CASE, ``coalesce``.
2. An expression that keeps the order of one column (``monotone.py``) is that column with steps.
3. The rest is typed (``expressions.py``) and computed on the rows, with the leaves that it implies
   (``text_bounds.py``).

All of it follows ANSI rules; without ANSI mode an expression is ``Opaque``, and Spark decides it.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import ExpressionError, UnsupportedError

from .operands import Column, Constant, Unusable
from .tree import (
    ELEMENTS,
    NEGATED,
    And,
    Bound,
    Call,
    Cast,
    ColumnRef,
    Comparison,
    Computed,
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
    Pair,
    Truth,
    conjunction,
    is_expression,
    leaves,
    mapped,
)
from .types import (
    EXPRESSION,
    INTERVAL,
    UNCOMPARABLE,
    Kind,
    MapKey,
    column_name,
    column_path,
    indexable,
    is_list,
    kind_of,
    spark_name,
    spark_type,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .preimage import Ranges
    from .typed import Typed
    from .types import ManyValues, Value
    from .zones import Zone


# The most values of a column for which the expressions over it are computed.
_MOST_IMAGES = 64
# Operands whose conditions are not restated.
_PLAIN = (ColumnRef, Literal, Cast)
# The most conditions that are restated; nested ones multiply.
_MOST_CASES = 500


def _answered(part: Bound) -> Bound:
    """Notes in the reason of an ``Opaque`` that the index on an expression was asked for it."""
    if not isinstance(part, Opaque):
        return part
    return replace(part, reason=f"{part.reason}; the index on the expression was asked for it")


def _about_expressions(known: Bound) -> Bound | None:
    return known if any(is_expression(leaf.column) for leaf in leaves(known)) else None


def _pair(typed: Typed, negated: bool) -> Pair | None:
    """A comparison of two columns as a ``Pair``, if their stored values decide it."""
    if typed.kernel != "compare":
        return None
    left, right = (_widened(arg) for arg in typed.args)
    relation = NEGATED.get(typed.value) if negated else typed.value
    if left is None or right is None or relation not in ("<", "<=", ">", ">=", "="):
        return None
    name = f"({left} {relation} {right}){EXPRESSION}boolean"
    return Pair(name, pa.bool_(), Op.EQ, (True,), left, relation, right)


def _widened(typed: Typed) -> str | None:
    """The name of a column, or of an integer column under casts to wider integers."""
    if typed.kernel == "cast" and pa.types.is_integer(typed.type):
        (inner,) = typed.args
        widens = pa.types.is_integer(inner.type) and inner.type.bit_width <= typed.type.bit_width
        return _widened(inner) if widens else None
    return str(typed.value) if typed.kernel == "column" else None


def elements_of(lists: Typed) -> Typed:
    """The elements of a column of lists, or the keys or values of a column of maps; ``Unusable`` if
    they can have no index."""
    element = spark_type(lists.type.value_type) if is_list(lists.type) else None
    of_map = lists.kernel in ("map_keys", "map_values")
    column = lists.args[0] if of_map else lists
    if column.kernel != "column" or element is None:
        what = lists.type if column.kernel == "column" else "an expression"
        raise Unusable(f"elements are those of a column of lists of atomic values, not of {what}")
    from .typed import Typed

    type = pa.list_(element)
    own = Typed(type, "column", (), column.value)
    return Typed(element, ELEMENTS, (Typed(type, lists.kernel, (own,)) if of_map else own,))


def elements_name(elements: Typed) -> str:
    """The canonical name of elements (``indexed.py``)."""
    from .render import column_sql

    (lists,) = elements.args
    ((column, _),) = lists.columns()
    text = column_sql(column_path(column))
    if lists.kernel != "column":
        text = f"{lists.kernel}({text})"
    return f"{ELEMENTS}({text}){EXPRESSION}{spark_name(elements.type)}"


def _sought(typed: Typed) -> tuple[Typed, tuple[Typed, ...]]:
    """The lists, and the values of which each must hold one; ``Unusable`` for other conditions."""
    if typed.kernel == "array_contains":
        return typed.args[0], typed.args[1:]
    if typed.kernel == "arrays_overlap":
        for lists, listed in (typed.args, typed.args[::-1]):
            if listed.kernel == "array":
                return lists, listed.args
    raise Unusable("it looks for no values")


def images_of(typed: Typed, values: Sequence[Value], session: Zone | None) -> list[Value]:
    """The values of an expression for these values of its one column; ``Unusable`` if it fails or
    is NULL for one of them."""
    from .kernels.rows import values_of
    from .kernels.text import doubtful_case
    from .literals import from_key, order_keys
    from .typed import scalar

    ((name, type),) = typed.columns()
    column = pa.concat_arrays([pa.repeat(scalar(value, type), 1) for value in values])
    try:
        found = values_of(typed, {name: column}, len(column), session, name)
    except (ExpressionError, UnsupportedError, pa.ArrowException) as error:
        raise Unusable(str(error)) from None
    if doubt := doubtful_case(typed, [column]):
        raise Unusable(doubt)
    keys = [key for key in order_keys(found, typed.type).to_list() if key is not None]
    if len(keys) < len(column):
        raise Unusable("its value is NULL")
    return [from_key(key, typed.type) for key in dict.fromkeys(keys)]


class ExpressionBinder:
    """The part of ``binding.Binder`` that binds expressions."""

    session: Zone | None
    ansi: bool
    cases = _MOST_CASES
    expressions: Mapping[Typed, str] = MappingProxyType({})
    restates = restating = False

    def bind(self, expr: Expr | Bound, *, negated: bool) -> Bound:
        raise NotImplementedError

    def leaf(self, expr: Expr | Bound, negated: bool) -> Bound:
        raise NotImplementedError

    def literal(self, literal: Literal) -> Constant:
        raise NotImplementedError

    def resolved(self, ref: ColumnRef) -> tuple[tuple[str, ...], pa.Field]:
        raise NotImplementedError

    def column(self, ref: ColumnRef) -> Column:
        raise NotImplementedError

    def equivalent(self, expr: Expr | Bound, negated: bool) -> Bound | None:
        """A condition restated by others; ``None`` if it may be a leaf by itself."""
        if isinstance(expr, Comparison):
            plain = isinstance(expr.left, _PLAIN) and isinstance(expr.right, _PLAIN)
        else:
            plain = isinstance(getattr(expr, "operand", None), _PLAIN)
        if plain or isinstance(expr, Leaf | Const | Opaque):
            return None
        from .equivalents import by_cases, condition_of, null_test, truth_test, unformatted

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
        fixed = self.session is not None and self.session.fixed is not None
        if (of_times := unformatted(expr, self.typed, fixed=fixed)) is not None:
            return bind(of_times, negated)
        if isinstance(expr, NullTest) and (asked := condition_of(expr.operand)) is not None:
            return null_test(asked, negated, bind)
        found = truth_test(expr, negated, bind) if isinstance(expr, Comparison) else None
        return by_cases(expr, negated, bind, self.typed) if found is None else found

    def computed(self, expr: Expr | Bound, negated: bool, reason: str) -> Bound:
        """A condition that no index answers: decided on rows if possible, under ANSI rules."""
        from .render import to_sql

        sql = to_sql(expr)
        sql = f"NOT ({sql})" if negated else sql
        if not self.ansi or isinstance(expr, Opaque):
            return Opaque(sql, reason)
        from .functions import boolean
        from .functions import negated as opposite

        try:
            typed = boolean(self.typed(expr))  # type: ignore[arg-type]
        except Unusable as undecided:
            why = str(undecided)
            return Opaque(sql, reason if why in reason else f"{reason}; {why}")
        by_spark = typed.by_spark()
        if by_spark is not None:
            return Opaque(sql, f"function {by_spark} is computed by Spark only")
        if typed.is_constant:
            return Const(typed.value is not None and typed.value is not negated)
        found = Computed(sql, reason, opposite(typed) if negated else typed, self.session)
        pair = _pair(typed, negated) if self.restates else None
        if pair is not None:
            return conjunction([found, pair])
        from .text_bounds import bounds_of

        known = bounds_of(typed, not negated)
        if known is None:
            return found
        return known[0] if known[1] else conjunction([known[0], found])

    def restated(self, expr: Expr | Bound, negated: bool, found: Bound) -> Bound:
        """``found``, the bound ``expr``, with what it implies for indexed expressions."""
        if isinstance(found, Leaf):
            found = conjunction([found, *self.images(found)])
        match expr:
            case Const() | Opaque() | NullTest(ColumnRef()) | Truth(ColumnRef()):
                return found
            case Membership(ColumnRef()):
                return found
            case _ if isinstance(found, Const):
                return found
            case _:
                implied = self.implied(expr, negated)
        if implied is None:
            return found
        parts = found.children if isinstance(found, And) else (found,)
        return conjunction([*map(_answered, parts), implied])  # type: ignore[arg-type]

    def implied(self, expr: Expr | Bound, negated: bool) -> Bound | None:
        """The leaves of expressions that ``expr`` implies; ``None`` where there are none."""
        from .equivalents import condition_of
        from .text_bounds import bounds_of

        match expr:
            case Comparison("<=>", asked, Literal(True)) if not negated:  # IS TRUE
                test = condition_of(asked)
                if test is not None:
                    return self.implied(test, negated)
            case And() if not negated:
                parts = [each for child in expr.children if (each := self.implied(child, False))]
                return conjunction(parts) if parts else None
            case And() | Or() | Not():
                return None
            case _:
                pass
        whole = self.replaced(expr) if self.ansi else None  # type: ignore[arg-type]
        if whole is not None and whole.kernel == "column":
            return Leaf(str(whole.value), whole.type, Op.EQ, (not negated,))
        self.restating = True
        try:
            known = _about_expressions(self.leaf(expr, negated))
        except Unusable:
            known = None
        finally:
            self.restating = False
        if known is None and whole is not None:
            bounds = bounds_of(whole, not negated)
            known = None if bounds is None else _about_expressions(bounds[0])
        return known

    def with_elements(self, expr: Expr | Bound, negated: bool, found: Bound) -> Bound:
        """``found``, the bound ``expr``, with what it implies for the elements of all rows, which
        have an index, or statistics in the files.

        ``array_contains`` and ``arrays_overlap`` are TRUE only for a row with such an element,
        independent of nulls. Other rows of the file may have the element, so the negation implies
        nothing. A condition on ``m['k']`` that is not TRUE for null needs the key, and a value that
        meets the condition.
        """
        match expr:
            case _ if isinstance(found, Leaf):
                return self.of_key(found) if "[" in found.column else found
            case _ if negated or not isinstance(found, Opaque):
                return found
            case Truth(Call() as call) | Comparison("=" | "<=>", Call() as call, Literal(True)):
                pass
            case _:
                return found
        try:
            lists, sought = _sought(self.typed(self.spelled(call)))
            elements = elements_of(lists)
            values = [self.value_of(each) for each in sought]
        except Unusable:
            return found
        if pa.types.is_integer(elements.type):
            width = elements.type.bit_width - 1
            values = [each for each in values if each is None or -(2**width) <= each < 2**width]
        known = tuple(dict.fromkeys(value for value in values if value is not None))
        if not known:
            return Const(False)
        if elements in self.expressions:
            found = _answered(found)
        op = Op.IN if len(known) > 1 else Op.EQ
        return conjunction([found, self.element(elements, op, known)])

    def element(self, elements: Typed, op: Op, values: tuple[Value, ...] | ManyValues) -> Leaf:
        """The condition that ``op`` with ``values`` holds for some element."""
        name = self.expressions.get(elements) or elements_name(elements)
        return Leaf(name, elements.type, op, values)

    def of_key(self, leaf: Leaf) -> Bound:
        """A condition on the value of a map's key, with what it implies for the maps."""
        *above, key = column_path(leaf.column)
        if not isinstance(key, MapKey) or leaf.op in (Op.IS_NULL, Op.NE_OR_NULL):
            return leaf
        from .typed import Typed

        def side(kernel: str, type: pa.DataType) -> Typed:
            maps = Typed(pa.list_(type), "column", (), column_name(tuple(above)))
            return elements_of(Typed(pa.list_(type), kernel, (maps,)))

        found: list[Bound] = [leaf]
        found.append(self.element(side("map_keys", pa.string()), Op.EQ, (str(key),)))
        if leaf.op is not Op.NOT_NULL:
            found.append(self.element(side("map_values", leaf.type), leaf.op, leaf.values))
        return conjunction(found)

    def value_of(self, typed: Typed) -> Value | None:
        """The value of a constant expression, ``None`` for NULL; ``Unusable`` for another."""
        from .expressions import Typer

        found = Typer(self.typed_column, self.literal, self.session).folded(typed)
        if not found.is_constant:
            raise Unusable("it is not a constant")
        value: Value | None = found.value
        return value

    def images(self, leaf: Leaf) -> list[Bound]:
        """The conditions on expressions over one column that a condition on the column implies.

        ``c = v`` implies ``f(c) = f(v)``. A range of c implies a range of f(c) whose preimage
        contains it: f keeps the order, and fails for no row of a file that has its index.
        """
        if pa.types.is_floating(leaf.type) or len(leaf.values) > _MOST_IMAGES:
            return []  # both zeros are equal, but their values of f may differ
        found: list[Bound] = []
        for typed, name in self.expressions.items():
            if typed.columns() != [(leaf.column, leaf.type)] or typed.by_spark():
                continue
            try:
                if leaf.op in (Op.EQ, Op.IN):
                    values = tuple(images_of(typed, list(leaf.values), self.session))
                    op = Op.EQ if len(values) == 1 else Op.IN
                    found.append(Leaf(name, typed.type, op, values))
                elif leaf.op in (Op.LT, Op.LE, Op.GT, Op.GE):
                    found += self.image_of_range(leaf, typed, name)
            except Unusable:
                continue
        return found

    def image_of_range(self, leaf: Leaf, typed: Typed, name: str) -> list[Bound]:
        from .monotone import column_of
        from .preimage import range_key, ranges_of, union

        column = column_of(typed, self.session)
        # Texts of numbers and times have another order.
        if {kind_of(leaf.type), kind_of(typed.type)} & {Kind.STRING, Kind.BINARY}:
            return []
        ((low, high),) = ranges_of(str(leaf.op), range_key(leaf.values[0], leaf.type), leaf.type)
        up = leaf.op in (Op.GT, Op.GE)
        (value,) = images_of(typed, [low if up else high], self.session)
        found: list[Bound] = []
        for op in (Op.GE, Op.LE):
            wanted = ranges_of(str(op), range_key(value, typed.type), typed.type)
            back = union(self.back(column, wanted))
            if low > high or any(a <= low and high <= b for a, b in back):
                found.append(Leaf(name, typed.type, op, (value,)))
        return found if column.total else []

    def back(self, column: Column, ranges: Ranges) -> Ranges:
        raise NotImplementedError

    def replaced(self, operand: Operand) -> Typed | None:
        """The operand with expressions replaced by their columns; ``None`` without any."""
        try:
            typed = self.typed(self.spelled(operand))
        except Unusable:
            return None
        if not self.ansi and not typed.same_in_both_modes():
            return None
        found = typed.replaced(self.expressions)
        return found if any(is_expression(name) for name, _ in found.columns()) else None

    def indexed(self, operand: Operand) -> Column | None:
        """The column of an expression with an index, or of an expression that keeps its order."""
        if isinstance(operand, Literal | ColumnRef | Opaque):
            return None
        found = self.replaced(operand)
        if found is None:
            return None
        from .monotone import column_of

        try:
            return column_of(found, self.session)
        except Unusable:
            return None

    def spelled(self, operand: Operand) -> Operand:
        """The operand with columns as the schema spells them; an element of a map is a column."""

        def own(each: Operand) -> Operand:
            match each:
                case ColumnRef():
                    return ColumnRef(self.resolved(each)[0])
                case Call("element_at" | "subscript", (ColumnRef() as maps, Literal(str() as key))):
                    return ColumnRef((*self.resolved(maps)[0], MapKey(key)))
                case _:
                    return each

        return mapped(operand, own)

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
