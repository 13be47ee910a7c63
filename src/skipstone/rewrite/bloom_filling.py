"""A Bloom filter of values that are not held, as large as their distinct number wants.

    fill    a filter for as many values as there could be, and 2^23 flags by the low bits of hashes
    count   n distinct, of which z flags stay unset of m:  n = -m ln(z / m)
    fold    halve the filter until it has the size for n

A block is chosen by the highest bits of a hash, so that blocks 2k and 2k + 1 of a filter of a power
of two are block k of the one of half the size: folding gives, bit for bit, the filter that would
have been filled. The count is off by less than a thousandth up to 50 million values: only where n
lies that near to a border does the size differ from that of the exact number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.formats.parquet.bloom_filter import BloomFilter, optimal_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BloomFilling"]

_FLAGS: Final = 1 << 23
# From so many hashes on, the compiled loop is worth its import.
_MANY: Final = 1 << 14


class BloomFilling:
    """Of one chunk of at most ``num_values`` values."""

    def __init__(self, num_values: int, fpp: float) -> None:
        self._filter = BloomFilter.of_size(optimal_bytes(num_values, fpp))
        size = min(_FLAGS, max(1 << 16, 1 << (8 * num_values).bit_length()))
        self._flags = np.zeros(size, np.bool_)
        self._mask = np.uint64(size - 1)
        self._compiled = num_values >= _MANY

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Hashes of values, some of which may have been added before."""
        self._flags[(hashes & self._mask).astype(np.int64)] = True
        if self._compiled:
            from skipstone.formats.parquet.bloom_jit import compiled

            compiled()(self._filter.blocks, hashes)
        else:
            self._filter.insert(hashes)

    @property
    def ndv(self) -> int:
        """The number of distinct values; see the module."""
        size = len(self._flags)
        unset = size - int(np.count_nonzero(self._flags))
        return size if not unset else round(-size * math.log(unset / size))

    def filter(self, fpp: float) -> BloomFilter:
        """The filter for that number."""
        blocks = self._filter.blocks
        wanted = optimal_bytes(self.ndv, fpp)
        while blocks.nbytes > wanted:
            blocks = blocks[::2] | blocks[1::2]
        return BloomFilter(blocks)
