"""Rows out of a column: slices of it where they are few, Arrow's ``take`` where they are many.

Arrow has no ``take`` for strings, bytes and lists that are views (nor for anything that holds
them). Their slices stay slices: a chunk for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["rows_alone", "take_ranges", "take_rows"]

IntArray: TypeAlias = "NDArray[np.int64]"

# Ranges of rows up to which slices are cheaper than a take.
_SLICES = 16


def take_ranges(column: pa.ChunkedArray, start: IntArray, length: IntArray) -> pa.ChunkedArray:
    """The rows of all these ranges, in their order."""
    if len(start) == 1:
        return column.slice(int(start[0]), int(length[0]))
    if len(start) > _SLICES:
        ends = np.cumsum(length)
        places = np.arange(ends[-1]) + np.repeat(start - (ends - length), length)
        try:
            return column.take(pa.array(places))
        except pa.ArrowNotImplementedError:
            pass
    pieces = [
        piece
        for at, count in zip(start.tolist(), length.tolist(), strict=True)
        for piece in column.slice(at, count).chunks
    ]
    return pa.chunked_array(pieces, column.type)


def take_rows(table: pa.Table, at: IntArray) -> pa.Table:
    """The rows at these ascending places."""
    try:
        return table.take(pa.array(at))
    except pa.ArrowNotImplementedError:
        first = np.flatnonzero(np.diff(at, prepend=-2) != 1)
        length = np.diff(first, append=len(at))
        columns = [take_ranges(column, at[first], length) for column in table.columns]
        return pa.Table.from_arrays(columns, schema=table.schema)


def rows_alone(count: int) -> pa.Table:
    """So many rows of no columns."""
    return pa.table({"": pa.nulls(count)}).select([])
