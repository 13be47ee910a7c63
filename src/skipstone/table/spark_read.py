"""``Table.read``: a table as a DataFrame, by Spark's own reader or page by page."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.parquet.format.footer import MAGIC_ENCRYPTED
from skipstone.predicate.types import column_name, column_path
from skipstone.pruning import Cause, Reason
from skipstone.pruning.costs import SPARK
from skipstone.pruning.partitions import RECURSIVE
from skipstone.questdb.txn_snapshot import ready_for_spark
from skipstone.spark.facts import FactsPruner, finder, store_cache
from skipstone.spark.read_path import (
    UNFILTERED,
    Choice,
    against_pages,
    by_cost,
    miscounted,
    read_connect,
    undecidable,
    wanted_nulls,
)
from skipstone.spark.scan_log import Scan, scan_log
from skipstone.spark.schemas import spark_schema
from skipstone.spark.session import Jvm, is_connect, require_kms, require_session
from skipstone.spark.skip import skip
from skipstone.spark.txn_scan import TxnPruner, read_txn_table
from skipstone.spark.versions import no_data_sources

from .planning import PlanRequest, orders_of, planned
from .spark_read_schema import schema_for_spark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from skipstone.execution import TableScan
    from skipstone.pruning.plan import Plan, SortKey
    from skipstone.spark.relation import Pruner, RelationInfo

    from .open_table import OpenTable
    from .txn_table import TxnTable


_LOG = logging.getLogger("skipstone")
# Hadoop's patterns cannot negate a text: names that differ from .index in one of the last letters.
_FILTER = "pathGlobFilter"
_NO_INDEX = "{*[^x],*[^e]x,*[^d]ex,*[^n]dex,*[^i]ndex,*[^.]index}"
_SUFFIX = ".index"


def read_table(
    table: OpenTable, spark: SparkSession, request: PlanRequest, options: Mapping[str, str]
) -> DataFrame:
    """See ``Table.read``."""
    _require_own_root(table, options)
    require_session(spark)
    table = table.with_lookup_of(options)
    options = {key: value for key, value in options.items() if key.lower() != RECURSIVE.lower()}
    where, columns, order_by = request.where, request.columns, request.order_by
    limit = request.limit
    if not isinstance(where, str | None):
        raise TypeError(f"where is SQL text for Spark, not {type(where).__name__}")
    if limit is not None and limit < 0:
        raise ValueError(f"limit is 0 or more, not {limit}")
    if table.keys and table.is_parquet:
        _require_kms(table, spark, options)
    orders = [] if order_by is None else orders_of(order_by)
    if where is None and columns is None and order_by is None and limit is None:
        return _native(table, spark, where, options, None)
    _check_columns(columns)
    scan: TableScan | None = None
    against = _against(table, spark, where, options)
    if against is None:
        scan, choice = _choice(table, spark, request)
    else:
        choice = Choice(False, against)
    if choice.pages and scan is not None:
        native = _finished(_plain(table, spark, options), columns, [], None)
        paged, why = _paged(table, spark, native, request)
        if paged is not None:
            _log_pages(spark, table, scan, where, choice)
            return paged
        choice = Choice(False, why)
    _LOG.info("%s is read by %s", table.path, choice)
    frame = _native(table, spark, where, options, choice)
    return _finished(frame, columns, orders, limit)


def _require_own_root(table: OpenTable, options: Mapping[str, str]) -> None:
    """``SkipstoneError`` where Spark would read partition columns from folders above the table, and
    a plan from the files."""
    for key, value in options.items():
        if key.lower() == "basepath" and canonical_path(value) != table.path:
            raise SkipstoneError(
                f"{key} is {value}, and the table is {table.path}",
                hint=f"open the table there, Table({value!r}), and name the partition in where",
            )


def _require_kms(table: OpenTable, spark: SparkSession, options: Mapping[str, str]) -> None:
    """Raise if the first file is encrypted and Spark has no KMS client."""
    listing = table.listing()
    for path in listing.paths[:1]:
        _, tail = table.storage.read_tail(path, len(MAGIC_ENCRYPTED))
        if bytes(tail) == MAGIC_ENCRYPTED:
            require_kms(path, spark, options)


# -- pages or Spark's reader -----------------------------------------------------------------------


def _against(
    table: OpenTable, spark: SparkSession, where: str | None, options: Mapping[str, str]
) -> str | None:
    """Why pages are not an option, whatever their cost."""
    if not table.is_parquet:
        return "source files"
    missing = no_data_sources()
    if missing is not None:
        return missing
    if table.txn is not None:
        return "a snapshot, whose files may grow"
    if table.keys:
        return "its files may be encrypted: their keys stay in this process"
    if options:
        return f"options of Spark's reader are given ({', '.join(sorted(options))})"
    if not isinstance(table.index_location, str):
        return "the index is encrypted, or a store of Xskipper's: its keys stay in this process"
    if table.storage_options:
        return "Spark's plans would show options of the object store"
    return against_pages(spark, where)


def _choice(
    table: OpenTable, spark: SparkSession, request: PlanRequest
) -> tuple[TableScan | None, Choice]:
    zone = spark.conf.get("spark.sql.session.timeZone", "UTC") or "UTC"
    try:
        scan = planned(table, replace(request, time_zone=zone, inside=False))
    except SkipstoneError as error:  # Spark may accept the text, or reports the error
        return None, Choice(False, error.message)
    except OSError as error:
        return None, Choice(False, str(error))
    why = undecidable(scan)
    if why is not None:
        return scan, Choice(False, why)
    limit = request.limit
    if limit is not None:
        if limit > SPARK.most_rows:
            return scan, Choice(False, f"a limit of more than {SPARK.most_rows:,} rows")
        what = "rows" if request.order_by is None else "rows of an order"
        return scan, Choice(True, f"the first {limit:,} {what}: reading ends there")
    return scan, by_cost(scan)


def _check_columns(columns: Sequence[str] | None) -> None:
    if isinstance(columns, str):
        raise TypeError(f"columns is a sequence of names: [{columns!r}], not {columns!r}")
    for each in columns or ():
        if len(column_path(each)) > 1:
            raise UnsupportedError(
                f"{each!r} lies below a column",
                hint=f'take it from the DataFrame: .select("{each}")',
            )


# -- Spark's own reader ----------------------------------------------------------------------------


def _plain(table: OpenTable, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The table as plain Spark reads it without sidecars; ``options`` of the reader."""
    options, whole = schema_for_spark(table, spark, options)
    with whole.in_words(table.path):
        frame = _unordered(table, spark, options, whole.given)
    return whole.in_order(frame)


def _unordered(
    table: OpenTable, spark: SparkSession, options: Mapping[str, str], schema: StructType | None
) -> DataFrame:
    hidden = partial(_without_sidecars, table, options)
    if is_connect(spark):
        return table.file_format.frame(spark, hidden(), schema)
    try:
        frame = table.file_format.frame(spark, options, schema)
    except Exception:  # Spark may have taken the schema of a sidecar
        if not table.has_sidecars():
            raise
        return table.file_format.frame(spark, hidden(), schema)
    if _lists_sidecars(frame, spark):
        return table.file_format.frame(spark, hidden(), schema)
    return frame


def _without_sidecars(table: OpenTable, options: Mapping[str, str]) -> dict[str, str]:
    """``options`` with a filter that hides sidecars from Spark, if the table has any."""
    if any(key.lower() == _FILTER.lower() for key in options) or not table.has_sidecars():
        return dict(options)
    return {**options, _FILTER: _NO_INDEX}


def _lists_sidecars(frame: DataFrame, spark: SparkSession) -> bool:
    """Whether Spark lists a file named like a sidecar; the names stay in the JVM."""
    jvm = Jvm.of(spark)
    files = jvm.scala.wrap(frame._jdf.inputFiles())
    text = jvm.type("scala.collection.mutable.StringBuilder")()
    return int(files.addString(text, "", "\n", "\n").indexOf(f"{_SUFFIX}\n")) >= 0


def _native(
    table: OpenTable,
    spark: SparkSession,
    where: str | None,
    options: Mapping[str, str],
    choice: Choice | None,
) -> DataFrame:
    if table.txn is not None:
        return _snapshot(table, table.txn, spark, where, options)
    reasons = () if choice is None else (_reason(choice),)
    unsure = _miscounted(table, spark, where)
    if unsure:
        options = {**options, **UNFILTERED}
        _LOG.info("%s: Spark's own reader skips no row groups: %s", table.path, unsure)
        text = f"skips no row groups: {unsure}"
        more = Reason(cause=Cause.NOT_APPLICABLE, subject="Spark's own reader", text=text)
        reasons = (*reasons, more)
    if is_connect(spark):
        options, whole = schema_for_spark(table, spark, options)
        with whole.in_words(table.path):
            frame = read_connect(
                spark,
                table.path,
                partial(_planned, table),
                where,
                _without_sidecars(table, options),
                schema=whole.given,
            )
        return whole.in_order(frame)
    find = finder({table.path: table.index_location}, store_cache(spark))

    def find_with_choice(relation: RelationInfo) -> Pruner | None:
        pruner = find(relation)
        if isinstance(pruner, FactsPruner):
            pruner.reasons = (*pruner.reasons, *reasons)
        return pruner

    frame = skip(_plain(table, spark, options), find_with_choice)
    return frame if where is None else frame.where(where)


def _miscounted(table: OpenTable, spark: SparkSession, where: str | None) -> str:
    """Why Spark's reader could lose rows of ``where`` by null counts; "" where it does not."""
    texts = wanted_nulls(spark, where) if where is not None and table.is_parquet else set()
    if not texts:
        return ""
    try:
        found = miscounted(texts, table.file_schema(table.listing()).merged.spark)
    except (SkipstoneError, OSError) as error:
        return f"the columns are not known ({error})"
    if not found:
        return ""
    return f"null counts of strings in structs may be too low ({', '.join(sorted(found))})"


def _finished(
    frame: DataFrame, columns: Sequence[str] | None, orders: Sequence[SortKey], limit: int | None
) -> DataFrame:
    """The order, the limit and the columns, by Spark."""
    if orders:
        frame = frame.orderBy(*(_sort_key(frame, order) for order in orders))
    if limit is not None:
        frame = frame.limit(limit)
    return frame if columns is None else frame.select(*columns)


def _sort_key(frame: DataFrame, order: SortKey) -> Column:
    column = frame[order.column]
    if order.descending:
        return column.desc_nulls_first() if order.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if order.nulls_first else column.asc_nulls_last()


def _planned(
    table: OpenTable, where: str, *, time_zone: str, schema: pa.Schema, ansi: bool
) -> Plan:
    request = PlanRequest(where=where, time_zone=time_zone, schema=schema, ansi=ansi)
    return planned(table, request).plan


# -- snapshots of a table with a _txn --------------------------------------------------------------


def _snapshot(
    table: OpenTable,
    txn: TxnTable,
    spark: SparkSession,
    where: str | None,
    options: Mapping[str, str],
) -> DataFrame:
    """The rows of one snapshot, also while a writer commits."""
    listing = txn.listing()
    if not len(listing):
        raise UnsupportedError(
            f"{txn.root} has no Parquet partitions", hint="there is nothing to read"
        )
    coverage = txn.coverage(listing)
    if is_connect(spark):
        for file in listing.files:
            if file.length != file.size:
                raise UnsupportedError(
                    f"{file.path} is longer than its snapshot: Spark Connect accepts no sizes",
                    hint="an append is running: read again, or from a classic session",
                )
        wanted = {"mergeSchema": "true", **options}
        return read_connect(
            spark, table.path, partial(_planned, table), where, wanted, paths=listing.paths
        )

    find_facts = finder({txn.root: table.index_location}, store_cache(spark))

    def find(relation: RelationInfo) -> TxnPruner:
        return TxnPruner(
            find_facts(relation),
            relation,
            listing,
            storage=txn.storage,
            partitions=txn.partitions,
            coverage=coverage,
        )

    ready_for_spark(listing.files, txn.storage)
    frame = read_txn_table(spark, listing, options, find)
    return frame if where is None else frame.where(where)


# -- pages -----------------------------------------------------------------------------------------


def _paged(
    table: OpenTable, spark: SparkSession, native: DataFrame, request: PlanRequest
) -> tuple[DataFrame | None, str]:
    """The rows by pages, in the columns of ``native``; or why that is impossible."""
    names = native.columns
    try:
        own = spark_schema(table, [column_name((name,)) for name in names])
    except SkipstoneError as error:
        return None, error.message
    theirs = native.schema
    for mine, other in zip(own, theirs, strict=True):
        if (mine.name, mine.dataType) != (other.name, other.dataType):
            return None, f"{other.name} is {other.dataType.simpleString()} to Spark here"
    order_by, limit = request.order_by, request.limit
    order = order_by if isinstance(order_by, str) or order_by is None else ", ".join(order_by)
    given = {
        "where": request.where,
        "orderBy": order,
        "limit": None if limit is None else str(limit),
        "timeZone": spark.conf.get("spark.sql.session.timeZone", "UTC"),
        "indexLocation": table.index_location,
        "memory": table.memory,
        "verifyChecksums": None if table.verify_checksums else "false",
        **table.lookup,
    }
    options = {key: str(value) for key, value in given.items() if value is not None}
    try:
        frame = spark.read.schema(own).format("skipstone").options(**options).load(table.path)
        if frame.columns != names:  # a request to the server, under Connect
            return None, "Spark gives the columns in another order"
    except Exception as error:  # such as a server without Skipstone: Spark's reader remains
        return None, f"format skipstone is not available: {str(error).partition(chr(10))[0]}"
    return frame, ""


# -- reasons ---------------------------------------------------------------------------------------


def _reason(choice: Choice) -> Reason:
    return Reason(cause=Cause.COSTLY, subject="read by", text=str(choice))


def _log_pages(
    spark: SparkSession, table: OpenTable, scan: TableScan, where: str | None, choice: Choice
) -> None:
    """Log the plan for ``last_scan``: Spark does not call back for pages."""
    _LOG.info("%s is read by %s", table.path, choice)
    if is_connect(spark):
        return
    explanation = scan.explain(look=False)
    plan = explanation.plan
    scan_log(spark).planned(
        Scan(
            table=table.path,
            format="skipstone",
            predicate=where,
            files_listed=plan.files_total,
            bytes_listed=plan.bytes_total,
            files_total=plan.files_total,
            bytes_total=plan.bytes_total,
            files_kept=plan.files_kept,
            bytes_kept=plan.bytes_kept,
            report=plan,
            forecast=explanation.forecast,
            reasons=(_reason(choice),),
            milliseconds=plan.milliseconds,
        )
    )
