"""Writes row groups that Arrow encoded, with the statistics of their pages.

Bounds leave NaN out, and readers skip as if there were no NaN (``chunk_statistics.py``). Once a
column holds NaN, it has no bounds in this and all later row groups, and earlier row groups lose
theirs. The metadata of an encrypted column may be encrypted before the last row group is seen
(``irrevocable``): then the column has no bounds in any row group.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.parquet.format.metadata import ColumnChunk, RowGroup, SortingColumn, Statistics
from skipstone.parquet.reading.page_metadata import BloomModules
from skipstone.parquet.writing.index_page_tree import IndexPagePlan, place_index_pages

from .chunk_statistics import NO_BOUNDS
from .file_writer import ChunkWriter, FileWriter, offset_index_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .arrow_encoder import EncodedChunk


_Waiting = tuple["RowGroup", "list[ChunkWriter]", "list[ColumnChunk]"]


@dataclass(slots=True, kw_only=True)
class RowGroupWriter:
    """Writes row groups to ``writer``. ``index_pages`` is the place of index pages of 2013: after
    the data pages of their chunk, or between them."""

    writer: FileWriter
    page_index: bool
    index_pages: Literal["behind", "between"] | None
    pages: int = 0
    notes: list[str] = field(default_factory=list)
    #: leaves with NaN that their bounds leave out
    misleading: set[int] = field(default_factory=set)
    #: leaves that may still get NaN, and whose bounds could not be removed later
    irrevocable: frozenset[int] = frozenset()
    #: leaves without bounds in any row group
    unbounded: set[int] = field(default_factory=set)
    _number: int = 0
    #: row groups whose pages are written
    _waiting: list[_Waiting] = field(default_factory=list)
    #: the chunks of the row group that is being written, as Arrow describes them
    _chunks: list[ColumnChunk] = field(default_factory=list)

    def put(self, chunk: EncodedChunk) -> None:
        """Write the next chunk of a row group."""
        leaf, copied, facts = chunk.leaf, chunk.copied, chunk.facts
        made = self.writer.chunk((self._number, leaf.ordinal), leaf.path)
        plan = self._plan(chunk)
        grown = 0
        data = chunk.pages[1 if copied.dictionary else 0 :]
        if copied.dictionary:
            header, body = chunk.pages[0]
            grown += made.page(header, body, dictionary=True) - len(header)
        for piece in range(len(data)) if plan is None else plan.order():
            if isinstance(piece, bytes):
                made.write(piece)
            else:
                header, body = data[piece]
                grown += made.page(header, body) - len(header)
        chunk.pages.clear()
        self.pages += copied.pages
        if plan is None:
            made.end(chunk.chunk, copied.uncompressed + grown)
        else:
            made.end(
                chunk.chunk,
                copied.uncompressed + grown + plan.length,
                index_page=made.start + plan.index_page_offset,
            )
        sizes = facts.size_statistics()
        made.fields |= {
            "statistics": self._statistics(chunk),
            "size_statistics": sizes if sizes.to_dict() else None,
        }
        if self.page_index and not facts.within_rows:
            index = facts.column_index()
            made.column_index = None if index is None else index.to_bytes()
            made.offset_index = offset_index_of(made.pages, facts.rows, facts.unencoded)
        if chunk.bloom is not None:
            made.bloom = BloomModules.of(chunk.bloom)
        self._chunks.append(chunk.chunk)

    def _statistics(self, chunk: EncodedChunk) -> Statistics | None:
        found = chunk.facts.statistics(chunk.meta.statistics, trusted=True)
        if chunk.facts.misleading and chunk.leaf.ordinal not in self.misleading:
            self.misleading.add(chunk.leaf.ordinal)
            self.notes.append(
                f"{chunk.leaf.name} holds NaN, which bounds leave out: it gets no bounds"
            )
        return found

    def _plan(self, chunk: EncodedChunk) -> IndexPagePlan | None:
        if self.index_pages is None:
            return None
        interleave = self.index_pages == "between"
        facts, copied, leaf = chunk.facts, chunk.copied, chunk.leaf
        why_not = None
        if facts.within_rows:
            why_not = "a page of it begins within a row"
        elif leaf.max_repetition_level and not (self.page_index or interleave):
            # A reader that counts the rows of the last page looks for more pages after it.
            why_not = "it is repeated and has no offset index"
        if why_not is not None:
            self.notes.append(
                f"row group {self._number}, {leaf.name}: it has no index pages: {why_not}"
            )
            return None
        keys = None if chunk.bounds is None else chunk.bounds.keys()
        if chunk.bounds is not None and keys is None:
            self.notes.append(
                f"row group {self._number}, {leaf.name}: its index pages hold ordinals,"
                f" {chunk.bounds.reason}"
            )
        ordinals = [0, *np.cumsum(facts.rows[:-1], dtype=np.int64).tolist()]
        return place_index_pages(
            first=copied.dictionary,
            sizes=copied.sizes,
            leaf=leaf,
            keys=keys,
            ordinals=None if interleave and keys is not None else ordinals,
            interleave=interleave,
        )

    def end_group(self, rows: int, sorting: tuple[SortingColumn, ...] | None) -> None:
        """End the row group after its last chunk."""
        placed, number = self.writer.end_row_group(), self._number
        group = RowGroup(
            columns=(),
            total_byte_size=sum(each.size("total_uncompressed_size") for each in placed),
            num_rows=rows,
            sorting_columns=sorting,
            file_offset=placed[0].start,
            total_compressed_size=sum(each.size("total_compressed_size") for each in placed),
            ordinal=number if number < 1 << 15 else None,
        )
        self._waiting.append((group, placed, self._chunks))
        self._chunks = []
        self._number += 1

    @property
    def waiting(self) -> int:
        """The number of row groups that no footer can name yet."""
        return len(self._waiting)

    def finished(self, *, last: bool) -> Iterator[tuple[bytes, int]]:
        """Write the held indexes; yield each ``RowGroup`` with its offsets, and its number of rows.
        ``last``: there are no more row groups."""
        if not last and self.irrevocable - self.unbounded:
            self.unbounded |= self.irrevocable
            self.notes.append(
                "encrypted columns of floats have no bounds: they are encrypted before all rows are"
                " seen, and NaN may follow"
            )
        self.writer.write_indexes()
        waiting, self._waiting = self._waiting, []
        for group, placed, chunks in waiting:
            for ordinal in self.misleading | self.unbounded:
                placed[ordinal].fields["statistics"] = _without_bounds(
                    placed[ordinal].fields["statistics"]
                )
            columns = tuple(
                [self.writer.metadata(*each) for each in zip(placed, chunks, strict=False)]
            )
            yield replace(group, columns=columns).to_bytes(), group.num_rows

    def retracted(self, row_group: bytes) -> bytes:
        """A ``RowGroup`` that was finished before NaN occurred, without the bounds of columns with
        NaN. Column metadata that is encrypted separately stays unchanged."""
        group = RowGroup.from_bytes(row_group)
        columns = list(group.columns)
        for ordinal in self.misleading | self.unbounded:
            meta = columns[ordinal].meta_data
            if meta is not None:
                meta = replace(meta, statistics=_without_bounds(meta.statistics))
                columns[ordinal] = replace(columns[ordinal], meta_data=meta)
        return replace(group, columns=tuple(columns)).to_bytes()


def _without_bounds(found: object) -> Statistics | None:
    """The statistics without bounds, which would mislead because of NaN."""
    return (
        replace(found, min=None, max=None, **NO_BOUNDS) if isinstance(found, Statistics) else None
    )
