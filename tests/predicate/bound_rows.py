"""Which rows a bound tree is TRUE for, row by row and from the table in ``tree.py`` alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from skipstone.predicate.tree import And, Bound, Const, Leaf, Op, Opaque, Or
from skipstone.predicate.types import column_path
from tests.oracle import kind_of, place_of, rows_of, sort_key, value_at

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of_bound(tree: Bound, table: pa.Table, *, opaque: bool) -> list[int]:
    """Positions of the rows for which ``tree`` is TRUE, an ``Opaque`` counting as ``opaque``."""
    return [at for at, row in enumerate(rows_of(table)) if _true(tree, row, table.schema, opaque)]


def opaques(tree: Any) -> list[Opaque]:
    """The opaque nodes of a bound tree."""
    if isinstance(tree, And | Or):
        return [found for child in tree.children for found in opaques(child)]
    return [tree] if isinstance(tree, Opaque) else []


def _true(tree: Any, row: dict[str, Any], schema: pa.Schema, opaque: bool) -> bool:
    match tree:
        case And():
            return all(_true(child, row, schema, opaque) for child in tree.children)
        case Or():
            return any(_true(child, row, schema, opaque) for child in tree.children)
        case Const():
            return tree.value
        case Opaque():
            return opaque
        case Leaf():
            return _leaf(tree, row, schema)
    raise TypeError(f"{tree!r} has no place in a bound tree")


def _leaf(leaf: Leaf, row: dict[str, Any], schema: pa.Schema) -> bool:
    value = value_at(row, place_of(schema, column_path(leaf.column))[0])
    if leaf.op is Op.IS_NULL:
        return value is None
    if leaf.op is Op.NOT_NULL:
        return value is not None
    kind, _, _, scale = kind_of(leaf.type)
    if value is None:
        return leaf.op is Op.NE_OR_NULL
    if leaf.op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        return value.startswith(leaf.values[0]) is (leaf.op is Op.STARTS_WITH)
    if leaf.op in (Op.LIKE, Op.NOT_LIKE):
        pattern, escape, prefix = map(str, leaf.values)
        matched = _like(value, pattern, escape)
        assert not matched or value.startswith(prefix)
        return matched is (leaf.op is Op.LIKE)
    # The stored domain: a decimal is its unscaled integer.
    mine = sort_key(value * 10**scale if kind == "decimal" else value)
    asked = [sort_key(other) for other in leaf.values]
    truth: dict[Op, bool] = {
        Op.EQ: mine == asked[0],
        Op.NE: mine != asked[0],
        Op.NE_OR_NULL: mine != asked[0],
        Op.LT: mine < asked[0],
        Op.LE: mine <= asked[0],
        Op.GT: mine > asked[0],
        Op.GE: mine >= asked[0],
        Op.IN: mine in asked,
        Op.NOT_IN: mine not in asked,
    }
    return truth[leaf.op]


def _like(text: str, pattern: str, escape: str) -> bool:
    out, at = "", 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            out += re.escape(pattern[at])
        else:
            out += {"_": ".", "%": ".*"}.get(pattern[at]) or re.escape(pattern[at])
        at += 1
    return bool(re.fullmatch(out, text, re.DOTALL))
