"""Spark beside verbs of this process: a session in a process of its own, asked line by line.

A Spark build runs between two steps of an embedded verb, and data files change between the plan of
a DataFrame and its reading.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.faults.cases import (
    LARGE,
    Case,
    check_rows,
    indexed,
    lay_out,
    nothing,
    table_at,
    vacuum,
)
from tests.faults.readers import WHERE, ids, matching, rows_in
from tests.faults.together import DATA_CHANGES, FIRST, Pair, check_both
from tests.faults.trials import Fault, Total, Trials
from tests.folders import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.shim import Shim

BESIDE = "Spark builder beside embedded verbs"
BETWEEN = "files that change between Spark's plan and its reading"
#: what an error of a file that changed says, ours or Spark's own
CHANGED = ("StaleError", "FILE_NOT_EXIST", "FileNotFoundException", "FAILED_READ_FILE")


# -- the process of the session --------------------------------------------------------------------


def serve() -> None:
    """Answer requests, one line each, until the input ends."""
    from pyspark.sql import SparkSession

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    builder = SparkSession.builder.master("local[2]").appName("faults")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    frames: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            found = answer(spark, frames, asked)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), file=answers, flush=True)
    spark.stop()


def answer(spark: Any, frames: dict[str, Any], asked: dict[str, str]) -> dict[str, Any]:
    table = table_at(asked["home"])
    match asked["do"]:
        case "build":
            table.build(spark, indexes=[asked["index"]])
            return {}
        case "plan":
            if asked["route"] == "read":
                frame = table.read(spark, WHERE).select("id")
            else:
                source = spark.read.format("skipstone").load(f"{asked['home']}/t")
                frame = source.where(WHERE).select("id")
            frame._jdf.queryExecution().executedPlan().toString()
            frames["last"] = frame
            return {}
        case _:
            return {"ids": sorted(row[0] for row in frames["last"].collect())}


class Session:
    """The process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process, which forked trials share."""
        if self._process is None:
            environment = {n: v for n, v in os.environ.items() if n != "LD_PRELOAD"}
            environment |= {
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from tests.faults.with_spark import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                cwd=ROOT,
            )

    def ask(self, do: str, home: str, **more: str) -> dict[str, Any]:
        """The answer to a request."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"do": do, "home": home, **more}), file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.communicate()


SESSION = Session()


def missing() -> str | None:
    """Why these cases cannot run here."""
    return None if shutil.which("java") or "JAVA_HOME" in os.environ else "there is no Java"


# -- the trials ------------------------------------------------------------------------------------


def build(home: str) -> None:
    """A build by Spark."""
    found = SESSION.ask("build", home, index="s:valuelist")
    assert "error" not in found, found["error"]


def beside(first: str) -> Pair:
    def both(home: str) -> None:
        FIRST[first](home)
        build(home)

    gone = {"s:paimonbloom"} if first == "drop" else set[str]()
    more = {"s:bitmap"} if first == "build" else set[str]()
    names = ({"id:minmax", "s:paimonbloom", "s:valuelist"} | more) - gone
    made = Case(
        f"a Spark build during {first}",
        ("build",),
        lambda home: lay_out(home, "id:minmax", LARGE, files=3),
        FIRST[first],
        lambda home: check_rows(table_at(home), (0, 1, 2)),
        indexed(*sorted(names), files=3),
        both,
        vacuum,
    )
    return Pair(made, build, kind=BESIDE)


class BetweenPlanAndRead(Trials):
    """Data files change between the plan of a DataFrame and its reading."""

    def __init__(self, pair: Pair, home: Path, library: Shim, *, seed: int = 0) -> None:
        super().__init__(pair.case, home, library, seed=seed)

    def run(self, faults: tuple[Fault, ...] = (), *, every: int = 1, drawn: int = 0) -> Total:
        """Each change, by both ways to read."""
        started = time.monotonic()
        for route in ("read", "data source"):
            for change in DATA_CHANGES:
                self.lay_out()
                self.total.trials[BETWEEN] += 1
                self.tell(f"{change}, {route}", self.between(route, change))
        self.total.seconds = time.monotonic() - started
        return self.total

    def between(self, route: str, change: str) -> list[str]:
        second, after = DATA_CHANGES[change]
        planned = SESSION.ask("plan", self.home, route=route)
        if "error" in planned:
            return [f"the plan: {planned['error'][:400]}"]
        second(self.home)
        found = SESSION.ask("collect", self.home)
        right = [sorted(ids(matching(rows_in(*numbers)))) for numbers in ((0, 1), after)]
        if "error" in found:
            named = any(each in found["error"] for each in CHANGED) and ".parquet" in found["error"]
            return [] if named else [f"an error that names no file: {found['error'][:400]}"]
        if found["ids"] not in right:
            return [f"rows of neither state: {found['ids']}"]
        check_rows(table_at(self.home), after)
        return []


CASES = [
    *(beside(first) for first in FIRST),
    Pair(
        Case(
            BETWEEN,
            (),
            lambda home: lay_out(home, "id:minmax", LARGE),
            nothing,
            check_both,
            vacuum=vacuum,
        ),
        build,
        kind=BETWEEN,
    ),
]
