"""Reads the modules of one column chunk in the clear: pages, and where its indexes lie.

Modules that are not encrypted are returned unchanged. The checksum of a page is verified first: a
new checksum over damaged bytes would make the page look valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.encryption.modules import AuthenticationError
from skipstone.parquet.pages.page import Page, read_page, usual_pages
from skipstone.parquet.pages.page_headers import FIELDS, walk_window
from skipstone.parquet.thrift.compact import Limits, read_struct
from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.format.metadata import ColumnChunk
    from skipstone.parquet.pages.page_headers import Walk
    from skipstone.parquet.reading.page_tables import ChunkPlace
    from skipstone.parquet.reading.pinned_file import PinnedReader


# Bytes of a chunk in memory at a time; more only if one page is larger.
_WINDOW: Final = 8 << 20
_ENDLESS: Final = 1 << 62


class PlainPage(NamedTuple):
    """A page, and its body before encryption."""

    page: Page
    body: memoryview


@dataclass(slots=True, eq=False)
class Window:
    """Consecutive pages, in ``data``, which begins at byte ``base`` of the file."""

    pages: list[Page]
    data: memoryview
    base: int
    _headers: NDArray[np.int64] | None = None

    @property
    def headers(self) -> NDArray[np.int64]:
        """The integers of their headers (``page_headers``), with places in ``data``."""
        if self._headers is None:
            rows = [_integers(page, self.base) for page in self.pages]
            self._headers = np.array(rows, np.int64).reshape(len(rows), FIELDS)
        return self._headers


def _integers(page: Page, base: int) -> tuple[int, ...]:
    """Those of the header of one page."""
    return (
        page.type,
        page.uncompressed_page_size,
        len(page.body),
        page.crc or 0,
        page.crc is not None,
        page.num_values,
        page.encoding,
        page.definition_level_encoding,
        page.repetition_level_encoding,
        page.num_nulls,
        page.num_rows,
        page.definition_levels_byte_length,
        page.repetition_levels_byte_length,
        page.is_compressed,
        page.offset - base,
        page.header_length,
    )


class Indexes(NamedTuple):
    """The places of the indexes that a chunk has."""

    column_index: ByteRange | None
    offset_index: ByteRange | None


def page_windows(
    reader: PinnedReader,
    place: ChunkPlace,
    decryptor: ColumnDecryptor | None,
    size: int = _WINDOW,
    compiled: Callable[[], Walk | None] = lambda: None,
) -> Iterator[Window]:
    """All pages of a chunk, in order, until its values are complete, in windows of ``size`` bytes.

    Bodies are views that are valid until the next pages are requested. ``compiled`` gives
    ``page_headers.walk`` as machine code, if it is loaded.
    """
    at, ordinal, seen, length = place.start, 0, 0, size
    while at < place.stop and (seen < place.num_values or not place.num_values):
        length = min(length, place.stop - at)
        view, base = reader.one(place.path, at, length), at
        pages: list[Page] = []
        headers: NDArray[np.int64] | None = None
        damage: FormatError | None = None
        if decryptor is None and (walk := compiled()) is not None:
            headers = walk_window(walk, view, (place.num_values or _ENDLESS) - seen)
            pages = usual_pages(headers, view, base, ordinal)
            data_pages = [page.num_values for page in pages if page.is_data]
            ordinal, seen = ordinal + len(data_pages), seen + sum(data_pages)
            at = pages[-1].stop if pages else at
        # The walk ends before a header that is unusual or cut: the next window begins with it.
        is_cut = bool(pages) and base + length < place.stop
        while not is_cut and at < place.stop and (seen < place.num_values or not place.num_values):
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
            headers, at = None, page.stop
        if pages:
            yield Window(pages, view, base, headers)
        if damage is not None:
            raise damage.in_file(place.path) from damage
        length = size if pages else 2 * length


def plain_pages(
    reader: PinnedReader, place: ChunkPlace, decryptor: ColumnDecryptor | None
) -> Iterator[PlainPage]:
    """All pages of a chunk, in order, until its values are complete.

    A body is a view that is valid until the next page is requested.
    """
    for window in page_windows(reader, place, decryptor):
        for page in window.pages:
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


def unpadded(data: bytes) -> bytes:
    """One Thrift struct without the bytes after it: parquet-java pads modules with zeros."""
    return data[: read_struct(data, limits=Limits(values=max(1 << 16, 2 * len(data))))[1]]
