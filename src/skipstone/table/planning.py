"""Plans of a table: list files, match facts, bind the predicate to the schema, run the planner."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import (
    FormatError,
    SkipstoneError,
    StaleError,
    in_words,
)
from skipstone.facts.part_columns import CHUNKS, LONGEST_CHUNK, fields_named, own_for_plans
from skipstone.facts.renamed import under
from skipstone.human import of_total, plural
from skipstone.indexes.minmax import MinMax
from skipstone.planning.fact_runs import IN_MEMORY, Runner, RunSettings, in_turn
from skipstone.planning.table_facts import (
    ObjectPlanRequest,
    expression_reasons,
    indexed_expressions,
    plan_objects,
)
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import (
    Bound,
    Const,
    Expr,
    columns_of,
    stored_columns,
    without_expressions,
)
from skipstone.predicate.types import column_path
from skipstone.pruning import Cause, Reason
from skipstone.pruning.costs import LOCAL, REMOTE, Costs
from skipstone.pruning.partitions import READ_ALL, PartitionColumns
from skipstone.pruning.table_schema import FileSchema
from skipstone.storage import ByteRange, Listing
from skipstone.storage.base import metered
from skipstone.storage.listing import SUMMARY
from skipstone.table_formats.snapshot import SnapshotListing, facts_of, names_of

from .file_format import ParquetFormat
from .sort_keys import orders_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from skipstone.execution import TableQuery, TableScan
    from skipstone.execution.ordering import FileBounds
    from skipstone.facts import MatchedFacts
    from skipstone.pruning.costs import EarlierPlans
    from skipstone.pruning.interval import Intervals
    from skipstone.pruning.table_schema import TableSchema

    from .key_sets import KeySets
    from .open_table import OpenTable, Where


Result = TypeVar("Result")


class PlanOptions(TypedDict, total=False):
    """The keyword arguments of ``Table.scan``, ``plan`` and ``explain``."""

    columns: Sequence[str] | None
    order_by: str | Sequence[str] | None
    limit: int | None
    time_zone: str
    spark: SparkSession | None
    memory: int
    schema: pa.Schema | None
    ansi: bool
    containers: Mapping[str, bytes] | None
    inside: bool
    keys: KeySets | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A query to plan; see ``Table.scan``. ``shown``: the plan is shown, not only the rows.
    ``own``: for the reader of ``Table.query``, which does not need some evidence. ``aim`` says in
    errors what the sort keys are for."""

    where: Where = None
    columns: Sequence[str] | None = None
    order_by: str | Sequence[str] | None = None
    limit: int | None = None
    time_zone: str = "UTC"
    spark: SparkSession | None = None
    memory: int = IN_MEMORY
    schema: pa.Schema | None = None
    ansi: bool = True
    containers: Mapping[str, bytes] | None = None
    inside: bool = True
    keys: KeySets | None = None
    shown: bool = True
    own: bool = False
    aim: str = "sort by"

    @property
    def counted(self) -> bool:
        """Whether only the number of rows is wanted."""
        none = self.columns is not None and not len(self.columns)
        return none and not self.order_by


def scan_query(table: OpenTable, request: PlanRequest) -> TableScan:
    """See ``Table.scan``."""
    if not request.shown:
        return _scan_query(table, request)
    with metered() as meter:
        scan = _scan_query(table, request)
    return replace(scan, plan=replace(scan.plan, planning=(meter.bytes_read, meter.requests)))


def _scan_query(table: OpenTable, request: PlanRequest) -> TableScan:
    from skipstone.execution import TableScan, unreadable
    from skipstone.predicate.render import to_sql

    laps = _Laps()
    expr, text = _parsed(request)
    listing, snapshot = table.listing_and_facts(columns_of(expr))
    laps.end("listing")
    matched = table.match(listing, request.spark, snapshot)
    txn = table.txn if listing.is_snapshot else None
    partitions = PartitionColumns.of(listing) if txn is None else txn.partitions(listing)
    laps.end("matching")
    schema, found = _schema(table, listing, matched, request)
    laps.end("schema")
    matches = under(matched, names_of(listing))
    zone, ansi = request.time_zone, request.ansi
    indexed = indexed_expressions(matches, schema, zone, folders=partitions.values)
    own = indexed.names
    tree = bind(
        expr, schema, session_zone=zone, ansi=ansi, text=text, map_keys=True, expressions=own
    )
    laps.end("binding")
    named = stored_columns(tree)
    adjacent = table.sidecars_of(listing, named, request.containers)
    laps.end("sidecars")
    query = None
    if table.is_parquet:
        types = FileSchema.canonical(schema) if found is None else found.merged
        query = _query(table, request, tree, (listing, matched, partitions, types), schema)
    plan = plan_objects(
        ObjectPlanRequest(
            tree=tree,
            listing=listing,
            reasons=expression_reasons(indexed),
            matches=matches,
            partitions=partitions,
            table=table.path,
            predicate=text or to_sql(expr, counted=request.shown),
            milliseconds=laps.milliseconds,
            runs=RunSettings(
                limit=request.memory,
                runner=_runner(request.spark),
                storage_options=table.storage_options,
            ),
            file_index=table.file_index.read_enabled,
            adjacent=adjacent,
            data_files=query.footers if query is not None and request.inside else None,
            snapshot=facts_of(listing, tree) if txn is None else txn.facts(listing, schema),
            costs=_costs(table, listing, matched),
            share=min(1.0, len(named) / max(len(schema), 1)),
            shown=request.shown,
            own=request.own,
            counted=request.counted,
            earlier=_earlier(table, request) if query is not None else None,
        )
    )
    reasons = outside(listing)
    if query is not None:
        query = replace(query, bounds=_file_bounds(matches, partitions))
        reasons = (*_notes(table, listing), *unreadable(query))
    return TableScan(replace(plan, reasons=(*plan.reasons, *reasons), schema=found), query)


def _earlier(table: OpenTable, request: PlanRequest) -> EarlierPlans | None:
    """What earlier plans skipped. A plan that is shown is the same whatever was asked before, and
    in an object store levels are asked in the wave that opens the files."""
    return None if request.shown or table.storage.remote else table.engine.earlier


class _Laps:
    """How long the steps of a plan took."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._clock = time.perf_counter()

    def end(self, step: str) -> None:
        """A step ends, and the next one begins."""
        before, self._clock = self._clock, time.perf_counter()
        self.milliseconds[step] = (self._clock - before) * 1e3


def _schema(
    table: OpenTable, listing: Listing, matched: MatchedFacts, request: PlanRequest
) -> tuple[pa.Schema, TableSchema | None]:
    """The columns that predicates see, and how the schema of Parquet files was found."""
    if request.schema is not None:
        return request.schema, None
    if not table.is_parquet:
        return table.schema(listing, request.spark), None
    found = table.file_schema(listing, matched, or_indexed=True)
    return table.with_folders(found.merged.spark, listing), found


# How many times a query is planned before changing files are an error.
_ATTEMPTS: Final = 6
_CHANGING: Final = "files keep changing during the query"


def planned(table: OpenTable, request: PlanRequest) -> TableScan:
    """``scan_query``, repeated where a file disappears or changes while it is planned."""
    return _again(table, partial(_planned, table, request))


def of_one_listing(
    table: OpenTable, request: PlanRequest, read: Callable[[TableScan], Result]
) -> Result:
    """The result of ``read`` for a plan of the query, from the versions of files in one listing.

    Where a file has changed or disappeared before it was read, the query is planned again, a few
    times; then it is a ``StaleError``.
    """
    return _again(table, partial(_of_listing, table, request, read))


def _again(table: OpenTable, ask: Callable[[], Result]) -> Result:
    for _ in range(_ATTEMPTS - 1):
        try:
            return ask()
        except StaleError:
            if (snapshots := table.snapshots()) is not None:
                snapshots.forget()
    return ask()


def _planned(table: OpenTable, request: PlanRequest) -> TableScan:
    try:
        return scan_query(table, request)
    except FileNotFoundError as error:
        table.listing()  # raises it again where the table itself does not exist
        raise StaleError(f"{table.path}: {_CHANGING}: {error}", hint="query again") from error


def _of_listing(
    table: OpenTable, request: PlanRequest, read: Callable[[TableScan], Result]
) -> Result:
    scan = _planned(table, request)
    listing = scan.plan.listing
    try:
        found = read(scan)
    except StaleError:
        raise
    except (SkipstoneError, OSError) as error:
        # A file that is being replaced may look damaged.
        if not isinstance(error, FileNotFoundError) and table.listing().same_files(listing):
            raise
        raise StaleError(f"{table.path}: {_CHANGING}: {error}", hint="query again") from error
    if scan.query is not None and not listing.is_snapshot:
        footers = scan.query.footers
        for at, file in footers.opened.items():
            if scan.plan.keep[at] and not footers.fresh(at):
                footers.files.forget(file.opened.path)
                raise StaleError(
                    f"{file.opened.path} changed before it was read", hint="query again"
                )
    return found


#: errors of a damaged or unreadable file
_LOST: Final = (FormatError, OSError)


def without_unreadable(
    table: OpenTable, request: PlanRequest, read: Callable[[TableScan], Result]
) -> Result:
    """``of_one_listing``, again without the files that cannot be read; ``table.skipped`` has them.

    A file is left out whole, even if only one of its pages cannot be read.
    """
    table.require_parquet("read it with Spark: spark.sql.files.ignoreCorruptFiles")
    while True:
        try:
            return of_one_listing(table, request, read)
        except _LOST as error:
            listing = table.listing()
            if listing.is_snapshot or table.catalog is not None:
                raise  # such a table says itself which files it has
            ids = [listing.object_id(at) for at in range(len(listing))]
            opened = zip(ids, table.engine.files.open(ids), strict=True)
            lost = {id.path: in_words(each) for id, each in opened if isinstance(each, _LOST)}
            named = error.file if isinstance(error, FormatError) else error.filename
            if named in listing.paths:
                lost[str(named)] = in_words(error)
            if not lost:
                raise
            table.skip_files(lost)


def _file_bounds(matches: Sequence[MatchedFacts], partitions: PartitionColumns) -> FileBounds:
    """Bounds of a column over all files, from ``minmax``; not from stores of Xskipper."""
    from skipstone.pruning.file_bounds import intervals_of

    # Where a folder and the files both have a column, Spark takes the folder's value.
    folders = {name.lower() for name in partitions.values}

    def bounds(column: str) -> Intervals | None:
        if not matches[0].snapshot.in_batches or column_path(column)[0].lower() in folders:
            return None
        # Bounds by the facts of some files do not hold for the others.
        for index in (index for each in matches for index in each.evidence({column})):
            if isinstance(index, MinMax) and index.column == column and index.stored is not None:
                stored = index.stored
                row = stored.row_of_file
                held = row >= 0
                held[held] = index.known(stored)[row[held]]
                if not held.any():  # the store may have no facts at all
                    continue
                return intervals_of(stored).where(np.where(held, row, 0)).only(held)
        return None

    return bounds


def _chunks(
    matched: MatchedFacts, columns: Collection[str], files: Sequence[int]
) -> list[ByteRange]:
    """The chunks of ``columns`` in some files of the listing, where the facts have those of all
    columns. They only say which bytes to read early."""
    snapshot, listing = matched.snapshot, matched.listing
    found: list[ByteRange] = []
    if CHUNKS not in own_for_plans(fields_named(snapshot.fields, columns)):
        return found
    rows, stored = np.flatnonzero(np.isin(matched.file_of_row, files)), snapshot.own(CHUNKS)
    for row, file in zip(rows.tolist(), matched.file_of_row[rows].tolist(), strict=True):
        held = {name.lower(): place for name, place in stored[row].as_py() or ()}
        places = [held[column.lower()] for column in columns if column.lower() in held]
        path, size = listing.paths[file], int(listing.sizes[file])
        ranges = [ByteRange(path, place["offset"], place["length"]) for place in places]
        if len(ranges) == len(columns) and all(
            0 <= each.offset <= size - each.length and 0 < each.length <= LONGEST_CHUNK
            for each in ranges
        ):
            found += ranges
    return found


def _runner(spark: SparkSession | None) -> Runner:
    if spark is None:
        return in_turn
    from skipstone.spark.jobs import plan_on_spark

    return plan_on_spark(spark)


def _parsed(request: PlanRequest) -> tuple[Expr, str | None]:
    """The predicate as a tree, and its text where it was text alone; no predicate is TRUE."""
    where = request.where
    if request.keys is not None:
        from .key_sets import keyed

        return keyed(_parsed(replace(request, keys=None))[0], request.keys), None
    if where is None:
        return Const(True), None
    if isinstance(where, str):
        for_spark = request.spark is not None or request.schema is not None
        return parse_sql(where, any_function=for_spark), where
    from skipstone.predicate.dnf import from_dnf

    return from_dnf(where), None


# Seconds to open a file whose footer is known, and for a page index that came with a footer.
_KNOWN: Final = 60e-6
_AT_HAND: Final = 100e-6


def _costs(table: OpenTable, listing: Listing, matched: MatchedFacts) -> Costs:
    """The costs of opening the files of a listing: less where a summary has their footers, or facts
    say how much to read."""
    costs = REMOTE if table.storage.remote else LOCAL
    if not isinstance(table.file_format, ParquetFormat) or not len(listing):
        return costs
    if table.storage.remote:
        from skipstone.execution.open_files import WITH_INDEX

        ends = matched.ends
        with_index = np.count_nonzero((ends > 0) & (ends <= WITH_INDEX)) / len(listing)
        chunk = with_index * _AT_HAND + (1 - with_index) * costs.chunk
        costs = replace(costs, chunk=chunk)
    known = table.file_format.summary.known(listing) / len(listing)
    return replace(costs, file=known * min(costs.file, _KNOWN) + (1 - known) * costs.file)


def _notes(table: OpenTable, listing: Listing) -> tuple[Reason, ...]:
    """Files that are left out, and why ``_metadata`` was not used, or not for all files."""
    if not isinstance(table.file_format, ParquetFormat):
        return ()
    if isinstance(listing, SnapshotListing):
        return listing.snapshot.reasons
    summary = _of_summary(table, table.file_format, listing)
    return (*_empty(listing), *outside(listing), *summary)


def outside(listing: Listing) -> tuple[Reason, ...]:
    """The files below the table's path that are not part of the table, if there are any."""
    if not listing.outside:
        return ()
    count = of_total(listing.outside, listing.outside + len(listing), "files below it")
    text = f"{count} are not in its folders, and Spark does not read them: {READ_ALL} does"
    return (Reason(cause=Cause.NOT_APPLICABLE, subject=listing.root, text=text),)


def _empty(listing: Listing) -> tuple[Reason, ...]:
    if not listing.empty:
        return ()
    text = f"{plural(listing.empty, 'file')} of 0 bytes left out, as Spark does: was it cut short?"
    return (Reason(cause=Cause.CORRUPT, subject=listing.root, text=text),)


def _of_summary(
    table: OpenTable, file_format: ParquetFormat, listing: Listing
) -> tuple[Reason, ...]:
    if table.keys:
        if table.storage.summary(table.path) is None:
            return ()
        text = "it is in the clear, and keys were given: the files' own footers are read"
        return (Reason(cause=Cause.UNSUPPORTED, subject=SUMMARY, text=text),)
    return file_format.summary.reasons(listing)


def _query(
    table: OpenTable,
    request: PlanRequest,
    tree: Bound,
    files: tuple[Listing, MatchedFacts, PartitionColumns, FileSchema],
    schema: pa.Schema,
) -> TableQuery:
    """The query over the files of the table.

    Raises ``PredicateError`` for a sort key that is not a column, ``SkipstoneError`` for an unknown
    column of the result.
    """
    from skipstone.execution import TableQuery
    from skipstone.execution.table_types import output_schema

    columns, limit = request.columns, request.limit
    if limit is not None and (not hasattr(limit, "__index__") or limit < 0):
        raise ValueError(f"limit is 0 or more, not {limit!r}")
    limit = None if limit is None else min(limit, 2**63 - 1)  # more rows than any table has
    if columns is not None:
        output_schema(schema, columns)
    # The listing that was matched may be of an older snapshot, with other names of columns.
    listing, matched, partitions, types = files
    ahead = not request.shown and names_of(listing) is None
    chunks = partial(_chunks, matched, stored_columns(tree)) if ahead else None
    of = listing.snapshot if isinstance(listing, SnapshotListing) else None
    footers = table.engine.footers(listing, types, partitions, lambda: matched.ends, chunks, of)
    return TableQuery(
        footers=footers,
        tree=without_expressions(tree),
        columns=None if columns is None else tuple(columns),
        orders=tuple(orders_in(table, schema, request.order_by, request.aim)),
        limit=limit,
    )
