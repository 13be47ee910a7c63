"""``skipstone.watch``: a streaming query that keeps an index fresh while files arrive.

The stream is only a clock: every trigger has one row, which is ignored, and ``foreachBatch``
refreshes the index. Each refresh compares the listing with the facts. So it finds nested folders,
replaced files and removed files like new ones. It keeps no list of seen files and needs no
checkpoint, and no row of a data file passes through the JVM. (A stream of the files themselves
would miss a replaced file.)

A refresh that fails does not end the query: it gives a warning and ``last_error``, and the next
trigger tries again. Facts are published as they are made, so the work of a failed refresh counts. A
file written just now is left for a later trigger, as in a build.
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


_LOG = logging.getLogger("skipstone")

#: seconds between two refreshes
INTERVAL = 10.0


class Watch:
    """A running watch: its streaming query, and the results of its refreshes.

    - ``query``: Spark's ``StreamingQuery``;
    - ``refreshes``: how many succeeded, ``failures``: how many failed;
    - ``last_report``: that of the last successful refresh; ``last_error``: why the last one failed,
      ``None`` if it succeeded.

    Under Spark Connect refreshes run at the server: only ``query`` shows them.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self.query: StreamingQuery
        self.refreshes = self.failures = 0
        self.last_report: BuildReport | None = None
        self.last_error: Exception | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def _succeeded(self, report: BuildReport) -> None:
        with self._lock:
            self.refreshes += 1
            self.last_report, self.last_error = report, None

    def _failed(self, error: Exception) -> None:
        if self._stopped:
            return  # it was interrupted
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
        """End it; a running refresh is interrupted, and its published facts count."""
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

    ``name`` is the query's. ``refresh`` receives the session that it is called in; under Connect it
    must be picklable.
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
        except Exception as error:  # after any error the next trigger tries again
            watch._failed(error)
        else:
            watch._succeeded(report)
            if report.files_built:
                _LOG.info("%s: facts of %d new files", watch.table, report.files_built)
                for note in report.notes:
                    _LOG.warning("%s: %s", watch.table, note)

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
