"""``Advice``: what was found out about each column of a table, and what follows from it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from html import escape
from typing import Any

from skipstone.human import aligned, of_total, percent, size

__all__ = ["Advice", "ColumnAdvice"]

_HEADINGS = (
    "column",
    "type",
    "nulls",
    "distinct/file",
    "sorted",
    "overlap",
    "suggest",
    "size",
    "why",
)
_NUMBERS = frozenset({2, 3, 5, 7})


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAdvice:
    """One column. Shares are between 0 and 1, ``None`` where the sample does not tell.

    - ``type``: Spark's name; ``column``: as ``build`` takes it;
    - ``nulls``: share of nulls among the rows that were read;
    - ``distinct_per_file``: distinct values of an average file; ``distinct_exact`` is False where
      files were read in part and the number was scaled up;
    - ``sorted``: whether the values ascend within every file;
    - ``overlap``: share of pairs of files whose [min, max] overlap;
    - ``reads_minmax``, ``reads_values``: share of all files that a lookup of a value that there is
      would read, going by min/max, and by which files really hold the value;
    - ``kinds``: what is proposed, best first; ``why``; ``bytes_estimate`` for the whole table.
    """

    column: str
    type: str
    nulls: float | None = None
    distinct_per_file: int | None = None
    distinct_exact: bool = True
    sorted: bool | None = None
    overlap: float | None = None
    reads_minmax: float | None = None
    reads_values: float | None = None
    kinds: tuple[str, ...] = ()
    why: str = ""
    bytes_estimate: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**found, "kinds": list(self.kinds)}

    def _row(self) -> tuple[str, ...]:
        count = "" if self.distinct_per_file is None else f"{self.distinct_per_file:,}"
        return (
            self.column,
            self.type,
            "" if self.nulls is None else percent(self.nulls, 1),
            count if self.distinct_exact or not count else f"~{count}",
            {None: "", True: "yes", False: "no"}[self.sorted],
            "" if self.overlap is None else percent(self.overlap, 1),
            ", ".join(self.kinds) or "-",
            size(self.bytes_estimate) if self.kinds else "",
            self.why,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a sample of ``sampled`` of ``files_total`` files says about each column of ``table``.

    ``rows_read`` rows were decoded. ``bytes_estimate`` is the size of all that is proposed, for the
    whole table of ``bytes_data`` bytes.
    """

    table: str
    sampled: int
    files_total: int
    rows_read: int
    bytes_data: int
    columns: tuple[ColumnAdvice, ...]
    bytes_estimate: int = 0
    notes: tuple[str, ...] = ()

    @property
    def indexes(self) -> tuple[str, ...]:
        """What is proposed, as ``build`` takes it: ``("user_id:bloom", "ts:minmax")``."""
        return tuple(f"{c.column}:{','.join(c.kinds)}" for c in self.columns if c.kinds)

    @property
    def command(self) -> str | None:
        """The command line that builds what is proposed; ``None`` where nothing is."""
        if not self.indexes:
            return None
        words = ["skipstone", "build", self.table]
        for index in self.indexes:
            words += ["-c", index]
        return shlex.join(words)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "table": self.table,
            "sampled": self.sampled,
            "files_total": self.files_total,
            "rows_read": self.rows_read,
            "bytes_data": self.bytes_data,
            "bytes_estimate": self.bytes_estimate,
            "columns": [column.to_dict() for column in self.columns],
            "indexes": list(self.indexes),
            "command": self.command,
            "notes": list(self.notes),
        }

    def _looked(self) -> str:
        files = of_total(self.sampled, self.files_total, "files")
        return f"table {self.table}   looked at {files}, {self.rows_read:,} rows"

    def _cost(self) -> str:
        if not self.indexes:
            return "no index would help"
        share = percent(self.bytes_estimate, self.bytes_data)
        return f"about {size(self.bytes_estimate)} of index ({share} of {size(self.bytes_data)})"

    def __str__(self) -> str:
        lines = [self._looked()]
        if self.columns:
            lines.append(aligned([_HEADINGS, *(c._row() for c in self.columns)], _NUMBERS))
        lines += [f"note: {note}" for note in self.notes]
        lines.append(self._cost())
        if self.command is not None:
            lines.append(self.command)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Advice({self.table!r}, {', '.join(self.indexes) or 'no index'})"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in _HEADINGS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in column._row()) + "</tr>"
            for column in self.columns
        )
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f"<div><p>{escape(self._looked())}</p><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{f'<ul>{notes}</ul>' if notes else ''}"
            f"<p><b>{escape(self._cost())}</b></p>"
            f"{f'<pre>{escape(self.command)}</pre>' if self.command else ''}</div>"
        )
