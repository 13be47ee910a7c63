"""Probes many serialised Bloom filters at once, in place.

A store has one Java-serialised filter per data file, in one Arrow binary column. No filter is
deserialised: ``BlobColumn`` locates each payload once, with array operations, and a probe gathers
single bytes. Payload byte ``q`` of a blob lies at::

    base + 1029 (q div 1024) + h + q mod 1024        base: the first block's header
                                                     h: 5, or 2 in a last block of at most 255 bytes

because every block but the last has 1024 bytes and a header of 5. Bit ``i`` of a filter is bit
``i & 7`` of payload byte ``start + 8 (i div 64) + 7 - (i mod 64) div 8`` (words are big-endian).

A null, and a blob that does not parse (a foreign class, wrong block headers, lengths that disagree,
impossible counts), **proves nothing**: it may contain everything. ``ok`` marks the usable filters.

Cost: parsing reads each block's header. A probe reads k bytes of a filter that has the value, and
about two bytes of any other. Each filter is asked for one item after the other until it is decided:
by its first hit, or by its first miss where all items are wanted. Where items are in order,
``windows`` say which of them a filter is asked for.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skipstone._arrays import validity
from skipstone._dataclasses import dataclass
from skipstone._numba import CompiledKernels
from skipstone.errors import FormatError
from skipstone.pruning.column_types import binary_parts

from ..._arrays import distinct, within
from .java_bloom import BLOCK, parse_header
from .sketch import MAX_HASHES, U32, hash_bytes, hash_longs, positions

if TYPE_CHECKING:
    from collections.abc import Sequence


# Integers, or strings and binaries as bytes.
Items: TypeAlias = "npt.NDArray[np.int64] | Sequence[bytes] | pa.LargeBinaryArray"
I64: TypeAlias = npt.NDArray[np.int64]
#: for each filter, the first of the items that it is asked for, and the one after the last
Windows: TypeAlias = "tuple[I64, I64]"
#: the hashes of items, by seed, to be used again
Hashed: TypeAlias = "dict[int, tuple[U32, U32]]"
Mask: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]

#: a full block with its header
FRAMED = BLOCK + 5
# A store has one header, or two after a change of Spark. Beyond this many, blobs prove nothing.
_MAX_HEADERS, _MAX_ATTEMPTS, _MAX_SEEDS = 32, 256, 16
_MAX_HEADER_BYTES = 1 << 16
# The most items whose hashes are kept for the next filters.
_FEW = 4
# Blobs compared, headers of blocks checked, and (filter, item) pairs probed, at a time.
_ROWS, _HEADERS, _PAIRS = 1 << 13, 1 << 21, 1 << 18
# Where all items are wanted, the first few items exclude most filters: so few pairs at a time that
# probing them takes about as long as the calls.
_PAIRS_OF_ALL = 1 << 12


class Probe(Protocol):
    """Per row: whether the filter may contain any of its items ``first`` to ``last``."""

    def __call__(
        self, chunk: BlobChunk, rows: I64, first: I64, last: I64, h1: U32, h2: U32, v: int, /
    ) -> Mask: ...


#: for many pairs of a filter and an item, of which NumPy probes some millions in a second
COMPILED = CompiledKernels[Probe](
    module=f"{__package__}.bloom_probe_jit", once=4e6, total=1.6e7, share=0.25
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlobChunk:
    """The filters of one Arrow array, parsed; arrays of n, meaningless where ``ok`` is False.

    ``data``: the array's bytes; ``base``: where the first block's header lies in them; ``payload``:
    payload bytes; ``start``: payload bytes before the words; ``hashes``: k; ``words``: n.
    """

    data: npt.NDArray[np.uint8]
    ok: Mask
    base: I64
    payload: I64
    start: I64
    hashes: I64
    words: I64
    version: I64
    seed: I64

    def __len__(self) -> int:
        return len(self.ok)

    def byte_at(self, rows: I64, q: I64) -> Bytes:
        """Payload byte ``q`` of each of ``rows``."""
        block = q >> 10
        payload = self.payload[rows]
        last = (payload - 1) >> 10
        short = (block == last) & (payload - (last << 10) <= 0xFF)
        return self.taken(
            rows, self.base[rows] + block * FRAMED + np.where(short, 2, 5) + (q & 1023)
        )

    def taken(self, rows: I64, place: I64) -> Bytes:
        """The bytes at these places of the filters of ``rows``."""
        return np.asarray(self.data[place])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Joined(BlobChunk):
    """The filters of several chunks as one chunk, without a copy. ``first`` are the rows before
    each chunk."""

    parts: Sequence[BlobChunk]
    first: I64

    @classmethod
    def of(cls, parts: Sequence[BlobChunk]) -> _Joined:
        arrays = {
            name: np.concatenate([getattr(each, name) for each in parts])
            for name in BlobChunk.__slots__
            if name != "data"
        }
        first = np.cumsum([0, *map(len, parts)])
        return cls(data=np.empty(0, np.uint8), parts=parts, first=first, **arrays)

    def taken(self, rows: I64, place: I64) -> Bytes:
        """The bytes at these places of the filters of ``rows``, which ascend."""
        edges = pairwise(np.searchsorted(rows, self.first).tolist())
        pairs = zip(self.parts, edges, strict=True)
        return np.concatenate([each.data[place[start:stop]] for each, (start, stop) in pairs])


class BlobColumn:
    """A column of serialised filters, parsed for probes. It keeps Arrow's buffers alive."""

    __slots__ = ("_together", "chunks", "length", "ok")

    def __init__(self, column: pa.Array | pa.ChunkedArray) -> None:
        """``column``: binary, nulls allowed. Never fails on the content of the blobs."""
        arrays = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        self._take([_parse_chunk(array) for array in arrays])

    @classmethod
    def of_chunks(cls, chunks: Sequence[BlobChunk]) -> Self:
        """The filters of parsed chunks."""
        made = cls.__new__(cls)
        made._take(chunks)
        return made

    def _take(self, chunks: Sequence[BlobChunk]) -> None:
        self.chunks: tuple[BlobChunk, ...] = tuple(chunks)
        self._together: tuple[BlobChunk, ...] | None = None
        self.length = sum(map(len, self.chunks))
        self.ok: Mask = np.concatenate(
            [np.zeros(0, np.bool_), *(chunk.ok for chunk in self.chunks)]
        )

    def __len__(self) -> int:
        return self.length

    def might_contain_any(
        self,
        items: Items,
        among: Mask | None = None,
        windows: Windows | None = None,
        hashed: Hashed | None = None,
    ) -> Mask:
        """Per filter, shape ``(n,)``: False where every item is surely absent (no items: False).

        True for filters that prove nothing, and for those outside ``among``. Each filter is
        asked for the items of its window, and without windows for all.
        """
        found = np.ones(self.length, dtype=np.bool_)
        at = 0
        for chunk in self._asked(len(items)):
            part = slice(at, at + len(chunk))
            rows = np.flatnonzero(chunk.ok if among is None else chunk.ok & among[part])
            if windows is None:
                first = np.zeros(len(rows), np.int64)
                last = np.full(len(rows), len(items), np.int64)
            else:
                first, last = windows[0][part][rows], windows[1][part][rows]
            found[at + rows] = _found_in(chunk, rows, (first, last), items, hashed)
            at += len(chunk)
        return found

    def _asked(self, items: int) -> tuple[BlobChunk, ...]:
        """The chunks, joined to one where a call per chunk would take longer than the probes."""
        if len(self.chunks) < 2 or items * self.length > _PAIRS:
            return self.chunks
        if self._together is None:
            plain = all(type(chunk) is BlobChunk for chunk in self.chunks)
            self._together = (_Joined.of(self.chunks),) if plain else self.chunks
        return self._together

    def might_contain_all(self, items: Items, places: range, among: Mask, hashed: Hashed) -> Mask:
        """Which of the filters ``among`` all may contain each of the items at ``places``.

        Filters that prove nothing stay. ``hashed`` caches the hashes of the items.
        """
        found, at = among.copy(), 0
        for chunk in self.chunks:
            rows = np.flatnonzero(chunk.ok & among[at : at + len(chunk)])
            first = np.full(len(rows), places.start, np.int64)
            last = np.full(len(rows), places.stop, np.int64)
            found[at + rows] = _found_in(chunk, rows, (first, last), items, hashed, every=True)
            at += len(chunk)
        return found


def _found_in(
    chunk: BlobChunk,
    rows: I64,
    windows: Windows,
    items: Items,
    hashed: Hashed | None,
    every: bool = False,
) -> Mask:
    """Per row: whether the filter may contain any, or with ``every`` all, items of its window."""
    hit = np.full(len(rows), every, dtype=np.bool_)
    if not len(rows) or not len(items):
        return hit
    keys = chunk.version[rows] * (1 << 32) + (chunk.seed[rows] & 0xFFFFFFFF)
    groups = [0] if (keys == keys[0]).all() else None
    first, last = windows
    for key in keys[:1] if groups else distinct(keys):
        chosen = np.arange(len(rows)) if groups else np.flatnonzero(keys == key)
        version, seed = int(key) >> 32, int(key) & 0xFFFFFFFF
        h1, h2 = _hashes(items, seed, hashed)
        alone = every or len(items) == 1
        pairs = 0 if alone else int(np.minimum((last - first)[chosen], _PAIRS).sum())
        compiled = COMPILED.for_work(pairs) if pairs > _PAIRS else None
        if compiled is not None:
            hit[chosen] = compiled(
                chunk, rows[chosen], first[chosen], last[chosen], h1, h2, version
            )
            continue
        # Items in slices, and only filters that are not decided yet: an IN list stays cheap.
        at, most = first[chosen], _PAIRS_OF_ALL if every else _PAIRS
        while len(chosen):
            step = np.minimum(max(1, most // len(chosen)), last[chosen] - at)
            count = _probe(chunk, rows[chosen], at, step, h1, h2, version)
            part = count == step if every else count > 0
            hit[chosen] = part
            at += step
            left = (part == every) & (at < last[chosen])
            chosen, at = chosen[left], at[left]
    return hit


def _hashes(items: Items, seed: int, hashed: Hashed | None) -> tuple[U32, U32]:
    if hashed is not None:
        if seed not in hashed:
            hashed[seed] = hashes_of(items, seed)
        return hashed[seed]
    # A plan asks the filters of each part for the same few items.
    if len(items) <= _FEW and not isinstance(items, pa.Array):
        if isinstance(items, np.ndarray):
            return _hashes_of_longs(items.tobytes(), seed)
        return _hashes_of_texts(tuple(items), seed)
    return hashes_of(items, seed)


@lru_cache(maxsize=64)
def _hashes_of_longs(items: bytes, seed: int) -> tuple[U32, U32]:
    return hashes_of(np.frombuffer(items, np.int64), seed)


@lru_cache(maxsize=64)
def _hashes_of_texts(items: tuple[bytes, ...], seed: int) -> tuple[U32, U32]:
    return hashes_of(items, seed)


def hashes_of(items: Items, seed: int) -> tuple[U32, U32]:
    """The two hashes of each item."""
    if isinstance(items, np.ndarray):
        return hash_longs(items, seed)
    if isinstance(items, pa.Array):
        return hash_bytes(*binary_parts(items), seed)
    offsets = np.zeros(len(items) + 1, dtype=np.int64)
    np.cumsum([len(item) for item in items], out=offsets[1:])
    return hash_bytes(np.frombuffer(b"".join(items), dtype=np.uint8), offsets, seed)


def _probe(
    chunk: BlobChunk, rows: I64, first: I64, counts: I64, h1: U32, h2: U32, version: int
) -> I64:
    """Per row: how many of ``counts`` items from ``first`` on the filter may contain."""
    hashes, start = chunk.hashes[rows], chunk.start[rows]
    bits = chunk.words[rows] << 6
    if (counts == 1).all():
        row, item = np.arange(len(rows)), first
    else:
        row = np.repeat(np.arange(len(rows)), counts)
        item = np.repeat(first, counts) + within(counts)
    for j in range(1, int(hashes.max()) + 1):
        position = positions(h1[item], h2[item], j, version).astype(np.int64) % bits[row]
        q = start[row] + ((position >> 6) << 3) + (7 - ((position >> 3) & 7))
        byte = chunk.byte_at(rows[row], q)
        here = (byte >> (position & 7).astype(np.uint8)) & np.uint8(1) != 0
        # A filter with fewer hash functions has already answered.
        here |= hashes[row] < j
        row, item = row[here], item[here]
        if not len(row):
            break
    return np.bincount(row, minlength=len(rows))


def _parse_chunk(array: pa.Array) -> BlobChunk:
    count = len(array)
    if array.type == pa.binary_view():
        array = array.cast(pa.large_binary())
    data, offsets = binary_parts(array)
    if len(offsets) != count + 1:
        offsets = np.zeros(count + 1, dtype=np.int64)
    ends = offsets[1:]
    valid = validity(array)
    chunk = BlobChunk(
        data=data,
        ok=valid & (offsets[:-1] >= 0) & (offsets[:-1] <= ends) & (ends <= len(data)),
        base=np.zeros(count, np.int64),
        payload=np.ones(count, np.int64),
        start=np.zeros(count, np.int64),
        hashes=np.ones(count, np.int64),
        words=np.ones(count, np.int64),
        version=np.zeros(count, np.int64),
        seed=np.zeros(count, np.int64),
    )
    _find_headers(chunk, offsets[:-1], ends)
    _find_framing(chunk, ends)
    _find_counts(chunk)
    _limit_seeds(chunk)
    return chunk


def _find_headers(chunk: BlobChunk, starts: I64, ends: I64) -> None:
    """Sets ``base`` and ``version``; rows whose descriptors are not understood are not ``ok``."""
    open_ = np.flatnonzero(chunk.ok)
    headers = attempts = 0
    while len(open_) and headers < _MAX_HEADERS and attempts < _MAX_ATTEMPTS:
        attempts += 1
        # Picked across the column: a run of damaged blobs must not use up the attempts.
        pick = attempts * 0x9E3779B1 % len(open_)
        first = int(open_[pick])
        blob = chunk.data[starts[first] : min(ends[first], starts[first] + _MAX_HEADER_BYTES)]
        try:
            _outer, inner, length = parse_header(blob.tobytes())
        except FormatError:
            chunk.ok[first] = False
            open_ = np.delete(open_, pick)
            continue
        headers += 1
        same = _same_prefix(chunk.data, starts[open_], ends[open_], blob[:length])
        rows = open_[same]
        chunk.base[rows] = starts[rows] + length
        chunk.version[rows] = 2 if inner.name.endswith("V2") else 1
        open_ = open_[~same]
    chunk.ok[open_] = False


def _same_prefix(
    data: npt.NDArray[np.uint8], starts: I64, ends: I64, prefix: npt.NDArray[np.uint8]
) -> Mask:
    same = np.asarray(ends - starts >= len(prefix))
    # Eight bytes at a time, at any address; the last word overlaps the one before.
    words = np.ndarray(len(data) - 7, dtype="<u8", buffer=data, strides=(1,))
    places = np.append(np.arange(0, len(prefix) - 8, 8), len(prefix) - 8)
    wanted = np.ndarray(len(prefix) - 7, dtype="<u8", buffer=prefix, strides=(1,))[places]
    inside = np.flatnonzero(same)
    for at in range(0, len(inside), _ROWS):
        part = starts[inside[at : at + _ROWS]]
        here = np.ones(len(part), dtype=np.bool_)
        for place, word in zip(places, wanted, strict=True):
            here &= words[part + place] == word
        same[inside[at : at + _ROWS]] = here
    return same


def _find_framing(chunk: BlobChunk, ends: I64) -> None:
    """Sets ``payload`` from the length of the rest, and checks every block's header against it."""
    rows = np.flatnonzero(chunk.ok)
    rest = ends[rows] - chunk.base[rows] - 1
    full, tail = rest // FRAMED, rest % FRAMED
    short = (tail >= 3) & (tail <= 0xFF + 2)
    long_ = tail >= 0x100 + 5
    last = np.where(short, tail - 2, np.where(long_, tail - 5, 0))
    good = (rest > 0) & (short | long_ | (tail == 0))
    rows, full, last, short, long_ = (part[good] for part in (rows, full, last, short, long_))
    chunk.ok[:] = False
    if not len(rows):
        return
    data, base = chunk.data, chunk.base[rows]
    good = data[ends[rows] - 1] == 0x78
    at = base + full * FRAMED
    good[short] &= (data[at[short]] == 0x77) & (data[at[short] + 1] == last[short])
    good[long_] &= _is_block(data, at[long_], last[long_])
    # Every full block of every blob, a bounded number of headers at a time.
    step = max(1, _HEADERS // max(1, int(full.max())))
    for low in range(0, len(rows), step):
        counts = full[low : low + step]
        owner = np.repeat(np.arange(len(counts)), counts)
        block = within(counts)
        fine = _is_block(data, base[low + owner] + block * FRAMED, np.int64(BLOCK))
        good[low + owner[~fine]] = False
    chunk.payload[rows] = full * BLOCK + last
    chunk.ok[rows[good]] = True


def _is_block(data: npt.NDArray[np.uint8], at: I64, length: I64 | np.int64) -> Mask:
    # Lengths are at most 1024 here: two of the four bytes are enough, the others are 0.
    high, low = length >> 8, length & 0xFF
    return np.asarray(
        (data[at] == 0x7A)
        & (data[at + 1] == 0)
        & (data[at + 2] == 0)
        & (data[at + 3] == high)
        & (data[at + 4] == low)
    )


def _int32_at(chunk: BlobChunk, rows: I64, q: I64) -> I64:
    value = np.zeros(len(rows), dtype=np.int64)
    for byte in range(4):
        value = (value << 8) | chunk.byte_at(rows, q + byte)
    return np.where(value >= 1 << 31, value - (1 << 32), value)


def _find_counts(chunk: BlobChunk) -> None:
    """Sets ``start``, ``hashes``, ``words`` and ``seed``; keeps rows whose numbers agree."""
    start = np.where(chunk.version == 2, 16, 12)
    chunk.ok[:] &= chunk.payload >= start + 8
    rows = np.flatnonzero(chunk.ok)
    zero = np.zeros(len(rows), dtype=np.int64)
    start = start[rows]
    version = _int32_at(chunk, rows, zero)
    hashes = _int32_at(chunk, rows, zero + 4)
    seed = np.where(version == 2, _int32_at(chunk, rows, zero + 8), 0)
    words = _int32_at(chunk, rows, start - 4)
    good = (version == chunk.version[rows]) & (hashes >= 1) & (hashes <= MAX_HASHES)
    good &= (words >= 1) & (chunk.payload[rows] == start + 8 * words)
    chunk.ok[rows[~good]] = False
    rows = rows[good]
    chunk.start[rows], chunk.hashes[rows] = start[good], hashes[good]
    chunk.words[rows], chunk.seed[rows] = words[good], seed[good]


def _limit_seeds(chunk: BlobChunk) -> None:
    seeds = distinct(chunk.seed[chunk.ok])
    if len(seeds) > _MAX_SEEDS:
        chunk.ok[:] &= np.isin(chunk.seed, seeds[:_MAX_SEEDS])
