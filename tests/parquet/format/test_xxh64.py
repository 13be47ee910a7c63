"""XXH64 over columns, against the package that hashes one value."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from skipstone.parquet.format import bloom_filter as module
from skipstone.parquet.format.bloom_filter import (
    xxh64,
    xxh64_byte_arrays,
    xxh64_fixed,
    xxh64_values,
)
from skipstone.parquet.values import ByteArrays


def one_by_one(values: list[bytes]) -> list[int]:
    return [xxhash.xxh64_intdigest(value) for value in values]


def test_the_published_vector() -> None:
    # From the specification of xxHash: the empty input under seed 0.
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64_fixed(np.empty((2, 0), np.uint8)).tolist() == [0xEF46DB3751D8E999] * 2


@pytest.mark.parametrize(
    "width", [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 20, 31, 32, 33, 40, 45, 64, 100]
)
def test_every_width(width: int) -> None:
    values = np.random.default_rng(width).integers(0, 256, (50, width), dtype=np.uint8)
    assert xxh64_fixed(values).tolist() == one_by_one([row.tobytes() for row in values])
    strided = np.repeat(values, 2, axis=0)[::2]
    assert xxh64_fixed(strided).tolist() == xxh64_fixed(values).tolist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_numbers_hash_as_their_bytes(numbers: list[int]) -> None:
    wide = np.array(numbers, np.int64)
    for values in (wide, wide.astype(np.int32), wide.astype(np.float32), wide.view(np.float64)):
        assert xxh64_values(values).tolist() == one_by_one([each.tobytes() for each in values])
    flags = wide > 0
    assert xxh64_values(flags).tolist() == one_by_one([bytes([flag]) for flag in flags.tolist()])
    # Whatever the byte order in memory.
    assert xxh64_values(wide.astype(">i8")).tolist() == xxh64_values(wide).tolist()


@given(st.lists(st.binary(max_size=80), max_size=20))
def test_byte_arrays(values: list[bytes]) -> None:
    column = ByteArrays.from_list([b"before", *values])[1:]
    assert xxh64_byte_arrays(column).tolist() == one_by_one(values)
    assert xxh64_values(column).tolist() == one_by_one(values)


def test_many_byte_arrays_take_the_compiled_loop() -> None:
    rng = np.random.default_rng(5)
    values = [rng.bytes(int(size)) for size in rng.integers(0, 100, module._MANY + 1)]
    assert xxh64_byte_arrays(ByteArrays.from_list(values)).tolist() == one_by_one(values)
    module.COMPILED.load()
    assert xxh64_byte_arrays(ByteArrays.from_list(values)).tolist() == one_by_one(values)


def test_the_compiled_loop_reads_nothing_outside() -> None:
    hash_all = module.COMPILED.load().hash

    with pytest.raises(ValueError, match="outside"):
        hash_all(np.zeros(4, np.uint8), np.array([0, 3, 5], np.int64))
    with pytest.raises(ValueError, match="outside"):
        hash_all(np.zeros(4, np.uint8), np.array([3, 1], np.int64))
