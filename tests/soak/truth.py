"""For which rows a predicate is true: the oracle, asked once per distinct value of a column.

Three-valued: two arrays of booleans, one for TRUE and one for FALSE; NULL is neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.predicate.tree import (
    And,
    Cast,
    ColumnRef,
    Comparison,
    Not,
    Opaque,
    Or,
    PatternMatch,
)
from tests.oracle import MAYBE, NotModelled, Oracle, sort_key
from tests.oracle_values import values_of
from tests.soak.functions import Function, function_of
from tests.soak.values import is_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.predicate.tree import Expr


@dataclass(frozen=True, eq=False)
class Values:
    """A column: its distinct values, and which of them each row has."""

    distinct: list[Any]
    codes: NDArray[np.int64]

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """Per row the place of its value in Spark's order; -1 for null."""
        known = sorted({_key(each) for each in self.distinct if each is not None})
        place = {key: at for at, key in enumerate(known)}
        ranks = [-1 if each is None else place[_key(each)] for each in self.distinct]
        return np.array(ranks, np.int64)[self.codes]


def _key(value: Any) -> Any:
    return sort_key(value)


@dataclass(eq=False)
class RowsInMemory:
    """The rows of a table, and what was asked of them before."""

    table: pa.Table
    columns: dict[tuple[str, ...], Values] = field(default_factory=dict)

    def values(self, path: tuple[str, ...]) -> Values:
        """The values of the column at ``path``, names without regard to case."""
        lower = tuple(part.lower() for part in path)
        found = self.columns.get(lower)
        if found is None:
            array = self.array(path)
            seen: dict[str, int] = {}
            codes: list[int] = []
            distinct: list[Any] = []
            for each in values_of(array):
                key = repr(each)
                if key not in seen:
                    seen[key] = len(distinct)
                    distinct.append(each)
                codes.append(seen[key])
            found = self.columns[lower] = Values(distinct, np.array(codes, np.int64))
        return found

    def array(self, path: tuple[str, ...]) -> pa.Array:
        """The column at ``path``; a field of a null struct is null."""
        at = [name.lower() for name in self.table.column_names].index(path[0].lower())
        array = self.table.column(at).combine_chunks()
        for part in path[1:]:
            names = [array.type.field(i).name.lower() for i in range(array.type.num_fields)]
            array = array.flatten()[names.index(part.lower())]
        return array

    def matching(self, tree: Expr, zone: str) -> NDArray[np.int64]:
        """The rows for which ``tree`` is TRUE; raises as the oracle does."""
        oracle = Oracle(self.table.schema, zone)
        try:
            true, _ = self._truth(oracle, tree)
        except OverflowError as error:
            raise NotModelled(f"Python has no such date: {error}") from None
        return np.flatnonzero(true)

    def _truth(self, oracle: Oracle, tree: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        if isinstance(tree, And | Or):
            parts = [self._truth(oracle, child) for child in tree.children]
            every, some = np.logical_and.reduce, np.logical_or.reduce
            trues, falses = ([part[i] for part in parts] for i in (0, 1))
            if isinstance(tree, And):
                return every(trues), some(falses)
            return some(trues), every(falses)
        if isinstance(tree, Not):
            true, false = self._truth(oracle, tree.child)
            return false, true
        column, ask = self._asked(oracle, tree)
        values = self.values(column)
        answers = [ask(each) for each in values.distinct]
        if any(each is MAYBE for each in answers):
            raise NotModelled("an opaque part")
        true = np.array([each is True for each in answers], np.bool_)
        false = np.array([each is False for each in answers], np.bool_)
        return true[values.codes], false[values.codes]

    def _asked(self, oracle: Oracle, leaf: Any) -> tuple[tuple[str, ...], Any]:
        """The one column of a leaf, and the leaf's truth for each of its values."""
        if isinstance(leaf, Opaque):
            function: Function = function_of(leaf)
            return function.column, function.truth
        path = column_of(leaf)

        def ask(value: Any) -> Any:
            if isinstance(leaf, PatternMatch) and value is not None and not is_text(value):
                return spelled(leaf, value)
            row: Any = value
            for name in reversed(self._spelled(path)):
                row = {name: row}
            return oracle.truth(leaf, row)

        return path, ask

    def _spelled(self, path: tuple[str, ...]) -> list[str]:
        fields, names = list(self.table.schema), []
        for part in path:
            found = next(f for f in fields if f.name.lower() == part.lower())
            names.append(found.name)
            fields = list(found.type) if pa.types.is_struct(found.type) else []
        return names


def spelled(leaf: PatternMatch, value: str) -> bool:
    """Whether bytes that are not UTF-8 begin as the pattern of ``leaf`` does."""
    if not leaf.prefix_only:
        raise NotModelled("LIKE of bytes that are not UTF-8")
    return value.startswith(leaf.pattern)


def column_of(leaf: Any) -> tuple[str, ...]:
    """The column that a leaf is about."""
    operands = (leaf.left, leaf.right) if isinstance(leaf, Comparison) else (leaf.operand,)
    for operand in operands:
        while isinstance(operand, Cast):
            operand = operand.operand
        if isinstance(operand, ColumnRef):
            return operand.path
    raise NotModelled("a leaf without a column")
