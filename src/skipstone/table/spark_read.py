"""``Table.read``: a table as a DataFrame, by Spark's own reader, page by page, or as rows.

**Rows read ahead.** Few rows of many files take this process less time than Spark takes to list the
files and to start a job. They are read when ``Table.read`` is called, and the plan holds them. The
types are those that Spark would find: where that is not certain from the schema of all files, Spark
is asked (``schema_without_spark``).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.human import plural, size
from skipstone.parquet.format.footer import MAGIC_ENCRYPTED
from skipstone.predicate.types import column_path
from skipstone.pruning import Cause, Reason
from skipstone.pruning.costs import SPARK
from skipstone.pruning.partitions import RECURSIVE
from skipstone.spark.facts import FactsPruner, finder, store_cache
from skipstone.spark.read_choice import (
    Choice,
    Way,
    against_text,
    by_cost,
    few_rows,
    undecidable,
)
from skipstone.spark.read_path import UNFILTERED, miscounted, read_connect, wanted_nulls
from skipstone.spark.scan_log import scan_log
from skipstone.spark.scans import Scan
from skipstone.spark.schemas import in_types, local_frame
from skipstone.spark.session import (
    ZONE,
    is_connect,
    require_kms,
    require_session,
    settings_of,
)
from skipstone.spark.skip import mark, skip
from skipstone.storage.base import metered

from .planning import PlanOptions, PlanRequest, of_one_listing, planned
from .sort_keys import orders_of
from .spark_connector import connector_frame
from .spark_keys import SparkKeys, spark_keys
from .spark_pages import paged, pages_of, why_no_pages
from .spark_read_schema import (
    ListedSchema,
    WholeSchema,
    listed_schema,
    plain_frame,
    require_own_root,
    schema_by_spark,
    schema_for_spark,
    schema_without_spark,
    without_sidecars,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from skipstone.execution import TableScan
    from skipstone.pruning.plan import Plan, SortKey
    from skipstone.spark.relation import Pruner, RelationInfo
    from skipstone.table_formats import SnapshotTable

    from .open_table import OpenTable


_LOG = logging.getLogger("skipstone")
# Types as which Spark 4 reads an INT32 without an annotation.
_FROM_INT32 = (pa.types.is_signed_integer, pa.types.is_float64, pa.types.is_date32)


def read_table(
    table: OpenTable,
    spark: SparkSession,
    request: PlanRequest,
    options: Mapping[str, str],
    *,
    connector: bool = False,
) -> DataFrame:
    """See ``Table.read``."""
    require_own_root(table, options)
    require_session(spark)
    table.require_index()
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
    keys = None if request.keys is None else spark_keys(spark, request.keys)
    asked = (where, columns, order_by, limit, keys)
    every_row = all(each is None for each in asked) and not connector and table.snapshots() is None
    listed = listed_schema(table, options) if every_row else None
    if every_row and not _unread(listed, request):
        return _native(table, spark, where, options, {}, None, listed=listed)
    _check_columns(columns)
    settings = settings_of(spark)
    request = replace(request, time_zone=settings[ZONE], keys=keys and keys.expr)
    if connector:
        frame = connector_frame(table, spark, request, options)
        return _finished(frame if keys is None else keys.joined(frame), columns, orders, limit)
    if (snapshots := table.snapshots()) is not None:
        return _of_format(table, snapshots, spark, settings, request, options, keys)
    against = why_no_pages(table, settings, where, options)
    if keys is not None and against is None:
        against = keys.against_pages
    if against is None:
        found = _by_plan(table, spark, settings, request)
    else:
        found = _ChosenRead(Choice(Way.NATIVE, against))
    if found.frame is not None:
        return _finished(found.frame, columns if orders else None, orders, None)
    choice = found.choice
    if keys is not None and choice.way is Way.PAGES:
        choice = Choice(Way.NATIVE, "keys are not passed to workers")
    if choice.way is Way.PAGES and found.scan is not None:
        by_pages, why = paged(table, spark, request)
        if by_pages is not None:
            return _marked(spark, table, by_pages, found.scan, choice)
        choice = Choice(Way.NATIVE, why)
    listed = _listed(found.scan) or listed or listed_schema(table, options)
    if unread := _unread(listed, request):
        why = f"Spark's own reader fails on files in which {unread} has no type"
        try:
            return _by_pages(table, spark, request, against, keys, found.scan, why)
        except UnsupportedError as error:  # Spark reads the other columns
            _LOG.warning("%s, and %s", why, error)
    _LOG.info("%s is read by %s", table.path, choice)
    frame = _native(table, spark, where, options, settings, choice, keys, listed=listed)
    return _finished(frame, columns, orders, limit)


def _require_kms(table: OpenTable, spark: SparkSession, options: Mapping[str, str]) -> None:
    """Raise if the first file is encrypted and Spark has no KMS client."""
    for path in table.listing().paths[:1]:
        _, tail = table.storage.read_tail(path, len(MAGIC_ENCRYPTED))
        if bytes(tail) == MAGIC_ENCRYPTED:
            require_kms(path, spark, options)


# -- pages or Spark's reader -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ChosenRead:
    """The choice for a scan, and the rows where they were read ahead: without order, and with all
    columns where there is one."""

    choice: Choice
    scan: TableScan | None = None
    frame: DataFrame | None = None


def _by_plan(
    table: OpenTable, spark: SparkSession, settings: Mapping[str, str], request: PlanRequest
) -> _ChosenRead:
    names, limit = request.columns, request.limit
    if names is not None and not 0 < len({name.lower() for name in names}) == len(names):
        twice = "a column is asked for twice" if names else "no columns are asked for"
        return _ChosenRead(Choice(Way.NATIVE, twice))
    if limit is None and request.order_by is not None:
        request = replace(request, order_by=None, columns=None)
    request = replace(request, inside=False)

    def read(scan: TableScan) -> _ChosenRead:
        why = undecidable(scan)
        if why is not None:
            return _ChosenRead(Choice(Way.NATIVE, why), scan)
        if limit is not None:
            return _ChosenRead(_of_limit(request, limit), scan)
        choice = by_cost(scan, ahead=True)
        if choice.way is not Way.AHEAD:
            return _ChosenRead(choice, scan)
        return _ahead(table, spark, settings, request, scan, choice)

    try:
        return of_one_listing(table, request, read)
    except SkipstoneError as error:  # Spark may accept the text, has the keys, or has an error
        return _ChosenRead(Choice(Way.NATIVE, error.message))
    except OSError as error:
        return _ChosenRead(Choice(Way.NATIVE, str(error)))


def _of_limit(request: PlanRequest, limit: int) -> Choice:
    if limit > SPARK.most_rows:
        return Choice(Way.NATIVE, f"a limit of more than {SPARK.most_rows:,} rows")
    what = "rows" if request.order_by is None else "rows of an order"
    return Choice(Way.PAGES, f"the first {limit:,} {what}: reading ends there")


def _check_columns(columns: Sequence[str] | None) -> None:
    if isinstance(columns, str):
        raise TypeError(f"columns is a sequence of names: [{columns!r}], not {columns!r}")
    for each in columns or ():
        if len(column_path(each)) > 1:
            raise UnsupportedError(
                f"{each!r} lies below a column",
                hint=f'take it from the DataFrame: .select("{each}")',
            )


# -- tables of table formats -----------------------------------------------------------------------


def _of_format(
    table: OpenTable,
    snapshots: SnapshotTable,
    spark: SparkSession,
    settings: Mapping[str, str],
    request: PlanRequest,
    options: Mapping[str, str],
    keys: SparkKeys | None,
) -> DataFrame:
    """The rows of the current snapshot, also in later actions, read here or by pages.

    Spark's own reader knows no log. What only Spark decides, it decides on all rows.
    """
    table, where = table.kept_at(snapshots.kept()), request.where
    orders = [] if request.order_by is None else orders_of(request.order_by)
    assert isinstance(where, str | None)
    scan = None
    # Settings of Spark's own reader change nothing here. Delta's connector sets one of them.
    if (where is None or against_text(settings) is None) and keys is None:
        found = _by_plan(table, spark, settings, request)
        if found.frame is not None:
            return _finished(found.frame, request.columns if orders else None, orders, None)
        scan = found.scan
    why = f"Spark's own reader does not know the log of {snapshots.source.format}"
    against = why_no_pages(table, {}, None, options)
    return _by_pages(table, spark, request, against, keys, scan, why)


def _by_pages(
    table: OpenTable,
    spark: SparkSession,
    request: PlanRequest,
    against: str | None,
    keys: SparkKeys | None,
    scan: TableScan | None,
    why: str,
) -> DataFrame:
    """The rows by pages, because of ``why``; ``against`` as for ``pages_of``. What only Spark
    decides, it decides on all rows."""
    if keys is None and scan is not None and undecidable(scan) is None:
        frame = pages_of(table, spark, request, against)
        return _marked(spark, table, frame, scan, Choice(Way.PAGES, why))
    frame = pages_of(table, spark, PlanRequest(time_zone=request.time_zone), against)
    assert isinstance(request.where, str | None)
    frame = frame if request.where is None else frame.where(request.where)
    frame = frame if keys is None else keys.joined(frame)
    orders = [] if request.order_by is None else orders_of(request.order_by)
    return _finished(frame, request.columns, orders, request.limit)


def _listed(scan: TableScan | None) -> ListedSchema | None:
    if scan is None or scan.plan.schema is None:
        return None
    return ListedSchema(scan.plan.listing, scan.plan.schema)


def _unread(listed: ListedSchema | None, request: PlanRequest) -> str:
    """The columns of ``request`` that Spark's own reader cannot read; "" if it reads all.

    A column of Arrow's null type is stored as INT32. Spark reads that as types that integers widen
    to. Where columns are named, one counts as asked for if a text has its name.
    """
    if listed is None:
        return ""
    texts = [*(request.columns or ()), request.where, *_texts(request.order_by)]
    asked = " ".join(map(str, texts)).lower().replace("`", "")
    every = request.columns is None or request.keys is not None

    def fails(field: pa.Field) -> bool:
        if any(reads(field.type) for reads in _FROM_INT32):
            return False
        return every or column_path(field.name)[0].lower().replace("`", "") in asked

    return ", ".join(field.name for field in listed.schema.untyped if fails(field))


def _texts(order_by: str | Sequence[str] | None) -> Sequence[str]:
    return [order_by] if isinstance(order_by, str) else order_by or ()


# -- Spark's own reader ----------------------------------------------------------------------------


def _native(
    table: OpenTable,
    spark: SparkSession,
    where: str | None,
    options: Mapping[str, str],
    settings: Mapping[str, str],
    choice: Choice | None,
    keys: SparkKeys | None = None,
    *,
    listed: ListedSchema | None,
) -> DataFrame:
    if keys is not None:
        options = {**options, **keys.option}
    if table.txn is not None:
        prune = None if keys is None else partial(keys.prune, spark=spark)
        plan, place = partial(_planned, table, keys), table.index_location
        frame = table.txn.frame(spark, where, options, prune, plan, place)
        return frame if keys is None else keys.joined(frame)
    reasons = () if choice is None else (_reason(choice),)
    unsure = _miscounted(table, settings, where)
    if unsure:
        options = {**options, **UNFILTERED}
        _LOG.info("%s: Spark's own reader skips no row groups: %s", table.path, unsure)
        text = f"skips no row groups: {unsure}"
        more = Reason(cause=Cause.NOT_APPLICABLE, subject="Spark's own reader", text=text)
        reasons = (*reasons, more)
    if is_connect(spark):
        whole = WholeSchema()
        if table.catalog is None:
            options, whole = schema_for_spark(table, spark, options, listed)
            options = without_sidecars(table, options)
        if table.some is not None:
            options = {**options, "basePath": table.path}
        with whole.in_words(table.path):
            frame = read_connect(
                spark,
                table.path,
                partial(_planned, table, keys),
                where,
                options,
                schema=whole.given,
                paths=None if table.some is None else table.listing().paths,
                keyed=keys is not None,
                catalog=table.catalog,
            )
        frame = whole.in_order(frame)
        return frame if keys is None else keys.joined(frame)
    find = finder({table.path: table.index_location}, store_cache(spark))

    def find_with_choice(relation: RelationInfo) -> Pruner | None:
        pruner = find(relation)
        if isinstance(pruner, FactsPruner):
            pruner.reasons = (*pruner.reasons, *reasons)
        if keys is not None:
            keys.prune(pruner, spark)
        return pruner

    frame = skip(plain_frame(table, spark, options, listed), find_with_choice)
    frame = frame if where is None else frame.where(where)
    return frame if keys is None else keys.joined(frame)


def _miscounted(table: OpenTable, settings: Mapping[str, str], where: str | None) -> str:
    """Why Spark's reader could lose rows of ``where`` by null counts; "" where it does not."""
    texts = wanted_nulls(settings, where) if where is not None and table.is_parquet else set()
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
    table: OpenTable, own: SparkKeys | None, where: str | None, **how: Unpack[PlanOptions]
) -> Plan:
    how["keys"] = own and own.expr
    return planned(table, PlanRequest(where=where, **how)).plan


# -- rows and pages --------------------------------------------------------------------------------


def _ahead(
    table: OpenTable,
    spark: SparkSession,
    settings: Mapping[str, str],
    request: PlanRequest,
    scan: TableScan,
    choice: Choice,
) -> _ChosenRead:
    """The rows of ``scan``; another choice where they are more than a few, or of other types."""
    plain = table.snapshots() is None
    schema = schema_without_spark(table, scan.plan, settings, request.columns) if plain else None
    if schema is None:
        schema, why = schema_by_spark(table, spark, request.columns)
        if schema is None:
            return _ChosenRead(Choice(Way.NATIVE, why), scan)
    with metered() as meter:
        if choice.inside:
            inside = replace(request, inside=True)
            scan, rows = of_one_listing(table, inside, lambda scan: (scan, few_rows(scan)))
        else:
            rows = few_rows(scan)
    if rows is None:
        return _ChosenRead(by_cost(scan), scan)
    frame = local_frame(spark, in_types(rows.select(schema.names), schema), schema)
    took = f"{plural(rows.num_rows, 'row')} from {size(meter.bytes_read)}"
    choice = Choice(Way.AHEAD, f"{took}, planned as {choice.why}")
    return _ChosenRead(choice, scan, _marked(spark, table, frame, scan, choice))


# -- reasons ---------------------------------------------------------------------------------------


def _reason(choice: Choice) -> Reason:
    return Reason(cause=Cause.COSTLY, subject="read by", text=str(choice))


def _marked(
    spark: SparkSession, table: OpenTable, frame: DataFrame, scan: TableScan, choice: Choice
) -> DataFrame:
    """``frame`` with the plan for ``last_scan`` and ``explain``: Spark calls back for neither rows
    nor pages."""
    _LOG.info("%s is read by %s", table.path, choice)
    if is_connect(spark):
        return frame
    plan, forecast = scan.plan, None
    if choice.way is Way.PAGES:
        explanation = scan.explain(look=False)
        plan, forecast = explanation.plan, explanation.forecast
    found = Scan(
        table=table.path,
        roots=(table.path,),
        format="skipstone",
        predicate=plan.predicate,
        files_listed=plan.files_total,
        bytes_listed=plan.bytes_total,
        files_total=plan.files_total,
        bytes_total=plan.bytes_total,
        files_kept=plan.files_kept,
        bytes_kept=plan.bytes_kept,
        report=plan,
        forecast=forecast,
        reasons=(_reason(choice),),
        milliseconds=plan.milliseconds,
    )
    log = scan_log(spark)
    log.planned(found, mark(frame, log, found))
    return frame
