"""Encodes rows with Arrow: cuts them into row groups, and encodes blocks of columns in parallel.

    pyarrow.Table, RecordBatch                    as they are
    RecordBatchReader, __arrow_c_stream__         one batch at a time (polars, DuckDB, pandas, …)
    an iterable of tables or batches              one at a time; the first one gives the schema

Memory holds at most one row group of a stream, and the batch that extends past its end.

    rows  ->  block of columns  ->  Arrow: Parquet in memory  ->  pages, statistics, Bloom filter
              block of columns  ->  …

Each block is a file of its own, so threads encode blocks and free them one by one. Checksums,
indexes and bounds in Arrow's pages are not used: they are computed from the statistics.

If a page index is requested, Arrow cuts pages at the exact number of rows, and every page begins
with a row, also in lists. Only a dictionary overflow begins another page. With ``page_rows`` such a
column is then encoded a second time without a dictionary, as are its later chunks.

Whole row groups can move to a place in another file (``EncodedRowGroups``). Arrow's buffer holds

    PAR1 | pages, bloom filters, column indexes | offset indexes | footer
           copied as they are                     rewritten        its RowGroup structs

Offset indexes hold offsets, and the length of an offset depends on its value. They follow
everything else, so all bytes before them move by one distance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.parquet.format.footer import MAGIC, find_footer
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.pages.page import chunk_range, walk_pages
from skipstone.parquet.pages.page_headers import DATA_PAGES, INDICES
from skipstone.parquet.writing.index_page_tree import PageBounds

from .chunk_copier import ChunkCopier, Copied
from .chunk_modules import Window
from .chunk_statistics import BloomFilterBuilder, ChunkStatistics, PageStatistics
from .footer_editor import FieldValues, FooterEditor, moved_offset_index, moved_row_group

if TYPE_CHECKING:
    from skipstone.parquet.format.bloom_filter import BloomFilter
    from skipstone.parquet.format.metadata import ColumnChunk, ColumnMetaData
    from skipstone.parquet.format.schema import ColumnDescriptor, Node, Schema
    from skipstone.parquet.pages.column_values import LeafColumn

    from .retrofit_needs import IndexOptions

    class ArrowStream(Protocol):
        """An object that exports an Arrow stream by the C data interface."""

        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

    Rows: TypeAlias = (
        pa.Table
        | pa.RecordBatch
        | pa.RecordBatchReader
        | ArrowStream
        | Iterable[pa.Table | pa.RecordBatch]
    )


_T = TypeVar("_T")
# Bytes of a block's columns in Arrow's memory; a larger column is a block of its own.
_BLOCK: Final = 4 << 20
# If pages are cut by rows, no page may end because of its size; Arrow's page sizes have 32 bits.
_LARGEST_PAGE: Final = 1 << 30


class Block(NamedTuple):
    """A block of columns: fields ``start:stop`` of the root."""

    start: int
    stop: int


@dataclass(slots=True, kw_only=True)
class EncodedChunk:
    """One chunk: ``pages`` are header and body of each page, the dictionary first.

    ``chunk`` is Arrow's description of it, with offsets into Arrow's buffer.
    """

    leaf: ColumnDescriptor
    chunk: ColumnChunk
    copied: Copied
    facts: ChunkStatistics
    bloom: BloomFilter | None
    bounds: PageBounds | None
    pages: list[tuple[bytes | memoryview, bytes | memoryview]]

    @property
    def meta(self) -> ColumnMetaData:
        """Arrow's metadata."""
        assert self.chunk.meta_data is not None  # Arrow's files are not encrypted
        return self.chunk.meta_data


@dataclass(slots=True, kw_only=True)
class ArrowBlocks:
    """Encodes tables of one schema. ``options`` are those of ``pyarrow.parquet.write_table``.

    ``keys`` are leaves that rows are sorted by: their stored values are kept. ``indexed`` are
    leaves whose index pages hold keys.
    """

    schema: Schema
    index_options: IndexOptions
    options: Mapping[str, Any]
    keys: frozenset[int] = frozenset()
    indexed: frozenset[int] = frozenset()
    _overflowed: set[int] = field(default_factory=set)

    def blocks(self, rows: pa.Table) -> Iterator[Block]:
        """Divides all columns, in their order, into blocks."""
        start, held = 0, 0
        for at, node in enumerate(self.schema.root.children):
            size = rows.column(at).nbytes
            alone = not self.keys.isdisjoint(range(node.first_leaf, node.stop_leaf))
            if at > start and (alone or held + size > _BLOCK):
                yield Block(start, at)
                start, held = at, 0
            held = _BLOCK if alone else held + size
        yield Block(start, len(self.schema.root.children))

    def encode(self, rows: pa.Table, block: Block) -> tuple[list[EncodedChunk], pa.ChunkedArray]:
        """The chunks of a block, and the values of its field if rows are sorted by it."""
        nodes = self.schema.root.children[block.start : block.stop]
        encoded = self._encoded(rows, block)
        found = self._chunks(encoded, nodes)
        if self.index_options.page_rows is not None:
            again = [leaf for leaf, chunk in found if _overflows(chunk)]
            if again:
                self._overflowed.update(leaf.ordinal for leaf in again)
                encoded = self._encoded(rows, block)
                found = self._chunks(encoded, nodes)
        values = None
        if not self.keys.isdisjoint(leaf.ordinal for leaf, _ in found):
            file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(encoded.data)))
            values = file.read_row_group(0, use_threads=False).column(0)
        return [self._looked_at(encoded, leaf, chunk) for leaf, chunk in found], values

    def _encoded(self, rows: pa.Table, block: Block) -> EncodedRowGroups:
        options: dict[str, Any] = {
            **self.options,
            "row_group_size": rows.num_rows,
            "write_page_index": True,
            "store_schema": False,
        }
        if self.index_options.page_rows is not None:
            options |= {
                "max_rows_per_page": self.index_options.page_rows,
                "data_page_size": _LARGEST_PAGE,
            }
        nodes = self.schema.root.children[block.start : block.stop]
        leaves = range(nodes[0].first_leaf, nodes[-1].stop_leaf)
        if not self._overflowed.isdisjoint(leaves):
            options["use_dictionary"] = self._dictionaries(leaves)
        made = encode_rows(rows.select(range(block.start, block.stop)), **options)
        if made.footer.num_row_groups != 1 or len(made.footer.schema.leaves) != len(leaves):
            raise SkipstoneError(
                "this version of Arrow does not write the requested row groups",
                hint="use a version of pyarrow that Skipstone supports",
            )
        return made

    def _dictionaries(self, leaves: Sequence[int]) -> list[str]:
        given = self.options.get("use_dictionary", True)
        kept = []
        for ordinal in leaves:
            name = ".".join(self.schema.leaves[ordinal].path)
            wanted = name in given if isinstance(given, list | tuple) else bool(given)
            if wanted and ordinal not in self._overflowed:
                kept.append(name)
        return kept

    def _chunks(
        self, encoded: EncodedRowGroups, nodes: Sequence[Node]
    ) -> list[tuple[ColumnDescriptor, ColumnChunk]]:
        first = nodes[0].first_leaf
        count = nodes[-1].stop_leaf - first
        return [
            (self.schema.leaves[first + at], encoded.footer.column_chunk(0, at))
            for at in range(count)
        ]

    def _looked_at(
        self, encoded: EncodedRowGroups, leaf: ColumnDescriptor, chunk: ColumnChunk
    ) -> EncodedChunk:
        meta = chunk.meta_data
        assert meta is not None  # Arrow's files are not encrypted
        fpp = self.index_options.bloom.get(leaf.ordinal)
        filling = None if fpp is None else BloomFilterBuilder(meta.num_values, fpp)
        facts = _ChunkFacts(leaf, self.index_options.orders[leaf.ordinal], filling=filling)
        if leaf.ordinal in self.indexed:
            facts.bounds = PageBounds(leaf)
        start, stop = chunk_range(meta, file_size=len(encoded.data))
        pages = walk_pages(encoded.data[start:stop], base=start, num_values=meta.num_values)
        copy = ChunkCopier(leaf, int(meta.codec), facts=facts)
        made: list[tuple[bytes | memoryview, bytes | memoryview]] = []

        def put(header: bytes | memoryview, body: bytes | memoryview, _: bool) -> None:
            made.append((header, body))

        window = Window(list(pages), encoded.data[start:stop], start)
        copy.keep(copy.begin(window, _at_once).result(), put)
        return EncodedChunk(
            leaf=leaf,
            chunk=chunk,
            copied=copy.end(put),
            facts=facts,
            bloom=None if fpp is None else facts.bloom_filter(),
            bounds=facts.bounds,
            pages=made,
        )


class _ChunkFacts(ChunkStatistics):
    """Statistics of consecutive pages, and the page bounds that index pages need."""

    bounds: PageBounds | None = None

    @property
    def at_once(self) -> bool:
        return self.bounds is None and super().at_once

    def look(self, column: LeafColumn) -> PageStatistics:
        if self.bounds is not None:
            self.bounds.add(column)
        return super().look(column)


def _overflows(chunk: ColumnChunk) -> bool:
    """Whether only some data pages refer to a dictionary."""
    assert chunk.meta_data is not None
    kinds = {
        each.encoding in INDICES
        for each in chunk.meta_data.encoding_stats or ()
        if each.page_type in DATA_PAGES
    }
    return len(kinds) > 1


def _at_once(work: Callable[[], _T]) -> Future[_T]:
    done: Future[_T] = Future()
    done.set_result(work())
    return done


_FIRST: Final = len(MAGIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRowGroups:
    """Row groups with their offsets at one place of a file; they end at byte ``stop``.

    ``pieces`` are the bytes to write there; ``filters`` maps file offsets to the Bloom filters
    among them.
    """

    pieces: tuple[memoryview | bytes, ...]
    stop: int
    rows: tuple[int, ...]
    row_groups: tuple[bytes, ...]
    filters: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRowGroups:
    """Rows that Arrow encoded: a buffer that is a Parquet file."""

    data: memoryview
    footer: FooterArrays
    editor: FooterEditor
    body_stop: int

    @classmethod
    def of(cls, data: memoryview) -> EncodedRowGroups:
        """From a whole file that Arrow wrote."""
        tail, metadata = find_footer(data)
        footer = FooterArrays.scan(metadata, tail.offset)
        first = footer.chunk("offset_index_offset")
        first = first[first >= 0]
        body_stop = int(first.min()) if len(first) else tail.offset
        for name in ("column_index", "bloom_filter"):
            places = footer.chunk(f"{name}_offset")
            if (places >= body_stop).any():
                raise SkipstoneError(
                    f"this version of Arrow writes a {name} behind the offset indexes",
                    hint="use a version of pyarrow that Skipstone supports",
                )
        return EncodedRowGroups(
            data=data, footer=footer, editor=FooterEditor.of(footer), body_stop=body_stop
        )

    def place(self, start: int, ordinal: int) -> PlacedRowGroups:
        """The row groups at byte ``start`` of a file; the first one gets number ``ordinal``."""
        delta, at = start - _FIRST, start + self.body_stop - _FIRST
        footer, moved, row_groups = self.footer, list[bytes](), list[bytes]()
        offsets = footer.chunk("offset_index_offset").tolist()
        lengths = footer.chunk("offset_index_length").tolist()
        for r, (row_offsets, row_lengths) in enumerate(zip(offsets, lengths, strict=True)):
            chunks = list[FieldValues]()
            for offset, length in zip(row_offsets, row_lengths, strict=True):
                chunks.append({})
                if offset >= 0 and length > 0:
                    index = moved_offset_index(self.data[offset : offset + length], delta)
                    chunks[-1] = {"offset_index_offset": at, "offset_index_length": len(index)}
                    moved.append(index)
                    at += len(index)
            group = self.editor.row_groups[r]
            row_groups.append(moved_row_group(group, delta, ordinal=ordinal + r, chunks=chunks))
        return PlacedRowGroups(
            pieces=(self.data[_FIRST : self.body_stop], b"".join(moved)),
            stop=at,
            rows=self.editor.rows,
            row_groups=tuple(row_groups),
            filters={offset + delta: data for offset, data in self._filters()},
        )

    def _filters(self) -> Iterator[tuple[int, bytes]]:
        places = self.footer.chunk("bloom_filter_offset"), self.footer.chunk("bloom_filter_length")
        for offset, length in zip(*(each.ravel().tolist() for each in places), strict=True):
            if offset > 0 and length > 0:
                yield offset, bytes(self.data[offset : offset + length])


def encode_rows(rows: pa.Table, **options: Any) -> EncodedRowGroups:
    """Encode rows by Arrow, with the options of ``pyarrow.parquet.write_table``."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(rows, sink, **options)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnsupportedError(
            f"Arrow cannot write such rows: {error}", hint="cast the columns that it names"
        ) from error
    return EncodedRowGroups.of(memoryview(sink.getvalue()).cast("B").toreadonly())


def schema_and_batches(
    data: Rows, schema: pa.Schema | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of ``data`` and its rows. ``TypeError`` if it is not Arrow data,
    ``UnsupportedError`` for a schema without columns."""
    found, batches = _opened(data)
    if found is None:
        first = next(batches, None)
        if first is not None:
            found, batches = first.schema, chain([first], batches)
    if schema is None:
        schema = found
    elif found is not None and not found.equals(schema):
        raise SkipstoneError(
            "the rows have another schema than the given one",
            hint=f"they have {', '.join(map(str, found))}",
        )
    if schema is None:
        raise SkipstoneError("a stream without batches has no schema", hint="give schema=")
    if not len(schema):
        raise UnsupportedError("a table without columns")
    return schema, batches


def _opened(data: Any) -> tuple[pa.Schema | None, Iterator[pa.RecordBatch]]:
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches())
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data)
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        return None, _batches(data)
    raise TypeError(f"rows are Arrow tables, batches or a stream, not {type(data).__name__}")


def _batches(parts: Iterable[object]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        if isinstance(part, pa.Table):
            # A table without rows still has a schema.
            yield from part.to_batches() or part.schema.empty_table().to_batches() or [_empty(part)]
        elif isinstance(part, pa.RecordBatch):
            yield part
        else:
            raise TypeError(f"a stream of tables or record batches, not of {type(part).__name__}")


def _empty(table: pa.Table) -> pa.RecordBatch:
    arrays = [pa.array([], each.type) for each in table.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def row_groups(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], rows: int
) -> Iterator[pa.Table]:
    """Tables of ``rows`` rows; the last one may have fewer. ``SkipstoneError`` for a batch of
    another schema."""
    held: list[pa.RecordBatch] = []
    count = 0
    for each in batches:
        batch = each
        if not batch.schema.equals(schema):
            raise SkipstoneError(
                "a batch of the stream has another schema than the first",
                hint=f"it has {', '.join(map(str, batch.schema))}",
            )
        while batch.num_rows:
            part = batch.slice(0, rows - count)
            batch = batch.slice(part.num_rows)
            held.append(part)
            count += part.num_rows
            if count == rows:
                yield _table(schema, held)
                held, count = [], 0
    if count:
        yield _table(schema, held)


def _table(schema: pa.Schema, held: list[pa.RecordBatch]) -> pa.Table:
    # With one dictionary for all batches Arrow writes one dictionary page.
    return pa.Table.from_batches(held, schema).unify_dictionaries()


def holds_nan(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column may hold NaN at any depth, including values under nulls."""
    if isinstance(column, pa.ChunkedArray):
        return any(holds_nan(each) for each in column.chunks)
    t, type_ = pa.types, column.type
    if isinstance(type_, pa.BaseExtensionType):
        return holds_nan(column.storage)
    if t.is_dictionary(type_):
        return holds_nan(column.dictionary)
    if t.is_run_end_encoded(type_):
        return holds_nan(column.values)
    if t.is_struct(type_):
        return any(holds_nan(column.field(at)) for at in range(type_.num_fields))
    if t.is_map(type_):
        return holds_nan(column.keys) or holds_nan(column.items)
    if t.is_nested(type_):
        return not hasattr(column, "values") or holds_nan(column.values)
    if not t.is_floating(type_):
        return False
    return bool(pc.any(pc.is_nan(column)).as_py())
