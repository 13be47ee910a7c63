"""``Table.write_metadata``: the footers of a table's files in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import UnsupportedError

from .data_files import ParquetReading

if TYPE_CHECKING:
    from skipstone.rewrite.summary_files import SummaryReport

    from .data_files import Progress
    from .table import Table

__all__ = ["write_table_metadata"]


def write_table_metadata(
    self: Table, *, dry_run: bool = False, progress: Progress | None = None
) -> SummaryReport:
    """Write ``_metadata`` and ``_common_metadata`` into the table's directory, or bring them up.

    Plans then take the footers of all files from there with one request, as far as those are the
    versions that it was made of. What has not changed since the last time is not read again;
    where nothing has, nothing is written. Call it after writing to the table: Spark takes the
    table's schema from ``_common_metadata``, and others may take files that ``_metadata`` does not
    name for none of the table's. ``progress`` is called with files done and files to do.

    ``UnsupportedError`` for files whose schemas differ, that are encrypted, or whose columns lie in
    other files; ``StaleError`` where one changes meanwhile.
    """
    from skipstone.rewrite.summary_files import write_summary

    if not isinstance(self.reading, ParquetReading):
        raise UnsupportedError(f"{self.path} is not a table of Parquet files")
    if self.txn is not None:
        raise UnsupportedError(
            f"{self.path} names the versions of its files in _txn",
            hint="`skipstone migrate` gives them row group metadata (_pm)",
        )
    return write_summary(self.listing(), self.storage, dry_run=dry_run, progress=progress)
