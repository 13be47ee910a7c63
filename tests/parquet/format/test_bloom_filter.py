"""Split-block Bloom filters: the golden ones, those of pyarrow, and what must be refused."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.bloom_filter import (
    COMPILED,
    HEADER_GUESS,
    MAX_BYTES,
    BloomFilter,
    BloomFilterAlgorithm,
    BloomFilterCompression,
    BloomFilterHash,
    BloomFilterHeader,
    block_of,
    guess_bitset,
    optimal_bytes,
    read_header,
    set_in,
    xxh64,
    xxh64_values,
)
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.thrift.compact import BINARY, Field
from skipstone.parquet.thrift.structs import Empty
from skipstone.parquet.values import ByteArrays

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from skipstone.parquet.thrift.structs import Declared


def texts(*values: str) -> NDArray[np.uint64]:
    return np.array([xxh64(value.encode()) for value in values], np.uint64)


GOLDEN_TEXTS = ("hello", "parquet", "bloom", "filter")


def test_the_golden_filter_is_ours_byte_for_byte(golden: Path) -> None:
    data = (golden / "parquet-testing" / "data" / "bloom_filter.xxhash.bin").read_bytes()
    found = BloomFilter.from_bytes(data)
    assert found.check(texts(*GOLDEN_TEXTS)).all()
    assert not found.check(texts("absent", "")).any()
    assert found.to_bytes() == data
    ours = BloomFilter.of_size(found.num_bytes)
    ours.insert(texts(*GOLDEN_TEXTS))
    assert ours.to_bytes() == data


def test_a_filter_of_murmur3_is_told_apart(golden: Path) -> None:
    data = (golden / "parquet-testing" / "data" / "bloom_filter.bin").read_bytes()
    with pytest.raises(UnsupportedError, match="Murmur3"):
        BloomFilter.from_bytes(data)


def filters(path: Path) -> list[BloomFilter]:
    data = path.read_bytes()
    found = []
    for group in read_metadata(data).row_groups:
        for chunk in group.columns:
            assert chunk.meta_data is not None
            at, length = chunk.meta_data.bloom_filter_offset, chunk.meta_data.bloom_filter_length
            if at is None:
                continue
            found.append(BloomFilter.from_bytes(data[at : None if length is None else at + length]))
            if length is not None:
                assert guess_bitset(length) == read_header(data[at : at + HEADER_GUESS])
    return found


def test_the_filters_of_golden_files(golden: Path) -> None:
    folder = golden / "parquet-testing" / "data"
    found = [filters(path) for path in sorted(folder.glob("data_index_bloom_encoding*.parquet"))]
    assert found
    for (each,) in found:
        column = pq.read_table(folder / "data_index_bloom_encoding_with_length.parquet").column(0)
        assert each.check(texts(*column.to_pylist())).all()
        assert not each.check(texts("no such text")).any()


COLUMNS: dict[str, tuple[pa.Array, NDArray[Any] | ByteArrays]] = {
    "int32": (pa.array(range(-50, 50), pa.int32()), np.arange(-50, 50, dtype=np.int32)),
    "int64": (pa.array(range(-50, 50), pa.int64()), np.arange(-50, 50, dtype=np.int64)),
    "double": (pa.array(np.arange(100) / 4), np.arange(100) / 4),
    "float": (
        pa.array(np.arange(100, dtype=np.float32) / 4),
        np.arange(100, dtype=np.float32) / 4,
    ),
    "text": (
        pa.array([str(i) * (i % 30) for i in range(100)]),
        ByteArrays.from_list([(str(i) * (i % 30)).encode() for i in range(100)]),
    ),
    "fixed": (
        pa.array([struct.pack(">III", 1, 2, i) for i in range(100)], pa.binary(12)),
        np.array([list(struct.pack(">III", 1, 2, i)) for i in range(100)], np.uint8),
    ),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_arrow_writes_the_filter_that_we_would(kind: str, tmp_path: Path) -> None:
    column, values = COLUMNS[kind]
    path = tmp_path / "one.parquet"
    options = {"c": {"ndv": 100, "fpp": 0.01}}
    pq.write_table(pa.table({"c": column}), path, bloom_filter_options=options)
    (theirs,) = filters(path)
    ours = BloomFilter.of_size(optimal_bytes(100, 0.01))
    ours.insert(xxh64_values(values))
    assert ours.to_bytes() == theirs.to_bytes()


# -- our own ---------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=200),
    st.lists(st.integers(0, 2**64 - 1), max_size=50),
    st.integers(1, 40),
)
def test_nothing_inserted_is_ever_absent(inside: list[int], others: list[int], z: int) -> None:
    found = BloomFilter.of_size(32 * z)
    hashes = np.array(inside, np.uint64)
    found.insert(hashes)
    assert found.check(hashes).all()
    again = BloomFilter.from_bytes(found.to_bytes())
    asked = np.array(others, np.uint64)
    assert again.check(asked).tolist() == found.check(asked).tolist()
    # A probe of the one block is a probe of the filter.
    at = block_of(asked, z)
    assert np.all((at >= 0) & (at < z))
    assert set_in(found.blocks[at], asked).tolist() == found.check(asked).tolist()
    # In one go, or value by value.
    slowly = BloomFilter.of_size(32 * z)
    for each in inside:
        slowly.insert(np.array([each], np.uint64))
    assert slowly.to_bytes() == found.to_bytes()
    assert BloomFilter.of_size(32).check(asked).sum() == 0


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=40), st.sampled_from([1, 2, 3, 8, 255, 1 << 12])
)
def test_the_compiled_loops_set_the_same_bits(values: list[int], z: int) -> None:
    words = np.array(values, np.uint64)
    hashes = xxh64_values(words)
    expected = BloomFilter.of_size(32 * z)
    expected.insert(hashes)
    kernels = COMPILED.load()
    for insert, inserted in ((kernels.words, words), (kernels.hashes, hashes)):
        inserted.flags.writeable = False
        # Blocks behind the filter stay as they are.
        blocks = np.zeros((z + 1, 8), np.uint32)
        insert(blocks[:z], inserted)
        assert BloomFilter(blocks[:z]).to_bytes() == expected.to_bytes()
        assert not blocks[z].any()


def test_the_compiled_loops_refuse_blocks_that_do_not_follow_one_another() -> None:
    from numba.core.errors import TypingError

    blocks = np.zeros((4, 16), np.uint32)[:, ::2]
    with pytest.raises(TypingError):
        COMPILED.load().hashes(blocks, np.zeros(1, np.uint64))


def test_the_false_positives_are_as_many_as_wanted() -> None:
    rng = np.random.default_rng(3)
    inside, others = rng.integers(0, 2**64, (2, 100_000), dtype=np.uint64)
    # 26,214 values in 1,024 blocks: about 1.26 %, says the specification.
    found = BloomFilter.of_size(32 * 1024)
    found.insert(inside[:26_214])
    assert 0.011 < found.check(others).mean() < 0.0145


def test_sizes_are_those_of_the_other_writers() -> None:
    assert [optimal_bytes(n, 0.01) for n in (0, 1, 100, 10_000, 1_000_000)] == [
        32,
        32,
        128,
        16 << 10,
        2 << 20,
    ]
    assert optimal_bytes(10**12, 1e-9) == MAX_BYTES
    for size in (0, 33, MAX_BYTES + 32):
        with pytest.raises(ValueError, match="multiple of 32"):
            BloomFilter.of_size(size)
    with pytest.raises(ValueError, match="probability"):
        optimal_bytes(10, 0.0)


# -- headers ---------------------------------------------------------------------------------------


def header(num_bytes: int, **other: Declared) -> bytes:
    fields: dict[str, Any] = {
        "algorithm": BloomFilterAlgorithm(BLOCK=Empty()),
        "hash": BloomFilterHash(XXHASH=Empty()),
        "compression": BloomFilterCompression(UNCOMPRESSED=Empty()),
        **other,
    }
    return BloomFilterHeader(numBytes=num_bytes, **fields).to_bytes()


@pytest.mark.parametrize("num_bytes", [-32, 0, 1, 31, 33, MAX_BYTES + 32, 2**31 - 32])
def test_sizes_that_no_filter_has(num_bytes: int) -> None:
    with pytest.raises(FormatError, match="numBytes"):
        read_header(header(num_bytes))


def test_a_filter_must_end_within_the_file() -> None:
    head = header(64)
    assert read_header(head, end=len(head) + 64) == (64, len(head))
    with pytest.raises(FormatError, match="past the file"):
        read_header(head, end=len(head) + 63)


def test_unknown_algorithms_hashes_and_compressions_are_unsupported() -> None:
    new = (Field(2, BINARY, b""),)
    for name, kind in (
        ("algorithm", BloomFilterAlgorithm),
        ("hash", BloomFilterHash),
        ("compression", BloomFilterCompression),
    ):
        with pytest.raises(UnsupportedError, match=name):
            read_header(header(64, **{name: kind(unknown=new)}))


def test_a_header_with_more_in_it_is_longer_than_guessed() -> None:
    longer = header(64, compression=BloomFilterCompression(
        UNCOMPRESSED=Empty(unknown=(Field(1, BINARY, b"x" * 17),))
    ))  # fmt: skip
    assert read_header(longer) == (64, len(longer))
    assert guess_bitset(len(longer) + 64) != (64, len(longer))


@given(st.binary(max_size=40), st.data())
def test_damaged_headers_are_refused(noise: bytes, data: st.DataObject) -> None:
    head = bytearray(header(1024))
    for _ in range(data.draw(st.integers(0, 3))):
        head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    for each in (noise, bytes(head[: data.draw(st.integers(0, len(head)))]), bytes(head)):
        try:
            size, length = read_header(each)
        except (FormatError, UnsupportedError):
            continue
        assert size % 32 == 0
        assert length <= len(each)


def test_a_bitset_is_made_of_blocks() -> None:
    for part in (b"", b"\0" * 31, b"\0" * 40):
        with pytest.raises(FormatError, match="blocks"):
            BloomFilter.from_bitset(part)
    with pytest.raises(FormatError, match="past the file"):
        BloomFilter.from_bytes(header(64) + b"\0" * 63)


def test_a_repr_has_the_size_and_not_the_blocks() -> None:
    assert repr(BloomFilter.of_size(2048)) == "BloomFilter(2,048 bytes)"
