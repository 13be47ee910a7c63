"""`build` and `refresh`."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from skipstone.errors import SkipstoneError

from .options import index_options, reporting, size, source_options, spark_options, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from skipstone.index.kind import Index
    from skipstone.index.questdb.making import PmMode

    from .output import Output

__all__ = ["build", "definitions", "refresh"]

# Paimon's way to name columns.
_LISTS_COLUMNS = re.compile(r"file-index\.[a-z-]+\.columns$")
_JAVA = "install Java 17 or newer, or build without Spark: --no-spark"


@contextmanager
def _session(master: str, *, no_spark: bool) -> Iterator[SparkSession | None]:
    """A session of this call's own, stopped afterwards; ``None`` without Spark."""
    if no_spark:
        yield None
        return
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise SkipstoneError("Spark needs Java, and there is none on the PATH", hint=_JAVA)
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    from skipstone.spark.session import default_session

    running = SparkSession.getActiveSession()
    try:
        spark = default_session(master=master)
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SkipstoneError("Java did not start Spark", hint=_JAVA) from error
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


_pm = click.option(
    "--pm",
    type=click.Choice(["external", "inlined", "none"]),
    default="external",
    show_default=True,
    help="Row group metadata of each file (_pm): with the places of its Bloom filters, with the "
    "filters themselves, or none at all.",
)


def definitions(columns: Sequence[str]) -> list[Index]:
    """The indexes that ``-c`` spelled, ``a:x,y(p=1)`` being two; ``UsageError`` for other text."""
    from skipstone.index.registry import parse_indexes

    try:
        return parse_indexes(columns)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@click.command()
@index_options
@source_options
@click.option(
    "-c",
    "--column",
    "columns",
    metavar="COLUMN:KIND[,KIND...]",
    multiple=True,
    help="Index this column; may be given again. Kinds take parameters: id:bloom(fpp=0.001).",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=size,
    default="512MiB",
    show_default=True,
    envvar="SKIPSTONE_MEMORY",
    show_envvar=True,
    help="What one task may hold; an index that needs more is left out for that file.",
)
@_pm
@spark_options
@reporting
def build(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    columns: tuple[str, ...],
    memory: int,
    pm: PmMode,
    master: str,
    no_spark: bool,
    out: Output,
) -> None:
    """Index the files of TABLE that have no facts yet.

    One Spark job reads each file once, and of it only the indexed columns. What was finished
    counts: after a kill, the same command goes on from there. A new index is added to those that
    there are.

    \b
      skipstone build data/events -c user_id:bloom -c ts:minmax
      skipstone build data/events -c "country:valuelist" -c "user.name:minmax,bloom(fpp=0.001)"
      skipstone build data/events -c city:bitmap -c age:rangebitmap
      skipstone build data/events --option file-index.bitmap.columns=city,zip \\
                                  --option file-index.bitmap.zip.index-block-size=32kb
    """
    options = click.get_current_context().meta.get("skipstone.options") or {}
    if not columns and not any(_LISTS_COLUMNS.match(key) for key in options):
        raise click.UsageError(
            "nothing to build: name columns and kinds with -c, `skipstone advise` proposes some"
        )
    indexes = definitions(columns)
    target = table_of(table, index_location, storage_options)
    with (
        _session(master, no_spark=no_spark) as spark,
        out.progress("indexing") as progress,
    ):
        report = target.build(spark, indexes, memory=memory, progress=progress, pm=pm)
    out.result(report)


@click.command()
@index_options
@source_options
@_pm
@spark_options
@reporting
def refresh(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    pm: PmMode,
    master: str,
    no_spark: bool,
    out: Output,
) -> None:
    """Index new and changed files of TABLE with the indexes that it has.

    Files whose facts are fresh are not read. Many small parts are merged on the way.
    """
    target = table_of(table, index_location, storage_options)
    with (
        _session(master, no_spark=no_spark) as spark,
        out.progress("refreshing") as progress,
    ):
        report = target.refresh(spark, progress=progress, pm=pm)
    out.result(report)
