"""Writes a ``_pm`` out of its values, one object per row group and column: what the product makes
out of Parquet footers and out of other ``_pm`` is compared with it.

The out-of-line region of a block comes in one of two orders, and readers follow references only:

    by kind      statistics of all columns (minimum, then maximum), then the bloom filters
    by column    minimum, maximum, bloom filter of each column in turn

The first is what QuestDB writes with a partition, the second what it makes out of a Parquet footer.
A bloom filter is an i32 length and the bitset, at a multiple of 8.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError
from skipstone.questdb.format import writer
from skipstone.questdb.format.layout import (
    BOUNDS,
    CHUNK,
    CHUNK_SIZE,
    DISTINCT_COUNT_PRESENT,
    NULL_COUNT_PRESENT,
    End,
)
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.values import PmHead
from skipstone.questdb.format.writer import Append, PmFooter, ended
from tests.questdb.format.row_groups import PmRowGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skipstone.questdb.format.pm import PmSnapshot


def read_row_groups(snapshot: PmSnapshot) -> tuple[PmRowGroup, ...]:
    return tuple(PmRowGroup.of(snapshot, each) for each in range(snapshot.row_group_count))


def write(
    head: PmHead,
    row_groups: Sequence[PmRowGroup],
    footer: PmFooter,
    *,
    by_column: bool = False,
    rests: Iterable[bytes] = repeat(b""),
) -> bytes:
    """A fresh file of one snapshot. ``rests`` are bytes at the end of each block that nothing
    refers to: there QuestDB leaves the bloom filter of a column that is not in
    BLOOM_FILTER_COLUMNS.
    """
    head.check()
    out = bytearray(head.to_bytes())
    columns = () if head.bloom_external else head.bloom_columns
    blocks, section = list[int](), b""
    for row_group, rest in zip(row_groups, rests, strict=False):
        out += bytes(-len(out) % 8)
        blocks.append(len(out))
        block, bitsets = block_of(row_group, len(out), columns, by_column=by_column)
        out += block + rest
        for column in head.bloom_columns:
            if head.bloom_external:
                place = row_group.chunks[column].bloom
                section += struct.pack("<QQ", *(place if isinstance(place, tuple) else (0, 0)))
            else:
                section += struct.pack("<I", bitsets.get(column, 0) >> 3)
    return ended(out, footer.to_bytes(previous=0, blocks=blocks, blooms=section))


def append(previous: PmSnapshot, items: Sequence[int | PmRowGroup], footer: PmFooter) -> Append:
    """The product's append with row groups out of values: as another file of the same header."""
    new = [item for item in items if isinstance(item, PmRowGroup)]
    made = Pm(write(PmHead.of(previous.pm), new, footer)).snapshot()
    return writer.append(previous, numbered(items, previous), footer, made)


def numbered(items: Sequence[object], previous: PmSnapshot) -> list[int]:
    """The numbers of unchanged row groups, and counted on from there those of anything else."""
    found, next = list[int](), previous.row_group_count
    for item in items:
        found.append(item if isinstance(item, int) else next)
        next += not isinstance(item, int)
    return found


def rewrite(snapshot: PmSnapshot, *, by_column: bool = False) -> bytes:
    """The same snapshot as a fresh file: no predecessors, no dead bytes, no unknown sections."""
    head = PmHead.of(snapshot.pm)
    try:
        head.check()
    except ValueError as error:
        raise FormatError(str(error)) from None
    footer = replace(PmFooter.of(snapshot), other_flags=0, other_sections=b"")
    return write(head, read_row_groups(snapshot), footer, by_column=by_column)


def unreferenced(snapshot: PmSnapshot) -> list[bytes]:
    """By row group the bytes of its block that nothing refers to."""
    # A block ends where, in this snapshot or one before, another block or a footer begins.
    edges = {snapshot.footer_offset}
    for each in snapshot.pm.snapshots():
        edges.update([each.footer_offset, *each.block_offsets.tolist()])
    ordered = sorted(edges)
    pm, found = snapshot.pm, []
    columns = () if pm.bloom_external else pm.bloom_columns
    blocks = zip(snapshot.block_offsets.tolist(), read_row_groups(snapshot), strict=True)
    for block, row_group in blocks:
        used = block + len(block_of(row_group, block, columns)[0])
        rest = bytes(pm.data[used : ordered[bisect_right(ordered, block)]])
        # Up to 7 zeros are padding.
        found.append(rest if len(rest) > 7 or any(rest) else b"")
    return found


def block_of(
    row_group: PmRowGroup, offset: int, bloom_columns: tuple[int, ...], *, by_column: bool = False
) -> tuple[bytes, dict[int, int]]:
    """The block as it lies at ``offset``; by column, where inlined filters begin."""
    chunks = row_group.chunks
    head = np.zeros(len(chunks), CHUNK)
    region, blooms = bytearray(), dict[int, int]()
    start = offset + 8 + CHUNK_SIZE * len(chunks)
    filters = {
        column: chunk.bloom
        for column, chunk in enumerate(chunks)
        if isinstance(chunk.bloom, bytes) and column in bloom_columns
    }
    for column, chunk in enumerate(chunks):
        flag = 0 if chunk.null_count is None else NULL_COUNT_PRESENT
        flag |= 0 if chunk.distinct_count is None else DISTINCT_COUNT_PRESENT
        low, low_size, low_flag = _place("MIN", chunk.min, chunk.min_exact, region)
        high, high_size, high_flag = _place("MAX", chunk.max, chunk.max_exact, region)
        head[column] = (
            chunk.codec,
            chunk.encodings,
            flag | low_flag | high_flag,
            low_size | high_size << 4,
            0,
            chunk.num_values,
            chunk.byte_range_start,
            chunk.total_compressed,
            chunk.null_count or 0,
            chunk.distinct_count or 0,
            low,
            high,
        )
        if by_column and column in filters:
            blooms[column] = start + _inline(filters[column], region)
    if not by_column:
        blooms = {column: start + _inline(filters[column], region) for column in filters}
    return struct.pack("<Q", row_group.num_rows) + head.tobytes() + region, blooms


def _place(end: End, value: bytes | None, exact: bool, region: bytearray) -> tuple[int, int, int]:
    """(slot, size, flags) of a statistic; a long one goes into ``region``."""
    if value is None:
        return 0, 0, 0
    bits = BOUNDS[end]
    flags = bits.present | (bits.exact if exact else 0)
    if 1 <= len(value) <= 8:
        return int.from_bytes(value, "little"), len(value), flags | bits.inlined
    slot = len(region) << 16 | len(value)
    region += value
    return slot, 0, flags


def _inline(bitset: bytes, region: bytearray) -> int:
    """The position of the filter in ``region``."""
    region += bytes(-len(region) % 8)
    at = len(region)
    region += struct.pack("<i", len(bitset)) + bitset
    return at
