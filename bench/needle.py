"""A needle in many files: one key of all, through `skipstone.skip`, against plain Spark.

Both ask the same DataFrame for the same key in turns, every time another key. The peer scans all
files: no range of keys leaves any of them out. Rows must be equal, or there is no figure.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

import skipstone

from .events import VERSION, absent_keys, lay_events, present_keys
from .figure import Figure, Peer, median
from .planning import planner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from .workbench import Workbench

__all__ = ["events", "figures"]

FPP = 0.01
INDEXES = (f"key:bloom(fpp={FPP})", "ts:minmax")


def events(bench: Workbench) -> skipstone.Table:
    """The table of events, indexed."""
    files, rows = bench.sizes.files, bench.sizes.rows_per_file
    folder = bench.generated(
        "events",
        lambda to: lay_events(to / "table", files, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    table = skipstone.Table(str(folder / "table"))
    table.build(indexes=INDEXES)
    return table


def figures(bench: Workbench) -> Iterator[Figure]:
    """The needle, with the DataFrame at hand and read anew; and what absent keys cost."""
    table = events(bench)
    yield from _needle(bench, table)
    yield _absent(bench, table)


def _needle(bench: Workbench, table: skipstone.Table) -> Iterator[Figure]:
    spark, runs = bench.spark, bench.sizes.runs
    few = max(1, runs // 3)  # a scan of everything takes its time
    warm = min(3, runs)
    keys = present_keys(bench.sizes.files, bench.sizes.rows_per_file, 2 * warm + runs + few)
    plain = spark.read.parquet(table.path)
    skipping = skipstone.skip(plain)
    ways: dict[str, Callable[[], DataFrame]] = {
        "plain": lambda: plain,
        "skipping": lambda: skipping,
    }
    anew: dict[str, Callable[[], DataFrame]] = {
        "plain": lambda: spark.read.parquet(table.path),
        "skipping": lambda: skipstone.skip(spark.read.parquet(table.path)),
    }
    for name, target, kind, chosen in (
        ("needle", 25.0, ways, keys[: warm + runs]),
        ("needle.read anew", None, anew, keys[warm + runs :]),
    ):
        taken = _turns(kind, chosen, warm)
        ratio = median(taken["plain"]) / median(taken["skipping"])
        scan = skipstone.last_scan(spark)
        if scan.scans[0].report is None:
            raise AssertionError(f"the index was not used: {scan}")
        yield Figure(
            name=name,
            value=median(taken["skipping"]),
            unit="s",
            peer=Peer(what="plain Spark on the same DataFrame", value=median(taken["plain"])),
            ratio=ratio,
            target=None if target is None else f">= {target:g} x faster",
            met=None if target is None else ratio >= target,
            details={
                "files": bench.sizes.files,
                "rows": bench.sizes.files * bench.sizes.rows_per_file,
                "files_read": scan.files_kept,
                "planning_ms": dict(scan.scans[0].milliseconds),
                "seconds": taken,
            },
        )


def _turns(
    ways: dict[str, Callable[[], DataFrame]], keys: list[int], warm: int
) -> dict[str, list[float]]:
    """Seconds per way for all keys but the first ones; the rows must be equal."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn, key in enumerate(keys):
        rows: dict[str, Any] = {}
        for name, way in ways.items():
            started = time.perf_counter()
            rows[name] = way().where(f"key = {key}").collect()
            if turn >= warm:
                taken[name].append(time.perf_counter() - started)
        if not rows["plain"] or sorted(rows["plain"]) != sorted(rows["skipping"]):
            raise AssertionError(f"the rows differ for key {key}: {rows}")
    return taken


def _absent(bench: Workbench, table: skipstone.Table) -> Figure:
    """Files read for keys that there are not: the Bloom filters' false positives, and no more."""
    keys = absent_keys(bench.sizes.absent_keys)
    plan = planner(table)
    kept = [plan(f"key = {key}").files_kept for key in keys]
    through_spark = []
    df = skipstone.skip(bench.spark.read.parquet(table.path))
    for at in range(bench.sizes.absent_keys_through_spark):
        if df.where(f"key = {keys[at]}").collect():
            raise AssertionError(f"key {keys[at]} is absent, and was found")
        scan = skipstone.last_scan(bench.spark)
        through_spark.append(scan.files_kept)
    if through_spark != kept[: len(through_spark)]:
        raise AssertionError(f"Spark read {through_spark} files, {kept} were planned")
    files = bench.sizes.files
    mean, allowed = float(np.mean(kept)), 1.2 * FPP * files
    return Figure(
        name="needle.absent keys",
        value=mean,
        unit="files",
        peer=Peer(what="fpp x files", value=FPP * files),
        ratio=mean / (FPP * files),
        target=f"<= {allowed:g} files, 1.2 x fpp x files",
        met=mean <= allowed,
        details={
            "files": files,
            "keys": len(keys),
            "fpp": FPP,
            "most": max(kept),
            "through_spark": through_spark,
        },
    )
