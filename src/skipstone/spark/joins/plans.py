"""Finds, in a physical plan, the scans that may be listing their files now, and the broadcasts.

Spark passes its filters to a file index, not the place in the plan. Every scan of the plan that
reads the same files with the same filters may be the one that lists. Or it shares an exchange with
that scan, and its rows are used at both places. So a file may be left out only if none of these
scans needs it. A scan that fills a cache for later queries, and one below an exchange that is
reused, need all their files.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from skipstone.spark.functions import CLASS_NAME, SCANNED
from skipstone.spark.scan_log import LocatedIndex
from skipstone.spark.session import without_ids

from .conditions import ids_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from skipstone.spark.relation import Pruner
    from skipstone.spark.scan_log import ScanLog
    from skipstone.spark.session import JavaObject, Jvm

    from .conditions import Condition, QueryJoins


_SPECIAL: Final = frozenset({"AdaptiveSparkPlan", "ReusedExchange", "BroadcastExchange"})


class ListingIndex(LocatedIndex, Protocol):
    """The file index that lists (``SkippingFileIndex``)."""

    jvm: Jvm
    log: ScanLog
    pruner: Pruner
    unusable: Mapping[tuple[str, ...], str]

    @property
    def name(self) -> str: ...


class PlannedScan:
    """A file scan of a plan, or (``java`` is ``None``) another scan that may read files.

    ``is_shared`` if it fills a cache or is below a reused exchange.
    """

    def __init__(self, jvm: Jvm, log: ScanLog, java: JavaObject | None, is_shared: bool) -> None:
        self.jvm, self.log, self.java, self.is_shared = jvm, log, java, is_shared

    def reads(self, index: ListingIndex) -> bool:
        """Whether the scan reads the files of ``index``."""
        location, known = self._place
        if known is index:
            return True
        return bool(index.original.equals(location if known is None else known.original))

    @cached_property
    def _place(self) -> tuple[JavaObject, LocatedIndex | None]:
        assert self.java is not None
        location = self.jvm.functions.call(*SCANNED)(self.java)
        return location, self.log.find(location)

    @cached_property
    def filters(self) -> frozenset[str]:
        assert self.java is not None
        return _plain(self.jvm.join(self.java.dataFilters()))

    @cached_property
    def columns(self) -> frozenset[int]:
        """The numbers of the scan's columns (``12`` in ``id#12L``)."""
        assert self.java is not None
        return frozenset(ids_of(self.jvm.join(self.java.output())))


def planned_scans(jvm: Jvm, log: ScanLog, plan: JavaObject) -> list[PlannedScan]:
    """The scans of a plan."""
    return [PlannedScan(jvm, log, scan, is_shared) for scan, is_shared in file_scans(jvm, plan)]


def ways(
    index: ListingIndex, query: QueryJoins, scans: Sequence[PlannedScan], filters: Sequence[str]
) -> list[list[Condition]]:
    """The conditions of every scan that may be the one that lists; empty if one has none."""
    wanted = _plain(filters)
    found = []
    for scan in scans:
        if scan.java is None:
            if not wanted:
                return []  # rows of a source that may read the same files in its own way
            continue
        if not scan.reads(index) or scan.filters != wanted:
            continue
        leaves = query.leaves_of(scan.columns)
        if scan.is_shared or not leaves or not all(leaf.conditions for leaf in leaves):
            return []
        found += [leaf.conditions for leaf in leaves]
    return list({id(each): each for each in found}.values())


def waits_for(index: ListingIndex, exchange: JavaObject) -> bool:
    """Whether a broadcast may wait for the scan that lists: it reads the same files, or shares data
    with another part of the plan."""
    scans = planned_scans(index.jvm, index.log, exchange.child())
    return any(scan.java is None or scan.is_shared or scan.reads(index) for scan in scans)


def needs_rest(index: ListingIndex, subquery: JavaObject, scans: Sequence[PlannedScan]) -> bool:
    """Whether a subquery may wait for the scan that lists. It may if it shares rows with the rest
    of the plan, which has these ``scans``; or if adaptive execution may make it share them, because
    both have the same scan."""
    own = planned_scans(index.jvm, index.log, subquery.child())
    if any(scan.java is None or scan.is_shared for scan in own):
        return True
    filters = {scan.filters for scan in own if scan.reads(index)}
    known = {index.jvm.identity_hash(scan.java) for scan in own}
    others = [each for each in scans if index.jvm.identity_hash(each.java) not in known]
    return bool(filters) and any(
        each.java is None or (each.reads(index) and each.filters in filters) for each in others
    )


def _plain(filters: Sequence[str]) -> frozenset[str]:
    """Filters without the numbers of columns. Spark lists files without the filters that have
    subqueries."""
    texts = map(without_ids, filters)
    return frozenset(t for t in texts if "ubquery" not in t and "dynamicpruning" not in t)


def file_scans(jvm: Jvm, executed: JavaObject) -> Iterator[tuple[JavaObject | None, bool]]:
    """The file scans of a plan, and whether each fills a cache or is below a reused exchange;
    ``None`` for a scan of another kind that may read files."""
    stack = [(executed, False)]
    while stack:
        plan, is_shared = stack.pop()
        stack += [(below, is_shared) for below in jvm.unique(jvm.subqueries(plan))]
        leaves = plan.collectLeaves()
        for at, name in enumerate(jvm.joined(leaves, *CLASS_NAME)):
            leaf = leaves.apply(at)
            if name == "FileSourceScanExec":
                yield leaf, is_shared
            elif name == "AdaptiveSparkPlanExec":
                # The first plan: a stage that is reused later no longer has its own scan.
                stack.append((leaf.initialPlan(), is_shared))
            elif name == "ReusedSubqueryExec":
                stack.append((leaf.child(), is_shared))
            elif name == "ReusedExchangeExec":
                stack.append((leaf.child(), True))
            elif name.endswith("QueryStageExec"):
                stack.append((leaf.plan(), is_shared))
            elif name == "InMemoryTableScanExec":
                builder = leaf.relation().cacheBuilder()
                if not builder.isCachedColumnBuffersLoaded():
                    stack.append((builder.cachedPlan(), True))
            elif name == "RowDataSourceScanExec":
                yield None, is_shared


def exchanges(jvm: Jvm, executed: JavaObject) -> list[JavaObject]:
    """The broadcasts of a plan. Under adaptive execution they are stages, and so leaves, and each
    has begun."""
    stack = [executed, *jvm.unique(jvm.subqueries(executed))]
    found = []
    is_adaptive = False
    while stack:
        for name, node in _special(jvm, stack.pop()):
            if name == "AdaptiveSparkPlan":
                is_adaptive = True
                stack.append(node.executedPlan())
            elif name == "ReusedExchange":
                stack.append(node.child())
            elif name != "BroadcastExchange":
                inner = node.plan()
                if name == "BroadcastQueryStage":
                    is_reused = str(inner.nodeName()) == "ReusedExchange"
                    found.append(inner.child() if is_reused else inner)
                stack.append(inner)
            elif not is_adaptive:
                found.append(node)
    return found


def _special(jvm: Jvm, plan: JavaObject) -> list[tuple[str, JavaObject]]:
    """The broadcasts of a plan, and of plans within its nodes."""
    found = []
    for at, name in enumerate(jvm.node_names(plan)):
        if name.endswith("QueryStage") or name in _SPECIAL:
            found.append((at, name))
    if not found:
        return []
    nodes = plan.map(jvm.functions.identity())
    return [(name, nodes.apply(at)) for at, name in found]


def running_subquery(jvm: Jvm, executed: JavaObject, number: int | None) -> JavaObject | None:
    """The scalar subquery of this number in a running plan, if no other one replaces it."""
    stack = [executed]
    while stack:
        plan = stack.pop()
        for each in jvm.unique(jvm.subqueries(plan)):
            if jvm.class_name(each) == "SubqueryExec":
                if str(each.name()).endswith(f"subquery#{number}"):
                    return each
                stack.append(each.child())
        for name, node in _special(jvm, plan):
            if name == "AdaptiveSparkPlan":
                stack.append(node.executedPlan())
            elif name.endswith("QueryStage"):
                stack.append(node.plan())
            elif name == "ReusedExchange":
                stack.append(node.child())
    return None


def planned_broadcasts(jvm: Jvm, executed: JavaObject) -> list[JavaObject]:
    """The broadcasts of a plan that has not run."""
    if str(executed.nodeName()) == "AdaptiveSparkPlan":
        executed = executed.initialPlan()
    return exchanges(jvm, executed)


def link_of(plan: JavaObject) -> JavaObject | None:
    """The logical plan of a physical plan: nodes that Spark adds around it have none."""
    while True:
        link = plan.logicalLink()
        if link.isDefined():
            return link.get()
        children = plan.children()
        if int(children.size()) != 1:
            return None
        plan = children.apply(0)
