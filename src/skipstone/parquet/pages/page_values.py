"""One page to levels and values.

    v1   decompress(body)  ->  levels, values
    v2   levels, decompress(rest)  ->  values        unless ``is_compressed`` is false

The number of values stored is the number of entries whose definition level is the highest. A header
declares how long the body is when decompressed; nothing longer is ever made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import (
    FormatError,
    UnsupportedError,
)
from skipstone.parquet.encodings import decode_values
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.encodings.dictionary import decode_indices
from skipstone.parquet.encodings.levels import (
    levels_v1,
    levels_v2,
)
from skipstone.parquet.format.enums import (
    Encoding,
    PageType,
)

from .column_values import (
    LeafColumn,
    Run,
    concat,
    no_values,
)
from .page import walk_pages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.parquet.encodings.values import Values
    from skipstone.parquet.format.metadata import ColumnMetaData
    from skipstone.parquet.format.schema import Leaf

    from .page import (
        Page,
        PageDecryptor,
    )

__all__ = [
    "MOST_VALUES",
    "decode_chunk",
    "decode_data_page",
    "decode_dictionary_page",
    "decode_pages",
]

# A page of a few bytes may stand for any number of equal values. More than these, for so few bytes,
# only hostile files have: writers end pages at 20,000 rows, and in old times at 64 Mi.
MOST_VALUES = 1 << 27
_MOST_PER_BYTE = 1 << 10


def check_num_values(num_values: int, size: int) -> None:
    """UnsupportedError for more values than ``size`` bytes should be trusted to stand for."""
    most = MOST_VALUES + _MOST_PER_BYTE * size
    if num_values > most:
        raise UnsupportedError(f"{num_values} values in {size} bytes: at most {most} are read")


def decode_dictionary_page(page: Page, leaf: Leaf, codec: int, body: memoryview) -> Values:
    """The dictionary's values; ``body`` is the page's body, decrypted if it was encrypted."""
    if page.encoding not in (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY):
        raise UnsupportedError(f"a dictionary page of encoding {page.encoding}")
    data = _decompressed(codec, body, page.uncompressed_page_size)
    if not page.num_values:
        return no_values(leaf)
    return decode_values(Encoding.PLAIN, data, page.num_values, leaf.type, leaf.type_length)


def decode_data_page(
    page: Page, leaf: Leaf, codec: int, dictionary: Values | None, body: memoryview
) -> LeafColumn:
    """The entries of a data page; dictionary indices are kept as such.

    ``body`` is the page's body, decrypted if it was encrypted. FormatError where the page is
    damaged, UnsupportedError for codecs and encodings that are not read.
    """
    check_num_values(page.num_values, len(body))
    if page.type == PageType.DATA_PAGE_V2:
        repetition, definition, at = levels_v2(page, body, leaf)
        size = page.uncompressed_page_size - at
        if size < 0:
            raise FormatError(
                "levels longer than their page", expected=page.uncompressed_page_size, got=at
            )
        data = body[at:]
        # A writer may compress nothing to nothing, whatever its codec makes of it.
        data = _decompressed(codec if page.is_compressed else 0, data, size) if size else data[:0]
    else:
        data = _decompressed(codec, body, page.uncompressed_page_size)
        repetition, definition, at = levels_v1(page, data, leaf)
        data = data[at:]
    count = page.num_values
    if definition is not None:
        count = int((definition == leaf.max_definition_level).sum())
    return LeafColumn(
        leaf=leaf,
        num_entries=page.num_values,
        definition_levels=definition,
        repetition_levels=repetition,
        runs=(_values(page, leaf, dictionary, data, count),) if count else (),
    )


def _decompressed(codec: int, body: memoryview, size: int) -> memoryview:
    if not size:
        return body[:0]
    return decompress(codec, body, size)


def _values(page: Page, leaf: Leaf, dictionary: Values | None, data: memoryview, count: int) -> Run:
    if page.encoding not in (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY):
        return Run(decode_values(page.encoding, data, count, leaf.type, leaf.type_length))
    if dictionary is None:
        raise FormatError("a dictionary-encoded page, but no dictionary before it")
    indices = decode_indices(data, count)
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= len(dictionary):
        raise FormatError(
            "an index outside the dictionary",
            expected=f"0 to {len(dictionary) - 1}",
            got=low if low < 0 else high,
        )
    return Run(dictionary, indices)


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
