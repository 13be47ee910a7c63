"""Row groups read together: as many as fit into a bound, and at least one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.parquet.format.decoded_size import decoded_size
from skipstone.pruning import RowSet

from .fetch import group_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from .file import ParquetFile

__all__ = ["row_waves"]

_DECODED = "decoded size of chunks"


def row_waves(
    file: ParquetFile, leaves: Sequence[int], rows: RowSet | None, limit: int
) -> Iterator[tuple[RowSet, int]]:
    """``rows`` of ``file`` in parts of whole row groups whose chunks of ``leaves`` take, stored and
    decoded, up to ``limit`` bytes; a single row group may take more. With each its bytes."""
    footer = file.footer
    decoded = file.indexed.cache.get(_DECODED)
    if decoded is None:
        decoded = file.indexed.cache[_DECODED] = decoded_size(footer)
    at = list(leaves)
    # Both are held at once: the pages as stored, and what is decoded of them.
    size = footer.chunk("total_compressed_size")[:, at].sum(axis=1) + decoded[:, at].sum(axis=1)
    counts = footer.group("num_rows")
    starts: list[NDArray[np.int64]] = []
    stops: list[NDArray[np.int64]] = []
    held = 0
    for group in group_rows(rows, file.row_starts):
        r = group.row_group
        # Pages are whole, so this is a guess from below; waves need not be exact.
        part = int(size[r]) * group.count // max(int(counts[r]), 1)
        if starts and held + part > limit:
            yield RowSet(np.concatenate(starts), np.concatenate(stops)), held
            starts, stops, held = [], [], 0
        first = file.row_starts[r]
        starts.append(group.starts + first)
        stops.append(group.stops + first)
        held += part
    if starts:
        yield RowSet(np.concatenate(starts), np.concatenate(stops)), held
