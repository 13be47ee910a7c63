"""What a migration did, as a value."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from skipstone.human import duration, of_total, size

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Fate", "FileMigration", "MigrateReport"]

#: What became of the ``_pm`` of a file: it was not there and is now; it was of another file or
#: damaged, and was made anew; it was older, and brought up to date; it was good already; none was
#: made, because there need not be one; none could be made.
Fate: TypeAlias = Literal["made", "rewritten", "upgraded", "valid", "left_out", "failed"]

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMigration:
    """One data file and its ``pm``; ``why`` it had to be written, or could not be.

    ``bytes_read`` are of the data file, ``bytes_written`` are those of the ``_pm``.
    """

    path: str
    pm: str
    fate: Fate
    why: str = ""
    bytes_read: int = 0
    bytes_written: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateReport:
    """What a migration did, or with ``dry_run`` would do, file by file.

    ``destination`` is where the ``_pm`` files went, ``None`` for beside their files; ``bytes_data``
    is the size of the data files, ``seconds`` what it took.
    """

    table: str
    destination: str | None
    files: tuple[FileMigration, ...]
    dry_run: bool = False
    bytes_data: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """How many files met each fate."""
        return dict(Counter(each.fate for each in self.files))

    @property
    def ok(self) -> bool:
        """True when none failed."""
        return not any(each.fate == "failed" for each in self.files)

    @property
    def bytes_read(self) -> int:
        """Bytes of data files that were read: footers and Bloom filters."""
        return sum(each.bytes_read for each in self.files)

    @property
    def bytes_written(self) -> int:
        """Bytes of the ``_pm`` files that were written."""
        return sum(each.bytes_written for each in self.files)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        counts = self.counts
        return {
            "table": self.table,
            "destination": self.destination,
            "dry_run": self.dry_run,
            "files_total": len(self.files),
            **{
                name: counts.get(name, 0)
                for name in ("made", "rewritten", "upgraded", "valid", "left_out", "failed")
            },
            "bytes_data": self.bytes_data,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "seconds": self.seconds,
            "ok": self.ok,
            "files": [each.to_dict() for each in self.files],
        }

    def __str__(self) -> str:
        counts, total = self.counts, len(self.files)
        would = "would write" if self.dry_run else "wrote"
        written = sum(counts.get(fate, 0) for fate in ("made", "rewritten", "upgraded"))
        kinds = [
            f"{counts.get(fate, 0):,} {text}"
            for fate, text in (("made", "new"), ("rewritten", "invalid"), ("upgraded", "older"))
        ]
        where = "beside their files" if self.destination is None else f"below {self.destination}"
        lines = [
            f"{would} the _pm of {of_total(written, total, 'files')} ({', '.join(kinds)}), {where}",
            f"{of_total(counts.get('valid', 0), total, 'files')} had a good one already",
            f"{'needs' if self.dry_run else 'took'} {size(self.bytes_written)} and"
            f" {duration(1000 * self.seconds)}, read {size(self.bytes_read)} of"
            f" {size(self.bytes_data)} of data",
        ]
        for fate, title in (
            ("rewritten", "made anew"),
            ("upgraded", "brought up to date"),
            ("left_out", "left out"),
            ("failed", "failed"),
        ):
            lines += _some(title, [each for each in self.files if each.fate == fate], total)
        return "\n".join(lines)


def _some(title: str, files: Iterable[FileMigration], total: int) -> list[str]:
    """The title, and the first of the files with the reason."""
    listed = list(files)
    if not listed:
        return []
    shown = [f"  {each.path}: {each.why}" for each in listed[:_SHOWN]]
    rest = len(listed) - _SHOWN
    return [
        f"{title}, {of_total(len(listed), total, 'files')}:",
        *shown,
        *([f"  and {rest:,} more"] if rest > 0 else []),
    ]
