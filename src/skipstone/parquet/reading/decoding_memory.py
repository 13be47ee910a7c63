"""How much memory the decoding of pages takes, known before anything is decoded.

A few bytes of a page may represent any number of values: a run is one value and a count, and an
index of a few bits is a whole string of the dictionary. So the limit is checked against the claims
of page headers:

    certain   values × width, and levels; for strings their offsets or indices
    most      certain, and the most that the bytes of strings can take:
              PLAIN, DELTA_LENGTH_BYTE_ARRAY   the decompressed size of the page
              DELTA_BYTE_ARRAY                 values × decompressed size of the page
              dictionary                       values × decompressed size of the dictionary

Columns whose pages are ``certain`` to take more than the limit are refused. Where only ``most`` is
above it, the strings are counted exactly, by their indices, before any of them is copied.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import numbers, validity
from skipstone.errors import FormatError
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.format.enums import (
    PLAIN_WIDTHS,
    CompressionCodec,
    Encoding,
    FieldRepetitionType,
    PageType,
    Type,
)
from skipstone.parquet.format.metadata import DataPageHeader, PageHeader, SchemaElement
from skipstone.parquet.format.schema import ColumnDescriptor, Schema
from skipstone.parquet.pages.page_headers import INDICES

from .splice_pages import Pages, SplicedGroup, Template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.pages.page import Page

    from .chunk_pages import ChunkKey, ChunkPages


#: The limits unless the user sets one: bytes that are decoded together, or decoded bytes per stored
#: byte if that is more, so that large row groups are read.
DEFAULT_MEMORY: Final = 2 << 30
_PER_BYTE: Final = 32

#: Bytes of a decoded value; those of the others are the ``type_length`` of the column.
WIDTHS: Final = PLAIN_WIDTHS | {Type.INT96: 8}
_INDEX: Final = 4
# An entry of a nested column takes two levels, offsets of lists, and where it begins.
_NESTED: Final = 24
_REPEATS: Final = 4
_LENGTH: Final = 4
# Arrow's arrays of strings have 32-bit offsets.
_MOST_IN_ARRAY: Final = 1 << 30
# Up to this bound of its bytes, the lengths of the strings of a column do not matter.
_CHEAP: Final = 1 << 24


def limit_of(memory: int | None, stored: int) -> int:
    """The limit for ``stored`` bytes of pages; ``memory`` is the user's, ``None`` the default."""
    return max(DEFAULT_MEMORY, _PER_BYTE * stored) if memory is None else memory


class Claim(NamedTuple):
    """The memory that pages of one leaf take, in bytes; see the module.

    ``indexed``: strings, and every page is encoded by the dictionary. ``repeats``: values repeat so
    often that Arrow is faster with indices first, although it hashes the whole dictionary for
    these. ``entries`` are those of the dictionary.
    """

    certain: int
    most: int
    indexed: bool
    repeats: bool
    entries: int


def claim_of(leaf: ColumnDescriptor, pages: Iterable[Page], longest: int | None = None) -> Claim:
    """The claim of these pages of one chunk, the dictionary page first; its longest string has
    ``longest`` bytes, if that is known."""
    strings = leaf.type is Type.BYTE_ARRAY
    width = _INDEX if strings else WIDTHS.get(leaf.type, leaf.type_length or 0)
    values = content = largest = dictionary = entries = 0
    indexed = strings
    for page in pages:
        size = page.uncompressed_page_size
        largest = max(largest, size)
        if page.type == PageType.DICTIONARY_PAGE:
            dictionary, entries = size if longest is None else longest, page.num_values
        elif page.is_data:
            values += page.num_values
            if page.encoding in INDICES:
                content += page.num_values * dictionary
                continue
            indexed = False
            content += (
                size * page.num_values if page.encoding == Encoding.DELTA_BYTE_ARRAY else size
            )
    certain = values * width + values // 8 + largest
    if leaf.max_repetition_level:
        certain += _NESTED * values
    indexed = indexed and bool(values)
    repeats = indexed and values >= _REPEATS * entries
    return Claim(certain, certain + content * strings, indexed, repeats, entries)


def longest_string(chunks: ChunkPages, key: ChunkKey, codec: int, pages: Iterable[Page]) -> int:
    """The bytes of the longest string of a chunk's dictionary, which is among ``pages``; 0 without
    one. ``FormatError`` where it does not decode."""
    for page in pages:
        if page.type == PageType.DICTIONARY_PAGE and page.num_values:
            if key not in chunks.longest:
                body = decompress(codec, page.body, page.uncompressed_page_size)
                found = _longest(np.frombuffer(body, np.uint8), page.num_values)
                chunks.longest[key] = found
            return chunks.longest[key]
    return 0


def _longest(data: NDArray[np.uint8], count: int) -> int:
    size = len(data) // count
    if size >= _LENGTH and size * count == len(data):
        lengths = np.ascontiguousarray(data.reshape(count, size)[:, :_LENGTH]).view("<u4")
        if (lengths == size - _LENGTH).all():
            return size - _LENGTH
    header = dictionary_as_data(count, len(data), len(data))
    alone = Pages(CompressionCodec.UNCOMPRESSED, count, b"", [header.to_bytes() + data.tobytes()])
    table = _strings().decode([SplicedGroup(count, [alone])])
    return pc.max(pc.binary_length(table.column(0))).as_py() or 0


def dictionary_as_data(
    count: int, uncompressed: int, compressed: int, crc: int | None = None
) -> PageHeader:
    """The header with which Arrow decodes the body of a dictionary page as required values."""
    return PageHeader(
        type=PageType.DATA_PAGE,
        uncompressed_page_size=uncompressed,
        compressed_page_size=compressed,
        crc=crc,
        data_page_header=DataPageHeader(
            num_values=count,
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )


@cache
def _strings() -> Template:
    root = SchemaElement(name="schema", num_children=1)
    leaf = SchemaElement(
        name="v", type=Type.BYTE_ARRAY, repetition_type=FieldRepetitionType.REQUIRED
    )
    return Template(Schema.of([root, leaf]).leaves, None, None)


def is_string(type: pa.DataType) -> bool:
    """Whether Arrow gives strings of this type from a dictionary of them."""
    return type in _STRINGS


_STRINGS = {
    pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view(),
    pa.binary_view(),
}  # fmt: skip


def check_indices(column: pa.ChunkedArray, entries: Sequence[int]) -> None:
    """``FormatError`` where the indices of Arrow's dictionaries do not stand for the file's values.

    Arrow does not check indices against the dictionary. Of equal entries it keeps one (as of 26)
    without changing the indices, which then name other values. ``entries`` are the sizes of the
    dictionaries of the row groups, as the pages state them.
    """
    apart = len(entries) == column.num_chunks
    for at, chunk in enumerate(column.chunks):
        places = numbers(chunk.indices)
        if chunk.null_count:
            places = places[validity(chunk.indices)]
        if not len(places):
            continue
        least, most, kept = int(places.min()), int(places.max()), len(chunk.dictionary)
        if kept not in (entries[at : at + 1] if apart else entries):
            raise FormatError("a dictionary with equal entries", expected=entries, got=kept)
        if least < 0 or most >= kept:
            raise FormatError(
                "an index outside the dictionary",
                expected=f"0 to {kept - 1}",
                got=least if least < 0 else most,
            )


def bytes_of_strings(column: pa.ChunkedArray, enough: int = -1) -> int:
    """The bytes of all strings of a dictionary-encoded column, repeated ones each time; an upper
    bound if that is at most ``enough``."""
    total = 0
    for chunk in column.chunks:
        most = _most(chunk)
        total += most if total + most <= enough else int(_lengths(chunk).sum())
    return total


def _most(chunk: pa.DictionaryArray) -> int:
    """An upper bound of the bytes of its strings."""
    offsets = _offsets(chunk.dictionary)
    entries = len(offsets) - 1
    if not entries or not len(chunk):
        return 0
    content = int(offsets[-1] - offsets[0])
    if content * len(chunk) <= _CHEAP:
        return content * len(chunk)
    return int(np.diff(offsets).max()) * len(chunk)


def _offsets(strings: pa.Array) -> NDArray[np.int32]:
    buffer = strings.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32)[strings.offset : strings.offset + len(strings) + 1]


def _lengths(chunk: pa.DictionaryArray) -> NDArray[np.int64]:
    """The bytes of each value, 0 of nulls."""
    offsets = _offsets(chunk.dictionary).astype(np.int64)
    places = chunk.indices
    found = np.diff(offsets, append=offsets[-1])[numbers(places, len(offsets) - 1)]
    return np.asarray(found, np.int64)


def without_dictionary(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """The strings of a dictionary-encoded column, as ``type``."""
    made = [
        pc.take(each.dictionary, each.indices) for chunk in column.chunks for each in _split(chunk)
    ]
    if type != column.type.value_type:
        made = [pc.cast(each, type) for each in made]
    return pa.chunked_array(made, type)


def _split(chunk: pa.DictionaryArray) -> Iterator[pa.DictionaryArray]:
    """The chunk in parts whose strings fit into an array of 32-bit offsets."""
    if _most(chunk) <= _MOST_IN_ARRAY:
        yield chunk
        return
    ends = np.cumsum(_lengths(chunk))
    start = before = 0
    while start < len(chunk):
        stop = max(int(np.searchsorted(ends, before + _MOST_IN_ARRAY, side="right")), start + 1)
        yield chunk.slice(start, stop - start)
        start, before = stop, int(ends[stop - 1])
