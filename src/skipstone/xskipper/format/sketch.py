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
same ``k`` by OR-ing its ``B / b`` parts. Only for such ``b``: a filter of a power of two of words
can be halved down to one word.

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

from skipstone.errors import FormatError

if TYPE_CHECKING:
    from .murmur3 import U32


U64: TypeAlias = npt.NDArray[np.uint64]

# Spark itself asks for 100 at a probability of 1e-30. More is a damaged header, and costs time.
MAX_HASHES = 1_000


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


def positions(h1: U32, h2: U32, j: int, version: int) -> U32 | npt.NDArray[np.int64]:
    """The value before the modulus, never negative, of hash ``j`` = 1..k; shapes broadcast."""
    if version == 1:
        c = (h1 + np.uint32(j) * h2).view(np.int32)
        return np.asarray(c ^ (c >> np.int32(31))).view(np.uint32)
    first, second = h1.view(np.int32).astype(np.int64), h2.view(np.int32).astype(np.int64)
    # At most 2^62 + 1000 x 2^31: no overflow.
    c64 = first * np.int64(0x7FFFFFFF) + np.int64(j) * second
    return np.asarray(c64 ^ (c64 >> np.int64(63)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SketchFilter:
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
        return isinstance(other, SketchFilter) and self.to_bytes() == other.to_bytes()

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
        """The probability that an absent value appears present, from the bits that are set."""
        return float((self.cardinality() / self.bit_size) ** self.num_hash_functions)

    @classmethod
    def from_bytes(
        cls, data: bytes | memoryview, *, file: str | None = None, offset: int = 0
    ) -> SketchFilter:
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
    def saturated(cls, num_hash_functions: int = 1) -> SketchFilter:
        """A filter that may contain everything: "nothing known" without a null."""
        words = np.full(1, np.iinfo(np.uint64).max, dtype=np.uint64)
        return cls(version=1, num_hash_functions=num_hash_functions, words=words)

    def fold(self, words: int) -> SketchFilter:
        """The same set in ``words`` words; ``ValueError`` unless they divide this filter's."""
        if words < 1 or len(self.words) % words:
            raise ValueError(f"{len(self.words)} words do not fold to {words}: not a divisor")
        return self._with(np.bitwise_or.reduce(self.words.reshape(-1, words), axis=0))

    def fold_down(self, fpp: float) -> SketchFilter:
        """Halved as often as the false positive probability stays at most ``fpp``."""
        best = self
        while len(best.words) % 2 == 0:
            half = best.fold(len(best.words) // 2)
            if half.expected_fpp() > fpp:
                break
            best = half
        return best

    def _with(self, words: U64) -> SketchFilter:
        return SketchFilter(
            version=self.version,
            num_hash_functions=self.num_hash_functions,
            words=words,
            seed=self.seed,
        )
