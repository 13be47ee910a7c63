"""Tables whose files differ, read by Spark: the schema is that of all files on each route."""

from __future__ import annotations

import datetime as dt
import zlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.errors import UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

INT = pa.table({"v": pa.array([1], pa.int32())})
LONG = pa.table({"v": pa.array([3_000_000_000], pa.int64())})
FLOAT = pa.table({"v": pa.array([0.5], pa.float32())})
DOUBLE = pa.table({"v": pa.array([0.1, 1e300])})
LESS = pa.table({"v": [1], "s": [{"a": 1}]})
MORE = pa.table({"v": [2], "s": [{"A": 2, "b": 3}], "late": ["x"]})

TABLES = {
    "integers": ([INT, LONG], "struct<v:bigint>", "v > 2999999999", 1),
    "floats": ([FLOAT, DOUBLE], "struct<v:double>", "v > 1e38", 1),
    "columns": ([LESS, MORE], None, "late = 'x'", 1),
}


def rows(frame: DataFrame) -> list[Any]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=repr)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_each_route_has_the_schema_of_all_files(
    session: SparkSession, tmp_path: Path, name: str, indexed: bool
) -> None:
    files, schema, where, count = TABLES[name]
    # The order of files has a say in their schema, and none in what an index skips.
    for number, order in enumerate((files,) if indexed else (files, files[::-1])):
        root = tmp_path / f"t{number}"
        root.mkdir()
        for at, content in enumerate(order):
            pq.write_table(content, root / f"{at}.parquet")
        if indexed:
            Table(str(root)).build(indexes=["v:minmax"])
        table = Table(str(root))
        whole = table.read(session)
        source = session.read.format("skipstone").load(str(root))
        if schema is not None:
            assert whole.schema.simpleString() == schema
        assert whole.schema == source.schema
        every = rows(whole)
        assert every == rows(source)
        assert len(every) == sum(each.num_rows for each in files)
        assert len(rows(table.read(session, where))) == count
        assert table.count(where) == count


def test_it_is_that_of_merge_schema_where_spark_merges(spark: SparkSession, tmp_path: Path) -> None:
    for at, content in enumerate((LESS, MORE)):
        pq.write_table(content, tmp_path / f"{at}.parquet")
    merged = spark.read.option("mergeSchema", "true").parquet(str(tmp_path))
    found = Table(str(tmp_path)).read(spark)
    assert found.schema == merged.schema
    assert rows(found) == rows(merged)


def test_types_that_do_not_merge_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"v": ["x"]}), tmp_path / "1.parquet")
    with pytest.raises(UnsupportedError, match="do not merge"):
        Table(str(tmp_path)).read(spark)


def without_type(root: Path, typed: pa.Array, untyped: pa.Array) -> Table:
    root.mkdir()
    pq.write_table(pa.table({"id": [1], "v": typed}), root / "0.parquet")
    pq.write_table(pa.table({"id": [2], "v": untyped}), root / "1.parquet")
    return Table(str(root))


NULLS = pa.nulls(1)
TYPED = {
    "boolean": (pa.array([True]), NULLS),
    "smallint": (pa.array([1], pa.int16()), NULLS),
    "bigint": (pa.array([1]), NULLS),
    "unsigned": (pa.array([2**64 - 1], pa.uint64()), NULLS),
    "float": (pa.array([1.5], pa.float32()), NULLS),
    "double": (pa.array([1.5]), NULLS),
    "date": (pa.array([dt.date(2024, 2, 29)]), NULLS),
    "timestamp": (pa.array([10**15], pa.timestamp("us", "UTC")), NULLS),
    "timestamp_ntz": (pa.array([10**15], pa.timestamp("us")), NULLS),
    "text": (pa.array(["x"]), NULLS),
    "binary": (pa.array([b"x"]), NULLS),
    "decimal": (pa.array([Decimal("1.50")]), NULLS),
    "list": (pa.array([[1]]), NULLS),
    "struct": (pa.array([{"a": 1}]), NULLS),
    "map": (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), NULLS),
    "element": (pa.array([["x"]]), pa.array([[None]])),
    "field": (pa.array([{"A": "x"}]), pa.array([{"a": None}])),
    "value": (
        pa.array([[("k", "x")]], pa.map_(pa.string(), pa.string())),
        pa.array([[("k", None)]], pa.map_(pa.string(), pa.null())),
    ),
}


@pytest.mark.parametrize("name", TYPED)
def test_a_column_may_have_no_type_in_a_file(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = without_type(tmp_path / "t", *TYPED[name])
    every = rows(spark.read.format("skipstone").load(table.path))
    assert [row["id"] for row in every] == [1, 2]
    assert every[0]["v"] is not None
    assert rows(table.read(spark)) == every
    assert rows(table.read(spark, "id > 1")) == every[1:]
    assert rows(table.read(spark, "v IS NOT NULL", columns=["v"]))[:1] == [{"v": every[0]["v"]}]


@pytest.mark.parametrize(
    "untyped, type",
    [
        (NULLS, "int"),
        (TYPED["element"][1], "array<int>"),
        (TYPED["field"][1], "struct<a:int>"),
        (TYPED["value"][1], "map<string,int>"),
    ],
)
def test_a_column_may_have_no_type_in_any_file(
    spark: SparkSession, tmp_path: Path, untyped: pa.Array, type: str
) -> None:
    """Spark reads the type as which it is stored, also where another column widens."""
    for at, width in enumerate((pa.int8(), pa.int64())):
        table = pa.table({"id": pa.array([at], width), "v": untyped})
        pq.write_table(table, tmp_path / f"{at}.parquet")
    found = Table(str(tmp_path)).read(spark)
    assert found.schema.simpleString() == f"struct<id:bigint,v:{type}>"
    assert [row["id"] for row in rows(found)] == [0, 1]
    assert rows(spark.read.format("skipstone").load(str(tmp_path))) == rows(found)
    pq.write_table(table.slice(1), tmp_path / "0.parquet")
    pq.write_table(table, tmp_path / "1.parquet")
    alone = Table(str(tmp_path)).read(spark)
    assert alone.schema == found.schema == spark.read.parquet(str(tmp_path)).schema


def test_spark_decides_the_rows_where_a_column_has_no_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = without_type(tmp_path / "t", *TYPED["text"])
    # crc32 is a function that only Spark knows
    found = table.read(spark, f"crc32(v) = {zlib.crc32(b'x')}", order_by="id desc", limit=1)
    assert rows(found) == [{"id": 1, "v": "x"}]
    keys = spark.createDataFrame([(2, 2), (3, 3)], "id bigint, w bigint").select("id")
    assert rows(table.read(spark, keys=keys)) == [{"id": 2, "v": None}]


def test_spark_reads_the_other_columns_itself(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = without_type(tmp_path / "t", *TYPED["text"])
    with caplog.at_level("INFO", "skipstone"):
        assert rows(table.read(spark, columns=["id"])) == [{"id": 1}, {"id": 2}]
        assert "is read by Spark's own reader" in caplog.messages[-1]
        table.read(spark, columns=["id"], order_by="V")
        reason = "Spark's own reader fails on files in which v has no type"
        assert f"{table.path} is read by planned pages: {reason}" in caplog.messages
        # an option of Spark's reader, which pages do not have
        found = table.read(spark, ignoreCorruptFiles="false")
        warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert len(warned) == 1
        assert warned[0].startswith(f"{reason}, and {table.path}: Spark cannot read the table by")
        assert rows(found.select("id")) == [{"id": 1}, {"id": 2}]
