"""Work as Spark jobs: the parts of the work are distributed over tasks, which return results.

A task receives the number of its part. The work and the parts are compressed within the function of
the job, so no setting, plan or log has them. A result is returned pickled, in a column ``result``.
No row of user data passes through the JVM. ``mapInArrow`` over a range works in the same way on a
classic session, a standalone cluster and Spark Connect.

Three jobs have this shape: builds (a task publishes its own parts of the index), verbs that do
something with each file, and plans whose facts do not fit on the driver. For the last, batches of
fact rows (``planning/fact_runs.py``) are distributed by bytes. A task reads the columns that the
predicate needs, evaluates the same tree with the same evidence as the driver would, and returns
only bits per leaf.
"""

from __future__ import annotations

import pickle
import re
import sys
import threading
import uuid
import zlib
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from skipstone._arrays import runs_up_to
from skipstone.build.job import BuildJob, Outcome, shares
from skipstone.errors import SkipstoneError
from skipstone.human import plural

from .session import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.identity import ObjectId
    from skipstone.planning.fact_runs import PartBatch, RunAnswer, RunJob, Runner
    from skipstone.storage import Listing


Part = TypeVar("Part")
Result = TypeVar("Result")

# Small enough that a task's share is soon published, large enough to pay for its start.
# Not only by the cores: with dynamic allocation a session has few when a job starts.
BYTES_PER_TASK = 256 * 2**20
FILES_PER_TASK = 2_000
TASKS_PER_CORE = 3
# Bytes of facts that one task of a plan reads.
FACT_BYTES_PER_TASK = 64 * 2**20
# The most that one Spark job reads: a kill loses it, and a corrupt file repeats it.
FILES_PER_WAVE = 1_000
BYTES_PER_WAVE = 16 * 2**30

RESULT_SCHEMA = "result binary"
_DESCRIPTION = "spark.job.description"
_GROUP = "spark.jobGroup.id"


def build_on_spark(
    spark: SparkSession,
    job: BuildJob,
    listing: Listing,
    progress: Callable[[int, int], None] | None,
) -> list[Outcome]:
    """Build the facts of the files of ``listing``; the outcome of each."""
    if not len(listing):
        return []
    parts = _parts(spark, listing)
    before = job.store().part_names()
    with watched(spark, len(parts), len(listing), progress, described_build(job, len(listing))):
        outcomes = job.allowed(_run(spark, partial(_build_share, job), parts))
    job.finish(outcomes, before)
    return outcomes


def _build_share(job: BuildJob, files: Sequence[ObjectId]) -> Iterator[Outcome]:
    return job.in_task(job.run(files))


def described_build(job: BuildJob, files: int) -> str:
    """The description of a build in Spark's UI."""
    named = [f"{each.column}:{each.name}" for each in job.definitions]
    indexes = ", ".join(named) or "row group metadata"
    return f"skipstone build: {indexes} for {plural(files, 'file')} of {job.table}"


def files_on_spark(
    spark: SparkSession,
    opened: Callable[[], Callable[[str, int], Result]],
    listing: Listing,
    progress: Callable[[int, int], None] | None,
    verb: str = "files",
) -> list[Result]:
    """Call a function with the path and size of each file; ``opened`` makes it in each task.
    Spark's UI shows ``verb``."""
    parts = [[(each.path, each.size or 0) for each in part] for part in _parts(spark, listing)]
    text = f"skipstone {verb}: {plural(len(listing), 'file')} of {listing.root}"
    with watched(spark, len(parts), len(listing), progress, text):
        return _run(spark, partial(_each_file, opened), parts)


def _each_file(
    opened: Callable[[], Callable[[str, int], Result]], part: Sequence[tuple[str, int]]
) -> list[Result]:
    one = opened()
    return [one(path, size) for path, size in part]


def plan_on_spark(spark: SparkSession) -> Runner:
    """A runner that evaluates runs of facts as tasks of ``spark``."""

    def run(job: RunJob, runs: Sequence[PartBatch]) -> Iterable[RunAnswer]:
        if not runs:
            return []
        text = f"skipstone plan: facts in {plural(len(runs), 'piece')}"
        with described(spark, text):
            return _run(spark, partial(_answers, job), _fact_shares(runs))

    return run


def _answers(job: RunJob, runs: Sequence[PartBatch]) -> list[RunAnswer]:
    return [job.run(run) for run in runs]


def _fact_shares(runs: Sequence[PartBatch]) -> list[list[PartBatch]]:
    """Runs in shares of about ``FACT_BYTES_PER_TASK``; neighbours stay together."""
    sizes = [run.nbytes for run in runs]
    return [list(runs[start:stop]) for start, stop in runs_up_to(sizes, FACT_BYTES_PER_TASK)]


# -- the shape of a job ----------------------------------------------------------------------------


def _parts(spark: SparkSession, listing: Listing) -> list[Any]:
    size = int(listing.sizes.sum())
    wanted = (size // BYTES_PER_TASK, len(listing) // FILES_PER_TASK)
    return shares(listing, max(TASKS_PER_CORE * parallelism(spark), *wanted))


def waves(todo: Listing, ready: Sequence[int]) -> Iterator[list[int]]:
    """The files at ``ready`` in shares, each of one Spark job."""
    sizes = todo.sizes[list(ready)].tolist()
    for start, stop in runs_up_to(sizes, BYTES_PER_WAVE, FILES_PER_WAVE):
        yield list(ready[start:stop])


def _run(
    spark: SparkSession, work: Callable[[Part], Iterable[Result]], parts: Sequence[Part]
) -> list[Result]:
    """The results of ``work`` over every part, one task for each."""
    data = packed((work, parts))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_numbered(data, batches)

    return results_of(spark.range(0, len(parts), 1, len(parts)).mapInArrow(task, RESULT_SCHEMA))


def run_numbered(data: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The worker's side of ``_run``: works on the parts whose numbers come in."""
    work, parts = unpacked(data)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield result_batch(work(parts[number]))


def packed(work: Any) -> bytes:
    """Pickled and compressed; by value if necessary, as a user's function may be a notebook's."""
    from pyspark import cloudpickle

    data: bytes = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
    return zlib.compress(data, 1)


def unpacked(data: bytes) -> Any:
    """The inverse of ``packed``."""
    return pickle.loads(zlib.decompress(data))


def result_batch(results: Iterable[Any]) -> pa.RecordBatch:
    """Results as a batch of ``RESULT_SCHEMA``."""
    import pyarrow as pa

    values = [pickle.dumps(each) for each in results]
    return pa.RecordBatch.from_pydict({"result": pa.array(values, pa.binary())})


def results_of(frame: DataFrame) -> list[Any]:
    """Runs the job of a frame of ``RESULT_SCHEMA``; its results."""
    with worker_errors():
        return [pickle.loads(row["result"]) for row in frame.collect()]


@contextmanager
def worker_errors() -> Iterator[None]:
    """``SkipstoneError`` for a job that failed because its Python workers lack a package, in place
    of the trace of a worker."""
    try:
        yield
    except Exception as error:
        # Clients of Spark Connect have no py4j, whose errors come from classic sessions.
        of_spark = type(error).__module__.startswith(("py4j.", "pyspark."))
        missing = re.search(r"No module named '([^'.]+)", str(error)) if of_spark else None
        if missing is None:
            raise
        raise SkipstoneError(
            f"the Python of Spark's workers has no {missing[1]}",
            hint="before the session starts, set PYSPARK_PYTHON to a Python that has it (that of"
            f" this process is {sys.executable}), or send it along with --archives or --py-files",
        ) from error


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Spark's UI shows this description for jobs that start within the block."""
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that run at once; an estimate under Connect."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    # Unknown under Connect; leaf-node parallelism, where set, is the documented substitute.
    found: Any = spark.conf.get("spark.sql.leafNodeDefaultParallelism", None)
    return int(found) if found else 8


@contextmanager
def watched(
    spark: SparkSession,
    tasks: int,
    total: int,
    progress: Callable[[int, int], None] | None,
    text: str,
) -> Iterator[None]:
    """Report finished tasks, in files, while the job runs; on Connect only its end is known.

    Spark's UI shows ``text`` as the description of the job.
    """
    if progress is None:
        with described(spark, text):
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
    before = context.getLocalProperty(_GROUP)
    with described(spark, text):
        context.setLocalProperty(_GROUP, tag)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]
    progress(total, total)
