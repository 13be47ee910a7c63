"""Thrift's compact protocol: any struct round trips, and the scan's functions read it alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.thrift import compact as thrift
from skipstone.parquet.thrift import kernel_wire as footer_wire
from skipstone.parquet.thrift.compact import (
    Field,
    Limits,
    Reader,
    Struct,
    Writer,
    read_struct,
    write_struct,
)
from tests.parquet.format.wire import structs


@given(structs(), st.binary(max_size=4))
def test_any_struct_round_trips_and_ends_where_it_ends(value: Struct, after: bytes) -> None:
    data = write_struct(value)
    found, at = read_struct(data + after)
    assert found == value
    assert at == len(data)
    assert write_struct(found) == data


@given(structs(), st.binary(max_size=4))
def test_skip_ends_where_the_reader_ends(value: Struct, after: bytes) -> None:
    data = write_struct(value)
    stack = [0] * footer_wire.STACK
    assert footer_wire.skip(data + after, 0, len(data + after), thrift.STRUCT, stack) == len(data)


@given(structs())
def test_a_struct_cut_anywhere_is_refused_by_both_readers(value: Struct) -> None:
    data = write_struct(value)
    for stop in range(len(data)):
        with pytest.raises(FormatError):
            read_struct(data[:stop])
        stack = [0] * footer_wire.STACK
        assert footer_wire.skip(data[:stop], 0, stop, thrift.STRUCT, stack) < 0


@given(st.binary(max_size=60))
def test_any_bytes_give_a_struct_or_a_format_error_of_both_readers(data: bytes) -> None:
    stack = [0] * footer_wire.STACK
    skipped = footer_wire.skip(data, 0, len(data), thrift.STRUCT, stack)
    try:
        _, at = read_struct(data)
    except FormatError:
        # The reader also checks the ranges of integers, which matter only to who uses them.
        assert skipped < 0 or skipped <= len(data)
    else:
        assert skipped == at


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_integers_of_64_bits(value: int) -> None:
    writer = Writer()
    writer.integer(value)
    data = bytes(writer.out)
    assert Reader(data).integer(64) == value
    assert footer_wire.zigzag(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize(
    "data",
    [
        bytes([0xFF] * 10),  # more than 64 bits
        bytes([0x80] * 10 + [0]),  # eleven bytes
        bytes([0xFF] * 9 + [0x02]),  # bit 65
        b"\x80",  # cut
        b"",
    ],
)
def test_a_varint_that_is_none(data: bytes) -> None:
    with pytest.raises(FormatError):
        Reader(data).integer(64)
    assert footer_wire.zigzag(data, 0, len(data))[1] < 0


def test_a_varint_may_be_longer_than_it_needs() -> None:
    data = bytes([0x80] * 9 + [0])
    assert Reader(data).integer(64) == 0
    assert footer_wire.zigzag(data, 0, len(data)) == (0, 10)
    assert footer_wire.count(data, 0, len(data)) == (0, 10)


def test_sizes_beyond_the_bytes_are_refused_before_anything_is_made() -> None:
    for head in (b"\x19\xfc\xff\xff\xff\xff\x0f", b"\x18\xff\xff\xff\xff\x0f", b"\x1b\xff\xff\x03"):
        with pytest.raises(FormatError):
            read_struct(head)
        assert footer_wire.skip(head, 0, len(head), thrift.STRUCT, [0] * footer_wire.STACK) < 0


def test_depth_and_number_of_values_are_limited() -> None:
    deep = b"\x1c" * 100 + b"\x00" * 101
    with pytest.raises(FormatError, match="nested"):
        read_struct(deep)
    failure = footer_wire.skip(deep, 0, len(deep), thrift.STRUCT, [0] * footer_wire.STACK)
    assert "nested" in footer_wire.cause(failure)[1]
    many = write_struct(
        Struct((Field(1, thrift.LIST, thrift.ListOf(thrift.BYTE, tuple(range(100)))),))
    )
    with pytest.raises(FormatError, match="more values"):
        read_struct(many, limits=Limits(values=100))
    assert read_struct(many, limits=Limits(values=101))[1] == len(many)


def test_fields_of_a_struct_are_replaced_in_place_or_put_where_they_belong() -> None:
    value = Struct((Field(9, thrift.I32, 1), Field(2, thrift.I32, 2), Field(12, thrift.I32, 3)))
    assert value.replace(2, thrift.I64, 7).fields[1] == Field(2, thrift.I64, 7)
    assert [each.id for each in value.replace(11, thrift.I32, 0)] == [9, 2, 11, 12]
    assert [each.id for each in value.without(2)] == [9, 12]
    assert value.get(2) == 2
    assert value.get(3) is None
