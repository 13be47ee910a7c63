"""The row level: evaluates row indexes over the files that are still undecided.

It usually runs last, after row groups and pages have reduced the rows. For files whose row indexes
decide every leaf of the predicate exactly, it runs first: opening such a file for its row groups
and pages takes longer and adds nothing. ``decides`` shows this before anything is read. Where
there are many files, a sample is evaluated first, and the others only where that saves more than it
takes.
"""

from __future__ import annotations

import logging
import time
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.predicate.tree import Bound, Leaf, leaves

from .._arrays import distinct
from . import Bounds, Cause, Evidence, Level, Reason, RowSet, Units
from .bounds import row_constants
from .costs import CHOSEN_CPU, EXPECTED, FEW, FREE, JOINED_CPU, OPENED, ROW_CPU
from .evaluation import RowTask, combine, evaluate_rows
from .plan import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .costs import CostGate
    from .evaluation import Evaluation, Fetch
    from .evidence import KnownRows, RowSource


log = logging.getLogger("skipstone")

# Files per wave where row indexes decide every row: few bytes of each are fetched.
_TOGETHER = 1024
# Files per wave. Fetched bytes stay in memory until all files of the wave are evaluated.
_WAVE = 64
# Where evaluating is free: from ``_MANY`` files on, a sample is evaluated first. The others follow
# only if the sample decided at least one in ``_WORTH`` of its rows.
_MANY, _WORTH = 4 * _WAVE, 32
# The sample of more than ``FEW`` files. Eight show what most files are like, and an index that pays
# only in a few files gains little.
_SAMPLE = FEW // 2
# Writers end a page after so many rows, unless its bytes end it first.
_ROWS_OF_PAGE = 20_000
# The most files of one plan: with more, planning takes longer than it saves.
_MOST_FILES = 10_000


@dataclass(slots=True, eq=False)
class RowLevel:
    """The row level of one plan: ``found`` has the bounds of each evaluated file, ``steps`` the
    work of each index, ``reasons`` why some files were left out. ``counted``: only the number of
    rows is wanted, so that a file is not read where its indexes decide every row."""

    tree: Bound
    source: RowSource
    columns: frozenset[str]
    row_counts: NDArray[np.int64]
    fetch: Fetch
    gate: CostGate
    counted: bool = False
    found: dict[int, Bounds[RowSet]] = field(default_factory=dict)
    steps: dict[tuple[str, str], Step] = field(default_factory=dict)
    reasons: list[Reason] = field(default_factory=list)
    # Evaluated first and not settled: the finer levels may prove more.
    _left: list[int] = field(default_factory=list)
    # A sample said that evaluating the other files costs more than it saves.
    _declined: bool = False
    _tasks: int = 0
    #: seconds of evaluating the indexes of these ``_tasks``, without reading them
    _seconds: float = 0.0

    def first(self, state: Evaluation, files: int) -> tuple[Evaluation, NDArray[np.bool_]]:
        """Runs before any finer level, and settles files whose indexes decide every row.

        Returns the state without the files that have no matching row, and a flag per file of the
        listing: whether it is settled.
        """
        settled = np.zeros(files, np.bool_)
        open_files = _open_files(state)[:_MOST_FILES]
        asked = leaves(self.tree)
        if not len(open_files):
            return state, settled
        sample = _evenly(open_files, _SAMPLE)
        if len(open_files) <= FEW:
            self._settle(state, open_files, asked, settled)
        else:
            self._settle(state, sample, asked, settled)
            known = sample[settled[sample]]
            self._declined = len(known) > 0 and not self._pays(known, 1.0)
            if len(known) and not self._declined:
                others = np.setdiff1d(open_files, sample)
                for start in range(0, len(others), _TOGETHER):
                    self._settle(state, others[start : start + _TOGETHER], asked, settled)
            elif self._declined:
                self.reasons.append(_not_worth(len(sample), len(open_files)))
        if not settled.any():
            return state, settled
        count = int(settled.sum())
        text = f"not looked at in {count:,} of {len(open_files):,} files: indexes decide every row"
        self.reasons.append(Reason(cause=Cause.COSTLY, subject=Level.ROW_GROUP.unit, text=text))
        none = np.array([file for file in self.found if not self.found[file].may], np.int64)
        if not len(none):
            return state, settled
        may = state.bounds.may & ~np.isin(state.units.file, none)
        return replace(state, bounds=Bounds(state.bounds.must & may, may)), settled

    def _settle(
        self,
        state: Evaluation,
        files: NDArray[np.int64],
        asked: Sequence[Leaf],
        settled: NDArray[np.bool_],
    ) -> None:
        """Evaluates those of ``files`` whose indexes decide every row, and flags them."""
        known = self._known(state, files, asked)
        settled[known] = True
        files = files[~settled[files]]
        tasks: dict[int, RowTask] = {}
        for file, mine in _units_of(state, files):
            found = self._evidence(file)
            if found and _decide_all(found, asked):
                task = self._task(state, file, mine, found)
                if task is not None:
                    tasks[file] = task
        self._ask(tasks)
        for file, task in tasks.items():
            # A damaged index decides nothing.
            settled[file] = self.found[file].exact or _decide_all(task.evidence, asked)
        self._left += [file for file in tasks if not settled[file]]

    def _known(
        self, state: Evaluation, files: NDArray[np.int64], asked: Sequence[Leaf]
    ) -> list[int]:
        """Settles those of ``files`` whose answers to all leaves are known from earlier plans;
        returns them."""
        if state.units.level is not Level.OBJECT:
            return []
        try:
            known = self.source.known(asked, files, self.fetch)
        except Exception as error:  # as in ``_evidence``
            self.reasons.append(failure(Level.ROW, error))
            return []
        if not known:
            return []
        done: list[int] = []
        work = [[0, 0, 0.0] for _ in known]
        facts = [each.facts[files].tolist() for each in known]
        if isinstance(self.tree, Leaf):  # the answer is that of the predicate
            started, (bounds,) = time.perf_counter(), [each.bounds for each in known]
            counts = self.row_counts[files].tolist()
            for file, fact, rows in zip(files.tolist(), *facts, counts, strict=True):
                answer = bounds.get(fact)
                if answer is not None and rows >= 0:
                    self.found[file] = answer
                    work[0][0] += rows
                    work[0][1] += len(answer.may)
                    done.append(file)
            work[0][2], facts = time.perf_counter() - started, [[] for _ in known]
            files = files[:0]
        for file, *mine in zip(files.tolist(), *facts, strict=True):
            found: dict[Leaf, Bounds[RowSet]] = {}
            for each, fact in zip(known, mine, strict=True):
                answer = each.bounds.get(fact)
                if answer is None:
                    break
                found[each.leaf] = answer
            started, rows = time.perf_counter(), int(self.row_counts[file])
            if len(found) < len(known) or rows < 0:
                continue
            constants, so_far = row_constants(rows), {}
            left, whole = rows, constants.unknown
            for each, spent in zip(known, work, strict=True):
                so_far[each.leaf] = found[each.leaf]
                whole = combine(self.tree, so_far, constants)
                spent[0] += left
                left = len(whole.may)
                spent[1] += left
            work[-1][2] += time.perf_counter() - started
            self.found[file] = whole
            done.append(file)
        self._tasks += len(done)
        self._seconds += len(done) * ROW_CPU * sum(each.cost for each in known)
        for each in known:
            if each.joins:
                held = each.facts[np.array(done, np.int64)].tolist()
                self._seconds += JOINED_CPU * sum(len(each.bounds[fact].may) for fact in held)
        for each, (considered, kept, seconds) in zip(known, work, strict=True):
            if done or each.requests:
                self._add(_step_of(each, int(considered), int(kept), seconds))
        return done

    def _add(self, step: Step) -> None:
        key = (step.index, step.column)
        self.steps[key] = self.steps[key].plus(step) if key in self.steps else step

    def _pays(self, known: NDArray[np.int64], decided: float) -> bool:
        """Whether evaluating the files ``known`` saved more than it took.

        It saves reading the ``decided`` share of their rows, and opening the files without a row
        that is left. The columns of the predicate may be part of the result for rows that are left.
        A page is read even if only one of its rows is undecided. Where the reader takes only some
        rows of a file, it takes them one by one."""
        costs, rows = self.gate.costs, self.row_counts[known]
        units = Units.objects(known, rows)
        found = [self.found[file] for file in known.tolist()]
        left = np.array([len(each.may) for each in found], np.int64)
        gone, kept = np.count_nonzero(left == 0) / len(known), left.sum() / max(rows.sum(), 1)
        read = float(self.gate.reading(None, units).mean())
        # In an object store the requests take the time, not the bytes.
        if not costs.at_once:
            sizes = {column: self.source.stored(known, column) for column in self.gate.columns}
            # Where few rows are left, most pages of other columns are not read either.
            read += kept * (float(self.gate.reading(None, units, sizes).mean()) - read)
        undecided = left - np.array([len(each.must) for each in found], np.int64)
        skipped = np.exp(-undecided / np.maximum(rows / _ROWS_OF_PAGE, 1)).mean()
        saved = decided * skipped * (1 - EXPECTED * kept) * read + gone * costs.file * OPENED
        took = costs.rows * (len(self.steps) or 1) + self._seconds / max(self._tasks, 1)
        if self.counted:
            exact = sum(each.exact for each in found) / len(known)
            saved = max(saved, exact * (read + costs.file * OPENED))
        else:
            took += CHOSEN_CPU * float(left[left < rows].sum()) / len(known)
        return bool(saved > took)

    def rest(self, state: Evaluation) -> dict[int, Bounds[RowSet]]:
        """Runs after the finer levels, over the other undecided files; returns the bounds of all
        evaluated files."""
        open_files = _open_files(state)
        for file in self._left:
            mine = np.flatnonzero(state.units.file == file)
            alive = _rows_of(state.units, mine, state.bounds.may)
            bounds = self.found[file]
            self.found[file] = Bounds(bounds.must & alive, bounds.may & alive)
        if self.found:
            left = [file for file in open_files.tolist() if file not in self.found]
            open_files = np.array(left, np.int64)
        if len(open_files) > _MOST_FILES:
            self.reasons.append(_too_many(len(open_files) - _MOST_FILES))
            open_files = open_files[:_MOST_FILES]
        if self._declined or not len(open_files):
            return self.found
        size, few = (_WAVE, _MANY - 1) if self.gate.costs is FREE else (_SAMPLE, FEW)
        sample = _evenly(open_files, size)
        if len(open_files) <= few:
            self._walk(state, open_files)
            return self.found
        total, undecided = self._walk(state, sample)
        if self.gate.costs is FREE:
            pays = (total - undecided) * _WORTH >= total
        else:
            known = sample[np.isin(sample, list(self.found))]
            pays = len(known) > 0 and self._pays(known, (total - undecided) / max(total, 1))
        if pays:
            self._walk(state, np.setdiff1d(open_files, sample))
        elif total:
            self.reasons.append(_not_worth(len(sample), len(open_files)))
        return self.found

    def _walk(self, state: Evaluation, files: NDArray[np.int64]) -> tuple[int, int]:
        """Evaluates these files wave by wave; returns the number of rows, and of undecided rows."""
        alive = undecided = 0
        tasks: dict[int, RowTask] = {}

        def ask() -> None:
            nonlocal alive, undecided
            self._ask(tasks)
            alive += sum(len(task.alive) for task in tasks.values())
            bounds = [self.found[file] for file in tasks]
            undecided += sum(len(each.may) - len(each.must) for each in bounds)
            tasks.clear()

        for file, mine in _units_of(state, files):
            task = self._task(state, file, mine, self._evidence(file))
            if task is not None:
                tasks[file] = task
            if len(tasks) == _WAVE:
                ask()
        ask()
        return alive, undecided

    def _evidence(self, file: int) -> Sequence[Evidence[Leaf]]:
        try:
            return self.source.evidence(file, self.columns)
        except Exception as error:  # row evidence is advice: without it the plan reads more
            self.reasons.append(failure(Level.ROW, error))
            return ()

    def _task(
        self,
        state: Evaluation,
        file: int,
        mine: NDArray[np.int64],
        found: Sequence[Evidence[Leaf]],
    ) -> RowTask | None:
        """``None`` without evidence, or where row counts are unknown."""
        units, rows = state.units, int(self.row_counts[file])
        if not found or rows < 0:
            return None
        whole = len(mine) == 1 and bool(units.rows[mine[0]] == rows)
        if not whole and np.any(units.rows[mine] < 0):
            return None
        return RowTask(
            unit=Units.objects(np.array([file]), self.row_counts[file : file + 1]),
            rows=rows,
            alive=row_constants(rows).everything.may
            if whole
            else _rows_of(units, mine, state.bounds.may),
            evidence=found,
            leaves={
                leaf: Bounds(_rows_of(units, mine, bounds.must), _rows_of(units, mine, bounds.may))
                for leaf, bounds in state.leaves.items()
                # A leaf of which nothing is known needs no bounds.
                if not whole or bounds.must[mine[0]] or not bounds.may[mine[0]]
            },
        )

    def _ask(self, tasks: dict[int, RowTask]) -> None:
        self._tasks += len(tasks)
        results, steps = evaluate_rows(self.tree, list(tasks.values()), fetch=self.fetch)
        self.found.update(zip(tasks, results, strict=True))
        asked = [each for task in tasks.values() for each in task.evidence]
        self._seconds += ROW_CPU * sum(each.cost for each in asked)
        self._seconds += JOINED_CPU * sum(each.joined for each in asked)
        for step in steps:
            self._add(step)


def failure(level: Level, error: Exception) -> Reason:
    """The reason for a level that failed; also logs a warning."""
    text = f"not looked at: {type(error).__name__}: {error}"
    log.warning("%s %s", level.unit, text)
    return Reason(cause=Cause.UNREADABLE, subject=level.unit, text=text)


def _step_of(known: KnownRows, considered: int, kept: int, seconds: float) -> Step:
    """The step of answers that were known from earlier plans."""
    return Step(
        level=Level.ROW,
        index=known.index,
        column=known.leaf.column,
        used=True,
        considered=considered,
        kept=kept,
        bytes_read=known.bytes_read,
        requests=known.requests,
        milliseconds=known.milliseconds + seconds * 1e3,
    )


def _decide_all(found: Sequence[Evidence[Leaf]], asked: Sequence[Leaf]) -> bool:
    return all(any(_decides(each, leaf) for each in found) for leaf in asked)


def _decides(evidence: Evidence[Leaf], leaf: Leaf) -> bool:
    return evidence.column == leaf.column and evidence.decides(leaf)


def _open_files(state: Evaluation) -> NDArray[np.int64]:
    return distinct(state.units.file[state.bounds.may & ~state.bounds.must])


def _units_of(state: Evaluation, files: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """For each of ``files`` the positions of its units."""
    file = state.units.file
    order = np.argsort(file, kind="stable")
    edges = np.searchsorted(file[order], np.stack([files, files + 1]))
    cuts = zip(files.tolist(), edges[0].tolist(), edges[1].tolist(), strict=True)
    return [(file, order[start:stop]) for file, start, stop in cuts]


def _rows_of(units: Units, mine: NDArray[np.int64], mask: NDArray[np.bool_]) -> RowSet:
    """The rows of one file's units ``mine`` that ``mask`` selects."""
    first, held = units.first_row[mine], mask[mine]
    return RowSet(first[held], (first + units.rows[mine])[held])


def _too_many(count: int) -> Reason:
    text = f"evaluated for {_MOST_FILES:,} files and not for the others"
    return Reason(cause=Cause.COSTLY, subject=Level.ROW.unit, text=text, units=count)


def _not_worth(asked: int, total: int) -> Reason:
    text = f"asked in {asked:,} of {total:,} files, where it skipped too little"
    return Reason(cause=Cause.COSTLY, subject=Level.ROW.unit, text=text)


def _evenly(files: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return files[np.linspace(0, len(files) - 1, count).astype(np.int64)]
