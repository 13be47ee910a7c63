"""``fact`` and ``dim`` of ``layout``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import skipstone
from skipstone import Table
from tests.spark.joins.layout import INDEXES, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """``fact`` and ``dim`` through an enabled session, ``plain_fact`` as Spark reads it."""
    root = tmp_path_factory.mktemp("joins")
    for number in range(10):
        keys: list[int | None] = list(range(number * 10, number * 10 + 10))
        if number == 9:
            keys[-1] = None
        n = pa.array([number] * 10, pa.int32())
        write(root / "fact" / f"part-{number}.parquet", keys, n=n)
    Table(str(root / "fact")).build(indexes=INDEXES)
    of_dim: list[int | None] = [0, 1, 5, 17, 17, 33, 34, 95, 500, -7, None]
    write(root / "dim" / "all.parquet", of_dim, c=pa.array(range(len(of_dim)), pa.int64()))
    for name in ("fact", "dim"):
        spark.read.parquet(str(root / name)).createOrReplaceTempView(f"plain_{name}")
    skipstone.enable(spark)
    for name in ("fact", "dim"):
        spark.read.parquet(str(root / name)).createOrReplaceTempView(name)
    skipstone.disable(spark)
    yield root
    for view in ("fact", "dim", "plain_fact", "plain_dim"):
        spark.catalog.dropTempView(view)
