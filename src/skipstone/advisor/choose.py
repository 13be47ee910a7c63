"""``advise`` for queries: which set of candidates to build, by what each adds, and its ``Savings``.

The choice is greedy: first the candidate that saves most beyond its size, over all queries with
their weights; then the one that saves most in addition; until none saves more than it takes. Two
indexes over rows may each save nothing alone, since every page holds a row of each, and together
nearly everything: pairs that meet in one query are tried together.

All figures are of the whole table, scaled up from the sample by bytes; ``sampled`` says from how
much.
"""

from __future__ import annotations

import itertools
import shlex
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import FormatError
from skipstone.human import aligned, of_total, percent, plural, size
from skipstone.predicate.tree import leaves
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.table_schema import table_schema

from .measure import store_bytes
from .simulate import Simulation
from .workload import bound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.predicate.tree import Bound
    from skipstone.storage import Listing, Storage

    from .simulate import Candidate
    from .workload import Query

__all__ = ["BYTES", "CandidateSavings", "QuerySavings", "Savings", "advise_queries"]

#: Stored bytes of a sample: all kinds are built over it, which takes some seconds per 100 MB.
BYTES = 256 << 20
_SEED = 8_814
# An index that saves less of what is read than this is not worth the trouble of having it.
_LEAST = 0.01
# Pairs that are tried together.
_PAIRS = 60


def advise_queries(
    listing: Listing,
    storage: Storage,
    queries: Sequence[Query],
    *,
    sample: int = 20,
    table: str | None = None,
    schema: pa.Schema | None = None,
    storage_options: Mapping[str, str] | None = None,
    time_zone: str = "UTC",
    budget: int = BYTES,
    decryption: Decryption | None = None,
) -> Savings:
    """What indexes would save ``queries`` over the table whose files are ``listing``.

    They are tried on ``sample`` files, or as many as make ``budget`` bytes; ``schema`` is the
    table's, in canonical types, where it is known. ``PredicateError`` with its place for a query
    that is none, ``FormatError`` where no file can be read. ``decryption`` has the keys of
    encrypted files.
    """
    name = table or listing.root
    if not len(listing):
        return Savings(
            table=name,
            sampled=0,
            files_total=0,
            bytes_sampled=0,
            bytes_data=0,
            queries=(),
            candidates=(),
            notes=("the table has no files",),
        )
    partitions = PartitionColumns.of_paths(listing.root, listing.paths)
    if schema is None:
        schema = table_schema(listing, storage.open, ())
    trees = bound(queries, schema, time_zone)
    chosen, notes = _sample(listing, sample, budget)
    part = listing.where(chosen)
    at_hand = PartitionColumns.of_paths(part.root, part.paths)
    columns = sorted({leaf.column for tree in trees for leaf in leaves(tree)})
    with Simulation(part, storage, schema, at_hand, storage_options, decryption) as simulation:
        candidates, more = simulation.build(
            [column for column in columns if column not in partitions.values]
        )
        if not simulation.readable.any():
            raise FormatError("no file of the sample can be read", file=part.paths[0])
        choice = _Choice(simulation, queries, trees, candidates, listing)
        choice.run()
        return choice.savings(name, [*notes, *more])


def _sample(listing: Listing, sample: int, budget: int) -> tuple[list[int], list[str]]:
    """Ordinals of the files to try on, always the same ones, within the budget; at least one."""
    order = np.random.default_rng(_SEED).permutation(len(listing))[:sample]
    fits = np.cumsum(listing.sizes[order]) <= budget
    fits[0] = True
    notes = []
    if not fits.all():
        count = int(np.count_nonzero(fits))
        notes.append(f"{count:,} of the {len(order):,} files asked for: {size(budget)} at most")
    return sorted(order[fits].tolist()), notes


class _Choice:
    """The greedy walk; figures of the sample are scaled to the table at the end."""

    def __init__(
        self,
        simulation: Simulation,
        queries: Sequence[Query],
        trees: Sequence[Bound],
        candidates: Sequence[Candidate],
        listing: Listing,
    ) -> None:
        self.simulation, self.listing = simulation, listing
        self.asked = list(zip(queries, trees, strict=True))
        self.candidates = list(candidates)
        read = simulation.listing.where(simulation.readable)
        self.sampled, self.bytes_sampled = len(read), read.total_bytes
        self.by_bytes = listing.total_bytes / max(self.bytes_sampled, 1)
        self.by_files = len(listing) / max(self.sampled, 1)
        self.before = self.total(())
        self.chosen: list[Candidate] = []
        self.adds: list[float] = []

    def total(self, chosen: Sequence[Candidate]) -> float:
        """Bytes of the sample that all queries read, weighted."""
        return sum(
            q.weight * self.simulation.spent(q, tree, chosen).bytes for q, tree in self.asked
        )

    def files(self, chosen: Sequence[Candidate]) -> float:
        """Files that all queries open, weighted."""
        return sum(
            q.weight * self.simulation.spent(q, tree, chosen).files for q, tree in self.asked
        )

    def run(self) -> None:
        """Choose until nothing saves more than it takes."""
        left = [(each,) for each in self.candidates]
        moves: list[tuple[Candidate, ...]] = [*left, *self._pairs()]
        now = self.before
        while now > 0:
            best: tuple[float, float, tuple[Candidate, ...]] | None = None
            for move in moves:
                new = [each for each in move if each not in self.chosen]
                if not new:
                    continue
                gain = now - self.total([*self.chosen, *new])
                net = gain - sum(each.bytes for each in new)
                if net > 0 and gain >= _LEAST * self.before and (best is None or net > best[0]):
                    best = net, gain, tuple(new)
            if best is None:
                return
            for each in best[2]:
                self.chosen.append(each)
                later = self.total(self.chosen)
                self.adds.append(now - later)
                now = later

    def _pairs(self) -> list[tuple[Candidate, ...]]:
        pairs: dict[tuple[Candidate, ...], None] = {}
        for _, tree in self.asked:
            columns = {leaf.column for leaf in leaves(tree)}
            mine = [e for e in self.candidates if e.of_rows and e.index.column in columns]
            for one, other in itertools.combinations(mine, 2):
                if one.index.column != other.index.column:
                    pairs[one, other] = None
        return list(pairs)[:_PAIRS]

    def savings(self, table: str, notes: Sequence[str]) -> Savings:
        """The figures of the whole table."""
        found = [self._of(each) for each in self.candidates]
        last = len(found) + 1
        found.sort(key=lambda each: (each.order or last, -each.saves, each.bytes))
        size_ = sum(each.bytes for each in found if each.order is not None)
        columns = {each.index.column for each in self.chosen}
        stored = store_bytes(len(self.listing), len(columns)) if columns else 0
        return Savings(
            table=table,
            sampled=self.sampled,
            files_total=len(self.listing),
            bytes_sampled=self.bytes_sampled,
            bytes_data=self.listing.total_bytes,
            queries=tuple(self._query(query, tree) for query, tree in self.asked),
            candidates=tuple(found),
            bytes_estimate=size_ + stored,
            notes=tuple(notes),
        )

    def _of(self, candidate: Candidate) -> CandidateSavings:
        alone = self.before - self.total([candidate])
        place = self.chosen.index(candidate) if candidate in self.chosen else None
        return CandidateSavings(
            index=candidate.name,
            bytes=round(candidate.bytes * self.by_bytes),
            saves=round(alone * self.by_bytes),
            files=round((self.files(()) - self.files([candidate])) * self.by_files),
            order=None if place is None else place + 1,
            adds=0 if place is None else round(self.adds[place] * self.by_bytes),
            why=self._why(candidate, alone, place),
        )

    def _why(self, candidate: Candidate, alone: float, place: int | None) -> str:
        lacking = self.sampled - candidate.files
        partly = (
            f"; over its limits in {lacking:,} of {self.sampled:,} files" if lacking > 0 else ""
        )
        if place is not None:
            return partly.removeprefix("; ")
        if alone <= 0:
            return f"saves nothing{partly}"
        if alone <= candidate.bytes:
            return f"takes more than it saves{partly}"
        if self.chosen:
            return f"saves too little beyond the others{partly}"
        return f"saves too little{partly}"

    def _query(self, query: Query, tree: Bound) -> QuerySavings:
        before = self.simulation.spent(query, tree, ())
        after = self.simulation.spent(query, tree, self.chosen)
        return QuerySavings(
            where=query.where,
            weight=query.weight,
            files_before=round(before.files * self.by_files),
            files_after=round(after.files * self.by_files),
            bytes_before=round(before.bytes * self.by_bytes),
            bytes_after=round(after.bytes * self.by_bytes),
        )


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
