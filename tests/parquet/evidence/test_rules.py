"""The format's rules on statistics, one by one: what is used, and what says nothing."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.parquet.format.enums import ConvertedType, FieldRepetitionType, Type
from skipstone.parquet.format.metadata import (
    ColumnChunk,
    ColumnMetaData,
    ColumnOrder,
    DecimalType,
    FileMetaData,
    GeometryType,
    IntType,
    LogicalType,
    RowGroup,
    SchemaElement,
    Statistics,
    TimestampType,
    TimeUnit,
    VariantType,
)
from skipstone.parquet.thrift.compact import STRUCT, Field, Struct
from skipstone.parquet.thrift.structs import Empty
from skipstone.predicate.tree import Leaf, Op
from skipstone.predicate.types import TIMESTAMP, TIMESTAMP_NTZ
from tests.parquet.evidence.written import Written

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPE = ColumnOrder(TYPE_ORDER=Empty())
IEEE = ColumnOrder(IEEE_754_TOTAL_ORDER=Empty())
INT96 = ColumnOrder(INT96_TIMESTAMP_ORDER=Empty())
NEWER = ColumnOrder(unknown=(Field(9, STRUCT, Struct(())),))
NAN, INF = math.nan, math.inf


def one_column(
    element: dict[str, Any],
    statistics: Sequence[Statistics | None],
    *,
    order: ColumnOrder | None = TYPE,
    created_by: str | None = "parquet-mr version 1.15.0 (build abc)",
    rows: int = 10,
    num_values: int | None = None,
) -> Written:
    """A footer of one column ``c``, a row group of ``rows`` rows for each of ``statistics``."""
    fields = {"repetition_type": FieldRepetitionType.OPTIONAL, **element}
    leaf = SchemaElement(name="c", **fields)
    groups = tuple(
        RowGroup(
            columns=(
                ColumnChunk(
                    file_offset=4,
                    meta_data=ColumnMetaData(
                        type=element["type"],
                        encodings=(),
                        path_in_schema=("c",),
                        codec=0,
                        num_values=rows if num_values is None else num_values,
                        total_uncompressed_size=10,
                        total_compressed_size=10,
                        data_page_offset=4,
                        statistics=each,
                    ),
                ),
            ),
            total_byte_size=10,
            num_rows=rows,
        )
        for each in statistics
    )
    footer = FileMetaData(
        version=2,
        schema=(SchemaElement(name="root", num_children=1), leaf),
        num_rows=rows * len(groups),
        row_groups=groups,
        created_by=created_by,
        column_orders=None if order is None else (order,),
    ).to_bytes()
    return Written(b"PAR1" + bytes(96) + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def between(low: bytes | None, high: bytes | None, **other: Any) -> Statistics:
    return Statistics(min_value=low, max_value=high, **{"null_count": 0, **other})


def old(low: bytes | None, high: bytes | None, **other: Any) -> Statistics:
    return Statistics(min=low, max=high, **{"null_count": 0, **other})


def i32(value: int) -> bytes:
    return struct.pack("<i", value)


def i64(value: int) -> bytes:
    return struct.pack("<q", value)


def f64(value: float) -> bytes:
    return struct.pack("<d", value)


def decimal(value: int, width: int) -> bytes:
    return value.to_bytes(width, "big", signed=True)


def int96(nanos: int, day: int) -> bytes:
    return struct.pack("<qi", nanos, day + 2_440_588)


def leaf(type: pa.DataType, op: Op, *values: Any) -> Leaf:
    return Leaf("c", type, op, values)


def unit(**which: Any) -> TimeUnit:
    return TimeUnit(**which)


MS, US, NS = (
    unit(MILLIS=Empty()),
    unit(MICROS=Empty()),
    unit(NANOS=Empty()),
)


def stamp(unit: TimeUnit, *, utc: bool = True) -> LogicalType:
    return LogicalType(TIMESTAMP=TimestampType(isAdjustedToUTC=utc, unit=unit))


def integer(bits: int, *, signed: bool) -> LogicalType:
    return LogicalType(INTEGER=IntType(bitWidth=bits, isSigned=signed))


def digits(precision: int, scale: int) -> LogicalType:
    return LogicalType(DECIMAL=DecimalType(scale=scale, precision=precision))


FLBA, BYTES = Type.FIXED_LEN_BYTE_ARRAY, Type.BYTE_ARRAY
BIG = 2**63

# An element, the bytes of a lower and an upper bound, the type as read, and a value below, within
# and above them, in Spark's order.
ORDERED: list[tuple[dict[str, Any], bytes, bytes, pa.DataType, tuple[Any, Any, Any]]] = [
    ({"type": Type.INT32}, i32(-5), i32(5), pa.int32(), (-6, 0, 6)),
    ({"type": Type.INT64}, i64(-5), i64(5), pa.int64(), (-6, 0, 6)),
    ({"type": Type.BOOLEAN}, b"\1", b"\1", pa.bool_(), (False, True, None)),
    (
        {"type": Type.INT32, "logicalType": integer(8, signed=True)},
        i32(-5),
        i32(5),
        pa.int8(),
        (-6, 0, 6),
    ),
    # Unsigned: the bytes of 2^31 + 1 are those of a negative int.
    (
        {"type": Type.INT32, "logicalType": integer(32, signed=False)},
        i32(7),
        i32(-(2**31) + 1),
        pa.int64(),
        (6, 2**31, 2**31 + 2),
    ),
    (
        {"type": Type.INT32, "converted_type": ConvertedType.UINT_8},
        i32(7),
        i32(200),
        pa.int16(),
        (6, 130, 201),
    ),
    (
        {"type": Type.INT64, "converted_type": ConvertedType.UINT_64},
        i64(7),
        i64(-1),
        pa.decimal128(20, 0),
        (6, 2**63, None),
    ),
    # Decimals are signed, in whatever bytes.
    (
        {"type": Type.INT32, "logicalType": digits(9, 2)},
        i32(-500),
        i32(500),
        pa.decimal128(9, 2),
        (-501, 0, 501),
    ),
    (
        {"type": FLBA, "type_length": 5, "logicalType": digits(10, 2)},
        decimal(-500, 5),
        decimal(500, 5),
        pa.decimal128(10, 2),
        (-501, 0, 501),
    ),
    (
        {"type": FLBA, "type_length": 16, "logicalType": digits(38, 2)},
        decimal(-(10**30), 16),
        decimal(5, 16),
        pa.decimal128(38, 2),
        (-(10**30) - 1, -7, 6),
    ),
    (
        {"type": BYTES, "converted_type": ConvertedType.DECIMAL, "precision": 20, "scale": 0},
        decimal(-129, 2),
        decimal(127, 1),
        pa.decimal128(20, 0),
        (-130, -128, 128),
    ),
    (
        {"type": BYTES, "logicalType": digits(7, 0)},
        decimal(-129, 2),
        decimal(127, 1),
        pa.decimal128(7, 0),
        (-130, -128, 128),
    ),
    (
        {"type": Type.INT32, "converted_type": ConvertedType.DATE},
        i32(-5),
        i32(5),
        pa.date32(),
        (-6, 0, 6),
    ),
    (
        {"type": Type.INT64, "logicalType": stamp(MS)},
        i64(-5),
        i64(5),
        TIMESTAMP,
        (-5001, 4999, 5001),
    ),
    (
        {"type": Type.INT64, "logicalType": stamp(US, utc=False)},
        i64(-5),
        i64(5),
        TIMESTAMP_NTZ,
        (-6, 0, 6),
    ),
    # Nanoseconds round outwards.
    (
        {"type": Type.INT64, "logicalType": stamp(NS)},
        i64(-5001),
        i64(5001),
        TIMESTAMP,
        (-7, 6, 7),
    ),
    ({"type": BYTES}, b"\x7f", b"\x80\x01", pa.binary(), (b"\x7e", b"\x80", b"\x80\x01\x00")),
    (
        {"type": BYTES, "logicalType": LogicalType(STRING=Empty())},
        b"a",
        "é".encode(),
        pa.string(),
        ("Z", "z", "日"),
    ),
    (
        {"type": FLBA, "type_length": 16, "logicalType": LogicalType(UUID=Empty())},
        b"\x01" * 16,
        b"\xfe" * 16,
        pa.binary(),
        (b"\0" * 16, b"\x7f" * 16, b"\xff" * 16),
    ),
]


@pytest.mark.parametrize("element, low, high, type, values", ORDERED)
def test_bounds_in_the_order_of_the_type(
    element: dict[str, Any], low: bytes, high: bytes, type: pa.DataType, values: tuple[Any, ...]
) -> None:
    """Three row groups: with bounds, without, and with bounds the wrong way round (or equal)."""
    written = one_column(element, [between(low, high), None, between(high, low)])
    below, within, above = values
    same = low == high
    for value, inside in ((below, False), (within, True), (above, False)):
        if value is None:
            continue
        # The third contradicts itself, unless both are one.
        expected = [inside, True, inside or not same]
        assert written.may("statistics", leaf(type, Op.EQ, value)) == expected
        assert written.may("statistics", leaf(type, Op.IN, value)) == expected
        assert written.must("statistics", leaf(type, Op.NE, value)) == [
            not inside,
            False,
            same and not inside,
        ]
    assert written.may("statistics", leaf(type, Op.LT, below))[0] is False
    assert written.must("statistics", leaf(type, Op.GT, below))[:2] == [True, False]
    # Bounds of another length than the type's are no bounds.
    if element["type"] not in (Type.BYTE_ARRAY, FLBA):
        cut = one_column(element, [between(low[:-1], high + b"\0")])
        assert cut.may("statistics", leaf(type, Op.EQ, below)) == [True]


UNORDERED: list[dict[str, Any]] = [
    {"type": FLBA, "type_length": 12, "converted_type": ConvertedType.INTERVAL},
    {"type": BYTES, "logicalType": LogicalType(GEOMETRY=GeometryType())},
    {"type": BYTES, "logicalType": LogicalType(VARIANT=VariantType())},
    {"type": BYTES, "logicalType": LogicalType(unknown=(Field(99, STRUCT, Struct(())),))},
    {"type": BYTES, "converted_type": 77},
    {"type": FLBA, "type_length": 3, "logicalType": LogicalType(STRING=Empty())},
]


@pytest.mark.parametrize("element", UNORDERED)
def test_types_without_an_order_say_nothing_but_nulls(element: dict[str, Any]) -> None:
    bound = b"k" * element.get("type_length", 1)
    all_null = between(None, None, null_count=10)
    written = one_column(element, [between(bound, bound), all_null])
    asked = leaf(pa.binary(), Op.EQ, b"z" * len(bound))
    assert written.may("statistics", asked) == [True, False]
    assert written.must("statistics", leaf(pa.binary(), Op.IS_NULL)) == [False, True]


def test_without_column_orders_the_bounds_are_ignored() -> None:
    asked = leaf(pa.int32(), Op.EQ, 100)
    for order, expected in ((TYPE, False), (None, True), (NEWER, True), (IEEE, True)):
        written = one_column({"type": Type.INT32}, [between(i32(1), i32(5))], order=order)
        assert written.may("statistics", asked) == [expected]


DEPRECATED = [
    ({"type": Type.INT32}, i32(1), i32(5), leaf(pa.int32(), Op.EQ, 100)),
    (
        {"type": Type.INT32, "converted_type": ConvertedType.DATE},
        i32(1),
        i32(5),
        leaf(pa.date32(), Op.EQ, 100),
    ),
    ({"type": Type.INT64, "logicalType": stamp(US)}, i64(1), i64(5), leaf(TIMESTAMP, Op.EQ, 100)),
    (
        {"type": Type.INT64, "logicalType": digits(18, 0)},
        i64(1),
        i64(5),
        leaf(pa.decimal128(18, 0), Op.EQ, 100),
    ),
    ({"type": Type.DOUBLE}, f64(1), f64(5), leaf(pa.float64(), Op.EQ, 100.0)),
    ({"type": Type.BOOLEAN}, b"\1", b"\1", leaf(pa.bool_(), Op.EQ, False)),
]
NOT_AS_SIGNED = [
    (
        {"type": Type.INT32, "logicalType": integer(32, signed=False)},
        i32(1),
        i32(5),
        leaf(pa.int64(), Op.EQ, 100),
    ),
    ({"type": BYTES}, b"a", b"c", leaf(pa.binary(), Op.EQ, b"z")),
    (
        {"type": FLBA, "type_length": 1, "logicalType": digits(2, 0)},
        b"\1",
        b"\5",
        leaf(pa.decimal128(2, 0), Op.EQ, 9),
    ),
    (
        {"type": FLBA, "type_length": 2, "logicalType": LogicalType(FLOAT16=Empty())},
        struct.pack("<e", 1),
        struct.pack("<e", 5),
        leaf(pa.float32(), Op.EQ, 100.0),
    ),
]


@pytest.mark.parametrize("element, low, high, asked", DEPRECATED)
@pytest.mark.parametrize("order", [None, TYPE])
def test_deprecated_bounds_of_signed_types_are_used(
    element: dict[str, Any], low: bytes, high: bytes, asked: Leaf, order: ColumnOrder | None
) -> None:
    written = one_column(element, [old(low, high), old(low, None)], order=order)
    assert written.may("statistics", asked) == [False, True]
    # Of an order that nobody knows, nothing is used.
    newer = one_column(element, [old(low, high)], order=NEWER)
    assert newer.may("statistics", asked) == [True]


@pytest.mark.parametrize("element, low, high, asked", NOT_AS_SIGNED)
def test_deprecated_bounds_of_other_types_only_where_they_are_equal(
    element: dict[str, Any], low: bytes, high: bytes, asked: Leaf
) -> None:
    written = one_column(element, [old(low, high), old(low, low)], order=None)
    assert written.may("statistics", asked) == [True, False]


def test_deprecated_bounds_of_bytes_take_a_writer_that_wrote_its_own() -> None:
    asked = leaf(pa.binary(), Op.EQ, b"z")
    for created_by, expected in (
        (None, True),
        ("", True),
        ("parquet-mr", True),
        ("parquet-mr version 1.6.0 (build x)", True),
        ("parquet-mr version 1.7.9", True),
        ("parquet-mr version 1.8.0 (build x)", False),
        ("parquet-mr version 1.10.1", False),
        ("parquet-cpp version 1.3.2", False),
    ):
        written = one_column({"type": BYTES}, [old(b"a", b"a")], order=None, created_by=created_by)
        assert written.may("statistics", asked) == [expected], created_by


def test_int96_only_in_its_own_order() -> None:
    """A day of nanoseconds: from 1970-01-02 00:00 to 1970-01-03 00:00:00.000001001."""
    stats = between(int96(0, 1), int96(1001, 2))
    day = 86_400_000_000
    for order, inside in ((INT96, False), (TYPE, True), (None, True)):
        written = one_column({"type": Type.INT96}, [stats], order=order)
        for type in (TIMESTAMP, TIMESTAMP_NTZ):
            assert written.may("statistics", leaf(type, Op.LT, day)) == [inside]
            assert written.may("statistics", leaf(type, Op.GT, 2 * day + 2)) == [inside]
            assert written.may("statistics", leaf(type, Op.EQ, 2 * day + 2)) == [True]
    odd = one_column({"type": Type.INT96}, [between(int96(-1, 1), int96(0, 2))], order=INT96)
    assert odd.may("statistics", leaf(TIMESTAMP, Op.LT, 0)) == [True]
    same = one_column({"type": Type.INT96}, [old(int96(0, 1), int96(0, 1))], order=None)
    assert same.may("statistics", leaf(TIMESTAMP, Op.EQ, 0)) == [True]


# -- nulls -----------------------------------------------------------------------------------------


def test_an_absent_null_count_is_not_zero() -> None:
    """Row groups: no count, none, some, all, more than there are rows; nulls have no bounds."""
    counts, bound = [None, 0, 4, 10, 11], [i32(1), i32(1), i32(1), None, i32(1)]
    stats = [
        Statistics(min_value=value, max_value=value, null_count=n)
        for n, value in zip(counts, bound, strict=True)
    ]
    written = one_column({"type": Type.INT32}, stats)
    one = leaf(pa.int32(), Op.EQ, 1)
    assert written.must("statistics", one) == [False, True, False, False, False]
    assert written.may("statistics", one) == [True, True, True, False, True]
    null, there = leaf(pa.int32(), Op.IS_NULL), leaf(pa.int32(), Op.NOT_NULL)
    assert written.may("statistics", null) == [True, False, True, True, True]
    assert written.must("statistics", null) == [False, False, False, True, False]
    assert written.may("statistics", there) == [True, True, True, False, True]
    # A column that cannot be null has none, whatever was counted.
    required = {"type": Type.INT32, "repetition_type": FieldRepetitionType.REQUIRED}
    assert one_column(required, stats).must("statistics", one) == [True, True, True, False, True]
    assert one_column(required, [None]).may("statistics", null) == [False]


def test_chunks_that_do_not_hold_a_value_per_row_say_nothing() -> None:
    stats = [between(i32(1), i32(5))]
    assert one_column({"type": Type.INT32}, stats, num_values=11).may(
        "statistics", leaf(pa.int32(), Op.EQ, 100)
    ) == [True]


# -- floats ----------------------------------------------------------------------------------------


def floats(*stats: Statistics, order: ColumnOrder = TYPE) -> Written:
    return one_column({"type": Type.DOUBLE}, stats, order=order)


def number(op: Op, *values: float) -> Leaf:
    return leaf(pa.float64(), op, *values)


def test_an_upper_bound_holds_only_without_nan() -> None:
    """Row groups of 1 to 50, with no count of NaN, a count of 0, and a count of 3."""
    written = floats(*[between(f64(1), f64(50), nan_count=n) for n in (None, 0, 3)])
    assert written.may("statistics", number(Op.GT, 100.0)) == [True, False, True]
    assert written.may("statistics", number(Op.EQ, NAN)) == [True, False, True]
    assert written.may("statistics", number(Op.NE, 1.0)) == [True, True, True]
    assert written.must("statistics", number(Op.LE, 50.0)) == [False, True, False]
    # No NaN is equal to a number, or below one: the bounds of the numbers do.
    assert written.may("statistics", number(Op.EQ, 100.0)) == [False] * 3
    assert written.may("statistics", number(Op.IN, 100.0, 200.0)) == [False] * 3
    assert written.may("statistics", number(Op.IN, 100.0, NAN)) == [True, False, True]
    assert written.may("statistics", number(Op.LT, 1.0)) == [False] * 3
    # NaN is above every number, and it differs from all of them.
    assert written.must("statistics", number(Op.GE, 1.0)) == [True] * 3
    assert written.must("statistics", number(Op.NE, 100.0)) == [True] * 3
    assert written.must("statistics", number(Op.NOT_IN, 100.0, NAN)) == [False, True, False]
    assert written.must("statistics", number(Op.LE, NAN)) == [True] * 3


def test_nan_in_the_bounds() -> None:
    """Row groups: NaN above, below, in both, and in both with a count of all values."""
    stats = [
        between(f64(1), f64(NAN)),
        between(f64(NAN), f64(5)),
        between(f64(NAN), f64(NAN)),
        between(f64(NAN), f64(NAN), nan_count=10),
    ]
    zero = number(Op.EQ, 0.0)
    assert floats(*stats).may("statistics", zero) == [True, True, True, False]
    assert floats(*stats, order=IEEE).may("statistics", zero) == [True, True, True, False]
    assert floats(*stats).must("statistics", number(Op.EQ, NAN)) == [False, False, False, True]
    # Every value is NaN, says the count alone; unless there are bounds that are numbers.
    counted = [between(None, None, nan_count=10), between(f64(1), f64(2), nan_count=10)]
    assert floats(*counted).may("statistics", zero) == [False, False]
    assert floats(*counted).must("statistics", number(Op.GT, INF)) == [True, False]


def test_the_total_order_needs_a_count_of_nan() -> None:
    written = floats(between(f64(1), f64(5)), between(f64(1), f64(5), nan_count=0), order=IEEE)
    assert written.may("statistics", number(Op.EQ, 0.0)) == [True, False]
    assert written.may("statistics", number(Op.GT, 6.0)) == [True, False]


@pytest.mark.parametrize("order", [TYPE, IEEE])
def test_both_zeros_are_one(order: ColumnOrder) -> None:
    """Bounds of 0.0 and 5, -5 and -0.0, in either order: each row group may hold either zero."""
    stats = (between(f64(0.0), f64(5), nan_count=0), between(f64(-5), f64(-0.0), nan_count=0))
    written = floats(*stats, order=order)
    for zero in (0.0, -0.0):
        assert written.may("statistics", number(Op.EQ, zero)) == [True, True]
        assert written.may("statistics", number(Op.LT, zero)) == [False, True]
        assert written.must("statistics", number(Op.GE, zero)) == [True, False]


# -- truncated bounds ------------------------------------------------------------------------------


def test_truncated_bounds_bound_and_are_never_attained() -> None:
    """A bound that may have been cut: "Al" to "Kf"; nothing is known to be either."""
    exact = {"is_min_value_exact": False, "is_max_value_exact": False}
    element = {"type": BYTES, "logicalType": LogicalType(STRING=Empty())}
    written = one_column(element, [between(b"Al", b"Kf", **exact)])
    assert written.may("statistics", leaf(pa.string(), Op.EQ, "Ak")) == [False]
    assert written.may("statistics", leaf(pa.string(), Op.EQ, "Kg")) == [False]
    assert written.may("statistics", leaf(pa.string(), Op.EQ, "Alice")) == [True]
    assert written.must("statistics", leaf(pa.string(), Op.STARTS_WITH, "A")) == [False]
    assert written.must("statistics", leaf(pa.string(), Op.LT, "Kf")) == [False]


def test_truncated_bounds_of_long_decimals_are_nothing() -> None:
    element = {"type": BYTES, "logicalType": digits(20, 0)}
    asked = leaf(pa.decimal128(20, 0), Op.EQ, 10**15)
    for exact, expected in ((None, False), (True, False), (False, True)):
        stats = between(b"\1", b"\2", is_min_value_exact=exact, is_max_value_exact=exact)
        assert one_column(element, [stats]).may("statistics", asked) == [expected]


def test_a_type_that_the_table_has_widened() -> None:
    written = one_column({"type": Type.INT32}, [between(i32(1), i32(5))])
    for type, inside, outside in (
        (pa.int64(), 3, 2**40),
        (pa.decimal128(12, 1), 30, 35),
        (pa.float64(), 3.0, 3.5),
    ):
        assert written.may("statistics", leaf(type, Op.EQ, inside)) == [True]
        assert written.may("statistics", leaf(type, Op.EQ, outside)) == [False]
        assert written.must("statistics", leaf(type, Op.NE, outside)) == [True]
    # What has no exact counterpart says nothing but nulls.
    assert written.may("statistics", leaf(TIMESTAMP, Op.EQ, 100)) == [True]


def test_files_that_store_a_column_differently() -> None:
    """The first file has ints, the second longs, the third lacks the column."""
    parts = [
        one_column({"type": Type.INT32}, [between(i32(1), i32(5))] * 2),
        one_column({"type": Type.INT64}, [between(i64(1), i64(2**40))]),
        one_column({"type": Type.INT64}, [between(i64(1), i64(5))]),
    ]
    data = [each.fetching.files["/t/0.parquet"] for each in parts]
    written = Written(*data)
    written.files[2].columns = {}
    asked = leaf(pa.int64(), Op.GT, 100)
    answer = written.ask("statistics", asked)
    assert answer.bounds is not None
    assert answer.bounds.may.tolist() == [False, False, True, True]
    assert [reason.units for reason in answer.reasons] == [1]
    units = written.units(frozenset("c")).where(np.array([3, 1]))
    some = written.ask("statistics", asked, units).bounds
    assert some is not None
    assert some.may.tolist() == [True, False]
