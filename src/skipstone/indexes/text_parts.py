"""Parts of large row groups by the filters of their texts, as a level of the planner.

A part is a run of rows (``text_groups.py``), not of pages: a file without a page index has parts
too. The pages that hold a row of a part that may match are read. Units of the level above are cut
where parts begin, and a unit may hold a match where a part with any of its rows may.

The source reads nothing: it cuts the files whose filters were asked about row groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from skipstone._arrays import within
from skipstone.errors import SkipstoneError
from skipstone.pruning import Level, Units
from skipstone.pruning.evidence import Source

from .text_groups import TextGroups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray
    from skipstone.pruning.evidence import Evidence
    from skipstone.pruning.kind import Index

    from .row_group_filters import GroupFilters

    I64 = NDArray[np.int64]


class TextParts(TextGroups):
    """Asks the filters ``of`` row groups about runs of rows."""

    level = Level.PAGE

    def __init__(self, of: TextGroups) -> None:
        super().__init__(of.kind)
        self.stored, self.answers = of.stored, of.answers

    @staticmethod
    def same(filters: GroupFilters, units: Units, at: I64) -> bool:
        """Whether all rows of the units lie in parts."""
        return bool((units.rows[at] >= 0).all()) and _total(filters) >= int(
            (units.first_row[at] + units.rows[at]).max()
        )

    @staticmethod
    def hold_any(filters: GroupFilters, flags: BoolArray, units: Units, at: I64) -> BoolArray:
        """Whether each of the units ``at`` holds rows of a part that is flagged."""
        first = units.first_row[at]
        ends = filters.first + filters.rows
        low = np.searchsorted(ends, first, side="right")
        high = np.searchsorted(filters.first, first + units.rows[at], side="left")
        flagged = np.concatenate(([0], np.cumsum(flags)))
        return np.asarray(flagged[np.maximum(low, high)] > flagged[low])


class PartSource(Source):
    """Runs of rows between the beginnings of parts; see the module."""

    level = Level.PAGE
    limits_cost: ClassVar[bool] = True

    def __init__(self, of_row_groups: Sequence[Index]) -> None:
        self.parts = [TextParts(each) for each in of_row_groups if isinstance(each, TextGroups)]

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, I64]:
        """The runs of all units of files with parts."""
        none = np.zeros(0, np.int64)
        firsts, rows, ordinals, parents = [none], [none], [none], [none]
        for file in dict.fromkeys(units.file.tolist()):
            heads = [found for each in self.parts if (found := _divided(each, file)) is not None]
            if not heads:
                continue
            begins = np.unique(np.concatenate([each.first for each in heads]))
            total = min(_total(each) for each in heads)
            at = np.flatnonzero((units.file == file) & (units.rows > 0))
            first, stop = units.first_row[at], units.first_row[at] + units.rows[at]
            at, first, stop = (each[stop <= total] for each in (at, first, stop))
            low, high = np.searchsorted(begins, first, "right"), np.searchsorted(begins, stop)
            counts = np.maximum(high - low, 0) + 1
            parent = np.repeat(np.arange(len(at)), counts)
            inside = within(counts)
            start = np.where(inside, begins[low[parent] + inside - 1], first[parent])
            last = inside + 1 == counts[parent]
            after = np.minimum(low[parent] + inside, len(begins) - 1)
            group = np.searchsorted(heads[0].first[heads[0].begins], start, "right") - 1
            firsts.append(start)
            rows.append(np.where(last, stop[parent], begins[after]) - start)
            ordinals.append(group)
            parents.append(at[parent])
        parent = np.concatenate(parents)
        return Units(
            level=Level.PAGE,
            file=units.file[parent],
            ordinal=np.concatenate(ordinals),
            first_row=np.concatenate(firsts),
            rows=np.concatenate(rows),
        ), parent

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """The filters over these columns."""
        return [each for each in self.parts if each.column in columns]


def _divided(of: TextParts, file: int) -> GroupFilters | None:
    """The head of a file's filters; ``None`` if it was not read or has no parts."""
    place = of.place(file)
    try:
        found = None if place is None else of.head(*place, {})
    except SkipstoneError:  # the row group level has reported it
        return None
    return found if found is not None and found.in_parts else None


def _total(filters: GroupFilters) -> int:
    return int(filters.rows.sum())
