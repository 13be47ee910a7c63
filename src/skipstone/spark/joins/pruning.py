"""``JoinPruning``: the files of one scan that may hold a row with a partner in its joins.

For each condition of the scan (``conditions.py``) it looks up the keys of the other side
(``keys.py``) in the relation's indexes. It keeps what any place of the scan needs (``plans.py``).
The join itself stays in the plan, so the rows are the same as without pruning. If anything is
unknown, files are kept.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from skipstone._arrays import arrow
from skipstone._dataclasses import dataclass
from skipstone.planning.scan_lines import IndexUse, uses_of
from skipstone.predicate.literals import order_keys
from skipstone.predicate.tree import Comparison, Const, Literal, Membership, NullTest, Or
from skipstone.predicate.types import parse_type
from skipstone.predicate.value_array import ValueArray, as_literals
from skipstone.spark.catalyst import operand_of
from skipstone.spark.functions import OPTIMIZED
from skipstone.spark.literals import UnreadableLiteral
from skipstone.spark.scans import JoinUse

from .conditions import QueryJoins
from .keys import DEFAULTS, MAX_KEYS, KeySource, NoGain, NoKeys, type_name
from .plans import planned_scans, ways

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Expr, Operand
    from skipstone.predicate.types import Value
    from skipstone.pruning.plan import Plan
    from skipstone.spark.relation import ReadSettings
    from skipstone.spark.scan_log import RunningQuery
    from skipstone.spark.session import JavaObject, Jvm

    from .conditions import Condition, Source
    from .plans import ListingIndex


_LOG = logging.getLogger("skipstone")
# Samples of the keys with these sizes are looked up first: more keys only keep more files.
_SAMPLES: Final = (64, 4_096)
_ENOUGH: Final = 0.95
# Seconds to wait for another thread that is finding the joins of the query.
_SECONDS: Final = 1.0
_INSIDE = threading.local()


@dataclass(slots=True, eq=False, kw_only=True)
class JoinPruning:
    """The conditions of one scan. A file is needed if all conditions of any of ``ways`` may
    hold."""

    index: ListingIndex
    source: KeySource
    ways: list[list[Condition]]
    uses: list[JoinUse] = field(default_factory=list)

    @classmethod
    def of(
        cls, index: ListingIndex, filters: Sequence[str], query: RunningQuery | None
    ) -> JoinPruning | None:
        """``None`` if no join of the query has a condition for the scan with these filters."""
        if getattr(_INSIDE, "of", False):
            return None  # Spark lists files while it plans: there is no plan yet
        _INSIDE.of = True
        try:
            source = _source_of(index, query)
            found = [] if source is None else ways(index, source.query, source.scans, filters)
            return cls(index=index, source=source, ways=found) if source and found else None
        except Exception as error:  # another version of Spark's plans
            _LOG.debug("joins are not used: %s", error)
            return None
        finally:
            _INSIDE.of = False

    def prune(self, scan: JoinScan, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """``keep`` without the files that none of ``ways`` needs. Adds the lookups to ``uses``."""
        needed = np.zeros(len(keep), np.bool_)
        for conditions in self.ways:
            left = keep
            for condition in conditions:
                left = self._apply(scan, condition, left)
            needed |= left
        return keep & needed

    def _apply(
        self, scan: JoinScan, condition: Condition, keep: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        use, left = JoinUse(text=condition.equality.text, kind=condition.join.kind), keep
        started = time.perf_counter()
        try:
            if not np.any(keep & scan.within):
                raise NoKeys("no file is left to read")
            operand = operand_of(
                self.index.jvm,
                condition.key,
                time_zone=scan.settings.time_zone,
                unusable=self.index.unusable,
            )
            if isinstance(operand, str):
                raise NoKeys(operand)
            asked = _KeyedScan(self.index, scan, operand, condition.equality.op, keep)
            keys, (_, _, at) = self.source.keys(self.source.query.sources(condition), asked)
            null = keys.nulls[at] and condition.equality.null_safe
            use = replace(
                use,
                keys=len(keys.values[at]) + null,
                source=keys.source,
                milliseconds=keys.milliseconds,
            )
            started = time.perf_counter()
            left, report = asked.holding_any(keys.values[at], null=null)
            use = replace(
                use,
                indexes=_credited(report, scan.files(keep), scan.files(left)),
                files_total=scan.files(keep),
                files_kept=scan.files(left),
                bytes_total=scan.bytes(keep),
                bytes_kept=scan.bytes(left),
            )
        except (NoKeys, UnreadableLiteral) as error:
            use, left = replace(use, reason=str(error)), keep
        except Exception as error:  # an error here must not stop a query
            text = " ".join(f"{error.__class__.__name__}: {error}".split())[:300]
            use, left = replace(use, reason=f"not used: {text}"), keep
        spent = (time.perf_counter() - started) * 1e3
        self.uses.append(replace(use, lookup_milliseconds=spent))
        return left


def _source_of(index: ListingIndex, query: RunningQuery | None) -> KeySource | None:
    """The source of the keys of the query that the calling JVM thread plans or runs, found once.
    ``None`` without joins that help, and in a job for the keys of a join."""
    log = index.log
    if not index.jvm.pinned or log.fetches_keys():
        return None
    explained = log.explained()
    number = None if query is None else query.number
    number = number if explained is None else int(explained.id())
    if number is None:
        return None
    found = log.joins.get(number)
    if found is None:
        # The scans of one query come on several threads. Another thread may wait in the JVM for
        # something that this one holds, so this wait is limited.
        is_held = log.finding.acquire(timeout=_SECONDS)
        try:
            found = log.joins.get(number) or _found(index, explained, query)
        except Exception as error:  # another version of Spark's plans
            found = f"{type(error).__name__}: {error}"
        finally:
            if is_held:
                log.finding.release()
        if isinstance(found, str):
            _LOG.debug("joins are not used: %s", found)
        log.joins.put(number, found)
    return None if isinstance(found, str) else found


def _found(
    index: ListingIndex, explained: JavaObject | None, asked: RunningQuery | None
) -> KeySource | str:
    """The source of the keys of a query, or why its joins are not used."""
    jvm, running = index.jvm, explained
    number = None if asked is None else asked.execution
    if running is not None:
        query = QueryJoins(jvm, running.optimizedPlan())
    elif number is not None:  # an error if the query has ended
        query = QueryJoins(jvm, jvm.functions.call(*OPTIMIZED)(number))
    else:
        return "the query has ended"
    if not query.has_conditions():
        return "no join has a condition that rows of a file must meet"
    if running is None and number is not None:
        running = index.log.execution(number)
    if running is None:
        return "the query has ended"
    if jvm.class_name(running) == "IncrementalExecution":
        # Streaming keeps rows for later batches, and other queries run within it under its number.
        return "it is a batch of a stream"
    conf = jvm.module("org.apache.spark.sql.internal.SQLConf").get()
    most, least = (
        int(str(conf.getConfString(name, str(default)))) for name, default in DEFAULTS.items()
    )
    if most <= 0:
        return f"{MAX_KEYS} is {most}"
    executed = running.executedPlan()
    return KeySource(
        jvm=jvm,
        query=query,
        session=running.sparkSession(),
        executed=executed,
        scans=planned_scans(jvm, index.log, executed),
        is_explained=explained is not None,
        max_keys=most,
        min_bytes=least,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JoinScan:
    """A scan that lists its files: their ``sizes``, and which of them Spark would read
    (``within``)."""

    matched: object
    settings: ReadSettings
    sizes: NDArray[np.int64]
    within: NDArray[np.bool_]

    def files(self, keep: NDArray[np.bool_]) -> int:
        return int(np.count_nonzero(keep & self.within))

    def bytes(self, keep: NDArray[np.bool_]) -> int:
        return int(self.sizes[keep & self.within].sum())


@dataclass(frozen=True, slots=True, eq=False)
class _KeyedScan:
    """The files ``keep`` of a scan with the key of one condition (``AskedScan``)."""

    index: ListingIndex
    scan: JoinScan
    operand: Operand
    op: str
    keep: NDArray[np.bool_]

    @property
    def bytes_left(self) -> int:
        return self.scan.bytes(self.keep)

    def has_index(self, source: Source) -> bool:
        type = _type_of(self.index.jvm, source)
        probe = Comparison(self.op, self.operand, Literal(_probe(type), type))
        report = self.index.pruner.prune(self.scan.matched, probe, self.scan.settings).report
        return report is None or any(step.used for step in report.steps)

    def require_gain(self, values: pa.Array) -> None:
        left, _ = self._holding(_among(self.operand, self.op, values, null=False))
        if self.scan.bytes(left) > _ENOUGH * self.bytes_left:
            raise NoGain(f"{len(values):,} of the keys are in nearly all files")

    def holding_any(self, values: pa.Array, *, null: bool) -> tuple[NDArray[np.bool_], Plan | None]:
        """The files that may hold one of the keys, and which indexes said so."""
        for some in _SAMPLES:
            if len(values) > 4 * some:
                places = np.linspace(0, len(values) - 1, some).astype(np.int64)
                self.require_gain(values.take(arrow(places)))
        return self._holding(_among(self.operand, self.op, values, null=null))

    def _holding(self, predicate: Expr) -> tuple[NDArray[np.bool_], Plan | None]:
        scan, keep = self.scan, self.keep
        pruning = self.index.pruner.prune(scan.matched, predicate, scan.settings)
        found = np.asarray(pruning.keep)
        if found.dtype != np.bool_ or found.shape != keep.shape:
            raise ValueError(f"{found.dtype} array {found.shape} for {len(keep)} files")
        return keep & found, pruning.report


def _credited(report: Plan | None, total: int, kept: int) -> tuple[IndexUse, ...]:
    """How many of the ``total`` remaining files of a scan each index ruled out. Files that the
    predicate had ruled out do not count; a file that two indexes rule out counts for the first."""
    found, left = [], total
    for use in () if report is None else uses_of(report.steps):
        if use.unit == "files":
            after = max(kept, left - (use.considered - use.kept))
            found.append(replace(use, considered=left, kept=after))
            left = after
    return tuple(found)


def _type_of(jvm: Jvm, source: Source) -> pa.DataType:
    join, which, at = source
    name = type_name(jvm, join.equalities[at].expressions[which])
    found = parse_type(name)
    if found is None:
        raise NoKeys(f"no index can use type {name}")
    return found


def _probe(type: pa.DataType) -> Value:
    t = pa.types
    if t.is_string(type):
        return "a"
    if t.is_binary(type):
        return b"a"
    if t.is_boolean(type):
        return True
    return 1.0 if t.is_floating(type) else 1


def _among(operand: Operand, op: str, values: pa.Array, *, null: bool) -> Expr:
    """The condition that the key is among the values; for ``<=>`` with a NULL among them, also that
    it is NULL. For another ``op``: that the comparison is TRUE with one of the values."""
    parts: list[Expr] = [Membership(operand, values)] if len(values) else []
    if op != "=":
        if len(values) > 1:
            raise NoKeys("the subquery has more than one row")
        held = as_literals(values)
        known = ValueArray(order_keys(held, held.type), held.type)
        parts = [Comparison(op, operand, Literal(each, held.type)) for each in known]
    if null:
        parts.append(NullTest(operand))
    if len(parts) == 1:
        return parts[0]
    return Or(tuple(parts)) if parts else Const(False)
