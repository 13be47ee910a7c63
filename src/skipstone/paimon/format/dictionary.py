"""The dictionary of a ``range-bitmap``: key to code, code to key, in chunks.

    i32 head length = 13
    u8 version = 1 | i32 chunks n | i32 offsets length = 4n | i32 chunks length
    n × i32 offset of the chunk's head, from the first head
    n × head:
        u8 version = 1 | first key | i32 code of the first key | i32 offset into the keys | i32 s
        fixed keys:    i32 keys length = s × w | i32 w
        strings:       i32 offsets length = 4s | i32 keys length
    keys of each chunk:
        fixed keys:    s × key
        strings:       s × i32 offset from the first key's | s × (i32 length, bytes)

``keys`` has the bytes of a key: also the first key of a chunk is an i32 length and bytes if it is
a string. Codes are 0 … C-1 in the order of the keys. A chunk's first key is in its head only; ``s``
counts the keys after it. A chunk takes further keys while their bytes (and, for strings, their
offsets) fit the chunk size: 16 KiB, but 0 for BOOLEAN, TINYINT and SMALLINT, so that each key is a
chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

from .keys import Key, KeyArray, Root, key_bytes, ordinals_of, place_i32, raw_dtype, read_key
from .partial_blob import BlobSpan, Pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .keys import I64, PaimonType


CHUNK_SIZE = 16 * 1024
_HEAD = 13
_VERSION = 1
_LARGEST = 2**31 - 1


def default_chunk_size(type: PaimonType) -> int:
    """Bytes of keys in a chunk by default."""
    return 0 if type.root in (Root.BOOLEAN, Root.TINYINT, Root.SMALLINT) else CHUNK_SIZE


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Dictionary:
    """An open dictionary of ``cardinality`` keys: its chunks' ``firsts``, first ``codes``, key
    counts ``sizes`` (after the first), and where their keys lie: ``offsets`` and ``lengths``
    from ``keys_start`` of the blob."""

    type: PaimonType
    pieces: Pieces
    cardinality: int
    firsts: KeyArray
    codes: I64
    sizes: I64
    offsets: I64
    lengths: I64
    keys_start: int
    keys_length: int

    @classmethod
    def open(cls, type: PaimonType, pieces: Pieces, span: BlobSpan, cardinality: int) -> Dictionary:
        """Read the heads of a dictionary that lies at ``span`` of the blob."""
        stop = span.offset + span.length
        cursor = pieces.cursor(span.offset, stop)
        _expect("dictionary head", cursor.i32(), _HEAD)
        _version(cursor.u8())
        count = cursor.count("number of chunks")
        _expect("offsets of chunks", cursor.count("length"), 4 * count)
        size = cursor.count("length of chunks")
        heads = cursor.position + 4 * count
        if heads + size > stop or count > cardinality or (count == 0) != (cardinality == 0):
            raise FormatError(
                "chunks outside the dictionary", offset=span.offset, got=(count, size)
            )
        pieces.need([BlobSpan(span.offset, heads + size - span.offset)])
        places = np.frombuffer(cursor.take(4 * count), ">i4").astype(np.int64)
        data = pieces.take(heads, size)
        read = _fixed_heads if type.width else _string_heads
        firsts, numbers = read(data, type, places)
        codes, offsets, sizes = numbers[:, 0], numbers[:, 1], numbers[:, 2]
        if type.width:
            _expect_all("width of keys", numbers[:, 4], np.full(count, type.width))
            _expect_all("length of keys", numbers[:, 3], sizes * type.width)
            lengths = numbers[:, 3]
        else:
            _expect_all("length of offsets", numbers[:, 3], 4 * sizes)
            lengths = numbers[:, 3] + numbers[:, 4]
        keys_length = stop - heads - size
        after = np.append(codes[1:], cardinality)
        _expect_all("codes of a chunk", codes + 1 + sizes, after)
        if count and (
            int(sizes.min()) < 0
            or int(codes[0]) != 0
            or int(numbers[:, 3:].min()) < 0
            or int(offsets.min()) < 0
            or int((offsets + lengths).max()) > keys_length
            or not firsts.ascending()
        ):
            raise FormatError("chunks of a dictionary are not in order", offset=span.offset)
        return cls(
            type=type,
            pieces=pieces,
            cardinality=cardinality,
            firsts=firsts,
            codes=codes,
            sizes=sizes,
            offsets=offsets,
            lengths=lengths,
            keys_start=heads + size,
            keys_length=keys_length,
        )

    def locate(self, keys: list[Key]) -> list[tuple[int, bool]]:
        """For each key: how many keys are less, and whether it is one of them."""
        homes = []
        for key in keys:
            at = self.firsts.below(key)
            if at < len(self.firsts) and self.firsts[at] == key:
                homes.append((at, True))
            else:
                homes.append((at - 1, False))
        self.pieces.need({self._span(at) for at, first in homes if not first and at >= 0})
        chunks: dict[int, KeyArray] = {}
        found = []
        for key, (at, first) in zip(keys, homes, strict=True):
            if first or at < 0:
                found.append((int(self.codes[at]) if first else 0, first))
                continue
            inner = chunks.setdefault(at, self._chunk(at)) if at not in chunks else chunks[at]
            below = inner.below(key)
            there = below < len(inner) and inner[below] == key
            found.append((int(self.codes[at]) + 1 + below, there))
        return found

    def key(self, code: int) -> Key:
        at = bisect_right(self.codes.tolist(), code) - 1
        inner = code - int(self.codes[at])
        return self.firsts[at] if inner == 0 else self._chunk(at)[inner - 1]

    def keys(self) -> KeyArray:
        """All keys in order of their codes."""
        self.pieces.need([BlobSpan(self.keys_start, self.keys_length)])
        if isinstance(self.firsts.values, np.ndarray):
            values = np.empty(self.cardinality, np.int64)
            values[self.codes] = self.firsts.values
            for at in np.flatnonzero(self.sizes).tolist():
                first = int(self.codes[at]) + 1
                chunk = self._chunk(at).values
                assert isinstance(chunk, np.ndarray)
                values[first : first + int(self.sizes[at])] = chunk
            return KeyArray(self.type, values)
        listed: list[Key] = []
        for at in range(len(self.firsts)):
            listed.append(self.firsts[at])
            listed += self._chunk(at).to_list()
        return KeyArray.of(self.type, listed)

    def _span(self, at: int) -> BlobSpan:
        return BlobSpan(self.keys_start + int(self.offsets[at]), int(self.lengths[at]))

    def _chunk(self, at: int) -> KeyArray:
        """The keys of a chunk after its first, ``MissingBytes`` if they are not present."""
        data, count = self.pieces.take(*self._span(at)), int(self.sizes[at])
        if self.type.width:
            keys = KeyArray.from_raw(self.type, np.frombuffer(data, raw_dtype(self.type)))
        else:
            keys = _strings(data, self.type, count)
        if count and (not keys.ascending() or keys[0] <= self.firsts[at]):  # type: ignore[operator]
            raise FormatError("keys of a chunk do not ascend", offset=self._span(at).offset)
        return keys


def _fixed_heads(
    data: memoryview, type: PaimonType, places: I64
) -> tuple[KeyArray, NDArray[np.int64]]:
    """First keys, and per chunk: code, offset, size, length of its keys, width."""
    dtype = np.dtype([("version", "u1"), ("key", raw_dtype(type)), ("numbers", ">i4", 5)])
    _expect_all("offsets of chunks", places, np.arange(len(places)) * dtype.itemsize)
    _expect("length of chunks", len(data), len(places) * dtype.itemsize)
    table = np.frombuffer(data, dtype)
    other = table["version"][table["version"] != _VERSION]
    if len(other):
        _version(int(other[0]))
    keys = KeyArray(type, ordinals_of(table["key"], type))
    return keys, table["numbers"].astype(np.int64).reshape(-1, 5)


def _string_heads(
    data: memoryview, type: PaimonType, places: I64
) -> tuple[KeyArray, NDArray[np.int64]]:
    """First keys, and per chunk: code, offset, size, length of its offsets, length of its keys."""
    cursor = Pieces.whole(data).cursor(0)
    firsts, numbers = [], []
    for place in places.tolist():
        _expect("offset of a chunk", place, cursor.position)
        _version(cursor.u8())
        firsts.append(read_key(cursor, type))
        numbers.append(bytes(cursor.take(20)))
    _expect("length of chunks", len(data), cursor.position)
    table = np.frombuffer(b"".join(numbers), ">i4").astype(np.int64).reshape(-1, 5)
    return KeyArray.of(type, firsts), table


def _strings(data: memoryview, type: PaimonType, count: int) -> KeyArray:
    offsets = np.frombuffer(data[: 4 * count], ">i4").astype(np.int64)
    cursor = Pieces.whole(data).cursor(4 * count)
    keys = KeyArray(type, cursor.texts(count, 0)[0])
    _expect("length of keys", len(data), cursor.position)
    lengths = keys.lengths()
    _expect_all("offset of a key", offsets, np.cumsum(lengths) - lengths)
    return keys


def _expect(what: str, got: int, expected: int) -> None:
    if got != expected:
        raise FormatError(what, expected=expected, got=got)


def _expect_all(what: str, got: I64, expected: I64) -> None:
    wrong = got != expected
    if bool(wrong.any()):
        at = int(np.argmax(wrong))
        _expect(what, int(got[at]), int(expected[at]))


def _version(version: int) -> None:
    if version != _VERSION:
        raise UnsupportedError(f"version {version} of a dictionary: 1 is the only one known")


def write_dictionary(keys: KeyArray, chunk_size: int) -> bytes:
    """The dictionary of these ascending keys. ``UnsupportedError`` for 2 GiB and more."""
    edges = _chunks(keys, chunk_size)
    heads: list[bytes] = []
    places: list[int] = []
    bodies: list[bytes] = []
    place = offset = 0
    for start, stop in pairwise(edges):
        inner = keys.slice(start + 1, stop)
        body = inner.to_bytes()
        if keys.type.width:
            numbers = [start, offset, len(inner), len(body), keys.type.width]
        else:
            sizes = inner.lengths()
            numbers = [start, offset, len(inner), 4 * len(inner), len(body)]
            out = np.empty(4 * len(inner), np.uint8)
            place_i32(out, 4 * np.arange(len(inner)), np.cumsum(sizes) - sizes)
            body = out.tobytes() + body
        if offset + len(body) > _LARGEST:
            raise UnsupportedError("a range-bitmap index of 2 GiB or more")
        tail = b"".join(number.to_bytes(4, "big") for number in numbers)
        heads.append(b"\x01" + key_bytes(keys[start], keys.type) + tail)
        places.append(place)
        bodies.append(body)
        place += len(heads[-1])
        offset += len(body)
    front = [_HEAD.to_bytes(4, "big"), b"\x01"]
    front += [n.to_bytes(4, "big") for n in (len(heads), 4 * len(heads), place)]
    return b"".join([*front, np.array(places, ">i4").tobytes(), *heads, *bodies])


def _chunks(keys: KeyArray, chunk_size: int) -> list[int]:
    """The codes of the chunks' first keys, and the number of keys."""
    reach = np.append(0, np.cumsum(keys.lengths()))
    most = chunk_size // (keys.type.width or 4)
    edges = [0]
    while edges[-1] < len(keys):
        start = edges[-1]
        stop = int(np.searchsorted(reach, reach[start + 1] + chunk_size, side="right")) - 1
        edges.append(min(stop, start + 1 + most))
    return edges
