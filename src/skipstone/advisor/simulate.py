"""Measures what an index would save: the planner uses it over a sample of files.

The candidates for each column of the predicates are the kinds that support its type and answer one
of the conditions on it. A normal build makes them in a temporary directory; Bloom filters and
indexes of rows, which take long to build, are tried instead (``trial.py``). Each query is then
planned with sets of them, and the bytes to read are forecast from the pages that are left. So a
kind only saves something if it helps a query more than the page index does.

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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.build.column_indexes import BuildSettings
from skipstone.build.data_file import build_file
from skipstone.build.job import BuildJob, workers_here
from skipstone.errors import PredicateError, SkipstoneError
from skipstone.execution import Engine, TableQuery
from skipstone.execution.forecast import io_forecast
from skipstone.facts import MatchedFacts, Store
from skipstone.facts.coverage import describe
from skipstone.facts.index_encryption import IndexEncryption, WriteEncryption
from skipstone.indexes.minmax import NullCounts
from skipstone.indexes.registry import known_kinds, parse_index
from skipstone.indexes.text import TextIndex
from skipstone.paimon.bloom import PaimonBloom
from skipstone.parquet.encryption.master_keys import labelled_keys
from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Bound, Leaf, Op, Pair, leaves
from skipstone.pruning import Units
from skipstone.pruning.costs import LOCAL, REMOTE
from skipstone.pruning.kind import Index, PerFile, column_fields
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.table_schema import FileSchema
from skipstone.storage import open_storage

from .trial import MEMORY_PARTS, TRIED, Trial, Tried

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.execution.table_files import Footers
    from skipstone.facts.encode import FileFacts

    from .sampling import AdviceRequest


# Deprecated; or a Bloom filter of one size for all files, which answers the same as another one.
_NO_CANDIDATES = frozenset({"bsi", PaimonBloom.name})
_PATTERNS = frozenset({Op.LIKE, Op.STARTS_WITH})
_OF_NULLS = frozenset({Op.IS_NULL, Op.NOT_NULL})
# Files that are read at a time from an object store.
_AT_ONCE = 8
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
        self.listing, self.storage, self.schema = sample.listing, sample.storage, sample.schema
        self.options, decryption = dict(sample.storage_options or {}), sample.decryption
        listing, storage, schema = self.listing, self.storage, self.schema
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
        self._tried: list[Tried] = []
        self._useful: dict[tuple[Bound, str], bool] = {}
        self._spent: dict[tuple[Query, frozenset[str]], Spent] = {}

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *exc: object) -> None:
        self._home.cleanup()

    # -- building ----------------------------------------------------------------------------------

    def build(self, asked: Mapping[str, Sequence[Leaf]]) -> tuple[list[Candidate], list[str]]:
        """The candidates over columns with these conditions, and notes about what could not be
        built."""
        kinds = [index for column in asked for index in self._kinds(column, asked[column])]
        definitions = [index.for_table(self.files) for index in kinds]
        notes: list[str] = []
        if definitions:
            notes += self._build(asked, definitions)
        self.footers.open(range(len(self.listing)))
        self.readable &= np.array([self.footers.fresh(at) for at in range(len(self.listing))])
        matched = self.store.snapshot().match(self.listing, None)
        self._matched = matched
        sizes = {
            (info.column, info.kind): (info.bytes, info.files)
            for info in describe("", matched).indexes
        }
        for each in self._tried:
            size = each.size(self.files)
            sizes[each.column, each.name] = sum(size), len(size)
        found = []
        for index, before in zip(definitions, kinds, strict=True):
            bytes_, files = sizes.get((index.column, index.name), (0, 0))
            if files:
                found.append(Candidate(index=index, asked=before, bytes=bytes_, files=files))
            elif self.readable.any():
                notes.append(f"{index.column}:{index.name} is over its limits in every file")
        return found, notes

    def _build(self, asked: Mapping[str, Sequence[Leaf]], kinds: Sequence[Index]) -> list[str]:
        """Builds and tries these kinds over the sample; notes about files without."""
        built = tuple(each for each in kinds if each.name not in TRIED)
        job = BuildJob(
            table=self.listing.root,
            location=self.store.location.root,
            storage_options=self.options,
            definitions=built,
            schema=self.schema,
            settings=BuildSettings(
                memory=BuildSettings().memory // MEMORY_PARTS,
                settle=0.0,
                pm="none",
                decryption=self.decryption,
                plaintext_index=self.encryption is not None,
            ),
            encryption=self.encryption,
        )
        tried = [each for each in kinds if each.name in TRIED]
        columns = dict.fromkeys(each.column for each in tried)
        of_column = {name: [each for each in tried if each.column == name] for name in columns}

        def one(at: int) -> tuple[FileFacts, list[Trial]]:
            trials = [Trial(name, of_column[name], asked[name]) for name in columns]
            id_ = self.listing.object_id(at)
            facts = build_file(id_, self.storage, [*built, *trials], self.schema, job.settings)
            # Arrow keeps what it has freed: 100 MB after a file of 60 MB.
            pa.default_memory_pool().release_unused()
            lost = set(map(repr, trials))
            values = {each: value for each, value in facts.values.items() if each not in trials}
            reasons = {each: why for each, why in facts.reasons.items() if each not in lost}
            return replace(facts, values=values, reasons=reasons), trials

        workers = _AT_ONCE if self.storage.remote else workers_here()
        with ThreadPoolExecutor(min(workers, len(self.listing))) as pool:
            found = list(pool.map(one, range(len(self.listing))))
        outcomes = {each.path: each for each in job.publish(facts for facts, _ in found)}
        self.readable = np.array([outcomes[path].built for path in self.listing.paths])
        for number, name in enumerate(columns):
            type_ = column_fields(of_column[name], self.schema)[name].type
            trials = [mine[number].found for _, mine in found]
            self._tried += [TRIED[each.name].over(name, type_, trials) for each in of_column[name]]
        errors = [f"{each.path}: {each.error}" for each in outcomes.values() if not each.built]
        return [f"not sampled: {text}" for text in errors]

    def _kinds(self, column: str, asked: Sequence[Leaf]) -> list[Index]:
        """The kinds that support a column and answer one of the conditions on it."""
        ops, found = {leaf.op for leaf in asked}, []
        for kind in known_kinds():
            if kind in _NO_CANDIDATES:
                continue
            try:
                index = parse_index(f"{column}:{kind}")
                column_fields([index], self.schema)
            except (SkipstoneError, ValueError):
                continue  # a kind that does not support this column
            if isinstance(index, PerFile):
                # Those of texts answer = and IN too, as a Bloom filter does in fewer bytes.
                of_texts = isinstance(index, TextIndex)
                needed = ops & _PATTERNS if of_texts else ops
                if kind != "minmax" and not needed & index.ops:
                    continue
            found.append(index)
        return found

    # -- planning ----------------------------------------------------------------------------------

    def spent(self, query: Query, tree: Bound, chosen: Collection[Candidate]) -> Spent:
        """What ``query`` reads of the sample with these candidates built, and no others."""
        useful = frozenset(each.name for each in chosen if self._says(tree, each))
        known = self._spent.get((query, useful))
        if known is None:
            mine = [each.index for each in chosen if each.name in useful]
            known = self._spent[query, useful] = self._plan(query, tree, mine)
        return known

    def _says(self, tree: Bound, candidate: Candidate) -> bool:
        """Whether an index may change a plan: not where it proves nothing of any file."""
        key = (tree, candidate.name)
        found = self._useful.get(key)
        if found is None:
            found = self._useful[key] = self._proves(tree, candidate.index)
        return found

    def _proves(self, tree: Bound, index: Index) -> bool:
        assert self._matched is not None  # after build
        asked = leaves(tree)
        mine = [leaf for leaf in asked if leaf.column == index.column]
        alone = not any(isinstance(leaf, Pair) or leaf.op in _OF_NULLS for leaf in asked)
        if not mine or not alone or index.sidecar or index.of_row_groups() is not None:
            return bool(mine) or not alone
        evidence = [*self._tried, *self._matched.evidence({index.column})]
        units = Units.objects(np.arange(len(self.listing)), self._matched.rows)
        bounds = [
            answer.bounds
            for each in evidence
            if (each.column, each.name) == (index.column, index.name)
            for answer in each.answer(mine, units, {})
            if answer.bounds is not None
        ]
        return any(each.must.any() or not each.may.all() for each in bounds)

    def _plan(self, query: Query, tree: Bound, chosen: Sequence[Index]) -> Spent:
        assert self._matched is not None  # after build
        kinds = {(each.column, each.name) for each in chosen}
        tried = [each for each in self._tried if (each.column, each.name) in kinds]
        for each in tried:
            each.taken = 0.0
        plan = plan_objects(
            ObjectPlanRequest(
                tree=tree,
                listing=self.listing,
                matches=[_of_some(self._matched, chosen, tried)],
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
        read = sum(step.bytes_read for step in plan.steps if (step.column, step.index) in kinds)
        taken = round(sum(each.taken for each in tried))
        return Spent(forecast.total.bytes + read + taken, plan.files_kept)


class _Some(MatchedFacts):
    """The facts about the files, with only some of the indexes."""

    whole: MatchedFacts
    kept: frozenset[tuple[str, str]]
    tried: Sequence[Tried]

    def evidence(
        self, columns: Collection[str], *, of_row_groups: bool = False, keys: int | None = None
    ) -> list[Index]:
        """The kept indexes, and null counts of their columns."""
        indexed = {column for column, _ in self.kept}
        tried: list[Index] = []
        if not of_row_groups:
            tried += [each for each in self.tried if each.column in columns]
        return tried + [
            each
            for each in self.whole.evidence(columns, of_row_groups=of_row_groups, keys=keys)
            if (each.column, each.name) in self.kept
            or (each.name == NullCounts.name and each.column in indexed)
        ]


def _of_some(whole: MatchedFacts, kept: Sequence[Index], tried: Sequence[Tried]) -> MatchedFacts:
    given: dict[str, Any] = {
        each.name: getattr(whole, each.name) for each in fields(MatchedFacts) if each.init
    }
    made = _Some(**given)
    # Evidence that was read is cached for all indexes.
    object.__setattr__(made, "whole", whole)
    object.__setattr__(made, "tried", tried)
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
