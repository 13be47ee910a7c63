"""Spark's variant of Murmur3_x86_32, over whole arrays.

For a 64-bit integer: mix the low half, then the high half, ``fmix(8)``. For bytes: mix the 32-bit
little-endian blocks; then, unlike the published Murmur3, mix **each remaining byte as a block of
its own, sign-extended**; ``fmix(length)``. All arithmetic is modulo 2^32::

    mix(h, b):  b *= cc9e2d51; b = rotl(b, 15); b *= 1b873593
                h ^= b; h = rotl(h, 13); h = h * 5 + e6546b64
    fmix(h, n): h ^= n; h ^= h >> 16; h *= 85ebca6b; h ^= h >> 13; h *= c2b2ae35; h ^= h >> 16

A Bloom filter takes two hashes of each value: ``h1 = hash(value, seed)``, ``h2 = hash(value, h1)``.
The steps on a block before it is combined with ``h`` do not depend on the seed, so they run once.

Byte strings are sorted by length and mixed block by block, all strings that still have a block at a
time; the last few, much longer than the rest, are finished one by one.

Source: ``org.apache.spark.util.sketch.Murmur3_x86_32``, checked against its results.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

U32: TypeAlias = npt.NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_M1, _M2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_FIVE, _ADD = np.uint32(5), np.uint32(0xE6546B64)
# Rows at a time: what they need stays in the cache, and memory stays bounded.
_CHUNK, _CHUNK_BYTES = 1 << 15, 1 << 24
# Below this many strings a Python loop over the blocks beats an array operation per block.
_FEW = 16
_MASK = 0xFFFFFFFF


def _rotl(x: U32, bits: int) -> U32:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _spread(block: U32) -> U32:
    return _rotl(block * _C1, 15) * _C2


def _mix(h: U32, spread: U32) -> U32:
    return _rotl(h ^ spread, 13) * _FIVE + _ADD


def _fmix(h: U32, length: U32 | np.uint32) -> U32:
    h = h ^ length
    h ^= h >> np.uint32(16)
    h *= _M1
    h ^= h >> np.uint32(13)
    h *= _M2
    h ^= h >> np.uint32(16)
    return h


def hash_longs(values: npt.NDArray[np.int64], seed: int = 0) -> tuple[U32, U32]:
    """``(h1, h2)`` of each 64-bit integer; ``seed`` is Java's int. Narrower ints: widen first."""
    unsigned = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)
    h1, h2 = np.empty(len(unsigned), np.uint32), np.empty(len(unsigned), np.uint32)
    start = np.array([seed & _MASK], dtype=np.uint32)
    eight = np.uint32(8)
    for at in range(0, len(unsigned), _CHUNK):
        part = unsigned[at : at + _CHUNK]
        low = _spread(part.astype(np.uint32))
        high = _spread((part >> np.uint64(32)).astype(np.uint32))
        first = _fmix(_mix(_mix(start, low), high), eight)
        h1[at : at + _CHUNK] = first
        h2[at : at + _CHUNK] = _fmix(_mix(_mix(first, low), high), eight)
    return h1, h2


def hash_bytes(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], seed: int = 0
) -> tuple[U32, U32]:
    """``(h1, h2)`` of each byte string ``data[offsets[i]:offsets[i + 1]]``.

    ``offsets``: n + 1 ascending positions within ``data``; the caller has checked them (Arrow's
    own are). A string is at most 2^31 - 1 bytes long, as Java's are.
    """
    count = len(offsets) - 1
    h1, h2 = np.empty(count, np.uint32), np.empty(count, np.uint32)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    at = 0
    while at < count:
        full = int(np.searchsorted(offsets, starts[at] + _CHUNK_BYTES))
        end = min(max(full, at + 1), at + _CHUNK, count)
        window = slice(at, end)
        h1[window], h2[window] = _hash_chunk(data, starts[window], lengths[window], seed)
        at = end
    return h1, h2


def _hash_chunk(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    seed: int,
) -> tuple[U32, U32]:
    # Longest first: the strings that still have a block are always a prefix.
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    blocks, tails = lengths >> 2, lengths & 3
    few = min(_FEW, len(order))
    rounds = int(blocks[few - 1]) if len(order) > _FEW else 0
    long_ones = int(np.searchsorted(-blocks, -rounds, side="left"))

    mixed: list[U32] = []
    for block in range(rounds):
        live = int(np.searchsorted(-blocks, -block, side="left"))
        at = starts[:live] + 4 * block
        word = data[at].astype(np.uint32)
        for byte in (1, 2, 3):
            word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        mixed.append(_spread(word))
    ends: list[tuple[npt.NDArray[np.int64], U32]] = []
    for byte in range(3):
        having = np.flatnonzero(tails > byte)
        at = starts[having] + 4 * blocks[having] + byte
        ends.append((having, _spread(data[at].view(np.int8).astype(np.int32).view(np.uint32))))

    h1 = np.full(len(order), seed & _MASK, dtype=np.uint32)
    found = []
    for _ in range(2):
        h = h1.copy()
        for spread in mixed:
            h[: len(spread)] = _mix(h[: len(spread)], spread)
        for i in range(long_ones):
            words = data[starts[i] + 4 * rounds : starts[i] + 4 * blocks[i]].tobytes()
            h[i] = _mix_one(int(h[i]), words)
        for having, spread in ends:
            h[having] = _mix(h[having], spread)
        h1 = _fmix(h, lengths.astype(np.uint32))
        unsorted = np.empty_like(h1)
        unsorted[order] = h1
        found.append(unsorted)
    return found[0], found[1]


def _mix_one(h: int, blocks: bytes) -> int:
    spread = _spread(np.frombuffer(blocks, dtype="<u4").astype(np.uint32)).tolist()
    for block in spread:
        h ^= block
        h = ((h << 13) & _MASK) | (h >> 19)
        h = (h * 5 + 0xE6546B64) & _MASK
    return h
