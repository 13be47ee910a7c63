"""The pages of a column chunk, found by walking from header to header.

    chunk   [dictionary page]  data page*            index pages and unknown ones may lie between
    page    PageHeader (Thrift)  body                body: ``compressed_page_size`` bytes as stored

In an encrypted column both are modules: ``u32 length, nonce, ciphertext, tag``. There the header's
``compressed_page_size`` is that of the whole module. Source: README.md and Encryption.md of
parquet-format.

A walk reads no more of a header than it needs (a few microseconds); ``Page.header`` reads it whole.
Some writers store wrong ends of chunks: see ``chunk_range``.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.footer import MAGIC
from skipstone.parquet.format.metadata import (
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    PageHeader,
)
from skipstone.parquet.thrift.compact import Reader
from skipstone.parquet.thrift.structs import field_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.format.metadata import ColumnMetaData
    from skipstone.parquet.thrift.structs import Declared


# parquet-mr before 1.2.9, and a parquet-mr without a version, left the dictionary page's header
# out of total_compressed_size (PARQUET-816).
_WITHOUT_HEADER = re.compile(
    r"parquet-mr(?! version)|parquet-mr version 1\.([01]\.|2\.[0-8](?!\d))"
)
_HEADER_ALLOWANCE = 100


class Page(NamedTuple):
    """One page: what its header says, and its ``body`` as stored (compressed, encrypted).

    ``offset`` is where the header begins, in the file if the walk got its base, and
    ``header_length`` how many bytes it takes there. ``ordinal`` counts the data pages of the chunk,
    -1 for other pages. Fields that a page of this type does not have are 0; ``crc`` is ``None``.
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


def chunk_range(
    meta: ColumnMetaData, *, file_size: int, created_by: str | None = None
) -> tuple[int, int]:
    """First byte of a chunk and the byte after it; FormatError where that is not part of the file.

    ``dictionary_page_offset`` counts only where it is positive and before the data pages: writers
    set 0, or leave it out and let ``data_page_offset`` point at the dictionary.
    """
    start, length = meta.data_page_offset, meta.total_compressed_size
    dictionary = meta.dictionary_page_offset
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
    if created_by is not None and _WITHOUT_HEADER.match(created_by):
        stop = min(stop + _HEADER_ALLOWANCE, file_size)
    return start, stop


def walk_pages(
    data: bytes | memoryview,
    *,
    base: int = 0,
    num_values: int | None = None,
    decryptor: ColumnDecryptor | None = None,
) -> Iterator[Page]:
    """The pages in ``data``, which begins with a page header at byte ``base`` of the file.

    The walk ends when the data pages seen hold ``num_values`` values (what follows in the chunk is
    ignored), or without it at the end of ``data``. FormatError where a header is damaged or a page
    ends beyond ``data``.
    """
    at, ordinal, left = 0, 0, num_values
    while at < len(data) and (left is None or left > 0):
        page = read_page(
            data,
            at,
            base=base,
            ordinal=ordinal,
            decryptor=decryptor,
            may_be_dictionary=not at,
        )
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
    view = memoryview(data)
    offset = base + at
    if decryptor is None:
        found = _quick(data, at)
        if found is None:
            reader = Reader(data, at, base=base)
            found = _fields(PageHeader.read(reader)), reader.at
        values, stop = found
        header_bytes: memoryview | bytes = view[at:stop]
    else:
        header_bytes, stop, _ = decryptor.decrypt_page_header(
            data, at, ordinal, may_be_dictionary=may_be_dictionary, base=base
        )
        values = _fields(PageHeader.from_bytes(header_bytes, base=offset))
    size = values["compressed_page_size"]
    for name in ("compressed_page_size", "uncompressed_page_size", "num_values"):
        if values.get(name, 0) < 0:
            raise FormatError(
                f"{name} of a page", offset=offset, expected="at least 0", got=values[name]
            )
    if size > len(data) - stop:
        raise FormatError(
            "a page ends beyond its chunk",
            offset=offset,
            expected=f"at most {len(data) - stop} bytes",
            got=size,
        )
    del values["compressed_page_size"]
    page = Page(
        ordinal=ordinal,
        offset=offset,
        header_length=stop - at,
        header_bytes=header_bytes,
        body=view[stop : stop + size],
        **values,
    )
    return page if page.is_data else page._replace(ordinal=-1)


_Values = dict[str, Any]

# Field ids. The fast parser reads only these fields, which are integers, and ``is_compressed``.
_NO_INTEGERS = ("statistics", "is_sorted", "is_compressed")


def _integers(kind: type[Declared]) -> dict[int, str]:
    return {id: name for name, id in field_ids(kind).items() if name not in _NO_INTEGERS}


_IDS = field_ids(PageHeader)
_CRC = _IDS["crc"]
_V1 = _IDS["data_page_header"]
_DICTIONARY = _IDS["dictionary_page_header"]
_V2 = _IDS["data_page_header_v2"]
_IS_COMPRESSED = field_ids(DataPageHeaderV2)["is_compressed"]
_TOP = {id: name for name, id in _IDS.items() if id <= _CRC}
_KINDS = {
    _V1: _integers(DataPageHeader),
    _DICTIONARY: _integers(DictionaryPageHeader),
    _V2: _integers(DataPageHeaderV2),
}
_KIND_OF_TYPE = {
    PageType.DATA_PAGE: _V1,
    PageType.DICTIONARY_PAGE: _DICTIONARY,
    PageType.DATA_PAGE_V2: _V2,
}
_TYPES = {int(member): member for member in PageType}


def _quick(data: bytes | memoryview, at: int) -> tuple[_Values, int] | None:
    """The header at ``data[at:]`` if it has the usual form; ``None`` otherwise."""
    try:
        top, stop = _scan(data, at, 0)
    except (IndexError, _OddError):
        return None
    values: _Values = {}
    for id, name in _TOP.items():
        value = top.get(id)
        if type(value) is int:
            values[name] = value
        elif id != _CRC or value is not None:
            return None
    kind = values["type"]
    values["type"] = _TYPES.get(kind, kind)
    wanted = _KIND_OF_TYPE.get(kind)
    if wanted is not None:
        inner = top.get(wanted)
        if type(inner) is not dict:
            return None
        for id, name in _KINDS[wanted].items():
            value = inner.get(id)
            # Not a boolean, which is an integer to Python but another type to Thrift.
            if type(value) is not int:
                return None
            values[name] = value
        if wanted == _V2:
            values["is_compressed"] = inner.get(_IS_COMPRESSED) is not False
    return values, stop


class _OddError(Exception):
    pass


def _scan(data: bytes | memoryview, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Integers and structs by field id; byte strings are skipped."""
    found: dict[int, Any] = {}
    id = 0
    while True:
        head = data[at]
        at += 1
        if not head:
            return found, at
        delta, kind = head >> 4, head & 15
        if not delta:
            raise _OddError
        id += delta
        if 4 <= kind <= 6 or kind == 8:
            byte = data[at]
            at += 1
            value = byte & 127
            shift = 7
            while byte > 127:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if shift > 63:
                    raise _OddError
            if kind == 8:
                at += value
            elif depth < 2 and (kind != 5 or value >> 32):
                raise _OddError
            else:
                found[id] = (value >> 1) ^ -(value & 1)
        elif kind == 12 and depth < 4:
            found[id], at = _scan(data, at, depth + 1)
        elif kind <= 2:
            found[id] = kind == 1
        else:
            raise _OddError


def _fields(header: PageHeader) -> _Values:
    values: _Values = {name: getattr(header, name) for name in _TOP.values()}
    inner: DataPageHeader | DictionaryPageHeader | DataPageHeaderV2 | None
    match header.type:
        case PageType.DATA_PAGE:
            kind, inner = _V1, header.data_page_header
        case PageType.DICTIONARY_PAGE:
            kind, inner = _DICTIONARY, header.dictionary_page_header
        case PageType.DATA_PAGE_V2:
            kind, inner = _V2, header.data_page_header_v2
        case _:
            return values
    if inner is None:
        raise FormatError("a page without the header of its type", got=int(header.type))
    values.update((name, int(getattr(inner, name))) for name in _KINDS[kind].values())
    if isinstance(inner, DataPageHeaderV2):
        values["is_compressed"] = inner.is_compressed is not False
    return values
