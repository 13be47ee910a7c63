"""The schema of a table whose files differ, for Spark's own reader.

Spark takes the schema of one file. Its ``mergeSchema`` refuses most types that widen, so the schema
of all files is given to it.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.predicate.types import column_name
from skipstone.pruning.partitions import PartitionColumns
from skipstone.spark.schemas import spark_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from .open_table import OpenTable


_MERGE = "mergeschema"
_CASE_SENSITIVE = "spark.sql.caseSensitive"


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


def schema_for_spark(
    table: OpenTable, spark: SparkSession, options: Mapping[str, str]
) -> tuple[Mapping[str, str], WholeSchema]:
    """``options`` and the schema for Spark's reader: that of all files, where these differ.

    Spark takes the schema of one file, and ``mergeSchema`` refuses most types that widen. It is
    used only where a column has Spark's own metadata (a default, a collation, an interval), which
    a given schema would lose, or a type that only Spark knows. Where Spark then refuses, so does
    ``Table.read`` (``in_words``). ``UnsupportedError`` where types do not merge.
    """
    options = {**options, **table.lookup}
    if not table.is_parquet or table.txn is not None or _MERGE in map(str.lower, options):
        return options, WholeSchema()
    listing = table.listing()
    try:
        found = table.file_schema(listing)
    except (OSError, FormatError, KeyUnavailableError):
        return options, WholeSchema()  # Spark's reader reports the error
    if found.distinct < 2:
        return options, WholeSchema()
    files = found.merged.spark
    whole = WholeSchema()
    folders = PartitionColumns.of(listing).values
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
