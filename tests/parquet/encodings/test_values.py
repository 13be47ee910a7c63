"""ByteArrays: slices, picks, joins, and Arrow's arrays of binary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.encodings.dictionary import gather, gather_bytes
from skipstone.parquet.values import ByteArrays, as_bytes
from tests.parquet.encodings.drawing import BOTH, byte_arrays

SOME = [b"a", b"", "é".encode(), b"\0\0", b"stone skips over the water"]


@given(byte_arrays())
def test_lists_and_back(values: ByteArrays) -> None:
    assert ByteArrays.from_list(values.to_list()) == values
    assert len(values.to_list()) == len(values)
    assert values.lengths.tolist() == [len(each) for each in values]
    assert values.content.tobytes() == b"".join(values)
    assert values.nbytes == len(values.content)


@given(byte_arrays(), st.data())
def test_a_slice_shares_its_data(values: ByteArrays, data: st.DataObject) -> None:
    start, stop = data.draw(st.integers(0, len(values))), data.draw(st.integers(0, len(values)))
    part = values[start:stop]
    assert part.to_list() == values.to_list()[start:stop]
    assert part.data is values.data
    assert part == ByteArrays.from_list(part)


@BOTH
@given(values=byte_arrays(), data=st.data())
def test_take(values: ByteArrays, data: st.DataObject) -> None:
    held = values.to_list()
    picks = data.draw(st.lists(st.integers(0, max(0, len(held) - 1)), max_size=50 * bool(held)))
    start = data.draw(st.integers(0, len(held)))
    for kind in (np.int32, np.int64):
        taken = gather_bytes(values, np.array(picks, kind))
        assert taken.to_list() == [held[pick] for pick in picks]
    part, least = values[start:], [pick - start for pick in picks if pick >= start]
    expected = [held[start:][pick] for pick in least]
    assert gather_bytes(part, np.array(least, np.int64)).to_list() == expected


@BOTH
@pytest.mark.parametrize("wrong", [-1, 5, -(1 << 31), (1 << 31) - 1])
def test_an_index_that_is_none(wrong: int) -> None:
    picks = np.array([0, wrong, 1], np.int32)
    for values in (ByteArrays.from_list(SOME), np.zeros(5), np.zeros((5, 3), np.uint8)):
        with pytest.raises(IndexError, match=f"index {wrong} into 5 values"):
            gather(values, picks)


@BOTH
def test_a_long_string_is_not_repeated_without_end() -> None:
    long = ByteArrays.from_list([bytes(1 << 20)])
    with pytest.raises(FormatError, match="at most 2147483647 bytes, got 2148532224"):
        gather_bytes(long, np.zeros(2_049, np.int32))


@given(st.lists(byte_arrays(), max_size=4))
def test_concat(parts: list[ByteArrays]) -> None:
    joined = ByteArrays.concat([part[1:] for part in parts])
    assert joined.to_list() == [each for part in parts for each in part.to_list()[1:]]


@given(byte_arrays(), st.sampled_from(["binary", "large_binary", "binary_view"]))
def test_arrow_and_back(values: ByteArrays, name: str) -> None:
    type_ = getattr(pa, name)()
    if name != "binary_view":
        made = values[1:].to_arrow(type_)
        made.validate(full=True)
        assert made.type == type_
        assert made.to_pylist() == values.to_list()[1:]
    array = pa.array(values.to_list(), type_)
    assert ByteArrays.from_arrow(array) == values
    assert ByteArrays.from_arrow(array[2:]).to_list() == values.to_list()[2:]


def test_arrow_shares_the_bytes() -> None:
    values = ByteArrays.from_list(SOME)
    array = values.to_arrow()
    assert array.type == pa.large_binary()
    assert array.buffers()[2].address == values.data.ctypes.data
    assert array.buffers()[1].address == values.offsets.ctypes.data
    back = ByteArrays.from_arrow(pa.array(["a", "bc"], pa.string()))
    assert back.to_list() == [b"a", b"bc"]


def test_nulls_are_refused() -> None:
    with pytest.raises(ValueError, match="no nulls"):
        ByteArrays.from_arrow(pa.array([b"a", None]))


@pytest.mark.parametrize("offsets", [[], [0, 9], [-1, 1], [2, 1]])
def test_offsets_outside_the_data_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets"):
        ByteArrays(np.zeros(4, np.uint8), np.array(offsets, np.int64))
    with pytest.raises(TypeError):
        ByteArrays(np.zeros(4, np.uint8), np.array([0, 1], np.int32))


def test_equality_is_of_the_values() -> None:
    values = ByteArrays.from_list(SOME)
    assert values != ByteArrays.from_list(SOME[:-1])
    assert values != ByteArrays.from_list([*SOME[:-1], b"other"])
    assert values != SOME
    assert values[1:3] == ByteArrays.from_list(SOME[1:3])
    assert "5 values, 31 bytes" in repr(values)
    with pytest.raises(ValueError, match="without a step"):
        values[::2]


def test_bytes_of_any_buffer() -> None:
    for data in (b"abc", bytearray(b"abc"), memoryview(b"abc"), np.frombuffer(b"abc", np.uint8)):
        made = as_bytes(data)
        assert made.tobytes() == b"abc"
        assert not made.flags.writeable
    assert as_bytes(np.arange(6, dtype=np.uint8)[::2]).tolist() == [0, 2, 4]
    assert as_bytes(np.array([1, 2], "<i2")).tolist() == [1, 0, 2, 0]
    assert len(as_bytes(b"")) == 0
