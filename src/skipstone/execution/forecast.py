"""The bytes and requests that a read takes at most, before a row is read (``Forecast``)."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.parquet.reading.bulk_chunks import KERNELS
from skipstone.parquet.reading.chunk_pages import most_of_walk
from skipstone.parquet.reading.file_reader import SMALL_CHUNK
from skipstone.parquet.reading.row_ranges import GroupRows, group_rows
from skipstone.storage import ByteRange, coalesce

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from skipstone.parquet.reading.chunk_pages import ChunkKey, ChunkPages
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.planning.explain import Amount, Forecast
    from skipstone.pruning.plan import Plan
    from skipstone.storage.base import Span

    from .plan_rows import TableReader
    from .table_files import Piece


# At most this many files have their pages counted; the others count completely.
_MOST_FILES = 2048
# At most this many objects are opened for a forecast.
_MOST_OPENED = 256
# At most this many chunks of a file have their offset indexes read.
_MOST_CHUNKS = 4096
# Header and body of a page take more bytes.
_SMALLEST_PAGE = 12
# For the compiled loops, a few rows of a chunk count as at most so many values; more rows count as
# they are.
_MOST_VALUES = 40_000
# Joins ranges of any length.
_ANY = 1 << 62


def io_forecast(
    reader: TableReader,
    plan: Plan,
    *,
    look: bool,
    walk: bool = False,
    orders: Sequence[str] = (),
    limit: int | None = None,
    new_reader: bool = False,
) -> Forecast:
    """The bytes and requests that ``reader`` needs for the rows of ``plan``, at most.

    ``walk`` reads page headers where a local file has no page index. ``orders`` are sort columns;
    they and ``limit``, the most rows of the result, may end the read early. ``new_reader``: another
    reader will read by the same plan, without the offset indexes that this one has read.
    """
    from skipstone.planning.explain import Forecast

    found = _Sum(reader, look=look, walk=walk, orders=orders, limit=limit, new_reader=new_reader)
    kept = np.flatnonzero(plan.keep).tolist()
    if look:
        reader.footers.open(kept[: _MOST_OPENED if found.storage.remote else _MOST_FILES])
    for at in kept:
        found.add(plan, at)
    return Forecast(
        certain=found.certain,
        possible=found.all_possible(),
        unopened=found.unopened,
        at_most=bool(orders) or limit is not None,
        files=found.files,
        row_groups=found.row_groups,
        pages=found.pages,
        byte_ranges=found.byte_ranges,
    )


def _most_apart(ranges: Iterable[ByteRange], near: int) -> int:
    """The most requests that any subset of ``ranges`` takes, if ranges at most ``near`` apart
    join."""
    count, path, end = 0, "", 0
    for each in sorted(ranges, key=lambda each: (each.path, each.offset + each.length)):
        if not count or each.path != path or each.offset > end + near:
            count, path, end = count + 1, each.path, each.offset + each.length
    return count


def _ranges_of(spans: Iterable[Span]) -> list[ByteRange]:
    return [ByteRange(each.path, each.offset, each.length) for each in spans]


def _disjoint(spans: Iterable[ByteRange], but: Sequence[ByteRange] = ()) -> list[ByteRange]:
    """``spans`` in order, each byte once, without the ranges ``but`` (sorted and disjoint)."""
    found: list[ByteRange] = []
    path, end = "", 0
    starts = [(each.path, each.offset) for each in but]
    for span in sorted(spans):
        if span.path != path:
            path, end = span.path, 0
        at, stop = max(span.offset, end), span.offset + span.length
        other = max(bisect_right(starts, (path, at)) - 1, 0)
        while at < stop:
            while other < len(but) and (
                but[other].path < path
                or (but[other].path == path and but[other].offset + but[other].length <= at)
            ):
                other += 1
            held = but[other] if other < len(but) and but[other].path == path else None
            until = stop if held is None else min(stop, max(held.offset, at))
            if until > at:
                found.append(ByteRange(path, at, until - at))
            at = until if held is None else max(until, held.offset + held.length)
        end = max(end, stop)
    return found


@dataclass(frozen=True, slots=True)
class _Wave:
    """Leaves that are read together. ``sure``: the read takes the pages of all remaining rows, else
    only those of some. ``whole`` are the row groups of which every row is read.

    ``paged``: an order reads unit by unit: the pages of its first column, whose leaves are ``by``,
    or row groups. ``chosen``: the rows are those that an order has found.
    """

    leaves: list[int]
    sure: bool
    whole: Collection[int] = ()
    paged: bool = False
    by: Sequence[int] = ()
    chosen: bool = False


class _Ranges:
    """What a wave reads at most: pages, and before them offset indexes."""

    def __init__(self) -> None:
        self.pages: list[ByteRange] = []
        #: small chunks of which a query that has not looked at the offset index reads every page
        self.small: list[ByteRange] = []
        self.indexes: list[ByteRange] = []
        #: requests beyond one for each of ``pages``, where these are read one after another
        self.again = 0
        #: requests for the pages of chunks, beyond one for each, where they are not known
        self.unknown = 0


class _Sum:
    def __init__(
        self,
        reader: TableReader,
        *,
        look: bool,
        walk: bool,
        orders: Sequence[str],
        limit: int | None,
        new_reader: bool,
    ) -> None:
        from skipstone.planning.explain import Amount

        self.reader, self.footers, self.look = reader, reader.footers, look
        self.storage = self.footers.files.storage
        self.new_reader = new_reader
        self.walk, self.orders, self.limit = walk and not self.storage.remote, orders, limit
        self.certain, self.possible = Amount(), Amount()
        #: the most requests for the rows that an order finds: from all files, and for ``limit``
        #: rows
        self.chosen = self.most_chosen = 0
        self.unopened = self.files = 0
        self.row_groups = self.pages = (0, 0)
        self.byte_ranges: dict[int, tuple[ByteRange, ...]] = {}
        #: chunks of the file whose offset indexes were read for this forecast alone
        self.looked: frozenset[ChunkKey] = frozenset()

    def add(self, plan: Plan, at: int) -> None:
        """Adds one file of the plan."""
        from skipstone.planning.explain import Amount

        if self.files < _MOST_FILES and self.footers.fresh(at):
            before = self.certain, self.possible, self.row_groups, self.pages
            try:
                self._inside(plan, at)
            except (SkipstoneError, OSError):  # the read itself reports the error
                self.certain, self.possible, self.row_groups, self.pages = before
            else:
                return
        self.unopened += 1
        self.certain += Amount(bytes=int(plan.listing.sizes[at]))

    def all_possible(self) -> Amount:
        """What may be read in addition to ``certain``."""
        from skipstone.planning.explain import Amount

        chosen = self.chosen if self.limit is None else min(self.chosen, self.most_chosen)
        return self.possible + Amount(requests=chosen)

    def _inside(self, plan: Plan, at: int) -> None:
        from skipstone.planning.explain import Amount

        spans: list[tuple[ByteRange, bool]] = []
        groups = 0
        for piece in self.reader.pieces_of(plan, at):
            file = piece.file.opened
            wanted = group_rows(piece.rows, file.row_starts)
            groups += len(wanted)
            waves = self._waves(piece, wanted)
            self.looked = self._prepare(file, wanted, waves)
            seen: set[int] = set()
            for wave in waves:
                found = self._ranges(file, wanted, wave, seen)
                seen.update(wave.leaves)
                exact = wave.sure and not wave.paged and not found.unknown
                joined = _ranges_of(self.storage.spans(found.pages))
                requests = self._requests(wave, found, joined, exact=exact)
                extra = len(found.indexes) + found.unknown
                if wave.chosen:
                    # A chosen row takes a page and a dictionary of each column at most.
                    self.chosen += requests
                    self.most_chosen = max(
                        self.most_chosen, 2 * len(wave.leaves) * (self.limit or 0)
                    )
                else:
                    sure = min(len(joined), requests) if wave.sure and not wave.paged else 0
                    self.certain += Amount(requests=sure)
                    extra += requests - sure
                self.possible += Amount(requests=extra)
                # A request for some of these ranges joins no more than one for all of them.
                pages = joined if exact else self._joined(found.pages)
                spans += [(each, wave.sure) for each in (*pages, *self._joined(found.indexes))]
                if found.small:
                    around = self._joined([*found.pages, *found.small])
                    spans += [(each, False) for each in around]
            if self.orders:
                leaves = sorted({leaf for wave in waves if not wave.chosen for leaf in wave.leaves})
                bounds = self._bounds(file, wanted, leaves)
                spans += [(each, False) for each in self._joined(bounds)]
                self.possible += Amount(requests=len(coalesce(bounds, 0, _ANY)))
        made = self._once(spans)
        self.files += 1
        kept, total = self.row_groups
        self.row_groups = kept + groups, total + self.footers.opened[at].opened.num_row_groups
        self.byte_ranges[at] = tuple(made)

    def _joined(self, ranges: Sequence[ByteRange]) -> list[ByteRange]:
        """The bytes that requests for some of ``ranges`` read at most."""
        return _ranges_of(coalesce(ranges, self.storage.gap, _ANY))

    def _requests(
        self, wave: _Wave, found: _Ranges, joined: Sequence[ByteRange], *, exact: bool
    ) -> int:
        """The most requests for the pages of a wave."""
        if wave.paged:
            return len(found.pages) + found.again
        if exact and self.storage.remote:
            return len(joined)
        if exact:  # batches of local files join only ranges that follow one another
            return max(len(coalesce(found.pages, 0, _ANY)), len(joined))
        near = self.storage.near if self.storage.remote else 0
        # A run of pages is cut where two neighbours together exceed the limit of a request.
        runs = coalesce(found.pages, self.storage.gap, _ANY)
        cuts = sum(2 * (each.length // self.storage.limit) for each in runs)
        return max(_most_apart(found.pages, near) + cuts, len(joined))

    def _once(self, spans: list[tuple[ByteRange, bool]]) -> list[ByteRange]:
        """Counts the bytes of the ranges, each byte once however often it is read, and returns the
        ranges without overlaps."""
        from skipstone.planning.explain import Amount

        certain = _disjoint(span for span, sure in spans if sure)
        possible = _disjoint((span for span, sure in spans if not sure), certain)
        self.certain += Amount(bytes=sum(each.length for each in certain))
        self.possible += Amount(bytes=sum(each.length for each in possible))
        return sorted([*certain, *possible])

    def _waves(self, piece: Piece, wanted: Sequence[GroupRows]) -> list[_Wave]:
        """The waves in which a piece is read."""
        reader, file = self.reader, piece.file
        every = reader.leaves_of(file, reader.columns)
        rows = file.opened.chunk_pages.footer.group("num_rows")
        full = {each.row_group for each in wanted if each.count == rows[each.row_group]}
        asked: list[int] = []
        if not piece.sure and reader.asked:
            asked = reader.leaves_of(file, list(reader.asked))
            fields = file.opened.selection.of_paths(reader.with_predicate(piece))
            asked = sorted({*asked, *(leaf for field in fields for leaf in field.shape.leaves)})
        if self.orders:
            sorted_by = reader.leaves_of(file, list(self.orders))
            chosen = _Wave(every, False, chosen=True)
            paged, by = self.limit is not None, reader.leaves_of(file, list(self.orders[:1]))
            chunks = file.opened.chunk_pages
            if paged:
                full -= {each.row_group for each in wanted if self._units(chunks, each, by) > 1}
            first = _Wave(asked or sorted_by, True, full, paged=paged, by=by)
            second = [_Wave(sorted_by, False, paged=paged, by=by)] if asked else []
            return [first, *second, chosen]
        if not asked:
            return [_Wave(every, True, full)]
        # Nested columns of the result are read again, whole, for the rows that match.
        paths = [path for each in reader.columns if (path := file.read_path(each)) is not None]
        nested = [each for each in file.opened.selection.of_paths(paths) if each.leaf is None]
        again = {leaf for field in nested for leaf in field.shape.leaves}
        later = [leaf for leaf in every if leaf not in asked or leaf in again]
        return [_Wave(asked, True, full), _Wave(later, False)]

    def _prepare(
        self, file: ParquetFile, wanted: Sequence[GroupRows], waves: Sequence[_Wave]
    ) -> frozenset[ChunkKey]:
        """Reads the existing offset indexes in one wave. Returns the small chunks among theirs,
        which a query may read whole (``ParquetFile.page_entries``)."""
        chunks = file.chunk_pages
        missing = [
            key
            for wave in waves
            for group in wanted
            for leaf in wave.leaves
            if not chunks.is_known(key := (group.row_group, leaf))
            and (chunks.has_index(key) or (self.walk and not chunks.is_whole(key, wave.whole)))
        ]
        if not self.look or not 0 < len(missing) <= _MOST_CHUNKS:
            return frozenset()
        chunks.tables(list(dict.fromkeys(missing)))
        leaves = len({leaf for wave in waves for leaf in wave.leaves})
        values = leaves * sum(group.count for group in wanted)
        if not self.new_reader or not KERNELS.may_load(_MOST_VALUES * len(missing) + values):
            return frozenset()
        places = {key: chunks.place(key) for key in missing if chunks.has_index(key)}
        return frozenset(key for key, at in places.items() if at.stop - at.start <= SMALL_CHUNK)

    @staticmethod
    def _bounds(
        file: ParquetFile, wanted: Sequence[GroupRows], leaves: Sequence[int]
    ) -> list[ByteRange]:
        """The column indexes of some leaves, which an order reads."""
        found = [
            file.chunk_pages.index_range(kind, (group.row_group, leaf))
            for kind in ("column_index", "offset_index")
            for group in wanted
            for leaf in leaves
        ]
        return [each for each in found if each is not None]

    def _ranges(
        self, file: ParquetFile, wanted: Sequence[GroupRows], wave: _Wave, seen: Collection[int]
    ) -> _Ranges:
        """The pages of a wave; leaves that are ``seen`` have had their pages counted."""
        found = _Ranges()
        for group in wanted:
            units = self._units(file.chunk_pages, group, wave.by)
            for leaf in wave.leaves:
                key = group.row_group, leaf
                if file.chunk_pages.is_known(key):
                    dictionary = self._known(found, file, group, key, counted=leaf not in seen)
                else:
                    dictionary = self._unknown(found, file, group, key, wave)
                # A page and the dictionary are read for each of the units that they overlap.
                found.again += (units - 1) * (1 + dictionary)
        return found

    @staticmethod
    def _units(chunks: ChunkPages, group: GroupRows, leaves: Sequence[int]) -> int:
        """The most units in which an order reads a row group: the pages of its first column where
        these have bounds, else 1."""
        most = 1
        for leaf in leaves:
            key = group.row_group, leaf
            if chunks.footer.chunk("column_index_offset")[key] > 0:
                place = chunks.place(key)
                pages = (place.stop - place.start) // _SMALLEST_PAGE
                if chunks.is_known(key):
                    pages = len(chunks.tables([key])[0])
                most = max(most, min(pages, place.rows))
        return most

    def _known(
        self, found: _Ranges, file: ParquetFile, group: GroupRows, key: ChunkKey, *, counted: bool
    ) -> bool:
        """Adds the pages of a chunk; returns whether it has a dictionary."""
        chunks = file.chunk_pages
        place = chunks.place(key)
        (table,) = chunks.tables([key])
        entries = table.holding(group.starts, group.stops)
        if counted:
            kept, total = self.pages
            self.pages = kept + len(entries), total + len(table)
        offset, length = table.dictionary
        found.pages += [
            ByteRange(place.path, start, size)
            for start, size in zip(
                table.offset[entries].tolist(), table.length[entries].tolist(), strict=True
            )
        ]
        if length and len(entries):
            found.pages.append(ByteRange(place.path, offset, length))
        if key in self.looked:
            found.small.append(ByteRange(place.path, place.start, place.stop - place.start))
        return length > 0

    def _unknown(
        self, found: _Ranges, file: ParquetFile, group: GroupRows, key: ChunkKey, wave: _Wave
    ) -> bool:
        """Adds a chunk as a whole, and the most requests for its pages; returns whether it may have
        a dictionary that is read by itself."""
        chunks = file.chunk_pages
        place = chunks.place(key)
        length = place.stop - place.start
        found.pages.append(ByteRange(place.path, place.start, length))
        if chunks.is_whole(key, wave.whole):
            return False
        index = chunks.index_range("offset_index", key)
        pages = length // _SMALLEST_PAGE
        if index is not None:
            found.indexes.append(index)
        else:
            found.unknown += most_of_walk(length, remote=self.storage.remote)
            if file.footer.schema.leaves[key[1]].max_repetition_level:
                found.unknown += pages  # each is read for the rows that begin in it
        # A row of a column lies in one page.
        found.unknown += min(group.count, pages) + 1
        return True
