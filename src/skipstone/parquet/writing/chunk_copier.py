"""Copies the pages of one chunk to another file: bodies unchanged, headers with a checksum.

The checksum is spliced into the header (``with_stored_body``). Pages without values (index pages,
unknown ones) point into the old file and are left out.

Pages that must hold fewer rows (``page_rows``) are decoded, cut where rows begin, and encoded
again (``PageSplitter``) in their own version, codec and encoding: dictionary indices refer to the
same dictionary. A page that is small enough is copied, unless rows of its column may cross page
ends: such a column (lists in v1 pages) is encoded again as a whole, so that every page begins with
a row.

Pages are read in batches (``page_batches``). Threads prepare several batches at once
(``ChunkCopier.begin``), and ``ChunkCopier.keep`` takes them in their order. So memory holds a few
batches, however large a chunk is.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings import encode_values, rle
from skipstone.parquet.encodings.codecs import compress
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import (
    DataPageHeader,
    DataPageHeaderV2,
    PageEncodingStats,
    PageHeader,
)
from skipstone.parquet.pages.column_values import (
    LeafColumn,
    Run,
    concat,
    decode_data_page,
    decode_dictionary_page,
    no_values,
)
from skipstone.parquet.pages.levels import row_starts
from skipstone.parquet.pages.page_headers import INDICES

from .chunk_modules import page_windows
from .file_writer import with_stored_body
from .many_pages import compiled_walk, look_at_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.pages.page import Page
    from skipstone.parquet.reading.page_tables import ChunkPlace
    from skipstone.parquet.reading.pinned_file import PinnedReader
    from skipstone.parquet.values import Values

    from .chunk_modules import Window
    from .chunk_statistics import ChunkStatistics, PageStatistics


_WINDOW: Final = 2 << 20

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
        """``ColumnMetaData.encoding_stats`` of the written pages."""
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


def page_batches(reader: PinnedReader, place: ChunkPlace) -> Iterator[Window]:
    """The pages of a chunk that is not encrypted, in batches of a few megabytes."""
    seen = 0
    for window in page_windows(reader, place, None, _WINDOW, compiled_walk):
        seen += sum([page.num_values for page in window.pages if page.is_data])
        yield window
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
        self,
        leaf: ColumnDescriptor,
        codec: int,
        *,
        facts: ChunkStatistics | None,
        page_rows: int | None = None,
    ) -> None:
        self.leaf, self.codec, self.facts = leaf, codec, facts
        self.copied = Copied()
        self._splitter = None if page_rows is None else PageSplitter(leaf, codec, page_rows)
        self._dictionary: Future[Values] | None = None
        self._before: Future[list[Ready]] | None = None

    def begin(
        self,
        window: Window,
        submit: Callable[[Callable[[], list[Ready]]], Future[list[Ready]]],
    ) -> Future[list[Ready]]:
        """Prepare the next pages in another thread. ``submit`` starts jobs in the order of its
        calls, so that no job waits for one that has not started."""
        before = self._dictionary
        if any(page.type == PageType.DICTIONARY_PAGE for page in window.pages):
            self._dictionary = Future()
        # Rows of lists may continue in the next page: such pages are cut one after the other.
        chained = self._splitter is not None and self.leaf.max_repetition_level
        last = self._before if chained else None
        self._before = submit(partial(self._ready, window, before, self._dictionary, last))
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
        """Write the pages that were held back, after all pages were kept."""
        if self._splitter is not None:
            self.keep([self._data(*each) for each in self._splitter.rest()], put)
        return self.copied

    # -- in threads --------------------------------------------------------------------------------

    def _ready(
        self,
        window: Window,
        before: Future[Values] | None,
        dictionary: Future[Values] | None,
        last: Future[list[Ready]] | None,
    ) -> list[Ready]:
        if last is not None:
            last.result()
        made: list[Ready] = []
        held = before
        looked: list[PageStatistics | None] | None = None
        try:
            for n, page in enumerate(window.pages):
                page.verify_crc()
                if page.type == PageType.DICTIONARY_PAGE:
                    assert dictionary is not None
                    if self._decoding and not dictionary.done():
                        dictionary.set_result(self._decoded(page))
                    held, looked = dictionary, None
                    made.append(Ready(page, _header(page)))
                elif not page.is_data:
                    made.append(Ready(page, None))
                else:
                    if looked is None:
                        looked = self._looked(window, n, held)
                    facts = looked[n]
                    if facts is None:
                        made += self._data_page(page, held)
                    else:
                        made.append(Ready(page, _header(page), page.num_values, facts))
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

    def _looked(
        self, window: Window, first: int, dictionary: Future[Values] | None
    ) -> list[PageStatistics | None]:
        """The statistics of each page of a window, from ``first`` on, for those that are found
        together."""
        before: list[PageStatistics | None] = [None] * first
        if self.facts is None or self._splitter is not None or not self.facts.at_once:
            return before + [None] * (len(window.pages) - first)
        values = None
        if dictionary is not None and any(
            page.encoding in INDICES for page in window.pages[first:]
        ):
            values = dictionary.result()
        return before + look_at_many(self.facts, self.codec, window, first, values)

    def _data_page(self, page: Page, dictionary: Future[Values] | None) -> Iterator[Ready]:
        if not self._decoding:
            yield Ready(page, _header(page), page.num_values)
            return
        values = None
        if dictionary is not None and page.encoding in INDICES:
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
    return with_stored_body(page.header_bytes, page.body, checksum=True)


class PageSplitter:
    """Cuts the data pages of one chunk, in order, into pages of at most ``page_rows`` rows."""

    def __init__(self, leaf: ColumnDescriptor, codec: int, page_rows: int) -> None:
        self.leaf, self.codec, self.page_rows = leaf, codec, page_rows
        # v1 pages of lists: the last row may continue in the next page.
        self._held: tuple[Page, LeafColumn] | None = None

    def leaves(self, page: Page, column: LeafColumn) -> bool:
        """Whether a page is copied unchanged."""
        reaches = self.leaf.max_repetition_level and page.type == PageType.DATA_PAGE
        return not reaches and column.num_rows <= self.page_rows

    def split(self, page: Page, column: LeafColumn) -> Iterator[tuple[Page, LeafColumn]]:
        """The pages that are complete so far, each with its entries."""
        if page.type == PageType.DATA_PAGE_V2 or not self.leaf.max_repetition_level:
            yield from self._cut(page, column, column.num_rows)
            return
        if self._held is not None:
            before, held = self._held
            if before.encoding == page.encoding:
                column = concat(self.leaf, [held, column])
            else:
                # A row in two encodings: its end moves to its beginning, both as plain values.
                starts = _starts(column)
                first = int(starts[0]) if len(starts) else column.num_entries
                if first:
                    held = _plain(concat(self.leaf, [held, column.entries(0, first)]))
                if first == column.num_entries:
                    self._held = (before, held)
                    return
                yield from self._cut(before, held, held.num_rows)
                column = column.entries(first, column.num_entries)
        starts = _starts(column)
        last = int(starts[-1]) if len(starts) else 0
        self._held = (page, column.entries(last, column.num_entries))
        whole = column.entries(0, last)
        if whole.num_entries:
            yield from self._cut(page, whole, whole.num_rows)

    def rest(self) -> Iterator[tuple[Page, LeafColumn]]:
        """The pages that were held back because their last row could continue."""
        if self._held is not None:
            page, column = self._held
            self._held = None
            if column.num_entries:
                yield from self._cut(page, column, column.num_rows)

    def _cut(self, page: Page, column: LeafColumn, rows: int) -> Iterator[tuple[Page, LeafColumn]]:
        for start in range(0, max(rows, 1), self.page_rows):
            part = column.rows(start, start + self.page_rows)
            yield self._encoded(page, part), part

    def _encoded(self, page: Page, column: LeafColumn) -> Page:
        leaf, (encoding, body) = self.leaf, self._body(Encoding(page.encoding), column)
        repetition = _levels(column.repetition_levels, leaf.max_repetition_level, column, 0)
        definition = _levels(
            column.definition_levels, leaf.max_definition_level, column, leaf.max_definition_level
        )
        if page.type == PageType.DATA_PAGE_V2:
            packed = compress(self.codec, body) if page.is_compressed and body else body
            stored = repetition + definition + packed
            size = len(repetition) + len(definition) + len(body)
            header = PageHeader(
                type=PageType.DATA_PAGE_V2,
                uncompressed_page_size=size,
                compressed_page_size=len(stored),
                data_page_header_v2=DataPageHeaderV2(
                    num_values=column.num_entries,
                    num_nulls=column.num_nulls,
                    num_rows=column.num_rows,
                    encoding=encoding,
                    definition_levels_byte_length=len(definition),
                    repetition_levels_byte_length=len(repetition),
                    is_compressed=page.is_compressed,
                ),
            )
        else:
            whole = b"".join(
                [
                    _prefixed(repetition) if leaf.max_repetition_level else b"",
                    _prefixed(definition) if leaf.max_definition_level else b"",
                    body,
                ]
            )
            stored = compress(self.codec, whole)
            size = len(whole)
            header = PageHeader(
                type=PageType.DATA_PAGE,
                uncompressed_page_size=size,
                compressed_page_size=len(stored),
                data_page_header=DataPageHeader(
                    num_values=column.num_entries,
                    encoding=encoding,
                    definition_level_encoding=Encoding.RLE,
                    repetition_level_encoding=Encoding.RLE,
                ),
            )
        return page._replace(
            header_bytes=header.to_bytes(),
            body=memoryview(stored),
            uncompressed_page_size=size,
            crc=None,
            num_values=column.num_entries,
            encoding=int(encoding),
        )

    def _body(self, encoding: Encoding, column: LeafColumn) -> tuple[Encoding, bytes]:
        """The encoding and the bytes of the values: ``encoding``, but PLAIN if indices are
        missing."""
        leaf = self.leaf
        if encoding in INDICES and any(run.indices is None for run in column.runs):
            encoding = Encoding.PLAIN
        if encoding in INDICES:
            parts = [run.indices for run in column.runs if run.indices is not None]
            indices = np.concatenate(parts) if parts else np.empty(0, np.int32)
            return encoding, encode_values(encoding, indices, leaf.type, leaf.type_length)
        if not column.num_values:
            plain = Encoding.PLAIN
            return plain, encode_values(plain, no_values(leaf), leaf.type, leaf.type_length)
        try:
            return encoding, encode_values(encoding, column.values(), leaf.type, leaf.type_length)
        except TypeError as error:
            raise UnsupportedError(f"pages of {leaf.name} cannot be split: {error}") from None


def _starts(column: LeafColumn) -> NDArray[np.int64]:
    """Positions of the entries that begin a row."""
    if column.repetition_levels is None:
        return np.arange(column.num_entries)
    return row_starts(column.repetition_levels)


def _plain(column: LeafColumn) -> LeafColumn:
    """The column with values instead of dictionary indices."""
    return replace(column, runs=tuple([Run(run.plain()) for run in column.runs]))


def _levels(levels: object, highest: int, column: LeafColumn, trivial: int) -> bytes:
    if not highest:
        return b""
    held = levels if isinstance(levels, np.ndarray) else np.full(column.num_entries, trivial)
    return rle.encode(held.astype(np.uint8), highest.bit_length())


def _prefixed(levels: bytes) -> bytes:
    return len(levels).to_bytes(4, "little") + levels
