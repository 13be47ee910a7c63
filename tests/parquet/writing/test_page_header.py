"""The header of a page for another stored body: the new size, a checksum, all else as it was."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import DataPageHeader, DictionaryPageHeader, PageHeader
from skipstone.parquet.pages.page import page_checksum
from skipstone.parquet.thrift.compact import BINARY, I32, Field, Writer
from skipstone.parquet.writing.file_writer import with_stored_body

NUMBERS = st.integers(-(2**31), 2**31 - 1)
SIZES = st.integers(0, 2**31 - 1)
INNER: dict[str, Any] = {
    "data_page_header": DataPageHeader(
        num_values=20_000,
        encoding=Encoding.PLAIN,
        definition_level_encoding=Encoding.RLE,
        repetition_level_encoding=Encoding.RLE,
    ),
    "dictionary_page_header": DictionaryPageHeader(num_values=3, encoding=Encoding.PLAIN),
}
UNKNOWN = st.lists(
    st.builds(Field, st.integers(9, 200), st.just(BINARY), st.binary(max_size=5)),
    max_size=3,
    unique_by=lambda each: each.id,
)


@given(SIZES, st.none() | NUMBERS, st.none() | st.sampled_from(list(INNER)), UNKNOWN, st.data())
def test_of_any_header(
    size: int, crc: int | None, inner: str | None, unknown: list[Field], data: st.DataObject
) -> None:
    old = PageHeader(
        type=data.draw(st.sampled_from(PageType)),
        uncompressed_page_size=size,
        compressed_page_size=data.draw(SIZES),
        crc=crc,
        unknown=tuple(sorted(unknown)),
        **{} if inner is None else {inner: INNER[inner]},
    )
    body, checksum = data.draw(st.binary(max_size=300)), data.draw(st.booleans())
    has_checksum = checksum or crc is not None
    new = replace(
        old,
        compressed_page_size=len(body),
        crc=page_checksum(body) if has_checksum else None,
    )
    for given_header in (old.to_bytes(), memoryview(old.to_bytes())):
        assert with_stored_body(given_header, body, checksum=checksum) == new.to_bytes()


def fields(*found: tuple[int, int], long: bool) -> bytes:
    """A struct of integers by their ids, each id written whole if ``long``."""
    writer, previous = Writer(), 0
    for id, value in found:
        if long:
            writer.out.append(I32)
            writer.integer(id)
            writer.integer(value)
        else:
            writer.field(id, I32, value, previous)
        previous = id
    writer.stop()
    return bytes(writer.out)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    "others", [(), ((4, 77),), ((9, 5),), ((4, 77), (9, 5)), ((4, 77), (200, 5))]
)
def test_of_any_way_to_write_ids(others: tuple[tuple[int, int], ...], long: bool) -> None:
    body = b"the new body"
    header = fields((1, 0), (2, 100), (3, 100), *others, long=long)
    found = PageHeader.from_bytes(with_stored_body(header, body, checksum=True))
    assert found == replace(
        PageHeader.from_bytes(header), compressed_page_size=len(body), crc=page_checksum(body)
    )
    assert (found.crc or 0) & 0xFFFFFFFF == zlib.crc32(body)


def test_fields_in_another_order() -> None:
    writer = Writer()
    for id, value, previous in ((3, 100, 0), (2, 100, 20), (1, 0, 20)):
        writer.field(id, I32, value, previous)
    writer.stop()
    found = PageHeader.from_bytes(with_stored_body(bytes(writer.out), b"body", checksum=True))
    assert found == PageHeader(
        type=PageType.DATA_PAGE,
        uncompressed_page_size=100,
        compressed_page_size=4,
        crc=page_checksum(b"body"),
    )


@pytest.mark.parametrize("cut", [0, 1, 3, 7, 8])
def test_of_half_a_header(cut: int) -> None:
    header = fields((1, 0), (2, 100), (3, 100), long=False)
    with pytest.raises(FormatError):
        with_stored_body(header[:cut], b"body", checksum=True)


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_an_integer_of_more_than_32_bits_is_refused(at: int) -> None:
    writer = Writer()
    for id in range(1, 5):
        writer.out.append(1 << 4 | I32)
        writer.varint(1 << 32 if id == at + 1 else 8)
    writer.stop()
    with pytest.raises(FormatError, match="more than 32 bits"):
        with_stored_body(bytes(writer.out), b"body", checksum=True)
