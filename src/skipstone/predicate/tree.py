"""The two trees: ``Expr`` as written, and the bound tree that indexes answer.

**As written** (any source: SQL text, DNF tuples, Catalyst): ``And``, ``Or``, ``Not`` over
``Comparison``, ``Membership``, ``NullTest``, ``PatternMatch``, ``Truth`` and ``Opaque``;
operands are ``ColumnRef``, ``Cast``, ``Call`` and ``Literal``, and conditions.

**Bound** (made by ``bind``): ``And``, ``Or`` over ``Leaf``, ``Const``, ``Computed`` and ``Opaque``;
no ``Not``, no casts. A node stands for the set of rows for which it is TRUE. Once NOT is at the
leaves, NULL and FALSE need no distinction, which is why leaves come in pairs:

| op | TRUE for |
|---|---|
| ``EQ NE LT LE GT GE`` | non-null values in that relation to ``values[0]`` |
| ``IN`` / ``NOT_IN`` | non-null values (not) among ``values``; NULL listed makes NOT_IN FALSE |
| ``IS_NULL`` / ``NOT_NULL`` | nulls / non-nulls, ``values`` empty |
| ``NE_OR_NULL`` | NOT (c <=> v): nulls and values other than ``values[0]`` |
| ``STARTS_WITH`` / ``NOT_STARTS_WITH`` | non-null strings (not) beginning with ``values[0]`` |
| ``LIKE`` / ``NOT_LIKE`` | (pattern, escape, literal prefix): non-null strings (not) matching |
| the same | (pattern, escape, "", "lower"): those whose lower case does (not) match |

Values are in the column's stored domain (``literals.py``), Python values: ``bool``; ``int`` for
integers, dates (days), timestamps (microseconds) and decimals (unscaled at the column's scale);
``float``; ``str``; ``bytes``. Never ``None``. A leaf of many values has them as one array, which is
a sequence of the same values (``value_array.py``).
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from skipstone._dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from .typed import Typed
    from .types import ManyValues, Value
    from .zones import Zone


class Op(StrEnum):
    """The operation of a leaf; the module docstring has the table."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "IN"
    NOT_IN = "NOT IN"
    IS_NULL = "IS NULL"
    NOT_NULL = "IS NOT NULL"
    NE_OR_NULL = "NOT <=>"
    STARTS_WITH = "STARTS WITH"
    NOT_STARTS_WITH = "NOT STARTS WITH"
    LIKE = "LIKE"
    NOT_LIKE = "NOT LIKE"


#: negated operations, each with the one that is TRUE for all other non-null values
POSITIVE = {
    Op.NE: Op.EQ,
    Op.NOT_IN: Op.IN,
    Op.NOT_LIKE: Op.LIKE,
    Op.NOT_STARTS_WITH: Op.STARTS_WITH,
}
COMPLEMENTS = {
    **POSITIVE,
    **{positive: negative for negative, positive in POSITIVE.items()},
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.LE: Op.GT,
    Op.GT: Op.LE,
}
#: comparisons as written, with the sides exchanged
FLIPPED = {"=": "=", "<=>": "<=>", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: comparisons as written, each with its negation
NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


# -- operands, as written --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column as named: ``a.b.c`` is ``("a", "b", "c")``. ``position`` in the text, for errors."""

    path: tuple[str, ...]
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. ``type`` is its Arrow type where the source has one; SQL text has some, DNF
    has none.

    ``value`` is in the domain of ``type`` as in the module docstring (a decimal's unscaled
    integer, a date's days, a timestamp's microseconds), or a plain Python value where ``type``
    is ``None``; ``None`` is SQL's NULL. A ``str`` with the type timestamp is local text, which
    binding reads in the session zone.
    """

    value: object
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Cast:
    """``CAST(operand AS type)``. ``None`` as type is a cast that no Arrow type describes.

    ``tolerant``: ``TRY_CAST``, NULL where the cast fails.
    """

    operand: Operand
    type: pa.DataType | None
    tolerant: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator; ``name`` is a key of ``functions.FUNCTIONS``."""

    name: str
    args: tuple[Operand, ...]


# A condition as an operand has the value TRUE, FALSE or NULL.
Operand: TypeAlias = "ColumnRef | Literal | Cast | Call | Expr"

# -- nodes, as written -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left op right`` with op one of ``= <> < <= > >= <=>``."""

    op: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Membership:
    """``operand IN (values)``; NULLs allowed among the values.

    Many values are one array, with the meaning of literals of its type.
    """

    operand: Operand
    values: tuple[Operand, ...] | pa.Array


@dataclass(frozen=True, slots=True)
class NullTest:
    """``operand IS NULL``."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """``operand LIKE pattern ESCAPE escape``, or a prefix test when ``prefix_only``.

    With ``prefix_only`` the pattern is a plain string that the value must begin with.
    """

    operand: Operand
    pattern: str
    escape: str = "\\"
    prefix_only: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean operand used as a predicate: ``flag``."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT child``, three-valued. Only as written; binding pushes it to the leaves."""

    child: Expr


# -- nodes of both trees ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class And:
    """All children."""

    children: tuple[Expr | Bound, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({c})" if isinstance(c, Or) else str(c) for c in self.children)


@dataclass(frozen=True, slots=True)
class Or:
    """Any child."""

    children: tuple[Expr | Bound, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({c})" if isinstance(c, And) else str(c) for c in self.children)


@dataclass(frozen=True, slots=True)
class Const:
    """A constant: TRUE, or not TRUE (FALSE and NULL)."""

    value: bool

    def __str__(self) -> str:
        return "TRUE" if self.value else "FALSE"


@dataclass(frozen=True, slots=True)
class Opaque:
    """An expression that no index can use, negated or not; ``reason`` says why.

    ``sql`` is its text for people, and for engines that evaluate the residual predicate.
    """

    sql: str
    reason: str

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True, slots=True)
class Computed(Opaque):
    """An ``Opaque`` that can be decided on rows: those where ``typed``, a boolean, is TRUE."""

    typed: Typed
    zone: Zone | None


# -- bound -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaf:
    """A condition on one column; ``column`` is the dotted path as the schema spells it.

    ``type`` is the column's Arrow type in the table's schema. ``values`` are in its stored domain.
    """

    column: str
    type: pa.DataType
    op: Op
    values: tuple[Value, ...] | ManyValues = ()

    def __hash__(self) -> int:
        # Leaves are keys wherever bounds are combined, and the hash of an Arrow type is that of its
        # text.
        return hash((self.column, self.values))

    def __str__(self) -> str:
        if self.op in (Op.IS_NULL, Op.NOT_NULL):
            return f"{self.column} {self.op}"
        from .types import display

        if self.op in (Op.IN, Op.NOT_IN):
            shown = ", ".join(display(v, self.type) for v in self.values[:5])
            more = f", … {len(self.values):,} values" if len(self.values) > 5 else ""
            return f"{self.column} {self.op} ({shown}{more})"
        if ignores_case(self):
            return f"lower({self.column}) {self.op} {display(self.values[0], self.type)}"
        return f"{self.column} {self.op} {display(self.values[0], self.type)}"


def ignores_case(leaf: Leaf) -> bool:
    """Whether a pattern is matched with the lower case of the column."""
    return leaf.op in (Op.LIKE, Op.NOT_LIKE) and len(leaf.values) > 3


@dataclass(frozen=True, slots=True)
class Pair(Leaf):
    """A comparison of two columns, as an expression that equals TRUE. ``relation`` is ``<``,
    ``<=``, ``>``, ``>=`` or ``=``. Bounds of both columns answer it (``pruning/pairs.py``)."""

    left: str = ""
    relation: str = "="
    right: str = ""

    def __hash__(self) -> int:
        return hash((self.column, self.values))

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True, slots=True)
class Joint(Leaf):
    """Conditions on one column that one value meets together. In an AND it lies next to the
    conditions and restates them: a unit may have values for each, but none for all. ``op`` is that
    of the first."""

    parts: tuple[Leaf, ...] = ()

    def __hash__(self) -> int:
        return hash(self.parts)

    def __str__(self) -> str:
        return " AND ".join(map(str, self.parts))

    @classmethod
    def of(cls, parts: tuple[Leaf, ...]) -> Joint:
        """Of conditions on one column, none of which holds for null."""
        first = parts[0]
        return cls(first.column, first.type, first.op, (), parts)


Expr: TypeAlias = (
    "And | Or | Not | Comparison | Membership | NullTest | PatternMatch | Truth | Opaque | Const"
)
Bound: TypeAlias = "And | Or | Leaf | Const | Opaque"


# Operands that are conditions.
CONDITIONS = (And, Or, Not, Comparison, Membership, NullTest, PatternMatch, Truth, Const)


def pieces(tree: Bound) -> list[object]:
    """The nodes of a bound tree that have no children, in their order."""
    return _expanded(tree, (And, Or))


def _expanded(tree: object, nodes: tuple[type[And | Or], ...]) -> list[Any]:
    """``tree`` with its ``nodes`` replaced by their children, without recursion."""
    found: list[Any] = []
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, nodes):
            stack.extend(reversed(node.children))
        else:
            found.append(node)
    return found


def leaves(tree: Bound) -> list[Leaf]:
    """The distinct leaves of a bound tree, in order of first appearance."""
    return list(dict.fromkeys(node for node in pieces(tree) if isinstance(node, Leaf)))


def is_expression(column: str) -> bool:
    """Whether a column is an expression that has an index (``indexed.py``)."""
    from .types import EXPRESSION, column_path

    return EXPRESSION in column and column_path(column) == (column,)


# Kernel and SQL name of the elements of all lists. It is Spark's generator, which no condition can
# contain.
ELEMENTS = "explode"


@dataclass(frozen=True, slots=True)
class KnownExpressions:
    """The expressions that have an index: ``names`` by their meaning over a schema, and in
    ``unusable`` why others have another meaning there."""

    names: Mapping[Typed, str]
    unusable: Mapping[str, str]


NO_EXPRESSIONS = KnownExpressions({}, {})


def restates(tree: Expr | Bound) -> bool:
    """Whether all leaves are of expressions or joint. In an AND, such a tree only restates the
    rest."""
    if isinstance(tree, And | Or):
        return all(map(restates, tree.children))
    return isinstance(tree, Joint) or (isinstance(tree, Leaf) and is_expression(tree.column))


def stored_columns(tree: Bound) -> frozenset[str]:
    """The columns of leaves about stored values, both columns of pairs, and elements."""
    found: set[str] = set()
    for leaf in leaves(tree):
        if isinstance(leaf, Pair):
            found |= {leaf.left, leaf.right}
        elif leaf.column.startswith(f"{ELEMENTS}(") or not is_expression(leaf.column):
            found.add(leaf.column)
    return frozenset(found)


def without_expressions(tree: Bound) -> Bound:
    """The tree without leaves of expressions. It has the same rows, as these only restate what is
    next to them in an AND."""
    if isinstance(tree, And | Or):
        joined = conjunction if isinstance(tree, And) else disjunction
        return joined([without_expressions(child) for child in tree.children])  # type: ignore[arg-type]
    if isinstance(tree, Leaf) and is_expression(tree.column):
        return Const(True)
    return tree


def columns_read(tree: Bound) -> dict[str, pa.DataType]:
    """The columns that decide a row, with their types: those of leaves, then of what is computed.

    A column of a ``Computed`` may have a nested type.
    """
    found = {leaf.column: leaf.type for leaf in leaves(tree)}
    for node in pieces(tree):
        if isinstance(node, Computed):
            for name, type in node.typed.columns():
                found.setdefault(name, type)
    return found


def columns_of(expr: Expr) -> set[str]:
    """The columns that an expression names, as it names them."""
    found: set[str] = set()
    stack: list[object] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, And | Or):
            stack.extend(node.children)
        elif isinstance(node, Not):
            stack.append(node.child)
        elif isinstance(node, Comparison):
            stack += [node.left, node.right]
        elif isinstance(node, Call):
            stack.extend(node.args)
        elif isinstance(node, Membership | NullTest | PatternMatch | Truth | Cast):
            stack.append(node.operand)
            values = getattr(node, "values", ())
            stack.extend(values if isinstance(values, tuple) else ())
        elif isinstance(node, ColumnRef):
            found.add(".".join(node.path))
    return found


def mapped(operand: Operand, change: Callable[[Operand], Operand]) -> Operand:
    """The operand with ``change`` applied to each of its parts, innermost first."""

    def inside(each: Operand) -> Operand:
        match each:
            case Call():
                return replace(each, args=tuple(mapped(arg, change) for arg in each.args))
            case Cast() | NullTest() | PatternMatch() | Truth():
                return replace(each, operand=mapped(each.operand, change))
            case Comparison():
                left, right = mapped(each.left, change), mapped(each.right, change)
                return replace(each, left=left, right=right)
            case Membership(values=tuple() as values):
                listed = tuple(mapped(value, change) for value in values)
                return Membership(mapped(each.operand, change), listed)
            case And() | Or():
                children = tuple(mapped(child, change) for child in each.children)  # type: ignore[arg-type]
                return replace(each, children=children)  # type: ignore[arg-type]
            case Not():
                return Not(mapped(each.child, change))  # type: ignore[arg-type]
            case _:
                return each

    return change(inside(operand))


def flat(tree: And | Or) -> list[Expr | Bound]:
    """The children, with nested nodes of the same kind replaced by theirs."""
    return _expanded(tree, (type(tree),))


def conjunction(children: list[Bound]) -> Bound:
    return _joined(children, And, neutral=True)


def disjunction(children: list[Bound]) -> Bound:
    return _joined(children, Or, neutral=False)


def _joined(children: list[Bound], node: type[And] | type[Or], *, neutral: bool) -> Bound:
    found: dict[Bound, None] = {}
    for child in children:
        for part in child.children if isinstance(child, node) else (child,):
            found.setdefault(part)  # type: ignore[arg-type]
    if Const(not neutral) in found:
        return Const(not neutral)
    kept = [child for child in found if child != Const(neutral)]
    if not kept:
        return Const(neutral)
    return kept[0] if len(kept) == 1 else node(tuple(kept))
