"""Values of every type as Hypothesis draws them, and the two kinds of kernels."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.encodings import ByteArrays, Values, decode_values
from skipstone.parquet.encodings.dictionary import decode_indices, gather
from skipstone.parquet.format.enums import Encoding, Type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skipstone.parquet.encodings.kernels import Kernels


#: runs a test with either kind of kernels, whatever the amount of work
BOTH = pytest.mark.usefixtures("kernels")
_BITS: dict[Any, Any] = {np.dtype("f4"): np.dtype("u4"), np.dtype("f8"): np.dtype("u8")}
# NaN with a payload and a sign, both zeros, infinities, the smallest subnormal.
_AWKWARD = ["7ff8000000000000", "fff8000000000123", "8000000000000000", "0", "7ff0000000000000"]


@contextmanager
def using(kernels: Kernels) -> Iterator[None]:
    """Only these kernels, whatever the amount of work."""
    only = SimpleNamespace(for_work=lambda work: kernels)
    with patch("skipstone.parquet.encodings.kernels.COMPILED", only):
        yield


def _joined(parts: list[list[Any]]) -> list[Any]:
    return [each for part in parts for each in part]


def _runs(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Values one by one, and runs of the same."""
    repeated = st.builds(lambda value, times: [value] * times, one, st.integers(1, 300))
    return st.lists(st.one_of(repeated, st.lists(one, max_size=20)), max_size=6).map(_joined)


def integers(dtype: Any, low: int | None = None, high: int | None = None) -> Any:
    """Arrays of integers: of all sizes, small ones, and the ends of their range."""
    info = np.iinfo(np.dtype(dtype))
    least, most = info.min if low is None else low, info.max if high is None else high
    one = st.one_of(
        st.integers(least, most),
        st.integers(max(least, -9), min(most, 9)),
        st.sampled_from([least, most]),
    )
    return _runs(one).map(lambda values: np.array(values, dtype))


def floats(dtype: str) -> Any:
    """Arrays of floats, any bits."""
    word = _BITS[np.dtype(dtype)]
    awkward = [int(each, 16) >> (64 - 8 * word.itemsize) for each in _AWKWARD]
    one = st.one_of(st.integers(0, np.iinfo(word).max), st.sampled_from(awkward))
    return _runs(one).map(lambda values: np.array(values, word).view(dtype))


def booleans() -> Any:
    return _runs(st.booleans()).map(lambda values: np.array(values, np.bool_))


def byte_arrays() -> Any:
    """Byte strings that share beginnings, among them empty and longer ones."""
    start = st.sampled_from([b"", b"stone", b"stone skips", "é%= ".encode(), b"\0" * 30])
    one = st.builds(bytes.__add__, start, st.binary(max_size=20))
    return _runs(one).map(ByteArrays.from_list)


def rows(width: int) -> Any:
    """Fixed byte arrays, ``(n, width)``."""
    one = st.binary(min_size=width, max_size=width)
    return _runs(one).map(
        lambda values: np.frombuffer(b"".join(values), np.uint8).reshape(len(values), width)
    )


def arrays() -> st.SearchStrategy[tuple[Type, int | None, Values]]:
    """A type, its length, and values of it."""
    kinds: list[tuple[Type, int | None, Any]] = [
        (Type.BOOLEAN, None, booleans()),
        (Type.INT32, None, integers("<i4")),
        (Type.INT64, None, integers("<i8")),
        (Type.INT96, None, rows(12)),
        (Type.FLOAT, None, floats("<f4")),
        (Type.DOUBLE, None, floats("<f8")),
        (Type.BYTE_ARRAY, None, byte_arrays()),
        *[(Type.FIXED_LEN_BYTE_ARRAY, width, rows(width)) for width in (1, 2, 7, 16, 33)],
    ]
    return st.one_of(
        [st.tuples(st.just(type_), st.just(width), drawn) for type_, width, drawn in kinds]
    )


def same(left: Values, right: Values) -> bool:
    """Equal in kind, shape and every bit."""
    if isinstance(left, ByteArrays) or isinstance(right, ByteArrays):
        return isinstance(left, ByteArrays) and left == right
    a: npt.NDArray[Any] = np.ascontiguousarray(left)
    b: npt.NDArray[Any] = np.ascontiguousarray(right)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def factorise(values: Values) -> tuple[Values, npt.NDArray[np.int32]]:
    """The distinct values in the order in which they first occur, and the index of each value.

    Distinct by their bytes: both zeros and all kinds of NaN are kept apart.
    """
    if isinstance(values, ByteArrays):
        coded = values.to_arrow().dictionary_encode()
        found: Values = ByteArrays.from_arrow(coded.dictionary)
    elif values.ndim == 2:
        flat = np.ascontiguousarray(values).reshape(-1)
        # Arrow has rows of no bytes, but nothing to count them by.
        if not values.shape[1]:
            return values[:1], np.zeros(len(values), np.int32)
        rows = pa.Array.from_buffers(
            pa.binary(values.shape[1]), len(values), [None, pa.py_buffer(flat)]
        )
        coded = rows.dictionary_encode()
        whole = np.frombuffer(coded.dictionary.buffers()[1], np.uint8)
        start = coded.dictionary.offset * values.shape[1]
        size = len(coded.dictionary) * values.shape[1]
        found = whole[start : start + size].reshape(-1, values.shape[1])
    elif values.dtype == np.bool_:
        distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return distinct[order], np.argsort(order).astype(np.int32)[inverse]
    else:
        words = np.ascontiguousarray(values).view(f"i{values.itemsize}")
        coded = pa.array(words).dictionary_encode()
        found = coded.dictionary.to_numpy(zero_copy_only=False).view(values.dtype)
    return found, coded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)


def decoded(
    encoding: int,
    data: bytes | memoryview,
    count: int,
    type_: Type,
    width: int | None,
    dictionary: Values | None = None,
) -> Values:
    """The values of a data page, looked up in the ``dictionary`` where it has indices."""
    if encoding not in (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY) or dictionary is None:
        return decode_values(encoding, data, count, type_, width)
    try:
        return gather(dictionary, decode_indices(data, count))
    except IndexError as error:
        raise FormatError(f"indices: {error}") from None


def bit_packed(values: np.ndarray[Any, Any], bit_width: int) -> bytes:
    """Levels of ``bit_width`` (0 to 32) bits, as old writers packed them."""
    if not bit_width or not len(values):
        return b""
    words = values.astype(">u4").view(np.uint8).reshape(-1, 4)
    bits = np.unpackbits(words, axis=1)[:, 32 - bit_width :]
    return np.packbits(bits.reshape(-1)).tobytes()
