"""A Parquet file copied module by module, with other keys than it had, or none; nothing is decoded.

    magic | pages of all chunks, in order | Bloom filters | column indexes | offset indexes | footer

Every module is decrypted if it was encrypted, and encrypted if it shall be; compressed bodies stay
as they are. What changes with it: of a page its ``compressed_page_size`` and its checksum, if it
has one, which is over the bytes as they are stored; of a chunk its offsets and sizes; the places in
an offset index. All else is carried over, fields that nobody knows yet included. Chunks that are in
the clear before and after move as they are.

Index pages, for which the specification has no module, are left out of encrypted chunks.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encryption.modules import ModuleType
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.footer import MAGIC, TAIL_LENGTH
from skipstone.parquet.format.page_index_structs import OffsetIndex, PageLocation
from skipstone.parquet.thrift.compact import I32, Reader, Writer
from skipstone.parquet.writing.chunk_modules import (
    bloom_modules,
    index_ranges,
    plain_pages,
    unpadded,
)
from skipstone.parquet.writing.footer_editor import moved_offset_index
from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.encryption.file_encryptor import FileEncryptor
    from skipstone.parquet.format.metadata import ColumnChunk, ColumnMetaData, RowGroup
    from skipstone.parquet.pages.page import Page
    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.parquet.reading.page_tables import ChunkPlace
    from skipstone.storage.atomic_replace import Output

__all__ = ["Transcription", "page_checksum"]

_COPY: Final = 8 << 20
#: compressed_page_size of PageHeader; crc is the next
_SIZE_FIELD: Final = 3
_MAX_SIZE: Final = 0x7FFF_FFFF
_DATA: Final = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


@dataclass(slots=True)
class _Chunk:
    """A chunk on its way: as it was, as it will be, and where its data pages lie by then.

    ``pages`` is ``None`` for one that moved as it was, by ``moved`` bytes.
    """

    old: ColumnChunk
    new: ColumnChunk
    source: ColumnDecryptor | None
    sink: ColumnDecryptor | None
    pages: list[tuple[int, int]] | None = None
    moved: int = 0


@dataclass(slots=True)
class Transcription:
    """Of ``file`` into ``out``; ``encryptor`` is ``None`` for a file in the clear.

    ``modules`` counts what was encrypted or decrypted, ``left_out`` index pages and Bloom filters
    that have no place in the new file.
    """

    file: ParquetFile
    encryptor: FileEncryptor | None
    out: Output
    at: int = 0
    modules: int = 0
    left_out: int = 0
    _chunks: dict[ChunkKey, _Chunk] = field(default_factory=dict)

    def run(self) -> None:
        """Write it all."""
        self._write(MAGIC if self.encryptor is None else self.encryptor.magic)
        metadata = self.file.metadata
        groups = [self._row_group(r, group) for r, group in enumerate(metadata.row_groups)]
        for r in range(len(groups)):
            self._indexes(r)
        groups = [self._finished(r, group) for r, group in enumerate(groups)]
        metadata = replace(
            metadata,
            row_groups=tuple(groups),
            encryption_algorithm=None,
            footer_signing_key_metadata=None,
        )
        if self.encryptor is None:
            footer = metadata.to_bytes()
        else:
            footer = self.encryptor.footer(metadata)
            self.modules += 1
        if len(footer) > _MAX_SIZE:
            raise UnsupportedError("a footer of more than 2 GiB")
        self._write(footer)
        self._write(len(footer).to_bytes(TAIL_LENGTH - 4, "little"))
        self._write(MAGIC if self.encryptor is None else self.encryptor.magic)

    def _write(self, data: bytes | memoryview) -> int:
        """Append; where it begins."""
        at = self.at
        self.out.write(data)
        self.at += len(data)
        return at

    # -- chunks ------------------------------------------------------------------------------------

    def _row_group(self, r: int, group: RowGroup) -> RowGroup:
        start, leaves = self.at, self.file.footer.schema.leaves
        if len(group.columns) != len(leaves):
            raise FormatError(
                "columns of a row group",
                file=self.file.path,
                expected=len(leaves),
                got=len(group.columns),
            )
        grown = compressed = 0
        for leaf, chunk in zip(leaves, group.columns, strict=True):
            found = self._chunk((r, leaf.ordinal), chunk, leaf.path)
            before, after = _meta(found.old), _meta(found.new)
            grown += after.total_uncompressed_size - before.total_uncompressed_size
            compressed += after.total_compressed_size
        return replace(
            group,
            total_byte_size=group.total_byte_size + grown,
            file_offset=start,
            total_compressed_size=compressed,
            ordinal=r if r < 1 << 15 else None,
        )

    def _chunk(self, cell: ChunkKey, chunk: ColumnChunk, path: tuple[str, ...]) -> _Chunk:
        if chunk.file_path is not None:
            raise UnsupportedError(
                f"{self.file.path}: column {'.'.join(path)} lies in another file",
                hint="give the file that has the column",
            )
        place = self.file.chunk_pages.place(cell)
        source = self.file.chunk_pages.column_decryptor(cell)
        sink = None if self.encryptor is None else self.encryptor.column(path, *cell)
        found = _Chunk(chunk, chunk, source, sink)
        if source is None and sink is None:
            self._copy(found, place)
        else:
            self._pages(found, place)
        self._chunks[cell] = found
        return found

    def _copy(self, found: _Chunk, place: ChunkPlace) -> None:
        start = self.at
        for at in range(place.start, place.stop, _COPY):
            length = min(_COPY, place.stop - at)
            self._write(self.file.reader.one(place.path, at, length))
        meta, found.moved = _meta(found.old), start - place.start

        def moved(offset: int | None) -> int | None:
            return offset + found.moved if offset and offset > 0 else offset

        found.new = replace(
            found.old,
            file_offset=moved(found.old.file_offset),
            meta_data=replace(
                meta,
                data_page_offset=moved(meta.data_page_offset) or 0,
                index_page_offset=moved(meta.index_page_offset),
                dictionary_page_offset=moved(meta.dictionary_page_offset),
            ),
        )

    def _pages(self, found: _Chunk, place: ChunkPlace) -> None:
        start, grown, ordinal = self.at, 0, 0
        dictionary: int | None = None
        pages: list[tuple[int, int]] = []
        for page, body in plain_pages(self.file.reader, place, found.source):
            if page.type in _DATA:
                kind, header_kind = ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER
                number: int | None = ordinal
            elif page.type == PageType.DICTIONARY_PAGE:
                kind, header_kind = ModuleType.DICTIONARY_PAGE, ModuleType.DICTIONARY_PAGE_HEADER
                number = None
            else:
                self.left_out += 1
                continue
            sink = found.sink
            stored = body if sink is None else sink.encrypt(kind, body, number)
            if len(stored) > _MAX_SIZE:
                raise UnsupportedError("a page of more than 2 GiB")
            header = _header(page, stored, padded=found.source is not None)
            if sink is not None:
                header = sink.encrypt(header_kind, header, number)
            at = self._write(header)
            self._write(stored)
            self.modules += 2
            grown += len(header) - page.header_length
            if number is None:
                dictionary = at
            else:
                pages.append((at, self.at - at))
                ordinal += 1
        self._describe(found, start, dictionary, pages, grown)

    def _describe(
        self,
        found: _Chunk,
        start: int,
        dictionary: int | None,
        pages: list[tuple[int, int]],
        grown: int,
    ) -> None:
        meta = _meta(found.old)
        found.pages = pages
        kinds = meta.encoding_stats
        if kinds is not None:
            kinds = tuple(each for each in kinds if each.page_type != PageType.INDEX_PAGE)
        found.new = replace(
            found.old,
            # A file_offset of 0 is what writers put there since the field is of no use.
            file_offset=start if found.old.file_offset else found.old.file_offset,
            meta_data=replace(
                meta,
                total_compressed_size=self.at - start,
                total_uncompressed_size=max(0, meta.total_uncompressed_size + grown),
                data_page_offset=pages[0][0] if pages else start,
                dictionary_page_offset=dictionary,
                index_page_offset=None,
                encoding_stats=kinds,
            ),
        )

    # -- what lies behind the pages ----------------------------------------------------------------

    def _indexes(self, r: int) -> None:
        """Bloom filters, column indexes and offset indexes of a row group, each kind together."""
        cells = [cell for cell in self._chunks if cell[0] == r]
        path = self.file.path
        wanted = []
        for cell in cells:
            found = self._chunks[cell]
            meta = _meta(found.old)
            wanted += [each for each in index_ranges(found.old, path) if each is not None]
            if meta.bloom_filter_offset and meta.bloom_filter_length:
                wanted.append(ByteRange(path, meta.bloom_filter_offset, meta.bloom_filter_length))
        known = self.file.reader.read(wanted) if wanted else {}
        for cell in cells:
            self._bloom_filter(self._chunks[cell], known)
        for cell in cells:
            self._column_index(self._chunks[cell], known)
        for cell in cells:
            self._offset_index(self._chunks[cell], known)

    def _bloom_filter(self, found: _Chunk, known: Mapping[ByteRange, memoryview]) -> None:
        old = _meta(found.old)
        if not old.bloom_filter_offset:
            return
        filter = bloom_modules(self.file.reader, self.file.path, old, found.source, known)
        start: int | None = None
        length: int | None = None
        if filter is None:
            self.left_out += 1
        else:
            header, bitset = filter
            if found.sink is not None:
                header = found.sink.encrypt(ModuleType.BLOOM_FILTER_HEADER, header)
                bitset = found.sink.encrypt(ModuleType.BLOOM_FILTER_BITSET, bitset)
            start = self._write(header)
            self._write(bitset)
            length = self.at - start
            self.modules += 2 * (found.source is not None or found.sink is not None)
        meta = replace(_meta(found.new), bloom_filter_offset=start, bloom_filter_length=length)
        found.new = replace(found.new, meta_data=meta)

    def _column_index(self, found: _Chunk, known: Mapping[ByteRange, memoryview]) -> None:
        where = index_ranges(found.old, self.file.path).column_index
        if where is None:
            return
        start, length = self._module(
            found,
            ModuleType.COLUMN_INDEX,
            self._plain(found, ModuleType.COLUMN_INDEX, known[where], where.offset),
        )
        found.new = replace(found.new, column_index_offset=start, column_index_length=length)

    def _offset_index(self, found: _Chunk, known: Mapping[ByteRange, memoryview]) -> None:
        where = index_ranges(found.old, self.file.path).offset_index
        if where is None:
            return
        data = self._plain(found, ModuleType.OFFSET_INDEX, known[where], where.offset)
        if found.pages is None:
            data = moved_offset_index(data, found.moved)
        else:
            data = self._placed(OffsetIndex.from_bytes(data, base=where.offset), found.pages, where)
        start, length = self._module(found, ModuleType.OFFSET_INDEX, data)
        found.new = replace(found.new, offset_index_offset=start, offset_index_length=length)

    def _placed(self, index: OffsetIndex, pages: list[tuple[int, int]], where: ByteRange) -> bytes:
        if len(index.page_locations) != len(pages):
            raise FormatError(
                "pages in an offset index",
                file=self.file.path,
                offset=where.offset,
                expected=len(pages),
                got=len(index.page_locations),
                hint="the index is not that of the pages: write the file anew",
            )
        return replace(
            index,
            page_locations=tuple(
                [
                    PageLocation(
                        offset=offset,
                        compressed_page_size=size,
                        first_row_index=each.first_row_index,
                        unknown=each.unknown,
                    )
                    for each, (offset, size) in zip(index.page_locations, pages, strict=True)
                ]
            ),
        ).to_bytes()

    def _plain(self, found: _Chunk, module: ModuleType, data: memoryview, offset: int) -> bytes:
        if found.source is None:
            return bytes(data)
        return unpadded(found.source.decrypt(module, data, base=offset))

    def _module(self, found: _Chunk, module: ModuleType, plain: bytes) -> tuple[int, int]:
        """Write it, encrypted where it shall be; where it begins, and its length."""
        data = plain if found.sink is None else found.sink.encrypt(module, plain)
        self.modules += found.source is not None or found.sink is not None
        return self._write(data), len(data)

    def _finished(self, r: int, group: RowGroup) -> RowGroup:
        columns = []
        for leaf in self.file.footer.schema.leaves:
            chunk = self._chunks[r, leaf.ordinal].new
            if self.encryptor is None:
                chunk = replace(chunk, crypto_metadata=None, encrypted_column_metadata=None)
            else:
                chunk = self.encryptor.seal_chunk(chunk, leaf.path, r, leaf.ordinal)
                self.modules += chunk.encrypted_column_metadata is not None
            columns.append(chunk)
        return replace(group, columns=tuple(columns))


def _meta(chunk: ColumnChunk) -> ColumnMetaData:
    if chunk.meta_data is None:
        raise FormatError("a column chunk without metadata")
    return chunk.meta_data


def _header(page: Page, stored: bytes | memoryview, *, padded: bool) -> bytes:
    """The header of a page with another body: its size, and its checksum if it has one.

    Both fields are among the first four; what follows is carried over as it is.
    """
    crc = None if page.crc is None else page_checksum(stored)
    data = unpadded(bytes(page.header_bytes)) if padded else page.header_bytes
    reader, previous = Reader(data), 0
    while previous != _SIZE_FIELD - 1:
        kind, previous = reader.field_head(previous)
        if kind != I32 or previous >= _SIZE_FIELD:
            break
        reader.integer(32)
    head = reader.at
    if previous != _SIZE_FIELD - 1 or reader.field_head(previous) != (I32, _SIZE_FIELD):
        return replace(page.header, compressed_page_size=len(stored), crc=crc).to_bytes()
    reader.integer(32)
    writer = Writer()
    writer.field(_SIZE_FIELD, I32, len(stored), _SIZE_FIELD - 1)
    if crc is not None:
        if reader.field_head(_SIZE_FIELD) != (I32, _SIZE_FIELD + 1):
            return replace(page.header, compressed_page_size=len(stored), crc=crc).to_bytes()
        reader.integer(32)
        writer.field(_SIZE_FIELD + 1, I32, crc, _SIZE_FIELD)
    return b"".join((data[:head], writer.out, data[reader.at :]))


def page_checksum(data: bytes | memoryview) -> int:
    """Of a page, as the signed 32 bits of its field."""
    value = zlib.crc32(data)
    return value - (1 << 32) if value >= 1 << 31 else value
