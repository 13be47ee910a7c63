"""The base of Paimon's index kinds: types, the place of a blob, and reads that check every byte.

A fact holds checksums of the blocks of each blob. A read is widened to whole blocks, so that no
byte is used without a check. A bitmap with a flipped bit is still a valid bitmap: without the
checksums it would lose a row.

    sums    u32 bytes of a block | u32 of each block, the last one may be shorter; little-endian

A checksum is the lower half of XXH3 with 64 bits: CRC-32 takes many times as long, which matters
for answers of megabytes. A blob of up to 32 KiB is one block, since it is read whole. The block
size of a larger one is the smallest power of two, from 4 KiB on, that makes at most 1,024 blocks:
the checksums take at most 4 KiB in the facts. No block is larger than 64 KiB, so that an answer of
a few bytes never reads a megabyte: above 64 MiB the checksums are one part in 16,384 of the index.
Most answers read nearly all bit slices, so these have blocks of 32 KiB or more.

| blob | block | sums | read for ``=`` on a bitmap, at least |
|---|---|---|---|
| 10 KiB | 32 KiB | 8 B | 10 KiB |
| 1 MiB | 4 KiB | 1 KiB | 4 + 16 + 4 KiB: head, a block of its dictionary, rows |
| 9 MiB | 16 KiB | 2.3 KiB | 16 + 16 + 16 KiB |
| 800 MiB | 64 KiB | 50 KiB | 64 + 64 + 64 KiB |

Older facts have only a CRC-32 of the whole blob, and containers of other writers have no checksum:
``unsure`` says that bytes were used without one.
"""

from __future__ import annotations

import logging
import re
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import xxhash

from skipstone import _compute as pc
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.predicate.types import MapKey, column_path
from skipstone.pruning.column_types import atomic, refuse
from skipstone.pruning.kind import Blob, Index

from .._arrays import numbers
from . import index_blob as reading
from .format.bitmap import BitmapIndex
from .format.column_keys import type_of
from .format.partial_blob import Pieces
from .index_blob import SMALL

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from skipstone.pruning import Fetched
    from skipstone.storage import ByteRange

    from .format.keys import PaimonType


log = logging.getLogger("skipstone")

#: The smallest block of a blob that has several.
LEAST = 4 * 1024
#: The most bytes of a blob that are kept between plans.
KEPT = 1 << 20
_MOST_BLOCKS = 1024
_WIDEST = 64 * 1024
# Spans with a gap of at most this many bytes are read as one.
_GAP = 256


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """Checksums ``values`` (uint32) of blocks of ``block`` bytes; the last may be shorter."""

    block: int
    values: NDArray[np.uint32]

    @classmethod
    def of(cls, blob: bytes, least: int = LEAST) -> BlockSums:
        """The checksums of a blob, in blocks of ``least`` bytes or more."""
        block = SMALL if len(blob) <= SMALL else least
        while len(blob) > _MOST_BLOCKS * block and block < _WIDEST:
            block *= 2
        view = memoryview(blob)
        found = [_sum(view[at : at + block]) for at in range(0, len(blob), block)]
        return cls(block, np.array(found, "<u4"))

    @classmethod
    def from_bytes(cls, raw: bytes | memoryview, length: int) -> BlockSums:
        """From the bytes in the facts, for a blob of ``length`` bytes; ``FormatError``."""
        if len(raw) < 4 or len(raw) % 4:
            raise FormatError("checksums of an index", expected="4 bytes or more", got=len(raw))
        block = int.from_bytes(raw[:4], "little")
        if block < 1 or -(-length // block) != len(raw) // 4 - 1:
            raise FormatError(
                "checksums of an index",
                expected=f"one for each {block} of {length} bytes",
                got=len(raw) // 4 - 1,
            )
        return cls(block, np.frombuffer(raw, "<u4", offset=4))

    def to_bytes(self) -> bytes:
        """The bytes for the facts."""
        return self.block.to_bytes(4, "little") + self.values.astype("<u4").tobytes()

    def check(self, offset: int, data: bytes | memoryview) -> None:
        """``FormatError`` if ``data`` is damaged. It begins at a block boundary, and ends at one or
        with the blob."""
        view, block = memoryview(data), self.block
        first, rest = divmod(offset, block)
        if rest or first + -(-len(view) // block) > len(self.values):
            raise FormatError("bytes between block boundaries", offset=offset, got=len(view))
        expected = self.values[first : first + -(-len(view) // block)].tolist()
        for i, wanted in enumerate(expected):
            if (got := _sum(view[i * block : (i + 1) * block])) != wanted:
                raise FormatError(
                    "bytes of an index with another checksum",
                    offset=offset + i * block,
                    expected=wanted,
                    got=got,
                )


class Room:
    """How many more bytes all blobs of an index together may keep."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Kept:
    """The first verified bytes of a blob, up to ``KEPT``, kept between plans while there is
    ``room``.

    The head of an index is read before anything else, so it is among them. A blob with checksums in
    the facts never changes.
    """

    __slots__ = ("_room", "_size", "held", "opened", "parsed", "sums")

    def __init__(self, room: Room | None = None) -> None:
        self._room = Room(KEPT) if room is None else room
        #: the bytes by where they begin
        self.held: dict[int, bytes] = {}
        self._size = 0
        #: the parsed head
        self.opened: BitmapIndex | None = None
        #: the parsed heads of a range-bitmap
        self.parsed: dict[Hashable, Any] = {}
        self.sums: BlockSums | None = None

    def add(self, parts: Sequence[tuple[int, bytes | memoryview]]) -> None:
        """Keep these bytes too, if there is room."""
        for at, part in parts:
            more = len(part) - len(self.held.get(at, b""))
            if more > 0 and self._size + more <= KEPT and more <= self._room.left:
                self._room.left -= more
                self._size += more
                self.held[at] = bytes(part)  # one assignment, as other threads read it


class VerifiedBlob:
    """The bytes read so far of the blob at ``blob``, and the ranges to read next; see the module.

    Without ``sums``, ``crc`` is the CRC-32 of the whole blob, -1 for none.
    """

    __slots__ = ("_asked", "_crc", "_kept", "_sums", "blob", "pieces", "unsure", "whole")

    def __init__(
        self, blob: Blob, sums: BlockSums | None = None, crc: int = -1, kept: Kept | None = None
    ) -> None:
        """``kept`` has bytes of this blob from earlier reads. ``FormatError`` if the blob is inline
        and damaged."""
        self.blob, self._sums, self._crc = blob, sums, crc
        self._kept = kept if sums is not None else None
        self._asked: dict[ByteRange, int] = {}
        self.unsure = False
        #: every byte has been read
        self.whole = blob.inline is not None
        if blob.inline is not None:
            self._check(0, blob.inline)
            self.pieces = Pieces.whole(blob.inline)
        else:
            known = self._kept
            self.pieces = Pieces(blob.length, parsed=None if known is None else known.parsed)
            if known is not None and known.held:
                self.pieces.add(list(known.held.items()))

    def ask(self, spans: Iterable[tuple[int, int]]) -> list[ByteRange]:
        """The ranges to fetch so that these bytes (offset, length) can be verified."""
        length = self.blob.length
        if self._sums is not None:
            block = self._sums.block
            edges = {(at // block * block, -(-(at + size) // block) * block) for at, size in spans}
            spans = [(start, min(stop, length) - start) for start, stop in edges]
        ranges = {self.blob.span(at, size): at for at, size in _joined(spans)}
        self._asked.update(ranges)
        return list(ranges)

    def take(self, have: Fetched) -> Pieces:
        """Takes what was fetched, and gives all bytes so far. ``FormatError`` for damaged bytes."""
        if self._asked:
            fetched = [(each, have[each]) for each in self._asked if each in have]
            parts = [(self._asked.pop(each), data) for each, data in fetched]
            for at, part in parts:
                self._check(at, part)
                self.whole = self.whole or len(part) == self.blob.length
            if parts:
                self.pieces.add(parts)
                if self._kept is not None and not self.whole:
                    self._kept.add(parts)
        return self.pieces

    def opened(self, kind: str, type: PaimonType) -> reading.Index:
        """The index over the bytes so far. ``MissingBytes`` names the missing bytes of its head."""
        kept = self._kept
        if kept is not None and kept.opened is not None and kept.opened.type == type:
            return replace(kept.opened, pieces=self.pieces)
        if kept is not None and kind == "range-bitmap":
            return reading.open_index(kind, type, self.pieces)
        found = reading.open_uncached(kind, type, self.pieces)
        if kept is not None and isinstance(found, BitmapIndex):
            kept.opened = replace(found, pieces=Pieces(self.blob.length))
        return found

    def _check(self, at: int, data: bytes | memoryview) -> None:
        if self._sums is not None:
            self._sums.check(at, data)
        elif self._crc >= 0 and len(data) == self.blob.length:
            if (got := zlib.crc32(data)) != self._crc:
                raise FormatError("an index with another checksum", expected=self._crc, got=got)
        else:
            self.unsure = True


def _joined(spans: Iterable[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Offsets and lengths, with near neighbours joined: the slices of a range-bitmap follow each
    other, and so do the bitmaps of neighbouring values."""
    ordered = sorted(spans)
    if len(ordered) < 2:
        return ordered
    found: list[tuple[int, int]] = []
    for at, size in ordered:
        if found and at <= found[-1][0] + found[-1][1] + _GAP:
            start, length = found[-1]
            found[-1] = (start, max(length, at + size - start))
        else:
            found.append((at, size))
    return found


def _sum(data: bytes | memoryview) -> int:
    return xxhash.xxh3_64_intdigest(data) & 0xFFFF_FFFF


# The most blobs of an index whose first bytes are kept between plans, and the most bytes of all.
_KEPT, _ROOM = 2048, 64 << 20
_SIZE = re.compile(r"(\d+)\s*(b|bytes|k|kb|kibibytes?|m|mb|mebibytes?|g|gb|gibibytes?)?", re.I)
_FACTORS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def memory_size(text: str) -> int:
    """A size in Paimon's spelling: ``16kb``, ``1 mb``, a bare number; units are powers of 1024.

    ``ValueError`` for anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; 500 b, 16kb and 1 mb are")
    return int(match[1]) * _FACTORS[(match[2] or "")[:1].lower()]


def paimon_column(column: str) -> str:
    """The name of a column in a container: the parts of its path with dots between, and ``m[k]``
    for the key of a map."""
    found = ""
    for part in column_path(column):
        found += f"[{part}]" if isinstance(part, MapKey) else ("." if found else "") + part
    return found


class PaimonIndex(Index):
    """Base of the kinds; see the module."""

    sidecar = "container"
    #: Paimon's name of the kind: ``range-bitmap``
    paimon: ClassVar[str]
    #: bytes of a block of the blob that has a checksum, at least
    block: ClassVar[int] = LEAST
    #: kinds to use for types that this one does not support
    instead: ClassVar[tuple[str, ...]] = ()
    #: cost of evaluating the rows of one file; Bloom filters come first, they may exclude the file
    row_cost: ClassVar[float] = 0.5

    def check(self, type: PaimonType) -> None:
        """``UnsupportedError`` for a type that Paimon's index of this kind does not support."""
        raise NotImplementedError

    def warn(self, text: str) -> None:
        """Logs that the index cannot answer, once for each ``text``."""
        assert self.stored is not None
        warned = self.stored.cache.setdefault("warned", set())
        if text not in warned:
            warned.add(text)
            log.warning("%s: %s (it says nothing; data is read)", self.subject, text)

    def paimon_type(self, type: pa.DataType) -> PaimonType:
        """Paimon's type of a column; ``UnsupportedError`` where the kind does not support it."""
        try:
            if not atomic(type):
                raise UnsupportedError(f"{type} is not an atomic type")
            found = type_of(type)
            self.check(found)
        except UnsupportedError:
            raise refuse(self.name, self.column, type, self._others(type)) from None
        return found

    def _others(self, type: pa.DataType) -> Sequence[str]:
        """The kinds that support a column of this type."""
        if not atomic(type):
            return ()
        found = [name for name in self.instead if _takes(name, type)]
        if len(found) > 1 and "bsi" in found:  # Paimon has deprecated it
            found.remove("bsi")
        return found or ("minmax", "valuelist")

    def former_types(self, type: pa.DataType) -> Sequence[pa.DataType]:
        """The type of values that were built before blocks had checksums."""
        now = self.stored_type(type)
        return (pa.struct([field for field in now if field.name != "sums"]),)

    def crc(self, row: int) -> int:
        """The checksum of the blob of one fact row, -1 where there is none."""
        return int(self._numbers()["crc"][row])

    def sums(self, row: int) -> BlockSums | None:
        """The checksums of the blob's blocks, ``None`` if the fact has none. ``FormatError``."""
        assert self.stored is not None
        cache, values = self.stored.cache, self.stored.values
        if "sums" not in cache:
            has_sums = values.type.get_field_index("sums") >= 0
            cache["sums"] = pc.struct_field(values, "sums") if has_sums else None
        if cache["sums"] is None or not (found := cache["sums"][row]).is_valid:
            return None
        return BlockSums.from_bytes(
            memoryview(found.as_buffer()), int(self._numbers()["length"][row])
        )

    def verified(self, row: int, blob: Blob) -> VerifiedBlob:
        """A reader of ``blob``, the blob of one fact row, that checks every byte. ``FormatError``
        if the blob is inline and damaged."""
        assert self.stored is not None
        kept: dict[int, Kept] = self.stored.cache.setdefault("kept", {})
        if row not in kept and len(kept) < _KEPT and blob.length > SMALL:
            kept[row] = Kept(self.stored.cache.setdefault("room", Room(_ROOM)))
        known = kept.get(row)
        sums = self.sums(row) if known is None or known.sums is None else known.sums
        if known is not None:
            known.sums = sums
        return VerifiedBlob(blob, sums, self.crc(row), known)

    def blob(self, row: int) -> Blob | None:
        """Where the blob of one fact row lies; ``None`` if it has no place."""
        assert self.stored is not None
        if self.stored.places is None:
            return None
        place = self.stored.places.at(row)
        numbers = self._numbers()
        start, length = int(numbers["start"][row]), int(numbers["length"][row])
        return None if place is None else place.part(start, length)

    def _numbers(self) -> dict[str, NDArray[np.int64]]:
        """Start, length and checksum of the blobs of all fact rows; start and length are 0 if
        there is no blob."""
        assert self.stored is not None
        found: dict[str, NDArray[np.int64]] | None = self.stored.cache.get("numbers")
        if found is None:
            found = self.stored.cache["numbers"] = {
                name: integers_of(self.stored.values, name, unknown)
                for name, unknown in (("start", 0), ("length", 0), ("crc", -1))
            }
        return found


def _kinds(base: type[PaimonIndex] = PaimonIndex) -> dict[str, type[PaimonIndex]]:
    """The kinds that derive from ``base``, by name."""
    found: dict[str, type[PaimonIndex]] = {}
    for each in base.__subclasses__():
        found.update({each.name: each} if hasattr(each, "name") else _kinds(each))
    return found


def _takes(name: str, type: pa.DataType) -> bool:
    kind = _kinds().get(name)
    if kind is None:  # ``bloomfilter``, which is not one of Paimon's
        return not pa.types.is_boolean(type)
    try:
        kind("").check(type_of(type))
    except UnsupportedError:
        return False
    return True


#: The first fields of every stored value: where the blob lies in its container, its CRC-32, and
#: checksums of its blocks.
PLACE: dict[str, pa.DataType] = {
    "start": pa.int32(),
    "length": pa.int32(),
    "crc": pa.int64(),
    "sums": pa.binary(),
}


def place_fields() -> list[pa.Field]:
    return [pa.field(name, type) for name, type in PLACE.items()]


def no_place() -> list[pa.Array]:
    """One value of each field of ``PLACE`` before the container is written."""
    return [pa.nulls(1, type) for type in PLACE.values()]


def integers_of(values: pa.Array, name: str, unknown: int) -> NDArray[np.int64]:
    """A field of stored values, ``unknown`` for null."""
    return numbers(pc.struct_field(values, name), unknown).astype(np.int64)
