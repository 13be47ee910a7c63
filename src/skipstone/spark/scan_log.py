"""What the last query read: ``Scan`` per file scan, ``QueryScans`` per query, ``last_scan``.

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
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from skipstone._cache import LruCache
from skipstone.human import duration, of_total, percent, plural, size
from skipstone.planning.explain import Explanation
from skipstone.planning.scan_lines import ScanLine, uses_of

from .relation import LOG_FILE, LOG_FORMAT
from .session import Jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from skipstone.planning.explain import Forecast
    from skipstone.pruning import Reason
    from skipstone.pruning.plan import Plan

    from .session import JavaObject


_LOG = logging.getLogger("skipstone")
_REMEMBERED = 1_000  # queries, and threads
_WRAPPED = 16
_PRINTED = re.compile(r"Skipstone#(\d+)\(")
_EXECUTION = "spark.sql.execution.id"
_THREAD = "skipstone.thread"


#: what ``enable(spark, on_scan=…)`` takes
OnScan: TypeAlias = "Callable[[Scan], object]"


class LocatedIndex(Protocol):
    """A file index that stands in for the one of a relation (``SkippingFileIndex``)."""

    original: JavaObject
    switch: str | None


@dataclass(slots=True, eq=False)
class _Query:
    """The scans of one query so far."""

    execution: int | None
    scans: list[tuple[object, Scan]] = field(default_factory=list)


class ScanLog:
    """The scans of one Spark context, by query and by thread. Safe to call from any thread."""

    def __init__(self, jvm: Jvm) -> None:
        self.jvm = jvm
        self._lock = threading.Lock()
        self._queries: LruCache[object, _Query] = LruCache(_REMEMBERED)
        self._last: LruCache[int, _Query] = LruCache(_REMEMBERED)
        self._captures: dict[int, list[Scan]] = {}
        self._indexes: WeakValueDictionary[int, LocatedIndex] = WeakValueDictionary()
        self._kept: LruCache[int, Scan] = LruCache(_REMEMBERED)
        self._numbers = itertools.count(1)
        self._local = threading.local()
        #: relations of the catalog's tables that read through an index, and the keys of their
        #: tables by number of the object in the JVM (``skip.py``)
        self.wrapped: LruCache[object, Any] = LruCache(_WRAPPED)
        self.tables: LruCache[int, str] = LruCache(_REMEMBERED)
        #: called with each scan
        self.on_scan: OnScan | None = None

    def register(self, index: LocatedIndex) -> int:
        """A number for a file index, to find it by."""
        number = next(self._numbers)
        self._indexes[number] = index
        return number

    def find(self, location: JavaObject) -> LocatedIndex | None:
        """The Python object behind the location of a relation; ``None`` for Spark's own.

        py4j returns a proxy as a Java object like any other; its text has the number.
        """
        if "Proxy" not in str(location.getClass().getName()):
            return None
        match = _PRINTED.match(str(location.toString()))
        return None if match is None else self._indexes.get(int(match[1]))

    def thread(self) -> int:
        """The JVM thread of this thread: its own, or the one that called back on it."""
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
        """Count the work that Spark does for this thread on other threads as this thread's, which
        it returns.

        ``toArrow`` and ``toPandas`` collect on a new thread, which inherits local properties.
        """
        if not self.jvm.pinned:
            return 0
        thread = self.jvm.thread_id()
        self.jvm.context.setLocalProperty(_THREAD, str(thread))
        return thread

    def touch(self) -> _Query | None:
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
        seen: _Query | None = getattr(self._local, "seen", None)
        if seen is not None and seen.execution == execution:
            return seen
        key = self._key(execution)
        thread = self.thread()
        with self._lock:
            query = self._queries.setdefault(key, _Query(execution))
            query.execution = execution
            self._last.put(thread, query)
        self._local.seen = query
        return query

    def _key(self, execution: int) -> object:
        """The key of a query that stays the same when a DataFrame runs again."""
        executions = self.jvm.module("org.apache.spark.sql.execution.SQLExecution")
        running = executions.getQueryExecution(execution)
        return ("execution", execution) if running is None else ("query", int(running.id()))

    def record(self, source: object, scan: Scan) -> None:
        """Add a scan of the file index ``source`` to the query of the calling JVM thread."""
        thread = self.thread()
        captured = self._captures.get(thread)
        if captured is not None:
            captured.append(scan)
            return
        query = self.touch()
        with self._lock:
            if query is None:
                query = self._outside(thread, source, scan)
            query.scans.append((source, scan))
        self._tell(scan, query.execution)

    def planned(self, scan: Scan) -> None:
        """Record a scan that Spark does not call back for, as the calling thread's last query."""
        thread = self.claim()
        with self._lock:
            self._last.put(thread, _Query(None, [(object(), scan)]))
        self._tell(scan, None)

    def _tell(self, scan: Scan, execution: int | None) -> None:
        """The line of the log, and the callback; a failure of either is a warning."""
        try:
            conf = self.jvm.module("org.apache.spark.sql.internal.SQLConf").get()
            file = str(conf.getConfString(LOG_FILE, ""))
            if file or _LOG.isEnabledFor(logging.INFO):
                line = scan.line(execution)
                as_json = str(conf.getConfString(LOG_FORMAT, "text")).strip().lower() == "json"
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
        """A number for a scan that a plan holds, to find it by."""
        number = next(self._numbers)
        with self._lock:
            self._kept.put(number, scan)
        return number

    def kept(self, number: int) -> Scan | None:
        """The scan of that number; ``None`` where many came after it."""
        with self._lock:
            return self._kept.get(number)

    def _outside(self, thread: int, source: object, scan: Scan) -> _Query:
        """The query of a scan outside any execution (``df.rdd``, no pinned threads).

        Successive scans are one query until one of them repeats.
        """
        query = self._last.get(thread)
        again = query is not None and any(
            known is source and old.predicate == scan.predicate for known, old in query.scans
        )
        if query is None or query.execution is not None or again:
            query = _Query(None)
            self._last.put(thread, query)
        return query

    @contextmanager
    def capture(self) -> Iterator[list[Scan]]:
        """Scans planned by this thread meanwhile go into the list, not into a query."""
        thread = self.claim()
        scans: list[Scan] = []
        self._captures[thread] = scans
        try:
            yield scans
        finally:
            del self._captures[thread]

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


def last_scan(spark: SparkSession) -> QueryScans | None:
    """Every scan of the last query that this thread ran through an index; ``None`` before that."""
    return scan_log(spark).last()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """One file scan of a query.

    - ``files_listed``, ``bytes_listed``: what Spark listed, before it pruned partitions;
    - ``files_total``, ``bytes_total``: what plain Spark would have read, after partition pruning;
    - ``files_kept``, ``bytes_kept``: what remained to read.

    ``roots`` are the paths that the relation reads, ``table`` is its name in the catalog, or these.
    ``report`` is the pruner's: a ``Plan`` with a step for every index; ``forecast`` is the cost of
    reading where pages are read. ``reasons`` are those of the scan itself: why no index was used,
    or which files changed meanwhile.
    """

    table: str
    format: str
    predicate: str | None
    files_listed: int
    bytes_listed: int
    files_total: int
    bytes_total: int
    files_kept: int
    bytes_kept: int
    roots: tuple[str, ...] = ()
    report: Plan | None = None
    forecast: Forecast | None = None
    reasons: tuple[Reason, ...] = ()
    milliseconds: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"scan of {self.table} ({self.format})"]
        if self.predicate is not None and self.report is None:
            lines.append(f"  where {self.predicate}")
        if self.report is not None:
            shown = str(Explanation(self.report, self.forecast)).splitlines()
            # A plan ends with its totals over all listed files; those of the scan follow.
            if shown and shown[-1].startswith("read "):
                del shown[-1]
            lines.extend(f"  {line}" for line in shown)
            lines.extend(f"  {line}" for line in self._whole_files)
        lines.extend(f"  note: {reason}" for reason in self.reasons)
        if self.files_total != self.files_listed:
            lines.append(
                f"  partitions: {of_total(self.files_total, self.files_listed, 'files')}, "
                f"{size(self.bytes_total)} of {size(self.bytes_listed)}"
            )
        lines.append(f"  {self.summary}")
        return "\n".join(lines)

    @property
    def _whole_files(self) -> list[str]:
        """A note where only some rows of the kept files may match: Spark reads whole files."""
        if self.report is None:
            return []
        rows, left = self.report.rows_of_files_kept, self.report.rows_kept
        if not 0 <= left < rows:
            return []
        return [
            f"Spark's own reader reads whole files: {of_total(left, rows, 'rows')} in them may "
            'match; Table.query and format("skipstone") read only their pages'
        ]

    @property
    def summary(self) -> str:
        """``read 2 of 1,240 files, 11.2 MB of 6.9 GB (99.8 % skipped), planned in 38 ms``."""
        skipped = percent(self.bytes_total - self.bytes_kept, self.bytes_total)
        return (
            f"read {of_total(self.files_kept, self.files_total, 'files')}, "
            f"{size(self.bytes_kept)} of {size(self.bytes_total)} ({skipped} skipped), "
            f"planned in {duration(sum(self.milliseconds.values()))}"
        )

    def line(self, execution: int | None = None) -> ScanLine:
        """The scan as a line of the log."""
        reasons = (*self.reasons, *(() if self.report is None else self.report.reasons))
        return ScanLine(
            time=ScanLine.now(),
            table=self.table,
            roots=self.roots,
            format=self.format,
            files_kept=self.files_kept,
            files_total=self.files_total,
            bytes_kept=self.bytes_kept,
            bytes_total=self.bytes_total,
            milliseconds=sum(self.milliseconds.values()),
            predicate=self.predicate if self.report is None else self.report.predicate,
            indexes=() if self.report is None else uses_of(self.report.steps),
            reasons=tuple(map(str, reasons)),
            execution=execution,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        report = None if self.report is None else Explanation(self.report, self.forecast).to_dict()
        return {
            "table": self.table,
            "roots": list(self.roots),
            "format": self.format,
            "predicate": self.predicate,
            "files": {
                "kept": self.files_kept,
                "total": self.files_total,
                "listed": self.files_listed,
            },
            "bytes": {
                "kept": self.bytes_kept,
                "total": self.bytes_total,
                "listed": self.bytes_listed,
            },
            "report": report,
            "reasons": [str(reason) for reason in self.reasons],
            "milliseconds": {key: round(value, 3) for key, value in self.milliseconds.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryScans:
    """All scans of one query. ``execution`` is Spark's id of the run, as its UI shows it.

    ``untouched`` has the reasons why other relations of the plan do not use an index.
    """

    scans: tuple[Scan, ...]
    execution: int | None = None
    untouched: tuple[Reason, ...] = ()

    def __iter__(self) -> Iterator[Scan]:
        return iter(self.scans)

    def __len__(self) -> int:
        return len(self.scans)

    def __bool__(self) -> bool:
        return True

    @property
    def files_total(self) -> int:
        """Files that plain Spark would have read."""
        return sum(scan.files_total for scan in self.scans)

    @property
    def files_kept(self) -> int:
        """Files left to read."""
        return sum(scan.files_kept for scan in self.scans)

    @property
    def bytes_total(self) -> int:
        """Bytes of the files that plain Spark would have read."""
        return sum(scan.bytes_total for scan in self.scans)

    @property
    def bytes_kept(self) -> int:
        """Bytes of the files left to read."""
        return sum(scan.bytes_kept for scan in self.scans)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "execution": self.execution,
            "files": {"kept": self.files_kept, "total": self.files_total},
            "bytes": {"kept": self.bytes_kept, "total": self.bytes_total},
            "scans": [scan.to_dict() for scan in self.scans],
            "untouched": [str(reason) for reason in self.untouched],
        }

    def __str__(self) -> str:
        lines = [str(scan) for scan in self.scans]
        lines.extend(f"left alone: {reason}" for reason in self.untouched)
        if len(self.scans) > 1:
            lines.append(
                f"together: {of_total(self.files_kept, self.files_total, 'files')}, "
                f"{size(self.bytes_kept)} of {size(self.bytes_total)}"
            )
        return "\n".join(lines) or "no scan of files"

    def __repr__(self) -> str:
        return (
            f"QueryScans({plural(len(self.scans), 'scan')}: "
            f"{of_total(self.files_kept, self.files_total, 'files')}, "
            f"{size(self.bytes_kept)} of {size(self.bytes_total)})"
        )

    def _repr_html_(self) -> str:
        parts = []
        for scan in self.scans:
            shown = ""
            if scan.report is not None:
                shown = Explanation(scan.report, scan.forecast)._repr_html_()
            texts = [*scan._whole_files, *map(str, scan.reasons)]
            notes = "".join(f"<li>{escape(text)}</li>" for text in texts)
            parts.append(
                f"<p><b>{escape(scan.table)}</b> ({escape(scan.format)})<br>"
                f"{escape(scan.summary)}</p>" + shown + (f"<ul>{notes}</ul>" if notes else "")
            )
        parts.extend(f"<p>left alone: {escape(str(reason))}</p>" for reason in self.untouched)
        return "".join(parts) or "<p>no scan of files</p>"
