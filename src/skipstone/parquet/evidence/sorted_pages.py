"""Searches the pages of a sorted column without bounds by reading a few of them.

Where a row group is sorted by a leaf (``IndexedFile.verified``, and the first of its
``sorting_columns``), the values of one page bound those of all pages before and after it:

    ascending    page a | … | page p | … | page b       last(a) <= v <= first(b) for every v of p

So the search fetches a page from the middle of each run of undecided pages, and evaluates the
predicate again with its values (``interval.py``). It ends when every run is short enough to be
read. This is binary search for any leaf that ranges can answer. With many pages it fetches several
at a time, so that six rounds are enough. For a column with a column index it fetches nothing.

Sorted means: the values that are not null ascend (or descend) in the order of their keys, NaN
largest, and all nulls are at one end. Spark writes INT96 timestamps without a column index; this
search helps where they are sorted. Page places come from the offset index, or from a walk over the
page headers that put them into ``IndexedFile.offset_indexes``. Values of read pages are cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.format.page_index import OffsetIndexArrays
from skipstone.parquet.pages.column_values import decode_data_page
from skipstone.parquet.pages.page import read_page
from skipstone.parquet.values import plain_values
from skipstone.predicate.literals import Key, Keys
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning import Answer, BoolArray, Bounds, Cause, Fetched, Level, Reason, Units
from skipstone.pruning.interval import Intervals
from skipstone.storage import ByteRange

from ..._arrays import distinct
from .dictionary import dictionary_values
from .indexed_file import ColumnEvidence, IndexedFile, bounds_of_parts
from .stored_values import Form
from .value_bounds import ValueBounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.parquet.values import I64, Values


# Runs of at most this many undecided pages are read instead of searched.
_SHORT = 2
# The rounds that a search takes at most, about; the planner allows eight.
_ROUNDS = 6
# Operators whose matches lie in one part of a sorted column, or in a few parts.
_FOUND = frozenset((Op.EQ, Op.IN, Op.LT, Op.LE, Op.GT, Op.GE, Op.STARTS_WITH, Op.LIKE))


@dataclass(frozen=True, slots=True)
class _ReadPage:
    """A page that was read: its least and largest key (``None`` if it has only nulls), and its
    number of nulls."""

    lo: Key | None
    hi: Key | None
    nulls: int


class _ChunkSearch:
    """The state of the search in one chunk."""

    def __init__(
        self, file: IndexedFile, group: int, leaf: int, places: OffsetIndexArrays, descending: bool
    ) -> None:
        self.file, self.group, self.leaf = file, group, leaf
        self.places, self.descending = places, descending
        self.stored = file.stored(leaf)
        self.column = file.footer.schema.leaves[leaf]
        self.codec = int(file.footer.chunk("codec")[group, leaf])
        self.rows = places.rows(int(file.footer.group("num_rows")[group]))
        self.first_row = places.first_row_index + file.footer.row_starts[group]
        self.seen: dict[int, _ReadPage] = {}
        self.requested: set[int] = set()
        self.dictionary: Values | None = None
        self.failed: Reason | None = None

    def __len__(self) -> int:
        return len(self.places)

    def bounds(self, *, nulls: bool = True) -> ValueBounds:
        """Bounds of every page, from the pages that were read; without ``nulls`` as if none had
        any."""
        lo: list[Key | None] = [None] * len(self)
        hi: list[Key | None] = [None] * len(self)
        known = self.file.chunk_bounds(self.leaf).all
        none = not nulls or known.nulls[self.group] == 0
        counts = np.full(len(self), 0 if none else -1, np.int64)
        # All nulls are at one end, so no page between two with values has any.
        held = [page for page, seen in self.seen.items() if seen.lo is not None]
        counts[min(held, default=0) : max(held, default=0)] = 0
        rising = range(len(self))[:: -1 if self.descending else 1]
        floor: Key | None = None
        for page in rising:
            seen = self.seen.get(page)
            lo[page] = floor if seen is None else seen.lo
            if seen is not None:
                counts[page] = seen.nulls
                floor = floor if seen.hi is None else seen.hi
        ceiling: Key | None = None
        for page in reversed(rising):
            seen = self.seen.get(page)
            hi[page] = ceiling if seen is None else seen.hi
            if seen is not None:
                ceiling = ceiling if seen.lo is None else seen.lo
        assert self.stored.type is not None
        intervals = Intervals.checked(
            type=self.stored.type,
            lo=_keys(lo, known.lo),
            hi=_keys(hi, known.lo),
            rows=self.rows,
            nulls=counts,
        )
        return ValueBounds(stored=self.stored, all=intervals)

    def wanted(self, undecided: BoolArray) -> list[ByteRange]:
        """Pages to read, and the dictionary page if there is one; none when all is decided."""
        pages: list[int] = []
        edges = np.flatnonzero(np.diff(undecided.astype(np.int8), prepend=0, append=0))
        for start, stop in edges.reshape(-1, 2).tolist():
            if stop - start > _SHORT:
                pages += [page for page in self._pivots(start, stop) if page not in self.seen]
        if not pages:
            return []
        self.requested.update(pages)
        ranges = [self._range(page) for page in pages]
        place = self._dictionary_range()
        return ranges if place is None or self.dictionary is not None else [place, *ranges]

    def _pivots(self, start: int, stop: int) -> list[int]:
        """Pages that divide a run into parts: enough that ``_ROUNDS`` suffice for all pages."""
        parts = 2
        while parts**_ROUNDS < len(self):
            parts += 1
        return sorted({start + (stop - start) * part // parts for part in range(1, parts)})

    def take(self, have: Fetched) -> None:
        """Decode the pages that were fetched."""
        try:
            place = self._dictionary_range()
            if self.dictionary is None and place is not None and place in have:
                self.dictionary = dictionary_values(
                    self.file, self.leaf, self.group, have[place], place.offset
                )
            for page in sorted(self.requested - self.seen.keys()):
                data = have.get(self._range(page))
                if data is not None:
                    self.seen[page] = self._decode(page, data)
        except (SkipstoneError, ValueError) as error:
            self.failed = Reason.of_error("sorted", error)

    def _range(self, page: int) -> ByteRange:
        offset, length = self.places.offset[page], self.places.compressed_page_size[page]
        return ByteRange(self.file.home(self.leaf)[0], int(offset), int(length))

    def _dictionary_range(self) -> ByteRange | None:
        footer = self.file.footer
        offset = int(footer.chunk("dictionary_page_offset")[self.group, self.leaf])
        length = int(footer.chunk("data_page_offset")[self.group, self.leaf]) - offset
        if offset <= 0 or not self.file.fits(offset, length, self.leaf):
            return None
        return ByteRange(self.file.home(self.leaf)[0], offset, length)

    def _decode(self, number: int, data: bytes | memoryview) -> _ReadPage:
        decryptor = self.file.decryptor_of(self.group, self.leaf)
        base, rows = int(self.places.offset[number]), int(self.rows[number])
        page = read_page(data, base=base, ordinal=number, decryptor=decryptor)
        if self.file.verify_crc:
            page.verify_crc()
        if not page.is_data or page.num_values != rows:
            raise FormatError(
                "a page with another number of rows than in its index", offset=base, expected=rows
            )
        body = page.decrypted(decryptor)
        column = decode_data_page(page, self.column, self.codec, self.dictionary, body)
        values = plain_values(column.values())
        count = len(values)
        if not count:
            return _ReadPage(None, None, rows)
        known = np.ones(count, np.bool_)
        lower, upper = self.stored.keys(values, known), self.stored.keys(values, known, upper=True)
        if not (lower.valid.all() and upper.valid.all()):
            raise FormatError("values that are not of the column's type", offset=base)
        least, most = (count - 1, 0) if self.descending else (0, count - 1)
        (low,) = lower.take(np.array([least])).to_list()
        (high,) = upper.take(np.array([most])).to_list()
        return _ReadPage(low, high, rows - count)


def _keys(values: list[Key | None], like: Keys) -> Keys:
    valid = np.array([value is not None for value in values], np.bool_)
    if like.is_int:
        return Keys(np.array([int(value or 0) for value in values], np.int64), valid)
    return Keys(pa.array(values, pa.large_binary()), valid)


class SortedEvidence(ColumnEvidence):
    """Searches in the sorted chunks of one column that have no bounds; see the module."""

    name = "sorted"
    level = Level.PAGE
    cost = 10.0

    @staticmethod
    def exists(file: IndexedFile, leaf: int) -> bool:
        """Whether some row group was verified to be sorted by the leaf."""
        return any(leaf == each for _, each in file.verified)

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """The next pages to read."""
        wanted: list[ByteRange] = []
        for search, _, page in self._searches(units):
            search.take(have)
            if search.failed is not None:
                continue
            bounds = search.bounds(nulls=False)
            undecided = np.zeros(len(search), np.bool_)
            for leaf in leaves:
                found = bounds.bounds_of(leaf) if leaf.op in _FOUND else None
                if found is not None:
                    undecided |= found.may & ~found.must
            here = np.zeros(len(search), np.bool_)
            here[page] = True
            wanted += [each for each in search.wanted(undecided & here) if each not in have]
        return wanted

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        failed: list[Reason] = []
        parts = []
        for search, at, page in self._searches(units):
            search.take(have)
            if search.failed is not None:
                failed.append(search.failed)
            else:
                parts.append((at, page, search.bounds()))
        reasons = self.named(failed)
        answers = []
        for leaf in leaves:
            if parts:
                found = bounds_of_parts(leaf, len(units), parts)
                if found is None:
                    found = Bounds.unknown(len(units))
                answers.append(Answer(bounds=found, reasons=reasons))
            elif reasons:
                answers.append(Answer(bounds=None, reasons=reasons))
            else:
                text = "no chunk here is sorted, or all have bounds"
                answers.append(Answer.silent(Cause.ABSENT, self.subject, text))
        return answers

    def _searches(self, units: Units) -> list[tuple[_ChunkSearch, I64, I64]]:
        """The searches that contain units; which units, and the page of each."""
        found = []
        for ordinal, file in self.files.items():
            leaf = file.columns[self.column]
            mine = units.file == ordinal
            for group in distinct(units.ordinal[mine]).tolist():
                search = _search(file, group, leaf)
                if search is None:
                    continue
                at = np.flatnonzero(mine & (units.ordinal == group))
                row = units.first_row[at]
                page = np.searchsorted(search.first_row, row, side="right") - 1
                last = (search.first_row + search.rows)[page]
                inside = (page >= 0) & (row + units.rows[at] <= last) & (units.rows[at] >= 0)
                found.append((search, at[inside], page[inside]))
        return found


def _search(file: IndexedFile, group: int, leaf: int) -> _ChunkSearch | None:
    """The search in a chunk; ``None`` where it is not sorted, or needs none."""
    key = ("sorted", group, leaf)
    if key in file.cache:
        known: _ChunkSearch | None = file.cache[key]
        return known
    places, bounds = file.offset_indexes.get((group, leaf)), file.bounds_of_pages(group, leaf)
    unread = isinstance(bounds, Reason) and bounds.cause is Cause.UNREADABLE
    if (group, leaf) not in file.verified or not isinstance(places, OffsetIndexArrays) or unread:
        return None  # not cached: a later call may find one
    made: _ChunkSearch | None = None
    order = file.footer.sorting_columns(group)
    sound = isinstance(bounds, Reason) and not file.elsewhere(group, leaf)
    if sound and order and order[0].column_idx == leaf and file.stored(leaf).form is not Form.NONE:
        made = _ChunkSearch(file, group, leaf, places, order[0].descending)
    file.cache[key] = made
    return made
