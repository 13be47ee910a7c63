"""CSV, JSON and ORC tables: the object level, built by Spark from the rows that Spark reads.

Only Spark's reader defines the values of such a table, under the user's options and schema. So it
parses the files, and the same builders as elsewhere make the index values:

    scan (all columns parsed, the indexed ones kept) -> rows to the task of their file, by a key
      -> sorted by key -> mapInArrow: one file after the other through ``ColumnsBuilder``
      -> parts, published by the task while it runs

Row order within a file does not matter to an index. The exchange spills, and a task holds the
builders of one file at a time, within the memory that the settings allow. The key is Spark's
``xxhash64`` of ``_metadata.file_path``.

What makes a fact true of *every* query with the same fingerprint:

- Spark's readers parse only the columns that a query needs, and a malformed record is NULL,
  partly NULL, dropped or an error, depending on those columns. So a file with any record that is
  malformed **when all columns are parsed** is reported and has no facts.
- The identity of a file is taken before it is read and again after its last row. A file that
  changed just now is left for a later build.
- A file that cannot be read to its end (truncated, of another format) fails the job under Spark's
  rules. The error names it (Spark 3.5 names none: halves are tried); the build reports it and tries
  again without it.
"""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.build.footers import settled
from skipstone.build.job import BuildJob, Outcome, joined_outcomes
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.facts.encode import FileFacts
from skipstone.identity import ObjectId, canonical_path, decode_uri, encode_uri
from skipstone.predicate.indexed import columns_of_name, spark_expression
from skipstone.predicate.render import column_sql
from skipstone.predicate.types import column_path, schema_from_spark
from skipstone.pruning.kind import column_fields
from skipstone.pruning.partitions import folder_columns, lookup_of
from skipstone.storage import Listing, Storage, needs_session, open_storage

from .hadoop_build import published
from .jobs import (
    BYTES_PER_TASK,
    RESULT_SCHEMA,
    TASKS_PER_CORE,
    described_build,
    packed,
    parallelism,
    results_of,
    watched,
    waves,
)
from .relation import CORRUPT_NAME, FORMATS, fingerprint, session_settings
from .schemas import spark_types
from .session import ansi_session, functions_of, is_connect, path_for_spark
from .source_task import (
    MALFORMED,
    WHOLE,
    WITH_NULLS,
    SourceFile,
    error_of_row,
    failed_file,
    is_damaged,
    run_task,
    unreadable,
    why_unreadable,
)
from .versions import file_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from skipstone.pruning.kind import Index

# After this many failures the remaining files are tried in halves.
_FAILURES = 3
# Spark's scan of files, in the stack of an error that names no file.
_SCAN = "FileScanRDD"
# If this many files in a row fail, they are not broken, but cannot be reached.
_IN_A_ROW = 8

# The format whose columns Spark reads only for expressions that Spark alone computes.
_PARQUET = "parquet"
_CORRUPT = "_skipstone_corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """How a table is read: Spark's ``format``, reader ``options``, and ``schema`` if one is given.

    ``schema`` is DDL (``"id int, name string"``) or Spark's JSON; ``None`` lets Spark infer it.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    def __post_init__(self) -> None:
        if self.format not in (*FORMATS, _PARQUET):
            raise UnsupportedError(
                f"tables of format {self.format!r} have no index",
                hint=f"parquet, {', '.join(FORMATS)} do",
            )

    def read(self, spark: SparkSession, root: str) -> DataFrame:
        """The table at ``root`` as plain Spark reads it."""
        reader = spark.read.format(self.format).options(**self.options)
        reader = reader.option("__globPaths__", "false")
        if self.schema is not None:
            reader = reader.schema(_schema(self.schema))
        return reader.load(path_for_spark(spark, root))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """A source over one directory, resolved by a session.

    - ``options``: as Spark keeps them with the relation;
    - ``data_schema``: Spark's JSON of the columns in the files; ``schema``: the same in Arrow's
      canonical types;
    - ``read_schema``: with the partition columns too;
    - ``uris``: of every file that Spark reads there, canonical path -> ``_metadata.file_path``;
    - ``fingerprint``: that of its facts; ``None`` for Parquet.
    """

    root: str
    source: FileSource
    options: Mapping[str, str]
    data_schema: str
    read_schema: str
    uris: Mapping[str, str]
    fingerprint: str | None

    def read_alike(self, spark: SparkSession) -> bool:
        """Whether ``spark`` still reads the same values; its settings may have changed."""
        if self.source.format == _PARQUET:
            return True
        settings = session_settings(spark, self.source.format)
        now = fingerprint(self.source.format, self.options, self.data_schema, settings)
        return now == self.fingerprint

    @property
    def schema(self) -> pa.Schema:
        """The columns of the files, in canonical Arrow types."""
        return schema_from_spark(self.data_schema)


def open_source(spark: SparkSession, root: str, source: FileSource) -> SourceTable:
    """The schema, options and files of ``root`` as ``spark`` reads them under its settings now."""
    frame = source.read(spark, root)
    read_schema = str(frame.schema.json())
    data_schema, options = read_schema, dict(source.options)
    uris = {}
    for uri in frame.inputFiles():
        raw = decode_uri(uri)
        # inputFiles() has file:/// where file_path has file:/, and is else the same.
        uris[canonical_path(raw)] = encode_uri(raw)
    if is_connect(spark):
        if not lookup_of(options):
            data_schema = _without_partitions(read_schema, root, list(uris))
    else:
        from .skip import relation_of

        info = relation_of(frame)
        data_schema, options = info.data_schema, dict(info.options)
    parquet = source.format == _PARQUET
    settings = {} if parquet else session_settings(spark, source.format)
    own = None if parquet else fingerprint(source.format, options, data_schema, settings)
    return SourceTable(
        root=root,
        source=source,
        options=options,
        data_schema=data_schema,
        read_schema=read_schema,
        uris=uris,
        fingerprint=own,
    )


def _schema(text: str) -> StructType | str:
    if not text.lstrip().startswith("{"):
        return text
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))


def _without_partitions(schema: str, root: str, paths: Sequence[str]) -> str:
    names = frozenset[str]().union(*folder_columns(root, paths))
    struct = json.loads(schema)
    struct["fields"] = [each for each in struct["fields"] if each["name"].lower() not in names]
    return json.dumps(struct)


# -- the job --------------------------------------------------------------------------------------


def build_source(
    spark: SparkSession,
    job: BuildJob,
    table: SourceTable,
    todo: Listing,
    progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Run ``job`` over the files ``todo`` of ``table``; the outcome of each.

    ``job.fingerprint`` must be the table's; its definitions name columns of ``table.schema``
    (``UnsupportedError`` otherwise). Tasks publish the facts, wave by wave: a build that was killed
    is resumed by the next.
    """
    if job.fingerprint != table.fingerprint:
        raise ValueError("the job's fingerprint is not the table's")
    column_fields(job.definitions, job.schema)
    build = _Build(spark, job, table, open_storage(job.table, job.storage_options))
    before = job.store().part_names()
    outcomes: list[Outcome] = []
    ready: list[int] = []
    for at in range(len(todo)):
        object = todo.object_id(at)
        if object.path not in table.uris:
            text = f"not among the files that Spark reads as {table.source.format}"
            outcomes.append(_left_out(object, text))
        else:
            ready.append(at)
    reached = 0
    for wave in waves(todo, ready):
        base = len(outcomes)

        def report(done: int, _: int, base: int = base) -> None:
            nonlocal reached
            reached = max(reached, base + done)  # files of a second attempt were counted before
            assert progress is not None
            progress(reached, len(todo))

        files = [todo.object_id(at) for at in wave]
        found = build.attempt(files, 0, None if progress is None else report)
        lost = {each.path: each.error for each in found if is_damaged(each.error or "")}
        damaged = [
            unreadable(each, lost[each.path] or "", job) for each in files if each.path in lost
        ]
        outcomes += [each for each in found if each.path not in lost]
        outcomes += job.publish(iter(damaged))
    job.finish(outcomes, before)
    return joined_outcomes(outcomes)


def build_expressions(
    spark: SparkSession,
    job: BuildJob,
    todo: Listing,
    progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Run ``job``, of expressions that Spark computes, over Parquet files: under ANSI rules, and in
    the time zone of each expression's name. A file in which one fails has no facts of it."""
    by_zone: dict[str | None, list[Index]] = {}
    for index in job.definitions:
        found = spark_expression(index.column)
        by_zone.setdefault(None if found is None else found.zone, []).append(index)
    outcomes: list[Outcome] = []
    for zone, definitions in by_zone.items():
        session = ansi_session(spark, zone)
        names = (name for index in definitions for name in columns_of_name(index.column))
        tops = {column_path(name)[0] for name in names}
        read = spark_types(pa.schema([each for each in job.schema if each.name in tops]))
        source = FileSource(format=_PARQUET, schema=read.json())
        table = open_source(session, job.table, source)
        part = replace(job, definitions=tuple(definitions))
        outcomes += build_source(session, part, table, todo, progress)
    return joined_outcomes(outcomes)


def _left_out(object: ObjectId, error: str, *, too_fresh: bool = False) -> Outcome:
    return Outcome(path=object.path, size=object.size or 0, error=error, too_fresh=too_fresh)


@dataclass(frozen=True, slots=True)
class _Build:
    spark: SparkSession
    job: BuildJob
    table: SourceTable
    storage: Storage

    def attempt(
        self,
        files: Sequence[ObjectId],
        failures: int,
        progress: Callable[[int, int], None] | None,
    ) -> list[Outcome]:
        """Index the files in one Spark job; repeat without the files that fail it."""
        if not files:
            return []
        try:
            return self.run(files, progress)
        except Exception as error:
            failed = failed_file(error)
            broken = [each for each in files if each.path == failed]
            condition = error_of_row(error)
            if any(map(_asked_of_spark, self.job.definitions)) and not broken and condition:
                return self.failing(files, condition, progress)
            if not broken and _SCAN not in str(error):
                raise  # leaving out a file would not help
            why, cause = why_unreadable(error, self.table.source.format), error
        if not broken:
            return self.search(files, why, cause, progress)
        rest = [each for each in files if each.path != failed]
        outcomes = [_left_out(each, why) for each in broken]
        pieces = [rest]
        if failures + 1 >= _FAILURES:
            # Many files are broken: halves repeat less work over good files.
            pieces = [rest[: len(rest) // 2], rest[len(rest) // 2 :]]
        for piece in pieces:
            outcomes += self.attempt(piece, failures + 1, progress)
        return outcomes

    def search(
        self,
        files: Sequence[ObjectId],
        why: str,
        cause: Exception,
        progress: Callable[[int, int], None] | None,
    ) -> list[Outcome]:
        """Index the files by halves, until those that Spark cannot read are alone: it did not name
        them. Where many files in a row fail, it is not the files, and ``cause`` is raised."""
        if len(files) == 1:
            return [_left_out(files[0], why)]
        outcomes: list[Outcome] = []
        for piece in (files[: len(files) // 2], files[len(files) // 2 :]):
            found = self.attempt(piece, 0, progress)
            if len(piece) >= _IN_A_ROW and all(each.error == why for each in found):
                raise cause
            outcomes += found
        return outcomes

    def failing(
        self,
        files: Sequence[ObjectId],
        why: str,
        progress: Callable[[int, int], None] | None,
    ) -> list[Outcome]:
        """Index by halves of the expressions, then of the files, until an expression and a file in
        which it fails are alone: that file has no fact of it, and all others."""
        columns = list(dict.fromkeys(index.column for index in self.job.definitions))
        if len(columns) > 1:
            some = set(columns[: len(columns) // 2])
            found: list[Outcome] = []
            for first in (True, False):
                wanted = [each for each in self.job.definitions if (each.column in some) is first]
                part = replace(self, job=replace(self.job, definitions=tuple(wanted)))
                found += part.attempt(files, 0, progress)
            return found
        if len(files) > 1:
            half = len(files) // 2
            pieces = (files[:half], files[half:])
            return [each for piece in pieces for each in self.attempt(piece, 0, progress)]
        definitions = self.job.definitions
        reasons = {repr(index): f"failed: {why}" for index in definitions}
        lost = FileFacts(id=files[0], values=dict.fromkeys(definitions), reasons=reasons)
        return list(self.job.publish(iter([lost])))

    def run(
        self, files: Sequence[ObjectId], progress: Callable[[int, int], None] | None
    ) -> list[Outcome]:
        """Index the files in one Spark job; any failure is raised."""
        spark, job, table = self.spark, self.job, self.table
        settle = job.settings.settle
        fresh = [each for each in files if not settled(each, self.storage, settle)]
        fresh_paths = {each.path for each in fresh}
        text = f"too fresh: changed less than {settle:g} s ago"
        outcomes = [_left_out(each, text, too_fresh=True) for each in fresh]
        if not table.read_alike(spark):
            raise SkipstoneError(
                "settings of the session that change the values were changed during the build",
                hint="run the build again without changing the session's settings meanwhile",
            )
        keys = _keys([each for each in files if each.path not in fresh_paths], table)
        if not keys:
            return outcomes
        read = [
            (index.column,) if _asked_of_spark(index) else columns_of_name(index.column)
            for index in job.definitions
        ]
        columns = list(dict.fromkeys(column for each in read for column in each))
        rows = _rows(spark, table, [table.uris[each.path] for each in keys.values()], columns)
        cores, size = parallelism(spark), sum(each.size or 0 for each in keys.values())
        parts = min(len(keys), max(TASKS_PER_CORE * cores, size // BYTES_PER_TASK))
        needs = needs_session(job.table, job.storage_options)
        needs = needs or needs_session(job.location, job.storage_options)
        work = packed((job, keys, columns, not needs))

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return run_task(work, batches)

        shared = rows.repartition(parts, "key").sortWithinPartitions("key")
        made = shared.mapInArrow(task, RESULT_SCHEMA)
        found: list[Outcome]
        if needs:
            found = published(spark, job, made, len(keys), progress)
        else:
            text = described_build(job, len(keys))
            with watched(spark, parts, len(keys), progress, text):
                found = job.allowed(results_of(made))
        seen = {outcome.path for outcome in found}
        # A file without rows gives no row, so no task reports it.
        silent = [each for each in keys.values() if each.path not in seen]
        listed = _listed(spark, table, silent)
        outcomes += [
            _left_out(each, "Spark gives this file another name")
            for each in silent
            if each.path not in listed
        ]
        empty = (each for each in silent if each.path in listed)
        facts = (SourceFile(0, each, job).finish(self.storage) for each in empty)
        return [*outcomes, *found, *job.publish(facts)]


def _listed(spark: SparkSession, table: SourceTable, files: Sequence[ObjectId]) -> set[str]:
    """The files that Spark lists under the URI in ``table.uris``; their data is not read.

    Otherwise a file whose rows came under another name would seem to have no rows.
    """
    if not files:
        return set()
    wanted = {table.uris[each.path]: each.path for each in files}
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    frame = reader.load(path_for_spark(spark, table.root))
    path = file_path(frame)
    rows = frame.where(path.isin(list(wanted))).select(path).collect()
    return {wanted[row[0]] for row in rows}


def _keys(files: Sequence[ObjectId], table: SourceTable) -> dict[int, ObjectId]:
    """The files by the key of their rows: XXH64 of the URI with seed 42, as a signed number."""
    import xxhash

    found: dict[int, ObjectId] = {}
    for each in files:
        unsigned = xxhash.xxh64_intdigest(table.uris[each.path].encode(), seed=42)
        key = unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned
        if found.setdefault(key, each) is not each:
            raise UnsupportedError(
                f"the names of {found[key].path} and {each.path} have the same hash",
                hint="rename one of them",
            )
    return found


def _asked_of_spark(index: Index) -> bool:
    return spark_expression(index.column) is not None


def _rows(
    spark: SparkSession, table: SourceTable, uris: Sequence[str], columns: Sequence[str]
) -> DataFrame:
    """For each row of these files: the key of the file, the state, and the columns by number."""
    f, source = functions_of(spark), table.source
    struct = json.loads(table.read_schema)
    options = {key.lower(): value for key, value in source.options.items()}
    # A query may ignore broken files; here they must be found.
    options |= {"ignorecorruptfiles": "false", "ignoremissingfiles": "false"}
    state = f.lit(WHOLE)
    if source.format not in ("orc", _PARQUET):
        corrupt = options.get("columnnameofcorruptrecord") or spark.conf.get(CORRUPT_NAME)
        names = [each["name"].lower() for each in struct["fields"]]
        if corrupt is None or corrupt.lower() not in names:
            corrupt = _CORRUPT
            added = {"name": corrupt, "type": "string", "nullable": True, "metadata": {}}
            struct["fields"].append(added)
        options |= {"mode": "PERMISSIVE", "columnnameofcorruptrecord": corrupt}
        # It uses every column, so Spark parses every column.
        nulls = [f.col(column_sql((each["name"],))).isNull() for each in struct["fields"]]
        state = (
            f.when(f.col(column_sql((corrupt,))).isNotNull(), MALFORMED)
            .when(f.greatest(*nulls, f.lit(False)), WITH_NULLS)
            .otherwise(WHOLE)
        )
    reader = spark.read.format(source.format).options(**options)
    frame = reader.schema(_schema(json.dumps(struct))).load(path_for_spark(spark, table.root))
    path = file_path(frame)
    if len(uris) < len(table.uris):
        frame = frame.where(path.isin(list(uris)))
    asked = [(column, spark_expression(column)) for column in columns]
    picked = [
        (f.col(column) if each is None else f.expr(each.sql)).alias(f"c{at}")
        for at, (column, each) in enumerate(asked)
    ]
    return frame.select(f.xxhash64(path).alias("key"), state.alias("state"), *picked)
