"""Evaluates facts run by run when they do not fit in memory, and merges the results.

If the fact columns of a predicate exceed the memory limit, each run of fact rows (see
``facts/part_batches.py``) is evaluated on its own, in this process or in Spark tasks. A run returns
only bits: ``may`` and ``must`` per leaf and row. ``gather`` merges them over the files.

Sound because every fact row that matches a file is about exactly that version. What one row proves
of a leaf holds for the file, whatever rows in other parts say (an index that was built later has a
row of its own). So each row of a file sharpens its leaves, and the tree is combined once over the
files.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from skipstone.facts import Location, Snapshot
from skipstone.facts.part_batches import PartBatch, batches_over, column_bytes, open_batch
from skipstone.human import size
from skipstone.predicate.tree import leaves as leaves_of
from skipstone.pruning import Bounds, Cause, Reason, Units
from skipstone.pruning.evaluation import evaluate
from skipstone.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from skipstone.facts import MatchedFacts
    from skipstone.predicate.tree import Bound, Leaf
    from skipstone.pruning.plan import Step


#: Default limit for the bytes of fact columns that one predicate loads into the planning process.
IN_MEMORY = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """The result of a run: ``may`` and ``must`` of its rows, for each leaf with evidence.

    ``leaves`` maps a leaf's number to two bit strings (``numpy.packbits``) over the run's live
    rows, deflated because usually all bits are equal.
    """

    run: PartBatch
    leaves: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunJob:
    """The settings of a task, without its runs; it can be pickled.

    Only facts about ``columns`` are used, and those in sidecars only with ``file_index``.
    """

    location: str
    storage_options: Mapping[str, str]
    tree: Bound
    columns: frozenset[str]
    file_index: bool = True

    def run(self, run: PartBatch) -> RunAnswer:
        """Evaluates the tree over one run. Unreadable facts say nothing and raise nothing."""
        storage = open_storage(self.location, self.storage_options)
        opened = open_batch(run, Location(self.location), storage)
        if isinstance(opened, Reason):
            return RunAnswer(run=run, reasons=(opened,))
        leaves = leaves_of(self.tree)
        found_indexes = opened.evidence(self.columns)
        evidence = [index for index in found_indexes if self.file_index or index.sidecar is None]
        about = run.about
        units = Units.objects(about, opened.rows[about])
        found = evaluate(self.tree, evidence, units, fetch=storage.read_ranges)
        return RunAnswer(
            run=run,
            leaves={
                number: (_packed(bounds.may), _packed(bounds.must))
                for number, leaf in enumerate(leaves)
                if (bounds := found.leaves.get(leaf)) is not None
            },
            steps=found.steps,
            reasons=opened.reasons,
        )


#: Executes the job over all runs, in any place and order.
Runner: TypeAlias = Callable[[RunJob, Sequence[PartBatch]], Iterable[RunAnswer]]


def in_turn(job: RunJob, found: Sequence[PartBatch]) -> Iterable[RunAnswer]:
    """Executes the job in this process, two runs at a time, so memory holds two runs."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield from pool.map(job.run, found)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gathered:
    """Bounds of the leaves over the files of a listing, the steps behind them, and reasons."""

    leaves: Mapping[Leaf, Bounds[Any]]
    steps: tuple[Step, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Beyond ``limit`` bytes of fact columns, ``runner`` evaluates a predicate run by run.

    ``storage_options`` open the facts' storage in other processes.
    """

    limit: int = IN_MEMORY
    runner: Runner = in_turn
    storage_options: Mapping[str, str] = field(default_factory=dict)


def gather(
    tree: Bound,
    matched: MatchedFacts,
    columns: frozenset[str],
    how: RunSettings,
    *,
    file_index: bool = True,
) -> Gathered | None:
    """Evaluates ``tree`` over facts about ``columns`` run by run; ``None`` if they fit in memory.

    Steps count fact rows: one per file, or more where indexes were added later. A foreign store is
    always held in memory: its parts are converted while they are read.
    """
    if type(matched.snapshot) is not Snapshot:
        return None
    leaves = leaves_of(tree)
    needed = column_bytes(matched.snapshot, columns)
    if needed <= how.limit:
        return None
    root = matched.snapshot.location.root
    text = f"{size(needed)} of them are wanted, more than memory is given: asked run by run"
    reasons = {Reason(cause=Cause.COSTLY, subject=f"facts at {root}", text=text): None}
    job = RunJob(
        location=root,
        storage_options=dict(how.storage_options),
        tree=tree,
        columns=columns,
        file_index=file_index,
    )
    count = len(matched)
    may: dict[int, NDArray[np.bool_]] = {}
    must: dict[int, NDArray[np.bool_]] = {}
    steps: dict[tuple[str, str], Step] = {}
    for answer in how.runner(job, batches_over(matched, columns)):
        reasons.update(dict.fromkeys(answer.reasons))
        for step in answer.steps:
            key = (step.index, step.column)
            steps[key] = steps[key].plus(step) if key in steps else step
        file = matched.file_of_row[answer.run.first + answer.run.about]
        for number, (may_bits, must_bits) in answer.leaves.items():
            if number not in may:
                may[number], must[number] = np.ones(count, np.bool_), np.zeros(count, np.bool_)
            may[number][file[~_unpacked(may_bits, len(file))]] = False
            must[number][file[_unpacked(must_bits, len(file))]] = True
    return Gathered(
        leaves={leaves[number]: Bounds(must[number], may[number]) for number in may},
        steps=tuple(steps.values()),
        reasons=tuple(reasons),
    )


def sharpened(parts: Iterable[Mapping[Leaf, Bounds[Any]]]) -> dict[Leaf, Bounds[Any]]:
    """Bounds per leaf, combined over several stores."""
    found: dict[Leaf, Bounds[Any]] = {}
    for part in parts:
        for leaf, bounds in part.items():
            found[leaf] = found[leaf].sharpen(bounds) if leaf in found else bounds
    return found


def _packed(flags: NDArray[np.bool_]) -> bytes:
    return zlib.compress(np.packbits(flags).tobytes(), 1)


def _unpacked(bits: bytes, count: int) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(zlib.decompress(bits), np.uint8), count=count).astype(
        np.bool_
    )
