"""``bloom.HashKernels`` compiled by numba: imported only where there is enough to hash.

Machine code is cached in a folder that can be written, so that only the first process on a machine
compiles it. Every kernel gets whole arrays and stays inside them: positions are remainders by the
array's own size, and ``texts`` checks each string's ends against the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import register_jitable

from skipstone._arrays import read_only
from skipstone._numba import compile_kernel

from .bloom import HashKernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .bloom import I64, U8, Bits, Pairs


@register_jitable
def _spread(block: Any) -> Any:
    block = np.uint32(block * np.uint32(0xCC9E2D51))
    block = np.uint32((block << np.uint32(15)) | (block >> np.uint32(17)))
    return np.uint32(block * np.uint32(0x1B873593))


@register_jitable
def _mix(h: Any, spread: Any) -> Any:
    h = np.uint32(h ^ spread)
    h = np.uint32((h << np.uint32(13)) | (h >> np.uint32(19)))
    return np.uint32(h * np.uint32(5) + np.uint32(0xE6546B64))


@register_jitable
def _fmix(h: Any, length: Any) -> Any:
    h = np.uint32(h ^ np.uint32(length))
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(h ^ (h >> np.uint32(16)))


@register_jitable
def _pair(h1: Any, h2: Any) -> Any:
    return (np.uint64(h1) << np.uint64(32)) | np.uint64(h2)


@register_jitable
def _hash_text(data: Any, start: Any, end: Any, seed: Any) -> Any:
    h = np.uint32(seed)
    whole = start + ((end - start) >> 2 << 2)
    for at in range(start, whole, 4):
        block = (
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
        h = _mix(h, _spread(block))
    for at in range(whole, end):
        h = _mix(h, _spread(np.uint32(np.int8(data[at]))))
    return _fmix(h, end - start)


def _longs(values: Any, out: Any) -> None:
    eight = np.uint32(8)
    for i in range(len(values)):
        value = np.uint64(values[i])
        low, high = _spread(np.uint32(value)), _spread(np.uint32(value >> np.uint64(32)))
        h1 = _fmix(_mix(_mix(np.uint32(0), low), high), eight)
        out[i] = _pair(h1, _fmix(_mix(_mix(h1, low), high), eight))


def _texts(data: Any, offsets: Any, out: Any) -> bool:
    for i in range(len(out)):
        start, end = offsets[i], offsets[i + 1]
        if start < 0 or end < start or end > len(data):
            return False
        h1 = _hash_text(data, start, end, np.uint32(0))
        out[i] = _pair(h1, _hash_text(data, start, end, h1))
    return True


def _mark(pairs: Any, bitmap: Any) -> None:
    mask = np.uint64(64 * len(bitmap) - 1)
    for i in range(len(pairs)):
        place = pairs[i] & mask
        bitmap[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))


def _put(pairs: Any, hashes: Any, words: Any) -> None:
    # Remainders of 31-bit numbers by more than 2^31 bits are the numbers themselves.
    bits = np.uint32(min(64 * len(words), 1 << 31))
    for i in range(len(pairs)):
        c, h2 = np.uint32(pairs[i] >> np.uint64(32)), np.uint32(pairs[i])
        for _ in range(hashes):
            c = np.uint32(c + h2)
            signed = np.int32(c)
            place = np.uint32(signed ^ (signed >> np.int32(31))) % bits
            words[place >> np.uint32(6)] |= np.uint64(1) << np.uint64(place & np.uint32(63))


def compiled() -> HashKernels:
    longs_, texts_, mark_, put_ = (compile_kernel(each) for each in (_longs, _texts, _mark, _put))

    def longs(values: I64) -> Pairs:
        out = np.empty(len(values), np.uint64)
        longs_(read_only(np.ascontiguousarray(values, np.int64)), out)
        return out

    def texts(data: U8, offsets: I64) -> Pairs:
        out = np.empty(len(offsets) - 1, np.uint64)
        if not texts_(read_only(data), read_only(offsets), out):
            raise ValueError("offsets of strings outside their data")
        return out

    def occupied(parts: Sequence[Pairs], size: int) -> int:
        bitmap = np.zeros(size // 64, np.uint64)
        for pairs in parts:
            mark_(read_only(pairs), bitmap)
        return int(np.bitwise_count(bitmap).sum(dtype=np.int64))

    def put(pairs: Pairs, hashes: int, words: Bits) -> None:
        put_(read_only(pairs), hashes, words)

    return HashKernels(longs=longs, texts=texts, occupied=occupied, put=put)


def warm_up(kernels: HashKernels) -> None:
    """Compiles each kernel for the types of its arguments, by calls with few values."""
    pairs = kernels.longs(np.zeros(1, np.int64))
    kernels.texts(np.zeros(0, np.uint8), np.zeros(2, np.int64))
    kernels.occupied([pairs], 64)
    kernels.put(pairs, 1, np.zeros(1, np.uint64))
