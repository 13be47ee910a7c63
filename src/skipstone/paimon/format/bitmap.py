"""The ``bitmap`` index, versions 1 and 2: one Roaring bitmap per distinct value.

    u8 version | i32 row count | i32 distinct values | u8 has nulls
    i32 null offset                                   if it has nulls
    version 1:   distinct × { key, i32 offset }                         in any order
    version 2:   i32 null length                      if it has nulls
                 i32 blocks | blocks × { first key, i32 offset } | i32 size of all blocks
                 blocks, each: i32 entries, entries × { key, i32 offset, i32 length }
    bitmaps, the null one first if there are two nulls or more; the others in any order

Keys are described in ``keys``; in version 2 they ascend within and across blocks. A block offset
counts from the first block, a bitmap's from the first bitmap. An offset below 0 is a single row,
``-1 - offset``, that has no bitmap (its length is -1); a single null likewise, but its length is
still the size that its bitmap would have. Version 1 has no lengths: a bitmap ends where the next
begins. A writer starts a block with 4 bytes and adds entries of key + 8 bytes while they fit the
block size; an empty block takes its first entry whatever its size.

Types: all but DECIMAL and binary.
"""

from __future__ import annotations

from dataclasses import field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from pyroaring import BitMap

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

from ..._arrays import distinct, within
from . import roaring
from .column_keys import group_rows
from .keys import In, KeyArray, Null, Range, Root, i32, place_i32, safe
from .partial_blob import BlobSpan, Pieces
from .roaring_bulk import union_of_many, write_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.parquet.values import ByteArrays

    from .column_keys import CodedColumn, GroupedRows
    from .keys import I64, U8, Ask, Key, PaimonType
    from .partial_blob import Cursor


def check_type(type: PaimonType) -> None:
    """``UnsupportedError`` for a type that a bitmap index does not support."""
    if type.is_binary or type.root is Root.DECIMAL:
        raise UnsupportedError(f"a bitmap index does not support a column of {type}")


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Keys with where their rows are: int64 ``offsets`` and ``lengths`` of bitmaps in the body;
    an offset below 0 is a single row."""

    keys: KeyArray
    offsets: I64
    lengths: I64

    def slice(self, start: int, stop: int) -> Entries:
        """Entries ``start`` to ``stop - 1``."""
        return Entries(
            self.keys.slice(start, stop), self.offsets[start:stop], self.lengths[start:stop]
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BitmapIndex:
    """An open bitmap index. Block i of entries lies at ``edges[i]`` to ``edges[i + 1]`` of the blob
    and begins with key ``firsts[i]``; version 1 has one block, whose first key has no meaning.

    Every method raises ``MissingBytes`` for missing bytes, ``FormatError`` for wrong ones.
    """

    type: PaimonType
    pieces: Pieces
    version: int
    row_count: int
    cardinality: int
    null_offset: int | None
    null_length: int | None
    firsts: KeyArray
    edges: I64
    body: int
    #: blocks that were parsed, up to ``_PARSED``; copies over other pieces of the blob share them
    blocks: dict[int, Entries] = field(default_factory=dict)

    @classmethod
    def open(cls, type: PaimonType, pieces: Pieces) -> BitmapIndex:
        """Read the head."""
        check_type(type)
        cursor = pieces.cursor(0)
        version = cursor.u8()
        if version not in (1, 2):
            raise UnsupportedError(f"version {version} of a bitmap index: 1 and 2 are known")
        row_count = cursor.count("row count")
        cardinality = cursor.count("number of distinct values")
        has_null = cursor.u8()
        if has_null > 1 or cardinality > row_count:
            raise FormatError("not a bitmap index", got=(row_count, cardinality, has_null))
        null_offset = cursor.i32() if has_null else None
        null_length = cursor.count("length") if has_null and version == 2 else None
        if version == 1:
            firsts, edges = _one_block(cursor, type, cardinality, pieces)
        else:
            firsts, edges = _blocks(cursor, type, pieces)
            if (len(edges) > 1) != bool(cardinality):
                raise FormatError("blocks of values", expected=cardinality, got=len(edges) - 1)
        return cls(
            type=type,
            pieces=pieces,
            version=version,
            row_count=row_count,
            cardinality=cardinality,
            null_offset=null_offset,
            null_length=null_length,
            firsts=firsts,
            edges=edges,
            body=int(edges[-1]),
        )

    def rows(self, ask: Ask) -> BitMap:
        """The rows that ``ask`` wants; all that may match where keys are not exact."""
        ask = safe(ask, self.type)
        if isinstance(ask, Null):
            return self._nulls()
        if isinstance(ask, Range):
            if ask.lo is None and ask.hi is None:
                return self._not_null()
            return self._union([self._between(ask)])
        return self._union(self._among(ask))

    def entries(self) -> Entries:
        """All entries: ascending in version 2, as they lie in version 1."""
        count = len(self.edges) - 1
        self.pieces.need(map(self._span, range(count)))
        parts = [self._block(at) for at in range(count)]
        keys = [key for part in parts for key in part.keys.to_list()]
        found = Entries(
            KeyArray.of(self.type, keys),
            np.concatenate([np.empty(0, np.int64), *(part.offsets for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)]),
        )
        if len(keys) != self.cardinality:
            raise FormatError("number of values", expected=self.cardinality, got=len(keys))
        return found

    def bitmap(self, offset: int, length: int) -> BitMap:
        """The rows of one entry."""
        if offset < 0:
            return BitMap([self._single(offset)])
        return roaring.read(self.pieces.take(self.body + offset, length), self.row_count)

    def _single(self, offset: int) -> int:
        if -1 - offset >= self.row_count:
            raise FormatError("row", expected=f"below {self.row_count}", got=-1 - offset)
        return -1 - offset

    def _nulls(self) -> BitMap:
        if self.null_offset is None:
            return BitMap()
        length = self.null_length
        if length is None:  # version 1: up to the first bitmap of a value
            if self.null_offset < 0:
                return BitMap([self._single(self.null_offset)])
            offsets = self._block(0).offsets if self.cardinality else np.empty(0, np.int64)
            later = offsets[offsets > self.null_offset]
            end = int(later.min()) if len(later) else self.pieces.length - self.body
            length = end - self.null_offset
        return self.bitmap(self.null_offset, length)

    def _not_null(self) -> BitMap:
        return BitMap(range(self.row_count)) - self._nulls()

    def _union(self, parts: Sequence[Entries]) -> BitMap:
        if not parts:
            return BitMap()
        if len(parts) == 1 and len(parts[0].offsets) == 1:
            return self.bitmap(int(parts[0].offsets[0]), int(parts[0].lengths[0]))
        offsets = np.concatenate([part.offsets for part in parts])
        lengths = np.concatenate([part.lengths for part in parts])
        stored = offsets >= 0
        # Values share no bitmap: their bitmaps together are not longer than the body.
        if int(lengths[stored].sum()) > self.pieces.length - self.body:
            raise FormatError("bitmaps of values that overlap", offset=self.body)
        spans = [
            BlobSpan(self.body + offset, length)
            for offset, length in zip(
                offsets[stored].tolist(), lengths[stored].tolist(), strict=True
            )
        ]
        self.pieces.need(spans)
        found = union_of_many([self.pieces.take(*span) for span in spans], self.row_count)
        single = -1 - offsets[~stored]
        if len(single):
            if int(single.max()) >= self.row_count:
                raise FormatError("row", expected=f"below {self.row_count}", got=int(single.max()))
            found |= roaring.of_rows(single, self.row_count)
        return found

    def _among(self, ask: In) -> list[Entries]:
        """The entries of these keys."""
        if not self.cardinality:
            return []
        if self.version == 1:
            wanted: dict[int, list[Key]] = {0: list(ask.keys)}
        else:
            wanted = {}
            for key in ask.keys:
                below = self.firsts.below(key)
                if below == len(self.firsts) or self.firsts[below] != key:
                    below -= 1
                if below >= 0:
                    wanted.setdefault(below, []).append(key)
        if len(wanted) > 1:
            self.pieces.need(map(self._span, wanted))
        found = []
        for at, keys in wanted.items():
            block = self._block(at)
            if self.version == 1:
                found += [block.slice(i, i + 1) for i in _places(block.keys, set(keys))]
                continue
            for key in keys:
                i = block.keys.below(key)
                if i < len(block.keys) and block.keys[i] == key:
                    found.append(block.slice(i, i + 1))
        return found

    def _between(self, ask: Range) -> Entries:
        """The entries of all keys in the range."""
        none = Entries(KeyArray.of(self.type, ()), np.empty(0, np.int64), np.empty(0, np.int64))
        if not self.cardinality:
            return none
        if self.version == 1:
            block = self._block(0)
            inside = block.keys.within(ask)
            return Entries(none.keys, block.offsets[inside], block.lengths[inside])
        first = 0
        if ask.lo is not None:
            first = max(self.firsts.below(ask.lo) - 1, 0)
        stop = len(self.firsts)
        if ask.hi is not None:
            stop = self.firsts.below(ask.hi)
            stop += stop < len(self.firsts) and self.firsts[stop] == ask.hi
        self.pieces.need(map(self._span, range(first, stop)))
        parts = []
        for at in range(first, stop):
            block = self._block(at)
            low, high = block.keys.within_range(ask)
            parts.append(block.slice(low, max(low, high)))
        return Entries(
            none.keys,
            np.concatenate([none.offsets, *(part.offsets for part in parts)]),
            np.concatenate([none.lengths, *(part.lengths for part in parts)]),
        )

    def _span(self, at: int) -> BlobSpan:
        start, stop = self.edges[at : at + 2].tolist()
        return BlobSpan(start, stop - start)

    def _block(self, at: int) -> Entries:
        """One block, parsed or read; ``MissingBytes`` if it is not present."""
        found = self.blocks.get(at)
        if found is None:
            found = self._read_block(at)
            if len(self.blocks) < _PARSED and self._span(at).length <= BLOCK_SIZE:
                self.blocks[at] = found
        return found

    def _read_block(self, at: int) -> Entries:
        span = self._span(at)
        if self.version == 1 and not self.type.width:
            texts, tails = self.pieces.once(("texts", span.offset), _never)
            entries = _text_entries(self.type, texts, tails)
            return _with_lengths(entries, self.pieces.length - self.body, self.null_offset)
        data = self.pieces.take(*span)
        cursor = Pieces.whole(data).cursor(0)
        count = self.cardinality if self.version == 1 else cursor.count("number of entries")
        entries = _read_entries(cursor, self.type, count, has_lengths=self.version == 2)
        if cursor.position != span.length:
            raise FormatError(
                "a block of another length", offset=span.offset, expected=span.length,
                got=cursor.position,
            )  # fmt: skip
        if self.version == 1:
            return _with_lengths(entries, self.pieces.length - self.body, self.null_offset)
        if not entries.keys.ascending() or not count or entries.keys[0] != self.firsts[at]:
            raise FormatError("keys of a block do not ascend from its first", offset=span.offset)
        if ((entries.offsets >= 0) & (entries.lengths < 0)).any():
            raise FormatError("negative length of a bitmap", offset=span.offset)
        return entries


def _places(keys: KeyArray, wanted: set[Key]) -> list[int]:
    if isinstance(keys.values, np.ndarray):
        return np.flatnonzero(np.isin(keys.values, list(wanted))).tolist()
    data, starts, lengths = keys.values.data, keys.values.offsets[:-1], keys.values.lengths
    found: list[int] = []
    for key in wanted:
        assert isinstance(key, bytes)
        same = np.flatnonzero(lengths == len(key))
        letters = data[starts[same][:, None] + np.arange(len(key))]
        found += same[(letters == np.frombuffer(key, np.uint8)).all(axis=1)].tolist()
    return found


def _never() -> tuple[ByteArrays, U8]:
    raise AssertionError("the strings of version 1 are read when it is opened")


def _one_block(
    cursor: Cursor, type: PaimonType, cardinality: int, pieces: Pieces
) -> tuple[KeyArray, I64]:
    """Version 1: the whole dictionary; only its last key gives its length."""
    start = cursor.position
    if type.width:
        body = start + cardinality * (type.width + 4)
        pieces.cursor(start, body)
    else:
        found = cursor.texts(cardinality, 4)
        body = cursor.position
        pieces.once(("texts", start), lambda: found)
    return KeyArray.of(type, ()), np.array([start, body] if cardinality else [start], np.int64)


def _blocks(cursor: Cursor, type: PaimonType, pieces: Pieces) -> tuple[KeyArray, I64]:
    """Version 2: where each block lies, and its first key."""
    at = cursor.position
    found = _read_entries(cursor, type, cursor.count("number of blocks"), has_lengths=False)
    size = cursor.count("size of all blocks")
    base = cursor.position
    edges = np.empty(len(found.offsets) + 1, np.int64)
    edges[:-1], edges[-1] = found.offsets, size
    if edges[0] or not bool((edges[1:] > edges[:-1]).all()) or not found.keys.ascending():
        raise FormatError("blocks do not ascend", offset=at)
    if base + size > pieces.length:
        raise FormatError("blocks end past the index", offset=at, got=base + size)
    return found.keys, base + edges


def _read_entries(cursor: Cursor, type: PaimonType, count: int, *, has_lengths: bool) -> Entries:
    """``count`` × { key, i32 offset, i32 length where there are lengths }."""
    extra = 8 if has_lengths else 4
    if type.width:
        dtype = _entry_dtype(type.width, has_lengths)
        table = np.frombuffer(cursor.take(count * dtype.itemsize), dtype)
        keys = KeyArray.from_raw(type, table["key"])
        offsets = table["offset"].astype(np.int64)
        lengths = table["length"].astype(np.int64) if has_lengths else np.zeros(count, np.int64)
        return Entries(keys, offsets, lengths)
    return _text_entries(type, *cursor.texts(count, extra))


def _text_entries(type: PaimonType, texts: ByteArrays, tails: U8) -> Entries:
    numbers = tails.view(">i4").astype(np.int64)
    lengths = numbers[:, 1] if numbers.shape[1] > 1 else np.zeros(len(texts), np.int64)
    return Entries(KeyArray(type, texts), numbers[:, 0], lengths)


@cache
def _entry_dtype(width: int, has_lengths: bool) -> np.dtype[Any]:
    fields = [("key", f">i{width}"), ("offset", ">i4"), ("length", ">i4")]
    return np.dtype(fields if has_lengths else fields[:2])


def _with_lengths(entries: Entries, body: int, null_offset: int | None) -> Entries:
    """Version 1: each bitmap ends where the next one begins, or with the index."""
    used = entries.offsets[entries.offsets >= 0]
    if null_offset is not None and null_offset >= 0:
        used = np.append(used, null_offset)
    edges = distinct(np.append(used, body))
    if len(edges) and int(edges[-1]) > body:
        raise FormatError("a bitmap past the index", expected=f"at most {body}", got=edges[-1])
    after = np.searchsorted(edges, entries.offsets, side="right")
    ends = edges[np.minimum(after, len(edges) - 1)]
    lengths = np.where(entries.offsets >= 0, ends - entries.offsets, -1)
    return Entries(entries.keys, entries.offsets, lengths)


BLOCK_SIZE = 16 * 1024
_PARSED = 2
_LARGEST = 2**31 - 1


def write_bitmap(
    column: CodedColumn,
    *,
    version: int = 2,
    block_size: int = BLOCK_SIZE,
    order: Sequence[int] | None = None,
) -> bytes:
    """The index. ``order`` is the order of the values' bitmaps (and of version 1's entries), the
    keys' own by default. Any order is valid, and other writers use that of their hash tables.

    ``UnsupportedError`` for other versions, types that have no bitmap index, and 2 GiB and more.
    """
    check_type(column.type)
    if version not in (1, 2):
        raise UnsupportedError(f"version {version} of a bitmap index: 1 and 2 are known")
    keys, grouped = column.keys, group_rows(column)
    nulls = grouped.nulls
    sequence = np.arange(len(keys)) if order is None else np.asarray(order, np.int64)
    counts = np.diff(grouped.starts)
    head = [version.to_bytes(1, "big"), i32(column.row_count), i32(len(keys))]
    head.append(b"\x01" if len(nulls) else b"\x00")
    bodies: list[bytes] = []
    before = 0
    if len(nulls):
        null = roaring.write(BitMap(np.ascontiguousarray(nulls).data))
        head.append(i32(0 if len(nulls) > 1 else -1 - int(nulls[0])))
        if version == 2:
            head.append(i32(len(null)))
        if len(nulls) > 1:
            bodies.append(null)
            before = len(null)
    parts, sizes = _bitmaps(grouped, sequence[counts[sequence] > 1])
    if before + int(sizes.sum()) > _LARGEST:
        raise UnsupportedError("a bitmap index of 2 GiB or more")
    offsets, lengths = _places_of(grouped, sequence, counts, sizes, before)
    if version == 1:
        head.append(_interleaved(keys.take(sequence), [offsets[sequence]]))
    else:
        head.append(_block_bytes(keys, offsets, lengths, block_size))
    return b"".join([*head, *bodies, *parts])


def _bitmaps(grouped: GroupedRows, sequence: I64) -> tuple[list[bytes], I64]:
    """The bitmaps of these keys, in this order, and their sizes."""
    counts = np.diff(grouped.starts)[sequence]
    starts = np.append(0, np.cumsum(counts))
    if len(counts) == len(grouped.starts) - 1 and np.array_equal(
        sequence, np.arange(len(sequence))
    ):
        return write_groups(grouped.rows, grouped.starts)
    rows = grouped.rows[np.repeat(grouped.starts[:-1][sequence], counts) + within(counts)]
    return write_groups(rows, starts)


def _places_of(
    grouped: GroupedRows, sequence: I64, counts: I64, sizes: I64, before: int
) -> tuple[I64, I64]:
    """Offset and length of each key's bitmap, in the keys' order."""
    single = counts == 1
    offsets = np.empty(len(counts), np.int64)
    lengths = np.full(len(counts), -1, np.int64)
    offsets[single] = -1 - grouped.rows[grouped.starts[:-1][single]].astype(np.int64)
    stored = sequence[~single[sequence]]
    offsets[stored] = before + np.cumsum(sizes) - sizes
    lengths[stored] = sizes
    return offsets, lengths


def _block_bytes(keys: KeyArray, offsets: I64, lengths: I64, block_size: int) -> bytes:
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
        blocks.append(i32(stop - start))
        inner = [offsets[start:stop], lengths[start:stop]]
        blocks.append(_interleaved(keys.slice(start, stop), inner))
        at += 4 + len(blocks[-1])
    if at > _LARGEST:
        raise UnsupportedError("a bitmap index of 2 GiB or more")
    firsts = keys.take(np.array([start for start, _ in table], np.int64))
    places = np.array([place for _, place in table], np.int64)
    return b"".join([i32(len(table)), _interleaved(firsts, [places]), i32(at), *blocks])


def _interleaved(keys: KeyArray, columns: list[I64]) -> bytes:
    """Key, then one i32 of each column, for every key."""
    lengths = keys.lengths()
    sizes = lengths + 4 * len(columns)
    at = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    keys.place(out, at)
    for ordinal, column in enumerate(columns):
        place_i32(out, at + lengths + 4 * ordinal, column)
    return out.tobytes()
