"""Whether decoded lists fill the pages that they came from: entries of levels, counted per row.

A page header counts the entries of a page, nulls and empty lists among them, and an offset index
says which rows they are. A row has one entry at least. So the first rows of a run of pages have as
many entries as the pages only if they are the rows of these pages: with a ``first_row_index`` that
is off, one row would have the values of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.parquet.format.footer_arrays import FooterArrays

__all__ = ["check_entries", "check_row_counts", "entries_per_row"]

IntArray: TypeAlias = "NDArray[np.int64]"


def check_row_counts(footer: FooterArrays) -> None:
    """``FormatError`` for a row group whose ``num_rows`` is not that of any of its columns.

    Chunks of columns without lists have one value a row. Where all that have metadata say
    another number than their row group, its rows cannot be told apart or counted.
    """
    flat = [leaf.ordinal for leaf in footer.schema.leaves if not leaf.max_repetition_level]
    if not flat:
        return
    rows = footer.group("num_rows")[:, None]
    known = footer.chunk("has_meta_data")[:, flat] == 1
    values = footer.chunk("num_values")[:, flat]
    wrong = known.any(axis=1) & ~(known & (values == rows)).any(axis=1)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise FormatError(
            f"num_rows of row group {at} is that of none of its columns",
            expected=int(values[at][np.argmax(known[at])]),
            got=int(rows[at, 0]),
        )


def check_entries(column: pa.ChunkedArray, rows: IntArray, entries: IntArray, name: str) -> None:
    """``FormatError`` unless the first ``rows[0]`` rows have ``entries[0]`` entries, the next
    ``rows[1]`` rows ``entries[1]``, …: one leaf of lists, as Arrow decodes it by itself."""
    counts = [entries_per_row(chunk) for chunk in column.chunks]
    before = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(np.concatenate([np.zeros(0, np.int64), *counts]))]
    )
    found = np.diff(before[np.concatenate([[0], np.cumsum(rows)])], prepend=0)[1:]
    wrong = np.flatnonzero(found != entries)
    if len(wrong):
        at = int(wrong[0])
        raise FormatError(
            f"pages of {name} hold other rows than their index says",
            expected=f"{int(entries[at])} entries in {int(rows[at])} rows",
            got=int(found[at]),
        )


def entries_per_row(array: pa.Array) -> IntArray:
    """Entries of each row of structs of one field, lists of one element, and leaves."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_struct(array.type):
        return entries_per_row(array.field(0))
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return np.ones(len(array), np.int64)
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    inner = array.values.slice(first, last - first)
    if pa.types.is_nested(inner.type):
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(entries_per_row(inner))])
        offsets = before[offsets - first]
    return np.asarray(np.maximum(np.diff(offsets), 1))
