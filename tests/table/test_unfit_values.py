"""Values that do not fit the type that Spark gives their column: an error that names file and
column."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from skipstone.errors import SkipstoneError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"


def table(root: Path, values: pa.Array, spark: str | None = None) -> Table:
    """A file of ``values``, of which Spark's own schema says that they are of type ``spark``."""
    root.mkdir()
    content = pa.table({"c": values})
    with pq.ParquetWriter(root / "a.parquet", content.schema) as writer:
        writer.write_table(content)
        if spark is not None:
            field = {"name": "c", "type": spark, "nullable": True, "metadata": {}}
            schema = {"type": "struct", "fields": [field]}
            writer.add_key_value_metadata({SPARK_SCHEMA: json.dumps(schema)})
    return Table(str(root))


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.query("c > TIMESTAMP_NTZ '2020-01-01'"),
        lambda table: table.count("c > TIMESTAMP_NTZ '2020-01-01'"),
        lambda table: table.min("c"),
        lambda table: table.max("c"),
        lambda table: table.query(order_by="c", limit=1),
        lambda table: table.query(order_by="c desc"),
        lambda table: skipstone.ParquetFile(f"{table.path}/a.parquet").query(
            "c > TIMESTAMP_NTZ '2020-01-01'"
        ),
    ],
)
def test_milliseconds_past_the_range_of_microseconds(
    tmp_path: Path, ask: Callable[[Table], object]
) -> None:
    values = pa.array([1, 1 << 62]).view(pa.timestamp("ms"))
    ours = table(tmp_path / "t", values)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=r"c of \S+a\.parquet is timestamp\[ms\]"):
            ask(Table(ours.path))
        assert ours.query().column("c").combine_chunks().equals(values)
        ours.build(indexes=["c:minmax"])


@pytest.mark.parametrize(
    "values, spark",
    [
        (pa.array([1, 1 << 40]), "integer"),
        (pa.array([1, 1000], pa.int32()), "byte"),
        (pa.array([Decimal(1), Decimal("12345.67")], pa.decimal128(20, 2)), "decimal(5,2)"),
    ],
    ids=["integer", "byte", "decimal"],
)
def test_values_wider_than_spark_says(tmp_path: Path, values: pa.Array, spark: str) -> None:
    """The note is not followed where it contradicts what is stored."""
    ours = table(tmp_path / "t", values, spark)
    assert ours.query("c > 0").column("c").combine_chunks().equals(values)
    assert ours.count("c > 1") == 1


@pytest.mark.parametrize(
    "column, why", [("c", r"it is struct<a: int64>"), ("c.a", "which lies below another column")]
)
def test_an_error_of_min_or_max_says_nothing_of_sorting(
    tmp_path: Path, column: str, why: str
) -> None:
    nested = table(tmp_path / "t", pa.array([{"a": 1}]))
    for ask, which in ((nested.min, "least"), (nested.max, "greatest")):
        with pytest.raises(SkipstoneError, match=f"cannot take the {which} value of {column}") as e:
            ask(column)
        assert why in str(e.value)
        assert "sort" not in str(e.value)
