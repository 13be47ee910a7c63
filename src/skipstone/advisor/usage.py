"""``usage``: which indexes of a table the queries in a log of scans used, compared with their size.

A scan counts for an index if the index proved something about its predicate, or about the keys of
its joins. The index saved the files that it ruled out. Indexes are asked one after the other, so a
file that two of them rule out counts for the first. Bytes are estimated by the mean size of the
scan's files: a log has no sizes of single files.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from skipstone._dataclasses import dataclass
from skipstone.human import Report, aligned, of_total, percent, plural, size
from skipstone.planning.scan_lines import ScanLine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.facts.reports import Description


#: with fewer scans of a table, the verdict on an index that none of them used is unclear
ENOUGH: Final = 20
#: the index whose filters bit slices answer for
_SLICED: Final = {
    "bloom slices": "bloomfilter",
    "ngram slices": "ngram",
    "tokens slices": "tokens",
}
_HEADINGS: Final = ("index", "size", "used", "files ruled out", "saved", "verdict")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexUsage(Report):
    """One index: ``used`` in this many scans, ``files`` that it ruled out of ``considered``, about
    ``saved`` bytes, against its ``bytes``. ``verdict`` begins with ``keep``, ``drop`` or
    ``unclear``."""

    name: str
    bytes: int
    used: int = 0
    files: int = 0
    considered: int = 0
    saved: int = 0
    verdict: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport(Report):
    """The use of the indexes of ``table`` in ``scans`` of it, out of ``lines`` of a log.

    ``filtered`` scans had a predicate on columns of the files. ``since`` and ``until`` are the
    times of the first and last scan, where the log has them. ``drop`` names the indexes that did
    not pay.
    """

    table: str
    lines: int
    scans: int
    filtered: int
    files_kept: int
    files_total: int
    bytes_kept: int
    bytes_total: int
    indexes: tuple[IndexUsage, ...]
    since: str = ""
    until: str = ""
    notes: tuple[str, ...] = field(default_factory=tuple)

    computed = ("drop",)

    @property
    def drop(self) -> tuple[str, ...]:
        """Names of the indexes whose verdict is to drop them."""
        return tuple(each.name for each in self.indexes if each.verdict.startswith("drop"))

    def __str__(self) -> str:
        when = f", {self.since} to {self.until}" if self.since else ""
        skipped = percent(self.bytes_total - self.bytes_kept, self.bytes_total)
        lines = [
            f"table {self.table}   {plural(self.scans, 'scan')} in {plural(self.lines, 'line')}"
            f"{when}",
            f"read {of_total(self.files_kept, self.files_total, 'files')}, "
            f"{size(self.bytes_kept)} of {size(self.bytes_total)} ({skipped} skipped)",
        ]
        rows = [
            (
                each.name,
                size(each.bytes),
                of_total(each.used, self.filtered, "scans"),
                f"{each.files:,} of {each.considered:,}",
                size(each.saved),
                each.verdict,
            )
            for each in self.indexes
        ]
        if rows:
            lines.append(aligned([_HEADINGS, *rows], {1, 2, 3, 4}))
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def usage(found: Description, lines: Iterable[str], names: Iterable[str] = ()) -> UsageReport:
    """The use of the indexes of the table that ``found`` describes, in the scans among ``lines``.

    A scan is of the table if it reads the table's path or something below it, or if it has one of
    ``names``.
    """
    own, named = found.table.rstrip("/"), set(names)
    by_name = {f"{index.column}:{index.kind}": index for index in found.indexes}
    counts = {key: IndexUsage(name=index.name, bytes=index.bytes) for key, index in by_name.items()}
    total = filtered = others = 0
    times: list[str] = []
    scans: list[ScanLine] = []
    for line in lines:
        total += 1
        scan = ScanLine.found(line)
        if scan is None:
            continue
        if not (scan.table in named or any(_below(own, root) for root in scan.roots)):
            others += 1
            continue
        scans.append(scan)
        times += [scan.time] if scan.time else []
        filtered += scan.predicate is not None
        mean = scan.bytes_total / max(scan.files_total, 1)
        seen: set[str] = set()
        for use in scan.indexes:
            column, _, kind = use.index.rpartition(":")
            key = f"{column}:{_SLICED.get(kind, kind)}"
            known = counts.get(key)
            if known is None:
                continue
            ruled_out = use.considered - use.kept if use.unit == "files" else 0
            counts[key] = replace(
                known,
                used=known.used + (key not in seen),
                files=known.files + ruled_out,
                considered=known.considered + (use.considered if use.unit == "files" else 0),
                saved=known.saved + round(ruled_out * mean),
            )
            seen.add(key)
    notes = []
    if not scans:
        notes.append("no scan of this table is in the log")
    if total and not scans and not others:
        notes[-1] = "no line of the log is a scan of Skipstone: is it the right file?"
    return UsageReport(
        table=found.table,
        lines=total,
        scans=len(scans),
        filtered=filtered,
        files_kept=sum(scan.files_kept for scan in scans),
        files_total=sum(scan.files_total for scan in scans),
        bytes_kept=sum(scan.bytes_kept for scan in scans),
        bytes_total=sum(scan.bytes_total for scan in scans),
        indexes=tuple(replace(each, verdict=_verdict(each, filtered)) for each in counts.values()),
        since=min(times, default=""),
        until=max(times, default=""),
        notes=tuple(notes),
    )


def _below(own: str, root: str) -> bool:
    return root == own or root.startswith(f"{own}/")


def _verdict(index: IndexUsage, filtered: int) -> str:
    if index.saved > index.bytes:
        return "keep"
    if filtered < ENOUGH:
        return f"unclear: {plural(filtered, 'scan')}, {ENOUGH} tell more"
    if not index.used:
        return "drop: no scan used it"
    if index.considered and not index.files:
        return "drop: it ruled out no file"
    if not index.considered:
        return "keep: it decides rows, whose bytes are not in the log"
    return "unclear: it saved less than its size"
