"""What the file says about boundaries between chunks, before any rows are counted.

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

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.pages.page import chunk_range

from .page_walk import COMPRESSED, ENCODING, HEADER_LENGTH, NUM_VALUES, OFFSET, TYPE, UNCOMPRESSED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from skipstone.parquet.format.metadata import ColumnMetaData
    from skipstone.parquet.format.page_header import ColumnIndex, OffsetIndex
    from skipstone.parquet.format.schema import Leaf

    from .page_map import Region

    I64 = npt.NDArray[np.int64]

__all__ = ["BoundaryHints", "KnownBoundaries", "known_boundaries"]

_INDICES: Final = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)
_FEW_BYTES: Final = 16
_DATA: Final = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryHints:
    """What else was found in a file: indexes in their order, and the metadata of chunks."""

    offset_indexes: Sequence[OffsetIndex] = ()
    column_indexes: Sequence[ColumnIndex] = ()
    chunks: Sequence[ColumnMetaData] = ()
    size: int = 0


@dataclass(slots=True, kw_only=True)
class KnownBoundaries:
    """``boundary``: before each page, and after the last, 1 if a chunk begins there, -1 if none
    does, 0 if unknown. ``owner``: the ordinal of the leaf of a page, -1 if unknown."""

    boundary: list[int]
    owner: list[int] = field(default_factory=list)


def known_boundaries(
    region: Region, leaves: Sequence[Leaf], hints: BoundaryHints
) -> KnownBoundaries:
    """The boundaries and owners of the pages of a region, as far as the hints tell."""
    rows, count = region.rows, len(region.rows)
    kinds = rows[:, TYPE].tolist()
    # Indices need a dictionary before them, except in pages of nulls, which have no indices.
    within = (rows[:, TYPE] == PageType.INDEX_PAGE) | (rows[:, NUM_VALUES] == 0)
    indices = np.isin(rows[:, ENCODING], _INDICES) & (rows[:, TYPE] != PageType.DICTIONARY_PAGE)
    within |= indices & (rows[:, UNCOMPRESSED] > _FEW_BYTES)
    known = KnownBoundaries(boundary=[*np.where(within, -1, 0).tolist(), 0], owner=[-1] * count)
    boundary = known.boundary
    places = {int(offset): k for k, offset in enumerate(rows[:, OFFSET].tolist())}
    for index in hints.offset_indexes:
        pages = [places.get(each.offset) for each in index.page_locations]
        named = [page for page in pages if page is not None]
        if named and len(named) == len(pages) and named == sorted(set(named)):
            _mark_chunk(known, kinds, named[0], named[-1] + 1)
    _by_column_indexes(known, rows, kinds, hints.column_indexes)
    for meta in hints.chunks:
        _by_metadata(known, region, kinds, places, leaves, meta, hints.size)
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
    data = [k for k, kind in enumerate(kinds) if kind in _DATA]
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
    leaves: Sequence[Leaf],
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
        held += int(rows[last, NUM_VALUES]) if kinds[last] in _DATA else 0
        last += 1
    behind = rows[last - 1]
    if int(behind[OFFSET] + behind[HEADER_LENGTH] + behind[COMPRESSED]) != stop:
        return
    if held != meta.num_values:
        return
    known.boundary[first + 1 : last] = [-1] * (last - first - 1)
    known.boundary[first] = known.boundary[last] = 1
    # The boundaries hold even if the schema has other names.
    for leaf in leaves:
        if leaf.path == meta.path_in_schema and leaf.type == meta.type:
            known.owner[first:last] = [leaf.ordinal] * (last - first)
