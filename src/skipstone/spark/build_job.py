"""The build as one Spark job: files are shared out over tasks by size, each task publishes its
parts.

Spark carries only which files a task has and what became of them: no row of user data passes
through the JVM. ``mapInArrow`` over a range works alike on a classic session, a standalone
cluster and Spark Connect.
"""

from __future__ import annotations

import json
import pickle
import threading
import uuid
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from skipstone.build.job import BuildJob, Outcome, shares

from .session import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Row, SparkSession

    from skipstone.storage import Listing

__all__ = [
    "OUTCOME_SCHEMA",
    "outcome_batch",
    "outcome_of",
    "parallelism",
    "run_on_spark",
    "watched",
]

# Small enough that a task's share is soon published, large enough that starting one is cheap.
BYTES_PER_TASK = 256 * 2**20
TASKS_PER_CORE = 3

OUTCOME_SCHEMA = "path string, size long, error string, too_fresh boolean, reasons string"


def run_on_spark(
    spark: SparkSession,
    job: BuildJob,
    listing: Listing,
    progress: Callable[[int, int], None] | None,
) -> list[Outcome]:
    """Run ``job`` over the files of ``listing`` and collect what became of each."""
    if not len(listing):
        return []
    cores = parallelism(spark)
    wanted = max(TASKS_PER_CORE * cores, int(listing.sizes.sum()) // BYTES_PER_TASK)
    parts = shares(listing, wanted)
    work = zlib.compress(pickle.dumps((job, parts)), 1)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from .build_job import run_shares

        return run_shares(work, batches)

    frame = spark.range(0, len(parts), 1, len(parts)).mapInArrow(task, OUTCOME_SCHEMA)
    with watched(spark, len(parts), len(listing), progress):
        rows = frame.collect()
    return [outcome_of(row) for row in rows]


def outcome_of(row: Row) -> Outcome:
    """What a task said of one file, in columns of ``OUTCOME_SCHEMA``."""
    return Outcome(
        path=row["path"],
        size=row["size"],
        error=row["error"],
        too_fresh=row["too_fresh"],
        reasons=json.loads(row["reasons"]),
    )


def run_shares(work: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a Spark worker does: run the shares whose numbers come in, one batch of outcomes
    each."""
    job, parts = pickle.loads(zlib.decompress(work))
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield outcome_batch(list(job.run(parts[number])))


def outcome_batch(outcomes: Sequence[Outcome]) -> pa.RecordBatch:
    """Outcomes as a batch of ``OUTCOME_SCHEMA``."""
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {
            "path": pa.array([o.path for o in outcomes], pa.string()),
            "size": pa.array([o.size for o in outcomes], pa.int64()),
            "error": pa.array([o.error for o in outcomes], pa.string()),
            "too_fresh": pa.array([o.too_fresh for o in outcomes], pa.bool_()),
            "reasons": pa.array([json.dumps(dict(o.reasons)) for o in outcomes], pa.string()),
        }
    )


def parallelism(spark: SparkSession) -> int:
    """Tasks that run at once, as far as the session tells."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    # Connect does not tell; leaf-node parallelism is the documented stand-in where it is set.
    found: Any = spark.conf.get("spark.sql.leafNodeDefaultParallelism", None)
    return int(found) if found else 8


@contextmanager
def watched(
    spark: SparkSession,
    tasks: int,
    total: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator[None]:
    """Report finished tasks, in files, while the job runs; on Connect only its end is known."""
    if progress is None:
        yield
        return
    progress(0, total)
    if is_connect(spark):
        yield
        progress(total, total)
        return
    context = spark.sparkContext
    tag = f"skipstone-{uuid.uuid4()}"
    done = threading.Event()
    per_task = total / tasks

    def watch() -> None:
        tracker = context.statusTracker()
        while not done.wait(0.5):
            finished = 0
            for job_id in tracker.getJobIdsForGroup(tag):
                info = tracker.getJobInfo(job_id)
                for stage in info.stageIds if info is not None else ():
                    stage_info = tracker.getStageInfo(stage)
                    finished += stage_info.numCompletedTasks if stage_info is not None else 0
            progress(min(total, round(finished * per_task)), total)

    watcher = threading.Thread(target=watch, name="skipstone-progress", daemon=True)
    context.setJobGroup(tag, "skipstone build")
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    progress(total, total)
