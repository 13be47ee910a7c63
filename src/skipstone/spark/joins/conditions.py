"""Finds which rows of a file relation the joins of a query can use: ``QueryJoins``, from its
optimized plan.

Spark's optimizer has rewritten ``IN (SELECT …)`` and ``EXISTS`` as left semi joins, ``NOT IN`` and
``NOT EXISTS`` as left anti joins, correlated scalar subqueries as left outer joins.

**Which side may lose rows.** A join is defined by its condition: a pair of rows belongs together
where the condition is TRUE. ``a = b AND …`` is TRUE only where ``a = b`` is. So a row of one side
whose ``a`` is not among the values of ``b`` on the other side has no partner.

| join | left rows without a partner | right rows without a partner |
|---|---|---|
| inner, cross with a condition | no effect | no effect |
| left semi | no effect | no effect |
| left anti | are the result: kept | no effect |
| left outer, existence | are in the result: kept | no effect |
| right outer | no effect | are in the result: kept |
| full outer, and every other | kept | kept |

Only equalities that are conjuncts of the whole condition count. ``NOT IN`` has ``a = b OR
(a = b) IS NULL`` as its condition, so it gives none, and neither side loses a row. ``a = b`` is not
TRUE where one is NULL, so rows with NULL have no partner. ``a <=> b`` is TRUE for two NULLs: where
the other side has a NULL, rows with NULL are kept.

**From the join down to the relation.** The key is followed through an operator where two things
hold: its value is that of a column of the relation; and leaving out a row takes away or changes
only rows with its key, none of which has a partner either. These are

- projections, filters, sorts, repartitions, and unions, into each branch;
- aggregates and windows, where the key is one of the columns that they group by;
- below another join, the sides whose rows each make rows of their own: both of an inner join, the
  left of other left joins, the right of a right outer join.

It is followed through nothing else. Other rows would take the place of those that limits and
samples lose. Full outer joins, the side of an outer join that is filled with NULLs, expressions
that no index knows, and what is not deterministic stop it, too.

**Other places with the same keys.** A superset of the keys proves as much. The other side may be
the result of an inner or left semi join itself. If the key is on one side of an equality of that
join, the values on each of its sides are a superset: ``fact JOIN (events JOIN users ON events.user
= users.id) ON fact.user = events.user`` may use the keys of ``users`` (``QueryJoins.sources``).

**Scalar subqueries.** A row stays in ``Filter(k >= (SELECT …))`` only if the comparison is TRUE. It
is never TRUE for NULL, which is the value of a subquery without rows. So the filter is like a semi
join with the one row of the subquery, on ``=``, ``<``, ``<=``, ``>`` or ``>=``; but not on ``<=>``,
which can be TRUE for NULL. If the subquery has several rows, Spark still raises its error.

**Two relations of one query** may each be pruned by the keys of the other: a row that one side
loses has no partner, so the other side keeps all values with a partner.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from skipstone._dataclasses import dataclass
from skipstone.predicate.tree import FLIPPED
from skipstone.spark.catalyst import COMPARISONS
from skipstone.spark.functions import CHILDREN, JOIN_KIND
from skipstone.spark.session import items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from skipstone.spark.session import JavaObject, Jvm


_ID: Final = re.compile(r"#(\d+)L?$")
_EXPRESSION: Final = "org.apache.spark.sql.catalyst.expressions."
_OPTIMIZER: Final = "org.apache.spark.sql.catalyst.optimizer."
_NORMALIZED: Final = re.compile(r"knownfloatingpointnormalized\(normalizenanandzero\((.*?)\)\)")
# The sides whose rows without a partner have no effect: left, right.
_FREE: Final = {
    "Inner": (True, True),
    "Cross": (True, True),
    "LeftSemi": (True, True),
    "LeftAnti": (False, True),
    "LeftOuter": (False, True),
    "ExistenceJoin": (False, True),
    "RightOuter": (True, False),
}
# The sides of which a row affects only the result rows that it makes itself.
_SEPARATE: Final = {
    "Inner": (True, True),
    "Cross": (True, True),
    "LeftSemi": (True, False),
    "LeftAnti": (True, False),
    "LeftOuter": (True, False),
    "ExistenceJoin": (True, False),
    "RightOuter": (False, True),
}
_ROW_BY_ROW: Final = frozenset(
    {
        "Filter",
        "Sort",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "BatchEvalPython",
        "ArrowEvalPython",
    }
)
#: the kind of a filter that compares with a scalar subquery
SUBQUERY: Final = "ScalarSubquery"
_EXPLODE: Final = frozenset({"Explode", "PosExplode", "Inline"})

#: an expression as Catalyst's JSON: its nodes in preorder
Nodes = list[dict[str, Any]]


@dataclass(eq=False)
class PlanNode:
    """A node of a logical plan."""

    find: Callable[[], JavaObject]
    name: str
    children: list[PlanNode]

    @cached_property
    def java(self) -> JavaObject:
        return self.find()

    def walk(self) -> Iterator[PlanNode]:
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children)


@dataclass(frozen=True, slots=True, eq=False)
class Equality:
    """``=`` or ``<=>`` as a conjunct of a join's condition; both sides as in the condition.

    ``op`` is another one for a comparison of the left side with a subquery. ``expressions`` are the
    objects of the JVM, ``nodes`` their JSON, left before right.
    """

    expressions: tuple[JavaObject, JavaObject]
    nodes: tuple[Nodes, Nodes]
    null_safe: bool
    text: str
    op: str = "="


@dataclass(slots=True, eq=False)
class Join:
    """A join with equalities; ``kind`` as Catalyst calls it, or ``SUBQUERY``: then the node is its
    filter, and the right side the plan of the subquery, which has this ``number``."""

    node: PlanNode
    kind: str
    equalities: list[Equality]
    number: int | None = None

    def side(self, which: int) -> PlanNode:
        return self.node.children[which]


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A row of a relation has an effect only if ``key`` is among the values of the other side.

    ``other`` is that side: 0 is left. ``key`` is an expression over the relation's columns.
    """

    join: Join
    other: int
    at: int
    key: Nodes

    @property
    def equality(self) -> Equality:
        return self.join.equalities[self.at]

    @property
    def source(self) -> Source:
        return self.join, self.other, self.at


#: the values of one side (0 is left) of one equality of a join
Source: TypeAlias = "tuple[Join, int, int]"


@dataclass(slots=True, eq=False)
class JoinRelation:
    """A file relation of the plan and the conditions for its rows, all of which must hold."""

    ids: frozenset[int]
    conditions: list[Condition] = field(default_factory=list)


class QueryJoins:
    """The joins of one query: the plan and those of its subqueries."""

    def __init__(self, jvm: Jvm, optimized: JavaObject) -> None:
        self.jvm = jvm
        self._outputs: dict[int, list[str]] = {}
        self._leaves: dict[int, JoinRelation] = {}
        self._joins: dict[int, Join] = {}
        self.roots: list[PlanNode] = []
        self.subqueries: list[Join] = []
        if not optimized.containsAnyPattern(jvm.patterns("JOIN", "SCALAR_SUBQUERY")):
            return
        has_subqueries = bool(optimized.containsPattern(jvm.pattern("SCALAR_SUBQUERY")))
        plans = [optimized, *jvm.subqueries(optimized)]
        self.roots = [tree_of(jvm, plan) for plan in plans]
        for root in self.roots:
            for node in root.walk():
                if node.name == "LogicalRelation":
                    self._leaf(node)
                elif node.name == "Join":
                    self._join(node)
                elif node.name == "Filter" and has_subqueries:
                    self._filter(node)

    def leaves_of(self, ids: frozenset[int]) -> list[JoinRelation]:
        """The relations with these columns: one, or several copies of one."""
        return [leaf for leaf in self._leaves.values() if ids <= leaf.ids]

    def has_conditions(self) -> bool:
        return any(leaf.conditions for leaf in self._leaves.values())

    def _leaf(self, node: PlanNode) -> JoinRelation:
        found = self._leaves.get(id(node))
        if found is None:
            ids = frozenset(ids_of(self.output(node)))
            found = self._leaves[id(node)] = JoinRelation(ids)
        return found

    def output(self, node: PlanNode) -> list[str]:
        """The columns of a node as Catalyst prints them: ``name#12L``."""
        found = self._outputs.get(id(node))
        if found is None:
            found = self._outputs[id(node)] = self.jvm.join(node.java.output())
        return found

    def _join(self, node: PlanNode) -> None:
        kind = kind_of(self.jvm, node)
        free = _FREE.get(kind)
        condition = node.java.condition()
        if free is None or not condition.isDefined():
            return
        sides = [frozenset(ids_of(self.output(child))) for child in node.children]
        join = Join(node, kind, list(_equalities(condition.get(), sides)))
        self._joins[id(node)] = join
        for at, equality in enumerate(join.equalities):
            for which in (0, 1):
                child = node.children[which]
                if free[which] and child.java.deterministic():
                    for leaf, key in self._ways(child, equality.nodes[which]):
                        leaf.conditions.append(Condition(join, 1 - which, at, key))

    def _filter(self, node: PlanNode) -> None:
        condition = node.java.condition()
        if not condition.containsPattern(self.jvm.pattern("SCALAR_SUBQUERY")):
            return
        for conjunct in _conjuncts(condition):
            compared = _with_subquery(self.jvm, conjunct)
            if compared is None or not node.children[0].java.deterministic():
                continue
            equality, subquery = compared
            sides = [*node.children, tree_of(self.jvm, subquery.plan())]
            number = int(subquery.exprId().id())
            join = Join(PlanNode(node.find, node.name, sides), SUBQUERY, [equality], number)
            self.subqueries.append(join)
            for leaf, key in self._ways(node.children[0], equality.nodes[0]):
                leaf.conditions.append(Condition(join, 1, 0, key))

    def sources(self, condition: Condition) -> list[Source]:
        """The places whose values are those of the other side, or more."""
        found = [condition.source]
        if (
            condition.join.kind == SUBQUERY
            or condition.equality.null_safe
            or not condition.join.side(condition.other).java.deterministic()
        ):
            return found
        side = condition.join.side(condition.other)
        # A branch of a union has the values of some rows only.
        own = condition.equality.nodes[condition.other]
        for node, key in self._down(side, own, through_unions=False):
            join = self._joins.get(id(node))
            if join is None or join.kind not in ("Inner", "Cross", "LeftSemi"):
                continue
            for at, equality in enumerate(join.equalities):
                if not equality.null_safe and any(_same(key, each) for each in equality.nodes):
                    found += [(join, 0, at), (join, 1, at)]
        return found

    def _ways(self, node: PlanNode, key: Nodes) -> Iterator[tuple[JoinRelation, Nodes]]:
        """The relations below ``node`` whose rows alone determine the key, and the key over their
        columns."""
        for below, expression in self._down(node, key):
            if below.name == "LogicalRelation":
                yield self._leaf(below), expression

    def _down(
        self, node: PlanNode, key: Nodes, *, through_unions: bool = True
    ) -> Iterator[tuple[PlanNode, Nodes]]:
        """``node`` and the nodes below it whose rows alone determine the key, and the key over
        their columns."""
        stack = [(node, key)]
        while stack:
            node, key = stack.pop()
            at = _attribute(key)
            if at is None:
                continue
            yield node, key
            if node.name == "Union" and not through_unions:
                continue
            for child, expression in self._below(node, _id_of(key[at])):
                new = key if expression is None else [*key[:at], *expression, *key[at + 1 :]]
                stack.append((child, new))

    def _below(self, node: PlanNode, wanted: int) -> Iterator[tuple[PlanNode, Nodes | None]]:
        """The children that have the column ``wanted``; and its expression there, if it is not the
        column itself."""
        name, children, java = node.name, node.children, node.java
        if name == "Project":
            at = self._position(node, wanted)
            if at is not None:
                yield children[0], _unnamed(java.projectList().apply(at))
        elif name in _ROW_BY_ROW:
            if self._has(children[0], wanted):
                yield children[0], None
        elif name == "Join":
            separate = _SEPARATE.get(kind_of(self.jvm, node), (False, False))
            for child, alone in zip(children, separate, strict=True):
                if alone and self._has(child, wanted):
                    yield child, None
        elif name == "Union":
            # A column that occurs twice may be a different one at each place of the other branches.
            is_once = ids_of(self.output(node)).count(wanted) == 1
            at = self._position(node, wanted) if is_once else None
            for child in children if at is not None else ():
                yield child, json.loads(child.java.output().apply(at).toJSON())
        elif name == "Aggregate":
            at = self._position(node, wanted)
            if at is not None:
                expression = _unnamed(java.aggregateExpressions().apply(at))
                groups = ids_of(self.jvm.join(java.groupingExpressions()))
                if len(expression) == 1 and _id_of(expression[0]) in groups:
                    yield children[0], expression
        elif name in ("Window", "WindowGroupLimit"):
            groups = ids_of(self.jvm.join(java.partitionSpec()))
            if wanted in groups and self._has(children[0], wanted):
                yield children[0], None
        elif (
            name == "Generate"
            and str(java.generator().nodeName()) in _EXPLODE
            and self._has(children[0], wanted)
        ):
            yield children[0], None

    def _position(self, node: PlanNode, wanted: int) -> int | None:
        found = [at for at, text in enumerate(self.output(node)) if ids_of([text]) == [wanted]]
        return found[0] if found else None

    def _has(self, node: PlanNode, wanted: int) -> bool:
        return self._position(node, wanted) is not None


def tree_of(jvm: Jvm, plan: JavaObject) -> PlanNode:
    """A plan as nodes, without those of its subqueries."""
    names = jvm.node_names(plan)
    counts = jvm.join(plan.map(jvm.functions.of(*CHILDREN)))
    nodes = plan.map(jvm.functions.identity())
    # From the last node to the first: the children of a node are then on top of the stack.
    stack: list[PlanNode] = []
    for at in range(len(names) - 1, -1, -1):
        children = [stack.pop() for _ in range(int(counts[at]))]
        stack.append(PlanNode(partial(nodes.apply, at), names[at], children))
    (root,) = stack
    return root


def kind_of(jvm: Jvm, node: PlanNode) -> str:
    """The kind of a join, as Catalyst calls it."""
    return str(jvm.functions.call(*JOIN_KIND)(node.java)).partition("(")[0]


def ids_of(attributes: Sequence[str]) -> list[int]:
    """The numbers in ``name#12L``; expressions have none."""
    return [int(match[1]) for text in attributes if (match := _ID.search(text))]


def columns_of(key: Nodes) -> list[int]:
    """The numbers of the columns in an expression."""
    return [_id_of(node) for node in key if node["class"] == f"{_EXPRESSION}AttributeReference"]


def _conjuncts(condition: JavaObject) -> Iterator[JavaObject]:
    """The conjuncts of a condition, in their order."""
    stack = [condition]
    while stack:
        expression = stack.pop()
        if str(expression.nodeName()) == "And":
            stack += [expression.right(), expression.left()]
        else:
            yield expression


def _with_subquery(jvm: Jvm, expression: JavaObject) -> tuple[Equality, JavaObject] | None:
    """A comparison with a scalar subquery, whose column is then on the right; and the subquery."""
    op, subquery = COMPARISONS.get(str(expression.nodeName())), jvm.pattern("SCALAR_SUBQUERY")
    if op in (None, "<=>") or not expression.containsPattern(subquery):
        return None
    pair = [expression.left(), expression.right()]
    if pair[0].containsPattern(subquery):
        pair, op = pair[::-1], FLIPPED[op]
    mine, other = pair
    if mine.containsPattern(jvm.pattern("PLAN_EXPRESSION")) or not other.references().isEmpty():
        return None
    inner = other
    while (name := jvm.class_name(inner)) != "ScalarSubquery":
        parts = [each for each in items(inner.children()) if each.containsPattern(subquery)]
        if name not in _NULL_OF_NULL or len(parts) != 1:
            return None
        inner = parts[0]
    if inner.isCorrelated():
        return None
    swap = jvm.module("scala.collection.immutable.Map").empty()
    column = other.transformDown(swap.updated(inner, inner.plan().output().head()))
    nodes = [_compared(json.loads(each.toJSON())) for each in (mine, column)]
    if not columns_of(nodes[0]) or not columns_of(nodes[1]):
        return None
    text = f"{mine.sql()} {op} (SELECT …)"
    return Equality((mine, column), (nodes[0], nodes[1]), False, text, op), inner


# They return NULL for NULL, the value of a subquery without rows; other functions may not. Spark
# merges subqueries over the same rows, and each is then a field of a struct.
_NULL_OF_NULL = frozenset(
    {"Cast", "GetStructField", "Add", "Subtract", "Multiply", "Divide", "UnaryMinus"}
)


def _equalities(condition: JavaObject, sides: Sequence[frozenset[int]]) -> Iterator[Equality]:
    """The equalities of the two sides among the conjuncts of a condition, in their order."""
    for expression in _conjuncts(condition):
        name = str(expression.nodeName())
        if name in ("EqualTo", "EqualNullSafe"):
            pair = expression.left(), expression.right()
            nodes = [_compared(json.loads(each.toJSON())) for each in pair]
            found = [frozenset(columns_of(each)) for each in nodes]
            if found[0] and found[1]:
                text = _NORMALIZED.sub(r"\1", str(expression.sql()))
                safe = name == "EqualNullSafe"
                if found[0] <= sides[0] and found[1] <= sides[1]:
                    yield Equality(pair, (nodes[0], nodes[1]), safe, text)
                elif found[0] <= sides[1] and found[1] <= sides[0]:
                    yield Equality(pair[::-1], (nodes[1], nodes[0]), safe, text)


def _compared(key: Nodes) -> Nodes:
    """A key without the functions that Spark adds to compare floating-point numbers: indexes treat
    NaN and -0.0 in the same way."""
    added = (f"{_EXPRESSION}KnownFloatingPointNormalized", f"{_OPTIMIZER}NormalizeNaNAndZero")
    return [node for node in key if node["class"] not in added]


def _attribute(key: Nodes) -> int | None:
    """The place of an expression's only column; ``None`` if it has several, or a subquery."""
    found = [at for at, node in enumerate(key) if "exprId" in node]
    return found[0] if len(found) == 1 and len(columns_of(key)) == 1 else None


def _same(key: Nodes, other: Nodes) -> bool:
    """Whether two expressions are equal; names and qualifiers of their columns do not count."""
    return _bare(key) == _bare(other)


def _bare(key: Nodes) -> list[object]:
    return [_id_of(each) if "exprId" in each else each for each in key]


def _unnamed(expression: JavaObject) -> Nodes:
    """An expression of a SELECT list without its alias."""
    nodes: Nodes = json.loads(expression.toJSON())
    return nodes[1:] if nodes[0]["class"] == f"{_EXPRESSION}Alias" else nodes


def _id_of(attribute: dict[str, Any]) -> int:
    return int(attribute["exprId"]["id"])
