"""Rewrites a file and adds what it lacks: chunk by chunk, then its indexes, then its footer.

    main thread   reads batches of pages   …   writes them in their order, edits the footer
    two others    checksums, decoding, bounds, hashes: batches of this chunk and of the next

Memory holds a few batches at most, for chunks and pages of any size.
"""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, StaleError
from skipstone.parquet.format.bloom_filter import COMPILED as BLOOM_KERNELS
from skipstone.parquet.format.enums import Encoding
from skipstone.parquet.format.metadata import ColumnMetaData, Statistics
from skipstone.parquet.reading.page_metadata import (
    BloomModules,
    bloom_to_copy,
    read_offset_index,
)
from skipstone.parquet.writing.chunk_copier import ChunkCopier, Copied, Ready, page_batches
from skipstone.parquet.writing.chunk_modules import index_ranges, unpadded
from skipstone.parquet.writing.chunk_statistics import (
    NO_BOUNDS,
    BloomFilterBuilder,
    ChunkStatistics,
    has_bounds,
)
from skipstone.parquet.writing.file_writer import (
    ChunkWriter,
    FileWriter,
    offset_index_of,
    row_group_fields,
)
from skipstone.parquet.writing.footer_editor import FooterEditor, RowGroupEdit
from skipstone.parquet.writing.many_pages import KERNELS as PAGE_KERNELS
from skipstone.parquet.writing.retrofit_needs import why_no_column_index
from skipstone.storage.atomic_replace import ByteSink, CountingSink, replace_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.parquet.writing.retrofit_needs import IndexOptions, SortingOrders


_WORKERS: Final = 2
# The most batches that are read ahead of the writer, and the most bytes of them.
_AHEAD: Final = 6
_HELD: Final = 16 << 20


@dataclass(slots=True, kw_only=True)
class _OpenChunk:
    """One chunk being written; ``placed`` is ``None`` before its first page is written."""

    key: ChunkKey
    copy: ChunkCopier
    facts: ChunkStatistics | None
    placed: ChunkWriter | None = None


class RetrofitWriter:
    """Rewrites one file; ``pages``, ``added``, ``bytes_of``, ``unindexed`` and ``notes`` are for
    the report."""

    def __init__(
        self,
        file: ParquetFile,
        index_options: IndexOptions,
        needs: Mapping[ChunkKey, frozenset[str]],
        orders: SortingOrders,
    ) -> None:
        self.file, self.index_options, self.needs, self.orders = file, index_options, needs, orders
        self.leaves = file.footer.schema.leaves
        self.pages = 0
        self.added: dict[str, int] = {}
        self.bytes_of: dict[str, int] = {}
        self.notes: list[str] = []
        #: chunks without a column index, by reason and column
        self.unindexed: Counter[tuple[str, str]] = Counter()
        #: by column: chunks that get bounds now, and whether there are NaN that bounds leave out
        self._new_bounds: dict[int, list[ChunkWriter]] = {}
        self._misleading: set[int] = set()

    def write(self, out: ByteSink) -> None:
        """The whole new file."""
        file, writer = self.file, FileWriter(out)
        groups: list[list[ChunkWriter]] = []
        for chunk in self._chunks(writer):
            self._describe(chunk)
            if chunk.key[1] == len(self.leaves) - 1:
                groups.append(writer.end_row_group())
        writer.write_indexes()
        self._leave_out_bounds()
        groups += [[] for _ in range(len(groups), file.num_row_groups)]
        edits = []
        for r, placed in enumerate(groups):
            fields = row_group_fields(file.footer.row_group(r), placed)
            fields["sorting_columns"] = self.orders.groups[r]
            edits.append(RowGroupEdit(chunks=[each.fields for each in placed], fields=fields))
        editor = FooterEditor.of(file.footer).edited(edits)
        writer.write_footer(editor.with_column_orders(len(self.leaves)).to_bytes())

    def _load_kernels(self) -> None:
        """Load compiled code if it pays for all the work, which is known here."""
        coded = self.file.footer.chunk("encodings")
        looked_at = hashed = 0
        for key, needs in self.needs.items():
            if needs - {"checksums"}:
                values = self.file.chunk_pages.place(key).num_values
                looked_at += values
                # Of a dictionary only the values that are used are hashed, each once.
                dictionaries = 1 << Encoding.RLE_DICTIONARY | 1 << Encoding.PLAIN_DICTIONARY
                if "bloom filter" in needs and not coded[key] & dictionaries:
                    hashed += values
        if hashed >= BLOOM_KERNELS.total:
            BLOOM_KERNELS.for_work(hashed)
        PAGE_KERNELS.for_work(looked_at)

    # -- chunks ------------------------------------------------------------------------------------

    def _chunks(self, writer: FileWriter) -> Iterator[_OpenChunk]:
        """Yield each chunk when its bytes are written."""
        waiting: deque[tuple[_OpenChunk, Future[list[Ready]] | None, int]] = deque()
        with ThreadPoolExecutor(_WORKERS) as pool:
            pool.submit(self._load_kernels)
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
                    if chunk.placed is None:
                        path = self.leaves[chunk.key[1]].path
                        chunk.placed = writer.chunk(chunk.key, path)
                    if future is None:
                        yield chunk
                        continue
                    try:
                        ready = future.result()
                    except FormatError as error:
                        raise error.in_file(self.file.path) from None
                    chunk.copy.keep(ready, chunk.placed.page)
                    held -= size
            finally:
                for _, future, _ in waiting:
                    if future is not None:
                        future.cancel()

    def _batches(
        self, submit: Callable[[Callable[[], list[Ready]]], Future[list[Ready]]]
    ) -> Iterator[tuple[_OpenChunk, Future[list[Ready]] | None, int]]:
        """Batches of pages that threads prepare, with their bytes; ``None`` ends a chunk."""
        for r in range(self.file.num_row_groups):
            for c in range(len(self.leaves)):
                chunk, place = self._begun((r, c)), self.file.chunk_pages.place((r, c))
                for window in page_batches(self.file.reader, place):
                    yield chunk, chunk.copy.begin(window, submit), len(window.data)
                yield chunk, None, 0

    def _begun(self, key: ChunkKey) -> _OpenChunk:
        leaf, place = self.leaves[key[1]], self.file.chunk_pages.place(key)
        needs = self.needs.get(key, frozenset())
        fpp = self.index_options.bloom.get(key[1]) if "bloom filter" in needs else None
        facts = None
        if needs - {"checksums"}:
            filling = None if fpp is None else BloomFilterBuilder(place.num_values, fpp)
            facts = ChunkStatistics(leaf, self.index_options.orders[key[1]], filling=filling)
        page_rows = self.index_options.page_rows if "pages" in needs else None
        copy = ChunkCopier(leaf, place.codec, facts=facts, page_rows=page_rows)
        return _OpenChunk(key=key, copy=copy, facts=facts)

    # -- the fields of the footer ------------------------------------------------------------------

    def _describe(self, chunk: _OpenChunk) -> None:
        """Give the writer everything but the pages, which it has."""
        key, facts, placed = chunk.key, chunk.facts, chunk.placed
        assert placed is not None  # its pages are written
        leaf, place = self.leaves[key[1]], self.file.chunk_pages.place(key)
        copied = chunk.copy.end(placed.page)
        if not leaf.max_repetition_level and copied.rows and sum(copied.rows) != place.rows:
            raise SkipstoneError(f"{leaf.name}: its pages hold other rows than its row group")
        old = self.file.footer.column_chunk(*key)
        meta = old.meta_data
        assert meta is not None  # refuse() has checked it
        placed.end(old, copied.uncompressed)
        self.pages += copied.pages
        if copied.dropped:
            self.notes.append(
                f"row group {key[0]}, {leaf.name}: {copied.dropped} pages without values left out"
            )
        needs = self.needs.get(key, frozenset())
        for kind in needs & {"checksums", "pages"}:
            self._note(kind, 4 * copied.checksums_added if kind == "checksums" else 0)
        if facts is None or facts.filling is None:
            placed.bloom = bloom_to_copy(self.file, key)
            if placed.bloom is None and meta.bloom_filter_offset:
                self.notes.append(
                    f"row group {key[0]}, {leaf.name}: a Bloom filter of an old kind left out"
                )
        else:
            placed.bloom = BloomModules.of(facts.bloom_filter())
            self._note("bloom filter", sum(map(len, placed.bloom)))
        self._indexes(chunk, placed, needs)
        if placed.column_index is None:
            why = why_no_column_index(self.file, key, self.index_options.orders[key[1]], facts)
            self.unindexed[why, leaf.name] += 1
        if facts is not None:
            self._statistics(placed, meta, facts, needs)
        if "pages" in needs:
            placed.fields["encoding_stats"] = copied.encoding_stats()
            placed.fields["encodings"] = _encodings(copied, meta)

    def _note(self, kind: str, size: int) -> None:
        self.added[kind] = self.added.get(kind, 0) + 1
        self.bytes_of[kind] = self.bytes_of.get(kind, 0) + size

    def _indexes(self, chunk: _OpenChunk, placed: ChunkWriter, needs: frozenset[str]) -> None:
        key, facts = chunk.key, chunk.facts
        old_offsets = read_offset_index(self.file, key)
        if not placed.pages or (facts is not None and facts.within_rows):
            return
        repeated = self.leaves[key[1]].max_repetition_level
        if facts is None and repeated and old_offsets is None:
            return
        rows = chunk.copy.copied.rows
        unencoded = None
        if facts is not None:
            rows, unencoded = facts.rows, facts.unencoded
        elif old_offsets is not None:
            unencoded = old_offsets.unencoded_byte_array_data_bytes
            if len(old_offsets.page_locations) != len(placed.pages):
                return
            firsts = [each.first_row_index for each in old_offsets.page_locations]
            rows = [b - a for a, b in zip(firsts, [*firsts[1:], 0], strict=True)]
        placed.offset_index = offset_index_of(placed.pages, rows, unencoded)
        if "offset index" in needs:
            self._note("offset index", len(placed.offset_index))
        index = None if facts is None else facts.column_index()
        bounds = None if index is None else index.to_bytes()
        order = self.index_options.orders[key[1]]
        if bounds is None and "pages" not in needs and (facts is None or order is None):
            bounds = self._old_column_index(key)
        placed.column_index = bounds
        if bounds is not None and "column index" in needs:
            self._note("column index", len(bounds))

    def _old_column_index(self, key: ChunkKey) -> bytes | None:
        where = index_ranges(self.file.footer.column_chunk(*key), self.file.path).column_index
        return None if where is None else unpadded(bytes(self.file.reader.one(*where)))

    def _statistics(
        self,
        placed: ChunkWriter,
        meta: ColumnMetaData,
        facts: ChunkStatistics,
        needs: frozenset[str],
    ) -> None:
        trusted, column = self.file.footer.column_orders is not None, placed.key[1]
        found = facts.statistics(meta.statistics, trusted=trusted)
        placed.fields["statistics"] = found
        if facts.misleading:
            self._misleading.add(column)
        if facts.order is not None and facts.order.misleads and not has_bounds(meta.statistics):
            self._new_bounds.setdefault(column, []).append(placed)
        sizes = facts.size_statistics()
        if sizes.to_dict():
            placed.fields["size_statistics"] = sizes
        if "statistics" in needs and found is not None:
            self._note("statistics", len(found.to_bytes()))
        if "size statistics" in needs:
            self._note("size statistics", len(sizes.to_bytes()))

    def _leave_out_bounds(self) -> None:
        """Remove the bounds of columns with NaN; see ``chunk_statistics.py``."""
        for column in sorted(self._misleading):
            self.notes.append(
                f"{self.leaves[column].name} holds NaN: its new bounds are left out,"
                " because most readers misread them"
            )
            for placed in self._new_bounds.get(column, ()):
                held = placed.fields["statistics"]
                assert isinstance(held, Statistics)
                # Bounds in the fields of old readers stay: retrofit adds none.
                placed.fields["statistics"] = replace(held, **NO_BOUNDS)


def write_changed(
    file: ParquetFile, target: Path, write: Callable[[ByteSink], None], *, dry_run: bool
) -> int:
    """Write the changed file at ``target``, and return its size; with ``dry_run`` only count.

    ``StaleError`` if ``file`` was changed meanwhile.
    """

    def still() -> None:
        if not file.id.same_version(file.reader.storage.stat(file.path)):
            raise StaleError(f"{file.path} was changed while it was read", hint="run it again")

    if dry_run:
        counted = CountingSink()
        write(counted)
        return counted.at
    with replace_atomically(target, sources=[file.path], still=still) as out:
        write(out)
        return out.at


def _encodings(copied: Copied, meta: ColumnMetaData) -> tuple[int, ...]:
    used = {encoding for _, encoding in copied.encodings}
    kept = [int(each) for each in meta.encodings if each in used or each == Encoding.RLE]
    return (*kept, *sorted(used - set(kept)))
