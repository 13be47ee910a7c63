"""One file of a table after the other, here or as a Spark job: what is done is a picklable value.

Spark carries paths, sizes and what became of each file; nothing of a file passes through the JVM.
The work itself, with its keys, is compressed into the function of the job: it is in no setting, no
plan and no log.
"""

from __future__ import annotations

import pickle
import zlib
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from skipstone.storage import Listing

    from .data_files import Progress

__all__ = ["FileJob", "each_file"]


class Fate(Protocol):
    """What became of a file; picklable."""

    @property
    def path(self) -> str:
        """The file."""


F_co = TypeVar("F_co", bound=Fate, covariant=True)
F = TypeVar("F", bound=Fate)


class FileJob(Protocol[F_co]):
    """What is done with a file; picklable."""

    def opened(self) -> Callable[[str, int], F_co]:
        """The function that takes a path and a size; it is made once in each task."""


def each_file(
    spark: SparkSession | None, listing: Listing, job: FileJob[F], progress: Progress | None
) -> list[F]:
    """What became of each file of ``listing``, in the order of their paths."""
    from skipstone.build.job import shares

    if not len(listing):
        return []
    if spark is None:
        found: list[F] = []
        work = job.opened()
        for path, size in zip(listing.paths, listing.sizes.tolist(), strict=True):
            found.append(work(path, size))
            if progress is not None:
                progress(len(found), len(listing))
        return sorted(found, key=lambda each: each.path)
    from skipstone.spark.build_job import BYTES_PER_TASK, TASKS_PER_CORE, parallelism, watched

    wanted = max(TASKS_PER_CORE * parallelism(spark), int(listing.sizes.sum()) // BYTES_PER_TASK)
    parts = [[(each.path, each.size or 0) for each in part] for part in shares(listing, wanted)]
    work_bytes = _pickled((job, parts))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from .run_file_jobs import run_parts

        return run_parts(work_bytes, batches)

    frame = spark.range(0, len(parts), 1, len(parts)).mapInArrow(task, "report binary")
    with watched(spark, len(parts), len(listing), progress):
        rows = frame.collect()
    return sorted([pickle.loads(row["report"]) for row in rows], key=lambda each: each.path)


def run_parts(work: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a Spark worker does: the parts whose numbers come in."""
    import pyarrow as pa

    job, parts = pickle.loads(zlib.decompress(work))
    one = job.opened()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            held = [pickle.dumps(one(path, size)) for path, size in parts[number]]
            yield pa.RecordBatch.from_pydict({"report": pa.array(held, pa.binary())})


def _pickled(work: tuple[FileJob[Any], Sequence[Sequence[tuple[str, int]]]]) -> bytes:
    """By value where need be: a user's function may be of a notebook."""
    from pyspark import cloudpickle

    data: bytes = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
    return zlib.compress(data, 1)
