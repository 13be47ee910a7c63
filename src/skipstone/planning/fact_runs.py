"""The object level piece by piece: the same evaluation over runs of fact rows, put together here.

Where the columns that a predicate needs outgrow memory, every run (``store/runs.py``) is evaluated
by itself, in this process one after the other or as tasks of Spark, and of its rows only bits come
back: per leaf ``may`` and ``must``. ``gather`` lays them over the files.

Sound because every fact row that is matched to a file is about that very version of it: what one
row says of a leaf, it says of the file, whatever other rows in other parts say (an index that was
built later lies in a row of its own). So the rows of a file sharpen its leaves, and the tree
is combined once over the files, as ever.
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

__all__ = [
    "IN_MEMORY",
    "Gathered",
    "Outgrown",
    "RunAnswer",
    "RunJob",
    "Runner",
    "gather",
    "in_turn",
    "sharpened",
]

#: Bytes of fact columns that one predicate may take in the process that plans, by default.
IN_MEMORY = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """What a run says: per leaf that anything is said of, ``may`` and ``must`` of its rows.

    ``leaves`` maps a leaf's number to two bit strings (``numpy.packbits``) over the run's live
    rows, deflated: mostly all bits are the same.
    """

    run: PartBatch
    leaves: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunJob:
    """Everything that a task must know but its runs; travels by pickle.

    Facts about ``columns`` are asked, about others of the tree nothing is said; those that lie in
    sidecars only with ``file_index``.
    """

    location: str
    storage_options: Mapping[str, str]
    tree: Bound
    columns: frozenset[str]
    file_index: bool = True

    def run(self, run: PartBatch) -> RunAnswer:
        """Evaluate the tree over one run. Never raises for what it reads: it says nothing then."""
        storage = open_storage(self.location, self.storage_options)
        opened = open_batch(run, Location(self.location), storage)
        if isinstance(opened, Reason):
            return RunAnswer(run=run, reasons=(opened,))
        leaves = leaves_of(self.tree)
        told = opened.evidence(self.columns)
        evidence = [index for index in told if self.file_index or index.sidecar is None]
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


#: Runs the job over all runs somewhere, in any order.
Runner: TypeAlias = Callable[[RunJob, Sequence[PartBatch]], Iterable[RunAnswer]]


def in_turn(job: RunJob, found: Sequence[PartBatch]) -> Iterable[RunAnswer]:
    """In this process, two runs at a time: memory stays that of two runs."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield from pool.map(job.run, found)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gathered:
    """Bounds of the leaves over the files of a listing, the steps behind them, and reasons."""

    leaves: Mapping[Leaf, Bounds[Any]]
    steps: tuple[Step, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgrown:
    """From how many bytes of fact columns on a predicate is evaluated run by run, and where.

    ``storage_options`` are those of the facts' storage, for whoever opens it elsewhere.
    """

    limit: int = IN_MEMORY
    runner: Runner = in_turn
    storage_options: Mapping[str, str] = field(default_factory=dict)


def gather(
    tree: Bound,
    matched: MatchedFacts,
    columns: frozenset[str],
    how: Outgrown,
    *,
    file_index: bool = True,
) -> Gathered | None:
    """What facts about ``columns`` say of ``tree`` run by run; ``None`` where they fit in memory.

    Steps count fact rows: one per file, or more where indexes were added later. A foreign store is
    held whole in any case: its parts are made ours while they are read.
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
    """Bounds per leaf from what several stores say of it."""
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
