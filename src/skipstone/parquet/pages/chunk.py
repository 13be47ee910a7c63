"""A whole column chunk: its pages to the levels and values of one leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import PageType

from .column_values import LeafColumn, concat
from .page import walk_pages
from .page_values import check_num_values, decode_data_page, decode_dictionary_page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.parquet.encodings.values import Values
    from skipstone.parquet.format.metadata import ColumnMetaData
    from skipstone.parquet.format.schema import Leaf

    from .page import Page, PageDecryptor

__all__ = ["decode_chunk", "decode_pages"]


def decode_chunk(
    data: bytes | memoryview,
    meta: ColumnMetaData,
    leaf: Leaf,
    *,
    base: int = 0,
    decryptor: PageDecryptor | None = None,
    verify_crc: bool = False,
) -> LeafColumn:
    """All entries of a chunk whose bytes (``page.chunk_range``) are ``data``, at byte ``base``.

    FormatError where pages are damaged, or hold another number of values than ``meta`` says; with
    ``verify_crc`` also where a checksum is wrong.
    """
    if meta.type != leaf.type:
        raise FormatError(
            f"type of a chunk of column {leaf.name}", offset=base, expected=leaf.type, got=meta.type
        )
    if meta.num_values < 0:
        raise FormatError(
            f"num_values of a chunk of column {leaf.name}", offset=base, got=meta.num_values
        )
    check_num_values(meta.num_values, len(data))
    pages = walk_pages(data, base=base, num_values=meta.num_values, decryptor=decryptor)
    column = decode_pages(pages, leaf, meta.codec, decryptor=decryptor, verify_crc=verify_crc)
    if column.num_entries != meta.num_values:
        raise FormatError(
            f"values in the pages of column {leaf.name}",
            offset=base,
            expected=meta.num_values,
            got=column.num_entries,
        )
    return column


def decode_pages(
    pages: Iterable[Page],
    leaf: Leaf,
    codec: int,
    *,
    dictionary: Values | None = None,
    decryptor: PageDecryptor | None = None,
    verify_crc: bool = False,
) -> LeafColumn:
    """The entries of these pages together; pages that are neither data nor dictionary hold none.

    ``dictionary`` is one that was read before; a dictionary page takes its place. Errors say the
    offset of the page.
    """
    parts: list[LeafColumn] = []
    for page in pages:
        is_dictionary = page.type == PageType.DICTIONARY_PAGE
        if not is_dictionary and not page.is_data:
            continue
        if verify_crc:
            page.verify_crc()
        try:
            body = page.decrypted(decryptor)
            if is_dictionary:
                dictionary = decode_dictionary_page(page, leaf, codec, body)
            else:
                parts.append(decode_data_page(page, leaf, codec, dictionary, body))
        except FormatError as error:
            raise _at(error, page, leaf) from error
    return concat(leaf, parts)


def _at(error: FormatError, page: Page, leaf: Leaf) -> FormatError:
    # What is inside a page has no offset in the file once the page is decompressed.
    where = f"page of column {leaf.name}"
    if error.offset is not None:
        where += f", byte {error.offset} of its content"
    message = error.message.removeprefix(f"at byte {error.offset}: ")
    return FormatError(f"{where}: {message}", offset=page.offset, hint=error.hint)
