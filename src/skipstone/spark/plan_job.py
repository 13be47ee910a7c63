"""Planning as a Spark job: facts that outgrow a driver are asked where they lie.

The store's runs of fact rows (``store/runs.py``) are shared out over tasks by bytes; a task reads
the columns that the predicate needs of one run after the other, evaluates the same tree by the
same evidence as a driver would (``plan/runs.py``), and only bits per leaf come back.
"""

from __future__ import annotations

import pickle
import zlib
from typing import TYPE_CHECKING

from .session import is_connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from skipstone.facts.runs import FactRun
    from skipstone.planning.runs import RunAnswer, RunJob, Runner

__all__ = ["answer_shares", "on_spark"]

# A task's share: large enough to be worth starting one, small enough to spread over a cluster.
BYTES_PER_TASK = 64 * 2**20


def on_spark(spark: SparkSession) -> Runner:
    """Runs a job as tasks of ``spark``."""

    def run(job: RunJob, runs: Sequence[FactRun]) -> Iterable[RunAnswer]:
        if not runs:
            return
        shares = _shares(runs)
        work = zlib.compress(pickle.dumps((job, shares)), 1)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from .plan_job import answer_shares

            return answer_shares(work, batches)

        frame = spark.range(0, len(shares), 1, len(shares)).mapInArrow(task, "answers binary")
        context = None if is_connect(spark) else spark.sparkContext
        described = None if context is None else context.getLocalProperty(_DESCRIPTION)
        if context is not None:
            context.setLocalProperty(_DESCRIPTION, "skipstone: facts of a plan")
        try:
            rows = frame.collect()
        finally:
            if context is not None:
                context.setLocalProperty(_DESCRIPTION, described)  # type: ignore[arg-type]
        for row in rows:
            yield pickle.loads(row["answers"])

    return run


_DESCRIPTION = "spark.job.description"


def _shares(runs: Sequence[FactRun]) -> list[list[FactRun]]:
    """The runs in shares of about ``BYTES_PER_TASK``; neighbours stay together, as they lie."""
    shares: list[list[FactRun]] = []
    held = BYTES_PER_TASK
    for run in runs:
        if held + run.nbytes > BYTES_PER_TASK:
            shares.append([])
            held = 0
        shares[-1].append(run)
        held += run.nbytes
    return shares


def answer_shares(work: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a Spark worker does: the shares whose numbers come in, one row per run."""
    import pyarrow as pa

    job, shares = pickle.loads(zlib.decompress(work))
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for run in shares[number]:
                answer = pa.array([pickle.dumps(job.run(run))], pa.binary())
                yield pa.RecordBatch.from_arrays([answer], names=["answers"])
