"""``cluster``: rewrites a table so that rows near each other are in the same files.

    source -> mapInArrow: the file and the place on the curve of each row (``rewrite/curve.py``)
           -> one shuffle by file -> sort by place -> Spark's Parquet writer

A sample of the key columns decides the limits of the files, so each file gets about the same number
of rows, and rows are read once. For ranges, Spark would take its own sample and run the Python
stage twice. The order ``sort`` needs no Python, so it uses Spark's ranges.

**The check.** Before and after, the rows are counted. For each column, the values that are not null
are counted, and their 64-bit hashes added. The hashes of whole rows are added too: that sum changes
if values move to another row. Sums do not depend on the order of rows. A lost, doubled or changed
value changes them, except with a probability of 2^-64. Spark's hash ignores nulls, so the hash of a
list includes its length, and that of an entry or a field includes whether it is null. It does not
distinguish -0.0 from 0.0, so the text of zeros is included. Maps have no hash; the list of their
entries is hashed. Variants are hashed as JSON.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError, command, first_line
from skipstone.human import Report, duration, plural, size
from skipstone.predicate.types import backquoted
from skipstone.rewrite.curve import BITS, Curve

from .jobs import described, worker_errors
from .session import set_to
from .versions import collected, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession


#: the default bytes of a file
FILE_SIZE: Final = 128 << 20
# How many rows are sampled: the rows of 1,000 files then differ by about 5 %.
_SAMPLE = 400_000
# Texts of the sample are cut after this many characters: they only place files.
_PREFIX = 64
_SEED = 8_814
# Settings that keep every value as it was. Spark's default for timestamps, INT96, has no statistics
# and no page index.
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Spark's transform takes null elements out of a batch, which fails if the dictionary is empty.
    "spark.sql.parquet.enableNestedColumnVectorizedReader": "false",
}
_FILE, _PLACE, _DIRECTORY = "__skipstone_file", "__skipstone_place", "__skipstone_directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """What to write: rows in the order ``curve`` of the columns ``by``, in ``files`` files.

    ``partitions`` are the columns of folders, which stay. ``bloom`` maps columns to the probability
    of a false positive.
    """

    by: tuple[tuple[str, ...], ...]
    curve: str
    files: int
    file_size: int
    partitions: tuple[str, ...] = ()
    bloom: Mapping[str, float] | None = None
    compression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport(Report):
    """What ``cluster`` wrote; ``columns`` were compared with the source and are equal."""

    table: str
    output: str
    by: tuple[str, ...]
    curve: str
    rows: int
    columns: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    indexes: tuple[str, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        order = f"{self.curve} of {', '.join(self.by)}"
        lines = [
            f"wrote {plural(self.rows, 'row')} of {self.table} to {self.output} by {order}",
            f"{plural(self.files_before, 'file')}, {size(self.bytes_before)} -> "
            f"{plural(self.files_after, 'file')}, {size(self.bytes_after)}"
            f" in {duration(1000 * self.seconds)}",
            f"the same rows: their number and the checksums of whole rows and of all"
            f" {plural(self.columns, 'column')} are equal",
        ]
        if self.indexes:
            wanted = [word for each in self.indexes for word in ("-c", str(each))]
            lines.append(f"index it like the source: {command('build', self.output, *wanted)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RowChecksums:
    """Checksums of a table's rows, independent of the order. ``whole`` is the sum of the hashes of
    rows. ``values`` has, for each column, the number of values that are not null and the sum of
    their hashes. ``distinct`` estimates the numbers of distinct values."""

    rows: int
    whole: int
    values: Mapping[str, tuple[int, int]]
    distinct: Mapping[str, int]

    def differences(self, other: RowChecksums) -> list[str]:
        """The differences in words, as far as a reader needs them."""
        if self.rows != other.rows:
            return [f"{self.rows:,} rows before and {other.rows:,} after"]
        found = [
            f"column {name}: {before[0]:,} values with checksum {before[1]} before, and "
            + ("none" if after is None else f"{after[0]:,} with {after[1]} after")
            for name, before in self.values.items()
            if (after := other.values.get(name)) != before
        ]
        if not found and self.whole != other.whole:
            return ["the same values of each column, in other rows"]
        return found


def row_checksums(frame: DataFrame, distinct: Sequence[str] = ()) -> RowChecksums:
    """The checksums of all rows of ``frame``, with distinct counts of some columns."""
    columns = [(backquoted(field.name), field.dataType) for field in frame.schema]
    hashed = [_hashable(*each) for each in columns]
    named = [(name, value) for (name, _), value in zip(columns, hashed, strict=True)]
    # Spark puts columns of folders last where it reads the table again.
    whole = ", ".join(f"{name} IS NULL, {value}" for name, value in sorted(named))
    wanted = ["count(1)", _sum_of_hashes(whole)]
    for name, value in named:
        wanted += [f"count({name})", _sum_of_hashes(value)]
    wanted += [f"approx_count_distinct({backquoted(name)})" for name in distinct]
    row = frame.selectExpr(*(f"{each} AS c{at}" for at, each in enumerate(wanted))).collect()[0]
    names = frame.columns
    return RowChecksums(
        row[0],
        int(row[1] or 0),
        {name: (row[2 + 2 * at], int(row[3 + 2 * at] or 0)) for at, name in enumerate(names)},
        {name: row[2 + 2 * len(names) + at] for at, name in enumerate(distinct)},
    )


def _sum_of_hashes(values: str) -> str:
    return f"sum(cast(xxhash64({values}) AS decimal(20, 0)))"


def _hashable(value: str, type: Any, depth: int = 0) -> str:
    """An expression for ``value`` that Spark can hash, and whose nulls count; see the module."""
    name, inner = type.typeName(), f"x{depth}"
    if name == "map":
        key, item = f"{inner}.key", f"{inner}.value"
        entry = (
            f"struct({_hashable(key, type.keyType, depth + 1)},"
            f" {item} IS NULL, {_hashable(item, type.valueType, depth + 1)})"
        )
        return _list(f"map_entries({value})", inner, entry)
    if name == "array":
        entry = _hashable(inner, type.elementType, depth + 1)
        return _list(value, inner, f"struct({inner} IS NULL, {entry})")
    if name == "struct":
        parts = [(f"{value}.{backquoted(each.name)}", each.dataType) for each in type.fields]
        fields = [f"{part} IS NULL, {_hashable(part, kind, depth)}" for part, kind in parts]
        return f"if({value} IS NULL, NULL, struct({', '.join(fields)}))"
    if name in ("double", "float"):  # Spark's hash of -0.0 is that of 0.0
        return f"struct({value}, if({value} = 0, cast({value} AS string), ''))"
    return f"to_json({value})" if name == "variant" else value


def _list(value: str, inner: str, entry: str) -> str:
    # size(NULL) is -1 in some settings.
    return (
        f"if({value} IS NULL, NULL, struct(size({value}), transform({value}, {inner} -> {entry})))"
    )


@contextmanager
def exact(spark: SparkSession) -> Iterator[None]:
    """Sets the session to keep values as they are, and to fail on damaged files: skipped ones would
    be missing in both counts."""
    with set_to(spark, _SETTINGS):
        yield


def writable(frame: DataFrame, folders: Sequence[str]) -> DataFrame:
    """``frame``, with columns of folders that are all null as texts: Spark writes no folders by a
    column without a type."""
    void = {field.name for field in frame.schema if field.dataType.typeName() == "void"}
    if not void.intersection(folders):
        return frame
    names = [(name, backquoted(name)) for name in frame.columns]
    return frame.selectExpr(
        *(f"cast({quoted} AS string) AS {quoted}" if n in void else quoted for n, quoted in names)
    )


def write_clustered(
    spark: SparkSession, frame: DataFrame, output: str, job: Clustering, before: RowChecksums
) -> None:
    """Write ``frame`` to ``output``, which does not exist; see the module."""
    text = f"skipstone cluster: {plural(job.files, 'file')} of {output}"
    with described(spark, text), worker_errors():
        by_ranges = job.curve == "sort"
        placed = _by_ranges(frame, job) if by_ranges else _by_curve(spark, frame, job, before.rows)
        writer = placed.write.mode("error").options(**_options(job, before))
        if job.partitions:
            writer = writer.partitionBy(*job.partitions)
        writer.parquet(output)


@contextmanager
def errors_of_job(output: str, *, left: bool) -> Iterator[None]:
    """Turns an error of Spark into a ``SkipstoneError``; ``left``: the job may have left files."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("[", "Caused by:", ": "))]
        why = (told or lines or [type(error).__name__])[-1].removeprefix("Caused by: ")
        raise SkipstoneError(
            f"Spark failed: {why.removeprefix(': ')}",
            hint=f"what is in {output}, if it exists, is not complete: delete it"
            if left
            else f"nothing was written to {output}",
        ) from error


def _options(job: Clustering, before: RowChecksums) -> dict[str, str]:
    found = {"parquet.block.size": str(min(job.file_size, FILE_SIZE))}
    if job.compression is not None:
        found["compression"] = job.compression
    rows = max(before.rows // job.files, 1)
    for column, fpp in (job.bloom or {}).items():
        found |= {
            f"parquet.bloom.filter.enabled#{column}": "true",
            f"parquet.bloom.filter.fpp#{column}": str(fpp),
            f"parquet.bloom.filter.expected.ndv#{column}": str(
                max(min(rows, before.distinct.get(column, rows)), 1)
            ),
        }
    return found


# Columns are given as SQL: PySpark's functions belong to one kind of session, and a process may
# have both kinds.


def _by_ranges(frame: DataFrame, job: Clustering) -> DataFrame:
    keys = [*map(backquoted, job.partitions), *(backquoted(*path) for path in job.by)]
    return frame.repartitionByRange(job.files, *keys).sortWithinPartitions(*keys)


def _by_curve(spark: SparkSession, frame: DataFrame, job: Clustering, rows: int) -> DataFrame:
    from pyspark.sql.types import IntegerType, LongType, StructType

    names = frame.columns
    _require_arrow(frame)
    # Columns are named by their places: mapInArrow reads a dot in a name as a field of a struct.
    frame = frame.toDF(*(f"c{at}" for at in range(len(names))))
    at = {name: f"c{number}" for number, name in enumerate(names)}
    folders = [at[each] for each in job.partitions]
    paths = [(at[path[0]], *path[1:]) for path in job.by]
    texts = ", ".join(f"cast({each} AS string)" for each in folders) or "''"
    frame = frame.selectExpr("*", f"concat_ws('/', {texts}) AS {_DIRECTORY}")
    keys = [_DIRECTORY, *(_cut(frame, path) for path in paths)]
    some = frame.selectExpr(*(f"{each} AS k{number}" for number, each in enumerate(keys)))
    sample = collected(some.sample(min(1.0, _SAMPLE / max(rows, 1)), _SEED))
    columns = [each.combine_chunks() for each in sample.columns]
    placing = Placing.of(job, paths, frame.columns, columns, _slots(spark, job.files))
    made = StructType([*frame.schema]).add(_FILE, IntegerType()).add(_PLACE, LongType())
    placed = frame.mapInArrow(placing, made).repartition(job.files, _FILE)
    ordered = placed.sortWithinPartitions(*folders, _PLACE)
    return ordered.select(*at.values()).toDF(*names)


def _require_arrow(frame: DataFrame) -> None:
    """``UnsupportedError`` for a column that Spark does not pass to Python in Arrow."""
    from pyspark.sql.types import StructType

    for field in frame.schema:
        try:
            to_arrow(StructType([field]))
        except Exception as error:
            raise UnsupportedError(
                f"column {field.name} is {field.dataType.simpleString()}, which Spark does not pass"
                f" to Python: {first_line(error)}",
                hint="order by columns in turn, which needs no Python: curve='sort', --curve sort",
            ) from error


def _cut(frame: DataFrame, path: tuple[str, ...]) -> str:
    column = backquoted(*path)
    type = frame.select(column).schema[0].dataType.simpleString()
    texts = type.startswith(("string", "binary"))
    return f"substring({column}, 1, {_PREFIX})" if texts else column


@dataclass(frozen=True, slots=True, eq=False)
class Placing:
    """The task: adds the file and the place on the curve to each row.

    A row's rank is the place of its directory, then its place on the curve. ``limits`` are the
    first ranks of all files but the first, ascending; ``slots`` has for each file the number that
    Spark's hash sends to it.
    """

    curve: Curve
    directory: Curve
    paths: tuple[tuple[int, tuple[str, ...]], ...]
    folder: int
    limits: NDArray[np.int64]
    slots: NDArray[np.int32]

    @classmethod
    def of(
        cls,
        job: Clustering,
        by: Sequence[tuple[str, ...]],
        names: Sequence[str],
        sample: Sequence[pa.Array],
        slots: NDArray[np.int32],
    ) -> Placing:
        """For rows with the columns ``names``; ``sample``: directories and keys of some rows."""
        curve = Curve.of(job.curve, sample[1:])
        directory = Curve.of("sort", sample[:1])
        ranks = np.sort(_ranks(directory.keys(sample[:1]), curve.keys(sample[1:])))
        at = np.arange(1, job.files) * len(ranks) // job.files
        return cls(
            curve=curve,
            directory=directory,
            paths=tuple((names.index(path[0]), path[1:]) for path in by),
            folder=names.index(_DIRECTORY),
            limits=ranks[at] if len(ranks) else np.zeros(0, np.int64),
            slots=slots,
        )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [
                pc.struct_field(batch.column(at), list(below)) if below else batch.column(at)
                for at, below in self.paths
            ]
            place = self.curve.keys(columns)
            ranks = _ranks(self.directory.keys([batch.column(self.folder)]), place)
            file = self.slots[np.searchsorted(self.limits, ranks, "right")]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(file), pa.array(place)],
                names=[*batch.schema.names, _FILE, _PLACE],
            )


def _ranks(directory: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
    # 15 bits of the directory, and the first 45 of the 60 of the place.
    return (directory << np.int64(3 * BITS)) | (place >> np.int64(BITS))


def _slots(spark: SparkSession, files: int) -> NDArray[np.int32]:
    """For each file an integer that Spark's hash sends to its partition: ``(files,)``.

    So Skipstone's sample decides where rows go, and Spark takes none. A file that gets no integer
    shares the partition of another file; with far more integers than files, this is very unlikely.
    """
    numbers = spark.range(files * (20 + files.bit_length())).selectExpr("cast(id AS int) AS id")
    homes = numbers.selectExpr("id", f"pmod(hash(id), {files}) AS home").groupBy("home")
    found = homes.min("id").collect()
    slots = np.zeros(files, np.int32)
    for row in found:
        slots[row[0]] = row[1]
    return slots


def require_equal(
    before: RowChecksums, after: RowChecksums, table: str, output: str, *, left: bool
) -> None:
    """Raises ``SkipstoneError`` if a written table has other rows than its source; ``left``: the
    written files remain."""
    found = before.differences(after)
    if found:
        then = f"do not use {output}: delete it" if left else f"{output} was not kept"
        raise SkipstoneError(
            f"the rows written for {output} are not those of {table}: {'; '.join(found[:3])}",
            hint=f"{then}. The source may have changed meanwhile: cluster it again when nothing"
            " writes to it",
        )
