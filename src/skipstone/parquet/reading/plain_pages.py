"""Fetched pages as a splice wants them: held against what their chunk promised, in the clear.

A page of which the offset index says other rows than its own header, or another size, would put
values into wrong rows: that is a ``FormatError``. Encrypted pages are decrypted, and their headers
written anew for the body that they then have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.pages.page import read_page

from .chunk_pages import header_at, plain_header
from .splice_pages import Pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.pages.page import Page

    from .chunk_place import ChunkPlace
    from .page_places import PageTable

__all__ = ["plain_pages"]


def plain_pages(
    place: ChunkPlace,
    table: PageTable,
    entries: NDArray[np.int64],
    dictionary: memoryview,
    data: Sequence[memoryview],
    decryptor: ColumnDecryptor | None,
) -> Pages:
    """The dictionary (may be empty) and the ``data`` of these entries of a chunk's page table."""
    headers: list[Page] = []
    head: bytes | memoryview = b""
    if len(dictionary):
        page, part, _ = _page(dictionary, table.dictionary[0], decryptor, 0, first=True)
        # Writers may leave what they like before the first data page.
        if page.type == PageType.DICTIONARY_PAGE:
            head = part
            headers.append(page)
    total = 0
    clear: list[bytes | memoryview] = []
    for entry, held in zip(entries.tolist(), data, strict=True):
        values, parts, first = _entry(place, table, entry, held, decryptor, headers)
        if len(first):
            head = first
        total += values
        clear += parts
    return Pages(place.codec, total, head, clear, headers)


def _entry(
    place: ChunkPlace,
    table: PageTable,
    entry: int,
    held: memoryview,
    decryptor: ColumnDecryptor | None,
    headers: list[Page],
) -> tuple[int, list[bytes | memoryview], bytes | memoryview]:
    """Values and data pages of one entry; of one that is a whole chunk its dictionary, too."""
    base, ordinal = int(table.offset[entry]), int(table.ordinal[entry])
    at = total = 0
    parts: list[bytes | memoryview] = []
    head: bytes | memoryview = b""
    values = None if table.values is None else int(table.values[entry])
    while at < len(held) and not (table.whole and parts and total == values):
        first = table.whole and not at
        page, part, size = _page(held[at:], base + at, decryptor, ordinal, first=first)
        at += size
        if page.is_data:
            ordinal += 1
            total += page.num_values
            parts.append(part)
            headers.append(page)
        elif first and page.type == PageType.DICTIONARY_PAGE:
            headers.append(page)
            head = part
    if not parts or (values is not None and total != values):
        raise FormatError(
            "a page holds other values than the index of its chunk says",
            file=place.path,
            offset=base,
            expected=values,
            got=total,
        )
    return total, parts, head


def _page(
    held: memoryview,
    offset: int,
    decryptor: ColumnDecryptor | None,
    ordinal: int,
    *,
    first: bool,
) -> tuple[Page, bytes | memoryview, int]:
    """The page at the start of ``held``, its bytes in the clear, and its size on disk."""
    if decryptor is None:
        page = read_page(held, base=offset, ordinal=ordinal)
        size = page.header_length + page.compressed_page_size
        return page, held[:size], size
    header, length = header_at(held, offset, decryptor, ordinal, first)
    size = length + header.compressed_page_size
    if header.compressed_page_size < 0 or size > len(held):
        raise FormatError("a page ends beyond its place", offset=offset, expected=len(held))
    body = decryptor.decrypt_page(header, held[length:size], ordinal, base=offset + length)
    part = plain_header(header, len(body)) + body
    return read_page(part, base=offset, ordinal=ordinal), part, size
