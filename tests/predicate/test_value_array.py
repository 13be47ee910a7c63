"""Keys as an array: bound as literals of the array's type are, against the oracle, row by row."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skipstone.predicate.binding import bind
from skipstone.predicate.literals import from_key, order_key, order_keys
from skipstone.predicate.members import ascending_distinct, from_keys, isin
from skipstone.predicate.tree import ColumnRef, Const, Leaf, Membership, Not, Op
from skipstone.predicate.value_array import ValueArray
from skipstone.pruning.residual import matching
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.predicate.bound_rows import opaques, rows_of_bound
from tests.predicate.keys import literal_list
from tests.strategies import ARROW_TYPES, SPARK_TYPES, columns, values

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def every_list_is_an_array() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skipstone.predicate.value_array.FEW", 0)
        yield


@settings(max_examples=10 * settings().max_examples)
@given(st.data(), st.sampled_from(SPARK_TYPES), st.booleans())
def test_rows_are_those_of_a_list_of_literals(data: Any, type: pa.DataType, negated: bool) -> None:
    column = data.draw(columns(type, 8), "column")
    other = data.draw(st.sampled_from([type, type, *ARROW_TYPES]), "type of the keys")
    own = [] if other != type else [each for each in column.to_pylist() if each is not None]
    each = values(other) if not own else st.one_of(values(other), st.sampled_from(own))
    given_ = data.draw(st.lists(st.none() | each, max_size=8), "keys")
    # An instant is given as its microseconds.
    keys = pa.array(given_, other)
    table, path = pa.table({"c": column}), ColumnRef(("c",))
    of_array: Any = Membership(path, keys)
    of_list: Any = Membership(path, literal_list(keys))
    if negated:
        of_array, of_list = Not(of_array), Not(of_list)
    tree, wanted = bind(of_array, table.schema), bind(of_list, table.schema)
    if opaques(tree):
        # The list may go further: it has literals of their own digits.
        assert rows_of_bound(tree, table, opaque=True) == list(range(8))
        return
    found = rows_of_bound(tree, table, opaque=False)
    assert np.flatnonzero(matching(tree, {"c": column}, 8)).tolist() == found
    if not opaques(wanted):
        assert rows_of_bound(wanted, table, opaque=False) == found
    try:
        expected = matching_rows(table, of_list)
    except (SparkError, NotModelled, OverflowError):
        return
    assert found == expected


@settings(max_examples=5 * settings().max_examples)
@given(st.data(), st.sampled_from(SPARK_TYPES))
def test_keys_are_distinct_ascending_and_come_back(data: Any, type: pa.DataType) -> None:
    column = data.draw(columns(type, 20))
    keys = order_keys(column, type)
    made = ascending_distinct(keys)
    wanted = {key for key in keys.to_list() if key is not None}
    assert made.to_list() == sorted(wanted)
    again = from_keys(made, type)
    again.validate(full=True)
    assert order_keys(again, type).to_list() == made.to_list()
    held = ValueArray(made, type)
    assert [order_key(value, type) for value in held] == made.to_list()
    assert held[0:2] == tuple(from_key(key, type) for key in made.to_list()[:2] if key is not None)
    assert pickle.loads(pickle.dumps(held)) == held
    assert hash(ValueArray(ascending_distinct(keys), type)) == hash(held)


@given(
    st.integers(0, 2**32),
    st.sampled_from(["", "prefix-", "\0"]),
    st.integers(1_024, 3_000),
    st.booleans(),
)
def test_many_keys_are_found_by_their_hashes(
    seed: int, prefix: str, count: int, numbers: bool
) -> None:
    rng = np.random.default_rng(seed)
    drawn = rng.integers(-4_000, 4_000, 3 * count)
    type = pa.int64() if numbers else pa.string()
    words: Any = drawn if numbers else [f"{prefix}{'x' * (n % 11)}{n}" for n in drawn.tolist()]
    # Of the texts, some are the beginning of others, or shorter than what all keys begin with.
    column = pa.array(words, type, mask=rng.random(3 * count) < 0.1)
    if not numbers:
        column = pa.concat_arrays([column, pa.array(["", "p", prefix, f"{prefix}x"])])
    among = ascending_distinct(order_keys(pa.array(words[: 2 * count], type), type))
    assume(len(among) >= 1_024)
    keys, wanted = order_keys(column, type), set(among.to_list())
    assert isin(keys, among).tolist() == [key in wanted for key in keys.to_list()]


def test_a_leaf_shows_how_many_values_it_has() -> None:
    keys = pa.array(np.arange(1_000))
    tree = bind(Membership(ColumnRef(("id",)), keys), pa.schema([("id", pa.int32())]))
    assert str(tree) == "id IN (0, 1, 2, 3, 4, … 1,000 values)"
    assert isinstance(tree, Leaf)
    assert isinstance(tree.values, ValueArray)
    assert repr(tree.values) == "<1,000 values of int32>"
    # No value of the column equals these.
    beyond = Membership(ColumnRef(("id",)), pa.array([2**40, 2**41]))
    assert bind(beyond, pa.schema([("id", pa.int32())])) == Const(False)
    negated = bind(Not(beyond), pa.schema([("id", pa.int32())]))
    assert negated == Leaf("id", pa.int32(), Op.NOT_NULL)


def test_decimals_of_any_length_beside_a_bigint() -> None:
    low, high = -(2**63), 2**63 - 1
    wanted = [low, -1, 0, 7, 10**18, high]
    for scale in (0, 1, 5, 19):
        exact = [each for each in wanted if abs(each) < 10 ** (38 - scale)]
        odd = [Decimal(low - 1), Decimal(high + 1), Decimal("0.5")][: 3 if scale else 2]
        odd = [each for each in odd if abs(each) < 10 ** (38 - scale)]
        keys = pa.array([*map(Decimal, exact), *odd], pa.decimal128(38, scale))
        tree = bind(Membership(ColumnRef(("id",)), keys), pa.schema([("id", pa.int64())]))
        assert isinstance(tree, Leaf)
        assert list(tree.values) == sorted(exact), scale


def test_a_double_that_is_several_integers_stays_exact() -> None:
    """Above 2^53 two longs are one double, and both match."""
    schema = pa.schema([("id", pa.int64())])
    keys = Membership(ColumnRef(("id",)), pa.array([float(2**53), 1.0, 1.5, float("nan")]))
    column = pa.array([2**53, 2**53 + 1, 2**53 + 2, 1, None])
    found = matching(bind(keys, schema), {"id": column}, 5)
    assert found.tolist() == [True, True, False, True, False]
