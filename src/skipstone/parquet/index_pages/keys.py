"""Keys of index pages against a predicate: which entries of a page may lead to a match.

Entry ``i`` leads to values from key ``i - 1`` to key ``i``, both included. Keys compare in Spark's
order (``Stored.keys``); of nanoseconds they are rounded, up where they bound from above, down where
they do from below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.evidence.stored_values import Form
from skipstone.predicate.literals import compare, order_key
from skipstone.predicate.tree import Const, Op, leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.evidence.stored_values import Stored
    from skipstone.parquet.format.index_pages import IndexPage
    from skipstone.predicate.literals import Key, Keys
    from skipstone.predicate.tree import Bound

__all__ = ["Interval", "interval_of", "picking"]

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
    """Bounds that no value matching ``tree``, a conjunction, lies outside of."""
    low: Key | None = None
    high: Key | None = None
    if isinstance(tree, Const):
        return Interval(empty=not tree.value)
    if stored.form in _UNORDERED:
        return Interval()
    for leaf in leaves(tree):
        local = stored.localise(leaf)
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
    """Entries whose pages may hold a value in the interval: from the first bound that reaches it to
    the first that lies beyond, which may begin with it. ``FormatError`` for keys out of order."""

    def pick(page: IndexPage) -> tuple[int, int]:
        assert page.keys is not None
        if interval.empty:
            return 0, 0
        if stored.form in _UNORDERED:
            return 0, len(page)  # whoever wrote such keys knew their order
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
        raise FormatError("keys of an index page that are no values of their column")
    before, after = keys.data[:-1], keys.data[1:]
    if isinstance(keys.data, np.ndarray):
        sorted_ = bool(np.all(before <= after))
    else:
        import pyarrow.compute as pc

        sorted_ = bool(pc.all(pc.less_equal(before, after), min_count=0).as_py())
    if not sorted_:
        raise FormatError("keys of an index page that do not ascend")
