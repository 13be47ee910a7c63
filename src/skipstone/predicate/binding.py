"""``bind``: from the tree as written to leaves over a table's columns.

- Names are resolved as Spark does (nested fields, case), or ``PredicateError`` names the nearest.
- Both sides of a comparison take Spark's common type (``operands.py``). The literal is cast to it,
  and the comparison is carried back through the column's casts (``preimage.py``), exactly or not at
  all.
- NOT is pushed to the leaves: ``bind`` of a node under NOT gives the rows for which the node is
  FALSE. A row for which the node is NULL is in neither set, so the complement of a set of rows
  would be wrong.
- What no index can answer becomes ``Opaque`` with the reason. It disappears only where the rest of
  an AND or OR decides the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import PredicateError

from .bind_expressions import ExpressionBinder
from .literals import order_key
from .operands import (
    BARE_FUNCTIONS,
    Column,
    Constant,
    Unusable,
    cast_constant,
    common_type,
    literal_prefix,
    looks_like,
    meets_elsewhere,
    resolve,
    typed,
)
from .tree import (
    FLIPPED,
    NEGATED,
    And,
    Bound,
    Cast,
    ColumnRef,
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
    flat,
)
from .types import (
    INTERVAL,
    TIMESTAMP,
    UNCOMPARABLE,
    Kind,
    column_name,
    indexable,
    kind_of,
    spark_name,
    spark_type,
)
from .zones import Zone, zone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .preimage import Ranges
    from .typed import Typed
    from .types import Value


def bind(
    expr: Expr,
    schema: pa.Schema,
    *,
    case_sensitive: bool = False,
    session_zone: str = "UTC",
    ansi: bool = True,
    text: str | None = None,
    map_keys: bool = False,
    expressions: Mapping[Typed, str] | None = None,
) -> Bound:
    """``expr`` over the columns of ``schema``: a bound tree, TRUE for exactly the same rows.

    ``session_zone`` and ``ansi`` are Spark's ``spark.sql.session.timeZone`` and
    ``spark.sql.ansi.enabled``, ``text`` is the predicate's text for messages. With ``map_keys`` the
    value of a map's key (``m['k']``) is a column like others. ``expressions`` maps those that have
    an index to their names (``indexed.py``). Conditions on them, and comparisons of columns
    (``Pair``), get leaves next to the conditions, which alone decide the rows; with ``None`` they
    get none. Raises ``PredicateError`` when a column does not exist or is ambiguous.
    """
    binder = Binder(schema, case_sensitive, zone(session_zone), ansi, text, map_keys)
    if expressions is not None:
        binder.expressions, binder.restates = expressions, True
    try:
        return binder.bind(expr, negated=False)
    except RecursionError:
        return Opaque(text or "…", "the condition is nested too deeply")


class Binder(ExpressionBinder):
    def __init__(
        self,
        schema: pa.Schema,
        case_sensitive: bool,
        session: Zone | None,
        ansi: bool,
        text: str | None,
        map_keys: bool,
    ) -> None:
        self.map_keys = map_keys
        self.schema, self.case_sensitive = schema, case_sensitive
        self.session, self.ansi, self.text = session, ansi, text

    # -- nodes ------------------------------------------------------------------------------------

    def bind(self, expr: Expr | Bound, *, negated: bool) -> Bound:
        """The rows for which ``expr`` is TRUE, or FALSE when ``negated``."""
        while isinstance(expr, Not):
            expr, negated = expr.child, not negated
        if isinstance(expr, And | Or):
            both = isinstance(expr, And) is not negated
            bound = [self.bind(child, negated=negated) for child in flat(expr)]
            return conjunction(bound) if both else disjunction(bound)
        try:
            found = self.equivalent(expr, negated) or self.leaf(expr, negated)
        except Unusable as unusable:
            found = self.computed(expr, negated, str(unusable))
        if self.restates:
            found = self.with_elements(expr, negated, found)
        return self.restated(expr, negated, found) if self.expressions else found

    def leaf(self, expr: Expr | Bound, negated: bool) -> Bound:
        match expr:
            case Const():
                return Const(expr.value is not negated)
            case Opaque():
                raise Unusable(expr.reason)
            case Comparison():
                return self.comparison(expr, negated)
            case Membership():
                return self.membership(expr, negated)
            case NullTest():
                return self.null_test(expr, negated)
            case PatternMatch():
                return self.pattern(expr, negated)
            case Truth():
                return self.truth(expr, negated)
            case _:
                raise TypeError(f"{type(expr).__name__} is not a node of an unbound tree")

    def comparison(self, expr: Comparison, negated: bool) -> Bound:
        left, right, op = self.operand(expr.left), self.operand(expr.right), _op(expr.op)
        if isinstance(left, Constant):
            if isinstance(right, Constant):
                return self.constants(left, op, right, negated)
            left, right, op = right, left, FLIPPED[op]
        if isinstance(right, Column):
            raise Unusable("two columns are compared")
        decided = _beyond_long(left, op, right, expr.left, expr.right)
        if decided is not None:
            return Const(decided is not negated)
        meeting = _literal_precision(left.top, right)
        common = self.meet(left.top, meeting.type)
        if right.value is None:
            if op == "<=>":
                return self.is_null(left, negated)
            return Const(False)
        value = self.constant(meeting, common).value
        assert value is not None
        return self.relation(left.cast(common), op, [value], negated)

    def relation(self, column: Column, op: str, values: list[Value], negated: bool) -> Bound:
        """``column op value``, or ``column IN values``; values at the column's top type."""
        same_null = op == "<=>"
        if len(column.chain) == 1:
            return _direct(column, op, values, negated)
        if same_null and not column.total:
            raise Unusable("TRY_CAST may be NULL where the column is not")
        from .preimage import complement, inexact, leaves_of, range_key, ranges_of, union

        if kind_of(column.top) in (Kind.STRING, Kind.BINARY):
            raise Unusable(inexact(column.type, column.top))
        keys = [range_key(value, column.top) for value in values]
        single = op in ("IN", "=", "<=>", "<>")
        ranges = (
            union([(key, key) for key in keys])
            if op in ("IN", "=", "<=>")
            else ranges_of(op, keys[0], column.top)
        )
        if negated:
            ranges = complement(ranges, column.top)
        found = leaves_of(
            column.name,
            column.type,
            self.back(column, ranges),
            # A rounding cast may map two values to one: 2^53 and 2^53 + 1 as double.
            points=2 * len(keys) if single else 1,
        )
        if negated and same_null:
            return disjunction([Leaf(column.name, column.type, Op.IS_NULL), found])
        return found

    def back(self, column: Column, ranges: Ranges) -> Ranges:
        """``ranges`` of the column's top type carried back to its stored type."""
        from .preimage import carried, carry_back

        steps = list(zip(column.chain, column.chain[1:], column.steps, strict=False))
        for source, target, step in reversed(steps):
            if step is None:
                ranges = carry_back(ranges, source, target, self.session, ansi=self.ansi)
            else:
                ranges = carried(step, ranges, source)
        return ranges

    def constants(self, left: Constant, op: str, right: Constant, negated: bool) -> Bound:
        common = self.meet(left.type, right.type)
        if left.value is None or right.value is None:
            if op != "<=>":
                return Const(False)
            return Const((left.value is None and right.value is None) is not negated)
        a, b = self.constant(left, common).value, self.constant(right, common).value
        assert a is not None
        assert b is not None
        x, y = order_key(a, common), order_key(b, common)
        below, equal = x < y, x == y  # type: ignore[operator]
        truth = {
            "=": equal,
            "<=>": equal,
            "<>": not equal,
            "<": below,
            "<=": below or equal,
            ">": not below and not equal,
            ">=": not below,
        }[op]
        return Const(truth is not negated)

    def membership(self, expr: Membership, negated: bool) -> Bound:
        operand = self.operand(expr.operand)
        if isinstance(expr.values, pa.Array):
            return self.among(operand, expr.values, negated)
        constants = [self.listed(value) for value in expr.values]
        if not constants:
            return Const(negated)  # Spark 4: even NULL IN () is FALSE
        common = operand.top if isinstance(operand, Column) else operand.type
        for type in dict.fromkeys(constant.type for constant in constants):
            common = self.meet(common, type, listed=True)
        if pa.types.is_decimal(common) and any(pa.types.is_string(c.type) for c in constants):
            raise Unusable("a list mixes strings with decimals")
        if isinstance(operand, Constant):
            raise Unusable("a constant is looked up in a list")
        values: dict[object, Value] = {}
        for constant in constants:
            value = self.constant(constant, common).value
            if value is not None:
                values.setdefault(order_key(value, common), value)
        if negated and any(constant.value is None for constant in constants):
            return Const(False)
        if not values:
            return Const(False)
        return self.relation(operand.cast(common), "IN", list(values.values()), negated)

    def among(self, operand: Column | Constant, array: pa.Array, negated: bool) -> Bound:
        """``operand IN array``, as if the array's values were literals of its type."""
        from .value_array import as_leaf_values, literal_type, plain, values_in

        array = plain(array)
        if not len(array):
            return Const(negated)
        if array.null_count == len(array) or (negated and array.null_count):
            return Const(False)
        if isinstance(operand, Constant):
            raise Unusable("a constant is looked up in a list")
        if any(step is not None for step in operand.steps):
            raise Unusable("keys are looked up in a column alone")
        type = literal_type(array, operand.top)
        if type is None:
            raise Unusable(f"keys of type {array.type}")
        common = self.meet(operand.top, type, listed=True)
        if pa.types.is_decimal(common) and pa.types.is_string(type):
            raise Unusable("a list mixes strings with decimals")
        column = operand.cast(common)
        try:
            values = values_in(array, type, common, column.chain, self.session)
        except pa.ArrowInvalid as error:  # more than 2 GiB of text; a time that is out of range
            raise Unusable(f"keys of type {array.type}: {error}") from None
        if isinstance(values, list):
            return self.relation(column, "IN", values, negated)
        if not len(values):
            return Leaf(column.name, column.type, Op.NOT_NULL) if negated else Const(False)
        if len(values) == 1:
            return Leaf(column.name, column.type, Op.NE if negated else Op.EQ, tuple(values))
        op = Op.NOT_IN if negated else Op.IN
        return Leaf(column.name, column.type, op, as_leaf_values(values))

    def listed(self, value: Operand) -> Constant:
        found = self.literal(value) if isinstance(value, Literal) else self.operand(value)
        if isinstance(found, Column):
            raise Unusable("a list with something other than literals")
        return found

    def null_test(self, expr: NullTest, negated: bool) -> Bound:
        operand = self.operand(expr.operand)
        if isinstance(operand, Constant):
            return Const((operand.value is None) is not negated)
        return self.is_null(operand, negated)

    def is_null(self, column: Column, negated: bool) -> Bound:
        if not column.total:
            raise Unusable("TRY_CAST may be NULL where the column is not")
        if len(column.chain) > 1:
            self.back(column, [])  # ``Unusable`` unless all casts keep non-nulls non-null
        return Leaf(column.name, column.type, Op.NOT_NULL if negated else Op.IS_NULL)

    def truth(self, expr: Truth, negated: bool) -> Bound:
        operand = self.operand(expr.operand)
        if isinstance(operand, Constant):
            if operand.value is None:
                return Const(False)
            if not isinstance(operand.value, bool):
                raise Unusable("a constant that is not boolean is used as a predicate")
            return Const(operand.value is not negated)
        if not pa.types.is_boolean(operand.top):
            raise Unusable(f"a column of type {spark_name(operand.top)} is used as a predicate")
        return self.relation(operand, "=", [not negated], False)

    def pattern(self, expr: PatternMatch, negated: bool) -> Bound:
        operand = self.operand(expr.operand)
        if isinstance(operand, Constant):
            raise Unusable("a constant is matched with a pattern")
        if kind_of(operand.top) is not Kind.STRING or len(operand.chain) > 1:
            raise Unusable(f"a pattern matches text, and the column is {spark_name(operand.type)}")
        name, type = operand.name, operand.type
        if expr.prefix_only:
            prefix, exact, plain = expr.pattern, True, False
        else:
            prefix, exact, plain = literal_prefix(expr.pattern, expr.escape)
        if plain:
            return Leaf(name, type, Op.NE if negated else Op.EQ, (prefix,))
        if exact and not prefix:
            return Const(False) if negated else Leaf(name, type, Op.NOT_NULL)
        if exact:
            return Leaf(name, type, Op.NOT_STARTS_WITH if negated else Op.STARTS_WITH, (prefix,))
        op = Op.NOT_LIKE if negated else Op.LIKE
        return Leaf(name, type, op, (expr.pattern, expr.escape, prefix))

    # -- operands ---------------------------------------------------------------------------------

    def operand(self, operand: Operand) -> Column | Constant:
        found = self.indexed(operand) if self.restating else None
        if found is not None:
            return found
        match operand:
            case Opaque():
                raise Unusable(operand.reason)
            case Literal():
                return self.literal(operand)
            case Cast():
                inner = self.operand(operand.operand)
                target = None if operand.type is None else spark_type(operand.type)
                if target is None:
                    raise Unusable("a cast to a type that no index supports")
                if operand.tolerant:
                    return self.carried(operand)
                if isinstance(inner, Column):
                    if inner.units:
                        raise Unusable(f"a cast of {inner.units} counts in other units")
                    return inner.cast(target)
                return self.constant(inner, target)
            case ColumnRef():
                return self.column(operand)
            case _:
                return self.carried(operand)

    def column(self, ref: ColumnRef) -> Column:
        path, field = self.resolved(ref)
        name, type = column_name(path), indexable(field)
        if type is None:
            why = (field.metadata or {}).get(UNCOMPARABLE)
            detail = why.decode() if why else f"type {field.type}"
            raise Unusable(f"no index supports column {name}: {detail}")
        return Column(name, (type,), (field.metadata or {}).get(INTERVAL, b"").decode())

    def resolved(self, ref: ColumnRef) -> tuple[tuple[str, ...], pa.Field]:
        try:
            return resolve(
                ref,
                self.schema,
                case_sensitive=self.case_sensitive,
                text=self.text,
                map_keys=self.map_keys,
            )
        except LookupError as error:
            raise Unusable(str(error)) from None
        except PredicateError:
            # A hidden column, or a function that is called without parentheses.
            if ref.path[0].lower() == "_metadata":
                raise Unusable("_metadata is not a column of the table") from None
            if len(ref.path) == 1 and ref.path[0].lower() in BARE_FUNCTIONS:
                raise Unusable(f"{ref.path[0]} is a function") from None
            raise

    def literal(self, literal: Literal) -> Constant:
        value, type = literal.value, literal.type
        if type is None:
            return typed(value)
        canonical = type if pa.types.is_null(type) else spark_type(type)
        if canonical is None:
            from .typed_casts import name_of

            raise Unusable(f"a literal of type {name_of(type)}")
        if value is None:
            return Constant(None, canonical)
        if canonical == TIMESTAMP and isinstance(value, str):
            return self.constant(Constant(value, pa.string()), TIMESTAMP)
        assert isinstance(value, bool | int | float | str | bytes)
        return Constant(value, canonical)

    def constant(self, constant: Constant, target: pa.DataType) -> Constant:
        if constant.value is None:
            return Constant(None, target)
        value = cast_constant(constant.value, constant.type, target, self.session)
        return Constant(value + 0.0 if isinstance(value, float) else value, target)

    def meet(self, a: pa.DataType, b: pa.DataType, *, listed: bool = False) -> pa.DataType:
        if not self.ansi and meets_elsewhere(a, b, listed=listed):
            raise Unusable(
                f"without ANSI mode, {spark_name(a)} and {spark_name(b)} have another common type"
            )
        common = common_type(a, b)
        if common is None:
            raise Unusable(f"{spark_name(a)} and {spark_name(b)} do not compare{looks_like(a)}")
        return common


# -- pieces ----------------------------------------------------------------------------------------


def _op(op: str) -> str:
    if op in ("==", "!="):
        return "=" if op == "==" else "<>"
    if op not in FLIPPED:
        raise Unusable(f"{op} is not a comparison operator")
    return op


def _direct(column: Column, op: str, values: list[Value], negated: bool) -> Leaf:
    """A relation on the stored column, without a cast."""
    if op == "IN" and len(values) > 1:
        return Leaf(column.name, column.type, Op.NOT_IN if negated else Op.IN, tuple(values))
    if op == "<=>":
        found = Op.NE_OR_NULL if negated else Op.EQ
    else:
        op = "=" if op == "IN" else op
        found = Op(NEGATED[op] if negated else op)
    return Leaf(column.name, column.type, found, (values[0],))


_LONG = 2**63


def _beyond_long(column: Column, op: str, constant: Constant, *sides: Operand) -> bool | None:
    """The constant by which Spark's analyzer replaces a comparison of an integer with a decimal
    beyond bigint. It holds for nulls too: ``l < 9223372036854775808`` is TRUE for them."""
    if (
        op in ("<", "<=", ">", ">=")
        and kind_of(column.top) is Kind.INTEGER
        and pa.types.is_decimal(constant.type)
        and isinstance(constant.value, int)
        and any(isinstance(side, Literal) for side in sides)
    ):
        scale = 10**constant.type.scale
        if constant.value > (_LONG - 1) * scale:
            return op in ("<", "<=")
        if constant.value < -_LONG * scale:
            return op in (">", ">=")
    return None


def _literal_precision(other: pa.DataType, constant: Constant) -> Constant:
    """The constant; an integer next to a decimal gets the decimal type with just its digits."""
    if (
        pa.types.is_decimal(other)
        and isinstance(constant.value, int)
        and kind_of(constant.type) is Kind.INTEGER
    ):
        return Constant(constant.value, pa.decimal128(len(str(abs(constant.value))), 0))
    return constant
