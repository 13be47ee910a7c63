"""A plan for a picture: each file's name, size, rows, and what became of it, as JSON-ready lists.

    state   per file one digit: ``READ``, or what skipped it: a level and 1, ``SKIPPED`` where the
            plan does not say
    mark    per file one digit: 0, ``STALE`` or ``MISSING``: no fact counts, so facts skip nothing
    tally   per state, and ``marks`` per mark: files, bytes and rows (-1 unknown), of all files

Files past ``MOST_FILES`` are counted and not drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._version import __version__
from skipstone.parquet.arrow.metadata_tables import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.planning.explain import Explanation
    from skipstone.pruning.plan import Plan

__all__ = ["MISSING", "MOST_FILES", "READ", "SKIPPED", "STALE", "overview", "states"]

MOST_FILES: Final = 100_000
READ: Final = 0
SKIPPED: Final = 5
STALE: Final = 1
MISSING: Final = 2


def states(plan: Plan) -> NDArray[np.int8]:
    """What became of each file."""
    found = np.full(plan.files_total, SKIPPED, np.int8)
    if plan.dropped is not None:
        known = plan.dropped >= 0
        found[known] = plan.dropped[known] + 1
    found[plan.keep] = READ
    return found


def _marks(plan: Plan) -> NDArray[np.int8]:
    found = np.zeros(plan.files_total, np.int8)
    if plan.stale is not None:
        found[plan.stale] = STALE
    if plan.missing is not None:
        found[plan.missing] = MISSING
    return found


def overview(explanation: Explanation) -> dict[str, Any]:
    """See the module."""
    plan = explanation.plan
    listing, drawn = plan.listing, slice(0, MOST_FILES)
    state, mark = states(plan), _marks(plan)
    selected = plan.row_counts.copy()
    selected[~plan.keep] = 0
    for file, detail in plan.details.items():
        if detail.rows is not None:
            selected[file] = len(detail.rows)
    below = f"{listing.root.rstrip('/')}/"
    return {
        "version": __version__,
        "table": shown(plan.table),
        "predicate": shown(plan.predicate),
        "headline": shown(explanation.headline),
        "exact": plan.exact,
        "root": shown(listing.root),
        "files_total": plan.files_total,
        "names": [shown(path.removeprefix(below)) for path in listing.paths[drawn]],
        "sizes": listing.sizes[drawn].tolist(),
        "rows": plan.row_counts[drawn].tolist(),
        "selected": selected[drawn].tolist(),
        "state": "".join(map(str, state[drawn].tolist())),
        "mark": "".join(map(str, mark[drawn].tolist())),
        "tally": [_tally(plan, state == each) for each in range(SKIPPED + 1)],
        "marks": [_tally(plan, mark == each) for each in range(MISSING + 1)],
        "total": _tally(plan, np.ones(plan.files_total, np.bool_)),
        "steps": [step.to_dict() for step in plan.steps],
    }


def _tally(plan: Plan, of: NDArray[np.bool_]) -> list[int]:
    rows = plan.row_counts[of]
    unknown = bool(np.any(rows < 0))
    sizes = plan.listing.sizes[of]
    return [int(np.count_nonzero(of)), int(sizes.sum()), -1 if unknown else int(rows.sum())]
