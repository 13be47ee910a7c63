"""The face over all of it: ``Table``, and the functions of the package that take a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from skipstone.spark.facts import Locations

    from .table import Where

__all__ = ["Table", "explain", "last_scan", "read", "skip"]


def skip(df: DataFrame, index_location: Locations = None) -> DataFrame:
    """``df`` reading only the files that its filters need, wherever it reads an indexed table.

    Works on any DataFrame of a classic session: paths, views, catalog tables, joins, aggregates.
    ``index_location`` says where the index is when it is not beside the table: one for all tables,
    or a mapping from table path to location. A location may be one of Xskipper's stores
    (``XskipperLocation``). Rows are those of plain Spark; relations without an
    index are read as ever.
    """
    from skipstone.spark.facts import finder
    from skipstone.spark.session import is_connect, require_frame
    from skipstone.spark.skip import skip as skip_frame
    from skipstone.spark.store_cache import shelf

    require_frame(df)
    kept = None if is_connect(df) else shelf(df.sparkSession)
    return skip_frame(df, finder(index_location, kept))


def read(
    spark: SparkSession,
    path: str,
    where: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    order_by: str | Sequence[str] | None = None,
    limit: int | None = None,
    **options: str,
) -> DataFrame:
    """``Table(path).read(spark, where, …)``: classic sessions and Spark Connect alike."""
    table = Table(path)
    return table.read(spark, where, columns=columns, order_by=order_by, limit=limit, **options)


def explain(what: DataFrame | str, where: Where = None) -> Any:
    """What would be read and why: of a DataFrame (its scans) or of a table's path and ``where``."""
    if isinstance(what, str):
        return Table(what).explain(where)
    from skipstone.spark.session import require_frame
    from skipstone.spark.skip import explain as explain_frame

    require_frame(what)
    return explain_frame(what)


def last_scan(spark: SparkSession) -> Any:
    """Every file scan of this thread's last query: files and bytes kept of the total, and why."""
    from skipstone.spark.last_scan import last_scan as last
    from skipstone.spark.session import require_session

    require_session(spark)
    return last(spark)
