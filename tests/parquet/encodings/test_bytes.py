"""The bytes of the format's own examples, and what writers in the wild leave away or add."""

from __future__ import annotations

import numpy as np
import pytest

from skipstone.errors import FormatError
from skipstone.parquet.encodings import (
    ByteArrays,
    byte_stream_split,
    decode_values,
    delta,
    dictionary,
    plain,
    rle,
)
from skipstone.parquet.format.enums import Encoding, Type
from tests.parquet.encodings.drawing import BOTH, bit_packed

EIGHT = np.arange(8)


def test_the_example_of_bit_packing() -> None:
    assert rle.encode(EIGHT, 3) == bytes([3, 0b10001000, 0b11000110, 0b11111010])
    assert bit_packed(EIGHT, 3) == bytes([0b00000101, 0b00111001, 0b01110111])


def test_the_example_of_split_streams() -> None:
    values = np.frombuffer(bytes.fromhex("aabbccdd00112233a3b4c5d6"), "<f4")
    assert byte_stream_split.encode(values).hex() == "aa00a3bb11b4cc22c5dd33d6"


def test_the_examples_of_strings() -> None:
    words = ByteArrays.from_list([b"Hello", b"World", b"Foobar", b"ABCDEF"])
    lengths = delta.encode_binary_packed(np.array([5, 5, 6, 6], np.int32))
    assert delta.encode_length_byte_array(words) == lengths + b"HelloWorldFoobarABCDEF"
    words = ByteArrays.from_list([b"axis", b"axle", b"babble", b"babyhood"])
    prefixes = delta.encode_binary_packed(np.array([0, 2, 0, 3], np.int32))
    suffixes = ByteArrays.from_list([b"axis", b"le", b"babble", b"yhood"])
    assert delta.encode_byte_array(words) == prefixes + delta.encode_length_byte_array(suffixes)


def test_the_example_of_deltas() -> None:
    # 7, 5, 3, 1, 2, 3, 4, 5 as in the format's example, but in the smallest block that is valid.
    encoded = delta.encode_binary_packed(np.array([7, 5, 3, 1, 2, 3, 4, 5], np.int32), 128, 4)
    header = [0x80, 0x01, 4, 8, 14]
    packed = [0b11000000, 0b00111111] + [0] * 6
    assert encoded == bytes([*header, 3, 2, 0, 0, 0, *packed])


def test_plain_booleans_and_strings() -> None:
    truth = np.array([True, False, True, True, False, False, False, False, True])
    assert plain.encode(truth, Type.BOOLEAN) == b"\x0d\x01"
    words = ByteArrays.from_list([b"ab", b""])
    assert plain.encode(words, Type.BYTE_ARRAY) == b"\2\0\0\0ab\0\0\0\0"


@BOTH
def test_strings_of_one_length_among_others(kernels: None) -> None:
    """Runs of one length from one string to thousands, and data that end anywhere in the last."""
    random = np.random.default_rng(7)
    words: list[bytes] = []
    for run in (1, 40, 2, 3, 900, 1, 1, 70, *[1] * 300, 5_000, 31, 33):
        words += [random.bytes(int(random.integers(0, 40)))] * run
    encoded = plain.encode(ByteArrays.from_list(words), Type.BYTE_ARRAY)
    found = decode_values(Encoding.PLAIN, encoded + b"more", len(words), Type.BYTE_ARRAY, None)
    assert isinstance(found, ByteArrays)
    assert found.to_list() == words
    for cut in range(1, 4 + len(words[-1])):
        with pytest.raises(FormatError) as caught:
            decode_values(Encoding.PLAIN, encoded[:-cut], len(words), Type.BYTE_ARRAY, None)
        last = len(encoded) - len(words[-1]) - 4
        assert caught.value.offset in (last, last + 4)


def test_runs_are_repeated_where_that_is_shorter() -> None:
    values = np.concatenate(
        [np.full(1_000, 5), EIGHT, np.full(8, 1), np.full(24, 6), np.full(9, 2)]
    )
    packed = rle.pack(np.concatenate([EIGHT, np.full(8, 1)]).astype(np.uint64), 3)
    runs = [rle.uleb128(1_000 << 1) + b"\5", b"\5" + packed, b"\x30\6", b"\x12\2"]
    assert rle.encode(values, 3) == b"".join(runs)
    assert rle.encode(np.full(5, 300), 9) == b"\x0a\x2c\x01"


@BOTH
@pytest.mark.parametrize("size", [1, 60])
def test_the_padding_of_a_last_run_may_be_cut(size: int) -> None:
    values = np.tile(EIGHT, size)
    whole = rle.encode(values, 3)
    for count in range(len(values) - 7, len(values)):
        used = len(whole) - 3 + (count % 8 * 3 + 7) // 8
        decoded, end = rle.decode(whole[:used], count, 3)
        assert decoded.tolist() == values[:count].tolist()
        assert end == used
        with pytest.raises(FormatError):
            rle.decode(whole[: used - 1], count, 3)


@BOTH
def test_runs_of_nothing_and_runs_too_long() -> None:
    nothing = b"\0\1\1\0\1"  # no times 1, and no groups, twice
    long = rle.uleb128(1 << 40) + b"\6"
    decoded, used = rle.decode(nothing + long + b"tail", 30, 3)
    assert decoded.tolist() == [6] * 30
    assert used == len(nothing + long)
    groups = rle.uleb128((1 << 61) | 1) + bytes(30)
    assert rle.decode(groups, 80, 3)[1] == len(groups)


@BOTH
def test_a_width_of_zero_needs_no_bytes() -> None:
    for data in (b"", b"\xff", rle.uleb128(1 << 60), rle.uleb128(3)):
        decoded, used = rle.decode(data, 10, 0)
        assert decoded.tolist() == [0] * 10
        assert used == len(data)
        indices = dictionary.decode_indices(b"\0" + data, 10)
        assert indices.tolist() == [0] * 10


def test_a_width_of_zero_is_written_as_a_run() -> None:
    assert rle.encode(np.zeros(300, np.int32), 0) == rle.uleb128(600)
    assert rle.encode(np.zeros(0, np.int32), 0) == b""
    assert dictionary.encode_indices(np.zeros(4, np.int32)) == b"\1\3\0"
    with pytest.raises(ValueError, match="more than 0 bits"):
        rle.encode(np.ones(3, np.int32), 0)


def test_no_values_need_no_bytes() -> None:
    assert len(dictionary.decode_indices(b"", 0)) == 0
    for encoding, type_ in [
        (Encoding.PLAIN, Type.BYTE_ARRAY),
        (Encoding.RLE, Type.BOOLEAN),
        (Encoding.DELTA_BINARY_PACKED, Type.INT64),
        (Encoding.DELTA_LENGTH_BYTE_ARRAY, Type.BYTE_ARRAY),
        (Encoding.DELTA_BYTE_ARRAY, Type.BYTE_ARRAY),
        (Encoding.BYTE_STREAM_SPLIT, Type.DOUBLE),
    ]:
        assert len(decode_values(encoding, b"", 0, type_)) == 0
    fixed = decode_values(Encoding.DELTA_BYTE_ARRAY, b"", 0, Type.FIXED_LEN_BYTE_ARRAY, 5)
    assert not isinstance(fixed, ByteArrays)
    assert fixed.shape == (0, 5)


def test_indices_without_a_dictionary() -> None:
    page = dictionary.encode_indices(np.zeros(3, np.int32))
    with pytest.raises(FormatError, match="without a dictionary page"):
        decode_values(Encoding.RLE_DICTIONARY, page, 3, Type.INT64)


@BOTH
def test_indices_of_32_bits() -> None:
    page = dictionary.encode_indices(np.array([1, (1 << 32) - 1], np.uint32))
    assert page[0] == 32
    assert dictionary.decode_indices(page, 2).tolist() == [1, -1]
    page = b"\x20" + rle.uleb128(20) + b"\xff\xff\xff\xff"
    assert dictionary.decode_indices(page, 10).tolist() == [-1] * 10


@BOTH
@pytest.mark.parametrize("count", [3, 31, 33, 40, 129, 135])
def test_the_padding_of_the_last_deltas_may_be_missing(count: int) -> None:
    values = (np.arange(count) % 2 * 0xFFFF).cumsum()  # all deltas take 16 bits
    encoded = delta.encode_binary_packed(values)
    padding = -(count - 1) % 32 * 2
    for cut in range(padding + 1):
        part = encoded[: len(encoded) - cut]
        decoded, used = delta.decode_binary_packed(part, count)
        assert decoded.tolist() == values.tolist()
        assert used == len(part)
    with pytest.raises(FormatError, match="a block of deltas"):
        delta.decode_binary_packed(encoded[: -padding - 1], count)


@BOTH
def test_widths_of_deltas_that_are_not_needed() -> None:
    header, block = [0x80, 0x01, 4, 3, 0], [0, 1, 255, 77, 65]
    data = bytes([*header, *block, 0b11, 0, 0, 0])
    decoded, used = delta.decode_binary_packed(data, 3)
    assert decoded.tolist() == [0, 1, 2]
    assert used == len(data)


@BOTH
def test_int32_deltas_of_writers_that_use_64_bits() -> None:
    values = [-(1 << 31), (1 << 31) - 1, -(1 << 31), 7]
    wide = delta.encode_binary_packed(np.array(values, np.int64))
    narrow = delta.encode_binary_packed(np.array(values, np.int32))
    assert wide != narrow
    for data in (wide, narrow):
        decoded, _ = delta.decode_binary_packed(data, 4, np.int32)
        assert decoded.tolist() == values


def test_one_run_tells_that_all_levels_are_the_same() -> None:
    assert rle.constant(rle.encode(np.full(1_000, 3), 2), 1_000, 2) == 3
    assert rle.constant(rle.encode(np.full(1_000, 3), 2), 1_001, 2) is None
    assert rle.constant(rle.encode(EIGHT, 3), 8, 3) is None
    assert rle.constant(b"", 5, 0) == 0
    for data in (b"", b"\x0a", b"\x0a\x09", b"\xff" * 12):
        assert rle.constant(data, 5, 3) is None
