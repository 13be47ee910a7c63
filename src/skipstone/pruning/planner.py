"""The planner: from files to rows. Each level looks only at units that the last one kept.

A file without a fact is kept. A ``Source`` of a finer level splits the undecided units, where the
``CostGate`` finds that it pays (``finer.py``). New kinds of evidence are new sources.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skipstone.predicate.tree import Bound, Leaf, Opaque, leaves, pieces, stored_columns

from .._arrays import distinct, ordinals
from . import Cause, Evidence, Level, Reason, RowSet, Units
from .costs import FREE, CostGate, Costs
from .evaluation import Evaluation, Fetch, LeafBounds, evaluate, no_fetch
from .finer import FinerLevels, alive_files
from .pairs import with_joint
from .plan import FileDetail, Plan, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing

    from .evidence import RowSource, Source
    from .row_level import RowLevel


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
    of ``CostGate``.
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
    gate = CostGate(costs, listing.sizes, row_counts, stored, given.share, own=given.own)
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
    return RowLevel(given.tree, given.rows, columns, counts, given.fetch, gate)


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
