"""What the writing of a summary came to, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from skipstone.human import duration, of_total, plural, size

__all__ = ["SummaryReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryReport:
    """``_metadata`` of a table: ``written``, or ``fresh`` where it says all that it should already.

    ``bytes`` are its own. Of ``files`` so many footers were ``read``; the others were taken from
    the summary that there was. ``dropped`` are keys that the files do not agree on, or do not all
    have.
    """

    table: str
    path: str
    fate: Literal["written", "fresh"]
    dry_run: bool = False
    files: int = 0
    read: int = 0
    row_groups: int = 0
    rows: int = 0
    bytes: int = 0
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "table": self.table,
            "path": self.path,
            "fate": self.fate,
            "dry_run": self.dry_run,
            "files": self.files,
            "footers_read": self.read,
            "row_groups": self.row_groups,
            "rows": self.rows,
            "bytes": self.bytes,
            "dropped_keys": list(self.dropped),
            "notes": list(self.notes),
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        what = (
            f"{plural(self.row_groups, 'row group')} of {plural(self.files, 'file')}, "
            f"{plural(self.rows, 'row')}, {size(self.bytes)}"
        )
        if self.fate == "fresh":
            return f"{self.path}: is fresh already ({what})"
        verb = "would write" if self.dry_run else "wrote"
        lines = [f"{verb} {self.path}: {what}"]
        lines.append(
            f"  {of_total(self.read, self.files, 'footers')} read, {duration(1000 * self.seconds)}"
        )
        if self.dropped:
            lines.append(f"  keys that the files do not agree on, left out: {_some(self.dropped)}")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
