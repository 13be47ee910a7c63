"""``cluster``: writes the table to another directory, in another order of its rows."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, StaleError, UnsupportedError
from skipstone.human import of_total, some_of
from skipstone.identity import canonical_path
from skipstone.indexes.minmax import NullCounts
from skipstone.predicate.types import column_name, split_names
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.table_schema import find_field, spelled_path

from .open_table import OpenTable
from .sort_keys import sort_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from skipstone.spark.clustering import Clustering, ClusterReport
    from skipstone.storage import Listing


# More files than these are probably a mistaken unit.
_MOST_FILES = 100_000
# Files may arrive between two listings.
_LISTINGS = 5
_NEW = "name a directory that does not exist"


class ClusterVerbs(OpenTable):
    """The verb; see ``Table``."""

    def cluster(
        self,
        spark: SparkSession,
        by: str | Sequence[str],
        to: str,
        *,
        curve: str | None = None,
        file_size: int | None = None,
        bloom: Mapping[str, float] | None = None,
        compression: str | None = None,
    ) -> ClusterReport:
        """Write the table to the new directory ``to``, with rows that are near each other in the
        columns ``by`` in the same files. The table itself stays as it is.

        >>> table.cluster(spark, by=["user_id", "ts"], to="lake/events_by_user")

        ``curve`` is "sort" (by the columns in turn), "z-order" or "hilbert"; by default "sort" for
        one column and "hilbert" for more. Files have about ``file_size`` bytes (128 MiB), page
        indexes, and the Bloom filters that ``bloom`` names with their probability of a false
        positive. Folders of partitions stay. ``compression`` is by default that of the session.

        The new rows are compared with those of the table by their number, a checksum of each column
        and one of whole rows; ``SkipstoneError`` where they differ. Also for columns that do not
        exist, a directory that exists, and one within the table; ``StaleError`` where files of the
        table changed while they were read. ``UnsupportedError`` for encrypted files: the new ones
        would be in the clear. A local ``to`` appears when the comparison is
        done, and not where anything fails; in an object store or on HDFS it is written in place.
        """
        from skipstone.spark.session import require_session

        require_session(spark)
        work = prepared(
            self,
            by,
            to,
            curve=curve,
            file_size=file_size,
            bloom=bloom or {},
            compression=compression,
        )
        return work.run(spark)


def prepared(
    table: OpenTable,
    by: str | Sequence[str],
    to: str,
    *,
    curve: str | None,
    file_size: int | None,
    bloom: Mapping[str, float],
    compression: str | None,
) -> PreparedClustering:
    """Checks the arguments of ``Table.cluster``, and prepares the work that needs a session."""
    from skipstone.rewrite.curve import check_curve
    from skipstone.spark.clustering import FILE_SIZE, Clustering

    table.require_parquet()
    table.require_plain("only plain files are clustered")
    if table.keys:
        raise UnsupportedError(
            f"{table.path} is encrypted, and the files of {to} would be in the clear",
            hint="write it with Spark under its own encryption, then `skipstone build` it",
        )
    if file_size is not None and file_size < 1:
        raise ValueError(f"file_size is a number of bytes above 0, not {file_size}")
    output = _place(table, to)
    listing = table.listing()
    if not len(listing):
        raise SkipstoneError(f"{table.path} has no files", hint="there is nothing to write")
    columns = _key_columns(table, by, listing)
    check_curve(curve or "hilbert", len(columns))
    size = file_size or FILE_SIZE
    files = -(-listing.total_bytes // size)
    if files > _MOST_FILES:
        raise SkipstoneError(
            f"in files of {size:,} bytes that is {files:,} files; the most are {_MOST_FILES:,}",
            hint="name a larger size: --file-size 128MiB",
        )
    work = Clustering(
        by=columns,
        curve=(curve or "hilbert") if len(columns) > 1 else "sort",
        files=max(1, files),
        file_size=size,
        partitions=tuple(PartitionColumns.of(listing).values),
        bloom=_filters(table, bloom, listing),
        compression=compression,
    )
    return PreparedClustering(table, output, work)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedClustering:
    """``work``, to be written to ``output``."""

    table: OpenTable
    output: str
    work: Clustering

    def run(self, spark: SparkSession) -> ClusterReport:
        """Write the new table, and compare it with the old one; see ``Table.cluster``."""
        from skipstone.spark import clustering as job
        from skipstone.spark.session import path_for_spark
        from skipstone.storage import open_storage

        started = time.perf_counter()
        table, output, work = self.table, self.output, self.work
        if "://" in output and open_storage(output, table.storage_options).has_children(output):
            raise SkipstoneError(f"{output} exists", hint=_NEW)
        with job.exact(spark), _published(output) as place:
            listing, frame = _frame_now(table, spark, output)
            frame = job.writable(frame, work.partitions)
            in_place = place == output
            with _unchanged(table, listing, output, left=in_place):
                with job.errors_of_job(output, left=False):
                    before = job.row_checksums(frame, tuple(work.bloom or ()))
                if work.partitions and not before.rows:  # Spark would write no file
                    raise SkipstoneError(
                        f"the files of {table.path} have no rows", hint="there is nothing to write"
                    )
                with job.errors_of_job(output, left=in_place):
                    job.write_clustered(spark, frame, path_for_spark(spark, place), work, before)
            written = open_storage(place, table.storage_options).list_files(place)
            # Hadoop would read some characters of the name as a pattern.
            reader = spark.read.schema(frame.schema).option("__globPaths__", "false")
            with job.errors_of_job(output, left=in_place):
                after = job.row_checksums(reader.parquet(path_for_spark(spark, place)))
            job.require_equal(before, after, table.path, output, left=in_place)
            _require_types(listing, written, output, left=in_place)
        return job.ClusterReport(
            table=table.path,
            output=output,
            by=tuple(map(column_name, work.by)),
            curve=work.curve,
            rows=before.rows,
            columns=len(frame.columns),
            files_before=len(listing),
            files_after=len(written),
            bytes_before=listing.total_bytes,
            bytes_after=written.total_bytes,
            indexes=_definitions(table),
            seconds=time.perf_counter() - started,
        )


def _frame_now(table: OpenTable, spark: SparkSession, output: str) -> tuple[Listing, DataFrame]:
    """The files that the table has now, and their rows.

    Spark lists the files by itself. It had the same files if the listings before and after are
    equal.
    """
    from skipstone.spark.clustering import errors_of_job

    from .planning import PlanRequest
    from .spark_read import read_table

    for _ in range(_LISTINGS):
        listing = table.listing()
        with _unchanged(table, listing, output, left=False), errors_of_job(output, left=False):
            frame = read_table(table, spark, PlanRequest(), {})
        if listing.is_snapshot or table.listing().same_files(listing):
            return listing, frame
    raise StaleError(
        f"{table.path}: files arrived in each of {_LISTINGS} listings",
        hint=f"nothing was written to {output}: cluster it when nothing writes to the table",
    )


def _require_types(before: Listing, after: Listing, output: str, *, left: bool) -> None:
    """Raises if a column of folders has another type ``after``: the text 01 would be the number 1.
    Spark writes no folder for a file without rows, and a folder of each value in its own words."""
    if before.folder_values is not None:  # a catalog has the types
        return
    types = {name: each.type for name, each in PartitionColumns.of(after).values.items()}
    for name, values in PartitionColumns.of(before).values.items():
        if (now := types.get(name)) != values.type:
            then = f"delete {output}" if left else f"{output} was not kept"
            raise SkipstoneError(
                f"the folders of {output} make {name} {now}, which is {values.type} in the table",
                hint=f"{then}. Folders whose files have no rows are lost: remove them from the"
                " table, where this changes the type, too",
            )


@contextmanager
def _unchanged(table: OpenTable, listing: Listing, output: str, *, left: bool) -> Iterator[None]:
    """Raises ``StaleError`` if a file of ``listing`` is gone or replaced after the block, which may
    also explain an error in the block. The rows of the other files are then no state of the table:
    a writer may have moved some to a new file. ``left``: ``output`` may have files."""
    failed: SkipstoneError | None = None
    try:
        yield
    except SkipstoneError as error:
        failed = error
    # Files of a snapshot may grow, but keep its rows.
    lost = [] if listing.is_snapshot else _lost(listing, table.listing())
    if not lost:
        if failed is not None:
            raise failed
        return
    then = f"delete {output}" if left else f"nothing was written to {output}"
    raise StaleError(
        f"{table.path}: {of_total(len(lost), len(listing), 'files')} changed while they were read,"
        f" such as {lost[0]}",
        hint=f"{then}: cluster the table when nothing writes to it",
    ) from failed


def _lost(before: Listing, now: Listing) -> list[str]:
    """The files of ``before`` that are gone or replaced ``now``."""
    place = dict(zip(now.paths, range(len(now)), strict=True))
    return [
        path
        for at, path in enumerate(before.paths)
        if path not in place or before.object_id(at) != now.object_id(place[path])
    ]


def _place(table: OpenTable, to: str) -> str:
    """The canonical path of a new directory, outside of the table."""
    output = canonical_path(to)
    for inner, outer in ((output, table.path), (table.path, output)):
        if f"{inner}/".startswith(f"{outer}/"):
            raise SkipstoneError(
                f"{output} and the table {table.path} lie in each other",
                hint="name a directory outside of the table",
            )
    if "://" not in output and os.path.lexists(output):
        raise SkipstoneError(f"{output} exists", hint=_NEW)
    return output


@contextmanager
def _published(output: str) -> Iterator[str]:
    """Where to write the files of ``output``: a local directory gets its name at the end.

    Readers ignore names that begin with an underscore, so what a killed process leaves is no table.
    Object stores have no directories to rename: their files are written in place.
    """
    if "://" in output:
        yield output
        return
    from skipstone.storage.atomic_replace import new_directory

    try:
        with new_directory(Path(output)) as place:
            yield str(place)
    except FileExistsError as error:
        raise SkipstoneError(f"{output} exists by now", hint=_NEW) from error


def _key_columns(
    table: OpenTable, by: str | Sequence[str], listing: Listing
) -> tuple[tuple[str, ...], ...]:
    schema = table.file_columns(listing)
    names = split_names(by) if isinstance(by, str) else list(by)
    if not any(name.strip() for name in names):
        raise SkipstoneError("there is no column to cluster by", hint='name one: by="user_id"')
    folders = PartitionColumns.of(listing).values
    for name in names:
        if spelled_path(pa.schema([(each, pa.null()) for each in folders]), name.strip()):
            raise SkipstoneError(
                f"cannot cluster by {name.strip()}: it is a column of folders, and all rows of a"
                " file have one value",
                hint="the folders stay; name columns of the files, whose order is within folders",
            )
    paths = tuple(sort_column(table, schema, name.strip()) for name in names)
    for name, path in zip(names, paths, strict=True):
        field = find_field(schema, column_name(path))
        assert field is not None  # its path was found
        if pa.types.is_nested(field.type):
            raise SkipstoneError(
                f"cannot cluster by {name}: it is {field.type}",
                hint="name columns of numbers, texts, times or booleans",
            )
    if len(set(paths)) < len(paths):
        raise SkipstoneError(f"a column occurs twice in {by!r}", hint="name each column once")
    return paths


def _filters(table: OpenTable, bloom: Mapping[str, float], listing: Listing) -> Mapping[str, float]:
    """``bloom`` with columns as the table spells them."""
    schema = table.file_columns(listing)
    found = {}
    for name, fpp in bloom.items():
        path = spelled_path(schema, name)
        if path is None or len(path) > 1:
            raise SkipstoneError(
                f"there is no column {name!r} for a Bloom filter in {table.path}",
                hint=f"columns of the root are {some_of(schema.names, 8)}",
            )
        if not 0 < fpp < 1:
            raise SkipstoneError(
                f"the Bloom filter of {name}: {fpp} is not a probability",
                hint="a number between 0 and 1, as 0.01",
            )
        found[path[0]] = fpp
    return found


def _definitions(table: OpenTable) -> tuple[str, ...]:
    """The indexes of the table as ``build`` takes them."""
    return tuple(
        f"{each.column}:{each.kind}"
        for each in table.store.snapshot().definitions
        if each.kind != NullCounts.name
    )
