"""Index pages of 2013 as bytes: the example of the specification, round trips, hostile ones."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import PageType, Type
from skipstone.parquet.format.metadata import IndexPageHeader, PageHeader
from skipstone.parquet.pages.index_page import LONGEST_BODY, IndexPage, key_bytes
from skipstone.parquet.pages.page import Page, read_page
from skipstone.parquet.values import ByteArrays

K64 = 64 << 10
WIDTHS = {Type.INT32: 4, Type.INT64: 8, Type.INT96: 12, Type.FLOAT: 4, Type.DOUBLE: 8}


def made(keys: list[bytes] | None = None, ordinals: list[int] | None = None) -> IndexPage:
    """An index page over data pages of 64 KiB."""
    held = ordinals if keys is None else keys
    assert held is not None
    at = np.arange(len(held), dtype=np.int64) * K64
    return IndexPage(
        page_offset=at,
        page_len=np.full(len(held), K64, np.int64),
        keys=None if keys is None else ByteArrays.from_list(keys),
        ordinals=None if ordinals is None else np.array(ordinals, np.int64),
    )


def same(a: IndexPage, b: IndexPage) -> bool:
    keys = a.keys == b.keys if a.keys is not None and b.keys is not None else a.keys is b.keys
    pairs = [(a.page_offset, b.page_offset), (a.page_len, b.page_len)]
    if a.ordinals is not None and b.ordinals is not None:
        pairs.append((a.ordinals, b.ordinals))
    return bool(keys) and all(np.array_equal(*pair) for pair in pairs)


def test_the_example_of_the_specification() -> None:
    """{100, 0, 64K}, {500, 64K, 64K}, {502, 128K, 64K} of an i64 key, byte for byte."""
    page = made([value.to_bytes(8, "little") for value in (100, 500, 502)])
    entries = struct.pack("<9i", 0, 0, K64, 8, K64, K64, 16, 2 * K64, K64)
    assert page.body(Type.INT64) == entries + struct.pack("<3q", 100, 500, 502)
    stored = page.to_bytes(Type.INT64)
    # type 1; both sizes 60; crc; IndexPageHeader { 1: 3 }
    assert stored[:6] == bytes((0x15, 0x02, 0x15, 120, 0x15, 120))
    found = read_page(stored)
    assert found.crc_matches()
    assert found.header.index_page_header == IndexPageHeader(num_entries=3)
    assert bytes(found.header_bytes).endswith(bytes((0x2C, 0x15, 0x06, 0x00, 0x00)))
    assert same(IndexPage.from_page(found, Type.INT64), page)


def test_text_keys_have_their_lengths_and_ordinals_no_buffer() -> None:
    page = made([b"Oslo", b"", "Zürich".encode()])
    body = page.body(Type.BYTE_ARRAY)
    assert body[36:] == b"\4\0\0\0Oslo\0\0\0\0\7\0\0\0Z\xc3\xbcrich"
    assert struct.unpack("<9i", body[:36])[::3] == (0, 8, 12)
    rows = made(ordinals=[0, 20_000, 40_000])
    assert rows.body(Type.BYTE_ARRAY) == struct.pack(
        "<9i", 0, 0, K64, 20_000, K64, K64, 40_000, 2 * K64, K64
    )
    assert rows.to_dict() == {
        "min_ordinal": [0, 20_000, 40_000],
        "page_offset": [0, K64, 2 * K64],
        "page_len": [K64] * 3,
    }


@st.composite
def pages(draw: st.DrawFn) -> tuple[IndexPage, Type, int]:
    kind = draw(st.sampled_from([*WIDTHS, Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY, None]))
    count = draw(st.integers(1, 12))
    gaps = draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    lengths = draw(st.lists(st.integers(1, 1 << 20), min_size=count, max_size=count))
    offsets = np.cumsum([gap + (lengths[at - 1] if at else 0) for at, gap in enumerate(gaps)])
    width = draw(st.integers(1, 20))
    keys = ordinals = None
    if kind is None:
        rows = draw(st.lists(st.integers(0, (1 << 31) - 1), min_size=count, max_size=count))
        ordinals = np.array(sorted(rows), np.int64)
    else:
        size = WIDTHS.get(kind, width)
        sizes = (0, 30) if kind is Type.BYTE_ARRAY else (size, size)
        binary = st.binary(min_size=sizes[0], max_size=sizes[1])
        keys = ByteArrays.from_list(draw(st.lists(binary, min_size=count, max_size=count)))
    return (
        IndexPage(
            page_offset=offsets.astype(np.int64),
            page_len=np.array(lengths, np.int64),
            keys=keys,
            ordinals=ordinals,
        ),
        Type.INT64 if kind is None else kind,
        width,
    )


@given(pages())
def test_round_trip(drawn: tuple[IndexPage, Type, int]) -> None:
    page, kind, width = drawn
    again = IndexPage.from_page(read_page(page.to_bytes(kind, width)), kind, width)
    assert same(again, page)


@given(pages(), st.data())
@settings(max_examples=300)
def test_damaged_bytes_are_a_page_or_a_format_error(
    drawn: tuple[IndexPage, Type, int], data: st.DataObject
) -> None:
    page, kind, width = drawn
    body = bytearray(page.body(kind, width))
    for _ in range(data.draw(st.integers(1, 6))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    count = data.draw(st.sampled_from([len(page), 0, -1, 1, len(page) + 1, 1 << 30]))
    other = data.draw(st.sampled_from([kind, Type.INT32, Type.BYTE_ARRAY]))
    try:
        found = IndexPage.from_bytes(bytes(body[:cut]), count, other, width)
    except FormatError:
        return
    assert 1 <= len(found) == count
    assert found.page_offset.min() >= 0
    assert np.all(np.diff(found.page_offset) > 0)
    if found.keys is not None:
        assert found.keys.nbytes <= 4 * len(body) + 12 * count


@pytest.mark.parametrize(
    "entries, buffer, wrong",
    [
        ([(0, -1, 5)], b"", "negative offset"),
        ([(0, 0, 0)], b"", "of no bytes"),
        ([(0, 0, 5), (3, 4, 5)], b"", "not in order"),
        ([(5, 0, 5), (3, 5, 5)], b"", "do not ascend"),
        ([(-1, 0, 5)], b"", "do not ascend"),
        ([(-1, 0, 5)], b"12345678", "outside its index page"),
        ([(1, 0, 5)], b"12345678", "outside its index page"),
        ([(0, 0, 5)], b"1234567", "outside its index page"),
    ],
)
def test_lies_are_refused(entries: list[tuple[int, ...]], buffer: bytes, wrong: str) -> None:
    body = b"".join(struct.pack("<3i", *each) for each in entries) + buffer
    with pytest.raises(FormatError, match=wrong):
        IndexPage.from_bytes(body, len(entries), Type.INT64)


def test_keys_that_share_a_long_value_are_not_copied_out() -> None:
    """A thousand entries that all point to one text of a megabyte."""
    long = struct.pack("<I", 1 << 20) + bytes(1 << 20)
    body = b"".join(struct.pack("<3i", 0, at, 1) for at in range(1_000)) + long
    with pytest.raises(FormatError, match="overlap"):
        IndexPage.from_bytes(body, 1_000, Type.BYTE_ARRAY)
    with pytest.raises(FormatError, match="an index page"):
        IndexPage.from_bytes(bytes(LONGEST_BODY + 1), 1, Type.INT64)


def _page(**given: Any) -> Page:
    body = made(ordinals=[0, 7]).body(Type.INT64)
    header: dict[str, Any] = {
        "type": PageType.INDEX_PAGE,
        "uncompressed_page_size": len(body),
        "compressed_page_size": len(body),
        "index_page_header": IndexPageHeader(num_entries=2),
    }
    return read_page(PageHeader(**(header | given)).to_bytes() + body)


@pytest.mark.parametrize(
    "given, wrong",
    [
        ({"type": 9}, "not an index page"),
        ({"index_page_header": IndexPageHeader()}, "does not count"),
        ({"index_page_header": None}, "does not count"),
        ({"uncompressed_page_size": 25}, "compressed"),
        ({"crc": 1}, "checksum"),
        ({"index_page_header": IndexPageHeader(num_entries=-2)}, "entries"),
    ],
)
def test_headers_that_lie(given: dict[str, Any], wrong: str) -> None:
    assert len(IndexPage.from_page(_page(), Type.INT64)) == 2
    with pytest.raises(FormatError, match=wrong):
        IndexPage.from_page(_page(**given), Type.INT64)


def test_booleans_have_no_keys() -> None:
    with pytest.raises(UnsupportedError, match="booleans"):
        key_bytes(Type.BOOLEAN)
    assert [key_bytes(each) for each in WIDTHS] == [4, 8, 12, 4, 8]
    assert key_bytes(Type.FIXED_LEN_BYTE_ARRAY, 5) == 5
