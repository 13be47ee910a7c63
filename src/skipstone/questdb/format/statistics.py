"""The statistics of column chunks, resolved for all row groups and columns at once.

Statistics are Parquet's bytes verbatim, at the width of the physical type: BOOLEAN 1, INT32 and
FLOAT 4, INT64 and DOUBLE 8, FIXED_LEN_BYTE_ARRAY its length (integers in it big-endian), BYTE_ARRAY
its own length, INT96 12. Up to 8 bytes lie in the slot, longer ones out of line.

A statistic that is missing, or has another width than its type, counts as absent. A reference that
leads out of the file is a ``FormatError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import FormatError

from .layout import BOUNDS, NULL_COUNT_PRESENT, Bools, Bytes, End, Ints, Structs

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkStats:
    """``chunks`` of shape (row groups, columns); ``out_of_line`` of shape (row groups,) says where
    the out-of-line region of each block begins, ``end`` where the last one must have ended.
    """

    chunks: Structs
    out_of_line: Ints
    data: memoryview
    end: int
    file: str | None = None

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
        valid = self._inlined(end) & (self._sizes(end) == kind.itemsize)
        # Little-endian: the value is the low bytes of its slot.
        slots = self.chunks[f"{end}_STAT"].astype(f"<u{kind.itemsize}")
        return slots.view(kind.newbyteorder("<") if kind.itemsize > 1 else kind), valid

    def places(self, end: End) -> tuple[Ints, Ints]:
        """Offset and length of each statistic that lies out of line; length 0 = not there."""
        slots = self.chunks[f"{end}_STAT"]
        outside = self.present(end) & ~self._inlined(end)
        lengths = np.where(outside, slots & np.uint64(0xFFFF), np.uint64(0)).astype(np.int64)
        offsets = (slots >> np.uint64(16)).astype(np.int64) + self.out_of_line[:, None]
        if np.any(outside & ((lengths == 0) | (offsets + lengths > self.end))):
            raise FormatError(
                f"an out-of-line {end}_STAT beyond the row group blocks",
                file=self.file,
                expected=f"1 byte or more, up to {self.end}",
            )
        return np.where(outside, offsets, 0), lengths

    def fixed_bytes(self, end: End, width: int) -> tuple[Bytes, Bools]:
        """Values of exactly ``width`` bytes, shape (row groups, columns, width), and where."""
        if width <= 8:
            slots = np.ascontiguousarray(self.chunks[f"{end}_STAT"])
            raw = slots.view(np.uint8).reshape(*slots.shape, 8)
            return raw[..., :width], self._inlined(end) & (self._sizes(end) == width)
        offsets, lengths = self.places(end)
        valid = lengths == width
        values = np.zeros((*valid.shape, width), np.uint8)
        raw = np.frombuffer(self.data, np.uint8, self.end)
        values[valid] = raw[offsets[valid][:, None] + np.arange(width)]
        return values, valid

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
        raw = np.frombuffer(self.data, np.uint8, self.end)
        slots = np.ascontiguousarray(self.chunks[f"{end}_STAT"]).view(np.uint8).ravel()
        lengths = np.where(inside, sizes, lengths).ravel()
        total = int(lengths.sum())
        # References may overlap: a small hostile file must not turn into very much memory.
        if total > self.end + 8 * lengths.size:
            raise FormatError(f"{end}_STATs of more bytes than the file", file=self.file, got=total)
        offsets = np.zeros(lengths.size + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        within = np.arange(total) - np.repeat(offsets[:-1], lengths)
        inlined_byte = np.repeat(inside.ravel(), lengths)
        base = np.where(inside.ravel(), 8 * np.arange(lengths.size), starts.ravel())
        source = np.repeat(base, lengths) + within
        data = np.empty(total, np.uint8)
        data[inlined_byte] = slots[source[inlined_byte]]
        data[~inlined_byte] = raw[source[~inlined_byte]]
        return data, offsets, (inside | (starts > 0)).reshape(self.chunks.shape)
