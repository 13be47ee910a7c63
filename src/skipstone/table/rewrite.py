"""Verbs that replace the files of a table one by one, and the job that does so.

The work on a file is a picklable value (``FileJob``). It runs in this process or as a Spark job,
which carries only paths, sizes and outcomes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.questdb.txn_snapshot import is_txn_table

from .build import BuildRequest, refresh_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from skipstone.rewrite.retrofit_file import RetrofitReport, TableRetrofitReport
    from skipstone.rewrite.summary_files import SummaryReport
    from skipstone.storage import Listing

    from .file_format import Progress
    from .open_table import OpenTable

__all__ = [
    "FileJob",
    "RetrofitFiles",
    "each_file",
    "require_local",
    "retrofit_table",
    "write_table_metadata",
]


class FileOutcome(Protocol):
    """The outcome of one file; picklable."""

    @property
    def path(self) -> str:
        """The file."""


F_co = TypeVar("F_co", bound=FileOutcome, covariant=True)
F = TypeVar("F", bound=FileOutcome)


class FileJob(Protocol[F_co]):
    """The work on one file; picklable."""

    def opened(self) -> Callable[[str, int], F_co]:
        """The function of a path and a size; each task makes it once."""


def each_file(
    spark: SparkSession | None, listing: Listing, job: FileJob[F], progress: Progress | None
) -> list[F]:
    """Run ``job`` over the files of ``listing``; the outcomes in the order of the paths."""
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
    from skipstone.spark.jobs import files_on_spark

    return sorted(files_on_spark(spark, job.opened, listing, progress), key=lambda each: each.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrofitFiles:
    """The ``FileJob`` of ``Table.retrofit``, with its arguments."""

    bloom: Mapping[str, float] = field(default_factory=dict)
    page_rows: int | None = None
    sorting: tuple[str, ...] | None = None
    dry_run: bool = False

    def opened(self) -> Callable[[str, int], RetrofitReport]:
        """The function that retrofits a file."""
        return self._one

    def _one(self, path: str, size: int) -> RetrofitReport:
        from skipstone.rewrite.retrofit_file import RetrofitReport, retrofit

        try:
            return retrofit(
                path,
                bloom=self.bloom,
                page_rows=self.page_rows,
                sorting=self.sorting,
                dry_run=self.dry_run,
            )
        except (SkipstoneError, OSError) as error:
            why = error.message if isinstance(error, SkipstoneError) else str(error)
            return RetrofitReport(path=path, output=path, fate="failed", why=why)


def retrofit_table(
    table: OpenTable, spark: SparkSession | None, work: RetrofitFiles, progress: Progress | None
) -> TableRetrofitReport:
    """See ``Table.retrofit``."""
    from skipstone.rewrite.retrofit_file import TableRetrofitReport

    started = time.perf_counter()
    require_local(table, "done", hint="let the writer of the table add page indexes and filters")
    done = each_file(spark, table.listing(), work, progress)
    refreshed = None
    rewritten = any(each.fate == "rewritten" for each in done)
    if rewritten and not work.dry_run and table.store.snapshot().definitions:
        refreshed = refresh_table(table, spark, BuildRequest())
    return TableRetrofitReport(
        table=table.path,
        files=tuple(done),
        dry_run=work.dry_run,
        refreshed=refreshed,
        seconds=time.perf_counter() - started,
    )


def require_local(table: OpenTable, what: str, hint: str | None = None) -> None:
    """``UnsupportedError`` where the files of a table cannot be replaced."""
    if "://" in table.path:
        raise UnsupportedError(f"{table.path} lies in an object store: only local files are {what}")
    if is_txn_table(table.path, table.storage):
        raise UnsupportedError(
            f"{table.path} names the sizes of its files in _txn: they cannot be replaced", hint=hint
        )


def write_table_metadata(
    table: OpenTable, *, dry_run: bool = False, progress: Progress | None = None
) -> SummaryReport:
    """See ``Table.write_metadata``."""
    from skipstone.rewrite.summary_files import write_summary

    table.require_parquet()
    if table.txn is not None:
        raise UnsupportedError(
            f"{table.path} names the versions of its files in _txn",
            hint="`skipstone migrate` gives them row group metadata (_pm)",
        )
    return write_summary(table.listing(), table.storage, dry_run=dry_run, progress=progress)
