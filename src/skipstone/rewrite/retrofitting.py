"""``retrofit``: what readers skip by, added to a Parquet file that was written without it.

    before   PAR1 | chunks of row group 0 | chunks of row group 1 | … | indexes | footer
    after    PAR1 | chunks, Bloom filters | chunks, Bloom filters | … | column indexes,
             offset indexes | footer

Page bodies are copied byte for byte; headers get checksums, so everything moves a little. Values
are decoded only to be looked at, a page at a time; two chunks are worked on at once, and more than
these are never held. Chunks that lack nothing are copied with what they have.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import SkipstoneError, StaleError
from skipstone.formats.parquet.enums import Encoding
from skipstone.formats.parquet.footer import MAGIC, TAIL_LENGTH, Tail
from skipstone.formats.parquet.indexes import OffsetIndex, PageLocation
from skipstone.formats.parquet.thrift import read_struct
from skipstone.scan.file import ParquetFile
from skipstone.scan.index_parts import bloom_filter, offset_index
from skipstone.scan.sorted_rows import is_sorted

from .bloom_filling import BloomFilling
from .chunk_copy import Copied, copy_chunk, stored_pages
from .chunk_facts import ChunkFacts
from .footer_edit import ChunkEdit, GroupEdit, edited_footer
from .missing import Asked, lacking, refuse
from .replacing import Counting, local_path, replacing
from .retrofit_report import RetrofitReport

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from skipstone.formats.parquet.metadata import ColumnMetaData
    from skipstone.scan.chunk_pages import Cell

    from .replacing import Output

__all__ = ["retrofit", "retrofit_file"]

# Of a chunk that is worked on beside another; a larger one is written page by page, alone.
_HELD: Final = 32 << 20
_WORKERS: Final = 2


def retrofit(
    path: str | os.PathLike[str],
    *,
    bloom: Mapping[str, float] | None = None,
    page_rows: int | None = None,
    sorting: Sequence[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> RetrofitReport:
    """Add page index, Bloom filters, checksums, statistics and size statistics to a local file.

    ``bloom`` names columns with the probability of a false positive; the filters are as large as
    the distinct values of each row group want. ``page_rows``: pages of more rows are split, which
    is all that is encoded anew. ``sorting`` names keys (``"ts"``, ``"ts:desc:nulls_first"``); a row
    group says that it is sorted so only where it is, and what it said before is checked too.
    ``output`` is another file to write, in place of this one; ``dry_run`` writes nothing.

    The file is replaced at once when the new one is complete. Raises ``FormatError`` for a damaged
    one, ``UnsupportedError`` where columns are encrypted or in other files, ``StaleError`` where it
    was changed meanwhile.
    """
    return retrofit_file(
        ParquetFile(path),
        bloom=bloom or {},
        page_rows=page_rows,
        sorting=sorting,
        output=output,
        dry_run=dry_run,
    )


def retrofit_file(
    file: ParquetFile,
    *,
    bloom: Mapping[str, float],
    page_rows: int | None,
    sorting: Sequence[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> RetrofitReport:
    """The same for a file that was opened already; another version of it is a ``StaleError``."""
    started = time.perf_counter()
    place = local_path(file.path)
    target = place if output is None else local_path(str(output))
    refuse(file)
    asked = Asked.of(file, bloom, page_rows, sorting)
    lacks = lacking(file, asked)
    orders = _sorting(file, asked, check_old=bool(lacks))
    report: dict[str, Any] = {
        "path": file.path,
        "output": str(target),
        "rows": file.num_rows,
        "row_groups": file.num_row_groups,
        "chunks": file.num_row_groups * len(file.footer.schema.leaves),
        "bytes_before": file.size,
        "dry_run": dry_run,
    }
    if not lacks and not orders.changed and target == place:
        return RetrofitReport(
            fate="complete",
            bytes_after=file.size,
            seconds=time.perf_counter() - started,
            **report,
        )

    def still() -> None:
        if not file.id.same_version(file.reader.storage.stat(file.path)):
            raise StaleError(f"{file.path} was changed while it was read", hint="run it again")

    work = _Work(file, asked, lacks, orders)
    if dry_run:
        counted = Counting()
        work.write(counted)
        after = counted.at
    else:
        with replacing(target, still=still) as out:
            work.write(out)
            after = out.at
    return RetrofitReport(
        fate="rewritten",
        bytes_after=after,
        pages=work.pages,
        added=work.added,
        bytes_of=work.bytes_of,
        sorted_groups=orders.claimed,
        notes=(*orders.notes, *work.notes),
        seconds=time.perf_counter() - started,
        **report,
    )


# -- sorting --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Orders:
    """The sorting columns of each row group that are to stand in the footer."""

    groups: list[tuple[Any, ...] | None]
    changed: bool = False
    claimed: int = 0
    notes: tuple[str, ...] = ()


def _sorting(file: ParquetFile, asked: Asked, *, check_old: bool) -> _Orders:
    made = _Orders(groups=[])
    notes = []
    leaves = file.footer.schema.leaves
    for r in range(file.num_row_groups):
        old = file.footer.sorting_columns(r) or None
        found = old
        if check_old and old is not None and not _holds(file, r, old):
            found = None
            notes.append(f"row group {r} is not sorted as it says: that is taken out")
        if asked.sorting is not None and asked.sorting != found:
            if _holds(file, r, asked.sorting):
                found = asked.sorting
                made.claimed += 1
            else:
                names = ", ".join(leaves[each.column_idx].name for each in asked.sorting)
                notes.append(f"row group {r} is not sorted by {names}: nothing is claimed")
        made.changed |= found != old
        made.groups.append(found)
    shown = notes[:5]
    if len(notes) > len(shown):
        shown.append(f"and {len(notes) - len(shown)} more of that kind")
    made.notes = tuple(shown)
    return made


def _holds(file: ParquetFile, row_group: int, claimed: Sequence[Any]) -> bool:
    leaves = file.footer.schema.leaves
    for each in claimed:
        if not 0 <= each.column_idx < len(leaves):
            return False
        if leaves[each.column_idx].max_repetition_level:
            return False
    return bool(is_sorted(file, row_group, claimed))


# -- the file -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Chunk:
    """One chunk, looked at; ``pieces`` are its bytes where they were not written yet."""

    copied: Copied
    facts: ChunkFacts | None
    bloom: bytes | None = None
    pieces: list[bytes | memoryview] | None = None


class _Work:
    def __init__(
        self,
        file: ParquetFile,
        asked: Asked,
        lacks: Mapping[Cell, frozenset[str]],
        orders: _Orders,
    ) -> None:
        self.file, self.asked, self.lacks, self.orders = file, asked, lacks, orders
        self.leaves = file.footer.schema.leaves
        self.pages = 0
        self.added: dict[str, int] = {}
        self.bytes_of: dict[str, int] = {}
        self.notes: list[str] = []
        self._column_indexes: list[tuple[ChunkEdit, bytes]] = []
        self._offset_indexes: list[tuple[ChunkEdit, bytes]] = []

    def write(self, out: Output) -> None:
        """The whole new file."""
        file = self.file
        out.write(MAGIC)
        groups: list[GroupEdit] = []
        edits: list[ChunkEdit] = []
        blooms: list[tuple[ChunkEdit, bytes]] = []
        uncompressed = first = 0
        begun = out.at
        for (r, c), start, chunk in self._chunks(out):
            if not c:
                edits, blooms, uncompressed, first = [], [], 0, start
                begun = start
            edit = self._edit((r, c), start, chunk)
            edits.append(edit)
            uncompressed += chunk.copied.uncompressed
            if chunk.bloom is not None:
                blooms.append((edit, chunk.bloom))
            if c == len(self.leaves) - 1:
                groups.append(self._group(r, edits, uncompressed, out.at - begun, first))
                for held, data in blooms:
                    held.meta |= {"bloom_filter_offset": out.at, "bloom_filter_length": len(data)}
                    out.write(data)
        groups += [
            self._group(r, [], 0, 0, out.at) for r in range(len(groups), file.num_row_groups)
        ]
        for name, found in (
            ("column_index", self._column_indexes),
            ("offset_index", self._offset_indexes),
        ):
            for edit, data in found:
                edit.chunk |= {f"{name}_offset": out.at, f"{name}_length": len(data)}
                out.write(data)
        footer = edited_footer(
            file.footer.data[: file.footer.end], groups, column_orders=len(self.leaves)
        )
        out.write(footer)
        out.write(Tail(TAIL_LENGTH + len(footer), len(footer), encrypted=False).to_bytes())

    def _group(
        self, r: int, edits: list[ChunkEdit], uncompressed: int, compressed: int, first: int
    ) -> GroupEdit:
        old = self.file.footer.row_group(r)
        fields: dict[str, object] = {
            "total_byte_size": uncompressed,
            "sorting_columns": self.orders.groups[r],
        }
        if old.total_compressed_size is not None:
            fields["total_compressed_size"] = compressed
        if old.file_offset:
            fields["file_offset"] = first
        return GroupEdit(chunks=edits, fields=fields)

    # -- chunks ------------------------------------------------------------------------------------

    def _chunks(self, out: Output) -> Iterator[tuple[Cell, int, _Chunk]]:
        """Each chunk with the place where it lies now, its bytes written."""
        cells = [(r, c) for r in range(self.file.num_row_groups) for c in range(len(self.leaves))]
        waiting: deque[tuple[Cell, Future[_Chunk] | None]] = deque()
        with ThreadPoolExecutor(_WORKERS) as pool:
            todo = iter(cells)
            for _ in range(_WORKERS):
                self._begin(pool, waiting, next(todo, None))
            try:
                while waiting:
                    cell, future = waiting.popleft()
                    start = out.at
                    if future is None:
                        chunk = self._one(cell, out)
                    else:
                        chunk = future.result()
                        for piece in chunk.pieces or ():
                            out.write(piece)
                        chunk.pieces = None
                    self._begin(pool, waiting, next(todo, None))
                    yield cell, start, chunk
            finally:
                for _, future in waiting:
                    if future is not None:
                        future.cancel()

    def _begin(
        self,
        pool: ThreadPoolExecutor,
        waiting: deque[tuple[Cell, Future[_Chunk] | None]],
        cell: Cell | None,
    ) -> None:
        if cell is None:
            return
        place = self.file.chunks_pages.place(cell)
        large = place.stop - place.start > _HELD
        waiting.append((cell, None if large else pool.submit(self._one, cell, None)))

    def _one(self, cell: Cell, out: Output | None) -> _Chunk:
        leaf, place = self.leaves[cell[1]], self.file.chunks_pages.place(cell)
        lacks = self.lacks.get(cell, frozenset())
        fpp = self.asked.bloom.get(cell[1]) if "bloom filter" in lacks else None
        facts = None
        if lacks - {"checksums"}:
            filling = None if fpp is None else BloomFilling(place.num_values, fpp)
            facts = ChunkFacts(leaf, self.asked.orders[cell[1]], filling=filling)
        pieces: list[bytes | memoryview] | None = [] if out is None else None
        copied = copy_chunk(
            stored_pages(self.file.reader, place),
            leaf,
            place.codec,
            pieces.append if pieces is not None else out.write,  # type: ignore[union-attr]
            facts=facts,
            page_rows=self.asked.page_rows if "pages" in lacks else None,
        )
        if not leaf.max_repetition_level and copied.rows and sum(copied.rows) != place.rows:
            raise SkipstoneError(f"{leaf.name}: its pages hold other rows than its row group")
        bloom = None
        if fpp is not None and facts is not None:
            bloom = facts.bloom_filter(fpp).to_bytes()
        else:
            kept = bloom_filter(self.file, cell)
            bloom = None if kept is None else kept.to_bytes()
        return _Chunk(copied=copied, facts=facts, bloom=bloom, pieces=pieces)

    # -- what the footer says ----------------------------------------------------------------------

    def _edit(self, cell: Cell, start: int, chunk: _Chunk) -> ChunkEdit:
        copied, facts = chunk.copied, chunk.facts
        old = self.file.footer.column_chunk(*cell)
        meta = old.meta_data
        assert meta is not None  # as refuse() has seen
        self.pages += copied.pages
        first = start + (copied.offsets[0] if copied.offsets else 0)
        edit = ChunkEdit(
            chunk={
                "offset_index_offset": None,
                "offset_index_length": None,
                "column_index_offset": None,
                "column_index_length": None,
            },
            meta={
                "total_uncompressed_size": copied.uncompressed,
                "total_compressed_size": copied.length,
                "data_page_offset": first,
                "index_page_offset": None,
                "dictionary_page_offset": None if copied.dictionary is None else start,
                "bloom_filter_offset": None,
                "bloom_filter_length": None,
            },
        )
        if old.file_offset:
            edit.chunk["file_offset"] = start
        if copied.dropped:
            name = self.leaves[cell[1]].name
            self.notes.append(
                f"row group {cell[0]}, {name}: {copied.dropped} pages without values left out"
            )
        lacks = self.lacks.get(cell, frozenset())
        for kind in lacks & {"checksums", "pages"}:
            self._note(kind, 4 * copied.checksums_added if kind == "checksums" else 0)
        if "bloom filter" in lacks:
            self._note("bloom filter", len(chunk.bloom or b""))
        self._indexes(cell, start, chunk, edit, lacks)
        if facts is not None:
            self._statistics(edit, meta, facts, lacks)
        if "pages" in lacks:
            edit.meta["encoding_stats"] = copied.encoding_stats()
            edit.meta["encodings"] = _encodings(copied, meta)
        return edit

    def _note(self, kind: str, size: int) -> None:
        self.added[kind] = self.added.get(kind, 0) + 1
        self.bytes_of[kind] = self.bytes_of.get(kind, 0) + size

    def _indexes(
        self, cell: Cell, start: int, chunk: _Chunk, edit: ChunkEdit, lacks: frozenset[str]
    ) -> None:
        copied, facts = chunk.copied, chunk.facts
        old_offsets = offset_index(self.file, cell)
        if not copied.offsets or (facts is not None and facts.within_rows):
            return
        repeated = self.leaves[cell[1]].max_repetition_level
        if facts is None and repeated and old_offsets is None:
            return
        rows = copied.rows
        unencoded = None
        if facts is not None:
            rows = facts.rows
            unencoded = tuple(facts.sizes) if facts.unencoded is not None else None
        elif old_offsets is not None:
            unencoded = old_offsets.unencoded_byte_array_data_bytes
            if len(old_offsets.page_locations) != len(copied.offsets):
                return
            firsts = [each.first_row_index for each in old_offsets.page_locations]
            rows = [b - a for a, b in zip(firsts, [*firsts[1:], 0], strict=True)]
        made, row = [], 0
        for at, size, count in zip(copied.offsets, copied.sizes, rows, strict=True):
            made.append(
                PageLocation(offset=start + at, compressed_page_size=size, first_row_index=row)
            )
            row += count
        data = OffsetIndex(
            page_locations=tuple(made), unencoded_byte_array_data_bytes=unencoded
        ).to_bytes()
        self._offset_indexes.append((edit, data))
        if "offset index" in lacks:
            self._note("offset index", len(data))
        index = None if facts is None else facts.column_index()
        bounds = None if index is None else index.to_bytes()
        order = self.asked.orders[cell[1]]
        if bounds is None and "pages" not in lacks and (facts is None or order is None):
            bounds = self._old_column_index(cell)
        if bounds is not None:
            self._column_indexes.append((edit, bounds))
            if "column index" in lacks:
                self._note("column index", len(bounds))

    def _old_column_index(self, cell: Cell) -> bytes | None:
        old = self.file.footer.column_chunk(*cell)
        if not old.column_index_offset or not old.column_index_length:
            return None
        place = self.file.chunks_pages.place(cell)
        data = self.file.reader.one(
            place.path, old.column_index_offset, old.column_index_length
        ).tobytes()
        return data[: read_struct(data)[1]]

    def _statistics(
        self, edit: ChunkEdit, meta: ColumnMetaData, facts: ChunkFacts, lacks: frozenset[str]
    ) -> None:
        trusted = self.file.footer.column_orders is not None
        found = facts.statistics(meta.statistics, trusted=trusted)
        edit.meta["statistics"] = found
        sizes = facts.size_statistics()
        if sizes.to_dict():
            edit.meta["size_statistics"] = sizes
        if "statistics" in lacks and found is not None:
            self._note("statistics", len(found.to_bytes()))
        if "size statistics" in lacks:
            self._note("size statistics", len(sizes.to_bytes()))


def _encodings(copied: Copied, meta: ColumnMetaData) -> tuple[int, ...]:
    used = {encoding for _, encoding in copied.encodings}
    kept = [int(each) for each in meta.encodings if each in used or each == Encoding.RLE]
    return (*kept, *sorted(used - set(kept)))
