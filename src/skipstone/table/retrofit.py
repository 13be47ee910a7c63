"""``Table.retrofit``: the files of a table one by one, here or as a Spark job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .run_file_jobs import each_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from skipstone.rewrite.retrofit_file import RetrofitReport, TableRetrofitReport

    from .data_files import Progress
    from .table import Table

__all__ = ["retrofit_table"]


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

    As ``skipstone.rewrite.retrofit`` does to one file; with ``spark`` as a job.
    A file that has all that is asked is passed over, so a run that ended early is resumed by the
    next. One that cannot be done is in the report, and stops no other. Afterwards the facts of the
    table's index, if it has one, are refreshed for the files as they are now. ``progress`` is
    called with files done and files to do, in a job when a task has ended.
    """
    import time

    from skipstone.errors import UnsupportedError
    from skipstone.questdb.txn_snapshot import is_txn_table
    from skipstone.rewrite.retrofit_file import TableRetrofitReport

    if "://" in self.path:
        raise UnsupportedError(f"{self.path} lies in an object store: only local files are done")
    if is_txn_table(self.path, self.storage):
        raise UnsupportedError(
            f"{self.path} names the sizes of its files in _txn: they cannot be replaced",
            hint="let the writer of the table add page indexes and filters",
        )
    started = time.perf_counter()
    options = {
        "bloom": dict(bloom or {}),
        "page_rows": page_rows,
        "sorting": None if sorting is None else tuple(sorting),
        "dry_run": dry_run,
    }
    done = each_file(spark, self.listing(), _Retrofit(options), progress)
    refreshed = None
    rewritten = any(each.fate == "rewritten" for each in done)
    if rewritten and not dry_run and self.store.snapshot().definitions:
        refreshed = self.refresh(spark)
    return TableRetrofitReport(
        table=self.path,
        files=tuple(done),
        dry_run=dry_run,
        refreshed=refreshed,
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True)
class _Retrofit:
    """A ``FileJob``."""

    options: Mapping[str, Any]

    def opened(self) -> Callable[[str, int], RetrofitReport]:
        return lambda path, size: _one(path, self.options)


def _one(path: str, options: Mapping[str, Any]) -> RetrofitReport:
    from skipstone.errors import SkipstoneError
    from skipstone.rewrite.retrofit_file import RetrofitReport, retrofit

    try:
        return retrofit(path, **options)
    except (SkipstoneError, OSError) as error:
        why = error.message if isinstance(error, SkipstoneError) else str(error)
        return RetrofitReport(path=path, output=path, fate="failed", why=why)
