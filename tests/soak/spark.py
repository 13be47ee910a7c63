"""The routes of Spark sessions: many predicates in one query, told apart by a number.

Each predicate is one branch of a union, with a scan of its own, so that each is pruned by itself. A
branch asks for the ids of its rows: directly, in a subquery, under a join or an aggregate, or for
those that do not match. ``Table.read`` and ``format("skipstone")`` are asked on a classic session
and under Spark Connect. Spark's own pushdown into row groups is off where there are floats, because
it loses NaN. ``skip`` gives what plain Spark gives, so it is off there too where Arrow counts too
few nulls, of dictionaries in structs.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import skipstone
from skipstone.spark.session import set_to
from tests.oracle import NotModelled, SparkError
from tests.soak.differences import features_of, places_of
from tests.soak.generate import ROW, Generator
from tests.soak.life import Step, World, first_indexes, step
from tests.soak.predicates import ZONES, Conditions, Predicate, leaf_columns
from tests.soak.routes import Expected, Trial, ids_of, same_ids
from tests.soak.shape import SPARK, without_gaps
from tests.soak.trials import (
    REFUSED,
    Case,
    Finding,
    Totals,
    answer,
    expected_of,
    lived,
    paths_of,
    room,
    rows_of,
    run_case,
)
from tests.soak.values import chance, pick

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tests.soak.generate import DataFile
    from tests.soak.shape import Shape

#: a branch of the query: {n} its number, {p} the predicate
FORMS = {
    "where": "SELECT {n} AS q, rid FROM t WHERE {p}",
    "subquery": "SELECT {n} AS q, rid FROM t WHERE rid IN (SELECT rid FROM t WHERE {p})",
    "join": "SELECT {n} AS q, b.rid FROM (SELECT rid FROM t WHERE {p}) a JOIN t b ON a.rid = b.rid",
    "aggregate": "SELECT {n} AS q, rid FROM "
    "(SELECT rid, count(*) AS n FROM t WHERE {p} GROUP BY rid) WHERE n = 1",
    "others": "SELECT {n} AS q, t.rid FROM t LEFT ANTI JOIN "
    "(SELECT rid AS r FROM t WHERE {p}) s ON t.rid = s.r",
    "first": "SELECT {n} AS q, rid FROM t WHERE {p} ORDER BY rid DESC LIMIT 3",
}
#: the arguments of ``Table.read`` and the options of the data source for the form ``first``
FIRST = {"order_by": f"{ROW} desc", "limit": 3}
FIRST_OPTIONS = {"orderBy": f"{ROW} desc", "limit": "3"}
#: the view ``t`` of the route ``skip``; ``options`` are those of the reader
VIEW = """plain = spark.read.option("mergeSchema", "true").options(**options).parquet(root)
if cache == "plain":
    plain.cache()
t = skipstone.skip(plain)
if cache == "skipped":
    t.cache()
t.createOrReplaceTempView("t")"""
_SOURCE = (
    'spark.read.format("skipstone")'
    ".options(where=where, timeZone=zone, **first_options, **options).load(root)"
)
_READ = "table.read(spark, where, **first)"
#: the frame of one branch
FRAMES = {
    "data_source": _SOURCE,
    "table_read": _READ,
    "connect_source": _SOURCE,
    "connect_read": _READ,
}
#: settings that change no row, and what each may be
SETTINGS: dict[str, tuple[str, ...]] = {
    "spark.sql.adaptive.enabled": ("true", "true", "false"),
    "spark.sql.parquet.enableVectorizedReader": ("true", "true", "false"),
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": ("true", "false"),
    "spark.sql.ansi.enabled": ("true", "true", "false"),
    # Compiled code takes longer to make, and many tasks longer to start, than such small tables
    # take to read.
    "spark.sql.codegen.wholeStage": ("false", "false", "false", "true"),
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "NO_CODEGEN", "NO_CODEGEN", "FALLBACK"),
    "spark.sql.files.minPartitionNum": ("1", "1", "1", "4"),
}
ZONE = "spark.sql.session.timeZone"
PUSHDOWN = "spark.sql.parquet.filterPushdown"
CASE_SENSITIVE = "spark.sql.caseSensitive"


@dataclass(frozen=True)
class Sessions:
    """A classic session, and one of Spark Connect where its routes are asked."""

    classic: SparkSession
    connect: SparkSession | None = None

    def of(self, route: str) -> SparkSession:
        if not route.startswith("connect"):
            return self.classic
        assert self.connect is not None
        return self.connect

    def stop(self) -> None:
        if self.connect is not None:
            self.connect.stop()
        self.classic.stop()


@dataclass(frozen=True, eq=False)
class Branch:
    """One predicate of a query, how it is asked, and the ids that it must give."""

    predicate: Predicate
    trial: Trial
    wanted: np.ndarray[Any, Any]


def wanted_of(form: str, expected: Expected) -> np.ndarray[Any, Any]:
    """The ids that a branch must give."""
    if form == "others":
        return np.setdiff1d(ids_of(expected.rows.table.column(ROW)), expected.ids())
    if form == "first":
        return np.sort(expected.ids())[-3:]
    return expected.ids()


def settings_of(trial: Trial) -> dict[str, str]:
    """The settings of the session for a trial."""
    return {PUSHDOWN: "false", ZONE: trial.zone, **dict(trial.settings)}


def arguments_of(trial: Trial, *, recursive: bool) -> dict[str, Any]:
    """What the texts of a route name, but the session and the table."""
    is_first = trial.form == "first"
    return {
        "options": {"recursiveFileLookup": "true"} if recursive else {},
        "cache": trial.cache,
        "where": trial.where,
        "zone": trial.zone,
        "first": FIRST if is_first else {},
        "first_options": FIRST_OPTIONS if is_first else {},
    }


def ids_by_branch(sessions: Sessions, world: World, branches: list[Branch]) -> dict[int, list[int]]:
    """One query with all branches, which have one route and one set of settings."""
    trial = branches[0].trial
    spark = sessions.of(trial.route)
    names = {"spark": spark, "skipstone": skipstone, "table": world.table(), "root": world.root}
    each_has = [arguments_of(each.trial, recursive=world.recursive) for each in branches]
    with set_to(spark, settings_of(trial)):
        if trial.route == "skip":
            exec(VIEW, {**names, **each_has[0]})
            texts = [
                FORMS[b.trial.form].format(n=n, p=b.trial.where) for n, b in enumerate(branches)
            ]
            whole = spark.sql(" UNION ALL ".join(f"({text})" for text in texts))
        else:
            frames: list[DataFrame] = [
                eval(FRAMES[trial.route], {**names, **arguments}) for arguments in each_has
            ]
            numbered = [frame.selectExpr(f"{n} AS q", ROW) for n, frame in enumerate(frames)]
            whole = numbered[0]
            for each in numbered[1:]:
                whole = whole.unionAll(each)
        try:
            found: dict[int, list[int]] = defaultdict(list)
            for row in whole.collect():
                found[row[0]].append(row[1])
            return found
        finally:
            if trial.cache:
                spark.catalog.clearCache()


def told(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"


def is_refusal(error: Exception) -> bool:
    return "cannot decide" in str(error)


def run_case_in(sessions: Sessions, case: Case) -> str:
    """Do everything of a case again; returns what is wrong, "" if nothing is."""
    if case.trial.route not in SPARK:
        return run_case(case)
    assert case.predicate is not None
    with tempfile.TemporaryDirectory(dir=room()) as folder:
        world = lived(case, folder)
        expected = expected_of(world, case.trial, case.predicate)
        branch = Branch(case.predicate, case.trial, wanted_of(case.trial.form, expected))
        try:
            found = ids_by_branch(sessions, world, [branch])
        except Exception as error:
            return REFUSED if is_refusal(error) else told(error)
        return same_ids(np.array(found.get(0, []), np.int64), branch.wanted)


def uncounted_nulls(files: Mapping[str, DataFile]) -> bool:
    """Whether a struct has dictionary arrays: Arrow does not count nulls of the struct there."""

    def inside(type: pa.DataType) -> bool:
        found: bool = pa.types.is_dictionary(type)
        return found or (pa.types.is_struct(type) and any(inside(each.type) for each in type))

    types = [type for each in files.values() for type in each.rows.schema.types]
    return any(pa.types.is_struct(type) and inside(type) for type in types)


class SparkTrials:
    """The trials of one seed on the routes of sessions."""

    def __init__(self, sessions: Sessions, seed: int, shape: Shape, totals: Totals) -> None:
        features = shape.features - {"encrypt"}  # Spark would need a KMS
        if seed % 2 == 0:  # a table that every route takes
            features = without_gaps(features, shape.gaps, "skip")
        shape = replace(shape, features=features)
        self.sessions, self.seed, self.shape, self.totals = sessions, seed, shape, totals
        self.rng = np.random.default_rng([seed, 1])
        self.findings: list[Finding] = []
        self.used: frozenset[str] = frozenset()
        self.case: Case | None = None

    def run(self, batches: int = 2) -> list[Finding]:
        """Batches of predicates on each route, with an event of the table's life between them."""
        rng, shape = self.rng, self.shape
        self.totals.tables += 1
        with tempfile.TemporaryDirectory(dir=room()) as folder:
            generator = Generator(rng, shape)
            files = generator.lake()
            world = World(f"{folder}/t/table", recursive=generator.recursive)
            world.begin(files)
            steps: list[Step] = []

            def apply(event: Step) -> bool:
                steps.append(event)
                return not world.apply(event)

            if shape.has("indexes"):
                first_indexes(rng, rows_of(world.of_table()).table.schema, apply)
            for at in range(batches):
                if at:
                    schema = rows_of(world.of_table()).table.schema
                    more = step(rng, shape, world, generator, schema)
                    if more is not None:
                        apply(more)
                life = {each.kind for each in steps} & shape.features
                life |= {"recursive"} if world.recursive else set()
                places = places_of(world.files.values())
                self.used = features_of(list(world.of_table().values())) | places | life
                first = Trial("skip", None)
                self.case = Case(files, tuple(steps), first, None, recursive=world.recursive)
                self.batch(world)
            world.clear()
        return self.findings

    def batch(self, world: World) -> None:
        """Predicates on each route, under settings that are drawn for all of them."""
        rng = self.rng
        rows = rows_of(world.of_table())
        settings = self.settings(rows.table.schema)
        zone = str(pick(rng, ("UTC", *ZONES))) if self.shape.has("zones") else "UTC"
        paths = paths_of(world.of_table(), rows)
        plain = settings | ({PUSHDOWN: "false"} if uncounted_nulls(world.of_table()) else {})
        conditions = Conditions(rng, self.shape, rows, exact=CASE_SENSITIVE in settings)
        asked = self.predicates(conditions, zone, settings)
        for route in self.shape.routes:
            if self.shape.left_out(self.used, route):
                self.totals.left_out[route] += 1
                continue
            forms = ["where", "where", *FORMS] if route == "skip" else ["where"] * 3 + ["first"]
            cache = str(pick(rng, ("", "", "", "plain", "skipped"))) if route == "skip" else ""
            branches = []
            for predicate, matching in asked:
                if route != "skip" and predicate.has_function:
                    continue
                expected = Expected(rows, matching, paths)
                trial = Trial(
                    route,
                    predicate.sql,
                    zone,
                    form=str(pick(rng, forms)),
                    settings=tuple((plain if route == "skip" else settings).items()),
                    cache=cache,
                )
                if route not in SPARK:
                    self.ask_here(world, trial, predicate, expected)
                else:
                    branches.append(Branch(predicate, trial, wanted_of(trial.form, expected)))
            branches = branches[: MOST.get(route)]
            self.totals.trials[route] += len(branches)
            began = time.monotonic()
            self.ask(world, branches)
            self.totals.seconds[route] += round(time.monotonic() - began)

    def settings(self, schema: pa.Schema) -> dict[str, str]:
        """Those of a batch, but the time zone."""
        found = {name: str(pick(self.rng, values)) for name, values in SETTINGS.items()}
        floats = any(pa.types.is_floating(type) for _, type in leaf_columns(schema))
        if not floats and chance(self.rng, 0.5):
            found[PUSHDOWN] = "true"
        # Names that differ in case would be columns of their own.
        if not self.used & {"case", "nested_case"} and chance(self.rng, 0.3):
            found[CASE_SENSITIVE] = "true"
        return found

    def predicates(
        self, conditions: Conditions, zone: str, settings: dict[str, str]
    ) -> list[tuple[Predicate, np.ndarray[Any, Any]]]:
        """Predicates with their rows; without ANSI rules only those that mean the same there."""
        found = []
        for _ in range(self.shape.predicates):
            predicate = replace(conditions.predicate(), zone=zone)
            loose = settings["spark.sql.ansi.enabled"] == "false"
            if loose and predicate.used & {"casts", "other_literals"}:
                continue
            try:
                found.append((predicate, conditions.rows.matching(predicate.tree, zone)))
            except (SparkError, NotModelled):
                self.totals.discarded += 1
        return found

    def ask_here(
        self, world: World, trial: Trial, predicate: Predicate, expected: Expected
    ) -> None:
        """A route without Spark over the same table, some of whose files Spark wrote."""
        self.totals.trials[trial.route] += 1
        wrong = answer(world, trial, expected)
        if wrong == REFUSED:
            self.totals.refused += 1
        elif wrong:
            self.found(predicate, trial, wrong)

    def ask(self, world: World, branches: list[Branch]) -> None:
        """One query; where it fails, its halves, down to the branch that fails."""
        if not branches:
            return
        try:
            found = ids_by_branch(self.sessions, world, branches)
        except Exception as error:
            if len(branches) > 1:
                half = len(branches) // 2
                self.ask(world, branches[:half])
                self.ask(world, branches[half:])
            elif is_refusal(error):
                self.totals.refused += 1
            else:
                self.found(branches[0].predicate, branches[0].trial, told(error))
            return
        for number, branch in enumerate(branches):
            ids = np.array(found.get(number, []), np.int64)
            if wrong := same_ids(ids, branch.wanted):
                self.found(branch.predicate, branch.trial, wrong)

    def found(self, predicate: Predicate, trial: Trial, wrong: str) -> None:
        assert self.case is not None
        case = replace(self.case, trial=trial, predicate=predicate)
        self.findings.append(Finding(self.seed, case, wrong, self.used | predicate.used))


#: predicates of a query, where each starts Python processes that plan and read
MOST = {"data_source": 2, "connect_source": 2}


def session() -> SparkSession:
    """A classic session of its own: local[2], UTC, no UI."""
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


def remote() -> SparkSession:
    """A session of Spark Connect; its server is a process that ends with this one."""
    from pyspark.sql.connect.session import SparkSession as Remote

    from tests.spark_servers import connect_server

    server, address = connect_server(Path(tempfile.mkdtemp()))
    atexit.register(server.stop)
    made: Any = Remote.builder.remote(address).getOrCreate()
    return made  # type: ignore[no-any-return]
