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
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.human import (
    FilesReport,
    Report,
    duration,
    first_of,
    of_total,
    plural,
    size,
    some_of,
)
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.writing.retrofit_needs import (
    KINDS,
    IndexOptions,
    needs_of,
    refuse,
    sorting_orders,
    why_no_column_index,
)
from skipstone.storage.atomic_replace import local_path

from .retrofit_writer import RetrofitWriter, write_changed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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
            without_column_index=_by_reason(_unindexed(file, index_options)),
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
        without_column_index=_by_reason(work.unindexed),
        sorted_groups=orders.claimed,
        notes=(*orders.notes, *work.notes),
        seconds=time.perf_counter() - started,
        **report,
    )


def _unindexed(file: ParquetFile, index_options: IndexOptions) -> Counter[tuple[str, str]]:
    """The chunks without a column index, by reason and column, of a file that lacks nothing."""
    found: Counter[tuple[str, str]] = Counter()
    chunk = file.footer.chunk
    missing = np.minimum(chunk("column_index_offset"), chunk("column_index_length")) <= 0
    for r, c in np.argwhere(missing).tolist():
        why = why_no_column_index(file, (r, c), index_options.orders[c])
        found[why, file.footer.schema.leaves[c].name] += 1
    return found


def _by_reason(counts: Mapping[tuple[str, str], int]) -> Mapping[str, Mapping[str, int]]:
    """The counts by reason, then by column; the most frequent first."""
    found: dict[str, dict[str, int]] = {}
    for (why, column), count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        found.setdefault(why, {})[column] = count
    return dict(sorted(found.items(), key=lambda each: -sum(each[1].values())))


def _unindexed_lines(unindexed: Mapping[str, Mapping[str, int]], chunks: int) -> list[str]:
    """How many of ``chunks`` have no column index, and a line for each reason."""
    counts = {why: sum(columns.values()) for why, columns in unindexed.items()}
    return first_of(
        f"no column index: {of_total(sum(counts.values()), chunks, 'chunks')}",
        [
            f"{why}: {plural(counts[why], 'chunk')} ({some_of([*columns])})"
            for why, columns in unindexed.items()
        ],
    )


#: The file was rewritten; it has everything requested already; the retrofit is not possible.
Outcome: TypeAlias = Literal["rewritten", "complete", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrofitReport(Report):
    """What a retrofit added to one file, or with ``dry_run`` would add.

    ``output`` is the path of the new file. ``added`` counts the column chunks, of ``chunks`` in
    all, by what they got; ``bytes_added`` is its size. ``sorted_groups`` counts the row groups that
    claim an order now. ``without_column_index`` counts the chunks that have none, by reason and
    column. ``notes`` list what else was left out, and why; ``why`` is the reason if nothing could
    be done.
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
    without_column_index: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
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
        without = [f"  {each}" for each in _unindexed_lines(self.without_column_index, self.chunks)]
        if self.outcome == "complete":
            complete = f"{self.path}: has everything already ({what}, {size(self.bytes_before)})"
            return "\n".join([complete, *without])
        verb = "would write" if self.dry_run else "wrote"
        lines = [
            f"{verb} {self.output}: {what}, {plural(self.pages, 'page')}",
            *_added_lines(self, self.chunks, self.row_groups),
            *without,
            *(f"  {note}" for note in self.notes),
            f"  {size(self.bytes_before)} before, {size(self.bytes_after)} after,"
            f" {duration(1000 * self.seconds)}",
        ]
        return "\n".join(lines)


def _added_lines(
    report: RetrofitReport | TableRetrofitReport, chunks: int, row_groups: int
) -> list[str]:
    """What chunks and row groups got, and its size."""
    lines = []
    added, bytes_of = report.added, report.bytes_of
    for name in KINDS:
        if added.get(name):
            tail = f", {size(bytes_of[name])}" if bytes_of.get(name) else ""
            lines.append(f"  {name}: {of_total(added[name], chunks, 'chunks')}{tail}")
    if report.sorted_groups:
        claimed = of_total(report.sorted_groups, row_groups, "row groups")
        lines.append(f"  sorting columns: {claimed}")
    return lines


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRetrofitReport(FilesReport[RetrofitReport]):
    """What a retrofit did to each file of a table; ``refreshed`` reports the refresh of facts."""

    table: str
    files: tuple[RetrofitReport, ...]
    dry_run: bool = False
    refreshed: Any = None
    seconds: float = 0.0

    computed = ("added", "bytes_of", "sorted_groups", "without_column_index", "ok")
    outcomes = get_args(Outcome)

    @property
    def added(self) -> dict[str, int]:
        """The number of column chunks by what they got."""
        return _sums(each.added for each in self.files)

    @property
    def bytes_of(self) -> dict[str, int]:
        """The bytes of what was added."""
        return _sums(each.bytes_of for each in self.files)

    @property
    def sorted_groups(self) -> int:
        """The row groups that claim an order now."""
        return sum(each.sorted_groups for each in self.files)

    @property
    def without_column_index(self) -> Mapping[str, Mapping[str, int]]:
        """The chunks of all files that have no column index, by reason and column."""
        total: Counter[tuple[str, str]] = Counter()
        for each in self.files:
            for why, columns in each.without_column_index.items():
                total.update({(why, column): count for column, count in columns.items()})
        return _by_reason(total)

    def __str__(self) -> str:
        written = self.of("rewritten")
        verb = "would write" if self.dry_run else "wrote"
        before, after, chunks = (
            sum(getattr(each, name) for each in self.files)
            for name in ("bytes_before", "bytes_after", "chunks")
        )
        row_groups = sum(each.row_groups for each in written)
        lines = [
            f"{verb} {self.counted('rewritten')} of {self.table}",
            *_added_lines(self, sum(each.chunks for each in written), row_groups),
            f"{self.counted('complete')} had everything already",
            *_unindexed_lines(self.without_column_index, chunks),
            *self.reasons("failed", "failed"),
            f"{size(before)} before, {size(after)} after, {duration(1000 * self.seconds)}",
        ]
        if self.refreshed is not None:
            lines.append(str(self.refreshed))
        return "\n".join(lines)
