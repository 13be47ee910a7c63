"""``watch``: an index that stays fresh while files arrive."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from skipstone.errors import SkipstoneError

from .data_files import SourceReading
from .table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skipstone.facts.reports import BuildReport
    from skipstone.spark.watch import Watch

__all__ = ["watch"]


def watch(
    spark: SparkSession,
    table: Table | str,
    *,
    interval: float = 10.0,
    name: str | None = None,
    **options: Any,
) -> Watch:
    """Keep the index of ``table`` fresh: a streaming query that looks every ``interval`` seconds.

    New and replaced files get the indexes that the table has, in folders at any depth; a look that
    finds none costs a listing. ``table`` is a path or a ``Table``, ``name`` the query's, and
    ``options`` are those of ``Table.refresh`` (``memory``, ``pm``). Build an index first.

    ``stop()``, ``awaitTermination()`` and ``lastProgress`` are the query's. A refresh that fails is
    told by a warning and ``last_error``, and tried again. There is nothing to check-point: a watch
    that is started again goes on where the index stands. Watches and builds may run side by side.

    Raises ``SkipstoneError`` for a table without an index, before anything is started.
    """
    from skipstone.spark.session import is_connect, require_session
    from skipstone.spark.watch import start_watch

    require_session(spark)
    watched = Table(table) if isinstance(table, str) else table
    watched.store.require_own()
    if not watched.store.snapshot().definitions:
        raise SkipstoneError(
            f"{watched.path} has no index", hint=f"run `skipstone build {watched.path}` first"
        )
    refresh = partial(_anew, _arguments(watched), options) if is_connect(spark) else None
    return start_watch(
        spark,
        watched.path,
        refresh or partial(_again, watched, options),
        interval=interval,
        name=name,
    )


def _again(table: Table, options: dict[str, Any], spark: SparkSession) -> BuildReport:
    return table.refresh(spark, **options)


def _anew(arguments: dict[str, Any], options: dict[str, Any], spark: SparkSession) -> BuildReport:
    """At a server of Spark Connect, where there is no ``Table`` yet."""
    return Table(**arguments).refresh(spark, **options)


def _arguments(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = {
        "path": table.path,
        "index_location": table.index_location,
        "storage_options": table.storage_options,
        "partial": table.partial,
    }
    if isinstance(table.reading, SourceReading):
        source = table.reading.source
        found |= {"format": source.format, "options": source.options, "schema": source.schema}
    return found
