"""Roaring bitmaps in the portable 32-bit format.

    u32 12346 | u32 n                                    no container is a list of runs
    u32 12347 | (n - 1) << 16, and (n + 7) / 8 bytes     bit i: container i is a list of runs
    n × (u16 high half of the rows, u16 cardinality - 1)
    n × u32 offset of the container                      with 12346, or if n ≥ 4
    n × container, ascending by high half:
        array    cardinality × u16, ascending            cardinality ≤ 4,096
        bitset   8,192 bytes, bit i is byte i / 8, mask 1 << i % 8
        runs     u16 r, r × (u16 start, u16 length - 1)

Little-endian throughout. A writer makes a container runs where 2 + 4r is less than the bytes of
the other form (2 × cardinality, or 8,192). The length of a bitmap is not stored: ``Layout`` walks
the descriptors. Source: the RoaringFormatSpec of the Roaring project.

pyroaring checks what it reads: order, cardinalities of arrays and bitsets, and that runs neither
touch nor overlap. ``read`` checks the rest: the length, all cardinalities, and that no row is past
the last.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

from ..._arrays import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .keys import I64


SERIAL_COOKIE_NO_RUNS = 12346
SERIAL_COOKIE = 12347
NO_OFFSET_THRESHOLD = 4
ARRAY_LARGEST = 4096
WORDS = 1024
ARRAY, BITSET, RUNS = range(3)
_ONE_ARRAY = struct.Struct("<IIHHI")
_U32 = struct.Struct("<I")
_U16 = struct.Struct("<H")


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the n containers of a bitmap lie: int64 arrays ``(n,)``, offsets from the bytes given.

    ``highs`` are the high halves of the rows, ``cards`` the cardinalities as declared, ``kinds``
    ARRAY, BITSET or RUNS; ``length`` is that of the whole bitmap.
    """

    highs: I64
    cards: I64
    kinds: I64
    starts: I64
    length: int

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Layout:
        """The layout of the bitmap at the start of ``data``; more may follow. ``FormatError``
        unless all of it lies within ``data``, its high halves ascend and its offsets are right."""
        cookie = _u32(data, 0)
        if cookie == SERIAL_COOKIE_NO_RUNS:
            count, at, flags = _u32(data, 4), 8, None
        elif cookie & 0xFFFF == SERIAL_COOKIE:
            count, at = (cookie >> 16) + 1, 4
            flags = np.frombuffer(_slice(data, at, (count + 7) // 8), np.uint8)
            at += len(flags)
        else:
            raise FormatError("not a Roaring bitmap", expected="cookie 12346 or 12347", got=cookie)
        if count > 1 << 16:
            raise FormatError("too many containers", expected="at most 65536", got=count)
        table = np.frombuffer(_slice(data, at, 4 * count), "<u2").reshape(count, 2)
        highs, cards = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64) + 1
        at += 4 * count
        stored = None
        if flags is None or count >= NO_OFFSET_THRESHOLD:
            stored = np.frombuffer(_slice(data, at, 4 * count), "<u4").astype(np.int64)
            at += 4 * count
        kinds = (cards > ARRAY_LARGEST).astype(np.int64)
        sizes = np.where(kinds == BITSET, 8 * WORDS, 2 * cards)
        if flags is not None:
            is_run = np.unpackbits(flags, bitorder="little")[:count].astype(np.bool_)
            kinds[is_run] = RUNS
            _run_sizes(data, at, sizes, np.flatnonzero(is_run), stored)
        ends = np.cumsum(sizes)
        starts = at + ends - sizes
        length = at + (int(ends[-1]) if count else 0)
        if length > len(data):
            raise FormatError("a bitmap ends early", expected=f"{length} bytes", got=len(data))
        if stored is not None and not np.array_equal(stored, starts):
            raise FormatError("offsets of a bitmap are not those of its containers")
        if count > 1 and not bool(np.all(highs[1:] > highs[:-1])):
            raise FormatError("containers of a bitmap do not ascend")
        return cls(highs, cards, kinds, starts, length)


def _run_sizes(
    data: bytes | memoryview, at: int, sizes: I64, runs: I64, stored: I64 | None
) -> None:
    """Fill in the sizes of run containers: the first two bytes are the number of runs."""
    if stored is not None:
        places = stored[runs]
        if len(places) and int(places.max()) + 2 > len(data):
            raise FormatError("an offset outside its bitmap", got=int(places.max()))
        raw = np.frombuffer(data, np.uint8)
        sizes[runs] = 2 + 4 * (raw[places] + (raw[places + 1].astype(np.int64) << 8))
        return
    for container in range(len(sizes)):
        if container in runs:
            sizes[container] = 2 + 4 * _U16.unpack(_slice(data, at, 2))[0]
        at += int(sizes[container])


def _u32(data: bytes | memoryview, at: int) -> int:
    value: int = _U32.unpack(_slice(data, at, 4))[0]
    return value


def _slice(data: bytes | memoryview, at: int, length: int) -> bytes | memoryview:
    if at + length > len(data):
        raise FormatError(
            "a bitmap ends early", expected=f"{at + length} bytes or more", got=len(data)
        )
    return data[at : at + length]


def read(data: bytes | memoryview, rows: int, *, exactly: bool = True) -> BitMap:
    """The bitmap at the start of ``data``, all of ``data`` unless ``exactly`` is false.

    ``FormatError`` unless it keeps the format and holds only rows below ``rows``.
    """
    if _is_one_array(data, rows):
        return BitMap.deserialize(bytes(data))
    layout = Layout.from_bytes(data)
    if exactly and layout.length != len(data):
        raise FormatError(
            "a bitmap of another length", expected=f"{len(data)} bytes", got=layout.length
        )
    try:
        found = BitMap.deserialize(bytes(data[: layout.length]))
    except ValueError as error:
        raise FormatError(f"not a Roaring bitmap: {error}") from None
    declared = int(layout.cards.sum())
    if len(found) != declared:
        raise FormatError("a bitmap of another cardinality", expected=declared, got=len(found))
    if found and found.max() >= rows:
        raise FormatError("a row past the last", expected=f"below {rows}", got=found.max())
    return found


def _is_one_array(data: bytes | memoryview, rows: int) -> bool:
    """Whether this is one valid array of some rows and nothing else. Most values have that, and it
    needs no general walk."""
    if not 18 <= len(data) <= 16 + 2 * ARRAY_LARGEST:
        return False
    cookie, count, high, less_one, start = _ONE_ARRAY.unpack_from(data)
    if (cookie, count, start) != (SERIAL_COOKIE_NO_RUNS, 1, 16) or len(data) != 18 + 2 * less_one:
        return False
    lows = np.frombuffer(data, "<u2", less_one + 1, 16)
    return bool((lows[1:] > lows[:-1]).all()) and (high << 16 | int(lows[-1])) < rows


def runs_of(data: bytes | memoryview, start: int) -> tuple[I64, I64]:
    """First and last low half of each run of the container at ``start``."""
    count = _U16.unpack(data[start : start + 2])[0]
    pairs = np.frombuffer(data, "<u2", 2 * count, start + 2).reshape(count, 2).astype(np.int64)
    return pairs[:, 0], pairs[:, 0] + pairs[:, 1]


def write(bitmap: BitMap) -> bytes:
    """The bitmap as its writer has it: runs where they are smaller."""
    own = bitmap.copy()
    own.run_optimize()
    return bytes(own.serialize())


def of_rows(rows: NDArray[np.integer], row_count: int) -> BitMap:
    """The set of these rows, in any order, each below ``row_count``; repeats allowed."""
    if len(rows) * 32 < row_count:
        return BitMap(distinct(rows).astype(np.uint32).data)
    # Where rows are many, a mask costs less than sorting them: 1 byte per row of the file.
    containers = -(-row_count // 65536)
    mask = np.zeros(containers * 65536, np.bool_)
    mask[rows] = True
    words = np.packbits(mask, bitorder="little").view("<u8").reshape(containers, WORDS)
    return of_words(words, np.arange(containers))


def of_words(words: NDArray[np.uint64], highs: I64) -> BitMap:
    """The set that has bit i of ``words[c]`` (uint64 ``(n, 1024)``) as row ``highs[c] << 16 | i``.

    ``highs`` must ascend.
    """
    cards = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    full = cards > 0
    if not bool(full.all()):
        words, highs, cards = words[full], highs[full], cards[full]
    count = len(highs)
    table = np.empty((count, 2), "<u2")
    table[:, 0], table[:, 1] = highs, cards - 1
    is_array = cards <= ARRAY_LARGEST
    sizes = np.where(is_array, 2 * cards, 8 * WORDS)
    offsets = (8 + 8 * count + np.cumsum(sizes) - sizes).astype("<u4")
    lows = _lows(words[is_array] if not bool(is_array.all()) else words)
    head = struct.pack("<II", SERIAL_COOKIE_NO_RUNS, count) + table.tobytes() + offsets.tobytes()
    if bool(is_array.all()):
        return BitMap.deserialize(head + lows.tobytes())
    if not bool(is_array.any()):
        return BitMap.deserialize(head + words.tobytes())
    bodies, at = [head], 0
    for container, card in enumerate(cards.tolist()):
        if card <= ARRAY_LARGEST:
            bodies.append(lows[at : at + card].tobytes())
            at += card
        else:
            bodies.append(words[container].tobytes())
    return BitMap.deserialize(b"".join(bodies))


def _lows(words: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """The low halves of all bits set, container by container."""
    flat = np.ascontiguousarray(words).reshape(-1)
    used = np.flatnonzero(flat)
    bits = np.unpackbits(flat[used].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    word, bit = np.nonzero(bits)
    return np.asarray((used[word] % WORDS) * 64 + bit).astype("<u2")
