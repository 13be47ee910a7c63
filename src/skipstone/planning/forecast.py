"""What reading a plan will take, as far as that is known before a row is read; and what it took.

The columns of the predicate are read first, of every row that is left; the other columns after
that, and only the pages that hold a matching row. So the first ``Amount`` is what will be read, the
second the most that it can be. Both are exact where the places of pages are known; for a chunk
whose pages nobody has looked at they count the chunk, for a file that was not looked into the file,
and then the forecast is ``about``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skipstone.human import duration, of_total, plural, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.pruning.plan import Plan
    from skipstone.storage import ByteRange

__all__ = ["Amount", "Analysis", "Forecast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Bytes, and in how many requests: reads of consecutive bytes."""

    bytes: int = 0
    requests: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(bytes=self.bytes + other.bytes, requests=self.requests + other.requests)

    def __bool__(self) -> bool:
        return bool(self.bytes or self.requests)

    def __str__(self) -> str:
        return f"{size(self.bytes)} in {plural(self.requests, 'request')}"

    def to_dict(self) -> dict[str, int]:
        """As JSON-ready values."""
        return {"bytes": self.bytes, "requests": self.requests}


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """See the module. ``certain`` is read in any case, ``possible`` at most besides.

    ``row_groups`` and ``pages`` are what is left, and of how many, in ``files`` files that were
    looked into; pages are those of the columns that will be read whose places are known.
    ``byte_ranges`` are the requests, by file of the listing; a file without any is counted whole.
    ``at_most``: a limit or an order may end the reading before.
    """

    certain: Amount = field(default_factory=Amount)
    possible: Amount = field(default_factory=Amount)
    about: bool = False
    at_most: bool = False
    files: int = 0
    row_groups: tuple[int, int] = (0, 0)
    pages: tuple[int, int] = (0, 0)
    byte_ranges: Mapping[int, tuple[ByteRange, ...]] = field(default_factory=dict)

    @property
    def total(self) -> Amount:
        """Both."""
        return self.certain + self.possible

    def __str__(self) -> str:
        about = "about " if self.about else ""
        if self.at_most:
            return f"at most {about}{self.total}"
        if not self.possible:
            return f"{about}{self.certain}"
        if not self.certain:
            return f"at most {about}{self.possible}"
        return f"{about}{self.certain}, then at most {self.possible} where rows match"

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "certain": self.certain.to_dict(),
            "possible": self.possible.to_dict(),
            "about": self.about,
            "at_most": self.at_most,
            "files_looked_into": self.files,
            "row_groups": {"kept": self.row_groups[0], "total": self.row_groups[1]},
            "pages": {"kept": self.pages[0], "total": self.pages[1]},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A plan, and what came of it when the embedded engine ran it (``Plan.analyze``).

    ``rows`` came out; ``files_read`` are files of which at least one byte was read meanwhile: what
    planning had read of a file's footer and indexes is not read again. ``milliseconds`` are of
    reading alone.
    """

    plan: Plan
    rows: int
    files_read: int
    read: Amount
    milliseconds: float

    def __str__(self) -> str:
        return "\n".join([str(self.plan), *(f"  {line}" for line in self.lines)])

    @property
    def lines(self) -> list[str]:
        """What happened, against what was planned."""
        plan, forecast = self.plan, self.plan.foreseen
        left = plan.rows_kept
        rows = plural(self.rows, "row") if left < 0 else of_total(self.rows, left, "rows left")
        planned = "" if forecast is None else f"; planned: {forecast}"
        files = of_total(self.files_read, plan.files_kept, "planned files")
        return [
            f"ran: {rows} came out, in {duration(self.milliseconds)}",
            f"read {self.read}, from {files}{planned}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """The plan's, with ``analyzed``."""
        return {
            **self.plan.to_dict(),
            "analyzed": {
                "rows": self.rows,
                "files_read": self.files_read,
                **self.read.to_dict(),
                "milliseconds": round(self.milliseconds, 3),
            },
        }

    def _repr_html_(self) -> str:
        from html import escape

        lines = "<br>".join(escape(line) for line in self.lines)
        return f"{self.plan._repr_html_()}<p>{lines}</p>"
