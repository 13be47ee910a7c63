"""Translates Catalyst expressions, as ``listFiles`` gets them, to exactly equal predicate trees.

``toJSON`` returns a whole tree in one call: a list of nodes in preorder, each with its class, its
number of children and its fields. Literals are text. Further calls fetch values that the text
loses:

- the values of ``InSet`` (an IN list of more than ten): ``hset().mkString``, a random separator;
- the same for binary values: ``sql()``, which prints ``X'00FF'``;
- binary literals: ``value()``, the bytes;
- TIMESTAMP literals, which print as local text without offset, so two instants may have one text:
  ``value()``, microseconds; a long IN list of them as one array;
- strings that may not be UTF-8: ``value().getBytes()``;
- the escape of LIKE: ``escapeChar()``; whether a cast or product fails, wraps around or is NULL
  where it overflows: ``evalMode()``;
- metadata of attributes: ``metadata().json()`` where a name may be that of Spark's ``_metadata``
  column; the relation's schema (``unusable``) for collations and defaults.

An expression without an exact equivalent becomes ``Opaque`` with a reason, and prunes nothing.
"""

from __future__ import annotations

import json
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.predicate.operands import plain_pattern
from skipstone.predicate.tree import (
    CONDITIONS,
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
    Operand,
    Or,
    PatternMatch,
    Truth,
)
from skipstone.predicate.types import MapKey, parse_type

from .catalyst_functions import FUNCTIONS, Attribute, FunctionReader, FunctionValue, UnusableOperand
from .functions import TO_JSON
from .literals import UnreadableLiteral, fetch_listed, fetch_set, fetch_values, value_of
from .versions import setting_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .session import JavaObject, Jvm


_PACKAGE = "org.apache.spark.sql.catalyst.expressions."
#: comparisons by their class
COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
# Spark's hidden ``_metadata`` column and its fields. Filters on them reach ``listFiles`` as
# attributes of these names; columns of the table may have them too.
_NAMES_OF_METADATA = """
_metadata file_path file_name file_size file_block_start file_block_length file_modification_time
row_index
"""
_METADATA_NAMES = frozenset(_NAMES_OF_METADATA.split())
_METADATA = "a metadata column: Spark itself prunes by it"
_FETCHES = 64  # the most values that are fetched one by one per filter
_PLANS = ("Subquery", "Exists", "ListQuery", "DynamicPruning")


@dataclass(slots=True)
class _Pending:
    """A literal whose value has to be fetched: node ``index`` of the tree."""

    index: int
    type: pa.DataType


@dataclass(slots=True)
class _Junction:
    """AND or OR during parsing; flat, so that a thousand terms are not a thousand levels."""

    kind: type[And] | type[Or]
    children: list[Any]


_Node: TypeAlias = "Attribute | _Pending | _Junction | FunctionValue | Literal | Cast | Expr"


def conjunction(
    jvm: Jvm,
    filters: JavaObject,
    *,
    time_zone: str,
    unusable: Mapping[tuple[str, ...], str] | None = None,
) -> Expr:
    """A Scala ``Seq`` of filters, all of which must hold, as one tree; TRUE when there are none.

    ``time_zone`` is the session's: a cast in another zone is opaque. ``unusable`` maps columns to
    the reason why their stored values do not decide a predicate.
    """
    parts = [
        _to_expr(jvm, partial(filters.apply, at), text, time_zone, unusable or {})
        for at, text in enumerate(jvm.joined(filters, *TO_JSON))
    ]
    if len(parts) == 1:
        return parts[0]
    return And(tuple(parts)) if parts else Const(True)


def _to_expr(
    jvm: Jvm,
    expression: Callable[[], JavaObject],
    text: str,
    time_zone: str,
    unusable: Mapping[tuple[str, ...], str],
) -> Expr:
    """One Catalyst expression, whose JSON is ``text``, as a tree that is TRUE for the same rows."""
    try:
        return _TreeReader(jvm, expression, json.loads(text), time_zone, unusable).read()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        return Opaque(_sql(expression()), f"unknown form of expression: {error!r}")


def operand_of(
    jvm: Jvm,
    nodes: list[dict[str, Any]],
    *,
    time_zone: str,
    unusable: Mapping[tuple[str, ...], str],
) -> ColumnRef | Cast | str:
    """An expression in Catalyst's JSON as an operand; the reason where no index can use it."""
    try:
        reader = _TreeReader(jvm, lambda: None, nodes, time_zone, unusable, fetches=0)
        found = reader.operand(reader.root())
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        # The text of an expression without an equivalent would come from its object.
        return f"no index can use {str(nodes[0]['class']).rpartition('.')[2]}"
    if isinstance(found, Opaque):
        return found.reason
    if isinstance(found, Literal | Call):
        return "a key that is a constant or a function"
    return found


def mentions_metadata(tree: Expr) -> bool:
    """True when a part of the tree is about Spark's ``_metadata`` column."""
    stack: list[object] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Opaque) and node.reason == _METADATA:
            return True
        if isinstance(node, And | Or):
            stack.extend(node.children)
        elif isinstance(node, Not):
            stack.append(node.child)
    return False


def _sql(expression: JavaObject) -> str:
    text = str(expression.sql())
    return text if len(text) <= 200 else f"{text[:200]}…"


@dataclass(slots=True)
class _TreeReader(FunctionReader):
    jvm: Jvm
    expression: Callable[[], JavaObject]
    nodes: list[dict[str, Any]]
    time_zone: str
    unusable: Mapping[tuple[str, ...], str]
    fetches: int = field(default=_FETCHES)
    settings: dict[str, str | None] = field(default_factory=dict)

    def read(self) -> Expr:
        return self.predicate(self.root())

    def root(self) -> _Node:
        # From the last node to the first: the children of a node are then on top of the stack.
        stack: list[_Node] = []
        for index in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[index]
            count = int(node["num-children"])
            children = [stack.pop() for _ in range(count)]
            name = str(node["class"])
            known = name.startswith(_PACKAGE)
            simple = name.rsplit(".", 1)[-1]
            method = getattr(self, f"_{simple}", None) if known else None
            if method is None and known and simple in FUNCTIONS:
                method = self.function
            if method is None:
                stack.append(self.opaque(index, f"no index can use {simple}"))
            else:
                try:
                    stack.append(method(index, node, children))
                except (UnusableOperand, UnreadableLiteral) as error:
                    stack.append(self.opaque(index, str(error)))
        if len(stack) != 1:
            raise ValueError(f"{len(stack)} roots")
        return stack[0]

    # -- nodes as expressions ----------------------------------------------------------------------

    def predicate(self, node: _Node) -> Expr:
        """The node as a predicate: booleans become tests, junctions are closed."""
        if isinstance(node, _Junction):
            return node.kind(tuple(self.predicate(child) for child in node.children))
        if isinstance(node, Literal):
            return Const(node.value) if isinstance(node.value, bool) else Truth(node)
        if isinstance(node, Attribute | _Pending | FunctionValue | Cast):
            operand = self.operand(node)
            return operand if isinstance(operand, Opaque) else Truth(operand)
        return node

    def operand(self, node: _Node) -> ColumnRef | Literal | Cast | Call | Opaque:
        """The node as an operand; ``Opaque`` if the tree has no such operand."""
        if isinstance(node, FunctionValue):
            return node.call
        if isinstance(node, _Pending):
            return self.fetch([node])[0]
        if isinstance(node, Literal | Cast | Opaque):
            return node
        if isinstance(node, Attribute):
            if reason := self.why_unusable(node):
                return Opaque(".".join(node.path), reason)
            if self.atomic(node.type) is None:
                shown = node.type if isinstance(node.type, str) else node.type.get("type")
                return Opaque(".".join(node.path), f"no index can use type {shown}")
            return ColumnRef(node.path)
        return Opaque("a predicate as an operand", "no index can use a predicate as an operand")

    def argument(self, node: _Node) -> Operand:
        """The node as an operand that may be a condition; raises ``UnusableOperand``."""
        if isinstance(node, (*CONDITIONS, _Junction)):
            return self.predicate(node)
        return self.usable(node)

    def usable(self, node: _Node) -> ColumnRef | Literal | Cast | Call:
        """The node as an operand that an index can use; raises ``UnusableOperand``."""
        found = self.operand(node)
        if isinstance(found, Opaque):
            raise UnusableOperand(found.reason)
        return found

    def atomic(self, type: Any) -> pa.DataType | None:
        """The Arrow type of an atomic type in Spark's JSON; a collated string has none."""
        return parse_type(type) if isinstance(type, str) else None

    def opaque(self, index: int, reason: str) -> Opaque:
        """Node ``index`` as ``Opaque``, which prunes nothing."""
        if self.fetches > 0 or index == 0:
            self.fetches -= 1
            text = _sql(self.expression().apply(index) if index else self.expression())
        else:
            text = str(self.nodes[index]["class"]).rsplit(".", 1)[-1]
        return Opaque(text, reason)

    def setting(self, name: str) -> str | None:
        """A setting of the session, or its default, in lower case; ``None`` where there is none."""
        if name not in self.settings:
            conf = self.jvm.type("org.apache.spark.sql.internal.SQLConf").get()
            found = setting_of(conf.getConfString, name)
            self.settings[name] = None if found is None else found.lower()
        return self.settings[name]

    def node_at(self, index: int) -> JavaObject:
        """The JVM object of node ``index``; ``UnreadableLiteral`` if it may be another node's.

        Catalyst numbers nodes in preorder as the JSON lists them, but counts the plans inside
        subqueries too.
        """
        if self.fetches <= 0:
            raise UnreadableLiteral(
                f"more than {_FETCHES} values that have to be fetched one by one"
            )
        self.fetches -= 1
        if any(mark in str(node["class"]) for node in self.nodes for mark in _PLANS):
            raise UnreadableLiteral("a value next to a subquery")
        found = self.expression().apply(index) if index else self.expression()
        own = json.loads(found.toJSON())
        if own != self.nodes[index : index + len(own)]:
            raise UnreadableLiteral("a value that the JVM numbers differently")
        return found

    def fetch(self, pending: list[_Pending]) -> list[Literal | Opaque]:
        """Fetches the values of literals from the JVM."""
        out: list[Literal | Opaque] = []
        for item in pending:
            try:
                node = self.node_at(item.index)
                out.append(Literal(fetch_values(node, item.type), item.type))
            except UnreadableLiteral as error:
                out.append(Opaque("literal", str(error)))
        return out

    # -- operands: one method per class of Catalyst ------------------------------------------------

    def _AttributeReference(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        name = str(node["name"])
        if name.lower() in _METADATA_NAMES and self.is_metadata(index):
            return self.opaque(index, _METADATA)
        return Attribute((name,), node["dataType"])

    def is_metadata(self, index: int) -> bool:
        try:
            return "metadata_col" in str(self.node_at(index).metadata().json())
        except UnreadableLiteral:
            return True

    def _GetStructField(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        (parent,) = children
        if not isinstance(parent, Attribute) or not isinstance(parent.type, dict):
            return self.opaque(index, "no index can use a field of an expression")
        inner = parent.type["fields"][int(node["ordinal"])]
        kind = inner["type"]
        if isinstance(kind, str) and "__COLLATIONS" in (inner.get("metadata") or {}):
            kind = f"{kind} with a collation"
        return Attribute((*parent.path, str(inner["name"])), kind)

    def _GetMapValue(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        parent, key = children
        if (
            not isinstance(parent, Attribute)
            or not isinstance(parent.type, dict)
            or parent.type.get("keyType") != "string"
            or not isinstance(key, Literal)
            or not isinstance(key.value, str)
        ):
            return self.opaque(index, "no index can use an element of an expression")
        return Attribute((*parent.path, MapKey(key.value)), parent.type["valueType"])

    # For a map: NULL for a key that it lacks, also under ANSI rules.
    _ElementAt = _GetMapValue

    def _Literal(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        listed = node["dataType"]
        if isinstance(listed, dict) and listed.get("type") == "array" and node.get("value"):
            found: _Node = self.literal_array(index, self.element_of(listed))
            return found
        type = self.atomic(listed)
        if type is None:
            return self.opaque(index, f"no index can use type {listed}")
        text = node.get("value")
        if text is None:
            return Literal(None, type)
        if pa.types.is_binary(type) or (pa.types.is_timestamp(type) and type.tz is not None):
            return _Pending(index, type)
        if pa.types.is_string(type) and "\ufffd" in text:
            return _Pending(index, type)
        return Literal(value_of(text, type), type)

    def _Cast(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        (child,) = children
        type = self.atomic(node["dataType"])
        if self.widens_elements(child, node["dataType"]):
            return child  # array_contains and arrays_overlap do that themselves
        operand = self.operand(child)
        if isinstance(operand, Opaque):
            return operand
        if type is None:
            return self.opaque(index, f"no index can use type {node['dataType']}")
        if isinstance(child, Attribute) and child.type == node["dataType"]:
            return child  # varchar(n) leaves a cast to the same type
        mode = "ANSI"
        if pa.types.is_integer(type):
            have = self.type_of(child)
            if have is None or not (pa.types.is_integer(have) and have.bit_width <= type.bit_width):
                mode = self.eval_mode(index)
        if mode == "LEGACY":
            return self.opaque(
                index, f"without ANSI mode, a cast to {node['dataType']} wraps around"
            )
        if str(node["dataType"]).startswith("interval"):
            # Such a cast may change or cut to the unit, and Arrow has one type for all units.
            return self.opaque(index, f"a cast to {node['dataType']}")
        zone = node.get("timeZoneId")
        # Casts of an instant to a date or a text use the cast's time zone, too.
        t = pa.types
        zoned = t.is_timestamp(type) or t.is_date(type) or t.is_string(type)
        if zoned and zone is not None and zone != self.time_zone:
            return self.opaque(index, f"a cast in time zone {zone}, not the session's")
        return Cast(operand, type, mode == "TRY")

    # -- predicates --------------------------------------------------------------------------------

    def compare(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        left, right = (self.argument(child) for child in children)
        return Comparison(COMPARISONS[node["class"][len(_PACKAGE) :]], left, right)

    _EqualTo = _EqualNullSafe = _LessThan = _LessThanOrEqual = compare
    _GreaterThan = _GreaterThanOrEqual = compare

    def _In(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        operand = self.usable(children[0])
        pending = [child for child in children[1:] if isinstance(child, _Pending)]
        fetched = None
        if len(pending) > 8:
            fetched = self.fetch_list(index, children[1:])
        values: Sequence[object] = fetched or [self.operand(child) for child in children[1:]]
        literals = tuple(value for value in values if isinstance(value, Literal))
        if len(literals) != len(values):
            return self.opaque(index, "no index can use an IN list of other operands than literals")
        return Membership(operand, literals)

    def fetch_list(self, index: int, items: list[_Node]) -> list[Literal] | None:
        """Many TIMESTAMPs of one IN list in constant calls; ``None`` for other lists."""
        types = {item.type for item in items if isinstance(item, _Pending | Literal)}
        (type,) = types if len(types) == 1 else (None,)
        if type is None or not pa.types.is_timestamp(type):
            return None
        values = fetch_listed(self.jvm, self.node_at(index), len(items))
        return [Literal(value, type) for value in values]

    def _InSet(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        operand = self.usable(children[0])
        type = self.type_of(children[0])
        if type is None:
            return self.opaque(index, "an IN list of unknown type")
        values = fetch_set(self.jvm, self.node_at(index), type)
        return Membership(operand, tuple(Literal(value, type) for value in values))

    def type_of(self, node: _Node) -> pa.DataType | None:
        """The type of an operand that is not a literal."""
        if isinstance(node, Attribute):
            return self.atomic(node.type)
        return node.type if isinstance(node, Cast | FunctionValue) else None

    def _IsNull(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        return NullTest(self.argument(children[0]))

    def _IsNotNull(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        return Not(NullTest(self.argument(children[0])))

    def _IsNaN(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        operand = self.operand(children[0])
        type = self.type_of(children[0])
        if isinstance(operand, Opaque) or type is None:
            return self.opaque(index, "no index can use this operand of isnan")
        # isnan(NULL) is FALSE, so its negation matches nulls: that is <=>, not =.
        return Comparison("<=>", operand, Literal(float("nan"), type))

    def match(self, children: list[_Node]) -> tuple[ColumnRef | Cast | Call, str]:
        """The operand and the pattern of a test of strings."""
        left, right = (self.usable(child) for child in children)
        if not isinstance(left, ColumnRef | Cast | Call) or not isinstance(right, Literal):
            raise UnusableOperand("a pattern that is not a literal")
        kind = self.type_of(children[0])
        if not isinstance(right.value, str) or kind is None or not pa.types.is_string(kind):
            raise UnusableOperand("no index can use a pattern over another type than strings")
        return left, right.value

    def _StartsWith(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        operand, prefix = self.match(children)
        return PatternMatch(operand, prefix, prefix_only=True)

    def _EndsWith(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        operand, suffix = self.match(children)
        return PatternMatch(operand, f"%{plain_pattern(suffix)}")

    def _Contains(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        operand, text = self.match(children)
        return PatternMatch(operand, f"%{plain_pattern(text)}%")

    def _Like(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        operand, pattern = self.match(children)
        # ``toJSON`` prints the escape, a ``Char``, as null.
        return PatternMatch(operand, pattern, escape=str(self.node_at(index).escapeChar()))

    def _Not(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        return Not(self.predicate(children[0]))

    def junction(self, kind: type[And] | type[Or], children: list[_Node]) -> _Junction:
        left, right = children
        out = left if isinstance(left, _Junction) and left.kind is kind else _Junction(kind, [left])
        more = right.children if isinstance(right, _Junction) and right.kind is kind else [right]
        out.children.extend(more)
        return out

    def _And(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        return self.junction(And, children)

    def _Or(self, index: int, node: dict[str, Any], children: list[_Node]) -> _Node:
        return self.junction(Or, children)
