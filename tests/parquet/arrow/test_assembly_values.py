"""Physical values to Arrow arrays: types by annotation, decimals, INT96, what is repeated."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.arrow.arrow_types import leaf_type
from skipstone.parquet.arrow.arrow_values import TooLongError, leaf_array
from skipstone.parquet.format.enums import ConvertedType, FieldRepetitionType, Type
from skipstone.parquet.format.metadata import (
    DecimalType,
    IntType,
    LogicalType,
    SchemaElement,
    TimestampType,
    TimeType,
    TimeUnit,
)
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.pages.column_values import LeafColumn, Run
from skipstone.parquet.thrift.structs import Empty
from skipstone.parquet.values import ByteArrays
from skipstone.predicate.types import TIMESTAMP
from tests.parquet.whole_file import read_table

if TYPE_CHECKING:
    from pathlib import Path

REQUIRED = FieldRepetitionType.REQUIRED

# -- physical values -------------------------------------------------------------------------------


def leaf_of(type_: Type, **given: Any) -> Any:
    element = SchemaElement(name="a", repetition_type=REQUIRED, type=type_, **given)
    return Schema.of([SchemaElement(name="root", num_children=1), element]).leaves[0]


def array_of(leaf: Any, values: Any, type_: pa.DataType | None = None) -> pa.Array:
    held = LeafColumn(
        leaf=leaf,
        num_entries=len(values),
        definition_levels=None,
        repetition_levels=None,
        runs=(Run(values),),
    )
    return leaf_array(held, None, type_)


UNSCALED = [0, 1, -1, 127, 128, -128, -129, 10**9, -(10**9), 10**37, -(10**37)]


def minimal(value: int) -> bytes:
    return value.to_bytes((value.bit_length() // 8) + 1, "big", signed=True)


@pytest.mark.parametrize("width", [16, 20, 40])
def test_decimals_of_bytes(width: int) -> None:
    expected = [str(value) for value in UNSCALED]
    annotation = {"logicalType": LogicalType(DECIMAL=DecimalType(precision=38, scale=0))}
    texts = ByteArrays.from_list([minimal(value) for value in UNSCALED])
    found = array_of(leaf_of(Type.BYTE_ARRAY, **annotation), texts)
    assert [f"{each:f}" for each in found.to_pylist()] == expected
    fixed = b"".join(value.to_bytes(width, "big", signed=True) for value in UNSCALED)
    rows = np.frombuffer(fixed, np.uint8).reshape(-1, width)
    found = array_of(leaf_of(Type.FIXED_LEN_BYTE_ARRAY, type_length=width, **annotation), rows)
    assert [f"{each:f}" for each in found.to_pylist()] == expected


def test_decimals_beyond_their_type() -> None:
    annotation = {"logicalType": LogicalType(DECIMAL=DecimalType(precision=38, scale=0))}
    for wrong in (b"", b"\1" * 17):
        with pytest.raises(FormatError):
            array_of(leaf_of(Type.BYTE_ARRAY, **annotation), ByteArrays.from_list([wrong]))
    leaf = leaf_of(Type.FIXED_LEN_BYTE_ARRAY, type_length=17, **annotation)
    with pytest.raises(FormatError, match="precision"):
        array_of(leaf, np.ones((1, 17), np.uint8))
    for precision, scale in ((0, 0), (77, 0), (10, 11)):
        wrong_type = LogicalType(DECIMAL=DecimalType(precision=precision, scale=scale))
        with pytest.raises(UnsupportedError):
            leaf_type(leaf_of(Type.BYTE_ARRAY, logicalType=wrong_type))


def test_int96_as_spark_reads_it(golden: Path) -> None:
    path = golden / "parquet-testing" / "data" / "int96_from_spark.parquet"
    table = read_table(path.read_bytes())
    # One is outside the years that 64 bits of nanoseconds hold.
    assert datetime(9999, 12, 31, 3, tzinfo=UTC) in table.column(0).slice(0, 5).to_pylist()
    read = pq.read_table(path, coerce_int96_timestamp_unit="us")
    assert table.equals(read.cast(pa.schema([("a", TIMESTAMP)], read.schema.metadata)))


MILLIS = TimeUnit(MILLIS=Empty())
UNKNOWN_UNIT = TimeUnit()


@pytest.mark.parametrize(
    "type_, given, expected",
    [
        (Type.INT32, {}, pa.int32()),
        (Type.INT32, {"converted_type": ConvertedType.DATE}, pa.date32()),
        (Type.INT32, {"converted_type": ConvertedType.UINT_8}, pa.uint8()),
        (Type.INT32, {"converted_type": ConvertedType.TIMESTAMP_MILLIS}, pa.int32()),
        (Type.INT64, {"converted_type": ConvertedType.DATE}, pa.int64()),
        (Type.INT64, {"converted_type": ConvertedType.TIME_MICROS}, pa.time64("us")),
        (Type.INT64, {"converted_type": 99}, pa.int64()),
        (
            Type.INT64,
            {"converted_type": ConvertedType.TIMESTAMP_MICROS},
            pa.timestamp("us", "UTC"),
        ),
        (
            Type.INT64,
            {
                "logicalType": LogicalType(
                    TIMESTAMP=TimestampType(isAdjustedToUTC=False, unit=MILLIS)
                )
            },
            pa.timestamp("ms"),
        ),
        (
            Type.INT64,
            {
                "logicalType": LogicalType(
                    TIMESTAMP=TimestampType(isAdjustedToUTC=False, unit=UNKNOWN_UNIT)
                )
            },
            pa.int64(),
        ),
        (
            Type.INT32,
            {"logicalType": LogicalType(TIME=TimeType(isAdjustedToUTC=True, unit=MILLIS))},
            pa.time32("ms"),
        ),
        (
            Type.INT64,
            {"logicalType": LogicalType(INTEGER=IntType(bitWidth=64, isSigned=False))},
            pa.uint64(),
        ),
        (Type.INT64, {"logicalType": LogicalType(UNKNOWN=Empty())}, pa.null()),
        (Type.BYTE_ARRAY, {"logicalType": LogicalType(JSON=Empty())}, pa.string()),
        (Type.BYTE_ARRAY, {"converted_type": ConvertedType.BSON}, pa.binary()),
        (Type.BYTE_ARRAY, {"converted_type": ConvertedType.ENUM}, pa.string()),
        (
            Type.FIXED_LEN_BYTE_ARRAY,
            {"type_length": 2, "logicalType": LogicalType(FLOAT16=Empty())},
            pa.float16(),
        ),
        (
            Type.FIXED_LEN_BYTE_ARRAY,
            {"type_length": 12, "converted_type": ConvertedType.INTERVAL},
            pa.binary(12),
        ),
        (Type.INT96, {}, TIMESTAMP),
    ],
)
def test_types_of_leaves(type_: Type, given: dict[str, Any], expected: pa.DataType) -> None:
    assert leaf_type(leaf_of(type_, **given)) == expected


# -- a few bytes for many --------------------------------------------------------------------------


def repeated(leaf: Any, values: Any, count: int) -> LeafColumn:
    return LeafColumn(
        leaf=leaf,
        num_entries=count,
        definition_levels=None,
        repetition_levels=None,
        runs=(Run(values, np.zeros(count, np.int32)),),
    )


def test_a_long_value_is_not_repeated_without_end() -> None:
    million = np.zeros(1_000_000, np.uint8)
    text = ByteArrays(million, np.array([0, len(million)]))
    leaf = leaf_of(Type.BYTE_ARRAY)
    with pytest.raises(TooLongError):
        leaf_array(repeated(leaf, text, 3_000), None)
    with pytest.raises(UnsupportedError, match="repeated"):
        leaf_array(repeated(leaf, text, 5_000), None)
    fixed = leaf_of(Type.FIXED_LEN_BYTE_ARRAY, type_length=len(million))
    with pytest.raises(UnsupportedError, match="repeated"):
        leaf_array(repeated(fixed, million.reshape(1, -1), 5_000), None)
    nulls = LeafColumn(
        leaf=fixed, num_entries=5_000, definition_levels=None, repetition_levels=None, runs=()
    )
    with pytest.raises(UnsupportedError, match="nulls"):
        leaf_array(nulls, np.zeros(5_000, np.bool_))
