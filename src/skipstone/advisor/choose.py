"""``advise`` for queries: the set of candidates to build, chosen by their savings, and ``Savings``.

The choice is greedy: first the candidate that saves most beyond its size, over all queries with
their weights; then the one that saves most in addition; until none saves more than it takes. Two
indexes over rows may each save nothing alone, since every page holds a row of each, and together
nearly everything: pairs that meet in one query are tried together.

All figures are of the whole table, scaled up from the sample by bytes; ``sampled`` says from how
much.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError
from skipstone.human import size
from skipstone.predicate.tree import Bound, Leaf, leaves
from skipstone.pruning.partitions import PartitionColumns

from .measure import store_bytes
from .report import CandidateSavings, QuerySavings, Savings
from .sampling import SEED, AdviceRequest
from .simulate import Candidate, Query, Simulation, bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.storage import Listing


#: The most stored bytes of a sample, and of its first ``_FEWEST`` files. They are few, because the
#: columns of the queries are decoded, and every query is planned with each kind.
_BYTES, BYTES = 32 << 20, 256 << 20
_FEWEST = 5
# An index that saves a smaller share of the bytes read is not proposed.
_LEAST = 0.01
# The most pairs that are tried together.
_PAIRS = 60


def advise_queries(request: AdviceRequest, queries: Sequence[Query]) -> Savings:
    """What indexes would save ``queries`` over a table, by trying them on a sample of its files.

    The sample has at most ``_BYTES`` bytes, but its first five files may have up to ``BYTES``.
    ``PredicateError`` names the place of a query that is not a predicate; ``FormatError`` where no
    file can be read. Timestamps without a zone are in UTC.
    """
    listing, name = request.listing, request.shown
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
    partitions = PartitionColumns.of(listing)
    schema = request.table_schema()
    trees = bound(queries, schema)
    chosen, notes = _sample(listing, request.sample)
    part = replace(request, listing=listing.where(chosen), schema=schema)
    asked: dict[str, dict[Leaf, None]] = {}
    for leaf in sorted((leaf for tree in trees for leaf in leaves(tree)), key=lambda a: a.column):
        if leaf.column not in partitions.values:
            asked.setdefault(leaf.column, {})[leaf] = None
    with Simulation(part, len(listing)) as simulation:
        candidates, more = simulation.build({name: list(asked[name]) for name in asked})
        if not simulation.readable.any():
            raise FormatError("no file of the sample can be read", file=part.listing.paths[0])
        choice = _Choice(simulation, queries, trees, candidates, listing)
        choice.run()
        return choice.savings(name, [*notes, *more])


def _sample(listing: Listing, sample: int) -> tuple[list[int], list[str]]:
    """Ordinals of the sampled files, with a fixed seed, within the limit of bytes; at least one."""
    order = np.random.default_rng(SEED).permutation(len(listing))[:sample]
    ends = np.cumsum(listing.sizes[order])
    fits = ends <= np.where(np.arange(len(order)) < _FEWEST, BYTES, _BYTES)
    fits[0] = True
    notes = []
    if not fits.all():
        count = int(np.count_nonzero(fits))
        notes.append(f"{count:,} of the {len(order):,} requested files: {size(_BYTES)} are enough")
    return sorted(order[fits].tolist()), notes


class _Choice:
    """The greedy choice; figures of the sample are scaled to the table at the end."""

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
            recursive_file_lookup=self.listing.recursive,
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
