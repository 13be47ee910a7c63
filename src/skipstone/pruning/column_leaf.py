"""A leaf in the table's type as the equal leaf in the type that the column had when it was indexed.

A table's column may have been widened since. What was indexed then is asked only where every stored
value is that same value in the table's type, and then with the set of values that the leaf means,
carried back (``predicate/preimage.py``): over a column that was int, ``c < 3000000000`` is TRUE
for all non-null values, and ``c = 1.5`` for none. The one place where all kinds ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from skipstone.predicate.coercion import Unusable
from skipstone.predicate.preimage import carry_back, leaves_of, range_key, ranges_of
from skipstone.predicate.tree import And, Const, Leaf, Op
from skipstone.predicate.types import Kind, kind_of, spark_type

from .column_types import is_text, widens

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.predicate.text import Value

__all__ = ["Local", "localise"]

Local: TypeAlias = "Leaf | Const"


def localise(leaf: Leaf, stored: pa.DataType) -> Local | None:
    """The leaf over values of type ``stored`` that is TRUE for the same rows, or ``None``.

    ``Const`` where no row or every row matches; a leaf on values may become NOT_NULL.
    """
    if leaf.type == stored:
        return leaf
    local = spark_type(stored)
    if local is None:
        return None
    if local == leaf.type or leaf.op in (Op.IS_NULL, Op.NOT_NULL):
        return Leaf(leaf.column, local, leaf.op, leaf.values)
    # Bytes have no ranges of numbers, and an interval is another reading of its number.
    if is_text(leaf.type) or kind_of(leaf.type) is Kind.DURATION or not widens(local, leaf.type):
        return None
    try:
        if leaf.op in (Op.IN, Op.NOT_IN):
            return _members(leaf, local)
        if leaf.op is Op.NE_OR_NULL:
            found = _carry(leaf, "=", leaf.values[0], local)
            if isinstance(found, Const):
                return Const(True)
            return Leaf(leaf.column, local, Op.NE_OR_NULL, found.values) if found else None
        return _carry(leaf, str(leaf.op), leaf.values[0], local)
    except Unusable:
        return None


def _carry(leaf: Leaf, op: str, value: Value, local: pa.DataType) -> Local | None:
    ranges = ranges_of(op, range_key(value, leaf.type), leaf.type)
    found = leaves_of(leaf.column, local, carry_back(ranges, local, leaf.type, None))
    if isinstance(found, And) and op in _SIDE:
        # The other side is the last date that microseconds can hold: no row is beyond it.
        sides = [each for each in found.children if isinstance(each, Leaf)]
        return next((each for each in sides if each.op is _SIDE[op]), None)
    return found if isinstance(found, Leaf | Const) else None


_SIDE = {"<": Op.LE, "<=": Op.LE, ">": Op.GE, ">=": Op.GE}


def _members(leaf: Leaf, local: pa.DataType) -> Local | None:
    """IN and NOT IN member by member: a list that became ranges would be no leaf."""
    values: list[Value] = []
    for value in leaf.values:
        found = _carry(leaf, "=", value, local)
        if isinstance(found, Leaf) and found.op is Op.EQ:
            values.append(found.values[0])
        elif found != Const(False):
            return None
    if not values:
        return Const(False) if leaf.op is Op.IN else Leaf(leaf.column, local, Op.NOT_NULL)
    return Leaf(leaf.column, local, leaf.op, tuple(values))
