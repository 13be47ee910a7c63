"""The keys of a tree of index pages: an upper bound of each data page, where the column is sorted.

That page ``i`` holds values in ``[key[i - 1], key[i]]`` is what a search relies on, so it is looked
at here, whatever sorting the file claims: the largest value of each page, in Spark's order, is at
most the smallest of the next.

| page | its key |
|---|---|
| with values | the largest one; NaN if it holds any, +0.0 for either zero |
| with nulls only | the key of the page before; of the first pages, the smallest value of all |
| with a byte array of more than 64 bytes | 64 bytes counted up, where the next page allows it |

Trees hold values of columns that ascend. What descends, has no order that is known, or is not
sorted at all, has a tree of ordinals.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from skipstone.parquet.evidence.stored_values import Form
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.metadata import ColumnOrder, TypeDefinedOrder
from skipstone.parquet.writing.column_order import Ordering

if TYPE_CHECKING:
    from skipstone.parquet.format.schema import Leaf
    from skipstone.parquet.pages.column_values import LeafColumn

__all__ = ["PageBounds"]

_TYPE_ORDER = ColumnOrder(TYPE_ORDER=TypeDefinedOrder())
_NANS: Final = {2: b"\x00\x7e", 4: b"\x00\x00\xc0\x7f", 8: b"\x00\x00\x00\x00\x00\x00\xf8\x7f"}


class PageBounds:
    """Smallest and largest value of each page of a chunk, told of in their order."""

    def __init__(self, leaf: Leaf) -> None:
        self.order = _order(leaf)
        self._found: list[tuple[bytes, bytes] | None] = []
        widths = {Type.FLOAT: 4, Type.DOUBLE: 8}
        self._nan = _NANS.get(widths.get(leaf.type, leaf.type_length), b"")

    def add(self, column: LeafColumn) -> None:
        """The entries of the next page."""
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
        """What orders values: NaN is the largest."""
        assert self.order is not None
        key = self.order.key(value)
        return (True, 0.0) if key != key else (False, key)

    @property
    def reason(self) -> str | None:
        """Why there can be no tree of keys, ``None`` where there can."""
        if self.order is None:
            return "its values have no order that is known"
        known = [each for each in self._found if each is not None]
        if not known:
            return "it holds nothing but nulls"
        for (_, high), (low, _) in pairwise(known):
            if self._rank(high) > self._rank(low):
                return "its pages do not ascend"
        return None

    def keys(self) -> list[bytes] | None:
        """The keys of all pages, ``None`` where there is a reason against it."""
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
        """An upper bound of about 64 bytes that no value of the next page lies below."""
        assert self.order is not None
        bound = self.order.upper(high).value
        if following is None or self._rank(bound) <= self._rank(following):
            return bound
        return high


def _order(leaf: Leaf) -> Ordering | None:
    """How keys of a column compare, ``None`` where it cannot have any (booleans, INT96, lists)."""
    if leaf.type is Type.BOOLEAN or leaf.max_repetition_level:
        return None
    order = Ordering.of(leaf, _TYPE_ORDER)
    # Times of day have an order in Parquet and no type in Spark: nobody could ask for one.
    return None if order is None or order.stored.form is Form.NONE else order
