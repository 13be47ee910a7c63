"""Verbs that replace the files of a table one by one, and the job that does so.

The work on a file is a picklable value (``FileJob``). It runs in this process or as a Spark job,
which carries only paths, sizes and outcomes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from skipstone._dataclasses import dataclass
from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    SkipstoneError,
    UnsupportedError,
    in_words,
)
from skipstone.human import plural
from skipstone.identity import is_hadoop
from skipstone.questdb import is_txn_table

from .build import BuildVerbs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.rewrite.file_jobs import FileResult, Given, TableReport
    from skipstone.rewrite.retrofit_file import RetrofitReport, TableRetrofitReport
    from skipstone.rewrite.summary_files import SummaryReport
    from skipstone.salvage.report import SalvageReport
    from skipstone.storage import Listing

    from .file_format import Progress
    from .open_table import OpenTable


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

    verb = type(job).__name__.removesuffix("Files").lower()  # RetrofitFiles
    done = files_on_spark(spark, job.opened, listing, progress, verb)
    return sorted(done, key=lambda each: each.path)


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
            why = in_words(error, path)
            return RetrofitReport(path=path, output=path, outcome="failed", why=why)


_OF_ARGUMENTS = re.compile(
    "no column '|the Bloom filter of .* is not a probability|'.*' is not a sort key"
).match


def _raise_once(work: RetrofitFiles, done: Sequence[RetrofitReport], table: str) -> None:
    """Raises the error of the arguments once for all files, if they are wrong."""
    from skipstone.rewrite.retrofit_file import retrofit

    path = done[0].path
    try:
        retrofit(path, bloom=work.bloom, sorting=work.sorting, dry_run=True)
    except SkipstoneError as error:
        text = error.message.replace(path, f"{plural(len(done), 'file')} of {table}")
        raise SkipstoneError(text, hint=error.hint) from None


class RewriteVerbs(BuildVerbs):
    """The verbs that write data files; see ``Table``."""

    def retrofit(
        self,
        spark: SparkSession | None = None,
        *,
        bloom: Mapping[str, float] | None = None,
        page_rows: int | None = None,
        sorting: Sequence[str] | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> TableRetrofitReport:
        """Add page indexes, Bloom filters, checksums and statistics to the files that lack them.

        >>> table.retrofit(spark, bloom={"user_id": 0.01})

        As ``skipstone.rewrite.retrofit`` does to one file; with ``spark`` as a job. A file that has
        all of it is skipped, so a run that ended early is resumed by the next. A file that cannot
        be done is in the report, and does not stop the others. Afterwards the table's index, if it
        has one, is refreshed. ``progress`` is called with files done and files to do, in a job when
        a task ends.
        """
        if not isinstance(bloom, Mapping | None):
            raise TypeError(f"bloom maps columns to probabilities, as {{'id': 0.01}}: {bloom!r}")
        work = RetrofitFiles(
            bloom=dict(bloom or {}),
            page_rows=page_rows,
            sorting=None if sorting is None else tuple(sorting),
            dry_run=dry_run,
        )
        from skipstone.rewrite.retrofit_file import TableRetrofitReport

        started = time.perf_counter()
        require_local(self, "done", hint="let the writer of the table add page indexes and filters")
        listing = self.listing()
        done = each_file(spark, listing, work, progress)
        if done and all(each.outcome == "failed" and _OF_ARGUMENTS(each.why) for each in done):
            _raise_once(work, done, self.path)
        refreshed = None
        rewritten = any(each.outcome == "rewritten" for each in done)
        if rewritten and not work.dry_run and self.store.snapshot().definitions:
            refreshed = self.refresh(spark)
        return TableRetrofitReport(
            table=self.path,
            files=tuple(done),
            dry_run=work.dry_run,
            refreshed=refreshed,
            seconds=time.perf_counter() - started,
        )

    def salvage(
        self,
        spark: SparkSession | None = None,
        *,
        output: str | None = None,
        schema: str | None = None,
        skip_bad_pages: bool = False,
        footer_only: bool = False,
        decryption: Given[Decryption] | None = None,
        progress: Progress | None = None,
    ) -> TableReport:
        """Save the rows of the files that are damaged; good files are skipped.

        >>> table.salvage(output="lake/saved")

        No file of the table is changed. The rows of ``x.parquet`` go to ``x.parquet`` at the same
        place below the directory ``output``, or to ``x.salvaged.parquet`` next to it: there they
        belong to the table, and you must remove ``x.parquet``. Files salvaged before are skipped.
        The schema of a file without a footer comes from ``schema``, from the rest of its footer,
        from the files next to it, or from the table where all good files agree. ``skip_bad_pages``
        and ``footer_only`` as for ``skipstone.salvage.salvage``.

        With ``decryption``, by default the table's, encrypted files are salvaged too. Their rows
        are written **in the clear**, so ``output`` is required. The keys may be a function that
        makes them in each task. They are bound to the places of the files as for ``check``.
        """
        from skipstone.rewrite.file_jobs import TableReport

        work = SalvageFiles(
            root=self.path,
            output=output,
            schema=schema,
            skip_bad_pages=skip_bad_pages,
            footer_only=footer_only,
            decryption=self.keys.get() if decryption is None else decryption,
        )
        started = time.perf_counter()
        require_local(self, "salvaged")
        notes: tuple[str, ...] = ()
        if work.decryption is not None:
            work, notes = _with_list(work)
        listing = self.listing()
        if work.schema is None:
            fallback = _schema_of_table(self.path, listing.paths, work.keys)
            work = replace(work, fallback=fallback)
        done = each_file(spark, listing, work, progress)
        return TableReport(
            table=self.path,
            verb="salvage",
            files=tuple(done),
            notes=notes,
            seconds=time.perf_counter() - started,
        )

    def write_metadata(
        self, *, dry_run: bool = False, progress: Progress | None = None
    ) -> SummaryReport:
        """Write ``_metadata`` and ``_common_metadata`` into the table's directory.

        >>> table.write_metadata()

        Plans then read the footers of all files from there with one request, for the file versions
        that it has. Footers of unchanged files are not read again; where no file changed, nothing
        is written. Call it after writing to the table: Spark takes the table's schema from
        ``_common_metadata``, and other readers may ignore files that ``_metadata`` does not name.
        ``progress`` is called with files done and files to do.

        ``UnsupportedError`` for files whose schemas differ, that are encrypted, or whose columns
        lie in other files; ``StaleError`` where one changes meanwhile.
        """
        from skipstone.rewrite.summary_files import write_summary

        self.require_parquet()
        self.require_plain("its log names its files, and not _metadata")
        if self.txn is not None:
            raise UnsupportedError(
                f"{self.path} names the versions of its files in _txn",
                hint="`skipstone migrate` gives them row group metadata (_pm)",
            )
        self.require_whole("write-metadata")
        return write_summary(self.listing(), self.storage, dry_run=dry_run, progress=progress)


def require_local(table: OpenTable, what: str, hint: str | None = None) -> None:
    """``UnsupportedError`` where the files of a table cannot be replaced."""
    table.require_plain("its files are not replaced here")
    if "://" in table.path:
        place = "a filesystem of Hadoop's" if is_hadoop(table.path) else "an object store"
        raise UnsupportedError(
            f"{table.path} lies in {place}: only local files are {what}",
            hint="copy the files to a local directory, and put them back when it is done",
        )
    if is_txn_table(table.path, table.storage):
        raise UnsupportedError(
            f"{table.path} names the sizes of its files in _txn: they cannot be replaced", hint=hint
        )


_SUFFIX = ".salvaged.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageFiles:
    """Salvage damaged files; ``fallback`` is a file that has the schema of the table."""

    root: str
    output: str | None = None
    schema: str | None = None
    fallback: str | None = None
    skip_bad_pages: bool = False
    footer_only: bool = False
    decryption: Given[Decryption] | None = field(default=None, repr=False)
    beginning: bytes | None = None

    def opened(self) -> Callable[[str, int], FileResult]:
        """The function that salvages a file."""
        from skipstone.rewrite.file_jobs import outcome_of

        keys = self.keys
        return lambda path, size: outcome_of(path, lambda: self._one(path, size, keys))

    @property
    def keys(self) -> Decryption | None:
        """The keys, bound to the places of the files; files in the clear are read too."""
        from skipstone.rewrite.encrypted_file_list import bound_to
        from skipstone.rewrite.file_jobs import given

        if self.decryption is None:
            return None
        made = given(self.decryption, "the keys")
        prefix = bound_to(self.root, made.aad_prefix, self.beginning)
        return made.replaced(aad_prefix=prefix, allow_plaintext_files=True)

    def _one(self, path: str, size: int, keys: Decryption | None) -> FileResult:
        from skipstone.rewrite.encrypted_file_list import TablePrefix
        from skipstone.rewrite.file_jobs import FileResult
        from skipstone.salvage.salvage_file import damage_of, salvage

        target = f"{path.removesuffix('.parquet')}{_SUFFIX}"
        if self.output is not None:
            target = f"{self.output}/{TablePrefix(self.root, b'-').relative(path)}"
        damage = damage_of(path, keys)
        if not damage:
            return FileResult(path=path, outcome="already", output=path, bytes_read=size)
        if Path(target).exists():
            return FileResult(path=path, outcome="already", output=target, bytes_read=size)
        Path(target).parent.mkdir(parents=True, exist_ok=True)

        def saved(schema: str | None) -> SalvageReport:
            return salvage(
                path,
                output=target,
                schema=schema,
                skip_bad_pages=self.skip_bad_pages,
                footer_only=self.footer_only,
                decryption=keys,
            )

        try:
            found = saved(self.schema)
        except SkipstoneError:
            if self.fallback is None:
                raise
            found = saved(self.fallback)
        if found.output is None:
            return FileResult(path=path, outcome="failed", why=f"nothing could be saved: {damage}")
        left = len(found.row_groups) - len(found.saved)
        why = (
            f"{damage}; saved {len(found.saved):,} of {len(found.row_groups):,} complete row groups"
        )
        return FileResult(
            path=path,
            outcome="done" if found.ok and not left else "partly",
            output=found.output,
            why=f"{why} with {found.num_rows:,} rows",
            bytes_read=size,
            bytes_written=Path(found.output).stat().st_size,
        )


def _with_list(work: SalvageFiles) -> tuple[SalvageFiles, tuple[str, ...]]:
    """``work`` with the AAD prefix in the list of the encrypted files; and notes."""
    from skipstone.rewrite.encrypted_file_list import read_list
    from skipstone.rewrite.file_jobs import given

    assert work.decryption is not None
    if work.output is None:
        raise UnsupportedError(
            "the saved rows of encrypted files are in the clear, and are not put among the files",
            hint="name another directory for them: output=…, --output",
        )
    try:
        known = read_list(work.root, given(work.decryption, "the keys"))
    except (FormatError, KeyUnavailableError) as error:  # it may be damaged, too
        return work, (f"the list of the encrypted files does not open: {error.message}",)
    return replace(work, beginning=None if known is None else known.beginning), ()


def _schema_of_table(root: str, paths: list[str], keys: Decryption | None) -> str | None:
    """A file with the schema of the table: a summary, or any file if all have one schema."""
    from skipstone.salvage.schema_source import given_schema

    for name in ("_common_metadata", "_metadata"):
        if Path(root, name).is_file():
            return str(Path(root, name))
    first, elements = None, None
    for path in paths:
        try:
            found = given_schema(path, keys).elements
        except (SkipstoneError, OSError):
            continue
        if first is None:
            first, elements = path, found
        elif found != elements:
            return None
    return first
