"""The planner: from files to rows. Each level looks only at units that the last one kept.

A file without a fact is kept. A ``Source`` of a finer level splits the undecided units, where the
``CostGate`` finds that it pays. New kinds of evidence are new sources.

Finer levels are row groups, then pages. Sources that limit their own cost come first, over all
units. Where few files are undecided, each other level evaluates all undecided units that the
``CostGate`` lets through; of many row groups a sample first. Where many files are undecided, a
sample of the files goes through all levels. What decided enough of the sample, weighed by bytes, is
evaluated for the other files; these may need a level that decided nothing itself, as row groups
come before pages. Units that are not evaluated are kept as they are.
"""

from __future__ import annotations

import logging
import time
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.predicate.tree import Bound, Leaf, Opaque, leaves, pieces, stored_columns

from .._arrays import among, distinct, ordinals
from . import Bounds, Cause, Evidence, Level, Reason, RowSet, Units
from .costs import FREE, CostGate, Costs, best_prefix
from .evaluation import Evaluation, Fetch, LeafBounds, evaluate, no_fetch
from .pairs import with_joint, with_pairs
from .plan import FileDetail, Plan, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing

    from .costs import EarlierPlans, SampleResult
    from .evidence import RowSource, Source
    from .row_level import RowLevel

    BoolFlags: TypeAlias = NDArray[np.bool_]
    Ask: TypeAlias = Callable[[Units], Sequence[Evidence[Leaf]]]


log = logging.getLogger("skipstone")


@dataclass(slots=True, eq=False, kw_only=True)
class FinerLevels:
    """The finer levels of one plan; see the module.

    ``of_row_groups`` is evidence about row groups besides that of the sources. ``settled`` flags
    the files that need no finer level. ``steps`` and ``dropped`` are those of the plan: steps are
    added, and the level at which the last unit of a file was dropped is set. ``reasons`` say which
    levels failed. The plan names the row groups of settled files if it is ``shown``.
    """

    tree: Bound
    sources: Sequence[Source]
    of_row_groups: Sequence[Evidence[Leaf]]
    fetch: Fetch
    gate: CostGate
    steps: list[Step]
    dropped: NDArray[np.int8]
    shown: bool = True
    settled: BoolFlags = field(init=False)
    #: the files of whose row groups ``of_row_groups`` was asked
    grouped: BoolFlags = field(init=False)
    reasons: list[Reason] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settled = np.zeros(len(self.dropped), np.bool_)
        self.grouped = self.settled.copy()

    def run(self, state: Evaluation) -> Evaluation:
        """The state after all levels."""
        sources = sorted(self.sources, key=lambda item: item.level)
        while sources and sources[0].limits_cost:
            state = self._level(state, sources.pop(0))
        undecided = self._undecided(state) if sources else np.zeros(0, np.bool_)
        # A level cuts what the next one asks, so only the last ones can be left out.
        while sources and self.gate.is_idle(self.tree, sources[-1], state.units, undecided):
            sources.pop()
        found = distinct(state.units.file[undecided]) if sources else ()
        sample = self.gate.sample(np.asarray(found, np.int64))
        if sample is None:
            for source in sources:
                state = self._level(state, source)
        else:
            state = self._sampled(state, sources, sample, len(found))
        if self.shown and self.settled.any():
            state = self._cut(state)
        return state

    def _sampled(
        self, state: Evaluation, sources: Sequence[Source], sample: NDArray[np.int64], total: int
    ) -> Evaluation:
        """All levels for a sample of ``total`` files, then those that pay for the other files."""
        inside = np.zeros_like(self.settled)
        inside[sample] = True
        verdicts: list[SampleResult] = []
        self.gate.sampled = len(sample), total, Level.OBJECT.unit
        for source in sources:
            state = self._level(state, source, within=inside, verdicts=verdicts)
        paying = best_prefix([each.net for each in verdicts])
        for verdict in verdicts[paying:]:
            self.gate.leave(verdict)
        if not paying:
            self.gate.passed[~inside] = True
        for verdict in verdicts[:paying]:
            self.gate.follow(verdict)
            state = self._level(state, verdict.source, within=~inside, verdict=verdict)
        return state

    def _level(
        self,
        state: Evaluation,
        source: Source,
        *,
        within: BoolFlags | None = None,
        verdict: SampleResult | None = None,
        verdicts: list[SampleResult] | None = None,
    ) -> Evaluation:
        """One level for the undecided units of the files ``within``, by the evidence that
        ``verdict`` names. ``verdicts`` takes what the level was worth."""
        open_ = self._undecided(state)
        if within is not None:
            open_ &= within[state.units.file]
        if not open_.any():
            return state
        try:
            many = within is not None
            at = self.gate.choose(source, state.units, np.flatnonzero(open_), many=many)
            if not len(at):
                return state
            source.observe(state.units.where(state.bounds.may))
            sample = None if many or source.limits_cost else self.gate.sample(at, source.level)
            if sample is None:
                fine, parent = self._fine(state, source, at, verdict, many=many)
                if verdicts is not None:
                    asked = state.units.where(at)
                    verdicts.append(self.gate.verdict(self.tree, source, asked, fine))
            else:
                fine, parent = self._by_sample(state, source, at, sample)
            self.gate.learn(self.tree, source, fine)
        except Exception as error:  # a finer level is advice: without it the plan reads more
            from .row_level import failure

            self.reasons.append(failure(source.level, error))
            return state
        if len(fine.units) or not source.limits_cost:
            state = _joined(state, parent, fine)
            _add(self.steps, fine.steps, source.spent)
        self.reasons += [each for each in source.reasons if each not in self.reasons]
        self.dropped[(self.dropped < 0) & ~alive_files(state, len(self.dropped))] = source.level
        return state

    def _by_sample(
        self,
        state: Evaluation,
        source: Source,
        at: NDArray[np.int64],
        sample: NDArray[np.int64],
    ) -> tuple[Evaluation, NDArray[np.int64]]:
        """As ``_fine``, of few files with many units: of a sample, and of the others if it pays."""
        asked = state.units.where(sample)
        self.gate.sampled = len(sample), len(at), state.units.level.unit
        fine, parent = self._fine(state, source, sample, None, many=True)
        verdict = self.gate.verdict(self.tree, source, asked, fine)
        if verdict.net <= 0:
            self.gate.leave(verdict)
            return fine, parent
        self.gate.follow(verdict)
        others = at[~among(at, sample, len(state.units))]
        more, rest = self._fine(state, source, others, verdict)
        steps: list[Step] = list(fine.steps)
        _add(steps, more.steps, (0, 0))
        joined = _join(fine, np.arange(len(fine.units)), more)
        return replace(joined, steps=tuple(steps)), np.concatenate((parent, rest))

    def _fine(
        self,
        state: Evaluation,
        source: Source,
        at: NDArray[np.int64],
        verdict: SampleResult | None,
        *,
        many: bool = False,
    ) -> tuple[Evaluation, NDArray[np.int64]]:
        """What the evidence says of the parts of the units ``at``, and the unit of each part."""

        def evidence(parts: Units) -> Sequence[Evidence[Leaf]]:
            more = self.of_row_groups if source.level is Level.ROW_GROUP and whole.any() else ()
            found = with_pairs(self.tree, [*source.evidence(parts, columns), *more])
            if verdict is None:
                found = self.gate.worthwhile(source, parts, found)
                return self.gate.affordable(source, parts, found) if many else found
            return [each for each in found if (each.name, each.column) in verdict.chosen]

        columns = stored_columns(self.tree)
        asked = state.units.where(at)
        # The source that split a file into row groups was asked this evidence about them already.
        whole = (asked.rows == self.gate.rows[asked.file]) & ~self.grouped[asked.file]
        parts, parent = source.split(asked, columns)
        covered = _covered(asked, parts, parent)[parent]
        parts, parent = parts.where(covered), at[parent[covered]]
        found = evidence(parts) if len(parts) or not source.limits_cost else ()
        inherited = state.descend(parent)
        fine = evaluate(self.tree, found, parts, fetch=self.fetch, inherited=inherited)
        if source.level is Level.ROW_GROUP and whole.any():
            self.grouped[parts.file] = True
        return fine, parent

    def _undecided(self, state: Evaluation) -> BoolFlags:
        """Flags of the units that may match, but not surely completely, in files not settled."""
        units, bounds = state.units, state.bounds
        open_: BoolFlags = bounds.may & ~bounds.must & ~self.settled[units.file]
        return open_

    def _cut(self, state: Evaluation) -> Evaluation:
        """Splits settled files into row groups, so that the plan can name them, where they are
        few: this opens them."""
        footers = (each for each in self.sources if not each.limits_cost)
        source = next((each for each in footers if each.level is Level.ROW_GROUP), None)
        at = np.flatnonzero(state.bounds.may & self.settled[state.units.file])
        if source is None or not 0 < len(at) <= _NAMED:
            return state
        try:
            parts, parent = source.split(state.units.where(at), stored_columns(self.tree))
            covered = _covered(state.units.where(at), parts, parent)[parent]
            parts, parent = parts.where(covered), at[parent[covered]]
            fine = evaluate(self.tree, (), parts, fetch=no_fetch, inherited=state.descend(parent))
            return _joined(state, parent, fine)
        except Exception:  # the reader of the file reports the error
            log.debug("row groups of files whose rows are known", exc_info=True)
            return state


#: the most settled files whose row groups the plan names
_NAMED = 64


def alive_files(state: Evaluation, files: int) -> NDArray[np.bool_]:
    """Flags of the files with a unit that may hold a match."""
    if state.units.level is Level.OBJECT and len(state.units) == files:  # in order
        return state.bounds.may.copy()
    alive = np.zeros(files, np.bool_)
    alive[state.units.file[state.bounds.may]] = True
    return alive


def _add(steps: list[Step], more: Sequence[Step], spent: tuple[int, int]) -> None:
    """Appends ``more`` to ``steps``; an index that ran twice at one level keeps one step.

    ``spent`` are the bytes and requests of opening the level.
    """
    known = {(step.level, step.index, step.column): at for at, step in enumerate(steps)}
    for number, step in enumerate(more):
        if not number:
            size, requests = step.bytes_read + spent[0], step.requests + spent[1]
            step = replace(step, bytes_read=size, requests=requests)
        at = known.get((step.level, step.index, step.column))
        if at is None:
            known[step.level, step.index, step.column] = len(steps)
            steps.append(step)
        else:
            steps[at] = steps[at].plus(step)


def _joined(state: Evaluation, parent: NDArray[np.int64], fine: Evaluation) -> Evaluation:
    """``state`` with the units ``parent`` replaced by their parts."""
    carried = np.ones(len(state.units), np.bool_)
    carried[parent] = False
    return _join(state, np.flatnonzero(carried), fine)


def _covered(units: Units, parts: Units, parent: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Flags of the units whose parts hold all of their rows, as far as counts are known.

    Rows outside all parts would be lost, so any other unit is kept whole.
    """
    counted = np.bincount(parent, weights=parts.rows, minlength=len(units))
    unknown = np.bincount(parent, weights=parts.rows < 0, minlength=len(units)) > 0
    return np.asarray((units.rows < 0) | unknown | (counted == units.rows))


def _join(coarse: Evaluation, carried: NDArray[np.int64], fine: Evaluation) -> Evaluation:
    """The ``carried`` units and the finer ones together, in file and row order."""
    if not len(carried) and _in_order(fine.units):
        return fine
    together = coarse.units.where(carried).with_finer(fine.units)
    order = np.lexsort((together.first_row, together.file))

    def both(a: Bounds[Any] | None, b: Bounds[Any] | None) -> Bounds[Any]:
        a = Bounds.unknown(len(coarse.units)) if a is None else a
        b = Bounds.unknown(len(fine.units)) if b is None else b
        must = np.concatenate((a.must[carried], b.must))[order]
        return Bounds(must, np.concatenate((a.may[carried], b.may))[order])

    every = dict.fromkeys((*coarse.leaves, *fine.leaves))
    return Evaluation(
        units=together.where(order),
        bounds=both(coarse.bounds, fine.bounds),
        leaves={leaf: both(coarse.leaves.get(leaf), fine.leaves.get(leaf)) for leaf in every},
        steps=fine.steps,
    )


def _in_order(units: Units) -> bool:
    """Whether units are already in file and row order."""
    file, row = units.file, units.first_row
    ahead = (file[1:] > file[:-1]) | ((file[1:] == file[:-1]) & (row[1:] >= row[:-1]))
    return bool(ahead.all())


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ObjectLevel:
    """Evidence about whole files.

    ``row_counts`` is int64 over the files, -1 where unknown. ``inherited`` are bounds that were
    computed elsewhere (``fact_runs.py``), by the steps ``asked``. ``idle`` are the steps of indexes
    on columns that the predicate does not name.
    """

    row_counts: NDArray[np.int64]
    evidence: Sequence[Evidence[Leaf]] = ()
    inherited: LeafBounds | None = None
    asked: Sequence[Step] = ()
    idle: Sequence[Step] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlanInput:
    """The input of a plan for ``tree`` over the files of ``listing``.

    ``finer`` are the sources below the files, ``of_row_groups`` is evidence besides theirs about
    the row groups into which they split, ``rows`` is the evidence about rows, ``fetch`` reads the
    bytes that evidence needs. By ``costs``, a finer level leaves out units where it would cost
    more than it saves; ``share`` estimates how much of a file lies in the columns of the predicate.
    A plan that is not ``shown`` need not name row groups of files whose rows are known; ``own`` as
    of ``CostGate``, ``counted`` as of ``RowLevel``. With ``earlier``, levels that skipped nothing
    in earlier plans are left out.
    """

    tree: Bound
    listing: Listing
    table: str
    predicate: str
    objects: ObjectLevel
    finer: Sequence[Source] = ()
    of_row_groups: Sequence[Evidence[Leaf]] = ()
    rows: RowSource | None = None
    fetch: Fetch = no_fetch
    costs: Costs = FREE
    share: float = 1.0
    shown: bool = True
    own: bool = False
    counted: bool = False
    earlier: EarlierPlans | None = None


def make_plan(given: PlanInput) -> Plan:
    """The plan, by one loop over all levels."""
    tree, listing, objects = given.tree, given.listing, given.objects
    finer, fetch, costs, row_counts = given.finer, given.fetch, given.costs, objects.row_counts
    started = time.perf_counter()
    columns = frozenset(leaf.column for leaf in leaves(tree))
    units = Units.objects(ordinals(len(listing)), row_counts)
    joint = with_joint(tree)
    state = evaluate(joint, objects.evidence, units, fetch=fetch, inherited=objects.inherited)
    steps: list[Step] = [*objects.asked, *state.steps, *objects.idle]
    dropped = np.full(len(listing), -1, np.int8)
    dropped[~alive_files(state, len(listing))] = Level.OBJECT
    stored = stored_columns(tree)
    gate = CostGate(
        costs,
        listing.sizes,
        row_counts,
        stored,
        given.share,
        own=given.own,
        earlier=given.earlier,
    )
    level = _row_level(given, columns, gate)
    levels = FinerLevels(
        tree=joint,
        sources=finer,
        of_row_groups=given.of_row_groups,
        fetch=fetch,
        gate=gate,
        steps=steps,
        dropped=dropped,
        shown=given.shown,
    )
    if level is not None and finer and costs.rows_first(len(columns)):
        state, levels.settled = level.first(state, len(listing))
        dropped[(dropped < 0) & ~alive_files(state, len(listing))] = Level.ROW
    state = levels.run(state)
    keep = alive_files(state, len(listing))
    must = _complete(state, keep)
    details: dict[int, FileDetail] = _details(state, row_counts) if finer else {}
    if level is not None:
        for file, bounds in level.rest(state).items():
            groups = _row_groups(state.units, file, bounds.may) if file in details else None
            details[file] = FileDetail(row_groups=groups, rows=bounds.may, exact=bounds.exact)
            keep[file] = bool(bounds.may)
            must[file] = keep[file] and len(bounds.must) == row_counts[file]
        steps.extend(level.steps.values())
    dropped[(dropped < 0) & ~keep] = Level.ROW

    of_rows = () if level is None else level.reasons
    reasons = (*levels.reasons, *of_rows, *gate.reasons, *_opaque_reasons(tree))
    undecided = keep & ~must
    undecided[[file for file, detail in details.items() if detail.exact]] = False
    return Plan(
        table=given.table,
        predicate=given.predicate,
        listing=listing,
        keep=keep,
        must=must,
        row_counts=row_counts,
        residual=given.predicate if undecided.any() else None,
        details={file: detail for file, detail in details.items() if keep[file]},
        steps=tuple(steps),
        dropped=dropped,
        reasons=tuple(dict.fromkeys(reasons)),
        milliseconds={"evaluation": (time.perf_counter() - started) * 1e3},
    )


def _row_level(given: PlanInput, columns: frozenset[str], gate: CostGate) -> RowLevel | None:
    if given.rows is None:
        return None
    from .row_level import RowLevel

    counts = given.objects.row_counts
    return RowLevel(
        given.tree, given.rows, columns, counts, given.fetch, gate, counted=given.counted
    )


def _complete(state: Evaluation, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The files of ``keep`` of which every row matches."""
    if state.units.level is Level.OBJECT:
        return keep & state.bounds.must
    must = keep.copy()
    must[state.units.file[~state.bounds.must]] = False
    return must


def _details(state: Evaluation, row_counts: NDArray[np.int64]) -> dict[int, FileDetail]:
    """What to read of each kept file that a finer level has cut."""
    units, may, must = state.units, state.bounds.may, state.bounds.must
    details: dict[int, FileDetail] = {}
    if not may.any() or units.level is Level.OBJECT:  # no file was cut
        return details
    edges = np.flatnonzero(units.file[1:] != units.file[:-1]) + 1
    starts, stops = np.concatenate(([0], edges)), np.concatenate((edges, [len(units)]))
    # Usually few of many files are cut; the others need no detail.
    alone = (stops - starts == 1) & (units.rows[starts] == row_counts[units.file[starts]])
    cut = ~alone & np.logical_or.reduceat(may, starts)
    for start, stop in zip(starts[cut].tolist(), stops[cut].tolist(), strict=True):
        file = int(units.file[start])
        kept = np.flatnonzero(may[start:stop]) + start
        if np.any(units.rows[kept] < 0):
            continue
        first = units.first_row[kept]
        details[file] = FileDetail(
            row_groups=tuple(distinct(units.ordinal[kept]).tolist()),
            rows=RowSet(first, first + units.rows[kept]),
            exact=bool(must[kept].all()),
        )
    return details


def _row_groups(units: Units, file: int, rows: RowSet) -> tuple[int, ...]:
    """Ordinals of the row groups of ``file`` that hold any of ``rows``."""
    mine = units.where((units.file == file) & (units.rows > 0))
    starts, stops = rows.ranges()
    # The first run that ends after the unit's first row is the only one that can overlap first.
    run = np.searchsorted(stops, mine.first_row, side="right")
    hit = run < len(starts)
    hit[hit] = starts[run[hit]] < (mine.first_row + mine.rows)[hit]
    return tuple(distinct(mine.ordinal[hit]).tolist())


def _opaque_reasons(tree: Bound) -> list[Reason]:
    """A reason per part of the predicate that no index can use."""
    opaque = [node for node in pieces(tree) if isinstance(node, Opaque)]
    return [
        Reason(cause=Cause.NOT_APPLICABLE, subject=node.sql, text=node.reason) for node in opaque
    ]
