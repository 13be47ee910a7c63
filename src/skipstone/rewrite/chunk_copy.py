"""The pages of one chunk on their way into another file: bodies as they are, headers with a crc.

    header  15 type  15 uncompressed  15 compressed  [15 crc]  …      Thrift, deltas of ids in front

A header gets its checksum by splicing the field in; nothing else of it changes. Pages that hold no
values (index pages, unknown ones) point into the old file and are left out. Only where pages are to
hold fewer rows (``page_rows``) are they decoded and encoded anew: ``page_split.py``.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from skipstone.errors import FormatError
from skipstone.formats.parquet.enums import Encoding, PageType
from skipstone.formats.parquet.metadata import PageEncodingStats
from skipstone.formats.parquet.page import read_page
from skipstone.formats.parquet.page_values import decode_data_page, decode_dictionary_page
from skipstone.formats.parquet.thrift import Writer

from .page_split import Splitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from skipstone.formats.parquet.encodings.values import Values
    from skipstone.formats.parquet.page import Page
    from skipstone.formats.parquet.schema import Leaf
    from skipstone.scan.chunk_place import ChunkPlace
    from skipstone.scan.pinned import PinnedReader

    from .chunk_facts import ChunkFacts

__all__ = ["Copied", "copy_chunk", "stored_pages"]

_WINDOW: Final = 2 << 20
_I32: Final = 0x15
# type, uncompressed_page_size and compressed_page_size come first in every header that is met.
_FIRST: Final = 3


@dataclass(slots=True, kw_only=True)
class Copied:
    """Where the pages lie, from the first byte of the chunk on, and what is new about them."""

    length: int = 0
    uncompressed: int = 0
    dictionary: int | None = None
    offsets: list[int] = field(default_factory=list)
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


def stored_pages(reader: PinnedReader, place: ChunkPlace) -> Iterator[Page]:
    """The pages of a chunk that is not encrypted, a few megabytes at a time."""
    at, seen, ordinal = place.start, 0, 0
    window, base = memoryview(b""), place.start
    while at < place.stop and (seen < place.num_values or not place.num_values):
        try:
            page = read_page(window, at - base, base=base, ordinal=ordinal)
        except FormatError as error:
            stop = base + len(window)
            if stop >= place.stop:
                raise error.in_file(place.path) from None
            length = min(max(_WINDOW, 2 * (stop - at)), place.stop - at)
            window, base = reader.one(place.path, at, length), at
            continue
        if page.is_data:
            ordinal += 1
            seen += page.num_values
        yield page
        at = page.stop
    if seen != place.num_values:
        raise FormatError(
            "values in the pages of a chunk",
            file=place.path,
            offset=place.start,
            expected=place.num_values,
            got=seen,
        )


def copy_chunk(
    pages: Iterator[Page],
    leaf: Leaf,
    codec: int,
    sink: Callable[[bytes | memoryview], None],
    *,
    facts: ChunkFacts | None,
    checksums: bool = True,
    page_rows: int | None = None,
) -> Copied:
    """Give ``sink`` the bytes of all pages; ``facts`` are told of every page that is written.

    A page whose checksum is wrong is a ``FormatError``: it must not get a right one.
    """
    made = Copied()
    dictionary: Values | None = None
    splitter = None if page_rows is None else Splitter(leaf, codec, page_rows)
    decoding = facts is not None or splitter is not None
    for page in pages:
        page.verify_crc()
        if page.type == PageType.DICTIONARY_PAGE:
            if decoding:
                dictionary = decode_dictionary_page(page, leaf, codec, page.body)
            if made.pages:
                raise FormatError("a dictionary behind its data pages", offset=page.offset)
            made.dictionary = 0
            _write(made, sink, page, checksums)
            continue
        if not page.is_data:
            made.dropped += 1
            continue
        column = None
        if decoding:
            column = decode_data_page(page, leaf, codec, dictionary, page.body)
        if splitter is not None:
            assert column is not None
            if not splitter.leaves(page, column):
                for part, held in splitter.split(page, column):
                    _data(made, sink, part, checksums, held.num_rows)
                    if facts is not None:
                        facts.add(held)
                continue
        rows = page.num_values if column is None else column.num_rows
        _data(made, sink, page, checksums, rows)
        if facts is not None and column is not None:
            facts.add(column)
    if splitter is not None:
        for part, held in splitter.rest():
            _data(made, sink, part, checksums, held.num_rows)
            if facts is not None:
                facts.add(held)
    return made


def _data(
    made: Copied, sink: Callable[[bytes | memoryview], None], page: Page, checksums: bool, rows: int
) -> None:
    made.offsets.append(made.length)
    made.rows.append(rows)
    _write(made, sink, page, checksums)
    made.sizes.append(made.length - made.offsets[-1])


def _write(
    made: Copied, sink: Callable[[bytes | memoryview], None], page: Page, checksums: bool
) -> None:
    header: bytes | memoryview = page.header_bytes
    if checksums and page.crc is None:
        header = _with_checksum(page)
        made.checksums_added += 1
    sink(header)
    sink(page.body)
    made.length += len(header) + len(page.body)
    made.uncompressed += len(header) + page.uncompressed_page_size
    made.pages += 1
    key = (int(page.type), page.encoding)
    made.encodings[key] = made.encodings.get(key, 0) + 1


def _with_checksum(page: Page) -> bytes:
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
    if delta < 2:  # the next field's id is not told by a distance
        return replace(page.header, crc=signed).to_bytes()
    number = Writer()
    number.integer(signed)
    head = bytes((_I32,)) + bytes(number.out)
    return data[:at] + head + bytes((data[at] - 0x10,)) + data[at + 1 :]
