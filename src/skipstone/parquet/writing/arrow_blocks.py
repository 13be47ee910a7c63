"""The columns of a row group, encoded by Arrow and looked at: a few at a time, side by side.

    rows  ->  block of columns  ->  Arrow: a Parquet file in memory  ->  pages, facts, Bloom filter
              block of columns  ->  …

A block is a file of its own, so that blocks are worked on in threads and let go one by one. Its
pages have no checksums, indexes or bounds that are used: those come of the facts.

Arrow cuts pages at exactly so many rows, and every page begins with a row, lists too, as long as a
page index is asked for. Only where a dictionary overflows does it begin a page anew: with
``page_rows`` such a column is encoded once more, and all that follow, without a dictionary.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import SkipstoneError
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.index_pages.tree_keys import PageBounds
from skipstone.parquet.pages.page import chunk_range, walk_pages

from .bloom_builder import BloomFilling
from .chunk_copier import ChunkCopy
from .chunk_statistics import ChunkFacts
from .encoded_row_groups import Encoded, encode_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from skipstone.parquet.format.bloom_filter import BloomFilter
    from skipstone.parquet.format.metadata import ColumnChunk, ColumnMetaData
    from skipstone.parquet.format.schema import Leaf, Node, Schema
    from skipstone.parquet.pages.column_values import LeafColumn

    from .chunk_copier import Copied
    from .chunk_statistics import PageFacts
    from .retrofit_needs import Asked

__all__ = ["ArrowBlocks", "Block", "EncodedChunk"]

_T = TypeVar("_T")
# Bytes of the columns of a block, as Arrow holds them; a larger column is a block of its own.
_BLOCK: Final = 4 << 20
# No page is to end for its size where the rows are counted; Arrow's page sizes are 32 bits.
_LARGEST_PAGE: Final = 1 << 30
_DICTIONARY: Final = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)
_DATA: Final = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


class Block(NamedTuple):
    """Fields ``start:stop`` of the root."""

    start: int
    stop: int


@dataclass(slots=True, kw_only=True)
class EncodedChunk:
    """One chunk: ``pieces`` are header and body of each page in turn, the dictionary's first.

    ``chunk`` is what Arrow says of it, with the offsets of another file.
    """

    leaf: Leaf
    chunk: ColumnChunk
    copied: Copied
    facts: ChunkFacts
    bloom: BloomFilter | None
    bounds: PageBounds | None
    pieces: list[bytes | memoryview]

    @property
    def meta(self) -> ColumnMetaData:
        """Arrow's metadata."""
        assert self.chunk.meta_data is not None  # as Arrow writes files in the clear
        return self.chunk.meta_data


@dataclass(slots=True, kw_only=True)
class ArrowBlocks:
    """Of tables of one schema. ``options`` are those of ``pyarrow.parquet.write_table``.

    ``keys`` are leaves that rows are sorted by: their values are kept as they were stored;
    ``indexed`` are those whose index pages are to hold keys.
    """

    schema: Schema
    asked: Asked
    options: Mapping[str, Any]
    keys: frozenset[int] = frozenset()
    indexed: frozenset[int] = frozenset()
    _overflowed: set[int] = field(default_factory=set)

    def blocks(self, rows: pa.Table) -> Iterator[Block]:
        """All columns, in their order."""
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
        if self.asked.page_rows is not None:
            again = [leaf for leaf, chunk in found if _overflows(chunk)]
            if again:
                self._overflowed.update(leaf.ordinal for leaf in again)
                encoded = self._encoded(rows, block)
                found = self._chunks(encoded, nodes)
        values = None
        if not self.keys.isdisjoint(leaf.ordinal for leaf, _ in found):
            file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(encoded.data)))
            values = file.read_row_group(0).column(0)
        return [self._looked_at(encoded, leaf, chunk) for leaf, chunk in found], values

    def _encoded(self, rows: pa.Table, block: Block) -> Encoded:
        options: dict[str, Any] = {
            **self.options,
            "row_group_size": rows.num_rows,
            "write_page_index": True,
            "store_schema": False,
        }
        if self.asked.page_rows is not None:
            options |= {"max_rows_per_page": self.asked.page_rows, "data_page_size": _LARGEST_PAGE}
        nodes = self.schema.root.children[block.start : block.stop]
        leaves = range(nodes[0].first_leaf, nodes[-1].stop_leaf)
        if not self._overflowed.isdisjoint(leaves):
            options["use_dictionary"] = self._dictionaries(leaves)
        made = encode_rows(rows.select(range(block.start, block.stop)), **options)
        if made.footer.num_row_groups != 1 or len(made.footer.schema.leaves) != len(leaves):
            raise SkipstoneError(
                "this version of Arrow writes other row groups than it is asked for",
                hint="use the version of pyarrow that Skipstone asks for",
            )
        return made

    def _dictionaries(self, leaves: Sequence[int]) -> list[str]:
        asked = self.options.get("use_dictionary", True)
        kept = []
        for ordinal in leaves:
            name = ".".join(self.schema.leaves[ordinal].path)
            wanted = name in asked if isinstance(asked, list | tuple) else bool(asked)
            if wanted and ordinal not in self._overflowed:
                kept.append(name)
        return kept

    def _chunks(self, encoded: Encoded, nodes: Sequence[Node]) -> list[tuple[Leaf, ColumnChunk]]:
        first = nodes[0].first_leaf
        count = nodes[-1].stop_leaf - first
        return [
            (self.schema.leaves[first + at], encoded.footer.column_chunk(0, at))
            for at in range(count)
        ]

    def _looked_at(self, encoded: Encoded, leaf: Leaf, chunk: ColumnChunk) -> EncodedChunk:
        meta = chunk.meta_data
        assert meta is not None  # as Arrow writes files in the clear
        fpp = self.asked.bloom.get(leaf.ordinal)
        filling = None if fpp is None else BloomFilling(meta.num_values, fpp)
        facts = _Facts(leaf, self.asked.orders[leaf.ordinal], filling=filling)
        if leaf.ordinal in self.indexed:
            facts.bounds = PageBounds(leaf)
        start, stop = chunk_range(meta, file_size=len(encoded.data))
        pages = walk_pages(encoded.data[start:stop], base=start, num_values=meta.num_values)
        copy = ChunkCopy(leaf, int(meta.codec), facts=facts)
        pieces: list[bytes | memoryview] = []
        copy.keep(copy.begin(list(pages), _at_once).result(), pieces.append)
        return EncodedChunk(
            leaf=leaf,
            chunk=chunk,
            copied=copy.end(pieces.append),
            facts=facts,
            bloom=None if fpp is None else facts.bloom_filter(),
            bounds=facts.bounds,
            pieces=pieces,
        )


class _Facts(ChunkFacts):
    """Those of pages that are looked at one after the other; also what index pages need."""

    bounds: PageBounds | None = None

    def look(self, column: LeafColumn) -> PageFacts:
        if self.bounds is not None:
            self.bounds.add(column)
        return super().look(column)


def _overflows(chunk: ColumnChunk) -> bool:
    """Whether some data pages refer to a dictionary, and others do not."""
    assert chunk.meta_data is not None
    kinds = {
        each.encoding in _DICTIONARY
        for each in chunk.meta_data.encoding_stats or ()
        if each.page_type in _DATA
    }
    return len(kinds) > 1


def _at_once(work: Callable[[], _T]) -> Future[_T]:
    done: Future[_T] = Future()
    done.set_result(work())
    return done
