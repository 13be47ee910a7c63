"""Row groups that were encoded elsewhere, put into a file, in the clear or sealed.

    row group   pages of each chunk (index pages behind them), Bloom filters
    …
    indexes     column indexes of several row groups, then their offset indexes

Indexes are held until a footer is to name them, or until they are many: those of neighbouring row
groups lie together, so that a reader has them in one request.

Bounds leave NaN out, and readers skip by them as if there were none (``chunk_facts.py``). From the
first row group on in which a column holds NaN it has no bounds, and those before lose theirs. What
is said of an encrypted column may be sealed before the last row group is seen (``irrevocable``):
then it has no bounds in any.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from skipstone.errors import UnsupportedError
from skipstone.parquet.encryption.modules import MAX_ORDINAL, ModuleType
from skipstone.parquet.format.bloom_filter import read_header
from skipstone.parquet.format.metadata import ColumnChunk, RowGroup
from skipstone.parquet.format.page_header import PageHeader
from skipstone.parquet.format.page_index_structs import OffsetIndex, PageLocation
from skipstone.parquet.index_pages.tree import place_index_pages
from skipstone.rewrite.module_copier import page_checksum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.encryption.file_encryptor import FileEncryptor
    from skipstone.parquet.format.metadata import SortingColumn
    from skipstone.parquet.format.statistics import SizeStatistics, Statistics
    from skipstone.parquet.index_pages.tree import IndexPagePlan
    from skipstone.storage.atomic_replace import Output

    from .arrow_encoder import EncodedChunk

__all__ = ["GroupPlacing"]

_MAX_SIZE: Final = 0x7FFF_FFFF
_NO_BOUNDS: Final[dict[str, Any]] = dict.fromkeys(
    ("min", "max", "min_value", "max_value", "is_min_value_exact", "is_max_value_exact")
)
# Of indexes that are held.
_HELD: Final = 8 << 20


@dataclass(slots=True)
class _Placed:
    """A chunk whose pages are in the file; its indexes are not yet."""

    chunk: ColumnChunk
    path: tuple[str, ...]
    column_index: bytes | None = None
    offset_index: bytes | None = None


@dataclass(slots=True, kw_only=True)
class GroupPlacing:
    """Into ``out``. ``encryptor`` is ``None`` for a file in the clear; ``index_pages`` says where
    those of 2013 lie: behind the data pages of their chunk, or between them."""

    out: Output
    encryptor: FileEncryptor | None
    page_index: bool
    index_pages: Literal["behind", "between"] | None
    pages: int = 0
    notes: list[str] = field(default_factory=list)
    #: leaves with NaN that their bounds would not tell of
    misleading: set[int] = field(default_factory=set)
    #: leaves that may hold NaN yet, and whose bounds nobody could take back
    irrevocable: frozenset[int] = frozenset()
    #: leaves that have no bounds in any row group
    unbounded: set[int] = field(default_factory=set)
    _number: int = 0
    _held: int = 0
    _waiting: list[tuple[int, RowGroup, list[_Placed]]] = field(default_factory=list)
    _placed: list[_Placed] = field(default_factory=list)
    _blooms: list[tuple[_Placed, bytes]] = field(default_factory=list)

    # -- pages -------------------------------------------------------------------------------------

    def put(self, chunk: EncodedChunk) -> None:
        """The next chunk of the row group that is being written."""
        start, leaf, copied = self.out.at, chunk.leaf, chunk.copied
        sealed = self._column(leaf.path, leaf.ordinal)
        plan = self._plan(chunk)
        pages = _Pages(self.out, sealed)
        if copied.dictionary is not None:
            pages.put(chunk.pieces[0], chunk.pieces[1], dictionary=True)
        data = chunk.pieces[0 if copied.dictionary is None else 2 :]
        for piece in range(len(data) // 2) if plan is None else plan.order():
            if isinstance(piece, bytes):
                self.out.write(piece)
            else:
                pages.put(data[2 * piece], data[2 * piece + 1])
        chunk.pieces.clear()
        self.pages += copied.pages
        meta = replace(
            chunk.meta,
            total_uncompressed_size=copied.uncompressed
            + pages.grown
            + (0 if plan is None else plan.length),
            total_compressed_size=self.out.at - start,
            data_page_offset=pages.places[0][0],
            index_page_offset=None if plan is None else start + plan.index_page_offset,
            dictionary_page_offset=None if copied.dictionary is None else start,
            bloom_filter_offset=None,
            bloom_filter_length=None,
            statistics=self._statistics(chunk),
            size_statistics=_given(chunk),
        )
        placed = _Placed(
            replace(
                chunk.chunk,
                file_offset=start if chunk.chunk.file_offset else chunk.chunk.file_offset,
                meta_data=meta,
                offset_index_offset=None,
                offset_index_length=None,
                column_index_offset=None,
                column_index_length=None,
            ),
            leaf.path,
        )
        if self.page_index and not chunk.facts.within_rows:
            index = chunk.facts.column_index()
            placed.column_index = None if index is None else index.to_bytes()
            placed.offset_index = _offset_index(chunk, pages.places).to_bytes()
            self._held += len(placed.column_index or b"") + len(placed.offset_index)
        if chunk.bloom is not None:
            self._blooms.append((placed, chunk.bloom.to_bytes()))
        self._placed.append(placed)

    def _column(self, path: tuple[str, ...], column: int) -> ColumnDecryptor | None:
        if self.encryptor is None:
            return None
        if self._number > MAX_ORDINAL:
            raise UnsupportedError(
                f"an encrypted file of more than {MAX_ORDINAL + 1:,} row groups",
                hint="ask for more row_group_rows",
            )
        return self.encryptor.column(path, self._number, column)

    def _statistics(self, chunk: EncodedChunk) -> Statistics | None:
        found = chunk.facts.statistics(chunk.meta.statistics, trusted=True)
        if chunk.facts.misleading and chunk.leaf.ordinal not in self.misleading:
            self.misleading.add(chunk.leaf.ordinal)
            self.notes.append(f"{chunk.leaf.name} holds NaN, of which bounds do not tell: none")
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
            # A reader that counts the rows of its last page looks for more behind that.
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
            first=copied.offsets[0],
            sizes=copied.sizes,
            leaf=leaf,
            keys=keys,
            ordinals=None if interleave and keys is not None else ordinals,
            interleave=interleave,
        )

    # -- row groups --------------------------------------------------------------------------------

    def end_group(self, rows: int, sorting: tuple[SortingColumn, ...] | None) -> None:
        """All chunks are there."""
        metas = [each.chunk.meta_data for each in self._placed]
        sizes = [(m.total_uncompressed_size, m.total_compressed_size) for m in metas if m]
        first = metas[0]
        assert first is not None
        start = first.dictionary_page_offset or first.data_page_offset
        for placed, data in self._blooms:
            self._bloom_filter(placed, data)
        number = self._number
        group = RowGroup(
            columns=(),
            total_byte_size=sum(each for each, _ in sizes),
            num_rows=rows,
            sorting_columns=sorting,
            file_offset=start,
            total_compressed_size=sum(each for _, each in sizes),
            ordinal=number if number < 1 << 15 else None,
        )
        self._waiting.append((number, group, self._placed))
        self._placed, self._blooms = [], []
        self._number += 1

    def _bloom_filter(self, placed: _Placed, data: bytes) -> None:
        sealed = self._column(placed.path, self._placed.index(placed))
        start = self.out.at
        if sealed is None:
            self.out.write(data)
        else:
            size, at = read_header(data, base=0, end=len(data))
            head, bitset = data[:at], data[at : at + size]
            self.out.write(sealed.encrypt(ModuleType.BLOOM_FILTER_HEADER, head))
            self.out.write(sealed.encrypt(ModuleType.BLOOM_FILTER_BITSET, bitset))
        meta = placed.chunk.meta_data
        assert meta is not None
        meta = replace(meta, bloom_filter_offset=start, bloom_filter_length=self.out.at - start)
        placed.chunk = replace(placed.chunk, meta_data=meta)

    @property
    def waiting(self) -> int:
        """Row groups whose indexes are not written."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether more of them should not be held."""
        return self._held >= _HELD

    def finished(self, *, last: bool) -> Iterator[tuple[bytes, int]]:
        """Write the indexes that were held; each ``RowGroup`` whose offsets are right now, and its
        number of rows. ``last``: no more row groups will come."""
        if not last and self.irrevocable - self.unbounded:
            self.unbounded |= self.irrevocable
            self.notes.append(
                "encrypted columns of floats have no bounds: they are sealed before all rows are"
                " seen, and NaN may come"
            )
        for kind in (ModuleType.COLUMN_INDEX, ModuleType.OFFSET_INDEX):
            for number, _, chunks in self._waiting:
                for ordinal, placed in enumerate(chunks):
                    self._index(kind, placed, number, ordinal)
        waiting, self._waiting, self._held = self._waiting, [], 0
        for number, group, chunks in waiting:
            columns = self._without_bounds([each.chunk for each in chunks])
            if self.encryptor is not None:
                seal = self.encryptor.seal_chunk
                columns = [
                    seal(chunk, each.path, number, ordinal)
                    for ordinal, (chunk, each) in enumerate(zip(columns, chunks, strict=True))
                ]
            yield replace(group, columns=tuple(columns)).to_bytes(), group.num_rows

    def retracted(self, row_group: bytes) -> bytes:
        """A ``RowGroup`` that was finished before NaN were met. Of columns whose metadata are
        sealed by themselves it keeps what it says."""
        group = RowGroup.from_bytes(row_group)
        return replace(group, columns=tuple(self._without_bounds(group.columns))).to_bytes()

    def _without_bounds(self, chunks: Sequence[ColumnChunk]) -> list[ColumnChunk]:
        made = list(chunks)
        for ordinal in self.misleading | self.unbounded:
            meta = made[ordinal].meta_data
            if meta is not None and meta.statistics is not None:
                told = replace(meta.statistics, **_NO_BOUNDS)
                made[ordinal] = replace(made[ordinal], meta_data=replace(meta, statistics=told))
        return made

    def _index(self, kind: ModuleType, placed: _Placed, number: int, ordinal: int) -> None:
        is_bounds = kind is ModuleType.COLUMN_INDEX
        data = placed.column_index if is_bounds else placed.offset_index
        if data is None:
            return
        if self.encryptor is not None:
            sealed = self.encryptor.column(placed.path, number, ordinal)
            if sealed is not None:
                data = sealed.encrypt(kind, data)
        start = self.out.at
        self.out.write(data)
        if is_bounds:
            placed.chunk = replace(
                placed.chunk, column_index_offset=start, column_index_length=len(data)
            )
        else:
            placed.chunk = replace(
                placed.chunk, offset_index_offset=start, offset_index_length=len(data)
            )


class _Pages:
    """The pages of one chunk on their way into the file; ``places`` of the data pages there."""

    def __init__(self, out: Output, sealed: ColumnDecryptor | None) -> None:
        self.out, self.sealed = out, sealed
        self.places: list[tuple[int, int]] = []
        #: by how much headers became longer
        self.grown = 0

    def put(
        self, header: bytes | memoryview, body: bytes | memoryview, *, dictionary: bool = False
    ) -> None:
        start, sealed = self.out.at, self.sealed
        number = None if dictionary else len(self.places)
        if sealed is not None:
            if number is not None and number > MAX_ORDINAL:
                raise UnsupportedError(
                    f"an encrypted chunk of more than {MAX_ORDINAL + 1:,} pages",
                    hint="ask for more page_rows, or fewer row_group_rows",
                )
            kind, header_kind = ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER
            if dictionary:
                kind, header_kind = ModuleType.DICTIONARY_PAGE, ModuleType.DICTIONARY_PAGE_HEADER
            plain = len(header)
            body = sealed.encrypt(kind, body, number)
            if len(body) > _MAX_SIZE:
                raise UnsupportedError("a page of more than 2 GiB", hint="ask for fewer page_rows")
            # The checksum is over the bytes as they are stored.
            made = replace(
                PageHeader.from_bytes(header),
                compressed_page_size=len(body),
                crc=page_checksum(body),
            )
            header = sealed.encrypt(header_kind, made.to_bytes(), number)
            self.grown += len(header) - plain
        self.out.write(header)
        self.out.write(body)
        if number is not None:
            self.places.append((start, self.out.at - start))


def _offset_index(chunk: EncodedChunk, places: Sequence[tuple[int, int]]) -> OffsetIndex:
    facts, made, row = chunk.facts, [], 0
    for (offset, size), rows in zip(places, facts.rows, strict=True):
        made.append(PageLocation(offset=offset, compressed_page_size=size, first_row_index=row))
        row += rows
    unencoded = None if facts.unencoded is None else tuple(facts.sizes)
    return OffsetIndex(page_locations=tuple(made), unencoded_byte_array_data_bytes=unencoded)


def _given(chunk: EncodedChunk) -> SizeStatistics | None:
    sizes = chunk.facts.size_statistics()
    return sizes if sizes.to_dict() else None
