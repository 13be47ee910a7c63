"""Lists of values: what is stored, where they stop, and answers that are exact."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.indexes.valuelist import ValueList
from skipstone.predicate.kernels.patterns import like_regex
from skipstone.predicate.tree import Op
from skipstone.pruning import Cause
from tests.build.built import Indexed


def test_what_is_stored() -> None:
    files = [
        pa.array(["b", None, "a", "b"]),
        pa.array([None], pa.string()),
        pa.array([], pa.string()),
    ]
    indexed = Indexed(ValueList("c"), files)
    assert indexed.stored.values.to_pylist() == [["a", "b"], [], []]
    assert indexed.stored.values.type == pa.list_(pa.field("element", pa.string()))


def test_floats_are_merged_as_spark_compares_them() -> None:
    indexed = Indexed(ValueList("c"), [pa.array([float("nan"), -0.0, -float("nan"), 0.0])])
    assert repr(indexed.stored.values.to_pylist()) == "[[0.0, nan]]"
    assert indexed.may(Op.EQ, 0.0) == [0]
    assert indexed.may(Op.EQ, -0.0) == [0]


def test_a_foreign_list_may_have_both_zeros_in_any_form() -> None:
    # As Xskipper wrote it: one file with -0.0 alone.
    indexed = Indexed(ValueList("c"), [pa.array([1.0])])
    foreign = pa.array([[-0.0]], indexed.stored.values.type)
    object.__setattr__(indexed.stored, "values", foreign)
    assert indexed.may(Op.EQ, 0.0) == [0]


@pytest.mark.parametrize(
    "type, values",
    [
        (pa.bool_(), [False, True]),
        (pa.binary(), [b"", b"\x00\xff"]),
        (pa.date32(), [0, 1]),
        (pa.timestamp("us"), [0, 1]),
        (pa.duration("us"), [-1, 1]),
        (pa.decimal128(38, 3), [1, 2]),
    ],
    ids=str,
)
def test_all_types(type: pa.DataType, values: list[Any]) -> None:
    indexed = Indexed(ValueList("c"), [pa.array(values, type), pa.array(values[:1], type)])
    unscaled = [v * 1000 for v in values] if pa.types.is_decimal(type) else values
    assert indexed.may(Op.EQ, unscaled[1]) == [0]
    assert indexed.must(Op.EQ, unscaled[0]) == [1]
    assert indexed.reasons == [None, None]


def test_limits_leave_a_file_out_and_say_so() -> None:
    # File 0 has three values, file 1 four, file 2 one that is long.
    files = [pa.array(v) for v in (["a", "b", "c"], ["a", "b", "c", "d"], ["x" * 200])]
    indexed = Indexed(ValueList("c", max_values=3, max_bytes=100), files)
    assert indexed.stored.values.to_pylist() == [["a", "b", "c"], None, None]
    assert indexed.reasons == [
        None,
        "more than 3 distinct values",
        "its distinct values take more than 100 bytes",
    ]
    # What has no list may match; the answer counts it.
    answer = indexed.ask(indexed.leaf(Op.EQ, "zzz"))
    assert answer.bounds is not None
    assert answer.bounds.may.tolist() == [False, True, True]
    (reason,) = answer.reasons
    assert (reason.cause, reason.units) == (Cause.ABSENT, 2)


def test_a_long_run_of_a_key_is_given_up_early() -> None:
    indexed = Indexed(
        ValueList("c"), [pa.array(np.arange(100_000)), pa.array(np.arange(100_000) % 7)]
    )
    assert indexed.reasons == ["more than 1,000 distinct values", None]
    assert indexed.stored.values.to_pylist()[1] == list(range(7))


# File 0 has "apple" and "pear", file 1 nothing but "apple", file 2 "apple" and a null, file 3
# nulls.
FRUIT = Indexed(
    ValueList("c"),
    [
        pa.array(["apple", "pear"]),
        pa.array(["apple", "apple"]),
        pa.array(["apple", None]),
        pa.array([None], pa.string()),
    ],
)


@pytest.mark.parametrize(
    "op, values, may, must",
    [
        (Op.EQ, ("apple",), [0, 1, 2], [1]),
        (Op.NE, ("apple",), [0], []),
        (Op.NE_OR_NULL, ("apple",), [0, 2, 3], [3]),
        (Op.NE_OR_NULL, ("fig",), [0, 1, 2, 3], [0, 1, 2, 3]),
        (Op.IN, ("pear", "fig"), [0], []),
        (Op.NOT_IN, ("pear", "fig"), [0, 1, 2], [1]),
        (Op.LT, ("b",), [0, 1, 2], [1]),
        (Op.GE, ("b",), [0], []),
        (Op.STARTS_WITH, ("ap",), [0, 1, 2], [1]),
        (Op.NOT_STARTS_WITH, ("ap",), [0], []),
        (Op.LIKE, ("%ea_", "\\", ""), [0], []),
        (Op.LIKE, ("%l%", "\\", ""), [0, 1, 2], [1]),
        (Op.NOT_LIKE, ("%l%", "\\", ""), [0], []),
    ],
)
def test_answers_are_exact(
    op: Op, values: tuple[str, ...], may: list[int], must: list[int]
) -> None:
    assert (FRUIT.may(op, *values), FRUIT.must(op, *values)) == (may, must)


def test_many_files_by_codes_and_a_few_of_them_by_their_lists_agree() -> None:
    # File i holds i mod 97 and i mod 89: one, few, or nearly all distinct values match.
    files = [pa.array([i % 97, 1_000 + i % 89]) for i in range(400)]
    for op, values in [(Op.EQ, (5,)), (Op.IN, tuple(range(20))), (Op.NE, (5,)), (Op.LT, (10**6,))]:
        every = Indexed(ValueList("c"), files)
        few = every.ask(every.leaf(op, *values), every.units.where(np.arange(5, 12))).bounds
        whole = every.ask(every.leaf(op, *values)).bounds
        assert few is not None
        assert whole is not None
        expected = [any(_holds(op, v, values) for v in f.to_pylist()) for f in files]
        assert whole.may.tolist() == expected
        assert few.may.tolist() == expected[5:12]
        assert few.must.tolist() == whole.must.tolist()[5:12]


@pytest.mark.parametrize("distinct", [40, 100_000])
def test_lists_of_any_length_are_answered_exactly(distinct: int) -> None:
    """Few or most of the values match, in few or many runs; some files have no value at all."""
    rng = np.random.default_rng(distinct)
    files = [pa.array(rng.integers(0, distinct, rng.integers(0, 6)) * 3) for _ in range(500)]
    if distinct > 1 << 16:
        files += [pa.array(np.arange(at, at + 1_000) * 3) for at in range(0, 80_000, 1_000)]
    indexed = Indexed(ValueList("c"), files)
    some = sorted({value.as_py() for file in files for value in file[:1]})
    lists: list[tuple[int, ...]] = [(0,), (some[0],), (1,), tuple(some[::2]), tuple(some[3:5])]
    for op in (Op.EQ, Op.NE, Op.LT, Op.IN, Op.NOT_IN):
        for values in lists if op in (Op.IN, Op.NOT_IN) else [each[:1] for each in lists]:
            found = indexed.ask(indexed.leaf(op, *values)).bounds
            assert found is not None
            holds = [[_holds(op, v, values) for v in f.to_pylist()] for f in files]
            assert found.may.tolist() == [any(each) for each in holds]
            assert found.must.tolist() == [bool(each) and all(each) for each in holds]


def _holds(op: Op, value: int, asked: tuple[int, ...]) -> bool:
    return {
        Op.EQ: value == asked[0],
        Op.NE: value != asked[0],
        Op.LT: value < asked[0],
        Op.IN: value in asked,
        Op.NOT_IN: value not in asked,
    }[op]


@pytest.mark.parametrize(
    "pattern, escape, text, matches",
    [
        ("a%", "\\", "a\nb", True),
        ("_", "\\", "😀", True),
        ("_", "\\", "é", True),
        (r"\%", "\\", "%", True),
        (r"\%", "\\", "x", False),
        ("#_x", "#", "_x", True),
        ("a.c", "\\", "abc", False),
        ("[ab]+(", "\\", "[ab]+(", True),
        ("a", "\\", "ab", False),
        ("%#%", "#", "5%", True),
        (" #&-~ \t", "\\", " #&-~ \t", True),
        ("", "\\", "", True),
    ],
)
def test_like_is_sparks(pattern: str, escape: str, text: str, matches: bool) -> None:
    import pyarrow.compute as pc

    regex = like_regex(pattern, escape)
    found = pc.match_substring_regex(pa.array([text]), pattern=rf"(?s)\A{regex}\z")
    assert found.to_pylist() == [matches]
    assert (re.compile(regex, re.DOTALL).fullmatch(text) is not None) is matches


def test_parameters_go_to_the_store_and_back() -> None:
    for made in (ValueList("c"), ValueList("c", max_values=5), ValueList("c", max_bytes=9)):
        assert ValueList.from_params("c", made.params) == made
    with pytest.raises(ValueError, match="at least 1"):
        ValueList("c", max_values=0)
