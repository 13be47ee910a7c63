"""Page indexes, Bloom filters and the page table of single chunks, read when they are asked for.

Planning reads only the parts of them that a predicate needs (``parquet/evidence``). This is for
people and for checks, who want a whole one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from skipstone.errors import FormatError
from skipstone.parquet.arrow.page_table import PagesOf, pages
from skipstone.parquet.encryption.modules import ModuleType, module_length
from skipstone.parquet.format.bloom_filter import MAX_BYTES, BloomFilter, BloomFilterHeader
from skipstone.parquet.format.page_index import (
    ColumnIndex,
    ColumnIndexArrays,
    OffsetIndex,
    OffsetIndexArrays,
)
from skipstone.parquet.pages.page import read_page
from skipstone.parquet.thrift.compact import Reader
from skipstone.pruning import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from skipstone.parquet.pages.page import Page

    from .chunk_pages import ChunkKey, HeaderAt
    from .file_reader import FileReader


_Index = TypeVar("_Index", OffsetIndex, ColumnIndex)

# The header takes about 20 bytes; encrypted, about 60; parquet-java pads it to 100.
_HEADER = 256


# -- page indexes ----------------------------------------------------------------------------------


def read_offset_index(file: FileReader, key: ChunkKey) -> OffsetIndex | None:
    """The offset index of a chunk as a struct, ``None`` where it has none.

    This and the others raise ``FormatError`` and ``KeyUnavailableError``.
    """
    return _read_index(file, key, OffsetIndex, "offset_index", ModuleType.OFFSET_INDEX)


def read_column_index(file: FileReader, key: ChunkKey) -> ColumnIndex | None:
    """The column index of a chunk as a struct, ``None`` where it has none."""
    return _read_index(file, key, ColumnIndex, "column_index", ModuleType.COLUMN_INDEX)


def _read_index(
    file: FileReader, key: ChunkKey, kind: type[_Index], name: str, module: ModuleType
) -> _Index | None:
    offset = int(file.footer.chunk(f"{name}_offset")[key])
    length = int(file.footer.chunk(f"{name}_length")[key])
    if offset < 0 or length <= 0:
        return None
    place = file.chunk_pages.place(key)
    data: bytes | memoryview = file.reader.one(place.path, offset, length)
    decryptor = file.chunk_pages.column_decryptor(key)
    try:
        if decryptor is not None:
            data = decryptor.decrypt(module, data, base=offset)
        return kind.from_bytes(data, base=offset)
    except FormatError as error:
        raise error.in_file(place.path) from error


def offset_index(file: FileReader, key: ChunkKey) -> OffsetIndexArrays | None:
    """The offset index of a chunk as arrays, checked against the file; ``None`` without one."""
    if not _has_index(file, key, "offset_index"):
        return None
    if file.indexed.elsewhere(*key):  # the index lies where the chunk lies
        found = read_offset_index(file, key)
        return None if found is None else OffsetIndexArrays.from_bytes(found.to_bytes())
    _take_index(file, key, "offset_index")
    return _usable(file, file.indexed.offset_indexes[key])


def column_index(file: FileReader, key: ChunkKey) -> ColumnIndexArrays | None:
    """The column index of a chunk as arrays; ``None`` where it has none."""
    if not _has_index(file, key, "column_index"):
        return None
    if file.indexed.elsewhere(*key):
        found = read_column_index(file, key)
        return None if found is None else ColumnIndexArrays.from_bytes(found.to_bytes())
    _take_index(file, key, "column_index")
    return _usable(file, file.indexed.column_indexes[key])


def _has_index(file: FileReader, key: ChunkKey, kind: str) -> bool:
    if file.footer.chunk(f"{kind}_offset")[key] < 0:
        return False
    if key[1] in file.unavailable:
        raise file.unavailable[key[1]]
    file.chunk_pages.place(key)  # raises for a missing key
    return True


def _take_index(file: FileReader, key: ChunkKey, kind: str) -> None:
    need = file.indexed.take_index(kind, *key, {})
    if need is not None:
        file.indexed.take_index(kind, *key, file.reader.read((need,)))


_Arrays = TypeVar("_Arrays", OffsetIndexArrays, ColumnIndexArrays)


def _usable(file: FileReader, found: _Arrays | Reason) -> _Arrays:
    if isinstance(found, Reason):
        raise FormatError(f"{found.subject}: {found.text}", file=file.path)
    return found


# -- Bloom filters ---------------------------------------------------------------------------------


def bloom_filter_header(file: FileReader, key: ChunkKey) -> BloomFilterHeader | None:
    """The header of a chunk's filter, ``None`` where it has none."""
    found = _header(file, key)
    return None if found is None else found[0]


def read_bloom_filter(file: FileReader, key: ChunkKey) -> BloomFilter | None:
    """The whole filter of a chunk, ``None`` where it has none."""
    found = _header(file, key)
    if found is None:
        return None
    header, path, start = found
    if not 0 < header.numBytes <= MAX_BYTES:
        raise FormatError(
            "numBytes of a Bloom filter",
            file=path,
            offset=start,
            expected=f"at most {MAX_BYTES}",
            got=header.numBytes,
        )
    decryptor = file.chunk_pages.column_decryptor(key)
    try:
        if decryptor is None:
            bits: bytes | memoryview = file.reader.one(path, start, header.numBytes)
        else:
            length = decryptor.encrypted_length(header.numBytes, ModuleType.BLOOM_FILTER_BITSET)
            module = file.reader.one(path, start, length)
            bits = decryptor.decrypt(ModuleType.BLOOM_FILTER_BITSET, module, base=start)
        return BloomFilter.from_bitset(bits, base=start)
    except FormatError as error:
        raise error.in_file(path) from error


def _header(file: FileReader, key: ChunkKey) -> tuple[BloomFilterHeader, str, int] | None:
    """The header, the file that holds it, and where the bitset begins."""
    offset = int(file.footer.chunk("bloom_filter_offset")[key])
    if offset < 0:
        return None
    path = file.chunk_pages.place(key).path
    room = max(0, file.reader.size(path) - offset)
    data: bytes | memoryview = file.reader.one(path, offset, min(_HEADER, room))
    decryptor = file.chunk_pages.column_decryptor(key)
    try:
        if decryptor is None:
            reader = Reader(data, base=offset)
            return BloomFilterHeader.read(reader), path, offset + reader.at
        length = module_length(data, 0, base=offset)
        if length > len(data):
            data = file.reader.one(path, offset, min(length, room))
        plain = decryptor.decrypt(ModuleType.BLOOM_FILTER_HEADER, data[:length], base=offset)
        return BloomFilterHeader.from_bytes(plain, base=offset), path, offset + length
    except FormatError as error:
        raise error.in_file(path) from error


# -- all pages -------------------------------------------------------------------------------------


def page_table(file: FileReader, columns: Sequence[str] | None) -> pa.Table:
    """One row per page of these columns, from page headers, with bounds from the column indexes.

    Columns whose keys are missing are left out unless they are named.
    """
    return pages(_pages(file, columns))


def _pages(file: FileReader, columns: Sequence[str] | None) -> Iterator[PagesOf]:
    leaves = [leaf for field in file.selection.fields(columns) for leaf in field.shape.leaves]
    for row_group in range(file.num_row_groups):
        for leaf in leaves:
            if columns is None and leaf in file.unavailable:
                continue
            key = (row_group, leaf)
            walked = [_page(found) for found in file.chunk_pages.walk(key)]
            made = PagesOf.from_pages(row_group, file.footer.schema.leaves[leaf], walked)
            yield _with_index(file, key, made)


def _page(found: HeaderAt) -> Page:
    """The page of a header, with a body of zeros."""
    size = found.header.compressed_page_size
    plain = found.header.to_bytes() + bytes(size)
    page = read_page(plain, base=found.offset, ordinal=max(found.ordinal, 0))
    return page._replace(header_length=found.header_length)


def _with_index(file: FileReader, key: ChunkKey, made: PagesOf) -> PagesOf:
    """With rows, bounds and counts from the page index, for the pages that it has."""
    offsets, bounds = offset_index(file, key), column_index(file, key)
    if offsets is None:
        return made
    rows = int(file.footer.group("num_rows")[key[0]])
    known = PagesOf.from_index(key[0], made.leaf, rows, offsets, bounds)
    place = {offset: at for at, offset in enumerate(known.offset)}

    def spread(name: str, absent: Any) -> Any:
        values, mine = getattr(known, name), getattr(made, name)
        if values is None:
            return mine
        return [
            values[place[offset]] if offset in place else (absent if mine is None else mine[at])
            for at, offset in enumerate(made.offset)
        ]

    counts = ("first_row_index", "num_rows", "null_count", "nan_count")
    found: dict[str, Any] = {
        name: spread(name, -1) for name in (*counts, "unencoded_byte_array_data_bytes")
    }
    for name in ("null_page", "min_value", "max_value"):
        found[name] = spread(name, None)
    return replace(made, **found)
