"""Spark over the lake (``lake.py``): `Table.read` and `skip(df)` beside plain Spark in one run.

| figure | |
|---|---|
| user, absent user, id | whole rows of one key, the files read anew by both |
| skip user, skip absent user, skip id | the same on a DataFrame at hand, through `skip(df)` |
| first query | one user in a fresh process and session; both list the files |
| 100 users, rare pair | no index says which rows: `Table.read` takes the cheapest way |
| count, aggregate | no file can be skipped: what `skip(df)` costs |

Rows must be equal, or there is no figure. Beside the first query, ``one_row_s`` is what Spark takes
for ``range(1)`` in a fresh session, without any file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import skipstone

from .figure import Figure, Peer, interleaved, median
from .lake import INDEXES, USERS, VERSION, ids_of, lay_lake, users_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from .workbench import Workbench

__all__ = ["figures"]

_NEEDLE, _EQUAL, _ADDED = 40.0, 1.0, 1.02
_WARM = 3
_PAIR = "country = 'c-07' AND kind = 'k-123'"
# Nothing is imported before the session: what a query needs is part of its time.
_FIRST = """
import json, sys, time
from pyspark.sql import SparkSession
way, path, location, where = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    .config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false").getOrCreate()
)
started = time.perf_counter()
spent = {}
def lap(name, begun):
    spent[name] = time.perf_counter() - begun
    return time.perf_counter()
at = started
if way == "one row":
    frame = spark.range(1)
elif way == "plain":
    frame = spark.read.parquet(path).where(where)
    at = lap("read", at)
else:
    import skipstone
    table = skipstone.Table(path, index_location=location)
    at = lap("open", at)
    frame = table.read(spark, where)
    at = lap("read", at)
rows = frame.collect()
lap("collect", at)
seconds = time.perf_counter() - started
print(json.dumps({"seconds": seconds, "rows": sorted(map(str, rows)), "spent": spent}))
"""


@dataclass(frozen=True, slots=True)
class _Lake:
    bench: Workbench
    path: str
    location: str
    files: int
    rows: int

    @property
    def warm(self) -> int:
        """Queries before those that count."""
        return min(_WARM, self.bench.sizes.runs - 1)

    def table(self) -> skipstone.Table:
        return skipstone.Table(self.path, index_location=self.location)

    def users(self) -> Iterator[str]:
        """Predicates on users of the table, another one each time."""
        for number in range(self.files * self.rows):
            file = (self.files // 2 + 37 * number) % self.files
            user = users_of(file, self.rows)[(100 + number) % self.rows]
            yield f"user_id = 'u-{int(user):07d}'"

    def absent(self) -> Iterator[str]:
        return (f"user_id = 'u-{number:07d}x'" for number in range(USERS))

    def ids(self) -> Iterator[str]:
        for number in range(self.files * self.rows):
            file = (7 + 31 * number) % self.files
            yield f"id = {int(ids_of(file, self.rows)[number % self.rows])}"


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them; the first query comes before the session that the others share."""
    files, rows = bench.sizes.files, bench.sizes.rows_per_file
    folder = bench.generated(
        "lake",
        lambda to: lay_lake(to / "table", files, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    lake = _Lake(bench, str(folder / "table"), str(folder / "index"), files, rows)
    lake.table().build(indexes=list(INDEXES))
    yield _first(lake)
    yield from _needles(lake)
    rng = np.random.default_rng(9)
    many = ", ".join(f"'u-{number:07d}'" for number in rng.integers(0, USERS, 100))
    yield _read("100 users", lake, [f"user_id IN ({many})"], _EQUAL)
    yield _read("rare pair", lake, [_PAIR], _EQUAL)
    yield from _added(lake)


def _first(lake: _Lake) -> Figure:
    where = next(lake.users())
    found = {}
    for way in ("plain", "Table.read", "one row"):
        command = [sys.executable, "-c", _FIRST, way, lake.path, lake.location, where]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[way] = json.loads(done.stdout.splitlines()[-1])
    plain, mine = found["plain"], found["Table.read"]
    if not mine["rows"] or mine["rows"] != plain["rows"]:
        raise AssertionError(f"the rows differ for {where}")
    return Figure(
        name="spark_lake.first query",
        value=mine["seconds"],
        unit="s",
        peer=Peer(what="plain Spark in a fresh session", value=plain["seconds"]),
        ratio=plain["seconds"] / mine["seconds"],
        details={
            "spent": mine["spent"],
            "plain_spent": plain["spent"],
            "one_row_s": found["one row"]["seconds"],
        },
    )


def _needles(lake: _Lake) -> Iterator[Figure]:
    count = lake.warm + lake.bench.sizes.runs
    keys = {"user": lake.users, "absent user": lake.absent, "id": lake.ids}
    for name, of in keys.items():
        each = of()
        yield _read(name, lake, [next(each) for _ in range(count)], _NEEDLE)
    spark = lake.bench.spark
    plain = spark.read.parquet(lake.path)
    skipping = skipstone.skip(plain, lake.location)
    for name, of in keys.items():
        each = of()
        asked = [next(each) for _ in range(count)]
        taken, _ = _turns({"plain": plain.where, "skip": skipping.where}, asked, lake.warm)
        yield _figure(f"skip {name}", taken["skip"], taken["plain"], None, {})


def _read(name: str, lake: _Lake, asked: list[str], target: float) -> Figure:
    """``Table.read`` against plain Spark, which both list the files of every query."""
    spark, table = lake.bench.spark, lake.table()
    ways: dict[str, Callable[[str], DataFrame]] = {
        "plain": lambda where: spark.read.parquet(lake.path).where(where),
        "Table.read": lambda where: table.read(spark, where),
    }
    if len(asked) == 1:
        asked = asked * (lake.warm + lake.bench.sizes.runs)
    taken, why = _turns(ways, asked, lake.warm)
    return _figure(name, taken["Table.read"], taken["plain"], target, {"read": why})


def _turns(
    ways: dict[str, Callable[[str], DataFrame]], asked: list[str], warm: int
) -> tuple[dict[str, list[float]], str]:
    """Seconds of every way for all predicates after the ``warm`` ones; how the last was read."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    why = ""
    for turn, where in enumerate(asked):
        rows: dict[str, list[Any]] = {}
        for name, way in ways.items():
            started = time.perf_counter()
            frame = way(where)
            rows[name] = frame.collect()
            if turn >= warm:
                taken[name].append(time.perf_counter() - started)
            if name != "plain":
                (scan,) = skipstone.last_scan(frame.sparkSession).scans
                why = next((each.text for each in scan.reasons if each.subject == "read by"), "")
        first, second = (sorted(map(str, each)) for each in rows.values())
        if first != second:
            raise AssertionError(f"the rows differ for {where[:200]}")
    return taken, why


def _added(lake: _Lake) -> Iterator[Figure]:
    """What an index costs a query that reads every file."""
    spark = lake.bench.spark
    plain = spark.read.parquet(lake.path)
    skipping = skipstone.skip(plain, lake.location)
    works: dict[str, Callable[[DataFrame], list[Any]]] = {
        "count": lambda frame: frame.where("country = 'c-07'").groupBy().count().collect(),
        "aggregate": lambda frame: (
            frame.where("amount >= 0").groupBy("country").agg({"quantity": "sum"}).collect()
        ),
    }
    for name, work in works.items():
        if sorted(work(plain)) != sorted(work(skipping)):
            raise AssertionError(f"{name}: the rows differ")
        (scan,) = skipstone.last_scan(spark).scans
        if scan.report is None or scan.files_kept != lake.files:
            raise AssertionError(f"{name}: the index was not used, or skipped files: {scan}")
        both = {
            "plain": lambda work=work: work(plain),
            "skip": lambda work=work: work(skipping),
        }
        taken = interleaved(lake.bench.sizes.repeated(20), both, warm=lake.warm)
        mine, peer = median(taken["skip"]), median(taken["plain"])
        yield Figure(
            name=f"spark_lake.nothing skipped, {name}",
            value=mine,
            unit="s",
            peer=Peer(what="plain Spark on the same DataFrame", value=peer),
            ratio=mine / peer,
            target=f"<= {_ADDED:g} of plain Spark",
            met=mine / peer <= _ADDED,
            details={
                "planning_ms": dict(skipstone.last_scan(spark).scans[0].milliseconds),
                "seconds": taken["skip"],
                "plain_seconds": taken["plain"],
            },
        )


def _figure(
    name: str, mine: list[float], plain: list[float], target: float | None, details: dict[str, Any]
) -> Figure:
    value, peer = median(mine), median(plain)
    return Figure(
        name=f"spark_lake.{name}",
        value=value,
        unit="s",
        peer=Peer(what="plain Spark", value=peer),
        ratio=peer / value,
        target=None if target is None else f">= {target:g} x faster",
        met=None if target is None else peer / value >= target,
        details={**details, "seconds": mine, "plain_seconds": plain},
    )
