"""Tables whose files differ, read by Spark: the schema is that of all files on each route."""

from __future__ import annotations

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
