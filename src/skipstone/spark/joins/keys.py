"""``KeySource`` finds the keys of one side of a join. It takes the first of these that exists:

1. the broadcast of the side. Its hash table has the keys of the rows that the join will use.
   Adaptive execution has finished it, or has at least begun it, when the other side lists its
   files. Nothing is computed twice;
2. the value of a scalar subquery, which Spark finds before it reads the rows that are compared;
3. rows of the driver (a ``LocalRelation``), without a job;
4. a job over the distinct keys, for joins that shuffle. The side is read twice. So the side must be
   small against what is left to read, and must give the same rows each time: no limits, no rows of
   an RDD or of another database, no user's functions. The key needs an index. Data of
   ``df.cache()`` is read from the cache; the first of the two runs fills it.

As with Spark's own runtime filters, a side may have other rows the second time if its files are
overwritten while the query runs.
"""

from __future__ import annotations

import json
import time
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.human import size
from skipstone.spark.functions import NODE_NAME, TO_JSON, TYPE_JSON, TYPE_TEXT
from skipstone.spark.versions import dataset_class

from .conditions import tree_of
from .plans import (
    exchanges,
    link_of,
    needs_rest,
    planned_broadcasts,
    running_subquery,
    waits_for,
)
from .rows import columns_of_rows, packed_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from skipstone.spark.session import JavaObject, Jvm

    from .conditions import Join, Nodes, PlanNode, QueryJoins, Source
    from .plans import ListingIndex, PlannedScan
    from .rows import RowColumn


#: Setting: the most keys of a join that are looked up in an index; 0 for none.
MAX_KEYS: Final = "spark.skipstone.joins.maxKeys"
#: Setting: bytes that a scan must have left before a job runs for the keys of its joins; 0 for
#: every scan, whatever the job may cost.
MIN_BYTES: Final = "spark.skipstone.joins.minBytes"
#: the default values of the settings
DEFAULTS: Final = {MAX_KEYS: 1_000_000, MIN_BYTES: 256 << 20}

# A side that is read twice has at most this share of the bytes left to read, and at most this many
# bytes.
_SHARE: Final = 20
_MOST_BYTES: Final = 1 << 30
# Seconds to wait for a broadcast that has begun. The join waits for it anyway; the scan need not.
_SECONDS: Final = 10
# If a broadcast has more keys than this, one more than this are looked up first: a million takes a
# second or two.
_FEW: Final = 255
# The most bytes of the keys of one side.
_KEY_BYTES: Final = 64 << 20
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
_LOCAL: Final = frozenset({"LocalRelation", "OneRowRelation", "Project", "Filter", "Union"})
# Operators that give the same rows each time over the same files.
_REPEATABLE: Final = _LOCAL | {
    "LogicalRelation",
    "InMemoryRelation",
    "Range",
    "Join",
    "Aggregate",
    "Sort",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "Generate",
}
# Leaves whose ``sameResult`` compares their rows, or the identity of their RDD.
_COMPARED_LEAVES: Final = frozenset({"LocalRelation", "OneRowRelation", "Range", "LogicalRDD"})
_AGGREGATES: Final = frozenset({"Count", "Min", "Max", "Sum", "Average"})


class NoKeys(ValueError):
    """The keys of a side are not known; its text is the reason."""


class NoGain(NoKeys):
    """The keys do not help, so no other source of them is tried."""


@dataclass(frozen=True, slots=True, eq=False)
class JoinKeys:
    """The distinct values of each equality on one side, whether NULL is one, and what they cost."""

    values: list[pa.Array]
    nulls: list[bool]
    source: str
    rows: int
    milliseconds: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(int(array.nbytes) for array in self.values)


class AskedScan(Protocol):
    """The scan that asks for keys."""

    @property
    def index(self) -> ListingIndex:
        """The file index that lists its files."""

    @property
    def bytes_left(self) -> int:
        """The bytes that the scan still has to read."""

    def has_index(self, source: Source) -> bool:
        """Whether an index can answer the scan's side of an equality."""

    def require_gain(self, values: pa.Array) -> None:
        """Raises ``NoGain`` if this part of the keys already occurs in nearly all files."""


@dataclass(slots=True, eq=False, kw_only=True)
class KeySource:
    """Reads the keys of one query's joins, each once. ``is_explained``: the query is only
    explained, and does not run. ``scans`` are those of the plan. Several threads of Spark may use
    it at once."""

    jvm: Jvm
    query: QueryJoins
    session: JavaObject
    executed: JavaObject
    scans: Sequence[PlannedScan]
    is_explained: bool
    max_keys: int
    min_bytes: int
    broadcasts: list[JavaObject] | None = None
    memory: dict[tuple[int, int], JoinKeys] = field(default_factory=dict)
    differing: dict[tuple[int, int], str | None] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The bytes of the keys that it holds."""
        return sum(keys.bytes for keys in tuple(self.memory.values()))

    def keys(self, sources: Sequence[Source], scan: AskedScan) -> tuple[JoinKeys, Source]:
        """The keys of one of ``sources``, of which the first is the side itself; ``NoKeys``."""
        for source in sources:
            known = self.memory.get((id(source[0]), source[1]))
            if known is not None:
                return replace(known, milliseconds=0.0), source
        started = time.perf_counter()
        reasons = []
        for read in (self._broadcast, self._subquery, self._local, self._job):
            for source in sources:
                try:
                    found = read(source, scan)
                except NoGain:
                    raise
                except NoKeys as error:
                    reasons.append(str(error))
                    continue
                if found is not None:
                    spent = (time.perf_counter() - started) * 1e3
                    found = replace(found, milliseconds=spent)
                    self.memory[id(source[0]), source[1]] = found
                    return found, source
        raise NoKeys(reasons[0] if reasons else "no source has the keys")

    # -- from the broadcast ------------------------------------------------------------------------

    def _broadcast(self, source: Source, scan: AskedScan) -> JoinKeys | None:
        join, which, at = source
        exchange = None if self.is_explained else self._exchange(join, which)
        if exchange is None:
            return None
        is_adaptive = str(self.executed.nodeName()) == "AdaptiveSparkPlan"
        if not is_adaptive and waits_for(scan.index, exchange):
            raise NoKeys("its broadcast may wait for this scan")
        relation = self._finished(exchange.relationFuture(), "its broadcast").value()
        name = self.jvm.class_name(relation).removesuffix("$")
        if name not in ("LongHashedRelation", "UnsafeHashedRelation", "EmptyHashedRelation"):
            raise NoKeys(f"its broadcast is a {name}")
        types = []
        for equality in join.equalities:
            types.append(type_name(self.jvm, equality.expressions[which]))
            if equality.null_safe:
                types.append("boolean")
        if name == "EmptyHashedRelation":
            return self._kept(columns_of_rows("", types), "the broadcast", self.max_keys)
        is_packed = name == "LongHashedRelation"
        self.jvm.answer_at_once()

        def read(most: int, limit: int) -> JoinKeys:
            rows = str(relation.keys().take(most + 1).mkString(""))
            columns = packed_columns(rows, types) if is_packed else columns_of_rows(rows, types)
            found = []
            for equality in join.equalities:
                column = columns.pop(0)
                if equality.null_safe:
                    is_null = columns.pop(0).values
                    column = replace(column, nulls=np.asarray(is_null).astype(np.bool_))
                found.append(column)
            return self._kept(found, "the broadcast", limit)

        few = read(min(_FEW, self.max_keys), self.max_keys)
        if few.rows <= _FEW:
            return few
        scan.require_gain(few.values[at])
        most = min(self.max_keys, _KEY_BYTES * few.rows // max(few.bytes, 1))
        return read(most, most)

    def _exchange(self, join: Join, which: int) -> JavaObject | None:
        """The exchange that broadcasts the rows of a side by the keys of the join.

        Another join may broadcast the same rows by other keys. For Spark, two listings of one
        directory are equal, so the leaves must be the same objects. If the rows may differ each
        time, no other part of the query may be such a side.
        """
        side = join.side(which)
        if self._differs(join, which) is not None:
            if not side.java.deterministic():
                return None
            alike = [n for root in self.query.roots for n in root.walk() if n.name == side.name]
            if sum(bool(side.java.sameResult(each.java)) for each in alike) != 1:
                return None
        if self.broadcasts is None:
            find = planned_broadcasts if self.is_explained else exchanges
            self.broadcasts = find(self.jvm, self.executed)
        width = len(self.query.output(side))
        keys: list[Nodes] | None = None
        for exchange in self.broadcasts:
            if int(exchange.output().size()) != width:
                continue
            link = link_of(exchange.child())
            if link is None or not side.java.sameResult(link):
                continue
            mode = exchange.mode()
            if self.jvm.class_name(mode) != "HashedRelationBroadcastMode":
                continue
            keys = self._bound_keys(join, which) if keys is None else keys
            if _as_nodes(self.jvm, mode.key()) != keys or mode.isNullAware():
                continue
            if self._same_leaves(side.java, link):
                return exchange
        return None

    def _bound_keys(self, join: Join, which: int) -> list[Nodes]:
        """The keys by which Spark broadcasts a side, over the places of its columns.

        ``<=>`` has two keys: the value, or a default for NULL, and whether it is NULL.
        """
        jvm, keys = self.jvm, []
        literals = jvm.module(f"{_EXPRESSIONS}Literal")
        for equality in join.equalities:
            key = equality.expressions[which]
            if equality.null_safe:
                default = literals.default(key.dataType())
                keys.append(jvm.type(f"{_EXPRESSIONS}Coalesce")(jvm.seq(key, default)))
                keys.append(jvm.type(f"{_EXPRESSIONS}IsNull")(key))
            else:
                keys.append(key)
        joins = "org.apache.spark.sql.execution.joins."
        packed = jvm.module(f"{joins}HashJoin").rewriteKeyExpr(jvm.seq(*keys))
        return _as_nodes(jvm, self._bound(packed, join.side(which).java))

    def _same_leaves(self, plan: JavaObject, other: JavaObject) -> bool:
        """Whether two plans of the same result read the same listings and the same caches."""
        mine, theirs = _origins(self.jvm, plan), _origins(self.jvm, other)
        if mine is None or theirs is None or len(mine) != len(theirs):
            return False
        # Our own file index is the same Python object in both.
        return all(
            one is two or self.jvm.identity_set(one).containsKey(two)
            for one, two in zip(mine, theirs, strict=True)
        )

    # -- from the subquery -------------------------------------------------------------------------

    def _subquery(self, source: Source, scan: AskedScan) -> JoinKeys | None:
        """The value that Spark itself compares with: it may differ in another run."""
        join, which, _ = source
        if join.number is None or self.is_explained:
            return None
        subquery = self._running(join, which)
        if subquery is None or needs_rest(scan.index, subquery, self.scans):
            return None
        jvm, side = self.jvm, join.side(which).java
        try:
            future = jvm.call_hidden(subquery, "relationFuture")
        except Exception:  # another version of Spark: a job computes the value
            return None
        rows = self._finished(future, "its subquery")
        if len(rows) > 1:
            raise NoGain("the subquery has more than one row")
        expressions = [equality.expressions[which] for equality in join.equalities]
        bound = self._bound(jvm.seq(*expressions), side)
        made = jvm.module(f"{_EXPRESSIONS}InterpretedUnsafeProjection").createProjection(bound)
        text = "".join(str(made.apply(row)) for row in rows)
        columns = columns_of_rows(text, [type_name(jvm, each) for each in expressions])
        return self._kept(columns, "the subquery", self.max_keys)

    def _running(self, join: Join, which: int) -> JavaObject | None:
        """What Spark runs for a subquery, or for another one of the same rows, which it reuses."""
        side, alike = join.side(which).java, [join]
        if self._differs(join, which) is not None:
            # Spark may compare with the value of another subquery that looks the same.
            if sum(bool(side.sameResult(root.java)) for root in self.query.roots) != 1:
                return None
        else:
            others = [each for each in self.query.subqueries if each is not join]
            alike += [e for e in others if side.sameResult(e.side(which).java)]
        for each in alike:
            found = running_subquery(self.jvm, self.executed, each.number)
            same = each is join or self._same_leaves(side, each.side(which).java)
            if found is not None and same:
                return found
        return None

    def _bound(self, expressions: JavaObject, side: JavaObject) -> JavaObject:
        """Expressions over the places of the columns of a side."""
        columns = self.jvm.type(f"{_EXPRESSIONS}package$AttributeSeq")(side.output())
        return self.jvm.module(f"{_EXPRESSIONS}BindReferences").bindReferences(expressions, columns)

    def _finished(self, future: JavaObject, whose: str) -> JavaObject:
        """The result of a part of the plan that has begun; ``NoGain`` if it takes too long."""
        unit = self.jvm.type("java.util.concurrent.TimeUnit").SECONDS
        try:
            return future.get(_SECONDS, unit)
        except Exception as error:
            raise NoGain(f"{whose} did not finish within {_SECONDS} s") from error

    # -- by a run of its own -----------------------------------------------------------------------

    def _local(self, source: Source, scan: AskedScan) -> JoinKeys | None:
        join, which, _ = source
        side = join.side(which)
        if not {node.name for node in side.walk()} <= _LOCAL or self._differs(join, which):
            return None
        return self._run(join, which, "rows of the driver", scan.index)

    def _job(self, source: Source, scan: AskedScan) -> JoinKeys | None:
        join, which, _ = source
        side = join.side(which)
        if reason := self._differs(join, which):
            raise NoKeys(reason)
        most = _MOST_BYTES
        if self.min_bytes and not (self.is_explained and self._exchange(join, which) is not None):
            left = scan.bytes_left
            if left < self.min_bytes:
                raise NoKeys(f"{left:,} bytes are left to read: fewer than {MIN_BYTES}")
            most = min(left // _SHARE, _MOST_BYTES)
        cost = sum(
            int(node.java.stats().sizeInBytes()) for node in side.walk() if not node.children
        )
        if cost > most:
            raise NoKeys(f"the other side may have {cost:,} bytes: more than {most:,}")
        if not scan.has_index(source):
            raise NoKeys("no index of the key")
        return self._run(join, which, "a job", scan.index)

    def _differs(self, join: Join, which: int) -> str | None:
        """Why a second run of a side may give other rows; ``None`` if it cannot."""
        side = id(join), which
        if side not in self.differing:
            self.differing[side] = _unrepeatable(self.jvm, join.side(which))
        return self.differing[side]

    def _run(self, join: Join, which: int, name: str, index: ListingIndex) -> JoinKeys:
        """Runs a query for the keys; rows of the driver need no job."""
        jvm = self.jvm
        numbers = jvm.module(f"{_EXPRESSIONS}NamedExpression")
        none, alias = jvm.module("scala.None"), jvm.type(f"{_EXPRESSIONS}Alias")
        expressions = [equality.expressions[which] for equality in join.equalities]
        types = [type_name(jvm, each) for each in expressions]
        keys = [
            alias(each, f"key{at}", numbers.newExprId(), jvm.nil(), none, jvm.nil())
            for at, each in enumerate(expressions)
        ]
        project = jvm.type("org.apache.spark.sql.catalyst.plans.logical.Project")
        plan = project(jvm.seq(*keys), join.side(which).java)
        plan.setAnalyzed()
        with index.log.fetching_keys(f"skipstone join keys: {index.name}"):
            frame = dataset_class(jvm).ofRows(self.session, plan)
            frame = frame.distinct() if name == "a job" else frame
            frame = frame.limit(self.max_keys + 1)
            rows = frame.queryExecution().executedPlan().executeCollect()
        jvm.answer_at_once()
        columns = columns_of_rows(str(jvm.scala.wrap(rows).mkString("")), types)
        return self._kept(columns, name, self.max_keys)

    def _kept(self, columns: Sequence[RowColumn], name: str, limit: int) -> JoinKeys:
        rows = len(columns[0].nulls)
        if rows > limit:
            why = MAX_KEYS if limit == self.max_keys else f"{size(_KEY_BYTES)} of them"
            raise NoGain(f"more than {limit:,} keys ({why})")
        nulls = [bool(column.nulls.any()) for column in columns]
        found = JoinKeys([column.array() for column in columns], nulls, name, rows)
        if found.bytes > _KEY_BYTES:
            raise NoGain(f"its keys have {size(found.bytes)}: more than {size(_KEY_BYTES)}")
        return found


def _as_nodes(jvm: Jvm, expressions: JavaObject) -> list[Nodes]:
    """Expressions as Catalyst's JSON. Whether a column may be null differs between the logical and
    the physical plan."""
    found = [json.loads(text) for text in jvm.joined(expressions, *TO_JSON)]
    return [[{k: v for k, v in node.items() if k != "nullable"} for node in each] for each in found]


def _origins(jvm: Jvm, plan: JavaObject) -> list[JavaObject] | None:
    """What the leaves of a plan and of its subqueries read, for leaves that ``sameResult`` does not
    distinguish: listings of files, and caches. ``None`` if a leaf is of another kind."""
    found = []
    for each in (plan, *jvm.subqueries(plan)):
        leaves = each.collectLeaves()
        for at, name in enumerate(jvm.joined(leaves, *NODE_NAME)):
            leaf = leaves.apply(at)
            if name == "LogicalRelation":
                relation = leaf.relation()
                if jvm.class_name(relation) != "HadoopFsRelation":
                    return None
                found.append(relation.location())
            elif name == "InMemoryRelation":
                found.append(leaf.cacheBuilder())
            elif name not in _COMPARED_LEAVES:
                return None
    return found


def type_name(jvm: Jvm, expression: JavaObject) -> str:
    """The name of an atomic type in Spark's JSON, in which a collation does not show."""
    ask = jvm.functions.call
    name, shown = json.loads(ask(*TYPE_JSON)(expression)), str(ask(*TYPE_TEXT)(expression))
    if not isinstance(name, str) or "collate" in shown:
        raise NoKeys(f"no index can use type {shown}")
    return name


def _unrepeatable(jvm: Jvm, side: PlanNode) -> str | None:
    """Why a second run of ``side`` may give other rows; ``None`` if it cannot."""
    if not side.java.deterministic():
        return "the other side is not deterministic"
    for pattern in ("PYTHON_UDF", "SCALA_UDF"):
        if side.java.containsPattern(jvm.pattern(pattern)):
            return "the other side has a function of the user"
    sides = [side, *(tree_of(jvm, plan) for plan in jvm.subqueries(side.java))]
    for node in (node for each in sides for node in each.walk()):
        if node.name not in _REPEATABLE:
            return f"the other side has a {node.name}: a second run may give other rows"
        if node.name == "LogicalRelation":
            kind = jvm.class_name(node.java.relation())
            if kind != "HadoopFsRelation":
                return f"the other side reads a {kind}: a second run may give other rows"
        elif node.name == "InMemoryRelation":
            if not node.java.cacheBuilder().storageLevel().useDisk():
                return "the other side is cached in memory alone: it may be computed again"
        elif node.name == "Aggregate" and (reason := _aggregate(jvm, node)):
            return reason
    return None


def _aggregate(jvm: Jvm, node: PlanNode) -> str | None:
    for text in jvm.joined(node.java.aggregateExpressions(), *TO_JSON):
        nodes = json.loads(text)
        kinds = [str(each["class"]) for each in nodes]
        for kind in kinds:
            name = kind.rpartition(".")[2]
            if ".aggregate." in kind and name not in _AGGREGATES | {"AggregateExpression"}:
                return f"the other side has {name}: a second run may give another value"
        types = [str(each["dataType"]) for each in nodes if "dataType" in each]
        inexact = "float" in types or "double" in types
        # The average of integers is a sum of doubles, too.
        rounded = any(kind.endswith(".Average") for kind in kinds)
        rounded &= not all(type.startswith("decimal") for type in types)
        if rounded or (inexact and any(kind.endswith(".Sum") for kind in kinds)):
            return "the other side sums up floating-point numbers: the order may differ"
    return None
