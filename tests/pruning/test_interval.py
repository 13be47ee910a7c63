"""What ranges say, over layouts told in words; the property tests prove that it is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.predicate.literals import Keys, order_keys
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning.interval import Intervals, interval_bounds, search

I64 = pa.int64()


def units(
    ranges: list[tuple[Any, Any]],
    type: pa.DataType = I64,
    rows: list[int] | None = None,
    nulls: list[int] | None = None,
) -> Intervals:
    """Units with these bounds (``None`` unknown), 10 rows each and no nulls unless said
    otherwise.
    """
    return Intervals.checked(
        type=type,
        lo=order_keys(pa.array([lo for lo, _ in ranges], type), type),
        hi=order_keys(pa.array([hi for _, hi in ranges], type), type),
        rows=np.array(rows or [10] * len(ranges)),
        nulls=np.array(nulls or [0] * len(ranges)),
    )


def ask(intervals: Intervals, op: Op, *values: Any) -> tuple[list[int], list[int]]:
    """The units that may match, and those that must."""
    bounds = interval_bounds(Leaf("c", intervals.type, op, values), intervals)
    assert bounds is not None
    return np.flatnonzero(bounds.may).tolist(), np.flatnonzero(bounds.must).tolist()


# Unit 0 holds 0 to 9, unit 1 holds 10 to 19, unit 2 nothing but 15, unit 3 is not known below.
FOUR = units([(0, 9), (10, 19), (15, 15), (None, 12)])


@pytest.mark.parametrize(
    "op, values, may, must",
    [
        (Op.EQ, (15,), [1, 2], [2]),
        (Op.EQ, (5,), [0, 3], []),
        (Op.NE, (15,), [0, 1, 3], [0, 3]),
        (Op.NE_OR_NULL, (15,), [0, 1, 3], [0, 3]),
        (Op.LT, (10,), [0, 3], [0]),
        (Op.LT, (13,), [0, 1, 3], [0, 3]),
        (Op.LE, (10,), [0, 1, 3], [0]),
        (Op.GT, (9,), [1, 2, 3], [1, 2]),
        (Op.GE, (9,), [0, 1, 2, 3], [1, 2]),
        (Op.GT, (19,), [], []),
        (Op.IN, (9, 11), [0, 1, 3], []),
        (Op.IN, (15, 400), [1, 2], [2]),
        (Op.IN, (), [], []),
        (Op.NOT_IN, (15, 400), [0, 1, 3], [0, 3]),
        (Op.NOT_IN, (), [0, 1, 2, 3], [0, 1, 2, 3]),
        (Op.IS_NULL, (), [], []),
        (Op.NOT_NULL, (), [0, 1, 2, 3], [0, 1, 2, 3]),
    ],
)
def test_numbers(op: Op, values: tuple[int, ...], may: list[int], must: list[int]) -> None:
    assert ask(FOUR, op, *values) == (may, must)


# All units hold 5 to 5. Unit 0 has no nulls, 1 has some, 2 nothing but nulls and so no bounds, 3 an
# unknown number, 4 no rows, 5 an unknown number of rows and no nulls.
NULLS = units(
    [(5, 5), (5, 5), (None, None), (5, 5), (None, None), (5, 5)],
    rows=[10, 10, 10, 10, 0, -1],
    nulls=[0, 3, 10, -1, 0, 0],
)


@pytest.mark.parametrize(
    "op, values, may, must",
    [
        (Op.EQ, (5,), [0, 1, 3, 5], [0, 5]),
        (Op.NE, (5,), [], []),
        (Op.NE, (6,), [0, 1, 3, 5], [0, 5]),
        (Op.NE_OR_NULL, (5,), [1, 2, 3], [2]),
        (Op.NE_OR_NULL, (6,), [0, 1, 2, 3, 5], [0, 1, 2, 3, 5]),
        (Op.LE, (5,), [0, 1, 3, 5], [0, 5]),
        (Op.IN, (5,), [0, 1, 3, 5], [0, 5]),
        (Op.NOT_IN, (6,), [0, 1, 3, 5], [0, 5]),
        (Op.IS_NULL, (), [1, 2, 3], [2]),
        (Op.NOT_NULL, (), [0, 1, 3, 5], [0, 5]),
    ],
)
def test_nulls(op: Op, values: tuple[int, ...], may: list[int], must: list[int]) -> None:
    assert ask(NULLS, op, *values) == (may, must)


# Unit 0 holds "abc" to "abd", unit 1 "ab" to "b", unit 2 "abx" to whatever, unit 3 "aa" to "ab".
TEXTS = units([("abc", "abd"), ("ab", "b"), ("abx", None), ("aa", "ab")], pa.string())


@pytest.mark.parametrize(
    "op, values, may, must",
    [
        (Op.STARTS_WITH, ("ab",), [0, 1, 2, 3], [0]),
        (Op.STARTS_WITH, ("abc",), [0, 1], []),
        (Op.STARTS_WITH, ("b",), [1, 2], []),
        (Op.STARTS_WITH, ("",), [0, 1, 2, 3], [0, 1, 3]),
        (Op.NOT_STARTS_WITH, ("ab",), [1, 2, 3], []),
        (Op.NOT_STARTS_WITH, ("abcd",), [0, 1, 2, 3], [2, 3]),
        (Op.LIKE, ("b%c", "\\", "b"), [1, 2], []),
        (Op.IN, ("aab", "ac"), [1, 2, 3], []),
        (Op.EQ, ("abcz",), [0, 1], []),
    ],
)
def test_texts(op: Op, values: tuple[str, ...], may: list[int], must: list[int]) -> None:
    assert ask(TEXTS, op, *values) == (may, must)


def test_nothing_is_said_of_what_ranges_do_not_show() -> None:
    for op, prefix in ((Op.NOT_LIKE, "a"), (Op.LIKE, "")):
        leaf = Leaf("c", pa.string(), op, ("%a%" if not prefix else "a%b", "\\", prefix))
        assert interval_bounds(leaf, TEXTS) is None


def test_a_range_that_ends_before_it_begins_is_no_range() -> None:
    # Unit 0 is damaged, unit 1 is not; unit 2 counts more nulls than rows.
    odd = units([(9, 0), (0, 9), (0, 9)], nulls=[0, 0, 11])
    assert ask(odd, Op.EQ, 5) == ([0, 1, 2], [])
    assert ask(odd, Op.GT, 100) == ([0], [])
    assert ask(odd, Op.LT, 100) == ([0, 1, 2], [1])


def test_nan_is_largest_and_zeros_are_equal() -> None:
    nan = float("nan")
    # Unit 0 holds 1.0 to NaN, unit 1 nothing but NaN, unit 2 -0.0 to 0.0.
    floats = units([(1.0, nan), (nan, nan), (-0.0, 0.0)], pa.float64())
    assert ask(floats, Op.GT, 1e308) == ([0, 1], [1])
    assert ask(floats, Op.EQ, nan) == ([0, 1], [1])
    assert ask(floats, Op.EQ, 0.0) == ([2], [2])
    assert ask(floats, Op.NE, -0.0) == ([0, 1], [0, 1])


@pytest.mark.parametrize("type", [pa.int64(), pa.string(), pa.decimal128(30, 2)], ids=str)
def test_an_in_list_of_thousands(type: pa.DataType) -> None:
    def text(number: int) -> Any:
        return number if type == I64 else f"{number:08}" if type == pa.string() else number

    # 2,000 units of ten numbers each, 0 to 9, 10 to 19, …; the list has every number that ends in 7
    # in the first thousand units, and the only number of the last unit.
    ranges: list[tuple[Any, Any]] = [(text(10 * i), text(10 * i + 9)) for i in range(2_000)]
    ranges[-1] = (text(19_990), text(19_990))
    scale = 100 if pa.types.is_decimal(type) else 1
    wanted = [text(10 * i + 7) for i in range(1_000)] + [text(19_990)]
    wanted = [value * scale for value in wanted] if scale > 1 else wanted
    may, must = ask(units(ranges, type), Op.IN, *wanted)
    assert may == [*range(1_000), 1_999]
    assert must == [1_999]
    may, must = ask(units(ranges, type), Op.NOT_IN, *wanted)
    assert may == list(range(1_999))
    assert must == list(range(1_000, 1_999))


SHORT = st.binary(max_size=3).map(lambda b: b"p" * 3 + b) | st.text("ab\0", max_size=12).map(
    str.encode
)


@given(st.lists(st.tuples(SHORT, SHORT), min_size=1), st.lists(SHORT, min_size=1, max_size=8))
def test_an_in_list_of_bytes(pairs: list[tuple[bytes, bytes]], wanted: list[bytes]) -> None:
    ranges = [(min(pair), max(pair)) for pair in pairs]
    may, must = ask(units(ranges, pa.binary()), Op.IN, *wanted)
    assert may == [
        at for at, (lo, hi) in enumerate(ranges) if any(lo <= each <= hi for each in wanted)
    ]
    assert must == [at for at, (lo, hi) in enumerate(ranges) if lo == hi and lo in wanted]


def test_search_is_bisection_of_many() -> None:
    texts = sorted({f"{n * 7919 % 10_007}".encode() for n in range(1_000)})
    asked = [b"", b"5", *texts[::3], b"zzz"]
    keys = Keys(pa.array(texts, pa.large_binary()), np.ones(len(texts), np.bool_))
    wanted = Keys(pa.array(asked, pa.large_binary()), np.ones(len(asked), np.bool_))
    assert search(keys, wanted).tolist() == [sum(t < a for t in texts) for a in asked]
