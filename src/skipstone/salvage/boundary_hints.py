"""What is known of borders between pages before anything is counted, and of whose pages are whose.

    dictionary page         begins a chunk; indices of a dictionary do not
    Bloom filter            a chunk begins behind it
    offset index            names the data pages of one chunk
    column indexes          where all together have as many entries as there are data pages: they
                            follow each other as the chunks do
    metadata of a chunk     writers of old left them behind its pages, and what is left of a footer
                            has those of the first row groups: path, first byte, length

What does not fit the pages that were found is of other bytes, and says nothing.
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
    from skipstone.parquet.format.page_index_structs import ColumnIndex, OffsetIndex
    from skipstone.parquet.format.schema import Leaf

    from .page_map import Region

    I64 = npt.NDArray[np.int64]

__all__ = ["Evidence", "Known", "known_of"]

_INDICES: Final = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)
_FEW_BYTES: Final = 16
_DATA: Final = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What else was found in a file: indexes in their order, and the metadata of chunks."""

    offset_indexes: Sequence[OffsetIndex] = ()
    column_indexes: Sequence[ColumnIndex] = ()
    chunks: Sequence[ColumnMetaData] = ()
    size: int = 0


@dataclass(slots=True, kw_only=True)
class Known:
    """``border``: before each page, and behind the last, 1 a chunk begins there, -1 none does, 0
    unknown. ``owner``: the ordinal of the leaf of a page, -1 unknown."""

    border: list[int]
    owner: list[int] = field(default_factory=list)


def known_of(region: Region, leaves: Sequence[Leaf], evidence: Evidence) -> Known:
    """What is known of the pages of a region."""
    rows, count = region.rows, len(region.rows)
    kinds = rows[:, TYPE].tolist()
    # Indices need a dictionary before them, unless there are none: nulls take no room.
    within = (rows[:, TYPE] == PageType.INDEX_PAGE) | (rows[:, NUM_VALUES] == 0)
    indices = np.isin(rows[:, ENCODING], _INDICES) & (rows[:, TYPE] != PageType.DICTIONARY_PAGE)
    within |= indices & (rows[:, UNCOMPRESSED] > _FEW_BYTES)
    known = Known(border=[*np.where(within, -1, 0).tolist(), 0], owner=[-1] * count)
    border = known.border
    places = {int(offset): k for k, offset in enumerate(rows[:, OFFSET].tolist())}
    for index in evidence.offset_indexes:
        pages = [places.get(each.offset) for each in index.page_locations]
        named = [page for page in pages if page is not None]
        if named and len(named) == len(pages) and named == sorted(set(named)):
            _chunk(known, kinds, named[0], named[-1] + 1)
    _by_column_indexes(known, rows, kinds, evidence.column_indexes)
    for meta in evidence.chunks:
        _by_metadata(known, region, kinds, places, leaves, meta, evidence.size)
    for k, kind in enumerate(kinds):
        if kind == PageType.DICTIONARY_PAGE:
            border[k] = 1
            if k + 1 < count and kinds[k + 1] != PageType.DICTIONARY_PAGE:
                border[k + 1] = -1
    for k in region.starts:
        border[k] = 1
    if region.begins:
        border[0] = 1
    if region.ends:
        border[count] = 1
    return known


def _chunk(known: Known, kinds: Sequence[int], first: int, stop: int) -> None:
    """Data pages ``first`` to ``stop`` are those of one chunk."""
    if first and kinds[first - 1] == PageType.DICTIONARY_PAGE:
        first -= 1
    while stop < len(kinds) and kinds[stop] == PageType.INDEX_PAGE:
        stop += 1
    known.border[first + 1 : stop] = [-1] * (stop - first - 1)
    known.border[first] = known.border[stop] = 1


def _by_column_indexes(
    known: Known, rows: I64, kinds: Sequence[int], indexes: Sequence[ColumnIndex]
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
            # More nulls than values, or a page of nulls that is not: it is of other pages.
            if nulls is not None and nulls[k] > values[page]:
                return
            if nulls is not None and each.null_pages[k] and nulls[k] != values[page]:
                return
        chunks.append((pages[0], pages[-1] + 1))
    for first, stop in chunks:
        _chunk(known, kinds, first, stop)


def _by_metadata(
    known: Known,
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
    known.border[first + 1 : last] = [-1] * (last - first - 1)
    known.border[first] = known.border[last] = 1
    # Of a schema with other names the borders hold all the same.
    for leaf in leaves:
        if leaf.path == meta.path_in_schema and leaf.type == meta.type:
            known.owner[first:last] = [leaf.ordinal] * (last - first)
