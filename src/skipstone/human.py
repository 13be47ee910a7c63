"""Numbers and values for people, and the base of all reports.

Counts have a denominator and a unit; sizes have decimal units.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Any, ClassVar, Generic, Protocol, TypeVar

#: how many lines of a long list a text shows; ``to_dict`` has all of them
SHOWN = 5

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size(nbytes: float) -> str:
    """``11.2 MB``; one digit after the point from kB up."""
    value = float(nbytes)
    for unit in _UNITS:
        if abs(value) < 999.95 or unit == _UNITS[-1]:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    raise AssertionError("the last unit takes everything")


def duration(milliseconds: float) -> str:
    """``0.4 ms``, ``38 ms``, ``2.1 s``, ``2m11s``, ``1h05m``, ``1d00h``."""
    # The limits lie where rounding would show "60.0 s" or "1000 ms".
    if milliseconds < 9.95:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    for large, unit, small, part in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60)):
        if seconds >= unit:
            return f"{int(seconds // unit)}{large}{int(seconds % unit // part):02d}{small}"
    return f"{int(seconds // 60)}m{int(seconds % 60):02d}s"


def cut(text: str, most: int) -> str:
    """The text, cut to ``most`` characters with an ellipsis at the end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def one_line(text: str, most: int = 600) -> str:
    """The text without line breaks, cut where it is long: Spark's messages carry a plan and a
    stack."""
    return cut(" ".join(text.split()), most)


def of_total(kept: int, total: int, unit: str) -> str:
    """``2 of 1,240 files``."""
    return f"{kept:,} of {total:,} {unit}"


def percent(part: float, whole: float) -> str:
    """``99.8 %``; never rounded up to 100 or down to 0 unless it is."""
    if whole == 0:
        return "0 %"
    share = 100 * part / whole
    if 0 < part < whole:
        share = min(max(share, 0.1), 99.9)
    return f"{share:,.1f} %".replace(".0 %", " %")


def plural(count: int, unit: str) -> str:
    """``1 part``, ``3 parts``: for units with a plural in "s"."""
    return f"{count:,} {unit if count == 1 else unit + 's'}"


def some_of(names: Sequence[str], most: int = SHOWN) -> str:
    """``a, b and 3 more``."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """A table with two blanks between columns; the columns ``numbers`` are right-aligned.

    All rows have the same number of cells. Blanks at the end of a line are dropped.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at in numbers else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def plain(value: Any, *, whole: bool = False) -> Any:
    """A JSON-ready value: bytes as ``0x`` and hexadecimal digits, NaN, infinities and others
    as their text. Only the length of long bytes is shown, unless ``whole`` is set."""
    if isinstance(value, dict):
        return {str(key): plain(each, whole=whole) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, whole=whole) for each in value]
    if isinstance(value, bytes):
        short = whole or len(value) <= 64
        return f"0x{value.hex()}" if short else f"{len(value):,} bytes"
    if isinstance(value, float):
        return value if value - value == 0 else str(value).replace("nan", "NaN")
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | Decimal):
        return str(value)
    return value if isinstance(value, str | int | type(None)) else str(value)


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for notebooks: no script, no outside resource."""
    from html import escape

    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Report:
    """The result of a verb: a frozen dataclass with ``str()`` for people, ``to_dict()`` for
    programs.

    Fields are JSON values, tuples and mappings of these, UTF-8 text as bytes, other reports, and
    values with a complete ``str()`` (a ``Reason``). Sizes are bytes, times seconds or milliseconds
    as named.
    """

    __slots__ = ()

    #: the properties that ``to_dict`` adds to the fields
    computed: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """All fields, then the ``computed`` properties, as JSON-ready values."""
        named = fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        names = (*(field.name for field in named), *self.computed)
        return {name: _json_ready(getattr(self, name)) for name in names}

    def _repr_html_(self) -> str:
        """The text, for notebooks."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def _json_ready(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Report):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def first_of(title: str, lines: Sequence[str]) -> list[str]:
    """The title and the first ``SHOWN`` lines below it, indented; nothing where there are none."""
    if not lines:
        return []
    rest = len(lines) - SHOWN
    more = [f"  and {rest:,} more"] if rest > 0 else []
    return [title, *(f"  {line}" for line in lines[:SHOWN]), *more]


class _FileReport(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def outcome(self) -> str: ...

    @property
    def why(self) -> str: ...


F = TypeVar("F", bound=_FileReport)


class FilesReport(Report, Generic[F]):
    """A report on the files of a table, each of which has one of the ``outcomes``."""

    __slots__ = ()

    outcomes: ClassVar[tuple[str, ...]]
    files: tuple[F, ...]

    @property
    def ok(self) -> bool:
        """True if every file is now as requested."""
        return not self.of("failed") and not self.of("partly")

    def of(self, outcome: str) -> tuple[F, ...]:
        """The files with this outcome."""
        return tuple([each for each in self.files if each.outcome == outcome])

    @property
    def counts(self) -> dict[str, int]:
        """The number of files by outcome."""
        return {outcome: len(self.of(outcome)) for outcome in self.outcomes}

    def to_dict(self) -> dict[str, Any]:
        """All fields, the sums, and the number of files by outcome."""
        return {**Report.to_dict(self), "files_total": len(self.files), **self.counts}

    def counted(self, *outcomes: str) -> str:
        """``2 of 1,240 files``: those with one of these outcomes."""
        return of_total(sum(len(self.of(each)) for each in outcomes), len(self.files), "files")

    def reasons(self, outcome: str, title: str) -> list[str]:
        """The count of the files with this outcome, and the first of them with their reasons."""
        lines = [f"{each.path}: {each.why}" for each in self.of(outcome)]
        return first_of(f"{title}, {self.counted(outcome)}:", lines)
