"""Reads the modules of one column chunk in the clear: pages, indexes, Bloom filter.

Modules that are not encrypted are returned unchanged. The checksum of a page is verified first: a
new checksum over damaged bytes would make the page look valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encryption.modules import AuthenticationError, module_length
from skipstone.parquet.format.bloom_filter import read_header
from skipstone.parquet.pages.page import Page, read_page
from skipstone.parquet.thrift.compact import Limits, read_struct
from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.format.metadata import ColumnChunk, ColumnMetaData
    from skipstone.parquet.reading.page_tables import ChunkPlace
    from skipstone.parquet.reading.pinned_file import PinnedReader


# Bytes of a chunk in memory at a time; more only if one page is larger.
_WINDOW: Final = 8 << 20
# If the length of a Bloom filter is not stored, its header lies within this many bytes.
_BLOOM_HEAD: Final = 256


class PlainPage(NamedTuple):
    """A page, and its body before encryption."""

    page: Page
    body: memoryview


class Indexes(NamedTuple):
    """The places of the indexes that a chunk has."""

    column_index: ByteRange | None
    offset_index: ByteRange | None


class BloomModules(NamedTuple):
    """The bytes of BloomFilterHeader, and of the bitset."""

    header: bytes | memoryview
    bitset: bytes | memoryview

    @classmethod
    def of(cls, data: bytes) -> BloomModules:
        """From the bytes of a whole filter in the clear."""
        _, at = read_header(data, base=0, end=len(data))
        view = memoryview(data)
        return cls(view[:at], view[at:])


def page_windows(
    reader: PinnedReader, place: ChunkPlace, decryptor: ColumnDecryptor | None, size: int = _WINDOW
) -> Iterator[list[Page]]:
    """All pages of a chunk, in order, until its values are complete, in lists of ``size`` bytes.

    Bodies are views that are valid until the next pages are requested.
    """
    at, ordinal, seen, length = place.start, 0, 0, size
    while at < place.stop and (seen < place.num_values or not place.num_values):
        length = min(length, place.stop - at)
        view, base = reader.one(place.path, at, length), at
        pages: list[Page] = []
        damage: FormatError | None = None
        while at < place.stop and (seen < place.num_values or not place.num_values):
            try:
                page = read_page(
                    view,
                    at - base,
                    base=base,
                    ordinal=ordinal,
                    decryptor=decryptor,
                    may_be_dictionary=at == place.start,
                )
            except FormatError as error:
                # A header or page that extends past the bytes read looks like a damaged one.
                if base + length >= place.stop or isinstance(error, AuthenticationError):
                    damage = error
                break
            if page.is_data:
                ordinal += 1
                seen += page.num_values
            pages.append(page)
            at = page.stop
        if pages:
            yield pages
        if damage is not None:
            raise damage.in_file(place.path) from damage
        length = size if pages else 2 * length


def plain_pages(
    reader: PinnedReader, place: ChunkPlace, decryptor: ColumnDecryptor | None
) -> Iterator[PlainPage]:
    """All pages of a chunk, in order, until its values are complete.

    A body is a view that is valid until the next page is requested.
    """
    for pages in page_windows(reader, place, decryptor):
        for page in pages:
            try:
                page.verify_crc()
                yield PlainPage(page, page.decrypted(decryptor))
            except FormatError as error:
                raise error.in_file(place.path) from error


def index_ranges(chunk: ColumnChunk, path: str) -> Indexes:
    """The places of the indexes of a chunk."""

    def of(offset: int | None, length: int | None) -> ByteRange | None:
        return ByteRange(path, offset, length) if offset and length and length > 0 else None

    return Indexes(
        of(chunk.column_index_offset, chunk.column_index_length),
        of(chunk.offset_index_offset, chunk.offset_index_length),
    )


def bloom_modules(
    reader: PinnedReader,
    path: str,
    meta: ColumnMetaData,
    decryptor: ColumnDecryptor | None,
    known: Mapping[ByteRange, memoryview],
) -> BloomModules | None:
    """The Bloom filter of a chunk; ``None`` if it has none, or one of a kind no longer read."""
    start = meta.bloom_filter_offset
    if not start:
        return None
    length = meta.bloom_filter_length
    if length and length > 0:
        where = ByteRange(path, start, length)
        data = known[where] if where in known else reader.one(path, start, length)
    else:
        data = _unsized(reader, path, start, decryptor)
    if decryptor is not None:
        header, bitset = decryptor.decrypt_bloom_filter(data, base=start)
        return BloomModules(unpadded(header), bitset)
    try:
        size, at = read_header(data, base=start, end=len(data))
    except UnsupportedError:
        return None
    return BloomModules(bytes(data[:at]), bytes(data[at : at + size]))


def unpadded(data: bytes) -> bytes:
    """One Thrift struct without the bytes after it: parquet-java pads modules with zeros."""
    return data[: read_struct(data, limits=Limits(values=max(1 << 16, 2 * len(data))))[1]]


def _unsized(
    reader: PinnedReader, path: str, start: int, decryptor: ColumnDecryptor | None
) -> memoryview:
    head = reader.one(path, start, min(_BLOOM_HEAD, reader.size(path) - start))
    if decryptor is None:
        size, at = read_header(head, base=start)
        return reader.one(path, start, at + size)
    first = module_length(head, base=start, file=path)
    head = reader.one(path, start + first, 4)
    return reader.one(path, start, first + module_length(head, base=start + first, file=path))
