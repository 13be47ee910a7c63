"""Builds a Bloom filter of the right size without holding the values.

    fill    a filter for the largest possible number of values
    count   n distinct values leave z bits unset in b blocks of 8 words:  n = -32 b ln(z / 256 b)
    fold    halve the filter until it has the size for n

The highest bits of a hash choose the block. So blocks 2k and 2k + 1 of a filter whose size is a
power of two are block k of the filter of half the size: folding gives, bit for bit, the filter that
filling the smaller one would give. A value sets one bit of each word of its block, so the number of
unset bits gives the count. Its error is below half a hundredth: the size differs from that of the
exact count only if n is that close to a limit. Up to 65,536 values the hashes are held and counted.

Spark looks up zeros and NaN by the bits of its literal, and means all equal values. So if the
values have a zero, both zeros are added; if they have a NaN, the NaN that Spark looks up is added.

Pages of one chunk may be added by several threads at once.
"""

from __future__ import annotations

import math
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.parquet.format.bloom_filter import COMPILED, BloomFilter, optimal_bytes, xxh64_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.parquet.encodings.values import Values


_FEW: Final = 1 << 16


class BloomFilterBuilder:
    """Builds the filter of one chunk of at most ``num_values`` values."""

    def __init__(self, num_values: int, fpp: float) -> None:
        self._fpp = fpp
        self._held: list[NDArray[np.uint64]] | None = [] if num_values <= _FEW else None
        few = 1 if num_values <= _FEW else num_values
        self._filter = BloomFilter.of_size(optimal_bytes(few, fpp))
        self._lock = Lock()
        self._equal = set[int]()

    def add(self, values: Values) -> None:
        """Add values; some of them may have been added before."""
        self._add_equal(values)
        numbers = isinstance(values, np.ndarray) and values.dtype.itemsize == 8
        compiled = COMPILED.for_work(len(values)) if self._held is None and numbers else None
        if compiled is not None:
            words = np.ascontiguousarray(values).view(np.uint64)
            words.flags.writeable = False
            with self._lock:
                compiled.words(self._filter.blocks, words)
            return
        self.add_hashes(xxh64_values(values))

    def add_used(self, values: Values, used: NDArray[np.bool_]) -> None:
        """Add those values that are ``used``."""
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            self._add_equal(values[used])
        self.add_hashes(xxh64_values(values)[used])

    def _add_equal(self, values: Values) -> None:
        """Add values that equal some of these in other bits; they do not count as distinct."""
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
            return
        equal = [0.0, -0.0] if not values.all() else []
        if np.isnan(values).any():
            equal.append(np.nan)
        self._equal.update(xxh64_values(np.array(equal, values.dtype)).tolist())

    def add_hashes(self, hashes: NDArray[np.uint64]) -> None:
        """Add values by their hashes."""
        if self._held is not None:
            self._held.append(hashes)
            return
        hashes = hashes.view()
        hashes.flags.writeable = False
        compiled = COMPILED.for_work(len(hashes))
        with self._lock:
            if compiled is None:
                self._filter.insert(hashes)
            else:
                compiled.hashes(self._filter.blocks, hashes)

    @property
    def ndv(self) -> int:
        """The number of distinct values; see the module."""
        if self._held is not None:
            return len(np.unique(np.concatenate(self._held))) if self._held else 0
        blocks = self._filter.blocks
        bits = 8 * blocks.nbytes
        unset = bits - int(np.bitwise_count(blocks).sum())
        return round(-bits / 8 * math.log(max(unset, 1) / bits))

    def filter(self) -> BloomFilter:
        """The filter for that number."""
        wanted = optimal_bytes(self.ndv, self._fpp)
        if self._held is not None:
            made = BloomFilter.of_size(wanted)
            for hashes in self._held:
                made.insert(hashes)
        else:
            blocks = self._filter.blocks
            while blocks.nbytes > wanted:
                blocks = blocks[::2] | blocks[1::2]
            made = BloomFilter(blocks)
        if self._equal:
            made.insert(np.array(sorted(self._equal), np.uint64))
        return made
