"""Types from text, values as keys, and columns of Arrow as keys."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import UnsupportedError
from skipstone.paimon.format.column_keys import column_of, group_rows, key_of, type_of
from skipstone.paimon.format.keys import (
    KeyArray,
    PaimonType,
    Root,
    key_bytes,
    ordinals_of,
    raw_dtype,
    read_key,
)
from skipstone.paimon.format.partial_blob import Pieces
from tests.paimon.format.strategies import TYPES, coded, columns, keys


@pytest.mark.parametrize(
    "text, root, precision, scale, shown",
    [
        ("INT", Root.INT, 0, 0, "INT"),
        ("integer not null", Root.INT, 0, 0, "INT"),
        ("DECIMAL(10,2)", Root.DECIMAL, 10, 2, "DECIMAL(10, 2)"),
        ("DECIMAL", Root.DECIMAL, 10, 0, "DECIMAL(10, 0)"),
        ("VARCHAR(5) NOT NULL", Root.VARCHAR, 5, 0, "VARCHAR(5)"),
        ("STRING", Root.VARCHAR, 2**31 - 1, 0, "STRING"),
        ("VARBINARY(2147483647)", Root.VARBINARY, 2**31 - 1, 0, "BYTES"),
        ("TIMESTAMP", Root.TIMESTAMP, 6, 0, "TIMESTAMP(6)"),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", Root.TIMESTAMP, 3, 0, "TIMESTAMP(3)"),
        (
            "TIMESTAMP(9)  WITH LOCAL TIME ZONE NOT NULL",
            Root.TIMESTAMP_LTZ,
            9,
            0,
            "TIMESTAMP(9) WITH LOCAL TIME ZONE",
        ),
        ("TIMESTAMP_LTZ(6)", Root.TIMESTAMP_LTZ, 6, 0, "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("TIME", Root.TIME, 0, 0, "TIME(0)"),
    ],
)
def test_types(text: str, root: Root, precision: int, scale: int, shown: str) -> None:
    type = PaimonType.parse(text)
    assert type == PaimonType(root, precision, scale)
    assert str(type) == shown
    assert PaimonType.parse(shown) == type


@pytest.mark.parametrize(
    "text",
    [
        *("", "ARRAY<INT>", "ROW<a INT>", "VARIANT", "INT(3)", "INT NOT"),
        *("DECIMAL(39, 0)", "DECIMAL(3, 4)", "STRING(3)", "VARCHAR(0)", "VARCHAR(3, 1)"),
        *("TIMESTAMP(10)", "TIMESTAMP WITH TIME ZONE", "INT WITH LOCAL TIME ZONE"),
    ],
)
def test_other_types(text: str) -> None:
    with pytest.raises(UnsupportedError, match="no file index"):
        PaimonType.parse(text)


def test_keys_that_lose_digits() -> None:
    lossy = [str(type) for type in TYPES if not type.exact]
    assert lossy == ["TIMESTAMP(9)"]
    assert not PaimonType.parse("TIME(6)").exact


@given(data=st.data())
def test_keys_lie_on_disk_and_come_back(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(TYPES))
    some = data.draw(st.lists(keys(type), max_size=8))
    held = KeyArray.of(type, some)
    raw = held.to_bytes()
    assert raw == b"".join(key_bytes(key, type) for key in some)
    assert [len(key_bytes(key, type)) for key in some] == held.lengths().tolist()
    cursor = Pieces.whole(raw).cursor(0)
    assert [read_key(cursor, type) for _ in some] == some
    distinct = KeyArray.of(type, sorted(set(some)))
    assert distinct.ascending()
    for probe in [*some, data.draw(keys(type))]:
        assert distinct.below(probe) == sum(key < probe for key in set(some))  # type: ignore[operator]


def test_floats_sort_as_java_compares_them() -> None:
    values = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]
    double, single = PaimonType.parse("DOUBLE"), PaimonType.parse("FLOAT")
    assert [key_of(double, v) for v in values] == sorted(key_of(double, v) for v in values)
    assert [key_of(double, v) for v in (-0.0, 0.0)] == [-1, 0]
    assert [key_of(single, v) for v in (-0.0, 0.0)] == [-1, 0]
    for type in (double, single):
        dtype = raw_dtype(type)
        bits = 8 * type.width
        quiet = (0x7FC00001 if bits == 32 else 0x7FF8000000000001, -1)
        raw = np.array([value.to_bytes(type.width, "big", signed=True) for value in quiet])
        keys_of_nans = ordinals_of(np.frombuffer(raw.tobytes(), dtype), type)
        assert set(keys_of_nans.tolist()) == {key_of(type, math.nan)}
        assert key_bytes(int(keys_of_nans[0]), type).hex() in ("7fc00000", "7ff8000000000000")


DAY, EPOCH = dt.date(1970, 1, 3), dt.datetime(1970, 1, 1)


@pytest.mark.parametrize(
    "text, array, expected",
    [
        ("BOOLEAN", pa.array([True, None, False]), [1, 0]),
        ("TINYINT", pa.array([-128, 127, None], pa.int8()), [-128, 127]),
        ("INT", pa.array([7, None], pa.uint64()), [7]),
        ("BIGINT", pa.array([-(2**63)], pa.int64()), [-(2**63)]),
        ("DATE", pa.array([DAY, None]), [2]),
        ("TIME(3)", pa.array([dt.time(0, 0, 1, 999)], pa.time64("us")), [1_000]),
        ("TIME(3)", pa.array([5], pa.time32("s")), [5_000]),
        ("TIMESTAMP(3)", pa.array([-1], pa.timestamp("us")), [-1]),
        ("TIMESTAMP(6)", pa.array([EPOCH], pa.timestamp("s", "UTC")), [0]),
        ("TIMESTAMP(6)", pa.array([3, -3], pa.timestamp("ms")), [3_000, -3_000]),
        ("TIMESTAMP(9)", pa.array([1_001, -1], pa.timestamp("ns")), [1, -1]),
        ("DECIMAL(18, 4)", pa.array([Decimal("-1.0001"), None], pa.decimal128(18, 4)), [-10_001]),
        ("DECIMAL(5, 2)", pa.array([Decimal("1.23")], pa.decimal256(40, 2)), [123]),
        ("STRING", pa.array(["é", None, ""]), ["é".encode(), b""]),
        ("STRING", pa.array(["a", "b", "a"]).dictionary_encode(), [b"a", b"b", b"a"]),
        ("BYTES", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        ("BYTES", pa.array([b"ab"], pa.binary_view()), [b"ab"]),
        ("CHAR(2)", pa.array(["ab"], pa.string_view()), [b"ab"]),
    ],
)  # fmt: skip
def test_columns_of_arrow(text: str, array: pa.Array, expected: list[Any]) -> None:
    column = column_of(PaimonType.parse(text), array)
    assert [column.keys[i] for i in range(len(column.keys))] == expected
    valid = [row for row, value in enumerate(array.to_pylist()) if value is not None]
    assert column.rows.tolist() == valid
    assert column.row_count == len(array)
    halves = [array[: len(array) // 2], array[len(array) // 2 :]]
    chunked = column_of(PaimonType.parse(text), pa.chunked_array(halves))
    sliced = column_of(PaimonType.parse(text), pa.concat_arrays([array, array])[len(array) :])
    for other in (chunked, sliced):
        assert [other.keys[i] for i in range(len(other.keys))] == expected
        assert other.rows.tolist() == valid


@pytest.mark.parametrize(
    "text, array",
    [
        ("INT", pa.array([2**31])),
        ("INT", pa.array([1.5])),
        ("FLOAT", pa.array([1.5])),
        ("STRING", pa.array([1])),
        ("DATE", pa.array([1])),
        ("DECIMAL(19, 0)", pa.array([Decimal(2**63)])),
        ("DECIMAL(18, 1)", pa.array([Decimal(1)], pa.decimal128(18, 0))),
        ("DECIMAL(18, 0)", pa.array([Decimal(10) ** 30], pa.decimal128(38, 0))),
        ("TIMESTAMP(6)", pa.array([2**62], pa.timestamp("s"))),
    ],
)
def test_columns_that_are_others(text: str, array: pa.Array) -> None:
    with pytest.raises(UnsupportedError):
        column_of(PaimonType.parse(text), array)


@pytest.mark.parametrize(
    "stored, text",
    [
        (pa.bool_(), "BOOLEAN"),
        (pa.uint16(), "INT"),
        (pa.int64(), "BIGINT"),
        (pa.float32(), "FLOAT"),
        (pa.decimal128(9, 2), "DECIMAL(9, 2)"),
        (pa.date32(), "DATE"),
        (pa.time64("us"), "TIME(6)"),
        (pa.timestamp("us"), "TIMESTAMP(6)"),
        (pa.timestamp("ns", "UTC"), "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        (pa.large_string(), "STRING"),
        (pa.dictionary(pa.int8(), pa.binary()), "BYTES"),
        (pa.binary(3), "BINARY(3)"),
    ],
)
def test_types_of_arrow(stored: pa.DataType, text: str) -> None:
    assert str(type_of(stored)) == text
    assert column_of(type_of(stored), pa.nulls(3, stored)).row_count == 3


@pytest.mark.parametrize("stored", [pa.uint64(), pa.list_(pa.int8()), pa.null(), pa.duration("s")])
def test_other_types_of_arrow(stored: pa.DataType) -> None:
    with pytest.raises(UnsupportedError, match="no file index"):
        type_of(stored)


@given(data=st.data())
def test_factors(data: st.DataObject) -> None:
    column = data.draw(columns(data.draw(st.sampled_from(TYPES))))
    codes = coded(column)
    factors = group_rows(codes)
    assert codes.keys.ascending()
    held = {int(row): column.keys[i] for i, row in enumerate(column.rows)}
    found = {
        int(row): codes.keys[code]
        for code in range(len(codes.keys))
        for row in factors.rows[factors.starts[code] : factors.starts[code + 1]]
    }
    assert found == held
    assert set(factors.nulls.tolist()) == set(range(column.row_count)) - set(held)
    assert {row: codes.keys[int(codes.codes[row])] for row in held} == held
    assert (codes.codes[factors.nulls] == -1).all()
