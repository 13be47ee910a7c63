"""Measures what an index would save: it is built over a sample of files, and the planner uses it.

The candidates for each column of the predicates are all kinds that support its type. A normal build
makes them, in a temporary directory. Each query is then planned with sets of them, and the bytes to
read are forecast from the pages that are left. So a kind that does not help a query, or not beyond
the page index, saves nothing; and its size is its real size.

The queries are predicates with weights. As a file, one predicate to a line:

    # blank lines and comments are skipped
    user_id = 'u-8814'
    40<TAB>ts >= '2024-03-01' AND country = 'NO'

A number and a tab before a predicate is its weight, 1 for none. Or a JSON list, whose elements are
a text, ``[weight, text]``, or ``{"where": text, "weight": weight}``.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from skipstone.build.column_indexes import BuildSettings
from skipstone.build.job import BuildJob, run_here
from skipstone.errors import PredicateError, SkipstoneError
from skipstone.execution import Engine, TableQuery
from skipstone.execution.forecast import io_forecast
from skipstone.facts import MatchedFacts, Store
from skipstone.facts.coverage import describe
from skipstone.facts.index_encryption import IndexEncryption, WriteEncryption
from skipstone.indexes.minmax import NullCounts
from skipstone.indexes.registry import known_kinds, parse_index
from skipstone.paimon.bloom import PaimonBloom
from skipstone.parquet.encryption.master_keys import labelled_keys
from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Bound, leaves
from skipstone.pruning.costs import LOCAL, REMOTE
from skipstone.pruning.kind import Index, column_fields
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.table_schema import FileSchema
from skipstone.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.execution.table_files import Footers

    from .sampling import AdviceRequest


# Deprecated, or part of every index.
_NO_CANDIDATES = frozenset({"bsi"})
# The label of the key that encrypts candidates over encrypted files.
_LABEL = "advise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An index that was built over the sample: ``bytes`` there, for ``files`` of its files.

    ``asked`` is its definition before parameters were chosen for the table.
    """

    index: Index
    asked: Index
    bytes: int
    files: int

    @property
    def name(self) -> str:
        """As ``build`` takes it."""
        shown = ",".join(f"{key}={value}" for key, value in self.asked.params.items())
        return f"{self.index.column}:{self.index.name}" + (f"({shown})" if shown else "")

    @property
    def of_rows(self) -> bool:
        """Whether it selects rows, not only files."""
        return self.index.sidecar is not None and self.index.name != PaimonBloom.name


@dataclass(frozen=True, slots=True)
class Spent:
    """What one query reads of the sample: bytes of pages and of its own index reads, and the files
    that it opens."""

    bytes: int
    files: int


class Simulation:
    """Candidates over the files of ``listing``, a sample; use as a context."""

    def __init__(self, sample: AdviceRequest, files: int) -> None:
        """``sample`` has a schema; the table has ``files`` files."""
        assert sample.schema is not None
        self.files = files
        self.listing, storage, self.schema = sample.listing, sample.storage, sample.schema
        self.options, decryption = dict(sample.storage_options or {}), sample.decryption
        listing, schema = self.listing, self.schema
        self.partitions = partitions = PartitionColumns.of(listing)
        self.costs = REMOTE if storage.remote else LOCAL
        self._home = tempfile.TemporaryDirectory(prefix="skipstone-advise-")
        self.decryption = decryption
        self.encryption: WriteEncryption | None = None
        if decryption is not None:
            # Candidates over encrypted columns are encrypted too, even during a simulation.
            keys = labelled_keys({_LABEL: os.urandom(16)})
            assert keys is not None  # as they are given
            self.encryption = WriteEncryption(IndexEncryption(footer_key=_LABEL), keys)
        self.store = Store(
            self._home.name,
            open_storage(self._home.name),
            None if self.encryption is None else self.encryption.keys,
        )
        engine = Engine(storage, self.options)
        if decryption is not None:
            engine.files.opening = lambda id: {"decryption": decryption}
        self.footers: Footers = engine.footers(listing, FileSchema.canonical(schema), partitions)
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
        asked = self._kinds(columns)
        definitions = [index.for_table(self.files) for index in asked]
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
                    plaintext_index=self.encryption is not None,
                ),
                encryption=self.encryption,
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
        for index, before in zip(definitions, asked, strict=True):
            info = sizes.get((index.column, index.name))
            if info is not None and info.files:
                found.append(
                    Candidate(index=index, asked=before, bytes=info.bytes, files=info.files)
                )
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
                    continue  # a kind that does not support this column
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
        forecast = io_forecast(reader, plan, look=True)
        kinds = {(each.column, each.name) for each in chosen}
        asked = (step for step in plan.steps if (step.column, step.index) in kinds)
        return Spent(forecast.total.bytes + sum(each.bytes_read for each in asked), plan.files_kept)


class _Some(MatchedFacts):
    """The facts about the files, with only some of the indexes."""

    whole: MatchedFacts
    kept: frozenset[tuple[str, str]]

    def evidence(self, columns: Collection[str], *, of_row_groups: bool = False) -> list[Index]:
        """The kept indexes, and null counts of their columns."""
        indexed = {column for column, _ in self.kept}
        return [
            each
            for each in self.whole.evidence(columns, of_row_groups=of_row_groups)
            if (each.column, each.name) in self.kept
            or (each.name == NullCounts.name and each.column in indexed)
        ]


def _of_some(whole: MatchedFacts, kept: Sequence[Index]) -> MatchedFacts:
    given: dict[str, Any] = {
        each.name: getattr(whole, each.name) for each in fields(MatchedFacts) if each.init
    }
    made = _Some(**given)
    # Evidence that was read is cached for all indexes.
    object.__setattr__(made, "whole", whole)
    object.__setattr__(made, "kept", frozenset((each.column, each.name) for each in kept))
    return made


#: What ``Table.advise`` takes for one query: a predicate, or its weight and the predicate.
WeightedPredicate: TypeAlias = "str | tuple[float, str]"

_WEIGHTED = re.compile(r"\s*(?P<weight>[0-9.eE+-]+)[ ]*\t(?P<where>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One predicate, run ``weight`` times; ``place`` names its origin: ``line 3``."""

    where: str
    weight: float = 1.0
    place: str = ""


def parse_queries(text: str) -> list[Query]:
    """The queries of a file's text; ``SkipstoneError`` with the line of a wrong one."""
    if text.lstrip("\ufeff \t\r\n").startswith("["):
        return queries_of(_json(text.lstrip("\ufeff")), "element")
    found = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = f"line {number}"
        match = _WEIGHTED.fullmatch(line)
        if match is None:
            found.append(Query(where=line.strip(), place=place))
        else:
            weight = _weight(match["weight"], place)
            found.append(_query(match["where"], weight, place))
    return _some(found)


def queries_of(given: Iterable[Any], unit: str = "query") -> list[Query]:
    """The queries of a list of texts, ``(weight, text)`` or objects; see the module."""
    if isinstance(given, str):
        raise SkipstoneError(f"queries={given!r} is one text", hint=f"pass a list: [{given!r}]")
    found = []
    for number, each in enumerate(given, 1):
        place = f"{unit} {number}"
        if isinstance(each, Query):
            found.append(each)
            continue
        weight: Any = 1.0
        where = each
        if isinstance(each, dict) and set(each) <= {"where", "weight"}:
            where, weight = each.get("where"), each.get("weight", 1.0)
        elif isinstance(each, list | tuple) and len(each) == 2:
            weight, where = each
        found.append(_query(where, _weight(weight, place), place))
    return _some(found)


def bound(queries: Sequence[Query], schema: pa.Schema) -> list[Bound]:
    """The predicates over ``schema``; ``PredicateError`` with the place of a wrong one."""
    trees = []
    for query in queries:
        try:
            expr = parse_sql(query.where, any_function=True)
            tree = bind(expr, schema, session_zone="UTC", text=query.where, map_keys=True)
        except PredicateError as error:
            raise PredicateError(f"{query.place}: {error.message}", hint=error.hint) from error
        trees.append(tree)
    return trees


def _json(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise SkipstoneError(
            f"line {line}: queries begin like JSON and are not JSON: {error}",
            hint='a JSON list of texts, or of [weight, text]: ["id = 7", [40, "day = 3"]]',
        ) from error
    assert isinstance(found, list)  # it begins with a bracket
    return found


def _query(where: object, weight: float, place: str) -> Query:
    if not isinstance(where, str) or not where.strip():
        raise SkipstoneError(
            f"{place}: {where!r} is not a predicate", hint="write it as SQL: user_id = 'u-8814'"
        )
    return Query(where=where.strip(), weight=weight, place=place)


def _weight(given: object, place: str) -> float:
    try:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise ValueError(given)
        weight = float(given)
        if not 0 < weight < math.inf:
            raise ValueError(given)
    except (ValueError, OverflowError):
        raise SkipstoneError(
            f"{place}: {given!r} is not a weight", hint="how often the query runs: a number above 0"
        ) from None
    return weight


def _some(found: list[Query]) -> list[Query]:
    if not found:
        raise SkipstoneError("there is no query", hint="one predicate per line")
    return found
