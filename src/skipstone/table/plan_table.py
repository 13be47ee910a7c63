"""A plan of a table: listing, facts, the predicate bound to the schema, and the planner's walk."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.indexes.minmax import MinMax, intervals_of
from skipstone.planning.objects import plan_objects
from skipstone.planning.runs import Outgrown, in_turn
from skipstone.predicate import Const, bind, column_path, from_dnf, parse_sql, to_sql
from skipstone.predicate.literals import Keys
from skipstone.predicate.tree import leaves
from skipstone.pruning.interval import Intervals
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.table_schema import find_field
from skipstone.questdb.txn_snapshot import TxnListing

from .query import costs_of, locked_of, notes_of, query_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from skipstone.execution.ordering import FileBounds
    from skipstone.facts import Matched
    from skipstone.planning.runs import Runner
    from skipstone.predicate.tree import Expr
    from skipstone.pruning.plan import Plan
    from skipstone.storage import Listing

    from .table import Table, Where

__all__ = ["plan_query"]


def plan_query(
    table: Table,
    where: Where,
    *,
    time_zone: str,
    spark: SparkSession | None,
    memory: int,
    schema: pa.Schema | None,
    ansi: bool,
    containers: Mapping[str, bytes] | None,
    columns: Sequence[str] | None,
    order_by: str | Sequence[str] | None,
    limit: int | None,
    inside: bool,
) -> Plan:
    """See ``Table.plan``."""
    milliseconds: dict[str, float] = {}
    clock = time.perf_counter()

    def lap(phase: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        milliseconds[phase] = (now - clock) * 1e3
        clock = now

    listing = table.listing()
    lap("listing")
    matched = table.match(listing, spark)
    txn = table.txn if isinstance(listing, TxnListing) else None
    partitions = PartitionColumns.of_paths(table.path, listing.paths)
    if txn is not None:
        partitions = txn.partitions(listing)
    lap("matching")
    expr, text = _parsed(where)
    schema = _bindable(table, listing, matched, spark) if schema is None else schema
    tree = bind(expr, schema, session_zone=time_zone, ansi=ansi, text=text, map_keys=True)
    lap("binding")
    named = {leaf.column for leaf in leaves(tree)}
    beside = table.sidecars_of(listing, named, containers)
    lap("sidecars")
    query = query_of(table, tree, listing, schema, partitions, columns, order_by, limit)
    plan = plan_objects(
        tree,
        listing,
        [matched],
        partitions,
        table=table.path,
        predicate=text or to_sql(expr),
        milliseconds=milliseconds,
        outgrown=Outgrown(
            limit=memory, runner=_runner(spark), storage_options=table.storage_options
        ),
        file_index=table.file_index.read_enabled,
        beside=beside,
        inside=query.footers if query is not None and inside else None,
        costs=costs_of(table, listing),
        **({} if txn is None else txn.known(listing, schema)),
    )
    if query is None:
        return plan
    return replace(
        plan,
        reader=replace(query, bounds=_file_bounds(matched)),
        reasons=(*plan.reasons, *notes_of(table, listing), *locked_of(query)),
    )


def _bindable(
    table: Table, listing: Listing, matched: Matched, spark: SparkSession | None
) -> pa.Schema:
    """The table's schema, with indexed columns that no sampled file has."""
    import pyarrow as pa

    schema = table.schema(listing, spark)
    extra = {}
    for definition in matched.snapshot.definitions:
        for field in definition.types:
            path = column_path(field.name)
            known = find_field(schema, field.name) is not None or len(path) > 1
            # A filter of Xskipper's does not say what it is over.
            if not known and not pa.types.is_null(field.type):
                extra[field.name] = field
    return pa.schema([*schema, *extra.values()])


def _file_bounds(matched: Matched) -> FileBounds:
    """Bounds of a column over all files, by ``minmax``; of another's store nothing is relied on."""

    def bounds(column: str) -> Intervals | None:
        if not matched.snapshot.in_runs:
            return None
        for index in matched.evidence({column}):
            if isinstance(index, MinMax) and index.column == column and index.stored is not None:
                stored = index.stored
                row = stored.row_of_file
                held = row >= 0
                held[held] = index.known(stored)[row[held]]
                found = intervals_of(stored).where(np.where(held, row, 0))
                return Intervals(
                    type=found.type,
                    lo=Keys(found.lo.data, found.lo.valid & held),
                    hi=Keys(found.hi.data, found.hi.valid & held),
                    rows=np.where(held, found.rows, -1),
                    nulls=np.where(held, found.nulls, -1),
                )
        return None

    return bounds


def _runner(spark: SparkSession | None) -> Runner:
    if spark is None:
        return in_turn
    from skipstone.spark.plan_job import on_spark

    return on_spark(spark)


def _parsed(where: Where) -> tuple[Expr, str | None]:
    """The predicate as a tree, and its text where it was text; nothing asked is TRUE."""
    if where is None:
        return Const(True), None
    if isinstance(where, str):
        return parse_sql(where), where
    return from_dnf(where), None
