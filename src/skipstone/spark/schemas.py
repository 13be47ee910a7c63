"""Spark's types for the columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.errors import UnsupportedError
from skipstone.execution.table_types import output_schema
from skipstone.predicate.types import spark_type

from .session import Jvm, is_connect
from .versions import to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def spark_schema(table: Any, columns: Sequence[str] | None) -> StructType:
    """``columns`` of a table (``None``: all) with Spark's types."""
    return spark_types(output_schema(table.schema(table.listing()), columns))


def spark_types(arrow: pa.Schema) -> StructType:
    """Spark's types for a schema; ``UnsupportedError`` where Spark has none."""
    fields = [pa.field(each.name, _canonical(each.type, each.name)) for each in arrow]
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)


def _canonical(type: pa.DataType, name: str) -> pa.DataType:
    """The Arrow type of Spark's type for ``type``; ``UnsupportedError`` where Spark has none."""
    t = pa.types
    if t.is_dictionary(type):
        return _canonical(type.value_type, name)
    if t.is_map(type):
        key, item = _canonical(type.key_type, name), _canonical(type.item_type, name)
        return pa.map_(key, item)
    if t.is_struct(type):
        return pa.struct([pa.field(f.name, _canonical(f.type, name)) for f in type])
    if t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        return pa.list_(_canonical(type.value_type, name))
    if t.is_null(type):
        return pa.int32()  # its values are stored as INT32
    found = spark_type(type)
    if found is None:
        raise UnsupportedError(
            f"Spark has no type for column {name}, which is {type}",
            hint='name the columns to read: .option("columns", "a, b")',
        )
    return found


def in_types(table: pa.Table, schema: StructType) -> pa.Table:
    """The rows in exactly the types of ``schema``."""
    wanted = to_arrow(schema)
    pairs = zip(table.columns, wanted, strict=True)
    return pa.Table.from_arrays(
        [_exactly(column, field.type) for column, field in pairs], schema=wanted
    )


def local_frame(spark: SparkSession, rows: pa.Table, schema: Any = None) -> DataFrame:
    """The DataFrame of these rows; ``TypeError`` before Spark 4 where there are any.

    Spark takes no batch that comes after an empty one, so there is one batch. A DataFrame without
    rows is made from its schema alone, without the file by which Spark receives batches.
    """
    from pyspark.sql import DataFrame as ClassicFrame
    from pyspark.sql.types import StructType

    if not len(rows) and isinstance(schema, StructType) and not is_connect(spark):
        session = spark._jsparkSession
        none = Jvm.of(spark).static("java.util.Collections", "emptyList")()
        made = session.createDataFrame(none, session.parseDataType(schema.json()))
        return ClassicFrame(made, spark)
    return spark.createDataFrame(rows.combine_chunks(), schema)


def _exactly(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(type):
        return column
    if pa.types.is_timestamp(type) and pa.types.is_timestamp(column.type):
        # Finer units are truncated to microseconds, as Spark does.
        return column.cast(type, safe=False)
    return column.cast(type)
