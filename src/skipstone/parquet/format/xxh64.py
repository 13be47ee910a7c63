"""XXH64 with seed 0 over columns of values, for Parquet's Bloom filters.

    32 bytes or more   four lanes v1 … v4 take 8 bytes each per stripe of 32, then are merged
    below              h = P5
    then               h += length; the rest goes in by 8, by 4, by single bytes; avalanche

All arithmetic is modulo 2^64, all reads little-endian. A value's bytes are its PLAIN encoding,
byte arrays without their length. Values of one width go through NumPy, one operation for all of
them; byte arrays of many lengths through the ``xxhash`` package one by one, or from 4,096 on
through a compiled loop (``xxh64_jit.py``). Source: the xxHash specification 0.1.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xxhash

from skipstone._numba import CompiledKernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from skipstone.parquet.encodings.values import ByteArrays


Hashes: TypeAlias = "NDArray[np.uint64]"

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_P1, _P2, _P3, _P4, _P5 = map(np.uint64, (P1, P2, P3, P4, P5))
# Byte strings from which the compiled loop is worth its import.
_MANY = 4_096
#: ``hash(data, offsets)``
COMPILED: CompiledKernels[Callable[[NDArray[np.uint8], NDArray[np.int64]], Hashes]] = (
    CompiledKernels(module=f"{__package__}.xxh64_jit", once=_MANY, least=_MANY)
)


def xxh64(value: bytes) -> int:
    """The hash of one value's bytes."""
    return xxhash.xxh64_intdigest(value)


def xxh64_values(values: NDArray[Any] | ByteArrays) -> Hashes:
    """The hashes of decoded values (``encodings/values.py``), uint64 ``(n,)``.

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
    if (hash_all := COMPILED.for_work(len(values))) is not None:
        return hash_all(values.data, values.offsets)
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
