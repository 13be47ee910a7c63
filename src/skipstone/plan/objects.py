"""The object level of a table: facts, null counts and partition values as one plan over its
files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.bounds import Cause, Level, Reason
from skipstone.predicate.tree import leaves

from .plan import Plan, Step
from .planner import make_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.bounds import Evidence
    from skipstone.index.partitions import PartitionColumns
    from skipstone.predicate.tree import Bound, Leaf
    from skipstone.storage import Listing
    from skipstone.store import Matched

__all__ = ["plan_objects"]


def plan_objects(
    tree: Bound,
    listing: Listing,
    matches: Sequence[Matched],
    partitions: PartitionColumns,
    *,
    table: str,
    predicate: str,
    milliseconds: Mapping[str, float] | None = None,
    reasons: Sequence[Reason] = (),
) -> Plan:
    """The plan for ``tree`` over ``listing`` from what the stores know of its files.

    ``matches`` are one per store, each over the whole listing; usually there is one.
    ``milliseconds`` are of the phases before, ``reasons`` what else the reader should be told.
    """
    columns = frozenset(leaf.column for leaf in leaves(tree))
    named = {column.lower() for column in columns}
    evidence: list[Evidence[Leaf]] = [*partitions.evidence(columns)]
    total = len(listing)
    fresh, stale = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    rows = np.full(total, -1, np.int64)
    idle: dict[tuple[str, str], Step] = {}
    notes: dict[Reason, None] = dict.fromkeys(reasons)
    for matched in matches:
        evidence += matched.evidence(columns)
        fresh |= matched.has_fact
        stale |= matched.stale
        rows = np.maximum(rows, matched.rows)
        for definition in matched.snapshot.definitions:
            # A foreign store has names in lower case.
            if named.isdisjoint(column.lower() for column in definition.columns):
                step = _idle(definition.kind, definition.column, total)
                idle.setdefault((step.index, step.column), step)
        notes.update(dict.fromkeys(matched.reasons))
    fresh_count = int(fresh.sum())
    stale_count = int((stale & ~fresh).sum())
    return make_plan(
        tree,
        listing,
        evidence,
        table=table,
        predicate=predicate,
        row_counts=rows,
        idle=tuple(idle.values()),
        known={
            "facts_fresh": fresh_count,
            "facts_stale": stale_count,
            "facts_missing": total - fresh_count - stale_count,
            "reasons": tuple(notes),
            "milliseconds": dict(milliseconds or {}),
        },
    )


def _idle(kind: str, column: str, total: int) -> Step:
    """The step of an index whose column the predicate does not name."""
    text = f"no predicate on {column}"
    reason = Reason(cause=Cause.NOT_APPLICABLE, subject=f"{kind}({column})", text=text)
    return Step(
        level=Level.OBJECT,
        index=kind,
        column=column,
        used=False,
        considered=total,
        kept=total,
        reasons=(reason,),
    )
