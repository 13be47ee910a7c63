"""Every kind over every type: bounds are true of the rows, whatever the rows and the question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.errors import UnsupportedError
from skipstone.indexes.bloom import Bloom
from skipstone.indexes.minmax import MinMax, NullCounts
from skipstone.indexes.valuelist import ValueList
from skipstone.paimon.bloom import PaimonBloom
from skipstone.paimon.kinds import Bitmap, RangeBitmap
from skipstone.predicate.literals import to_domain
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning.column_types import widens
from tests.build.built import Indexed
from tests.predicate.bound_rows import rows_of_bound
from tests.strategies import SPARK_TYPES, columns, patterns, values

if TYPE_CHECKING:
    from skipstone.pruning.kind import Index

TYPES = (*SPARK_TYPES, pa.duration("us"))
KINDS: dict[str, list[Index]] = {
    "minmax": [MinMax("c"), MinMax("c", truncate=2)],
    "valuelist": [ValueList("c"), ValueList("c", max_values=3)],
    "bloomfilter": [Bloom("c"), Bloom("c", fpp=0.3, max_bytes=64)],
    "nulls": [NullCounts("c")],
    "bitmap": [Bitmap("c")],
    "rangebitmap": [RangeBitmap("c")],
    "paimonbloom": [PaimonBloom("c", items=20), PaimonBloom("c", items=1, fpp=1e-50)],
}
# Types times operators times shapes of files: more than the profile's own number.
MANY = settings(max_examples=3 * settings().max_examples)
ON_VALUES = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.NE_OR_NULL)


def domain(value: Any, type: pa.DataType) -> Any:
    """A drawn value in the stored domain."""
    if pa.types.is_duration(type):
        return int(value)
    return to_domain(value, type)


@st.composite
def leaves(draw: st.DrawFn, type: pa.DataType, present: list[Any]) -> Leaf:
    each = st.one_of(drawn(type), st.sampled_from(present)) if present else drawn(type)
    ops = [*ON_VALUES, Op.IN, Op.NOT_IN, Op.IS_NULL, Op.NOT_NULL]
    text = pa.types.is_string(type)
    if text or pa.types.is_binary(type):
        ops += [Op.STARTS_WITH, Op.NOT_STARTS_WITH]
    if text:
        ops += [Op.LIKE, Op.NOT_LIKE]
    op = draw(st.sampled_from(ops))
    if op in (Op.IS_NULL, Op.NOT_NULL):
        return Leaf("c", type, op)
    if op in (Op.LIKE, Op.NOT_LIKE):
        pattern, escape = draw(patterns().filter(lambda p: spark_takes(*p)))
        return Leaf("c", type, op, (pattern, escape, literal_prefix(pattern, escape)))
    count = draw(st.integers(1, 6)) if op in (Op.IN, Op.NOT_IN) else 1
    chosen = [domain(draw(each), type) for _ in range(count)]
    if op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        chosen = [chosen[0][: draw(st.integers(0, 3))]]
    return Leaf("c", type, op, tuple(chosen))


def drawn(type: pa.DataType) -> st.SearchStrategy[Any]:
    return values(pa.int64()) if pa.types.is_duration(type) else values(type)


def spark_takes(pattern: str, escape: str) -> bool:
    chars = iter(pattern)
    return all(next(chars, "") in ("_", "%", escape) for char in chars if char == escape)


def literal_prefix(pattern: str, escape: str) -> str:
    out, chars = "", iter(pattern)
    for char in chars:
        if char == escape:
            out += next(chars)
        elif char in "_%":
            break
        else:
            out += char
    return out


@st.composite
def files(draw: st.DrawFn, type: pa.DataType) -> list[pa.Array]:
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    if pa.types.is_duration(type):
        return [draw(columns(pa.int64(), size)).view(type) for size in sizes]
    return [draw(columns(type, size)) for size in sizes]


def takes(index: Index, type: pa.DataType) -> bool:
    """Whether the kind takes a column of this type."""
    try:
        index.stored_type(type)
    except UnsupportedError:
        return False
    return True


def check(indexed: Indexed, leaf: Leaf, rows: list[pa.Array]) -> None:
    """``must`` and ``may`` of each file against its rows, read as the leaf's type."""
    answer = indexed.ask(leaf)
    if answer.bounds is None:
        assert answer.reasons
        return
    for at, array in enumerate(rows):
        table = pa.table({"c": array})
        matching = len(rows_of_bound(leaf, table, opaque=True))
        if matching:
            assert answer.bounds.may[at], f"{leaf} loses a row of {array.to_pylist()}"
        if answer.bounds.must[at]:
            assert matching == len(array), f"{leaf} does not hold for all of {array.to_pylist()}"


@pytest.mark.parametrize("kind", KINDS)
@MANY
@given(type=st.sampled_from(TYPES), data=st.data())
def test_bounds_are_true_of_the_rows(kind: str, type: pa.DataType, data: st.DataObject) -> None:
    index = data.draw(st.sampled_from(KINDS[kind]))
    if not takes(index, type):
        type = pa.int8()
    arrays = data.draw(files(type))
    indexed = Indexed(index, arrays, type)
    seen = pa.concat_arrays(arrays)
    present = seen.view(pa.int64()) if pa.types.is_duration(type) else seen
    if pa.types.is_timestamp(type):
        present = present.cast(pa.int64())
    leaf = data.draw(leaves(type, [v for v in present.to_pylist() if v is not None]))
    check(indexed, leaf, arrays)
    # Asked about some of the files only, or when no file has counts, the answer is no less true.
    check(Indexed(indexed.evidence, arrays, type, foreign=True), leaf, arrays)
    some = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=5, max_size=5)))
    some = some[some < len(arrays)]
    part = indexed.ask(leaf, indexed.units.where(some)).bounds
    whole = indexed.ask(leaf).bounds
    if part is not None and whole is not None:
        assert part.may.tolist() == whole.may[some].tolist()
        assert part.must.tolist() == whole.must[some].tolist()


@MANY
@given(type=st.sampled_from(TYPES), data=st.data())
def test_value_lists_are_exact(type: pa.DataType, data: st.DataObject) -> None:
    arrays = data.draw(files(type))
    indexed = Indexed(ValueList("c"), arrays, type)
    leaf = data.draw(leaves(type, []))
    bounds = indexed.ask(leaf).bounds
    if leaf.op in (Op.IS_NULL, Op.NOT_NULL):
        assert bounds is None
        return
    assert bounds is not None
    for at, array in enumerate(arrays):
        matching = len(rows_of_bound(leaf, pa.table({"c": array}), opaque=True))
        assert bool(bounds.may[at]) == (matching > 0), f"{leaf} of {array.to_pylist()}"
        assert bool(bounds.must[at]) == (0 < matching == len(array))


WIDENED = [(a, b) for a in TYPES for b in TYPES if a != b and widens(a, b)]


@MANY
@given(types=st.sampled_from(WIDENED), data=st.data())
def test_an_index_from_before_the_column_was_widened(
    types: tuple[pa.DataType, pa.DataType], data: st.DataObject
) -> None:
    stored, table = types
    arrays = data.draw(files(stored))
    fitting = [index for kind in KINDS.values() for index in kind if takes(index, stored)]
    indexed = Indexed(data.draw(st.sampled_from(fitting)), arrays, stored)
    wide = []
    for array in arrays:
        try:
            wide.append(array.cast(table))
        except pa.ArrowInvalid:  # a date past the last microsecond, bytes that are no text
            return
    seen = pa.concat_arrays(wide)
    present = seen.cast(pa.int64()) if pa.types.is_timestamp(table) else seen
    if pa.types.is_duration(table):
        present = seen.cast(pa.int64())
    leaf = data.draw(leaves(table, [v for v in present.to_pylist() if v is not None]))
    check(indexed, leaf, wide)
