"""The bytes and requests that a read takes at most, before a row is read (``Forecast``)."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import SkipstoneError
from skipstone.parquet.reading.row_ranges import GroupRows, group_rows
from skipstone.storage import ByteRange, coalesce

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.planning.explain import Forecast
    from skipstone.pruning.plan import Plan

    from .plan_rows import TableReader
    from .table_files import Piece


# At most this many files have their pages counted; the others count completely.
_MOST_FILES = 2048
# At most this many files are opened for a forecast.
_MOST_OPENED = 256
# At most this many chunks of a file have their offset indexes read.
_MOST_CHUNKS = 4096


def io_forecast(
    reader: TableReader,
    plan: Plan,
    *,
    look: bool,
    walk: bool = False,
    orders: Sequence[str] = (),
    at_most: bool = False,
) -> Forecast:
    """The bytes and requests that ``reader`` needs for the rows of ``plan``, at most.

    ``walk`` reads page headers where a local file has no page index. ``orders`` are sort columns;
    ``at_most`` says that a limit or an order may end the read early.
    """
    from skipstone.planning.explain import Forecast

    found = _Sum(reader, look=look, walk=walk, orders=orders)
    kept = np.flatnonzero(plan.keep).tolist()
    if look:
        reader.footers.open(kept[:_MOST_OPENED])
    for at in kept:
        found.add(plan, at)
    return Forecast(
        certain=found.certain,
        possible=found.possible,
        about=found.about,
        at_most=at_most,
        files=found.files,
        row_groups=found.row_groups,
        pages=found.pages,
        byte_ranges=found.byte_ranges,
    )


def _most_apart(ranges: Iterable[ByteRange], near: int) -> int:
    """The most requests that some of ``ranges`` take; those at most ``near`` apart are one."""
    count, path, end = 0, "", 0
    for each in sorted(ranges, key=lambda each: (each.path, each.offset + each.length)):
        if not count or each.path != path or each.offset > end + near:
            count, path, end = count + 1, each.path, each.offset + each.length
    return count


def _disjoint(spans: Iterable[ByteRange], but: Sequence[ByteRange] = ()) -> list[ByteRange]:
    """``spans`` in order, each without what those before have and what ``but`` has, which is in
    order and without overlaps."""
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


class _Sum:
    def __init__(
        self, reader: TableReader, *, look: bool, walk: bool, orders: Sequence[str]
    ) -> None:
        from skipstone.planning.explain import Amount

        self.reader, self.footers, self.look = reader, reader.footers, look
        self.walk, self.orders = walk and not reader.footers.files.storage.remote, orders
        self.storage = self.footers.files.storage
        self.gap = self.storage.gap
        self.certain, self.possible = Amount(), Amount()
        self.about = False
        self.files = 0
        self.row_groups = self.pages = (0, 0)
        self.byte_ranges: dict[int, tuple[ByteRange, ...]] = {}

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
        self.about = True
        self.certain += Amount(bytes=int(plan.listing.sizes[at]), requests=1)

    def _inside(self, plan: Plan, at: int) -> None:
        from skipstone.planning.explain import Amount

        spans: list[tuple[ByteRange, bool]] = []
        groups = 0
        for piece in self.reader.pieces_of(plan, at):
            file = piece.file.opened
            wanted = group_rows(piece.rows, file.row_starts)
            groups += len(wanted)
            first, later, certain = self._leaves(piece)
            rows = file.chunk_pages.footer.group("num_rows")
            full = {each.row_group for each in wanted if each.count == rows[each.row_group]}
            # Of columns that are read next, the rows that match are some of the row group.
            parts = ((first, full, True), (later, full if certain else set(), certain))
            self._prepare(file, wanted, parts)
            for wanted_leaves, whole, sure in parts:
                ranges = self._ranges(file, wanted, wanted_leaves, whole)
                joined = self.storage.spans(ranges)
                requests = Amount(requests=len(joined))
                self.certain, self.possible = (
                    (self.certain + requests, self.possible)
                    if sure
                    else (self.certain, self.possible + requests)
                )
                # Of some of these ranges, each request joins no more than of all of them.
                most = joined if sure else coalesce(ranges, self.gap, 1 << 62)
                spans += [(ByteRange(each.path, each.offset, each.length), sure) for each in most]
                if sure and self.storage.remote:
                    continue
                # Batches of files join only ranges that follow one another.
                batched = not self.storage.remote and (piece.sure or piece.rows is None)
                near = 0 if batched else self.storage.near
                apart = len(coalesce(ranges, 0, 1 << 62)) if sure else _most_apart(ranges, near)
                self.possible += Amount(requests=max(apart - len(joined), 0))
            if self.orders:
                spans += [(each, False) for each in self._bounds(file, wanted, first)]
        made = self._once(spans)
        self.files += 1
        kept, total = self.row_groups
        self.row_groups = kept + groups, total + self.footers.opened[at].opened.num_row_groups
        self.byte_ranges[at] = tuple(made)

    def _once(self, spans: list[tuple[ByteRange, bool]]) -> list[ByteRange]:
        """The ranges without what those before have, counted: a byte counts once, however often it
        is read."""
        from skipstone.planning.explain import Amount

        certain = _disjoint(span for span, sure in spans if sure)
        possible = _disjoint((span for span, sure in spans if not sure), certain)
        self.certain += Amount(bytes=sum(each.length for each in certain))
        self.possible += Amount(bytes=sum(each.length for each in possible))
        return sorted([*certain, *possible])

    def _leaves(self, piece: Piece) -> tuple[list[int], list[int], bool]:
        """The leaves to read first, the leaves to read next, and whether all rows surely match."""
        reader = self.reader
        every = reader.leaves_of(piece.file, reader.columns)
        if self.orders:
            # Pages of the order are read in waves, those of other columns once rows are chosen.
            self.about = True
            first = reader.leaves_of(piece.file, [*reader.asked, *self.orders])
            return first, [leaf for leaf in every if leaf not in set(first)], False
        if piece.sure or not reader.asked:
            return [], every, True
        first = reader.leaves_of(piece.file, list(reader.asked))
        fields = piece.file.opened.selection.of_paths(reader.with_predicate(piece))
        first = sorted({*first, *(leaf for field in fields for leaf in field.shape.leaves)})
        return first, [leaf for leaf in every if leaf not in set(first)], False

    def _prepare(
        self,
        file: ParquetFile,
        wanted: Sequence[GroupRows],
        parts: Sequence[tuple[Sequence[int], set[int], bool]],
    ) -> None:
        """Reads the existing offset indexes in one wave."""
        chunks = file.chunk_pages
        missing = [
            key
            for leaves, full, _ in parts
            for group in wanted
            for leaf in leaves
            if not chunks.is_known(key := (group.row_group, leaf))
            and (chunks.has_index(key) or (self.walk and not chunks.is_whole(key, full)))
        ]
        if self.look and 0 < len(missing) <= _MOST_CHUNKS:
            chunks.tables(missing)

    @staticmethod
    def _bounds(
        file: ParquetFile, wanted: Sequence[GroupRows], leaves: Sequence[int]
    ) -> list[ByteRange]:
        """The column indexes of some leaves, which an order reads."""
        footer, found = file.chunk_pages.footer, []
        for name in ("column_index", "offset_index"):
            offsets, lengths = footer.chunk(f"{name}_offset"), footer.chunk(f"{name}_length")
            for group in wanted:
                for leaf in leaves:
                    key = (group.row_group, leaf)
                    if offsets[key] > 0 and lengths[key] > 0:
                        place = file.chunk_pages.place(key)
                        found.append(ByteRange(place.path, int(offsets[key]), int(lengths[key])))
        return found

    def _ranges(
        self,
        file: ParquetFile,
        wanted: Sequence[GroupRows],
        leaves: Sequence[int],
        full: set[int],
    ) -> list[ByteRange]:
        found: list[ByteRange] = []
        for group in wanted:
            for leaf in leaves:
                found += self._of_chunk(file, group, (group.row_group, leaf), full)
        return found

    def _of_chunk(
        self, file: ParquetFile, group: GroupRows, key: ChunkKey, full: set[int]
    ) -> list[ByteRange]:
        chunks = file.chunk_pages
        place = chunks.place(key)
        if not chunks.is_known(key):
            self.about = self.about or not chunks.is_whole(key, full)
            index = chunks.index_range(key)
            if index is not None:
                return [index, ByteRange(place.path, place.start, place.stop - place.start)]
            return [ByteRange(place.path, place.start, place.stop - place.start)]
        (table,) = chunks.tables([key])
        entries = table.holding(group.starts, group.stops)
        kept, total = self.pages
        self.pages = kept + len(entries), total + len(table)
        offset, length = table.dictionary
        made = [
            ByteRange(place.path, start, size)
            for start, size in zip(
                table.offset[entries].tolist(), table.length[entries].tolist(), strict=True
            )
        ]
        if length and len(entries):
            made.append(ByteRange(place.path, offset, length))
        return made
