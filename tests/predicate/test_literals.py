"""Keys order and equal each other as Spark compares values; text of values reads back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import UnsupportedError
from skipstone.predicate.literals import (
    Keys,
    compare,
    float_key,
    float_of_key,
    from_key,
    order_key,
    order_keys,
    stored,
    to_domain,
)
from skipstone.predicate.members import isin, keys_of
from skipstone.predicate.tree import Op
from skipstone.predicate.types import Kind, Value, display, kind_of, sql_text
from tests.oracle import sort_key, values_of
from tests.strategies import ARROW_TYPES, SPARK_TYPES, columns, values

TS, NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")
OPS = [Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE]


def domain_of(value: Any, type: pa.DataType) -> Any:
    """A value of the oracle in the stored domain."""
    if pa.types.is_uint64(type):
        return int(value)
    if pa.types.is_decimal(type):
        return int(value * 10**type.scale)
    if pa.types.is_integer(type):
        return int(value)
    return value


@given(st.data())
def test_keys_compare_as_values_do(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(ARROW_TYPES))
    array = data.draw(columns(type, data.draw(st.integers(0, 10))))
    asked = values_of(pa.array([data.draw(values(type))], type))[0]
    found = values_of(array)
    keys = order_keys(array, type)
    key = order_key(domain_of(asked, type), type)
    assert len(keys) == len(array)
    for op in OPS:
        expected = [
            value is not None
            and {
                Op.EQ: sort_key(value) == sort_key(asked),
                Op.NE: sort_key(value) != sort_key(asked),
                Op.LT: sort_key(value) < sort_key(asked),
                Op.LE: sort_key(value) <= sort_key(asked),
                Op.GT: sort_key(value) > sort_key(asked),
                Op.GE: sort_key(value) >= sort_key(asked),
            }[op]
            for value in found
        ]
        assert compare(keys, op, key).tolist() == expected
    members = data.draw(st.lists(st.sampled_from([*found, asked]), max_size=4))
    among = [value for value in members if value is not None]
    assert isin(keys, keys_of([domain_of(v, type) for v in among], type)).tolist() == [
        value is not None and sort_key(value) in [sort_key(v) for v in among] for value in found
    ]
    assert keys.to_list() == [
        None if value is None else order_key(domain_of(value, type), type) for value in found
    ]


@pytest.mark.parametrize("type", ARROW_TYPES, ids=str)
def test_keys_of_every_type_take_a_key_of_it(type: pa.DataType) -> None:
    nothing = order_keys(pa.array([None], type), type)
    empty: dict[Kind, Value] = {Kind.STRING: "", Kind.BINARY: b"", Kind.FLOATING: 0.0}
    assert compare(nothing, Op.EQ, order_key(empty.get(kind_of(type), 0), type)).tolist() == [False]


@given(st.data())
def test_keys_of_slices_and_chunks_are_those_of_the_whole(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(ARROW_TYPES))
    array = data.draw(columns(type, 9))
    whole = order_keys(array, type).to_list()
    assert order_keys(array.slice(2, 5), type).to_list() == whole[2:7]
    chunks = pa.chunked_array([array.slice(0, 4), array.slice(4, 0), array.slice(4)])
    assert order_keys(chunks, type).to_list() == whole
    assert order_keys(pa.chunked_array([], type), type).to_list() == []
    keys = order_keys(array, type)
    mask = np.array([i % 2 == 0 for i in range(9)])
    assert keys.take(mask).to_list() == whole[::2]
    assert keys.take(np.array([8, 0, 0])).to_list() == [whole[8], whole[0], whole[0]]


@given(st.data())
def test_a_key_gives_its_value_back(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(SPARK_TYPES))
    raw = values_of(pa.array([data.draw(values(type))], type))[0]
    value = domain_of(raw, type)
    back = from_key(order_key(value, type), type)
    assert back == value or (value != value and back != back)
    assert back.__class__ is value.__class__


@given(st.floats(), st.floats())
def test_float_keys(a: float, b: float) -> None:
    assert (float_key(a) < float_key(b)) == (sort_key(a) < sort_key(b))
    assert (float_key(a) == float_key(b)) == (sort_key(a) == sort_key(b))
    back = float_of_key(float_key(a))
    assert back == a or (math.isnan(a) and math.isnan(back))


def test_floats_next_to_each_other_have_keys_next_to_each_other() -> None:
    for value in (-math.inf, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.7976931348623157e308):
        assert float_key(math.nextafter(value, math.inf)) == float_key(value) + 1
    assert float_key(math.nan) == float_key(math.inf) + 1


@pytest.mark.parametrize(
    "array, type, expected",
    [
        # Narrower files are widened.
        (pa.array([1, -1], pa.int8()), pa.int64(), [1, -1]),
        (pa.array([1, None], pa.uint32()), pa.int64(), [1, None]),
        (pa.array([2**64 - 1, 0], pa.uint64()), pa.decimal128(20, 0), [2**64 - 1, 0]),
        (pa.array([5], pa.int32()), pa.decimal128(12, 2), [500]),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 2)), pa.decimal128(20, 4), [15_000]),
        (pa.array([0.1], pa.float32()), pa.float64(), [float(np.float32(0.1))]),
        (pa.array([Decimal("1.5")], pa.decimal256(5, 2)), pa.decimal128(5, 2), [150]),
        # Other units of time; nanoseconds are floored, also before 1970.
        (pa.array([1500, None], pa.timestamp("ms")), NTZ, [1_500_000, None]),
        (pa.array([-1], pa.timestamp("ns")), NTZ, [-1]),
        (pa.array([1999, -1001], pa.timestamp("ns", "Europe/Berlin")), TS, [1, -2]),
        (pa.array([2], pa.timestamp("s", "UTC")), TS, [2_000_000]),
        # INT96 reads as nanoseconds without a zone, and is an instant all the same.
        (pa.array([5000], pa.timestamp("ns")), TS, [5]),
        (pa.array([86_400_000], pa.date64()), pa.date32(), [1]),
        (pa.array([7], pa.int64()), pa.duration("us"), [7]),
    ],
)  # fmt: skip
def test_other_types_read_as_spark_reads_them(
    array: pa.Array, type: pa.DataType, expected: list[Any]
) -> None:
    assert stored(array, type).type == type
    keys = order_keys(array, type)
    assert keys.to_list() == [None if v is None else order_key(v, type) for v in expected]


def test_dictionaries_and_views() -> None:
    words = pa.array(["b", None, "a"]).dictionary_encode()
    assert order_keys(words, pa.string()).to_list() == [b"b", None, b"a"]
    assert order_keys(pa.array(["x"], pa.string_view()), pa.string()).to_list() == [b"x"]
    assert order_keys(pa.array([b"\xff"], pa.binary(1)), pa.binary()).to_list() == [b"\xff"]


def test_a_value_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"not in range|overflow|too large|out of bounds"):
        order_keys(pa.array([300], pa.int64()), pa.int8())
    with pytest.raises(UnsupportedError, match="list"):
        order_keys(pa.array([[1]]), pa.list_(pa.int64()))


@pytest.mark.parametrize("prefix", [b"", b"pp", b"user-00", b"\xff", b"long enough for words"])
def test_many_byte_strings_compare_as_few_do(prefix: bytes) -> None:
    """Many that are compared often are so by 8 bytes after what all have in common: ends, zeros and
    ties count."""
    parts = [b"", b"\0", b"a", b"ab", b"\xff", b"user", b"user-0001", b"00010000", b"00010000\0"]
    every = [prefix + a + b for a in parts for b in parts]
    held = [None if at % 7 == 3 else each for at, each in enumerate(every)]
    asked = [*every[::5], *parts, prefix[:-1], prefix + b"user-00010000"]
    for start in (0, 5):
        few = order_keys(pa.array(held, pa.large_binary()).slice(start), pa.binary())
        times = 10_000 // len(few) + 1
        many = order_keys(pa.array(held[:start] + held[start:] * times).slice(start), pa.binary())
        for key in asked:
            for op in OPS:
                assert np.array_equal(compare(many, op, key), np.tile(compare(few, op, key), times))
    nothing = order_keys(pa.nulls(10_000, pa.binary()), pa.binary())
    for _ in range(10):  # at first as they are, then by words
        assert not compare(nothing, Op.NE, b"a").any()


def test_compare_takes_no_other_question() -> None:
    keys = Keys(np.array([1]), np.array([True]))
    with pytest.raises(ValueError, match="not a comparison"):
        compare(keys, Op.IN, 1)


@pytest.mark.parametrize(
    "value, type, domain",
    [
        (True, pa.bool_(), True),
        (5, pa.int8(), 5),
        (5.0, pa.int8(), 5),
        (Decimal("5.0"), pa.int32(), 5),
        (np.int64(5), pa.int64(), 5),
        (5, pa.float64(), 5.0),
        (0.5, pa.float32(), 0.5),
        (5, pa.decimal128(5, 2), 500),
        (Decimal("5.5"), pa.decimal128(5, 2), 550),
        (0.25, pa.decimal128(5, 2), 25),
        ("é", pa.string(), "é"),
        (bytearray(b"\0"), pa.binary(), b"\0"),
        (date(1970, 1, 2), pa.date32(), 1),
        (3, pa.date32(), 3),
        (datetime(1970, 1, 1, 0, 0, 1), NTZ, 1_000_000),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), TS, 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), TS, -1),
        (timedelta(seconds=1), pa.duration("us"), 1_000_000),
    ],
)  # fmt: skip
def test_to_domain(value: object, type: pa.DataType, domain: object) -> None:
    found = to_domain(value, type)
    assert found == domain
    assert found.__class__ is domain.__class__


@pytest.mark.parametrize(
    "value, type",
    [
        (300, pa.int8()),
        (5.5, pa.int32()),
        (math.nan, pa.int32()),
        (0.1, pa.float32()),
        (2**53 + 1, pa.float64()),
        (Decimal("5.555"), pa.decimal128(5, 2)),
        (1000, pa.decimal128(5, 2)),
        (True, pa.int32()),
        (1, pa.bool_()),
        ("5", pa.int32()),
        (5, pa.string()),
        (None, pa.int32()),
        (datetime(2024, 1, 1), TS),
        (datetime(2024, 1, 1, tzinfo=UTC), NTZ),
        (datetime(2024, 1, 1), pa.date32()),
        (date(2024, 1, 1), TS),
    ],
)
def test_to_domain_is_exact_or_an_error(value: object, type: pa.DataType) -> None:
    with pytest.raises(ValueError, match="is not a value of type"):
        to_domain(value, type)


def test_to_domain_keeps_nan_and_infinity() -> None:
    assert math.isnan(float(to_domain(math.nan, pa.float32())))
    assert to_domain(-math.inf, pa.float32()) == -math.inf


@pytest.mark.parametrize(
    "value, type, shown, text",
    [
        (True, pa.bool_(), "TRUE", "TRUE"),
        (5, pa.int8(), "5", "5"),
        (550, pa.decimal128(5, 2), "5.50", "5.50BD"),
        (-5, pa.decimal128(5, 2), "-0.05", "-0.05BD"),
        (5, pa.decimal128(5, 0), "5", "5BD"),
        (1.5, pa.float64(), "1.5", "1.5D"),
        (math.nan, pa.float64(), "NaN", "CAST('NaN' AS DOUBLE)"),
        (-math.inf, pa.float32(), "-inf", "CAST('-Infinity' AS FLOAT)"),
        (float(np.float32(0.1)), pa.float32(), "0.10000000149011612", "CAST('0.1' AS FLOAT)"),
        ("it's \\ \n\0", pa.string(), r"'it\'s \\ \u000a\u0000'", r"'it\'s \\ \u000a\u0000'"),
        (b"\0\xff", pa.binary(), "X'00FF'", "X'00FF'"),
        (19_723, pa.date32(), "DATE '2024-01-01'", "DATE '2024-01-01'"),
        (-719_529, pa.date32(), "DATE '-0001-12-31'", "DATE '-0001-12-31'"),
        (2_932_897, pa.date32(), "DATE '+10000-01-01'", "DATE '+10000-01-01'"),
        (500_000, TS, "TIMESTAMP '1970-01-01 00:00:00.5Z'", "TIMESTAMP '1970-01-01 00:00:00.5Z'"),
        (-1, NTZ, *2 * ("TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'",)),
        (1_500_000, pa.duration("us"), "INTERVAL '1.500000' SECOND", "INTERVAL '1.500000' SECOND"),
    ],
)  # fmt: skip
def test_text(value: Any, type: pa.DataType, shown: str, text: str) -> None:
    assert display(value, type) == shown
    assert sql_text(value, type) == text


def test_long_strings_are_shown_short_and_printed_whole() -> None:
    assert display("x" * 100, pa.string()) == f"'{'x' * 30}…{'x' * 30}'"
    assert display(b"\0" * 100, pa.binary()) == f"X'{'00' * 30}…{'00' * 30}'"
    assert len(sql_text("x" * 100, pa.string())) == 102
