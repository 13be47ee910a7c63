"""``from_dnf``: filters as lists of tuples, in the form of pyarrow, pandas and dask.

``[[a, b], [c]]`` is ``(a AND b) OR c``; a flat list is one conjunction. A tuple is
``(column, op, value)``; the column is a dotted name (backquotes around a part that has dots) or a
sequence of names. Nulls have SQL's meaning: ``("c", "=", None)`` is never TRUE, and
``("c", "is", None)`` finds the nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from skipstone.errors import PredicateError

from .tree import And, ColumnRef, Comparison, Const, Expr, Literal, Membership, Not, NullTest, Or
from .tree import PatternMatch as Pattern
from .types import column_path

if TYPE_CHECKING:
    from typing import TypeAlias


Filter: TypeAlias = "tuple[str | Sequence[str], str, Any]"

_COMPARISONS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<=>": "<=>"} | {
    op: op for op in ("<", "<=", ">", ">=")
}


def from_dnf(filters: Sequence[Filter] | Sequence[Sequence[Filter]]) -> Expr:
    """The tree of pyarrow-style filters; ``PredicateError`` for any other shape."""
    given: Any = filters
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise PredicateError(f"filters are lists of tuples, not {type(given).__name__}")
    if given and all(_is_filter(item) for item in given):
        return _conjunction(given)
    groups = [_conjunction(group) for group in given]
    if not groups:
        return Const(True)
    return groups[0] if len(groups) == 1 else Or(tuple(groups))


def _is_filter(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 3 and isinstance(item[1], str)


def _conjunction(group: Any) -> Expr:
    if isinstance(group, str) or not isinstance(group, Sequence):
        raise PredicateError(f"a filter is a tuple (column, op, value), not {group!r}")
    parts = [_filter(item) for item in group]
    if not parts:
        return Const(True)
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _filter(item: Any) -> Expr:
    if not _is_filter(item):
        raise PredicateError(f"a filter is a tuple (column, op, value), not {item!r}")
    name, spelled, value = item
    path = column_path(name) if isinstance(name, str) else tuple(name)
    column, op = ColumnRef(path), " ".join(spelled.lower().split())
    if op in _COMPARISONS:
        return Comparison(_COMPARISONS[op], column, Literal(value))
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise PredicateError(f"{op!r} takes a list of values, not {value!r}")
        found: Expr = Membership(column, tuple(Literal(one) for one in value))
        return found if op == "in" else Not(found)
    if op in ("is", "is not") and value is None:
        return NullTest(column) if op == "is" else Not(NullTest(column))
    if op in ("like", "not like", "startswith", "starts with") and isinstance(value, str):
        found = Pattern(column, value, prefix_only=op.startswith("start"))
        return Not(found) if op.startswith("not") else found
    raise PredicateError(
        f"no operator {spelled!r} with {type(value).__name__} in a filter",
        hint="operators are = != < <= > >= <=> in, not in, is, is not, like, not like, startswith",
    )
