"""A needle in many files: one key of all, through `skipstone.skip`, against plain Spark.

All ask the same DataFrame for the same key in turns, every time another key. The peer scans all
files: no range of keys leaves any of them out. Rows must be equal, or there is no figure.

With filters as they are by default, one file in a hundred is a false positive, ten besides the one
that has the needle; with finer filters, half as large again, one is.
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

    from skipstone.spark.scan_log import Scan

    from .workbench import Workbench

__all__ = ["events", "figures"]

FPP, FINE = 0.01, 0.001


def events(bench: Workbench) -> tuple[skipstone.Table, skipstone.Table]:
    """The table of events, with filters as they are by default, and with finer ones."""
    files, rows = bench.sizes.files, bench.sizes.rows_per_file
    folder = bench.generated(
        "events",
        lambda to: lay_events(to / "table", files, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    path = str(folder / "table")
    tables = skipstone.Table(path), skipstone.Table(path, index_location=str(folder / "fine"))
    for table, fpp in zip(tables, (FPP, FINE), strict=True):
        table.build(indexes=[f"key:bloom(fpp={fpp})", "ts:minmax"])
    return tables


def figures(bench: Workbench) -> Iterator[Figure]:
    """The needle, with the DataFrame at hand and read anew; and what absent keys cost."""
    table, fine = events(bench)
    yield from _needle(bench, table, fine)
    yield _absent(bench, table)


def _needle(bench: Workbench, table: skipstone.Table, fine: skipstone.Table) -> Iterator[Figure]:
    spark, runs = bench.spark, bench.sizes.runs
    few = max(1, runs // 3)  # a scan of everything takes its time
    warm = min(3, runs)
    keys = present_keys(bench.sizes.files, bench.sizes.rows_per_file, 2 * warm + runs + few)
    plain = spark.read.parquet(table.path)
    skipping = skipstone.skip(plain)
    finer = skipstone.skip(plain, fine.location.root)
    ways: dict[str, Callable[[], DataFrame]] = {
        "plain": lambda: plain,
        "needle": lambda: skipping,
        "needle.finer filters": lambda: finer,
    }
    anew: dict[str, Callable[[], DataFrame]] = {
        "plain": lambda: spark.read.parquet(table.path),
        "needle.read anew": lambda: skipstone.skip(spark.read.parquet(table.path)),
    }
    for kind, chosen in ((ways, keys[: warm + runs]), (anew, keys[warm + runs :])):
        taken, scans = _turns(kind, chosen, warm)
        peer = median(taken["plain"])
        for name in list(kind)[1:]:
            ratio, scan = peer / median(taken[name]), scans[name]
            target = None if kind is anew else 25.0
            yield Figure(
                name=name,
                value=median(taken[name]),
                unit="s",
                peer=Peer(what="plain Spark on the same DataFrame", value=peer),
                ratio=ratio,
                target=None if target is None else f">= {target:g} x faster",
                met=None if target is None else ratio >= target,
                details={
                    "files": bench.sizes.files,
                    "rows": bench.sizes.files * bench.sizes.rows_per_file,
                    "files_read": [scan.files_kept for scan in scan],
                    "planning_ms": dict(scan[-1].milliseconds),
                    "seconds": taken[name],
                    "plain_seconds": taken["plain"],
                },
            )


def _turns(
    ways: dict[str, Callable[[], DataFrame]], keys: list[int], warm: int
) -> tuple[dict[str, list[float]], dict[str, list[Scan]]]:
    """Seconds and scans per way for all keys but the first ones; the rows must be equal."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    scans: dict[str, list[Scan]] = {name: [] for name in ways}
    for turn, key in enumerate(keys):
        rows: dict[str, Any] = {}
        for name, way in ways.items():
            started = time.perf_counter()
            df = way()
            rows[name] = sorted(df.where(f"key = {key}").collect())
            seconds = time.perf_counter() - started
            if turn < warm:
                continue
            taken[name].append(seconds)
            if name != "plain":
                (scan,) = skipstone.last_scan(df.sparkSession).scans
                if scan.report is None:
                    raise AssertionError(f"the index was not used: {scan}")
                scans[name].append(scan)
        if not rows["plain"] or any(found != rows["plain"] for found in rows.values()):
            raise AssertionError(f"the rows differ for key {key}: {rows}")
    return taken, scans


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
