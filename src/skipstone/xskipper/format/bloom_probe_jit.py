"""``bloom_probe.Probe`` compiled by numba: many items against many filters, up to the
first hit of each.

Every place is checked against the data before it is read: one outside counts as a set bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._arrays import read_only
from skipstone._numba import compile_kernel

from .bloom_probe import BlobChunk

if TYPE_CHECKING:
    from .bloom_probe import I64, Mask, Probe
    from .sketch import U32


def _any_in(
    data: Any, base: Any, payload: Any, start: Any, hashes: Any, words: Any, first: Any, last: Any,
    h1: Any, h2: Any, version: Any, hit: Any,
) -> None:  # fmt: skip
    for i in range(len(base)):
        bits = words[i] * 64
        end = (payload[i] - 1) >> 10
        short = payload[i] - (end << 10) <= 0xFF
        for item in range(first[i], last[i]):
            a, b = np.int64(np.int32(h1[item])), np.int64(np.int32(h2[item]))
            inside = True
            for j in range(1, hashes[i] + 1):
                if version == 1:
                    c = np.int64(np.int32(np.uint32(h1[item] + np.uint32(j) * h2[item])))
                else:
                    c = a * np.int64(0x7FFFFFFF) + j * b
                place = (c ^ (c >> 63)) % bits
                q = start[i] + ((place >> 6) << 3) + (7 - ((place >> 3) & 7))
                block = q >> 10
                at = base[i] + block * 1029 + (q & 1023) + (2 if block == end and short else 5)
                if 0 <= at < len(data) and not (data[at] >> np.uint8(place & 7)) & 1:
                    inside = False
                    break
            if inside:
                hit[i] = 1
                break


def compiled() -> Probe:
    kernel = compile_kernel(_any_in)

    def probe(chunk: BlobChunk, rows: I64, first: I64, last: I64, h1: U32, h2: U32, v: int) -> Mask:
        hit = np.zeros(len(rows), np.uint8)
        of_rows = (
            each[rows]
            for each in (chunk.base, chunk.payload, chunk.start, chunk.hashes, chunk.words)
        )
        kernel(read_only(chunk.data), *of_rows, first, last, h1, h2, v, hit)
        return hit.view(np.bool_)

    return probe


def warm_up(probe: Probe) -> None:
    """Compiles it for the types of its arguments, by a call without filters."""
    none, hashes = np.zeros(0, np.int64), np.zeros(0, np.uint32)
    chunk = BlobChunk(
        data=np.zeros(0, np.uint8), ok=np.zeros(0, np.bool_), base=none, payload=none, start=none,
        hashes=none, words=none, version=none, seed=none,
    )  # fmt: skip
    probe(chunk, none, none, none, hashes, hashes, 1)
