"""The time that an index adds to Spark's planning, in a query that can skip nothing.

Plain and wrapped runs of one query differ by less than the noise of either, so what is added is
measured by itself: the swap of `skip(df)`, all that the callbacks of Spark into the file index
take, and the way of each call from the JVM to Python and back. Spark's own list of the files, which
a plain query asks for too, is in there: the figure is an upper bound. The first query after
`skip(df)` matches that list with the facts; it is the one that counts.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import skipstone
from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.pruning.partitions import PartitionColumns
from skipstone.spark.file_index import SkippingFileIndex

from .events import lay_one_row_files
from .figure import Figure, Peer, median, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from skipstone.pruning.plan import Plan

    from .workbench import Workbench

__all__ = ["figures", "planner"]

TARGETS = {1_000: 30.0, 10_000: 150.0}
# True of the one row of every file.
WHERE = "key >= 0 AND ts <= 5"
_CALLBACKS = (
    "rootPaths",
    "listFiles",
    "inputFiles",
    "sizeInBytes",
    "partitionSchema",
    "metadataOpsTimeNs",
    "isTimeTravel",
    "hashCode",
    "equals",
    "toString",
)


def planner(table: skipstone.Table) -> Callable[[str], Plan]:
    """Plans over one listing and one match, as one file index makes for its queries."""
    listing = table.listing()
    schema = table.schema(listing)
    matched = table.store.snapshot().match(listing)

    def plan(where: str) -> Plan:
        tree = bind(parse_sql(where), schema)
        none = PartitionColumns({})
        return plan_objects(
            ObjectPlanRequest(
                tree=tree,
                listing=listing,
                matches=[matched],
                partitions=none,
                table=table.path,
                predicate=where,
            )
        )

    return plan


def figures(bench: Workbench) -> Iterator[Figure]:
    """The added time at both sizes."""
    for files in bench.sizes.planned_files:
        folder = bench.generated(
            f"one-row-{files}", partial(lay_one_row_files, files=files), files=files
        )
        yield _added(bench, f"{folder}/table", files)


def _added(bench: Workbench, path: str, files: int) -> Figure:
    df = bench.spark.read.parquet(path)
    _plan(df)  # Spark lists the files once per read, whoever asks
    samples: dict[str, list[float]] = {}
    scan: Any = None
    warm = 2 * bench.sizes.runs  # the JVM compiles what planning runs through only after a while
    for turn in range(warm + bench.sizes.runs):
        found = {"plain": timed(_plan, df)}
        with _callbacks() as spent:
            started = time.perf_counter()
            skipping = skipstone.skip(df)
            found["swap"] = time.perf_counter() - started
            found["whole first"] = timed(_plan, skipping)
            scan = skipstone.last_scan(bench.spark).scans[-1]
            found["calls"] = len(spent) / 1e3
            found["first"] = found["swap"] + _sum(spent, skipping)
        with _callbacks() as spent:
            found["whole again"] = timed(_plan, skipping)
            found["again"] = _sum(spent, skipping)
        if turn >= warm:
            for name, seconds in found.items():
                samples.setdefault(name, []).append(seconds * 1e3)
    if scan.report is None:
        raise AssertionError(f"the index was not used: {scan}")
    if scan.files_kept != files:
        raise AssertionError(f"{files - scan.files_kept} files were skipped, and none should be")
    medians = {name: median(taken) for name, taken in samples.items()}
    target, value = TARGETS.get(files), medians["first"]
    return Figure(
        name=f"planning.{files}",
        value=value,
        unit="ms",
        peer=Peer(what="plain Spark planning the query, files listed", value=medians["plain"]),
        ratio=value / medians["plain"],
        target=None if target is None else f"<= {target:g} ms added",
        met=None if target is None else value <= target,
        details={
            "files": files,
            "fastest_ms": min(samples["first"]),
            "again_ms": medians["again"],
            "swap_ms": medians["swap"],
            "callbacks": medians["calls"],
            "phases_ms": dict(scan.milliseconds),
            "difference_end_to_end_ms": {
                "first": medians["swap"] + medians["whole first"] - medians["plain"],
                "again": medians["whole again"] - medians["plain"],
            },
        },
    )


def _plan(df: DataFrame) -> None:
    """Let Spark plan the query up to the files that it would read, and no further."""
    plan = df.where(WHERE)._jdf.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    leaves = plan.collectLeaves()
    leaves.apply(0).selectedPartitions()


@contextmanager
def _callbacks() -> Iterator[list[float]]:
    """Seconds that each callback into a file index takes in Python, while this lasts."""
    spent: list[float] = []
    own = {name: SkippingFileIndex.__dict__.get(name) for name in _CALLBACKS}

    def passed_on(name: str) -> Callable[..., Any]:
        """What ``__getattr__`` does for a method that the class does not have."""
        return lambda index, *arguments: getattr(index.original, name)(*arguments)

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                spent.append(time.perf_counter() - started)

        return call

    for name, method in own.items():
        setattr(SkippingFileIndex, name, counted(method or passed_on(name)))
    try:
        yield spent
    finally:
        for name, method in own.items():
            if method is None:
                delattr(SkippingFileIndex, name)
            else:
                setattr(SkippingFileIndex, name, method)


def _sum(spent: list[float], skipping: DataFrame) -> float:
    """All callbacks, and their ways from the JVM to Python and back."""
    taken = list(spent)
    leaf = skipping._jdf.queryExecution().analyzed().collectLeaves().apply(0)
    proxy = leaf.relation().location()
    round_trip = median([timed(proxy.hashCode) - timed(leaf.getClass) for _ in range(20)])
    return sum(taken) + len(taken) * max(0.0, round_trip)
