"""Writing a ``bitmap`` index from a factorised column; the layout is in ``bitmap``.

A block begins with 4 bytes and takes entries of key + 8 bytes while they fit the block size; an
empty block takes its first entry whatever its size. A value of one row needs no bitmap.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from skipstone.errors import UnsupportedError

from . import roaring
from .bitmap import check_type
from .keys import Keys, place_i32
from .roaring_bulk import write_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .distinct_keys import Factors
    from .keys import I64

__all__ = ["BLOCK_SIZE", "write_bitmap"]

BLOCK_SIZE = 16 * 1024
_LARGEST = 2**31 - 1


def write_bitmap(
    factors: Factors,
    *,
    version: int = 2,
    block_size: int = BLOCK_SIZE,
    order: Sequence[int] | None = None,
) -> bytes:
    """The index. ``order`` is the order of the values' bitmaps (and of version 1's entries), the
    keys' own by default: any will do, and other writers use that of their hash tables.

    ``UnsupportedError`` for other versions, types that have no bitmap index, and 2 GiB and more.
    """
    check_type(factors.type)
    if version not in (1, 2):
        raise UnsupportedError(f"version {version} of a bitmap index: 1 and 2 are known")
    sequence = np.arange(len(factors.keys)) if order is None else np.asarray(order, np.int64)
    counts = np.diff(factors.starts)
    head = [version.to_bytes(1, "big"), _i32(factors.row_count), _i32(len(factors.keys))]
    head.append(b"\x01" if len(factors.nulls) else b"\x00")
    bodies: list[bytes] = []
    before = 0
    if len(factors.nulls):
        null = roaring.write(BitMap(np.ascontiguousarray(factors.nulls).data))
        head.append(_i32(0 if len(factors.nulls) > 1 else -1 - int(factors.nulls[0])))
        if version == 2:
            head.append(_i32(len(null)))
        if len(factors.nulls) > 1:
            bodies.append(null)
            before = len(null)
    parts, sizes = _bitmaps(factors, sequence[counts[sequence] > 1])
    if before + int(sizes.sum()) > _LARGEST:
        raise UnsupportedError("a bitmap index of 2 GiB or more")
    offsets, lengths = _entries(factors, sequence, counts, sizes, before)
    if version == 1:
        head.append(_interleaved(_take(factors.keys, sequence), [offsets[sequence]]))
    else:
        head.append(_blocks(factors.keys, offsets, lengths, block_size))
    return b"".join([*head, *bodies, *parts])


def _bitmaps(factors: Factors, sequence: I64) -> tuple[list[bytes], I64]:
    """The bitmaps of these keys, in this order, and their sizes."""
    counts = np.diff(factors.starts)[sequence]
    starts = np.append(0, np.cumsum(counts))
    if len(counts) == len(factors.keys) and np.array_equal(sequence, np.arange(len(sequence))):
        return write_groups(factors.rows, factors.starts)
    along = np.arange(int(starts[-1])) - np.repeat(starts[:-1], counts)
    rows = factors.rows[np.repeat(factors.starts[:-1][sequence], counts) + along]
    return write_groups(rows, starts)


def _entries(
    factors: Factors, sequence: I64, counts: I64, sizes: I64, before: int
) -> tuple[I64, I64]:
    """Offset and length of each key's bitmap, in the keys' order."""
    single = counts == 1
    offsets = np.empty(len(counts), np.int64)
    lengths = np.full(len(counts), -1, np.int64)
    offsets[single] = -1 - factors.rows[factors.starts[:-1][single]].astype(np.int64)
    stored = sequence[~single[sequence]]
    offsets[stored] = before + np.cumsum(sizes) - sizes
    lengths[stored] = sizes
    return offsets, lengths


def _blocks(keys: Keys, offsets: I64, lengths: I64, block_size: int) -> bytes:
    """Block table and blocks."""
    costs = keys.lengths() + 8
    reach = np.append(0, np.cumsum(costs))
    edges = [0]
    while edges[-1] < len(keys):
        start = edges[-1]
        stop = int(np.searchsorted(reach, reach[start] + block_size - 4, side="right")) - 1
        edges.append(max(stop, start + 1))
    table: list[tuple[int, int]] = []
    blocks: list[bytes] = []
    at = 0
    for start, stop in pairwise(edges):
        table.append((start, at))
        blocks.append(_i32(stop - start))
        inner = [offsets[start:stop], lengths[start:stop]]
        blocks.append(_interleaved(keys.slice(start, stop), inner))
        at += 4 + len(blocks[-1])
    if at > _LARGEST:
        raise UnsupportedError("a bitmap index of 2 GiB or more")
    firsts = _take(keys, np.array([start for start, _ in table], np.int64))
    places = np.array([place for _, place in table], np.int64)
    return b"".join([_i32(len(table)), _interleaved(firsts, [places]), _i32(at), *blocks])


def _take(keys: Keys, at: I64) -> Keys:
    if isinstance(keys.values, np.ndarray):
        return Keys(keys.type, keys.values[at])
    return Keys(keys.type, keys.values.take(at))


def _interleaved(keys: Keys, columns: list[I64]) -> bytes:
    """Key, then one i32 of each column, for every key."""
    lengths = keys.lengths()
    sizes = lengths + 4 * len(columns)
    at = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    keys.place(out, at)
    for ordinal, column in enumerate(columns):
        place_i32(out, at + lengths + 4 * ordinal, column)
    return out.tobytes()


def _i32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)
