"""Writes a ``_pm``: a new file, an append to an existing one, or a copy without dead bytes.

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
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import PLAIN_WIDTHS, Type

from .layout import (
    BOUNDS,
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
from .values import PmHead, PmRowGroup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .pm import PmSnapshot
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


def write(
    head: PmHead, row_groups: Sequence[PmRowGroup], footer: PmFooter, *, by_column: bool = False
) -> bytes:
    """A fresh file of one snapshot.

    ``by_column`` is the order of the out-of-line region that QuestDB gives to a converted Parquet
    file. ``ValueError`` where the values contradict each other, ``UnsupportedError`` where they are
    beyond what the format can hold.
    """
    head.check()
    start = head.to_bytes()
    blocks = _Blocks(head, len(start), by_column=by_column)
    for row_group in row_groups:
        if len(row_group.chunks) != len(head.columns):
            raise ValueError(f"{len(row_group.chunks)} chunks of {len(head.columns)} columns")
        blocks.add(row_group)
    tail = footer.to_bytes(previous=0, blocks=blocks.offsets, blooms=blocks.section())
    return ended(bytearray(start) + blocks.data, tail)


def ended(out: bytearray, tail: bytes) -> bytes:
    """The file of one snapshot: ``out`` up to its footer ``tail``, with its size and its CRC."""
    out += tail
    with memoryview(out) as view:
        crc = zlib.crc32(view[8:])
    out += TRAILER.pack(crc, len(tail) + 4)
    out[:8] = struct.pack("<Q", len(out))
    return bytes(out)


def append(
    previous: PmSnapshot,
    row_groups: Sequence[int | PmRowGroup],
    footer: PmFooter,
) -> Append:
    """The next snapshot of the file of ``previous``.

    ``row_groups`` are those of the new snapshot in order: the number of one of ``previous`` that is
    unchanged, or a new one; only the new ones are written. The header cannot change: bitsets of
    columns that are not in its BLOOM_FILTER_COLUMNS are left out. The caller must verify
    ``previous``: a damaged CRC is carried on.
    """
    pm = previous.pm
    if pm.feature_flags & ~KNOWN_HEADER_FLAGS:
        # They may require a section in every footer.
        raise UnsupportedError(
            f"an append to a _pm with feature flags {pm.feature_flags:#x}",
            hint="upgrade the file: that drops unknown sections",
        )
    head = PmHead(columns=(), bloom_columns=pm.bloom_columns, bloom_external=pm.bloom_external)
    blocks = _Blocks(head, pm.size)
    places, lengths = previous.bloom_places
    for row_group in row_groups:
        if isinstance(row_group, PmRowGroup):
            if len(row_group.chunks) != pm.column_count:
                raise ValueError(f"{len(row_group.chunks)} chunks of {pm.column_count} columns")
            blocks.add(row_group)
            continue
        old = zip(
            pm.bloom_columns, places[row_group].tolist(), lengths[row_group].tolist(), strict=True
        )
        blocks.keep(
            int(previous.block_offsets[row_group]),
            {
                column: (place, length) if pm.bloom_external else (place - 4, length)
                for column, place, length in old
                if length
            },
        )
    tail = footer.to_bytes(previous=previous.size, blocks=blocks.offsets, blooms=blocks.section())
    data = bytes(blocks.data) + tail
    # From the old CRC field on: the bytes before it are in the stored CRC already.
    crc = zlib.crc32(pm.data[previous.size - 8 : pm.size], previous.crc)
    crc = zlib.crc32(data, crc)
    return Append(pm.size, data + TRAILER.pack(crc, len(tail) + 4))


def read_row_groups(snapshot: PmSnapshot) -> tuple[PmRowGroup, ...]:
    """All row groups, each with the bytes of its block that nothing refers to."""
    # A block ends where, in this snapshot or one before, another block or a footer begins.
    edges = {snapshot.footer_offset}
    try:
        for each in snapshot.pm.snapshots():
            edges.update([each.footer_offset, *each.block_offsets.tolist()])
    except (FormatError, UnsupportedError):
        pass  # a broken chain: this snapshot is complete without its predecessors
    ordered = sorted(edges)
    found = []
    for row_group, block in enumerate(snapshot.block_offsets.tolist()):
        stop = ordered[bisect_right(ordered, block)]
        found.append(PmRowGroup.of(snapshot, row_group, stop=stop))
    return tuple(found)


class _Blocks:
    """Blocks one after another, from ``start`` on, and the entries that point at them."""

    def __init__(self, head: PmHead, start: int, *, by_column: bool = False) -> None:
        self.head, self.start, self.by_column = head, start, by_column
        self.data = bytearray()
        self.offsets: list[int] = []
        self.bitsets: list[Mapping[int, tuple[int, int]]] = []

    def add(self, row_group: PmRowGroup) -> None:
        """One more block, at the next multiple of 8."""
        at = self.start + len(self.data)
        pad = -at % 8
        if at + pad > MAX_BLOCK_OFFSET:
            raise UnsupportedError(
                f"a row group block at byte {at + pad}: a _pm ends at {MAX_BLOCK_OFFSET}",
                hint="rewrite the file without its dead bytes",
            )
        outside = self.head.bloom_external
        columns = () if outside else self.head.bloom_columns
        block, bitsets = row_group.to_bytes(at + pad, columns, by_column=self.by_column)
        self.data += bytes(pad) + block
        if outside:
            blooms = [(column, chunk.bloom) for column, chunk in enumerate(row_group.chunks)]
            bitsets = {column: bloom for column, bloom in blooms if isinstance(bloom, tuple)}
        self.keep(at + pad, bitsets)

    def keep(self, offset: int, bitsets: Mapping[int, tuple[int, int]]) -> None:
        """One more entry; ``bitsets`` are (offset, length) by column."""
        self.offsets.append(offset)
        self.bitsets.append(bitsets)

    def section(self) -> bytes:
        """The bloom section of the footer."""
        absent = (0, 0)
        entries = [
            bitsets.get(column, absent)
            for bitsets in self.bitsets
            for column in self.head.bloom_columns
        ]
        if self.head.bloom_external:
            return b"".join([struct.pack("<QQ", *entry) for entry in entries])
        return struct.pack(f"<{len(entries)}I", *(offset >> 3 for offset, _ in entries))


_SIGNED: Final = (Tag.BYTE, Tag.SHORT, Tag.GEOBYTE, Tag.GEOSHORT)
_DAY: Final = 86_400_000


def outdated(snapshot: PmSnapshot) -> tuple[str, ...]:
    """What an upgrade would change, in words; empty for a current snapshot."""
    head, found = PmHead.of(snapshot.pm), []
    if _in_own_width(snapshot, head):
        found.append("bounds in the width of QuestDB's types")
    if head.sorting_is_dts_asc and not snapshot.pm.feature_flags & SORTING_IS_DTS_ASC:
        found.append("the designated timestamp as an array of sorting columns")
    return tuple(found)


def upgrade(snapshot: PmSnapshot) -> bytes:
    """The same snapshot as a new file in today's layout: no predecessors, no dead bytes, no unknown
    sections. ``FormatError`` where its header contradicts itself."""
    head = PmHead.of(snapshot.pm)
    try:
        head.check()
    except ValueError as error:
        raise FormatError(str(error), file=snapshot.pm.file) from None
    groups = [
        _widened(PmRowGroup.of(snapshot, row_group), head)
        for row_group in range(snapshot.row_group_count)
    ]
    footer = replace(PmFooter.of(snapshot), other_flags=0, other_sections=b"")
    return write(head, groups, footer)


def _in_own_width(snapshot: PmSnapshot, head: PmHead) -> bool:
    """Whether any inlined bound has another width than its physical type."""
    stats = snapshot.stats()
    for column, each in enumerate(head.columns):
        width = PLAIN_WIDTHS.get(each.physical_type, 0)  # type: ignore[call-overload]
        if not 0 < width <= 8:
            continue
        flags = stats.chunks["STAT_FLAGS"][:, column]
        sizes = stats.chunks["STAT_SIZES"][:, column]
        for bound in BOUNDS.values():
            if ((flags & bound.present > 0) & (sizes >> bound.shift & 15 != width)).any():
                return True
    return False


def _widened(group: PmRowGroup, head: PmHead) -> PmRowGroup:
    chunks = []
    for column, chunk in zip(head.columns, group.chunks, strict=True):
        low, high = _widen(column, chunk.min), _widen(column, chunk.max)
        chunks.append(replace(chunk, min=low, max=high))
    return replace(group, chunks=tuple(chunks))


def _widen(column: PmColumn, value: bytes | None) -> bytes | None:
    width = PLAIN_WIDTHS.get(column.physical_type)  # type: ignore[call-overload]
    if value is None or width is None or len(value) == width:
        return value
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
