"""``Table.retrofit``: the files of a table one by one, here or as a Spark job."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from skipstone.rewrite.retrofit_report import RetrofitReport, TableRetrofitReport

    from .reading import Progress
    from .table import Table

__all__ = ["retrofit_table"]

_MOST_TASKS: Final = 1_000


def retrofit_table(
    self: Table,
    spark: SparkSession | None = None,
    *,
    bloom: Mapping[str, float] | None = None,
    page_rows: int | None = None,
    sorting: Sequence[str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> TableRetrofitReport:
    """Add page indexes, Bloom filters, checksums and statistics to the files that lack them.

    As ``skipstone.rewrite.retrofit`` does to one file; with ``spark`` as a job, one file to a task.
    A file that has all that is asked is passed over, so a run that ended early is resumed by the
    next. One that cannot be done is in the report, and stops no other. Afterwards the facts of the
    table's index, if it has one, are refreshed for the files as they are now. ``progress`` is
    called with files done and files to do.
    """
    import time

    from skipstone.errors import UnsupportedError
    from skipstone.rewrite.retrofit_report import TableRetrofitReport
    from skipstone.scan.txn_snapshot import is_txn_table

    if "://" in self.path:
        raise UnsupportedError(f"{self.path} lies in an object store: only local files are done")
    if is_txn_table(self.path, self.storage):
        raise UnsupportedError(
            f"{self.path} names the sizes of its files in _txn: they cannot be replaced",
            hint="let the writer of the table add page indexes and filters",
        )
    started = time.perf_counter()
    paths = list(self.listing().paths)
    options = {
        "bloom": dict(bloom or {}),
        "page_rows": page_rows,
        "sorting": None if sorting is None else tuple(sorting),
        "dry_run": dry_run,
    }
    done: list[RetrofitReport] = []
    reports = _here(paths, options) if spark is None else _job(spark, paths, options)
    for each in reports:
        done.append(each)
        if progress is not None:
            progress(len(done), len(paths))
    refreshed = None
    rewritten = any(each.fate == "rewritten" for each in done)
    if rewritten and not dry_run and self.store.snapshot().definitions:
        refreshed = self.refresh(spark)
    return TableRetrofitReport(
        table=self.path,
        files=tuple(sorted(done, key=lambda each: each.path)),
        dry_run=dry_run,
        refreshed=refreshed,
        seconds=time.perf_counter() - started,
    )


def _one(path: str, options: Mapping[str, Any]) -> RetrofitReport:
    from skipstone.errors import SkipstoneError
    from skipstone.rewrite.retrofit_report import RetrofitReport
    from skipstone.rewrite.retrofitting import retrofit

    try:
        return retrofit(path, **options)
    except (SkipstoneError, OSError) as error:
        why = error.message if isinstance(error, SkipstoneError) else str(error)
        return RetrofitReport(path=path, output=path, fate="failed", why=why)


def _here(paths: Sequence[str], options: Mapping[str, Any]) -> Iterator[RetrofitReport]:
    for path in paths:
        yield _one(path, options)


def _job(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, Any]
) -> Iterator[RetrofitReport]:
    if not paths:
        return
    tasks = min(len(paths), _MOST_TASKS)
    listed = [(number % tasks, path) for number, path in enumerate(paths)]
    frame = spark.createDataFrame(listed, "task int, path string").repartition(tasks, "task")

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for path in batch.column("path").to_pylist():
                held = pickle.dumps(_one(path, options))
                yield pa.RecordBatch.from_pydict({"report": pa.array([held], pa.binary())})

    for row in frame.mapInArrow(work, "report binary").toLocalIterator():
        yield pickle.loads(row["report"])
