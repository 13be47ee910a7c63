"""Column indexes, offset indexes and Bloom filters of single chunks, read when they are asked for.

Planning reads only what a predicate needs of them (``parquet/evidence``); this is for people and
for checks, who want the whole of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from skipstone.errors import FormatError
from skipstone.parquet.encryption.modules import ModuleType, module_length
from skipstone.parquet.format.bloom_filter import MAX_BYTES, BloomFilter
from skipstone.parquet.format.page_header import BloomFilterHeader
from skipstone.parquet.format.page_index_structs import ColumnIndex, OffsetIndex
from skipstone.parquet.thrift.compact import Reader

from .chunk_pages import in_file

if TYPE_CHECKING:
    from .chunk_pages import Cell
    from .file import ParquetFile

__all__ = ["bloom_filter", "bloom_filter_header", "column_index", "offset_index"]

_Index = TypeVar("_Index", OffsetIndex, ColumnIndex)

# The header is some 20 bytes; encrypted, some 60; parquet-java fills it up to 100.
_HEADER = 256


def offset_index(file: ParquetFile, cell: Cell) -> OffsetIndex | None:
    """That of a chunk (row group, leaf), ``None`` where it has none.

    This and the others raise ``FormatError`` and ``KeyUnavailableError``.
    """
    return _index(file, cell, OffsetIndex, "offset_index", ModuleType.OFFSET_INDEX)


def column_index(file: ParquetFile, cell: Cell) -> ColumnIndex | None:
    """That of a chunk, ``None`` where it has none."""
    return _index(file, cell, ColumnIndex, "column_index", ModuleType.COLUMN_INDEX)


def _index(
    file: ParquetFile, cell: Cell, kind: type[_Index], name: str, module: ModuleType
) -> _Index | None:
    offset = int(file.footer.chunk(f"{name}_offset")[cell])
    length = int(file.footer.chunk(f"{name}_length")[cell])
    if offset < 0 or length <= 0:
        return None
    place = file.chunks_pages.place(cell)
    data: bytes | memoryview = file.reader.one(place.path, offset, length)
    decryptor = file.chunks_pages.column_decryptor(cell)
    try:
        if decryptor is not None:
            data = decryptor.decrypt(module, data, base=offset)
        return kind.from_bytes(data, base=offset)
    except FormatError as error:
        raise in_file(error, place.path) from error


def bloom_filter_header(file: ParquetFile, cell: Cell) -> BloomFilterHeader | None:
    """The header of a chunk's filter, ``None`` where it has none."""
    found = _header(file, cell)
    return None if found is None else found[0]


def bloom_filter(file: ParquetFile, cell: Cell) -> BloomFilter | None:
    """The whole filter of a chunk, ``None`` where it has none."""
    found = _header(file, cell)
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
    decryptor = file.chunks_pages.column_decryptor(cell)
    try:
        if decryptor is None:
            bits: bytes | memoryview = file.reader.one(path, start, header.numBytes)
        else:
            length = decryptor.encrypted_length(header.numBytes, ModuleType.BLOOM_FILTER_BITSET)
            sealed = file.reader.one(path, start, length)
            bits = decryptor.decrypt(ModuleType.BLOOM_FILTER_BITSET, sealed, base=start)
        return BloomFilter.from_bitset(bits, base=start)
    except FormatError as error:
        raise in_file(error, path) from error


def _header(file: ParquetFile, cell: Cell) -> tuple[BloomFilterHeader, str, int] | None:
    """The header, the file it lies in, and where the bitset begins."""
    offset = int(file.footer.chunk("bloom_filter_offset")[cell])
    if offset < 0:
        return None
    place = file.chunks_pages.place(cell)
    room = max(0, file.reader.size(place.path) - offset)
    data: bytes | memoryview = file.reader.one(place.path, offset, min(_HEADER, room))
    decryptor = file.chunks_pages.column_decryptor(cell)
    try:
        if decryptor is None:
            reader = Reader(data, base=offset)
            return BloomFilterHeader.read(reader), place.path, offset + reader.at
        length = module_length(data, 0, base=offset)
        if length > len(data):
            data = file.reader.one(place.path, offset, min(length, room))
        plain = decryptor.decrypt(ModuleType.BLOOM_FILTER_HEADER, data[:length], base=offset)
        return BloomFilterHeader.from_bytes(plain, base=offset), place.path, offset + length
    except FormatError as error:
        raise in_file(error, place.path) from error
