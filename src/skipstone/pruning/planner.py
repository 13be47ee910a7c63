"""The planner: one loop from files to rows. Each level looks only at units that the last one kept.

A file without a fact is kept. A ``Source`` of a finer level splits
the undecided units, where the ``CostGate`` finds that it pays. New kinds of evidence are new
sources; this is the only loop.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.predicate.tree import Bound, Leaf, Opaque, leaves, pieces

from .._arrays import distinct
from . import Bounds, Cause, Evidence, Level, Reason, RowSet, Units
from .costs import FREE, CostGate, Costs
from .evaluation import Evaluation, Fetch, LeafBounds, evaluate, no_fetch
from .plan import FileDetail, Plan, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing

    from .evidence import RowSource, Source


log = logging.getLogger("skipstone")


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

    ``finer`` are the sources below the files, ``rows`` is the evidence about rows, ``fetch`` reads
    the bytes that evidence needs. By ``costs``, a finer level leaves out units where it would cost
    more than it saves.
    """

    tree: Bound
    listing: Listing
    table: str
    predicate: str
    objects: ObjectLevel
    finer: Sequence[Source] = ()
    rows: RowSource | None = None
    fetch: Fetch = no_fetch
    costs: Costs = FREE


def make_plan(given: PlanInput) -> Plan:
    """The plan, by one loop over all levels."""
    tree, listing, objects = given.tree, given.listing, given.objects
    finer, fetch, costs, row_counts = given.finer, given.fetch, given.costs, objects.row_counts
    started = time.perf_counter()
    columns = frozenset(leaf.column for leaf in leaves(tree))
    files = np.arange(len(listing), dtype=np.int64)
    units = Units.objects(files, row_counts)
    state = evaluate(tree, objects.evidence, units, fetch=fetch, inherited=objects.inherited)
    steps: list[Step] = [*objects.asked, *state.steps, *objects.idle]
    dropped = np.full(len(listing), -1, np.int8)
    dropped[~_alive(state, len(listing))] = Level.OBJECT
    failures: list[Reason] = []
    gate = CostGate(costs, listing.sizes, row_counts, len(columns))
    level = None
    if given.rows is not None:
        from .row_level import RowLevel

        level = RowLevel(tree, given.rows, columns, row_counts, fetch)
    settled = np.zeros(len(listing), np.bool_)
    if level is not None and finer and costs.rows_first(len(columns)):
        state, settled = level.first(state, len(listing))
        dropped[(dropped < 0) & ~_alive(state, len(listing))] = Level.ROW
    for source in sorted(finer, key=lambda item: item.level):
        if steps and not np.any(_undecided(state, settled)):
            break  # every unit is decided
        try:
            state = _refine(tree, state, source, columns, fetch, gate, settled)
        except Exception as error:  # a finer level is advice: without it the plan reads more
            from .row_level import failure

            failures.append(failure(source.level, error))
            continue
        _add(steps, state.steps, source.spent)
        failures.extend(source.reasons)
        dropped[(dropped < 0) & ~_alive(state, len(listing))] = source.level

    if settled.any():
        state = _cut(tree, state, finer, columns, settled)
    keep = _alive(state, len(listing))
    must = keep.copy()
    must[state.units.file[~state.bounds.must]] = False
    details: dict[int, FileDetail] = _details(state, row_counts) if finer else {}
    if level is not None:
        for file, bounds in level.rest(state).items():
            details[file] = FileDetail(
                row_groups=_row_groups(state.units, file, bounds.may) if file in details else None,
                rows=bounds.may,
                exact=bounds.exact,
            )
            keep[file] = bool(bounds.may)
            must[file] = keep[file] and len(bounds.must) == row_counts[file]
        steps.extend(level.steps.values())
        failures.extend(level.reasons)
    dropped[(dropped < 0) & ~keep] = Level.ROW

    reasons = (*failures, *gate.reasons, *_opaque_reasons(tree))
    evaluation = (time.perf_counter() - started) * 1e3
    undecided = [
        file
        for file in np.flatnonzero(keep & ~must).tolist()
        if file not in details or not details[file].exact
    ]
    return Plan(
        table=given.table,
        predicate=given.predicate,
        listing=listing,
        keep=keep,
        must=must,
        row_counts=row_counts,
        residual=given.predicate if undecided else None,
        details={file: detail for file, detail in details.items() if keep[file]},
        steps=tuple(steps),
        dropped=dropped,
        reasons=tuple(dict.fromkeys(reasons)),
        milliseconds={"evaluation": evaluation},
    )


def _alive(state: Evaluation, files: int) -> NDArray[np.bool_]:
    """Flags of the files with a unit that may hold a match."""
    alive = np.zeros(files, np.bool_)
    alive[state.units.file[state.bounds.may]] = True
    return alive


def _undecided(state: Evaluation, settled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Flags of the units that may match, but not surely completely, in files not ``settled``."""
    open_: NDArray[np.bool_] = state.bounds.may & ~state.bounds.must & ~settled[state.units.file]
    return open_


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
            steps.append(step)
        else:
            steps[at] = steps[at].plus(step)


def _refine(
    tree: Bound,
    state: Evaluation,
    source: Source,
    columns: frozenset[str],
    fetch: Fetch,
    gate: CostGate,
    settled: NDArray[np.bool_],
) -> Evaluation:
    """Evaluates one finer level: splits undecided units, and keeps all others as they are."""
    undecided = gate.choose(source, state.units, np.flatnonzero(_undecided(state, settled)))
    if not len(undecided):
        return replace(state, steps=())
    source.observe(state.units.where(state.bounds.may))

    def evidence(parts: Units) -> Sequence[Evidence[Leaf]]:
        return source.evidence(parts, columns)

    return _split(tree, state, source, undecided, columns, evidence, fetch)


def _split(
    tree: Bound,
    state: Evaluation,
    source: Source,
    at: NDArray[np.int64],
    columns: frozenset[str],
    evidence: Callable[[Units], Sequence[Evidence[Leaf]]],
    fetch: Fetch,
) -> Evaluation:
    """Splits the units ``at`` by ``source`` and evaluates ``evidence`` over the parts."""
    asked = state.units.where(at)
    parts, parent = source.split(asked, columns)
    if not len(parts) and source.limits_cost:
        return replace(state, steps=())  # the source left out every unit
    covered = _covered(asked, parts, parent)[parent]
    parts, parent = parts.where(covered), at[parent[covered]]
    fine = evaluate(
        tree,
        evidence(parts),
        parts,
        fetch=fetch,
        inherited=state.descend(parts, parent),
    )
    carried = np.ones(len(state.units), np.bool_)
    carried[parent] = False
    return _join(state, np.flatnonzero(carried), fine)


def _cut(
    tree: Bound,
    state: Evaluation,
    finer: Sequence[Source],
    columns: frozenset[str],
    settled: NDArray[np.bool_],
) -> Evaluation:
    """Splits the ``settled`` files into row groups, so that the plan can name them."""
    found = next(
        (each for each in finer if each.level is Level.ROW_GROUP and not each.limits_cost), None
    )
    at = np.flatnonzero(state.bounds.may & settled[state.units.file])
    if found is None or not len(at):
        return state
    try:
        return _split(tree, state, found, at, columns, lambda parts: (), no_fetch)
    except Exception:  # the reader of the file reports the error
        log.debug("row groups of files whose rows are known", exc_info=True)
        return state


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
    kept = coarse.units.where(carried)
    file = np.concatenate((kept.file, fine.units.file))
    first_row = np.concatenate((kept.first_row, fine.units.first_row))
    order = np.lexsort((first_row, file))
    units = Units(
        level=fine.units.level,
        file=file[order],
        ordinal=np.concatenate((kept.ordinal, fine.units.ordinal))[order],
        first_row=first_row[order],
        rows=np.concatenate((kept.rows, fine.units.rows))[order],
    )

    def both(a: Bounds[Any] | None, b: Bounds[Any] | None) -> Bounds[Any]:
        a = Bounds.unknown(len(coarse.units)) if a is None else a
        b = Bounds.unknown(len(fine.units)) if b is None else b
        must = np.concatenate((a.must[carried], b.must))[order]
        return Bounds(must, np.concatenate((a.may[carried], b.may))[order])

    every = dict.fromkeys((*coarse.leaves, *fine.leaves))
    return Evaluation(
        units=units,
        bounds=both(coarse.bounds, fine.bounds),
        leaves={leaf: both(coarse.leaves.get(leaf), fine.leaves.get(leaf)) for leaf in every},
        steps=fine.steps,
    )


def _in_order(units: Units) -> bool:
    """Whether units are already in file and row order."""
    file, row = units.file, units.first_row
    ahead = (file[1:] > file[:-1]) | ((file[1:] == file[:-1]) & (row[1:] >= row[:-1]))
    return bool(ahead.all())


def _details(state: Evaluation, row_counts: NDArray[np.int64]) -> dict[int, FileDetail]:
    """What to read of each kept file that a finer level has cut."""
    units, may, must = state.units, state.bounds.may, state.bounds.must
    details: dict[int, FileDetail] = {}
    if not may.any():
        return details
    starts = np.flatnonzero(np.diff(units.file, prepend=-1))
    stops = np.flatnonzero(np.diff(units.file, append=-1)) + 1
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
