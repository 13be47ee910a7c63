"""The rows of ``Table.read`` by ``format("skipstone")``, which reads planned pages in workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import UnsupportedError
from skipstone.spark.read_choice import against_pages
from skipstone.spark.versions import no_data_sources
from skipstone.storage import needs_session

from .spark_read_schema import schema_by_spark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from .open_table import OpenTable
    from .planning import PlanRequest


_SHOWN = {"endpoint", "region", "skip_signature"}  # options of a store that plans may show


def why_no_pages(
    table: OpenTable,
    settings: Mapping[str, str],
    where: str | None,
    options: Mapping[str, str],
) -> str | None:
    """Why reading pages is impossible, independent of its cost; ``None`` if it is possible."""
    if not table.is_parquet:
        return "source files"
    if table.catalog is not None:
        return "a table of the catalog, which has its schema and partitions"
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
    if needs_session(table.path) or needs_session(table.location.root):
        return "only the session reaches its files, and not Spark's workers"
    given = sorted(table.storage_options)
    secret = [each for each in given if each not in _SHOWN]
    if secret or (given and table.snapshots() is None):  # other tables have Spark's own reader
        return f"Spark's plans would show options of the object store: {', '.join(secret or given)}"
    return against_pages(settings, where)


def paged(
    table: OpenTable, spark: SparkSession, request: PlanRequest
) -> tuple[DataFrame | None, str]:
    """The rows by pages in workers; or why that is impossible."""
    if table.some is not None:
        return None, "format skipstone reads all files of a table"
    own, why = schema_by_spark(table, spark, request.columns)
    if own is None:
        return None, why
    order_by, limit = request.order_by, request.limit
    order = order_by if isinstance(order_by, str) or order_by is None else ", ".join(order_by)
    given = {
        "where": request.where,
        "orderBy": order,
        "limit": None if limit is None else str(limit),
        "timeZone": request.time_zone,
        "indexLocation": table.index_location if table.names_index else None,
        "memory": table.memory,
        "verifyChecksums": None if table.verify_checksums else "false",
        "version": table.version,
        **table.lookup,
        **{f"storage.{key}": each for key, each in table.storage_options.items()},
    }
    options = {key: str(value) for key, value in given.items() if value is not None}
    try:
        frame = spark.read.schema(own).format("skipstone").options(**options).load(table.path)
        if frame.columns != own.names:  # a request to the server, under Connect
            return None, "Spark gives the columns in another order"
    except Exception as error:  # such as a server without Skipstone: Spark's reader remains
        return None, f"format skipstone is not available: {_in_words(error)}"
    return frame, ""


def pages_of(
    table: OpenTable, spark: SparkSession, request: PlanRequest, against: str | None
) -> DataFrame:
    """The rows by pages in workers; ``UnsupportedError`` where that is impossible, as ``against``
    says already, or Spark."""
    frame, why = (None, against) if against else paged(table, spark, request)
    if frame is None:
        raise UnsupportedError(
            f"{table.path}: Spark cannot read the table by pages: {why}",
            hint="read it in this process, with Table.query",
        )
    return frame


def _in_words(error: Exception) -> str:
    """Spark's error in one line, without the class of its exception and Python's stack."""
    text = str(error)
    if "DATA_SOURCE_NOT_FOUND" in text:
        return (
            "the Python of Spark's workers does not have Skipstone: set PYSPARK_PYTHON to one that "
            "has, before the session starts"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("[")), lines[0] if lines else "")
