"""Page indexes, Bloom filters and the table of pages, read on request.

Planning reads only the parts of them that a predicate needs (``parquet/evidence``). This module
reads them completely, for people and for checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.arrow.metadata_tables import names, nullable, shown, texts_by_leaf
from skipstone.parquet.encryption.modules import ModuleType, module_length
from skipstone.parquet.format.bloom_filter import BloomFilter, BloomFilterHeader, read_header
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.page_index import (
    ColumnIndex,
    ColumnIndexArrays,
    OffsetIndex,
    OffsetIndexArrays,
)
from skipstone.parquet.pages.page import Page, read_page
from skipstone.parquet.thrift.compact import Reader
from skipstone.pruning import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from .chunk_pages import ChunkKey, HeaderAt
    from .file_reader import FileReader


_Index = TypeVar("_Index")
_Struct = TypeVar("_Struct", OffsetIndex, ColumnIndex)

# The header takes about 20 bytes; encrypted, about 60; parquet-java pads it to 100.
_HEADER = 256


# -- page indexes ----------------------------------------------------------------------------------


def read_offset_index(file: FileReader, key: ChunkKey) -> OffsetIndex | None:
    """The offset index of a chunk as a struct, ``None`` where it has none.

    This and the others raise ``FormatError`` and ``KeyUnavailableError``.
    """
    return _read_struct(file, key, "offset_index", OffsetIndex)


def read_column_index(file: FileReader, key: ChunkKey) -> ColumnIndex | None:
    """The column index of a chunk as a struct, ``None`` where it has none."""
    return _read_struct(file, key, "column_index", ColumnIndex)


def _read_struct(
    file: FileReader, key: ChunkKey, kind: str, struct: type[_Struct]
) -> _Struct | None:
    def parse(data: memoryview, base: int) -> _Struct:
        return struct.from_bytes(file.indexed.plain_index(kind, key, data, base), base=base)

    return _read_index(file, key, kind, parse)


def _read_index(
    file: FileReader, key: ChunkKey, kind: str, parse: Callable[[memoryview, int], _Index]
) -> _Index | None:
    """``parse`` of the bytes of an index and their offset, ``None`` without one."""
    where = file.chunk_pages.index_range(kind, key)
    if where is None:
        return None
    data = file.reader.one(*where)
    try:
        return parse(data, where.offset)
    except FormatError as error:
        raise error.in_file(where.path) from error


def offset_index(file: FileReader, key: ChunkKey) -> OffsetIndexArrays | None:
    """The offset index of a chunk as arrays, checked against the file; ``None`` without one."""
    if not _has_index(file, key, "offset_index"):
        return None
    indexed = file.indexed
    if not indexed.elsewhere(*key):
        take_index(file, key, "offset_index")
        return _usable(file, indexed.offset_indexes[key])
    size = file.reader.size(file.chunk_pages.place(key).path)

    def parse(data: memoryview, base: int) -> OffsetIndexArrays:
        return indexed.offset_index_of(key, data, base=base, size=size)

    return _read_index(file, key, "offset_index", parse)


def column_index(file: FileReader, key: ChunkKey) -> ColumnIndexArrays | None:
    """The column index of a chunk as arrays; ``None`` where it has none."""
    if not _has_index(file, key, "column_index"):
        return None
    indexed = file.indexed
    if not indexed.elsewhere(*key):
        take_index(file, key, "column_index")
        return _usable(file, indexed.column_indexes[key])

    def parse(data: memoryview, base: int) -> ColumnIndexArrays:
        return indexed.column_index_of(key, data, base=base)

    return _read_index(file, key, "column_index", parse)


def _has_index(file: FileReader, key: ChunkKey, kind: str) -> bool:
    if file.footer.chunk(f"{kind}_offset")[key] <= 0:
        return False
    if key[1] in file.unavailable:
        raise file.unavailable[key[1]]
    file.chunk_pages.place(key)  # raises for a missing key
    return True


def take_index(file: FileReader, key: ChunkKey, kind: str) -> None:
    """Read the ``column_index`` or ``offset_index`` of a chunk into ``file.indexed``."""
    need = file.indexed.take_index(kind, *key, {})
    if need is not None:
        file.indexed.take_index(kind, *key, file.reader.read((need,)))


_Arrays = TypeVar("_Arrays", OffsetIndexArrays, ColumnIndexArrays)


def _usable(file: FileReader, found: _Arrays | Reason) -> _Arrays:
    if isinstance(found, Reason):
        raise FormatError(f"{found.subject}: {found.text}", file=file.path)
    return found


# -- Bloom filters ---------------------------------------------------------------------------------


class BloomModules(NamedTuple):
    """The bytes of BloomFilterHeader, and of the bitset."""

    header: bytes | memoryview
    bitset: bytes | memoryview

    @classmethod
    def of(cls, filter: BloomFilter) -> BloomModules:
        """Of a whole filter, whose bitset is not copied."""
        return cls(filter.header, filter.bitset())


def bloom_filter_header(file: FileReader, key: ChunkKey) -> BloomFilterHeader | None:
    """The header of a chunk's filter, ``None`` where it has none."""
    found = _bloom_head(file, key, _HEADER)
    return None if found is None else BloomFilterHeader.from_bytes(found[0])


def read_bloom_filter(file: FileReader, key: ChunkKey) -> BloomFilter | None:
    """The whole filter of a chunk, ``None`` where it has none."""
    found = read_bloom_modules(file, key)
    return None if found is None else BloomFilter.from_bitset(found.bitset)


def bloom_to_copy(file: FileReader, key: ChunkKey) -> BloomModules | None:
    """As ``read_bloom_modules``; ``None`` also for a filter of a kind no longer read."""
    try:
        return read_bloom_modules(file, key)
    except UnsupportedError:
        return None


def read_bloom_modules(file: FileReader, key: ChunkKey) -> BloomModules | None:
    """The modules of a chunk's filter in the clear, ``None`` where it has none.

    ``UnsupportedError`` for another algorithm, hash or compression.
    """
    found = _bloom_head(file, key, int(file.footer.chunk("bloom_filter_length")[key]))
    if found is None:
        return None
    header, start, rest = found
    path, decryptor = file.chunk_pages.place(key).path, file.chunk_pages.column_decryptor(key)
    module = ModuleType.BLOOM_FILTER_BITSET
    try:
        size, at = read_header(header, base=start - len(header))
        length = size if decryptor is None else decryptor.encrypted_length(size, module)
        bits = rest[:length] if length <= len(rest) else file.reader.one(path, start, length)
        if decryptor is not None:
            return BloomModules(header[:at], decryptor.decrypt(module, bits, base=start))
        return BloomModules(header[:at], bytes(bits))
    except FormatError as error:
        raise error.in_file(path) from error


def _bloom_head(
    file: FileReader, key: ChunkKey, length: int
) -> tuple[bytes, int, memoryview] | None:
    """The header in the clear, where the bitset begins, and what was read from there on: the first
    read takes ``length`` bytes, or a header."""
    offset = int(file.footer.chunk("bloom_filter_offset")[key])
    if offset <= 0:
        return None
    path = file.chunk_pages.place(key).path
    room = max(0, file.reader.size(path) - offset)
    data = file.reader.one(path, offset, min(max(length, _HEADER), room))
    decryptor = file.chunk_pages.column_decryptor(key)
    try:
        if decryptor is None:
            reader = Reader(data, base=offset)
            try:
                BloomFilterHeader.read(reader)
            except FormatError:
                read_header(data, base=offset)  # it may be of a kind no longer read
                raise
            return bytes(data[: reader.at]), offset + reader.at, data[reader.at :]
        stop = module_length(data, 0, base=offset)
        if stop > len(data):
            data = file.reader.one(path, offset, min(stop, room))
        plain = decryptor.decrypt(ModuleType.BLOOM_FILTER_HEADER, data[:stop], base=offset)
        return plain, offset + stop, data[stop:]
    except FormatError as error:
        raise error.in_file(path) from error


# -- all pages -------------------------------------------------------------------------------------


_NUMBERS = (
    "offset",
    "compressed_size",
    "header_size",
    "uncompressed_page_size",
    "num_values",
    "first_row_index",
    "num_rows",
    "null_count",
    "nan_count",
    "unencoded_byte_array_data_bytes",
)


def page_table(file: FileReader, columns: Sequence[str] | None) -> pa.Table:
    """One row per page of these columns, from page headers, with bounds from the column indexes.

    Columns whose keys are missing are left out unless they are named.
    """
    leaves = [leaf for field in file.selection.fields(columns) for leaf in field.shape.leaves]
    known = ("row_group", "leaf", "page", "page_type", "encoding", *_NUMBERS)
    found: dict[str, list[Any]] = {
        name: [] for name in (*known, "null_page", "min_value", "max_value", "crc")
    }
    for row_group in range(file.num_row_groups):
        for leaf in leaves:
            if columns is not None or leaf not in file.unavailable:
                for page in _pages(file, (row_group, leaf)):
                    for name, values in found.items():
                        values.append(page.get(name))
    described = file.footer.schema.leaves
    texts = pa.array([shown(leaf.name) for leaf in described], pa.string())
    ordinals = np.array(found["leaf"], np.int64)
    table: dict[str, pa.Array] = {
        "row_group": pa.array(found["row_group"], pa.int32()),
        "leaf": pa.array(ordinals, pa.int32()),
        "column": texts.take(pa.array(ordinals)),
        "page": pa.array(found["page"], pa.int32()),
        "page_type": names(_counts(found["page_type"]), PageType),
        "encoding": names(_counts(found["encoding"]), Encoding),
    }
    for name in _NUMBERS:
        table[name] = nullable(_counts(found[name]))
    table["null_page"] = pa.array(found["null_page"], pa.bool_())
    for side in ("min", "max"):
        bounds = pa.array(found[f"{side}_value"], pa.binary())
        table[f"{side}_value"] = bounds
        table[f"{side}_text"] = texts_by_leaf(bounds, ordinals, described)
    table["crc"] = pa.array(found["crc"], pa.int32())
    return pa.table(table)


def _counts(values: Sequence[int | None]) -> NDArray[np.int64]:
    """With -1 for what is not known."""
    return np.array([-1 if value is None else value for value in values], np.int64)


def _pages(file: FileReader, key: ChunkKey) -> Iterator[dict[str, Any]]:
    """All pages of a chunk: what their headers say, then what the page index says of them.

    Rows are known for v2 pages, and for all pages of a leaf that is not repeated.
    """
    flat = not file.footer.schema.leaves[key[1]].max_repetition_level
    known = _indexed(file, key)
    first: int | None = 0
    for at, walked in enumerate(file.chunk_pages.walk(key)):
        page = _page(walked)
        found: dict[str, Any] = {
            "row_group": key[0],
            "leaf": key[1],
            "page": at,
            "page_type": int(page.type),
            "offset": page.offset,
            "compressed_size": page.header_length + len(page.body),
            "header_size": page.header_length,
            "uncompressed_page_size": page.uncompressed_page_size,
            "crc": page.crc,
        }
        if page.ordinal >= 0 or page.type == PageType.DICTIONARY_PAGE:
            found |= {"encoding": page.encoding, "num_values": page.num_values}
        if page.ordinal >= 0:
            found["first_row_index"] = first
            if page.type == PageType.DATA_PAGE_V2:
                found |= {"num_rows": page.num_rows, "null_count": page.num_nulls}
            elif flat:
                found["num_rows"] = page.num_values
            # After the first page whose row count only its levels tell, row numbers are unknown.
            rows = found.get("num_rows")
            first = None if first is None or rows is None else first + rows
        yield found | known.get(page.offset, {})


def _page(found: HeaderAt) -> Page:
    """The page of a header, with a body of zeros."""
    size = found.header.compressed_page_size
    plain = found.header.to_bytes() + bytes(size)
    page = read_page(plain, base=found.offset, ordinal=max(found.ordinal, 0))
    return page._replace(header_length=found.header_length)


def _indexed(file: FileReader, key: ChunkKey) -> dict[int, dict[str, Any]]:
    """Rows, bounds and counts of the pages of a chunk that its page index has, by their offsets.

    The bounds of null pages are placeholders and left out.
    """
    offsets, bounds = offset_index(file, key), column_index(file, key)
    if offsets is None:
        return {}
    found: dict[str, Any] = {
        "first_row_index": offsets.first_row_index,
        "num_rows": offsets.rows(int(file.footer.group("num_rows")[key[0]])),
        "unencoded_byte_array_data_bytes": offsets.unencoded_byte_array_data_bytes,
    }
    if bounds is not None:
        null = bounds.null_pages.tolist()
        found |= {"null_count": bounds.null_counts, "nan_count": bounds.nan_counts}
        found |= {"null_page": null}
        for side, values in (("min", bounds.min_values), ("max", bounds.max_values)):
            pairs = zip(null, values, strict=True)
            found[f"{side}_value"] = [None if is_null else value for is_null, value in pairs]
    listed = {
        name: values.tolist() if isinstance(values, np.ndarray) else values
        for name, values in found.items()
        if values is not None
    }
    rows = zip(*listed.values(), strict=True)
    return {
        offset: dict(zip(listed, row, strict=True))
        for offset, row in zip(offsets.offset.tolist(), rows, strict=True)
    }
