"""Least and largest values as stored, and what a few files come to."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from skipstone.errors import UnsupportedError
from skipstone.indexes.minmax import MinMax
from skipstone.predicate.tree import Op
from tests.build.built import Indexed

NAN = float("nan")
TINY = Decimal("1e-10")
ORDERLESS = [pa.list_(pa.int8()), pa.time64("us"), pa.struct([("a", pa.int8())])]


@pytest.mark.parametrize(
    "type, values, low, high",
    [
        (pa.bool_(), [True, None, False], False, True),
        (pa.int8(), [3, -128, 127], -128, 127),
        (pa.int64(), [2**63 - 1, -(2**63)], -(2**63), 2**63 - 1),
        (pa.float64(), [1.0, float("-inf")], float("-inf"), 1.0),
        (
            pa.decimal128(38, 10),
            [Decimal("1e-10"), Decimal("-5e20")],
            Decimal("-5e20"),
            Decimal("1e-10"),
        ),
        (pa.string(), ["é", "z", ""], "", "é"),
        (pa.binary(), [b"\xff", b"\x00"], b"\x00", b"\xff"),
        (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], date(1, 1, 1), date(9999, 12, 31)),
        (
            pa.timestamp("us", "UTC"),
            [datetime(2024, 10, 27, 1, 30, tzinfo=UTC), datetime(2024, 10, 27, 0, 30, tzinfo=UTC)],
            datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
            datetime(2024, 10, 27, 1, 30, tzinfo=UTC),
        ),
        (pa.timestamp("us"), [datetime(1970, 1, 1)], datetime(1970, 1, 1), datetime(1970, 1, 1)),
        (pa.string(), [None, None], None, None),
        (pa.int32(), [], None, None),
    ],
    ids=str,
)
def test_what_is_stored(type: pa.DataType, values: list[Any], low: Any, high: Any) -> None:
    indexed = Indexed(MinMax("c"), [pa.array(values, type)])
    assert indexed.stored.values.to_pylist() == [{"min": low, "max": high}]
    assert indexed.stored.values.type == pa.struct([("min", type), ("max", type)])


def test_floats_are_in_sparks_order() -> None:
    # File 0 has a NaN, file 1 nothing else, file 2 a negative zero.
    files = [pa.array(v, pa.float64()) for v in ([1.0, NAN, 2.0], [NAN, None], [-0.0, -1.0])]
    indexed = Indexed(MinMax("c"), files)
    stored = indexed.stored.values.to_pylist()
    assert stored[0]["min"] == 1.0
    assert repr(stored[0]["max"]) == "nan"
    assert repr(stored[1]["min"]) == "nan"
    assert repr(stored[2]["max"]) == "0.0"
    assert indexed.may(Op.GT, 1e300) == [0, 1]
    assert indexed.may(Op.EQ, NAN) == [0, 1]
    assert indexed.may(Op.EQ, 0.0) == [2]


def test_long_strings_are_cut_and_still_found() -> None:
    # File 0 has strings that begin with 100 times "a", file 1 with "b", file 2 the last code point.
    a, b, last = "a" * 100, "b" * 100, "\U0010ffff" * 30
    indexed = Indexed(MinMax("c"), [pa.array([a + "x", a + "y"]), pa.array([b]), pa.array([last])])
    stored = indexed.stored.values.to_pylist()
    assert stored[0] == {"min": "a" * 64, "max": "a" * 63 + "b"}
    assert stored[2] == {"min": "\U0010ffff" * 16, "max": None}
    assert indexed.may(Op.EQ, a + "x") == [0]
    assert indexed.may(Op.EQ, a) == [0]
    assert indexed.may(Op.EQ, b) == [1]
    assert indexed.may(Op.EQ, last) == [2]
    assert indexed.may(Op.GT, last) == [2]
    assert indexed.may(Op.EQ, "a" * 63 + "c") == []
    assert indexed.may(Op.STARTS_WITH, "aaa") == [0]
    assert indexed.must(Op.STARTS_WITH, "aaa") == [0]
    # A bound that was cut proves nothing about all of its file.
    assert indexed.must(Op.EQ, b) == []


def test_short_strings_prove_what_all_rows_are() -> None:
    indexed = Indexed(MinMax("c"), [pa.array(["x", "x"]), pa.array(["x", None]), pa.array(["w"])])
    assert indexed.must(Op.EQ, "x") == [0]
    assert indexed.must(Op.NE, "x") == [2]


def test_unbounded_is_told_from_empty_where_there_are_no_counts() -> None:
    # As read from a foreign store: file 0 all null, file 1 with an upper bound that cannot be said.
    last = "\U0010ffff" * 30
    indexed = Indexed(MinMax("c"), [pa.array([None], pa.string()), pa.array([last])], foreign=True)
    assert indexed.may(Op.GE, "a") == [1]
    # Of floats two nulls may also mean a NaN that Parquet's statistics do not count.
    floats = Indexed(MinMax("c"), [pa.array([None], pa.float64())], foreign=True)
    assert floats.may(Op.GE, 1.0) == [0]


def test_bytes_that_are_no_text_have_no_bounds() -> None:
    bad = pa.array([b"\xff\xfe"]).view(pa.string())
    indexed = Indexed(MinMax("c"), [bad, pa.array(["a"])])
    assert indexed.reasons == ["a value is not UTF-8", None]
    assert indexed.may(Op.EQ, "b") == [0]


def test_a_dictionarys_unused_values_do_not_count() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([1, None, 1]), pa.array(["a", "m", "z"]))
    indexed = Indexed(MinMax("c"), [array], pa.string())
    assert indexed.stored.values.to_pylist() == [{"min": "m", "max": "m"}]


@pytest.mark.parametrize(
    "type", [pa.list_(pa.int8()), pa.time64("us"), pa.struct([("a", pa.int8())])]
)
def test_types_without_order_are_refused(type: pa.DataType) -> None:
    with pytest.raises(UnsupportedError, match=r"minmax cannot index column 'c' of type"):
        MinMax("c").stored_type(type)


def test_parameters_go_to_the_store_and_back() -> None:
    assert MinMax("c").params == {}
    assert MinMax.from_params("c", MinMax("c", truncate=7).params) == MinMax("c", truncate=7)
    with pytest.raises(ValueError, match="at least 1"):
        MinMax("c", truncate=0)
