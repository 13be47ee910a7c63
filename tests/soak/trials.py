"""Tables, lives and trials of one seed: everything that happens is decided by the seed."""

from __future__ import annotations

import contextlib
import re
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import skipstone
from skipstone.errors import UnsupportedError
from skipstone.parquet.reading.bulk_chunks import KERNELS
from skipstone.pruning import costs
from tests.oracle import NotModelled, SparkError
from tests.soak.differences import features_of, places_of
from tests.soak.generate import ROW, DataFile, Generator
from tests.soak.life import LIFE, Step, World, first_indexes, quoted, step
from tests.soak.merged import merged
from tests.soak.predicates import Conditions, Predicate, leaf_columns
from tests.soak.routes import CHECKS, Expected, Trial, asked
from tests.soak.truth import RowsInMemory
from tests.soak.values import chance, pick

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.shape import Shape


REFUSED = "refused"
#: what the documentation says is refused, in so many words
REFUSALS = (
    "cannot decide",
    "has text that is not UTF-8",
    "which pyarrow reads",
    "has INT96 below it",
    "Python has no such value of string",
)


@dataclass(frozen=True)
class Case:
    """A table, its life and one question: all that a finding needs."""

    files: tuple[DataFile, ...]
    steps: tuple[Step, ...]
    trial: Trial
    predicate: Predicate | None
    look_inside: bool = False
    kept: bool = False
    recursive: bool = False
    together: bool = False


@dataclass(frozen=True)
class Finding:
    """A case with a wrong answer; ``seed`` is that of the whole table."""

    seed: int
    case: Case
    wrong: str
    used: frozenset[str]

    @property
    def kind(self) -> str:
        """What distinguishes it from other findings, roughly."""
        plain = re.sub(r"\S*/\S*", "_", self.wrong)
        plain = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\d+", "_", plain)
        words = plain.split()
        return f"{self.case.trial.route}: {' '.join(words[:3])}"


@dataclass
class Totals:
    """Numbers of a run."""

    tables: int = 0
    trials: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    discarded: int = 0
    refused: int = 0
    refused_steps: Counter[str] = field(default_factory=Counter)


@contextlib.contextmanager
def as_large(*, look_inside: bool, together: bool) -> Iterator[None]:
    """Small files are looked into as if reading them were free of other costs; columns of few files
    are read together, and some rows from their pages alone."""
    with pytest.MonkeyPatch.context() as patch:
        if look_inside:
            patch.setattr("skipstone.table.planning.LOCAL", costs.FREE)
        if together:
            patch.setattr("skipstone.execution.plan_rows._FEW", 1)
            patch.setattr("skipstone.parquet.reading.file_reader.SMALL_CHUNK", 0)
            patch.setattr(KERNELS, "once", 0)
        yield


def room() -> str:
    """Where tables are written: memory, where there is some."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()


def rows_of(files: dict[str, DataFile]) -> RowsInMemory:
    ordered = sorted(files.values(), key=lambda each: each.path)
    return RowsInMemory(merged([(each.rows, dict(each.folders)) for each in ordered]))


def paths_of(files: dict[str, DataFile], rows: RowsInMemory) -> dict[str, np.ndarray[Any, Any]]:
    """The positions of the rows of each file."""
    found, start = {}, 0
    for path in sorted(files):
        stop = start + files[path].rows.num_rows
        found[path] = np.arange(start, stop)
        start = stop
    return found


def answer(world: World, trial: Trial, expected: Expected) -> str:
    """What is wrong with the answer to a trial, "" if nothing is."""
    try:
        found = asked(trial, world)
    except UnsupportedError as refused:
        # What cannot be decided exactly is refused in so many words; a plan must not refuse.
        if trial.route != "plan" and any(each in str(refused) for each in REFUSALS):
            return REFUSED
        return f"UnsupportedError: {refused}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    try:
        return CHECKS[trial.route](found, trial, expected)
    except Exception as error:
        return f"answer that cannot be compared: {type(error).__name__}: {error}"


def lived(case: Case, folder: str) -> World:
    """The table of a case after its life."""
    world = World(
        f"{folder}/t/table", kept=case.kept, fresh=not case.kept, recursive=case.recursive
    )
    world.begin(case.files)
    if case.kept:
        with contextlib.suppress(skipstone.SkipstoneError):
            world.table().plan()
    for each in case.steps:
        world.apply(each)
    return world


def run_case(case: Case) -> str:
    """Do everything again; returns what is wrong, "" if nothing is."""
    large = as_large(look_inside=case.look_inside, together=case.together)
    with tempfile.TemporaryDirectory(dir=room()) as folder, large:
        world = lived(case, folder)
        expected = expected_of(world, case.trial, case.predicate)
        return answer(world, case.trial, expected)


def expected_of(world: World, trial: Trial, predicate: Predicate | None) -> Expected:
    """The rows in memory and those of them that match; raises as the oracle does."""
    files = world.of_table()
    if trial.route == "file":
        files = {trial.path: replace(files[trial.path], folders=())}
    rows = rows_of(files)
    if predicate is None:
        matching = np.arange(rows.table.num_rows)
    else:
        matching = rows.matching(predicate.tree, predicate.zone)
    return Expected(rows, matching, paths_of(files, rows))


class TableTrials:
    """The trials of one seed: a table, its life, and predicates after each event."""

    def __init__(self, seed: int, shape: Shape, totals: Totals) -> None:
        shape = replace(shape, features=shape.features - {"spark"})  # there is no session
        self.seed, self.shape, self.totals = seed, shape, totals
        self.rng = np.random.default_rng(seed)
        self.findings: list[Finding] = []
        self.steps: list[Step] = []
        self.first: tuple[DataFile, ...] = ()
        self.look_inside = shape.has("look_inside") and chance(self.rng, 0.7)
        self.together = shape.has("together") and chance(np.random.default_rng([seed, 1]), 0.6)

    def run(self) -> list[Finding]:
        """All of them; returns what was found."""
        rng, shape = self.rng, self.shape
        self.totals.tables += 1
        with (
            tempfile.TemporaryDirectory(dir=room()) as folder,
            as_large(look_inside=self.look_inside, together=self.together),
            warnings.catch_warnings(),
        ):
            kept = shape.has("kept_table") and chance(rng, 0.3)
            world = World(f"{folder}/t/table", kept=kept, fresh=not kept and chance(rng, 0.3))
            generator = Generator(rng, shape)
            self.first = generator.lake()
            world.recursive = generator.recursive
            world.begin(self.first)
            schema = rows_of(world.of_table()).table.schema
            if shape.has("indexes") and chance(rng, 0.8):
                first_indexes(rng, schema, partial(self.apply, world))
            wanted = [kind for kind in LIFE if kind in shape.often]
            events = [*wanted, *[""] * int(rng.integers(0, 4))]
            many = shape.predicates // (len(events) + 1)
            self.batch(world, many)
            for kind in events:
                schema = rows_of(world.of_table()).table.schema
                more = step(rng, shape, world, generator, schema, kind)
                if more is None:
                    continue
                self.apply(world, more)
                self.batch(world, many)
            world.clear()
        return self.findings

    def apply(self, world: World, event: Step) -> bool:
        """Do a step; returns whether it was done."""
        self.steps.append(event)
        try:
            refused = world.apply(event)
        except Exception as error:
            wrong = f"step {event.kind}: {type(error).__name__}: {error}"
            self.found(world, Trial("plan", None), None, wrong)
            return False
        if refused:
            self.totals.refused_steps[event.kind] += 1
        return not refused

    def used(self, world: World) -> frozenset[str]:
        files = features_of(list(world.of_table().values())) | places_of(world.files.values())
        life = {each.kind for each in self.steps} & self.shape.features
        more = {
            "look_inside": self.look_inside,
            "together": self.together,
            "kept_table": world.kept,
            "recursive": world.recursive,
        }
        return files | life | {name for name, is_so in more.items() if is_so}

    def found(self, world: World, trial: Trial, predicate: Predicate | None, wrong: str) -> None:
        case = Case(
            self.first,
            tuple(self.steps),
            trial,
            predicate,
            self.look_inside,
            world.kept,
            world.recursive,
            self.together,
        )
        used = self.used(world) | (predicate.used if predicate else frozenset())
        self.findings.append(Finding(self.seed, case, wrong, used))

    def batch(self, world: World, many: int) -> None:
        """Predicates on routes over the table as it is now."""
        files = world.of_table()
        rows = rows_of(files)
        paths = paths_of(files, rows)
        used = self.used(world)
        conditions = Conditions(self.rng, self.shape, rows)
        questions = Questions(self.rng, self.shape, rows)
        for _ in range(many):
            predicate = conditions.predicate() if chance(self.rng, 0.95) else None
            try:
                if predicate is None:
                    matching = np.arange(rows.table.num_rows)
                else:
                    matching = rows.matching(predicate.tree, predicate.zone)
            except (SparkError, NotModelled):
                self.totals.discarded += 1
                continue
            expected = Expected(rows, matching, paths)
            for trial in questions.trials(predicate):
                if world.keyed and trial.route in ("duckdb", "polars", "pyarrow"):
                    continue  # keys are not passed on
                self.ask(world, trial, predicate, expected, used)
        if "file" in self.shape.routes:
            self.file_batch(world, max(1, many // 10))

    def file_batch(self, world: World, many: int) -> None:
        """Predicates on one of the files, read as a table of its own."""
        path = pick(self.rng, sorted(world.of_table()))
        files = {path: replace(world.files[path], folders=())}
        rows = rows_of(files)
        used = features_of(list(files.values())) | self.used(world)
        conditions = Conditions(self.rng, self.shape, rows)
        for _ in range(many):
            predicate = conditions.predicate()
            if predicate.has_function:
                continue
            try:
                matching = rows.matching(predicate.tree, predicate.zone)
            except (SparkError, NotModelled):
                continue
            trial = Trial("file", predicate.sql, predicate.zone, path=path, columns=(ROW,))
            expected = Expected(rows, matching, paths_of(files, rows))
            self.ask(world, trial, predicate, expected, used)

    def ask(
        self,
        world: World,
        trial: Trial,
        predicate: Predicate | None,
        expected: Expected,
        used: frozenset[str],
    ) -> None:
        features = used | (predicate.used if predicate else frozenset())
        if self.shape.left_out(features, trial.route):
            self.totals.left_out[trial.route] += 1
            return
        self.totals.trials[trial.route] += 1
        self.totals.drawn.update(features)
        wrong = answer(world, trial, expected)
        if wrong == REFUSED:
            self.totals.refused += 1
        elif wrong:
            self.found(world, trial, predicate, wrong)


class Questions:
    """Draws routes and their arguments for predicates over one table."""

    def __init__(self, rng: np.random.Generator, shape: Shape, rows: RowsInMemory) -> None:
        self.rng, self.shape = rng, shape
        # Order and extremes are of columns of the root.
        paths = [path for path, _ in leaf_columns(rows.table.schema) if len(path) == 1]
        self.leaves = [quoted(path[0]) for path in paths]
        self.names = [name for name in rows.table.column_names if name != ROW]
        weights = {route: w for route, w in _WEIGHTS.items() if route in shape.routes}
        self.routes = list(weights)
        self.weights = [each / sum(weights.values()) for each in weights.values()]

    def trials(self, predicate: Predicate | None) -> list[Trial]:
        """Two routes for a predicate; one with a function is only planned."""
        where = None if predicate is None else predicate.sql
        zone = "UTC" if predicate is None else predicate.zone
        if predicate is not None and predicate.has_function:
            return [Trial("plan", where, zone)] if "plan" in self.shape.routes else []
        many = min(2, len(self.routes))
        routes = self.rng.choice(self.routes, many, replace=False, p=self.weights)
        return [self.trial(str(route), where, zone) for route in routes]

    def trial(self, route: str, where: str | None, zone: str) -> Trial:
        rng = self.rng
        trial = Trial(route, where, zone)
        match route:
            case "query" | "batches" | "order" if chance(rng, 0.5) and self.names:
                some = rng.permutation(self.names)[: int(rng.integers(0, len(self.names) + 1))]
                # Columns are named as the API takes them; results have the plain names.
                plain = [str(each) for each in some if quoted(str(each)) == str(each)]
                trial = replace(trial, columns=(ROW, *plain))
        match route:
            case "extreme":
                return replace(trial, column=pick(rng, self.leaves))
            case "order" | "top":
                keys = [
                    pick(rng, self.leaves)
                    + pick(rng, ("", " asc", " desc", " desc", " nulls last", " desc nulls first"))
                    for _ in range(int(rng.integers(1, 3)))
                ]
                if len(keys) == 2 and chance(rng, 0.3):
                    keys[1] = ROW
                names = {key.split(" ")[0] for key in keys}
                if len(names) < len(keys):
                    keys = keys[:1]
                limit = pick(rng, (0, 1, 2, 3, 10, 1000))
                if route == "order" and chance(rng, 0.2):
                    limit = None
                return replace(trial, order_by=tuple(keys), limit=limit)
        return trial


_WEIGHTS = {
    "query": 6.0,
    "batches": 1.0,
    "count": 3.0,
    "extreme": 2.0,
    "order": 2.0,
    "top": 1.0,
    "plan": 3.0,
    "schema": 0.5,
    "duckdb": 0.25,
    "polars": 0.5,
    "pyarrow": 0.7,
}
