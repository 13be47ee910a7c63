"""The pages of a column chunk, found by walking from header to header.

    chunk   [dictionary page]  data page*            index pages and unknown ones may lie between
    page    PageHeader (Thrift)  body                body: ``compressed_page_size`` bytes as stored

In an encrypted column both are modules: ``u32 length, nonce, ciphertext, tag``. There the header's
``compressed_page_size`` is that of the whole module. Source: README.md and Encryption.md of
parquet-format.

A walk reads no more of a header than it needs (``page_headers``, a few microseconds);
``Page.header`` reads it whole.
Some writers store wrong ends of chunks: see ``chunk_range``.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.footer import MAGIC
from skipstone.parquet.format.metadata import ColumnMetaData, PageHeader
from skipstone.parquet.thrift.compact import Reader

from .page_headers import (
    BLANK,
    COMPRESSED,
    CRC,
    DATA_PAGES,
    HAS_CRC,
    HEADER_LENGTH,
    IS_COMPRESSED,
    NUM_VALUES,
    OFFSET,
    STACK,
    TYPE,
    UNCOMPRESSED,
    header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor


# parquet-mr before 1.2.9, and a parquet-mr without a version, left the dictionary page's header
# out of total_compressed_size (PARQUET-816).
_WITHOUT_HEADER = re.compile(
    r"parquet-mr(?! version)|parquet-mr version 1\.([01]\.|2\.[0-8](?!\d))"
)
_HEADER_ALLOWANCE = 100


class Page(NamedTuple):
    """One page: the fields of its header, and its ``body`` as stored (compressed, encrypted).

    ``offset`` is where the header begins, in the file if the walk got its base. ``header_length``
    is its length there, as a module if the column is encrypted. ``ordinal`` counts the data pages
    of the chunk; other pages have -1. Fields that a page of this type lacks are 0; ``crc`` is
    ``None``.
    """

    type: PageType | int
    ordinal: int
    offset: int
    header_length: int
    header_bytes: memoryview | bytes
    body: memoryview
    uncompressed_page_size: int
    crc: int | None = None
    num_values: int = 0
    encoding: int = 0
    definition_level_encoding: int = 0
    repetition_level_encoding: int = 0
    num_nulls: int = 0
    num_rows: int = 0
    definition_levels_byte_length: int = 0
    repetition_levels_byte_length: int = 0
    is_compressed: bool = True

    @property
    def header(self) -> PageHeader:
        """The whole header."""
        return PageHeader.from_bytes(self.header_bytes, base=self.offset)

    @property
    def is_data(self) -> bool:
        """True for data pages of both versions."""
        return self.type in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)

    @property
    def body_offset(self) -> int:
        """Where the body begins."""
        return self.offset + self.header_length

    @property
    def compressed_page_size(self) -> int:
        """Bytes of the body as stored."""
        return len(self.body)

    @property
    def stop(self) -> int:
        """Where the next page begins."""
        return self.offset + self.header_length + len(self.body)

    def decrypted(self, decryptor: ColumnDecryptor | None) -> memoryview:
        """The body as it was before encryption; the one stored without a ``decryptor``."""
        if decryptor is None:
            return self.body
        ordinal = self.ordinal if self.is_data else None
        plain = decryptor.decrypt_page(self.header, self.body, ordinal, base=self.body_offset)
        return memoryview(plain)

    def crc_matches(self) -> bool | None:
        """Whether the body has the checksum that the header states; ``None`` if it states none."""
        if self.crc is None:
            return None
        return zlib.crc32(self.body) == self.crc & 0xFFFFFFFF

    def verify_crc(self) -> None:
        """FormatError if the body has another checksum than the header states."""
        check_crc(self.body, self.crc, self.body_offset)


def page_checksum(body: bytes | memoryview) -> int:
    """The CRC-32 of a page's body, as the signed 32 bits of its field."""
    value = zlib.crc32(body)
    return value - (1 << 32) if value >> 31 else value


def check_crc(body: bytes | memoryview, crc: int | None, offset: int) -> None:
    """FormatError if the ``body`` at ``offset`` has another checksum than ``crc``, if any."""
    if crc is not None and (found := zlib.crc32(body)) != crc & 0xFFFFFFFF:
        raise FormatError(
            "checksum of a page",
            offset=offset,
            expected=f"{crc & 0xFFFFFFFF:#010x}",
            got=f"{found:#010x}",
            hint="the bytes are not those that were written: take the file from a copy, or read "
            "them as they are with verify_checksums=False",
        )


def dictionaries_lack_headers(created_by: str | None) -> bool:
    """Whether this writer may have left the header of a dictionary out of the size of its chunk."""
    return created_by is not None and _WITHOUT_HEADER.match(created_by) is not None


def chunk_range(
    meta: ColumnMetaData, *, file_size: int, created_by: str | None = None
) -> tuple[int, int]:
    """First byte of a chunk and the byte after it; FormatError where that is not part of the file.

    ``dictionary_page_offset`` counts only where it is positive and before the data pages: writers
    set 0, or leave it out and let ``data_page_offset`` point at the dictionary.
    """
    return chunk_range_at(
        meta.data_page_offset,
        meta.dictionary_page_offset,
        meta.total_compressed_size,
        file_size=file_size,
        created_by=created_by,
    )


def chunk_range_at(
    start: int, dictionary: int | None, length: int, *, file_size: int, created_by: str | None
) -> tuple[int, int]:
    """``chunk_range`` of ``data_page_offset``, ``dictionary_page_offset`` and total length."""
    # A data_page_offset within the magic is of a chunk that has no data pages.
    if dictionary is not None and dictionary > 0 and (dictionary < start or start < len(MAGIC)):
        start = dictionary
    if start < 0 or length < 0 or start + length > file_size:
        raise FormatError(
            "a column chunk outside the file",
            offset=max(start, 0),
            expected=f"at most {file_size} bytes",
            got=start + length if length >= 0 else length,
        )
    stop = start + length
    if dictionaries_lack_headers(created_by):
        stop = min(stop + _HEADER_ALLOWANCE, file_size)
    return start, stop


def walk_pages(
    data: bytes | memoryview,
    *,
    base: int = 0,
    num_values: int | None = None,
) -> Iterator[Page]:
    """The pages in ``data``, which is not encrypted, and begins at byte ``base`` of the file.

    The walk ends when the data pages seen hold ``num_values`` values (what follows in the chunk is
    ignored), or without it at the end of ``data``. FormatError where a header is damaged or a page
    ends beyond ``data``.
    """
    at, ordinal, left = 0, 0, num_values
    while at < len(data) and (left is None or left > 0):
        page = read_page(data, at, base=base, ordinal=ordinal)
        if page.is_data:
            ordinal += 1
            if left is not None:
                left -= page.num_values
        yield page
        at = page.stop - base


def read_page(
    data: bytes | memoryview,
    at: int = 0,
    *,
    base: int = 0,
    ordinal: int = 0,
    decryptor: ColumnDecryptor | None = None,
    may_be_dictionary: bool = False,
) -> Page:
    """The page at ``data[at:]``; ``ordinal`` is its number if it turns out to be a data page.

    ``may_be_dictionary`` is for encrypted columns, whose dictionary pages have an AAD of their own.
    """
    view, offset = memoryview(data), base + at
    header_bytes: memoryview | bytes
    if decryptor is None:
        row = list(BLANK)
        stop = header(data, at, len(data), row, [0] * STACK)
        if stop >= 0:
            return _usual_page(row, offset, view[at:stop], view[stop:], ordinal)
        reader = Reader(data, at, base=base)
        found, stop = PageHeader.read(reader), reader.at
        header_bytes = view[at:stop]
    else:
        header_bytes, stop, _ = decryptor.decrypt_page_header(
            data, at, ordinal, may_be_dictionary=may_be_dictionary, base=base
        )
        found = PageHeader.from_bytes(header_bytes, base=offset)
    inner: object = None
    if found.type in _INNER:
        inner = getattr(found, _INNER[found.type])
        if inner is None:
            raise FormatError("a page without the header of its type", got=int(found.type))
    size = found.compressed_page_size
    values = {name: int(getattr(inner, name, 0)) for name in _VALUES}
    _check_sizes(found, values["num_values"], offset, len(data) - stop)
    return Page(
        type=found.type,
        ordinal=ordinal if found.type in DATA_PAGES else -1,
        offset=offset,
        header_length=stop - at,
        header_bytes=header_bytes,
        body=view[stop : stop + size],
        uncompressed_page_size=found.uncompressed_page_size,
        crc=found.crc,
        **values,
        is_compressed=getattr(inner, "is_compressed", None) is not False,
    )


def usual_pages(rows: NDArray[np.int64], view: memoryview, base: int, ordinal: int) -> list[Page]:
    """The pages whose headers have these integers (``page_headers``), with places in ``view``;
    ``ordinal`` is the number of the first data page."""
    made: list[Page] = []
    for row in rows.tolist():
        at = row[OFFSET]
        stop = at + row[HEADER_LENGTH]
        page = _usual_page(row, base + at, view[at:stop], view[stop:], ordinal)
        ordinal += page.is_data
        made.append(page)
    return made


def _usual_page(
    row: Sequence[int], offset: int, header_bytes: memoryview, rest: memoryview, ordinal: int
) -> Page:
    """The page of a header by its integers (``page_headers``); ``rest`` begins with its body."""
    return Page._make(
        (
            _TYPES[row[TYPE]],
            ordinal if row[TYPE] in DATA_PAGES else -1,
            offset,
            len(header_bytes),
            header_bytes,
            rest[: row[COMPRESSED]],
            row[UNCOMPRESSED],
            row[CRC] if row[HAS_CRC] else None,
            *[each if each > 0 else 0 for each in row[NUM_VALUES:IS_COMPRESSED]],
            bool(row[IS_COMPRESSED]),
        )
    )


def _check_sizes(header: PageHeader, num_values: int, offset: int, room: int) -> None:
    for name, value in (
        ("compressed_page_size", header.compressed_page_size),
        ("uncompressed_page_size", header.uncompressed_page_size),
        ("num_values", num_values),
    ):
        if value < 0:
            raise FormatError(f"{name} of a page", offset=offset, expected="at least 0", got=value)
    if header.compressed_page_size > room:
        raise FormatError(
            "a page ends beyond its chunk",
            offset=offset,
            expected=f"at most {room} bytes",
            got=header.compressed_page_size,
        )


_TYPES: Final = tuple(PageType)
_INNER: Final[dict[int, str]] = {
    PageType.DATA_PAGE: "data_page_header",
    PageType.DICTIONARY_PAGE: "dictionary_page_header",
    PageType.DATA_PAGE_V2: "data_page_header_v2",
}
# The names of ``NUM_VALUES`` to ``REPETITION_LENGTH`` in a row of ``page_headers``, in order.
_VALUES: Final = Page._fields[Page._fields.index("num_values") : -1]
