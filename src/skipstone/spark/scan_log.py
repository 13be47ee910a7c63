"""The log of the scans of a Spark context, by query and by thread.

Spark lists the files of a scan when it plans the scan: on the thread that runs the query, or on a
thread of Spark (broadcasts, subqueries, adaptive stages). The callback into Python always comes on
a thread of py4j. The JVM has what identifies a query:

- the local property ``spark.sql.execution.id``, which Spark passes to its own threads; its
  ``QueryExecution`` is the same when a DataFrame runs again, with its old list of files;
- a local property that ``skip`` sets, with the JVM thread of the caller: ``toArrow`` and
  ``toPandas`` collect on a thread of Spark, which inherits it;
- else the JVM thread: PySpark gives every Python thread its own (pinned threads, the default), so
  ``last_scan`` finds the query that started on the JVM thread of its caller.

Without pinned threads (``PYSPARK_PIN_THREAD=false``) there is one last query for all threads.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass

from .functions import QUERY_NUMBER
from .relation import LOG_FILE, LOG_FORMAT
from .scans import QueryScans, Scan
from .session import JavaObject, Jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession


_LOG = logging.getLogger("skipstone")
_REMEMBERED = 1_000  # the most queries, and the most threads
_WRAPPED = 16
# The most queries whose joins are kept, each with its plan, and the most bytes of their keys. The
# newest query keeps all of its keys.
_ANALYZED, _MOST_BYTES = 4, 64 << 20
_PRINTED = re.compile(r"Skipstone#(\d+)\(")
_EXECUTION = "spark.sql.execution.id"
_THREAD = "skipstone.thread"
#: local property of threads that run a job for the keys of a join (``joins/keys.py``); also an
#: option of a relation that is pruned by keys, so that Spark tells it from one without keys
KEYS = "skipstone.keys"
_DESCRIPTION = "spark.job.description"
#: the jobs of a thread have this tag, followed by the thread's number
THREAD_TAG = "skipstone-thread-"


#: the type of ``on_scan`` in ``enable``
OnScan: TypeAlias = "Callable[[Scan], object]"


@dataclass(slots=True, eq=False)
class Clock:
    """Milliseconds by phase."""

    spent: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.spent[phase] = self.spent.get(phase, 0.0) + (now - self.last) * 1e3
        self.last = now


class LocatedIndex(Protocol):
    """A file index that stands in for the one of a relation (``SkippingFileIndex``)."""

    original: JavaObject
    switch: str | None
    swapping: set[int]


@dataclass(slots=True, eq=False)
class RunningQuery:
    """The scans of one query so far. ``number`` is that of its ``QueryExecution``."""

    execution: int | None
    number: int | None = None
    scans: list[tuple[object, Scan]] = field(default_factory=list)
    #: without an execution: the execution before it, and the columns (``id#12L``) of its DataFrame
    after: int = -1
    outputs: tuple[str, ...] = ()


class ScanLog:
    """The scans of one Spark context, by query and by thread. Safe to call from any thread."""

    def __init__(self, jvm: Jvm) -> None:
        self.jvm = jvm
        self._lock = threading.Lock()
        self._queries: LruCache[object, RunningQuery] = LruCache(_REMEMBERED)
        self._last: LruCache[int, RunningQuery] = LruCache(_REMEMBERED)
        self._captures: dict[int, list[Scan]] = {}
        self._explained: dict[int, JavaObject] = {}
        self._fetching = 0
        #: by number of the query: its ``KeySource`` (``joins/keys.py``), or why joins are not used
        self.joins: LruCache[int, Any] = LruCache(
            _ANALYZED, most_bytes=_MOST_BYTES, size=_bytes_of, growing=True
        )
        #: held while the joins of a query are found
        self.finding = threading.Lock()
        self._indexes: WeakValueDictionary[int, LocatedIndex] = WeakValueDictionary()
        self._kept: LruCache[int, Scan] = LruCache(_REMEMBERED)
        self._numbers = itertools.count(1)
        self._local = threading.local()
        #: relations of the catalog's tables that read through an index, and the keys of their
        #: tables by number of the object in the JVM (``skip.py``)
        self.wrapped: LruCache[object, Any] = LruCache(_WRAPPED)
        self.tables: LruCache[int, str] = LruCache(_REMEMBERED)
        self._threads: set[int] = set()
        #: called with each scan
        self.on_scan: OnScan | None = None
        #: why relations were not passed through an index, by their root
        self.failures: LruCache[str, str] = LruCache(_REMEMBERED)

    def register(self, index: LocatedIndex) -> int:
        """A number by which ``find`` finds this file index."""
        number = next(self._numbers)
        self._indexes[number] = index
        return number

    def find(self, location: JavaObject) -> LocatedIndex | None:
        """The Python object behind the location of a relation; ``None`` for Spark's own.

        py4j returns a proxy as a Java object like any other; its text has the number.
        """
        if "Proxy" not in self.jvm.class_name(location):
            return None
        match = _PRINTED.match(str(location.toString()))
        return None if match is None else self._indexes.get(int(match[1]))

    def thread(self) -> int:
        """The JVM thread that belongs to this Python thread, or that called back on it."""
        if not self.jvm.pinned:
            return 0
        claimed = self.jvm.local_property(_THREAD)
        if claimed is not None:
            return int(claimed)
        # A thread of py4j serves one JVM thread for as long as both live.
        known: int | None = getattr(self._local, "thread", None)
        if known is None:
            known = self._local.thread = self.jvm.thread_id()
        return known

    def claim(self) -> int:
        """Tag this thread, so that work that Spark does for it on other threads counts as its own.
        Return its number.

        ``toArrow`` and ``toPandas`` collect on a new thread, which inherits local properties.
        """
        thread = self.jvm.thread_id() if self.jvm.pinned else 0
        self._threads.add(thread)
        if not self.jvm.pinned or self.jvm.local_property(_THREAD) == str(thread):
            return thread
        context = self.jvm.context
        context.setLocalProperty(_THREAD, str(thread))
        # New threads inherit tags, so an earlier thread's tag may be there.
        for tag in str(context.getJobTags().mkString(",")).split(","):
            if tag.startswith(THREAD_TAG):
                context.removeJobTag(tag)
        context.addJobTag(f"{THREAD_TAG}{thread}")
        return thread

    def thread_tag(self) -> str:
        """The tag of the jobs of this thread."""
        return f"{THREAD_TAG}{self.claim()}"

    def is_only_thread(self) -> bool:
        """Whether no other thread has used Skipstone."""
        return len(self._threads) <= 1

    def planned_after(self) -> tuple[int, tuple[str, ...]]:
        """If the last query had no execution: the one before it, and its DataFrame's columns."""
        with self._lock:
            query = self._last.get(self.jvm.thread_id() if self.jvm.pinned else 0)
            return (-1, ()) if query is None else (query.after, query.outputs)

    def _newest(self, *, wait: bool = False) -> int:
        """The number of the last execution that Spark has in its store; with ``wait``, once the
        store has heard of all."""
        try:
            if wait:
                self.jvm.context.listenerBus().waitUntilEmpty()
            store = self.jvm.type("org.apache.spark.sql.SparkSession").active().sharedState()
            count = int(store.statusStore().executionsCount())
            last = store.statusStore().executionsList(max(0, count - 1), 1)
            return int(last.apply(0).executionId()) if count else -1
        except Exception:  # a busy Spark, or a version that keeps its executions otherwise
            return -1

    def touch(self) -> RunningQuery | None:
        """Record that the query of the calling JVM thread is being planned or run.

        A query that runs again, with files listed before, becomes its thread's last one here.
        """
        if not self.jvm.pinned:
            return None
        text = self.jvm.local_property(_EXECUTION)
        if text is None:
            self._local.seen = None
            return None
        execution = int(text)
        seen: RunningQuery | None = getattr(self._local, "seen", None)
        if seen is not None and seen.execution == execution:
            return seen
        number = self._number(execution)
        key = ("execution", execution) if number is None else ("query", number)
        thread = self.thread()
        with self._lock:
            query = self._queries.setdefault(key, RunningQuery(execution, number))
            query.execution = execution
            self._last.put(thread, query)
        self._local.seen = query
        return query

    def _number(self, execution: int) -> int | None:
        """The number of a query, which stays the same when a DataFrame runs again."""
        try:
            return int(self.jvm.functions.call(*QUERY_NUMBER)(execution))
        except Exception:  # it has ended
            return None

    def execution(self, number: int) -> JavaObject | None:
        """The ``QueryExecution`` of this execution id."""
        executions = self.jvm.module("org.apache.spark.sql.execution.SQLExecution")
        return executions.getQueryExecution(number)

    def explained(self) -> JavaObject | None:
        """The query that the calling JVM thread only explains."""
        return self._explained.get(self.thread()) if self._explained else None

    def fetches_keys(self) -> bool:
        """Whether the calling JVM thread runs a job for the keys of a join."""
        return self._fetching > 0 and self.jvm.local_property(KEYS) is not None

    @contextmanager
    def fetching_keys(self, description: str) -> Iterator[None]:
        """Within the block, this thread's jobs fetch join keys and do not count for its query."""
        context, described = self.jvm.context, self.jvm.local_property(_DESCRIPTION)
        with self._lock:
            self._fetching += 1
        try:
            context.setLocalProperty(KEYS, "true")
            context.setLocalProperty(_DESCRIPTION, description)
            yield
        finally:
            context.setLocalProperty(KEYS, None)
            context.setLocalProperty(_DESCRIPTION, described)
            with self._lock:
                self._fetching -= 1

    def record(
        self, source: object, scan: Scan, query: RunningQuery | None, made: Mapping[str, str] | None
    ) -> None:
        """Add a scan of the file index ``source`` to ``query``, which ``touch`` returned; ``made``
        are the session's settings, if they were read. Scans of a job for join keys are not added.
        """
        if self.fetches_keys():
            return
        if self._captures and (captured := self._captures.get(self.thread())) is not None:
            captured.append(scan)
            return
        thread = self.thread() if query is None else 0
        with self._lock:
            if query is None:
                query = self._outside(thread, source, scan)
            query.scans.append((source, scan))
        self._report(scan, query.execution, made)

    def planned(self, scan: Scan, outputs: tuple[str, ...]) -> None:
        """Record a scan that Spark does not call back for, as the calling thread's last query.

        ``outputs`` are the columns of its DataFrame (``id#12L``).
        """
        thread = self.claim()
        made = RunningQuery(None, None, [(object(), scan)], self._newest(wait=True), outputs)
        with self._lock:
            self._last.put(thread, made)
        self._report(scan, None)

    def _report(
        self, scan: Scan, execution: int | None, made: Mapping[str, str] | None = None
    ) -> None:
        """The line of the log, and the callback; a failure of either is a warning."""
        try:
            made = self.jvm.settings() if made is None else made
            file = made.get(LOG_FILE, "")
            if file or _LOG.isEnabledFor(logging.INFO):
                line = scan.line(execution)
                as_json = made.get(LOG_FORMAT, "text").strip().lower() == "json"
                _LOG.info("%s", line.to_json() if as_json else line.to_text())
                if file:
                    _append(file, line.to_json())
        except Exception as error:
            _LOG.warning("the scan is not in the log: %s", error)
        if self.on_scan is not None:
            try:
                self.on_scan(scan)
            except Exception as error:  # of the user's code
                _LOG.warning("on_scan failed: %s: %s", type(error).__name__, error)

    def keep(self, scan: Scan) -> int:
        """A number by which ``kept`` finds this scan, for a plan to hold."""
        number = next(self._numbers)
        with self._lock:
            self._kept.put(number, scan)
        return number

    def kept(self, number: int) -> Scan | None:
        """The scan of that number; ``None`` where many came after it."""
        with self._lock:
            return self._kept.get(number)

    def _outside(self, thread: int, source: object, scan: Scan) -> RunningQuery:
        """The query of a scan outside any execution (``df.rdd``, no pinned threads).

        Successive scans are one query until one of them repeats.
        """
        query = self._last.get(thread)
        again = query is not None and any(
            known is source and old.predicate == scan.predicate for known, old in query.scans
        )
        if query is None or query.execution is not None or again:
            query = RunningQuery(None, after=self._newest())
            self._last.put(thread, query)
        return query

    @contextmanager
    def capture(self, query: JavaObject) -> Iterator[list[Scan]]:
        """Within the block, scans of ``query`` that this thread plans go into the list, not into a
        query that runs."""
        thread = self.claim()
        scans: list[Scan] = []
        self._captures[thread], self._explained[thread] = scans, query
        try:
            yield scans
        finally:
            del self._captures[thread], self._explained[thread]

    def last(self) -> QueryScans | None:
        """The last query of this thread that read through an index; ``None`` before the first."""
        thread = self.jvm.thread_id() if self.jvm.pinned else 0
        with self._lock:
            query = self._last.get(thread)
            if query is None:
                return None
            return QueryScans(
                scans=tuple(scan for _, scan in query.scans), execution=query.execution
            )


def _bytes_of(joins: Any) -> int:
    return 0 if isinstance(joins, str) else int(joins.bytes)


def _append(file: str, line: str) -> None:
    """One write, so that lines of several processes do not mix."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, f"{line}\n".encode("utf-8", "backslashreplace"))
    finally:
        os.close(descriptor)


_LOGS: WeakKeyDictionary[Any, ScanLog] = WeakKeyDictionary()
_LOGS_LOCK = threading.Lock()


def scan_log(spark: SparkSession) -> ScanLog:
    """The log of the session's context, which has the execution ids and threads."""
    context: SparkContext = spark.sparkContext
    with _LOGS_LOCK:
        log = _LOGS.get(context)
        if log is None:
            log = _LOGS[context] = ScanLog(Jvm.of(spark))
        return log
