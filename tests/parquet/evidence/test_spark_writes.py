"""Files that Spark writes, with Bloom filters, page indexes and INT96: no row of them is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.types import schema_from_spark
from tests.parquet.evidence.written import Written

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = """id, CAST(id * 7919 % 10007 AS INT) AS i, id * 7919 % 10007 AS l,
    CAST(id * 7919 % 10007 AS DOUBLE) / 4 AS d, CAST(id * 7919 % 10007 AS FLOAT) / 4 AS f,
    CAST(id * 7919 % 10007 AS STRING) AS s, CAST(CAST(id * 7919 % 10007 AS STRING) AS BINARY) AS b,
    CAST(id * 7919 % 10007 AS DECIMAL(7, 2)) AS small,
    CAST(id * 7919 % 10007 AS DECIMAL(30, 2)) AS wide,
    DATE_ADD(DATE'2020-01-01', CAST(id * 7919 % 10007 AS INT)) AS day,
    TIMESTAMP_MICROS(id * 7919 % 10007) AS ts"""
ABSENT = [
    "i = 10006 AND id < 0",
    "l = 4111222",
    "d = 0.1",
    "d = -0.0 AND f = 5000",
    "f = 0.3",
    "s = '4111x'",
    "b = X'00FF'",
    "small = 4111.5",
    "wide = 4111.5",
    "day = DATE'2019-12-31'",
]


@pytest.fixture(scope="module")
def file(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spark") / "table"
    rows = spark.sql(f"SELECT {COLUMNS} FROM range(2000)")
    writer = rows.coalesce(1).write.option("parquet.block.row.count.limit", 500)
    for name in rows.columns:
        writer = writer.option(f"parquet.bloom.filter.enabled#{name}", "true")
        writer = writer.option(f"parquet.enable.dictionary#{name}", "false")
    writer = writer.option("parquet.page.row.count.limit", 100)
    writer.parquet(str(folder))
    (found,) = folder.glob("*.parquet")
    return found


def schema_of(spark: SparkSession, file: Path) -> Any:
    return schema_from_spark(spark.read.parquet(str(file)).schema.json())


def test_plans_keep_the_rows_that_spark_reads(spark: SparkSession, file: Path) -> None:
    written = Written(file.read_bytes())
    table = spark.read.parquet(str(file))
    schema = schema_of(spark, file)
    rows = table.collect()
    assert len({row.id for row in rows}) == 2000
    for column in table.columns:
        for at in (3, 777, 1999):
            value = rows[at][column]
            literal = {
                "s": f"'{value}'",
                "b": f"X'{bytes(value).hex()}'" if column == "b" else "",
                "day": f"DATE'{value}'",
                "ts": f"TIMESTAMP'{value}'",
                "d": f"CAST('{value}' AS DOUBLE)",
                "f": f"CAST('{value}' AS FLOAT)",
            }.get(column, str(value))
            text = f"{column} = {literal}"
            plan = written.plan(bind(parse_sql(text), schema))
            kept = written.kept(plan)[0].tolist()
            assert at in kept, text
            # Of INT96, as Spark writes timestamps, there are no bounds.
            assert len(kept) < 2000 or column == "ts", text


def test_what_is_in_no_row_group_is_excluded(spark: SparkSession, file: Path) -> None:
    written = Written(file.read_bytes())
    schema = schema_of(spark, file)
    for text in ABSENT:
        plan = written.plan(bind(parse_sql(text), schema))
        kept = written.kept(plan)[0]
        # Some are false positives of a filter; hardly all of them.
        assert len(kept) < 2000, text
