"""``skipstone.watch``: files arrive, and the index covers them; polled with a deadline.

The table has one file for each number, in folders at two depths, with names that have blanks,
``%``, ``é`` and ``=``; its one index is minmax of ``n``.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import SkipstoneError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from skipstone.facts.reports import BuildReport
    from skipstone.spark.watch import Watch

pytestmark = pytest.mark.spark

DEADLINE = 240  # seconds until something that should happen counts as not happening


def put(path: Path, *numbers: int, age: int = 0) -> None:
    """A file of these numbers that appears whole, as a writer's rename makes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.parent / f"_{path.name}"
    pq.write_table(pa.table({"n": list(numbers)}), fresh)
    os.utime(fresh, (1_700_000_000 - age, 1_700_000_000 - age))
    fresh.rename(path)


def indexed(root: Path) -> skipstone.Table:
    put(root / "p=a b" / "first.parquet", 1, 2)
    table = skipstone.Table(str(root))
    table.build(indexes=["n:minmax"])
    return table


def until(watch: Watch, happened: Callable[[], bool]) -> None:
    """Returns when it has; the query itself is what is waited on between two looks."""
    end = time.monotonic() + DEADLINE
    while not happened():
        assert time.monotonic() < end, f"not within {DEADLINE} s: {watch!r}, {watch.last_error}"
        assert not watch.awaitTermination(1), repr(watch)


def covered(table: skipstone.Table, files: int) -> bool:
    found = table.describe()
    return (found.fresh, found.files_total) == (files, files)


def kept(table: skipstone.Table, where: str) -> int:
    return table.plan(where, inside=False).files_kept


def test_files_that_arrive_are_covered(spark: SparkSession, tmp_path: Path) -> None:
    """A new file in a new folder, one replaced by another of equal size, and one that is gone; then
    the watch is stopped, a file comes, and another watch finds it."""
    table = indexed(tmp_path / "t é%")
    root = tmp_path / "t é%"
    with skipstone.watch(spark, str(root), interval=0.5, name="arrivals") as watch:
        assert watch.query.name == "arrivals"
        put(root / "p=100%25" / "é" / "second.parquet", 10, 11)
        until(watch, lambda: covered(table, 2))
        assert kept(table, "n = 10") == 1
        put(root / "p=a b" / "first.parquet", 5, 6, age=7)
        until(watch, lambda: covered(table, 2) and kept(table, "n = 5") == 1)
        assert kept(table, "n = 1") == 0
        (root / "p=100%25" / "é" / "second.parquet").unlink()
        seen = watch.refreshes
        until(watch, lambda: watch.refreshes > seen + 1)
        assert watch.isActive
        assert watch.lastProgress is not None
        assert watch.last_report is not None
        assert watch.last_error is None
    assert "stopped" in repr(watch)
    put(root / "p=c" / "third.parquet", 20)
    assert not covered(table, 2)
    with skipstone.watch(spark, table, interval=0.5) as again:
        until(again, lambda: covered(table, 2))
    assert kept(table, "n = 20") == 1
    assert not any(query.isActive for query in spark.streams.active)


def test_a_refresh_that_fails_is_said_and_tried_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = indexed(tmp_path / "t")
    put(tmp_path / "t" / "p=c" / "second.parquet", 3)
    refresh = table.refresh
    calls = []

    def failing(session: SparkSession | None = None, **options: Any) -> BuildReport:
        calls.append(options)
        if len(calls) < 3:
            raise OSError("the store is down")
        return refresh(session, memory=options["memory"])

    monkeypatch.setattr(table, "refresh", failing)
    caplog.set_level(logging.WARNING, "skipstone")
    with skipstone.watch(spark, table, interval=0.2, memory=64 << 20) as watch:
        until(watch, lambda: watch.refreshes > 0)
        assert watch.failures == 2
        assert watch.last_error is None
    assert covered(table, 2)
    said = [each.getMessage() for each in caplog.records]
    assert sum("tried again later: the store is down" in text for text in said) == 2


def test_a_table_without_an_index_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "t" / "first.parquet", 1)
    with pytest.raises(SkipstoneError, match="has no index"):
        skipstone.watch(spark, str(tmp_path / "t"))
    table = indexed(tmp_path / "u")
    with pytest.raises(SkipstoneError, match="interval=0"):
        skipstone.watch(spark, table, interval=0)
    assert not spark.streams.active


def test_over_connect(spark_connect: SparkSession, tmp_path: Path) -> None:
    """The refreshes run at the server."""
    table = indexed(tmp_path / "t")
    put(tmp_path / "t" / "p=c" / "second.parquet", 3)
    with skipstone.watch(spark_connect, table, interval=0.5) as watch:
        until(watch, lambda: covered(table, 2))
    assert not watch.isActive
