"""Evaluates a bound predicate on the rows of an Arrow table, or on values, exactly as Spark does.

NaN equals NaN and is the largest value, 0.0 equals -0.0, strings compare as UTF-8, and a null
matches only tests for null: the keys (``predicate/literals.py``) implement all of that. A part of a
predicate that Skipstone does not model (``Opaque``) raises ``UnsupportedError``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, numbers, validity, whole
from skipstone.errors import ExpressionError, UnsupportedError
from skipstone.predicate.kernels.patterns import hits
from skipstone.predicate.literals import compare, order_key, order_keys, stored
from skipstone.predicate.members import isin, keys_among
from skipstone.predicate.tree import (
    POSITIVE,
    And,
    Bound,
    Computed,
    Const,
    Joint,
    Leaf,
    Op,
    Opaque,
    columns_read,
    leaves,
    pieces,
)
from skipstone.predicate.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.literals import Keys

    from .sought import Sought

from .column_types import lists_of, without_views
from .sought import sought

BoolArray: TypeAlias = "NDArray[np.bool_]"

# Rows that are evaluated together. The keys of a column take up to 9 bytes a row.
_SLICE = 1 << 22


class CodedValues(Protocol):
    """The values of rows, decoded when they are needed."""

    @property
    def cost(self) -> int:
        """What it takes to decode them all, in bytes."""

    def matches(self, exact: Callable[[pa.Array], BoolArray], sought: Sought) -> BoolArray:
        """For each row whether ``exact`` holds for its value; False for nulls."""

    def valid(self) -> BoolArray:
        """For each row whether it is not null."""

    def at(self, rows: NDArray[np.int64]) -> CodedValues:
        """Some rows, ascending."""

    def to_arrow(self) -> pa.Array:
        """The values."""


Column: TypeAlias = "pa.ChunkedArray | pa.Array | CodedValues"


def require_decidable(tree: Bound) -> None:
    """``UnsupportedError`` where a part of the predicate is opaque."""
    for node in pieces(tree):
        if isinstance(node, Opaque) and not isinstance(node, Computed):
            hint = "the documentation, on expressions, lists what is decided: query with the"
            hint += " other conditions, and filter the rows by this one in an engine"
            if (instead := _instead(node.reason)) is not None:
                hint = instead
            elif "||" in node.sql:
                hint = "|| joins texts in Spark SQL: write OR for a choice of conditions"
            elif ": " in node.reason and ("literal" in node.reason or "compare:" in node.reason):
                hint = "write the value as the type of the column"
            elif node.reason.startswith("key "):
                hint = "give keys of the type of the column: pyarrow.array(keys, type)"
            raise UnsupportedError(f"cannot decide {node.sql}: {node.reason}", hint=hint)


_NESTED = re.compile(r"no index supports column (.+?): type (struct|(?:large_)?list|map)\b")


def _instead(reason: str) -> str | None:
    """What to write in place of a condition that compares what has no order."""
    if "is used as a predicate" in reason:
        return "compare it with a value, as in id = 42"
    if reason.endswith("bigint and interval do not compare"):
        return "a duration is a whole number of the unit of its column: compare it with a number"
    nested = _NESTED.match(reason) if "do not compare" in reason else None
    if nested is None:
        return None
    name, kind = nested.groups()
    if kind == "struct":
        return f"compare a field of it, as in {name}.FIELD = 42"
    if kind == "map":
        return f"compare the value of a key, as in {name}['KEY'] = 42"
    return f"look for an element: array_contains({name}, 42)"


def matching(tree: Bound, columns: Mapping[str, Column], rows: int, path: str = "") -> BoolArray:
    """Flags of the matching rows, ``(rows,)``; ``columns`` by the names in the leaves.

    ``UnsupportedError`` where values of the file at ``path`` do not fit the type of their column.
    """
    arrays = {
        name: column
        for name, column in columns.items()
        if isinstance(column, pa.ChunkedArray | pa.Array)
    }
    if rows <= _SLICE or len(arrays) < len(columns):
        return _Evaluation(columns, rows, path).of(tree)
    made = np.empty(rows, np.bool_)
    for start in range(0, rows, _SLICE):
        part = {name: column.slice(start, _SLICE) for name, column in arrays.items()}
        count = min(_SLICE, rows - start)
        made[start : start + count] = _Evaluation(part, count, path).of(tree)
    return made


def unfit(column: str, have: pa.DataType, type: pa.DataType, path: str) -> UnsupportedError:
    """The error for values of ``have`` that do not fit ``type``, the type of their column."""
    where = f" of {path}" if path else ""
    return UnsupportedError(
        f"{column}{where} is {have}, and has a value that does not fit {type}",
        hint="Spark fails on it too: leave the file out, or write it with another type",
    )


class _Evaluation:
    def __init__(self, columns: Mapping[str, Column], rows: int, path: str) -> None:
        self.columns, self.rows, self.path = columns, rows, path
        self.keys: dict[tuple[str, pa.DataType], Keys] = {}

    def of(self, tree: Bound) -> BoolArray:
        if isinstance(tree, Leaf):
            return self.leaf(tree)
        if isinstance(tree, Const):
            return np.full(self.rows, tree.value)
        if isinstance(tree, Computed):
            return self._computed(tree)
        if isinstance(tree, Opaque):
            require_decidable(tree)
        assert not isinstance(tree, Opaque)
        children = cast("list[Bound]", sorted(tree.children, key=self._order))
        if isinstance(tree, And):
            return self._all(children)
        result = np.zeros(self.rows, np.bool_)
        for child in children:
            if _is_computed(child):
                # As in SQL, what may fail sees only the rows that it decides.
                open_rows = np.flatnonzero(~result)
                result[open_rows] = self._at(child, open_rows)
            else:
                result |= self.of(child)
        return result

    def _order(self, tree: Bound) -> tuple[bool, int]:
        """Conditions that are computed come after those that are not, in the order as written."""
        return (True, 0) if _is_computed(tree) else (False, self._cost(tree))

    def _at(self, tree: Bound, at: NDArray[np.int64]) -> BoolArray:
        if len(at) == self.rows:
            return self.of(tree)
        part = {name: _some(self.columns[name], at) for name in columns_read(tree)}
        return _Evaluation(part, len(at), self.path).of(tree)

    def _computed(self, tree: Computed) -> BoolArray:
        from skipstone.predicate.kernels.rows import true_rows

        arrays = {}
        for name, type in tree.typed.columns():
            column = self.columns[name]
            if not isinstance(column, pa.ChunkedArray | pa.Array):
                column = column.to_arrow()
            column = _whole(column)
            try:
                # A type without an order, such as TIME or a list, is only asked for nulls.
                has_order = spark_type(type) is not None
                arrays[name] = stored(column, type) if has_order else _plain(column)
            except pa.ArrowInvalid as error:
                raise unfit(name, column.type, type, self.path) from error
        try:
            return true_rows(tree.typed, arrays, self.rows, tree.zone, tree.sql)
        except ExpressionError as error:
            message = f"{self.path}: {error.message}" if self.path else error.message
            raise ExpressionError(message, hint=error.hint) from None

    def _all(self, children: Sequence[Bound]) -> BoolArray:
        """Flags of the rows where all conditions hold. Columns that are not decoded yet are decoded
        only for the rows that are left, if these are few."""
        result = np.ones(self.rows, np.bool_)
        for child in children:
            left = np.count_nonzero(result)
            if not left:
                break
            few = left <= _FEW * self.rows and self._cost(child)
            if few or (left < self.rows and _is_computed(child)):
                at = np.flatnonzero(result)
                result[at] = self._at(child, at)
            else:
                result &= self.of(child)
        return result

    def _cost(self, tree: Bound) -> int:
        """Bytes to decode for a condition; the levels alone are half of the work."""
        cost = 0
        for leaf in leaves(tree):
            column = self.columns[leaf.column]
            if not isinstance(column, pa.ChunkedArray | pa.Array):
                cost += column.cost >> (leaf.op in (Op.IS_NULL, Op.NOT_NULL))
        return cost

    def leaf(self, leaf: Leaf) -> BoolArray:
        column = self.columns[leaf.column]
        if not isinstance(column, pa.ChunkedArray | pa.Array):
            return self._coded(leaf, column)
        match leaf.op:
            case Op.IS_NULL:
                return ~validity(_whole(column))
            case Op.NOT_NULL:
                return validity(_whole(column))
            case Op.LIKE | Op.NOT_LIKE | Op.STARTS_WITH | Op.NOT_STARTS_WITH:
                return _text(leaf, column)
        if isinstance(column, pa.DictionaryArray) and _is_dense(column.dictionary):
            return self._coded(leaf, _Coded(column))
        compared = _floats(leaf, column)
        if compared is not None:
            return compared
        keys = self.keys.get((leaf.column, leaf.type))
        if keys is None:
            try:
                keys = self.keys[leaf.column, leaf.type] = order_keys(column, leaf.type)
            except pa.ArrowInvalid as error:
                raise unfit(leaf.column, column.type, leaf.type, self.path) from error
        if leaf.op is Op.NE_OR_NULL:
            return ~compare(keys, Op.EQ, order_key(leaf.values[0], leaf.type))
        return matching_values(leaf, keys)

    def _coded(self, leaf: Leaf, column: CodedValues) -> BoolArray:
        """The leaf, decided for values that are decoded when they are needed."""
        if leaf.op in (Op.IS_NULL, Op.NOT_NULL):
            return column.valid() ^ (leaf.op is Op.IS_NULL)
        op = Op.EQ if leaf.op is Op.NE_OR_NULL else POSITIVE.get(leaf.op, leaf.op)
        positive = replace(leaf, op=op)

        def exact(words: pa.Array) -> BoolArray:
            return _Evaluation({leaf.column: words}, len(words), self.path).leaf(positive)

        found = column.matches(exact, sought(positive))
        if leaf.op is Op.NE_OR_NULL:
            return ~found
        return found if leaf.op is positive.op else column.valid() & ~found


# Above this share of rows, columns are decoded for all of them.
_FEW = 1 / 8


def _some(column: Column, at: NDArray[np.int64]) -> Column:
    if not isinstance(column, pa.ChunkedArray | pa.Array):
        return column.at(at)
    return pc.take(_plain(column), arrow(at))


def _plain(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """The values without views: few kernels of Arrow know them."""
    type = column.type
    if pa.types.is_list_view(type) or pa.types.is_large_list_view(type):
        return lists_of(_whole(column))
    type = without_views(type)
    return column if type == column.type else column.cast(type)


def _is_computed(tree: Bound) -> bool:
    return any(isinstance(node, Computed) for node in pieces(tree))


def _is_dense(words: pa.Array) -> bool:
    return bool(len(words)) and not words.null_count


class _Coded:
    """An Arrow array as ``CodedValues``."""

    cost = 0

    def __init__(self, array: pa.DictionaryArray) -> None:
        self.array = array

    def matches(self, exact: Callable[[pa.Array], BoolArray], sought: Sought) -> BoolArray:
        flags = arrow(exact(self.array.dictionary).view(np.uint8))
        # Arrow takes bytes faster than NumPy does, and without the lock of the interpreter.
        return numbers(pc.take(flags, self.array.indices), 0).view(np.bool_)

    def valid(self) -> BoolArray:
        return validity(self.array)

    def to_arrow(self) -> pa.Array:
        return self.array

    def at(self, rows: NDArray[np.int64]) -> _Coded:
        return _Coded(pc.take(self.array, arrow(rows)))


def _floats(leaf: Leaf, column: pa.ChunkedArray | pa.Array) -> BoolArray | None:
    """A comparison of floats without keys; ``None`` for any other leaf.

    The order of IEEE is that of the keys, except that NaN equals NaN and is the largest value.
    """
    if leaf.op not in _COMPARED or not pa.types.is_floating(column.type):
        return None
    if not pa.types.is_floating(leaf.type) or pa.types.is_float16(column.type):
        return None
    nulls = column.null_count
    values = numbers(_whole(column))
    # A NumPy number, so that narrower values are widened for it.
    bound, op = np.float64(leaf.values[0]), leaf.op
    if np.isnan(bound):
        is_nan = np.isnan(values)
        never = np.zeros(len(values), np.bool_)
        by_op = {Op.EQ: is_nan, Op.GE: is_nan, Op.NE: ~is_nan, Op.LT: ~is_nan, Op.LE: ~never}
        found = by_op.get(op, never)
    elif op in (Op.EQ, Op.NE):
        found = (values == bound) ^ (op is Op.NE)
    elif op in (Op.LT, Op.GE):
        found = (values < bound) ^ (op is Op.GE)
    else:
        found = (values <= bound) ^ (op is Op.GT)
    return np.asarray(found & validity(_whole(column)) if nulls else found, np.bool_)


_COMPARED = {Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE}


def matching_values(leaf: Leaf, keys: Keys) -> BoolArray:
    """Per value: whether the leaf is TRUE; a null matches nothing here."""
    if isinstance(leaf, Joint):
        every = [matching_values(part, keys) for part in leaf.parts]
        return np.asarray(np.logical_and.reduce(every))
    op, type = leaf.op, leaf.type
    if op in (Op.IN, Op.NOT_IN):
        member = isin(keys, keys_among(leaf))
        return member if op is Op.IN else keys.valid & ~member
    if op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        found = _flags(pc.starts_with(keys.data, order_key(leaf.values[0], type)))
        return found & keys.valid if op is Op.STARTS_WITH else keys.valid & ~found
    if op in (Op.LIKE, Op.NOT_LIKE):
        found = _flags(_hits(leaf, keys.data))
        return found & keys.valid if op is Op.LIKE else keys.valid & ~found
    ordered = Op.NE if op is Op.NE_OR_NULL else op
    return compare(keys, ordered, order_key(leaf.values[0], type))


def _text(leaf: Leaf, column: pa.ChunkedArray | pa.Array) -> BoolArray:
    """LIKE and STARTS WITH."""
    column = _whole(column)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.binary())
    if pa.types.is_dictionary(column.type):
        flags = pc.take(_hits(leaf, column.dictionary), column.indices)
    else:
        flags = _hits(leaf, column)
    found = _flags(flags)
    if leaf.op in (Op.NOT_LIKE, Op.NOT_STARTS_WITH):
        return validity(_whole(flags)) & ~found
    return found


def _hits(leaf: Leaf, words: pa.Array) -> pa.BooleanArray:
    return hits(leaf.op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH), leaf.values, words)


def _flags(found: pa.ChunkedArray | pa.Array) -> BoolArray:
    """Booleans as NumPy has them; null is False."""
    return np.asarray(numbers(_whole(found)), np.bool_)


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else whole(column)
    return column
