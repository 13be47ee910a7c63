"""Declared structs: unknown fields live on, and fields newer than any writer at hand are read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import ConvertedType, Encoding, Type
from skipstone.parquet.format.metadata import (
    ColumnMetaData,
    ColumnOrder,
    DecimalType,
    FileMetaData,
    IntType,
    KeyValue,
    LogicalType,
    SchemaElement,
    Statistics,
)
from skipstone.parquet.thrift import compact as thrift
from skipstone.parquet.thrift.compact import Field, ListOf, Struct, read_struct, write_struct
from skipstone.parquet.thrift.structs import Empty
from tests.parquet.format.wire import structs

# ColumnMetaData by hand: encodings PLAIN and 77, codec ZSTD, num_values 3, sizes, an offset, then
# Statistics {min_value 6: "a", nan_count 9: 2}, then an extension under id 32767.
BY_HAND = bytes.fromhex(
    "1502"  # 1 i32: INT32
    "1925009a01"  # 2 list of 2 i32: 0, 77
    "250c"  # 4 i32: 6
    "1606"  # 5 i64: 3
    "1614"  # 6 i64: 10
    "1610"  # 7 i64: 8
    "2608"  # 9 i64: 4
    "3c"  # 12 struct
    "680161"  # 6 binary: "a"
    "3604"  # 9 i64: 2
    "00"
    "08feff03"  # binary, id 32767
    "03657874"  # "ext"
    "00"
)


def test_newer_fields_and_the_extension_are_read_and_written_back() -> None:
    found = ColumnMetaData.from_bytes(BY_HAND)
    assert found.type is Type.INT32
    assert found.encodings == (Encoding.PLAIN, 77)
    assert found.path_in_schema is None
    assert found.statistics == Statistics(min_value=b"a", nan_count=2)
    assert found.unknown == (Field(32767, thrift.BINARY, b"ext"),)
    assert found.to_bytes() == BY_HAND
    assert write_struct(read_struct(BY_HAND)[0]) == BY_HAND


@pytest.mark.parametrize(
    "data, name",
    [
        ("1c0000", "TYPE_ORDER"),
        ("2c0000", "IEEE_754_TOTAL_ORDER"),
        ("3c0000", "INT96_TIMESTAMP_ORDER"),
    ],
)
def test_column_orders(data: str, name: str) -> None:
    order = ColumnOrder.from_bytes(bytes.fromhex(data))
    assert list(order.to_dict()) == [name]
    assert order.to_bytes() == bytes.fromhex(data)


def test_a_column_order_of_tomorrow_is_none_of_the_known() -> None:
    data = bytes.fromhex("9c0000")  # 9: an empty struct
    order = ColumnOrder.from_bytes(data)
    assert [each.id for each in order.unknown] == [9]
    assert not any((order.TYPE_ORDER, order.IEEE_754_TOTAL_ORDER, order.INT96_TIMESTAMP_ORDER))
    assert order.to_bytes() == data


def test_the_file_logical_type_keeps_what_it_holds() -> None:
    # LogicalType {19: {1: i32 5}}
    data = bytes.fromhex("0c26150a0000")
    found = LogicalType.from_bytes(data)
    assert found.name == "FILE"
    assert Empty(unknown=(Field(1, thrift.I32, 5),)) == found.FILE
    assert found.to_bytes() == data


def test_a_logical_type_of_tomorrow_has_no_name_and_survives() -> None:
    data = bytes.fromhex("0c3c0000")  # 30
    found = LogicalType.from_bytes(data)
    assert found.name is None
    assert found.to_bytes() == data


def test_a_converted_type_stands_for_a_logical_type_where_there_is_none() -> None:
    element = SchemaElement(name="a", type=Type.INT32, converted_type=ConvertedType.UINT_8)
    assert IntType(bitWidth=8, isSigned=False) == element.annotation.INTEGER
    decimal = replace(element, converted_type=ConvertedType.DECIMAL, precision=9, scale=2)
    assert DecimalType(precision=9, scale=2) == decimal.annotation.DECIMAL
    map_ = replace(element, converted_type=ConvertedType.MAP_KEY_VALUE)
    assert map_.annotation.name == "MAP"
    assert replace(element, converted_type=ConvertedType.INTERVAL).annotation.name is None
    assert replace(element, converted_type=None).annotation.name is None
    tomorrow = LogicalType(unknown=(Field(99, thrift.STRUCT, Struct(())),))
    for logical in (LogicalType(DATE=Empty()), tomorrow):
        assert replace(element, logicalType=logical).annotation == logical


def test_a_field_of_another_wire_type_is_kept_as_unknown() -> None:
    # key as i32 instead of binary, value as it should be.
    wrong = write_struct(Struct((Field(1, thrift.I32, 4), Field(2, thrift.BINARY, b"v"))))
    with pytest.raises(FormatError, match=r"KeyValue\.key is missing"):
        KeyValue.from_bytes(wrong)
    both = write_struct(Struct((Field(1, thrift.BINARY, b"k"), Field(2, thrift.I32, 4))))
    found = KeyValue.from_bytes(both)
    assert (found.key, found.value) == ("k", None)
    assert found.to_bytes() == both


def test_text_that_is_no_text_survives() -> None:
    data = write_struct(Struct((Field(1, thrift.BINARY, b"\xff\xfe"),)))
    assert KeyValue.from_bytes(data).to_bytes() == data


def test_missing_required_fields_and_lists_of_other_elements() -> None:
    with pytest.raises(FormatError, match="missing"):
        SchemaElement.from_bytes(b"\x00")
    other = write_struct(
        Struct((Field(1, thrift.I32, 1), Field(2, thrift.LIST, ListOf(thrift.I32, (1,)))))
    )
    with pytest.raises(FormatError, match="other elements"):
        FileMetaData.from_bytes(other)


@given(structs())
def test_unknown_fields_live_on_in_the_order_of_their_ids(value: Struct) -> None:
    high = tuple(sorted({each.id: each for each in value if each.id > 9}.values()))
    data = write_struct(Struct((Field(3, thrift.I64, 5), *high)))
    found = Statistics.from_bytes(data)
    assert found.null_count == 5
    assert found.to_bytes() == data


def test_a_repr_has_the_fields_that_are_there() -> None:
    assert repr(KeyValue(key="a")) == "KeyValue(key='a')"
    shown = repr(ColumnMetaData.from_bytes(BY_HAND))
    assert shown.startswith("ColumnMetaData(unknown=(Field(id=32767")
    assert "statistics=Statistics(min_value=b'a', nan_count=2)" in shown
    assert "None" not in shown
