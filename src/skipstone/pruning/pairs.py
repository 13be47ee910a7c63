"""Conditions that are decided together: comparisons of two columns of a row (``Pair``), by the
bounds of both, and several conditions on one column (``Joint``), by its values.

For the values a and b of a row of a unit, ``lo(a) <= a <= hi(a)`` and ``lo(b) <= b <= hi(b)``. So
no row of the unit matches

| comparison | where |
|---|---|
| ``a < b`` | ``lo(a) >= hi(b)`` |
| ``a <= b`` | ``lo(a) > hi(b)`` |
| ``a = b`` | ``lo(a) > hi(b)``, or ``lo(b) > hi(a)`` |

and none in a unit where a column is null in every row. ``a > b`` is ``b < a``. This never proves
that a row matches: the comparison next to the leaf decides that.

Keys of the two columns are compared only if they have the same domain (``Bounded.domain``).

A unit with the values 3 and 90 has one that matches ``x > 10`` and one that matches ``x < 20``, but
none that matches ``x BETWEEN 10 AND 20``. So an AND of such conditions on one column gets a leaf
that restates them together. Evidence that knows all values of a unit answers it (``asks_jointly``):
a value list, and a dictionary. For the bounds of a column and for Bloom filters, it proves no more
than the conditions one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from skipstone.predicate.tree import (
    ELEMENTS,
    FLIPPED,
    And,
    Joint,
    Leaf,
    Op,
    Or,
    Pair,
    is_expression,
    leaves,
)

from . import Answer, BaseEvidence, Bounds, Cause
from .interval import pairwise

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from skipstone.predicate.tree import Bound

    from . import BoolArray, Evidence, Fetched, Units
    from .interval import Intervals


class Bounded(NamedTuple):
    """Bounds over some units; keys of equal ``domain`` compare as the values do."""

    intervals: Intervals
    domain: Hashable


@runtime_checkable
class HasBounds(Protocol):
    """Evidence that has bounds of its column."""

    def bounded(self, units: Units) -> Sequence[Bounded]:
        """Bounds over ``units``, in parts that each know some of them."""


_JOINT = frozenset(Op) - {Op.IS_NULL, Op.NOT_NULL, Op.NE_OR_NULL}
# More conditions on one column than these are decided one by one.
_MOST = 16


def with_joint(tree: Bound) -> Bound:
    """The tree with a ``Joint`` in each AND of several conditions on one column. The elements of a
    list get none: each condition may match another element."""
    if not isinstance(tree, And | Or):
        return tree
    children: list[Bound] = [with_joint(child) for child in tree.children]  # type: ignore[arg-type]
    by_column: dict[str, list[Leaf]] = {}
    for child in children if isinstance(tree, And) else ():
        if isinstance(child, Leaf) and child.op in _JOINT and not isinstance(child, Joint | Pair):
            by_column.setdefault(child.column, []).append(child)
    for column, parts in by_column.items():
        elements = is_expression(column) and f"{ELEMENTS}(" in column
        if 1 < len(parts) <= _MOST and not elements:
            children.append(Joint.of(tuple(parts)))
    return type(tree)(tuple(children))


def with_pairs(tree: Bound, evidence: Sequence[Evidence[Leaf]]) -> list[Evidence[Leaf]]:
    """The evidence, and evidence about pairs of columns that is made of it."""
    found = list(evidence)
    for leaf in leaves(tree):
        if isinstance(leaf, Pair):
            left, right = (
                [each for each in evidence if each.column == name and isinstance(each, HasBounds)]
                for name in (leaf.left, leaf.right)
            )
            if left and right:
                found.append(PairBounds(leaf, left, right))
    return found


class PairBounds(BaseEvidence):
    """What the bounds of two columns say about a comparison of them; see the module."""

    def __init__(
        self,
        pair: Pair,
        left: Sequence[Evidence[Leaf]],
        right: Sequence[Evidence[Leaf]],
    ) -> None:
        self.column, self.left, self.right = pair.column, left, right
        self.name, self.level, self.cost = left[0].name, left[0].level, left[0].cost

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf, over exactly these units."""
        left, right = (
            [part for each in items if isinstance(each, HasBounds) for part in each.bounded(units)]
            for items in (self.left, self.right)
        )
        return [self._answer(leaf, left, right, len(units)) for leaf in leaves]

    def _answer(
        self, leaf: Leaf, left: Sequence[Bounded], right: Sequence[Bounded], count: int
    ) -> Answer:
        if not isinstance(leaf, Pair):
            return self.silent(leaf)
        none = np.zeros(count, np.bool_)
        for each in (*left, *right):
            rows, nulls = each.intervals.rows, each.intervals.nulls
            none |= (nulls == rows) & (rows > 0)
        said = False
        for a in left:
            for b in right:
                if a.domain == b.domain:
                    said = True
                    none |= _none(leaf.relation, a.intervals, b.intervals)
        if not said and not none.any():
            text = "the bounds of the two columns do not compare"
            return Answer.silent(Cause.NOT_APPLICABLE, self.subject, text)
        return Answer(bounds=Bounds(np.zeros(count, np.bool_), ~none))


def _none(relation: str, a: Intervals, b: Intervals) -> BoolArray:
    if relation in (">", ">="):
        relation, a, b = FLIPPED[relation], b, a
    if relation == "<":
        return pairwise(a.lo, b.hi, "greater_equal")
    above = pairwise(a.lo, b.hi, "greater")
    return above if relation == "<=" else above | pairwise(b.lo, a.hi, "greater")
