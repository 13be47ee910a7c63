"""The cost gate: where evaluating a finer level costs more than it may save.

Skipping a unit saves the columns of the predicate. The reader decodes these for every row that is
left, and reads the other columns only where rows match: a unit that can be skipped has none. So a
level evaluates a unit only where

    EXPECTED x seconds of reading the unit's columns of the predicate  >  seconds of evaluating it

``EXPECTED`` is the share of the evaluated bytes that is skipped in the end. It is unknown before;
with a half, a wrong guess loses no more than was invested. Where there are more than ``FEW`` units,
a spread sample is evaluated first. Each index is then evaluated for the other units only where

    share of the sample that it decided  x  seconds of reading  >  seconds of evaluating it

Up to ``FEW`` units are weighed by all of their bytes, times ``patience``: evaluating them takes
little time, and other engines that read a plan read all columns. Where the rows are read here right
after (``own``), only the columns of the predicate count, and the reader looks at dictionaries
itself: those that are more than ``EXPECTED`` of these columns are left to it. Pages of more than
``_FEW_OWN`` row groups are sampled then, and levels that skipped nothing in earlier plans are left
out (``EarlierPlans``).

A file that is read must be opened in any case, so opening it counts only ``OPENED`` of its time.
The constants were measured on local files in the page cache, and against an object store at 20 ms
per request with 32 concurrent requests. Sizes of columns come from open footers; in unopened files
each column has the same share.

``SPARK`` is for the choice between Spark's own reader on the remaining files, Python workers that
read planned pages, and this process, which reads few rows at once; measured with two cores. Spark
lists all files and runs a job. A Python worker has a start-up time and plans again. After that all
take about the same time per byte; Spark's reader reads all columns of the files that are left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.predicate.tree import And, Bound, Leaf, Or, leaves

from .._arrays import distinct
from .._cache import LruCache
from . import Cause, Evidence, Level, Reason

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from . import Units
    from .evaluation import Evaluation, EvidenceOutcome
    from .evidence import Source

    IntArray: TypeAlias = NDArray[np.int64]


EXPECTED = 0.5
OPENED = 0.5
#: seconds of evaluating statistics that are in memory, as a share of opening the file
_IN_MEMORY = 0.1
#: seconds per byte of decoding a dictionary for evidence, one by one
_DECODE = 5e-9
#: seconds of evaluating a row index of ``cost`` 1 for the rows of a file, without reading it
ROW_CPU = 50e-6
#: and for each row that it joins for its answer
JOINED_CPU = 30e-9
#: and for each row that the reader takes from a file of which it does not read every row
CHOSEN_CPU = 5e-9
#: more units than this are sampled: an eighth of them, at least ``FEW // 2``, at most ``_SAMPLE``
FEW = 16
_SAMPLE = 32
#: the same for pages of row groups that are read here
_FEW_OWN = 4
#: plans in a row, see ``EarlierPlans``
_IDLE = 4
_REST = 15
#: seconds that leaving out an idle level may cost
_LITTLE = 0.05
#: evidence about row groups up to this ``cost`` reads nothing
_FREE_COST = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds. ``file``: to open a file and decode its footer. ``chunk``: for the page index of a
    column chunk. ``page``: for its dictionary page or Bloom filter. ``rows``: to read one index for
    the rows of a file. ``read``: to begin reading a column chunk. ``bytes_per_second`` is how fast
    its stored bytes are read and decoded; ``patience`` see the module. ``at_once`` files are opened
    together, and opening them before they are read costs nothing."""

    file: float
    chunk: float
    rows: float
    bytes_per_second: float
    page: float = 0.0
    read: float = 0.0
    patience: float = 1.0
    at_once: int = 0

    def looking(self, level: Level, columns: int) -> float:
        """Seconds of evaluating one unit: a file, or for pages a row group."""
        match level:
            case Level.ROW_GROUP:
                return self.file * OPENED
            case Level.PAGE:
                return self.chunk * columns
            case Level.ROW:
                return self.rows * columns
            case _:
                return 0.0

    def rows_first(self, columns: int) -> bool:
        """Whether row indexes that decide every row cost less than opening the file and reading its
        page indexes. Where evaluating is free, all levels keep their order."""
        return self.rows * columns < self.file + self.chunk * columns

    def reading(self, stored: NDArray[np.int64], columns: int) -> NDArray[np.float64]:
        """Seconds of reading units with ``stored`` bytes in this many columns."""
        return np.asarray(self.read * columns + stored / self.bytes_per_second)


LOCAL = Costs(
    file=250e-6,
    chunk=300e-6,
    page=150e-6,
    rows=30e-6,
    read=50e-6,
    bytes_per_second=1e9,
    patience=5.0,
)
REMOTE = Costs(
    file=1.5e-3,
    chunk=0.8e-3,
    page=0.8e-3,
    rows=1.5e-3,
    read=0.8e-3,
    bytes_per_second=80e6,
    at_once=FEW,
)
#: evaluates every unit
FREE = Costs(file=0.0, chunk=0.0, rows=0.0, bytes_per_second=1.0)


def spread(at: IntArray, few: int = FEW) -> IntArray | None:
    """An evenly spread sample of ``at``; ``None`` for up to ``few``: all are evaluated."""
    count = len(at)
    if count <= few:
        return None
    size = min(max(count // 8, min(few, FEW) // 2, 1), _SAMPLE)
    return at[np.linspace(0, count - 1, size).astype(np.int64)]


def best_prefix(nets: Sequence[float]) -> int:
    """How many of ``nets`` to take, from the first on, so that their sum is greatest."""
    return int(np.argmax(np.cumsum([0.0, *nets])))


class EarlierPlans:
    """The finer levels that decided nothing in earlier plans over one table, by the columns and
    operators of the predicate.

    A level that decided nothing in ``_IDLE`` such plans in a row is left out of the next ``_REST``,
    and then asked again: another value, or a file that is new, may differ.
    """

    def __init__(self) -> None:
        #: in how many plans in a row a level decided nothing, and of how many it was left out since
        self._plans: LruCache[Hashable, tuple[int, int]] = LruCache(256)

    def idle(self, tree: Bound, level: Level) -> int:
        """In how many plans in a row the level decided nothing; 0 where it is to be asked."""
        key = self._key(tree, level)
        plans, since = self._plans.get(key) or (0, 0)
        if plans < _IDLE or since >= _REST:
            return 0
        self._plans.put(key, (plans, since + 1))
        return plans

    def add(self, tree: Bound, level: Level, *, useful: bool) -> None:
        """Records that a level was asked."""
        key = self._key(tree, level)
        plans, _ = self._plans.get(key) or (0, 0)
        self._plans.put(key, (0 if useful else plans + 1, 0))

    def _key(self, tree: Bound, level: Level) -> Hashable:
        return level, frozenset((leaf.column, leaf.op) for leaf in leaves(tree))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SampleResult:
    """What a sample says of a level: ``net`` are the seconds that it saved, less those that it
    took. ``chosen`` is the evidence that paid, by index and column."""

    source: Source
    net: float
    outcomes: Sequence[EvidenceOutcome]
    chosen: frozenset[tuple[str, str]]


class CostGate:
    """Decides which units a source evaluates, and counts those that do not pay.

    ``share`` estimates how much of an unopened file lies in the columns of the predicate. ``own``:
    the rows are read here, as the module says.
    """

    def __init__(
        self,
        costs: Costs,
        sizes: IntArray,
        rows: IntArray,
        columns: frozenset[str],
        share: float = 1.0,
        *,
        own: bool = False,
        earlier: EarlierPlans | None = None,
    ) -> None:
        self.costs, self.sizes, self.rows, self.columns = costs, sizes, rows, columns
        self.share, self.own, self.earlier = share, own, earlier
        self.passed = np.zeros(len(sizes), np.bool_)  # files that were left out
        #: how many were in the last sample, of how many, of what
        self.sampled = (0, 0, Level.OBJECT.unit)
        self._left: list[Reason] = []
        self._small: dict[tuple[Level, Level], tuple[int, int]] = {}

    @property
    def reasons(self) -> list[Reason]:
        """Why units were left out."""
        found = []
        for (level, unit), (passed, total) in self._small.items():
            if passed:
                text = f"not looked at in {passed:,} of {total:,} {unit.unit}"
                text = f"{text}, which take less to read"
                found.append(Reason(cause=Cause.COSTLY, subject=level.unit, text=text))
        return [*self._left, *found]

    def choose(self, source: Source, units: Units, undecided: IntArray, *, many: bool) -> IntArray:
        """The ``undecided`` positions that ``source`` evaluates. ``many``: they are part of a
        larger number of units, however few they are."""
        if source.limits_cost or self.costs is FREE or not len(undecided):
            return undecided
        level, columns = source.level, len(self.columns)
        if level is not Level.ROW_GROUP:
            # Files that were left out are not open, and were counted above.
            undecided = undecided[~self.passed[units.file[undecided]]]
        asked = units.where(undecided)
        file = asked.file
        if level is Level.ROW_GROUP:
            seconds = self._whole(asked) / self.costs.bytes_per_second
        elif len(undecided) <= FEW and not many:
            seconds = self._whole(asked) / self.costs.bytes_per_second * self.costs.patience
        else:
            seconds = self.reading(source, asked)
        worth = EXPECTED * seconds > self.costs.looking(level, columns)
        if level is Level.ROW_GROUP and len(undecided) <= self.costs.at_once:
            worth = np.ones(len(undecided), np.bool_)
        if level is Level.ROW_GROUP:
            # Some units may be row groups already, but a file is opened or not as a whole.
            passed = distinct(file[~worth])
            self.passed[passed] = True
            self._count(level, Level.OBJECT, len(passed), len(distinct(file)))
        else:
            self._count(level, units.level, int(np.sum(~worth)), len(worth))
        return undecided[worth]

    def is_idle(
        self, tree: Bound, source: Source, units: Units, undecided: NDArray[np.bool_]
    ) -> bool:
        """Whether ``source`` is left out, with a reason: it skipped nothing in earlier plans for
        such a predicate, and reading all ``undecided`` units takes little time."""
        if self.earlier is None or source.limits_cost or not undecided.any():
            return False
        if float(self.reading(source, units.where(undecided)).sum()) > _LITTLE:
            return False
        idle = self.earlier.idle(tree, source.level)
        if idle:
            text = f"not looked at: nothing was skipped there in {idle:,} earlier queries like this"
            self._left.append(Reason(cause=Cause.COSTLY, subject=source.level.unit, text=text))
        return bool(idle)

    def learn(self, tree: Bound, source: Source, found: Evaluation) -> None:
        """Records whether ``source`` decided any of the units in ``found``."""
        if self.earlier is not None and not source.limits_cost and len(found.units):
            useful = not found.bounds.may.all() or bool(found.bounds.must.any())
            self.earlier.add(tree, source.level, useful=useful)

    def sample(self, undecided: IntArray, level: Level = Level.OBJECT) -> IntArray | None:
        """The ``undecided`` positions to evaluate before the others, ``None`` for all."""
        if self.costs is FREE:
            return None
        return spread(undecided, _FEW_OWN if self.own and level is Level.PAGE else FEW)

    def reading(
        self, source: Source | None, units: Units, most: Mapping[str, IntArray] | None = None
    ) -> NDArray[np.float64]:
        """Seconds of reading the columns of the predicate in each unit; some of these columns have
        ``most`` bytes in each, -1 unknown."""
        stored = (self._whole(units) * self.share).astype(np.int64)
        if most:
            one = stored // len(self.columns)
            bounded = [np.where(size < 0, one, np.minimum(size, one)) for size in most.values()]
            stored = np.sum(bounded, axis=0) + one * (len(self.columns) - len(bounded))
        if source is not None:
            known = source.stored(units, self.columns)
            if known is not None:
                stored = np.where(known >= 0, known, stored)
        return self.costs.reading(stored, len(self.columns))

    def worthwhile(
        self, source: Source, units: Units, evidence: Sequence[Evidence[Leaf]]
    ) -> list[Evidence[Leaf]]:
        """The evidence to ask where rows are read here. Evidence that decodes nearly as much as the
        reader itself is left to the reader, with a reason."""
        if not self.own or source.level is not Level.ROW_GROUP or self.costs is FREE:
            return list(evidence)
        if all(each.cost <= _FREE_COST for each in evidence):
            return list(evidence)
        known = source.stored(units, self.columns)
        held = -1 if known is None or (known < 0).any() else int(known.sum())
        chosen = []
        for each in evidence:
            size = 0 if each.cost <= _FREE_COST else source.decoded(each.name, each.column, units)
            if held >= 0 and size > EXPECTED * held:
                text = f"left to the reader: {size:,} of the {held:,} bytes that it reads"
                subject = f"{each.name}({each.column})"
                self._left.append(Reason(cause=Cause.COSTLY, subject=subject, text=text))
            else:
                chosen.append(each)
        return chosen

    def affordable(
        self, source: Source, units: Units, evidence: Sequence[Evidence[Leaf]]
    ) -> list[Evidence[Leaf]]:
        """The evidence to ask of ``units`` of a sample. Evidence that costs more than reading all
        of them is left out, with a reason."""
        if source.level is not Level.ROW_GROUP or not len(units):
            return list(evidence)
        value = float(self.reading(source, units).mean())
        most = np.inf if EXPECTED * value > self.costs.page else _FREE_COST
        for each in evidence:
            if each.cost > most:
                text = f"not looked at in {self.sampled[1]:,} of {self.sampled[1]:,}"
                text = f"{text} {self.sampled[2]}, which take less to read"
                subject = f"{each.name}({each.column})"
                self._left.append(Reason(cause=Cause.COSTLY, subject=subject, text=text))
        return [each for each in evidence if each.cost <= most]

    def verdict(self, tree: Bound, source: Source, asked: Units, found: Evaluation) -> SampleResult:
        """What the level of ``source`` was worth in a sample ``asked``, which gave ``found``."""
        costs, level, count = self.costs, source.level, len(asked)
        value = float(self.reading(source, asked).sum()) / max(len(found.units), 1)

        def net(outcome: EvidenceOutcome) -> float:
            took = 0.0
            if _reads(level, outcome):
                size = source.decoded(outcome.index, outcome.column, found.units)
                each = costs.page + size / max(len(found.units), 1) * _DECODE
                took = each * outcome.before
            return value * (outcome.before - outcome.after) - took

        outcomes = found.outcomes
        nets = [net(each) for each in outcomes]
        if _is_conjunction(tree):
            chosen = [each >= 0 for each in nets]
        else:
            # One side of an OR excludes nothing unless the other sides do, too.
            best = best_prefix(nets)
            chosen = [at < best or not _reads(level, each) for at, each in enumerate(outcomes)]
        # Statistics are in memory once the file is open.
        one = costs.file * _IN_MEMORY
        if level is not Level.ROW_GROUP:
            one = costs.looking(level, len(self.columns))
        pairs = list(zip(outcomes, chosen, strict=True))
        return SampleResult(
            source=source,
            net=sum(each for each, yes in zip(nets, chosen, strict=True) if yes) - one * count,
            outcomes=outcomes,
            chosen=frozenset((each.index, each.column) for each, yes in pairs if yes),
        )

    def leave(self, verdict: SampleResult) -> None:
        """Adds the reason that a level is left out after a sample."""
        self._sampled(verdict.source.level.unit, verdict.outcomes)

    def follow(self, verdict: SampleResult) -> None:
        """Adds a reason for each evidence of a level that is left out after a sample."""
        for each in verdict.outcomes:
            if (each.index, each.column) not in verdict.chosen:
                self._sampled(f"{each.index}({each.column})", [each])

    def _sampled(self, subject: str, outcomes: Sequence[EvidenceOutcome]) -> None:
        asked, total, unit = self.sampled
        gone = sum(each.before - each.after for each in outcomes)
        effect = "it skipped too little" if gone else "it skipped nothing"
        text = f"asked in {asked:,} of {total:,} {unit}, where {effect}"
        self._left.append(Reason(cause=Cause.COSTLY, subject=subject, text=text))

    def _whole(self, units: Units) -> NDArray[np.float64]:
        """The stored bytes of units in all columns; without a row count the unit is the file."""
        stored = self.sizes[units.file].astype(np.float64)
        if units.level is Level.OBJECT:
            return stored
        known = np.maximum(np.maximum(self.rows[units.file], units.rows), 1)
        return np.asarray(stored * np.where(units.rows < 0, 1.0, units.rows / known))

    def _count(self, level: Level, unit: Level, passed: int, total: int) -> None:
        """Counts ``passed`` of ``total`` units that were left out."""
        before = self._small.get((level, unit), (0, 0))
        self._small[level, unit] = before[0] + passed, before[1] + total


def _reads(level: Level, outcome: EvidenceOutcome) -> bool:
    """Whether evidence reads dictionary pages or filters; statistics are in memory."""
    return level is Level.ROW_GROUP and outcome.cost > _FREE_COST


def _is_conjunction(tree: Bound) -> bool:
    """Whether each leaf alone can exclude a unit."""
    if isinstance(tree, And):
        return all(_is_conjunction(cast("Bound", child)) for child in tree.children)
    return not isinstance(tree, Or)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCosts:
    """``native``, ``pages``: stored bytes per second that Spark's own reader and a page reader read
    and decode; ``job``, ``listed``: seconds that Spark takes for a job, and to list a file;
    ``start``: seconds until the first page arrives from a worker; ``file``: to open a file here;
    ``most_rows``: above this LIMIT Spark sorts the rows, in parts.

    Rows are read ahead, in this process, where Spark would take more than ``worth`` seconds and
    this process at most ``longest``: at most ``few_rows`` rows, of ``few_bytes`` in memory."""

    native: float
    pages: float
    job: float
    listed: float
    start: float
    file: float
    worth: float
    longest: float
    few_rows: int
    few_bytes: int
    most_rows: int

    def native_seconds(self, stored: float, listed: int) -> float:
        """Seconds of Spark's own reader for this many bytes of undecided row groups, in a table of
        ``listed`` files."""
        return self.job + self.listed * listed + stored / self.native

    def pages_seconds(self, stored: float, listed: int) -> float:
        """Seconds for this many bytes of planned pages in workers; Spark lists the files too."""
        return self.job + self.listed * listed + self.start + stored / self.pages

    def ahead_seconds(self, stored: float, files: int) -> float:
        """Seconds for this many bytes of this many files in this process."""
        return self.file * files + stored / self.pages


SPARK = SparkCosts(
    native=1e9,
    pages=1e9,
    job=0.05,
    listed=100e-6,
    start=1.0,
    file=250e-6,
    worth=0.1,
    longest=5.0,
    few_rows=10_000,
    few_bytes=16 << 20,
    most_rows=1_000_000,
)
#: the same for an object store
SPARK_REMOTE = replace(SPARK, native=80e6, pages=80e6, file=1.5e-3)
