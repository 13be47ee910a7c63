"""Evaluates a bound predicate over the units of one level, evidence by evidence.

The only module that combines ``Bounds``. Per level:

1. every leaf starts with its bounds from the level above (or with "unknown");
2. evidence is evaluated in stages of equal ``cost``, cheapest first, over the undecided units only;
   the bytes that a stage needs are fetched in waves until it needs no more;
3. each answer sharpens its leaf, the tree is combined again, and the step is recorded: considered,
   kept, bytes, milliseconds, and the reason where nothing was proved.

Bounds are kept per leaf, not only for the whole tree. So one index can exclude one side of an OR at
one level, and another index the other side at a finer level.

A ``Question`` is evidence together with leaves and units. The byte ranges that all questions of a
stage need are fetched as one wave, round after round. On any failure (the evidence raises, never
stops needing bytes, or answers in the wrong shape; the store fails or returns too few bytes) that
evidence says nothing, with the reason.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.predicate.tree import And, Bound, Const, Leaf, Opaque, restates
from skipstone.predicate.tree import leaves as leaves_of
from skipstone.storage import ByteRange

from . import Answer, Bounds, Cause, Evidence, Fetched, Reason, RowSet, Units
from .bounds import Constants, row_constants
from .evidence import answerable
from .plan import Step

if TYPE_CHECKING:
    from numpy.typing import NDArray


log = logging.getLogger("skipstone")

Fetch: TypeAlias = Callable[[Sequence[ByteRange]], Fetched]
LeafBounds: TypeAlias = Mapping[Leaf, Bounds[Any]]

# Evidence that needs more rounds is broken; a Paimon range-bitmap needs four.
MAX_ROUNDS = 8
# After this many failed objects the store counts as down.
MAX_FAILURES = 4


def no_fetch(ranges: Sequence[ByteRange]) -> Fetched:
    """The ``fetch`` of levels whose evidence is all in memory: it fetches nothing."""
    if ranges:
        raise LookupError(f"{len(ranges)} byte ranges are needed, and nothing fetches them here")
    return {}


class Question:
    """Evidence, the leaves to answer, and the units to answer for."""

    def __init__(
        self,
        evidence: Evidence[Leaf],
        leaves: Sequence[Leaf],
        units: Units,
        flags: int | None,
    ) -> None:
        """``flags``: bounds are boolean arrays of this length; ``None``: they are ``RowSet``."""
        self.evidence, self.leaves, self.units, self.flags = evidence, leaves, units, flags
        self.bytes_read = 0
        self.requests = 0
        self.failure: Answer | None = None
        self.lost: set[ByteRange] = set()

    @property
    def name(self) -> str:
        """The name in reasons: ``minmax(ts)``."""
        return f"{self.evidence.name}({self.evidence.column})"

    def lose(self, need: ByteRange, error: Exception, said: set[str]) -> None:
        """Records that ``need`` did not arrive, because of ``error``; ``said`` prevents equal
        warnings.

        Evidence that ``tolerates_loss`` still answers for its other objects.
        """
        if self.evidence.tolerates_loss:
            self.lost.add(need)
        elif self.failure is None:
            self.fail(error, said)

    def fail(self, error: Exception, said: set[str] | None = None) -> None:
        """Stops asking this evidence, because of ``error``."""
        warning = f"{self.name} says nothing: {type(error).__name__}: {error}"
        if said is None or warning not in said:
            log.warning("%s", warning)
        if said is not None:
            said.add(warning)
        cause = Cause.UNREADABLE if isinstance(error, OSError | LookupError) else Cause.CORRUPT
        text = f"{type(error).__name__}: {error}"
        self.failure = Answer.silent(cause, self.name, text, len(self.units))

    def needs(self, have: Fetched) -> Sequence[ByteRange]:
        """The byte ranges that the evidence still needs."""
        if self.failure is not None or not len(self.units):
            return ()
        try:
            needs = tuple(self.evidence.needs(self.leaves, self.units, have))
            if set(map(type, needs)) - {ByteRange}:
                raise TypeError("needs that are not byte ranges")
        except Exception as error:  # evidence is advice: without it the plan reads more
            self.fail(error)
            return ()
        if self.lost:
            needs = tuple([need for need in needs if need not in self.lost])
        return tuple([need for need in needs if need not in have]) if have else needs

    def answers(self, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf; silent ones, with the reason, when the evidence fails."""
        if not len(self.units):
            return [Answer(bounds=None)] * len(self.leaves)
        if self.failure is None:
            try:
                answers = self.evidence.answer(self.leaves, self.units, have)
                if len(answers) != len(self.leaves):
                    raise ValueError(f"{len(answers)} answers to {len(self.leaves)} leaves")
                return [self._checked(answer) for answer in answers]
            except Exception as error:  # as above
                self.fail(error)
        assert self.failure is not None
        return [self.failure] * len(self.leaves)

    def _checked(self, answer: Answer) -> Answer:
        if not all(isinstance(reason, Reason) for reason in answer.reasons):
            raise TypeError("reasons that are not Reason")
        if answer.bounds is None:
            if answer.reasons:
                return answer
            text = "says nothing about this predicate"
            return Answer.silent(Cause.NOT_APPLICABLE, self.name, text)
        may, must = answer.bounds.may, answer.bounds.must
        if self.flags is None:
            if not (isinstance(may, RowSet) and isinstance(must, RowSet)):
                raise TypeError(f"bounds of {type(may).__name__} instead of rows")
        elif not (
            isinstance(may, np.ndarray)
            and isinstance(must, np.ndarray)
            and may.dtype == must.dtype == np.bool_
            and may.shape == must.shape == (self.flags,)
        ):
            raise ValueError(f"bounds that are not flags of {self.flags} units")
        return answer


class Work:
    """The step of evidence that answers questions, of the same kind about one column."""

    def __init__(self, evidence: Evidence[Leaf]) -> None:
        self.evidence = evidence
        self.used = False
        self.considered = self.kept = self.bytes_read = self.requests = 0
        self.seconds = 0.0
        self.reasons: dict[Reason, None] = {}

    def add(
        self,
        question: Question,
        used: bool,
        considered: int,
        kept: int,
        started: float,
        answers: Sequence[Answer],
    ) -> None:
        """Adds a question that kept ``kept`` of ``considered`` units."""
        self.used = self.used or used
        self.considered += considered
        self.kept += kept
        self.bytes_read += question.bytes_read
        self.requests += question.requests
        self.seconds += time.perf_counter() - started
        for answer in answers:
            if answer.reasons:
                self.reasons.update(dict.fromkeys(answer.reasons))

    def step(self) -> Step:
        """The step, for ``explain``."""
        return Step(
            level=self.evidence.level,
            index=self.evidence.name,
            column=self.evidence.column,
            used=self.used,
            considered=self.considered,
            kept=self.kept,
            bytes_read=self.bytes_read,
            requests=self.requests,
            milliseconds=self.seconds * 1e3,
            reasons=tuple(self.reasons),
        )


def fetch_wave(asked: Sequence[Question], fetch: Fetch) -> Fetched:
    """Fetches the byte ranges of all questions together, round after round."""
    have: dict[ByteRange, bytes | memoryview] = {}
    for _ in range(MAX_ROUNDS):
        wanted: dict[ByteRange, list[Question]] = {}
        for question in asked:
            for need in question.needs(have):
                askers = wanted.setdefault(need, [])
                if not askers:
                    question.bytes_read += need.length
                    question.requests += 1
                askers.append(question)
        if not wanted:
            return have
        errors = fetch_round(list(wanted), fetch, have)
        said: set[str] = set()
        for need, askers in wanted.items():
            if need not in have:
                text = f"{need.path}: requested bytes did not arrive"
                error = errors.get(need.path) or LookupError(text)
                for question in askers:
                    question.lose(need, error, said)
    for question in asked:
        if question.needs(have):
            question.fail(ValueError(f"still needs bytes after {MAX_ROUNDS} rounds"))
    return have


def fetch_round(
    wanted: Sequence[ByteRange], fetch: Fetch, have: dict[ByteRange, bytes | memoryview]
) -> dict[str, Exception]:
    """Fetches all ranges at once; path by path if that fails, so that one lost object affects
    only the evidence that needs it. Returns the error of each failed path."""
    errors: dict[str, Exception] = {}
    try:
        _take(have, wanted, fetch(wanted))
        return errors
    except Exception as error:  # a failed store only makes its indexes say nothing
        by_path: dict[str, list[ByteRange]] = {}
        for need in wanted:
            by_path.setdefault(need.path, []).append(need)
        errors.update(dict.fromkeys(by_path, error))
    if len(by_path) == 1:
        return errors
    failed = 0
    for path, needs in by_path.items():
        try:
            _take(have, needs, fetch(needs))
        except Exception as error:
            errors[path] = error
            failed += 1
            if failed == MAX_FAILURES:  # the store is down: do not try every path
                break
    return errors


def _take(
    have: dict[ByteRange, bytes | memoryview], wanted: Sequence[ByteRange], got: Fetched
) -> None:
    for need in wanted:
        part = got.get(need)
        if part is not None and len(part) == need.length:
            have[need] = part


# -- bounds of the whole predicate -----------------------------------------------------------------


def combine(tree: Bound, of: LeafBounds, constants: Constants) -> Bounds[Any]:
    """Bounds of ``tree`` from the bounds of its leaves; an ``Opaque`` or unlisted leaf is unknown.

    ``constants`` are those of the level's kind of set. In an AND, a leaf that restates the others
    is TRUE wherever they are: it narrows ``may``, and only the others decide ``must``.
    """
    if isinstance(tree, Leaf):
        found = of.get(tree)
        return constants.unknown if found is None else found
    if isinstance(tree, Const):
        return constants.everything if tree.value else constants.nothing
    if isinstance(tree, Opaque):
        return constants.unknown
    conjunction = isinstance(tree, And)
    result: Bounds[Any] | None = None
    for child in tree.children:
        part = combine(cast("Bound", child), of, constants)
        if conjunction and restates(cast("Bound", child)):
            part = Bounds(part.may, part.may)
        if result is None:
            result = part
        else:
            result = result.meet_and(part) if conjunction else result.meet_or(part)
    if result is not None:
        return result
    return constants.everything if conjunction else constants.nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceOutcome:
    """What evidence of this ``cost`` decided: undecided units ``before`` and ``after``."""

    index: str
    column: str
    cost: float
    before: int
    after: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Evaluation:
    """The result of one level: ``bounds`` of the predicate over ``units``, and of each leaf;
    ``outcomes`` of the evidence in the order of evaluation."""

    units: Units
    bounds: Bounds[NDArray[np.bool_]]
    leaves: Mapping[Leaf, Bounds[Any]]
    steps: tuple[Step, ...]
    outcomes: tuple[EvidenceOutcome, ...] = ()

    def descend(self, parent: NDArray[np.int64]) -> dict[Leaf, Bounds[Any]]:
        """Each leaf's bounds for finer units: ``parent[i]`` is the unit of finer unit ``i``.

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
    constants = Constants(n)
    # A unit without rows holds no match, whatever the predicate.
    populated = None if units.rows.all() else Bounds(np.zeros(n, np.bool_), units.rows != 0)

    def whole() -> Bounds[Any]:
        bounds = combine(tree, found, constants)
        return bounds if populated is None else bounds.sharpen(populated)

    by_column = _by_column(tree)
    bounds = whole()
    steps: list[Step] = []
    outcomes: list[EvidenceOutcome] = []
    for cost, stage in itertools.groupby(sorted(evidence, key=_cost), key=_cost):
        undecided = bounds.may & ~bounds.must
        left = count = int(np.count_nonzero(undecided))
        # The first stages usually cover every unit: this saves a copy of up to a million.
        at = None if count == n else np.flatnonzero(undecided)
        open_units = units if at is None else units.where(at)
        asked = [
            Question(item, mine, open_units, count)
            for item in stage
            if (mine := answerable(item, by_column.get(item.column, ())))
        ]
        wave = fetch_wave(asked, fetch)
        for question in asked:
            started = time.perf_counter()
            before = int(np.count_nonzero(bounds.may))
            answers = question.answers(wave)
            used = any(answer.bounds is not None for answer in answers)
            if used and _sharpened(found, question, answers, at, n):
                bounds = whole()
            kept = int(np.count_nonzero(bounds.may))
            work = Work(question.evidence)
            work.add(question, used, before, kept, started, answers)
            steps.append(step := work.step())
            after = kept - int(np.count_nonzero(bounds.must))  # all of these may match
            outcome = EvidenceOutcome(
                index=step.index, column=step.column, cost=cost, before=left, after=after
            )
            outcomes.append(outcome)
            left = after
    return Evaluation(
        units=units, bounds=bounds, leaves=found, steps=tuple(steps), outcomes=tuple(outcomes)
    )


def _sharpened(
    found: dict[Leaf, Bounds[Any]],
    question: Question,
    answers: Sequence[Answer],
    at: NDArray[np.int64] | None,
    n: int,
) -> bool:
    """Adds the answers about the units ``at`` of ``n`` (``None``: all) to ``found``; returns
    whether they prove anything."""
    proved = False
    for leaf, answer in zip(question.leaves, answers, strict=True):
        spread = answer.bounds
        # These bounds prove nothing: they are those of an unknown leaf.
        if spread is None or (spread.may.all() and not spread.must.any()):
            continue
        proved = True
        if at is not None:
            spread = Bounds.over(spread, at, n)
        known = found.get(leaf)
        found[leaf] = spread if known is None else known.sharpen(spread)
    return proved


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
    results = [Bounds(RowSet(), task.alive) for task in tasks]
    constants = {rows: row_constants(rows) for rows in {task.rows for task in tasks}}
    left = [len(rows) for rows in alive]
    work: dict[tuple[str, str], Work] = {}
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
            before = left[i]
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
                whole = combine(tree, found[i], constants[tasks[i].rows])
                if (
                    alive[i] is not constants[tasks[i].rows].everything.may
                    and len(alive[i]) < tasks[i].rows
                ):
                    may = whole.may & alive[i]
                    whole = Bounds(may if whole.exact else whole.must & alive[i], may)
                results[i] = whole
            evidence = question.evidence
            key = (evidence.name, evidence.column)
            if key not in work:
                work[key] = Work(evidence)
            if used:
                left[i] = len(results[i].may)
            work[key].add(question, used, before, left[i], started, answers)
    return results, tuple(each.step() for each in work.values())


def _cost(evidence: Evidence[Leaf]) -> float:
    return evidence.cost


def _by_column(tree: Bound) -> dict[str, list[Leaf]]:
    by_column: dict[str, list[Leaf]] = {}
    for leaf in leaves_of(tree):
        by_column.setdefault(leaf.column, []).append(leaf)
    return by_column
