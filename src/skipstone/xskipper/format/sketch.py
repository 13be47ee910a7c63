"""The Bloom filter of ``org.apache.spark.util.sketch``, versions 1 and 2.

Bytes, all big-endian::

    version 1:  int 1 | int k            | int n | n x int64      12 + 8n bytes
    version 2:  int 2 | int k | int seed | int n | n x int64      16 + 8n bytes

Sizing, for ``n`` expected values and false positive probability ``p``::

    m = trunc(-n ln p / (ln 2)^2) bits,   words = ceil(m / 64),   k = max(1, round(m / n ln 2))

The modulus is ``bits = 64 x words``; ``k`` comes from the requested ``m``. Bit ``i`` is bit
``i & 63`` (from the low end) of word ``i >> 6``. Position of hash ``j = 1..k`` of a value (``h1``,
``h2`` as Java's ints)::

    version 1:  c = int32(h1 + j h2)                          seed is 0
    version 2:  c = int64(h1 (2^31 - 1) + j h2)
    position = (c if c >= 0 else ~c) mod bits

**Folding.** ``c`` is the same whatever the size, and ``c mod B mod b = c mod b`` when ``b`` divides
``B``. So a filter built at a bound of ``B`` bits becomes exactly the filter of ``b`` bits with the
same ``k`` by OR-ing its ``B / b`` parts. Only for such ``b``; ``foldable_words`` sizes filters so
that halving works all the way down.

A filter proves absence, never presence. Strings go in as UTF-8 bytes, byte, short and int as long.

Write version 1: every release of Xskipper on every Spark reads it; version 2 (the default of
Spark 4.1 and later) fails on Spark 4.0 and older.

Source: Spark's ``BloomFilterImpl``, ``BloomFilterImplV2`` and ``BitArray``, checked bit for bit
against filters that Spark wrote.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skipstone.errors import FormatError
from skipstone.pruning.column_types import binary_parts

from .murmur3 import hash_bytes, hash_longs

if TYPE_CHECKING:
    from .murmur3 import U32

__all__ = [
    "MAX_HASHES",
    "MAX_WORDS",
    "BloomBuilder",
    "BloomFilter",
    "foldable_words",
    "hash_arrow",
    "modulo",
    "optimal_bits",
    "optimal_hashes",
    "positions",
]

U64: TypeAlias = npt.NDArray[np.uint64]

# Spark itself asks for 100 at a probability of 1e-30. More is a damaged header, and costs time.
MAX_HASHES = 1_000
# Java's arrays end here.
MAX_WORDS = (1 << 31) - 1
_CHUNK = 1 << 15


def optimal_bits(expected: int, fpp: float) -> int:
    """``m`` of the formula above."""
    if expected < 1 or not 0.0 < fpp < 1.0:
        raise ValueError(
            f"a Bloom filter needs expected >= 1 and 0 < fpp < 1, not {expected}, {fpp}"
        )
    return max(1, int(-expected * math.log(fpp) / (math.log(2) * math.log(2))))


def optimal_hashes(expected: int, bits: int) -> int:
    """``k`` of the formula above; Java's ``Math.round`` rounds halves up."""
    return max(1, math.floor(bits / expected * math.log(2) + 0.5))


def foldable_words(expected: int, fpp: float) -> int:
    """The least power of two of words that holds ``expected`` values at ``fpp``."""
    words = -(-optimal_bits(expected, fpp) // 64)
    return 1 << (words - 1).bit_length()


def positions(h1: U32, h2: U32, j: int, version: int) -> U32 | npt.NDArray[np.int64]:
    """The value before the modulus, never negative, of hash ``j`` = 1..k; shapes broadcast."""
    if version == 1:
        c = (h1 + np.uint32(j) * h2).view(np.int32)
        return np.asarray(c ^ (c >> np.int32(31))).view(np.uint32)
    first, second = h1.view(np.int32).astype(np.int64), h2.view(np.int32).astype(np.int64)
    # At most 2^62 + 1000 x 2^31: no overflow.
    c64 = first * np.int64(0x7FFFFFFF) + np.int64(j) * second
    return np.asarray(c64 ^ (c64 >> np.int64(63)))


def modulo(c: U32 | npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.int64]:
    """``c mod bits``, as positions."""
    if c.dtype == np.uint32 and bits >= 1 << 31:
        # Version 1 never reaches beyond 2^31.
        return c.astype(np.int64)
    return (c % c.dtype.type(bits)).astype(np.int64)


def hash_arrow(array: pa.Array | pa.ChunkedArray, seed: int = 0) -> tuple[U32, U32]:
    """``(h1, h2)`` of each non-null value: integers up to int64, strings, binaries.

    ``UnsupportedError`` for other types: a filter over them would not be one that Spark asks.
    """
    if isinstance(array, pa.ChunkedArray):
        pairs = [hash_arrow(chunk, seed) for chunk in array.chunks]
        empty = [np.empty(0, np.uint32)]
        return (
            np.concatenate([pair[0] for pair in pairs] or empty),
            np.concatenate([pair[1] for pair in pairs] or empty),
        )
    if array.type in (pa.string_view(), pa.binary_view()):
        array = array.cast(pa.large_binary())
    if array.null_count:
        array = array.drop_null()
    if pa.types.is_signed_integer(array.type):
        return hash_longs(array.to_numpy(zero_copy_only=False).astype(np.int64), seed)
    if pa.types.is_dictionary(array.type):
        h1, h2 = hash_arrow(array.dictionary, seed)
        if array.dictionary.null_count:
            return hash_arrow(array.cast(array.type.value_type), seed)
        indices = array.indices.to_numpy(zero_copy_only=False)
        return h1[indices], h2[indices]
    return hash_bytes(*binary_parts(array), seed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BloomFilter:
    """One filter. ``words``: read-only uint64 array of n words; ``seed`` is 0 in version 1."""

    version: int
    num_hash_functions: int
    words: U64
    seed: int = 0

    def __post_init__(self) -> None:
        words = np.ascontiguousarray(self.words, dtype=np.uint64).view()
        words.flags.writeable = False
        object.__setattr__(self, "words", words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BloomFilter) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash((self.version, self.num_hash_functions, self.seed, len(self.words)))

    @property
    def bit_size(self) -> int:
        """Bits in the modulus: 64 per word."""
        return 64 * len(self.words)

    def cardinality(self) -> int:
        """Bits that are set."""
        return int(np.bitwise_count(self.words).sum(dtype=np.int64))

    def expected_fpp(self) -> float:
        """The probability that an absent value is taken for present, by the bits that are set."""
        return float((self.cardinality() / self.bit_size) ** self.num_hash_functions)

    @classmethod
    def from_bytes(
        cls, data: bytes | memoryview, *, file: str | None = None, offset: int = 0
    ) -> BloomFilter:
        """Parses ``BloomFilter.writeTo``: exactly one filter; ``offset`` is where it lies."""
        view = memoryview(data).cast("B")
        if len(view) < 12:
            raise FormatError(
                "Bloom filter too short", file=file, offset=offset, expected=12, got=len(view)
            )
        version = struct.unpack_from(">i", view)[0]
        if version not in (1, 2):
            raise FormatError(
                "version of a Bloom filter",
                file=file,
                offset=offset,
                expected="1 or 2",
                got=version,
            )
        start = 12 if version == 1 else 16
        if len(view) < start:
            raise FormatError(
                "Bloom filter too short", file=file, offset=offset, expected=start, got=len(view)
            )
        seed = 0 if version == 1 else struct.unpack_from(">i", view, 8)[0]
        hashes, count = (
            struct.unpack_from(">i", view, 4)[0],
            struct.unpack_from(">i", view, start - 4)[0],
        )
        if not 1 <= hashes <= MAX_HASHES:
            raise FormatError(
                "hash functions of a Bloom filter",
                file=file,
                offset=offset + 4,
                expected=f"1 to {MAX_HASHES}",
                got=hashes,
            )
        if count < 1 or len(view) != start + 8 * count:
            raise FormatError(
                "length of a Bloom filter",
                file=file,
                offset=offset + start - 4,
                expected=f"{start} + 8 x {count} bytes, at least one word",
                got=len(view),
            )
        words = np.frombuffer(view[start:], dtype=">u8").astype(np.uint64)
        return cls(version=version, num_hash_functions=hashes, words=words, seed=seed)

    def to_bytes(self) -> bytes:
        """The bytes that Spark's ``writeTo`` writes."""
        head = [self.version, self.num_hash_functions, *([self.seed] if self.version == 2 else [])]
        count = len(self.words)
        return struct.pack(f">{len(head) + 1}i", *head, count) + self.words.astype(">u8").tobytes()

    @classmethod
    def saturated(cls, num_hash_functions: int = 1) -> BloomFilter:
        """A filter that may contain everything: how a store says "nothing known" without a null."""
        words = np.full(1, np.iinfo(np.uint64).max, dtype=np.uint64)
        return cls(version=1, num_hash_functions=num_hash_functions, words=words)

    def might_contain_hashes(self, h1: U32, h2: U32) -> npt.NDArray[np.bool_]:
        """Per value: False where it is surely absent. The hashes must be of this filter's seed."""
        found = np.empty(len(h1), dtype=np.bool_)
        for at in range(0, len(h1), _CHUNK):
            first, second = h1[at : at + _CHUNK], h2[at : at + _CHUNK]
            alive = np.arange(len(first))
            for j in range(1, self.num_hash_functions + 1):
                c = positions(first[alive], second[alive], j, self.version)
                position = modulo(c, self.bit_size)
                word = self.words[position >> 6]
                alive = alive[(word >> (position & 63).astype(np.uint64)) & np.uint64(1) != 0]
            part = np.zeros(len(first), dtype=np.bool_)
            part[alive] = True
            found[at : at + _CHUNK] = part
        return found

    def might_contain_longs(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Per integer: False where it is surely absent."""
        return self.might_contain_hashes(*hash_longs(values, self.seed))

    def might_contain(self, array: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """Per non-null value of an Arrow array: False where it is surely absent."""
        return self.might_contain_hashes(*hash_arrow(array, self.seed))

    def merge(self, other: BloomFilter) -> BloomFilter:
        """The filter of both sets; ``ValueError`` unless version, size, k and seed agree."""
        mine = (self.version, self.num_hash_functions, self.seed, len(self.words))
        theirs = (other.version, other.num_hash_functions, other.seed, len(other.words))
        if mine != theirs:
            raise ValueError(f"Bloom filters of different kinds do not merge: {mine} and {theirs}")
        return self._with(self.words | other.words)

    def fold(self, words: int) -> BloomFilter:
        """The same set in ``words`` words; ``ValueError`` unless they divide this filter's."""
        if words < 1 or len(self.words) % words:
            raise ValueError(f"{len(self.words)} words do not fold to {words}: not a divisor")
        return self._with(np.bitwise_or.reduce(self.words.reshape(-1, words), axis=0))

    def fold_down(self, fpp: float) -> BloomFilter:
        """Halved as often as the false positive probability stays at most ``fpp``."""
        best = self
        while len(best.words) % 2 == 0:
            half = best.fold(len(best.words) // 2)
            if half.expected_fpp() > fpp:
                break
            best = half
        return best

    def _with(self, words: U64) -> BloomFilter:
        return BloomFilter(
            version=self.version,
            num_hash_functions=self.num_hash_functions,
            words=words,
            seed=self.seed,
        )


class BloomBuilder:
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
    ) -> BloomBuilder:
        """Sized as Spark sizes it; with ``foldable``, up to the next power of two of words."""
        bits = optimal_bits(expected, fpp)
        words = foldable_words(expected, fpp) if foldable else -(-bits // 64)
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

    def put(self, array: pa.Array | pa.ChunkedArray) -> None:
        """Adds the non-null values of an Arrow array of integers, strings or binaries."""
        self.put_hashes(*hash_arrow(array, self.seed))

    def build(self) -> BloomFilter:
        """The filter so far; the builder may go on."""
        return BloomFilter(
            version=self.version,
            num_hash_functions=self.num_hash_functions,
            words=self._bytes.view("<u8").astype(np.uint64),
            seed=self.seed,
        )
