"""Rows as Paimon's indexes know them, against the rows one by one: never one too few, and not one
too many where the index decides the question."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.paimon.kinds import Bitmap, Bsi, RangeBitmap, RowIndex
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning import Cause, RowSet, Units
from skipstone.pruning.column_types import widens
from skipstone.pruning.kind import Blob
from tests.build.built import Indexed
from tests.predicate.bound_rows import rows_of_bound
from tests.pruning.test_bounds_property import TYPES, files, leaves, takes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.paimon.row_evidence import FileRows
    from skipstone.pruning import Answer
    from skipstone.storage import ByteRange

KINDS: dict[str, list[RowIndex]] = {
    "bitmap": [
        Bitmap("c"),
        Bitmap("c", index_block_size=1),
        Bitmap("c", version=1),
    ],
    "rangebitmap": [RangeBitmap("c"), RangeBitmap("c", chunk_size=0)],
    "bsi": [Bsi("c")],
}
MANY = settings(max_examples=4 * settings().max_examples)
PARTLY = (Op.LIKE, Op.NOT_LIKE)


def of_file(indexed: Indexed, file: int) -> FileRows | None:
    """The evidence about one file's rows."""
    assert isinstance(indexed.evidence, RowIndex)
    return indexed.evidence.of_file(file)


def ask(rows: FileRows, leaf: Leaf, container: bytes | None = None) -> Answer:
    """The answer about one leaf, bytes handed over as they are asked for."""
    units = Units.objects(np.array([0]), np.array([rows.rows]))
    have: dict[ByteRange, bytes] = {}
    for _ in range(8):
        needs = [need for need in rows.needs([leaf], units, have) if need not in have]
        if not needs:
            break
        assert container is not None
        for need in needs:
            have[need] = container[need.offset : need.offset + need.length]
    (answer,) = rows.answer([leaf], units, have)
    return answer


def present(type: pa.DataType, arrays: Sequence[pa.Array]) -> list[Any]:
    seen = pa.concat_arrays(list(arrays))
    if pa.types.is_duration(type) or pa.types.is_timestamp(type):
        seen = seen.cast(pa.int64())
    return [value for value in seen.to_pylist() if value is not None]


def check(answer: Answer, leaf: Leaf, array: pa.Array) -> None:
    """Bounds of one leaf against the file's rows."""
    truth = RowSet.of(rows_of_bound(leaf, pa.table({"c": array}), opaque=True))
    if answer.bounds is None:
        assert answer.reasons
        assert leaf.type != array.type, f"nothing is said of {leaf}: {answer.reasons[0]}"
        return
    assert not truth - answer.bounds.may, f"{leaf} loses rows of {array.to_pylist()}"
    assert not answer.bounds.must - truth, f"{leaf} is not true of {array.to_pylist()}"
    if leaf.op not in PARTLY:
        assert answer.bounds.may == answer.bounds.must == truth


@pytest.mark.parametrize("kind", KINDS)
@MANY
@given(type=st.sampled_from(TYPES), data=st.data())
def test_rows_are_exact(kind: str, type: pa.DataType, data: st.DataObject) -> None:
    index = data.draw(st.sampled_from(KINDS[kind]))
    if not takes(index, type):
        type = pa.int16()
    arrays = data.draw(files(type))
    indexed = Indexed(index, arrays, type)
    leaf = data.draw(leaves(type, present(type, arrays)))
    for file, array in enumerate(arrays):
        rows = of_file(indexed, file)
        if rows is None:  # a bsi has no room for the least bigint, nor for one half more
            assert kind == "bsi"
            why = str(indexed.reasons[file])
            assert "cannot store" in why or "does not fit 64 bits" in why
            continue
        check(ask(rows, leaf), leaf, array)


WIDENED = [(a, b) for a in TYPES for b in TYPES if a != b and widens(a, b)]


@MANY
@given(types=st.sampled_from(WIDENED), data=st.data())
def test_rows_from_before_the_column_was_widened(
    types: tuple[pa.DataType, pa.DataType], data: st.DataObject
) -> None:
    stored, table = types
    arrays = data.draw(files(stored))
    fitting = [index for kind in KINDS.values() for index in kind if takes(index, stored)]
    if not fitting:
        stored, table = pa.int8(), pa.int64()
        arrays, fitting = data.draw(files(stored)), [RangeBitmap("c")]
    indexed = Indexed(data.draw(st.sampled_from(fitting)), arrays, stored)
    try:
        wide = [array.cast(table) for array in arrays]
    except pa.ArrowInvalid:  # a date past the last microsecond
        return
    leaf = data.draw(leaves(table, present(table, wide)))
    for file, array in enumerate(wide):
        rows = of_file(indexed, file)
        if rows is None:
            continue
        answer = ask(rows, leaf)
        truth = RowSet.of(rows_of_bound(leaf, pa.table({"c": array}), opaque=True))
        if answer.bounds is not None:
            assert not truth - answer.bounds.may
            assert not answer.bounds.must - truth


@cache
def large(index: RowIndex, rows: int = 60_000) -> tuple[Indexed, pa.Array]:
    """A file of many distinct strings and one null in ten."""
    rng = np.random.default_rng(7)
    texts = np.char.add("key-", rng.integers(0, rows // 2, rows).astype(str))
    array = pa.array(texts.tolist(), mask=rng.random(rows) < 0.1)
    return Indexed(index, [array], pa.string()), array


@pytest.mark.parametrize("index", [each for kind in list(KINDS)[:2] for each in KINDS[kind]])
@pytest.mark.parametrize("op", [Op.EQ, Op.NE, Op.GE, Op.STARTS_WITH])
def test_a_pack_is_read_a_few_bytes_at_a_time(index: RowIndex, op: Op) -> None:
    """The blob lies at byte 11 of a pack; 60,000 rows, some 23,000 distinct strings."""
    indexed, array = large(index)
    rows = of_file(indexed, 0)
    container = indexed.containers[0]
    assert rows is not None
    assert container is not None
    assert rows.blob is not None
    start = container.index(bytes(rows.blob.inline or b""))
    rows.blob = Blob(path="x.pack", offset=11 + start, length=rows.blob.length)
    read: dict[ByteRange, bytes] = {}
    pack = b"x" * 11 + container + b"the next one"
    leaf = Leaf("c", pa.string(), op, ("key-9999",))
    units = Units.objects(np.array([0]), np.array([rows.rows]))
    rounds = 0
    while needs := [need for need in rows.needs([leaf], units, read) if need not in read]:
        rounds += 1
        read.update({each: pack[each.offset : each.offset + each.length] for each in needs})
    (answer,) = rows.answer([leaf], units, read)
    check(answer, leaf, array)
    assert rounds <= 8
    if op in (Op.EQ, Op.NE) and not isinstance(index, Bitmap):
        assert sum(map(len, read.values())) < len(container)
    if index == Bitmap("c") and op is Op.EQ:
        assert sum(map(len, read.values())) < len(container) // 8


def silent(answer: Answer) -> Cause:
    assert answer.bounds is None
    (reason,) = answer.reasons
    return reason.cause


def test_what_is_damaged_says_nothing_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """Every bit of a blob of three rows flipped, and every beginning of it: no answer. Without its
    checksum, as in a container of somebody else's: an answer or none, and no error."""
    array = pa.array([5, None, 7])
    leaf = Leaf("c", pa.int64(), Op.EQ, (7,))
    heard = 0
    for index in (Bitmap("c"), RangeBitmap("c"), Bsi("c")):
        indexed = Indexed(index, [array], pa.int64())
        rows = of_file(indexed, 0)
        assert rows is not None
        assert rows.blob is not None
        assert rows.blob.inline is not None
        for at in range(8 * len(rows.blob.inline)):
            damaged = bytearray(rows.blob.inline)
            damaged[at >> 3] ^= 1 << (at & 7)
            again = of_file(indexed, 0)
            assert again is not None
            again.blob = Blob(length=len(damaged), inline=memoryview(bytes(damaged)))
            assert silent(ask(again, leaf)) is Cause.CORRUPT
            other = of_file(indexed, 0)
            assert other is not None
            other.blob, other.fact = again.blob, -1
            answer = ask(other, leaf)
            if answer.bounds is None:
                assert silent(answer) in (Cause.CORRUPT, Cause.UNSUPPORTED)
                heard += 1
        for length in range(1, len(rows.blob.inline)):
            again = of_file(indexed, 0)
            assert again is not None
            again.blob = Blob(length=length, inline=rows.blob.inline[:length])
            assert silent(ask(again, leaf)) is Cause.CORRUPT
    assert heard > 100
    texts = [record.getMessage() for record in caplog.records]
    assert texts
    assert len(texts) == len(set(texts))


def test_a_blob_of_another_file_says_nothing() -> None:
    short, long = (Indexed(Bitmap("c"), [pa.array([1] * n)], pa.int64()) for n in (3, 4))
    rows, other = of_file(short, 0), of_file(long, 0)
    assert rows is not None
    assert other is not None
    rows.blob, rows.fact = other.blob, -1
    assert silent(ask(rows, Leaf("c", pa.int64(), Op.EQ, (1,)))) is Cause.CORRUPT


def test_a_blob_outside_its_container_says_nothing() -> None:
    indexed = Indexed(Bitmap("c"), [pa.array([1, 2])], pa.int64())
    rows = of_file(indexed, 0)
    assert rows is not None
    rows.blob = None
    assert silent(ask(rows, Leaf("c", pa.int64(), Op.EQ, (1,)))) is Cause.CORRUPT
    blob = Blob(path="p", offset=5, length=10)
    assert blob.part(0, 11) is blob.part(-1, 2) is blob.part(4, 0) is None
    assert blob.part(4, 6) == Blob(path="p", offset=9, length=6)
