"""The object level of a table: facts, null counts and partition values as one plan over its
files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.bounds import Cause, Level, Reason
from skipstone.predicate.tree import leaves

from .plan import Plan, Step
from .planner import make_plan
from .runs import Gathered, Outgrown, gather, sharpened

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
    mute: bool = False,
    outgrown: Outgrown | None = None,
) -> Plan:
    """The plan for ``tree`` over ``listing`` from what the stores know of its files.

    ``matches`` are one per store, each over the whole listing; usually there is one.
    ``milliseconds`` are of the phases before, ``reasons`` what else the reader should be told.
    ``outgrown`` says what becomes of facts that are too large for this process.
    With ``mute`` facts are counted and not asked, because of one of the ``reasons``.
    """
    columns = frozenset(leaf.column for leaf in leaves(tree))
    named = {column.lower() for column in columns}
    evidence: list[Evidence[Leaf]] = [*partitions.evidence(columns)]
    total = len(listing)
    fresh, stale = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    rows = np.full(total, -1, np.int64)
    idle: dict[tuple[str, str], Step] = {}
    notes: dict[Reason, None] = dict.fromkeys(reasons)
    found: list[Gathered] = []
    # Where a folder and the files both have a column, Spark takes the folder's value.
    shadowed = {name.lower() for name in partitions.values}
    told = frozenset(c for c in columns if c.lower() not in shadowed and not mute)
    for matched in matches:
        gathered = _gathered(tree, matched, told, outgrown or Outgrown())
        if gathered is None:
            evidence += matched.evidence(told)
        else:
            found.append(gathered)
            notes.update(dict.fromkeys(gathered.reasons))
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
        inherited=sharpened(each.leaves for each in found),
        asked=tuple(step for each in found for step in each.steps),
        known={
            "facts_fresh": fresh_count,
            "facts_stale": stale_count,
            "facts_missing": total - fresh_count - stale_count,
            "reasons": tuple(notes),
            "milliseconds": dict(milliseconds or {}),
        },
    )


def _gathered(
    tree: Bound, matched: Matched, columns: frozenset[str], how: Outgrown
) -> Gathered | None:
    """``gather``, failing open: evidence that cannot be asked elsewhere says nothing."""
    try:
        return gather(tree, matched, columns, how)
    except Exception as error:
        text = f"not asked: {type(error).__name__}: {error}"
        root = matched.snapshot.location.root
        reason = Reason(cause=Cause.UNREADABLE, subject=f"facts at {root}", text=text)
        return Gathered(leaves={}, steps=(), reasons=(reason,))


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
