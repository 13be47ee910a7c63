"""The places of a column chunk and its pages, and the rows of each page.

Every entry of a ``PageTable`` begins with a row. With an offset index an entry is one data page.
Without one, a walk over the page headers finds the pages. Flat v1 pages and all v2 pages state
their rows. A v1 page of a nested column may begin within a row, and only its repetition levels say
where rows begin: a page that continues a row joins the entry before it.

The dictionary page lies between the beginning of the chunk and its first data page. Writers set
``dictionary_page_offset`` to 0, or leave it out, so it is not used here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.evidence.indexed_file import chunk_bytes
from skipstone.parquet.evidence.value_bounds import check_page_range
from skipstone.parquet.format.enums import PageType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.page_index import OffsetIndexArrays
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.values import I64


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PageTable:
    """Entries of one chunk; see the module.

    ``offset`` and ``length`` are int64 ``(P,)``, in bytes of the file, headers included;
    ``first_row`` is int64 ``(P + 1,)``, counted from the first row of the row group, the last one
    its number of rows. ``values`` int64 ``(P,)`` are the values of each entry, nulls counted;
    ``None`` where only the page headers say. ``ordinal`` int64 ``(P,)`` is the number of each
    entry's first data page in the chunk. ``dictionary`` is offset and length, 0 for none; where the
    one entry is the ``whole`` chunk, it may begin with the dictionary, and end before its bytes do.
    """

    offset: I64
    length: I64
    first_row: I64
    values: I64 | None
    ordinal: I64
    dictionary: tuple[int, int]
    whole: bool = False

    def __len__(self) -> int:
        return len(self.offset)

    def holding(self, starts: I64, stops: I64) -> I64:
        """The entries that hold any row of the ranges (ascending, disjoint, not empty)."""
        first = np.searchsorted(self.first_row, starts, side="right") - 1
        last = np.searchsorted(self.first_row, stops, side="left")
        if len(first) == 1:
            return np.arange(first[0], last[0])
        edges = np.zeros(len(self) + 1, np.int64)
        np.add.at(edges, first, 1)
        np.add.at(edges, last, -1)
        return np.flatnonzero(np.cumsum(edges)[:-1])


def table_of_chunk(place: ChunkPlace) -> PageTable:
    """The table of a flat column's chunk whose pages are found after it was read: one entry."""
    return PageTable(
        offset=np.array([place.start], np.int64),
        length=np.array([place.stop - place.start], np.int64),
        first_row=np.array([0, place.rows], np.int64),
        values=np.array([place.num_values], np.int64),
        ordinal=np.zeros(1, np.int64),
        dictionary=(0, 0),
        whole=True,
    )


def table_of_index(index: OffsetIndexArrays, place: ChunkPlace, flat: bool) -> PageTable:
    """The table of a chunk with an offset index; ``FormatError`` where the two contradict.

    ``flat``: the leaf is not repeated, so that values are rows.
    """
    offset, length = index.offset, index.compressed_page_size
    if not len(index):
        if place.rows:
            raise FormatError("an offset index without pages", expected=f"{place.rows} rows")
        dictionary = (place.start, 0)
    else:
        check_page_range(index, place.start, place.stop)
        first = int(offset[0])
        dictionary = (place.start, first - place.start)
    rows = np.append(index.first_row_index, place.rows)
    return PageTable(
        offset=offset,
        length=length,
        first_row=rows,
        values=np.diff(rows) if flat else None,
        ordinal=np.arange(len(index)),
        dictionary=dictionary,
    )


class WalkedPage(NamedTuple):
    """One page as a walk finds it: its place, its values, and how many rows begin in it.

    ``continues``: its first values belong to the last row before it.
    """

    offset: int
    size: int
    type: int
    ordinal: int
    num_values: int
    rows: int
    continues: bool


def table_of_walk(
    pages: Iterable[WalkedPage], leaf: ColumnDescriptor, place: ChunkPlace
) -> PageTable:
    """The table of a chunk without an offset index, from its ``pages``.

    ``FormatError`` where the numbers of rows or values contradict the chunk's metadata.
    """
    offsets: list[int] = []
    lengths: list[int] = []
    rows: list[int] = [0]
    values: list[int] = []
    ordinals: list[int] = []
    dictionary = (place.start, 0)
    for page in pages:
        if page.type == PageType.DICTIONARY_PAGE and not offsets:
            dictionary = (page.offset, page.size)
        if page.ordinal < 0:
            continue
        if not page.continues:
            offsets.append(page.offset)
            lengths.append(page.size)
            rows.append(rows[-1] + page.rows)
            values.append(page.num_values)
            ordinals.append(page.ordinal)
            continue
        if not offsets:
            raise FormatError("a chunk that begins within a row", offset=page.offset)
        lengths[-1] = page.offset + page.size - offsets[-1]
        rows[-1] += page.rows
        values[-1] += page.num_values
    if rows[-1] != place.rows or sum(values) != place.num_values:
        raise FormatError(
            f"pages of {leaf.name} hold other rows than their chunk",
            offset=place.start,
            expected=f"{place.rows} rows, {place.num_values} values",
            got=f"{rows[-1]} rows, {sum(values)} values",
        )
    return PageTable(
        offset=np.array(offsets, np.int64),
        length=np.array(lengths, np.int64),
        first_row=np.array(rows, np.int64),
        values=np.array(values, np.int64),
        ordinal=np.array(ordinals, np.int64),
        dictionary=dictionary,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlace:
    """Bytes ``start`` to ``stop`` of the file at ``path``; ``rows`` are those of its row group."""

    path: str
    row_group: int
    leaf: int
    start: int
    stop: int
    codec: int
    num_values: int
    rows: int


def adjacent_path(path: str, file_path: str) -> str:
    """The file that a chunk's ``file_path`` names: relative to the directory of ``path``."""
    absolute = file_path.startswith("/") or "://" in file_path
    if not file_path or absolute or ".." in file_path.split("/") or "\0" in file_path:
        raise FormatError(
            "a file_path that leaves the directory",
            file=path,
            got=file_path,
            hint="move the files: columns are read from the directory of the file that names them,"
            " or below it",
        )
    return f"{path.rpartition('/')[0]}/{file_path}"


def chunk_place(
    footer: FooterArrays, row_group: int, leaf: int, *, path: str, size: int
) -> ChunkPlace:
    """The place of a chunk in the file at ``path``, of ``size`` bytes; ``FormatError`` when it
    cannot lie there."""
    num_values = int(footer.chunk("num_values")[row_group, leaf])
    rows = int(footer.group("num_rows")[row_group])
    if num_values < 0 or rows < 0:
        raise FormatError(
            "a chunk of a negative number of values or rows",
            file=path,
            got=f"{num_values} values, {rows} rows",
        )
    start, stop = chunk_bytes(footer, row_group, leaf, size)
    return ChunkPlace(
        path=path,
        row_group=row_group,
        leaf=leaf,
        start=start,
        stop=stop,
        codec=int(footer.chunk("codec")[row_group, leaf]),
        num_values=num_values,
        rows=rows,
    )
