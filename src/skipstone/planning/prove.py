"""``check --deep``: prove facts true against the data, and plans against brute force.

For each sampled file the check decodes the columns and tests every index with predicates drawn from
the file's own values: each distinct value (up to a bound), the extremes, prefixes, pieces of texts,
nulls. An index is untrue if it excludes a file with a match, or claims that all rows match where
one does not. Then pairs of such predicates go through the planner. Every sampled file with a row
that matches both must be in the plan.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.build.column_indexes import BuildSettings
from skipstone.build.data_file import build_file
from skipstone.errors import SkipstoneError
from skipstone.paimon.base import PaimonIndex
from skipstone.paimon.kinds import RowIndex
from skipstone.predicate.indexed import fields_of_name, is_elements
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
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.storage import Storage


MOST_VALUES = 2_000
MOST_PLANS = 200
# Leaves that an index is asked for at a time: their keys are derived once.
_AT_ONCE = 256
# Pieces of texts, each compared with all rows, and the most characters of one.
_PIECES, _PIECE = 32, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a deep check: files decoded, predicates compared, untrue claims."""

    sampled: int
    compared: int
    untrue: tuple[str, ...]
    unreadable: tuple[str, ...]


class _Capture(Index):
    """Not a real index: captures a column's values during a build."""

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
    # The decoded values are not stored, so encrypted columns may be decoded.
    settings = BuildSettings(settle=0, decryption=decryption, plaintext_index=True)
    fresh = np.flatnonzero(matched.has_fact).tolist()
    files = sorted(draw.sample(fresh, min(sample, len(fresh))))
    fields = {
        definition.column: definition.types.field(0)
        for definition in matched.snapshot.definitions
        if len(definition.columns) == 1
    }
    stored = {name: field for name, field in fields.items() if not is_expression(name)}
    for name in fields.keys() - stored.keys():
        stored = {**fields_of_name(name), **stored}
    schema = schema_of_columns(stored)
    evidence = matched.evidence(frozenset(fields))
    untrue: list[str] = []
    unreadable: list[str] = []
    asked: list[tuple[Leaf, int]] = []
    truths: dict[tuple[Leaf, int], NDArray[np.bool_]] = {}
    compared = 0
    for file in files:
        captures = {column: _Capture(column) for column in fields}
        id_ = matched.listing.object_id(file)
        found = build_file(id_, storage, list(captures.values()), schema, settings)
        if found.error is not None:
            unreadable.append(f"{id_.path}: {found.error}")
            continue
        if matched.rows[file] not in (-1, found.row_count):
            claim = f"the fact says {matched.rows[file]:,}"
            untrue.append(f"{id_.path}: {found.row_count:,} rows, {claim}")
        untrue += _wrong_pm(matched, file, id_, storage)
        for column, capture in captures.items():
            if str(capture) in found.reasons and found.reasons[str(capture)] != "captured":
                continue  # not comparable in this file: nothing was built from it either
            each = 0 if is_elements(column) else found.row_count
            values = _joined(capture.chunks, fields[column].type, each)
            tests = _tests(column, fields[column].type, values, draw)
            compared += len(tests)
            for index in evidence:
                if index.column == column:
                    unit = Units.objects(np.array([file]), np.array([found.row_count]))
                    ask = _Asker([leaf for leaf, _ in tests], unit, matched)
                    untrue += _contradictions(index, id_.path, tests, ask)
                    untrue += _damaged(index, file, id_.path, matched)
                    rows = index.of_file(file) if isinstance(index, RowIndex) else None
                    if rows is not None:
                        untrue += _wrong_rows(index, id_.path, tests, ask(rows))
            if is_elements(column):  # true of an element, so not of one row together with others
                continue
            for leaf, truth in draw.sample(tests, min(4, len(tests))):
                asked.append((leaf, file))
                truths[leaf, file] = truth
    pairs = _pairs(asked, draw)
    for leaf, other, file in pairs:
        compared += 1
        matches = truths[leaf, file] & truths[other, file]
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
        path = matched.listing.paths[file]
        detail = plan.details.get(file)
        if matches.any() and not plan.keep[file]:
            untrue.append(f"{path}: has rows with {leaf} AND {other}, and the plan skips it")
        elif detail is not None and detail.rows is not None:
            lost = int((matches & ~detail.rows.mask(len(matches))).sum())
            if lost:
                untrue.append(f"{path}: {lost:,} rows with {leaf} AND {other} are not in the plan")
    return Proof(
        sampled=len(files),
        compared=compared,
        untrue=tuple(untrue),
        unreadable=tuple(unreadable),
    )


def _wrong_pm(matched: MatchedFacts, file: int, id_: ObjectId, storage: Storage) -> Iterator[str]:
    """Errors where a file's row group metadata differs from what its footer gives."""
    row = int(matched.sidecar_rows("pm")[file])
    place = matched.places("pm").at(row) if row >= 0 else None
    if place is None:
        return
    kept: bytes | memoryview | None = place.inline
    if kept is None:
        whole = place.span(0, place.length)
        kept = matched.snapshot.read_ranges([whole]).get(whole)
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


def _tests(
    column: str, type: pa.DataType, values: pa.Array, draw: random.Random
) -> list[tuple[Leaf, NDArray[np.bool_]]]:
    """Leaves drawn from ``values``, each with the rows for which it is true."""
    keys = order_keys(values, type)
    null = ~keys.valid
    tests = [
        (Leaf(column, type, Op.IS_NULL), null),
        (Leaf(column, type, Op.NOT_NULL), ~null),
    ]
    distinct = {key for key in keys.to_list() if key is not None}
    if not distinct:
        return tests
    chosen = sorted(distinct)
    if len(chosen) > MOST_VALUES:
        chosen = [chosen[0], chosen[-1], *draw.sample(chosen[1:-1], MOST_VALUES - 2)]
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
    for key in chosen[:: -(-len(chosen) // _PIECES)]:
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
    data: bytes | memoryview | None = blob.inline
    if data is None:
        whole = blob.span(0, blob.length)
        data = matched.snapshot.read_ranges([whole]).get(whole)
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
