"""``check --deep``: prove facts true against the data, and plans against brute force.

For each sampled file the check decodes the columns and compares the Bloom filters with all values
(``indexes/filter_proof.py``). It tests every index with predicates drawn from the file's own
values: each distinct value (up to a bound; few where filters were compared), the extremes,
prefixes, pieces of texts, nulls. An index is untrue if it excludes a file with a match, or claims
that all rows match where one does not. Then pairs of such predicates go through the planner. Every
sampled file with a row that matches both must be in the plan.
"""

from __future__ import annotations

import random
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.build.column_indexes import BuildSettings
from skipstone.build.data_file import build_file
from skipstone.errors import SkipstoneError
from skipstone.indexes.filter_proof import COMPARED, proofs_of
from skipstone.indexes.minmax import NullCounts
from skipstone.indexes.sliced_bloom import SlicedBloom
from skipstone.paimon.base import PaimonIndex
from skipstone.paimon.kinds import RowIndex
from skipstone.predicate.indexed import fields_of_names, is_elements
from skipstone.predicate.literals import compare, from_key, order_key, order_keys
from skipstone.predicate.operands import plain_pattern
from skipstone.predicate.tree import And, Leaf, Op, is_expression
from skipstone.pruning import Answer, Cause, Fetched, Level, Units
from skipstone.pruning.evaluation import Question, fetch_wave
from skipstone.pruning.kind import Builder, Built, Chunk, Index
from skipstone.pruning.table_schema import schema_of_columns
from skipstone.questdb.pm_of_data_file import made_as

from .table_facts import ObjectPlanRequest, plan_objects

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.facts import MatchedFacts
    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.pruning.kind import Blob
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.pruning.plan import Plan
    from skipstone.storage import Storage


MOST_VALUES = 2_000
# Fewer for an index whose filter was compared with all values: these test its lookup.
_FEW_VALUES = 64
MOST_PLANS = 200
# Leaves that an index evaluates at a time, so their keys are derived once.
_AT_ONCE = 256
# Pieces of texts, each compared with all rows; fewer for large columns; the characters of one.
_PIECES, _FEW_PIECES, _PIECE = 32, 4, 24
_PIECES_BYTES = 1 << 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a deep check: files decoded, predicates and filters compared, untrue claims."""

    sampled: int
    compared: int
    filters: int
    untrue: tuple[str, ...]
    unreadable: tuple[str, ...]


class _Capture(Index):
    """Captures a column's values during a build, in the place of an index."""

    name = "values"

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.chunks: list[pa.Array] = []

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        return type

    def build(self, type: pa.DataType, budget: int) -> Builder:
        return _Keep(self.chunks)

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        raise AssertionError("captured values answer nothing")


class _Keep(Builder):
    def __init__(self, chunks: list[pa.Array]) -> None:
        self.chunks = chunks

    def add(self, chunk: Chunk) -> None:
        values = chunk.values
        decoded = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        self.chunks.append(decoded)

    def finish(self) -> Built:
        return Built(None, "captured")


def prove(
    matched: MatchedFacts,
    partitions: PartitionColumns,
    storage: Storage,
    *,
    table: str,
    sample: int,
    decryption: Decryption | None = None,
) -> Proof:
    """Checks the facts of ``sample`` fresh files, drawn with a fixed seed; see the module.

    ``decryption`` opens encrypted files.
    """
    draw = random.Random(0)
    fresh = np.flatnonzero(matched.has_fact).tolist()
    files = sorted(draw.sample(fresh, min(sample, len(fresh))))
    check = _Check(matched, storage, decryption, draw)
    for file in files:
        check.file(file)
    for leaf, other, file in _pairs(list(check.truths), draw):
        plan = plan_objects(
            ObjectPlanRequest(
                tree=And((leaf, other)),
                listing=matched.listing,
                matches=[matched],
                partitions=partitions,
                table=table,
                predicate="",
            )
        )
        check.pair(leaf, other, file, plan)
    return Proof(
        sampled=len(files),
        compared=check.compared,
        filters=check.filters,
        untrue=tuple(check.untrue),
        unreadable=tuple(check.unreadable),
    )


class _Check:
    """Compares the facts of files with their rows, and collects what is untrue.

    ``truths`` are some of the leaves that were compared, with the file and its matching rows.
    """

    def __init__(
        self,
        matched: MatchedFacts,
        storage: Storage,
        decryption: Decryption | None,
        draw: random.Random,
    ) -> None:
        self.matched, self.storage, self.draw = matched, storage, draw
        # The decoded values are not stored, so encrypted columns may be decoded.
        self.settings = BuildSettings(settle=0, decryption=decryption, plaintext_index=True)
        self.fields = {
            definition.column: definition.types.field(0)
            for definition in matched.snapshot.definitions
            if len(definition.columns) == 1
        }
        stored = {name: field for name, field in self.fields.items() if not is_expression(name)}
        computed = sorted(self.fields.keys() - stored.keys())
        stored = {**fields_of_names(computed), **stored}
        self.schema = schema_of_columns(stored)
        self.evidence = matched.evidence(frozenset(self.fields))
        self.of_row_groups = matched.evidence(frozenset(self.fields), of_row_groups=True)
        self.untrue: list[str] = []
        self.unreadable: list[str] = []
        self.truths: dict[tuple[Leaf, int], NDArray[np.bool_]] = {}
        self.compared = self.filters = 0

    def file(self, file: int) -> None:
        """Compare what each index says about a file."""
        captures = {column: _Capture(column) for column in self.fields}
        id_ = self.matched.listing.object_id(file)
        read = partial(_bytes_at, matched=self.matched)
        proofs = proofs_of(self.evidence, self.of_row_groups, file, read)
        wanted = [*captures.values(), *proofs]
        found = build_file(id_, self.storage, wanted, self.schema, self.settings)
        if found.error is not None:
            self.unreadable.append(f"{id_.path}: {found.error}")
            return
        known = self.matched.rows[file]
        if known not in (-1, found.row_count):
            self.untrue.append(f"{id_.path}: {found.row_count:,} rows, the fact says {known:,}")
        self.untrue += _wrong_pm(self.matched, file, id_, self.storage)
        unit = Units.objects(np.array([file]), np.array([found.row_count]))
        for column, capture in captures.items():
            if found.reasons.get(str(capture), "captured") != "captured":
                continue  # not comparable in this file, so nothing was built from it
            rows = 0 if is_elements(column) else found.row_count
            type = self.fields[column].type
            values = _joined(capture.chunks, type, rows)
            of_column = [each for each in proofs if each.column == column]
            of_column = [each for each in of_column if found.reasons.get(repr(each)) == COMPARED]
            for proof in of_column:
                self.filters += proof.filters
                self.untrue += [f"{id_.path}: {text}" for text in proof.said(values, type)]
            indexes = [each for each in self.evidence if each.column == column]
            # Queries use bit slices in place of the filters that were compared.
            compared = [
                each
                for each in indexes
                if isinstance(each, NullCounts)
                or (any(each is of.asked for of in of_column) and not isinstance(each, SlicedBloom))
            ]
            most = _FEW_VALUES if len(compared) == len(indexes) else MOST_VALUES
            tests = _tests(column, type, values, self.draw, most)
            self.compared += len(tests)
            ask = _Asker([leaf for leaf, _ in tests], unit, self.matched)
            few = _with_few_values(tests)
            ask_few = _Asker([leaf for leaf, _ in few], unit, self.matched)
            for index in indexes:
                some, asker = (few, ask_few) if index in compared else (tests, ask)
                self.untrue += _contradictions(index, id_.path, some, asker)
                self.untrue += _damaged(index, file, id_.path, self.matched)
                of_rows = index.of_file(file) if isinstance(index, RowIndex) else None
                if of_rows is not None:
                    self.untrue += _wrong_rows(index, id_.path, tests, ask(of_rows))
            # A condition on elements is not one on rows, so it is in no AND.
            paired = 0 if is_elements(column) else min(4, len(tests))
            for leaf, truth in self.draw.sample(tests, paired):
                self.truths[leaf, file] = truth

    def pair(self, leaf: Leaf, other: Leaf, file: int, plan: Plan) -> None:
        """Compare the plan of two leaves with the rows of a file that match both."""
        self.compared += 1
        matches = self.truths[leaf, file] & self.truths[other, file]
        path, detail = self.matched.listing.paths[file], plan.details.get(file)
        if matches.any() and not plan.keep[file]:
            self.untrue.append(f"{path}: has rows with {leaf} AND {other}, and the plan skips it")
        elif detail is not None and detail.rows is not None:
            lost = int((matches & ~detail.rows.mask(len(matches))).sum())
            if lost:
                text = f"{lost:,} rows with {leaf} AND {other} are not in the plan"
                self.untrue.append(f"{path}: {text}")


def _bytes_at(place: Blob, matched: MatchedFacts) -> bytes | memoryview | None:
    """The blob at a place of the facts; ``None`` where it cannot be read."""
    if place.inline is not None:
        return place.inline
    whole = place.span(0, place.length)
    return matched.snapshot.read_ranges([whole]).get(whole)


def _wrong_pm(matched: MatchedFacts, file: int, id_: ObjectId, storage: Storage) -> Iterator[str]:
    """Errors where a file's row group metadata differs from what its footer gives."""
    row = int(matched.sidecar_rows("pm")[file])
    place = matched.places("pm").at(row) if row >= 0 else None
    if place is None:
        return
    kept = _bytes_at(place, matched)
    if kept is None:
        yield f"{id_.path}: its _pm has no place"
        return
    try:
        mode = made_as(kept)
    except SkipstoneError as error:
        yield f"{id_.path}: its _pm is damaged: {error.message}"
        return
    rebuilt = build_file(id_, storage, [], pa.schema([]), BuildSettings(settle=0, pm=mode))
    if rebuilt.pm != bytes(kept):
        yield f"{id_.path}: its _pm is not what its footer gives"


def _joined(chunks: list[pa.Array], type: pa.DataType, rows: int) -> pa.Array:
    if not chunks:  # the file lacks the column: every row is null
        return pa.nulls(rows, type)
    return pa.chunked_array(chunks, chunks[0].type).combine_chunks()


def _with_few_values(
    tests: Sequence[tuple[Leaf, NDArray[np.bool_]]],
) -> list[tuple[Leaf, NDArray[np.bool_]]]:
    """The tests, with only a few of those for single values."""
    values = [each for each in tests if each[0].op is Op.EQ]
    others = [each for each in tests if each[0].op is not Op.EQ]
    return [*others, *values[:: -(-len(values) // _FEW_VALUES) or 1]]


def _tests(
    column: str, type: pa.DataType, values: pa.Array, draw: random.Random, most: int
) -> list[tuple[Leaf, NDArray[np.bool_]]]:
    """Leaves drawn from ``values``, at most ``most`` of them for single values, each with the rows
    for which it is true."""
    keys = order_keys(values, type)
    null = ~keys.valid
    tests = [
        (Leaf(column, type, Op.IS_NULL), null),
        (Leaf(column, type, Op.NOT_NULL), ~null),
    ]
    found = keys.take(keys.valid).data
    distinct = pc.unique(pa.array(found) if isinstance(found, np.ndarray) else found)
    if not len(distinct):
        return tests
    if len(distinct) <= most:
        chosen = sorted(distinct.to_pylist())
    else:
        drawn = distinct.take(pa.array(draw.sample(range(len(distinct)), most - 2))).to_pylist()
        chosen = sorted({*drawn, *(each.as_py() for each in pc.min_max(distinct).values())})
    for key in chosen:
        value = from_key(key, type)
        tests.append((Leaf(column, type, Op.EQ, (value,)), compare(keys, Op.EQ, key)))
    for key in (chosen[0], chosen[len(chosen) // 2], chosen[-1]):
        value = from_key(key, type)
        tests += [
            (Leaf(column, type, op, (value,)), compare(keys, op, key))
            for op in (Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
        ]
        if isinstance(value, str) and value:
            prefix = value[: max(1, len(value) // 2)]
            leaf = Leaf(column, type, Op.STARTS_WITH, (prefix,))
            begins = pc.starts_with(pc.cast(values, pa.binary()), order_key(prefix, type))
            truth = np.asarray(pc.fill_null(begins, False)).astype(np.bool_)
            tests.append((leaf, truth))
    if not pa.types.is_string(type):
        return tests
    pieces = _PIECES if values.nbytes < _PIECES_BYTES else _FEW_PIECES
    for key in chosen[:: -(-len(chosen) // pieces)]:
        text = str(from_key(key, type))
        at = draw.randrange(max(1, len(text) - _PIECE))
        piece = text[at : at + _PIECE]
        leaf = Leaf(column, type, Op.LIKE, (f"%{plain_pattern(piece)}%", "\\", ""))
        within = pc.match_substring(pc.cast(values, pa.binary()), order_key(piece, type))
        tests.append((leaf, np.asarray(pc.fill_null(within, False)).astype(np.bool_)))
    return tests


class _Asker:
    """Evaluates evidence about one file, with reads from the store of the facts."""

    def __init__(self, leaves: Sequence[Leaf], unit: Units, matched: MatchedFacts) -> None:
        self.leaves, self.unit = leaves, unit
        self.fetch = matched.snapshot.read_ranges

    def __call__(self, evidence: Any) -> Sequence[Answer]:
        flags = None if evidence.level is Level.ROW else 1
        found: list[Answer] = []
        for at in range(0, len(self.leaves), _AT_ONCE):
            leaves = self.leaves[at : at + _AT_ONCE]
            question = Question(evidence, leaves, self.unit, flags)
            found += question.answers(fetch_wave([question], self.fetch))
        return found


def _contradictions(
    index: Index, path: str, tests: Sequence[tuple[Leaf, NDArray[np.bool_]]], ask: _Asker
) -> Iterator[str]:
    """Errors where ``index`` claims something false about one file."""
    for (leaf, truth), answer in zip(tests, ask(index), strict=True):
        bounds: Any = answer.bounds
        if bounds is None:
            continue
        if truth.any() and not bounds.may[0]:
            yield f"{path}: {index} says no row has {leaf}, {int(truth.sum()):,} do"
        if bounds.must[0] and not truth.all():
            yield f"{path}: {index} says all rows have {leaf}, {int((~truth).sum()):,} do not"


def _damaged(index: Index, file: int, path: str, matched: MatchedFacts) -> Iterator[str]:
    """Errors where the blob of a row index is not the original one."""
    row = -1 if index.stored is None else int(index.stored.row_of_file[file])
    if row < 0 or not isinstance(index, PaimonIndex):
        return
    blob = index.blob(row)
    if blob is None:
        yield f"{path}: {index} has no place"
        return
    data = _bytes_at(blob, matched)
    if data is None or zlib.crc32(data) != index.crc(row):
        yield f"{path}: {index} is not what was written"


def _wrong_rows(
    index: Index,
    path: str,
    tests: Sequence[tuple[Leaf, NDArray[np.bool_]]],
    answers: Sequence[Answer],
) -> Iterator[str]:
    """Errors where ``index`` claims something false about the rows of one file."""
    for (leaf, truth), answer in zip(tests, answers, strict=True):
        if answer.bounds is None:
            damaged = [r for r in answer.reasons if r.cause is not Cause.NOT_APPLICABLE]
            if damaged:
                yield f"{path}: {damaged[0]}"
                return
            continue
        may, must = (rows.mask(len(truth)) for rows in (answer.bounds.may, answer.bounds.must))
        if lost := int((truth & ~may).sum()):
            yield f"{path}: {index} leaves out {lost:,} rows with {leaf}"
        if wrong := int((must & ~truth).sum()):
            yield f"{path}: {index} says {wrong:,} rows have {leaf} that do not"


def _pairs(asked: Sequence[tuple[Leaf, int]], draw: random.Random) -> list[tuple[Leaf, Leaf, int]]:
    """Pairs of leaves that were drawn from the same file."""
    by_file: dict[int, list[Leaf]] = {}
    for leaf, file in asked:
        by_file.setdefault(file, []).append(leaf)
    pairs = []
    for file, leaves in by_file.items():
        for _ in leaves if len(leaves) > 1 else ():
            one, other = draw.sample(leaves, 2)
            pairs.append((one, other, file))
    return draw.sample(pairs, min(MOST_PLANS, len(pairs)))
