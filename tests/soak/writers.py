"""Writes a file of a table by pyarrow, DuckDB, polars or Spark."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_file(
    path: str, rows: pa.Table, writer: str, how: Mapping[str, Any], changed: int
) -> None:
    """Write ``rows`` to ``path``, last modified at ``changed`` (seconds)."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).unlink(missing_ok=True)
    if writer == "duckdb":
        import duckdb

        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            relation = connection.from_arrow(rows)
            relation.write_parquet(path, **how)
    elif writer == "polars":
        import polars as pl

        frame = pl.DataFrame(pl.from_arrow(rows))
        frame.write_parquet(path, **how)
    elif writer == "pyarrow-no-row-groups":
        pq.ParquetWriter(path, rows.schema).close()
    elif writer == "spark":
        write_by_spark(path, rows, how)
    else:
        pq.write_table(rows, path, **how)
    os.utime(path, (changed, changed))


def write_by_spark(path: str, rows: pa.Table, how: Mapping[str, Any]) -> None:
    """By the session of this process; ``how`` are options of the writer and ``timestamps``.

    Timestamps without a zone stay what they are: without a schema Spark takes them for instants.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema

    spark = SparkSession.getActiveSession()
    if spark is None:
        from tests.soak.spark import session

        spark = session()
    options = dict(how)
    spark.conf.set("spark.sql.parquet.outputTimestampType", options.pop("timestamps"))
    with tempfile.TemporaryDirectory() as folder:
        schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
        frame = spark.createDataFrame(rows, schema).coalesce(1)
        frame.write.options(**options).parquet(f"{folder}/t")
        (written,) = Path(folder, "t").glob("part-*.parquet")
        shutil.move(written, path)
