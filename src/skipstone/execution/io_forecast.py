"""What reading a plan will ask of the files that were looked into; see ``plan/forecast.py``.

Nothing is opened for it. With ``look`` the files are, up to a number, and the offset indexes of the
columns that will be read, those of a file in one wave: reading needs all that as well, and finds it
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import SkipstoneError
from skipstone.parquet.reading.row_ranges import group_rows
from skipstone.planning.forecast import Amount, Forecast
from skipstone.storage import ByteRange, coalesce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.parquet.reading.row_ranges import GroupRows
    from skipstone.pruning.plan import Plan

    from .plan_rows import Piece, TableReader

__all__ = ["foresee"]

# Files whose pages are counted; of more the others count whole.
_MOST_FILES = 2048
# Files that are opened for it.
_MOST_OPENED = 256
# Chunks of a file whose offset indexes are read for it.
_MOST_CHUNKS = 4096


def foresee(reader: TableReader, plan: Plan, *, look: bool, at_most: bool) -> Forecast:
    """What ``reader`` will ask for to give the rows of ``plan``."""
    found = _Sum(reader, look=look)
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


class _Sum:
    def __init__(self, reader: TableReader, *, look: bool) -> None:
        self.reader, self.footers, self.look = reader, reader.footers, look
        storage = self.footers.files.storage
        self.gap, self.limit = getattr(storage, "gap", 0), getattr(storage, "limit", 1 << 62)
        self.certain, self.possible = Amount(), Amount()
        self.about = False
        self.files = 0
        self.row_groups = self.pages = (0, 0)
        self.byte_ranges: dict[int, tuple[ByteRange, ...]] = {}

    def add(self, plan: Plan, at: int) -> None:
        """One file of the plan."""
        if self.files < _MOST_FILES and self.footers.fresh(at):
            before = self.certain, self.possible, self.row_groups, self.pages
            try:
                self._inside(plan, at)
            except (SkipstoneError, OSError):  # reading says what is wrong with it
                self.certain, self.possible, self.row_groups, self.pages = before
            else:
                return
        self.about = True
        self.certain += Amount(bytes=int(plan.listing.sizes[at]), requests=1)

    def _inside(self, plan: Plan, at: int) -> None:
        made: list[ByteRange] = []
        groups = 0
        for piece in self.reader.pieces_of(plan, at):
            file = piece.file.opened
            wanted = group_rows(piece.rows, file.row_starts)
            groups += len(wanted)
            first, later, certain = self._leaves(piece)
            self._prepare(file, wanted, [*first, *later])
            for leaves, sure in ((first, True), (later, certain)):
                spans = coalesce(self._ranges(file, wanted, leaves), self.gap, self.limit)
                made += [ByteRange(each.path, each.offset, each.length) for each in spans]
                amount = Amount(bytes=sum(each.length for each in spans), requests=len(spans))
                if sure:
                    self.certain += amount
                else:
                    self.possible += amount
        self.files += 1
        kept, total = self.row_groups
        self.row_groups = kept + groups, total + self.footers.opened[at].opened.num_row_groups
        self.byte_ranges[at] = tuple(made)

    def _leaves(self, piece: Piece) -> tuple[list[int], list[int], bool]:
        """Leaves that are read first, those that follow, and whether all rows match for sure."""
        reader = self.reader
        every = reader.leaves_of(piece.file, reader.columns)
        if piece.sure or not reader.asked:
            return [], every, True
        first = reader.leaves_of(piece.file, list(reader.asked))
        return first, [leaf for leaf in every if leaf not in set(first)], False

    def _prepare(
        self, file: ParquetFile, wanted: Sequence[GroupRows], leaves: Sequence[int]
    ) -> None:
        """Read the offset indexes that there are, all together."""
        cells = [(group.row_group, leaf) for group in wanted for leaf in leaves]
        chunks = file.chunk_pages
        missing = [each for each in cells if not chunks.is_known(each) and chunks.has_index(each)]
        if self.look and 0 < len(missing) <= _MOST_CHUNKS:
            chunks.tables(missing)

    def _ranges(
        self, file: ParquetFile, wanted: Sequence[GroupRows], leaves: Sequence[int]
    ) -> list[ByteRange]:
        found: list[ByteRange] = []
        for group in wanted:
            for leaf in leaves:
                found += self._of_chunk(file, group, (group.row_group, leaf))
        return found

    def _of_chunk(self, file: ParquetFile, group: GroupRows, cell: ChunkKey) -> list[ByteRange]:
        chunks = file.chunk_pages
        place = chunks.place(cell)
        if not chunks.is_known(cell):
            self.about = True
            return [ByteRange(place.path, place.start, place.stop - place.start)]
        (table,) = chunks.tables([cell])
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
