"""Bounds and null counts of the pages of one chunk, from its column index and offset index.

The rows of a page come from the offset index; the column must have one value per row. A null page
is believed where the column can be null and its null count, if there is one, is that of the rows:
some writers call a page so whose statistics they did not keep. Of a page that contradicts itself
nothing is used. ``boundary_order`` says that bounds ascend, never that pages are disjoint, and
nothing here depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError

from .value_bounds import Order, ValueBounds

if TYPE_CHECKING:
    from skipstone.formats.parquet.page_index import ColumnIndexArrays, OffsetIndexArrays

    from .stored import Stored

__all__ = ["page_bounds"]


def page_bounds(
    stored: Stored,
    order: str,
    index: ColumnIndexArrays,
    offsets: OffsetIndexArrays,
    *,
    num_rows: int,
    null_count: int,
) -> ValueBounds:
    """Bounds of each page; ``null_count`` is that of the chunk, -1 unknown.

    ``FormatError`` when the two indexes are of different numbers of pages.
    """
    if len(index) != len(offsets):
        raise FormatError(
            "a column index of another number of pages than the offset index",
            expected=len(offsets),
            got=len(index),
        )
    rows = offsets.rows(num_rows)
    unknown = np.full(len(rows), -1, np.int64)
    counted = unknown if index.null_counts is None else index.null_counts
    if not stored.column.max_definition_level or null_count == 0:
        claimed = index.null_pages & (rows > 0)
        nulls = np.zeros_like(rows)
        null_pages = np.zeros_like(index.null_pages)
    else:
        claimed = index.null_pages
        null_pages = claimed & ((counted == rows) | (index.null_counts is None))
        nulls = np.where(null_pages, rows, counted)
    # A page said to be null that is not: its bounds are placeholders all the same.
    known = ~index.null_pages
    nulls = np.where(claimed & ~null_pages & (nulls != 0), -1, nulls)
    nans = unknown if index.nan_counts is None else index.nan_counts
    return ValueBounds.of(
        stored,
        Order.UNKNOWN if order == Order.ABSENT else order,
        lo=stored.keys(index.min_values, known),
        hi=stored.keys(index.max_values, known, upper=True),
        rows=rows,
        nulls=nulls,
        nans=np.where(nans > rows, -1, nans),
    )
