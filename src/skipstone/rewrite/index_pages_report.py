"""What became of a file that was given index pages, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipstone.human import duration, of_total, plural, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .retrofit_report import RetrofitReport

__all__ = ["IndexPagesReport", "RetrofitWithIndexPages"]

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPagesReport:
    """``keyed`` chunks of ``chunks`` have a tree of keys now, ``ordinal`` ones a tree of ordinals
    alone; the trees are ``index_pages`` pages of ``index_bytes`` bytes, at most ``levels`` deep.

    ``notes`` say which chunks have no tree, or not the one that was asked for, and why.
    """

    path: str
    output: str
    keys: Sequence[str] = ()
    interleave: bool = False
    rows: int = 0
    row_groups: int = 0
    chunks: int = 0
    keyed: int = 0
    ordinal: int = 0
    data_pages: int = 0
    index_pages: int = 0
    index_bytes: int = 0
    levels: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """True: what could not be done is in the notes."""
        return True

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        names = [name for name in self.__slots__ if name not in ("keys", "notes")]
        return {
            **{name: getattr(self, name) for name in names},
            "keys": list(self.keys),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        verb = "would write" if self.dry_run else "wrote"
        what = f"{plural(self.rows, 'row')} in {plural(self.row_groups, 'row group')}"
        where = "between the data pages" if self.interleave else "behind the data pages"
        lines = [
            f"{verb} {self.output}: {what}, {plural(self.data_pages, 'data page')}",
            f"  trees of keys: {of_total(self.keyed, self.chunks, 'chunks')}"
            + (f" ({', '.join(self.keys)})" if self.keys else ""),
            f"  trees of ordinals alone: {of_total(self.ordinal, self.chunks, 'chunks')}",
            f"  {plural(self.index_pages, 'index page')} {where},"
            f" {plural(self.levels, 'level')}, {size(self.index_bytes)}",
        ]
        lines += [f"  {note}" for note in self.notes[:_SHOWN]]
        if len(self.notes) > _SHOWN:
            lines.append(f"  and {len(self.notes) - _SHOWN} more of that kind")
        lines.append(
            f"  {size(self.bytes_before)} before, {size(self.bytes_after)} after,"
            f" {duration(1000 * self.seconds)}"
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrofitWithIndexPages:
    """A retrofit, and the index pages that the file got after it."""

    retrofit: RetrofitReport
    index_pages: IndexPagesReport

    @property
    def ok(self) -> bool:
        """True where the file has now all that it can have."""
        return self.retrofit.ok

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values: those of the retrofit, and ``index_pages``."""
        return self.retrofit.to_dict() | {"index_pages": self.index_pages.to_dict()}

    def __str__(self) -> str:
        return f"{self.retrofit}\n{self.index_pages}"
