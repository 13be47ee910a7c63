"""What an index would save: it is built over a sample of files, and the planner uses it.

The candidates for each column of the predicates are all kinds that support its type. A normal build
makes them, in a temporary directory. Each query is then planned with sets of them, and the bytes to
read are forecast from the pages that are left. So a kind that does not help a query, or not beyond
the page index, saves nothing; and its size is its real size.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.build.column_indexes import BuildSettings
from skipstone.build.job import BuildJob, run_here
from skipstone.errors import SkipstoneError
from skipstone.execution import Engine, TableQuery
from skipstone.execution.table_scan import io_forecast
from skipstone.facts import MatchedFacts, Store
from skipstone.facts.coverage import describe
from skipstone.facts.index_encryption import IndexEncryption, WriteEncryption
from skipstone.indexes.minmax import NullCounts
from skipstone.indexes.registry import known_kinds, parse_index
from skipstone.paimon.bloom import PaimonBloom
from skipstone.parquet.encryption.master_keys import labelled_keys
from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
from skipstone.predicate.tree import leaves
from skipstone.pruning.costs import LOCAL, REMOTE
from skipstone.pruning.kind import column_fields
from skipstone.pruning.partitions import PartitionColumns
from skipstone.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from skipstone.execution.table_sources import Footers
    from skipstone.predicate.tree import Bound
    from skipstone.pruning.kind import Index

    from .sampling import AdviceRequest
    from .workload import Query

__all__ = ["Candidate", "Simulation", "Spent"]

# Deprecated, or part of every index.
_NO_CANDIDATES = frozenset({"bsi", NullCounts.name})
# The label of the key that encrypts candidates over encrypted files.
_LABEL = "advise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An index that was built over the sample: ``bytes`` there, for ``files`` of its files."""

    index: Index
    bytes: int
    files: int

    @property
    def name(self) -> str:
        """As ``build`` takes it."""
        shown = ",".join(f"{key}={value}" for key, value in self.index.params.items())
        return f"{self.index.column}:{self.index.name}" + (f"({shown})" if shown else "")

    @property
    def of_rows(self) -> bool:
        """Whether it tells rows, not only files."""
        return self.index.sidecar is not None and self.index.name != PaimonBloom.name


@dataclass(frozen=True, slots=True)
class Spent:
    """What one query reads of the sample: bytes of pages and of its own index reads, and the files
    that it opens."""

    bytes: int
    files: int


class Simulation:
    """Candidates over the files of ``listing``, a sample; use as a context."""

    def __init__(self, sample: AdviceRequest) -> None:
        """``sample`` has a schema."""
        assert sample.schema is not None
        self.listing, storage, self.schema = sample.listing, sample.storage, sample.schema
        self.options, decryption = dict(sample.storage_options or {}), sample.decryption
        listing, schema = self.listing, self.schema
        self.partitions = partitions = PartitionColumns.of_paths(listing.root, listing.paths)
        self.costs = REMOTE if storage.remote else LOCAL
        self._home = tempfile.TemporaryDirectory(prefix="skipstone-advise-")
        self.decryption = decryption
        self.sealing: WriteEncryption | None = None
        if decryption is not None:
            # Candidates over encrypted columns are encrypted too, even during a simulation.
            keys = labelled_keys({_LABEL: os.urandom(16)})
            assert keys is not None  # as they are given
            self.sealing = WriteEncryption(IndexEncryption(footer_key=_LABEL), keys)
        self.store = Store(
            self._home.name,
            open_storage(self._home.name),
            None if self.sealing is None else self.sealing.keys,
        )
        engine = Engine(storage, self.options)
        if decryption is not None:
            engine.files.opening = lambda id: {"decryption": decryption}
        self.footers: Footers = engine.footers(listing, schema, partitions)
        self.readable: NDArray[np.bool_] = np.ones(len(listing), np.bool_)
        self._matched: MatchedFacts | None = None
        self._spent: dict[tuple[Query, frozenset[str]], Spent] = {}

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *exc: object) -> None:
        self._home.cleanup()

    # -- building ----------------------------------------------------------------------------------

    def build(self, columns: Collection[str]) -> tuple[list[Candidate], list[str]]:
        """The candidates over ``columns``, and notes about what could not be built."""
        definitions = self._kinds(columns)
        notes: list[str] = []
        if definitions:
            job = BuildJob(
                table=self.listing.root,
                location=self.store.location.root,
                storage_options=self.options,
                definitions=tuple(definitions),
                schema=self.schema,
                settings=BuildSettings(
                    settle=0.0,
                    pm="none",
                    decryption=self.decryption,
                    plaintext_index=self.sealing is not None,
                ),
                sealing=self.sealing,
            )
            outcomes = {each.path: each for each in run_here(job, self.listing, None)}
            errors = [f"{each.path}: {each.error}" for each in outcomes.values() if not each.built]
            notes += [f"not sampled: {text}" for text in errors]
            self.readable = np.array([outcomes[path].built for path in self.listing.paths])
        self.footers.open(range(len(self.listing)))
        self.readable &= np.array([self.footers.fresh(at) for at in range(len(self.listing))])
        matched = self.store.snapshot().match(self.listing, None)
        self._matched = matched
        sizes = {(info.column, info.kind): info for info in describe("", matched).indexes}
        found = []
        for index in definitions:
            info = sizes.get((index.column, index.name))
            if info is not None and info.files:
                found.append(Candidate(index=index, bytes=info.bytes, files=info.files))
            elif self.readable.any():
                notes.append(f"{index.column}:{index.name} is over its limits in every file")
        return found, notes

    def _kinds(self, columns: Collection[str]) -> list[Index]:
        found = []
        for column in columns:
            for kind in known_kinds():
                if kind in _NO_CANDIDATES:
                    continue
                try:
                    index = parse_index(f"{column}:{kind}")
                    column_fields([index], self.schema)
                except (SkipstoneError, ValueError):
                    continue  # a kind that does not take this column
                found.append(index)
        return found

    # -- planning ----------------------------------------------------------------------------------

    def spent(self, query: Query, tree: Bound, chosen: Collection[Candidate]) -> Spent:
        """What ``query`` reads of the sample with these candidates built, and no others."""
        columns = {leaf.column for leaf in leaves(tree)}
        useful = frozenset(each.name for each in chosen if each.index.column in columns)
        known = self._spent.get((query, useful))
        if known is None:
            mine = [each.index for each in chosen if each.name in useful]
            known = self._spent[query, useful] = self._plan(query, tree, mine)
        return known

    def _plan(self, query: Query, tree: Bound, chosen: Sequence[Index]) -> Spent:
        assert self._matched is not None  # after build
        plan = plan_objects(
            ObjectPlanRequest(
                tree=tree,
                listing=self.listing,
                matches=[_of_some(self._matched, chosen)],
                partitions=self.partitions,
                table=self.listing.root,
                predicate=query.where,
                data_files=self.footers,
                costs=self.costs,
            )
        )
        # Unreadable files do not count, with an index or without.
        plan = replace(plan, keep=plan.keep & self.readable)
        reader = TableQuery(self.footers, tree).reader()
        forecast = io_forecast(reader, plan, look=True, at_most=False)
        kinds = {(each.column, each.name) for each in chosen}
        asked = (step for step in plan.steps if (step.column, step.index) in kinds)
        return Spent(forecast.total.bytes + sum(each.bytes_read for each in asked), plan.files_kept)


class _Some(MatchedFacts):
    """The facts about the files, with only some of the indexes."""

    whole: MatchedFacts
    kept: frozenset[tuple[str, str]]

    def evidence(self, columns: Collection[str]) -> list[Index]:
        """The kept indexes, and null counts of their columns."""
        indexed = {column for column, _ in self.kept}
        return [
            each
            for each in self.whole.evidence(columns)
            if (each.column, each.name) in self.kept
            or (each.name == NullCounts.name and each.column in indexed)
        ]


def _of_some(whole: MatchedFacts, kept: Sequence[Index]) -> MatchedFacts:
    fields: dict[str, Any] = {
        name: getattr(whole, name) for name in MatchedFacts.__dataclass_fields__
    }
    made = _Some(**fields)
    # Evidence that was read is cached in the whole.
    object.__setattr__(made, "whole", whole)
    object.__setattr__(made, "kept", frozenset((each.column, each.name) for each in kept))
    return made
