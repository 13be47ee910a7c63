"""Adds the index pages of 2013 to an existing file: ``add_index_pages``.

    PAR1 | chunks with their trees, Bloom filters | … | column indexes, offset indexes | footer

Pages are copied byte for byte, headers included. Only pages of columns that get keys are decoded.
Old index pages are replaced. Bloom filters and today's page index are kept, so the file serves
readers of 2013 and of today.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.human import SHOWN, Report, duration, of_total, plural, size
from skipstone.parquet.pages.index_page import ROLL_OVER
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.page_metadata import bloom_to_copy, read_offset_index
from skipstone.parquet.writing.chunk_modules import (
    index_ranges,
    plain_pages,
    unpadded,
)
from skipstone.parquet.writing.file_writer import (
    COPY_SIZE,
    ChunkWriter,
    FileWriter,
    relocated_offset_index,
    row_group_fields,
)
from skipstone.parquet.writing.footer_editor import FooterEditor, RowGroupEdit
from skipstone.parquet.writing.index_page_tree import ChunkIndexPages, index_pages_of
from skipstone.parquet.writing.retrofit_needs import is_whole, refuse
from skipstone.storage.atomic_replace import ByteSink, local_path

from .retrofit_writer import write_changed

if TYPE_CHECKING:
    from skipstone.parquet.format.page_index import OffsetIndex
    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.page_tables import ChunkPlace

    from .retrofit_file import RetrofitReport


def add_index_pages(
    path: str | os.PathLike[str],
    keys: Sequence[str] | None = None,
    *,
    interleave: bool = False,
    output: str | os.PathLike[str] | None = None,
    roll_over: int = ROLL_OVER,
    dry_run: bool = False,
) -> IndexPagesReport:
    """Give every chunk of a local file a tree of index pages, and replace the file (or write
    ``output``); ``dry_run`` writes nothing.

    ``keys`` are columns that get a tree of keys in each row group that is sorted by them, by
    default the first sorting column that the footer names. Every other column gets a tree of
    ordinals. By default the trees follow the data pages, which every reader accepts. With
    ``interleave`` they lie between the data pages, as the specification draws it, which DuckDB and
    polars refuse. A body rolls over at ``roll_over`` bytes.

    Raises ``FormatError`` for a damaged file, ``UnsupportedError`` if columns are encrypted or in
    other files, ``StaleError`` if the file changed meanwhile, and ``SkipstoneError`` for a name
    that the file does not have.
    """
    started = time.perf_counter()
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence | None):
        raise TypeError(f"keys is a sequence of columns, as ['ts'], not {keys!r}")
    if not is_whole(roll_over):
        raise TypeError(f"roll_over is a whole number of bytes, not {roll_over!r}")
    file = ParquetFile(path)
    place = local_path(file.path)
    target = place if output is None else local_path(os.fspath(output))
    refuse(file, "index pages")

    work = _IndexPagesWriter(
        file, None if keys is None else _leaves(file, keys), interleave, roll_over
    )
    after = write_changed(file, target, work.write, dry_run=dry_run)
    leaves = file.footer.schema.leaves
    return IndexPagesReport(
        path=file.path,
        output=str(target),
        keys=tuple([leaves[each].name for each in sorted(work.keyed_leaves)]),
        interleave=interleave,
        rows=file.num_rows,
        row_groups=file.num_row_groups,
        chunks=file.num_row_groups * len(leaves),
        **work.counts,
        bytes_before=file.size,
        bytes_after=after,
        notes=tuple(work.notes),
        seconds=time.perf_counter() - started,
        dry_run=dry_run,
    )


def _leaves(file: ParquetFile, names: Sequence[str]) -> frozenset[int]:
    found = set()
    for name in names:
        leaf = file.footer.schema.leaf(name)
        if leaf is None:
            raise SkipstoneError(
                f"{name!r} is not a column of {file.path}", hint="name leaves by their dotted paths"
            )
        found.add(leaf.ordinal)
    return frozenset(found)


@dataclass(slots=True)
class _IndexPagesWriter:
    """Writes the new file, and counts for the report, by its fields."""

    file: ParquetFile
    asked: frozenset[int] | None
    interleave: bool
    roll_over: int
    counts: Counter[str] = field(default_factory=Counter)
    keyed_leaves: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def write(self, out: ByteSink) -> None:
        """Write the whole file."""
        file, writer = self.file, FileWriter(out)
        edits = []
        for r in range(file.num_row_groups):
            old = file.footer.row_group(r)
            for leaf in range(len(old.columns)):
                self._chunk((r, leaf), writer)
            placed = writer.end_row_group()
            edits.append((row_group_fields(old, placed), [each.fields for each in placed]))
        writer.write_indexes()
        groups = [RowGroupEdit(fields=fields, chunks=chunks) for fields, chunks in edits]
        writer.write_footer(FooterEditor.of(file.footer).edited(groups).to_bytes())

    def _keys_of(self, r: int) -> frozenset[int]:
        if self.asked is not None:
            return self.asked
        sorting = self.file.footer.sorting_columns(r)
        if not sorting or sorting[0].descending:
            return frozenset()
        return frozenset((sorting[0].column_idx,))

    # -- chunks ------------------------------------------------------------------------------------

    def _chunk(self, key: ChunkKey, writer: FileWriter) -> None:
        file, leaf = self.file, self.file.footer.schema.leaves[key[1]]
        place = file.chunk_pages.place(key)
        old_index = read_offset_index(file, key)
        repeated = bool(leaf.max_repetition_level)
        first_rows = None
        if repeated and old_index is not None:
            first_rows = [each.first_row_index for each in old_index.page_locations]
        found = index_pages_of(
            (each.page for each in plain_pages(file.reader, place, None)),
            leaf,
            place.codec,
            keyed=key[1] in self._keys_of(key[0]),
            interleave=self.interleave,
            roll_over=self.roll_over,
            first_rows=first_rows,
        )
        if not repeated and found.sources and found.rows != place.rows:
            raise FormatError(
                f"rows in the pages of {leaf.name}",
                file=file.path,
                offset=place.start,
                expected=place.rows,
                got=found.rows,
            )
        self._count(key, found)
        placed = writer.chunk(key, leaf.path)
        self._copy(place, found, placed)
        self._describe(placed, found, old_index)

    def _count(self, key: ChunkKey, found: ChunkIndexPages) -> None:
        if found.reason is not None and found.sources:
            missing = "no index pages" if found.plan is None else "no tree of keys"
            self._note(key, f"{missing}: {found.reason}")
        counts, plan = self.counts, found.plan
        counts["data_pages"] += len(found.sources)
        if plan is None:
            return
        counts["keyed" if plan.keyed else "ordinal"] += 1
        if plan.keyed:
            self.keyed_leaves.add(key[1])
        counts["index_pages"] += len(plan.pages)
        counts["index_bytes"] += plan.length
        counts["levels"] = max(counts["levels"], plan.levels)

    def _copy(self, place: ChunkPlace, found: ChunkIndexPages, placed: ChunkWriter) -> None:
        """Copy the pages, with the index pages at their places."""
        if found.dictionary is not None:
            placed.dictionary = placed.start
            placed.write(self.file.reader.one(place.path, *found.dictionary))
        plan, done = found.plan, 0
        for each in () if plan is None else plan.pages:
            self._data_pages(place.path, found.sources[done : each.after], placed)
            done = each.after
            placed.write(each.data)
        self._data_pages(place.path, found.sources[done:], placed)

    def _data_pages(
        self, path: str, sources: Sequence[tuple[int, int]], placed: ChunkWriter
    ) -> None:
        at = placed.start + placed.length
        for _, length in sources:
            placed.pages.append((at, length))
            at += length
        for offset, length in _runs(sources):
            placed.write(self.file.reader.one(path, offset, length))

    def _describe(
        self, placed: ChunkWriter, found: ChunkIndexPages, old_index: OffsetIndex | None
    ) -> None:
        """Give the writer everything but the pages, which it has."""
        file, key, plan = self.file, placed.key, found.plan
        old = file.footer.column_chunk(*key)
        meta = old.meta_data
        if meta is None:
            raise UnsupportedError("a column chunk without metadata")
        if plan is None:
            placed.end(old, found.uncompressed)
        else:
            index_page = placed.start + plan.index_page_offset
            placed.end(old, found.uncompressed + plan.length, index_page=index_page)
        if meta.bloom_filter_offset:
            placed.bloom = bloom_to_copy(file, key)
            if placed.bloom is None:
                self._note(key, "a Bloom filter of an old kind left out")
        if old_index is None:
            return
        now = dict(zip([at for at, _ in found.sources], placed.pages, strict=True))
        if any(each.offset not in now for each in old_index.page_locations):
            self._note(key, "its offset index names other pages")
            return
        places = [
            (now[each.offset][0], each.compressed_page_size) for each in old_index.page_locations
        ]
        placed.offset_index = relocated_offset_index(old_index, places)
        where = index_ranges(old, file.path).column_index
        if where is not None:
            placed.column_index = unpadded(bytes(file.reader.one(*where)))

    def _note(self, key: ChunkKey, text: str) -> None:
        name = self.file.footer.schema.leaves[key[1]].name
        self.notes.append(f"row group {key[0]}, {name}: {text}")


def _runs(pages: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Groups of adjacent pages, some megabytes each."""
    at = size = 0
    for offset, length in pages:
        if size and offset == at + size and size + length <= COPY_SIZE:
            size += length
            continue
        if size:
            yield at, size
        at, size = offset, length
    if size:
        yield at, size


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPagesReport(Report):
    """Of ``chunks``, ``keyed`` have a tree of keys now and ``ordinal`` only a tree of ordinals.

    The trees have ``index_pages`` pages of ``index_bytes`` bytes, and at most ``levels`` levels.
    ``notes`` name the chunks without a tree, or without the requested one, and the reasons.
    """

    path: str
    output: str
    keys: Sequence[str] = ()
    interleave: bool = False
    rows: int = 0
    row_groups: int = 0
    chunks: int = 0
    keyed: int = 0
    ordinal: int = 0
    data_pages: int = 0
    index_pages: int = 0
    index_bytes: int = 0
    levels: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """Always true: the notes list what was not possible."""
        return True

    def __str__(self) -> str:
        verb = "would write" if self.dry_run else "wrote"
        what = f"{plural(self.rows, 'row')} in {plural(self.row_groups, 'row group')}"
        where = "between the data pages" if self.interleave else "after the data pages"
        lines = [
            f"{verb} {self.output}: {what}, {plural(self.data_pages, 'data page')}",
            f"  trees of keys: {of_total(self.keyed, self.chunks, 'chunks')}"
            + (f" ({', '.join(self.keys)})" if self.keys else ""),
            f"  trees of ordinals only: {of_total(self.ordinal, self.chunks, 'chunks')}",
            f"  {plural(self.index_pages, 'index page')} {where},"
            f" {plural(self.levels, 'level')}, {size(self.index_bytes)}",
        ]
        lines += [f"  {note}" for note in self.notes[:SHOWN]]
        if len(self.notes) > SHOWN:
            lines.append(f"  and {len(self.notes) - SHOWN:,} more of that kind")
        lines.append(
            f"  {size(self.bytes_before)} before, {size(self.bytes_after)} after,"
            f" {duration(1000 * self.seconds)}"
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrofitWithIndexPages(Report):
    """The reports of a retrofit and of the index pages that were added after it."""

    retrofit: RetrofitReport
    index_pages: IndexPagesReport

    @property
    def ok(self) -> bool:
        """True if the file now has everything that it can have."""
        return self.retrofit.ok

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values: those of the retrofit, and ``index_pages``."""
        return self.retrofit.to_dict() | {"index_pages": self.index_pages.to_dict()}

    def __str__(self) -> str:
        return f"{self.retrofit}\n{self.index_pages}"
