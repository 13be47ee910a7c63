"""XXH64 of many byte strings, compiled by numba: imported only for many strings.

Machine code is cached in a folder that can be written. The kernel gets whole arrays and checks each
string's ends against the data before it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import register_jitable

from skipstone._numba import compile_kernel

from . import xxh64

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


P1, P2, P3, P4, P5 = (np.uint64(p) for p in (xxh64.P1, xxh64.P2, xxh64.P3, xxh64.P4, xxh64.P5))
_LANE1 = np.uint64((xxh64.P1 + xxh64.P2) & 0xFFFF_FFFF_FFFF_FFFF)
_LANE4 = np.uint64((1 << 64) - xxh64.P1)


# Written out, so that the compiler sees one load.
@register_jitable
def _four(data: Any, at: Any) -> Any:
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + 1]) << np.uint64(8))
        | (np.uint64(data[at + 2]) << np.uint64(16))
        | (np.uint64(data[at + 3]) << np.uint64(24))
    )


@register_jitable
def _eight(data: Any, at: Any) -> Any:
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + 1]) << np.uint64(8))
        | (np.uint64(data[at + 2]) << np.uint64(16))
        | (np.uint64(data[at + 3]) << np.uint64(24))
        | (np.uint64(data[at + 4]) << np.uint64(32))
        | (np.uint64(data[at + 5]) << np.uint64(40))
        | (np.uint64(data[at + 6]) << np.uint64(48))
        | (np.uint64(data[at + 7]) << np.uint64(56))
    )


@register_jitable
def _rotate(value: Any, by: Any) -> Any:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


@register_jitable
def _round(lane: Any, word: Any) -> Any:
    return _rotate(lane + word * P2, 31) * P1


@register_jitable
def _merge(found: Any, lane: Any) -> Any:
    return (found ^ _round(np.uint64(0), lane)) * P1 + P4


@register_jitable
def _hash(data: Any, start: Any, end: Any) -> Any:
    at = start
    if end - start >= 32:
        v1, v2, v3, v4 = _LANE1, P2, np.uint64(0), _LANE4
        while at + 32 <= end:
            v1 = _round(v1, _eight(data, at))
            v2 = _round(v2, _eight(data, at + 8))
            v3 = _round(v3, _eight(data, at + 16))
            v4 = _round(v4, _eight(data, at + 24))
            at += 32
        found = _rotate(v1, 1) + _rotate(v2, 7) + _rotate(v3, 12) + _rotate(v4, 18)
        found = _merge(_merge(_merge(_merge(found, v1), v2), v3), v4)
    else:
        found = P5
    found += np.uint64(end - start)
    while at + 8 <= end:
        found = _rotate(found ^ _round(np.uint64(0), _eight(data, at)), 27) * P1 + P4
        at += 8
    if at + 4 <= end:
        found = _rotate(found ^ (_four(data, at) * P1), 23) * P2 + P3
        at += 4
    while at < end:
        found = _rotate(found ^ (np.uint64(data[at]) * P5), 11) * P1
        at += 1
    found = (found ^ (found >> np.uint64(33))) * P2
    found = (found ^ (found >> np.uint64(29))) * P3
    return found ^ (found >> np.uint64(32))


def _hash_all(data: Any, offsets: Any, out: Any) -> bool:
    for i in range(len(out)):
        start, end = offsets[i], offsets[i + 1]
        if start < 0 or end < start or end > len(data):
            return False
        out[i] = _hash(data, start, end)
    return True


def compiled() -> Callable[[NDArray[np.uint8], NDArray[np.int64]], NDArray[np.uint64]]:
    """``hash(data, offsets)``."""
    kernel = compile_kernel(_hash_all)

    def hash_all(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
        out = np.empty(len(offsets) - 1, np.uint64)
        if not kernel(data, offsets, out):
            raise ValueError("offsets of byte strings outside their data")
        return out

    return hash_all
