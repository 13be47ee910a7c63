"""Verifies partial reads of a blob. Every block is checked against its checksum before use.

A fact holds checksums of the blocks of each blob. A read is widened to whole blocks, so that no
byte is used without a check. A bitmap with a flipped bit is still a valid bitmap: without the
checksums it would lose a row.

    sums    u32 bytes of a block | u32 of each block, the last one may be shorter; little-endian

A checksum is the lower half of XXH3 with 64 bits: CRC-32 takes many times as long, which shows
where an answer takes megabytes. A blob of up to 32 KiB is one block, since it is read whole. A
larger one has blocks of the least power of two from 4 KiB on that makes no more than 1,024 blocks:
at most 4 KiB in the facts, and the larger the index, the wider its reads. No block is larger than
64 KiB, so that an answer of a few bytes never takes a megabyte: above 64 MiB the checksums are one
part in 16,384 of the index. Bit slices, of which most answers take nearly all, have blocks from
32 KiB on.

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

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from skipstone.errors import FormatError

from .format import open_index as reading
from .format.bitmap import BitmapIndex
from .format.partial_blob import Pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from skipstone.pruning import Fetched
    from skipstone.pruning.kind import Blob
    from skipstone.storage import ByteRange

    from .format.types import PaimonType


#: A blob up to this size is read whole: that costs less than one more request.
SMALL = 32 * 1024
#: Bytes of a block of a larger one, at least.
LEAST = 4 * 1024
#: Bytes of a blob that are kept between questions.
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


class Kept:
    """The first verified bytes of a blob, up to ``KEPT``, kept between plans.

    The head of an index is read before anything else, so it is among them. A blob with checksums in
    the facts never changes.
    """

    __slots__ = ("opened", "parts")

    def __init__(self) -> None:
        self.parts: tuple[tuple[int, bytes], ...] = ()
        #: the parsed head
        self.opened: BitmapIndex | None = None

    def add(self, parts: Sequence[tuple[int, bytes | memoryview]]) -> None:
        """Keep these bytes too, if there is room."""
        held = dict(self.parts)
        for at, part in parts:
            size = sum(map(len, held.values())) - len(held.get(at, b""))
            if len(part) > len(held.get(at, b"")) and size + len(part) <= KEPT:
                held[at] = bytes(part)
        self.parts = tuple(held.items())  # one assignment: other threads read it


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
            self.pieces = Pieces(blob.length)
            if self._kept is not None and self._kept.parts:
                self.pieces.add(list(self._kept.parts))

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
