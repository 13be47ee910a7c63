"""Writes index pages: from the data pages of a chunk to the tree of 2013.

    by default     data pages | ordinals below their root | keys below theirs | root, root
    interleave     data pages and index pages in post order, as the specification draws it

By default the whole tree follows the last data page. Every reader has all values at that point and
stops, while several readers fail on an index page between data pages. Either way the index pages
are part of the chunk. DataFusion looks beyond the last page of a repeated column that has no offset
index, and parses the entries of an index page as a header: such a chunk gets only interleaved
trees.

The specification gives a sorted column a tree of keys alone, and reads "the row id" from the data
page that was found; but no data page says which row it begins with. So a chunk with a tree of keys
also has one of ordinals, whose root is the page after the root of the keys. Interleaved trees
follow the specification literally: there the rows come from the offset index or from the page
headers.

A search relies on every page ``i`` holding values in ``[key[i - 1], key[i]]``. So ``PageBounds``
checks it, whatever sorting the file claims: the largest value of each page, in Spark's order, is at
most the smallest of the next.

| page | its key |
|---|---|
| with values | the largest one; NaN if it holds any, +0.0 for either zero |
| with nulls only | the key of the page before; for the first pages, the smallest value of all |
| with a byte array of more than 64 bytes | 64 bytes counted up, where the next page allows it |

Trees hold values of ascending columns. A column that descends, has no known order, or is not sorted
has a tree of ordinals.

Use while a file is written, with the pages of a chunk in memory: ::

    plan = place_index_pages(
        first=dictionary_bytes,              # offset of the first data page from the chunk's
        sizes=[len(page) for page in data],  # first byte; header and body of each, back to back
        keys=bounds,                         # PLAIN upper bounds without length prefix, or None
        ordinals=first_rows,                 # first row of each page in the row group, or None
        leaf=leaf,
    )
    for piece in plan.order():               # int: that data page; bytes: an index page
        out.write(data[piece] if isinstance(piece, int) else piece)

Then ``index_page_offset`` is the chunk's offset plus ``plan.index_page_offset``; ``plan.length`` is
added to both total sizes of the chunk and of its row group; with ``interleave`` the data pages lie
at ``plan.data_offsets``, which the offset index must say. ``index_pages_of`` does all of this from
the encoded pages of a chunk. For a tree of keys it decodes every page; for one of ordinals headers
suffice, unless the column is repeated: there only the levels, or the offset index, say where rows
begin.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.evidence.stored_values import Form
from skipstone.parquet.format.enums import PageType, Type
from skipstone.parquet.format.metadata import TYPE_ORDER
from skipstone.parquet.pages.column_values import decode_data_page, decode_dictionary_page
from skipstone.parquet.pages.index_page import ENTRY_BYTES, ROLL_OVER, IndexPage, key_bytes
from skipstone.parquet.values import ByteArrays
from skipstone.parquet.writing.column_order import Ordering

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.pages.column_values import LeafColumn
    from skipstone.parquet.pages.page import Page
    from skipstone.parquet.values import Values


_MOST: Final = (1 << 31) - 1
# With one entry per page, no level would be smaller than the one below it.
_FEWEST: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedIndexPage:
    """``data``, header and body, lies at ``offset`` of its chunk, after ``after`` data pages."""

    offset: int
    after: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPagePlan:
    """The places of all pages, in bytes from the first byte of the chunk.

    ``pages`` are in the order of the file. ``index_page_offset`` is that of the root; ``levels``
    counts the index pages from it down to a data page, ``keyed`` says that they hold keys.
    """

    index_page_offset: int
    pages: tuple[PlacedIndexPage, ...]
    data_offsets: tuple[int, ...]
    levels: int
    keyed: bool

    @property
    def length(self) -> int:
        """Bytes of all index pages."""
        return sum(len(each.data) for each in self.pages)

    def order(self) -> Iterator[int | bytes]:
        """The pieces in file order: the number of a data page, or the bytes of an index page."""
        done = 0
        for each in self.pages:
            yield from range(done, each.after)
            done = each.after
            yield each.data
        yield from range(done, len(self.data_offsets))


@dataclass(slots=True)
class _TreePage:
    """A planned index page: its children are entries ``start:stop`` of the level below."""

    start: int
    stop: int
    key: bytes | int
    offset: int = -1
    size: int = 0


def place_index_pages(
    *,
    first: int,
    sizes: Sequence[int],
    leaf: ColumnDescriptor,
    keys: Sequence[bytes] | None = None,
    ordinals: Sequence[int] | None = None,
    interleave: bool = False,
    roll_over: int = ROLL_OVER,
) -> IndexPagePlan:
    """The tree over the data pages of one chunk; see the module.

    ``keys`` are the upper bounds, ascending in the column's order, ``ordinals`` the first rows; at
    least one of them is given, and with ``interleave`` only one. ``roll_over`` is in bytes of a
    body; at least two entries go into a page, however long their keys are. Raises
    ``UnsupportedError`` where offsets in the chunk, or its rows, are beyond 31 bits.
    """
    count = len(sizes)
    if keys is None and ordinals is None:
        raise ValueError("an index has keys or ordinals")
    if not count:
        raise ValueError("an index of no pages")
    if interleave and keys is not None and ordinals is not None:
        raise ValueError("one tree is interleaved with the data pages, not two")
    given = [held for held in (keys, ordinals) if held is not None]
    if any(len(held) != count for held in given):
        raise ValueError(f"as many keys and ordinals as pages: {count}")
    made = [_Tree(held, leaf, roll_over) for held in given]
    layout = _Layout(first, sizes)
    if interleave:
        made[0].interleave(layout)
    else:
        layout.data(count)
        for tree in reversed(made):
            for node, level in tree.post_order()[:-1]:
                tree.put(node, level, layout)
        for tree in made:
            tree.put(tree.root, len(tree.levels) - 1, layout)
    return IndexPagePlan(
        index_page_offset=made[0].root.offset,
        pages=tuple(layout.pages),
        data_offsets=tuple(layout.data_offsets),
        levels=len(made[0].levels),
        keyed=keys is not None,
    )


class _Layout:
    """The pages placed so far; the first data page lies at byte ``at``."""

    def __init__(self, at: int, sizes: Sequence[int]) -> None:
        self.at, self.sizes = at, sizes
        self.data_offsets: list[int] = []
        self.pages: list[PlacedIndexPage] = []

    def data(self, stop: int) -> None:
        """Places data pages up to ``stop``, back to back."""
        for size in self.sizes[len(self.data_offsets) : stop]:
            self.data_offsets.append(self.at)
            self.at += size

    def index(self, data: bytes) -> int:
        """Places an index page; returns its offset."""
        at, after = self.at, len(self.data_offsets)
        self.pages.append(PlacedIndexPage(offset=at, after=after, data=data))
        self.at += len(data)
        return at


class _Tree:
    """One tree: ``levels`` from the one above the data pages to that of the root alone."""

    def __init__(
        self, held: Sequence[bytes] | Sequence[int], leaf: ColumnDescriptor, roll_over: int
    ) -> None:
        self.leaf, self.held = leaf, list[bytes | int](held)
        self.keyed = isinstance(held[0], bytes)
        if self.keyed:
            key_bytes(leaf.type, leaf.type_length)  # raises for booleans
        last = self.held[-1]
        if isinstance(last, int) and last > _MOST:
            raise UnsupportedError(f"row {last} is beyond the 31 bits of an ordinal")
        self.levels: list[list[_TreePage]] = []
        below = self.held
        while not self.levels or len(self.levels[-1]) > 1:
            self.levels.append(self._grouped(below, roll_over))
            below = [each.key for each in self.levels[-1]]

    @property
    def root(self) -> _TreePage:
        """The last page of the tree."""
        return self.levels[-1][0]

    def _grouped(self, keys: list[bytes | int], roll_over: int) -> list[_TreePage]:
        prefix = 4 if self.leaf.type is Type.BYTE_ARRAY else 0
        level: list[_TreePage] = []
        start = size = 0
        for at, key in enumerate(keys):
            more = ENTRY_BYTES + (len(key) + prefix if isinstance(key, bytes) else 0)
            if size + more > roll_over and at - start >= _FEWEST:
                level.append(self._node(keys, start, at))
                start, size = at, 0
            size += more
        level.append(self._node(keys, start, len(keys)))
        return level

    def _node(self, keys: list[bytes | int], start: int, stop: int) -> _TreePage:
        # The last upper bound holds for all entries; their first row is that of the first entry.
        return _TreePage(start, stop, keys[stop - 1 if self.keyed else start])

    def post_order(self) -> list[tuple[_TreePage, int]]:
        """The index pages with their levels, children before their parents."""
        found: list[tuple[_TreePage, int]] = []

        def below(level: int, at: int) -> None:
            node = self.levels[level][at]
            if level:
                for child in range(node.start, node.stop):
                    below(level - 1, child)
            found.append((node, level))

        below(len(self.levels) - 1, 0)
        return found

    def interleave(self, layout: _Layout) -> None:
        """Places each index page right after the last of its children."""
        for node, level in self.post_order():
            if not level:
                layout.data(node.stop)
            self.put(node, level, layout)

    def put(self, node: _TreePage, level: int, layout: _Layout) -> None:
        """Places the page of a node whose children are placed."""
        here = slice(node.start, node.stop)
        if level:
            below = self.levels[level - 1][here]
            keys = [each.key for each in below]
            offsets, sizes = [each.offset for each in below], [each.size for each in below]
        else:
            keys, offsets = self.held[here], layout.data_offsets[here]
            sizes = list(layout.sizes[here])
        if offsets[-1] + sizes[-1] > _MOST:
            raise UnsupportedError(
                "a chunk of 2 GiB: offsets in index pages have 31 bits",
                hint="write smaller row groups",
            )
        values = [each for each in keys if isinstance(each, bytes)]
        rows = [each for each in keys if isinstance(each, int)]
        page = IndexPage(
            page_offset=np.array(offsets, np.int64),
            page_len=np.array(sizes, np.int64),
            keys=ByteArrays.from_list(values) if self.keyed else None,
            ordinals=None if self.keyed else np.array(rows, np.int64),
        )
        data = page.to_bytes(self.leaf.type, self.leaf.type_length)
        node.size = len(data)
        node.offset = layout.index(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkIndexPages:
    """The index pages planned for a chunk. ``plan`` is ``None`` if it can have no tree. ``reason``
    says why, or why a tree holds ordinals although keys were requested.

    ``dictionary`` and ``sources`` are offset and length of the source pages: of the dictionary if
    there is one, and of each data page; ``uncompressed`` is their size when decompressed, headers
    included.
    """

    plan: IndexPagePlan | None
    reason: str | None = None
    dictionary: tuple[int, int] | None = None
    sources: Sequence[tuple[int, int]] = ()
    uncompressed: int = 0
    rows: int = 0


def index_pages_of(
    pages: Iterable[Page],
    leaf: ColumnDescriptor,
    codec: int,
    *,
    keyed: bool,
    interleave: bool = False,
    roll_over: int = ROLL_OVER,
    first_rows: Sequence[int] | None = None,
) -> ChunkIndexPages:
    """The tree of a chunk from its plaintext pages, in their order; index pages are skipped.

    ``keyed`` asks for keys. ``first_rows`` are those of its data pages, where the new file has an
    offset index that says them; a repeated column needs them. In the new file the dictionary begins
    the chunk, and the data pages follow back to back, apart from index pages. ``FormatError`` for
    damaged pages.
    """
    found = _SourcePages(
        leaf, codec, keyed=keyed, placed=first_rows is not None, interleave=interleave
    )
    for page in pages:
        found.add(page)
    if not found.sources or found.why_not:
        return found.result(None, found.why_not or "it has no data pages")
    count = len(found.sources)
    if first_rows is None:
        ordinals = [0, *np.cumsum(found.rows[:-1], dtype=np.int64).tolist()]
    elif len(first_rows) != count:
        raise FormatError("pages in an offset index", expected=count, got=len(first_rows))
    else:
        ordinals = list(first_rows)
    bounds = found.bounds
    keys = bounds.keys() if bounds is not None and bounds.order is not None else None
    plan = place_index_pages(
        first=0 if found.dictionary is None else found.dictionary[1],
        sizes=[length for _, length in found.sources],
        keys=keys,
        ordinals=None if keys is not None and interleave else ordinals,
        leaf=leaf,
        interleave=interleave,
        roll_over=roll_over,
    )
    return found.result(plan, None if bounds is None else bounds.reason)


class _SourcePages:
    """Collects places, row counts and bounds of the pages of a chunk; see ``index_pages_of``."""

    def __init__(
        self, leaf: ColumnDescriptor, codec: int, *, keyed: bool, placed: bool, interleave: bool
    ) -> None:
        """``placed``: an offset index has the first rows of the pages."""
        self.leaf, self.codec = leaf, codec
        self.bounds = PageBounds(leaf) if keyed else None
        self._keyed = self.bounds is not None and self.bounds.order is not None
        unplaced = bool(leaf.max_repetition_level) and not placed
        self._decoded = self._keyed or (unplaced and interleave)
        lacking = unplaced and not interleave
        self.why_not = "it is repeated and has no offset index" if lacking else None
        self.dictionary: tuple[int, int] | None = None
        self.sources, self.rows = list[tuple[int, int]](), list[int]()
        self._values: Values | None = None
        self._uncompressed = 0

    def add(self, page: Page) -> None:
        """Take the next page; index pages are skipped."""
        place = (page.offset, page.stop - page.offset)
        if page.is_data or page.type == PageType.DICTIONARY_PAGE:
            self._uncompressed += page.header_length + page.uncompressed_page_size
        if page.type == PageType.DICTIONARY_PAGE:
            if self.sources or self.dictionary is not None:
                raise FormatError("a dictionary after its data pages", offset=page.offset)
            self.dictionary = place
            if self._decoded:
                page.verify_crc()
                self._values = decode_dictionary_page(page, self.leaf, self.codec, page.body)
        elif page.is_data:
            self.sources.append(place)
            if not self._decoded or self.why_not:
                self.rows.append(page.num_values)
            else:
                self._decode(page)

    def _decode(self, page: Page) -> None:
        page.verify_crc()
        column = decode_data_page(page, self.leaf, self.codec, self._values, page.body)
        levels = column.repetition_levels
        if levels is not None and len(levels) and levels[0]:
            self.why_not = "a page of it begins within a row"
        self.rows.append(column.num_rows)
        if self._keyed and self.bounds is not None:
            self.bounds.add(column)

    def result(self, plan: IndexPagePlan | None, reason: str | None) -> ChunkIndexPages:
        """``plan`` with what was collected."""
        return ChunkIndexPages(
            plan=plan,
            reason=reason,
            dictionary=self.dictionary,
            sources=self.sources,
            uncompressed=self._uncompressed,
            rows=sum(self.rows),
        )


# -- keys ------------------------------------------------------------------------------------------


_NANS: Final = {2: b"\x00\x7e", 4: b"\x00\x00\xc0\x7f", 8: b"\x00\x00\x00\x00\x00\x00\xf8\x7f"}


class PageBounds:
    """Smallest and largest value of each page of a chunk; pages are added in their order."""

    def __init__(self, leaf: ColumnDescriptor) -> None:
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
        assert following is not None  # the smallest value of all: some page has values
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


def _order(leaf: ColumnDescriptor) -> Ordering | None:
    """How keys of a column compare, ``None`` for columns without keys: booleans, INT96, lists."""
    if leaf.type is Type.BOOLEAN or leaf.max_repetition_level:
        return None
    order = Ordering.of(leaf, TYPE_ORDER)
    # Times of day have an order in Parquet and no type in Spark, so no predicate names them.
    return None if order is None or order.stored.form is Form.NONE else order
