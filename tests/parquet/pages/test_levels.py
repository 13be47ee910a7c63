"""Levels of both page versions, and what the trivial ones look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings import rle
from skipstone.parquet.format.enums import Encoding, PageType, Type
from skipstone.parquet.format.metadata import SchemaElement
from skipstone.parquet.format.schema import ColumnDescriptor, Schema
from skipstone.parquet.pages.levels import levels_v1, levels_v2, row_starts
from skipstone.parquet.pages.page import Page
from tests.parquet.encodings.drawing import bit_packed

if TYPE_CHECKING:
    import numpy.typing as npt

LISTED = Schema.of(
    [
        SchemaElement(name="root", num_children=1),
        SchemaElement(name="a", repetition_type=1, num_children=1),
        SchemaElement(name="list", repetition_type=2, num_children=1),
        SchemaElement(name="element", repetition_type=1, type=Type.INT32),
    ]
).leaves[0]
REQUIRED = Schema.of(
    [
        SchemaElement(name="root", num_children=1),
        SchemaElement(name="a", repetition_type=0, type=Type.INT32),
    ]
).leaves[0]


def page(count: int, repetition: int = 3, definition: int = 3, **given: Any) -> Page:
    return Page(
        type=PageType.DATA_PAGE,
        ordinal=0,
        offset=0,
        header_length=0,
        header_bytes=b"",
        body=memoryview(b""),
        uncompressed_page_size=0,
        num_values=count,
        definition_level_encoding=definition,
        repetition_level_encoding=repetition,
        **given,
    )


LEVELS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=60)


@given(LEVELS, st.sampled_from([Encoding.RLE, Encoding.BIT_PACKED]), st.binary(max_size=3))
def test_v1(levels: list[tuple[int, int]], encoding: Encoding, values: bytes) -> None:
    pair = np.array(levels, np.int32)
    write = rle.encode_prefixed if encoding == Encoding.RLE else bit_packed
    body = write(pair[:, 0], 1) + write(pair[:, 1], 2)
    found = levels_v1(page(len(pair), encoding, encoding), memoryview(body + values), LISTED)
    check(found[0], pair[:, 0], 0)
    check(found[1], pair[:, 1], 3)
    assert found[2] == len(body)


@given(LEVELS, st.binary(max_size=3))
def test_v2(levels: list[tuple[int, int]], values: bytes) -> None:
    pair = np.array(levels, np.int32)
    parts = rle.encode(pair[:, 0], 1), rle.encode(pair[:, 1], 2)
    header = page(
        len(pair),
        repetition_levels_byte_length=len(parts[0]),
        definition_levels_byte_length=len(parts[1]),
    )
    found = levels_v2(header, memoryview(b"".join(parts) + values), LISTED)
    check(found[0], pair[:, 0], 0)
    check(found[1], pair[:, 1], 3)
    assert found[2] == len(parts[0]) + len(parts[1])


def check(found: object, expected: npt.NDArray[Any], trivial: int) -> None:
    if (expected == trivial).all():
        assert found is None
    else:
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.uint8
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("encoding", [Encoding.RLE, Encoding.BIT_PACKED, 77])
def test_levels_that_cannot_vary_are_not_there_whatever_is_declared(encoding: int) -> None:
    body = memoryview(b"values")
    assert levels_v1(page(5, encoding, encoding), body, REQUIRED) == (None, None, 0)
    assert levels_v2(page(5), body, REQUIRED) == (None, None, 0)


def test_an_empty_page_may_have_no_levels_at_all() -> None:
    assert levels_v1(page(0), memoryview(b""), LISTED) == (None, None, 0)
    assert levels_v2(page(0), memoryview(b""), LISTED) == (None, None, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x02\0\0",
        b"\xff\xff\xff\xff\x06\x00",
        b"\x02\0\0\0\x02\x00" + b"\x02\0\0\0\x06\x03",  # one repetition level of three
        b"\x02\0\0\0\x06\x00" + b"\x02\0\0\0\x02\x03",  # one definition level of three
        b"\x02\0\0\0\x06\x02" + b"\x02\0\0\0\x06\x03",  # a repetition level wider than 1 bit
    ],
)
def test_levels_cut_or_lying(body: bytes) -> None:
    with pytest.raises(FormatError):
        levels_v1(page(3), memoryview(body), LISTED)


@pytest.mark.parametrize("lengths", [(-1, 2), (2, -1), (3, 4), (1 << 31, 0)])
def test_lengths_of_v2_levels_outside_the_page(lengths: tuple[int, int]) -> None:
    header = page(
        3, repetition_levels_byte_length=lengths[0], definition_levels_byte_length=lengths[1]
    )
    with pytest.raises(FormatError):
        levels_v2(header, memoryview(b"\x06\x00\x06\x03"), LISTED)


def test_levels_above_the_schemas() -> None:
    two = leaf_of_levels(2)
    body = rle.encode_prefixed(np.array([0, 3, 1]), 2)
    with pytest.raises(FormatError, match="level"):
        levels_v1(page(3), memoryview(body), two)


def test_other_encodings_of_levels() -> None:
    with pytest.raises(UnsupportedError):
        levels_v1(page(3, Encoding.PLAIN), memoryview(b"\0" * 9), LISTED)


def leaf_of_levels(definition: int) -> ColumnDescriptor:
    groups = [
        SchemaElement(name=f"g{i}", repetition_type=1, num_children=1)
        for i in range(definition - 1)
    ]
    leaf = SchemaElement(name="leaf", repetition_type=1, type=Type.INT32)
    return Schema.of([SchemaElement(name="root", num_children=1), *groups, leaf]).leaves[0]


def test_rows_begin_where_nothing_repeats() -> None:
    assert row_starts(np.array([1, 0, 2, 0, 0, 1], np.uint8)).tolist() == [1, 3, 4]
    assert row_starts(np.zeros(0, np.uint8)).tolist() == []
