"""A plain builder and a plain probe of Spark's Bloom filter, which the tests compare with.

Both produce and read the bytes that Spark wrote (``test_sketch.py``). Strings go in as UTF-8 bytes,
byte, short and int as long.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.pruning.column_types import binary_parts
from skipstone.xskipper.format.java_bloom import METADATA, JavaClass
from skipstone.xskipper.format.sketch import (
    MAX_HASHES,
    SketchFilter,
    hash_bytes,
    hash_longs,
    optimal_bits,
    optimal_hashes,
    positions,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from skipstone.xskipper.format.bloom_probe import BlobColumn, Items
    from skipstone.xskipper.format.sketch import U32

#: the class around the filter in stores of versions 1 and 2
LEGACY_METADATA = replace(
    METADATA,
    name="com.ibm.metaindex.metadata.index.types.BloomFilterMetaData",
    superclass=JavaClass(
        name="com.ibm.metaindex.metadata.index.types.MetadataType",
        suid=0xF7B012BF742B86A4 - (1 << 64),
        flags=METADATA.flags,
    ),
)
# Java's arrays end here.
MAX_WORDS = (1 << 31) - 1
_CHUNK = 1 << 15


def modulo(c: U32 | npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.int64]:
    """``c mod bits``, as positions."""
    if c.dtype == np.uint32 and bits >= 1 << 31:
        # Version 1 never reaches beyond 2^31.
        return c.astype(np.int64)
    return (c % c.dtype.type(bits)).astype(np.int64)


def hash_arrow(array: pa.Array, seed: int = 0) -> tuple[U32, U32]:
    """``(h1, h2)`` of each non-null value: signed integers, strings, binaries."""
    if array.type == pa.string_view():
        array = array.cast(pa.large_binary())
    array = array.drop_null()
    if pa.types.is_signed_integer(array.type):
        return hash_longs(array.to_numpy(zero_copy_only=False).astype(np.int64), seed)
    return hash_bytes(*binary_parts(array), seed)


def might_contain_hashes(filter_: SketchFilter, h1: U32, h2: U32) -> npt.NDArray[np.bool_]:
    """Per value: False where it is surely absent. The hashes must be of this filter's seed."""
    found = np.empty(len(h1), dtype=np.bool_)
    for at in range(0, len(h1), _CHUNK):
        first, second = h1[at : at + _CHUNK], h2[at : at + _CHUNK]
        alive = np.arange(len(first))
        for j in range(1, filter_.num_hash_functions + 1):
            c = positions(first[alive], second[alive], j, filter_.version)
            position = modulo(c, filter_.bit_size)
            word = filter_.words[position >> 6]
            alive = alive[(word >> (position & 63).astype(np.uint64)) & np.uint64(1) != 0]
        part = np.zeros(len(first), dtype=np.bool_)
        part[alive] = True
        found[at : at + _CHUNK] = part
    return found


def might_contain_longs(
    filter_: SketchFilter, values: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Per integer: False where it is surely absent."""
    return might_contain_hashes(filter_, *hash_longs(values, filter_.seed))


def might_contain(filter_: SketchFilter, array: pa.Array) -> npt.NDArray[np.bool_]:
    """Per non-null value of an Arrow array: False where it is surely absent."""
    return might_contain_hashes(filter_, *hash_arrow(array, filter_.seed))


class SketchBuilder:
    """Collects values into a filter of a fixed size; memory is that of the filter."""

    __slots__ = ("_bytes", "num_hash_functions", "seed", "version", "words")

    def __init__(
        self, *, words: int, num_hash_functions: int, version: int = 1, seed: int = 0
    ) -> None:
        if version not in (1, 2) or (version == 1 and seed):
            raise ValueError("version 1 (seed 0) or 2")
        if not (1 <= words <= MAX_WORDS and 1 <= num_hash_functions <= MAX_HASHES):
            raise ValueError(f"no Bloom filter of {words} words and {num_hash_functions} hashes")
        self.words, self.num_hash_functions = words, num_hash_functions
        self.version, self.seed = version, seed
        self._bytes = np.zeros(8 * words, dtype=np.uint8)

    @classmethod
    def sized(
        cls, expected: int, fpp: float, *, version: int = 1, seed: int = 0, foldable: bool = False
    ) -> SketchBuilder:
        """Sized as Spark sizes it; with ``foldable``, up to the next power of two of words."""
        bits = optimal_bits(expected, fpp)
        words = -(-bits // 64)
        if foldable:
            words = 1 << (words - 1).bit_length()
        hashes = optimal_hashes(expected, bits)
        return cls(words=words, num_hash_functions=hashes, version=version, seed=seed)

    def put_hashes(self, h1: U32, h2: U32) -> None:
        """Adds values by their hashes of this builder's seed."""
        bits = 64 * self.words
        for at in range(0, len(h1), _CHUNK):
            first, second = h1[at : at + _CHUNK], h2[at : at + _CHUNK]
            for j in range(1, self.num_hash_functions + 1):
                position = modulo(positions(first, second, j, self.version), bits)
                bit = np.left_shift(np.uint8(1), (position & 7).astype(np.uint8))
                np.bitwise_or.at(self._bytes, position >> 3, bit)

    def put_longs(self, values: npt.NDArray[np.int64]) -> None:
        """Adds integers."""
        self.put_hashes(*hash_longs(values, self.seed))

    def put(self, array: pa.Array) -> None:
        """Adds the non-null values of an Arrow array of integers, strings or binaries."""
        self.put_hashes(*hash_arrow(array, self.seed))

    def build(self) -> SketchFilter:
        """The filter so far; the builder may go on."""
        return SketchFilter(
            version=self.version,
            num_hash_functions=self.num_hash_functions,
            words=self._bytes.view("<u8").astype(np.uint64),
            seed=self.seed,
        )


def each_in(column: BlobColumn, items: Items) -> npt.NDArray[np.bool_]:
    """Per item and filter of a column: False where the item is surely absent."""
    found = [column.might_contain_any(items[at : at + 1]) for at in range(len(items))]
    return np.array(found, np.bool_).reshape(len(items), len(column))
