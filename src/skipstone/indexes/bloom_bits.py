"""The hot part of building Bloom filters: hashing, counting and setting bits, over whole arrays.

A value is represented by its *pair*, one uint64: ``h1 << 32 | h2`` of Spark's Murmur3 (seed 0).
From pairs alone follow both the number of distinct values and every bit of a filter of any size
(``formats/xskipper/sketch.py``), so pairs are what a builder keeps.

Distinct values are counted exactly up to 65,536 pairs, and beyond by linear counting: of a bitmap
of ``M`` bits, at least 2^23 and at least one per pair, each pair sets bit ``h2 mod M``; with ``z``
bits still 0 there are about ``M ln(M / z)``. Its standard error is below 0.1 % throughout.

``Kernels`` has two implementations with equal results: NumPy, here, and compiled (``bloomjit.py``),
about four times faster but half a second slower to start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from skipstone._numba import CompiledKernels
from skipstone.xskipper.format import murmur3

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "COMPILED",
    "NUMPY",
    "Bits",
    "Kernels",
    "Pairs",
    "distinct_pairs",
    "estimate_distinct",
    "unique",
]

Pairs: TypeAlias = npt.NDArray[np.uint64]
Bits: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]
U8: TypeAlias = npt.NDArray[np.uint8]

_EXACT = 1 << 16
_LEAST_MAP = 1 << 23
# Pairs at a time (what they need stays in the cache), and bits of a filter at a time (a byte each).
_CHUNK, _SEGMENT = 1 << 15, 1 << 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The operations of the module.

    - ``longs(values)``: pairs of int64 values;
    - ``texts(data, offsets)``: pairs of the byte strings ``data[offsets[i]:offsets[i + 1]]``;
    - ``occupied(parts, size)``: bits set of a bitmap of ``size`` (a power of two) bits;
    - ``put(pairs, hashes, words)``: sets the bits of all pairs in a version 1 filter.
    """

    longs: Callable[[I64], Pairs]
    texts: Callable[[U8, I64], Pairs]
    occupied: Callable[[Sequence[Pairs], int], int]
    put: Callable[[Pairs, int, Bits], None]


def distinct_pairs(parts: Sequence[Pairs], kernels: Kernels) -> int:
    """The number of distinct pairs among all ``parts``, as the module says."""
    total = sum(map(len, parts))
    if total <= _EXACT:
        return len(unique(np.concatenate(parts))) if parts else 0
    return estimate_distinct(parts, kernels)


def estimate_distinct(parts: Sequence[Pairs], kernels: Kernels) -> int:
    """The number of distinct pairs by linear counting."""
    size = max(_LEAST_MAP, 1 << (sum(map(len, parts)) - 1).bit_length())
    free = max(size - kernels.occupied(parts, size), 1)
    return round(size * math.log(size / free))


def unique(pairs: Pairs) -> Pairs:
    """The distinct pairs, ascending."""
    ascending = np.sort(pairs)
    if len(ascending) < 2:
        return ascending
    return ascending[np.concatenate(([True], ascending[1:] != ascending[:-1]))]


def _pack(hashes: tuple[murmur3.U32, murmur3.U32]) -> Pairs:
    pairs = np.empty((len(hashes[0]), 2), "<u4")
    pairs[:, 1], pairs[:, 0] = hashes
    return pairs.view("<u8").reshape(-1)


def _longs(values: I64) -> Pairs:
    return _pack(murmur3.hash_longs(values))


def _texts(data: U8, offsets: I64) -> Pairs:
    return _pack(murmur3.hash_bytes(data, offsets))


def _occupied(parts: Sequence[Pairs], size: int) -> int:
    seen = np.zeros(size, np.bool_)
    for pairs in parts:
        for at in range(0, len(pairs), _CHUNK):
            seen[(pairs[at : at + _CHUNK] & np.uint64(size - 1)).astype(np.intp)] = True
    return int(np.count_nonzero(seen))


def _put(pairs: Pairs, hashes: int, words: Bits) -> None:
    bits = 64 * len(words)
    for low in range(0, bits, _SEGMENT):
        high = min(low + _SEGMENT, bits)
        seen = np.zeros(high - low, np.bool_)
        for at in range(0, len(pairs), _CHUNK):
            part = pairs[at : at + _CHUNK]
            c, h2 = (part >> np.uint64(32)).astype(np.uint32), part.astype(np.uint32)
            for _ in range(hashes):
                c += h2
                signed = c.view(np.int32)
                place = (signed ^ (signed >> np.int32(31))).view(np.uint32)
                if bits < 1 << 31:  # no place is beyond
                    # NumPy divides by one number in SIMD, and has no such remainder.
                    place -= place // np.uint32(bits) * np.uint32(bits)
                if low or high < bits:
                    place = place[(place >= low) & (place < high)] - np.uint32(low)
                seen[place] = True
        part_words = words[low // 64 : high // 64]
        part_words |= np.packbits(seen, bitorder="little").view("<u8")


#: In values to hash: of one file, and of all files so far.
COMPILED = CompiledKernels[Kernels](
    module=f"{__package__}.bloom_bits_jit", once=4_000_000, total=10_000_000
)
NUMPY = Kernels(longs=_longs, texts=_texts, occupied=_occupied, put=_put)
