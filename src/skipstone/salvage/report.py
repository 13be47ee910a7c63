"""The saved and the omitted parts of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from skipstone._dataclasses import dataclass
from skipstone.human import SHOWN, Report, duration, first_of, of_total, percent, plural, size

if TYPE_CHECKING:
    from .page_check import BadPage


#: The footer could be used; a cumulative one before the end could; there was none.
FooterState: TypeAlias = Literal["whole", "checkpoint", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(Report):
    """Pages between bytes ``start`` and ``stop`` that are in no row group that is certain.

    ``row_counts``: the least values of ``row_group_rows`` that make it certain, at most nine.
    """

    start: int
    stop: int
    pages: int
    why: str
    row_counts: tuple[int, ...] = ()

    def __str__(self) -> str:
        text = f"{_bytes(self.start, self.stop)}, {plural(self.pages, 'page')}: {self.why}"
        if self.row_counts:
            counts = ", ".join(f"{each:,}" for each in self.row_counts[:SHOWN])
            more = ", …" if len(self.row_counts) > SHOWN else ""
            text += f"; --row-group-rows decides, and may be {counts}{more}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport(Report):
    """One row group that was found: ``why`` it was left out, empty if it was saved."""

    start: int
    stop: int
    num_rows: int
    pages: int
    why: str = ""
    bad_pages: tuple[BadPage, ...] = ()
    values_made_null: int = 0

    computed = ("saved",)

    @property
    def saved(self) -> bool:
        """Whether it is in the new file."""
        return not self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageReport(Report):
    """The outcome for one file; ``output`` is ``None`` where nothing could be saved.

    Page counts include dictionaries. ``pages_with_checksum`` counts those of the saved row groups;
    damage to the others may be invisible. ``lost`` are byte ranges of unknown content.
    ``ambiguous_pages`` are complete, but may belong to several columns.
    """

    path: str
    output: str | None
    size: int
    schema_from: str
    footer: FooterState
    row_groups: tuple[GroupReport, ...]
    pages_found: int
    pages_with_checksum: int = 0
    ambiguous_pages: int = 0
    incomplete_pages: int = 0
    left_out: tuple[LeftOut, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    computed = ("pages_saved", "values_made_null", "bytes_lost", "ok")

    @property
    def saved(self) -> tuple[GroupReport, ...]:
        """The row groups that are in the new file."""
        return tuple([each for each in self.row_groups if each.saved])

    @property
    def num_rows(self) -> int:
        """Rows that were saved."""
        return sum(each.num_rows for each in self.saved)

    @property
    def pages_saved(self) -> int:
        """Pages that were saved."""
        return sum(each.pages for each in self.saved)

    @property
    def bad_pages(self) -> tuple[BadPage, ...]:
        """Pages that are damaged."""
        return tuple([bad for each in self.row_groups for bad in each.bad_pages])

    @property
    def values_made_null(self) -> int:
        """Values that null replaces in the saved row groups."""
        return sum(each.values_made_null for each in self.saved)

    @property
    def bytes_lost(self) -> int:
        """Bytes of unknown content."""
        return sum(stop - start for start, stop in self.lost)

    @property
    def ok(self) -> bool:
        """Whether everything that was found was saved as it was."""
        return (
            self.output is not None
            and not self.bad_pages
            and not self.lost
            and not self.ambiguous_pages
            and not self.incomplete_pages
            and all(each.saved for each in self.row_groups)
        )

    def to_dict(self) -> dict[str, Any]:
        made = Report.to_dict(self)
        made["pages_ambiguous"] = made.pop("ambiguous_pages")
        made["pages_incomplete"] = made.pop("incomplete_pages")
        return made | {
            "row_groups_found": len(self.row_groups),
            "row_groups_saved": len(self.saved),
            "rows_found": sum(each.num_rows for each in self.row_groups),
            "rows_saved": self.num_rows,
            "pages_bad": len(self.bad_pages),
        }

    def __str__(self) -> str:
        rows = sum(each.num_rows for each in self.row_groups)
        lines = [
            f"saved {of_total(len(self.saved), len(self.row_groups), 'whole row groups')},"
            f" {of_total(self.num_rows, rows, 'rows')},"
            f" {of_total(self.pages_saved, self.pages_found, 'pages')}",
            f"{self.path}: {size(self.size)}, footer {self.footer}, schema from {self.schema_from}",
        ]
        if self.output is not None:
            lines.append(f"written to {self.output} in {duration(1000 * self.seconds)}")
        else:
            lines.append("nothing was written")
        with_checksum = of_total(self.pages_with_checksum, self.pages_saved, "saved pages")
        right = ", and it was right" if self.pages_with_checksum else ""
        lines.append(f"{with_checksum} had a checksum{right}; all were decoded")
        lines += first_of(
            f"damaged, {of_total(len(self.bad_pages), self.pages_found, 'pages')}:",
            [f"byte {bad.offset:,}, column {bad.column}: {bad.why}" for bad in self.bad_pages],
        )
        if self.values_made_null:
            lines.append(f"null instead of lost: {plural(self.values_made_null, 'value')}")
        out = [each for each in self.row_groups if not each.saved]
        lines += first_of(
            f"left out, {of_total(len(out), len(self.row_groups), 'row groups')}:",
            [f"{_bytes(e.start, e.stop)}, {plural(e.num_rows, 'row')}: {e.why}" for e in out],
        )
        for count, text in (
            (self.incomplete_pages, "belong to incomplete row groups"),
            (self.ambiguous_pages, "may belong to more than one column: not saved"),
        ):
            if count:
                lines.append(f"{of_total(count, self.pages_found, 'pages')} {text}")
        lines += first_of("", [str(each) for each in self.left_out])[1:]
        share = percent(self.bytes_lost, self.size)
        lines += first_of(
            f"{size(self.bytes_lost)} ({share}) are of unknown content:",
            [_bytes(*each) for each in self.lost],
        )
        return "\n".join([*lines, *(f"note: {each}" for each in self.notes)])


def _bytes(start: int, stop: int) -> str:
    return f"bytes {start:,} to {stop:,}"
