"""The differences between versions of Spark and Scala, all in this module.

| | Spark 3.5 | Spark 4 |
|---|---|---|
| ``Dataset.ofRows`` | ``sql.Dataset`` | ``sql.classic.Dataset`` |
| ``LogicalRelation`` | 4 fields | 5 fields: ``stream`` |
| ``conf.getAll`` | none | of a session |
| ``DataFrame.metadataColumn`` | in the JVM alone | in Python too |
| ``DataFrame.toArrow`` | none | all rows as an Arrow table |
| Python data sources | none | ``spark.read.format("skipstone")`` |
| ANSI mode | off by default | on by default |

| | Scala 2.12 | Scala 2.13 |
|---|---|---|
| an array as a ``Seq`` | ``mutable.WrappedArray`` | ``immutable.ArraySeq`` |
| ``map``, append | take a ``CanBuildFrom`` | take none |

Spark 3.5 comes with either Scala, Spark 4 with 2.13 only.
"""

from __future__ import annotations

import importlib.util
import inspect
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


JavaObject: TypeAlias = Any  # py4j brings no types


class JvmAccess(Protocol):
    """The part of ``session.Jvm`` that this module uses."""

    context: JavaObject
    gateway: JavaObject

    def type(self, name: str) -> Any: ...

    def static(self, name: str, method: str) -> Any: ...

    def module(self, name: str) -> JavaObject: ...


class Scala213:
    """Collections of Scala 2.13."""

    def __init__(self, jvm: JvmAccess) -> None:
        self.jvm = jvm

    def wrap(self, array: JavaObject) -> JavaObject:
        """A Java array as a ``Seq``, not copied."""
        return self.jvm.static("scala.collection.immutable.ArraySeq", "unsafeWrapArray")(array)

    def map(self, sequence: JavaObject, function: JavaObject) -> JavaObject:
        """``function`` of each element."""
        return sequence.map(function)

    def append(self, sequence: JavaObject, item: JavaObject) -> JavaObject:
        """``sequence`` and one element behind it."""
        return sequence.appended(item)


class Scala212(Scala213):
    """Collections of Scala 2.12."""

    def wrap(self, array: JavaObject) -> JavaObject:
        return self.jvm.module("scala.collection.mutable.WrappedArray").make(array)

    def map(self, sequence: JavaObject, function: JavaObject) -> JavaObject:
        return sequence.map(function, self._builder())

    def append(self, sequence: JavaObject, item: JavaObject) -> JavaObject:
        return getattr(sequence, "$colon$plus")(item, self._builder())

    def _builder(self) -> JavaObject:
        return self.jvm.module("scala.collection.Seq").canBuildFrom()


def scala_of(jvm: JvmAccess) -> Scala213:
    """The collections of the Scala that this JVM runs."""
    version = str(jvm.type("scala.util.Properties").versionNumberString())
    return Scala212(jvm) if version.startswith("2.12.") else Scala213(jvm)


def dataset_class(jvm: JvmAccess) -> Any:
    """The class with ``ofRows(session, plan)``."""
    four = int(str(jvm.context.version()).partition(".")[0]) >= 4
    return jvm.type(f"org.apache.spark.sql.{'classic.' if four else ''}Dataset")


def copy_relation(leaf: JavaObject, relation: JavaObject) -> JavaObject:
    """A ``LogicalRelation`` with another ``HadoopFsRelation``, the same output attributes."""
    fields = [leaf.output(), leaf.catalogTable(), leaf.isStreaming()]
    if int(leaf.productArity()) > 4:
        fields.append(leaf.stream())
    return leaf.copy(relation, *fields)


def to_arrow(schema: StructType) -> pa.Schema:
    """Arrow's types for a schema of Spark, timestamps in UTC: in Spark 3.5 and 4.0 they always
    are, and there is no argument for it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def collected(frame: DataFrame) -> pa.Table:
    """All rows of ``frame``."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    classic: Any = frame
    return pa.Table.from_batches(classic._collect_as_arrow(), to_arrow_schema(frame.schema))


def file_path(frame: DataFrame) -> Column:
    """``_metadata.file_path``, also where a column of the table has that name."""
    if hasattr(frame, "metadataColumn"):
        hidden = frame.metadataColumn("_metadata")
    else:
        from pyspark.sql import Column

        hidden = Column(frame._jdf.metadataColumn("_metadata"))
    return hidden.getField("file_path")


def settings_of_connect(spark: SparkSession) -> dict[str, str]:
    """The settings that were made in a session of Spark Connect or for it."""
    if hasattr(spark.conf, "getAll"):
        return dict(spark.conf.getAll)
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


def setting_of(get: Callable[[str], Any], key: str) -> str | None:
    """A setting or its default, by the ``get`` of a session's ``conf`` or of the JVM's; ``None``
    where this version has no such setting."""
    try:
        found = get(key)
        return None if found is None else str(found)
    except Exception as error:  # of py4j or of gRPC
        if "SQL_CONF_NOT_FOUND" not in str(error):
            raise
        return None


def ansi_by_default(spark: SparkSession) -> str:
    """The default of ``spark.sql.ansi.enabled``."""
    return "true" if int(spark.version.partition(".")[0]) >= 4 else "false"


def condition_of(error: PySparkException) -> str | None:
    """The name of an error: 3.5 calls it a class."""
    named = getattr(error, "getCondition", None) or error.getErrorClass
    condition: str | None = named()
    return condition


def no_data_sources() -> str | None:
    """Why this PySpark has no ``format("skipstone")``; ``None`` where it has."""
    if importlib.util.find_spec("pyspark.sql.datasource") is not None:
        return None
    import pyspark

    return f"PySpark {pyspark.__version__} has no Python data sources (4.0 and newer have)"
