"""The page tables of one file, found once and cached.

A chunk's table comes from its offset index; the offset indexes of all wanted chunks come in one
wave. A chunk without one may have index pages of 2013. Otherwise it is walked: from page header to
page header where headers state the rows, and over whole pages where only repetition levels do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from skipstone._cache import LruCache
from skipstone.errors import FormatError
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.evidence.indexed_file import index_place
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.metadata import PageHeader
from skipstone.parquet.format.page_index import OffsetIndexArrays
from skipstone.parquet.pages.levels import rows_begun
from skipstone.parquet.pages.page import check_crc, read_page
from skipstone.parquet.thrift.compact import Reader
from skipstone.storage import ByteRange

from .page_tables import (
    ChunkPlace,
    PageTable,
    WalkedPage,
    adjacent_path,
    chunk_place,
    table_of_chunk,
    table_of_index,
    table_of_walk,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.evidence.indexed_file import IndexedFile
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.values import Values
    from skipstone.pruning import Reason

    from .pinned_file import PinnedReader


#: row group and leaf
ChunkKey = tuple[int, int]

#: Bytes of decoded dictionaries that are kept.
DICTIONARY_BYTES = 32 << 20
# Bytes read at a header, which may include the next header too. A request to an object store costs
# as much as a few megabytes.
_WINDOW, _REMOTE_WINDOW = 1 << 12, 4 << 20
# Most headers are shorter.
_USUAL_HEADER = 256


class HeaderAt(NamedTuple):
    """The header of the page at ``offset``; ``ordinal`` counts data pages, -1 for others."""

    header: PageHeader
    offset: int
    header_length: int
    ordinal: int
    num_values: int

    @property
    def size(self) -> int:
        """Bytes of header and body on disk."""
        return self.header_length + self.header.compressed_page_size


class ChunkPages:
    """Places and page tables of the chunks of the file ``indexed``."""

    def __init__(
        self,
        reader: PinnedReader,
        indexed: IndexedFile,
        known: Mapping[ChunkKey, OffsetIndexArrays | Reason],
        memory: int | None = None,
    ) -> None:
        """``known``: offset indexes that planning has read."""
        self.reader, self.indexed = reader, indexed
        self.path, self.footer, self.decryptor = indexed.path, indexed.footer, indexed.decryptor
        #: the most bytes that pages may take when they are decoded together (``decoding_memory``)
        self.memory = memory
        self._known = known
        # A lookup decodes a whole dictionary for one row. The next lookup uses it.
        self.dictionaries: LruCache[ChunkKey, Values] = LruCache(
            most_bytes=DICTIONARY_BYTES, size=lambda values: values.nbytes
        )
        #: the bytes of the longest string of a chunk's dictionary, once it is known
        self.longest: dict[ChunkKey, int] = {}
        self._places: dict[ChunkKey, ChunkPlace] = {}
        self._tables: dict[ChunkKey, PageTable] = {}

    def place(self, key: ChunkKey) -> ChunkPlace:
        """Where a chunk lies. ``KeyUnavailableError`` where its metadata are encrypted."""
        found = self._places.get(key)
        if found is None:
            row_group, leaf = key
            if not self.footer.chunk("has_meta_data")[row_group, leaf]:
                self.column_decryptor(key)  # raises for a missing key
                name = self.footer.schema.leaves[leaf].name
                raise FormatError(
                    f"no metadata of column {name} in row group {row_group}", file=self.path
                )
            name_of = self.footer.value_bytes("file_path", row_group, leaf)
            path = self.path
            if name_of is not None:
                path = adjacent_path(self.path, name_of.decode("utf-8", "surrogateescape"))
            found = chunk_place(
                self.footer,
                row_group,
                leaf,
                path=path,
                size=self.reader.size(path),
            )
            self._places[key] = found
        return found

    @property
    def verify_crc(self) -> bool:
        """Whether reads check the checksums that page headers state."""
        return self.indexed.verify_crc

    def column_decryptor(self, key: ChunkKey) -> ColumnDecryptor | None:
        """The decryptor of a chunk, ``None`` if it is plaintext; raises ``KeyUnavailableError``."""
        return self.indexed.decryptor_of(*key)

    def is_known(self, key: ChunkKey) -> bool:
        """Whether the pages of a chunk are known, so that ``tables`` reads nothing for it."""
        return key in self._tables or isinstance(self._known.get(key), OffsetIndexArrays)

    def has_index(self, key: ChunkKey) -> bool:
        """Whether the file has an offset index of a chunk."""
        return self.index_range("offset_index", key) is not None

    # -- tables ------------------------------------------------------------------------------------

    def tables(self, keys: Iterable[ChunkKey], full: Collection[int] = ()) -> list[PageTable]:
        """The table of each chunk, in order.

        In row groups that are read in ``full`` a chunk without an offset index is one entry: its
        pages are found after it was read.
        """
        keys = list(keys)
        made = {key: table_of_chunk(self.place(key)) for key in keys if self.is_whole(key, full)}
        missing = [key for key in keys if key not in self._tables and key not in made]
        if missing:
            self._find(missing)
        return [made[key] if key in made else self._tables[key] for key in keys]

    def is_whole(self, key: ChunkKey, full: Collection[int]) -> bool:
        """Whether ``tables`` takes the chunk as one entry."""
        if key in self._tables:
            return False
        if self.is_known(key) or self.has_index(key):
            return False
        place = self.place(key)
        if place.num_values != place.rows:
            return False  # a walk finds the error
        # A walk would read the chunk twice.
        if key[0] in full:
            return True
        if not self.reader.storage.remote:
            return False
        return place.stop - place.start <= _REMOTE_WINDOW

    def _find(self, keys: list[ChunkKey]) -> None:
        wanted: dict[ChunkKey, ByteRange] = {}
        for key in keys:
            if not isinstance(self._known.get(key), OffsetIndexArrays):
                where = self.index_range("offset_index", key)
                if where is not None:
                    wanted[key] = where
        found = self.reader.read(list(wanted.values())) if wanted else {}
        leaves = self.footer.schema.leaves
        for key in keys:
            place, leaf = self.place(key), leaves[key[1]]
            where, index = wanted.get(key), self._known.get(key)
            try:
                if isinstance(index, OffsetIndexArrays):
                    table = table_of_index(index, place, not leaf.max_repetition_level)
                elif where is None:
                    tree = self._tree(key, place, leaf)
                    if tree is None:
                        table = table_of_walk(self.walked(key), leaf, place)
                    else:
                        table = table_of_index(tree, place, not leaf.max_repetition_level)
                else:
                    size = self.reader.size(place.path)
                    index = self.indexed.offset_index_of(
                        key, found[where], base=where.offset, size=size
                    )
                    table = table_of_index(index, place, not leaf.max_repetition_level)
            except FormatError as error:
                raise error.in_file(place.path) from error
            self._tables[key] = table

    def _tree(
        self, key: ChunkKey, place: ChunkPlace, leaf: ColumnDescriptor
    ) -> OffsetIndexArrays | None:
        """The places of the pages by index pages of 2013, ``None`` where these do not suffice."""
        offset = int(self.footer.chunk("index_page_offset")[key])
        if offset <= 0 or self.column_decryptor(key) is not None:
            return None
        from skipstone.parquet.reading.index_page_descent import Descent, offsets_of_tree

        data_page_offset = int(self.footer.chunk("data_page_offset")[key])
        return offsets_of_tree(self.reader, Descent(place, leaf, offset, data_page_offset))

    def index_range(self, kind: str, key: ChunkKey) -> ByteRange | None:
        """Where the ``offset_index`` or ``column_index`` of a chunk lies, ``None`` if absent."""
        found = index_place(self.footer, kind, key)
        # The offsets of a summary file count in the file that holds the chunk.
        return None if found is None else ByteRange(self.place(key).path, *found)

    # -- walks -------------------------------------------------------------------------------------

    def walk(self, key: ChunkKey) -> Iterator[HeaderAt]:
        """The header of every page of a chunk, in order, until its values are complete."""
        place, decryptor = self.place(key), self.column_decryptor(key)
        window = _Window(self.reader, place)
        at, ordinal, seen = place.start, 0, 0
        while at < place.stop and (seen < place.num_values or not place.num_values):
            header, length = window.header(at, decryptor, ordinal)
            size = length + header.compressed_page_size
            if header.compressed_page_size < 0 or size > place.stop - at:
                raise FormatError(
                    "a page ends beyond its chunk",
                    file=place.path,
                    offset=at,
                    expected=f"at most {place.stop - at} bytes",
                    got=size,
                )
            values = _num_values(header)
            data = header.type in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
            yield HeaderAt(header, at, length, ordinal if data else -1, values)
            if data:
                ordinal += 1
                seen += values
            at += size

    def walked(self, key: ChunkKey) -> Iterator[WalkedPage]:
        """As ``walk``, with the number of rows that begin in each page."""
        place, leaf = self.place(key), self.footer.schema.leaves[key[1]]
        for found in self.walk(key):
            header = found.header
            rows, continues = found.num_values, False
            if leaf.max_repetition_level and header.data_page_header_v2 is not None:
                rows = header.data_page_header_v2.num_rows
            elif leaf.max_repetition_level and found.ordinal >= 0:
                rows, continues = self._rows(key, place, found, leaf)
            yield WalkedPage(
                found.offset, found.size, header.type, found.ordinal, found.num_values,
                rows, continues,
            )  # fmt: skip

    def _rows(
        self, key: ChunkKey, place: ChunkPlace, found: HeaderAt, leaf: ColumnDescriptor
    ) -> tuple[int, bool]:
        decryptor = self.column_decryptor(key)
        data = self.reader.one(place.path, found.offset, found.size)
        body: bytes | memoryview = data[found.header_length :]
        if self.verify_crc:
            check_crc(body, found.header.crc, found.offset + found.header_length)
        if decryptor is not None:
            body = decryptor.decrypt_page(found.header, body, found.ordinal)
        page = read_page(plain_header(found.header, len(body)) + bytes(body), base=found.offset)
        body = decompress(place.codec, page.body, page.uncompressed_page_size)
        return rows_begun(page, body, leaf)


class _Window:
    """The part of a chunk that was read last."""

    def __init__(self, reader: PinnedReader, place: ChunkPlace) -> None:
        self.reader, self.place = reader, place
        self.size = _REMOTE_WINDOW if reader.storage.remote else _WINDOW
        self.base, self.held = place.start, memoryview(b"")

    def header(
        self, at: int, decryptor: ColumnDecryptor | None, ordinal: int
    ) -> tuple[PageHeader, int]:
        """The header at ``at`` and its length on disk."""
        room = self.place.stop - at
        need = min(room, _USUAL_HEADER)
        while True:
            if at < self.base or at + need > self.base + len(self.held):
                length = min(max(need, self.size), room)
                self.held, self.base = self.reader.one(self.place.path, at, length), at
            view = self.held[at - self.base :]
            try:
                return header_at(view, at, decryptor, ordinal, at == self.place.start)
            except FormatError:
                if len(view) >= room:
                    raise
            need = min(room, max(4 * need, len(view) + 1))


def most_of_walk(length: int, *, remote: bool) -> int:
    """The most requests for the page headers of a chunk of ``length`` bytes: windows that overlap
    by less than a short header, and another for each header that its window cuts."""
    window = _REMOTE_WINDOW if remote else _WINDOW
    return 2 * (length // (window - _USUAL_HEADER) + 1)


def header_at(
    view: bytes | memoryview,
    offset: int,
    decryptor: ColumnDecryptor | None,
    ordinal: int,
    may_be_dictionary: bool,
) -> tuple[PageHeader, int]:
    """The page header at the start of ``view``, which lies at ``offset``, and its length there."""
    if decryptor is None:
        reader = Reader(view, base=offset)
        return PageHeader.read(reader), reader.at
    plain, length, _ = decryptor.decrypt_page_header(
        view, 0, ordinal, may_be_dictionary=may_be_dictionary, base=offset
    )
    return PageHeader.from_bytes(plain, base=offset), length


def plain_header(header: PageHeader, size: int) -> bytes:
    """The header of the same page with a body of ``size`` bytes that is not encrypted."""
    return replace(header, compressed_page_size=size, crc=None).to_bytes()


def _num_values(header: PageHeader) -> int:
    for each in (header.data_page_header, header.data_page_header_v2):
        if each is not None and header.type in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2):
            if each.num_values < 0:
                raise FormatError("num_values of a page", got=each.num_values)
            return each.num_values
    return 0
