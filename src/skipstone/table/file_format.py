"""The file format of a table: how its files are read, and the keys that open them.

Parquet files are read by their own footers. CSV, JSON and ORC files are read by Spark: their schema
and values depend on the session. Without a session such a table has only the schema that it was
indexed under. The formats differ in four things: the schema, the fingerprint under which facts are
stored, the job that builds facts, and how plain Spark reads the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeAlias

from skipstone._dataclasses import dataclass
from skipstone.errors import KeyUnavailableError, UnsupportedError
from skipstone.paimon.options import is_option
from skipstone.predicate.tree import is_expression
from skipstone.pruning.table_schema import schema_of_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from skipstone.build.job import BuildJob, Outcome
    from skipstone.execution.open_files import SummaryFooters
    from skipstone.facts import Store
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.spark.catalog.table import CatalogTable
    from skipstone.spark.text_sources import SourceTable
    from skipstone.storage import Listing, Storage


Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True)
class FileOptions:
    """How files are read; see ``Table`` for ``format`` to ``recursive`` (file lookup)."""

    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    recursive: bool = False

    @classmethod
    def of_catalog(cls, catalog: CatalogTable) -> Self:
        """As the catalog says."""
        options = {k: v for k, v in catalog.properties.items() if is_option(k)}
        if catalog.info.format == "parquet":
            return cls(options=options)
        return cls(catalog.info.format, {**options, **catalog.reader_options}, catalog.info.schema)


class ParquetFormat:
    """Parquet files: their footers have the schema."""

    def __init__(
        self,
        root: str,
        storage: Storage,
        keys: DataKeys,
        some: Callable[[], Listing] | None = None,
    ) -> None:
        self.root, self.storage, self.keys = root, storage, keys
        #: lists the files, where they are not all below ``root``
        self.some = some
        #: the keys of a running build
        self.decryption: Decryption | None = None

    @cached_property
    def summary(self) -> SummaryFooters:
        """The footers in the table's ``_metadata``."""
        from skipstone.execution.open_files import SummaryFooters

        return SummaryFooters(self.root, self.storage)

    def fingerprint(self, spark: SparkSession | None, store: Store) -> str | None:
        """None: the values of a Parquet file depend on the file only."""
        return None

    def execute(
        self,
        spark: SparkSession | None,
        job: BuildJob,
        files: Listing,
        progress: Progress | None,
    ) -> list[Outcome]:
        """In this process, or as a Spark job; what only Spark computes is a job of its own."""
        from skipstone.build.job import joined_outcomes, run_here

        if spark is None:
            return run_here(job, files, progress)
        from skipstone.predicate.indexed import spark_expression

        own = tuple(each for each in job.definitions if spark_expression(each.column) is None)
        if len(own) < len(job.definitions):
            from skipstone.spark.text_sources import build_expressions

            rest = tuple(each for each in job.definitions if each not in own)
            found = build_expressions(spark, replace(job, definitions=rest), files, progress)
            if own or job.settings.pm != "none":
                mine = self.execute(spark, replace(job, definitions=own), files, progress)
                found = joined_outcomes([*mine, *found])
            return found
        from skipstone.storage import needs_session

        if any(needs_session(each, job.storage_options) for each in (job.table, job.location)):
            from skipstone.spark.hadoop_build import build_through_spark

            return build_through_spark(spark, job, files, progress)
        from skipstone.spark.jobs import build_on_spark

        return build_on_spark(spark, job, files, progress)

    def frame(
        self, spark: SparkSession, options: Mapping[str, str], schema: StructType | None = None
    ) -> DataFrame:
        """``spark.read.parquet``, with ``schema`` if it is given."""
        from skipstone.spark.session import literal_path, path_for_spark

        reader = spark.read.options(**options)
        paths = [self.root]
        if self.some is not None:
            reader, paths = reader.option("basePath", self.root), self.some().paths
        reader = reader if schema is None else reader.schema(schema)
        # Hadoop would read some characters of names as patterns. Without patterns, Spark lists
        # several such names more than once.
        if len(paths) == 1:
            reader = reader.option("__globPaths__", "false")
        else:
            paths = [literal_path(path) for path in paths]
        frame: DataFrame = reader.parquet(*(path_for_spark(spark, path) for path in paths))
        return frame


class SparkFormat:
    """CSV, JSON or ORC under reader ``options``, and ``schema`` (DDL or Spark's JSON) if given."""

    def __init__(
        self, root: str, format: str, options: Mapping[str, str], schema: str | None
    ) -> None:
        from skipstone.spark.text_sources import FileSource

        self.root = root
        self.source = FileSource(format=format, options=dict(options), schema=schema)

    def _open(self, spark: SparkSession) -> SourceTable:
        from skipstone.spark.text_sources import open_source

        return open_source(spark, self.root, self.source)

    def fingerprint(self, spark: SparkSession | None, store: Store) -> str | None:
        """The session's fingerprint; without a session, that of the newest facts."""
        if spark is not None:
            return self._open(spark).fingerprint
        known = store.snapshot().identities.fingerprints.drop_null()
        # Facts without a fingerprint are not of this format.
        return str(known[-1]) if len(known) else "not known"

    def schema(self, spark: SparkSession | None, store: Store) -> pa.Schema:
        """The schema that the session's reader finds; without a session, the indexed columns."""
        if spark is not None:
            return self._open(spark).schema
        return indexed_columns(store)

    def execute(
        self,
        spark: SparkSession | None,
        job: BuildJob,
        files: Listing,
        progress: Progress | None,
    ) -> list[Outcome]:
        """Run as a Spark job over the rows that Spark reads."""
        if spark is None:
            raise UnsupportedError(
                f"a table of {self.source.format} files is indexed through Spark's reader",
                hint="give build and refresh a Spark session",
            )
        from skipstone.spark.text_sources import build_source

        return build_source(spark, job, self._open(spark), files, progress)

    def frame(
        self, spark: SparkSession, options: Mapping[str, str], schema: StructType | None = None
    ) -> DataFrame:
        """The table under its own options and schema; ``options`` and ``schema`` are not used."""
        return self.source.read(spark, self.root)


def indexed_columns(store: Store) -> pa.Schema:
    """The indexed columns, with the types that they were indexed in, and what expressions read."""
    from skipstone.predicate.indexed import fields_of_name

    definitions = store.snapshot().definitions
    found: dict[str, pa.Field] = {}
    for each in (each for known in definitions for each in known.types):
        if is_expression(each.name):
            found = {**fields_of_name(each.name), **found}
        else:
            found[each.name] = each
    return schema_of_columns(found)


#: how the files of a table are read
FileFormat: TypeAlias = ParquetFormat | SparkFormat

#: the hint for a file whose keys were not given
HINT = (
    "give the table the keys of its files: Table(…, decryption=skipstone.Decryption(…)), on the"
    " command line --footer-key, --column-key, --kms or --keys"
)


class DataKeys:
    """The keys of a table's encrypted files.

    ``aad_prefix`` in bytes is the beginning of the table's prefixes, as ``Table.encrypt`` makes
    them (``TablePrefix``): each file must then be in its own place. If it is a function, it returns
    the whole prefix of a file. Without either, a file's own prefix is trusted.

    Where keys are given, a ``_metadata`` and file indexes in the clear next to the files are not
    trusted: anybody could have written them. Facts in the clear are trusted, because a user
    requested them.

    ``decryption`` opens the files below ``root``, or is a function that makes it on first use;
    ``None`` for files in the clear."""

    __slots__ = ("_found", "_given", "_root")

    def __init__(
        self, root: str, decryption: Decryption | Callable[[], Decryption] | None = None
    ) -> None:
        if decryption is not None and not callable(decryption):
            _checked(decryption)
        self._root, self._given = root, decryption
        self._found: Decryption | None = None

    def __bool__(self) -> bool:
        return self._given is not None

    def __repr__(self) -> str:
        return f"DataKeys({self._root!r}, {'some' if self else 'none'})"

    def get(self) -> Decryption | None:
        """The keys, bound to the places of the files; ``KeyUnavailableError`` where the function
        that makes them fails."""
        if self._found is None and self._given is not None:
            self._found = bound(self._root, self._given)
        return self._found

    def none_given(self, path: str) -> KeyUnavailableError:
        """The error for an encrypted file without a key."""
        return KeyUnavailableError(f"{path} is encrypted, and no key was given", hint=HINT)


def bound(root: str, decryption: Decryption | Callable[[], Decryption]) -> Decryption:
    """Keys for the files of the table at ``root``; see the module."""
    from skipstone.rewrite.encrypted_file_list import bound_to
    from skipstone.rewrite.file_jobs import given

    made = _checked(given(decryption, "the keys of the data"))
    return made.replaced(aad_prefix=bound_to(root, made.aad_prefix, None))


def _checked(decryption: Decryption) -> Decryption:
    if not hasattr(decryption, "has_keys"):
        raise TypeError(f"decryption is a skipstone.Decryption, not {type(decryption).__name__}")
    return decryption
