"""What a build takes a file's column for is what Spark reads: each type of a file as each type of a
table."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.predicate.literals import order_keys
from skipstone.predicate.types import spark_name
from skipstone.pruning.column_types import exactly
from tests.strategies import ARROW_TYPES, SPARK_TYPES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TABLE_TYPES = (*SPARK_TYPES, pa.duration("us"))
FILE_TYPES = (*ARROW_TYPES, pa.duration("us"), pa.decimal128(9, 0), pa.float32())


def some(type: pa.DataType) -> pa.Array:
    """A few values of a type, its edges among them, and a null."""
    t = pa.types
    if t.is_dictionary(type):
        return pa.array(["a", None, "é"]).dictionary_encode().cast(type)
    if t.is_boolean(type):
        return pa.array([True, None, False])
    if t.is_integer(type):
        low = 0 if t.is_unsigned_integer(type) else -(2 ** (type.bit_width - 1))
        high = 2 ** (type.bit_width - (0 if t.is_unsigned_integer(type) else 1)) - 1
        return pa.array([0, 1, None, low, high, high // 3], type)
    if t.is_floating(type):
        return pa.array([0.0, -1.5, None, float("inf"), 16777217.0, 0.1], type)
    if t.is_decimal(type):
        most = 10 ** (type.precision - type.scale) - 1
        return pa.array([0, 1, None, -most, most], pa.decimal128(38, 0)).cast(type)
    if t.is_string(type) or t.is_large_string(type):
        return pa.array(["", "a", None, "é"], type)
    if t.is_binary(type) or t.is_large_binary(type):
        return pa.array([b"", b"a", None, "é".encode()], type)
    if t.is_date(type):
        return pa.array([0, -1, None, 20_000], type)
    scale = 1 if t.is_duration(type) else {"us": 1, "ms": 1_000}[type.unit]
    return pa.array([0, 1, None, 1_729_989_000_000_000 // scale], type)


def seen_by_spark(spark: SparkSession, path: Path, type: pa.DataType) -> list[Any] | None:
    """The values of column ``c`` as keys, ``None`` where Spark refuses to read it as ``type``."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    frame = spark.read.schema(f"c {spark_name(type)}").parquet(str(path))
    number = pa.types.is_temporal(type)
    unit = {"date": "unix_date(c)", "timestamp": "unix_micros(c)"}
    local = "unix_micros(cast(c AS timestamp))"
    asked = unit.get(spark_name(type), local) if number else "c"
    if pa.types.is_duration(type):
        parts = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000}
        asked = " + ".join(f"extract({part} FROM c) * {n}L" for part, n in parts.items())
        asked += " + cast(extract(SECOND FROM c) * 1000000 AS bigint)"
    try:
        rows = frame.selectExpr(f"{asked} AS c").collect()
    except (Py4JJavaError, PySparkException):
        return None
    found = [row[0] for row in rows if row[0] is not None]
    plain = pa.int64() if number else type
    return sorted(map(repr, order_keys(pa.array(found, plain), plain).to_list()))


def test_every_type_of_a_file_as_every_type_of_a_table(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wrong, read, refused = [], 0, []
    # Tasks fail by design here, each with a page of stack trace.
    spark.sparkContext.setLogLevel("OFF")
    request.addfinalizer(lambda: spark.sparkContext.setLogLevel("ERROR"))
    for at, stored in enumerate(FILE_TYPES):
        path = tmp_path / f"{at}.parquet"
        values = some(stored)
        pq.write_table(pa.table({"c": values}), path)
        os.utime(path, (1, 1))
        for table in TABLE_TYPES:
            exact = exactly(values, table)
            if exact is None:
                continue
            keys = order_keys(exact.drop_null(), table).to_list()
            theirs = seen_by_spark(spark, path, table)
            read += theirs is not None
            refused += [(stored, table)] if theirs is None else []
            if theirs is not None and theirs != sorted(map(repr, keys)):
                wrong.append((str(stored), str(table), theirs, sorted(map(repr, keys))))
    assert wrong == []
    # A type is read as itself, and what Spark refuses is one of the rarer widenings.
    assert read >= 2 * len(refused)
    assert not [pair for pair in refused if pair[0] == pair[1]]
