"""A needle in many files: one key of all, through `skipstone.skip`, against plain Spark.

All ask the same DataFrame for the same key in turns, every time another key. The peer scans all
files: no range of keys leaves any of them out. Rows must be equal, or there is no figure.

With filters as they are by default, about one file is a false positive besides the one that has the
needle; with coarse filters, two thirds as large, one file in a hundred is.
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

    from skipstone.spark.scans import Scan

    from .workbench import Workbench

__all__ = ["events", "figures"]

COARSE = 0.01


def events(bench: Workbench) -> tuple[skipstone.Table, skipstone.Table]:
    """The table of events, with filters as they are by default, and with coarse ones."""
    files, rows = bench.sizes.files, bench.sizes.rows_per_file
    folder = bench.generated(
        "events",
        lambda to: lay_events(to / "table", files, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    path = str(folder / "table")
    tables = skipstone.Table(path), skipstone.Table(path, index_location=str(folder / "coarse"))
    for table, kind in zip(tables, ("bloom", f"bloom(fpp={COARSE})"), strict=True):
        table.build(indexes=[f"key:{kind}", "ts:minmax"])
    return tables


def figures(bench: Workbench) -> Iterator[Figure]:
    """The needle, with the DataFrame at hand and read anew; what absent keys cost, and the size of
    the index."""
    table, coarse = events(bench)
    yield from _needle(bench, table, coarse)
    yield _absent(bench, table)
    yield _size(bench, table, coarse)


def _needle(bench: Workbench, table: skipstone.Table, coarse: skipstone.Table) -> Iterator[Figure]:
    spark, runs = bench.spark, bench.sizes.runs
    few = max(1, runs // 3)  # a scan of everything takes its time
    warm = min(3, runs)
    keys = present_keys(bench.sizes.files, bench.sizes.rows_per_file, 2 * warm + runs + few)
    plain = spark.read.parquet(table.path)
    skipping = skipstone.skip(plain)
    coarser = skipstone.skip(plain, coarse.location.root)
    ways: dict[str, Callable[[], DataFrame]] = {
        "plain": lambda: plain,
        "needle": lambda: skipping,
        "needle.coarse filters": lambda: coarser,
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
    fpp = _fpp(table)
    mean, allowed = float(np.mean(kept)), 1.2 * fpp * files
    return Figure(
        name="needle.absent keys",
        value=mean,
        unit="files",
        peer=Peer(what="fpp x files", value=fpp * files),
        ratio=mean / (fpp * files),
        target=f"<= {allowed:g} files, 1.2 x fpp x files",
        met=mean <= allowed,
        details={
            "files": files,
            "keys": len(keys),
            "fpp": fpp,
            "most": max(kept),
            "through_spark": through_spark,
        },
    )


def _fpp(table: skipstone.Table) -> float:
    (params,) = (dict(each.params) for each in table.describe().indexes if each.column == "key")
    return float(params["fpp"])


def _size(bench: Workbench, table: skipstone.Table, coarse: skipstone.Table) -> Figure:
    """Bytes of the index (filters, min/max, row group metadata) per byte of data. A row is 23 bytes
    and a third of it is its key, so that no filter of this ``fpp`` takes less than 5.5 %: of rows
    as wide as usual, see ``lake_queries.index size``."""
    told, other = table.describe(), coarse.describe()
    share = told.bytes_index / told.bytes_data
    return Figure(
        name="needle.index size",
        value=share,
        unit="of the data",
        peer=Peer(what=f"fpp={COARSE}", value=other.bytes_index / other.bytes_data),
        ratio=told.bytes_index / other.bytes_index,
        details={
            "files": bench.sizes.files,
            "index_bytes": told.bytes_index,
            "data_bytes": told.bytes_data,
            "fpp": _fpp(table),
            "bytes": {each.name: each.bytes for each in told.indexes},
        },
    )
