"""Two levels of a plan: a file's row groups and its pages, with evidence from Parquet's metadata.

``RowGroupSource`` splits files by the row counts of their row groups. Its evidence: ``statistics``
from the footer, without reads; ``bloom filter``, a header and a block per value; ``dictionary``, a
page per row group where that is cheap enough.

``PageSource`` splits row groups at page boundaries. The pages of two columns do not begin at the
same rows. So a unit is a run of rows between the page boundaries of **any** predicate column that
has an offset index: it lies within one page of each of them. ``split`` fetches the offset indexes
for that, and in the same wave the column indexes, which the evidence needs next. Nothing of other
columns or row groups is read. Parsed indexes stay in the file.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.predicate.tree import is_expression
from skipstone.pruning import Answer, Cause, Level, Reason, Units
from skipstone.pruning.evidence import Source
from skipstone.pruning.interval import Intervals
from skipstone.pruning.pairs import Bounded

from ..._arrays import distinct, within
from .bloom import BloomEvidence
from .dictionary import DictionaryEvidence, stored_dictionaries
from .indexed_file import ColumnEvidence, bounds_of_parts, files_with
from .sorted_pages import SortedEvidence
from .value_bounds import ValueBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from skipstone.parquet.values import I64
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Evidence, Fetched
    from skipstone.storage import ByteRange

    from .indexed_file import IndexedFile
    from .stored_values import StoredColumn


_File = TypeVar("_File")


@dataclass(frozen=True, slots=True, eq=False)
class FilesBounds:
    """Bounds of several files that store a column in the same way: row group ``r`` of file ``f`` is
    at ``base[f] + r``; ``base`` is -1 for all other files."""

    bounds: ValueBounds
    base: I64

    @classmethod
    def of(cls, bounds: ValueBounds, sizes: Mapping[int, int]) -> Self:
        """``sizes`` are the row groups of each file, in the order of ``bounds``."""
        base = np.full(max(sizes) + 1, -1, np.int64)
        counts = np.array(list(sizes.values()), np.int64)
        base[list(sizes)] = np.cumsum(counts) - counts
        return cls(bounds, base)

    def places(self, units: Units) -> tuple[BoolArray, I64]:
        """Which units are row groups of these files, and the places of those in ``bounds``."""
        inside = units.file < len(self.base)
        base = self.base[np.where(inside, units.file, 0)]
        here = inside & (base >= 0)
        return here, base[here] + units.ordinal[here]


def row_groups(
    units: Units, files: Mapping[int, _File], row_starts: Callable[[_File], I64]
) -> tuple[Units, I64]:
    """The row groups of every file among ``files``, and which of ``units`` each lies in.

    ``row_starts`` gives the rows before each row group of a file, and all rows at the end.
    """
    here = [(at, file) for at, file in enumerate(units.file.tolist()) if file in files]
    starts = [row_starts(files[file]) for _, file in here]
    counts = np.array([len(each) - 1 for each in starts], np.int64)
    parent = np.repeat(np.array([at for at, _ in here], np.int64), counts)
    every = np.concatenate([np.empty(0, np.int64), *starts])
    first = np.delete(np.arange(len(every)), np.cumsum(counts + 1) - 1)
    return Units(
        level=Level.ROW_GROUP,
        file=units.file[parent],
        ordinal=within(counts),
        first_row=every[first],
        rows=every[first + 1] - every[first],
    ), parent


class RowGroupSource(Source):
    """Units and evidence of the row groups of ``files``, by their ordinals in the plan's listing.

    Keep it as long as the files: it caches combined bounds.
    """

    level = Level.ROW_GROUP

    def __init__(self, files: Mapping[int, IndexedFile]) -> None:
        self.files = files
        self._combined: dict[str, list[FilesBounds]] = {}

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, I64]:
        """The row groups of every file of this source."""
        return row_groups(units, self.files, lambda file: file.footer.row_starts)

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """Statistics, Bloom filters and dictionaries of these columns."""
        found: list[Evidence[Leaf]] = []
        for column in sorted(columns):
            holding = files_with(column, self.files)
            if not holding:
                continue
            found.append(StatisticsEvidence(column, self._bounds(column, holding)))
            for kind in (BloomEvidence, DictionaryEvidence):
                evidence = kind.of(column, holding)
                if evidence is not None:
                    found.append(evidence)
        return found

    def decoded(self, index: str, column: str, units: Units) -> int:
        """The bytes of dictionary pages."""
        if index != DictionaryEvidence.name:
            return 0
        return stored_dictionaries(column, self.files, units)

    def _bounds(self, column: str, holding: Mapping[int, IndexedFile]) -> list[FilesBounds]:
        known = self._combined.get(column)
        if known is not None:
            return known
        groups: dict[object, list[tuple[int, ValueBounds]]] = {}
        for ordinal, file in holding.items():
            bounds = file.chunk_bounds(file.columns[column])
            stored = bounds.stored
            key = (stored.form, stored.type, stored.unit, stored.column.type)
            groups.setdefault(key, []).append((ordinal, bounds))
        combined = []
        for members in groups.values():
            sizes = {ordinal: len(bounds) for ordinal, bounds in members}
            combined.append(
                FilesBounds.of(ValueBounds.concat([each for _, each in members]), sizes)
            )
        self._combined[column] = combined
        return combined


class StatisticsEvidence(ColumnEvidence):
    """Bounds and null counts of row groups (``value_bounds.py``)."""

    name = "statistics"
    level = Level.ROW_GROUP
    cost = 1.0

    def __init__(
        self, column: str, combined: Sequence[FilesBounds], reasons: Sequence[Reason] = ()
    ) -> None:
        super().__init__(column, {})
        self.combined, self.reasons = combined, tuple(reasons)

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        parts: list[tuple[BoolArray, slice, ValueBounds]] = []
        covered = np.zeros(len(units), np.bool_)
        for each in self.combined:
            here, at = each.places(units)
            if not len(at):
                continue
            covered |= here
            whole = len(at) == len(each.bounds) and bool(np.array_equal(at, np.arange(len(at))))
            bounds = each.bounds if whole else each.bounds.where(at)
            parts.append((here, slice(None), bounds))
        reasons: tuple[Reason, ...] = ()
        absent = len(units) - int(np.count_nonzero(covered))
        if absent:
            text = f"{absent:,} of {len(units):,} row groups have no such column"
            reasons = (Reason(cause=Cause.ABSENT, subject=self.subject, text=text, units=absent),)
        answers = []
        for leaf in leaves:
            found = bounds_of_parts(leaf, len(units), parts)
            known = self.silent(leaf).reasons if found is None else reasons
            answers.append(Answer(bounds=found, reasons=(*known, *self.reasons)))
        return answers

    def bounded(self, units: Units) -> Sequence[Bounded]:
        """Bounds of the row groups."""
        found = []
        for each in self.combined:
            here, places = each.places(units)
            stored = each.bounds.stored
            if not len(places) or stored.type is None:
                continue
            at = np.zeros(len(units), np.int64)
            at[here] = places
            found.append(Bounded(each.bounds.all.where(at).only(here), _domain(stored)))
        return found


def _domain(stored: StoredColumn) -> Hashable:
    """Equal for two columns if their keys compare as their values do."""
    type = "integer" if pa.types.is_integer(stored.type) else stored.type
    return stored.form, stored.unit, type


Fetch: TypeAlias = "Callable[[Sequence[ByteRange]], Fetched]"

log = logging.getLogger("skipstone")
_KINDS = ("offset_index", "column_index")


class PageSource(Source):
    """Units and evidence of the pages of ``files``; see the module."""

    level = Level.PAGE

    def __init__(self, files: Mapping[int, IndexedFile], fetch: Fetch) -> None:
        self.files, self.fetch = files, fetch
        self.bytes_read = self.requests = 0

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, I64]:
        """The runs of rows between page boundaries, of every row group that has a page index."""
        self._read(units, columns)
        starts: list[I64] = []
        parents: list[int] = []
        places = zip(units.file.tolist(), units.ordinal.tolist(), strict=True)
        for at, (ordinal, group) in enumerate(places):
            file = self.files.get(ordinal)
            found = None if file is None else _boundaries(file, group, columns)
            if found is not None:
                starts.append(found)
                parents.append(at)
        none = np.empty(0, np.int64)
        counts = np.array([len(each) for each in starts], np.int64)
        parent = np.repeat(np.array(parents, np.int64), counts)
        first = np.concatenate([none, *starts])
        rows = np.empty_like(first)
        rows[:-1] = first[1:] - first[:-1]
        # The last run of a row group ends with it.
        last = np.cumsum(counts) - 1
        rows[last] = units.rows[parents] - first[last]
        return Units(
            level=Level.PAGE,
            file=units.file[parent],
            ordinal=units.ordinal[parent],
            first_row=units.first_row[parent] + first,
            rows=rows,
        ), parent

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """The column indexes of these columns, and searches where they are sorted."""
        found: list[Evidence[Leaf]] = []
        for column in sorted(columns):
            holding = files_with(column, self.files)
            if not holding:
                continue
            found.append(PageIndexEvidence(column, holding))
            # Elements cannot be searched: a row has no single value to sort by.
            search = None if is_expression(column) else SortedEvidence.of(column, holding)
            if search is not None:
                found.append(search)
        return found

    def _read(self, units: Units, columns: frozenset[str]) -> None:
        wanted = _indexes(self.files, columns, units, {})
        if not wanted:
            return
        self.bytes_read += sum(each.length for each in wanted)
        self.requests += len(wanted)
        have: Fetched = {}
        try:
            have = self.fetch(wanted)
        except (OSError, LookupError) as error:
            log.warning("page index not read: %s: %s", type(error).__name__, error)
        _indexes(self.files, columns, units, have)


def _indexes(
    files: Mapping[int, IndexedFile], columns: Iterable[str], units: Units, have: Fetched
) -> list[ByteRange]:
    """Parses the indexes of the chunks that contain units; returns the ranges that are missing."""
    groups = dict.fromkeys(zip(units.file.tolist(), units.ordinal.tolist(), strict=True))
    wanted = [
        file.take_index(kind, group, leaf, have)
        for file, group in ((files.get(ordinal), group) for ordinal, group in groups)
        if file is not None
        for leaf in [file.columns[column] for column in columns if column in file.columns]
        for kind in _KINDS
    ]
    return [need for need in wanted if need is not None]


def _boundaries(file: IndexedFile, group: int, columns: frozenset[str]) -> I64 | None:
    """First rows of the runs in a row group, from its start; ``None`` without any page index."""
    known: list[I64] = []
    leaves = sorted({file.columns[column] for column in columns if column in file.columns})
    for leaf in leaves:
        first = file.first_rows(group, leaf)
        if first is not None and len(first):
            known.append(first)
    if not known:
        return None
    if len(known) == 1 and np.all(known[0][1:] > known[0][:-1]):
        starts = known[0]
    else:
        starts = distinct(np.concatenate(known))
    # An empty page at the very end begins no run.
    rows = int(file.footer.group("num_rows")[group])
    return starts if starts[-1] < rows else np.asarray(starts[starts < rows])


class PageIndexEvidence(ColumnEvidence):
    """Bounds and null counts of the pages of one column (``value_bounds.py``)."""

    name = "page index"
    level = Level.PAGE
    cost = 1.0

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """The indexes of the chunks that contain units, unless they are parsed already."""
        return _indexes(self.files, (self.column,), units, have)

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        parts: list[tuple[I64, I64, ValueBounds]] = []
        reasons: dict[Reason, None] = {}
        for ordinal, file in self.files.items():
            groups = _groups(units, ordinal)
            if groups:
                self._collect(file, ordinal, groups, units, parts, reasons)
        named = self.named(reasons)
        answers = []
        for leaf in leaves:
            found = bounds_of_parts(leaf, len(units), parts)
            if found is None and (parts or not named):
                answers.append(self.silent(leaf))
            else:
                answers.append(Answer(bounds=found, reasons=named))
        return answers

    def bounded(self, units: Units) -> Sequence[Bounded]:
        """Bounds of the page that each unit lies in. Pages of two columns begin at other rows, and
        no unit crosses the beginning of a page."""
        alike: dict[object, list[tuple[I64, I64, ValueBounds]]] = {}
        for ordinal, file in self.files.items():
            parts: list[tuple[I64, I64, ValueBounds]] = []
            if groups := _groups(units, ordinal):
                self._collect(file, ordinal, groups, units, parts, {})
            for part in parts:
                stored = part[2].stored
                if stored.type is not None:
                    alike.setdefault((_domain(stored), stored.type), []).append(part)
        found = []
        for members in alike.values():
            place, here = np.zeros(len(units), np.int64), np.zeros(len(units), np.bool_)
            before = 0
            for at, page, bounds in members:
                place[at], here[at] = before + page, True
                before += len(bounds)
            pages = Intervals.concat([bounds.all for _, _, bounds in members])
            found.append(Bounded(pages.where(place).only(here), _domain(members[0][2].stored)))
        return found

    def _collect(
        self,
        file: IndexedFile,
        ordinal: int,
        groups: list[int],
        units: Units,
        parts: list[tuple[I64, I64, ValueBounds]],
        reasons: dict[Reason, None],
    ) -> None:
        """Add the units of one file, the page of each, and the bounds of the pages."""
        leaf = file.columns[self.column]
        key = ("pages together", leaf)
        known: tuple[list[int], I64, ValueBounds | None, list[Reason]] | None
        known = file.cache.get(key)
        if known is None or known[0] != groups:
            known = (groups, *_together(file, leaf, groups))
            if all(each.cause is not Cause.UNREADABLE for each in known[3]):
                file.cache[key] = known
        _, first_row, together, silent = known
        reasons.update(dict.fromkeys(silent))
        if together is None:
            return
        last_row = first_row + together.all.rows
        at = np.flatnonzero(units.file == ordinal)
        row = units.first_row[at]
        page = np.searchsorted(first_row, row, side="right") - 1
        inside = (page >= 0) & (row + units.rows[at] <= last_row[page]) & (units.rows[at] >= 0)
        parts.append((at[inside], page[inside], together))


def _together(
    file: IndexedFile, leaf: int, groups: list[int]
) -> tuple[I64, ValueBounds | None, list[Reason]]:
    """First rows in the file, and bounds, of the pages of all these row groups; and why some of
    them have none."""
    bounds, firsts, silent = [], [], []
    for group in groups:
        found, first = file.bounds_of_pages(group, leaf), file.first_rows(group, leaf)
        if isinstance(found, Reason):
            silent.append(found)
        elif first is not None:
            repeated = found.stored.column.max_repetition_level
            bounds.append(found.of_elements() if repeated else found)
            firsts.append(first + file.footer.row_starts[group])
    if not bounds:
        return np.empty(0, np.int64), None, silent
    return np.concatenate(firsts), ValueBounds.concat(bounds), silent


def _groups(units: Units, ordinal: int) -> list[int]:
    """The row groups of a file that contain units."""
    mine = units.ordinal[units.file == ordinal]
    return list(dict.fromkeys(mine.tolist()))
