"""Bounds and null counts of the pages of one chunk, from its column index and offset index.

The rows of a page come from the offset index; the column must have one value per row. A null page
is believed where the column can be null and its null count, if there is one, is that of the rows:
some writers call a page so whose statistics they did not keep. Of a page that contradicts itself
nothing is used. ``boundary_order`` says that bounds ascend, never that pages are disjoint, and
nothing here depends on it.

A page index is trusted as far as it agrees with its chunk. One that a rewritten file kept of its
former self, or that belongs to another chunk, is well-formed and wrong: its pages lie elsewhere,
its null counts add up to another number, or its bounds lie outside those of the chunk. Then nothing
of it is used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError
from skipstone.predicate.literals import compare
from skipstone.predicate.tree import Op

from .value_bounds import Order, ValueBounds

if TYPE_CHECKING:
    from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
    from skipstone.pruning.interval import Intervals

    from .stored_values import Stored

__all__ = ["check_place", "page_bounds", "with_nulls_by_level"]


def page_bounds(
    stored: Stored,
    order: str,
    index: ColumnIndexArrays,
    offsets: OffsetIndexArrays,
    *,
    num_rows: int,
    null_count: int,
    chunk: ValueBounds,
) -> ValueBounds:
    """Bounds of each page; ``null_count`` is that of the chunk, -1 unknown, and ``chunk`` its
    bounds (one unit).

    ``FormatError`` when the two indexes are of different numbers of pages, or of another chunk.
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
    if bool(np.any((rows == 0) & known)):
        raise FormatError("a page without rows that has values")
    counts = index.null_counts
    if counts is not None and null_count >= 0 and len(counts) and counts.min() >= 0:
        total = int(counts.sum())
        if total != null_count:
            raise FormatError(
                "null counts of pages that are not those of their chunk",
                expected=null_count,
                got=total,
            )
    made = ValueBounds.of(
        stored,
        Order.UNKNOWN if order == Order.ABSENT else order,
        lo=stored.keys(index.min_values, known),
        hi=stored.keys(index.max_values, known, upper=True),
        rows=rows,
        nulls=nulls,
        nans=np.where(nans > rows, -1, nans),
    )
    _check_within(made.numbers or made.all, chunk.numbers or chunk.all)
    return made


def with_nulls_by_level(index: ColumnIndexArrays) -> ColumnIndexArrays:
    """The same with null counts from its histograms of definition levels, or without any."""
    levels = index.definition_level_histograms
    return replace(index, null_counts=None if levels is None else levels[:, :-1].sum(axis=1))


def check_place(offsets: OffsetIndexArrays, start: int, stop: int) -> None:
    """``FormatError`` where the pages do not lie one after the other in bytes ``start:stop``."""
    if not len(offsets):
        return
    first, ends = int(offsets.offset[0]), offsets.offset + offsets.compressed_page_size
    if first < start or int(ends[-1]) > stop or bool(np.any(offsets.offset[1:] < ends[:-1])):
        raise FormatError(
            "an offset index that leaves its chunk",
            offset=first,
            expected=f"{start} to {stop}",
            got=f"{first} to {int(ends[-1])}",
        )


def _check_within(pages: Intervals, chunk: Intervals) -> None:
    """``FormatError`` where no value can lie both in a page and in its chunk."""
    (low,), (high,) = chunk.lo.to_list(), chunk.hi.to_list()
    if (high is not None and bool(compare(pages.lo, Op.GT, high).any())) or (
        low is not None and bool(compare(pages.hi, Op.LT, low).any())
    ):
        raise FormatError("bounds of a page outside those of its chunk")
