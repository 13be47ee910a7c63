"""``Table.salvage``: good files out of those of a table that are damaged."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipstone.errors import SkipstoneError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from skipstone.rewrite.salvage_report import SalvageReport
    from skipstone.rewrite.table_report import FileFate, TableReport

    from .reading import Progress
    from .table import Table

__all__ = ["salvage_table"]

_SUFFIX = ".salvaged.parquet"


def salvage_table(
    self: Table,
    spark: SparkSession | None = None,
    *,
    output: str | None = None,
    schema: str | None = None,
    skip_bad_pages: bool = False,
    footer_only: bool = False,
    progress: Progress | None = None,
) -> TableReport:
    """Save the rows of the files that are damaged; the others are read, and passed over.

    No file of the table is touched. What is saved of ``x.parquet`` becomes ``x.parquet`` at the
    same place below the directory ``output``, or ``x.salvaged.parquet`` beside it: there it belongs
    to the table, and ``x.parquet`` is for you to remove. What was salvaged before is not salvaged
    again. The schema of a file without a footer is ``schema``, what is left of its footer, that of
    the files beside it, or that of the table where all of its good files agree.
    ``skip_bad_pages`` and ``footer_only`` as for ``skipstone.rewrite.salvage``.
    """
    from skipstone.rewrite.table_report import TableReport
    from skipstone.scan.txn_snapshot import is_txn_table

    from .file_jobs import each_file

    started = time.perf_counter()
    if "://" in self.path:
        raise UnsupportedError(
            f"{self.path} lies in an object store: only local files are salvaged"
        )
    if is_txn_table(self.path, self.storage):
        raise UnsupportedError(f"{self.path} names the sizes of its files in _txn")
    listing = self.listing()
    job = SalvageFiles(
        root=self.path,
        output=output,
        schema=schema,
        fallback=None if schema is not None else _schema_of_table(self.path, listing.paths),
        skip_bad_pages=skip_bad_pages,
        footer_only=footer_only,
    )
    done = each_file(spark, listing, job, progress)
    return TableReport(
        table=self.path,
        verb="salvage",
        files=tuple(done),
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageFiles:
    """Salvage damaged files; ``fallback`` is a file that has the schema of the table."""

    root: str
    output: str | None = None
    schema: str | None = None
    fallback: str | None = None
    skip_bad_pages: bool = False
    footer_only: bool = False

    def opened(self) -> Callable[[str, int], FileFate]:
        """The function that does it."""
        from skipstone.rewrite.table_work import fate_of

        return lambda path, size: fate_of(path, lambda: self._one(path, size))

    def _one(self, path: str, size: int) -> FileFate:
        from pathlib import Path

        from skipstone.rewrite.damage import damage_of
        from skipstone.rewrite.salvaging import salvage
        from skipstone.rewrite.table_prefix import TablePrefix
        from skipstone.rewrite.table_report import FileFate

        target = f"{path.removesuffix('.parquet')}{_SUFFIX}"
        if self.output is not None:
            target = f"{self.output}/{TablePrefix(self.root, b'-').relative(path)}"
        damage = damage_of(path)
        if not damage:
            return FileFate(path=path, fate="already", output=path, bytes_read=size)
        if Path(target).exists():
            return FileFate(path=path, fate="already", output=target, bytes_read=size)
        Path(target).parent.mkdir(parents=True, exist_ok=True)

        def saved(schema: str | None) -> SalvageReport:
            return salvage(
                path,
                output=target,
                schema=schema,
                skip_bad_pages=self.skip_bad_pages,
                footer_only=self.footer_only,
            )

        try:
            found = saved(self.schema)
        except SkipstoneError:
            if self.fallback is None:
                raise
            found = saved(self.fallback)
        if found.output is None:
            return FileFate(path=path, fate="failed", why=f"nothing could be saved: {damage}")
        left = len(found.row_groups) - len(found.saved)
        why = f"{damage}; saved {len(found.saved):,} of {len(found.row_groups):,} whole row groups"
        return FileFate(
            path=path,
            fate="done" if found.ok and not left else "partly",
            output=found.output,
            why=f"{why} with {found.num_rows:,} rows",
            bytes_read=size,
            bytes_written=Path(found.output).stat().st_size,
        )


def _schema_of_table(root: str, paths: list[str]) -> str | None:
    """A file that tells the schema of all: a summary, or any of those that agree."""
    from pathlib import Path

    from skipstone.rewrite.schema_source import given

    for name in ("_common_metadata", "_metadata"):
        if Path(root, name).is_file():
            return str(Path(root, name))
    first, elements = None, None
    for path in paths:
        try:
            found = given(path).elements
        except (SkipstoneError, OSError):
            continue
        if first is None:
            first, elements = path, found
        elif found != elements:
            return None
    return first
