"""Evaluates a bound predicate over the units of one level, evidence by evidence.

The only module that combines ``Bounds``. Per level:

1. every leaf starts with its bounds from the level above (or with "unknown");
2. evidence is evaluated in stages of equal ``cost``, cheapest first, over the undecided units only;
   the bytes that a stage needs are fetched in waves until it needs no more;
3. each answer sharpens its leaf, the tree is combined again, and the step is recorded: considered,
   kept, bytes, milliseconds, and the reason where nothing was proved.

Bounds are kept per leaf, not only for the whole tree. So one index can exclude one side of an OR at
one level, and another index the other side at a finer level.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from skipstone.predicate.tree import And, Bound, Const, Leaf, Opaque
from skipstone.predicate.tree import leaves as leaves_of

from . import Bounds, Evidence, RowSet, Units
from .questions import Fetch, Question, fetch_wave, no_fetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plan import Step


LeafBounds: TypeAlias = Mapping[Leaf, Bounds[Any]]


def combine(
    tree: Bound, of: LeafBounds, unknown: Bounds[Any], nothing: Bounds[Any], everything: Bounds[Any]
) -> Bounds[Any]:
    """Bounds of ``tree`` from the bounds of its leaves; an ``Opaque`` or unlisted leaf is unknown.

    ``unknown``, ``nothing`` and ``everything`` are the constants of the level's kind of set.
    """
    if isinstance(tree, Leaf):
        return of.get(tree, unknown)
    if isinstance(tree, Const):
        return everything if tree.value else nothing
    if isinstance(tree, Opaque):
        return unknown
    conjunction = isinstance(tree, And)
    result: Bounds[Any] | None = None
    for child in _bound(tree.children):
        part = combine(child, of, unknown, nothing, everything)
        if result is None:
            result = part
        else:
            result = result.meet_and(part) if conjunction else result.meet_or(part)
    return result if result is not None else everything if conjunction else nothing


def _bound(children: tuple[Any, ...]) -> tuple[Bound, ...]:
    return children


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Evaluation:
    """The result of one level: ``bounds`` of the whole predicate over ``units``, and of each
    leaf."""

    units: Units
    bounds: Bounds[NDArray[np.bool_]]
    leaves: Mapping[Leaf, Bounds[Any]]
    steps: tuple[Step, ...]

    def descend(self, children: Units, parent: NDArray[np.int64]) -> dict[Leaf, Bounds[Any]]:
        """Each leaf's bounds for finer units: ``parent[i]`` is the unit that child ``i`` lies in.

        Sound both ways: what holds for all rows of a unit, or for none, holds for every part of it.
        """
        return {
            leaf: Bounds(bounds.must[parent], bounds.may[parent])
            for leaf, bounds in self.leaves.items()
        }


def evaluate(
    tree: Bound,
    evidence: Sequence[Evidence[Leaf]],
    units: Units,
    *,
    fetch: Fetch = no_fetch,
    inherited: LeafBounds | None = None,
) -> Evaluation:
    """Evaluates ``evidence`` for the leaves of ``tree`` over ``units``; see the module.

    ``inherited`` are bounds from the level above (``Evaluation.descend``). Failing evidence raises
    nothing: it says nothing, with the reason.
    """
    n = len(units)
    found: dict[Leaf, Bounds[Any]] = dict(inherited or {})
    constants = (Bounds.unknown(n), Bounds.nothing(n), Bounds.everything(n))
    # A unit without rows holds no match, whatever the predicate.
    populated = Bounds(np.zeros(n, np.bool_), units.rows != 0)

    def whole() -> Bounds[Any]:
        return combine(tree, found, *constants).sharpen(populated)

    by_column = _by_column(tree)
    bounds = whole()
    steps: list[Step] = []
    for _, stage in itertools.groupby(sorted(evidence, key=_cost), key=_cost):
        at = np.flatnonzero(bounds.may & ~bounds.must)
        # The first stages usually cover every unit: this saves a copy of up to a million.
        open_units = units if len(at) == n else units.where(at)
        asked = [
            Question(item, by_column[item.column], open_units, len(at))
            for item in stage
            if item.column in by_column
        ]
        wave = fetch_wave(asked, fetch)
        for question in asked:
            started = time.perf_counter()
            before = int(np.count_nonzero(bounds.may))
            answers = question.answers(wave)
            for leaf, answer in zip(question.leaves, answers, strict=True):
                if answer.bounds is not None:
                    spread = _spread(answer.bounds, at, n)
                    known = found.get(leaf)
                    found[leaf] = spread if known is None else known.sharpen(spread)
            used = any(answer.bounds is not None for answer in answers)
            if used:
                bounds = whole()
            kept = int(np.count_nonzero(bounds.may))
            steps.append(question.step(used, before, kept, started, answers))
    return Evaluation(units=units, bounds=bounds, leaves=found, steps=tuple(steps))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowTask:
    """One file at the row level: its unit (the whole file), evidence, and what is known so far.

    ``leaves`` holds ``Bounds[RowSet]`` for leaves with bounds from coarser levels; ``alive`` are
    the rows that may still match the whole predicate.
    """

    unit: Units
    rows: int
    alive: RowSet
    evidence: Sequence[Evidence[Leaf]]
    leaves: LeafBounds


def evaluate_rows(
    tree: Bound, tasks: Sequence[RowTask], *, fetch: Fetch = no_fetch
) -> tuple[list[Bounds[RowSet]], tuple[Step, ...]]:
    """Row-level bounds of ``tree`` for each task; all files share one wave per stage of cost."""
    by_column = _by_column(tree)
    found = [dict(task.leaves) for task in tasks]
    alive = [task.alive for task in tasks]
    results = [Bounds(_NONE, task.alive) for task in tasks]
    constants = {rows: row_constants(rows) for rows in {task.rows for task in tasks}}
    steps: dict[tuple[str, str], Step] = {}
    order = sorted({item.cost for task in tasks for item in task.evidence})
    for cost in order:
        asked: list[tuple[int, Question]] = []
        for i, task in enumerate(tasks):
            if not results[i].may:
                continue
            for item in task.evidence:
                if item.cost == cost:
                    # A leaf that another index has decided needs no more reads.
                    open_leaves = [
                        leaf
                        for leaf in by_column.get(item.column, ())
                        if (known := found[i].get(leaf)) is None or known.must is not known.may
                    ]
                    if open_leaves:
                        asked.append((i, Question(item, open_leaves, task.unit, None)))
        wave = fetch_wave([question for _, question in asked], fetch)
        for i, question in asked:
            started = time.perf_counter()
            before = len(results[i].may)
            answers = question.answers(wave)
            for leaf, answer in zip(question.leaves, answers, strict=True):
                if answer.bounds is not None:
                    known = found[i].get(leaf)
                    decided = answer.bounds.must is answer.bounds.may
                    found[i][leaf] = (
                        answer.bounds if known is None or decided else known.sharpen(answer.bounds)
                    )
            used = any(answer.bounds is not None for answer in answers)
            if used:
                whole = combine(tree, found[i], *constants[tasks[i].rows])
                if len(alive[i]) < tasks[i].rows:
                    may = whole.may & alive[i]
                    whole = Bounds(may if whole.exact else whole.must & alive[i], may)
                results[i] = whole
            step = question.step(used, before, len(results[i].may), started, answers)
            key = (step.index, step.column)
            steps[key] = steps[key].plus(step) if key in steps else step
    return results, tuple(steps.values())


_NONE = RowSet()


def row_constants(rows: int) -> tuple[Bounds[RowSet], Bounds[RowSet], Bounds[RowSet]]:
    """``unknown``, ``nothing`` and ``everything`` for ``combine`` over one file's rows."""
    none, every = RowSet(), RowSet.all(rows)
    return Bounds(none, every), Bounds(none, none), Bounds(every, every)


def _cost(evidence: Evidence[Leaf]) -> float:
    return evidence.cost


def _by_column(tree: Bound) -> dict[str, list[Leaf]]:
    by_column: dict[str, list[Leaf]] = {}
    for leaf in leaves_of(tree):
        by_column.setdefault(leaf.column, []).append(leaf)
    return by_column


def _spread(part: Bounds[Any], at: NDArray[np.int64], n: int) -> Bounds[Any]:
    """Bounds over the units ``at`` as bounds over all ``n``; the others are unknown."""
    if len(at) == n:
        return part
    must, may = np.zeros(n, np.bool_), np.ones(n, np.bool_)
    must[at], may[at] = part.must, part.may
    return Bounds(must, may)
