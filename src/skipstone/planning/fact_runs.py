"""Evaluates facts run by run when they do not fit in memory, and merges the results.

If the fact columns of a predicate exceed the memory limit, each batch of fact rows is evaluated on
its own, in this process or in Spark tasks. A run returns only bits: ``may`` and ``must`` per leaf
and row. ``gather`` merges them over the files.

A batch is a row group of a part: at most 131,072 rows, and at most about 256 MiB, since no part is
written larger. ``batches_over`` cuts a snapshot into batches; ``open_batch`` reads the columns of
one, in any process: it takes the batch and the location. Its rows are numbered from 0, each like a
file of its own; only the process that cut the batches knows which file of a listing a row is about.

Sound because every fact row that matches a file is about exactly that version. What one row proves
about a leaf holds for the file. A file may have rows in other parts, too: an index that was built
later has its own. Each row sharpens the file's leaves, and the tree is combined once over the
files.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.facts import Location, MatchedFacts, Snapshot
from skipstone.facts.match import Identities
from skipstone.facts.part_columns import ROWS, integers
from skipstone.facts.parts import open_part
from skipstone.facts.renamed import renamed_fields
from skipstone.human import size
from skipstone.predicate.naming import SAME, Naming
from skipstone.predicate.tree import Bound, Leaf
from skipstone.predicate.tree import leaves as leaves_of
from skipstone.pruning import Bounds, Cause, Reason, Units
from skipstone.pruning.evaluation import evaluate
from skipstone.pruning.pairs import with_joint
from skipstone.storage import Listing, Storage, open_storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.pruning.plan import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBatch:
    """Row group ``group`` of the part ``name``: ``rows`` fact rows from ``first`` on.

    ``first`` counts through all rows of the snapshot; ``size`` and ``mtime`` (ns) are the part's,
    ``nbytes`` those of the wanted columns of the batch. ``alive``: bits (``numpy.packbits``) of the
    rows that match a current file. Bit slices are evaluated in place of the columns ``skipped``.
    """

    name: str
    size: int
    mtime: int
    group: int
    first: int
    rows: int
    nbytes: int
    alive: bytes = b""
    skipped: frozenset[str] = frozenset()

    @property
    def about(self) -> NDArray[np.int64]:
        """Positions of the ``alive`` rows in the batch."""
        bits = np.frombuffer(self.alive, np.uint8)
        return np.flatnonzero(np.unpackbits(bits, count=self.rows))


def column_bytes(matched: MatchedFacts, columns: Collection[str]) -> int:
    """Bytes, decompressed, of the fact columns that evidence over ``columns`` is made of.

    0 for a store that can only be evaluated at once.
    """
    snapshot = matched.snapshot
    if not snapshot.in_batches or snapshot.encryption is not None:
        return 0  # evaluated at once: the keys stay in this process
    needed = 0
    for wanted in snapshot.fields_over(columns):
        sliced = matched.sliced_parts(wanted)  # their bit slices are evaluated instead
        needed += sum(
            sizes.get(part.by_key[wanted.key].arrow.name, 0)
            for part in snapshot.parts
            if wanted.key in part.by_key and part.name not in sliced
            for sizes in part.decoded_bytes
        )
    return needed


def batches_over(matched: MatchedFacts, columns: Collection[str]) -> list[PartBatch]:
    """The batches with facts about ``columns`` of current files."""
    identities = matched.snapshot.identities
    fields = [
        (field.key, matched.sliced_parts(field)) for field in matched.snapshot.fields_over(columns)
    ]
    found = []
    for part in identities.parts:
        first = identities.starts[part.name]
        held = [
            (part.by_key[key].arrow.name, sliced) for key, sliced in fields if key in part.by_key
        ]
        names = {name for name, sliced in held if part.name not in sliced}
        skipped = frozenset(name for name, _ in held) - names
        for group, sizes in enumerate(part.decoded_bytes):
            rows = part.metadata.row_group(group).num_rows
            alive = matched.file_of_row[first : first + rows] >= 0
            nbytes = sum(sizes.get(name, 0) for name in names)
            if nbytes and alive.any():
                batch = PartBatch(
                    name=part.name,
                    size=part.size,
                    mtime=part.mtime,
                    group=group,
                    first=first,
                    rows=rows,
                    nbytes=nbytes,
                    alive=np.packbits(alive).tobytes(),
                    skipped=skipped,
                )
                found.append(batch)
            first += rows
    return found


def open_batch(
    batch: PartBatch, location: Location, storage: Storage, naming: Naming = SAME
) -> MatchedFacts | Reason:
    """The batch as if its rows were the files of a listing, with columns named by ``naming``; a
    ``Reason`` when it is unreadable."""
    try:
        part = open_part(location.part(batch.name), batch.size, batch.mtime, storage)
        asked = [each for each in part.fields if each.arrow.name not in batch.skipped]
        fields = tuple(renamed_fields(asked, naming))
        piece = replace(part, group=batch.group, fields=fields)
        counts = integers(piece.read(storage, [ROWS]).column(0), -1)
    except Exception as error:  # whatever is wrong with a part, the query continues
        return Reason.of_error(f"fact part {batch.name}", error)
    n = len(counts)
    every = np.arange(n, dtype=np.int64)
    zeros, none = np.zeros(n, np.int64), pa.chunked_array([pa.nulls(n, pa.large_string())])
    snapshot = Snapshot(location, storage, [piece])
    counts = np.maximum(counts, -1)
    # The process that cut the batches matched the rows; their identities are not read here.
    snapshot.identities = Identities(
        parts=(piece,),
        starts={piece.name: 0},
        paths=none,
        sizes=zeros,
        mtimes=zeros,
        units=zeros,
        etags=none,
        fingerprints=none,
        rows=counts,
        valid=np.ones(n, np.bool_),
    )
    flags = np.zeros(n, np.bool_)
    return MatchedFacts(
        snapshot=snapshot,
        listing=Listing(root=location.root, paths=[""] * n, sizes=zeros, mtimes=zeros),
        fingerprint=None,
        has_fact=~flags,
        stale=flags,
        rows=counts,
        orphaned=0,
        file_of_row=every,
        path_of_row=every,
        dead_rows=flags,
    )


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
    naming: Naming = SAME

    def run(self, run: PartBatch) -> RunAnswer:
        """Evaluates the tree over one run. Unreadable facts prove nothing and raise nothing."""
        storage = open_storage(self.location, self.storage_options)
        opened = open_batch(run, Location(self.location), storage, self.naming)
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
    if sum(part.uncompressed for part in matched.snapshot.parts) <= how.limit:
        return None  # all columns fit: the sizes of some need not be read from the footers
    tree = with_joint(tree)
    leaves = leaves_of(tree)
    needed = column_bytes(matched, columns)
    if needed <= how.limit:
        return None
    root = matched.snapshot.location.root
    text = f"{size(needed)} of them are needed, more than the memory limit: evaluated run by run"
    reasons = {Reason(cause=Cause.COSTLY, subject=f"facts at {root}", text=text): None}
    job = RunJob(
        location=root,
        storage_options=dict(how.storage_options),
        tree=tree,
        columns=columns,
        file_index=file_index,
        naming=matched.snapshot.naming,
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
