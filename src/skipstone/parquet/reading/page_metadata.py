"""What a file says of its pages: page indexes as arrays, and all pages as a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
from skipstone.parquet.pages.page import read_page
from skipstone.parquet.tables.page_table import PagesOf, pages
from skipstone.pruning import Reason

from . import chunk_indexes as index_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from skipstone.parquet.pages.page import Page

    from .chunk_pages import Cell, HeaderAt
    from .file import ParquetFile

__all__ = ["cell_of", "column_index", "offset_index", "page_table"]


def cell_of(file: ParquetFile, row_group: int, column: str) -> Cell:
    """Row group and leaf; ``column`` is the dotted path of one leaf."""
    if not 0 <= row_group < file.num_row_groups:
        raise SkipstoneError(
            f"no row group {row_group} in {file.path}",
            hint=f"it has {file.num_row_groups}, counted from 0",
        )
    found = file.footer.schema.leaf(column)
    if found is None:
        leaves = [leaf for each in file.selection.fields([column]) for leaf in each.shape.leaves]
        if len(leaves) != 1:
            names = [file.footer.schema.leaves[leaf].name for leaf in leaves[:4]]
            raise SkipstoneError(
                f"{column!r} has {len(leaves)} leaves", hint=f"name one: {', '.join(names)}"
            )
        return row_group, leaves[0]
    return row_group, found.ordinal


def offset_index(file: ParquetFile, cell: Cell) -> OffsetIndexArrays | None:
    """The offset index of a chunk, ``None`` where it has none."""
    found = _index(file, cell, "offset_index")
    assert found is None or isinstance(found, OffsetIndexArrays)
    return found


def column_index(file: ParquetFile, cell: Cell) -> ColumnIndexArrays | None:
    """The column index of a chunk, ``None`` where it has none."""
    found = _index(file, cell, "column_index")
    assert found is None or isinstance(found, ColumnIndexArrays)
    return found


def _index(
    file: ParquetFile, cell: Cell, kind: str
) -> OffsetIndexArrays | ColumnIndexArrays | None:
    row_group, leaf = cell
    indexed = file.indexed
    if file.footer.chunk(f"{kind}_offset")[cell] < 0:
        return None
    if leaf in file.unavailable:
        raise file.unavailable[leaf]
    file.chunks_pages.place(cell)  # says which key is missing, if one is
    if indexed.elsewhere(row_group, leaf):  # where the chunk lies, so does its index
        if kind == "offset_index":
            places = index_parts.offset_index(file, cell)
            return None if places is None else OffsetIndexArrays.from_bytes(places.to_bytes())
        bounds = index_parts.column_index(file, cell)
        return None if bounds is None else ColumnIndexArrays.from_bytes(bounds.to_bytes())
    need = indexed.take_index(kind, row_group, leaf, {})
    if need is not None:
        indexed.take_index(kind, row_group, leaf, file.reader.read((need,)))
    known = indexed.offset_indexes if kind == "offset_index" else indexed.column_indexes
    found = known[cell]
    if isinstance(found, Reason):
        raise FormatError(f"{found.subject}: {found.text}", file=file.path)
    return found


def page_table(file: ParquetFile, columns: Sequence[str] | None) -> pa.Table:
    """One row per page of these columns, from page headers, and bounds from the column indexes.

    Columns whose keys are missing are left out unless they are named.
    """
    return pages(_pages(file, columns))


def _pages(file: ParquetFile, columns: Sequence[str] | None) -> Iterator[PagesOf]:
    leaves = [leaf for field in file.selection.fields(columns) for leaf in field.shape.leaves]
    for row_group in range(file.num_row_groups):
        for leaf in leaves:
            if columns is None and leaf in file.unavailable:
                continue
            cell = (row_group, leaf)
            described = file.footer.schema.leaves[leaf]
            walked = [_page(found) for found in file.chunks_pages.walk(cell)]
            made = PagesOf.from_pages(row_group, described, walked)
            yield _with_index(file, cell, made)


def _page(found: HeaderAt) -> Page:
    """A header as the walk over whole pages has it, of a body that is not there."""
    size = found.header.compressed_page_size
    plain = found.header.to_bytes() + bytes(size)
    page = read_page(plain, base=found.offset, ordinal=max(found.ordinal, 0))
    return page._replace(header_length=found.header_length)


def _with_index(file: ParquetFile, cell: Cell, made: PagesOf) -> PagesOf:
    """With rows, bounds and counts from the page index, where it fits the pages found."""
    offsets, bounds = offset_index(file, cell), column_index(file, cell)
    if offsets is None:
        return made
    rows = int(file.footer.group("num_rows")[cell[0]])
    known = PagesOf.from_index(cell[0], made.leaf, rows, offsets, bounds)
    place = {offset: at for at, offset in enumerate(known.offset)}

    def spread(name: str, absent: Any) -> Any:
        values, mine = getattr(known, name), getattr(made, name)
        if values is None:
            return mine
        return [
            values[place[offset]] if offset in place else (absent if mine is None else mine[at])
            for at, offset in enumerate(made.offset)
        ]

    names = {"first_row_index": -1, "num_rows": -1, "null_count": -1, "nan_count": -1}
    names["unencoded_byte_array_data_bytes"] = -1
    found: dict[str, Any] = {name: spread(name, absent) for name, absent in names.items()}
    for name in ("null_page", "min_value", "max_value"):
        found[name] = spread(name, None)
    return replace(made, **found)
