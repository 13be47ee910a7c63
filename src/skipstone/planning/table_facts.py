"""The object level of a table: facts, null counts and partition values as one plan over its
files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from skipstone.paimon.kinds import IndexedRows
from skipstone.predicate.tree import leaves
from skipstone.pruning import Cause, Level, Reason
from skipstone.pruning.costs import FREE, Costs
from skipstone.pruning.plan import Coverage, Plan, Step
from skipstone.pruning.planner import FactCoverage, ObjectLevel, PlanInput, make_plan
from skipstone.pruning.source import RowSource, Source

from .fact_runs import Gathered, Outgrown, gather, sharpened
from .pm_row_groups import RowGroups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.facts import MatchedFacts
    from skipstone.predicate.tree import Bound, Leaf
    from skipstone.pruning import Evidence, Fetched
    from skipstone.pruning.kind import Index
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.pruning.questions import Fetch
    from skipstone.storage import ByteRange, Listing

__all__ = ["Beside", "Inside", "plan_objects"]


def plan_objects(
    tree: Bound,
    listing: Listing,
    matches: Sequence[MatchedFacts],
    partitions: PartitionColumns,
    *,
    table: str,
    predicate: str,
    milliseconds: Mapping[str, float] | None = None,
    reasons: Sequence[Reason] = (),
    mute: bool = False,
    outgrown: Outgrown | None = None,
    file_index: bool = True,
    beside: Beside | None = None,
    coverage: Coverage | None = None,
    rows_known: NDArray[np.int64] | None = None,
    inside: Inside | None = None,
    costs: Costs = FREE,
    finer: Sequence[Source] = (),
) -> Plan:
    """The plan for ``tree`` over ``listing`` from what the stores know of its files.

    ``matches`` are one per store, each over the whole listing; usually there is one.
    ``milliseconds`` are of the phases before, ``reasons`` what else the reader should be told.
    ``outgrown`` says what becomes of facts that are too large for this process.
    With ``mute`` facts are counted and not asked, because of one of the ``reasons``. Without
    ``file_index`` what lies in sidecars says nothing. ``beside`` are sidecars of the data files
    that no store knows of. ``coverage`` is said with the result; ``rows_known`` are row counts
    from elsewhere, -1 where there is none. ``inside`` are the levels below the files,
    which are looked at where ``costs`` say that it pays; ``finer`` are more of them, which come
    first.
    """
    columns = frozenset(leaf.column for leaf in leaves(tree))
    named = {column.lower() for column in columns}
    evidence: list[Evidence[Leaf]] = [*partitions.evidence(columns)]
    total = len(listing)
    fresh, stale = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    rows = np.full(total, -1, np.int64) if rows_known is None else rows_known
    used = 0
    idle: dict[tuple[str, str], Step] = {}
    notes: dict[Reason, None] = dict.fromkeys(reasons)
    found: list[Gathered] = []
    of_rows: list[Index] = []
    # Where a folder and the files both have a column, Spark takes the folder's value.
    shadowed = {name.lower() for name in partitions.values}
    told = frozenset(c for c in columns if c.lower() not in shadowed and not mute)
    for matched in matches:
        gathered = _gathered(tree, matched, told, outgrown or Outgrown(), file_index)
        if gathered is None:
            asked = [i for i in matched.evidence(told) if file_index or i.sidecar is None]
            evidence += asked
            of_rows += asked
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
        if not file_index:
            notes.update(dict.fromkeys(_switched_off(matched, told)))
    indexed = IndexedRows(of_rows)
    sources: list[RowSource] = [indexed] if indexed else []
    if beside is not None and file_index and not mute:
        rows = beside.row_counts(rows)
        sources.append(_Told(beside, told))
        used = beside.used
        if used and not fresh.any():
            # No facts are no news where others have indexed the files.
            notes = {note: None for note in notes if note.cause is not Cause.ABSENT}
        notes.update(dict.fromkeys(beside.reasons))
    fetch = _fetch(matches, beside, inside)
    below: list[Source] = [*finer]
    for matched in matches:
        row_groups = RowGroups.of(tree, matched, told, fetch)
        if row_groups is not None:
            below += row_groups.sources
    if inside is not None:
        # After the ``_pm``, which are of the same level: what those drop need not be opened.
        below += inside.sources
    fresh_count = int(fresh.sum())
    stale_count = int((stale & ~fresh).sum())
    return make_plan(
        PlanInput(
            tree=tree,
            listing=listing,
            table=table,
            predicate=predicate,
            objects=ObjectLevel(
                row_counts=rows,
                evidence=evidence,
                inherited=sharpened(each.leaves for each in found),
                asked=tuple(step for each in found for step in each.steps),
                idle=tuple(idle.values()),
            ),
            finer=below,
            rows=_Joined(sources) if sources else None,
            fetch=fetch,
            costs=costs,
            facts=FactCoverage(
                sidecars=used,
                facts_fresh=fresh_count,
                facts_stale=stale_count,
                facts_missing=total - fresh_count - stale_count,
                stale=stale & ~fresh,
                missing=~(stale | fresh),
                reasons=tuple(notes),
                milliseconds=dict(milliseconds or {}),
                coverage=coverage,
            ),
        )
    )


class Inside(Protocol):
    """The data files themselves: their row groups and pages."""

    @property
    def sources(self) -> Sequence[Source]:
        """The levels, each asking only about what the one above has left."""

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Bytes of the data files, in the versions that were listed."""


class Beside(RowSource, Protocol):
    """Sidecars that lie beside the data files, as evidence about the rows of those."""

    @property
    def used(self) -> int:
        """Of how many files one can be asked."""

    @property
    def reasons(self) -> Sequence[Reason]:
        """Why some say nothing."""

    def row_counts(self, known: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row counts of all files, with those that their footers say."""

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Bytes of the sidecars."""


@dataclass(frozen=True, slots=True)
class _Told:
    """A source of the row level, asked about some columns only."""

    source: RowSource
    columns: frozenset[str]

    def evidence(self, file: int, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        asked = columns & self.columns
        return self.source.evidence(file, asked) if asked else ()


@dataclass(frozen=True, slots=True)
class _Joined:
    """Several sources of the row level as one."""

    sources: Sequence[RowSource]

    def evidence(self, file: int, columns: frozenset[str]) -> list[Evidence[Leaf]]:
        return [each for source in self.sources for each in source.evidence(file, columns)]


def _fetch(
    matches: Sequence[MatchedFacts], beside: Beside | None, inside: Inside | None = None
) -> Fetch:
    """Reads sidecars, each from the store whose facts named it, or where it lies beside a file;
    and parts of the data files."""

    def fetch(ranges: Sequence[ByteRange]) -> Fetched:
        have: dict[ByteRange, bytes | memoryview] = {}
        left = list(ranges)
        for matched in matches:
            below = f"{matched.snapshot.location.packs}/"
            mine = [each for each in left if each.path.startswith(below)]
            left = [each for each in left if not each.path.startswith(below)]
            if mine:
                have.update(matched.snapshot.storage.read_ranges(mine))
        if left and beside is not None:
            have.update(beside.fetch(left))
            left = [each for each in left if each not in have]
        if left and inside is not None:
            have.update(inside.fetch(left))
        return have

    return fetch


def _switched_off(matched: MatchedFacts, columns: frozenset[str]) -> list[Reason]:
    """Indexes that lie in sidecars, while those are not read."""
    return [
        Reason(
            cause=Cause.UNSUPPORTED,
            subject=str(each.definition),
            text="file-index.read.enabled is false",
        )
        for each in matched.snapshot.fields
        if each.definition is not None
        and each.sidecar is not None
        and not columns.isdisjoint(each.definition.columns)
    ]


def _gathered(
    tree: Bound, matched: MatchedFacts, columns: frozenset[str], how: Outgrown, file_index: bool
) -> Gathered | None:
    """``gather``, failing open: evidence that cannot be asked elsewhere says nothing."""
    try:
        return gather(tree, matched, columns, how, file_index=file_index)
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
