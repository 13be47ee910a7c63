"""Keys of index pages: which entries may lead to a match, and the keys of a new tree.

**Search.** Entry ``i`` leads to values from key ``i - 1`` to key ``i``, both included. Keys compare
in Spark's order (``Stored.keys``). Nanoseconds are rounded up in an upper bound and down in a lower
one.

**Writing** (``PageBounds``). A search relies on every page ``i`` holding values in
``[key[i - 1], key[i]]``. So this is checked, whatever sorting the file claims: the largest value of
each page, in Spark's order, is at most the smallest of the next.

| page | its key |
|---|---|
| with values | the largest one; NaN if it holds any, +0.0 for either zero |
| with nulls only | the key of the page before; for the first pages, the smallest value of all |
| with a byte array of more than 64 bytes | 64 bytes counted up, where the next page allows it |

Trees hold values of ascending columns. A column that descends, has no known order, or is not sorted
has a tree of ordinals.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.evidence.stored_values import Form
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.metadata import ColumnOrder
from skipstone.parquet.thrift.structs import Empty
from skipstone.parquet.writing.column_order import Ordering
from skipstone.predicate.literals import compare, order_key
from skipstone.predicate.tree import Const, Op, leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.evidence.stored_values import Stored
    from skipstone.parquet.format.index_pages import IndexPage
    from skipstone.parquet.format.schema import Leaf
    from skipstone.parquet.pages.column_values import LeafColumn
    from skipstone.predicate.literals import Key, Keys
    from skipstone.predicate.tree import Bound


_LOWER = (Op.EQ, Op.GE, Op.GT)
_UPPER = (Op.EQ, Op.LE, Op.LT)
_BOUNDS = {*_LOWER, *_UPPER}
_UNORDERED = (Form.NONE, Form.INT96, Form.BOOLEAN)


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds in the domain of ``Stored.keys``, inclusive; ``None`` is open."""

    low: Key | None = None
    high: Key | None = None
    empty: bool = False


def interval_of(tree: Bound, stored: Stored) -> Interval:
    """Bounds of all values that match ``tree``, a conjunction."""
    low: Key | None = None
    high: Key | None = None
    if isinstance(tree, Const):
        return Interval(empty=not tree.value)
    if stored.form in _UNORDERED:
        return Interval()
    for leaf in leaves(tree):
        local = stored.restate(leaf)
        if isinstance(local, Const):
            if not local.value:
                return Interval(empty=True)
            continue
        if local is None or local.op not in _BOUNDS:
            continue
        assert stored.type is not None
        key = order_key(local.values[0], stored.type)
        if local.op in _LOWER and (low is None or key > low):  # type: ignore[operator]
            low = key
        if local.op in _UPPER and (high is None or key < high):  # type: ignore[operator]
            high = key
    empty = low is not None and high is not None and low > high  # type: ignore[operator]
    return Interval(low, high, empty)


def picking(stored: Stored, interval: Interval) -> Callable[[IndexPage], tuple[int, int]]:
    """Picks the entries whose pages may hold a value in the interval: from the first bound that
    reaches it to the first one beyond it. ``FormatError`` for keys out of order."""

    def pick(page: IndexPage) -> tuple[int, int]:
        assert page.keys is not None
        if interval.empty:
            return 0, 0
        if stored.form in _UNORDERED:
            return 0, len(page)  # only the writer knows their order
        known = np.ones(len(page), np.bool_)
        upper = stored.keys(page.keys, known, upper=True)
        lower = stored.keys(page.keys, known) if stored.rounds else upper
        _check_order(lower)
        first, stop = 0, len(page)
        if interval.low is not None:
            first = int(np.count_nonzero(compare(upper, Op.LT, interval.low)))
        if interval.high is not None:
            stop = min(stop, 1 + int(np.count_nonzero(compare(lower, Op.LE, interval.high))))
        return first, stop

    return pick


def _check_order(keys: Keys) -> None:
    if not keys.valid.all():
        raise FormatError("keys of an index page that are not values of their column")
    before, after = keys.data[:-1], keys.data[1:]
    if isinstance(keys.data, np.ndarray):
        sorted_ = bool(np.all(before <= after))
    else:
        import pyarrow.compute as pc

        sorted_ = bool(pc.all(pc.less_equal(before, after), min_count=0).as_py())
    if not sorted_:
        raise FormatError("keys of an index page that do not ascend")


_TYPE_ORDER = ColumnOrder(TYPE_ORDER=Empty())
_NANS: Final = {2: b"\x00\x7e", 4: b"\x00\x00\xc0\x7f", 8: b"\x00\x00\x00\x00\x00\x00\xf8\x7f"}


class PageBounds:
    """Smallest and largest value of each page of a chunk; pages are added in their order."""

    def __init__(self, leaf: Leaf) -> None:
        self.order = _order(leaf)
        self._found: list[tuple[bytes, bytes] | None] = []
        widths = {Type.FLOAT: 4, Type.DOUBLE: 8}
        self._nan = _NANS.get(widths.get(leaf.type, leaf.type_length), b"")

    def add(self, column: LeafColumn) -> None:
        """Adds the values of the next page."""
        order = self.order
        if order is None:
            return
        low: bytes | None = None
        high: bytes | None = None
        for run in column.runs:
            if not len(run):
                continue
            found = order.extremes(run)
            least, most = found.low, found.high
            if found.nans:
                least, most = self._nan if least is None else least, self._nan
            assert least is not None
            assert most is not None
            low = least if low is None else min(low, least, key=self._rank)
            high = most if high is None else max(high, most, key=self._rank)
        self._found.append(None if low is None or high is None else (low, high))

    def _rank(self, value: bytes) -> Any:
        """The sort key of a value: NaN is the largest."""
        assert self.order is not None
        key = self.order.key(value)
        return (True, 0.0) if key != key else (False, key)

    @property
    def reason(self) -> str | None:
        """Why there can be no tree of keys, ``None`` where there can."""
        if self.order is None:
            return "its values have no known order"
        known = [each for each in self._found if each is not None]
        if not known:
            return "it holds only nulls"
        for (_, high), (low, _) in pairwise(known):
            if self._rank(high) > self._rank(low):
                return "its pages do not ascend"
        return None

    def keys(self) -> list[bytes] | None:
        """The keys of all pages, ``None`` where there is a ``reason``."""
        if self.reason is not None:
            return None
        keys: list[bytes] = []
        following: bytes | None = None
        for each in reversed(self._found):
            keys.append(b"" if each is None else self._cut(each[1], following))
            following = following if each is None else each[0]
        keys.reverse()
        assert following is not None  # the smallest of all, as not all are null
        for at, each in enumerate(self._found):
            if each is None:
                keys[at] = keys[at - 1] if at else following
        return keys

    def _cut(self, high: bytes, following: bytes | None) -> bytes:
        """An upper bound of about 64 bytes that is at most every value of the next page."""
        assert self.order is not None
        bound = self.order.upper(high).value
        if following is None or self._rank(bound) <= self._rank(following):
            return bound
        return high


def _order(leaf: Leaf) -> Ordering | None:
    """How keys of a column compare, ``None`` for columns without keys: booleans, INT96, lists."""
    if leaf.type is Type.BOOLEAN or leaf.max_repetition_level:
        return None
    order = Ordering.of(leaf, _TYPE_ORDER)
    # Times of day have an order in Parquet and no type in Spark, so no predicate names them.
    return None if order is None or order.stored.form is Form.NONE else order
