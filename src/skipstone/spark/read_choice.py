"""How ``Table.read`` reads: by Spark's own reader over the remaining files, by planned pages, or
by reading few rows ahead.

Spark's reader accepts a list of files, and finds row groups and pages itself. It reads all columns
of every row, and cannot use the rows that an index selects. ``format("skipstone")`` decides the
rows by the columns of the predicate and fetches the pages of those that match, in Python workers,
which take time to start. This process does the same at once, and is used while the rows are few.
The choice is by cost, with the constants of ``pruning/costs.py``. Spark's reader is used wherever
the ways could differ in rows or types: with settings that change the meaning of a text or a value,
with types that differ, and for parts of a predicate that only Spark decides.

If an index decides the rows, their number is known. Otherwise few files are read until there are
too many rows. Of many files, the rows of some are decided first.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._arrays import no_rows
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.execution.forecast import io_forecast
from skipstone.execution.plan_rows import TableReader, plan_of
from skipstone.human import duration, of_total, size
from skipstone.predicate.tree import Computed, pieces
from skipstone.pruning import RowSet
from skipstone.pruning.costs import SPARK, SPARK_REMOTE, SparkCosts
from skipstone.pruning.plan import FileDetail, Plan
from skipstone.pruning.residual import require_decidable

from .relation import HARMLESS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.execution import TableScan


# The most files that are opened for a choice, and the most whose rows are decided; they are spread
# evenly.
_OPENED = 64
_DECIDED = 8
# Up to this many files are read, without an estimate, until more than a few rows match.
_FEW = 32
# If the predicate's columns have more stored bytes, planning row groups and pages pays.
_INSIDE = 64 << 20
# The most stored bytes of the predicate's columns in a file whose rows are decided for a choice.
_DECIDED_BYTES = 64 << 20

# Settings under which Spark reads other rows than ``format("skipstone")``, each with its harmless
# value.
_VALUES = {
    **HARMLESS,
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "corrected",
    "spark.sql.parquet.int96RebaseModeInRead": "corrected",
}
#: settings under which a predicate's text means something else
TEXT = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.timestampType": "timestamp_ltz",
    "spark.sql.legacy.timeParserPolicy": "corrected",
    "spark.sql.icu.caseMappings.enabled": "true",
}


class Way(StrEnum):
    """A way to the rows of a table."""

    AHEAD = "rows read ahead"
    PAGES = "planned pages"
    NATIVE = "Spark's own reader"


@dataclass(frozen=True, slots=True)
class Choice:
    """How the rows are read, and why. ``inside``: row groups and pages are planned first, because
    the columns of the predicate are large."""

    way: Way
    why: str
    inside: bool = False

    def __str__(self) -> str:
        return f"{self.way}: {self.why}"


def against_pages(settings: Mapping[str, str], where: str | None) -> str | None:
    """The setting of the session that excludes pages; ``None`` if there is none."""
    found = harmful_of(settings, _VALUES)
    return found or (None if where is None else against_text(settings))


def against_text(settings: Mapping[str, str]) -> str | None:
    """The session's setting that gives a predicate's text another meaning, or ``None``."""
    return harmful_of(settings, {**TEXT, "spark.sql.ansi.enabled": "true"})


def harmful_of(settings: Mapping[str, str], harmless: Mapping[str, str]) -> str | None:
    """The first of ``settings`` that does not have its harmless value, as text."""
    for key, value in harmless.items():
        found = settings.get(key)
        if found is not None and found.lower() != value:
            return f"{key} is {found}"
    return None


def undecidable(scan: TableScan) -> str | None:
    """Why only Spark can decide the rows of a scan; ``None`` if Spark is not needed."""
    if scan.query is None:
        return "the table is not of Parquet files"
    try:
        require_decidable(scan.query.tree)
    except UnsupportedError as error:
        return error.message
    computed = [node for node in pieces(scan.query.tree) if isinstance(node, Computed)]
    # Settings of the session may change what a function gives.
    return f"Spark itself computes {computed[0]}" if computed else None


def by_cost(scan: TableScan, *, ahead: bool = False) -> Choice:
    """The quickest way to the rows of a scan that was planned without opening files. With ``ahead``
    it may be this process, if the rows seem to be few.

    It opens files to see what their columns take. Where no index says which rows match, it decides
    the rows of some files.
    """
    plan, query = scan.plan, scan.query
    assert query is not None
    table = query.reader()
    if not table.asked:
        return Choice(Way.NATIVE, "every row is read")
    costs = SPARK_REMOTE if table.files.storage.remote else SPARK
    kept = np.flatnonzero(plan.keep)
    whole = int(plan.listing.sizes[kept].sum())
    most = costs.native_seconds(whole, plan.files_total)
    least = costs.worth if ahead else costs.start
    if most <= least:
        start = f"less than it takes to start ({_seconds(least)})"
        return Choice(Way.NATIVE, f"{size(whole)} of files take {_seconds(most)}, {start}")
    try:
        return _cheapest(_Weighed(table, plan, kept, whole), costs, ahead=ahead)
    except SkipstoneError as error:
        return Choice(Way.NATIVE, f"a file could not be opened: {error.message}")


def _cheapest(files: _Weighed, costs: SparkCosts, *, ahead: bool) -> Choice:
    count, total = len(files.kept), files.plan.files_total
    native = costs.native_seconds(files.chunks, total)
    against = f"against {size(files.chunks)} of row groups ({_seconds(native)})"
    against = f"{against} in {of_total(count, total, 'files')}"
    inside = files.asked > _INSIDE
    least, here = costs.pages_seconds(files.asked, total), costs.ahead_seconds(files.asked, count)
    ahead = ahead and here <= min(native, least, costs.longest)
    if ahead and count <= _FEW and files.plan.known_count()[0] <= costs.few_rows:
        here = costs.ahead_seconds(files.chunks, count)
        most = f"at most {size(files.chunks)} ({_seconds(here)})"
        return Choice(Way.AHEAD, f"{most} {against}", inside)
    if not ahead and least >= native:
        text = f"{size(files.asked)} of the predicate's columns alone take {_seconds(least)}"
        return Choice(Way.NATIVE, f"{text} in workers, {against}")
    sampled = files.matching()
    if sampled is None:
        return Choice(Way.NATIVE, f"no index selects rows of large files, {against}")
    rows, stored = sampled
    here, paged = costs.ahead_seconds(stored, count), costs.pages_seconds(stored, total)
    if ahead and rows <= costs.few_rows and here <= min(native, paged, costs.longest):
        about = f"about {size(stored)} of pages ({_seconds(here)})"
        return Choice(Way.AHEAD, f"{about} {against}", inside)
    text = f"about {size(stored)} of pages ({_seconds(paged)}) {against}"
    return Choice(Way.PAGES if paged < native else Way.NATIVE, text)


class _Weighed:
    """The stored bytes that the ``kept`` files of a plan take, estimated from some of them."""

    def __init__(self, table: TableReader, plan: Plan, kept: NDArray[np.int64], whole: int) -> None:
        self.table, self.plan, self.kept, self.whole = table, plan, kept, whole
        opened = _spread(kept, _OPENED)
        table.footers.open(opened.tolist())
        share = self._share(opened)
        #: of the chunks that Spark's reader reads, and of the predicate's columns
        self.chunks = round(sum(_chunks(table, plan, at) for at in opened.tolist()) * share)
        self.asked = round(sum(self._asked(at) for at in opened.tolist()) * share)

    def _share(self, some: NDArray[np.int64]) -> float:
        return self.whole / max(int(self.plan.listing.sizes[some].sum()), 1)

    def _asked(self, at: int) -> float:
        """Bytes of the predicate's columns in the rows of a file that are not decided."""
        plan, table = self.plan, self.table
        detail = plan.details.get(at)
        if plan.must[at] or (detail is not None and detail.exact):
            return 0.0
        if not table.footers.fresh(at):
            return float(plan.listing.sizes[at])
        stored = _chunks(table, plan, at, columns=[])
        if detail is None or detail.rows is None:
            return float(stored)
        return stored * len(detail.rows) / max(int(plan.row_counts[at]), 1)

    def matching(self) -> tuple[int, int] | None:
        """The rows that match, and the bytes of their pages and of what decides them, as some files
        have them; ``None`` where that is too much to find out."""
        plan = self.plan
        some = _spread(self.kept, _DECIDED)
        if any(self._asked(at) > _DECIDED_BYTES for at in some.tolist()):
            return None
        self.table.footers.open(some.tolist())
        deciding = TableReader(self.table.footers, self.table.tree, ())
        details = dict(plan.details)
        for at in some.tolist():
            found = [deciding.read_with_rows(each)[0] for each in deciding.pieces_of(plan, at)]
            rows = RowSet.of(np.concatenate([np.empty(0, np.int64), *found]))
            details[at] = FileDetail(rows=rows, exact=True)
        decided = replace(plan_of(plan, some), details=details)
        forecast = io_forecast(self.table, decided, look=True)
        share = self._share(some)
        count = sum(len(details[at].rows or ()) for at in some.tolist())
        return round(count * share), round(self.asked + forecast.total.bytes * share)


def _spread(files: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    at = np.linspace(0, len(files) - 1, min(len(files), most)).astype(np.int64)
    return files[np.unique(at)]


def _chunks(table: TableReader, plan: Plan, at: int, columns: Sequence[str] | None = None) -> int:
    """Stored bytes of the chunks that Spark's reader would read of a file: of the predicate and of
    ``columns``, ``None`` for those of the result."""
    if not table.footers.fresh(at):
        return int(plan.listing.sizes[at])
    file = table.footers.opened[at]
    leaves = table.leaves_of(file, [*table.asked, *(table.columns if columns is None else columns)])
    stored = file.opened.footer.chunk("total_compressed_size")[:, leaves].sum(axis=1)
    detail = plan.details.get(at)
    if detail is not None and detail.row_groups is not None:
        stored = stored[list(detail.row_groups)]
    return int(stored.sum())


def _seconds(seconds: float) -> str:
    return duration(seconds * 1e3)


def few_rows(scan: TableScan) -> pa.Table | None:
    """The rows of a scan; ``None`` if there are more than a few."""
    batches: list[pa.RecordBatch] = []
    rows = stored = 0
    for batch in scan.to_batches():
        rows, stored = rows + batch.num_rows, stored + batch.nbytes
        if rows > SPARK.few_rows or stored > SPARK.few_bytes:
            return None
        batches.append(batch)
    return pa.Table.from_batches(batches) if batches else no_rows(scan.schema)
