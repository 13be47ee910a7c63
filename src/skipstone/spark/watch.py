"""``skipstone.watch``: a streaming query that keeps an index fresh while files arrive.

The stream is a clock: every trigger brings one row that nobody reads, and ``foreachBatch``
refreshes the index. What is new is found by the listing that every refresh makes, and by the facts;
so nested folders, replaced files and files that vanish are seen like new ones, no list of files
seen is kept, no row of a data file passes through the JVM, and a watch that is started again goes
on wherever the index stands, without a checkpoint. (A stream of files itself would miss a file that
is replaced.)

A refresh that fails does not end the query: it is said (a warning, ``last_error``), and the next
trigger tries again. Facts are published as they are made, so what a refresh did before it failed
counts. A file that was written just now is left for a later trigger, as a build leaves it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from skipstone.errors import SkipstoneError

from .session import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from skipstone.facts.reports import BuildReport

__all__ = ["INTERVAL", "Watch", "start_watch"]

_LOG = logging.getLogger("skipstone")

#: seconds between two looks at the table
INTERVAL = 10.0


class Watch:
    """A watch that runs: its streaming query, and what the refreshes came to.

    - ``query``: Spark's ``StreamingQuery``;
    - ``refreshes``: how many looks at the table went well, ``failures``: how many did not;
    - ``last_report``: of the last refresh that went well; ``last_error``: why the last one did not,
      ``None`` when it did.

    Under Spark Connect refreshes run at the server: only ``query`` and what is its own tells of
    them.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self.query: StreamingQuery
        self.refreshes = self.failures = 0
        self.last_report: BuildReport | None = None
        self.last_error: Exception | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def _went_well(self, report: BuildReport) -> None:
        with self._lock:
            self.refreshes += 1
            self.last_report, self.last_error = report, None

    def _failed(self, error: Exception) -> None:
        if self._stopped:
            return  # it was cut off
        with self._lock:
            self.failures += 1
            self.last_error = error
        _LOG.warning("%s is not refreshed, and tried again later: %s", self.table, error)

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        return bool(self.query.isActive)

    @property
    def lastProgress(self) -> Any:
        """Spark's progress of the last trigger."""
        return self.query.lastProgress

    @property
    def id(self) -> str:
        """Spark's id of the query."""
        return str(self.query.id)

    def stop(self) -> None:
        """End it; a refresh that runs is cut off, and what it has published counts."""
        self._stopped = True
        self.query.stop()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait until it is stopped, or ``timeout`` seconds."""
        return self.query.awaitTermination(timeout)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.isActive else "stopped"
        counts = f"{self.refreshes:,} refreshes, {self.failures:,} failed"
        return f"Watch({self.table!r}, {state}, {counts})"


def start_watch(
    spark: SparkSession,
    table: str,
    refresh: Callable[[SparkSession], BuildReport],
    *,
    interval: float = INTERVAL,
    name: str | None = None,
) -> Watch:
    """Call ``refresh`` at once and then every ``interval`` seconds, in a streaming query.

    ``name`` is the query's. ``refresh`` is given the session that it is called in, and has to
    survive a trip by pickle under Connect.
    """
    if not interval > 0:
        raise SkipstoneError(f"interval={interval!r}", hint="seconds, more than 0")
    watch = Watch(table)
    tick: Callable[[DataFrame, int], None]
    tick = _remote(table, refresh) if is_connect(spark) else _local(watch, spark, refresh)
    clock = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load()
    writer = clock.writeStream.foreachBatch(tick)
    if name is not None:
        writer = writer.queryName(name)
    watch.query = writer.trigger(processingTime=f"{round(interval * 1000)} milliseconds").start()
    return watch


def _local(
    watch: Watch, spark: SparkSession, refresh: Callable[[SparkSession], BuildReport]
) -> Callable[[DataFrame, int], None]:
    def tick(rows: DataFrame, number: int) -> None:
        try:
            report = refresh(spark)
        except Exception as error:  # whatever it is, the next trigger tries again
            watch._failed(error)
        else:
            watch._went_well(report)
            if report.files_built:
                _LOG.info("%s: facts of %d new files", watch.table, report.files_built)

    return tick


def _remote(
    table: str, refresh: Callable[[SparkSession], BuildReport]
) -> Callable[[DataFrame, int], None]:
    def tick(rows: DataFrame, number: int) -> None:
        try:
            refresh(rows.sparkSession)
        except Exception as error:
            logging.getLogger("skipstone").warning(
                "%s is not refreshed, and tried again later: %s", table, error
            )

    return tick
