"""The routes of a Spark session: many predicates in one query, told apart by a number.

Each predicate is one branch of a UNION ALL, with a scan of its own, so that each is pruned by
itself. A branch asks for the ids of its rows: directly, in a subquery, under a join or an
aggregate, or for those that do not match. Spark's own pushdown into row groups is off, because it
loses NaN.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import skipstone
from tests.oracle import NotModelled, SparkError
from tests.soak.generate import ROW, Generator
from tests.soak.life import PLAIN_TABLE, World, first_indexes, step
from tests.soak.predicates import ZONES, Conditions, Predicate
from tests.soak.routes import Trial, ids_of, same_ids
from tests.soak.shape import without_gaps
from tests.soak.trials import Case, Finding, Totals, room, rows_of
from tests.soak.values import pick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.soak.shape import Shape
    from tests.soak.truth import RowsInMemory

#: a branch of the query: {n} its number, {p} the predicate
FORMS = {
    "where": "SELECT {n} AS q, rid FROM t WHERE {p}",
    "subquery": "SELECT {n} AS q, rid FROM t WHERE rid IN (SELECT rid FROM t WHERE {p})",
    "join": "SELECT {n} AS q, b.rid FROM (SELECT rid FROM t WHERE {p}) a JOIN t b ON a.rid = b.rid",
    "aggregate": "SELECT {n} AS q, rid FROM "
    "(SELECT rid, count(*) AS n FROM t WHERE {p} GROUP BY rid) WHERE n = 1",
    "others": "SELECT {n} AS q, t.rid FROM t LEFT ANTI JOIN "
    "(SELECT rid AS r FROM t WHERE {p}) s ON t.rid = s.r",
}
SETTINGS: dict[str, tuple[str, ...]] = {
    "spark.sql.adaptive.enabled": ("true", "true", "false"),
    "spark.sql.parquet.enableVectorizedReader": ("true", "true", "false"),
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": ("true", "false"),
    "spark.sql.ansi.enabled": ("true", "true", "false"),
    "spark.sql.session.timeZone": ("UTC", *ZONES),
}


@contextlib.contextmanager
def set_to(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """The session with these settings, for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@dataclass(frozen=True, eq=False)
class Branch:
    """One predicate of a query, and the ids that it must give."""

    predicate: Predicate
    form: str
    wanted: np.ndarray[Any, Any]


class SparkTrials:
    """The trials of one seed on the routes of a session."""

    def __init__(self, spark: SparkSession, seed: int, shape: Shape, totals: Totals) -> None:
        if seed % 2 == 0:  # a table that every route takes
            features = without_gaps(shape.features, shape.gaps, "skip")
            shape = replace(shape, features=features)
        self.spark, self.seed, self.shape, self.totals = spark, seed, shape, totals
        self.rng = np.random.default_rng([seed, 1])
        self.findings: list[Finding] = []
        self.used: frozenset[str] = frozenset()
        self.case: Case | None = None

    def run(self, batches: int = 2) -> list[Finding]:
        """Batches of predicates on each route, with an event of the table's life between them."""
        from tests.soak.differences import features_of

        rng, shape = self.rng, self.shape
        self.totals.tables += 1
        with tempfile.TemporaryDirectory(dir=room()) as folder:
            world = World(f"{folder}/t/table")
            generator = Generator(rng, shape)
            files = generator.lake().files
            world.begin(files)
            steps = []
            if shape.has("indexes"):
                steps = first_indexes(rng, rows_of(world.files).table.schema)
            for each in steps:
                world.apply(each)
            for at in range(batches):
                if at:
                    schema = rows_of(world.files).table.schema
                    more = step(rng, shape, world, generator, schema)
                    if more is not None and more.kind not in ("encrypt", "kill"):
                        steps.append(more)
                        world.apply(more)
                life = {each.kind for each in steps} & shape.features
                self.used = features_of(list(world.files.values())) | life
                self.case = Case(files, tuple(steps), Trial("skip", None), None, False, False)
                self.batch(world)
            world.clear()
        return self.findings

    def batch(self, world: World) -> None:
        assert world.opening == PLAIN_TABLE
        settings = {name: str(pick(self.rng, values)) for name, values in SETTINGS.items()}
        settings["spark.sql.parquet.filterPushdown"] = "false"
        if not self.shape.has("zones"):
            settings["spark.sql.session.timeZone"] = "UTC"
        rows = rows_of(world.files)
        predicates = self.predicates(rows, settings)
        with set_to(self.spark, settings):
            for route in self.shape.routes:
                if route not in READERS or self.shape.left_out(self.used, route):
                    continue
                forms = list(FORMS) if route == "skip" else ["where"]
                branches = []
                for predicate, matching in predicates:
                    if route != "skip" and predicate.has_function:
                        continue
                    form = str(pick(self.rng, ["where", "where", *forms]))
                    ids = ids_of(rows.table.column(ROW))
                    wanted = ids[matching]
                    if form == "others":
                        wanted = np.setdiff1d(ids, wanted)
                    branches.append(Branch(predicate, form, wanted))
                if route != "skip":
                    # Each load of a data source starts a Python process in the driver.
                    branches = branches[: max(2, len(branches) // 4)]
                self.totals.trials[route] += len(branches)
                self.ask(world, route, branches)

    def predicates(
        self, rows: RowsInMemory, settings: dict[str, str]
    ) -> list[tuple[Predicate, np.ndarray[Any, Any]]]:
        """Predicates with their rows; without ANSI rules only those that mean the same there."""
        conditions = Conditions(self.rng, self.shape, rows)
        zone, ansi = settings["spark.sql.session.timeZone"], settings["spark.sql.ansi.enabled"]
        found = []
        for _ in range(self.shape.predicates):
            predicate = replace(conditions.predicate(), zone=zone)
            if ansi == "false" and predicate.used & {"casts", "other_literals"}:
                continue
            try:
                found.append((predicate, rows.matching(predicate.tree, zone)))
            except (SparkError, NotModelled):
                self.totals.discarded += 1
        return found

    def ask(self, world: World, route: str, branches: list[Branch]) -> None:
        """One query; where it fails, its halves, down to the branch that fails."""
        if not branches:
            return
        try:
            found = READERS[route](self.spark, world.root, branches)
        except Exception as error:
            if len(branches) > 1:
                half = len(branches) // 2
                self.ask(world, route, branches[:half])
                self.ask(world, route, branches[half:])
                return
            told = str(error).splitlines()[0] if str(error) else ""
            if "cannot decide" not in str(error):
                self.found(route, branches[0], f"{type(error).__name__}: {told}")
            return
        for number, branch in enumerate(branches):
            ids = np.array(found.get(number, []), np.int64)
            if wrong := same_ids(ids, branch.wanted):
                self.found(route, branch, wrong)

    def found(self, route: str, branch: Branch, wrong: str) -> None:
        assert self.case is not None
        predicate = branch.predicate
        trial = Trial(route, predicate.sql, predicate.zone, column=branch.form)
        case = replace(self.case, trial=trial, predicate=predicate)
        self.findings.append(Finding(self.seed, case, wrong, self.used | predicate.used))


def ids_by_branch(frame: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for row in frame.collect():
        found[row.q].append(row.rid)
    return found


def by_skip(spark: SparkSession, root: str, branches: list[Branch]) -> dict[int, list[int]]:
    """SQL over a view of ``skip(df)``."""
    plain = spark.read.option("mergeSchema", "true").parquet(root)
    skipstone.skip(plain).createOrReplaceTempView("t")
    texts = [FORMS[b.form].format(n=n, p=b.predicate.sql) for n, b in enumerate(branches)]
    return ids_by_branch(spark.sql(" UNION ALL ".join(f"({text})" for text in texts)))


def united(frames: list[DataFrame]) -> dict[int, list[int]]:
    from pyspark.sql import functions as f

    whole: DataFrame | None = None
    for number, frame in enumerate(frames):
        one = frame.select(f.lit(number).alias("q"), ROW)
        whole = one if whole is None else whole.unionAll(one)
    assert whole is not None
    return ids_by_branch(whole)


def by_data_source(spark: SparkSession, root: str, branches: list[Branch]) -> dict[int, list[int]]:
    """``format("skipstone")`` with the predicate as its option."""
    frames = []
    for branch in branches:
        reader = spark.read.format("skipstone").option("where", branch.predicate.sql)
        frames.append(reader.option("timeZone", branch.predicate.zone).load(root))
    return united(frames)


def by_table_read(spark: SparkSession, root: str, branches: list[Branch]) -> dict[int, list[int]]:
    """``Table.read``, which chooses between both."""
    table = skipstone.Table(root)
    return united([table.read(spark, branch.predicate.sql) for branch in branches])


READERS: dict[str, Callable[[SparkSession, str, list[Branch]], dict[int, list[int]]]] = {
    "skip": by_skip,
    "data_source": by_data_source,
    "table_read": by_table_read,
}


def session() -> SparkSession:
    """A session of its own for ``python -m tests.soak``: local[2], UTC, no UI."""
    import os
    import sys

    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    made = (
        SparkSession.builder.master("local[2]")
        .appName("skipstone soak")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", tempfile.mkdtemp())
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made
