"""Insertion into a split-block Bloom filter, compiled by numba: imported only for many hashes.

Machine code is cached in a folder that can be written. A block's number is below the number of
blocks by its formula (see ``bloom_filter.py``), so nothing outside the array is touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from skipstone._numba import compile_kernel

from . import xxh64
from .bloom_filter import SALT, Insertion

_S0, _S1, _S2, _S3, _S4, _S5, _S6, _S7 = (np.uint32(salt) for salt in SALT)


_P1, _P2, _P3, _P4 = (np.uint64(p) for p in (xxh64.P1, xxh64.P2, xxh64.P3, xxh64.P4))
_EIGHT = np.uint64((xxh64.P5 + 8) & 0xFFFF_FFFF_FFFF_FFFF)
_HALF, _ONE, _SHIFT = np.uint64(32), np.uint32(1), np.uint32(27)
_RUN = 1_024


# Written out, so that the compiler sees one vector of eight words.
@register_jitable
def _set(blocks: Any, h: Any) -> None:
    block = np.int64(((h >> _HALF) * np.uint64(len(blocks))) >> _HALF)
    low = np.uint32(h)
    blocks[block, 0] |= _ONE << (np.uint32(low * _S0) >> _SHIFT)
    blocks[block, 1] |= _ONE << (np.uint32(low * _S1) >> _SHIFT)
    blocks[block, 2] |= _ONE << (np.uint32(low * _S2) >> _SHIFT)
    blocks[block, 3] |= _ONE << (np.uint32(low * _S3) >> _SHIFT)
    blocks[block, 4] |= _ONE << (np.uint32(low * _S4) >> _SHIFT)
    blocks[block, 5] |= _ONE << (np.uint32(low * _S5) >> _SHIFT)
    blocks[block, 6] |= _ONE << (np.uint32(low * _S6) >> _SHIFT)
    blocks[block, 7] |= _ONE << (np.uint32(low * _S7) >> _SHIFT)


def _insert(blocks: Any, hashes: Any) -> None:
    for i in range(len(hashes)):
        _set(blocks, hashes[i])


# XXH64 of eight bytes, as in ``xxh64.py``, for a run of values at a time.
def _insert_words(blocks: Any, words: Any) -> None:
    hashes = np.empty(_RUN, np.uint64)
    for start in range(0, len(words), _RUN):
        count = min(_RUN, len(words) - start)
        for i in range(count):
            lane = words[start + i] * _P2
            h = _EIGHT ^ (((lane << np.uint64(31)) | (lane >> np.uint64(33))) * _P1)
            h = ((h << np.uint64(27)) | (h >> np.uint64(37))) * _P1 + _P4
            h = (h ^ (h >> np.uint64(33))) * _P2
            h = (h ^ (h >> np.uint64(29))) * _P3
            hashes[i] = h ^ (h >> np.uint64(32))
        for i in range(count):
            _set(blocks, hashes[i])


def compiled() -> Insertion:
    """The two loops."""
    return Insertion(hashes=compile_kernel(_insert), words=compile_kernel(_insert_words))
