"""``Table.read(…, connector=True)``: the format's own connector reads what a plan keeps.

Connectors of Delta Lake and Apache Iceberg prune files only by partition values and bounds: with
``_metadata.file_path IN (…)`` and ``_file IN (…)`` they open every file. So the files that a plan
keeps are described by ranges of columns that other files do not have, where there are such columns:

    (id BETWEEN 4000L AND 4999L OR id BETWEEN 71000L AND 71999L)

**Soundness.** A row that matches lies in a file that the plan keeps. Its value of a column lies
between the bounds that the format has for that file, and so in one of the ranges; or it is null,
and the file may have nulls. This holds in one version of the table, so the connector is pinned to
the version of the plan. The connector decides the rows, with its deletes and the whole ``where`` of
the caller. A column is used only if it has the same type in the connector and in the format.

A predicate of very many ranges costs more than it saves, so the ranges with the smallest gaps are
joined. If the ranges leave out no file, there is no predicate.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.human import of_total
from skipstone.predicate.literals import order_keys
from skipstone.predicate.render import column_sql, literal_sql
from skipstone.predicate.tree import Literal
from skipstone.predicate.types import Kind, kind_of
from skipstone.pruning import Cause, Reason
from skipstone.pruning.interval import Intervals
from skipstone.spark.read_choice import TEXT, harmful_of
from skipstone.spark.read_path import is_ansi
from skipstone.spark.scan_log import scan_log
from skipstone.spark.scans import Scan
from skipstone.spark.schemas import spark_schema
from skipstone.spark.session import ZONE, is_connect, settings_of
from skipstone.spark.skip import mark, unusable_columns

from .planning import planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.pruning.plan import Plan
    from skipstone.table_formats import TableSnapshot

    from .open_table import OpenTable
    from .planning import PlanRequest

_LOG = logging.getLogger("skipstone")

#: the most ranges of one column, columns in ranges, and columns that are considered
MOST_RANGES: Final = 64
_COLUMNS: Final = 3
_LOOKED_AT: Final = 32
# the first and the last day of the years 1 to 9999, in days since 1970
_DAYS: Final = (-719_162, 2_932_896)
_KINDS: Final = (Kind.INTEGER, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.STRING)


def connector_frame(
    table: OpenTable, spark: SparkSession, request: PlanRequest, options: Mapping[str, str]
) -> DataFrame:
    """The rows of ``request.where``, which the connector reads from the current version.

    Raises ``UnsupportedError`` where no connector of the session reads the table.
    """
    snapshots = table.snapshots()
    if snapshots is None:
        raise UnsupportedError(
            f"{table.path} is not a table of a table format, whose connector could read it",
            hint="leave out connector=True",
        )
    table = table.kept_at(kept := snapshots.kept())
    snapshot, where = kept.source.snapshot(), request.where
    frame = _opened(spark, table.path, snapshot, options)
    plan, why = None, "every row is read"
    if where is not None or request.keys is not None:
        plan, schema, why = _planned(table, spark, request, frame)
    left = np.ones(len(snapshot.paths), np.bool_)
    if plan is not None:
        found = _chosen(snapshot, plan, schema.names)
        names = ", ".join(each.column for each in found)
        for each in found:
            left &= ~each.gone
            frame = frame.where(each.sql)
        of_plan = of_total(int(plan.keep.sum()), len(left), "files")
        why = f"it reads all files, for no column sets the {of_plan} of the plan apart"
        if found:
            count = of_total(int(left.sum()), len(left), "files")
            why = f"ranges of {names} leave it {count}; the plan keeps {of_plan}"
    assert isinstance(where, str | None)
    frame = frame if where is None else frame.where(where)
    reason = f"{snapshot.format}'s connector: {why}"
    _LOG.info("%s is read by %s", table.path, reason)
    if not is_connect(spark):
        log, scan = scan_log(spark), _scan(table.path, snapshot, plan, left, reason)
        log.planned(scan, mark(frame, log, scan))
    return frame


def _opened(
    spark: SparkSession, path: str, snapshot: TableSnapshot, options: Mapping[str, str]
) -> DataFrame:
    """All rows of the version, read by the connector."""
    how = snapshot.connector
    if how is None:
        raise UnsupportedError(
            f"{path}: no connector of {snapshot.format} is known here",
            hint="leave out connector=True",
        )
    pinned = {key.lower() for key in how.options} | {"path", "timestampasof", "versionasof"}
    other = sorted(key for key in options if key.lower() in pinned)
    if other:
        raise UnsupportedError(
            f"{other[0]} is not an option here: the connector reads the version of the table",
            hint="name the version where the table is opened: Table(path, version=…)",
        )
    reader = spark.read.format(how.name).options(**options).options(**how.options)
    try:
        frame: DataFrame = reader.load(how.path)
        names = frame.columns  # a request to the server, under Connect
    except Exception as error:  # that of the connector, or of Spark without it
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedError(
            f"{path}: the session has no connector of {snapshot.format} that reads it: {lines[0]}",
            hint=f"start it with the jars and extensions of {snapshot.format}, or leave out"
            " connector=True, which needs none",
        ) from error
    if names != snapshot.schema.names:
        raise UnsupportedError(
            f"{path}: the connector reads the columns {', '.join(names)}, and {snapshot} has "
            f"{', '.join(snapshot.schema.names)}",
            hint="leave out connector=True",
        )
    return frame


def _planned(
    table: OpenTable, spark: SparkSession, request: PlanRequest, frame: DataFrame
) -> tuple[Plan | None, pa.Schema, str]:
    """The plan, and the columns that it and ranges may use; or why there is none.

    A column that has another type in Spark, or that Spark compares differently, is left out: a
    predicate that names it has no plan.
    """
    settings, none = settings_of(spark), pa.schema([])
    against = harmful_of(settings, TEXT)
    if against is not None:
        return None, none, against
    try:
        unusable = {path[0] for path in unusable_columns(frame.schema.json())}
        types = {each.name: each.dataType for each in spark_schema(table, None)}
        schema = pa.schema(
            field
            for field, own in zip(table.schema(table.listing()), frame.schema, strict=True)
            if own.name not in unusable and types.get(own.name) == own.dataType
        )
        asked = replace(
            request,
            columns=None,
            order_by=None,
            limit=None,
            inside=False,
            schema=schema,
            time_zone=settings[ZONE],
            ansi=is_ansi(spark, settings),
        )
        return planned(table, asked).plan, schema, ""
    except (SkipstoneError, OSError) as error:
        return None, none, error.message if isinstance(error, SkipstoneError) else str(error)


# -- ranges ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """A condition on one column that holds for all rows of the files that a plan keeps. By their
    bounds, the files ``gone`` have no row that meets it."""

    column: str
    sql: str
    gone: NDArray[np.bool_]


def _chosen(snapshot: TableSnapshot, plan: Plan, columns: list[str]) -> list[Ranges]:
    """The conditions that together leave out the most bytes."""
    if plan.keep.all() or len({each.lower() for each in columns}) < len(columns):
        return []
    known = list(filter(None, (ranges_of(*each, plan.keep) for each in _known(snapshot, columns))))
    left, chosen = np.ones(len(plan.keep), np.bool_), []
    for _ in range(min(_COLUMNS, len(known))):
        best = max(known, key=lambda each: int(snapshot.sizes[each.gone & left].sum()))
        if not (best.gone & left).any():
            break
        chosen.append(best)
        left &= ~best.gone
    return chosen


def _known(snapshot: TableSnapshot, columns: list[str]) -> Iterator[tuple[str, Intervals]]:
    """The first columns whose values the format knows, partition columns before others."""
    schema = snapshot.table_schema.merged.spark
    # A file that lacks a column with a default has no bounds of what is read there.
    usable = [each for each in columns if each not in snapshot.defaults]
    usable = [each for each in usable if kind_of(schema.field(each).type) in _KINDS]
    usable.sort(key=lambda each: each not in snapshot.partitions)
    for column in usable[:_LOOKED_AT]:
        if column in snapshot.partitions:
            values, type = snapshot.partitions[column], schema.field(column).type
            keys, empty = order_keys(values, type), np.asarray(values.is_null()).astype(np.int64)
            yield (
                column,
                Intervals(
                    type=type, lo=keys, hi=keys, rows=np.ones(len(values), np.int64), nulls=empty
                ),
            )
        elif (found := snapshot.statistics(column_sql((column,)))) is not None:
            yield column, found


def ranges_of(column: str, known: Intervals, keep: NDArray[np.bool_]) -> Ranges | None:
    """The ranges; ``None`` if a kept file has no bounds, or if no file would be left out."""
    bounded = known.lo.valid & known.hi.valid
    only_nulls = (known.nulls == known.rows) & (known.nulls > 0)
    if (keep & ~bounded & ~only_nulls).any():
        return None
    low, high, values = _as_numbers(known)
    inside = keep & bounded
    lows, highs, apart = _joined(low[inside], high[inside], low, high, ~keep & bounded)
    may_be_null = bool((known.nulls[keep] != 0).any())
    gone = apart & (known.nulls == 0) if may_be_null else apart | (~keep & only_nulls)
    if not gone.any():
        return None
    name, terms = column_sql((column,)), []
    for first, last in zip(lows.tolist(), highs.tolist(), strict=True):
        ends = _text(values(first), known.type), _text(values(last), known.type)
        if None in ends:
            return None
        terms.append(f"{name} BETWEEN {ends[0]} AND {ends[1]}")
    if may_be_null:
        terms.append(f"{name} IS NULL")
    return Ranges(column, f"({' OR '.join(terms) or 'FALSE'})", gone)


def _as_numbers(
    known: Intervals,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Callable[[int], int | bytes]]:
    """The bounds as numbers in the same order, and a function from a number to its value."""
    lo, hi = known.lo.data, known.hi.data
    if isinstance(lo, np.ndarray) and isinstance(hi, np.ndarray):
        return lo, hi, lambda number: number
    encoded = pa.concat_arrays([lo, hi]).dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    rank = np.zeros(max(len(order), 1), np.int64)
    rank[np.asarray(order)] = np.arange(len(order))
    ranks = rank[numbers(encoded.indices).astype(np.int64)]
    values = pc.take(encoded.dictionary, order)
    return ranks[: len(lo)], ranks[len(lo) :], lambda number: values[number].as_py()


def _joined(
    kept_low: NDArray[np.int64],
    kept_high: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    others: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The ends of few ranges that cover all kept files, and which of the ``others`` lie in none."""
    count = len(kept_low)
    if not count:
        return kept_low, kept_low, others
    order = np.argsort(kept_low, kind="stable")
    firsts, ends = kept_low[order], np.maximum.accumulate(kept_high[order])
    starts = np.flatnonzero(np.r_[True, firsts[1:] > ends[:-1]])
    lows, highs = firsts[starts], ends[np.r_[starts[1:], count] - 1]
    # Gap i is below range i. A file lies in the gap above the last range that begins before it.
    gap = np.searchsorted(lows, low, "right")
    above = (gap == 0) | (low > np.r_[highs[:1], highs][gap])
    below = (gap == len(lows)) | (high < np.r_[lows, lows[-1:]][gap])
    apart = others & above & below
    # Gaps that part ranges: those with files in them, and of too many those with the most.
    files = np.bincount(gap[apart], minlength=len(lows) + 1)
    parting = np.flatnonzero(files[1:-1]) + 1
    if len(parting) >= MOST_RANGES:
        most = np.argsort(-files[parting], kind="stable")
        parting = np.sort(parting[most[: MOST_RANGES - 1]])
    outer = (gap == 0) | (gap == len(lows))
    apart &= outer | np.isin(gap, parting)
    return lows[np.r_[0, parting]], highs[np.r_[parting, len(lows)] - 1], apart


def _text(value: int | bytes, type: pa.DataType) -> str | None:
    """A bound as SQL; ``None`` for half a character, and for a date that Spark's SQL may refuse."""
    if isinstance(value, bytes):
        try:
            return literal_sql(Literal(value.decode(), type))
        except UnicodeDecodeError:
            return None
    if kind_of(type) is not Kind.INTEGER:
        days = value if kind_of(type) is Kind.DATE else value // 86_400_000_000
        if not _DAYS[0] <= days <= _DAYS[1]:
            return None
    return literal_sql(Literal(value, type))


# -- reports --------------------------------------------------------------------------------------


def _scan(
    path: str, snapshot: TableSnapshot, plan: Plan | None, left: NDArray[np.bool_], reason: str
) -> Scan:
    """The scan for ``last_scan`` and ``explain``: the files that the ranges keep. The connector may
    leave out more by ``where``."""
    sizes = snapshot.sizes
    return Scan(
        table=path,
        roots=(path,),
        format=snapshot.format,
        predicate=None if plan is None else plan.predicate,
        files_listed=len(sizes),
        bytes_listed=int(sizes.sum()),
        files_total=len(sizes),
        bytes_total=int(sizes.sum()),
        files_kept=int(left.sum()),
        bytes_kept=int(sizes[left].sum()),
        report=plan,
        reasons=(Reason(cause=Cause.COSTLY, subject="read by", text=reason),),
        milliseconds={} if plan is None else plan.milliseconds,
    )
