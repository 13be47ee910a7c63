"""Page indexes, Bloom filters and the table of pages, read on request.

Planning reads only the parts of them that a predicate needs (``parquet/evidence``). This module
reads them completely, for people and for checks.

``PagesOf`` describes the pages of one column chunk, one entry per page. An index knows their
places, rows and bounds; page headers know all the rest. An unknown field is ``None`` for all pages,
or -1 (``None`` for bounds and checksums) for one page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError
from skipstone.parquet.arrow.metadata_tables import names, numbers, shown, texts_by_leaf
from skipstone.parquet.encryption.modules import ModuleType, module_length
from skipstone.parquet.format.bloom_filter import MAX_BYTES, BloomFilter, BloomFilterHeader
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
    from collections.abc import Iterable, Iterator, Sequence

    from skipstone.parquet.format.schema import ColumnDescriptor

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
    take_index(file, key, "offset_index")
    return _usable(file, file.indexed.offset_indexes[key])


def column_index(file: FileReader, key: ChunkKey) -> ColumnIndexArrays | None:
    """The column index of a chunk as arrays; ``None`` where it has none."""
    if not _has_index(file, key, "column_index"):
        return None
    if file.indexed.elsewhere(*key):
        found = read_column_index(file, key)
        return None if found is None else ColumnIndexArrays.from_bytes(found.to_bytes())
    take_index(file, key, "column_index")
    return _usable(file, file.indexed.column_indexes[key])


def _has_index(file: FileReader, key: ChunkKey, kind: str) -> bool:
    if file.footer.chunk(f"{kind}_offset")[key] < 0:
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PagesOf:
    """Pages of the chunk of ``leaf`` in ``row_group``; sequences of one entry per page.

    ``compressed_size`` is the size of a page in the file, header included; ``page_type`` and
    ``encoding`` are numbers of their enumerations; ``crc`` is the i32 of the header;
    ``first_row_index`` counts from the first row of the row group.
    """

    row_group: int
    leaf: ColumnDescriptor
    offset: Sequence[int]
    compressed_size: Sequence[int]
    page_type: Sequence[int] | None = None
    encoding: Sequence[int] | None = None
    header_size: Sequence[int] | None = None
    uncompressed_page_size: Sequence[int] | None = None
    num_values: Sequence[int] | None = None
    first_row_index: Sequence[int] | None = None
    num_rows: Sequence[int] | None = None
    null_count: Sequence[int] | None = None
    nan_count: Sequence[int] | None = None
    unencoded_byte_array_data_bytes: Sequence[int] | None = None
    null_page: Sequence[bool] | None = None
    min_value: Sequence[bytes | None] | None = None
    max_value: Sequence[bytes | None] | None = None
    crc: Sequence[int | None] | None = None

    @classmethod
    def from_index(
        cls,
        row_group: int,
        leaf: ColumnDescriptor,
        num_rows: int,
        offset_index: OffsetIndexArrays,
        column_index: ColumnIndexArrays | None = None,
    ) -> Self:
        """The data pages of a row group of ``num_rows`` rows, from the page index.

        The bounds of null pages are placeholders and left out.
        """
        known: dict[str, Any] = {}
        if column_index is not None:
            null = column_index.null_pages.tolist()
            known = {"null_page": null, "null_count": column_index.null_counts}
            known["nan_count"] = column_index.nan_counts
            for side in ("min_value", "max_value"):
                bounds = getattr(column_index, f"{side}s")
                known[side] = [
                    None if is_null else value for is_null, value in zip(null, bounds, strict=True)
                ]
        return cls(
            row_group=row_group,
            leaf=leaf,
            offset=offset_index.offset.tolist(),
            compressed_size=offset_index.compressed_page_size.tolist(),
            first_row_index=offset_index.first_row_index.tolist(),
            num_rows=offset_index.rows(num_rows).tolist(),
            unencoded_byte_array_data_bytes=_list(offset_index.unencoded_byte_array_data_bytes),
            **{name: _list(value) for name, value in known.items()},
        )

    @classmethod
    def from_pages(cls, row_group: int, leaf: ColumnDescriptor, walked: Iterable[Page]) -> Self:
        """All pages of a chunk, from their headers; dictionary and unknown pages included.

        Rows are known for v2 pages, and for all pages of a leaf that is not repeated.
        """
        found = list(walked)
        v2 = [page.type == PageType.DATA_PAGE_V2 for page in found]
        flat = not leaf.max_repetition_level
        data = [page.ordinal >= 0 for page in found]
        holding = [
            (page, is_data or page.type == PageType.DICTIONARY_PAGE)
            for page, is_data in zip(found, data, strict=True)
        ]
        rows = [
            page.num_rows if is_v2 else (page.num_values if flat and is_data else -1)
            for page, is_v2, is_data in zip(found, v2, data, strict=True)
        ]
        firsts: list[int] = []
        first = 0
        for count, is_data in zip(rows, data, strict=True):
            firsts.append(first if is_data else -1)
            # After the first page whose row count only its levels tell, row numbers are unknown.
            if is_data:
                first = first + count if first >= 0 and count >= 0 else -1
        return cls(
            row_group=row_group,
            leaf=leaf,
            offset=[page.offset for page in found],
            compressed_size=[page.header_length + len(page.body) for page in found],
            page_type=[int(page.type) for page in found],
            encoding=[page.encoding if values else -1 for page, values in holding],
            header_size=[page.header_length for page in found],
            uncompressed_page_size=[page.uncompressed_page_size for page in found],
            num_values=[page.num_values if values else -1 for page, values in holding],
            first_row_index=firsts,
            num_rows=rows,
            null_count=[
                page.num_nulls if is_v2 else -1 for page, is_v2 in zip(found, v2, strict=True)
            ],
            crc=[page.crc for page in found],
        )


def _list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _joined(parts: Sequence[PagesOf], name: str, absent: Any) -> list[Any]:
    joined: list[Any] = []
    for part in parts:
        values = getattr(part, name)
        joined += [absent] * len(part.offset) if values is None else list(values)
    return joined


def pages(parts: Iterable[PagesOf]) -> pa.Table:
    """One row per page, in the order given."""
    parts = list(parts)
    counts = [len(part.offset) for part in parts]
    leaves, ordinals = _leaves(parts, counts)
    table: dict[str, pa.Array] = {
        "row_group": pa.array(np.repeat([part.row_group for part in parts], counts), pa.int32()),
        "leaf": pa.array(ordinals, pa.int32()),
        "column": pa.array(
            [
                shown(part.leaf.name)
                for part, n in zip(parts, counts, strict=True)
                for _ in range(n)
            ],
            pa.string(),
        ),
        "page": pa.array([at for n in counts for at in range(n)], pa.int32()),
        "page_type": names(np.array(_joined(parts, "page_type", -1), np.int64), PageType),
        "encoding": names(np.array(_joined(parts, "encoding", -1), np.int64), Encoding),
    }
    for name in _NUMBERS:
        table[name] = numbers(np.array(_joined(parts, name, -1), np.int64))
    table["null_page"] = pa.array(_joined(parts, "null_page", None), pa.bool_())
    for side in ("min", "max"):
        bounds = pa.array(_joined(parts, f"{side}_value", None), pa.binary())
        table[f"{side}_value"] = bounds
        table[f"{side}_text"] = texts_by_leaf(bounds, ordinals, leaves)
    table["crc"] = pa.array(_joined(parts, "crc", None), pa.int32())
    return pa.table(table)


def _leaves(
    parts: Sequence[PagesOf], counts: Sequence[int]
) -> tuple[list[ColumnDescriptor | None], Any]:
    ordinals = [part.leaf.ordinal for part in parts]
    found: list[ColumnDescriptor | None] = [None] * (max(ordinals, default=-1) + 1)
    for part in parts:
        found[part.leaf.ordinal] = part.leaf
    return found, np.repeat(np.array(ordinals, np.int64), counts)
