"""Insertion into a split-block Bloom filter, compiled by numba: imported only for many hashes.

Machine code is cached in a folder that can be written. A block's number is below the number of
blocks by its formula (see ``bloom_filter.py``), so nothing outside the array is touched.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from .bloom_filter import SALT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["compiled"]

_S0, _S1, _S2, _S3, _S4, _S5, _S6, _S7 = (np.uint32(salt) for salt in SALT)


# Spelled out: so the compiler sees one vector of eight words.
def _insert(blocks: Any, hashes: Any) -> None:
    count, half = np.uint64(len(blocks)), np.uint64(32)
    one, shift = np.uint32(1), np.uint32(27)
    for i in range(len(hashes)):
        h = hashes[i]
        block = np.int64(((h >> half) * count) >> half)
        low = np.uint32(h)
        blocks[block, 0] |= one << (np.uint32(low * _S0) >> shift)
        blocks[block, 1] |= one << (np.uint32(low * _S1) >> shift)
        blocks[block, 2] |= one << (np.uint32(low * _S2) >> shift)
        blocks[block, 3] |= one << (np.uint32(low * _S3) >> shift)
        blocks[block, 4] |= one << (np.uint32(low * _S4) >> shift)
        blocks[block, 5] |= one << (np.uint32(low * _S5) >> shift)
        blocks[block, 6] |= one << (np.uint32(low * _S6) >> shift)
        blocks[block, 7] |= one << (np.uint32(low * _S7) >> shift)


@cache
def compiled() -> Callable[[NDArray[np.uint32], NDArray[np.uint64]], None]:
    """``insert(blocks, hashes)``; the first call in a process compiles it or loads what another
    one compiled."""
    try:
        made: Callable[..., None] = njit(cache=True, nogil=True)(_insert)
    except RuntimeError:  # no folder for the cache can be written
        made = njit(nogil=True)(_insert)
    return made
