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

**The hash** is Spark's variant of Murmur3_x86_32, here over whole arrays. For a 64-bit integer:
mix the low half, then the high half, ``fmix(8)``. For bytes: mix the 32-bit
little-endian blocks; then, unlike the published Murmur3, mix **each remaining byte as a block of
its own, sign-extended**; ``fmix(length)``. All arithmetic is modulo 2^32::

    mix(h, b):  b *= cc9e2d51; b = rotl(b, 15); b *= 1b873593
                h ^= b; h = rotl(h, 13); h = h * 5 + e6546b64
    fmix(h, n): h ^= n; h ^= h >> 16; h *= 85ebca6b; h ^= h >> 13; h *= c2b2ae35; h ^= h >> 16

A Bloom filter takes two hashes of each value: ``h1 = hash(value, seed)``, ``h2 = hash(value, h1)``.
The steps on a block before it is combined with ``h`` do not depend on the seed, so they run once.

Byte strings are sorted by length and mixed block by block, all strings that still have a block at a
time; the last few, much longer than the rest, are finished one by one.

Source: Spark's ``BloomFilterImpl``, ``BloomFilterImplV2``, ``BitArray`` and ``Murmur3_x86_32``,
checked bit for bit against filters that Spark wrote.
"""

from __future__ import annotations

import math
import struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from skipstone._arrays import read_only
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

U32: TypeAlias = npt.NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_M1, _M2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_FIVE, _ADD = np.uint32(5), np.uint32(0xE6546B64)
# Rows at a time: their data stays in the cache, and memory stays bounded.
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


def words_within(most: int) -> int:
    """Words of the largest filter of at most ``most`` bytes, rounded down to a size that other
    files have too (``bloom.size_class``)."""
    # Java's descriptors take less than 400 bytes, and each block of 1,024 has a header of 5.
    words = max(1, ((most - 400) * 1_024 // 1_029 - 12) // 8)
    shift = max(0, words.bit_length() - 5)
    return words >> shift << shift


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
        words = read_only(np.ascontiguousarray(self.words, dtype=np.uint64))
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

        def check(sound: bool, what: str, at: int, expected: object, got: object) -> None:
            if not sound:
                raise FormatError(
                    f"{what} of a Bloom filter",
                    file=file,
                    offset=offset + at,
                    expected=expected,
                    got=got,
                )

        check(len(view) >= 12, "bytes", 0, "12 or more", len(view))
        version, hashes = struct.unpack_from(">ii", view)
        check(version in (1, 2), "version", 0, "1 or 2", version)
        start = 12 if version == 1 else 16
        check(len(view) >= start, "bytes", 0, f"{start} or more", len(view))
        seed = 0 if version == 1 else struct.unpack_from(">i", view, 8)[0]
        (count,) = struct.unpack_from(">i", view, start - 4)
        check(1 <= hashes <= MAX_HASHES, "hash functions", 4, f"1 to {MAX_HASHES}", hashes)
        whole = f"{start} + 8 x {count} bytes, at least one word"
        check(count >= 1 and len(view) == start + 8 * count, "length", start - 4, whole, len(view))
        words = np.frombuffer(view[start:], dtype=">u8").astype(np.uint64)
        return cls(version=version, num_hash_functions=hashes, words=words, seed=seed)

    def to_bytes(self) -> bytes:
        """The bytes that Spark's ``writeTo`` writes."""
        head = [self.version, self.num_hash_functions, *([self.seed] if self.version == 2 else [])]
        count = len(self.words)
        return struct.pack(f">{len(head) + 1}i", *head, count) + self.words.astype(">u8").tobytes()

    @classmethod
    def saturated(cls) -> SketchFilter:
        """A filter that may contain everything: "nothing known" without a null."""
        words = np.full(1, np.iinfo(np.uint64).max, dtype=np.uint64)
        return cls(version=1, num_hash_functions=1, words=words)

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
