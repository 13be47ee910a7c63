"""Finds a thread's last query in Spark's own records, and why it read without an index.

``scan_log`` knows the queries that read through an index. Other queries do not call back, so
``last_scan`` asks Spark's store of executions, which its SQL tab shows: it has every execution, in
order, with the text of its plan. A thread that uses Skipstone tags its jobs (``ScanLog.claim``), so
its executions are known from those of other threads. An execution without jobs counts if no other
thread uses Skipstone. Batches of streams do not count.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skipstone.errors import SkipstoneError, UnsupportedError, command
from skipstone.identity import canonical_path
from skipstone.pruning import Cause, Reason

from .enable import locations_of
from .facts import store_above, store_cache
from .relation import INDEX_LOCATION
from .scan_log import THREAD_TAG, ScanLog, scan_log
from .scans import QueryScans
from .session import JavaObject, is_connect
from .skip import OWN_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession


_LOG = logging.getLogger("skipstone")
# How many executions are examined, from the last one back.
_MOST: Final = 64
_LOCATION: Final = re.compile(r"Location: (\$?\w+) ?(?:\(\d+ paths?\))?\[([^\]\n]*)")
# The file indexes of Delta's connector, and the scans of Iceberg's.
_OF_DELTA: Final = re.compile(r"Tahoe|Delta")
_OF_ICEBERG: Final = re.compile(r"\bIceberg\w*\(table=([^,)\s]+)")
# Delta's connector reads its log by queries of its own, while it plans.
_OF_LOG: Final = "Delta Table State"
_STREAM: Final = re.compile(r"\brunId = [0-9a-f]{8}-")
# The leaves of DataFrames that are planned before Spark plans them.
_PLANNED: Final = re.compile(r"LocalTableScan|ExistingRDD|BatchScan skipstone")
_NO_QUERY: Final = "has run no query yet"


def last_scan(spark: SparkSession) -> QueryScans:
    """Every scan of this thread's last query; ``untouched`` says what read without an index, and
    why."""
    if is_connect(spark):
        raise UnsupportedError(
            "last_scan(spark) needs a classic session: under Spark Connect a client cannot see "
            "what a query read",
            hint="skipstone.explain(path, where) shows what a query reads, and why",
        )
    log = scan_log(spark)
    own = log.last()
    try:
        ran = _last_execution(spark, log, own)
    except Exception as error:  # a version of Spark that keeps its executions in another way
        _LOG.debug("the last execution is unknown: %s", error)
        ran = None
    if ran is None:
        return own or QueryScans(scans=(), untouched=(_left("this thread", _NO_QUERY),))
    execution, is_own = ran
    text = str(execution.physicalPlanDescription())
    untouched = tuple(dict.fromkeys(_untouched(spark, log, text)))
    if own is not None and is_own and own.scans:
        return replace(own, untouched=untouched)
    if "InMemoryRelation" in text:
        cached = "a part comes from a cache (df.cache()): files were read when it was filled"
        untouched = (*untouched, _left("cached data", cached))
    number = int(execution.executionId())
    return QueryScans(
        scans=(),
        execution=number,
        untouched=untouched or (_left(f"query {number}", "it reads no files of a table"),),
    )


def _last_execution(
    spark: SparkSession, log: ScanLog, own: QueryScans | None
) -> tuple[JavaObject, bool] | None:
    """The last execution of this thread, and whether its scans are those of ``own``; ``None`` if no
    execution came after ``own``."""
    log.jvm.context.listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    count = int(store.executionsCount())
    first = max(0, count - _MOST)
    newest = store.executionsList(first, count - first)
    after, outputs = log.planned_after()
    root = None
    if own is not None and own.execution is not None:
        known = store.execution(own.execution)
        root = int(known.get().rootExecutionId()) if known.isDefined() else own.execution
    for at in range(int(newest.size()) - 1, -1, -1):
        found = newest.apply(at)
        if root is not None and int(found.rootExecutionId()) <= root:
            return found, True
        if own is not None and root is None and int(found.executionId()) <= after:
            return None
        if _STREAM.search(str(found.description())) or not _is_of_thread(log, found):
            continue
        text = str(found.physicalPlanDescription())
        if _OF_LOG in text:
            continue
        of_plan = own is not None and root is None and _reads_planned(text, outputs)
        return found, of_plan
    return None


def _is_of_thread(log: ScanLog, execution: JavaObject) -> bool:
    thread = log.thread_tag()
    jobs = str(execution.jobs().keys().mkString(","))
    for job in jobs.split(",") if jobs else ():
        with suppress(Exception):  # a job that Spark has forgotten
            found = log.jvm.context.statusStore().job(int(job)).jobTags()
            tags = set(str(found.mkString(",")).split(","))
            if named := {tag for tag in tags if tag.startswith(THREAD_TAG)}:
                return thread in named
    return log.is_only_thread()


def _reads_planned(text: str, outputs: Sequence[str]) -> bool:
    """Whether a plan reads the columns (``id#12L``) of a DataFrame that was planned here."""
    if any(re.search(rf"{re.escape(name)}\b", text) for name in outputs):
        return True
    return _PLANNED.search(text) is not None and _LOCATION.search(text) is None


def _untouched(spark: SparkSession, log: ScanLog, text: str) -> Iterator[Reason]:
    """Why each location that a plan reads is read without an index."""
    for kind, roots in _LOCATION.findall(text):
        if "Proxy" in kind:
            continue
        for root in filter(None, (each.strip() for each in roots.split(", "))):
            if root != "...":
                path = canonical_path(root)
                own = _OF_DELTA.search(kind) is not None
                yield _left(path, OWN_FILES if own else _why(spark, log, path))
    for name in _OF_ICEBERG.findall(text):
        yield _left(name, OWN_FILES)


def _why(spark: SparkSession, log: ScanLog, root: str) -> str:
    if failure := log.failures.get(root):
        return failure
    setting = spark.conf.get(INDEX_LOCATION, None)
    try:
        store = store_above(root, locations_of(setting), store_cache(spark))
    except SkipstoneError as error:
        return error.message
    if store is None:
        if setting and setting.strip():
            return f"no index at {setting.strip()}, which {INDEX_LOCATION} names"
        return f"has no index: {command('advise', root)} proposes some"
    return (
        f"has an index at {store.location.root}, but this query was not passed through it: use "
        "skip(df), or enable(spark) before the DataFrame or view is made"
    )


def _left(subject: str, text: str) -> Reason:
    return Reason(cause=Cause.ABSENT, subject=subject, text=text)
