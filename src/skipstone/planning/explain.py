"""Renders a ``Plan`` as text: the effect and cost of each index at each level, the reasons, the
rest at each level, and the forecast of the read. Every count has its denominator.

``Forecast`` is the expected cost of a read, ``Explanation`` a plan with its forecast, ``Analysis``
an explanation with the measured cost of a run.
"""

from __future__ import annotations

from dataclasses import field
from html import escape
from typing import TYPE_CHECKING, Any

from skipstone._dataclasses import dataclass
from skipstone.human import (
    Report,
    aligned,
    duration,
    html_table,
    of_total,
    percent,
    plural,
    size,
    some_of,
)
from skipstone.pruning import Cause, Level, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.pruning.plan import Plan, Step
    from skipstone.storage import ByteRange

# Every indexed column has this kind.
IMPLICIT = "nulls"
# If the unopened files have fewer bytes than this in total, there is no note about them.
_SMALL = 4_000_000
_HEADINGS = ("level", "column", "index", "considered → kept", "asking took", "because")
_FINER = {level.unit for level in (Level.ROW_GROUP, Level.PAGE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount(Report):
    """Bytes, and the number of requests; a request reads consecutive bytes."""

    bytes: int = 0
    requests: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(bytes=self.bytes + other.bytes, requests=self.requests + other.requests)

    def __bool__(self) -> bool:
        return bool(self.bytes or self.requests)

    def __str__(self) -> str:
        return f"{size(self.bytes)} in {plural(self.requests, 'request')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The most that reading a plan costs, computed before a row is read.

    The reader reads the columns of the predicate first, for every row that is left (``certain``).
    Then it reads the other columns, only the pages that hold a matching row (``possible``). A byte
    of a file counts once, however often it is read. Bytes between two ranges that one request joins
    count too. So the bytes are at most those of the files.

    Where page locations are known, ``certain`` is exact. No more requests are made either: a chunk
    whose pages are not known counts as many as it can have. An unopened file counts whole, and its
    requests are not known: ``unopened`` files have none in the sum.

    ``row_groups`` and ``pages`` are (kept, total) in the ``files`` opened files; pages are those
    with known locations in the columns to read. ``byte_ranges`` are the requests, by file of the
    listing; a file without any counts whole. ``at_most``: a limit or an order may end the read
    early.
    """

    certain: Amount = field(default_factory=Amount)
    possible: Amount = field(default_factory=Amount)
    unopened: int = 0
    at_most: bool = False
    files: int = 0
    row_groups: tuple[int, int] = (0, 0)
    pages: tuple[int, int] = (0, 0)
    byte_ranges: Mapping[int, tuple[ByteRange, ...]] = field(default_factory=dict)

    @property
    def total(self) -> Amount:
        """``certain`` and ``possible``."""
        return self.certain + self.possible

    @property
    def is_bound(self) -> bool:
        """Whether less than ``total`` may be read."""
        return bool(self.possible) or self.at_most or self.unopened > 0

    @property
    def requests(self) -> str:
        """``12 requests``, ``12 requests and those for 3 unopened files``, or the latter."""
        known = plural(self.total.requests, "request")
        if not self.unopened:
            return known
        files = plural(self.unopened, "unopened file")
        return f"{known} and those for {files}" if self.total.requests else f"requests for {files}"

    def __str__(self) -> str:
        if self.unopened:
            return f"at most {size(self.total.bytes)} in {self.requests}"
        if self.at_most:
            return f"at most {self.total}"
        if not self.possible:
            return str(self.certain)
        if not self.possible.bytes:
            return f"at most {self.total}"
        if not self.certain:
            return f"at most {self.possible}"
        return f"{self.certain}, then at most {self.possible} where rows match"

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "certain": self.certain.to_dict(),
            "possible": self.possible.to_dict(),
            "about": self.unopened > 0,
            "files_unopened": self.unopened,
            "at_most": self.at_most,
            "files_looked_into": self.files,
            "row_groups": {"kept": self.row_groups[0], "total": self.row_groups[1]},
            "pages": {"kept": self.pages[0], "total": self.pages[1]},
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan, and the forecast of its read, if there is one."""

    plan: Plan
    forecast: Forecast | None = None

    @property
    def headline(self) -> str:
        """One line: how much is read, of how much.

        ``read 2 of 1,240 files, 11.2 MB of 6.9 GB (99.8 % skipped), planned in 38 ms``; for a
        single file ``read 2,000 of 100,000 rows (98 % skipped), planned in 2 ms``. The bytes depend
        on the columns.
        """
        plan, found = self.plan, self.forecast
        if _is_of_one_file(plan):
            kept, total = plan.rows_kept, plan.rows_total
            return (
                f"read {of_total(kept, total, 'rows')} ({percent(total - kept, total)} skipped), "
                f"planned in {duration(sum(plan.milliseconds.values()))}"
            )
        # The planned byte ranges are a bound: their sum can exceed the size of the files.
        skipped = percent(max(0, plan.bytes_total - plan.bytes_kept), plan.bytes_total)
        planned = duration(sum(plan.milliseconds.values()))
        within = "" if plan.coverage is None else f" of {plan.coverage}"
        bound = "" if found is None or not found.is_bound or not plan.files_kept else "at most "
        requests = "" if found is None else f" in {found.requests}"
        read = Amount(bytes=plan.planning[0], requests=plan.planning[1])
        return (
            f"read {of_total(plan.files_kept, plan.files_total, 'files')}{within}, "
            f"{bound}{size(plan.bytes_kept)} of {size(plan.bytes_total)} ({skipped} skipped)"
            f"{requests}, planned in {planned}{f' from {read}' if read else ''}"
        )

    def __str__(self) -> str:
        plan = self.plan
        files = "" if _is_of_one_file(plan) else f"{plural(plan.files_total, 'file')}   "
        head = f"{'table' if files else 'file'} {plan.table}   {files}{size(plan.bytes_total)}   "
        lines = [head + _freshness(plan), f"where {plan.predicate}"]
        if plan.schema is not None and (plan.schema.from_footers or plan.schema.distinct > 1):
            took = duration(plan.milliseconds.get("schema", 0.0))
            lines.append(f"  schemas of the files: {plan.schema}, read in {took}")
        rows = _rows(plan)
        # Empty columns are left out.
        filled = [column for column in zip(*rows, strict=True) if any(column)]
        if filled:
            lines += [f"  {line}" for line in aligned(list(zip(*filled, strict=True))).splitlines()]
        lines.extend(f"  note: {note}" for note in _notes(plan))
        lines.extend(f"  {line}" for line in self._outlook())
        lines.append(self.headline)
        return "\n".join(lines)

    def _outlook(self) -> list[str]:
        """What is left, the residual predicate, and the forecast."""
        plan, found = self.plan, self.forecast
        lines = []
        finer = any(step.level > Level.OBJECT for step in plan.steps)
        if finer and plan.files_kept and not _is_of_one_file(plan):
            lines.append(f"left: {_left(plan, found)}")
        if plan.residual is not None and plan.files_kept:
            lines.append(f"still to be checked row by row: {plan.residual}")
        if found is not None and found.total:
            lines.append(f"will read: {found}")
        planning = Amount(bytes=plan.planning[0], requests=plan.planning[1])
        if plan.bytes_kept < plan.bytes_total <= plan.bytes_kept + planning.bytes:
            lines.append(
                f"planning has read {size(planning.bytes)}: with the rows that is no less than the "
                "whole table, whose files are too small to skip in"
            )
        return lines

    def _repr_html_(self) -> str:
        plan = self.plan
        notes = "".join(f"<li>{escape(note)}</li>" for note in _notes(plan))
        return (
            f"<div><p><b>{escape(plan.table)}</b> where <code>{escape(plan.predicate)}</code><br>"
            f"{escape(_freshness(plan))}</p>{html_table(_HEADINGS, _rows(plan))}"
            f"{f'<ul>{notes}</ul>' if notes else ''}"
            f"<p>{'<br>'.join(map(escape, self._outlook()))}</p>"
            f"<p><b>{escape(self.headline)}</b></p></div>"
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan's values, with ``forecast``."""
        forecast = None if self.forecast is None else self.forecast.to_dict()
        return {**self.plan.to_dict(), "forecast": forecast}


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """An explanation, and the measured cost of a run by the embedded engine.

    ``rows`` is the number of rows of the result, ``read`` the bytes of the files that were read,
    each counted once, and the requests for them. ``files_read`` counts the files of which the run
    read at least one byte; footers and indexes that planning has read are not read again.
    ``milliseconds`` is the time of the read alone.
    """

    explanation: Explanation
    rows: int
    files_read: int
    read: Amount
    milliseconds: float

    def __str__(self) -> str:
        return "\n".join([str(self.explanation), *(f"  {line}" for line in self.lines)])

    @property
    def lines(self) -> list[str]:
        """The measured cost next to the planned one."""
        plan, forecast = self.explanation.plan, self.explanation.forecast
        left = plan.rows_kept
        rows = plural(self.rows, "row") if left < 0 else of_total(self.rows, left, "rows left")
        planned = "" if forecast is None else f"; planned: {forecast}"
        files = of_total(self.files_read, plan.files_kept, "planned files")
        return [
            f"ran: {rows} returned, in {duration(self.milliseconds)}",
            f"read {self.read}, from {files}{planned}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """The explanation's values, with ``analyzed``."""
        return {
            **self.explanation.to_dict(),
            "analyzed": {
                "rows": self.rows,
                "files_read": self.files_read,
                **self.read.to_dict(),
                "milliseconds": round(self.milliseconds, 3),
            },
        }

    def _repr_html_(self) -> str:
        lines = "<br>".join(escape(line) for line in self.lines)
        return f"{self.explanation._repr_html_()}<p>{lines}</p>"


def _is_of_one_file(plan: Plan) -> bool:
    """True where there are no facts: the plan is of one file (``ParquetFile``)."""
    facts = plan.facts_fresh + plan.facts_stale + plan.facts_missing
    return not facts and plan.files_total == 1 and plan.rows_total >= 0


def _freshness(plan: Plan) -> str:
    if _is_of_one_file(plan):
        return plural(plan.rows_total, "row")
    if plan.sidecars and not plan.facts_fresh + plan.facts_stale:
        return f"file indexes next to {of_total(plan.sidecars, plan.files_total, 'files')}"
    covered = of_total(plan.facts_fresh, plan.files_total, "files")
    if plan.facts_stale == 0 and plan.facts_missing == 0:
        return f"index covers {covered} (fresh)"
    lacking = []
    if plan.facts_missing:
        lacking.append(f"{plan.facts_missing:,} new")
    if plan.facts_stale:
        lacking.append(f"{plan.facts_stale:,} changed since")
    looked = any(step.level > Level.OBJECT for step in plan.steps)
    instead = "only their own metadata is known" if looked else "read in full"
    verb = "refresh" if plan.facts_fresh or plan.facts_stale else "build"
    return f"index covers {covered}; {' and '.join(lacking)}: {instead}, run `{verb}`"


def _because(step: Step, *, unasked: bool) -> str:
    if step.used:
        # A kind that was used needs no reason for the leaves that it does not support.
        return "; ".join(r.text for r in step.reasons if r.cause is not Cause.NOT_APPLICABLE)
    why = "; ".join(dict.fromkeys(reason.text for reason in step.reasons))
    if not why and unasked and step.level is Level.PAGE:
        why = "the remaining row groups have no page index"
    return f"not used: {why or 'nothing left to ask about'}"


def _cost(step: Step) -> str:
    """The cost of a step, empty if it has none: ``1.2 MB in 3 requests, 0.4 ms``."""
    read = f"{size(step.bytes_read)} in {plural(step.requests, 'request')}"
    taken = duration(step.milliseconds)
    shown = [read if step.requests or step.bytes_read else "", "" if taken == "0.0 ms" else taken]
    return ", ".join(part for part in shown if part)


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    """Rows of level, column, index, units considered and kept, cost, reasons.

    The level is empty where there is only one, and except in its first row.
    """
    shown = [
        # Every indexed column has null counts; they get a line only when they skip.
        step
        for step in plan.steps
        if step.index != IMPLICIT or step.considered != step.kept
    ]
    shown.sort(key=lambda step: step.level)
    levels = {step.level for step in shown}
    asked = {step.level for step in shown if step.considered}
    rows: list[tuple[str, ...]] = []
    before = None
    for step in shown:
        level = Level(step.level)
        # Rows between the ends of pages of any column: not the pages, which each column has.
        unit = "row ranges" if level is Level.PAGE else level.unit
        change = f"{step.considered:,} -> {step.kept:,} {unit}" if step.used else ""
        head = level.unit if len(levels) > 1 and step.level != before else ""
        because = _because(step, unasked=step.level not in asked)
        rows.append((head, step.column, step.index, change, _cost(step), because))
        before = step.level
    return rows


def _left(plan: Plan, found: Forecast | None) -> str:
    """``2 of 40 files, 2 of 80 row groups, 3 of 912 pages, 1,000 of 4,000,000 rows``: what is left
    at each level that is known."""
    parts = [of_total(plan.files_kept, plan.files_total, "files")]
    if found is not None and found.files:
        of_some = "" if found.files == plan.files_kept else f" of the {found.files:,} looked into"
        parts.append(of_total(*found.row_groups, "row groups") + of_some)
        if found.pages[1]:
            parts.append(of_total(*found.pages, "pages") + of_some)
    if plan.rows_kept >= 0:
        parts.append(of_total(plan.rows_kept, plan.rows_total, "rows"))
    return ", ".join(parts)


def _is_noise(plan: Plan, reason: Reason) -> bool:
    """Whether ``reason`` only says that tiny files were not opened; JSON keeps it."""
    if reason.cause is not Cause.COSTLY or reason.subject not in _FINER:
        return False
    return int(plan.listing.sizes[plan.keep].sum()) < _SMALL


def _notes(plan: Plan) -> list[str]:
    notes = [str(reason) for reason in plan.reasons if not _is_noise(plan, reason)]
    if plan.coverage is not None:
        lacking = plan.coverage.left_out
        without = f", without {some_of(lacking, 3)}: not Parquet" if lacking else ""
        notes.insert(0, f"these are {plan.coverage}{without}")
    return notes
