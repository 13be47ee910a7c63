"""``count(*)`` from a plan: exact, or of which files it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["exact_count", "known_count"]


def exact_count(plan: Plan) -> int | None:
    """How many rows match, ``None`` where the indexes do not know it of every file."""
    count, rest = known_count(plan)
    return None if rest else count


def known_count(plan: Plan) -> tuple[int, list[int]]:
    """The rows that surely match in all files of which that is known exactly, and the ordinals of
    the other files."""
    count, rest = 0, []
    for file in np.flatnonzero(plan.keep).tolist():
        detail = plan.details.get(file)
        if plan.must[file] and plan.row_counts[file] >= 0:
            count += int(plan.row_counts[file])
        elif detail is not None and detail.exact and detail.rows is not None:
            count += len(detail.rows)
        else:
            rest.append(file)
    return count, rest
