"""Maps the content of a file whose footer may be damaged.

    PAR1 | pages, Bloom filters … | column and offset indexes | footer length PAR1 | pages … | …

Pages chain (``page_headers``). Where the chain ends, one of these follows:

    a Bloom filter                 skipped; a chunk begins after it
    the metadata of a chunk        the same: old writers put it there too
    a column or an offset index    row groups before it are complete; offset indexes separate chunks
    a footer, with its length and magic after it: a cumulative one, which describes all before it
    the first part of a footer     row groups before it are complete, and it may hold the schema
    anything else                  lost, up to the next place from which pages chain on

A place after lost bytes counts as the beginning of a page in two cases: the page has the checksum
that its header states, or pages chain on from it for long enough, or to the end of the file.

**A torn footer** lacks its last part, or has a damaged middle:

    FileMetaData   1 version  2 schema  3 num_rows  4 row groups  5 key-value pairs …
    RowGroup       1 columns  2 total_byte_size  3 num_rows …

Writers write fields in this order. The schema must be complete; chunks are taken up to the first
whose metadata are torn. They are claims: their users compare them with the pages at that place.
"""

from __future__ import annotations

import zlib
from dataclasses import field
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.format.bloom_filter import BloomFilterHeader
from skipstone.parquet.format.footer import MAGIC
from skipstone.parquet.format.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    SchemaElement,
)
from skipstone.parquet.format.page_index import ColumnIndex, OffsetIndex
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.pages.page_headers import (
    COMPRESSED,
    CRC,
    FIELDS,
    HAS_CRC,
    HEADER_LENGTH,
    OFFSET,
    candidates,
    walk_few,
    walk_pages_of,
)
from skipstone.parquet.thrift.compact import I32, LIST, STRUCT, Reader

if TYPE_CHECKING:
    from skipstone.parquet.pages.page_headers import I64


# Pages without checksums that must chain before they count as pages.
_CHAIN: Final = 3
# Most places after lost bytes that are tried, and most ranges of lost bytes.
_MOST_PLACES: Final = 200_000
_MOST_REGIONS: Final = 1_000
_SEARCH: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Region:
    """Pages without a gap: ``rows`` of ``page_headers``, between bytes ``start`` and ``stop``.

    ``begins``: a row group begins with the first page; ``ends``: one ends with the last.
    ``followed``: the bytes after the last page are known, so its chunk does not continue there.
    ``starts`` are the pages before which a Bloom filter lies.
    """

    rows: I64
    start: int
    stop: int
    begins: bool
    ends: bool
    followed: bool
    starts: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class FileMap:
    """What ``map_file`` found. ``footers``: begin, end and content; ``lost``: byte ranges of
    unknown content."""

    size: int
    regions: list[Region] = field(default_factory=list)
    footers: list[tuple[int, int, FileMetaData]] = field(default_factory=list)
    offset_indexes: list[OffsetIndex] = field(default_factory=list)
    column_indexes: list[ColumnIndex] = field(default_factory=list)
    # After their pages, or in a torn footer.
    chunks: list[ColumnMetaData] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    torn: TornFooter | None = None
    index_bytes: int = 0
    # Every index is parsed at two places, which takes long.
    indexes: dict[int, tuple[OffsetIndex | ColumnIndex, int] | None] = field(default_factory=dict)

    @property
    def num_pages(self) -> int:
        """The number of pages found."""
        return sum(len(each.rows) for each in self.regions)


def map_file(data: memoryview) -> FileMap:
    """The content of ``data`` after the magic; takes bounded time, and raises nothing."""
    found = FileMap(size=len(data))
    at, end, begins = len(MAGIC), len(data), True
    while at < end and len(found.regions) < _MOST_REGIONS:
        region, at = _region(data, at, end, begins, found)
        if len(region.rows):
            found.regions.append(region)
        if at >= end:
            break
        at, begins = _structures(data, at, end, found)
        if begins or at >= end:
            continue
        lost, at = at, _next(data, at, end)
        found.lost.append((lost, at))
    if at < end:
        found.lost.append((at, end))
    return found


def _region(
    data: memoryview, at: int, end: int, begins: bool, found: FileMap
) -> tuple[Region, int]:
    start, stop = at, at
    parts: list[I64] = []
    starts: list[int] = []
    count = 0
    followed = False
    while True:
        rows, at = walk_pages_of(data, at, end)
        if len(rows):
            parts.append(rows)
            count += len(rows)
            stop, followed = at, False
        after = bloom_filter_end(data, at, end)
        if after is None and count:
            described = _chunk_metadata(data, at, end)
            if described is not None:
                meta, after = described
                found.chunks.append(meta)
        if after is None:
            break
        found.index_bytes += after - at
        starts.append(count)
        at, followed = after, True
    ends = at < end and _is_structure(data, at, end, found)
    rows = np.concatenate(parts) if parts else np.empty((0, FIELDS), np.int64)
    region = Region(
        rows=rows,
        start=start,
        stop=stop,
        begins=begins,
        ends=ends,
        followed=followed or ends,
        starts=tuple(starts),
    )
    return region, at


def bloom_filter_end(data: memoryview, at: int, end: int) -> int | None:
    """The place after the Bloom filter at ``at``; ``None`` if there is none."""
    if bytes(data[at : at + 1]) != b"\x15":
        return None
    try:
        reader = Reader(data, at, end)
        header = BloomFilterHeader.read(reader)
    except FormatError:
        return None
    known = header.algorithm.BLOCK and header.hash.XXHASH and header.compression.UNCOMPRESSED
    size = header.numBytes
    if not known or size < 32 or size % 32 or size > end - reader.at:
        return None
    return reader.at + size


def _chunk_metadata(data: memoryview, at: int, end: int) -> tuple[ColumnMetaData, int] | None:
    """The metadata that old writers put after a chunk, and where they end."""
    head = bytes(data[at : at + 1])
    if head not in (b"\x26", b"\x15"):
        return None
    reader = Reader(data, at, end)
    meta: ColumnMetaData | None
    try:
        if head == b"\x26":
            meta = ColumnChunk.read(reader).meta_data
        else:
            meta = ColumnMetaData.read(reader)
    except (FormatError, RecursionError):
        return None
    if meta is None or not meta.path_in_schema or meta.unknown:
        return None
    return meta, reader.at


def _is_structure(data: memoryview, at: int, end: int, found: FileMap) -> bool:
    if at not in found.indexes:
        found.indexes[at] = _index(data, at, end)
    return found.indexes[at] is not None or torn_footer(data, at, end, chunks=False) is not None


def _structures(data: memoryview, at: int, end: int, found: FileMap) -> tuple[int, bool]:
    """The place after indexes and a footer at ``at``, and whether there were any."""
    begins = False
    while at < end:
        index = found.indexes.pop(at) if at in found.indexes else _index(data, at, end)
        if index is not None:
            if isinstance(index[0], OffsetIndex):
                found.offset_indexes.append(index[0])
            else:
                found.column_indexes.append(index[0])
            found.index_bytes += index[1] - at
            at, begins = index[1], True
            continue
        footer = _footer(data, at, end)
        if footer is not None:
            stop, metadata = footer
            found.footers.append((at, stop, metadata))
            at, begins = stop, True
            continue
        torn = torn_footer(data, at, end)
        if torn is not None:
            found.torn = torn
            found.chunks += torn.chunks
            found.index_bytes += end - at
            return end, True
        break
    return at, begins


def _index(data: memoryview, at: int, end: int) -> tuple[OffsetIndex | ColumnIndex, int] | None:
    if bytes(data[at : at + 1]) != b"\x19":  # field 1, a list
        return None
    kinds: tuple[type[OffsetIndex] | type[ColumnIndex], ...] = (OffsetIndex, ColumnIndex)
    for kind in kinds:
        reader = Reader(data, at, end)
        try:
            made = kind.read(reader)
        except (FormatError, RecursionError):
            continue
        if not made.unknown:
            return made, reader.at
    return None


def _footer(data: memoryview, at: int, end: int) -> tuple[int, FileMetaData] | None:
    """A whole footer at ``at``: the place after its magic, and its content."""
    if bytes(data[at : at + 1]) != b"\x15":
        return None
    reader = Reader(data, at, end)
    try:
        metadata = FileMetaData.read(reader)
        Schema.of(metadata.schema)
    except (FormatError, RecursionError):
        return None
    stop = reader.at + 8
    length = int.from_bytes(data[reader.at : reader.at + 4], "little")
    if data[reader.at + 4 : stop] != MAGIC or length != reader.at - at:
        return None
    return stop, metadata


def _next(data: memoryview, at: int, end: int) -> int:
    """The next place after ``at`` from which pages chain on; ``end`` if there is none."""
    tried = 0
    for low in range(at + 1, end, _SEARCH):
        for place in candidates(data, low, min(low + _SEARCH + 2, end)).tolist():
            tried += 1
            if tried > _MOST_PLACES:
                return end
            if _begins(data, place, end):
                return int(place)
    return end


def _begins(data: memoryview, at: int, end: int) -> bool:
    rows, stop = walk_few(data, at, end, _CHAIN + 1)
    if not rows:
        return False
    first = rows[0]
    body = first[OFFSET] + first[HEADER_LENGTH]
    if first[HAS_CRC]:
        content = data[body : body + first[COMPRESSED]]
        return zlib.crc32(content) == first[CRC] & 0xFFFFFFFF
    if len(rows) > _CHAIN:
        return True
    return (
        stop >= end
        or _index(data, stop, end) is not None
        or torn_footer(data, stop, end, chunks=False) is not None
        or bool(bloom_filter_end(data, stop, end))
    )


_SCHEMA, _ROW_GROUPS, _COLUMNS = 2, 4, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TornFooter:
    """The schema, and the metadata of the first chunks."""

    schema: tuple[SchemaElement, ...]
    chunks: tuple[ColumnMetaData, ...] = ()


def torn_footer(data: memoryview, at: int, end: int, *, chunks: bool = True) -> TornFooter | None:
    """The rest of the footer that begins at ``at``; ``None`` if none begins there."""
    if bytes(data[at : at + 1]) != b"\x15":
        return None
    reader = Reader(data, at, end)
    try:
        kind, id = reader.field_head(0)
        if (kind, id) != (I32, 1) or reader.integer(32) not in (1, 2):
            return None
        kind, id = reader.field_head(id)
        if (kind, id) != (LIST, _SCHEMA):
            return None
        kind, size = reader.list_head()
        if kind != STRUCT or not size:
            return None
        elements = tuple([SchemaElement.read(reader) for _ in range(size)])
        Schema.of(elements)
    except (FormatError, RecursionError):
        return None
    found: list[ColumnMetaData] = []
    try:
        if chunks:
            _chunks(reader, id, found)
    except (FormatError, RecursionError):
        pass
    return TornFooter(schema=elements, chunks=tuple(found))


def _chunks(reader: Reader, id: int, found: list[ColumnMetaData]) -> None:
    """The chunks of the row groups after field ``id``, up to the first torn one."""
    while id < _ROW_GROUPS:
        kind, id = reader.field_head(id)
        if not kind or id > _ROW_GROUPS:
            return
        if id != _ROW_GROUPS:
            reader.value(kind)
    kind, groups = reader.list_head()
    if kind != STRUCT:
        return
    for _ in range(groups):
        id = 0
        while True:
            kind, id = reader.field_head(id)
            if not kind:
                break
            if id != _COLUMNS or kind != LIST:
                reader.value(kind)
                continue
            kind, columns = reader.list_head()
            if kind != STRUCT:
                return
            for _ in range(columns):
                meta = ColumnChunk.read(reader).meta_data
                if meta is not None:
                    found.append(meta)
