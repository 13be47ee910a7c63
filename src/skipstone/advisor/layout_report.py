"""What ``advise --layout`` reports: ``LayoutAdvice``."""

from __future__ import annotations

import shlex
from typing import Final

from skipstone._dataclasses import dataclass
from skipstone.human import Report, aligned, of_total, percent, plural, size

from .report import QUERY_HEADINGS, QuerySavings

# How many layouts the text shows; ``to_dict`` has all of them.
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSavings(Report):
    """One layout: rows in the order ``curve`` of ``by``, in ``files_made`` files of ``file_size``.

    A query reads ``bytes`` and ``files`` of them, on average by the weights.
    """

    curve: str
    by: tuple[str, ...]
    file_size: int
    files_made: int
    bytes_before: int
    bytes: int
    files: float

    def _row(self) -> tuple[str, ...]:
        saved = self.bytes_before - self.bytes
        return (
            f"{self.curve} {', '.join(self.by)}",
            size(self.file_size),
            f"{self.files_made:,}",
            size(self.bytes),
            f"{self.files:,.1f}",
            percent(saved, self.bytes_before) if saved > 0 else "-",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutAdvice(Report):
    """What other orders of the rows would save; the best of ``layouts`` is the first.

    ``chosen`` is False if none saves enough. ``command`` writes the table in the best one.
    """

    computed = ("command",)

    table: str
    files_total: int
    files_sampled: int = 0
    rows_sampled: int = 0
    bytes_data: int = 0
    queries: tuple[QuerySavings, ...] = ()
    layouts: tuple[LayoutSavings, ...] = ()
    chosen: bool = False
    notes: tuple[str, ...] = ()

    @property
    def command(self) -> str | None:
        """The command line that writes the table in the best layout; ``None`` for none."""
        if not self.chosen:
            return None
        best = self.layouts[0]
        by = ",".join(f"`{each}`" if "," in each and "`" not in each else each for each in best.by)
        whole, rest = divmod(best.file_size, 1 << 20)
        size = str(best.file_size) if rest else f"{whole}MiB"
        words = ["skipstone", "cluster", self.table, f"--by={by}", "--curve", best.curve]
        words += ["--file-size", size, "--to", f"{self.table.rstrip('/')}_clustered"]
        return shlex.join(words)

    def __str__(self) -> str:
        lines = [
            f"table {self.table}   sampled {plural(self.rows_sampled, 'row')} of "
            f"{of_total(self.files_sampled, self.files_total, 'files')}, of {size(self.bytes_data)}"
        ]
        if self.queries:
            made = self.layouts[0].files_made
            rows = [each.row(self.files_total, made) for each in self.queries]
            lines.append(aligned([QUERY_HEADINGS, *rows], range(1, 6)))
        if self.layouts:
            rows = [self._now(), *(each._row() for each in self.layouts[:_SHOWN])]
            lines.append(aligned([_LAYOUT_HEADINGS, *rows], range(1, 6)))
            more = len(self.layouts) - _SHOWN
            if more > 0:
                lines.append(f"and {plural(more, 'more layout')}")
        lines += [f"note: {note}" for note in self.notes]
        lines += self._conclusion()
        return "\n".join(lines)

    def _now(self) -> tuple[str, ...]:
        """The table as it is, as a row among the layouts."""
        weight = sum(each.weight for each in self.queries) or 1.0
        files = sum(each.weight * each.files_before for each in self.queries) / weight
        return (
            "as it is",
            size(self.bytes_data / max(self.files_total, 1)),
            f"{self.files_total:,}",
            size(self.layouts[0].bytes_before),
            f"{files:,.1f}",
            "",
        )

    def _conclusion(self) -> list[str]:
        if self.command is None:
            return ["no order of the rows would save much"]
        best = self.layouts[0]
        saved = best.bytes_before - best.bytes
        runs = -(-2 * self.bytes_data // max(saved, 1))
        return [
            f"by whole row groups, a query would read about {size(best.bytes)} instead of"
            f" {size(best.bytes_before)}. Writing the table once reads {size(self.bytes_data)} and"
            f" writes about as much: {size(saved)} saved by each query make up for it after"
            f" {runs:,} of them",
            self.command,
        ]


_LAYOUT_HEADINGS = ("order", "file size", "files", "bytes/query", "files/query", "saves")
