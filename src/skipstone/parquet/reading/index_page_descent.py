"""Searches a tree of index pages: from the root to the data pages that hold a key, or a row.

    round 1   the root, and the root of the ordinals that follows it
    round n   the index pages of the next level that the search goes through, together

A descent is a generator that yields the byte ranges it needs and is sent their bytes. So the
descents of many columns advance together, with one wave of requests per level. A damaged tree ends
in a ``FormatError`` after bounded work: a child lies before its parent, no index page is read
twice, all of them together are no longer than the chunk, and no tree is deeper than 32 levels.

Entry ``i`` leads to values from key ``i - 1`` to key ``i``, both included. Keys compare in Spark's
order (``StoredColumn.keys``). Nanoseconds are rounded up in an upper bound and down in a lower one.

The first entry of the last level points to the chunk's first data page. Where that entry was not
read, the header of one child shows whether the level is the last one.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.evidence.stored_values import Form, StoredColumn
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.metadata import PageHeader
from skipstone.parquet.format.page_index import OffsetIndexArrays
from skipstone.parquet.pages.index_page import LONGEST_BODY, ROLL_OVER, IndexPage, read_root
from skipstone.parquet.pages.page import read_page
from skipstone.parquet.thrift.compact import Reader
from skipstone.predicate.literals import Key, Keys, compare, order_key
from skipstone.predicate.tree import Bound, Const, Op, leaves
from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.reading.page_tables import ChunkPlace
    from skipstone.parquet.reading.pinned_file import PinnedReader


IntArray: TypeAlias = "NDArray[np.int64]"
#: yields ranges, is sent their bytes
Steps: TypeAlias = "Generator[Sequence[ByteRange], Mapping[ByteRange, memoryview], FoundPages]"

# A root that rolled over, with its header and that of its neighbour; a longer one is read again.
_ROOT: Final = ROLL_OVER + 256
# Enough of a header to see its type, whatever statistics follow.
_PEEK: Final = 32
_DEEPEST: Final = 32


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FoundPages:
    """Data pages in the order of the chunk: int64 ``(n,)`` each, ``offset`` in bytes of the file,
    ``length`` with headers. A tree of ordinals also has ``first_row`` in the row group, and the
    row after the last one."""

    offset: IntArray
    length: IntArray
    first_row: IntArray | None = None
    stop_row: int = 0

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Roots:
    """The known roots of a chunk: of the tree that the footer names, and of the tree of ordinals if
    the former has keys."""

    root: IndexPage
    ordinals: IndexPage | None = None

    def to_dict(self) -> dict[str, Any]:
        """The entries of both, JSON-ready: keys as hex."""
        found: dict[str, Any] = {"root": self.root.to_dict()}
        if self.ordinals is not None:
            found["ordinals"] = self.ordinals.to_dict()
        return found


@dataclass(slots=True)
class _Node:
    """An index page, its offset from the chunk's first byte, and the row after its last."""

    page: IndexPage
    offset: int
    stop_row: int


@dataclass(slots=True)
class Descent:
    """The trees of one chunk. ``index_page_offset`` and ``data_page_offset`` are the footer's."""

    place: ChunkPlace
    leaf: ColumnDescriptor
    index_page_offset: int
    data_page_offset: int
    roots: Roots | None = None
    #: index pages below the roots that were read, by offset in the chunk
    read: dict[int, IndexPage] = field(default_factory=dict)

    def root(self) -> Steps:
        """Read the roots, unless they are known."""
        place = self.place
        if self.roots is not None:
            return self._nothing()
        if not place.start <= self.index_page_offset < place.stop:
            raise FormatError(
                "an index page outside its chunk",
                offset=max(self.index_page_offset, 0),
                expected=f"from {place.start} to {place.stop}",
                got=self.index_page_offset,
            )
        room = min(place.stop - self.index_page_offset, LONGEST_BODY)
        length = min(room, _ROOT)
        while True:
            wanted = ByteRange(place.path, self.index_page_offset, length)
            got = yield (wanted,)
            try:
                root, ordinals = read_root(
                    got[wanted], self.leaf.type, self.leaf.type_length, base=wanted.offset
                )
                break
            except FormatError:
                if length >= room:
                    raise
                length = room
        self.roots = Roots(root=root, ordinals=ordinals)
        return self._nothing()

    # -- searches ----------------------------------------------------------------------------------

    def keys(self, pick: Callable[[IndexPage], tuple[int, int]]) -> Steps:
        """The data pages below entries that ``pick`` names (first, and the one after the last) in
        every index page of keys on the way."""
        yield from self.root()
        assert self.roots is not None
        return (yield from self._down(self.roots.root, pick))

    def rows(self, start: int, stop: int) -> Steps:
        """The data pages of rows ``start:stop`` of the row group."""
        yield from self.root()
        tree = self.ordinals
        if tree is None:
            raise FormatError("no tree of ordinals", offset=self.index_page_offset)

        def pick(page: IndexPage) -> tuple[int, int]:
            assert page.ordinals is not None
            first = int(np.searchsorted(page.ordinals, start, side="right")) - 1
            return max(first, 0), int(np.searchsorted(page.ordinals, stop, side="left"))

        return (yield from self._down(tree, pick))

    def holding(self, offset: int) -> Steps:
        """The data page that lies at byte ``offset`` of the file, with its rows."""
        yield from self.root()
        tree, wanted = self.ordinals, offset - self.place.start
        if tree is None:
            raise FormatError("no tree of ordinals", offset=self.index_page_offset)
        node = _Node(tree, self.index_page_offset - self.place.start, self.place.rows)
        for _ in range(_DEEPEST):
            low, high = 0, len(node.page)
            if (yield from self._is_last(node, 0)):
                at = int(np.searchsorted(node.page.page_offset, wanted))
                if at == high or int(node.page.page_offset[at]) != wanted:
                    raise FormatError("a data page that has no ordinal", offset=offset)
                return self._found([(node, at, at + 1)])
            # Only the children show which of them holds it: their first pages ascend.
            while high - low > 1:
                middle = (low + high) // 2
                (child,) = yield from self._children([(node, middle, middle + 1)])
                first = yield from self._first_data(child)
                low, high = (middle, high) if first <= wanted else (low, middle)
            (node,) = yield from self._children([(node, low, low + 1)])
        raise self._too_deep()

    @property
    def ordinals(self) -> IndexPage | None:
        """The root of the ordinals, if there is one."""
        if self.roots is None:
            return None
        return self.roots.root if self.roots.root.keys is None else self.roots.ordinals

    @property
    def keyed(self) -> bool:
        """Whether there are keys."""
        return self.roots is not None and self.roots.root.keys is not None

    # -- levels ------------------------------------------------------------------------------------

    def _down(self, tree: IndexPage, pick: Callable[[IndexPage], tuple[int, int]]) -> Steps:
        at = self.index_page_offset - self.place.start
        level = [_Node(tree, at, self.place.rows)]
        for _ in range(_DEEPEST):
            picked = [(node, *pick(node.page)) for node in level]
            picked = [each for each in picked if each[1] < each[2]]
            if not picked:
                return self._nothing()
            if (yield from self._is_last(picked[0][0], picked[0][1])):
                return self._found(picked)
            level = yield from self._children(picked)
        raise self._too_deep()

    def _is_last(
        self, node: _Node, at: int
    ) -> Generator[Sequence[ByteRange], Mapping[ByteRange, memoryview], bool]:
        """Whether the entries of an index page are data pages."""
        first = int(node.page.page_offset[0])
        if first == self.data_page_offset - self.place.start:
            return True
        if self.roots is not None and node.page in (self.roots.root, self.roots.ordinals):
            return False  # the first leaf of a tree is the first data page
        offset = int(node.page.page_offset[at])
        if offset in self.read:
            return False
        self._check(node, at)
        size = min(_PEEK, int(node.page.page_len[at]))
        wanted = ByteRange(self.place.path, self.place.start + offset, size)
        got = yield (wanted,)
        reader = Reader(got[wanted], base=wanted.offset)
        return _type_of(reader) != PageType.INDEX_PAGE

    def _children(
        self, picked: Sequence[tuple[_Node, int, int]]
    ) -> Generator[Sequence[ByteRange], Mapping[ByteRange, memoryview], list[_Node]]:
        """The index pages that these entries point to."""
        wanted: dict[int, ByteRange] = {}
        for node, first, stop in picked:
            for at in range(first, stop):
                self._check(node, at)
                offset, length = int(node.page.page_offset[at]), int(node.page.page_len[at])
                if offset not in self.read:
                    where = ByteRange(self.place.path, self.place.start + offset, length)
                    wanted[offset] = where
        if sum(each.length for each in wanted.values()) > self.place.stop - self.place.start:
            raise FormatError(
                "more index pages than their chunk has bytes", offset=self.index_page_offset
            )
        if wanted:
            got = yield list(wanted.values())
            for offset, where in wanted.items():
                child = read_page(got[where], base=where.offset)
                made = IndexPage.from_page(child, self.leaf.type, self.leaf.type_length)
                self.read[offset] = made
        level: list[_Node] = []
        for node, first, stop in picked:
            for at in range(first, stop):
                offset = int(node.page.page_offset[at])
                if level and offset <= level[-1].offset:
                    raise FormatError("index pages that are not in order", offset=offset)
                page = self.read[offset]
                if (page.keys is None) != (node.page.keys is None):
                    raise FormatError("an index of keys and ordinals", offset=offset)
                level.append(_Node(page, offset, _stop_row(node, at)))
        return level

    def _first_data(
        self, node: _Node
    ) -> Generator[Sequence[ByteRange], Mapping[ByteRange, memoryview], int]:
        """Offset of the first data page below, from the chunk's first byte."""
        for _ in range(_DEEPEST):
            if (yield from self._is_last(node, 0)):
                return int(node.page.page_offset[0])
            (node,) = yield from self._children([(node, 0, 1)])
        raise self._too_deep()

    def _too_deep(self) -> FormatError:
        return FormatError(
            "index pages nested too deeply",
            offset=self.index_page_offset,
            expected=f"at most {_DEEPEST} levels",
        )

    def _check(self, node: _Node, at: int) -> None:
        """``FormatError`` unless an entry lies in the chunk, and before the page that holds it."""
        offset, length = int(node.page.page_offset[at]), int(node.page.page_len[at])
        size = self.place.stop - self.place.start
        if offset + length > size:
            raise FormatError(
                "an entry of an index page outside its chunk",
                offset=self.place.start + node.offset,
                expected=f"at most {size}",
                got=offset + length,
            )
        if offset + length > node.offset:
            raise FormatError(
                "an index page before its children",
                offset=self.place.start + node.offset,
                expected=f"at most {node.offset}",
                got=offset + length,
            )

    def _found(self, picked: Sequence[tuple[_Node, int, int]]) -> FoundPages:
        for node, first, stop in picked:
            self._check(node, first)
            self._check(node, stop - 1)
        parts = [(node.page, slice(first, stop)) for node, first, stop in picked]
        offset = np.concatenate([page.page_offset[at] for page, at in parts]) + self.place.start
        length = np.concatenate([page.page_len[at] for page, at in parts])
        if np.any(offset[1:] < offset[:-1] + length[:-1]):
            raise FormatError("data pages that are not in order", offset=int(offset[0]))
        ordinals = [page.ordinals[at] for page, at in parts if page.ordinals is not None]
        if not ordinals:
            return FoundPages(offset=offset, length=length)
        first_row = np.concatenate(ordinals)
        last, _, stop = picked[-1]
        stop_row = _stop_row(last, stop - 1)
        if np.any(np.diff(first_row, append=stop_row) < 0) or stop_row > self.place.rows:
            raise FormatError(
                "ordinals that do not ascend",
                offset=self.index_page_offset,
                expected=f"at most {self.place.rows}",
                got=int(first_row[-1]),
            )
        return FoundPages(offset=offset, length=length, first_row=first_row, stop_row=stop_row)

    def _nothing(self) -> FoundPages:
        none = np.empty(0, np.int64)
        return FoundPages(offset=none, length=none)


def _stop_row(node: _Node, at: int) -> int:
    """The row after the last one below an entry."""
    ordinals = node.page.ordinals
    if ordinals is None or at + 1 == len(ordinals):
        return node.stop_row
    return int(ordinals[at + 1])


def _type_of(reader: Reader) -> int:
    """The type of a page header, which is its first field; nothing more is read."""
    kind, id = reader.field_head(0)
    if id != 1 or kind != 5:
        return int(PageHeader.read(reader).type)
    return reader.integer(32)


def run_together(reader: PinnedReader, steps: Sequence[Steps]) -> list[FoundPages]:
    """Runs descents together: the next ranges of all of them come in one wave."""
    results: list[FoundPages | None] = [None] * len(steps)
    wanted: dict[int, Sequence[ByteRange]] = {}

    def advance(at: int, got: Mapping[ByteRange, memoryview] | None) -> None:
        try:
            wanted[at] = next(steps[at]) if got is None else steps[at].send(got)
        except StopIteration as done:
            results[at] = done.value
            wanted.pop(at, None)

    for at in range(len(steps)):
        advance(at, None)
    while wanted:
        ranges = [each for some in wanted.values() for each in some]
        got = reader.read(ranges)
        for at in list(wanted):
            advance(at, got)
    return [each for each in results if each is not None]


def offsets_of_tree(reader: PinnedReader, descent: Descent) -> OffsetIndexArrays | None:
    """All data pages of a chunk by its ordinals; ``None`` where it has none, or damaged ones."""
    try:
        run_together(reader, [descent.root()])
        if descent.ordinals is None:
            return None
        (found,) = run_together(reader, [descent.rows(0, descent.place.rows)])
    except FormatError:
        return None
    if found.first_row is None or found.first_row[0]:
        return None
    return OffsetIndexArrays(
        offset=found.offset,
        compressed_page_size=found.length,
        first_row_index=found.first_row,
    )


# -- keys ------------------------------------------------------------------------------------------


_LOWER = (Op.EQ, Op.GE, Op.GT)
_UPPER = (Op.EQ, Op.LE, Op.LT)
_BOUNDS = {*_LOWER, *_UPPER}
_UNORDERED = (Form.NONE, Form.INT96, Form.BOOLEAN)


@dataclass(frozen=True, slots=True)
class KeyInterval:
    """Bounds in the domain of ``StoredColumn.keys``, inclusive; ``None`` is open."""

    low: Key | None = None
    high: Key | None = None
    empty: bool = False


def interval_of(tree: Bound, stored: StoredColumn) -> KeyInterval:
    """Bounds of all values that match ``tree``, a conjunction."""
    low: Key | None = None
    high: Key | None = None
    if isinstance(tree, Const):
        return KeyInterval(empty=not tree.value)
    if stored.form in _UNORDERED:
        return KeyInterval()
    for leaf in leaves(tree):
        local = stored.restate(leaf)
        if isinstance(local, Const):
            if not local.value:
                return KeyInterval(empty=True)
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
    return KeyInterval(low, high, empty)


def picking(stored: StoredColumn, interval: KeyInterval) -> Callable[[IndexPage], tuple[int, int]]:
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
