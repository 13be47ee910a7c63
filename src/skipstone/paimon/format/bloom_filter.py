"""The ``bloom-filter`` index: whether a file may hold a value.

    i32 k, hash functions | bits: bit i is byte i / 8, mask 1 << i % 8

    n = trunc(-items × ln fpp / (ln 2)²)
    bits = n + 8 - n % 8
    k = max(1, round(bits / items × ln 2))

The 64-bit hash gives two ints h1 (low) and h2 (high); probe i of 1 … k is
``h1 + i × h2`` in 32 bits, its complement if negative, modulo the bits. Nulls are not in it.

| items | fpp | bits | k | bytes |
|---|---|---|---|---|
| 1,000,000 | 0.1 | 4,792,536 | 3 | 599,071 |
| 1,000,000 | 0.01 | 9,585,064 | 7 | 1,198,137 |
| 10,000 | 0.1 | 47,928 | 3 | 5,995 |

The default (1,000,000 items) takes 599,071 bytes however few rows a file has.

The hash:

    CHAR, VARCHAR, BINARY, VARBINARY    XXH64 with seed 0 of the bytes
    FLOAT, DOUBLE                       wang(IEEE bits, sign-extended), NaN canonical
    others                              wang(key)

``wang`` is Thomas Wang's 64-bit mix, with shifts that keep the sign. wang(0) is 0: the value 0 sets
and tests only bit 0, so almost every filter reports it as present. BOOLEAN and DECIMAL have no
hash.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.bloom_filter import xxh64_byte_arrays

from .keys import I64, In, Key, KeyArray, PaimonType, Root, raw_of, safe
from .partial_blob import BlobSpan, Pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


ITEMS = 1_000_000
FPP = 0.1
_MOST_BITS = 2**31 - 8
_BATCH = 1 << 20


@dataclass(frozen=True, slots=True)
class Sizing:
    """Bits (a multiple of 8) and hash functions."""

    bits: int
    k: int


def sizing(items: int = ITEMS, fpp: float = FPP) -> Sizing:
    """The size for this many distinct values at this share of false positives. ``UnsupportedError``
    for no items, a share outside (0, 1), and more bits than an int counts."""
    if items < 1 or not 0 < fpp < 1:
        raise UnsupportedError(f"a Bloom filter for {items} items at {fpp} false positives")
    exact = -items * math.log(fpp) / (math.log(2) * math.log(2))
    if exact >= _MOST_BITS:
        raise UnsupportedError(f"a Bloom filter of {exact:.3g} bits: it takes 2^31")
    bits = int(exact)
    bits += 8 - bits % 8
    return Sizing(bits, max(1, math.floor(bits / items * math.log(2) + 0.5)))


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilterIndex:
    """An open Bloom filter of ``bits`` bits and ``k`` hash functions."""

    type: PaimonType
    pieces: Pieces
    bits: int
    k: int

    @classmethod
    def open(cls, type: PaimonType, pieces: Pieces) -> BloomFilterIndex:
        """Read the head: 4 bytes. k counts as unsigned, as it is written."""
        check_type(type)
        k = int.from_bytes(pieces.take(0, 4), "big")
        bits = 8 * (pieces.length - 4)
        # Java's own writer has at most some 1,100 hash functions: for the smallest fpp, 1e-323.
        if not bits or not 1 <= k <= 1 << 16:
            raise FormatError("not a Bloom filter", offset=0, got=(k, bits))
        return cls(type, pieces, bits, k)

    def may_contain(self, ask: In) -> bool:
        """False if no row holds any of these keys. ``MissingBytes`` for the probed bytes."""
        keys = safe(ask, self.type).keys  # type: ignore[union-attr]
        probes = positions_of(keys, self.type, self.bits, self.k).tolist()
        self.pieces.need({BlobSpan(4 + (bit >> 3), 1) for probe in probes for bit in probe})
        return any(
            all(self.pieces.take(4 + (bit >> 3), 1)[0] >> (bit & 7) & 1 for bit in probe)
            for probe in probes
        )


def positions_of(keys: Sequence[Key], type: PaimonType, bits: int, k: int) -> NDArray[np.int64]:
    """Bit of each probe of each key, ``(keys, k)``."""
    hashes = hashes_of(KeyArray.of(type, keys))
    return _positions(hashes[:, None], bits, np.arange(1, k + 1))


def _positions(hashes: Hashes, bits: int, ordinal: int | NDArray[np.integer]) -> NDArray[np.int64]:
    """Bit of probe ``ordinal`` (1 … k) of each hash."""
    low = hashes.astype(np.uint32).view(np.int32)
    high = (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)
    # Products of an int and at most 2^16 fit 64 bits; the cast wraps them as Java's ints do.
    sums = (low.astype(np.int64) + high.astype(np.int64) * ordinal).astype(np.int32)
    return np.where(sums < 0, ~sums, sums).astype(np.int64) % bits


def fill(raw: NDArray[np.uint8], k: int, keys: KeyArray) -> None:
    """Add the keys to the bits ``raw`` of a filter of ``k`` hash functions."""
    hashes = hashes_of(keys)
    for start in range(0, len(hashes), _BATCH):
        part = hashes[start : start + _BATCH]
        for ordinal in range(1, k + 1):
            at = _positions(part, 8 * len(raw), ordinal)
            masks = np.left_shift(1, at & 7).astype(np.uint8)
            np.bitwise_or.at(raw, at >> 3, masks)


Hashes: TypeAlias = "NDArray[np.uint64]"


def check_type(type: PaimonType) -> None:
    """``UnsupportedError`` for a type whose values have no hash."""
    if type.root in (Root.BOOLEAN, Root.DECIMAL):
        raise UnsupportedError(f"a bloom-filter index does not support a column of {type}")


def wang(values: I64) -> I64:
    """The mix of each value, modulo 2^64."""
    found = ~values + (values << 21)
    found = found ^ (found >> 24)
    found = found + (found << 3) + (found << 8)
    found = found ^ (found >> 14)
    found = found + (found << 2) + (found << 4)
    found = found ^ (found >> 28)
    return np.asarray(found + (found << 31))


def hashes_of(keys: KeyArray) -> Hashes:
    """The hash of each key, uint64 ``(n,)``."""
    check_type(keys.type)
    if not isinstance(keys.values, np.ndarray):
        return xxh64_byte_arrays(keys.values)
    raw = keys.values
    if keys.type.is_float:
        raw = raw_of(raw, keys.type).astype(np.int64)
    return wang(raw).view(np.uint64)
