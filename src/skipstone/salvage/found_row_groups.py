"""The row groups of a file that may be damaged, as pages by chunk.

    footer complete      its row groups; their pages are walked nevertheless
    checkpoint footer    its row groups; the pages after it are divided by ``find_boundaries``
    none                 all pages are divided by ``find_boundaries``

Before any rows are counted, the file itself shows some boundaries between chunks:

    dictionary page         begins a chunk; pages of dictionary indices do not
    Bloom filter            a chunk begins after it
    offset index            names the data pages of one chunk
    column indexes          if all together have as many entries as there are data pages, their
                            order is that of the chunks
    metadata of a chunk     old writers put it after the pages, and a torn footer has that of the
                            first row groups: path, first byte, length

A hint that does not fit the pages that were found describes other bytes, and is ignored.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.footer import find_footer
from skipstone.parquet.format.metadata import ColumnMetaData, FileMetaData
from skipstone.parquet.format.schema import ColumnDescriptor, Schema
from skipstone.parquet.pages.page import chunk_range
from skipstone.parquet.pages.page_headers import (
    DATA_PAGES,
    ENCODING,
    INDICES,
    NUM_VALUES,
    OFFSET,
    TYPE,
    UNCOMPRESSED,
    page_stop,
    walk_pages_of,
)

from .page_map import FileMap, Region, map_file
from .report import FooterState, LeftOut
from .row_group_boundaries import KnownBoundaries, RowGroupBoundaries, find_boundaries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.parquet.format.page_index import ColumnIndex
    from skipstone.parquet.pages.page_headers import I64

    from .page_check import PageCheck


_MOST_ROW_GROUPS: Final = 1 << 20
_FEW_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRowGroup:
    """Pages of each leaf, rows of ``page_headers``; ``why`` they cannot be saved, else empty."""

    start: int
    num_rows: int
    #: 0 where the end of the last page is the end
    stop: int = 0
    chunks: tuple[I64, ...] = ()
    codecs: tuple[int, ...] = ()
    why: str = ""


@dataclass(slots=True, kw_only=True)
class FoundRowGroups:
    """What ``find_row_groups`` found; ``lost`` are byte ranges of unknown content."""

    footer: FooterState
    groups: list[FoundRowGroup] = field(default_factory=list)
    pages_found: int = 0
    ambiguous_pages: int = 0
    incomplete_pages: int = 0
    lost: tuple[tuple[int, int], ...] = ()
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def whole_footer(data: memoryview) -> FileMetaData | None:
    """The footer, if it can be read. ``UnsupportedError`` if it says that the file is encrypted."""
    try:
        tail, footer = find_footer(data)
        if tail.encrypted:
            raise UnsupportedError(
                "the file is encrypted", hint="give its keys: --footer-key, --column-key, --keys"
            )
        metadata = FileMetaData.from_bytes(footer, base=tail.offset)
        Schema.of(metadata.schema)
    except (FormatError, RecursionError):
        return None
    return metadata


def find_row_groups(
    data: memoryview,
    leaves: Sequence[ColumnDescriptor],
    check: PageCheck,
    footer: FileMetaData | None,
    found_map: FileMap | None,
    row_group_rows: int | None,
    footer_only: bool = False,
) -> FoundRowGroups:
    """Every certain row group, in the order of the file.

    ``found_map`` is needed where ``footer`` is ``None``, or turns out to describe other bytes.
    ``footer_only``: a row group is known to end with the last page.
    """
    if footer is not None:
        made = FoundRowGroups(footer="whole")
        made.groups = _of_footer(data, leaves, footer, len(data))
        made.pages_found = sum(len(c) for each in made.groups for c in each.chunks)
        if not footer.row_groups or any(not each.why for each in made.groups):
            return made
        found_map = map_file(data)
        found_map.footers = []
    if found_map is None:
        found_map = map_file(data)
    made = FoundRowGroups(
        footer="lost", lost=tuple(found_map.lost), pages_found=found_map.num_pages
    )
    begin = 0
    for at, stop, each in reversed(found_map.footers):
        if each.encryption_algorithm is None and len(Schema.of(each.schema).leaves) == len(leaves):
            made.footer, begin = "checkpoint", stop
            made.groups = _of_footer(data, leaves, each, at)
            made.notes.append(
                f"a footer that ends at byte {stop:,} describes {len(each.row_groups):,} row groups"
            )
            break
    last = found_map.regions[-1] if found_map.regions else None
    for region in found_map.regions:
        if region.start < begin:
            continue
        if footer_only and region is last:
            region = replace(region, ends=True, followed=True)
        known = known_boundaries(region, leaves, found_map)
        boundaries = find_boundaries(region, leaves, check, known, row_group_rows=row_group_rows)
        made.groups += _between(region, boundaries)
        made.ambiguous_pages += boundaries.ambiguous_pages
        made.incomplete_pages += boundaries.incomplete_pages
        if boundaries.why:
            made.left_out += _left_out(region, boundaries)
    return made


def _between(region: Region, boundaries: RowGroupBoundaries) -> Iterator[FoundRowGroup]:
    for group in boundaries.row_groups:
        pairs = zip(group.boundaries, group.boundaries[1:], strict=False)
        chunks = tuple([region.rows[start:stop] for start, stop in pairs])
        yield FoundRowGroup(start=int(chunks[0][0, OFFSET]), num_rows=group.num_rows, chunks=chunks)


def _left_out(region: Region, boundaries: RowGroupBoundaries) -> list[LeftOut]:
    """The runs of pages between the certain row groups."""
    found: list[LeftOut] = []
    at = 0
    stops = [(each.boundaries[0], each.boundaries[-1]) for each in boundaries.row_groups]
    for first, after in [*stops, (len(region.rows), 0)]:
        if first > at:
            found.append(
                LeftOut(
                    start=int(region.rows[at, OFFSET]),
                    stop=page_stop(region.rows[first - 1]),
                    pages=first - at,
                    why=boundaries.why,
                    row_counts=boundaries.row_counts,
                )
            )
        at = after
    return found


def _of_footer(
    data: memoryview, leaves: Sequence[ColumnDescriptor], footer: FileMetaData, size: int
) -> list[FoundRowGroup]:
    found: list[FoundRowGroup] = []
    for group in footer.row_groups[:_MOST_ROW_GROUPS]:
        chunks: list[I64] = []
        codecs: list[int] = []
        why = ""
        start = 0
        try:
            if len(group.columns) != len(leaves):
                raise FormatError(
                    "columns of a row group", expected=len(leaves), got=len(group.columns)
                )
            for leaf, chunk in zip(leaves, group.columns, strict=True):
                meta = chunk.meta_data
                if meta is None or chunk.crypto_metadata is not None:
                    raise UnsupportedError(f"column {leaf.name} is encrypted")
                if chunk.file_path is not None:
                    raise UnsupportedError(f"column {leaf.name} lies in another file")
                first, stop = chunk_range(meta, file_size=size, created_by=footer.created_by)
                rows, at = walk_pages_of(data, first, stop)
                needed = _needed(rows, meta.num_values)
                if needed is None:
                    raise FormatError(f"no page header of column {leaf.name}", offset=at)
                start = start or first
                chunks.append(needed)
                codecs.append(int(meta.codec))
        except (FormatError, UnsupportedError) as error:
            why = error.message
        found.append(
            FoundRowGroup(
                start=start,
                num_rows=max(group.num_rows, 0),
                chunks=tuple(chunks),
                codecs=tuple(codecs),
                why=why,
            )
        )
    return found


def _needed(rows: I64, num_values: int) -> I64 | None:
    """The first pages that hold ``num_values``; ``None`` if no pages hold exactly that."""
    held = np.cumsum(np.where(np.isin(rows[:, TYPE], DATA_PAGES), rows[:, NUM_VALUES], 0))
    if not num_values:
        return rows if not len(rows) or not held[-1] else None
    at = int(np.searchsorted(held, num_values))
    if at >= len(rows) or held[at] != num_values:
        return None
    return rows[: at + 1]


# -- boundaries that the file shows ----------------------------------------------------------------


def known_boundaries(
    region: Region, leaves: Sequence[ColumnDescriptor], found: FileMap
) -> KnownBoundaries:
    """The boundaries and owners of the pages of a region, as far as ``found`` shows them."""
    rows, count = region.rows, len(region.rows)
    kinds = rows[:, TYPE].tolist()
    # Indices need a dictionary before them, except in pages of nulls, which have no indices.
    within = (rows[:, TYPE] == PageType.INDEX_PAGE) | (rows[:, NUM_VALUES] == 0)
    indices = np.isin(rows[:, ENCODING], INDICES) & (rows[:, TYPE] != PageType.DICTIONARY_PAGE)
    within |= indices & (rows[:, UNCOMPRESSED] > _FEW_BYTES)
    known = KnownBoundaries(boundary=[*np.where(within, -1, 0).tolist(), 0], owner=[-1] * count)
    boundary = known.boundary
    places = {int(offset): k for k, offset in enumerate(rows[:, OFFSET].tolist())}
    for index in found.offset_indexes:
        pages = [places.get(each.offset) for each in index.page_locations]
        named = [page for page in pages if page is not None]
        if named and len(named) == len(pages) and named == sorted(set(named)):
            _mark_chunk(known, kinds, named[0], named[-1] + 1)
    if len(found.regions) == 1:
        _by_column_indexes(known, rows, kinds, found.column_indexes)
    for meta in found.chunks:
        _by_metadata(known, region, kinds, places, leaves, meta, found.size)
    for k, kind in enumerate(kinds):
        if kind == PageType.DICTIONARY_PAGE:
            boundary[k] = 1
            if k + 1 < count and kinds[k + 1] != PageType.DICTIONARY_PAGE:
                boundary[k + 1] = -1
    for k in region.starts:
        boundary[k] = 1
    if region.begins:
        boundary[0] = 1
    if region.ends:
        boundary[count] = 1
    return known


def _mark_chunk(known: KnownBoundaries, kinds: Sequence[int], first: int, stop: int) -> None:
    """Data pages ``first`` to ``stop`` are those of one chunk."""
    if first and kinds[first - 1] == PageType.DICTIONARY_PAGE:
        first -= 1
    while stop < len(kinds) and kinds[stop] == PageType.INDEX_PAGE:
        stop += 1
    known.boundary[first + 1 : stop] = [-1] * (stop - first - 1)
    known.boundary[first] = known.boundary[stop] = 1


def _by_column_indexes(
    known: KnownBoundaries, rows: I64, kinds: Sequence[int], indexes: Sequence[ColumnIndex]
) -> None:
    data = [k for k, kind in enumerate(kinds) if kind in DATA_PAGES]
    if not indexes or sum(len(each.null_pages) for each in indexes) != len(data):
        return
    values = rows[:, NUM_VALUES].tolist()
    chunks: list[tuple[int, int]] = []
    at = 0
    for each in indexes:
        pages = data[at : at + len(each.null_pages)]
        at += len(pages)
        nulls = each.null_counts
        if not pages or (nulls is not None and len(nulls) != len(pages)):
            return
        for k, page in enumerate(pages):
            # More nulls than values, or a null page with values: the index describes other pages.
            if nulls is not None and nulls[k] > values[page]:
                return
            if nulls is not None and each.null_pages[k] and nulls[k] != values[page]:
                return
        chunks.append((pages[0], pages[-1] + 1))
    for first, stop in chunks:
        _mark_chunk(known, kinds, first, stop)


def _by_metadata(
    known: KnownBoundaries,
    region: Region,
    kinds: Sequence[int],
    places: dict[int, int],
    leaves: Sequence[ColumnDescriptor],
    meta: ColumnMetaData,
    size: int,
) -> None:
    try:
        start, stop = chunk_range(meta, file_size=size)
    except FormatError:
        return
    first = places.get(start)
    if first is None:
        return
    rows = region.rows
    last, held = first, 0
    while last < len(kinds) and int(rows[last, OFFSET]) < stop:
        held += int(rows[last, NUM_VALUES]) if kinds[last] in DATA_PAGES else 0
        last += 1
    if page_stop(rows[last - 1]) != stop or held != meta.num_values:
        return
    known.boundary[first + 1 : last] = [-1] * (last - first - 1)
    known.boundary[first] = known.boundary[last] = 1
    # The boundaries hold even if the schema has other names.
    for leaf in leaves:
        if leaf.path == meta.path_in_schema and leaf.type == meta.type:
            known.owner[first:last] = [leaf.ordinal] * (last - first)
