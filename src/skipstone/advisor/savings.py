"""``Savings``: what each candidate would save over the queries of a workload, and what to build.

All figures are of the whole table, scaled up from the sample by bytes; ``sampled`` says from how
much.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from html import escape
from typing import Any

from skipstone.human import aligned, of_total, percent, plural, size

__all__ = ["CandidateSavings", "QuerySavings", "Savings"]

_QUERY_HEADINGS = ("query", "weight", "files now", "files then", "bytes now", "bytes then")
_HEADINGS = ("index", "size", "saves alone", "files", "build", "saves more", "why")
# Of long predicates the beginning is shown.
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySavings:
    """One query: what it reads without an index of ours, and with those that are proposed."""

    where: str
    weight: float
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "where": self.where,
            "weight": self.weight,
            "files": {"before": self.files_before, "after": self.files_after},
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
        }

    def _row(self, files_total: int) -> tuple[str, ...]:
        where = self.where if len(self.where) <= _SHOWN else f"{self.where[: _SHOWN - 1]}…"
        return (
            " ".join(where.split()),
            f"{self.weight:g}",
            of_total(self.files_before, files_total, "").strip(),
            of_total(self.files_after, files_total, "").strip(),
            size(self.bytes_before),
            size(self.bytes_after),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSavings:
    """One index that could be built, as ``build`` takes it.

    - ``bytes``: its size; ``saves`` and ``files``: what it alone spares the queries, each as often
      as its weight says, in bytes read and files opened;
    - ``order``: 1 for what to build first, ``None`` for what is not proposed; ``adds``: what it
      saves beyond those before it.
    """

    index: str
    bytes: int
    saves: int
    files: int
    order: int | None = None
    adds: int = 0
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _row(self) -> tuple[str, ...]:
        return (
            self.index,
            size(self.bytes),
            _signed(self.saves),
            f"{self.files:,}",
            "-" if self.order is None else f"{self.order}.",
            "" if self.order is None else _signed(self.adds),
            self.why,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What indexes would save over ``queries``, tried on ``sampled`` of ``files_total`` files.

    Candidates come with those to build first, in their order. ``bytes_estimate`` is the size of
    what is proposed, for a table of ``bytes_data`` bytes.
    """

    table: str
    sampled: int
    files_total: int
    bytes_sampled: int
    bytes_data: int
    queries: tuple[QuerySavings, ...]
    candidates: tuple[CandidateSavings, ...]
    bytes_estimate: int = 0
    notes: tuple[str, ...] = ()

    @property
    def indexes(self) -> tuple[str, ...]:
        """What is proposed, as ``build`` takes it, what saves most first."""
        return tuple(each.index for each in self.candidates if each.order is not None)

    @property
    def command(self) -> str | None:
        """The command line that builds what is proposed; ``None`` where nothing is."""
        if not self.indexes:
            return None
        words = ["skipstone", "build", self.table]
        for index in self.indexes:
            words += ["-c", index]
        return shlex.join(words)

    @property
    def bytes_before(self) -> int:
        """What all queries read without an index, each as often as its weight says."""
        return round(sum(each.weight * each.bytes_before for each in self.queries))

    @property
    def bytes_after(self) -> int:
        """The same with what is proposed."""
        return round(sum(each.weight * each.bytes_after for each in self.queries))

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "table": self.table,
            "sampled": self.sampled,
            "files_total": self.files_total,
            "bytes_sampled": self.bytes_sampled,
            "bytes_data": self.bytes_data,
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "bytes_estimate": self.bytes_estimate,
            "queries": [query.to_dict() for query in self.queries],
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "indexes": list(self.indexes),
            "command": self.command,
            "notes": list(self.notes),
        }

    def _looked(self) -> str:
        files = of_total(self.sampled, self.files_total, "files")
        bytes_ = f"{size(self.bytes_sampled)} of {size(self.bytes_data)}"
        scaled = "" if self.sampled == self.files_total else "; figures are scaled up from those"
        return f"table {self.table}   sampled {files}, {bytes_}{scaled}"

    def _cost(self) -> str:
        if not self.indexes:
            return "no index would save more than it takes"
        before, after = self.bytes_before, self.bytes_after
        return (
            f"{plural(len(self.queries), 'query').replace('querys', 'queries')} would read about "
            f"{size(after)} instead of {size(before)} ({percent(before - after, before)} less), "
            f"with about {size(self.bytes_estimate)} of index "
            f"({percent(self.bytes_estimate, self.bytes_data)} of {size(self.bytes_data)})"
        )

    def __str__(self) -> str:
        lines = [self._looked()]
        if self.queries:
            rows = [each._row(self.files_total) for each in self.queries]
            lines.append(aligned([_QUERY_HEADINGS, *rows], frozenset({1, 2, 3, 4, 5})))
        if self.candidates:
            lines.append(
                aligned([_HEADINGS, *(c._row() for c in self.candidates)], frozenset(range(1, 6)))
            )
        lines += [f"note: {note}" for note in self.notes]
        lines.append(self._cost())
        if self.command is not None:
            lines.append(self.command)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Savings({self.table!r}, {', '.join(self.indexes) or 'no index'})"

    def _repr_html_(self) -> str:
        queries = _html(_QUERY_HEADINGS, [each._row(self.files_total) for each in self.queries])
        candidates = _html(_HEADINGS, [each._row() for each in self.candidates])
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f"<div><p>{escape(self._looked())}</p>{queries}{candidates}"
            f"{f'<ul>{notes}</ul>' if notes else ''}<p><b>{escape(self._cost())}</b></p>"
            f"{f'<pre>{escape(self.command)}</pre>' if self.command else ''}</div>"
        )


def _signed(count: int) -> str:
    return size(count) if count >= 0 else f"-{size(-count)}"


def _html(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
