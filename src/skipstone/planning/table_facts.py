"""Plans over the files of a table, from facts, null counts, partition values and sidecars."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.predicate.tree import (
    NO_EXPRESSIONS,
    Bound,
    KnownExpressions,
    Leaf,
    Op,
    is_expression,
    leaves,
    stored_columns,
)
from skipstone.pruning import Cause, Evidence, Fetched, Level, Reason
from skipstone.pruning.costs import FREE, Costs
from skipstone.pruning.pairs import with_pairs
from skipstone.pruning.plan import Coverage, Plan, Step
from skipstone.pruning.planner import ObjectLevel, PlanInput, make_plan

from .fact_runs import Gathered, RunSettings, gather, sharpened
from .pm_row_groups import PmRowGroups

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.facts import MatchedFacts
    from skipstone.paimon.adjacent_index import AdjacentRows
    from skipstone.pruning import RowSet
    from skipstone.pruning.costs import EarlierPlans
    from skipstone.pruning.evaluation import Fetch
    from skipstone.pruning.evidence import KnownRows, RowSource, Source
    from skipstone.pruning.kind import Index
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.storage import ByteRange, Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """The information of a table's own snapshot about its files, before any index is evaluated.

    ``coverage`` goes into the plan. ``row_counts`` are per file, -1 where unknown; they count
    deleted rows, too, which ``deleted`` gives for the files that an array of flags marks.
    ``evidence`` is about whole files. The planner evaluates ``sources`` before all others below the
    files.
    """

    coverage: Coverage | None = None
    row_counts: NDArray[np.int64] | None = None
    evidence: Sequence[Evidence[Leaf]] = ()
    sources: Sequence[Source] = ()
    deleted: Callable[[NDArray[np.bool_]], Mapping[int, RowSet]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPlanRequest:
    """The input of ``plan_objects``: a predicate, the files, and the evidence about them.

    ``matches`` has one entry per store, each over the whole listing; usually there is one.
    ``milliseconds`` are the times of the phases before; ``reasons`` go into the plan. With
    ``facts_disabled`` facts are counted but not used; one of the ``reasons`` says why. ``runs``
    says how to evaluate facts that do not fit in memory. Without ``file_index`` no sidecar is used.
    ``adjacent`` are sidecars next to the data files that no store refers to. ``data_files`` are the
    levels below the files; the planner opens them where ``costs`` say that it pays. ``share``
    estimates how much of a file lies in the columns of the predicate. ``shown``, ``own``,
    ``counted`` and ``earlier`` as of ``PlanInput``.
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
    adjacent: AdjacentRows | None = None
    data_files: DataFileSources | None = None
    snapshot: SnapshotFacts = field(default_factory=SnapshotFacts)
    costs: Costs = FREE
    share: float = 1.0
    shown: bool = True
    own: bool = False
    counted: bool = False
    earlier: EarlierPlans | None = None


def indexed_expressions(
    matches: Sequence[MatchedFacts],
    schema: pa.Schema,
    session_zone: str,
    *,
    case_sensitive: bool = False,
    folders: Collection[str] = (),
) -> KnownExpressions:
    """The expressions with an index in any of the stores, as a session sees them."""
    columns = {name for each in matches for d in each.snapshot.definitions for name in d.columns}
    if not any(map(is_expression, columns)):
        return NO_EXPRESSIONS
    from skipstone.predicate.indexed import known_expressions

    return known_expressions(
        sorted(columns),
        schema,
        session_zone,
        case_sensitive=case_sensitive,
        folders={name.lower() for name in folders},
    )


def expression_reasons(known: KnownExpressions) -> tuple[Reason, ...]:
    """Why indexes on expressions are not used."""
    return tuple(
        Reason(cause=Cause.NOT_APPLICABLE, subject=name, text=text)
        for name, text in known.unusable.items()
    )


def plan_objects(request: ObjectPlanRequest) -> Plan:
    """The plan for a predicate over the files of a listing."""
    tree, matches = request.tree, request.matches
    columns = frozenset(leaf.column for leaf in leaves(tree)) | stored_columns(tree)
    # Where a folder and the files both have a column, Spark takes the folder's value.
    shadowed = {name.lower() for name in request.partitions.values}
    used = not request.facts_disabled
    usable = frozenset(c for c in columns if c.lower() not in shadowed and used)
    facts = _Facts(request, columns, usable)
    for matched in matches:
        matched.snapshot.read_ahead(usable)
        facts.add(matched)
    adjacent = request.adjacent if request.file_index and used else None
    if adjacent is not None:
        facts.add_adjacent(adjacent)
    fetch = _fetch(matches, request.adjacent, request.data_files)
    of_groups = [each for of in matches for each in of.evidence(usable, of_row_groups=True)]
    indexed = _indexed_rows(facts.of_rows)
    rows = _RowSources(indexed, adjacent, usable)
    plan = make_plan(
        PlanInput(
            tree=tree,
            listing=request.listing,
            table=request.table,
            predicate=request.predicate,
            objects=facts.object_level(columns),
            finer=_finer_levels(request, usable, of_groups, fetch),
            of_row_groups=of_groups,
            rows=None if indexed is None and adjacent is None else rows,
            fetch=fetch,
            costs=request.costs,
            share=request.share,
            shown=request.shown,
            own=request.own or not request.shown,
            counted=request.counted,
            earlier=request.earlier,
        )
    )
    for matched in matches:
        matched.snapshot.drop_read_ahead()
    if request.snapshot.deleted is not None:
        plan = plan.without_rows(request.snapshot.deleted(plan.keep))
    return facts.added_to(plan, sidecars=0 if adjacent is None else adjacent.used)


def _finer_levels(
    request: ObjectPlanRequest,
    usable: frozenset[str],
    of_row_groups: Sequence[Index],
    fetch: Fetch,
) -> list[Source]:
    """The sources of all levels between the files and the rows, in the order to ask them."""
    files = request.data_files
    # A plan that is shown is the same whichever files are open.
    is_open = _never if files is None or request.shown else files.is_open
    levels: list[Source] = [*request.snapshot.sources]
    for matched in request.matches:
        row_groups = PmRowGroups.of(
            request.tree,
            matched,
            usable,
            fetch,
            is_open=is_open,
            opened_next=files is not None,
            shown=request.shown,
        )
        if row_groups is not None:
            levels += row_groups.sources
    if files is not None:
        # After the ``_pm`` of the same level: files that a ``_pm`` drops need not be opened.
        levels += files.sources
    if of_row_groups:
        from skipstone.indexes.text_parts import PartSource

        levels.append(PartSource(of_row_groups))
    return levels


def _never(file: int) -> bool:
    return False


def _indexed_rows(indexes: Sequence[Index]) -> RowSource | None:
    """The indexes that answer for rows: they are among those with a blob in a sidecar."""
    stored = [index for index in indexes if index.sidecar is not None]
    if not stored:
        return None
    from skipstone.paimon.kinds import IndexedRows

    return IndexedRows(stored) or None


class _Facts:
    """The facts of the stores, and of sidecars next to the data files, about a listing's files."""

    def __init__(
        self, request: ObjectPlanRequest, columns: frozenset[str], usable: frozenset[str]
    ) -> None:
        self.request, self.usable = request, usable
        self.named = {column.lower() for column in columns}
        total = len(request.listing)
        self.fresh, self.stale = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
        self.rows = request.snapshot.row_counts
        self.of_rows: list[Index] = []
        self.gathered: list[Gathered] = []
        self.idle: dict[tuple[str, str], Step] = {}
        self.notes: dict[Reason, None] = dict.fromkeys(request.reasons)

    def add(self, matched: MatchedFacts) -> None:
        """Adds the facts of one store."""
        file_index = self.request.file_index
        gathered = self._gathered(matched)
        if gathered is None:
            sought = (each for each in leaves(self.request.tree) if each.op in (Op.EQ, Op.IN))
            asked = matched.evidence(self.usable, keys=sum(len(each.values) for each in sought))
            for each in asked:
                each.same_column = [other for other in asked if other.column == each.column]
            self.of_rows += [each for each in asked if file_index or each.sidecar is None]
        else:
            self.gathered.append(gathered)
            self.of_rows += matched.sliced(self.usable)
            self.notes.update(dict.fromkeys(gathered.reasons))
        self.fresh |= matched.has_fact
        self.stale |= matched.stale
        rows = self.rows
        self.rows = matched.rows if rows is None else np.maximum(rows, matched.rows)
        for definition in matched.snapshot.definitions:
            # A store of Xskipper has names in lower case.
            if self.named.isdisjoint(column.lower() for column in definition.columns):
                step = _idle(definition.kind, definition.column, len(self.fresh))
                self.idle.setdefault((step.index, step.column), step)
        self.notes.update(dict.fromkeys(matched.reasons))
        if not file_index:
            self.notes.update(dict.fromkeys(_switched_off(matched, self.usable)))

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """Per file, -1 where unknown."""
        return np.full(len(self.fresh), -1, np.int64) if self.rows is None else self.rows

    def object_level(self, columns: frozenset[str]) -> ObjectLevel:
        """The evidence about whole files, of the facts and of the table itself."""
        request = self.request
        return ObjectLevel(
            row_counts=self.row_counts,
            evidence=[
                *request.partitions.evidence(columns),
                *request.snapshot.evidence,
                *with_pairs(request.tree, self.of_rows),
            ],
            inherited=sharpened(each.leaves for each in self.gathered),
            asked=tuple(step for each in self.gathered for step in each.steps),
            idle=tuple(self.idle.values()),
        )

    def added_to(self, plan: Plan, sidecars: int) -> Plan:
        """``plan`` with the counts of these facts, and the times and coverage of the request."""
        fresh, stale = self.fresh, self.stale & ~self.fresh
        return replace(
            plan,
            sidecars=sidecars,
            facts_fresh=int(np.count_nonzero(fresh)),
            facts_stale=int(np.count_nonzero(stale)),
            facts_missing=len(fresh) - int(np.count_nonzero(fresh | stale)),
            stale=stale,
            missing=~(stale | fresh),
            reasons=tuple(dict.fromkeys((*self.notes, *plan.reasons))),
            milliseconds={**self.request.milliseconds, **plan.milliseconds},
            coverage=self.request.snapshot.coverage,
        )

    def add_adjacent(self, adjacent: AdjacentRows) -> None:
        """Adds the facts of sidecars next to the data files."""
        self.rows = adjacent.row_counts(self.row_counts)
        if adjacent.used and not self.fresh.any():
            # Where sidecars index the files, missing facts need no note.
            for note in [each for each in self.notes if each.cause is Cause.ABSENT]:
                del self.notes[note]
        self.notes.update(dict.fromkeys(adjacent.reasons))

    def _gathered(self, matched: MatchedFacts) -> Gathered | None:
        """``gather``, failing open: where it fails, the facts prove nothing, with the reason."""
        request = self.request
        try:
            return gather(
                request.tree, matched, self.usable, request.runs, file_index=request.file_index
            )
        except Exception as error:
            text = f"not evaluated: {type(error).__name__}: {error}"
            root = matched.snapshot.location.root
            reason = Reason(cause=Cause.UNREADABLE, subject=f"facts at {root}", text=text)
            return Gathered(leaves={}, steps=(), reasons=(reason,))


class DataFileSources(Protocol):
    """The row groups and pages of the data files."""

    @property
    def sources(self) -> Sequence[Source]:
        """The levels, from coarse to fine; each evaluates the units that the one above kept."""

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Reads bytes of the data files, in the versions that were listed."""

    def is_open(self, file: int) -> bool:
        """Whether the footer of this version of a file is in memory."""


@dataclass(frozen=True, slots=True)
class _RowSources:
    """The row level: indexes of the stores, and of sidecars next to the data files."""

    indexed: RowSource | None
    adjacent: AdjacentRows | None
    usable: frozenset[str]

    def evidence(self, file: int, columns: frozenset[str]) -> list[Evidence[Leaf]]:
        found: list[Evidence[Leaf]] = []
        if self.indexed is not None:
            found += self.indexed.evidence(file, columns)
        if self.adjacent is not None and columns & self.usable:
            found += self.adjacent.evidence(file, columns & self.usable)
        return found

    def known(
        self, leaves: Sequence[Leaf], files: NDArray[np.int64], fetch: Fetch
    ) -> Sequence[KnownRows]:
        return () if self.indexed is None else self.indexed.known(leaves, files, fetch)

    def stored(self, files: NDArray[np.int64], column: str) -> NDArray[np.int64]:
        if self.indexed is None:
            return np.full(len(files), -1, np.int64)
        return self.indexed.stored(files, column)


def _fetch(
    matches: Sequence[MatchedFacts],
    adjacent: AdjacentRows | None,
    data_files: DataFileSources | None,
) -> Fetch:
    """Reads packed sidecars and bit slices from the store whose facts refer to them, sidecars next
    to the data files, and parts of the data files."""

    def fetch(ranges: Sequence[ByteRange]) -> Fetched:
        have: dict[ByteRange, bytes | memoryview] = {}
        left = list(ranges)
        for matched in matches:
            location = matched.snapshot.location
            below = (f"{location.packs}/", f"{location.facts}/")
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
