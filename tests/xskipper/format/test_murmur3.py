"""Hashes over arrays against a plain version of the specification, one value at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from skipstone.xskipper.format.sketch import hash_bytes, hash_longs

MASK = 0xFFFFFFFF
INTS = st.integers(-(2**31), 2**31 - 1)


def rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (32 - r))) & MASK


def one(blocks: list[int], length: int, seed: int) -> int:
    h = seed & MASK
    for block in blocks:
        h ^= rotl(block * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
        h = (rotl(h, 13) * 5 + 0xE6546B64) & MASK
    h ^= length
    h = (h ^ (h >> 16)) * 0x85EBCA6B & MASK
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & MASK
    return h ^ (h >> 16)


def blocks_of(value: bytes) -> list[int]:
    whole = len(value) // 4 * 4
    blocks = [int.from_bytes(value[i : i + 4], "little") for i in range(0, whole, 4)]
    return blocks + [(byte - 256 if byte > 127 else byte) & MASK for byte in value[whole:]]


def pair(blocks: list[int], length: int, seed: int) -> tuple[int, int]:
    first = one(blocks, length, seed)
    return first, one(blocks, length, first)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), INTS)
@example([0, -1, 2**63 - 1, -(2**63)], 0)
def test_longs(values: list[int], seed: int) -> None:
    h1, h2 = hash_longs(np.array(values, dtype=np.int64), seed)
    expected = [pair([v & MASK, (v >> 32) & MASK], 8, seed) for v in values]
    assert list(zip(h1.tolist(), h2.tolist(), strict=True)) == expected


@given(st.lists(st.binary(max_size=40), max_size=60), INTS)
@example([b"", b"\x80", b"\xff\xfe\xfd", bytes(range(200)) * 5], 7)
@example([b"ab"] * 20 + [b"x" * 4_001] + [b"y" * 37] * 20, -7)
def test_byte_strings(values: list[bytes], seed: int) -> None:
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([len(v) for v in values], out=offsets[1:])
    h1, h2 = hash_bytes(np.frombuffer(b"".join(values), np.uint8), offsets, seed)
    expected = [pair(blocks_of(v), len(v), seed) for v in values]
    assert list(zip(h1.tolist(), h2.tolist(), strict=True)) == expected


def test_strings_that_do_not_start_at_the_buffers_start() -> None:
    data = np.frombuffer(b"skipped|abc|defgh", np.uint8)
    h1, h2 = hash_bytes(data, np.array([8, 11, 12, 17], dtype=np.int64))
    assert (int(h1[0]), int(h2[0])) == pair(blocks_of(b"abc"), 3, 0)
    assert (int(h1[2]), int(h2[2])) == pair(blocks_of(b"defgh"), 5, 0)


def test_many_rows_are_hashed_as_few_are() -> None:
    # More rows and more bytes than one slice takes, with one string far longer than the others.
    rng = np.random.default_rng(7)
    lengths = rng.integers(0, 1_200, 40_000)
    lengths[17] = 300_001
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = rng.integers(0, 256, offsets[-1]).astype(np.uint8)
    h1, h2 = hash_bytes(data, offsets, 3)
    for row in (0, 17, 20_000, 32_767, 32_768, 39_999):
        value = data[offsets[row] : offsets[row + 1]].tobytes()
        assert (int(h1[row]), int(h2[row])) == pair(blocks_of(value), len(value), 3)
