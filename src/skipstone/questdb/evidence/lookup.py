"""The row group of an instant, by the designated timestamp: what a merge of late rows asks.

Row groups ascend in time and may touch at one instant. Of those that hold any of the rows
``row_lo`` to ``row_hi`` the first whose last instant is after ``timestamp`` decides: the row
belongs into it, or right before it where even its first instant is after it. An instant that is a
row group's last goes on to the next one, so that equal ones stay in order of arrival.

``encoded`` is QuestDB's own number of the answer: ``2 * (row_group + 1)``, and 1 more of a
boundary, which needs no decoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import Type
from skipstone.questdb.format.layout import COLUMN_DESCENDING

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.questdb.format.pm import PmSnapshot

__all__ = ["RowGroupPlace", "find_row_group"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupPlace:
    """``row_group`` holds the instant, or (``boundary``) the instant lies right behind it; -1 is
    before all."""

    row_group: int
    boundary: bool

    @property
    def encoded(self) -> int:
        """One number for both; see the module."""
        return 2 * (self.row_group + 1) + self.boundary


def find_row_group(
    snapshot: PmSnapshot,
    timestamp: int,
    row_lo: int = 0,
    row_hi: int | None = None,
    *,
    column: int | None = None,
    bounds: Callable[[int], tuple[int, int]] | None = None,
) -> RowGroupPlace:
    """Where ``timestamp`` (in the column's own unit) lies among the rows ``row_lo`` to ``row_hi``,
    both inclusive; ``None`` is the last one.

    ``column`` is a position, by default the designated timestamp. ``bounds`` gives first and last
    instant of a row group that has no statistics of them: without it such a one is a
    ``FormatError``. ``UnsupportedError`` for a column that is no INT64, or descends.
    """
    pm = snapshot.pm
    at = pm.designated_timestamp if column is None else column
    if not 0 <= at < pm.column_count:
        raise UnsupportedError("no designated timestamp", hint="name a column by its position")
    described = pm.descriptors[at]
    if described["PHYSICAL_TYPE"] != Type.INT64 or described["FLAGS"] & COLUMN_DESCENDING:
        raise UnsupportedError(f"column {at} is no ascending timestamp of 64 bits")
    rows = snapshot.num_rows.astype(np.int64)
    starts = np.cumsum(rows) - rows
    stats = snapshot.stats([at])
    (low, has_low), (high, has_high) = (stats.fixed(end, np.int64) for end in ("MIN", "MAX"))
    low, high = low[:, 0].copy(), high[:, 0].copy()
    asked = (rows > 0) & (starts + rows > row_lo)
    if row_hi is not None:
        asked &= starts <= row_hi
    for group in np.flatnonzero(asked & ~(has_low & has_high)[:, 0]).tolist():
        if bounds is None:
            raise FormatError(
                f"row group {group} has no bounds of the timestamp",
                file=pm.file,
                expected="MIN_STAT and MAX_STAT",
            )
        low[group], high[group] = bounds(group)
    after = np.flatnonzero(asked & ((timestamp < high) | (timestamp < low)))
    if not len(after):
        return RowGroupPlace(row_group=len(rows) - 1, boundary=True)
    first = int(after[0])
    if timestamp < low[first]:
        return RowGroupPlace(row_group=first - 1, boundary=True)
    return RowGroupPlace(row_group=first, boundary=False)
