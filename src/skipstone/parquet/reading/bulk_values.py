"""A column of many files, whose values are decoded only when they are needed.

A condition is decided in three steps: compiled code leaves out the values that cannot meet it
(``Sought``), the rest is decided exactly as Arrow values, and dictionary-encoded rows take the
result of their entry. If few rows are left, only these are located and copied.

All methods raise ``FormatError`` where a chunk does not decode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, numbers
from skipstone.errors import FormatError
from skipstone.parquet.arrow.arrow_types import is_binary
from skipstone.parquet.format.enums import Encoding, Type
from skipstone.pruning.sought import Sought

from .bulk_chunks import (
    BEHIND,
    CHUNK,
    DICTIONARY,
    ENCODING,
    FIRST,
    HOW,
    MOST_STRINGS,
    NUMBER_WIDTHS,
    OTHER,
    PLACE,
    ROOM,
    SIZE,
    VALUES,
    VERSION,
    BulkChunks,
    number_array,
    string_array,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from .bulk_chunks import BulkKind


# Above the first share of rows, decoding all takes less time than locating each; above the second,
# searching the texts of all takes less than comparing some.
_MANY: Final = 1 / 8
_SEARCHED: Final = 1 / 16
# The physical types as ``bulk_search_jit.candidates`` numbers them.
_KINDS: Final = {
    Type.BYTE_ARRAY: 0,
    Type.INT32: 1,
    Type.INT64: 2,
    Type.FLOAT: 3,
    Type.DOUBLE: 4,
}
# More keys than this may match a large part of the rows.
_MANY_SPANS: Final = 1 << 14
# Only the beginning of a longer text is searched for: comparing a long one takes long.
_LONGEST: Final = 32
# How many bytes of pages are searched at a time.
_AT_ONCE: Final = 1 << 20
# Bytes from the most usual to the least in texts; others are rarer.
_USUAL: Final = b"\0 etaoinsrhldcumfpgwybvk0123456789.,-_/:xjqz"


class BulkColumn:
    """The rows ``at`` (ascending; ``None`` for all) of walked ``chunks``."""

    def __init__(
        self,
        chunks: BulkChunks,
        at: NDArray[np.int64] | None = None,
        found: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        self.chunks, self._at = chunks, at
        # For each row the ordinal of its value among those that a condition found, -1 for none;
        # then place and length of each of these values.
        self._found = found
        #: whether one condition is decided and no value is needed
        self.once = False

    def __len__(self) -> int:
        return self._every if self._at is None else len(self._at)

    @property
    def _every(self) -> int:
        """The rows of the chunks."""
        return int(self.chunks.first[-1])

    @property
    def type(self) -> pa.DataType:
        """Arrow's type of the values."""
        return self.chunks.kind.type

    @property
    def cost(self) -> int:
        """Bytes to decompress."""
        return len(self.chunks.plain)

    def at(self, rows: NDArray[np.int64]) -> BulkColumn:
        """The column of some of its rows, ascending."""
        return BulkColumn(self.chunks, rows if self._at is None else self._at[rows], self._found)

    def take(self, rows: pa.Array) -> pa.Array:
        """Values of some rows, ascending."""
        return self.at(numbers(rows)).to_arrow()

    def to_arrow(self) -> pa.Array:
        """The values."""
        at, chunks, every = self._at, self.chunks, self._every
        if at is not None:
            known = 0 if self._found is None else np.count_nonzero(self._found[0][at] >= 0)
            if len(at) - known <= _MANY * every:
                return self.located(at)
            if len(at) == every:
                at = None
        made = chunks.values()
        self._check()
        if made is None:
            raise FormatError("strings of a batch take more memory than the limit")
        if at is None:
            return made
        if len(at) and at[-1] - at[0] == len(at) - 1:
            return made.slice(int(at[0]), len(at))
        return pc.take(made, arrow(at))

    def located(self, at: NDArray[np.int64]) -> pa.Array:
        """Values of some of all rows, ascending; each is located."""
        if self._found is None:
            return self._values(*self._places(at))
        known, places, sizes = self._found
        rank = known[at]
        rest = np.flatnonzero(rank < 0)
        where, size = places[rank], sizes[rank]
        if len(rest):
            where[rest], size[rest] = self._places(at[rest])
        return self._values(where, size)

    def valid(self) -> NDArray[np.bool_]:
        """For each row whether it is not null."""
        chunks, every = self.chunks, self._every
        if not chunks.kind.optional:
            return np.ones(len(self), np.bool_)
        if self._at is not None and len(self._at) <= _MANY * every:
            return self._places(self._at)[1] >= 0
        self._unpack_others()
        valid, nulls = np.zeros(every, np.uint8), np.zeros_like(chunks.status)
        chunks.kernels.validity(
            chunks.buffer, chunks.plain, chunks.pages, True, chunks.status, valid, nulls
        )
        self._check()
        found = valid.view(np.bool_)
        return found if self._at is None else found[self._at]

    def matches(
        self, exact: Callable[[pa.Array], NDArray[np.bool_]], sought: Sought
    ) -> NDArray[np.bool_]:
        """For each row whether ``exact`` holds for its value; False for nulls."""
        chunks = self.chunks
        kind = _KINDS[chunks.kind.physical]
        if not _is_comparable(chunks.kind.type, sought.type):
            sought = Sought(sought.type)
        at, every = self._at, self._every
        few = at is not None and len(at) <= (_SEARCHED if sought.needle else _MANY) * every
        if few or (kind and not len(sought.lows)):
            return exact(self.to_arrow())
        out = np.zeros(every, np.bool_)
        decided = sought.decides and len(sought.needle) <= _LONGEST
        if self.once and decided and not kind:
            pages, plain = chunks.pages, chunks.plain
            try:
                chunks.pages = self._search_plain_pages(sought, out)
                chunks.plain = plain
                self._match(kind, exact, sought, out)
            finally:
                chunks.pages, chunks.plain = pages, plain
        elif not self._match(kind, exact, sought, out):
            return exact(self.to_arrow())
        return out if at is None else out[at]

    def _match(
        self,
        kind: int,
        exact: Callable[[pa.Array], NDArray[np.bool_]],
        sought: Sought,
        out: NDArray[np.bool_],
    ) -> bool:
        """Sets the rows for whose values ``exact`` holds; False where there are so many candidates
        that they are compared faster in one array."""
        chunks = self.chunks
        found = self._candidates(kind, sought)
        if found is None:
            return False
        slot, where, size = found
        decided = sought.decides and len(sought.needle) <= _LONGEST
        good = slot if decided or not len(slot) else slot[exact(self._values(where, size))]
        plain = good >= 0
        out[good[plain]] = True
        if decided and not self.once and plain.any():
            known = np.full(self._every, -1, np.int64)
            known[good[plain]] = np.flatnonzero(plain)
            self._found = known, where, size
        entries = np.zeros(int(chunks.entries.sum()), np.uint8)
        entries[~good[good < 0]] = 1
        if entries.any() or self._lacks_words():
            room = np.empty(self._every if chunks.kind.optional else 0, np.uint8)
            chunks.kernels.flags(
                chunks.buffer, chunks.plain, chunks.pages, chunks.kind.optional, self._base,
                chunks.entries, chunks.status, entries, out.view(np.uint8), room,
                np.zeros_like(chunks.status), chunks.scratch(np.int32),
            )  # fmt: skip
            self._check()
        return True

    def _lacks_words(self) -> bool:
        """Whether a page refers to a missing dictionary or has an unusual encoding: an error if its
        levels have values."""
        pages = self.chunks.pages
        coded = (1 << pages[:, ENCODING]) & DICTIONARY != 0
        known = (pages[:, ENCODING] == Encoding.PLAIN) | (
            coded & (self.chunks.entries[pages[:, CHUNK]] > 0)
        )
        return bool(np.any((pages[:, VERSION] > 0) & ~known))

    def _search_plain_pages(self, sought: Sought, out: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Sets the rows of plain pages whose texts contain the needle; returns the other pages.

        A few pages at a time are decompressed and searched in the same memory, which fits into the
        processor's cache."""
        chunks, pages = self.chunks, self.chunks.pages
        is_plain = (pages[:, VERSION] > 0) & (pages[:, ENCODING] == Encoding.PLAIN)
        mine = pages[is_plain]
        room = mine[:, SIZE] + BEHIND
        before = np.cumsum(room) - room
        starts = np.flatnonzero(np.diff(before // _AT_ONCE, prepend=-1))
        counts = np.diff(starts, append=len(mine))
        mine[:, PLACE] = before - np.repeat(before[starts], counts)
        chunks.plain = chunks.room(int((mine[:, PLACE] + room).max(initial=0)) + ROOM)
        for first, count in zip(starts.tolist(), counts.tolist(), strict=True):
            chunks.pages = mine[first : first + count]
            found = self._candidates(0, sought, every=True)
            assert found is not None  # they are texts
            out[found[0]] = True
        return np.asarray(pages[~is_plain])

    @property
    def _base(self) -> NDArray[np.int64]:
        return np.cumsum(self.chunks.entries) - self.chunks.entries

    def _candidates(
        self, kind: int, sought: Sought, *, every: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
        """Rows or entries, and place and length of their values; ``None`` where there are so many
        numbers that they are compared faster in one array. ``every``: there may be many."""
        chunks, pages = self.chunks, self.chunks.pages
        self._unpack_others()
        is_words = pages[:, VERSION] == 0
        plain = ~is_words & (pages[:, ENCODING] == Encoding.PLAIN)
        most = int(pages[plain, VALUES].sum())
        # Any number of words may be candidates, since each stands for many rows. They take at least
        # four bytes each.
        words = int(np.minimum(pages[is_words, VALUES], pages[is_words, SIZE] // 4).sum())
        lows, highs, bits = sought.spans
        text = sought.needle[:_LONGEST]
        needle = np.frombuffer(text + (text.upper() if sought.any_case else text), np.uint8)
        one, two = _rarest(text)
        every = every or (len(lows) > _MANY_SPANS and not kind)
        room = words + (most if every else min(most, 1024 + most // 8))
        while True:
            slot, where, size = (np.empty(room, np.int64) for _ in range(3))
            count = chunks.kernels.candidates(
                chunks.buffer, pages, chunks.plain, chunks.kind.optional, self._base,
                chunks.entries, chunks.status, kind, lows, highs, bits, needle,
                one, two, sought.skip, slot, where, size, chunks.scratch(np.uint8),
            )  # fmt: skip
            self._check()
            if count >= 0:
                return slot[:count], where[:count], size[:count]
            if kind:
                return None
            room = words + most

    def _places(self, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Place and length of the values of some rows; the length is -1 for nulls."""
        kind, count = self.chunks.kind, len(self.chunks.stops)
        return self.places(
            at,
            np.full(count, kind.optional, np.uint8),
            np.full(count, NUMBER_WIDTHS.get(kind.physical, 0), np.int64),
        )

    def places(
        self, at: NDArray[np.int64], optional: NDArray[np.uint8], widths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As ``_places``, if the chunks are of several columns."""
        chunks = self.chunks
        self._unpack_others(at)
        where, size = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
        chunks.kernels.locate(
            chunks.buffer, chunks.pages, chunks.plain, optional, chunks.entries, chunks.status,
            at, widths, where, size,
            chunks.scratch(np.uint8), chunks.scratch(np.int64), chunks.scratch(np.int64),
            chunks.scratch(np.int32), np.empty(int(chunks.entries.max(initial=0)), np.int64),
        )  # fmt: skip
        self._check()
        return where, size

    def _values(self, where: NDArray[np.int64], size: NDArray[np.int64]) -> pa.Array:
        return self.values_of(self.chunks.kind, where, size)

    def values_of(
        self, kind: BulkKind, where: NDArray[np.int64], size: NDArray[np.int64]
    ) -> pa.Array:
        """The values of a column of this ``kind`` at these places."""
        chunks = self.chunks
        if kind.physical in NUMBER_WIDTHS:
            out = np.empty(len(where), f"u{NUMBER_WIDTHS[kind.physical]}")
            valid = np.empty(len(where), np.uint8)
            nulls = chunks.kernels.gather(chunks.plain, where, size, out, valid)
            return number_array(kind, out, _bitmap(valid) if nulls else None)
        lengths = np.maximum(size, 0)
        total = int(lengths.sum())
        if total > min(chunks.limit, MOST_STRINGS):
            raise FormatError("strings of a batch take more memory than the limit")
        offsets = np.zeros(len(where) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        text = np.empty(total + ROOM, np.uint8)
        chunks.kernels.copy_some(chunks.plain, where, size, offsets, text)
        is_null = size < 0
        bitmap = _bitmap(~is_null) if is_null.any() else None
        return string_array(kind.type, len(where), bitmap, offsets, text)

    def _unpack_others(self, at: NDArray[np.int64] | None = None) -> None:
        """Decompresses the pages that hold rows, and that the kernels cannot decompress."""
        pages = self.chunks.pages
        if not np.any(pages[:, HOW] == OTHER):
            return
        wanted = np.ones(len(pages), np.bool_)
        if at is not None:
            first = pages[:, FIRST]
            stop = np.where(pages[:, VERSION] > 0, first + pages[:, VALUES], first)
            wanted = np.searchsorted(at, first) < np.searchsorted(at, stop)
            hit = np.zeros(len(self.chunks.stops), np.bool_)
            hit[pages[wanted, CHUNK]] = True
            wanted |= (pages[:, VERSION] == 0) & hit[pages[:, CHUNK]]
        self.chunks.unpack_others(wanted)

    def _check(self) -> None:
        if self.chunks.status.any():
            raise FormatError("a chunk does not decode")


def _bitmap(valid: NDArray[np.uint8] | NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _is_comparable(type: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of ``type``, as they are stored, are in the order and unit of ``other``."""
    t = pa.types
    if is_binary(type):
        return is_binary(other)
    if t.is_floating(type):
        return bool(t.is_floating(other))
    if t.is_signed_integer(type):
        return type.bit_width >= 32 and bool(t.is_signed_integer(other))
    if t.is_timestamp(type):
        return bool(t.is_timestamp(other) and type.unit == other.unit)
    return bool(t.is_date32(type) and t.is_date32(other))


def _rarest(needle: bytes) -> tuple[int, int]:
    """Places of two bytes of a text that are probably rare."""
    if not needle:
        return 0, 0
    order = sorted(range(len(needle)), key=lambda at: -_USUAL.find(needle[at]) % 256)
    return order[0], order[1 % len(order)]
