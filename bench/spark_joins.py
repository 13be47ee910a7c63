"""Joins of the lake (``lake.py``) with a dimension: `skip(df)` beside plain Spark, whose own
runtime filters (Bloom filters of joins, dynamic partition pruning) are on.

| figure | keys | files with one |
|---|---|---|
| 10 keys | 10 of `ts` | 1 in 100 |
| 1,000 keys | 1,000 of `ts` | 1 in 20 |
| 100,000 keys | 100,000 of `ts` | half |
| nothing skipped | 1,000 of `user_id` | all: ten rows each, and false positives |

A filter leaves the keys of a dimension that has four times as many rows. Rows must be equal, or
there is no figure.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone

from .figure import Figure, Peer, interleaved, median
from .lake import INDEXES, SEED, USERS, VERSION, lay_lake, users_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from .workbench import Workbench

__all__ = ["figures"]

_START = 1_767_225_600_000_000
_RUNTIME_FILTERS = (
    "spark.sql.optimizer.runtime.bloomFilter.enabled",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled",
)
# (name, column, keys, one in how many files has one, target)
_CASES = (
    ("10 keys", "ts", 10, 100, 10.0),
    ("1,000 keys", "ts", 1_000, 20, 3.0),
    ("100,000 keys", "ts", 100_000, 2, 1.0),
    ("nothing skipped", "user_id", 1_000, 1, 1 / 1.05),
)


def figures(bench: Workbench) -> Iterator[Figure]:
    files, rows = bench.sizes.files, bench.sizes.rows_per_file
    folder = bench.generated(
        "lake",
        lambda to: lay_lake(to / "table", files, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    table, location = str(folder / "table"), str(folder / "index")
    skipstone.Table(table, index_location=location).build(indexes=list(INDEXES))
    dims = bench.generated(
        "dims", lambda to: _lay_dims(to, files, rows), files=files, rows=rows, version=VERSION
    )
    spark = bench.spark
    for name in _RUNTIME_FILTERS:
        spark.conf.set(name, "true")
    plain = spark.read.parquet(table)
    skipping = skipstone.skip(plain, location)
    for name, column, _, _, target in _CASES:
        dim = spark.read.parquet(str(dims / f"{name}.parquet")).where("tag = 'yes'")

        def joined(fact: DataFrame, column: str = column, dim: DataFrame = dim) -> list[Any]:
            both = fact.join(dim, fact[column] == dim["key"])
            return both.selectExpr("count(*)", "sum(quantity)", "min(amount)").collect()

        if joined(plain) != joined(skipping):
            raise AssertionError(f"{name}: the rows differ")
        scan = skipstone.last_scan(spark).scans[-1]
        ways: dict[str, Callable[[], list[Any]]] = {
            "plain": partial(joined, plain),
            "skip": partial(joined, skipping),
        }
        taken = interleaved(bench.sizes.repeated(3), ways)
        mine, peer = median(taken["skip"]), median(taken["plain"])
        yield Figure(
            name=f"spark_joins.{name}",
            value=mine,
            unit="s",
            peer=Peer(what="plain Spark with its runtime filters", value=peer),
            ratio=peer / mine,
            target=f">= {target:.3g} x faster",
            met=peer / mine >= target,
            details={
                "join": [str(use) for use in scan.joins],
                "planning_ms": dict(scan.milliseconds),
                "seconds": taken["skip"],
                "plain_seconds": taken["plain"],
            },
        )


def _lay_dims(folder: Path, files: int, rows: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    for name, column, count, one_in, _ in _CASES:
        chosen = np.sort(rng.choice(files, max(files // one_in, 1), replace=False))
        each = min(max(count // len(chosen), 1), rows)
        places = [(int(file), rng.choice(rows, each, replace=False)) for file in chosen]
        if column == "ts":
            own = np.concatenate([_START + (file * rows + at) * 1_000 for file, at in places])
            other = _START + rng.integers(0, files * rows, 3 * len(own)) * 1_000
            keys = pa.array(np.concatenate([own, other]), pa.timestamp("us", "UTC"))
        else:
            own = np.concatenate([users_of(file, rows)[at] for file, at in places])
            other = rng.integers(0, USERS, 3 * len(own))
            keys = pa.array([f"u-{number:07d}" for number in np.concatenate([own, other])])
        tags = pa.array(["yes"] * len(own) + ["no"] * len(other))
        order = pa.array(rng.permutation(len(keys)))
        pq.write_table(
            pa.table({"key": keys.take(order), "tag": tags.take(order)}),
            folder / f"{name}.parquet",
        )
