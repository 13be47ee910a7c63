"""Split-block Bloom filters: they prove that a value is not in a column chunk.

    BloomFilterHeader   numBytes, algorithm BLOCK, hash XXHASH, compression UNCOMPRESSED
    bitset              z blocks of 32 bytes = eight little-endian words of 32 bits

A value with the hash ``h`` (XXH64, seed 0, of its PLAIN bytes, byte arrays without their length)
belongs to one block and sets one bit in each of its words:

    block = ((h >> 32) × z) >> 32
    bit of word i = ((h mod 2^32) × SALT[i] mod 2^32) >> 27

A value whose bits are not all set was never inserted. A value whose bits are all set may have been
inserted: a filter proves absence, never presence. A probe reads the header and one block.

Bits for ``ndv`` distinct values and a false positive probability ``fpp``, as parquet-java and Arrow
compute it, rounded up to a power of two of bytes:

    bits = -8 × ndv / ln(1 - fpp^(1/8))

| distinct values | fpp 0.1 | 0.05 | 0.01 | 0.001 |
|---|---|---|---|---|
| 1,000 | 1 KiB | 1 KiB | 2 KiB | 2 KiB |
| 10,000 | 8 KiB | 16 KiB | 16 KiB | 32 KiB |
| 100,000 | 128 KiB | 128 KiB | 128 KiB | 256 KiB |
| 1,000,000 | 1 MiB | 1 MiB | 2 MiB | 2 MiB |

``numBytes`` is a multiple of 32 between 32 and 128 MiB. An encrypted filter is two modules, header
and bitset, each with its length before it; a part of a module cannot be decrypted. Older filters
(Murmur3 hashes, no Thrift header) begin with numBytes, hash strategy and algorithm as u32 each;
they are refused. Source: BloomFilter.md of parquet-format.

XXH64 with seed 0, all arithmetic modulo 2^64, all reads little-endian:

    32 bytes or more   four lanes v1 … v4 take 8 bytes each per stripe of 32, then are merged
    below              h = P5
    then               h += length; the rest goes in by 8, by 4, by single bytes; avalanche

Values of one width go through NumPy, one operation for all of them; byte arrays of many lengths
through the ``xxhash`` package one by one, or through a compiled loop where there are many
(``bloom_jit.py``). Source: the xxHash specification 0.1.1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import xxhash

from skipstone._dataclasses import dataclass
from skipstone._numba import CompiledKernels
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.thrift.compact import Reader
from skipstone.parquet.thrift.structs import (
    I32,
    Declared,
    Empty,
    declared,
    optional,
    required,
    struct,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from skipstone.parquet.values import ByteArrays


Hashes: TypeAlias = "NDArray[np.uint64]"
BoolArray: TypeAlias = "NDArray[np.bool_]"

BLOCK_BYTES = 32
MIN_BYTES = BLOCK_BYTES
MAX_BYTES = 128 << 20
#: bytes that hold a header as all writers have it (at most 19), with room for more
HEADER_GUESS = 64

SALT = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint32,
)
_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)
#: hashes that are looked up at a time
ASKED = 4_096
# Hashes inserted at a time: the intermediate arrays stay in the processor's cache.
_RUN = 1 << 15

# Of XXH64.
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_P1, _P2, _P3, _P4, _P5 = map(np.uint64, (P1, P2, P3, P4, P5))
# Calls with fewer byte strings do not count as work for the compiled loop.
_MANY = 4_096


@declared
class BloomFilterAlgorithm(Declared):
    """A union with one member so far."""

    BLOCK: Empty | None = optional(1, struct(Empty))


@declared
class BloomFilterHash(Declared):
    """A union with one member so far."""

    XXHASH: Empty | None = optional(1, struct(Empty))


@declared
class BloomFilterCompression(Declared):
    """A union with one member so far."""

    UNCOMPRESSED: Empty | None = optional(1, struct(Empty))


@declared
class BloomFilterHeader(Declared):
    """The header before the bitset of ``numBytes`` bytes."""

    numBytes: int = required(1, I32)
    algorithm: BloomFilterAlgorithm = required(2, struct(BloomFilterAlgorithm))
    hash: BloomFilterHash = required(3, struct(BloomFilterHash))
    compression: BloomFilterCompression = required(4, struct(BloomFilterCompression))


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomKernels:
    """Compiled loops. ``hash(data, offsets)`` hashes byte strings; ``hashes`` and ``words`` insert
    hashes, or values of eight bytes, into the blocks of a filter. Hashes and words are read-only,
    so that each loop is compiled once.
    """

    hash: Callable[[NDArray[np.uint8], NDArray[np.int64]], Hashes]
    hashes: Callable[[NDArray[np.uint32], Hashes], None]
    words: Callable[[NDArray[np.uint32], Hashes], None]


#: In values: per microsecond NumPy inserts eight, and ``xxhash`` hashes four strings.
COMPILED = CompiledKernels[BloomKernels](
    module=f"{__package__}.bloom_jit", total=1_500_000, share=1 / 16
)


def read_header(
    data: bytes | memoryview, *, base: int = 0, end: int | None = None
) -> tuple[int, int]:
    """``(num_bytes, header_length)`` of the filter at the start of ``data``.

    ``end``: bytes from the start of the filter to the end of the file, the most that it may take.
    ``FormatError`` where the header is malformed; ``UnsupportedError`` for another algorithm, hash
    or compression.
    """
    reader = Reader(data, base=base)
    try:
        header = BloomFilterHeader.read(reader)
    except FormatError as error:
        if _is_murmur3(data):
            raise UnsupportedError(
                "a Bloom filter of Murmur3 hashes, before the format had any"
            ) from error
        raise
    if header.algorithm.BLOCK is None:
        raise UnsupportedError("a Bloom filter of an unknown algorithm")
    if header.hash.XXHASH is None:
        raise UnsupportedError("a Bloom filter of an unknown hash")
    if header.compression.UNCOMPRESSED is None:
        raise UnsupportedError("a Bloom filter of an unknown compression")
    size = header.numBytes
    if size % BLOCK_BYTES or not MIN_BYTES <= size <= MAX_BYTES:
        raise FormatError(
            "numBytes of a Bloom filter",
            offset=base,
            expected=f"a multiple of {BLOCK_BYTES} up to {MAX_BYTES}",
            got=size,
        )
    if end is not None and size > end - reader.at:
        raise FormatError(
            "a Bloom filter that ends past the file",
            offset=base,
            expected=f"at most {end - reader.at} bytes",
            got=size,
        )
    return size, reader.at


def _is_murmur3(data: bytes | memoryview) -> bool:
    head = np.frombuffer(bytes(data[:12]).ljust(12, b"\xff"), "<u4")
    return bool(MIN_BYTES <= head[0] <= MAX_BYTES and not head[0] % 32 and not head[1:].any())


def guess_bitset(length: int) -> tuple[int, int] | None:
    """``(num_bytes, header_length)`` of a filter of ``length`` bytes with the usual header.

    Use it for an early read only, never for an answer: the header may have fields of a later
    format.
    """
    for varint in range(1, 6):
        size = length - 14 - varint
        if size < MIN_BYTES:
            return None
        if len(_header(size)) == 14 + varint:
            return (size, 14 + varint) if not size % BLOCK_BYTES else None
    return None


def _header(num_bytes: int) -> bytes:
    return BloomFilterHeader(
        numBytes=num_bytes,
        algorithm=BloomFilterAlgorithm(BLOCK=Empty()),
        hash=BloomFilterHash(XXHASH=Empty()),
        compression=BloomFilterCompression(UNCOMPRESSED=Empty()),
    ).to_bytes()


def optimal_bytes(ndv: int, fpp: float) -> int:
    """Bytes of the bitset for ``ndv`` distinct values; see the module."""
    if ndv < 0 or not 0.0 < fpp < 1.0:
        raise ValueError(f"ndv {ndv} is a number of values and fpp {fpp} a probability above 0")
    bits = -8 * ndv / math.log(1 - fpp ** (1 / 8))
    size = min(max(math.ceil(bits / 8), MIN_BYTES), MAX_BYTES)
    return 1 << (size - 1).bit_length()


def block_of(hashes: Hashes, blocks: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """The block that each hash belongs to among ``blocks`` blocks (broadcast), int64."""
    count = np.asarray(blocks).astype(np.uint64)
    return (((hashes >> _HALF) * count) >> _HALF).astype(np.int64)


def set_in(blocks: NDArray[np.uint32], hashes: Hashes) -> BoolArray:
    """Whether all bits of each hash are set in its block: ``(…, 8)`` words against ``(…)``."""
    return np.asarray(((blocks >> _bits(hashes)) & np.uint32(1)).all(axis=-1))


def any_in(blocks: NDArray[np.uint32], hashes: Hashes) -> bool:
    """Whether a filter of these blocks holds any of the hashes; stops early if it does."""
    return any(set_in(blocks[block_of(run, len(blocks))], run).any() for run in runs_of(hashes))


def runs_of(hashes: Hashes) -> Iterator[Hashes]:
    """The hashes, some at a time."""
    for start in range(0, len(hashes), ASKED):
        yield hashes[start : start + ASKED]


def _bits(hashes: Hashes) -> NDArray[np.uint32]:
    """The bit to set in each of eight words, 0 to 31: ``(…, 8)``."""
    low = (hashes & _LOW).astype(np.uint32)
    return np.asarray((low[..., None] * SALT) >> np.uint32(27))


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """A whole filter: ``blocks`` uint32 ``(z, 8)``. ``insert`` changes it in place."""

    blocks: NDArray[np.uint32]

    def __repr__(self) -> str:
        return f"BloomFilter({self.num_bytes:,} bytes)"

    @classmethod
    def of_size(cls, num_bytes: int) -> Self:
        """An empty filter of ``num_bytes`` bytes, a multiple of 32."""
        if num_bytes % BLOCK_BYTES or not MIN_BYTES <= num_bytes <= MAX_BYTES:
            raise ValueError(f"{num_bytes} is not a multiple of {BLOCK_BYTES} up to {MAX_BYTES}")
        return cls(np.zeros((num_bytes // BLOCK_BYTES, 8), np.uint32))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, base: int = 0) -> Self:
        """The filter at the start of ``data``: header and bitset."""
        size, at = read_header(data, base=base, end=len(data))
        return cls.from_bitset(data[at : at + size], base=base + at)

    @classmethod
    def from_bitset(cls, data: bytes | memoryview, *, base: int = 0) -> Self:
        """The filter of a bare bitset."""
        if len(data) % BLOCK_BYTES or not data:
            raise FormatError(
                "a bitset that is not made of blocks",
                offset=base,
                expected=f"a multiple of {BLOCK_BYTES} bytes",
                got=len(data),
            )
        words = np.frombuffer(data, "<u4").astype(np.uint32)
        return cls(words.reshape(-1, 8))

    @property
    def num_bytes(self) -> int:
        """Bytes of the bitset."""
        return len(self.blocks) * BLOCK_BYTES

    def insert(self, hashes: Hashes) -> None:
        """Set the bits of all ``hashes``, uint64 ``(n,)``."""
        if len(hashes) * 4 < len(self.blocks):
            at = 8 * block_of(hashes, len(self.blocks))[:, None] + np.arange(8)
            np.bitwise_or.at(self.blocks.reshape(-1), at, np.uint32(1) << _bits(hashes))
            return
        flags = np.zeros((8, 32 * len(self.blocks)), np.bool_)  # a row per word of the blocks
        for start in range(0, len(hashes), _RUN):
            run = hashes[start : start + _RUN]
            at = 32 * block_of(run, len(self.blocks))
            low = (run & _LOW).astype(np.uint32)
            for salt, row in zip(SALT, flags, strict=True):
                row[at + ((low * salt) >> np.uint32(27))] = True
        for word, row in enumerate(flags):
            self.blocks[:, word] |= np.packbits(row, bitorder="little").view("<u4")

    def check(self, hashes: Hashes) -> BoolArray:
        """For each hash, False if it was never inserted."""
        return set_in(self.blocks[block_of(hashes, len(self.blocks))], hashes)

    @property
    def header(self) -> bytes:
        """The bytes of the header."""
        return _header(self.num_bytes)

    def bitset(self) -> memoryview:
        """The bytes of the bitset, not copied."""
        return np.ascontiguousarray(self.blocks, "<u4").view(np.uint8).reshape(-1).data

    def to_bytes(self) -> bytes:
        """Header and bitset."""
        return b"".join((self.header, self.bitset()))


# -- XXH64 -----------------------------------------------------------------------------------------


def xxh64(value: bytes) -> int:
    """The hash of one value's bytes."""
    return xxhash.xxh64_intdigest(value)


def xxh64_values(values: NDArray[Any] | ByteArrays) -> Hashes:
    """The hashes of decoded values (``parquet/values.py``), uint64 ``(n,)``.

    Numbers hash as their little-endian bytes, booleans as one byte; ``(n, k)`` uint8 as k bytes.
    """
    if not isinstance(values, np.ndarray):
        return xxh64_byte_arrays(values)
    if values.ndim == 2:
        return xxh64_fixed(values)
    plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    if plain.dtype.itemsize == 8:
        return _eight(plain.view(np.uint64))
    return xxh64_fixed(plain.view(np.uint8).reshape(len(plain), plain.dtype.itemsize))


def xxh64_fixed(values: NDArray[np.uint8]) -> Hashes:
    """The hashes of n values of k bytes each: ``values`` uint8 ``(n, k)``."""
    count, width = values.shape
    values = np.ascontiguousarray(values)
    if width == 8:
        return _eight(values.view("<u8").ravel())
    at = 0
    if width >= 32:
        lanes = [np.full(count, seed, np.uint64) for seed in (P1 + P2 - (1 << 64), P2, 0)]
        lanes.append(np.full(count, (1 << 64) - P1, np.uint64))
        while at + 32 <= width:
            for place in range(4):
                lanes[place] = _round(lanes[place], _word(values, at + 8 * place))
            at += 32
        found = _rotate(lanes[0], 1) + _rotate(lanes[1], 7)
        found += _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
        for lane in lanes:
            found = (found ^ _round(np.zeros(1, np.uint64), lane)) * _P1 + _P4
    else:
        found = np.full(count, P5, np.uint64)
    found += np.uint64(width)
    while at + 8 <= width:
        found ^= _round(np.zeros(1, np.uint64), _word(values, at))
        found = _rotate(found, 27) * _P1 + _P4
        at += 8
    if at + 4 <= width:
        four = np.ascontiguousarray(values[:, at : at + 4]).view("<u4").ravel().astype(np.uint64)
        found = _rotate(found ^ (four * _P1), 23) * _P2 + _P3
        at += 4
    while at < width:
        found = _rotate(found ^ (values[:, at].astype(np.uint64) * _P5), 11) * _P1
        at += 1
    return _avalanche(found)


def xxh64_byte_arrays(values: ByteArrays) -> Hashes:
    """The hashes of n byte strings."""
    if len(values) >= _MANY and (compiled := COMPILED.for_work(len(values))) is not None:
        return compiled.hash(values.data, values.offsets)
    digest = xxhash.xxh64_intdigest
    return np.fromiter(map(digest, values), np.uint64, len(values))


def _eight(words: Hashes) -> Hashes:
    found = np.uint64((P5 + 8) & 0xFFFF_FFFF_FFFF_FFFF) ^ _round(np.zeros(1, np.uint64), words)
    return _avalanche(_rotate(found, 27) * _P1 + _P4)


def _word(values: NDArray[np.uint8], at: int) -> Hashes:
    return np.ascontiguousarray(values[:, at : at + 8]).view("<u8").ravel()


def _rotate(value: Hashes, by: int) -> Hashes:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


def _round(lane: Hashes, word: Hashes) -> Hashes:
    return _rotate(lane + word * _P2, 31) * _P1


def _avalanche(found: Hashes) -> Hashes:
    found = (found ^ (found >> np.uint64(33))) * _P2
    found = (found ^ (found >> np.uint64(29))) * _P3
    return found ^ (found >> np.uint64(32))
