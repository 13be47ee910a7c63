"""Rows of a table without Spark: what reads the plan of a query."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    PredicateError,
    SkipstoneError,
    UnsupportedError,
)
from skipstone.planning.top_rows import Order
from skipstone.predicate.tree import leaves
from skipstone.predicate.types import column_path, spark_type
from skipstone.pruning import Cause, Reason
from skipstone.pruning.costs import LOCAL, REMOTE
from skipstone.pruning.table_schema import spelled_path
from skipstone.storage.listing import SUMMARY

from .count_and_top import orders_of
from .data_files import ParquetReading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from skipstone.execution import Engine, QueryReader
    from skipstone.identity import ObjectId
    from skipstone.predicate.tree import Bound
    from skipstone.pruning.costs import Costs
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.pruning.plan import Plan
    from skipstone.storage import Listing

    from .data_keys import DataKeys
    from .table import Table

__all__ = ["costs_of", "engine_of", "locked_of", "looked_into", "notes_of", "query_of"]

# Seconds to look into a file whose footer is known.
_KNOWN: Final = 60e-6


def engine_of(table: Table) -> Engine:
    """What the table keeps between queries; ``UnsupportedError`` where it is not of Parquet."""
    from skipstone.execution import Engine

    if not isinstance(table.reading, ParquetReading):
        raise UnsupportedError(
            f"{table.path} is not a table of Parquet files",
            hint="read it with Spark: Table.read(spark, where)",
        )
    engine = Engine(table.storage, table.storage_options)
    if table.txn is not None:
        engine.files.opening = table.txn.opening_of
    elif not table.keys:
        engine.files.summary = table.reading.summary
    if table.keys:
        engine.files.opening = _with_keys(engine.files.opening, table.keys)
    return engine


def _with_keys(
    opening: Callable[[ObjectId], Mapping[str, Any]], keys: DataKeys
) -> Callable[[ObjectId], Mapping[str, Any]]:
    return lambda id: {**opening(id), "decryption": keys.get()}


def costs_of(table: Table, listing: Listing) -> Costs:
    """What it costs to look into the files of a listing: less where a summary has their footers."""
    costs = REMOTE if table.storage.remote else LOCAL
    if not isinstance(table.reading, ParquetReading) or not len(listing):
        return costs
    known = table.reading.summary.known(listing) / len(listing)
    return replace(costs, file=known * min(costs.file, _KNOWN) + (1 - known) * costs.file)


def notes_of(table: Table, listing: Listing) -> tuple[Reason, ...]:
    """Why a summary of the table was not used, or not for all files."""
    if not isinstance(table.reading, ParquetReading):
        return ()
    if table.keys:
        if table.storage.summary(table.path) is None:
            return ()
        text = "it is in the clear, and keys were given: the files' own footers are read"
        return (Reason(cause=Cause.UNSUPPORTED, subject=SUMMARY, text=text),)
    return table.reading.summary.reasons(listing)


def locked_of(query: QueryReader) -> tuple[Reason, ...]:
    """What the insides of files that were looked into could not say, for want of a key."""
    footers, named = query.footers, frozenset(leaf.column for leaf in leaves(query.tree))
    found: Counter[tuple[str, str]] = Counter()
    for at, failure in footers.failed.items():
        if _is_locked(failure):
            found["files", _shortly(failure, footers.listing.paths[at])] += 1
    for view in footers.opened.values():
        locked = view.locked
        if locked:
            for column, leaf in sorted(view.leaves(named).items()):
                error = locked.get(leaf)
                if error is not None:
                    found[column, _shortly(error, view.opened.path)] += 1
    return tuple(
        Reason(cause=Cause.UNDECRYPTABLE, subject=subject, text=text, units=files)
        for (subject, text), files in found.items()
    )


def looked_into(plan: Plan) -> Plan:
    """``Plan.explained``, with what that met of files and columns without a key."""
    from skipstone.execution import QueryReader

    found = plan.explained()
    if not isinstance(found.reader, QueryReader):
        return found
    known = {(each.subject, each.text) for each in found.reasons}
    told = [each for each in locked_of(found.reader) if (each.subject, each.text) not in known]
    return replace(found, reasons=(*found.reasons, *told)) if told else found


def _is_locked(error: Exception) -> bool:
    from skipstone.parquet.encryption.ciphers import AuthenticationError

    return isinstance(error, KeyUnavailableError | AuthenticationError)


def _shortly(error: Exception, path: str) -> str:
    """Without the file, of which there are many, and the place in it."""
    text = error.about if isinstance(error, FormatError) else str(error.args[0])
    return f"row groups and pages say nothing: {text.replace(f'{path}: ', '')}"


def query_of(
    table: Table,
    tree: Bound,
    listing: Listing,
    schema: pa.Schema,
    partitions: PartitionColumns,
    columns: Sequence[str] | None,
    order_by: str | Sequence[str] | None,
    limit: int | None,
) -> QueryReader | None:
    """Who reads the rows of a plan; ``None`` for a table that only Spark reads.

    Raises ``PredicateError`` for a sort key that is no column, ``SkipstoneError`` for such a column
    of the result.
    """
    from skipstone.execution import QueryReader
    from skipstone.execution.plan_rows import output_schema

    if not isinstance(table.reading, ParquetReading):
        return None
    if limit is not None and limit < 0:
        raise ValueError(f"limit is 0 or more, not {limit}")
    if columns is not None:
        output_schema(schema, columns)
    return QueryReader(
        footers=table.engine.footers(listing, schema, partitions),
        tree=tree,
        columns=None if columns is None else tuple(columns),
        orders=tuple(_orders(table, schema, order_by)),
        limit=limit,
    )


def _orders(table: Table, schema: pa.Schema, order_by: str | Sequence[str] | None) -> list[Order]:
    found = []
    for order in [] if order_by is None else orders_of(order_by):
        path = spelled_path(schema, order.column)
        if path is None:
            near = get_close_matches(order.column, schema.names, 1)
            raise PredicateError(
                f"there is no column {order.column!r} in {table.path} to sort by",
                nearest=near[0] if near else None,
                hint=None if near else "sort keys are columns, as in 'ts desc, id'",
            )
        if len(path) > 1 or len(column_path(order.column)) > 1:
            raise UnsupportedError(
                f"cannot sort by {order.column}, which lies below another column",
                hint="sort by columns of the root",
            )
        field = schema.field(path[0])
        if spark_type(field.type) is None:
            raise SkipstoneError(
                f"cannot sort by {order.column}: it is {field.type}",
                hint="sort by columns of numbers, texts, times or booleans",
            )
        found.append(Order(path[0], order.descending, order.nulls_first))
    return found
