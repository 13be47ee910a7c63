"""What ``inspect`` found, as a value, and what it takes to be looked at.

A format registers by a module with one function::

    def look(
        storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
    ) -> list[Found] | None

``path`` is canonical and exists; ``keys`` are those of an encrypted index. ``None`` means "not
mine"; bytes that are of the format and damaged are a ``FormatError``. At most ``rows`` rows are
decoded of each thing found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipstone.human import aligned, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.storage import Storage

__all__ = ["Found", "Inspection", "is_file", "plain"]

_WIDEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One store, or one file of it: what it says of itself.

    ``columns`` describe its columns, all with the same keys; ``rows`` are the first of its rows;
    ``notes`` say what could not be shown, and why. All values are JSON-ready.
    """

    path: str
    format: str
    properties: Mapping[str, Any]
    columns: tuple[Mapping[str, Any], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "path": self.path,
            "format": self.format,
            **self.properties,
            "columns": [dict(column) for column in self.columns],
            "rows_shown": [dict(row) for row in self.rows],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [f"{self.format}   {self.path}"]
        shown = {name: _shown(value) for name, value in self.properties.items()}
        lines.append(aligned([(f"  {name.replace('_', ' ')}", v) for name, v in shown.items()]))
        if self.columns:
            heads = [name.replace("_", " ") for name in self.columns[0]]
            cells = [[_shown(value) for value in column.values()] for column in self.columns]
            lines += ["", _indented(aligned([heads, *cells]))]
        for row in self.rows:
            cells = [[name, _cut(_shown(value))] for name, value in row.items()]
            lines += ["", _indented(aligned(cells))]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """All that was found at ``path``."""

    path: str
    found: tuple[Found, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {"path": self.path, "found": [each.to_dict() for each in self.found]}

    def __str__(self) -> str:
        return "\n\n".join(str(each) for each in self.found)


def is_file(storage: Storage, path: str) -> bool:
    """True for an object, False for a directory: locally, ``exists`` is true of both."""
    return not storage.has_children(path) and storage.exists(path)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
