"""Bit slices: the bits of the filters by position, and no damage that goes unseen."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.indexes.bloom import size_class
from skipstone.indexes.bloom_slices import (
    SWAP,
    TAIL,
    SliceDirectory,
    SliceWriter,
    members_of,
    rest_of,
    row_of,
)
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.sketch import SketchFilter


def blob(rng: random.Random, words: int, hashes: int, version: int = 1, seed: int = 0) -> bytes:
    bits = np.array([rng.getrandbits(64) for _ in range(words)], np.uint64)
    made = SketchFilter(version=version, num_hash_functions=hashes, words=bits, seed=seed)
    return BloomFilterMetaData.of(made).to_bytes()


def written(filters: pa.Array, least: int = 1, name: str = "c") -> bytes | None:
    writer = SliceWriter("part-x", len(filters))
    writer.add(name, filters, least)
    data = writer.finish()
    return None if data is None else bytes(data)


def opened(data: bytes) -> SliceDirectory:
    return SliceDirectory.from_bytes(memoryview(data), len(data), "x")


# Words of filters around the sizes of Java's blocks of 1,024 bytes.
WORDS = st.sampled_from([1, 2, 29, 30, 31, 32, 126, 127, 130, 200, 254, 255, 300])


@given(st.integers(0, 2**32), st.lists(st.one_of(st.none(), WORDS), min_size=1, max_size=20))
def test_every_bit_of_every_filter_is_found(seed: int, sizes: list[int | None]) -> None:
    rng = random.Random(seed)
    blobs = [None if n is None else blob(rng, n, 3) for n in sizes]
    data = written(pa.array(blobs, pa.binary()))
    if all(each is None for each in blobs):
        assert data is None
        return
    assert data is not None
    (column,) = opened(data).columns
    assert column.rest is None
    seen = {at: np.zeros(64 * (n or 0), np.uint8) for at, n in enumerate(sizes)}
    for group in column.groups:
        view = memoryview(data)
        at = group.members
        members = list(range(len(blobs)))
        if at is not None:
            bits = view[at : at + -(-len(blobs) // 8)]
            members = members_of(group, len(blobs), bits).tolist()
        for position in range(64 * group.words):
            start = group.slices + (position ^ SWAP) * group.stride
            held = row_of(view[start : start + group.stride], group)
            assert held is not None
            flags = np.unpackbits(held, count=group.files, bitorder="little")
            for member, flag in zip(members, flags.tolist(), strict=True):
                seen[member][position] = flag
    for at, each in enumerate(blobs):
        if each is not None:
            words = BloomFilterMetaData.from_bytes(each).filter.words.astype("<u8")
            expected = np.unpackbits(words.view(np.uint8), bitorder="little")
            assert np.array_equal(seen[at], expected)


def test_sizes_of_few_files_are_the_rest() -> None:
    rng = random.Random(0)
    blobs = [blob(rng, 5 if i % 10 else 7, 4) for i in range(100)]
    data = written(pa.array(blobs, pa.binary()), least=50)
    assert data is not None
    (column,) = opened(data).columns
    assert [(group.words, group.files) for group in column.groups] == [(5, 90)]
    rest = column.rest
    assert rest is not None
    at, filters = rest_of(rest, 100, memoryview(data)[rest.at : rest.at + rest.length])
    assert at.tolist() == list(range(0, 100, 10))
    assert filters.to_pylist() == blobs[::10]
    # Where most files are the rest, there are no slices.
    assert written(pa.array(blobs, pa.binary()), least=91) is None


def test_unreadable_filters_have_no_slices() -> None:
    rng = random.Random(0)
    blobs = [blob(rng, 5, 4) for _ in range(10)]
    assert written(pa.array([*blobs, b"no filter"], pa.binary())) is None


def test_versions_and_seeds_are_groups_of_their_own() -> None:
    rng = random.Random(0)
    blobs = [blob(rng, 5, 4, 1 + i % 2, (i // 2) % 2 * -7 * (i % 2)) for i in range(40)]
    data = written(pa.array(blobs, pa.binary()))
    assert data is not None
    (column,) = opened(data).columns
    assert {(g.version, g.seed, g.files) for g in column.groups} == {
        (1, 0, 20),
        (2, 0, 10),
        (2, -7, 10),
    }


def test_sizes_are_sixteen_per_octave() -> None:
    for words in range(1, 5_000):
        rounded = size_class(words)
        assert words <= rounded <= words * 17 / 16
        assert size_class(rounded) == rounded
    assert len({size_class(words) for words in range(1 << 12, 1 << 13)}) == 17


def test_damage_is_seen() -> None:
    """Any changed byte of the directory, and any cut, is a FormatError; of a row, its checksum."""
    rng = random.Random(0)
    blobs = [blob(rng, 2 if i % 5 else 3, 4) for i in range(64)]
    data = written(pa.array(blobs, pa.binary()), least=20)
    assert data is not None
    directory = opened(data)
    length = TAIL.unpack(data[-TAIL.size :])[0]
    start = len(data) - TAIL.size - length
    for at in range(start, len(data)):
        spoiled = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        with pytest.raises(FormatError):
            opened(spoiled)
    for end in range(0, len(data), 7):
        with pytest.raises(FormatError):
            opened(data[:end])
    (group,) = directory.columns[0].groups
    row = data[group.slices : group.slices + group.stride]
    for at in range(len(row)):
        assert row_of(row[:at] + bytes([row[at] ^ 4]) + row[at + 1 :], group) is None


def test_hostile_directories_are_refused() -> None:
    rng = random.Random(0)
    data = written(pa.array([blob(rng, 2, 4) for _ in range(8)], pa.binary()))
    assert data is not None
    length = TAIL.unpack(data[-TAIL.size :])[0]
    start = len(data) - TAIL.size - length
    text = data[start : start + length]

    def with_text(old: bytes, new: bytes) -> bytes:
        assert old in text, (old, text)
        changed = text.replace(old, new)
        return data[:start] + changed + TAIL.pack(len(changed), zlib.crc32(changed), b"SKSLICES")

    for old, new in (
        (b'"words": 2', b'"words": 4611686018427387900'),
        (b'"words": 2', b'"words": 3'),
        (b'"words": 2', b'"words": 0'),
        (b'"hashes": 4', b'"hashes": 0'),
        (b'"hashes": 4', b'"hashes": -4'),
        (b'"files": 8', b'"files": 9'),
        (b'"files": 8', b'"files": true'),
        (b'"slices": 8', b'"slices": 0'),
        (b'"rows": 8', b'"rows": "8"'),
        (b'"groups": [', b'"groups": ' + b"[" * 5_000),
        (b'"columns": [', b'"columns": {"a": 1}, "x": ['),
        (b'"part": "part-x"', b'"part": 7'),
        (b'{"version": 1, "part"', b'["version"'),
    ):
        with pytest.raises(FormatError):
            opened(with_text(old, new))
    with pytest.raises(UnsupportedError, match="version 2"):
        opened(with_text(b'{"version": 1,', b'{"version": 2,'))
