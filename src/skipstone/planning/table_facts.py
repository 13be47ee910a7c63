"""Plans over the files of a table, from facts, null counts, partition values and sidecars."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from skipstone.paimon.kinds import IndexedRows
from skipstone.predicate.tree import leaves
from skipstone.pruning import Cause, Level, Reason
from skipstone.pruning.costs import FREE, Costs
from skipstone.pruning.evidence import RowSource, Source
from skipstone.pruning.plan import Coverage, Plan, Step
from skipstone.pruning.planner import ObjectLevel, PlanInput, make_plan

from .fact_runs import Gathered, RunSettings, gather, sharpened
from .pm_row_groups import PmRowGroups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.facts import MatchedFacts
    from skipstone.predicate.tree import Bound, Leaf
    from skipstone.pruning import Evidence, Fetched
    from skipstone.pruning.evaluation import Fetch
    from skipstone.pruning.kind import Index
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.storage import ByteRange, Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """What a table's own snapshot says about its files, before any index is asked.

    ``coverage`` goes into the plan. ``row_counts`` are per file, -1 where unknown. The planner asks
    ``sources`` before all others below the files.
    """

    coverage: Coverage | None = None
    row_counts: NDArray[np.int64] | None = None
    sources: Sequence[Source] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPlanRequest:
    """What ``plan_objects`` plans from: a predicate, the files, and the evidence about them.

    ``matches`` has one entry per store, each over the whole listing; usually there is one.
    ``milliseconds`` are the times of the phases before; ``reasons`` go into the plan. With
    ``facts_disabled`` facts are counted but not used; one of the ``reasons`` says why. ``runs``
    says how to evaluate facts that do not fit in memory. Without ``file_index`` no sidecar is used.
    ``adjacent`` are sidecars next to the data files that no store refers to. ``data_files`` are the
    levels below the files; the planner opens them where ``costs`` say that it pays.
    """

    tree: Bound
    listing: Listing
    matches: Sequence[MatchedFacts]
    partitions: PartitionColumns
    table: str
    predicate: str
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    reasons: Sequence[Reason] = ()
    facts_disabled: bool = False
    runs: RunSettings = field(default_factory=RunSettings)
    file_index: bool = True
    adjacent: AdjacentSource | None = None
    data_files: DataFileSources | None = None
    snapshot: SnapshotFacts = field(default_factory=SnapshotFacts)
    costs: Costs = FREE


def plan_objects(request: ObjectPlanRequest) -> Plan:
    """The plan for a predicate over the files of a listing."""
    tree, listing, matches = request.tree, request.listing, request.matches
    adjacent, data_files = request.adjacent, request.data_files
    file_index, disabled = request.file_index, request.facts_disabled
    columns = frozenset(leaf.column for leaf in leaves(tree))
    named = {column.lower() for column in columns}
    evidence: list[Evidence[Leaf]] = [*request.partitions.evidence(columns)]
    total = len(listing)
    fresh, stale = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    counts = request.snapshot.row_counts
    rows = np.full(total, -1, np.int64) if counts is None else counts
    used = 0
    idle: dict[tuple[str, str], Step] = {}
    notes: dict[Reason, None] = dict.fromkeys(request.reasons)
    found: list[Gathered] = []
    of_rows: list[Index] = []
    # Where a folder and the files both have a column, Spark takes the folder's value.
    shadowed = {name.lower() for name in request.partitions.values}
    usable = frozenset(c for c in columns if c.lower() not in shadowed and not disabled)
    for matched in matches:
        gathered = _gathered(tree, matched, usable, request.runs, file_index)
        if gathered is None:
            asked = [i for i in matched.evidence(usable) if file_index or i.sidecar is None]
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
            notes.update(dict.fromkeys(_switched_off(matched, usable)))
    indexed = IndexedRows(of_rows)
    sources: list[RowSource] = [indexed] if indexed else []
    if adjacent is not None and file_index and not disabled:
        rows = adjacent.row_counts(rows)
        sources.append(_SomeColumns(adjacent, usable))
        used = adjacent.used
        if used and not fresh.any():
            # Missing facts are not worth a note where sidecars index the files.
            notes = {note: None for note in notes if note.cause is not Cause.ABSENT}
        notes.update(dict.fromkeys(adjacent.reasons))
    fetch = _fetch(matches, adjacent, data_files)
    below: list[Source] = [*request.snapshot.sources]
    for matched in matches:
        row_groups = PmRowGroups.of(tree, matched, usable, fetch)
        if row_groups is not None:
            below += row_groups.sources
    if data_files is not None:
        # After the ``_pm``, which are of the same level: what those drop need not be opened.
        below += data_files.sources
    fresh_count = int(fresh.sum())
    stale_count = int((stale & ~fresh).sum())
    plan = make_plan(
        PlanInput(
            tree=tree,
            listing=listing,
            table=request.table,
            predicate=request.predicate,
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
            costs=request.costs,
        )
    )
    return replace(
        plan,
        sidecars=used,
        facts_fresh=fresh_count,
        facts_stale=stale_count,
        facts_missing=total - fresh_count - stale_count,
        stale=stale & ~fresh,
        missing=~(stale | fresh),
        reasons=tuple(dict.fromkeys((*notes, *plan.reasons))),
        milliseconds={**request.milliseconds, **plan.milliseconds},
        coverage=request.snapshot.coverage,
    )


class DataFileSources(Protocol):
    """The row groups and pages of the data files."""

    @property
    def sources(self) -> Sequence[Source]:
        """The levels, from coarse to fine; each is asked about what the one above kept."""

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Reads bytes of the data files, in the versions that were listed."""


class AdjacentSource(RowSource, Protocol):
    """Sidecars next to the data files, as evidence about their rows."""

    @property
    def used(self) -> int:
        """The number of files with a usable sidecar."""

    @property
    def reasons(self) -> Sequence[Reason]:
        """Why some sidecars are not used."""

    def row_counts(self, known: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row counts of all files: ``known``, and those that the footers state."""

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Reads bytes of the sidecars."""


@dataclass(frozen=True, slots=True)
class _SomeColumns:
    """A source of the row level, restricted to some columns."""

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
    matches: Sequence[MatchedFacts],
    adjacent: AdjacentSource | None,
    data_files: DataFileSources | None,
) -> Fetch:
    """Reads packed sidecars from the store whose facts refer to them, sidecars next to the data
    files, and parts of the data files."""

    def fetch(ranges: Sequence[ByteRange]) -> Fetched:
        have: dict[ByteRange, bytes | memoryview] = {}
        left = list(ranges)
        for matched in matches:
            below = f"{matched.snapshot.location.packs}/"
            mine = [each for each in left if each.path.startswith(below)]
            left = [each for each in left if not each.path.startswith(below)]
            if mine:
                have.update(matched.snapshot.read_ranges(mine))
        if left and adjacent is not None:
            have.update(adjacent.fetch(left))
            left = [each for each in left if each not in have]
        if left and data_files is not None:
            have.update(data_files.fetch(left))
        return have

    return fetch


def _switched_off(matched: MatchedFacts, columns: frozenset[str]) -> list[Reason]:
    """A reason per index in a sidecar, where the session has switched sidecars off."""
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
    tree: Bound, matched: MatchedFacts, columns: frozenset[str], how: RunSettings, file_index: bool
) -> Gathered | None:
    """``gather``, failing open: where it fails, the facts say nothing, with the reason."""
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
