"""Writes pages, Bloom filters, indexes and footer to a new file, in the clear or encrypted.

    magic | row group | row group | … | column indexes | offset indexes | footer | length | magic
            pages of each chunk, then their Bloom filters

The caller begins one ``ChunkWriter`` after the other and gives it pages. The writer encrypts the
pages of encrypted columns, keeps the offsets, and collects the footer's values in
``ChunkWriter.fields``. Indexes are held until there are many, or until a footer must name them: the
indexes of neighbouring row groups lie together, so that a reader fetches them in one request.

A file with checkpoints has a footer of everything so far after every n row groups:

    PAR1 | row groups | footer length PAR1 | row groups | footer length PAR1 | … | footer …
                        of those before it              of all before it           of all

If a file is cut after a checkpoint, the part up to the checkpoint is a Parquet file; only the rest
is lost. In the finished file nothing refers to the bytes of earlier footers. ``salvage`` finds the
last complete footer. Every footer of an encrypted file is encrypted or signed like the last one. So
the part up to a checkpoint authenticates, and does not show that more was written.
"""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.parquet.encryption.modules import MAX_ORDINAL, ModuleType
from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED, Tail
from skipstone.parquet.format.metadata import ColumnChunk, PageHeader, RowGroup
from skipstone.parquet.format.page_index import OffsetIndex, OffsetIndexArrays
from skipstone.parquet.pages.page import page_checksum
from skipstone.parquet.thrift.compact import I32, Writer

from .chunk_modules import plain_pages
from .footer_editor import CHUNK_FIELDS, FooterEditor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.encryption.encryption import FileEncryptor
    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.page_metadata import BloomModules
    from skipstone.parquet.reading.page_tables import ChunkPlace
    from skipstone.parquet.reading.pinned_file import PinnedReader
    from skipstone.storage.atomic_replace import ByteSink


#: Bytes copied at a time.
COPY_SIZE: Final = 8 << 20
_MAX_SIZE: Final = 0x7FFF_FFFF
# Bytes of indexes held in memory.
_HELD: Final = 8 << 20
#: compressed_page_size of PageHeader; crc is the next field
_SIZE_FIELD: Final = 3
# Type and sizes of a PageHeader, its checksum if there is one, and a byte behind them. Integers of
# more than 32 bits are left to the full parse, which refuses them.
_INTEGER: Final = rb"\x15(?:[\x80-\xff]{0,3}[\x00-\x7f]|[\x80-\xff]{4}[\x00-\x0f])"
_USUAL: Final = re.compile(rb"(%b%b)%b(%b)?(?=[\x00-\xff])" % ((_INTEGER,) * 4))


class ChunkWriter:
    """One chunk of a ``FileWriter``: give it its pages in order, then call ``end``.

    Set ``bloom``, ``column_index`` and ``offset_index`` before the row group ends; the file writer
    writes them. ``fields`` are the footer's values for the chunk; the file writer adds places.
    """

    def __init__(
        self, out: ByteSink, key: ChunkKey, path: tuple[str, ...], cipher: ColumnDecryptor | None
    ) -> None:
        self.key, self.path, self.start = key, path, out.at
        #: offset and length of each data page
        self.pages: list[tuple[int, int]] = []
        self.dictionary: int | None = None
        self.bloom: BloomModules | None = None
        self.column_index: bytes | None = None
        self.offset_index: bytes | None = None
        self.fields: dict[str, object] = dict.fromkeys(
            (
                "bloom_filter_offset",
                "bloom_filter_length",
                "column_index_offset",
                "column_index_length",
                "offset_index_offset",
                "offset_index_length",
            )
        )
        self._out, self._cipher = out, cipher

    @property
    def encrypted(self) -> bool:
        """Whether its modules are encrypted."""
        return self._cipher is not None

    @property
    def length(self) -> int:
        """Bytes so far."""
        return self._out.at - self.start

    def write(self, piece: bytes | memoryview) -> None:
        """Append bytes as they are."""
        self._out.write(piece)

    def page(
        self, header: bytes | memoryview, body: bytes | memoryview, dictionary: bool = False
    ) -> int:
        """Append a page, encrypted if the column is; return the length of the header in the file.

        ``header`` states the size of ``body``, and its checksum if there is one. Both describe the
        stored bytes, so they change with encryption.
        """
        start = self._out.at
        if self._cipher is not None:
            number = None if dictionary else len(self.pages)
            if number is not None and number > MAX_ORDINAL:
                raise UnsupportedError(
                    f"an encrypted chunk of more than {MAX_ORDINAL + 1:,} pages",
                    hint="write the file with larger pages, or smaller row groups",
                )
            kind, header_kind = ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER
            if dictionary:
                kind, header_kind = ModuleType.DICTIONARY_PAGE, ModuleType.DICTIONARY_PAGE_HEADER
            body = self._cipher.encrypt(kind, body, number)
            header = self._cipher.encrypt(header_kind, with_stored_body(header, body), number)
        if len(body) > _MAX_SIZE:
            raise UnsupportedError("a page of more than 2 GiB", hint="write smaller pages")
        self._out.write(header)
        self._out.write(body)
        if dictionary:
            self.dictionary = start
        else:
            self.pages.append((start, self._out.at - start))
        return len(header)

    def end(self, old: ColumnChunk, uncompressed: int, *, index_page: int | None = None) -> None:
        """End the chunk after its last page. ``old`` is the chunk before the change,
        ``uncompressed`` the size of its pages with headers, ``index_page`` the offset of the root
        of its index pages."""
        self.fields |= {
            "total_uncompressed_size": uncompressed,
            "total_compressed_size": self.length,
            "data_page_offset": self.pages[0][0] if self.pages else self.start,
            "index_page_offset": index_page,
            "dictionary_page_offset": self.dictionary,
        }
        if old.file_offset:  # writers put 0 since the field is unused
            self.fields["file_offset"] = self.start

    def copy(self, reader: PinnedReader, place: ChunkPlace, old: ColumnChunk) -> int:
        """Append a whole chunk unchanged, instead of pages and ``end``; return how far it moved.

        ``FormatError`` for a page whose checksum is wrong.
        """
        behind = place.start
        for page, _ in plain_pages(reader, place, None) if place.num_values else ():
            self.write(page.header_bytes)
            self.write(page.body)
            behind = page.stop
        for at in range(behind, place.stop, COPY_SIZE):
            self.write(reader.one(place.path, at, min(COPY_SIZE, place.stop - at)))
        moved = self.start - place.start
        for name in ("data_page_offset", "dictionary_page_offset", "index_page_offset"):
            offset = getattr(old.meta_data, name)
            # An offset outside of the chunk has no meaning in the new file.
            inside = offset and place.start <= offset <= place.stop
            self.fields[name] = offset + moved if inside else None
        self.fields["data_page_offset"] = self.fields["data_page_offset"] or self.start
        if old.file_offset:
            self.fields["file_offset"] = self.start
        return moved

    def size(self, name: str) -> int:
        """The value of a field that counts bytes."""
        value = self.fields[name]
        assert isinstance(value, int)
        return value

    def applied(self, old: ColumnChunk) -> ColumnChunk:
        """The chunk ``old`` with the new ``fields``."""
        assert old.meta_data is not None  # else there would be no pages to write
        of_chunk, of_meta = dict[str, object](), dict[str, object]()
        for name, value in self.fields.items():
            (of_chunk if name in CHUNK_FIELDS else of_meta)[name] = value
        meta = replace(old.meta_data, **of_meta)  # type: ignore[arg-type]  # names of parquet.thrift
        return replace(old, **of_chunk, meta_data=meta)  # type: ignore[arg-type]

    def _put_bloom_filter(self) -> None:
        if self.bloom is None:
            return
        header, bitset = self.bloom
        if self._cipher is not None:
            header = self._cipher.encrypt(ModuleType.BLOOM_FILTER_HEADER, header)
            bitset = self._cipher.encrypt(ModuleType.BLOOM_FILTER_BITSET, bitset)
        start = self._out.at
        self._out.write(header)
        self._out.write(bitset)
        self.bloom = None
        self.fields |= {
            "bloom_filter_offset": start,
            "bloom_filter_length": self._out.at - start,
        }

    def _put_index(self, name: str, kind: ModuleType) -> None:
        data = getattr(self, name)
        if data is None:
            return
        if self._cipher is not None:
            data = self._cipher.encrypt(kind, data)
        self.fields |= {f"{name}_offset": self._out.at, f"{name}_length": len(data)}
        self._out.write(data)
        setattr(self, name, None)


class FileWriter:
    """Writes one new file, the magic first; in the clear without an ``encryptor``."""

    def __init__(self, out: ByteSink, encryptor: FileEncryptor | None = None) -> None:
        self.out, self.encryptor = out, encryptor
        self.magic = MAGIC if encryptor is None else encryptor.magic
        self._row_group: list[ChunkWriter] = []
        self._held: list[ChunkWriter] = []
        self._held_bytes = 0
        out.write(self.magic)

    def chunk(self, key: ChunkKey, path: tuple[str, ...]) -> ChunkWriter:
        """Begin the next chunk, named by row group and column."""
        cipher = None if self.encryptor is None else self.encryptor.column(path, *key)
        if cipher is not None and key[0] > MAX_ORDINAL:
            raise UnsupportedError(
                f"an encrypted file of more than {MAX_ORDINAL + 1:,} row groups",
                hint="write the file with larger row groups",
            )
        made = ChunkWriter(self.out, key, path, cipher)
        self._row_group.append(made)
        return made

    def end_row_group(self) -> list[ChunkWriter]:
        """End the row group after its last chunk; return its chunks."""
        ended, self._row_group = self._row_group, []
        for chunk in ended:
            chunk._put_bloom_filter()
            self._held_bytes += len(chunk.column_index or b"") + len(chunk.offset_index or b"")
        self._held += ended
        if self._held_bytes >= _HELD:
            self.write_indexes()
        return ended

    @property
    def holds_indexes(self) -> bool:
        """Whether there are chunks whose indexes are not written yet."""
        return bool(self._held)

    def write_indexes(self) -> None:
        """Write the indexes that are held."""
        for name, kind in (
            ("column_index", ModuleType.COLUMN_INDEX),
            ("offset_index", ModuleType.OFFSET_INDEX),
        ):
            for chunk in self._held:
                chunk._put_index(name, kind)
        self._held, self._held_bytes = [], 0

    def metadata(self, chunk: ChunkWriter, old: ColumnChunk) -> ColumnChunk:
        """The chunk for the footer; its metadata is encrypted if the column requires it."""
        made = chunk.applied(old)
        if self.encryptor is None:
            return replace(made, crypto_metadata=None, encrypted_column_metadata=None)
        return self.encryptor.encrypt_chunk_metadata(made, chunk.path, *chunk.key)

    def write_footer(self, footer: bytes) -> bytes:
        """Write ``FileMetaData`` and its tail; encrypted or signed if the file is encrypted. Return
        what was written."""
        if self.encryptor is not None:
            footer = self.encryptor.encrypt_footer(footer)
        tail = Tail.behind(footer, self.out.at, encrypted=self.magic == MAGIC_ENCRYPTED)
        end = footer + tail.to_bytes()
        self.out.write(end)
        return end


@dataclass(slots=True, kw_only=True)
class CheckpointWriter:
    """Writes the footers of a file, one after every ``every`` row groups (0: only the last).

    ``template`` is a footer of the same columns: the file takes everything from it but the row
    groups. With ``sync`` a checkpoint is on disk before the next row group is written.
    """

    writer: FileWriter
    template: FooterEditor
    every: int
    sync: Callable[[], None]
    checkpoints: int = 0
    rows: list[int] = field(default_factory=list)
    row_groups: list[bytes] = field(default_factory=list)

    def add(self, row_group: bytes, num_rows: int) -> None:
        """Add a ``RowGroup`` whose pages are in the file and whose offsets are final."""
        self.row_groups.append(row_group)
        self.rows.append(num_rows)
        if self.due(0):
            self._footer()
            self.sync()
            self.checkpoints += 1

    def due(self, more: int) -> bool:
        """Whether a checkpoint is due after ``more`` more row groups."""
        return bool(self.every) and not (len(self.row_groups) + more) % self.every

    def finish(self) -> None:
        """Write the last footer, unless the last checkpoint is the same."""
        if not (self.row_groups and self.due(0)):
            self._footer()

    def _footer(self) -> None:
        made = self.template.with_row_groups(self.rows, self.row_groups)
        self.writer.write_footer(made.to_bytes())


def row_group_fields(old: RowGroup, placed: Sequence[ChunkWriter]) -> dict[str, object]:
    """Sizes and place of a row group whose chunks have ended; optional fields only if ``old`` has
    them."""
    fields: dict[str, object] = {
        "total_byte_size": sum(each.size("total_uncompressed_size") for each in placed)
    }
    if old.total_compressed_size is not None:
        fields["total_compressed_size"] = sum(each.size("total_compressed_size") for each in placed)
    if old.file_offset:
        fields["file_offset"] = placed[0].start if placed else len(MAGIC)
    return fields


# -- pages and their places ------------------------------------------------------------------------


def with_stored_body(
    header: bytes | memoryview, body: bytes | memoryview, *, checksum: bool = False
) -> bytes:
    """The header for another stored body: with its size, and its checksum if the header has one or
    ``checksum`` is set.

        15 type  15 uncompressed  15 compressed  [15 crc]  …      Thrift, deltas of ids in front

    Both fields are among the first four; the rest keeps its bytes.
    """
    usual = _USUAL.match(header)
    if usual is None:
        return _with_stored_body(header, body, checksum)
    (first, crc), following = usual.group(1, 2), header[usual.end() :]
    writer = Writer()
    writer.field(_SIZE_FIELD, I32, len(body), _SIZE_FIELD - 1)
    if crc is not None or checksum:
        writer.field(_SIZE_FIELD + 1, I32, page_checksum(body), _SIZE_FIELD)
    if crc is None and checksum and following[0]:
        # The next field follows the checksum now, not the size: one id less in front of it.
        if following[0] < 0x20:
            return _with_stored_body(header, body, checksum)
        writer.out.append(following[0] - 0x10)
        following = following[1:]
    return b"".join((first, writer.out, following))


def _with_stored_body(
    header: bytes | memoryview, body: bytes | memoryview, checksum: bool
) -> bytes:
    """``with_stored_body`` for fields in any order."""
    found = PageHeader.from_bytes(header)
    crc = page_checksum(body) if checksum or found.crc is not None else None
    return replace(found, compressed_page_size=len(body), crc=crc).to_bytes()


def offset_index_of(
    places: Sequence[tuple[int, int]], rows: Sequence[int], unencoded: tuple[int, ...] | None
) -> bytes:
    """The offset index of pages at ``places``; ``rows`` are their row counts."""
    located = np.array(places, np.int64).reshape(len(rows), 2)
    counts = np.array(rows, np.int64)
    return OffsetIndexArrays(
        offset=located[:, 0],
        compressed_page_size=located[:, 1],
        first_row_index=np.cumsum(counts) - counts,
        unencoded_byte_array_data_bytes=None
        if unencoded is None
        else np.array(unencoded, np.int64),
    ).to_bytes()


def relocated_offset_index(old: OffsetIndex, places: Sequence[tuple[int, int]]) -> bytes:
    """The offset index with its pages at other ``places``; everything else stays."""
    pairs = zip(old.page_locations, places, strict=True)
    located = tuple(
        [replace(each, offset=at, compressed_page_size=size) for each, (at, size) in pairs]
    )
    return replace(old, page_locations=located).to_bytes()
