"""Ranges of row positions as callers give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone.pruning import RowSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["RowRanges", "row_set"]

#: half-open ranges of row positions: pairs, an integer array of two columns, or a ``RowSet``
RowRanges: TypeAlias = "RowSet | Sequence[tuple[int, int]] | NDArray[np.integer]"


def row_set(row_ranges: RowRanges | None) -> RowSet | None:
    """The rows, ``None`` for all; ``TypeError`` for what is no ranges."""
    if row_ranges is None or isinstance(row_ranges, RowSet):
        return row_ranges
    try:
        pairs = np.asarray(row_ranges)
    except ValueError:  # of several lengths
        pairs = np.empty(0, np.object_)
    if pairs.shape[0:1] == (0,) and pairs.dtype != np.object_:
        return RowSet()
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise TypeError("row_ranges are pairs of whole numbers: [(start, stop), …]")
    return RowSet(pairs[:, 0], pairs[:, 1])
