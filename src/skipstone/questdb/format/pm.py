"""The snapshots of a ``_pm``: each is a footer, and arrays over the row groups that it lists.

    newest footer = PARQUET_META_FILE_SIZE - 4 - FOOTER_LENGTH, and back along PREV

Use the footer of the committed Parquet size, never the newest: after a rolled back update the
header may point at a footer that was never committed. FOOTER_LENGTH must agree exactly with the
counts (unless unknown flags may have added to it): the CRC does not cover it, and a wrong one would
move the footer into a block.

Blocks lie anywhere at multiples of 8. One gather over an overlapping grid of all such places takes
the chunks of any row groups and columns into one array. Blocks and bloom entries are checked for
all row groups at once. ``PmSnapshot.verify`` checks the CRC in one pass.

Statistics are Parquet's bytes verbatim, at the width of the physical type: BOOLEAN 1, INT32 and
FLOAT 4, INT64 and DOUBLE 8, FIXED_LEN_BYTE_ARRAY its length (integers in it big-endian), BYTE_ARRAY
its own length, INT96 12. Up to 8 bytes lie in the slot, longer ones out of line. A statistic that
is missing, or has another width than its type, counts as absent. A reference that leads out of the
file is a ``FormatError``.
"""

from __future__ import annotations

import struct
import zlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

from ..._arrays import within
from .layout import (
    BOUNDS,
    CHUNK,
    CHUNK_SIZE,
    EXTERNAL_BLOOM,
    FOOTER,
    FOOTER_STRUCT,
    KNOWN_FOOTER_FLAGS,
    KNOWN_HEADER_FLAGS,
    MAX_SCRATCHPAD,
    NULL_COUNT_PRESENT,
    SCRATCHPAD,
    SEQ_TXN,
    TRAILER,
    Bools,
    Bytes,
    End,
    Ints,
    Structs,
)
from .pm_header import PmHeader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt


def _inlined(width: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Which bits of the first word of a chunk show an inlined minimum, and an inlined maximum, of
    ``width`` bytes, and the values of these bits. STAT_FLAGS is the third byte of the word,
    STAT_SIZES the fourth."""
    flags = [(each.present | each.inlined) << 16 for each in BOUNDS.values()]
    places = [24 + each.shift for each in BOUNDS.values()]
    bits = [flag | 15 << place for flag, place in zip(flags, places, strict=True)]
    values = [flag | width << place for flag, place in zip(flags, places, strict=True)]
    return np.array(bits, "<u4")[:, None, None], np.array(values, "<u4")[:, None, None]


_INLINED: Final = {width: _inlined(width) for width in range(1, 9)}
_CHUNK_BYTES: Final = np.dtype(f"V{CHUNK_SIZE}")
_SLOTS: Final = np.dtype(("<u8", (2,)))
_FIRST_SLOT: Final = CHUNK_SIZE - _SLOTS.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkStats:
    """``chunks`` of shape (row groups, columns). Of shape (row groups,) are ``out_of_line``, where
    the out-of-line region of each block begins, and ``end``, where the last one of the file must
    have ended. ``data`` is that of the file; row groups of several files have none, but ``parts``.
    """

    chunks: Structs
    out_of_line: Ints
    data: memoryview
    end: Ints
    file: str | None = None
    parts: Sequence[ChunkStats] = ()

    @classmethod
    def side_by_side(cls, parts: Sequence[ChunkStats]) -> ChunkStats:
        """The row groups of all parts, which have as many columns."""
        if len(parts) == 1:
            return parts[0]
        # As bytes: NumPy compares the fields of each array.
        chunks = np.concatenate([part.chunks.view(_CHUNK_BYTES) for part in parts])
        return cls(
            chunks=chunks.view(CHUNK),
            out_of_line=np.concatenate([part.out_of_line for part in parts]),
            data=memoryview(b""),
            end=np.concatenate([part.end for part in parts]),
            parts=tuple(parts),
        )

    def _flags(self, wanted: int) -> Bools:
        return np.asarray((self.chunks["STAT_FLAGS"] & wanted) == wanted)

    def _inlined(self, end: End) -> Bools:
        return self._flags(BOUNDS[end].present | BOUNDS[end].inlined)

    def _sizes(self, end: End) -> Bytes:
        """The size of an inlined bound."""
        return np.asarray((self.chunks["STAT_SIZES"] >> BOUNDS[end].shift) & 15)

    def present(self, end: End) -> Bools:
        """Where there is a minimum (maximum)."""
        return self._flags(BOUNDS[end].present)

    def exact(self, end: End) -> Bools:
        """Where the bound is a value that occurs."""
        return self._flags(BOUNDS[end].present | BOUNDS[end].exact)

    def null_count(self) -> tuple[npt.NDArray[np.uint64], Bools]:
        """NULL_COUNT, and where it is known."""
        return self.chunks["NULL_COUNT"], self._flags(NULL_COUNT_PRESENT)

    def all_null(self) -> Bools:
        """Where every value is known to be null: such a chunk need not be fetched."""
        count, known = self.null_count()
        return np.asarray(known & (count == self.chunks["NUM_VALUES"]))

    def fixed(self, end: End, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Bools]:
        """Values of a type of 1, 2, 4 or 8 little-endian bytes, and where there is one."""
        kind = np.dtype(dtype)
        flags, wanted = _INLINED[kind.itemsize]
        at = 0 if end == "MIN" else 1
        valid = np.asarray((self.chunks.getfield("<u4", 0) & flags[at]) == wanted[at])
        # Little-endian: the value is the low bytes of its slot.
        slots = self.chunks[f"{end}_STAT"].astype(f"<u{kind.itemsize}")
        return slots.view(kind.newbyteorder("<") if kind.itemsize > 1 else kind), valid

    def places(self, end: End) -> tuple[Ints, Ints]:
        """Offset and length of each statistic that lies out of line; length 0 = not there."""
        slots = self.chunks[f"{end}_STAT"]
        outside = self.present(end) & ~self._inlined(end)
        lengths = np.where(outside, slots & np.uint64(0xFFFF), np.uint64(0)).astype(np.int64)
        offsets = (slots >> np.uint64(16)).astype(np.int64) + self.out_of_line[:, None]
        wrong = outside & ((lengths == 0) | (offsets + lengths > self.end[:, None]))
        if np.any(wrong):
            raise FormatError(
                f"an out-of-line {end}_STAT beyond the row group blocks",
                file=self.file,
                expected=f"1 byte or more, up to {self.end[wrong.any(axis=1)][0]}",
            )
        return np.where(outside, offsets, 0), lengths

    def inlined(self, width: int) -> tuple[Bytes, Bools]:
        """Minima and maxima of exactly ``width`` bytes, at most 8, shape (2, row groups, columns,
        width), and where there are any."""
        slots = self.chunks.getfield(_SLOTS, _FIRST_SLOT)
        # Without the padding: views of the values need whole bytes.
        raw = slots.transpose(2, 0, 1).copy().view(np.uint8).reshape(2, *self.chunks.shape, 8)
        words = self.chunks.getfield("<u4", 0)
        flags, wanted = _INLINED[width]
        return np.ascontiguousarray(raw[..., :width]), np.asarray((words & flags) == wanted)

    def blobs(self, end: End) -> tuple[Bytes, Ints, Bools]:
        """Values of any length: their bytes back to back, row group by row group.

        Returns ``(data, offsets, valid)``: value ``i`` in C order of the (row groups, columns)
        array ``valid`` is ``data[offsets[i] : offsets[i + 1]]``, empty where there is none. That is
        Arrow's layout of a large binary array.
        """
        inside, sizes = self._inlined(end), self._sizes(end).astype(np.int64)
        if np.any(inside & ((sizes == 0) | (sizes > 8))):
            raise FormatError(
                f"STAT_SIZES of an inlined {end}_STAT", file=self.file, expected="1 to 8"
            )
        starts, lengths = self.places(end)
        valid = inside | (starts > 0)
        inside, starts = inside.ravel(), starts.ravel()
        lengths = np.where(inside, sizes.ravel(), lengths.ravel())
        parts, columns = self.parts or (self,), self.chunks.shape[1]
        sizes_of = np.array([part.chunks.size for part in parts], np.int64)
        part_of = np.repeat(np.arange(len(parts)), sizes_of)
        # References may overlap: a small hostile file must not take very much memory.
        totals = np.bincount(part_of, lengths, len(parts)).astype(np.int64)
        most = np.repeat(self.end, columns) + 8 * sizes_of[part_of]
        if np.any(totals[part_of] > most):
            raise FormatError(
                f"{end}_STATs of more bytes than the file", file=self.file, got=int(totals.max())
            )
        offsets = np.zeros(lengths.size + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data, is_inlined = np.empty(int(offsets[-1]), np.uint8), np.repeat(inside, lengths)
        slots = np.ascontiguousarray(self.chunks[f"{end}_STAT"]).view(np.uint8).reshape(-1)
        short = lengths[inside]
        data[is_inlined] = slots[np.repeat(8 * np.flatnonzero(inside), short) + within(short)]
        outside = np.flatnonzero(~inside & (lengths > 0))
        ends = np.searchsorted(outside, np.cumsum(sizes_of))
        held = [np.empty(0, np.uint8)]
        for part, first, stop in zip(parts, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            if first < stop:
                at = outside[first:stop]
                raw = np.frombuffer(part.data, np.uint8)
                held.append(raw[np.repeat(starts[at], lengths[at]) + within(lengths[at])])
        data[~is_inlined] = np.concatenate(held)
        return data, offsets, valid


_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")
_OPTIONAL: Final = 0xFFFF_FFFF
_MOST_STEPS: Final = 1_000_000
_MOST_BYTES: Final = (1 << 63) - 1


class PmSnapshot:
    """One footer, and the row groups that it lists.

    ``size`` is the committed size of this snapshot, ``footer_offset`` where its footer begins,
    ``parquet_size`` the size of its Parquet file; ``block_offsets`` has shape (row groups,).
    """

    crc: int
    footer_length: int
    parquet_footer_offset: int
    parquet_footer_length: int
    row_group_count: int
    unused_bytes: int
    previous_size: int
    footer_feature_flags: int

    def __init__(self, pm: Pm, size: int, footer_offset: int) -> None:
        """The snapshot whose footer begins there; ``Pm.snapshot`` finds the place."""
        self.pm, self.size, self.footer_offset = pm, size, footer_offset
        self.crc, self.footer_length = TRAILER.unpack_from(pm.data, size - 8)
        (
            self.parquet_footer_offset,
            self.parquet_footer_length,
            self.row_group_count,
            self.unused_bytes,
            self.previous_size,
            self.footer_feature_flags,
        ) = FOOTER_STRUCT.unpack_from(pm.data, footer_offset)
        if self.footer_feature_flags > _OPTIONAL:
            raise UnsupportedError(
                f"{pm.file or '_pm'}: required footer flags {self.footer_feature_flags:#x}",
                hint="the file was written by a later version of QuestDB",
            )
        if self.parquet_size > _MOST_BYTES:
            raise pm.fail("PARQUET_FOOTER_OFFSET", footer_offset, "a file", self.parquet_size)
        if self._sections_at > size - 8:
            raise pm.fail(
                f"{self.row_group_count} row groups",
                footer_offset + 12,
                f"a footer of {self._sections_at + 4 - footer_offset} bytes",
                self.footer_length,
            )
        known = self._sections_end
        unknown = pm.feature_flags & ~KNOWN_HEADER_FLAGS | (
            self.footer_feature_flags & ~KNOWN_FOOTER_FLAGS
        )
        if known != size - 8 and not (unknown and known < size - 8):
            raise pm.fail("FOOTER_LENGTH", size - 4, known + 4 - footer_offset, self.footer_length)
        self.block_offsets = self._blocks()

    def _blocks(self) -> Ints:
        pm, at = self.pm, self.footer_offset + FOOTER.itemsize
        entries = np.frombuffer(pm.data, "<u4", self.row_group_count, at)
        offsets = entries.astype(np.int64) << 3
        if self.row_group_count:
            last = self.footer_offset - 8 - CHUNK_SIZE * pm.column_count
            low, high = int(offsets.min()), int(offsets.max())
            if low < pm.header_end or high > last:
                raise pm.fail("a row group block", at, f"at {pm.header_end} to {last}", (low, high))
            # Entries take 4 bytes: many that share one wide block would need too much memory.
            room, block = self.footer_offset - pm.header_end, 8 + CHUNK_SIZE * pm.column_count
            if self.row_group_count * block > room:
                raise pm.fail(
                    "row group blocks that overlap", at, f"{room // block}", self.row_group_count
                )
        return offsets

    @property
    def parquet_size(self) -> int:
        """Bytes of the Parquet file that this snapshot describes."""
        return int(self.parquet_footer_offset + self.parquet_footer_length + 8)

    @property
    def _bloom_at(self) -> int:
        return int(self.footer_offset + FOOTER.itemsize + 4 * self.row_group_count)

    @property
    def _sections_at(self) -> int:
        """Where the footer's own sections begin: after the bloom entries."""
        width = 16 if self.pm.bloom_external else 4
        return self._bloom_at + self.row_group_count * len(self.pm.bloom_columns) * width

    @cached_property
    def _sections_end(self) -> int:
        at = self._sections_at
        if self.footer_feature_flags & SEQ_TXN:
            at += 8
        if self.footer_feature_flags & SCRATCHPAD:
            if at > self.size - 12:
                return self.size
            (count,) = _U32.unpack_from(self.pm.data, at)
            at += 4
            for _ in range(count):
                if at > self.size - 16:
                    return self.size
                (length,) = _U32.unpack_from(self.pm.data, at + 4)
                at += 8 + length
        return at

    @property
    def seq_txn(self) -> int | None:
        """SEQ_TXN of footer flag bit 0."""
        if not self.footer_feature_flags & SEQ_TXN:
            return None
        return int(_I64.unpack_from(self.pm.data, self._sections_at)[0])

    @property
    def scratchpad(self) -> tuple[tuple[int, bytes], ...]:
        """(code, bytes) of footer flag bit 1."""
        if not self.footer_feature_flags & SCRATCHPAD:
            return ()
        at = self._sections_at + (8 if self.footer_feature_flags & SEQ_TXN else 0)
        (count,) = _U32.unpack_from(self.pm.data, at)
        if not count or self._sections_end - at > 4 + MAX_SCRATCHPAD:
            raise self.pm.fail(
                "SCRATCHPAD", at, f"entries of at most {MAX_SCRATCHPAD} bytes", count
            )
        at += 4
        found = []
        for _ in range(count):
            code, length = struct.unpack_from("<II", self.pm.data, at)
            found.append((code, bytes(self.pm.data[at + 8 : at + 8 + length])))
            at += 8 + length
        return tuple(found)

    @property
    def other_sections(self) -> bytes:
        """The bytes after the known sections: sections of optional flags that are not known."""
        return bytes(self.pm.data[self._sections_end : self.size - 8])

    def verify(self) -> None:
        """One pass over all bytes of the snapshot; ``FormatError`` where the CRC is another."""
        # The first 8 bytes change with every update, the last 8 are the CRC and the footer's
        # length.
        computed = zlib.crc32(self.pm.data[8 : self.size - 8])
        if computed != self.crc:
            raise self.pm.fail("CRC32", self.size - 8, f"{computed:#010x}", f"{self.crc:#010x}")

    @cached_property
    def num_rows(self) -> npt.NDArray[np.uint64]:
        """NUM_ROWS, shape (row groups,)."""
        words = np.frombuffer(self.pm.data, np.dtype("<u8"), self.size >> 3)
        return np.asarray(words[self.block_offsets >> 3], np.uint64)

    def chunks(
        self, columns: Sequence[int] | Ints | None = None, row_groups: Ints | None = None
    ) -> Structs:
        """CHUNKs of these columns (all) and row groups (all), shape (row groups, columns)."""
        blocks = self.block_offsets if row_groups is None else self.block_offsets[row_groups]
        count = self.pm.column_count
        if not count or not len(blocks):
            width = count if columns is None else len(columns)
            return np.empty((len(blocks), width), CHUNK)
        # Every place where a block may begin, 8 bytes apart and so overlapping: one gather then
        # takes the chunks of all blocks.
        places = (self.footer_offset - CHUNK_SIZE * count) // 8 + 1
        grid: Structs = np.ndarray((places, count), _CHUNK_BYTES, self.pm.data, 0, (8, CHUNK_SIZE))
        first = (blocks >> 3) + 1
        if columns is None:
            return np.asarray(grid[first].view(CHUNK))
        return np.asarray(grid[first[:, None], np.asarray(columns, np.int64)].view(CHUNK))

    def stats(
        self, columns: Sequence[int] | Ints | None = None, row_groups: Ints | None = None
    ) -> ChunkStats:
        """The statistics of these columns (all) in these row groups (all)."""
        blocks = self.block_offsets if row_groups is None else self.block_offsets[row_groups]
        return ChunkStats(
            chunks=self.chunks(columns, row_groups),
            out_of_line=blocks + (8 + CHUNK_SIZE * self.pm.column_count),
            data=self.pm.data,
            end=np.full(len(blocks), self.footer_offset, np.int64),
            file=self.pm.file,
        )

    def byte_ranges(self) -> tuple[Ints, Ints]:
        """(BYTE_RANGE_START, TOTAL_COMPRESSED), each of shape (row groups, columns).

        ``FormatError`` where one does not end before the footer of the Parquet file.
        """
        chunks, end = self.chunks(), np.uint64(self.parquet_footer_offset)
        start, length = chunks["BYTE_RANGE_START"], chunks["TOTAL_COMPRESSED"]
        if np.any((length > end) | (start > end - np.minimum(length, end))):
            raise FormatError(
                "a column chunk beyond the footer of the Parquet file",
                file=self.pm.file,
                expected=f"within {end}",
            )
        return start.astype(np.int64), length.astype(np.int64)

    @cached_property
    def bloom_places(self) -> tuple[Ints, Ints]:
        """Offset and length of bitsets, shape (row groups, bloom columns); length 0 = absent.

        In this file, or in the Parquet file where ``Pm.bloom_external``.
        """
        pm, shape = self.pm, (self.row_group_count, len(self.pm.bloom_columns))
        if pm.bloom_external:
            entries = np.frombuffer(pm.data, EXTERNAL_BLOOM, shape[0] * shape[1], self._bloom_at)
            end = np.uint64(self.parquet_footer_offset)
            away = (entries["length"] > end) | (
                entries["offset"] > end - np.minimum(entries["length"], end)
            )
            offsets = np.where(away, 0, entries["offset"]).astype(np.int64).reshape(shape)
            lengths = np.where(away, 0, entries["length"]).astype(np.int64).reshape(shape)
        else:
            raw = np.frombuffer(pm.data, "<u4", shape[0] * shape[1], self._bloom_at)
            offsets = (raw.astype(np.int64) << 3).reshape(shape)
            there = offsets > 0
            away = there & ((offsets < pm.header_end) | (offsets > self.footer_offset - 4))
            words = np.frombuffer(pm.data, "<i4", self.size >> 2)
            lengths = np.zeros(shape, np.int64)
            readable = there & ~away
            lengths[readable] = words[offsets[readable] >> 2]
            offsets = np.where(there, offsets + 4, 0)
            away |= readable & ((lengths <= 0) | (lengths > self.footer_offset - offsets))
        if np.any(away):
            raise pm.fail("a bloom filter beyond its file", self._bloom_at, "within it", "beyond")
        if np.any(lengths % 32):
            raise pm.fail(
                "a bloom filter of incomplete blocks",
                self._bloom_at,
                "a multiple of 32 bytes",
                int(lengths[lengths % 32 > 0][0]),
            )
        return offsets, lengths


class Pm(PmHeader):
    """An opened ``_pm``: its header, and the snapshots that its footers list."""

    def snapshot(self, parquet_size: int | None = None) -> PmSnapshot:
        """The snapshot of the Parquet file of ``parquet_size`` bytes; ``None`` takes the newest.

        The newest of several with one size. ``FormatError`` where there is none, or a footer on the
        way is damaged.
        """
        size = self.size
        for _ in range(_MOST_STEPS):
            footer, previous, derived = self._peek(size)
            if parquet_size is None or derived == parquet_size:
                return PmSnapshot(self, size, footer)
            # Sizes must decrease, so that a chain ends; 36 is the smallest that QuestDB accepts.
            if not 36 <= previous < size:
                break
            size = previous
        raise FormatError(
            f"no footer for a Parquet file of {parquet_size} bytes",
            file=self.file,
            hint="the sidecar is of another version of its Parquet file: write it again",
        )

    def snapshots(self) -> Iterator[PmSnapshot]:
        """All snapshots along the chain, the newest first."""
        size = self.size
        for _ in range(_MOST_STEPS):
            footer, previous, _ = self._peek(size)
            yield PmSnapshot(self, size, footer)
            if not 36 <= previous < size:
                return
            size = previous

    def _peek(self, size: int) -> tuple[int, int, int]:
        """Offset of the footer that ends at ``size``, its predecessor's size, its Parquet size."""
        if size < self.header_end + 48:
            raise self.fail("a snapshot within the header", size, self.header_end + 48, size)
        (length,) = _U32.unpack_from(self.data, size - 4)
        footer = size - 4 - length
        if length < 44 or footer < self.header_end:
            raise self.fail(
                "FOOTER_LENGTH", size - 4, f"44 to {size - 4 - self.header_end}", length
            )
        start, extent, _, _, previous, _ = FOOTER_STRUCT.unpack_from(self.data, footer)
        return footer, previous, start + extent + 8
