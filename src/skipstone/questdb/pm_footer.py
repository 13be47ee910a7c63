"""Of a ``_pm`` the footer that scanning needs: of the columns that are touched, and of no others.

    schema      one optional (or required) element per column, as QuestDB writes its type
    row groups  NUM_ROWS
    chunks      CODEC, NUM_VALUES, NULL_COUNT, TOTAL_COMPRESSED; BYTE_RANGE_START for the first
                page, be it a dictionary or data: a walk over the pages finds out

The arrays are filled in place of a scan: nothing is written and read again per chunk. There are no
page indexes, no filters, and no bounds: bounds are asked of the ``_pm`` itself.

A ``_pm`` does not say how large chunks are without their compression. What is read together is
reckoned as if that were eight times as much.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import FileMetaData, SchemaElement
from skipstone.parquet.thrift.footer_layout import (
    AT_META_DATA,
    CODEC,
    DATA_PAGE_OFFSET,
    GROUP_SLOTS,
    NARROW_SLOTS,
    NULL_COUNT,
    NUM_VALUES,
    TOTAL_COMPRESSED_SIZE,
    TOTAL_UNCOMPRESSED_SIZE,
    WIDE_SLOTS,
)

from .format.layout import MAX_STAT_PRESENT, MIN_STAT_PRESENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .evidence.opened_pm import OpenedPm

__all__ = ["pm_footer"]

_EXPANSION = 8
_LARGEST = np.uint64(1 << 44)


def pm_footer(
    file: OpenedPm, columns: Sequence[int], elements: Sequence[SchemaElement]
) -> tuple[FooterArrays, NDArray[np.bool_]]:
    """The footer of these columns, and which chunks are nothing but nulls (row groups, columns).

    ``FormatError`` where a chunk lies outside the file, or is of more values than can be.
    """
    snapshot = file.snapshot
    stats = snapshot.stats(columns)
    chunks, shape = stats.chunks, stats.chunks.shape
    starts, lengths = snapshot.byte_ranges(columns)
    if chunks.size and chunks["NUM_VALUES"].max() >= _LARGEST:
        raise FormatError("NUM_VALUES of a chunk", file=snapshot.pm.file, expected="below 2^44")
    counts, counted = stats.null_count()
    never = np.array([element.repetition_type == 0 for element in elements], np.bool_)
    values = chunks["NUM_VALUES"].astype(np.int64)
    known = counted & (counts <= chunks["NUM_VALUES"]) & (values == file.rows[:, None])
    nulls = np.where(known, counts.astype(np.int64), -1)
    nulls[:, never] = 0
    bounded = (chunks["STAT_FLAGS"] & (MIN_STAT_PRESENT | MAX_STAT_PRESENT)) != 0
    # Nothing but nulls has no bounds; a chunk that says both contradicts itself, and is read.
    all_null = (nulls == values) & (values > 0) & ~bounded

    head = FileMetaData(
        version=2,
        schema=(SchemaElement(name="schema", num_children=len(elements)), *elements),
        num_rows=int(file.row_starts[-1]),
        row_groups=(),
    ).to_bytes()
    empty = FooterArrays.scan(head)
    groups = np.zeros((shape[0], GROUP_SLOTS), np.int64)
    groups[:, 0] = file.rows + 1
    wide = np.zeros((WIDE_SLOTS, shape[0] * shape[1]), np.int64)
    for slot, what in (
        (NUM_VALUES, values),
        (TOTAL_COMPRESSED_SIZE, lengths),
        (TOTAL_UNCOMPRESSED_SIZE, lengths * _EXPANSION),
        (DATA_PAGE_OFFSET, starts),
        (NULL_COUNT, nulls),
    ):
        wide[slot] = what.reshape(-1) + 1
    narrow = np.zeros((NARROW_SLOTS, wide.shape[1]), np.int32)
    narrow[CODEC] = chunks["CODEC"].reshape(-1).astype(np.int32) + 1
    narrow[AT_META_DATA] = 1
    scanned = replace(empty.scanned, groups=groups, wide=wide, narrow=narrow)
    made = FooterArrays(data=empty.data, base=0, scanned=scanned, selected=tuple(range(shape[0])))
    return made, all_null
