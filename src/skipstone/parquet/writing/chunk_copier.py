"""Copies the pages of one chunk to another file: bodies unchanged, headers with a checksum.

    header  15 type  15 uncompressed  15 compressed  [15 crc]  …      Thrift, deltas of ids in front

The checksum is spliced into the header; the other fields keep their bytes. Pages without values
(index pages, unknown ones) point into the old file and are left out. Pages are encoded again only
if they must hold fewer rows (``page_rows``): ``page_splitter.py``.

Pages are read in batches (``page_batches``). Threads prepare several batches at once
(``ChunkCopier.begin``), and ``ChunkCopier.keep`` takes them in their order. So memory holds a few
batches, however large a chunk is.
"""

from __future__ import annotations

import zlib
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import PageEncodingStats
from skipstone.parquet.pages.column_values import decode_data_page, decode_dictionary_page
from skipstone.parquet.pages.page import read_page
from skipstone.parquet.thrift.compact import Writer

from .page_splitter import PageSplitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from skipstone.parquet.encodings.values import Values
    from skipstone.parquet.format.schema import Leaf
    from skipstone.parquet.pages.column_values import LeafColumn
    from skipstone.parquet.pages.page import Page
    from skipstone.parquet.reading.page_tables import ChunkPlace
    from skipstone.parquet.reading.pinned_reader import PinnedReader

    from .chunk_statistics import ChunkStatistics, PageStatistics


_WINDOW: Final = 2 << 20
_I32: Final = 0x15
# type, uncompressed_page_size and compressed_page_size come first in every known header.
_FIRST: Final = 3
_CODED: Final = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)

PagePut: TypeAlias = "Callable[[bytes | memoryview, bytes | memoryview, bool], object]"


@dataclass(slots=True, kw_only=True)
class Copied:
    """The pages of a chunk in the new file: the sizes of the ``dictionary`` page and of each data
    page, headers included, and the changes that were made."""

    uncompressed: int = 0
    dictionary: int = 0
    sizes: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    checksums_added: int = 0
    pages: int = 0
    dropped: int = 0
    encodings: dict[tuple[int, int], int] = field(default_factory=dict)

    def encoding_stats(self) -> tuple[PageEncodingStats, ...]:
        """As ``ColumnMetaData`` holds them."""
        return tuple(
            [
                PageEncodingStats(page_type=PageType(type_), encoding=Encoding(encoding), count=n)
                for (type_, encoding), n in sorted(self.encodings.items())
            ]
        )


class Ready(NamedTuple):
    """A page to write; without a ``header`` it is left out."""

    page: Page
    header: bytes | memoryview | None
    rows: int = 0
    facts: PageStatistics | None = None


def page_batches(reader: PinnedReader, place: ChunkPlace) -> Iterator[list[Page]]:
    """The pages of a chunk that is not encrypted, in batches of a few megabytes."""
    at, seen, ordinal = place.start, 0, 0
    length = _WINDOW
    while at < place.stop and (seen < place.num_values or not place.num_values):
        length = min(length, place.stop - at)
        window, base = reader.one(place.path, at, length), at
        pages: list[Page] = []
        while at < place.stop and (seen < place.num_values or not place.num_values):
            try:
                page = read_page(window, at - base, base=base, ordinal=ordinal)
            except FormatError as error:
                if base + length >= place.stop:
                    raise error.in_file(place.path) from None
                break  # the page may extend past the window
            if page.is_data:
                ordinal += 1
                seen += page.num_values
            pages.append(page)
            at = page.stop
        length = _WINDOW if pages else 2 * length
        if pages:
            yield pages
    if seen != place.num_values:
        raise FormatError(
            "values in the pages of a chunk",
            file=place.path,
            offset=place.start,
            expected=place.num_values,
            got=seen,
        )


class ChunkCopier:
    """Copies one chunk; ``facts`` collect the statistics of every page that is written.

    A page whose checksum is wrong is a ``FormatError``: it must not get a right one.
    """

    def __init__(
        self, leaf: Leaf, codec: int, *, facts: ChunkStatistics | None, page_rows: int | None = None
    ) -> None:
        self.leaf, self.codec, self.facts = leaf, codec, facts
        self.copied = Copied()
        self._splitter = None if page_rows is None else PageSplitter(leaf, codec, page_rows)
        self._dictionary: Future[Values] | None = None
        self._before: Future[list[Ready]] | None = None

    def begin(
        self,
        pages: Sequence[Page],
        submit: Callable[[Callable[[], list[Ready]]], Future[list[Ready]]],
    ) -> Future[list[Ready]]:
        """Prepare the next pages in another thread. ``submit`` starts jobs in the order of its
        calls, so that no job waits for one that has not started."""
        before = self._dictionary
        if any(page.type == PageType.DICTIONARY_PAGE for page in pages):
            self._dictionary = Future()
        # Rows of lists may continue in the next page: such pages are cut one after the other.
        chained = self._splitter is not None and self.leaf.max_repetition_level
        last = self._before if chained else None
        self._before = submit(partial(self._ready, pages, before, self._dictionary, last))
        return self._before

    def keep(self, ready: Sequence[Ready], put: PagePut) -> None:
        """Call ``put`` with each prepared page, in order: header, body, and whether it is the
        dictionary."""
        made = self.copied
        for page, header, rows, facts in ready:
            if header is None:
                made.dropped += 1
                continue
            is_dictionary = page.type == PageType.DICTIONARY_PAGE
            length = len(header) + len(page.body)
            if not is_dictionary:
                made.rows.append(rows)
                made.sizes.append(length)
            elif made.pages:
                raise FormatError("a dictionary after its data pages", offset=page.offset)
            else:
                made.dictionary = length
            put(header, page.body, is_dictionary)
            made.uncompressed += len(header) + page.uncompressed_page_size
            made.pages += 1
            made.checksums_added += page.crc is None
            key = (int(page.type), page.encoding)
            made.encodings[key] = made.encodings.get(key, 0) + 1
            if facts is not None and self.facts is not None:
                self.facts.keep(facts)

    def end(self, put: PagePut) -> Copied:
        """Write the held back pages after all pages were kept."""
        if self._splitter is not None:
            self.keep([self._data(*each) for each in self._splitter.rest()], put)
        return self.copied

    # -- in threads --------------------------------------------------------------------------------

    def _ready(
        self,
        pages: Sequence[Page],
        before: Future[Values] | None,
        dictionary: Future[Values] | None,
        last: Future[list[Ready]] | None,
    ) -> list[Ready]:
        if last is not None:
            last.result()
        made: list[Ready] = []
        held = before
        try:
            for page in pages:
                page.verify_crc()
                if page.type == PageType.DICTIONARY_PAGE:
                    assert dictionary is not None
                    if self._decoding and not dictionary.done():
                        dictionary.set_result(self._decoded(page))
                    held = dictionary
                    made.append(Ready(page, _header(page)))
                elif not page.is_data:
                    made.append(Ready(page, None))
                else:
                    made += self._data_page(page, held)
        except BaseException as error:
            # Threads that wait for the dictionary must not wait forever.
            if dictionary is not None and dictionary is not before and not dictionary.done():
                dictionary.set_exception(error)
            raise
        return made

    @property
    def _decoding(self) -> bool:
        return self.facts is not None or self._splitter is not None

    def _decoded(self, page: Page) -> Values:
        values = decode_dictionary_page(page, self.leaf, self.codec, page.body)
        if self.facts is not None:
            self.facts.prepare(values)
        return values

    def _data_page(self, page: Page, dictionary: Future[Values] | None) -> Iterator[Ready]:
        if not self._decoding:
            yield Ready(page, _header(page), page.num_values)
            return
        values = None
        if dictionary is not None and page.encoding in _CODED:
            values = dictionary.result()
        column = decode_data_page(page, self.leaf, self.codec, values, page.body)
        if self._splitter is not None and not self._splitter.leaves(page, column):
            for each in self._splitter.split(page, column):
                yield self._data(*each)
            return
        yield self._data(page, column)

    def _data(self, page: Page, column: LeafColumn) -> Ready:
        facts = None if self.facts is None else self.facts.look(column)
        return Ready(page, _header(page), column.num_rows, facts)


def _header(page: Page) -> bytes | memoryview:
    if page.crc is not None:
        return page.header_bytes
    crc = zlib.crc32(page.body)
    signed = crc - (1 << 32) if crc >> 31 else crc
    data = bytes(page.header_bytes)
    at = 0
    for _ in range(_FIRST):
        if data[at] != _I32:
            return replace(page.header, crc=signed).to_bytes()
        at += 1
        while data[at] & 0x80:
            at += 1
        at += 1
    delta = data[at] >> 4
    if delta < 2:  # the next field's id is not stored as a difference
        return replace(page.header, crc=signed).to_bytes()
    number = Writer()
    number.integer(signed)
    head = bytes((_I32,)) + bytes(number.out)
    return data[:at] + head + bytes((data[at] - 0x10,)) + data[at + 1 :]
