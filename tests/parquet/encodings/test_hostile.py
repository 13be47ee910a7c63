"""Bytes that are cut, changed or lie: FormatError or values, soon and in little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.encodings import (
    ByteArrays,
    Values,
    decode_values,
    delta,
    dictionary,
    encode_values,
    plain,
    rle,
)
from skipstone.parquet.encodings.kernels import COMPILED, NUMPY
from skipstone.parquet.format.enums import Encoding, Type
from skipstone.parquet.pages import levels
from tests.parquet.encodings.drawing import BOTH, decoded, same, using

HUGE = (1 << 31) - 1
WORDS = ByteArrays.from_list([b"stone", b"stones", b"", b"skips", b"skipping"] * 40)
NUMBERS = np.arange(200, dtype=np.int64) ** 2
DICTIONARY = ByteArrays.from_list([b"%d" % each for each in range(7)])
PAGES: list[tuple[Encoding, Type, int | None, Values, Values | None]] = [
    (Encoding.PLAIN, Type.BOOLEAN, None, NUMBERS % 3 == 0, None),
    (Encoding.PLAIN, Type.INT32, None, NUMBERS.astype(np.int32), None),
    (Encoding.PLAIN, Type.BYTE_ARRAY, None, WORDS, None),
    (Encoding.PLAIN, Type.INT96, None, np.tile(np.arange(12, dtype=np.uint8), (200, 1)), None),
    (Encoding.RLE, Type.BOOLEAN, None, NUMBERS % 3 == 0, None),
    (Encoding.RLE, Type.BOOLEAN, None, NUMBERS > 900, None),
    (Encoding.RLE_DICTIONARY, Type.BYTE_ARRAY, None, NUMBERS % 7, DICTIONARY),
    (Encoding.RLE_DICTIONARY, Type.INT64, None, NUMBERS // 10_000, np.arange(4)),
    (Encoding.DELTA_BINARY_PACKED, Type.INT64, None, NUMBERS, None),
    (Encoding.DELTA_BINARY_PACKED, Type.INT32, None, NUMBERS.astype(np.int32), None),
    (Encoding.DELTA_LENGTH_BYTE_ARRAY, Type.BYTE_ARRAY, None, WORDS, None),
    (Encoding.DELTA_BYTE_ARRAY, Type.BYTE_ARRAY, None, WORDS, None),
    (
        Encoding.DELTA_BYTE_ARRAY,
        Type.FIXED_LEN_BYTE_ARRAY,
        8,
        NUMBERS.astype(">i8").view(np.uint8).reshape(-1, 8),
        None,
    ),
    (Encoding.BYTE_STREAM_SPLIT, Type.DOUBLE, None, NUMBERS.astype(float), None),
]
NAMES = [f"{encoding.name}-{type_.name}-{i}" for i, (encoding, type_, *_) in enumerate(PAGES)]
pages = pytest.mark.parametrize("page", PAGES, ids=NAMES)
Page = tuple[Encoding, Type, int | None, Values, Values | None]


def attempt(page: Page, data: bytes, count: int) -> Values | None:
    """The values, or None for a FormatError; anything else is for pytest to show."""
    encoding, type_, width, _, dictionary = page
    try:
        made = decoded(encoding, data, count, type_, width, dictionary)
    except FormatError:
        return None
    assert len(made) == count
    return made


def agree(page: Page, data: bytes, count: int) -> None:
    """Both kinds of kernels take the bytes, or refuse them, alike."""
    with using(NUMPY):
        slow = attempt(page, data, count)
    with using(COMPILED.load()):
        fast = attempt(page, data, count)
    assert (slow is None) == (fast is None)
    if slow is not None and fast is not None:
        assert same(slow, fast)


@BOTH
@pages
def test_cut_anywhere(page: Page) -> None:
    encoding, type_, width, values, _ = page
    data = encode_values(encoding, values, type_, width)
    whole = attempt(page, data, len(values))
    assert whole is not None
    refused = 0
    for length in range(len(data)):
        cut = attempt(page, data[:length], len(values))
        refused += cut is None
        # What is cut off can have been padding only.
        assert cut is None or same(cut, whole)
    assert refused >= len(data) - 40
    assert len(values) == 200
    assert attempt(page, data, -1) is None


@pages
@given(data=st.data())
def test_changed_bytes(page: Page, data: st.DataObject) -> None:
    encoding, type_, width, values, _ = page
    encoded = bytearray(encode_values(encoding, values, type_, width))
    for _ in range(data.draw(st.integers(1, 3))):
        # Headers are at the beginning, and what is there matters most.
        last = data.draw(st.sampled_from([12, len(encoded)]))
        place = data.draw(st.integers(0, min(last, len(encoded)) - 1))
        encoded[place] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))
    count = data.draw(st.sampled_from([200, 199, 201, 1]))
    agree(page, bytes(encoded), count)


@pytest.mark.fuzz
@pages
@given(data=st.data())
def test_any_changes(page: Page, data: st.DataObject) -> None:
    encoding, type_, width, values, _ = page
    encoded = bytearray(encode_values(encoding, values, type_, width))
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, len(encoded)))
        stop = start + data.draw(st.integers(0, 9))
        encoded[start:stop] = data.draw(st.binary(max_size=9))
    agree(page, bytes(encoded), data.draw(st.integers(0, 400)))


@pages
@given(data=st.binary(max_size=80), count=st.integers(0, 100))
@example(data=b"\x80\x80\x04\x80\x10\xff\xff\xff\xff\x07\0" + bytes(60), count=HUGE)
@example(data=b"\xff" * 40, count=HUGE)
@example(data=b"\x20" + b"\xff" * 8 + b"\x7f" + bytes(30), count=100)
def test_any_bytes(page: Page, data: bytes, count: int) -> None:
    agree(page, data, count)


@BOTH
@pages
@pytest.mark.parametrize(
    "data",
    [b"", bytes(10), b"\x01" * 10, b"\x80\x01\x04\xff\xff\xff\xff\x07\x00\x00", b"\x09" * 10],
    ids=["nothing", "zeros", "ones", "deltas", "nines"],
)
def test_a_huge_count_takes_no_memory(page: Page, data: bytes) -> None:
    zeros = page[0] is Encoding.RLE_DICTIONARY and data == bytes(10)
    if zeros:
        return  # a width of 0 is right for any count: the caller's count is the bound
    attempt(page, data, HUGE)  # compiles, which takes memory of its own
    tracemalloc.start()
    try:
        assert attempt(page, data, HUGE) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "header, text",
    [
        ([0, 4, 2, 0], "block size"),
        ([100, 4, 2, 0], "block size of deltas: expected 128 k, at most 65536, got 100"),
        ([1 << 17, 4, 2, 0], "block size"),
        ([1 << 63, 4, 2, 0], "block size"),
        ([128, 0, 2, 0], "miniblocks"),
        ([128, 8, 2, 0], "miniblocks"),
        ([128, 5, 2, 0], "miniblocks"),
        ([128, 1 << 40, 2, 0], "miniblocks"),
        ([128, 4, 1, 0], "number of deltas: expected 2, got 1"),
        ([128, 4, HUGE, 0], "number of deltas"),
        ([128, 4, 2, 1 << 64], "first value of deltas"),
        ([128, 4, 2], "first value of deltas: expected a varint, got 0 bytes"),
        ([], "block size of deltas: expected a varint"),
    ],
)
def test_headers_of_deltas(header: list[int], text: str) -> None:
    with pytest.raises(FormatError, match=text):
        delta.decode_binary_packed(b"".join(map(rle.uleb128, header)), 2)


def deltas(*values: int) -> bytes:
    return delta.encode_binary_packed(np.array(values, np.int32))


@BOTH
@pytest.mark.parametrize(
    "data, text",
    [
        (deltas(0, 6) + deltas(5, 1) + b"stones", "prefix of byte array 1: expected 0 to 5, got 6"),
        (deltas(1, 0) + deltas(5, 1) + b"stones", "prefix of byte array 0: expected 0 to 0, got 1"),
        (deltas(0, -1) + deltas(5, 1) + b"stones", "prefix of byte array 1"),
        (deltas(0, 0) + deltas(5, -1) + b"stones", "expected 0 or more, got -1"),
        (deltas(0, 0) + deltas(5, 2) + b"stones", "expected 7 bytes, got 6 bytes"),
        (deltas(0, 0) + deltas(HUGE, HUGE) + b"stones", "expected 4294967294 bytes"),
    ],
)
def test_prefixes_and_suffixes_that_lie(data: bytes, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        delta.decode_byte_array(data, 2)


def test_prefixes_that_repeat_a_long_string_without_end() -> None:
    count, long = 40_000, 1 << 16
    prefixes = np.full(count, long, np.int32)
    prefixes[0] = 0
    suffixes = ByteArrays.from_list([bytes(long), *[b""] * (count - 1)])
    data = delta.encode_binary_packed(prefixes) + delta.encode_length_byte_array(suffixes)
    assert len(data) < 80_000
    with pytest.raises(FormatError, match="at most 2147483647 bytes, got 2621440000"):
        delta.decode_byte_array(data, count)


def test_fixed_strings_of_another_length() -> None:
    data = delta.encode_byte_array(ByteArrays.from_list([b"four", b"five", b"eleven"]))
    with pytest.raises(FormatError, match="length of fixed byte array 2: expected 4, got 6"):
        delta.decode_fixed(data, 3, 4)


@BOTH
@pytest.mark.parametrize(
    "data, offset, text",
    [
        (b"\3\0\0\0abc\2\0\0\0a", 7, "a byte array: expected 6 bytes, got 5"),
        (b"\3\0\0\0abcd\0\0", 7, "length of a byte array: expected 4 bytes, got 3"),
        (b"\xff\xff\xff\xffabcd", 0, "a byte array: expected 4294967299 bytes, got 8"),
        (b"\0\0\0\0\0\0", None, "lengths of 2 byte arrays: expected 8 bytes, got 6"),
    ],
)
def test_strings_that_end_beyond_their_page(data: bytes, offset: int | None, text: str) -> None:
    with pytest.raises(FormatError, match=text) as caught:
        plain.decode(data, 2, Type.BYTE_ARRAY)
    assert caught.value.offset == (offset or 0)


@BOTH
@pytest.mark.parametrize(
    "data, width",
    [
        (b"\x10\x09", 3),  # 8 times 9 in 3 bits
        (b"\x10\x00\x02", 9),  # 8 times 512 in 9 bits
        (b"\x10\x00", 9),  # 8 times half a value
        (b"\x03\x00\x00", 3),  # 8 values of 3 bits in 2 bytes
        (b"\xff" * 10 + b"\x00", 3),  # a run of more than 2^63
        (b"\x80", 3),  # half a header
        (b"", 3),
    ],
)
def test_runs_that_cannot_be(data: bytes, width: int) -> None:
    with pytest.raises(FormatError, match="a run that is cut, or whose value is too wide"):
        rle.decode(data, 8, width)
    with pytest.raises(FormatError, match="indices into a dictionary") as caught:
        dictionary.decode_indices(bytes([width]) + data, 8)
    assert caught.value.offset == 1


@pytest.mark.parametrize("width", [-1, 33])
def test_widths_that_cannot_be(width: int) -> None:
    calls: list[Any] = [rle.decode, levels.decode_bit_packed]
    for call in calls:
        with pytest.raises(FormatError, match="bit width"):
            call(b"\0" * 99, 8, width)
    if width > 0:
        page = bytes([width]) + bytes(40)
        with pytest.raises(FormatError, match="bit width of indices: expected 0 to 32, got 33"):
            dictionary.decode_indices(page, 8)


def test_lengths_of_prefixed_runs() -> None:
    with pytest.raises(FormatError, match="length of runs: expected 4 bytes, got 3"):
        rle.prefixed(b"\0\0\0")
    with pytest.raises(FormatError, match="runs: expected 5 bytes, got 4"):
        rle.prefixed(b"\5\0\0\0\2\1\0\0")
    with pytest.raises(FormatError, match="levels of 2 bits: expected 2 bytes, got 1"):
        levels.decode_bit_packed(b"\0", 5, 2)


@pytest.mark.parametrize("width", [None, -1, 1 << 31])
def test_fixed_lengths_that_cannot_be(width: int | None) -> None:
    for encoding in (Encoding.PLAIN, Encoding.DELTA_BYTE_ARRAY, Encoding.BYTE_STREAM_SPLIT):
        with pytest.raises(FormatError, match="type_length"):
            decode_values(encoding, b"", 0, Type.FIXED_LEN_BYTE_ARRAY, width)


@BOTH
def test_streams_have_no_padding() -> None:
    for size in (0, 31, 33):
        with pytest.raises(FormatError, match=f"8 streams of 4 bytes: expected 32 .*{size}"):
            decode_values(Encoding.BYTE_STREAM_SPLIT, bytes(size), 4, Type.DOUBLE)
