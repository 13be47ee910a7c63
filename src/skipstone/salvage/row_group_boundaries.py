"""Where chunks and row groups begin among pages that follow each other.

    pages     d p p p │ d p p │ p p p p ║ d p p p │ …     d: a dictionary, which begins a chunk
    leaves       0        1        2          0          │ chunk, ║ row group
    rows       8 8 4     20     5 5 5 5    8 8 4         equal in every chunk of a row group

The chunks of a row group follow the order of the schema and hold equally many rows. The number of
rows of the first chunk therefore fixes all other chunks, if it fits at all: a candidate. A sequence
of row groups is a path from the first page to the last, and there may be several paths:

    certain      the row group lies on every path
    ambiguous    it lies on some: the same pages can be divided in another way
    incomplete   no path has all of it

Only certain row groups are taken. A file of one column needs no boundaries: any division gives its
rows. Where the beginning or the end of the pages is lost, a path may begin or end within a row
group.

Pages that cannot belong to a leaf are excluded in stages; a stage runs only if the previous one
left more than one division. The stages check the headers; then decoding; then whether the column
may have the values (``page_check``), and the codec, of which a chunk has one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from skipstone._dataclasses import dataclass
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.pages.page_headers import HAS_CRC, TYPE

from .page_check import PageCheck, header_fits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.parquet.format.schema import ColumnDescriptor

    from .page_map import Region


# Pages examined in all, per page: a division that needs more is ambiguous.
_EFFORT: Final = 64
_LEAST: Final = 2_000_000
# The cost of decoding a page, in pages examined.
_DECODING: Final = 8
_TORN: Final = -1
_HEADERS, _DECODED, _PLAUSIBLE = _STAGES = range(3)
_MOST_COUNTS: Final = 8
_MOST_TRIED: Final = 100
_MANY: Final = 1_000_000
_MAY_CONTINUE_ROW: Final = "lists whose first pages are lost may continue a lost row"
_TOO_MANY: Final = "too many ways to divide the pages"
_NO_WAY: Final = "the pages do not divide into row groups of this schema"
_NOT_WHOLE: Final = "incomplete row groups"
LIST_MAY_CONTINUE: Final = "its last list may continue after the last byte"


@dataclass(slots=True, kw_only=True)
class KnownBoundaries:
    """``boundary``: before each page, and after the last, 1 if a chunk begins there, -1 if none
    does, 0 if unknown. ``owner``: the ordinal of the leaf of a page, -1 if unknown."""

    boundary: list[int]
    owner: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupPages:
    """A row group of ``num_rows``; chunk k is pages ``boundaries[k]`` to ``boundaries[k+1]``."""

    boundaries: tuple[int, ...]
    num_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupBoundaries:
    """The certain row groups, and how many pages are in none.

    ``row_counts``: row counts per row group (but the last) that would each divide all the pages.
    """

    row_groups: tuple[RowGroupPages, ...]
    ambiguous_pages: int = 0
    incomplete_pages: int = 0
    why: str = ""
    row_counts: tuple[int, ...] = ()


class _EffortExceededError(Exception):
    pass


def find_boundaries(
    region: Region,
    leaves: Sequence[ColumnDescriptor],
    check: PageCheck,
    known: KnownBoundaries,
    *,
    row_group_rows: int | None = None,
) -> RowGroupBoundaries:
    """The row groups among the pages of a region. ``row_group_rows``: the rows of every row group
    but the last, which has no more."""
    pages = len(region.rows)
    if not pages or not leaves:
        return RowGroupBoundaries(row_groups=(), incomplete_pages=pages)
    if not region.begins and len(leaves) == 1 and leaves[0].max_repetition_level:
        # The first pages may continue a lost row.
        return RowGroupBoundaries(row_groups=(), incomplete_pages=pages, why=_MAY_CONTINUE_ROW)
    finder = _Finder(region, leaves, check, known, row_group_rows)
    found = RowGroupBoundaries(row_groups=(), ambiguous_pages=pages, why=_TOO_MANY)
    for finder.stage in _STAGES:
        try:
            made = finder.found()
        except _EffortExceededError:
            continue
        # A damaged page may look like one of another column. Then nothing fits, and the certain row
        # groups of the previous stage count.
        if made.why != _NO_WAY or found.why == _TOO_MANY:
            found = made
        if not found.ambiguous_pages:
            break
    return found


def divide_chunks(
    region: Region,
    leaves: Sequence[ColumnDescriptor],
    rows: Sequence[int],
    check: PageCheck,
    known: KnownBoundaries,
) -> tuple[int, ...]:
    """Where the chunks of these leaves begin and the last one ends, if they fill the region.

    ``rows``: the rows of each. Empty if there are several ways to divide the region, or none.
    """
    finder = _Finder(region, leaves, check, known, None)
    for finder.stage in _STAGES:
        finder.begin()
        found: list[tuple[int, ...]] = []
        todo: list[tuple[int, ...]] = [(0,)]
        try:
            while todo and len(found) < 2:
                path = todo.pop()
                leaf = len(path) - 1
                if leaf == len(leaves):
                    found += [path] if path[-1] == finder.count else []
                    continue
                todo += [(*path, stop) for stop, _ in finder.ends(path[-1], leaf, rows[leaf])]
        except _EffortExceededError:
            continue
        if len(found) < 2:
            return found[0] if found else ()
    return ()


class _Finder:
    def __init__(
        self,
        region: Region,
        leaves: Sequence[ColumnDescriptor],
        check: PageCheck,
        known: KnownBoundaries,
        row_group_rows: int | None,
    ) -> None:
        self.region, self.rows, self.leaves, self.check = region, region.rows, leaves, check
        self.count = len(region.rows)
        self.row_group_rows = row_group_rows
        self.boundary, self.owner = known.boundary, known.owner
        self.stage = _HEADERS
        self.effort = 0
        self.fits_memo: dict[tuple[int, int], bool] = {}

    def begin(self) -> None:
        """Start a stage: pages that fitted in the stage before may not fit now."""
        self.effort = max(_LEAST, _EFFORT * self.count)
        self.fits_memo.clear()

    def found(self) -> RowGroupBoundaries:
        self.begin()
        if len(self.leaves) == 1:
            return self._single()
        return self._certain()

    # -- one column --------------------------------------------------------------------------------

    def _single(self) -> RowGroupBoundaries:
        """Chunks as long as possible: the boundaries of a single column do not matter."""
        made: list[RowGroupPages] = []
        at = lost = 0
        leaf = self.leaves[0]
        while at < self.count:
            stop = at + 1
            while stop < self.count and self.boundary[stop] != 1:
                stop += 1
            rows = 0
            fits = all(self.fits(k, 0) for k in range(at, stop))
            for k in range(at, stop):
                begun = self.check.begins(self.rows[k], leaf)
                fits = fits and begun is not None and not (k == at and begun[1])
                rows += begun[0] if begun is not None else 0
            if stop == self.count and not self.ends_row(stop, 0):
                fits = False
            if fits and rows:
                made.append(RowGroupPages(boundaries=(at, stop), num_rows=rows))
            else:
                lost += stop - at
            at = stop
        return RowGroupBoundaries(row_groups=tuple(made), incomplete_pages=lost)

    # -- several -----------------------------------------------------------------------------------

    def fits(self, page: int, leaf: int) -> bool:
        key = page, leaf
        found = self.fits_memo.get(key)
        if found is None:
            row = self.rows[page]
            check_values = self.stage >= _PLAUSIBLE
            found = header_fits(row, self.leaves[leaf]) and self.owner[page] in (-1, leaf)
            if found and self.stage and int(row[TYPE]) != PageType.INDEX_PAGE:
                self.effort -= _DECODING
                found = self.check.decodes(
                    row, self.leaves[leaf], check_values=check_values
                ) or self.damaged(page)
            self.fits_memo[key] = found
        return found

    def damaged(self, page: int) -> bool:
        """Whether a page fits no column at all, so that its owner is unknown."""
        self.effort -= len(self.leaves)
        row = self.rows[page]
        if row[HAS_CRC] and self.check.page(row).crc_matches() is False:
            return True
        check_values = self.stage >= _PLAUSIBLE
        return not any(
            self.check.decodes(row, leaf, check_values=check_values) for leaf in self.leaves
        )

    def ends_row(self, stop: int, leaf: int) -> bool:
        """Whether a chunk of this leaf may end before page ``stop``."""
        known = stop < self.count or self.region.followed
        if known or not self.leaves[leaf].max_repetition_level:
            return True
        return int(self.rows[stop - 1][TYPE]) == PageType.DATA_PAGE_V2

    def ends(self, start: int, leaf: int, wanted: int | None) -> Iterator[tuple[int, int]]:
        """Where a chunk that begins at ``start`` may end, and its rows; ``_TORN`` for the end if
        the pages end first."""
        rows, k = 0, start
        codecs: frozenset[int] | None = None
        while k < self.count:
            if k > start and self.boundary[k] == 1:
                return
            if k == start and self.boundary[k] == -1:
                return
            self.effort -= 1
            if self.effort < 0:
                raise _EffortExceededError
            if not self.fits(k, leaf):
                return
            if self.stage >= _PLAUSIBLE:
                own = self.check.codecs(self.rows[k])
                codecs = own if codecs is None or not codecs else codecs & (own or codecs)
                if own and not codecs:
                    return
            begun = self.check.begins(self.rows[k], self.leaves[leaf])
            if begun is None or (begun[1] and not rows):
                return
            rows += begun[0]
            k += 1
            if wanted is not None and rows > wanted:
                return
            may_end = self.boundary[k] != -1 and self.ends_row(k, leaf)
            if rows and may_end and (wanted is None or rows == wanted):
                yield k, rows
        open_ended = wanted is None or rows < wanted or not self.ends_row(self.count, leaf)
        if not self.region.ends and open_ended:
            yield _TORN, rows

    def groups(self, start: int) -> Iterator[RowGroupPages | None]:
        """Row groups that may begin at a page; one ``None`` for an incomplete row group."""
        torn = False
        for stop, rows in self.ends(start, 0, None):
            if stop == _TORN:
                torn = True
                continue
            if self.row_group_rows is not None and rows > self.row_group_rows:
                break
            least = rows < (self.row_group_rows or 0)
            for each in self.rest(1, ((None, start), stop), rows):
                if each is None:
                    torn = True
                elif not least or each.boundaries[-1] == self.count:
                    yield each
        if torn:
            yield None

    def rest(self, leaf: int, path: object, rows: int) -> Iterator[RowGroupPages | None]:
        """Row groups whose first chunks are those of ``path``; ``None`` for an incomplete one."""
        stack: list[tuple[int, object]] = [(leaf, path)]
        while stack:
            leaf, path = stack.pop()
            at: int = path[1]  # type: ignore[index]
            if leaf == len(self.leaves):
                self.effort -= leaf
                yield RowGroupPages(boundaries=_path_of(path), num_rows=rows)
                continue
            if at == self.count:
                if not self.region.ends:
                    yield None
                continue
            for stop, _ in self.ends(at, leaf, rows):
                if stop == _TORN:
                    yield None
                else:
                    stack.append((leaf + 1, (path, stop)))

    def entries(self) -> set[int]:
        """Pages at which the first complete row group may begin; ``count``: there is none."""
        if self.region.begins:
            return {0}
        found = {0} if self.boundary[0] != -1 else set()
        # The leaf of the first pages may have lost earlier pages, and a dictionary.
        kept, self.boundary[0] = self.boundary[0], 0
        try:
            for leaf in range(len(self.leaves)):
                for stop, least in self.ends(0, leaf, None):
                    if stop == _TORN or stop == self.count:
                        found.add(self.count)
                    elif leaf == len(self.leaves) - 1:
                        found.add(stop)
                    else:
                        for after, rows in self.ends(stop, leaf + 1, None):
                            if after == _TORN:
                                found.add(self.count)
                            elif rows >= least:
                                for each in self.rest(leaf + 2, ((None, stop), after), rows):
                                    found.add(self.count if each is None else each.boundaries[-1])
        finally:
            self.boundary[0] = kept
        return found

    def _certain(self) -> RowGroupBoundaries:
        entries = self.entries()
        edges: dict[int, list[RowGroupPages | None]] = {}
        todo = sorted(entries, reverse=True)
        while todo:
            at = todo.pop()
            if at in edges or at == self.count:
                continue
            edges[at] = list(self.groups(at))
            todo += [each.boundaries[-1] for each in edges[at] if each is not None]
        # The number of paths from a page to the end. It may double with every page.
        onward: dict[int, int] = defaultdict(int)
        onward[self.count] = 1
        for at in sorted(edges, reverse=True):
            ways = sum(1 if e is None else onward[e.boundaries[-1]] for e in edges[at])
            onward[at] = min(ways, _MANY)
        total = sum(onward[at] for at in entries)
        if not total:
            return RowGroupBoundaries(row_groups=(), ambiguous_pages=self.count, why=_NO_WAY)
        # A path contains every page, in a complete row group or a partial one. So a row group lies
        # on all paths if no other span contains one of its pages.
        spans = [(0, at) for at in entries if at and onward[at]]
        useful: list[RowGroupPages] = []
        for at in sorted(edges):
            for each in edges[at]:
                if each is None:
                    spans.append((at, self.count))
                elif onward[each.boundaries[-1]]:
                    spans.append((at, each.boundaries[-1]))
                    useful.append(each)
        others = _surplus_spans(spans, self.count)
        made = [e for e in useful if others[e.boundaries[0]] == others[e.boundaries[-1]]]
        unsure = len(useful) - len(made)
        left = self.count - sum(each.boundaries[-1] - each.boundaries[0] for each in made)
        if unsure:
            many = f"{total:,}" if total < _MANY else "more than a million"
            why = f"columns of one type: the pages divide into row groups in {many} ways"
            return RowGroupBoundaries(
                row_groups=tuple(made),
                ambiguous_pages=left,
                why=why,
                row_counts=self.row_counts(edges, entries),
            )
        last = made[-1].boundaries[-1] if made else 0
        goes_on = left and last < self.count and not self.region.followed
        nested = goes_on and any(leaf.max_repetition_level for leaf in self.leaves[-1:])
        why = LIST_MAY_CONTINUE if nested else _NOT_WHOLE if left else ""
        return RowGroupBoundaries(row_groups=tuple(made), incomplete_pages=left, why=why)

    def row_counts(
        self, edges: dict[int, list[RowGroupPages | None]], entries: set[int]
    ) -> tuple[int, ...]:
        """Row counts that every row group but the last may have."""
        if len(entries) != 1:
            return ()
        first = min(entries)
        found: list[int] = []
        wanted = sorted({each.num_rows for each in edges.get(first, ()) if each is not None})
        for rows in wanted[:_MOST_TRIED]:
            todo, seen, ends = [first], set[int](), False
            while todo and not ends:
                at = todo.pop()
                if at in seen:
                    continue
                seen.add(at)
                for each in edges.get(at, ()):
                    ends = ends or each is None
                    if each is not None and each.num_rows <= rows:
                        ends = ends or each.boundaries[-1] == self.count
                        if each.num_rows == rows:
                            todo.append(each.boundaries[-1])
            if ends:
                found.append(rows)
            if len(found) > _MOST_COUNTS:
                break
        return tuple(found)


def _surplus_spans(spans: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Before each page, and after the last: by how much the spans over all earlier pages exceed one
    per page."""
    change = [0] * (count + 1)
    for start, stop in spans:
        change[start] += 1
        change[stop] -= 1
    total = [0]
    here = 0
    for each in change[:count]:
        here += each
        total.append(total[-1] + here - 1)
    return total


def _path_of(path: object) -> tuple[int, ...]:
    found: list[int] = []
    while path is not None:
        found.append(path[1])  # type: ignore[index]
        path = path[0]  # type: ignore[index]
    return tuple(reversed(found))
