"""How ``Table.read`` reads: by Spark's own reader over the remaining files, or by planned pages.

Spark's reader accepts a list of files, and finds row groups and pages itself; it does not accept
rows that an index selects. ``format("skipstone")`` fetches the pages of those rows in Python
workers. So pages are for the first rows of an order, and for large files of which row indexes leave
little; by cost, with the constants of ``pruning/costs.py``. Spark's reader takes everything in
which the two could differ in rows or types: settings under which a text or a value means something
else, types that differ, parts of a predicate that only Spark decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.execution.table_scan import io_forecast
from skipstone.human import duration, of_total, size
from skipstone.pruning.costs import SPARK
from skipstone.pruning.residual import require_decidable

from .relation import HARMLESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skipstone.execution import TableScan
    from skipstone.execution.plan_rows import TableReader
    from skipstone.pruning.plan import Plan


# Most files whose pages are counted for a choice; more are sampled evenly.
_COUNTED = 64

# Settings under which Spark reads other rows than ``format("skipstone")``, each with its harmless
# value; and those under which a predicate's text means something else.
_VALUES = {
    **HARMLESS,
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "corrected",
    "spark.sql.parquet.int96RebaseModeInRead": "corrected",
}
_TEXT = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.timestampType": "timestamp_ltz",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether pages are fetched, and why."""

    pages: bool
    why: str

    def __str__(self) -> str:
        way = "planned pages" if self.pages else "Spark's own reader"
        return f"{way}: {self.why}"


def against_pages(spark: SparkSession, where: str | None) -> str | None:
    """The setting of the session that rules pages out; ``None`` if there is none."""
    settings = _VALUES if where is None else {**_VALUES, **_TEXT}
    for key, harmless in settings.items():
        value = spark.conf.get(key, None)
        if value is not None and value.lower() != harmless:
            return f"{key} is {value}"
    return None


def undecidable(scan: TableScan) -> str | None:
    """Why only Spark can decide the rows of a scan; ``None`` where it is not needed."""
    if scan.query is None:
        return "the table is not of Parquet files"
    try:
        require_decidable(scan.query.tree)
    except UnsupportedError as error:
        return error.message
    return None


def by_cost(scan: TableScan) -> Choice:
    """The quicker way to the rows of a scan that was planned without opening files.

    It opens the files that it counts: their footers and page indexes.
    """
    plan, query = scan.plan, scan.query
    assert query is not None
    narrowed = [
        at
        for at, detail in plan.details.items()
        if plan.keep[at] and detail.rows is not None and len(detail.rows) < plan.row_counts[at]
    ]
    if not narrowed:
        return Choice(False, "no index selects rows, and files are skipped either way")
    kept = np.flatnonzero(plan.keep)
    whole = int(plan.listing.sizes[kept].sum())
    if SPARK.native_seconds(whole) <= SPARK.start:
        return Choice(
            False,
            f"{size(whole)} of files take less than it takes to start ({_seconds(SPARK.start)})",
        )
    spread = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), _COUNTED)).astype(np.int64))
    counted = kept[spread]
    table = query.reader()
    table.footers.open(counted.tolist())
    some = _alone(plan, counted)
    try:
        pages = io_forecast(table, some, look=True, at_most=False).total.bytes
        chunks = sum(_chunks(table, some, at) for at in counted.tolist())
    except SkipstoneError as error:
        return Choice(False, f"a file could not be opened: {error.message}")
    share = whole / max(int(plan.listing.sizes[counted].sum()), 1)
    native = SPARK.native_seconds(round(chunks * share))
    paged = SPARK.pages_seconds(round(pages * share))
    text = (
        f"about {size(pages * share)} of pages ({_seconds(paged)}) against {size(chunks * share)} "
        f"of row groups ({_seconds(native)}) in {of_total(len(kept), plan.files_total, 'files')}"
    )
    return Choice(paged < native, text)


def _alone(plan: Plan, files: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Plan:
    from dataclasses import replace

    keep = np.zeros_like(plan.keep)
    keep[files] = True
    return replace(plan, keep=keep & plan.keep)


def _chunks(table: TableReader, plan: Plan, at: int) -> int:
    """Stored bytes of the chunks that Spark's reader would read of a file."""
    if not table.footers.fresh(at):
        return int(plan.listing.sizes[at])
    file = table.footers.opened[at]
    leaves = table.leaves_of(file, [*table.asked, *table.columns])
    stored = file.opened.footer.chunk("total_compressed_size")[:, leaves].sum(axis=1)
    detail = plan.details.get(at)
    if detail is not None and detail.row_groups is not None:
        stored = stored[list(detail.row_groups)]
    return int(stored.sum())


def _seconds(seconds: float) -> str:
    return duration(seconds * 1e3)
