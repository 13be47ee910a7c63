"""A file written anew with what it lacks: chunk by chunk, then its indexes, then its footer.

    main thread   reads batches of pages   …   keeps them in their order, writes, edits the footer
    two others    checksums, decoding, bounds, hashes: batches of this chunk and of the next

A few batches are held at once, whatever chunks and pages the file has.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.format.enums import Encoding
from skipstone.parquet.format.footer import MAGIC, TAIL_LENGTH, Tail
from skipstone.parquet.format.page_index_structs import OffsetIndex, PageLocation
from skipstone.parquet.format.statistics import Statistics
from skipstone.parquet.reading.page_metadata import read_bloom_filter, read_offset_index
from skipstone.parquet.thrift.compact import read_struct
from skipstone.parquet.writing.bloom_builder import BloomFilling
from skipstone.parquet.writing.chunk_copier import ChunkCopy, Copied, page_batches
from skipstone.parquet.writing.chunk_statistics import ChunkFacts, has_bounds
from skipstone.parquet.writing.footer_editor import FooterEditor, RowGroupEdit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from skipstone.parquet.format.metadata import ColumnMetaData
    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.parquet.writing.chunk_copier import Ready
    from skipstone.parquet.writing.retrofit_needs import Asked, SortingClaims
    from skipstone.storage.atomic_replace import Output

__all__ = ["Refitting"]

ChunkEdit: TypeAlias = "dict[str, object]"

_WORKERS: Final = 2
# Batches that are read before the first of them is written, and their bytes where they are large.
_AHEAD: Final = 6
_HELD: Final = 16 << 20


@dataclass(slots=True, kw_only=True)
class _Chunk:
    """One chunk on its way; ``start`` is where it lies now, -1 before it is begun."""

    cell: ChunkKey
    copy: ChunkCopy
    facts: ChunkFacts | None
    start: int = -1
    bloom: bytes | None = None


class Refitting:
    """Of one file into another; ``pages``, ``added``, ``bytes_of`` and ``notes`` tell of it."""

    def __init__(
        self,
        file: ParquetFile,
        asked: Asked,
        lacks: Mapping[ChunkKey, frozenset[str]],
        orders: SortingClaims,
    ) -> None:
        self.file, self.asked, self.lacks, self.orders = file, asked, lacks, orders
        self.leaves = file.footer.schema.leaves
        self.pages = 0
        self.added: dict[str, int] = {}
        self.bytes_of: dict[str, int] = {}
        self.notes: list[str] = []
        self._column_indexes: list[tuple[ChunkEdit, bytes]] = []
        self._offset_indexes: list[tuple[ChunkEdit, bytes]] = []
        #: by column: edits that add bounds, and whether there are NaN that these do not tell of
        self._new_bounds: dict[int, list[ChunkEdit]] = {}
        self._misleading: set[int] = set()

    def write(self, out: Output) -> None:
        """The whole new file."""
        file = self.file
        out.write(MAGIC)
        groups: list[RowGroupEdit] = []
        edits: list[ChunkEdit] = []
        blooms: list[tuple[ChunkEdit, bytes]] = []
        uncompressed, begun = 0, out.at
        for chunk in self._chunks(out):
            r, c = chunk.cell
            if not c:
                edits, blooms, uncompressed, begun = [], [], 0, chunk.start
            edit = self._edit(chunk)
            edits.append(edit)
            uncompressed += chunk.copy.copied.uncompressed
            if chunk.bloom is not None:
                blooms.append((edit, chunk.bloom))
            if c == len(self.leaves) - 1:
                groups.append(self._group(r, edits, uncompressed, out.at - begun, begun))
                for held, data in blooms:
                    held |= {"bloom_filter_offset": out.at, "bloom_filter_length": len(data)}
                    out.write(data)
        groups += [
            self._group(r, [], 0, 0, out.at) for r in range(len(groups), file.num_row_groups)
        ]
        self._leave_out_bounds()
        for name, found in (
            ("column_index", self._column_indexes),
            ("offset_index", self._offset_indexes),
        ):
            for edit, data in found:
                edit |= {f"{name}_offset": out.at, f"{name}_length": len(data)}
                out.write(data)
        editor = FooterEditor.of(file.footer).edited(groups)
        footer = editor.with_column_orders(len(self.leaves)).to_bytes()
        out.write(footer)
        out.write(Tail(TAIL_LENGTH + len(footer), len(footer), encrypted=False).to_bytes())

    def _group(
        self, r: int, edits: list[ChunkEdit], uncompressed: int, compressed: int, first: int
    ) -> RowGroupEdit:
        old = self.file.footer.row_group(r)
        fields: dict[str, object] = {
            "total_byte_size": uncompressed,
            "sorting_columns": self.orders.groups[r],
        }
        if old.total_compressed_size is not None:
            fields["total_compressed_size"] = compressed
        if old.file_offset:
            fields["file_offset"] = first
        return RowGroupEdit(chunks=edits, fields=fields)

    # -- chunks ------------------------------------------------------------------------------------

    def _chunks(self, out: Output) -> Iterator[_Chunk]:
        """Each chunk when its bytes are written."""
        waiting: deque[tuple[_Chunk, Future[list[Ready]] | None, int]] = deque()
        with ThreadPoolExecutor(_WORKERS) as pool:
            batches, held, more = self._batches(pool.submit), 0, True
            try:
                while waiting or more:
                    while more and len(waiting) < _AHEAD and (held < _HELD or not waiting):
                        found = next(batches, None)
                        more = found is not None
                        if found is not None:
                            waiting.append(found)
                            held += found[2]
                    if not waiting:
                        break
                    chunk, future, size = waiting.popleft()
                    if chunk.start < 0:
                        chunk.start = out.at
                    if future is None:
                        yield self._ended(chunk, out)
                        continue
                    try:
                        ready = future.result()
                    except FormatError as error:
                        raise error.in_file(self.file.path) from None
                    chunk.copy.keep(ready, out.write)
                    held -= size
            finally:
                for _, future, _ in waiting:
                    if future is not None:
                        future.cancel()

    def _batches(
        self, submit: Callable[[Callable[[], list[Ready]]], Future[list[Ready]]]
    ) -> Iterator[tuple[_Chunk, Future[list[Ready]] | None, int]]:
        """Pages that are being made ready, with their bytes; ``None`` ends a chunk."""
        for r in range(self.file.num_row_groups):
            for c in range(len(self.leaves)):
                chunk, place = self._begun((r, c)), self.file.chunk_pages.place((r, c))
                for pages in page_batches(self.file.reader, place):
                    size = sum([len(page.body) for page in pages])
                    yield chunk, chunk.copy.begin(pages, submit), size
                yield chunk, None, 0

    def _begun(self, cell: ChunkKey) -> _Chunk:
        leaf, place = self.leaves[cell[1]], self.file.chunk_pages.place(cell)
        lacks = self.lacks.get(cell, frozenset())
        fpp = self.asked.bloom.get(cell[1]) if "bloom filter" in lacks else None
        facts = None
        if lacks - {"checksums"}:
            filling = None if fpp is None else BloomFilling(place.num_values, fpp)
            facts = ChunkFacts(leaf, self.asked.orders[cell[1]], filling=filling)
        page_rows = self.asked.page_rows if "pages" in lacks else None
        copy = ChunkCopy(leaf, place.codec, facts=facts, page_rows=page_rows)
        return _Chunk(cell=cell, copy=copy, facts=facts)

    def _ended(self, chunk: _Chunk, out: Output) -> _Chunk:
        leaf, place = self.leaves[chunk.cell[1]], self.file.chunk_pages.place(chunk.cell)
        copied = chunk.copy.end(out.write)
        if not leaf.max_repetition_level and copied.rows and sum(copied.rows) != place.rows:
            raise SkipstoneError(f"{leaf.name}: its pages hold other rows than its row group")
        if chunk.facts is not None and chunk.facts.filling is not None:
            chunk.bloom = chunk.facts.bloom_filter().to_bytes()
        else:
            kept = read_bloom_filter(self.file, chunk.cell)
            chunk.bloom = None if kept is None else kept.to_bytes()
        return chunk

    # -- what the footer says ----------------------------------------------------------------------

    def _edit(self, chunk: _Chunk) -> ChunkEdit:
        cell, start, copied, facts = chunk.cell, chunk.start, chunk.copy.copied, chunk.facts
        old = self.file.footer.column_chunk(*cell)
        meta = old.meta_data
        assert meta is not None  # as refuse() has seen
        self.pages += copied.pages
        first = start + (copied.offsets[0] if copied.offsets else 0)
        edit: ChunkEdit = {
            "offset_index_offset": None,
            "offset_index_length": None,
            "column_index_offset": None,
            "column_index_length": None,
            "total_uncompressed_size": copied.uncompressed,
            "total_compressed_size": copied.length,
            "data_page_offset": first,
            "index_page_offset": None,
            "dictionary_page_offset": None if copied.dictionary is None else start,
            "bloom_filter_offset": None,
            "bloom_filter_length": None,
        }
        if old.file_offset:
            edit["file_offset"] = start
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
        self._indexes(chunk, edit, lacks)
        if facts is not None:
            self._statistics(cell[1], edit, meta, facts, lacks)
        if "pages" in lacks:
            edit["encoding_stats"] = copied.encoding_stats()
            edit["encodings"] = _encodings(copied, meta)
        return edit

    def _note(self, kind: str, size: int) -> None:
        self.added[kind] = self.added.get(kind, 0) + 1
        self.bytes_of[kind] = self.bytes_of.get(kind, 0) + size

    def _indexes(self, chunk: _Chunk, edit: ChunkEdit, lacks: frozenset[str]) -> None:
        cell, start, copied, facts = chunk.cell, chunk.start, chunk.copy.copied, chunk.facts
        old_offsets = read_offset_index(self.file, cell)
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

    def _old_column_index(self, cell: ChunkKey) -> bytes | None:
        old = self.file.footer.column_chunk(*cell)
        if not old.column_index_offset or not old.column_index_length:
            return None
        place = self.file.chunk_pages.place(cell)
        data = self.file.reader.one(
            place.path, old.column_index_offset, old.column_index_length
        ).tobytes()
        return data[: read_struct(data)[1]]

    def _statistics(
        self,
        column: int,
        edit: ChunkEdit,
        meta: ColumnMetaData,
        facts: ChunkFacts,
        lacks: frozenset[str],
    ) -> None:
        trusted = self.file.footer.column_orders is not None
        found = facts.statistics(meta.statistics, trusted=trusted)
        edit["statistics"] = found
        if facts.misleading:
            self._misleading.add(column)
        if facts.order is not None and facts.order.misleads and not has_bounds(meta.statistics):
            self._new_bounds.setdefault(column, []).append(edit)
        sizes = facts.size_statistics()
        if sizes.to_dict():
            edit["size_statistics"] = sizes
        if "statistics" in lacks and found is not None:
            self._note("statistics", len(found.to_bytes()))
        if "size statistics" in lacks:
            self._note("size statistics", len(sizes.to_bytes()))

    def _leave_out_bounds(self) -> None:
        """Of columns with NaN; see ``chunk_facts.py``."""
        for column in sorted(self._misleading):
            name = self.leaves[column].name
            self.notes.append(
                f"{name} holds NaN: it gets no bounds there, which most readers misread"
            )
            for edit in self._new_bounds.get(column, ()):
                held = edit["statistics"]
                assert isinstance(held, Statistics)
                edit["statistics"] = replace(
                    held,
                    min_value=None,
                    max_value=None,
                    is_min_value_exact=None,
                    is_max_value_exact=None,
                )


def _encodings(copied: Copied, meta: ColumnMetaData) -> tuple[int, ...]:
    used = {encoding for _, encoding in copied.encodings}
    kept = [int(each) for each in meta.encodings if each in used or each == Encoding.RLE]
    return (*kept, *sorted(used - set(kept)))
