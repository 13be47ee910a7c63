"""Writes a ``_pm``: its footer, an append to an existing file, or a copy in today's layout.

The steps of an append, in the order in which the caller must do them, each durable before the next:

    1.  data.parquet gets its new row groups and its new footer
    2.  ``Append.data`` at ``Append.offset`` of the ``_pm``
    3.  ``Append.patch`` over its first 8 bytes: the commit to readers of the newest
    4.  the commit to everyone: the Parquet size in ``_txn``

An append begins at the committed size in the header. After a crash between 3 and 4 that is beyond
the snapshot that the append continues: the dead footer stays, the CRC covers it, and PREV skips it.
The CRC continues from the stored one of that snapshot. Nothing published is changed, and a
published file is never cut.

``upgrade`` brings an older file up to date without its Parquet file:

    bounds in QuestDB's own width     a SHORT in 2 bytes, a DATE of 32 bits in milliseconds: today
                                      Parquet's bytes. Widened by type, else left out.
    [DESIGNATED_TIMESTAMP] as array   of sorting columns: today SORTING_IS_DTS_ASC

Bloom filters that an old ``_pm`` lacks are only in its Parquet file. Source: QuestDB, before and
after its pull request 7067.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import PLAIN_WIDTHS, Type

from .layout import (
    BOUNDS,
    EXTERNAL_BLOOM,
    FOOTER_STRUCT,
    KNOWN_FOOTER_FLAGS,
    KNOWN_HEADER_FLAGS,
    MAX_BLOCK_OFFSET,
    MAX_SCRATCHPAD,
    SCRATCHPAD,
    SEQ_TXN,
    SORTING_IS_DTS_ASC,
    TRAILER,
)
from .types import ColumnType, Tag
from .values import PmHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .layout import Ints, Structs
    from .pm import Pm, PmSnapshot
    from .values import PmColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class PmFooter:
    """The values of a footer about its Parquet file.

    ``parquet_footer_offset`` and ``parquet_footer_length`` (bytes of the FileMetaData) give the
    size that the snapshot belongs to; ``unused_bytes`` counts dead bytes in it. ``seq_txn`` and
    ``scratchpad`` are of QuestDB's development branch; its releases ignore them. ``other_flags``
    and ``other_sections`` are unknown optional ones, as read.
    """

    parquet_footer_offset: int
    parquet_footer_length: int
    unused_bytes: int = 0
    seq_txn: int | None = None
    scratchpad: tuple[tuple[int, bytes], ...] = ()
    other_flags: int = 0
    other_sections: bytes = b""

    @classmethod
    def of(cls, snapshot: PmSnapshot) -> PmFooter:
        """The footer of an opened file."""
        return cls(
            parquet_footer_offset=snapshot.parquet_footer_offset,
            parquet_footer_length=snapshot.parquet_footer_length,
            unused_bytes=snapshot.unused_bytes,
            seq_txn=snapshot.seq_txn,
            scratchpad=snapshot.scratchpad,
            other_flags=snapshot.footer_feature_flags & ~KNOWN_FOOTER_FLAGS,
            other_sections=snapshot.other_sections,
        )

    @classmethod
    def of_parquet(cls, size: int, length: int, *, unused_bytes: int = 0) -> PmFooter:
        """For a Parquet file of ``size`` bytes, ``length`` of them its FileMetaData."""
        return cls(
            parquet_footer_offset=size - 8 - length,
            parquet_footer_length=length,
            unused_bytes=unused_bytes,
        )

    def to_bytes(self, *, previous: int, blocks: Sequence[int], blooms: bytes) -> bytes:
        """The footer without its CRC; ``blocks`` are offsets, ``blooms`` the bloom section."""
        flags = self.other_flags | (0 if self.seq_txn is None else SEQ_TXN)
        flags |= SCRATCHPAD if self.scratchpad else 0
        sections = b"" if self.seq_txn is None else struct.pack("<q", self.seq_txn)
        if self.scratchpad:
            entries = [struct.pack("<II", code, len(data)) + data for code, data in self.scratchpad]
            pad = struct.pack("<I", len(entries)) + b"".join(entries)
            if len(pad) > MAX_SCRATCHPAD:
                raise ValueError(f"a scratchpad of {len(pad)} bytes, at most {MAX_SCRATCHPAD}")
            sections += pad
        head = FOOTER_STRUCT.pack(
            self.parquet_footer_offset,
            self.parquet_footer_length,
            len(blocks),
            self.unused_bytes,
            previous,
            flags,
        )
        entries_bytes = struct.pack(f"<{len(blocks)}I", *(block >> 3 for block in blocks))
        return head + entries_bytes + blooms + sections + self.other_sections


@dataclass(frozen=True, slots=True)
class Append:
    """Bytes to add to a ``_pm``: ``data`` at ``offset``, then ``patch`` at its very beginning."""

    offset: int
    data: bytes

    @property
    def size(self) -> int:
        """The new PARQUET_META_FILE_SIZE."""
        return self.offset + len(self.data)

    @property
    def patch(self) -> bytes:
        """The new first 8 bytes of the file; written last, as one aligned store."""
        return struct.pack("<Q", self.size)

    def applied(self, data: bytes | memoryview) -> bytes:
        """The whole file after both steps."""
        return self.patch + bytes(data[8 : self.offset]) + self.data


def ended(out: bytearray, tail: bytes) -> bytes:
    """The file of one snapshot: ``out``, then the footer ``tail``, the CRC and FOOTER_LENGTH, with
    the size in the first 8 bytes."""
    out += tail
    with memoryview(out) as view:
        crc = zlib.crc32(view[8:])
    out += TRAILER.pack(crc, len(tail) + 4)
    out[:8] = struct.pack("<Q", len(out))
    return bytes(out)


def append(
    previous: PmSnapshot,
    row_groups: Sequence[int],
    footer: PmFooter,
    made: PmSnapshot | None = None,
) -> Append:
    """The next snapshot of the file of ``previous``.

    ``row_groups`` lists the row groups of the new snapshot in order. The numbers from 0 on are
    those of ``previous``, which stay as they are. The numbers after them are those of ``made``,
    another file of the same columns, whose blocks are copied. The header cannot change: bitsets of
    columns that are not in its BLOOM_FILTER_COLUMNS get no entry. The caller must verify
    ``previous``: a damaged CRC is carried on.
    """
    pm = previous.pm
    if pm.feature_flags & ~KNOWN_HEADER_FLAGS:
        # They may require a section in every footer.
        raise UnsupportedError(
            f"an append to a _pm with feature flags {pm.feature_flags:#x}",
            hint="upgrade the file: that drops unknown sections",
        )
    blocks, blooms = _entries(previous, pm, 0)
    data = b""
    if made is not None:
        if made.pm.column_count != pm.column_count:
            raise ValueError(f"{made.pm.column_count} chunks of {pm.column_count} columns")
        data, moved = _copied(made, pm.size)
        more = _entries(made, pm, moved)
        blocks, blooms = np.concatenate([blocks, more[0]]), np.concatenate([blooms, more[1]])
    chosen = np.array(row_groups, np.int64)
    tail = footer.to_bytes(
        previous=previous.size, blocks=blocks[chosen].tolist(), blooms=blooms[chosen].tobytes()
    )
    data += tail
    # From the old CRC field on: the bytes before it are in the stored CRC already.
    crc = zlib.crc32(pm.data[previous.size - 8 : pm.size], previous.crc)
    crc = zlib.crc32(data, crc)
    return Append(pm.size, data + TRAILER.pack(crc, len(tail) + 4))


def _copied(snapshot: PmSnapshot, at: int) -> tuple[bytes, int]:
    """Padding and all blocks of the snapshot's file, to be written at ``at``; and how far they
    move."""
    start = int(snapshot.block_offsets.min(initial=snapshot.footer_offset))
    if not snapshot.pm.bloom_external:
        places, lengths = snapshot.bloom_places
        start = int((places[lengths > 0] - 4).min(initial=start))
    pad = (start - at) % 8
    moved = at + pad - start
    last = int(snapshot.block_offsets.max(initial=start)) + moved
    if last > MAX_BLOCK_OFFSET:
        raise UnsupportedError(
            f"a row group block at byte {last}: a _pm ends at {MAX_BLOCK_OFFSET}",
            hint="rewrite the file without its dead bytes",
        )
    return bytes(pad) + bytes(snapshot.pm.data[start : snapshot.footer_offset]), moved


def _entries(snapshot: PmSnapshot, head: Pm | PmHead, moved: int) -> tuple[Ints, Structs]:
    """The offsets of the snapshot's blocks after they have ``moved``, and the entries of each row
    group in the bloom section under ``head``."""
    columns, external = head.bloom_columns, head.bloom_external
    shape = (snapshot.row_group_count, len(columns))
    entries = np.zeros(shape, EXTERNAL_BLOOM if external else "<u4")
    places, lengths = snapshot.bloom_places
    if snapshot.pm.bloom_external == external:
        for at, column in enumerate(snapshot.pm.bloom_columns):
            if column not in columns:
                continue
            place, length = places[:, at], lengths[:, at]
            entry = entries[:, columns.index(column)]
            if external:
                entry["offset"], entry["length"] = np.where(length > 0, place, 0), length
            else:
                entry[:] = np.where(length > 0, (place - 4 + moved) >> 3, 0)
    return snapshot.block_offsets + moved, entries


_SIGNED: Final = (Tag.BYTE, Tag.SHORT, Tag.GEOBYTE, Tag.GEOSHORT)
_DAY: Final = 86_400_000


def outdated(snapshot: PmSnapshot) -> tuple[str, ...]:
    """What an upgrade would change, in words; empty for a current snapshot."""
    head, found = PmHead.of(snapshot.pm), []
    chunks, widths = snapshot.chunks(), _widths(head)
    for bound in BOUNDS.values():
        other = chunks["STAT_SIZES"] >> bound.shift & 15 != widths
        other &= (widths > 0) & (widths <= 8) & (chunks["STAT_FLAGS"] & bound.present > 0)
        if other.any():
            found = ["bounds in the width of QuestDB's types"]
    if head.sorting_is_dts_asc and not snapshot.pm.feature_flags & SORTING_IS_DTS_ASC:
        found.append("the designated timestamp as an array of sorting columns")
    return tuple(found)


def upgrade(snapshot: PmSnapshot) -> bytes:
    """The same snapshot as a new file in today's layout: no predecessors, no unknown sections.
    ``FormatError`` where its header contradicts itself."""
    head = PmHead.of(snapshot.pm)
    try:
        head.check()
    except ValueError as error:
        raise FormatError(str(error), file=snapshot.pm.file) from None
    out = bytearray(head.to_bytes())
    blocks, moved = _copied(snapshot, len(out))
    out += blocks
    places, blooms = _entries(snapshot, head, moved)
    for place, chunks in zip(places.tolist(), _widened(snapshot, head), strict=True):
        out[place + 8 : place + 8 + chunks.nbytes] = chunks.tobytes()
    footer = replace(PmFooter.of(snapshot), other_flags=0, other_sections=b"")
    tail = footer.to_bytes(previous=0, blocks=places.tolist(), blooms=blooms.tobytes())
    return ended(out, tail)


def _widths(head: PmHead) -> Ints:
    """By column the bytes of a bound in Parquet's width; 0 where that varies."""
    types = [each.physical_type for each in head.columns]
    return np.array([PLAIN_WIDTHS.get(type, 0) for type in types])  # type: ignore[call-overload]


def _widened(snapshot: PmSnapshot, head: PmHead) -> Structs:
    """The chunks of all row groups, with bounds in Parquet's width or without them."""
    stats, widths = snapshot.stats(), _widths(head)
    chunks = stats.chunks
    for end, bits in BOUNDS.items():
        data, offsets, valid = stats.blobs(end)
        other = valid & (np.diff(offsets).reshape(valid.shape) != widths) & (widths > 0)
        for row_group, column in np.argwhere(other).tolist():
            at = row_group * len(widths) + column
            value = _widen(head.columns[column], data[offsets[at] : offsets[at + 1]].tobytes())
            chunk = chunks[row_group, column]
            chunk["STAT_SIZES"] &= ~(15 << bits.shift) & 0xFF
            chunk["STAT_SIZES"] |= len(value or b"") << bits.shift
            chunk[bits.slot] = int.from_bytes(value or b"", "little")
            if value is None:
                chunk["STAT_FLAGS"] &= ~(bits.present | bits.inlined | bits.exact) & 0xFF
    return chunks


def _widen(column: PmColumn, value: bytes) -> bytes | None:
    type = ColumnType.of(column.type)
    if type is None or column.physical_type != Type.INT32:
        return None
    if type.tag in _SIGNED and len(value) in (1, 2):
        return int.from_bytes(value, "little", signed=True).to_bytes(4, "little", signed=True)
    if type.tag is Tag.CHAR and len(value) == 2:
        return value + bytes(2)
    if type.tag is Tag.DATE and len(value) == 8:
        days, rest = divmod(int.from_bytes(value, "little", signed=True), _DAY)
        return None if rest else days.to_bytes(4, "little", signed=True)
    return None
