"""A table as plain Spark reads it: the DataFrame and its schema, also if the schemas of files
differ.

Spark takes the schema of one file, and its ``mergeSchema`` refuses most types that widen. So Spark
is given the schema of all files.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    SkipstoneError,
    UnsupportedError,
)
from skipstone.identity import canonical_path
from skipstone.predicate.types import column_name, column_path
from skipstone.pruning.partitions import PartitionColumns
from skipstone.spark.schemas import spark_schema, spark_types
from skipstone.spark.session import Jvm, is_connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from skipstone.pruning.plan import Plan
    from skipstone.pruning.table_schema import TableSchema
    from skipstone.storage import Listing

    from .open_table import OpenTable


_MERGE = "mergeschema"
_CASE_SENSITIVE = "spark.sql.caseSensitive"
# Hadoop's patterns cannot exclude a suffix. These match names that differ from .index in one of the
# last letters.
_FILTER = "pathGlobFilter"
_NO_INDEX = "{*[^x],*[^e]x,*[^d]ex,*[^n]dex,*[^i]ndex,*[^.]index}"
_SUFFIX = ".index"


@dataclass(frozen=True, slots=True)
class WholeSchema:
    """The schema of all files, for Spark's reader.

    ``given`` has no column of the folders: Spark takes their types from the folders, and would take
    them from a given schema. Spark puts those columns last. Without a given schema, one that the
    files have too is in its place among theirs; ``places`` are then the names of all columns of the
    files, else empty. ``case_sensitive`` is the session's setting. ``only_spark`` are the columns
    for which Spark merges the schemas itself.
    """

    given: StructType | None = None
    places: tuple[str, ...] = ()
    case_sensitive: bool = False
    only_spark: tuple[str, ...] = ()

    @contextmanager
    def in_words(self, path: str) -> Iterator[None]:
        """``UnsupportedError`` where Spark refuses to merge. Under Connect it may do so later, with
        its own error."""
        try:
            yield
        except Exception as error:
            if not self.only_spark or "CANNOT_MERGE_SCHEMAS" not in str(error):
                raise
            raise UnsupportedError(
                f"{path}: Spark does not merge the schemas of the files, whose types differ; only "
                f"Spark reads a default, a collation or an interval ({', '.join(self.only_spark)})",
                hint="give the schema yourself: skipstone.skip(spark.read.schema(…).parquet(…))",
            ) from error

    def in_order(self, frame: DataFrame) -> DataFrame:
        """``frame`` with the columns of the folders in their places."""
        if not self.places:
            return frame
        columns = frame.columns
        names = {self.key(name): name for name in columns}
        order = [names.pop(key) for key in map(self.key, self.places) if key in names]
        order += names.values()
        return frame if order == columns else frame.select(*(column_name((n,)) for n in order))

    def key(self, name: str) -> str:
        """Equal for names of one column."""
        return name if self.case_sensitive else name.lower()


# Types that Spark's reader always finds as they are here; others depend on settings.
_CERTAIN = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
    pa.types.is_decimal128,
)
_SETTINGS = ("spark.sql.parquet.", "spark.sql.legacy.")
_SUMMARIES = ("_common_metadata", "_metadata")


def schema_without_spark(
    table: OpenTable, plan: Plan, settings: Mapping[str, str], columns: Sequence[str] | None
) -> StructType | None:
    """The schema that Spark would find for ``columns``, if that is certain without a listing by
    Spark: all files have one schema of plain types, and no setting affects schemas."""
    found, listing = plan.schema, plan.listing
    if found is None or found.distinct != 1 or not len(listing):
        return None
    if any(key.startswith(_SETTINGS) for key in settings):
        return None
    schema = found.merged.spark
    names = [each.lower() for each in schema.names]
    if len(set(names)) < len(names) or PartitionColumns.of(listing).values:
        return None
    if any(table.storage.exists(f"{table.path}/{name}") for name in _SUMMARIES):
        return None  # Spark takes the schema of one of these
    for each in schema:
        instant = pa.types.is_timestamp(each.type) and each.type.tz is not None
        if each.metadata or not (instant or any(fits(each.type) for fits in _CERTAIN)):
            return None
    if columns is None:
        return spark_types(schema)
    wanted = [path[0] for each in columns if len(path := column_path(each)) == 1]
    if len(wanted) < len(columns) or not set(wanted) <= set(schema.names):
        return None  # Spark has an error, or the column's name in another case
    return spark_types(pa.schema([schema.field(name) for name in wanted]))


@dataclass(frozen=True, slots=True, eq=False)
class ListedSchema:
    """A listing of files, and the schema of all of them."""

    listing: Listing
    schema: TableSchema


def listed_schema(table: OpenTable, options: Mapping[str, str]) -> ListedSchema | None:
    """The schema of the files that a table has now, where Spark's reader is given one; ``None``
    where Spark finds the schema itself, and where its reader reports the error."""
    merges = any(key.lower() == _MERGE for key in options)
    if not table.is_parquet or table.txn is not None or table.catalog is not None or merges:
        return None
    listing = table.listing()
    try:
        return ListedSchema(listing, table.file_schema(listing))
    except (OSError, FormatError, KeyUnavailableError):
        return None


def schema_for_spark(
    table: OpenTable,
    spark: SparkSession,
    options: Mapping[str, str],
    listed: ListedSchema | None,
) -> tuple[Mapping[str, str], WholeSchema]:
    """``options`` and the schema for Spark's reader: that of all files, if they differ. They are
    ``listed`` now, unless they were before.

    Spark takes the schema of one file, and ``mergeSchema`` refuses most types that widen. It is
    used only for a column that has a type that only Spark knows, or Spark's own metadata (a
    default, a collation, an interval), which a given schema would lose. Where Spark then refuses,
    so does ``Table.read`` (``in_words``). ``UnsupportedError`` where types do not merge.
    """
    options = {**options, **table.lookup}
    listed = listed or listed_schema(table, options)
    if listed is None or listed.schema.distinct < 2:
        return options, WholeSchema()
    files = listed.schema.merged.spark
    whole = WholeSchema()
    folders = PartitionColumns.of(listed.listing).values
    if folders:
        case = spark.conf.get(_CASE_SENSITIVE, None) or ""
        whole = WholeSchema(case_sensitive=case.lower() == "true")
        names = set(map(whole.key, folders))
        own = [field for field in files if whole.key(field.name) not in names]
        if len(own) < len(files):
            whole = replace(whole, places=tuple(files.names))
            files = pa.schema(own)
    marked = tuple(each.name for each in files if each.metadata)
    if not marked:
        # An error is a type that only Spark knows.
        with suppress(UnsupportedError):
            return options, replace(whole, given=spark_types(files))
    return {**options, _MERGE: "true"}, WholeSchema(only_spark=marked)


def plain_frame(
    table: OpenTable,
    spark: SparkSession,
    options: Mapping[str, str],
    listed: ListedSchema | None = None,
) -> DataFrame:
    """The table as plain Spark reads it without sidecars; ``options`` of the reader, ``listed`` as
    for ``schema_for_spark``."""
    if table.catalog is not None:
        return table.catalog.frame(options)
    options, whole = schema_for_spark(table, spark, options, listed)
    with whole.in_words(table.path):
        frame = _unordered(table, spark, options, whole.given)
    return whole.in_order(frame)


def _unordered(
    table: OpenTable, spark: SparkSession, options: Mapping[str, str], schema: StructType | None
) -> DataFrame:
    hidden = partial(without_sidecars, table, options)
    if is_connect(spark):
        return table.file_format.frame(spark, hidden(), schema)
    try:
        frame = table.file_format.frame(spark, options, schema)
    except Exception:  # Spark may have taken the schema of a sidecar
        if not table.has_sidecars():
            raise
        return table.file_format.frame(spark, hidden(), schema)
    if _lists_sidecars(frame, spark):
        return table.file_format.frame(spark, hidden(), schema)
    return frame


def without_sidecars(table: OpenTable, options: Mapping[str, str]) -> dict[str, str]:
    """``options`` with a filter that hides sidecars from Spark, if the table has any."""
    if any(key.lower() == _FILTER.lower() for key in options) or not table.has_sidecars():
        return dict(options)
    return {**options, _FILTER: _NO_INDEX}


def _lists_sidecars(frame: DataFrame, spark: SparkSession) -> bool:
    """Whether Spark lists a file named like a sidecar; the names stay in the JVM."""
    jvm = Jvm.of(spark)
    files = jvm.scala.wrap(frame._jdf.inputFiles())
    text = jvm.type("scala.collection.mutable.StringBuilder")()
    return int(files.addString(text, "", "\n", "\n").indexOf(f"{_SUFFIX}\n")) >= 0


def schema_by_spark(
    table: OpenTable, spark: SparkSession, columns: Sequence[str] | None
) -> tuple[StructType | None, str]:
    """The schema that Spark finds, if a reader of pages returns exactly these types; else why
    not."""
    if table.snapshots() is not None:  # its log has the schema
        return spark_schema(table, columns), ""
    native = plain_frame(table, spark, {})
    if columns is not None:
        native = native.select(*columns)
    names = native.columns
    try:
        own = spark_schema(table, [column_name((name,)) for name in names])
    except SkipstoneError as error:
        return None, error.message
    for mine, other in zip(own, native.schema, strict=True):
        if (mine.name, mine.dataType) != (other.name, other.dataType):
            return None, f"{other.name} is {other.dataType.simpleString()} to Spark here"
    return own, ""


def require_own_root(table: OpenTable, options: Mapping[str, str]) -> None:
    """``SkipstoneError`` where Spark would read partition columns from folders above the table, and
    a plan from the files."""
    for key, value in options.items():
        if key.lower() == "basepath" and canonical_path(value) != table.path:
            raise SkipstoneError(
                f"{key} is {value}, and the table is {table.path}",
                hint=f"open the table there, Table({value!r}), and name the partition in where",
            )
