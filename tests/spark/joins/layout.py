"""Two tables for joins, and a query of both as plain Spark and an enabled session answer it.

``fact`` has ten files of ten rows. ``k`` is 0 to 99 in order, so file i has 10 i to 10 i + 9; ``i``
is the same as int, ``s`` its text, ``day`` a day, ``at`` an instant, ``x`` a double, ``p`` a
decimal, ``b`` bytes, each one to one with ``k``; ``n`` is the number of the file. The last row of
file 9 is NULL everywhere but in ``n``. In file 0, ``x`` is NaN for k = 1 and -0.0 for k = 0.

``dim`` is one file without an index: keys of the same types, some of which ``fact`` lacks, a NULL,
NaN and 0.0; ``c`` tells its rows apart.
"""

from __future__ import annotations

import datetime as dt
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone.spark.joins.keys import MIN_BYTES
from skipstone.spark.session import set_to
from tests.accept.tables import backdate
from tests.spark.layout import rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from skipstone.spark.scans import QueryScans

_DAY = dt.date(2020, 1, 1)
_INSTANT = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
INDEXES = [f"{column}:minmax" for column in ("k", "s", "day", "at", "x", "p", "i", "b")]


def columns(keys: list[int | None]) -> dict[str, Any]:
    """The columns of these keys: one to one with them, but for NaN and the zeros."""

    def each(make: Any, type: pa.DataType) -> pa.Array:
        return pa.array([None if key is None else make(key) for key in keys], type)

    def double(key: int) -> float:
        return {0: -0.0, 1: float("nan")}.get(key, key / 4)

    return {
        "k": each(int, pa.int64()),
        "i": each(int, pa.int32()),
        "s": each(lambda key: f"s{key:03d}", pa.string()),
        "day": each(lambda key: _DAY + dt.timedelta(days=key), pa.date32()),
        "at": each(lambda key: _INSTANT + dt.timedelta(hours=key), pa.timestamp("us", "UTC")),
        "x": each(double, pa.float64()),
        "p": each(lambda key: Decimal(key).scaleb(-1), pa.decimal128(25, 1)),
        "b": each(lambda key: bytes([key % 256, 0]), pa.binary()),
    }


def write(path: Path, keys: list[int | None], **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({**columns(keys), **more}), path)
    backdate(path)


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Settings of the session, with ``__`` for a dot; a job for keys runs whatever it costs."""
    made = {name.replace("__", "."): text for name, text in settings.items()}
    with set_to(spark, {MIN_BYTES: "0", **made}):
        yield


@contextmanager
def session_of(spark: SparkSession) -> Iterator[SparkSession]:
    skipstone.enable(spark)
    try:
        yield spark
    finally:
        skipstone.disable(spark)


def answers(spark: SparkSession, query: str) -> tuple[list[str], list[str], QueryScans]:
    """The rows of a query with ``{f}`` and ``{d}`` through the indexes, those of plain Spark, and
    the scans of the first."""
    # Adaptive plans cost more, and have the same rows.
    with set_to(spark, {"spark.sql.adaptive.enabled": "false"}):
        plain = rows(spark.sql(query.format(f="plain_fact", d="plain_dim")))
    with session_of(spark):
        found = rows(spark.sql(query.format(f="fact", d="dim")))
        return found, plain, skipstone.last_scan(spark)


def both(spark: SparkSession, query: str) -> QueryScans:
    """The scans of a query whose rows are those of plain Spark."""
    found, plain, scans = answers(spark, query)
    assert found == plain, query
    return scans


def uses(scans: QueryScans) -> list[Any]:
    return [use for scan in scans for use in scan.joins]
