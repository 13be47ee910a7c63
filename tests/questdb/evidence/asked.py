"""Asking the evidence of some `_pm`s about leaves, as the planner does: all of it, intersected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.pruning import Bounds, Reason, Units
from skipstone.questdb.evidence.opened_pm import OpenedPm
from skipstone.questdb.evidence.row_groups import PmSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray
    from skipstone.storage import ByteRange


class Asked:
    """What all evidence together says of a leaf over the row groups of some files."""

    def __init__(self, bounds: Bounds[BoolArray], reasons: tuple[Reason, ...]) -> None:
        self.may, self.must = bounds.may.tolist(), bounds.must.tolist()
        self.reasons = reasons
        self.bytes_read = 0


def ask(
    files: OpenedPm | Mapping[int, OpenedPm], leaf: Leaf, data: Mapping[str, bytes] | None = None
) -> Asked:
    """Of one leaf; ``data`` are the bytes of data files, for what evidence needs of them."""
    held = {0: files} if isinstance(files, OpenedPm) else files
    source = PmSource(held)
    ordinals = np.array(sorted(held), np.int64)
    rows = np.array([int(held[each].row_starts[-1]) for each in ordinals.tolist()], np.int64)
    units, _ = source.split(Units.objects(ordinals, rows), frozenset({leaf.column}))
    may, must = np.ones(len(units), np.bool_), np.zeros(len(units), np.bool_)
    reasons: list[Reason] = []
    read = 0
    for evidence in source.evidence(units, frozenset({leaf.column})):
        have: dict[ByteRange, bytes] = {}
        for need in evidence.needs((leaf,), units, have):
            whole = (data or {})[need.path]
            have[need] = whole[need.offset : need.offset + need.length]
            read += need.length
        assert not evidence.needs((leaf,), units, have)
        (answer,) = evidence.answer((leaf,), units, have)
        reasons += answer.reasons
        if answer.bounds is not None:
            may &= answer.bounds.may
            must |= answer.bounds.must
    found = Asked(Bounds(must, may), tuple(reasons))
    found.bytes_read = read
    return found
