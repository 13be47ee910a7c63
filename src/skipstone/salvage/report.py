"""What a salvage saved and what not, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from skipstone.human import duration, of_total, percent, plural, size

if TYPE_CHECKING:
    from .page_check import BadPage

__all__ = ["FooterState", "GroupReport", "LeftOut", "SalvageReport"]

#: The footer could be used; a cumulative one before the end could; there was none.
FooterState: TypeAlias = Literal["whole", "checkpoint", "lost"]

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Pages between bytes ``start`` and ``stop`` that are in no row group that is certain.

    ``row_counts``: what ``row_group_rows`` might be, each of which makes it certain.
    """

    start: int
    stop: int
    pages: int
    why: str
    row_counts: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "row_counts": list(self.row_counts)
        }

    def __str__(self) -> str:
        text = f"bytes {self.start:,} to {self.stop:,}, {plural(self.pages, 'page')}: {self.why}"
        if self.row_counts:
            counts = ", ".join(f"{each:,}" for each in self.row_counts[:_SHOWN])
            more = ", …" if len(self.row_counts) > _SHOWN else ""
            text += f"; --row-group-rows decides, and may be {counts}{more}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One row group that was found: ``why`` it was left out, empty if it was saved."""

    start: int
    stop: int
    num_rows: int
    pages: int
    why: str = ""
    bad_pages: tuple[BadPage, ...] = ()
    rows_without_values: int = 0

    @property
    def saved(self) -> bool:
        """Whether it is in the new file."""
        return not self.why

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "start": self.start,
            "stop": self.stop,
            "num_rows": self.num_rows,
            "pages": self.pages,
            "saved": self.saved,
            "why": self.why,
            "values_made_null": self.rows_without_values,
            "bad_pages": [
                {"offset": e.offset, "page": e.page, "column": e.column, "why": e.why}
                for e in self.bad_pages
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageReport:
    """What became of a file; ``output`` is ``None`` where nothing could be saved.

    Pages count dictionaries too. ``pages_with_checksum`` are those of the saved row groups that had
    one; what damages the others without leaving traces cannot be seen. ``lost`` are ranges of bytes
    that are nothing known. ``ambiguous_pages`` are whole, but not of certain columns.
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
    notes: tuple[str, ...] = field(default=())
    seconds: float = 0.0

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
    def bytes_lost(self) -> int:
        """Bytes that are nothing known."""
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
        """As JSON-ready values."""
        return {
            "path": self.path,
            "output": self.output,
            "size": self.size,
            "schema_from": self.schema_from,
            "footer": self.footer,
            "row_groups_found": len(self.row_groups),
            "row_groups_saved": len(self.saved),
            "rows_found": sum(each.num_rows for each in self.row_groups),
            "rows_saved": self.num_rows,
            "pages_found": self.pages_found,
            "pages_saved": self.pages_saved,
            "pages_with_checksum": self.pages_with_checksum,
            "pages_bad": len(self.bad_pages),
            "pages_ambiguous": self.ambiguous_pages,
            "pages_incomplete": self.incomplete_pages,
            "values_made_null": sum(each.rows_without_values for each in self.row_groups),
            "bytes_lost": self.bytes_lost,
            "left_out": [each.to_dict() for each in self.left_out],
            "lost": [list(each) for each in self.lost],
            "notes": list(self.notes),
            "seconds": self.seconds,
            "ok": self.ok,
            "row_groups": [each.to_dict() for each in self.row_groups],
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
        lines.append(f"{with_checksum} had a checksum, and it was right; all were decoded")
        if self.bad_pages:
            lines.append(f"damaged, {of_total(len(self.bad_pages), self.pages_found, 'pages')}:")
            lines += [
                f"  byte {each.offset:,}, column {each.column}: {each.why}"
                for each in self.bad_pages[:_SHOWN]
            ]
            lines += _rest(len(self.bad_pages))
        made_null = sum(each.rows_without_values for each in self.saved)
        if made_null:
            lines.append(f"null instead of lost: {plural(made_null, 'value')}")
        out = [each for each in self.row_groups if not each.saved]
        if out:
            total = of_total(len(out), len(self.row_groups), "row groups")
            lines.append(f"left out, {total}:")
            lines += [
                f"  bytes {each.start:,} to {each.stop:,}, {plural(each.num_rows, 'row')}:"
                f" {each.why}"
                for each in out[:_SHOWN]
            ]
            lines += _rest(len(out))
        for count, text in (
            (self.incomplete_pages, "belong to row groups that are not whole"),
            (self.ambiguous_pages, "may belong to more than one column: not saved"),
        ):
            if count:
                lines.append(f"{of_total(count, self.pages_found, 'pages')} {text}")
        lines += [f"  {each}" for each in self.left_out[:_SHOWN]] + _rest(len(self.left_out))
        if self.lost:
            share = percent(self.bytes_lost, self.size)
            lines.append(f"{size(self.bytes_lost)} ({share}) are nothing known:")
            lines += [f"  bytes {start:,} to {stop:,}" for start, stop in self.lost[:_SHOWN]]
            lines += _rest(len(self.lost))
        return "\n".join([*lines, *(f"note: {each}" for each in self.notes)])


def _rest(count: int) -> list[str]:
    return [f"  and {count - _SHOWN:,} more"] if count > _SHOWN else []
