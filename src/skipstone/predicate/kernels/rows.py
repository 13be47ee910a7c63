"""Evaluates typed expressions on Arrow arrays, with Spark's meaning under ANSI rules.

A kernel takes the values of its arguments and gives an array; a constant argument is a scalar,
except that the first argument is always an array. Kernels work on whole arrays. Those over text
that Arrow does otherwise than Java decide distinct values one by one.

**What is not needed is not evaluated**: a branch of a CASE, a later argument of ``coalesce`` and
the right side of AND and OR get only the rows that need them. A division by zero fails only where
Spark divides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, numbers, ordinals, validity
from skipstone.errors import ExpressionError, UnsupportedError

from ..literals import order_keys
from ..members import isin, keys_of
from ..typed import INTERVAL_TYPE, Typed, scalar
from . import casts, patterns, text, times
from . import numbers as arithmetic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ..zones import Zone

Datum: TypeAlias = "pa.Array | pa.Scalar"
Flags: TypeAlias = "NDArray[np.bool_]"


class RowValues:
    """The columns of some rows; what is computed for all of them is kept."""

    def __init__(self, columns: Mapping[str, pa.Array], count: int, session: Zone | None) -> None:
        self.columns, self.count, self.session = columns, count, session
        self._known: dict[Typed, pa.Array] = {}

    def where(self, flags: Flags) -> RowValues:
        at = arrow(np.flatnonzero(flags))
        taken = {name: column.take(at) for name, column in self.columns.items()}
        return RowValues(taken, len(at), self.session)

    # -- values ------------------------------------------------------------------------------------

    def of(self, node: Typed) -> pa.Array:
        """The values of an expression."""
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._computed(node)
        return found

    def datum(self, node: Typed) -> Datum:
        return scalar(node.value, node.type) if node.is_constant else self.of(node)

    def _computed(self, node: Typed) -> pa.Array:
        if node.kernel == "column":
            return self.columns[node.value]
        if node.kernel == "constant":
            return pa.repeat(scalar(node.value, node.type), self.count)
        lazy = _LAZY.get(node.kernel)
        if lazy is not None:
            return lazy(self, node)
        values: list[Any] = [
            self.of(arg) if not at else arg.value if arg.type == INTERVAL_TYPE else self.datum(arg)
            for at, arg in enumerate(node.args)
        ]
        if node.kernel in _UNICODE:
            for arg, each in zip(node.args, values, strict=True):
                _require_utf8(arg, each)
        found = _KERNELS[node.kernel](node, values, self.session)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def only(self, node: Typed, flags: Flags) -> Datum:
        """The values of an expression, which are only needed where ``flags`` say so; others may be
        null."""
        if node.is_constant or node.kernel == "column" or flags.all():
            return self.datum(node)
        if not any(each.kernel in _FALLIBLE for each in node.nodes()):
            return self.of(node)
        some = self.where(flags).of(node)
        places = np.cumsum(flags) - 1
        return some.take(pa.array(places, mask=~flags))

    # -- kernels that need not see all rows --------------------------------------------------------

    def both(self, node: Typed) -> pa.Array:
        """AND of SQL."""
        found = self.of(node.args[0])
        for arg in node.args[1:]:
            found = pc.and_kleene(found, self.only(arg, _open(found, True)))
        return found

    def either(self, node: Typed) -> pa.Array:
        """OR of SQL."""
        found = self.of(node.args[0])
        for arg in node.args[1:]:
            found = pc.or_kleene(found, self.only(arg, _open(found, False)))
        return found

    def case(self, node: Typed) -> pa.Array:
        """``condition, value, …, else``."""
        left = np.ones(self.count, np.bool_)
        found = pa.nulls(self.count, node.type)
        *pairs, otherwise = node.args
        for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
            asked = self.only(condition, left)
            if isinstance(asked, pa.Scalar):
                asked = pa.repeat(asked, self.count)
            hit = left & numbers(asked)
            found = pc.if_else(arrow(hit), self.only(value, hit), found)
            left &= ~hit
        return pc.if_else(arrow(left), self.only(otherwise, left), found)

    def coalesced(self, node: Typed) -> pa.Array:
        found = self.of(node.args[0])
        for arg in node.args[1:]:
            found = pc.coalesce(found, self.only(arg, ~validity(found)))
        return found


def _open(found: pa.Array, neutral: bool) -> Flags:
    """The rows for which AND or OR needs its next argument."""
    known: Flags = np.asarray(numbers(found), np.bool_) == neutral
    return known | ~validity(found)


_LAZY: dict[str, Callable[[RowValues, Typed], pa.Array]] = {
    "and": RowValues.both,
    "or": RowValues.either,
    "case": RowValues.case,
    "coalesce": RowValues.coalesced,
}


def true_rows(
    node: Typed, columns: Mapping[str, pa.Array], rows: int, session: Zone | None, text: str
) -> Flags:
    """For each row whether a boolean expression is TRUE; ``ExpressionError`` where it fails."""
    return np.asarray(numbers(values_of(node, columns, rows, session, text)), np.bool_)


def values_of(
    node: Typed, columns: Mapping[str, pa.Array], rows: int, session: Zone | None, text: str
) -> pa.Array:
    """The value of an expression in each row; ``ExpressionError`` where it fails."""
    try:
        return RowValues(columns, rows, session).of(node)
    except arithmetic.Failure as failure:
        hint = ExpressionError.default_hint + (failure.instead and f", or {failure.instead}")
        raise ExpressionError(f"{failure} in {text}", hint=hint) from None


def _require_utf8(node: Typed, words: Any) -> None:
    """Raises ``UnsupportedError`` if bytes of a column, a list, a map or a binary value are not
    UTF-8, where code points are needed. The kernels make only UTF-8 of UTF-8."""
    if not isinstance(words, pa.Array) or not pa.types.is_string(words.type):
        return
    is_made = node.kernel in _UNICODE and not any(pa.types.is_binary(arg.type) for arg in node.args)
    if is_made:
        return
    try:
        words.validate(full=True)
    except pa.ArrowInvalid:
        columns = [str(each.value) for each in node.nodes() if each.kernel == "column"]
        raise UnsupportedError(
            f"column {', '.join(columns)} has text that is not UTF-8",
            hint="functions of such text are left to Spark: Table.read(spark, where)",
        ) from None


# -- comparisons -----------------------------------------------------------------------------------


def _compare(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    left, right = values
    return compared(node.value, left, right)


def compared(op: str, left: Datum, right: Datum) -> pa.Array:
    """``left op right`` of one type. NaN equals NaN and is the largest, as in Spark."""
    if op == "<=>":
        missing = pc.is_null(left), pc.is_null(right)
        same = pc.fill_null(compared("=", left, right), False)
        return pc.or_(same, pc.and_(*missing))
    if op in (">", ">=", "<>"):
        return pc.invert(compared({">": "<=", ">=": "<", "<>": "="}[op], left, right))
    if not pa.types.is_floating(left.type):
        plain = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}[op]
        return plain(*_texts(left), *_texts(right))
    nan = pc.is_nan(left), pc.is_nan(right)
    if op == "=":
        return pc.or_(pc.equal(left, right), pc.and_(*nan))
    if op == "<=":
        return pc.or_(pc.less_equal(left, right), nan[1])
    return pc.or_(pc.less(left, right), pc.and_not(nan[1], nan[0]))


def _texts(values: Datum) -> tuple[Datum]:
    """Strings as bytes, which may not be UTF-8."""
    return (values.cast(pa.binary()) if pa.types.is_string(values.type) else values,)


def _in(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    """``value``: the constants of the list, without NULL, and whether NULL was among them."""
    (operand,) = values
    listed, has_null = node.value
    type = node.args[0].type
    keys = order_keys(operand, type)
    found = isin(keys, keys_of(listed, type))
    return pa.array(found, mask=~(keys.valid & (found | (not has_null))))


def _extreme(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    """``least`` and ``greatest``, which skip nulls."""
    op = "<" if node.kernel == "least" else ">"
    found = values[0]
    for each in values[1:]:
        better = pc.or_(pc.is_null(found), pc.fill_null(compared(op, each, found), False))
        found = pc.if_else(pc.and_(better, pc.is_valid(each)), each, found)
    return found


def _is_null(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    return values[0].is_null()


def _not(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    return pc.invert(values[0])


def _is_true(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    return pc.fill_null(values[0], False)


def _is_nan(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    return pc.fill_null(pc.is_nan(values[0]), False)


# -- lists and maps --------------------------------------------------------------------------------


def _size(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    lists = values[0]
    if pa.types.is_map(lists.type):
        counts = np.diff(numbers(lists.offsets)).astype(np.int32)
        return pa.array(counts, mask=~validity(lists)) if len(lists) else pa.array([], pa.int32())
    return pc.list_value_length(lists).cast(pa.int32())


def _array_contains(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    """NULL if the value is not found and an element is null."""
    lists, wanted = values
    elements, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
    from ..literals import stored

    elements = stored(elements, node.value)
    if isinstance(wanted, pa.Array):
        wanted = wanted.take(parents)
    at = numbers(parents)
    found = np.zeros(len(lists), np.bool_)
    if len(elements):
        found[at[numbers(pc.fill_null(compared("=", elements, wanted), False))]] = True
    unknown = np.zeros(len(lists), np.bool_)
    unknown[at[~validity(elements)]] = True
    sure = validity(lists)
    if isinstance(values[1], pa.Array):
        sure &= validity(values[1])
    elif not values[1].is_valid:
        sure[:] = False
    return pa.array(found, mask=~(sure & (found | ~unknown)))


def _arrays_overlap(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    """NULL if no element is in both lists, neither is empty, and one has a null."""
    from ..literals import stored

    count = len(values[0])
    parents, elements, unknown = [], [], np.zeros(count, np.bool_)
    some, sure = np.ones(count, np.bool_), np.ones(count, np.bool_)
    for lists in values:
        at = numbers(pc.list_parent_indices(lists))
        each = stored(pc.list_flatten(lists), node.value)
        valid = validity(each)
        unknown[at[~valid]] = True
        some &= np.bincount(at, minlength=count) > 0
        sure &= validity(lists)
        parents.append(at[valid])
        known = each.drop_null()
        if pa.types.is_floating(each.type):  # both zeros are equal, and so are all NaN
            known = arrow(np.asarray(order_keys(known, node.value).data))
        elements.append(known)
    codes = numbers(pa.concat_arrays(elements).dictionary_encode().indices).astype(np.int64)
    places = np.concatenate(parents) + codes * count
    left, right = np.split(places, [len(parents[0])])
    found = np.zeros(count, np.bool_)
    if count:
        found[left[np.isin(left, right)] % count] = True
    return pa.array(found, mask=~(sure & (found | ~(unknown & some))))


def _array(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    """Lists of one value of each argument."""
    count, each = len(values[0]), len(values)
    columns = [pa.repeat(v, count) if isinstance(v, pa.Scalar) else v for v in values]
    order = (ordinals(count)[:, None] + ordinals(each) * count).ravel()
    offsets = arrow((ordinals(count + 1) * each).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(columns).take(arrow(order)))


def _map_side(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    """Lists of the keys or of the values."""
    maps = values[0]
    side = maps.keys if node.kernel == "map_keys" else maps.items
    # A copy, because Arrow takes no mask with the offsets of a slice.
    offsets = np.array(numbers(maps.offsets) if len(maps) else [0], np.int32)
    return pa.ListArray.from_arrays(arrow(offsets), side, mask=arrow(~validity(maps)))


def _map_value(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    """The value of a map's first entry with the key. ``value``: the type of the keys."""
    maps, wanted = values
    from ..literals import stored

    starts = numbers(maps.offsets)
    first, last = (int(starts[0]), int(starts[-1])) if len(maps) else (0, 0)
    keys = stored(maps.keys.slice(first, last - first), node.value)
    items = maps.items.slice(first, last - first)
    parents = np.repeat(ordinals(len(maps)), np.diff(starts))
    if isinstance(wanted, pa.Array):
        wanted = wanted.take(arrow(parents))
    hits = np.flatnonzero(numbers(pc.fill_null(compared("=", keys, wanted), False)))
    place = np.full(len(maps), -1)
    place[parents[hits[::-1]]] = hits[::-1]
    none = (place < 0) | ~validity(maps)
    return stored(items.take(pa.array(place, mask=none)), node.type)


def _by_spark(node: Typed, values: Sequence[Datum], session: Zone | None) -> pa.Array:
    raise UnsupportedError(f"function {node.value} is computed by Spark only")


_KERNELS: dict[str, Callable[[Typed, Sequence[Any], Zone | None], pa.Array]] = {
    "array": _array,
    "array_contains": _array_contains,
    "arrays_overlap": _arrays_overlap,
    "compare": _compare,
    "greatest": _extreme,
    "in": _in,
    "is_nan": _is_nan,
    "is_null": _is_null,
    "is_true": _is_true,
    "least": _extreme,
    "map_keys": _map_side,
    "map_value": _map_value,
    "map_values": _map_side,
    "not": _not,
    "size": _size,
    "cast": casts.cast,
    "like": patterns.like,
    "rlike": patterns.rlike,
    "spark": _by_spark,
    **arithmetic.KERNELS,
    **text.KERNELS,
    **times.KERNELS,
}
# Kernels that see code points, not bytes.
_UNICODE = frozenset({"cast", *text.KERNELS}) - {"startswith", "endswith", "contains"}
_FALLIBLE = frozenset({"cast", *arithmetic.FALLIBLE, *times.FALLIBLE})
