"""What ``advise`` reports: ``Advice`` by rules, or ``Savings`` measured with queries."""

from __future__ import annotations

import shlex
from html import escape
from typing import TYPE_CHECKING, Any, Final

from skipstone._dataclasses import dataclass
from skipstone.human import Report, aligned, html_table, of_total, one_line, percent, plural, size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


# Long predicates are cut after this many characters.
_LONGEST_PREDICATE: Final = 60


class _Proposal(Report):
    """Indexes to build: the lines and the HTML that both reports have in common."""

    __slots__ = ()

    computed = ("indexes", "command")

    table: str
    notes: tuple[str, ...]
    recursive_file_lookup: bool

    @property
    def indexes(self) -> tuple[str, ...]:
        """The proposed indexes, as ``build`` takes them: ``("user_id:bloom", "ts:minmax")``."""
        raise NotImplementedError

    @property
    def command(self) -> str | None:
        """The command line that builds the proposed indexes; ``None`` where there are none."""
        if not self.indexes:
            return None
        words = ["skipstone", "build", self.table]
        if self.recursive_file_lookup:
            words.append("--recursive-file-lookup")
        for index in self.indexes:
            words += ["-c", index]
        return shlex.join(words)

    def _sampled(self) -> str:
        raise NotImplementedError

    def _cost(self) -> str:
        raise NotImplementedError

    def _tables(self) -> Iterator[tuple[Sequence[str], list[tuple[str, ...]], Collection[int]]]:
        """Headings, rows, and which columns are numbers, of each table with rows."""
        raise NotImplementedError

    def __str__(self) -> str:
        tables = [aligned([heads, *rows], numbers) for heads, rows, numbers in self._tables()]
        notes = [f"note: {note}" for note in self.notes]
        command = [] if self.command is None else [self.command]
        return "\n".join([self._sampled(), *tables, *notes, self._cost(), *command])

    def __repr__(self) -> str:
        listed = ", ".join(self.indexes) or "no index"
        return f"{type(self).__name__}({self.table!r}, {listed})"

    def _repr_html_(self) -> str:
        tables = "".join(html_table(heads, rows) for heads, rows, _ in self._tables())
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f"<div><p>{escape(self._sampled())}</p>{tables}"
            f"{f'<ul>{notes}</ul>' if notes else ''}<p><b>{escape(self._cost())}</b></p>"
            f"{f'<pre>{escape(self.command)}</pre>' if self.command else ''}</div>"
        )


# -- by rules --------------------------------------------------------------------------------------

_COLUMN_HEADINGS = (
    "column",
    "type",
    "nulls",
    "distinct/file",
    "sorted",
    "overlap",
    "suggest",
    "size",
    "bytes/key",
    "why",
)
_COLUMN_NUMBERS = frozenset({2, 3, 5, 7, 8})


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAdvice(Report):
    """One column. Shares are between 0 and 1, ``None`` where the sample does not show them.

    - ``type``: Spark's name; ``column``: as ``build`` takes it;
    - ``nulls``: share of nulls among the rows that were read;
    - ``distinct_per_file``: distinct values of an average file; ``distinct_exact`` is False where
      files were read in part and the number was scaled up;
    - ``sorted``: whether the values ascend within every file;
    - ``overlap``: share of pairs of files whose [min, max] overlap;
    - ``reads_minmax``, ``reads_values``: share of all files that a lookup of an existing value
      would read, by min/max, and by the files that really hold the value;
    - ``kinds``: the proposed kinds, best first; ``why``; ``bytes_estimate`` for the whole table;
    - ``bytes_per_key``: of a proposed Bloom filter, for each distinct value of a file.
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
    bytes_per_key: float | None = None

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
            "" if self.bytes_per_key is None else f"{self.bytes_per_key:.1f}",
            self.why,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(_Proposal):
    """Advice about each column of ``table`` from a sample of ``sampled`` of ``files_total`` files.

    ``rows_read`` rows were decoded. ``bytes_estimate`` is the size of all proposed indexes, for the
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
    recursive_file_lookup: bool = False

    @property
    def indexes(self) -> tuple[str, ...]:
        """The proposed indexes, as ``build`` takes them: ``("user_id:bloom", "ts:minmax")``."""
        return tuple(f"{c.column}:{','.join(c.kinds)}" for c in self.columns if c.kinds)

    def _sampled(self) -> str:
        files = of_total(self.sampled, self.files_total, "files")
        return f"table {self.table}   sampled {files}, {self.rows_read:,} rows"

    def _cost(self) -> str:
        if not self.indexes:
            return "no index would help"
        share = percent(self.bytes_estimate, self.bytes_data)
        return f"about {size(self.bytes_estimate)} of index ({share} of {size(self.bytes_data)})"

    def _tables(self) -> Iterator[tuple[Sequence[str], list[tuple[str, ...]], Collection[int]]]:
        if self.columns:
            yield _COLUMN_HEADINGS, [each._row() for each in self.columns], _COLUMN_NUMBERS


# -- by queries ------------------------------------------------------------------------------------

QUERY_HEADINGS = ("query", "weight", "files now", "files then", "bytes now", "bytes then")
_INDEX_HEADINGS = ("index", "size", "saves alone", "files", "build", "saves more", "why")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySavings(Report):
    """One query: the bytes and files that it reads now, and with what is proposed."""

    where: str
    weight: float
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "where": self.where,
            "weight": self.weight,
            "files": {"before": self.files_before, "after": self.files_after},
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
        }

    def row(self, files_now: int, files_then: int) -> tuple[str, ...]:
        """The cells under ``QUERY_HEADINGS``; the table has this many files, and will have."""
        return (
            one_line(self.where, _LONGEST_PREDICATE),
            f"{self.weight:g}",
            of_total(self.files_before, files_now, "").strip(),
            of_total(self.files_after, files_then, "").strip(),
            size(self.bytes_before),
            size(self.bytes_after),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSavings(Report):
    """One index that could be built, as ``build`` takes it.

    - ``bytes``: its size; ``saves`` and ``files``: what it alone saves over the weighted queries,
      in bytes read and files opened;
    - ``order``: 1 for the first to build, ``None`` for one that is not proposed; ``adds``: what it
      saves beyond those before it.
    """

    index: str
    bytes: int
    saves: int
    files: int
    order: int | None = None
    adds: int = 0
    why: str = ""

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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Savings(_Proposal):
    """What indexes would save over ``queries``, tried on ``sampled`` of ``files_total`` files.

    The first candidates are those to build, in their order. ``bytes_estimate`` is the size of the
    proposed indexes, for a table of ``bytes_data`` bytes.
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
    recursive_file_lookup: bool = False

    @property
    def indexes(self) -> tuple[str, ...]:
        """The proposed indexes, as ``build`` takes them; the one that saves most comes first."""
        return tuple(each.index for each in self.candidates if each.order is not None)

    @property
    def bytes_before(self) -> int:
        """The bytes that all queries read without an index, by their weights."""
        return round(sum(each.weight * each.bytes_before for each in self.queries))

    @property
    def bytes_after(self) -> int:
        """The bytes that all queries read with the proposed indexes, by their weights."""
        return round(sum(each.weight * each.bytes_after for each in self.queries))

    def to_dict(self) -> dict[str, Any]:
        read = {"before": self.bytes_before, "after": self.bytes_after}
        return _Proposal.to_dict(self) | {"bytes": read}

    def _sampled(self) -> str:
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

    def _tables(self) -> Iterator[tuple[Sequence[str], list[tuple[str, ...]], Collection[int]]]:
        if self.queries:
            rows = [each.row(self.files_total, self.files_total) for each in self.queries]
            yield QUERY_HEADINGS, rows, range(1, 6)
        if self.candidates:
            yield _INDEX_HEADINGS, [each._row() for each in self.candidates], range(1, 6)


def _signed(count: int) -> str:
    return size(count) if count >= 0 else f"-{size(-count)}"
