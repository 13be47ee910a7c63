"""Every encoding of every type that it holds: what goes in comes out, with all kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings import (
    ByteArrays,
    Values,
    byte_stream_split,
    decode_values,
    delta,
    encode_values,
    plain,
    rle,
)
from skipstone.parquet.encodings.kernels import NUMPY
from skipstone.parquet.format.enums import Encoding, Type
from skipstone.parquet.pages import levels
from skipstone.parquet.values import concat
from tests.parquet.encodings.drawing import (
    BOTH,
    arrays,
    bit_packed,
    byte_arrays,
    decoded,
    factorise,
    integers,
    same,
    using,
)

HOLDS = {
    Encoding.PLAIN: set(Type),
    Encoding.RLE: {Type.BOOLEAN},
    Encoding.DELTA_BINARY_PACKED: {Type.INT32, Type.INT64},
    Encoding.DELTA_LENGTH_BYTE_ARRAY: {Type.BYTE_ARRAY},
    Encoding.DELTA_BYTE_ARRAY: {Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY},
    Encoding.BYTE_STREAM_SPLIT: {
        Type.INT32,
        Type.INT64,
        Type.FLOAT,
        Type.DOUBLE,
        Type.FIXED_LEN_BYTE_ARRAY,
    },
}


@BOTH
@pytest.mark.parametrize("encoding", HOLDS)
@given(drawn=arrays())
def test_values_come_back(encoding: Encoding, drawn: tuple[Type, int | None, Values]) -> None:
    type_, width, values = drawn
    if type_ not in HOLDS[encoding]:
        with pytest.raises(FormatError, match=f"{encoding.name} does not hold {type_.name}"):
            decode_values(encoding, b"", 0, type_, width)
        return
    encoded = encode_values(encoding, values, type_, width)
    decoded = decode_values(encoding, encoded, len(values), type_, width)
    assert same(decoded, values)


@BOTH
@pytest.mark.parametrize("encoding", [Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY])
@given(drawn=arrays())
def test_dictionaries_come_back(encoding: Encoding, drawn: tuple[Type, int | None, Values]) -> None:
    type_, width, values = drawn
    distinct, indices = factorise(values)
    seen = dict.fromkeys(values) if isinstance(values, ByteArrays) else {}
    if isinstance(distinct, ByteArrays):
        assert distinct.to_list() == list(seen)
    else:
        assert len({each.tobytes() for each in distinct}) == len(distinct)
    page = encode_values(Encoding.PLAIN, distinct, type_, width)
    read = decode_values(Encoding.PLAIN, page, len(distinct), type_, width)
    data = encode_values(encoding, indices, type_, width)
    assert same(decoded(encoding, data, len(values), type_, width, read), values)


@BOTH
@given(st.integers(0, 64), st.data())
def test_runs_of_any_width(width: int, data: st.DataObject) -> None:
    values = data.draw(integers("u8", 0, (1 << width) - 1))
    for dtype in [np.uint8, np.int32, np.uint64][0 if width <= 8 else 1 if width <= 32 else 2 :]:
        encoded = rle.encode(values, width)
        decoded, used = rle.decode(encoded, len(values), width, dtype=dtype)
        assert decoded.tolist() == values.astype(dtype).tolist()
        assert used == len(encoded)
        tailed = rle.encode_prefixed(values, width) + b"tail"
        assert rle.prefixed(tailed).tobytes() == encoded


@given(st.integers(0, 32), st.data())
def test_packed_levels_of_any_width(width: int, data: st.DataObject) -> None:
    values = data.draw(integers("u4", 0, (1 << width) - 1))
    encoded = bit_packed(values, width)
    decoded, used = levels.decode_bit_packed(encoded + b"tail", len(values), width)
    assert decoded.tolist() == values.astype(np.int32).tolist()
    assert used == len(encoded) == (len(values) * width + 7) // 8


@BOTH
@given(
    st.sampled_from(["i4", "i8"]),
    st.sampled_from([(128, 1), (128, 4), (256, 8), (384, 3), (1_024, 32)]),
    st.data(),
)
def test_deltas_in_any_blocks(dtype: str, blocks: tuple[int, int], data: st.DataObject) -> None:
    values = data.draw(integers(dtype))
    encoded = delta.encode_binary_packed(values, *blocks)
    decoded, used = delta.decode_binary_packed(encoded + b"tail", len(values), dtype)
    assert same(decoded, values)
    assert used == len(encoded)


@BOTH
@given(byte_arrays())
def test_bytes_used(values: ByteArrays) -> None:
    for encoded, decode in (
        (delta.encode_length_byte_array(values), delta.decode_length_byte_array),
        (delta.encode_byte_array(values), delta.decode_byte_array),
    ):
        decoded, used = decode(encoded + b"tail", len(values))
        assert decoded == values
        assert used == len(encoded)


@BOTH
def test_a_slice_encodes_as_its_values() -> None:
    whole = ByteArrays.from_list([b"stone", b"stones", b"", b"stonework", b"s"])
    for encoding in (
        Encoding.PLAIN,
        Encoding.DELTA_LENGTH_BYTE_ARRAY,
        Encoding.DELTA_BYTE_ARRAY,
    ):
        part = encode_values(encoding, whole[1:4], Type.BYTE_ARRAY)
        alone = ByteArrays.from_list(whole[1:4])
        assert part == encode_values(encoding, alone, Type.BYTE_ARRAY)
        assert decode_values(encoding, part, 3, Type.BYTE_ARRAY) == alone


def test_large_inputs_choose_compiled_kernels_and_agree() -> None:
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, 1_000, 20_000).cumsum()
    encoded = delta.encode_binary_packed(numbers)
    assert same(delta.decode_binary_packed(encoded, 20_000)[0], numbers)
    with using(NUMPY):
        slow, _ = delta.decode_binary_packed(encoded, 20_000)
    assert same(slow, numbers)
    words = ByteArrays.from_list([b"%d" % each for each in numbers.tolist()])
    page = plain.encode(words, Type.BYTE_ARRAY)
    assert plain.decode(page, 20_000, Type.BYTE_ARRAY) == words
    assert same(
        byte_stream_split.decode(byte_stream_split.encode(numbers), 20_000, Type.INT64), numbers
    )


def test_numbers_are_not_copied_where_they_lie_aligned() -> None:
    page = np.arange(10, dtype="<i8").view(np.uint8)
    values = plain.decode(page, 9, Type.INT64)
    assert isinstance(values, np.ndarray)
    assert np.shares_memory(values, page)
    odd = plain.decode(np.concatenate([[np.uint8(1)], page])[1:], 10, Type.INT64)
    assert isinstance(odd, np.ndarray)
    assert odd.flags.aligned
    assert odd.tolist() == list(range(10))


@pytest.mark.parametrize(
    "encoding, error, text",
    [
        (Encoding.ALP, UnsupportedError, "ALP is not supported"),
        (1, UnsupportedError, "encoding 1 is unknown"),
        (11, UnsupportedError, "encoding 11 is unknown"),
        (-1, UnsupportedError, "encoding -1 is unknown"),
        (Encoding.BIT_PACKED, FormatError, "for levels"),
    ],
)
def test_other_encodings(encoding: int, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        decode_values(encoding, b"", 0, Type.INT32)
    with pytest.raises(error, match=text):
        encode_values(encoding, np.zeros(0, np.int32), Type.INT32)


def test_what_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="more than 3 bits"):
        rle.encode(np.array([8]), 3)
    with pytest.raises(ValueError, match="values of 3 bytes in a column of 4"):
        encode_values(Encoding.PLAIN, np.zeros((1, 3), np.uint8), Type.FIXED_LEN_BYTE_ARRAY, 4)
    with pytest.raises(TypeError, match="takes an array of numbers"):
        encode_values(Encoding.RLE_DICTIONARY, ByteArrays.from_list([]), Type.BYTE_ARRAY)
    with pytest.raises(TypeError, match="takes ByteArrays"):
        encode_values(Encoding.DELTA_LENGTH_BYTE_ARRAY, np.zeros(1), Type.BYTE_ARRAY)


@given(st.lists(arrays(), min_size=1, max_size=3))
def test_parts_are_put_together(drawn: list[tuple[Type, int | None, Values]]) -> None:
    type_, width, first = drawn[0]
    parts = [first, *(values for kind, k, values in drawn[1:] if (kind, k) == (type_, width))]
    whole = concat(parts)
    assert len(whole) == sum(map(len, parts))
    at = 0
    for part in parts:
        assert same(whole[at : at + len(part)], part)
        at += len(part)
    large = concat([first] * (1 + 40_000 // max(1, len(first))))
    assert same(large[: len(first)], first)
