"""Adds missing indexes, filters, checksums and statistics to a Parquet file: ``retrofit``.

    before   PAR1 | chunks of row group 0 | chunks of row group 1 | … | indexes | footer
    after    PAR1 | chunks, Bloom filters | chunks, Bloom filters | … | column indexes,
             offset indexes | footer

Page bodies are copied byte for byte. Headers get checksums, so all offsets change. Values are
decoded only to compute statistics, one page at a time. Memory holds a few batches of pages at most.
Chunks that need nothing are copied with their indexes and filters.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from skipstone.errors import SkipstoneError
from skipstone.human import Report, duration, first_of, of_total, plural, size
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.writing.retrofit_needs import (
    KINDS,
    IndexOptions,
    needs_of,
    refuse,
    sorting_orders,
)
from skipstone.storage.atomic_replace import local_path

from .retrofit_writer import RetrofitWriter, write_changed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def retrofit(
    path: str | os.PathLike[str],
    *,
    bloom: Mapping[str, float] | None = None,
    page_rows: int | None = None,
    sorting: Sequence[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> RetrofitReport:
    """Add page index, Bloom filters, checksums, statistics and size statistics to a local file.

    ``bloom`` maps columns to the probability of a false positive; the size of a filter follows from
    the number of distinct values in the row group. ``page_rows``: pages of more rows are split;
    only these are encoded again. ``sorting`` names keys (``"ts"``, ``"ts:desc:nulls_first"``). A
    row group claims this order only if its rows have it; its old claim is checked, too.
    ``output`` is another file to write instead of this one; ``dry_run`` writes nothing.

    The replacement is atomic. Raises ``FormatError`` for a damaged file, ``UnsupportedError`` if
    columns are encrypted or in other files, ``StaleError`` if the file changed meanwhile.
    """
    return retrofit_file(
        ParquetFile(path),
        bloom=bloom or {},
        page_rows=page_rows,
        sorting=sorting,
        output=output,
        dry_run=dry_run,
    )


def retrofit_file(
    file: ParquetFile,
    *,
    bloom: Mapping[str, float],
    page_rows: int | None,
    sorting: Sequence[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> RetrofitReport:
    """``retrofit`` for an opened file; ``StaleError`` if the path has another version now."""
    started = time.perf_counter()
    place = local_path(file.path)
    target = place if output is None else local_path(os.fspath(output))
    if target.is_dir():
        raise SkipstoneError(f"{target} is a directory", hint="give the path of the file to write")
    refuse(file)
    index_options = IndexOptions.of(file.footer, file.selection, bloom, page_rows, sorting)
    needs = needs_of(file, index_options)
    orders = sorting_orders(file, index_options, check_old=bool(needs))
    report: dict[str, Any] = {
        "path": file.path,
        "output": str(target),
        "rows": file.num_rows,
        "row_groups": file.num_row_groups,
        "chunks": file.num_row_groups * len(file.footer.schema.leaves),
        "bytes_before": file.size,
        "dry_run": dry_run,
    }
    if not needs and not orders.changed and target == place:
        return RetrofitReport(
            outcome="complete",
            bytes_after=file.size,
            seconds=time.perf_counter() - started,
            **report,
        )

    work = RetrofitWriter(file, index_options, needs, orders)
    after = write_changed(file, target, work.write, dry_run=dry_run)
    return RetrofitReport(
        outcome="rewritten",
        bytes_after=after,
        pages=work.pages,
        added={name: work.added[name] for name in KINDS if name in work.added},
        bytes_of=work.bytes_of,
        sorted_groups=orders.claimed,
        notes=(*orders.notes, *work.notes),
        seconds=time.perf_counter() - started,
        **report,
    )


#: The file was rewritten; it has everything requested already; the retrofit is not possible.
Outcome: TypeAlias = Literal["rewritten", "complete", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrofitReport(Report):
    """What a retrofit added to one file, or with ``dry_run`` would add.

    ``output`` is the path of the new file. ``added`` counts the column chunks, of ``chunks`` in
    all, by what they got; ``bytes_added`` is its size. ``sorted_groups`` counts the row groups that
    claim an order now. ``notes`` list what was left out, and why; ``why`` is the reason if nothing
    could be done.
    """

    path: str
    output: str
    outcome: Outcome
    dry_run: bool = False
    why: str = ""
    rows: int = 0
    row_groups: int = 0
    chunks: int = 0
    pages: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    added: Mapping[str, int] = field(default_factory=dict)
    bytes_of: Mapping[str, int] = field(default_factory=dict)
    sorted_groups: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    computed = ("ok",)

    @property
    def ok(self) -> bool:
        """True if the file now has everything that it can have."""
        return self.outcome != "failed"

    @property
    def bytes_added(self) -> int:
        """How much larger the file is."""
        return self.bytes_after - self.bytes_before

    def __str__(self) -> str:
        if self.outcome == "failed":
            return f"{self.path}: failed: {self.why}"
        what = f"{plural(self.rows, 'row')} in {plural(self.row_groups, 'row group')}"
        if self.outcome == "complete":
            return f"{self.path}: has everything already ({what}, {size(self.bytes_before)})"
        verb = "would write" if self.dry_run else "wrote"
        lines = [f"{verb} {self.output}: {what}, {plural(self.pages, 'page')}"]
        for name in KINDS:
            if self.added.get(name):
                took = self.bytes_of.get(name)
                tail = f", {size(took)}" if took else ""
                lines.append(f"  {name}: {of_total(self.added[name], self.chunks, 'chunks')}{tail}")
        if self.sorted_groups:
            count = of_total(self.sorted_groups, self.row_groups, "row groups")
            lines.append(f"  sorting columns: {count}")
        lines += [f"  {note}" for note in self.notes]
        lines.append(
            f"  {size(self.bytes_before)} before, {size(self.bytes_after)} after,"
            f" {duration(1000 * self.seconds)}"
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRetrofitReport(Report):
    """What a retrofit did to each file of a table; ``refreshed`` reports the refresh of facts."""

    table: str
    files: tuple[RetrofitReport, ...]
    dry_run: bool = False
    refreshed: Any = None
    seconds: float = 0.0

    computed = ("added", "ok")

    @property
    def ok(self) -> bool:
        """True if every file now has everything that it can have."""
        return all(each.ok for each in self.files)

    def of(self, outcome: Outcome) -> tuple[RetrofitReport, ...]:
        """The files with this outcome."""
        return tuple([each for each in self.files if each.outcome == outcome])

    @property
    def added(self) -> dict[str, int]:
        """The number of column chunks by what they got."""
        total: dict[str, int] = {}
        for each in self.files:
            for name, count in each.added.items():
                total[name] = total.get(name, 0) + count
        return total

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values, with sums over the files."""
        counts = {outcome: len(self.of(outcome)) for outcome in get_args(Outcome)}
        return {**Report.to_dict(self), "files_total": len(self.files), **counts}

    def __str__(self) -> str:
        total, written = len(self.files), self.of("rewritten")
        verb = "would write" if self.dry_run else "wrote"
        lines = [f"{verb} {of_total(len(written), total, 'files')}"]
        chunks = sum(each.chunks for each in written)
        added = self.added
        lines += [
            f"  {name}: {of_total(added[name], chunks, 'chunks')}"
            for name in KINDS
            if name in added
        ]
        lines.append(f"{of_total(len(self.of('complete')), total, 'files')} had everything already")
        failed = self.of("failed")
        lines += first_of(
            f"failed, {of_total(len(failed), total, 'files')}:",
            [f"{each.path}: {each.why}" for each in failed],
        )
        before, after = (
            sum(getattr(each, name) for each in self.files)
            for name in ("bytes_before", "bytes_after")
        )
        lines.append(f"{size(before)} before, {size(after)} after, {duration(1000 * self.seconds)}")
        if self.refreshed is not None:
            lines.append(str(self.refreshed))
        return "\n".join(lines)
