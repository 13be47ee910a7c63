"""Builds of tables that only the session can read: Spark reads files, this process publishes facts.

Workers cannot reach the session's JVM. So Spark's own reader of whole files (``binaryFile``) brings
them the data, with its credentials. One file is in memory at a time. The facts return as rows of a
frame that Spark keeps on its disks, partition by partition, and this process writes the parts.

A file has a fact only if it is the listed version when Spark plans the job, and again after the
job.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from skipstone.build.data_file import GONE, build_file
from skipstone.build.job import BuildJob, Outcome, run_here
from skipstone.facts.encode import FileFacts
from skipstone.identity import ObjectId, canonical_path
from skipstone.storage import Listing, Storage, open_storage
from skipstone.storage.remote import RemoteReads

from .jobs import (
    BYTES_PER_TASK,
    RESULT_SCHEMA,
    described_build,
    packed,
    result_batch,
    unpacked,
    watched,
    waves,
    worker_errors,
)
from .session import cloned, literal_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


# A Java array, and Spark's reader with it, holds less than 2 GiB.
_LARGEST = 2**31 - 2**10


def build_through_spark(
    spark: SparkSession,
    job: BuildJob,
    listing: Listing,
    progress: Callable[[int, int], None] | None,
) -> list[Outcome]:
    """Build the facts of the files of ``listing``; the outcome of each. Files that Spark's reader
    does not hold are read by this process."""
    outcomes: list[Outcome] = []
    total = len(listing)

    def report(done: int, _: int) -> None:
        assert progress is not None
        progress(min(total, len(outcomes) + done), total)

    shown = None if progress is None else report
    small = np.flatnonzero(listing.sizes <= _LARGEST).tolist()
    for wave in waves(listing, small):
        files = [listing.object_id(at) for at in wave]
        frame = _facts(spark, job, files)
        found = published(spark, job, frame, len(files), shown)
        seen = {outcome.path for outcome in found}
        outcomes += [
            *found,
            *(
                Outcome(path=each.path, size=each.size or 0, error=GONE, gone=True)
                for each in files
                if each.path not in seen
            ),
        ]
    if len(small) < total:
        outcomes += run_here(job, listing.where(listing.sizes > _LARGEST), shown)
    return outcomes


def published(
    spark: SparkSession,
    job: BuildJob,
    facts: DataFrame,
    files: int,
    progress: Callable[[int, int], None] | None,
) -> list[Outcome]:
    """Runs the job of a frame of ``RESULT_SCHEMA`` with ``FileFacts``, and publishes these here."""
    from pyspark import StorageLevel

    kept = facts.persist(StorageLevel.DISK_ONLY)
    try:
        text = described_build(job, files)
        tasks = kept.rdd.getNumPartitions()
        with watched(spark, tasks, files, progress, text), worker_errors():
            kept.count()
        storage = open_storage(job.table, job.storage_options)
        now = storage.list_all(job.table)
        places = {path: at for at, path in enumerate(now.paths)}

        def version(path: str) -> ObjectId | None:
            at = places.get(path)
            if at is not None:
                return now.object_id(at)
            try:  # a partition of the catalog may lie outside the table
                return None if path.startswith(f"{job.table}/") else storage.stat(path)
            except OSError:
                return None

        def checked() -> Iterator[FileFacts]:
            for row in kept.toLocalIterator():
                found: FileFacts = pickle.loads(row["result"])
                current = version(found.id.path)
                if found.error is None and current is None:
                    found = replace(found, error=GONE, gone=True)
                elif current is not None and not current.same_version(found.id):
                    error = f"{found.id.path} changed while it was read"
                    found = FileFacts(id=found.id, error=error)
                yield found

        return list(job.publish(checked()))
    finally:
        kept.unpersist()


def _facts(spark: SparkSession, job: BuildJob, files: Sequence[ObjectId]) -> DataFrame:
    session = _own_session(spark)
    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
    # Hadoop would read some characters of names as patterns. Without patterns, Spark lists several
    # such names more than once.
    frame = reader.load([literal_path(each.path) for each in files])
    work = packed((job, {each.path: each for each in files}))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_task(work, batches)

    columns = ("path", "modificationTime", "length", "content")
    return frame.select(*columns).mapInArrow(task, RESULT_SCHEMA)


def _own_session(spark: SparkSession) -> SparkSession:
    """A session with the settings of ``spark`` and those of this job."""
    made = cloned(spark)
    # A batch is one file: the contents of several might not fit into memory.
    made.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    made.conf.set("spark.sql.files.maxPartitionBytes", str(BYTES_PER_TASK))
    made.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    # Spark would start a task for the status of each file, which takes longer than reading it here.
    made.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", str(2**31 - 1))
    made.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
    return made


# -- the worker ------------------------------------------------------------------------------------


def run_task(work: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The facts of the files in ``batches``: path, modification time, length, content."""
    known: Mapping[str, ObjectId]
    job, known = unpacked(work)
    for batch in batches:
        paths, times, lengths, contents = batch.columns
        for at in range(batch.num_rows):
            listed = known.get(canonical_path(paths[at].as_py()))
            if listed is None:
                continue
            seen = replace(
                listed,
                size=lengths[at].as_py(),
                mtime=times[at].value // 1000,
                unit="ms",
                etag=None,
            )
            if not seen.same_version(listed):
                yield result_batch([FileFacts(id=listed, error=f"{listed.path} has changed")])
                continue
            file = _OneFile(listed, memoryview(contents[at].as_buffer()).cast("B"))
            storage = cast("Storage", file)
            yield result_batch(
                [build_file(listed, storage, job.definitions, job.schema, job.settings)]
            )


class _OneFile(RemoteReads):
    """The part of ``Storage`` that ``build_file`` uses, over the content of one file."""

    at_once = 1

    def __init__(self, version: ObjectId, content: memoryview) -> None:
        super().__init__(version.path, gap=0, limit=2**40)
        self.version, self.content = version, content

    def stat(self, path: str) -> ObjectId:
        return self.version

    def read_range(
        self, path: str, offset: int, length: int, version: ObjectId | None = None
    ) -> memoryview:
        return self.content[offset : offset + length]

    def now(self) -> int:
        return time.time_ns()
