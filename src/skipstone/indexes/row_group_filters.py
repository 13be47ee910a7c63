"""Bloom filters of the row groups of one file, or of parts of them; a lookup reads a few blocks.

A filter is a run of blocks of 512 bits. A key has its ``k`` bits in one block, as in the
split-block filters of Parquet. The filters of equal size form a table: the blocks of one number
lie together, so one read answers a key for all row groups of the table. All integers are
little-endian::

    head
      "SKRG" | version u32 = 1 or 2 | parts u32 | tables u32
      per part:       rows u64 | table i32, -1: no filter | lane u16 | complete u8 | more u8
      per table:      start u64 | blocks u32 | lanes u16 | k u8 | 0 u8
      CRC-32 of the above, u32
    tables, at ``start`` of these bytes
      per block:      64 bytes per lane | CRC-32 of these, u32

A part is a row group, or a run of its rows: ``more`` is 1 where the next part is of the same row
group, which only version 2 has. ``lane`` is the place of a part among those of its table.
``complete`` says that its filter has the long grams too (``text.py``). Bit ``i & 7`` of byte
``i >> 3`` of a lane is bit ``i``. The place of a key, all modulo 2^64::

    x = mix(key)      mix(z): z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27;
                              z *= 0x94D049BB133111EB; z ^= z >> 31
    block = ((x >> 32) * blocks) >> 32
    y = mix(x + 0x9E3779B97F4A7C15);  bit j = (y >> 9 j) & 511, for j below k, which is at most 7
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Keys = NDArray[np.uint64]
    I64 = NDArray[np.int64]
    Flags = NDArray[np.bool_]


MAGIC: Final = b"SKRG"
#: the versions of filters of whole row groups, and of parts
VERSION, OF_PARTS = 1, 2
#: the bits, and the bytes, of a block of one row group
BITS: Final = 512
BYTES: Final = BITS // 8
_HEAD: Final = struct.Struct("<4sIII")
_CRC: Final = 4
_GROUP: Final = np.dtype(
    [("rows", "<u8"), ("table", "<i4"), ("lane", "<u2"), ("complete", "u1"), ("more", "u1")]
)
_TABLE: Final = np.dtype(
    [("start", "<u8"), ("blocks", "<u4"), ("lanes", "<u2"), ("hashes", "u1"), ("zero", "u1")]
)
_MOST_GROUPS: Final = 1 << 20
_MOST_HASHES: Final = 7
# The most row groups of one table: a block of more would be a long read.
_MOST_LANES: Final = 64
_MOST_BLOCKS: Final = 1 << 26
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
# How many keys are added at a time: their places stay in the cache.
_CHUNK: Final = 1 << 15
# From this many keys on, the distinct ones are estimated.
_COUNTED: Final = 1 << 16


def _mix(z: Keys) -> Keys:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def places(keys: Keys, blocks: int, hashes: int) -> tuple[I64, I64]:
    """The block of each key, and its bits there: int64 ``(n,)`` and ``(hashes, n)``."""
    x = _mix(keys)
    block = ((x >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)
    y = _mix(x + _GOLDEN)
    bits = np.empty((hashes, len(keys)), np.int64)
    for j in range(hashes):
        bits[j] = (y >> np.uint64(9 * j)) & np.uint64(BITS - 1)
    return block.astype(np.int64), bits


def count_distinct(parts: Sequence[Keys]) -> int:
    """About how many distinct keys there are: exact for few keys, else from a sample by hashes."""
    total = sum(map(len, parts))
    shift = max(0, (total // _COUNTED).bit_length() - 1)
    some = [each if not shift else each[_mix(each) >> np.uint64(64 - shift) == 0] for each in parts]
    return len(np.unique(np.concatenate([np.zeros(0, np.uint64), *some]))) << shift


@dataclass(frozen=True, slots=True, eq=False)
class GroupFilter:
    """The filter of one part: uint8 ``(blocks, BYTES)``, with ``hashes`` bits per key; ``fpp`` is
    its false positive probability."""

    blocks: NDArray[np.uint8]
    hashes: int
    complete: bool
    fpp: float


class FilterBits:
    """Builds a filter of about ``count`` keys for ``fpp`` in at most ``most`` bytes."""

    def __init__(self, count: int, most: int, fpp: float) -> None:
        self.hashes = min(_MOST_HASHES, max(1, round(-math.log2(fpp))))
        wanted = -self.hashes * count / math.log1p(-(fpp ** (1 / self.hashes)))
        self.blocks = max(1, _rounded(math.ceil(wanted / BITS), up=True))
        if self.blocks * BYTES > most:
            self.blocks = max(1, min(_rounded(most // BYTES, up=False), _MOST_BLOCKS))
            best = max(1, round(self.blocks * BITS / max(count, 1) * math.log(2)))
            self.hashes = min(self.hashes, best)
        self._flags = np.zeros(self.blocks * BITS, np.bool_)

    @classmethod
    def of_size(cls, blocks: int, hashes: int) -> Self:
        """A filter of exactly this size."""
        made = cls(0, BYTES, 0.5)
        made.blocks, made.hashes = blocks, hashes
        made._flags = np.zeros(blocks * BITS, np.bool_)
        return made

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._flags.nbytes

    def put(self, keys: Keys) -> None:
        """Adds keys."""
        for at in range(0, len(keys), _CHUNK):
            block, bits = places(keys[at : at + _CHUNK], self.blocks, self.hashes)
            block *= BITS
            for each in bits:
                self._flags[block + each] = True

    def finish(self, *, complete: bool) -> GroupFilter:
        """The filter."""
        filled = self._flags.reshape(self.blocks, BITS).mean(axis=1)
        packed = np.packbits(self._flags, bitorder="little").reshape(self.blocks, BYTES)
        return GroupFilter(packed, self.hashes, complete, float((filled**self.hashes).mean()))


def _rounded(blocks: int, *, up: bool) -> int:
    """Rounded to four significant bits: then row groups with about as many keys share a table."""
    shift = max(0, blocks.bit_length() - 4)
    return (-(-blocks >> shift) if up else blocks >> shift) << shift


def to_bytes(
    rows: Sequence[int], filters: Sequence[GroupFilter | None], more: Sequence[bool] = ()
) -> tuple[bytes, int]:
    """The filters of all parts of a file, and the length of their head. ``more``: whether the next
    part is of the same row group; empty where each is a row group."""
    groups = np.zeros(len(rows), _GROUP)
    groups["rows"], groups["table"] = rows, -1
    version = OF_PARTS if any(more) else VERSION
    members: dict[tuple[int, int, int], list[int]] = {}
    seen: dict[tuple[int, int], int] = {}
    for at, each in enumerate(filters):
        if each is not None:
            size = len(each.blocks), each.hashes
            number = seen[size] = seen.get(size, -1) + 1
            members.setdefault((*size, number // _MOST_LANES), []).append(at)
    tables, pieces = np.zeros(len(members), _TABLE), []
    head = start = _HEAD.size + groups.nbytes + tables.nbytes + _CRC
    for number, ((blocks, hashes, _), lanes) in enumerate(members.items()):
        data = np.zeros((blocks, len(lanes) * BYTES + _CRC), np.uint8)
        for lane, at in enumerate(lanes):
            each = filters[at]
            assert each is not None
            groups[at] = (rows[at], number, lane, each.complete, 0)  # ``more`` is set below
            data[:, lane * BYTES : (lane + 1) * BYTES] = each.blocks
        sums = [zlib.crc32(row) for row in data[:, :-_CRC].copy()]
        data[:, -_CRC:] = np.array(sums, "<u4").view(np.uint8).reshape(blocks, _CRC)
        tables[number] = (start, blocks, len(lanes), hashes, 0)
        pieces.append(data.tobytes())
        start += data.nbytes
    groups["more"] = list(more) if version == OF_PARTS else 0
    first = _HEAD.pack(MAGIC, version, len(groups), len(tables))
    described = first + groups.tobytes() + tables.tobytes()
    return b"".join((described, struct.pack("<I", zlib.crc32(described)), *pieces)), head


@dataclass(frozen=True, slots=True, eq=False)
class GroupTable:
    """Filters of equal size: ``lanes`` of them, from byte ``start`` on."""

    start: int
    blocks: int
    lanes: int
    hashes: int

    @property
    def stride(self) -> int:
        """Bytes from one block to the next."""
        return self.lanes * BYTES + _CRC

    def offsets(self, keys: Keys) -> list[int]:
        """Where the block of each key begins."""
        found: list[int] = (self.start + places(keys, self.blocks, 0)[0] * self.stride).tolist()
        return found

    def hits(self, data: Sequence[bytes | memoryview], keys: Keys) -> Flags:
        """Whether each lane may hold each key: ``(keys, lanes)``, from the block of each key as it
        was read. ``FormatError`` where the checksum of one is wrong."""
        for each in set(map(bytes, data)):
            if zlib.crc32(each[:-_CRC]) != int.from_bytes(each[-_CRC:], "little"):
                raise FormatError("the checksum of a block of filters is wrong")
        whole = np.frombuffer(b"".join(data), np.uint8).reshape(len(keys), self.stride)
        lanes = whole[:, :-_CRC].reshape(len(keys), self.lanes, BYTES)
        found = np.ones((len(keys), self.lanes), np.bool_)
        row = np.arange(len(keys))
        for bits in places(keys, self.blocks, self.hashes)[1]:
            found &= (lanes[row, :, bits >> 3] >> (bits & 7).astype(np.uint8)[:, None] & 1) == 1
        return found


@dataclass(frozen=True, slots=True, eq=False)
class GroupFilters:
    """The head of the filters of a file: per part its first row and rows, its table (-1: none), its
    lane and whether its filter is complete; ``begins``, the first part of each row group; and the
    tables."""

    first: I64
    rows: I64
    table: I64
    lane: I64
    complete: Flags
    begins: I64
    tables: tuple[GroupTable, ...]

    @property
    def in_parts(self) -> bool:
        """Whether a row group has several parts."""
        return len(self.begins) < len(self.rows)

    @property
    def group_rows(self) -> I64:
        """The rows of each row group."""
        return np.asarray(np.add.reduceat(self.rows, self.begins) if len(self.rows) else self.rows)

    def of_groups(self, flags: Flags) -> Flags:
        """For each row group, whether the flag of any of its parts is set."""
        return np.logical_or.reduceat(flags, self.begins) if len(flags) else flags

    @classmethod
    def from_bytes(cls, head: bytes | memoryview, length: int) -> Self:
        """The head of filters of ``length`` bytes in all. ``FormatError`` for impossible values,
        ``UnsupportedError`` for an unknown version."""
        if len(head) < _HEAD.size + _CRC:
            raise FormatError("filters of row groups", expected="a head", got=f"{len(head)} bytes")
        magic, version, count, tables = _HEAD.unpack_from(head)
        if magic != MAGIC:
            raise FormatError("filters of row groups", expected=MAGIC, got=magic)
        if version not in (VERSION, OF_PARTS):
            raise UnsupportedError(
                f"filters of row groups of version {version} are not known",
                hint="a newer Skipstone wrote them: update, or build the index again",
            )
        size = _HEAD.size + count * _GROUP.itemsize + tables * _TABLE.itemsize
        if not (count <= _MOST_GROUPS and tables <= count and size + _CRC == len(head) <= length):
            raise FormatError(
                "the head of filters of row groups", expected=size + _CRC, got=len(head)
            )
        if zlib.crc32(head[:size]) != int.from_bytes(head[size:], "little"):
            raise FormatError("the checksum of the head of filters of row groups is wrong")
        groups = np.frombuffer(head, _GROUP, count, _HEAD.size)
        described = np.frombuffer(head, _TABLE, tables, _HEAD.size + groups.nbytes)
        made = tuple([GroupTable(*each[:4]) for each in described.tolist()])
        for each in made:
            sound = 0 < each.blocks <= _MOST_BLOCKS and 0 < each.hashes <= _MOST_HASHES
            end = each.start + each.blocks * each.stride
            if not (sound and each.lanes and len(head) <= each.start and end <= length):
                raise FormatError("a table of filters of row groups", expected=length, got=end)
        rows, table = groups["rows"], groups["table"].astype(np.int64)
        lanes = np.array([each.lanes for each in made] + [1], np.int64)
        more = groups["more"] if version == OF_PARTS else np.zeros(count, np.uint8)
        bad = (table < -1) | (table >= tables) | (rows >= 1 << 48) | (more > 1)
        bad[-1:] |= more[-1:] > 0
        bad[~bad] = groups["lane"][~bad] >= lanes[table[~bad]]
        if bad.any():
            raise FormatError("a part of filters", got=str(groups[np.argmax(bad)]))
        rows = rows.astype(np.int64)
        return cls(
            first=np.cumsum(rows) - rows,
            rows=rows,
            table=table,
            lane=groups["lane"].astype(np.int64),
            complete=groups["complete"] != 0,
            begins=np.flatnonzero(np.concatenate((np.ones(1, np.uint8), 1 - more))[:count]),
            tables=made,
        )
