"""What queries read through an index: ``Scan`` per file scan, ``QueryScans`` per query."""

from __future__ import annotations

from dataclasses import field
from html import escape
from typing import TYPE_CHECKING, Any

from skipstone._dataclasses import dataclass
from skipstone.human import duration, of_total, percent, plural, size
from skipstone.planning.explain import Explanation, Forecast
from skipstone.planning.scan_lines import IndexUse, ScanLine, uses_of

from .joins.conditions import SUBQUERY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skipstone.pruning import Reason
    from skipstone.pruning.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinUse:
    """What the keys of a join's other side did for a scan.

    ``text`` is the equality, ``kind`` the join as Catalyst calls it. ``source`` says where the
    ``keys`` came from: the broadcast, rows of the driver, or a job. That took ``milliseconds``, and
    the lookup in the ``indexes`` ``lookup_milliseconds``. Files and bytes are those that remained
    after the lookup, and before it. ``reason`` says why no keys were looked up, or why they were
    given up.
    """

    text: str
    kind: str
    keys: int | None = None
    source: str | None = None
    milliseconds: float = 0.0
    lookup_milliseconds: float = 0.0
    files_total: int = 0
    files_kept: int = 0
    bytes_total: int = 0
    bytes_kept: int = 0
    indexes: tuple[IndexUse, ...] = ()
    reason: str | None = None

    def __str__(self) -> str:
        shown = f"join {self.text} ({self.kind})"
        if self.kind == SUBQUERY:
            shown = f"subquery {self.text}"
        if self.keys is not None:
            shown += (
                f": {plural(self.keys, 'key')} from {self.source} in "
                f"{duration(self.milliseconds)}, looked up in {duration(self.lookup_milliseconds)}"
            )
        if self.reason is not None:
            return f"{shown}: all files are kept: {self.reason}"
        return (
            f"{shown}: {of_total(self.files_kept, self.files_total, 'files')} may have one, "
            f"{size(self.bytes_total - self.bytes_kept)} saved"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "join": self.text,
            "kind": self.kind,
            "keys": self.keys,
            "source": self.source,
            "files": {"kept": self.files_kept, "total": self.files_total},
            "bytes": {"kept": self.bytes_kept, "total": self.bytes_total},
            "milliseconds": {
                "keys": round(self.milliseconds, 3),
                "lookup": round(self.lookup_milliseconds, 3),
            },
            "indexes": [str(use) for use in self.indexes],
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """One file scan of a query.

    - ``files_listed``, ``bytes_listed``: what Spark listed, before it pruned partitions;
    - ``files_total``, ``bytes_total``: what plain Spark would have read, after partition pruning;
    - ``files_kept``, ``bytes_kept``: what remained to read.

    ``roots`` are the paths that the relation reads, ``table`` is its name in the catalog, or these.
    ``report`` is the pruner's: a ``Plan`` with a step for every index; ``forecast`` is the cost of
    reading where pages are read. ``reasons`` concern the scan itself: why no index was used, or
    which files changed meanwhile. ``joins`` reports the keys of joins.
    """

    table: str
    format: str
    predicate: str | None
    files_listed: int
    bytes_listed: int
    files_total: int
    bytes_total: int
    files_kept: int
    bytes_kept: int
    roots: tuple[str, ...] = ()
    report: Plan | None = None
    forecast: Forecast | None = None
    reasons: tuple[Reason, ...] = ()
    joins: tuple[JoinUse, ...] = ()
    milliseconds: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"scan of {self.table} ({self.format})"]
        if self.predicate is not None and self.report is None:
            lines.append(f"  where {self.predicate}")
        if self.report is not None:
            shown = str(Explanation(self.report, self.forecast)).splitlines()
            # The text of a plan ends with its totals over all listed files; those of the scan
            # follow.
            if shown and shown[-1].startswith("read "):
                del shown[-1]
            lines.extend(f"  {line}" for line in shown)
            lines.extend(f"  {line}" for line in self._whole_files)
        lines.extend(f"  {use}" for use in self.joins)
        lines.extend(f"  note: {reason}" for reason in self.reasons)
        if self.files_total != self.files_listed:
            lines.append(
                f"  partitions: {of_total(self.files_total, self.files_listed, 'files')}, "
                f"{size(self.bytes_total)} of {size(self.bytes_listed)}"
            )
        lines.append(f"  {self.summary}")
        return "\n".join(lines)

    @property
    def _whole_files(self) -> list[str]:
        """A note where only some rows of the kept files may match: Spark reads whole files."""
        if self.report is None or self.joins:
            return []  # with joins, the rows of the plan include those of more files
        rows, left = self.report.rows_of_files_kept, self.report.rows_kept
        if not 0 <= left < rows:
            return []
        return [
            f"Spark's own reader reads whole files: {of_total(left, rows, 'rows')} in them may "
            'match; Table.query and format("skipstone") read only their pages'
        ]

    @property
    def summary(self) -> str:
        """``read 2 of 1,240 files, 11.2 MB of 6.9 GB (99.8 % skipped), planned in 38 ms``."""
        skipped = percent(self.bytes_total - self.bytes_kept, self.bytes_total)
        return (
            f"read {of_total(self.files_kept, self.files_total, 'files')}, "
            f"{size(self.bytes_kept)} of {size(self.bytes_total)} ({skipped} skipped), "
            f"planned in {duration(sum(self.milliseconds.values()))}"
        )

    def line(self, execution: int | None = None) -> ScanLine:
        """The scan as a line of the log."""
        reasons = (*self.reasons, *(() if self.report is None else self.report.reasons))
        joins = [use for use in self.joins if use.reason is not None]
        return ScanLine(
            time=ScanLine.now(),
            table=self.table,
            roots=self.roots,
            format=self.format,
            files_kept=self.files_kept,
            files_total=self.files_total,
            bytes_kept=self.bytes_kept,
            bytes_total=self.bytes_total,
            milliseconds=sum(self.milliseconds.values()),
            predicate=self.predicate if self.report is None else self.report.predicate,
            indexes=(
                *(() if self.report is None else uses_of(self.report.steps)),
                *(index for use in self.joins for index in use.indexes),
            ),
            reasons=tuple(map(str, (*reasons, *joins))),
            execution=execution,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        report = None if self.report is None else Explanation(self.report, self.forecast).to_dict()
        return {
            "table": self.table,
            "roots": list(self.roots),
            "format": self.format,
            "predicate": self.predicate,
            "files": {
                "kept": self.files_kept,
                "total": self.files_total,
                "listed": self.files_listed,
            },
            "bytes": {
                "kept": self.bytes_kept,
                "total": self.bytes_total,
                "listed": self.bytes_listed,
            },
            "report": report,
            "joins": [use.to_dict() for use in self.joins],
            "reasons": [str(reason) for reason in self.reasons],
            "milliseconds": {key: round(value, 3) for key, value in self.milliseconds.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryScans:
    """All scans of one query. ``execution`` is Spark's id of the run, as its UI shows it.

    ``untouched`` has the reasons why other relations of the plan do not use an index.
    """

    scans: tuple[Scan, ...]
    execution: int | None = None
    untouched: tuple[Reason, ...] = ()

    def __iter__(self) -> Iterator[Scan]:
        return iter(self.scans)

    def __len__(self) -> int:
        return len(self.scans)

    def __bool__(self) -> bool:
        return True

    @property
    def files_total(self) -> int:
        """Files that plain Spark would have read."""
        return sum(scan.files_total for scan in self.scans)

    @property
    def files_kept(self) -> int:
        """Files left to read."""
        return sum(scan.files_kept for scan in self.scans)

    @property
    def bytes_total(self) -> int:
        """Bytes of the files that plain Spark would have read."""
        return sum(scan.bytes_total for scan in self.scans)

    @property
    def bytes_kept(self) -> int:
        """Bytes of the files left to read."""
        return sum(scan.bytes_kept for scan in self.scans)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "execution": self.execution,
            "files": {"kept": self.files_kept, "total": self.files_total},
            "bytes": {"kept": self.bytes_kept, "total": self.bytes_total},
            "scans": [scan.to_dict() for scan in self.scans],
            "untouched": [str(reason) for reason in self.untouched],
        }

    def __str__(self) -> str:
        lines = [str(scan) for scan in self.scans]
        lines.extend(f"left alone: {reason}" for reason in self.untouched)
        if len(self.scans) > 1:
            lines.append(
                f"together: {of_total(self.files_kept, self.files_total, 'files')}, "
                f"{size(self.bytes_kept)} of {size(self.bytes_total)}"
            )
        if not self.scans and self.execution is not None:
            lines.insert(0, f"query {self.execution} has no scan of Skipstone")
        return "\n".join(lines) or "no scan of files"

    def __repr__(self) -> str:
        return (
            f"QueryScans({plural(len(self.scans), 'scan')}: "
            f"{of_total(self.files_kept, self.files_total, 'files')}, "
            f"{size(self.bytes_kept)} of {size(self.bytes_total)})"
        )

    def _repr_html_(self) -> str:
        parts = []
        for scan in self.scans:
            shown = ""
            if scan.report is not None:
                shown = Explanation(scan.report, scan.forecast)._repr_html_()
            texts = [*scan._whole_files, *map(str, scan.joins), *map(str, scan.reasons)]
            notes = "".join(f"<li>{escape(text)}</li>" for text in texts)
            parts.append(
                f"<p><b>{escape(scan.table)}</b> ({escape(scan.format)})<br>"
                f"{escape(scan.summary)}</p>" + shown + (f"<ul>{notes}</ul>" if notes else "")
            )
        parts.extend(f"<p>left alone: {escape(str(reason))}</p>" for reason in self.untouched)
        return "".join(parts) or f"<p>{escape(str(self))}</p>"
