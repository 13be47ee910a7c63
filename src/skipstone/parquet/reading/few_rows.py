"""A few rows of many files: of each page only the wanted values are decoded.

Where an index has found the rows, a file has one or two of them. Most of the time would go into the
calls for its columns and pages, and into values that are not wanted. Here one call of compiled code
finds the pages of all columns that hold a row, and one takes the values from them: it decompresses
only these pages, and decodes the dictionary only as far as the index of a value. The values of all
files become one Arrow array per column.

The forms are those of ``bulk_columns``. Anything else, and anything that is wrong in a file, is
left to ``FileReader``, which reports the error: ``read_few_rows`` gives ``None``.

Entries of a page table are int64 (n, 4):

    OFFSET LENGTH FIRST_ROW ROWS

An entry is a page of the offset index, or a whole chunk. Its pages must hold exactly its rows.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._numba import CompiledKernels
from skipstone.errors import SkipstoneError
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.format.enums import CompressionCodec

from .bulk_chunks import (
    AT,
    CHUNK,
    COLUMNS,
    COMPRESSED,
    CRC,
    LENGTH,
    LEVELS,
    MOST_STRINGS,
    OFFSET,
    ROOM,
    ROWS,
    SIZE,
    STORED,
    WIDTHS,
    number_array,
    string_array,
    validity_buffer,
)
from .decoding_memory import limit_of
from .pinned_file import PinnedReader, read_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from .bulk_chunks import BulkKind, Room
    from .page_tables import PageTable

    I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FewRowsKernels:
    """The compiled loops (``few_rows_jit``)."""

    choose: Callable[..., Any]
    claims: Callable[..., Any]
    walk: Callable[..., Any]
    take: Callable[..., Any]
    gather: Callable[..., Any]


#: In column chunks: other readers take about half a millisecond for one.
KERNELS: Final = CompiledKernels[FewRowsKernels](
    module=f"{__package__}.few_rows_jit", once=1_000, total=1_000, share=1 / 4, patience=1.5
)

# Results of ``FewRowsKernels.take``: the heap is full, or the pages are not as they should be.
FULL: Final = -2
DAMAGED: Final = -1

# Pages per column that are expected at first, and the bytes of the shortest page header.
_PAGES: Final = 8
_SHORTEST: Final = 8
# The first size of the heap of strings.
_HEAP: Final = 1 << 16
# Ranges of a file so near are read by one call, as by ``LocalStorage``. What lies between them goes
# where it is not read.
_GAP: Final = 16 * 1024
# Bytes of parts that are read together.
_TOGETHER: Final = 8 << 20


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PageEntries:
    """The entries of some columns of a row group: those of column ``c`` are
    ``table[of[c]:of[c + 1]]``; ``dictionary`` int64 (columns, 2) is offset and length, 0 for
    none."""

    table: I64
    of: I64
    dictionary: I64
    codecs: I64


def page_entries(found: Sequence[PageTable | I64], codecs: Sequence[int]) -> PageEntries:
    """The entries of columns by their page tables, or as a whole by their spans
    (``bulk_chunks``)."""
    tables, heads = [], []
    for each in found:
        if isinstance(each, np.ndarray):
            tables.append(np.array([(each[OFFSET], each[LENGTH], 0, each[ROWS])], np.int64))
            heads.append((0, 0))
            continue
        rows = np.diff(each.first_row)
        tables.append(np.stack([each.offset, each.length, each.first_row[:-1], rows], axis=1))
        heads.append(each.dictionary)
    return PageEntries(
        table=np.ascontiguousarray(np.concatenate(tables)),
        of=np.cumsum([0, *map(len, tables)]),
        dictionary=np.array(heads, np.int64).reshape(-1, 2),
        codecs=np.array(codecs, np.int64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class FewRows:
    """``rows`` of a row group of the file at ``path``, ascending and counted from its first."""

    path: str
    reader: PinnedReader
    entries: PageEntries
    rows: I64


def read_few_rows(
    parts: Sequence[FewRows],
    kinds: Sequence[BulkKind],
    kernels: FewRowsKernels,
    *,
    verify_checksums: bool = True,
    memory: int | None = None,
    room: Room | None = None,
) -> list[pa.Array] | None:
    """An array per column of these ``kinds``: the rows of all parts, one after another."""
    taken = _Taken(kinds, sum(len(part.rows) for part in parts))
    one = _OnePart(kinds, kernels, verify_checksums, memory, room or _new)
    chosen = [_Chosen.of(part, kernels) for part in parts]
    at = 0
    while at < len(parts):
        size, stop = 0, at
        while stop < len(parts) and (stop == at or size + chosen[stop].size <= _TOGETHER):
            size += chosen[stop].size + ROOM
            stop += 1
        buffers = _fetched(parts[at:stop], chosen[at:stop], size, one.buffer_of)
        if buffers is None:
            return None
        for part, picked, buffer in zip(parts[at:stop], chosen[at:stop], buffers, strict=True):
            if not one.read(part, picked, buffer, taken):
                return None
        at = stop
    return taken.arrays(kernels)


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    """The entries of a part that hold one of its rows, and the ranges to read for them; ``stops``
    and ``values`` are the bytes up to the end of each column, and the rows of its entries."""

    picks: I64
    ranges: I64
    stops: I64
    values: I64

    @classmethod
    def of(cls, part: FewRows, kernels: FewRowsKernels) -> _Chosen:
        entries, count = part.entries, len(part.entries.codecs)
        picks = np.empty(len(entries.table), np.int64)
        ranges = np.empty((len(picks) + count, 2), np.int64)
        stops, values = np.empty(count, np.int64), np.empty(count, np.int64)
        chosen, spans = kernels.choose(
            entries.table, entries.of, entries.dictionary, part.rows, picks, ranges, stops, values
        )
        return cls(picks[:chosen], ranges[:spans], stops, values)

    @property
    def size(self) -> int:
        """Bytes of all ranges."""
        return int(self.stops[-1])


def _fetched(
    parts: Sequence[FewRows], chosen: Sequence[_Chosen], size: int, room: Room
) -> list[NDArray[np.uint8]] | None:
    """The ranges of each part, one after another; ``None`` where one cannot be read."""
    counts = [len(each.ranges) for each in chosen]
    pairs = np.concatenate([each.ranges for each in chosen])
    # Row groups of one file follow each other, and are read as one.
    new = [one.path != two.path for one, two in pairwise(parts)]
    part, owner = (
        np.repeat(each, counts) for each in (np.arange(len(parts)), np.cumsum([0, *new]))
    )
    length = pairs[:, 1]
    if length.min() < 0:
        return None
    # Behind the ranges of a part there is room for what the kernels read.
    place = np.cumsum(length) - length + ROOM * part
    starts = np.cumsum([0, *(each.size + ROOM for each in chosen)])
    order = np.lexsort((pairs[:, 0], owner))
    ranges, owner = np.column_stack([pairs, place])[order], owner[order]
    stop = ranges[:-1, 0] + ranges[:-1, 1]
    gap = ranges[1:, 0] - stop
    near = ((owner[1:] == owner[:-1]) & (gap > 0) & (gap <= _GAP)).nonzero()[0]
    into = room(size + _GAP)
    if len(near):
        between = np.stack([stop[near], gap[near], np.full(len(near), size)], axis=1)
        ranges = np.insert(ranges, near + 1, between, axis=0)
        owner = np.insert(owner, near + 1, owner[near])
    files = [parts[0], *(each for each, is_new in zip(parts[1:], new, strict=True) if is_new)]
    first = np.searchsorted(owner, np.arange(len(files) + 1))
    if not read_files([(each.reader, each.path) for each in files], first, ranges, into).all():
        return None
    return [into[a:b] for a, b in pairwise(starts.tolist())]


def _new(size: int) -> NDArray[np.uint8]:
    return np.empty(size, np.uint8)


class _Taken:
    """The values of all parts: numbers, or strings of the heap by place and size."""

    def __init__(self, kinds: Sequence[BulkKind], rows: int) -> None:
        self.kinds = kinds
        self.words = np.zeros((len(kinds), rows), np.uint64)
        self.sizes = np.zeros((len(kinds), rows), np.int64)
        self.valid = np.zeros((len(kinds), rows), np.uint8)
        self.heap = _new(_HEAP)
        self.end = self.rows = 0

    def grow(self, limit: int) -> bool:
        """Makes the heap larger; whether it may be."""
        size = 4 * len(self.heap)
        if size > min(limit, MOST_STRINGS):
            return False
        heap = _new(size)
        heap[: self.end] = self.heap[: self.end]
        self.heap = heap
        return True

    def arrays(self, kernels: FewRowsKernels) -> list[pa.Array] | None:
        made = []
        for kind, words, sizes, valid in zip(
            self.kinds, self.words, self.sizes, self.valid, strict=True
        ):
            nulls = np.array([len(valid) - int(valid.sum())])
            bitmap = validity_buffer(valid, nulls)
            if kind.physical in WIDTHS:
                numbers = words.astype(f"u{WIDTHS[kind.physical]}")
                made.append(number_array(kind, numbers, bitmap))
                continue
            offsets = np.zeros(len(words) + 1, np.int32)
            out = _new(int(sizes.sum()) + ROOM)
            kernels.gather(self.heap, words, sizes, offsets, out)
            made.append(string_array(kind.type, len(words), bitmap, offsets, out))
        return made


class _OnePart:
    """Reads the parts one by one, in the same memory."""

    def __init__(
        self,
        kinds: Sequence[BulkKind],
        kernels: FewRowsKernels,
        verify: bool,
        memory: int | None,
        room: Room,
    ) -> None:
        self.kernels, self.verify, self.memory, self.room = kernels, verify, memory, room
        self.buffer = self.held = self.plain = self.valid = _new(0)
        self.codes, self.starts = np.empty(0, np.int32), np.empty(0, np.int64)
        self.stack, self.none = np.empty(80, np.int64), np.zeros(ROOM, np.uint8)
        self.pages = np.empty((_PAGES * len(kinds), COLUMNS), np.int64)
        self.columns, self.claimed = np.zeros((len(kinds), 3), np.int64), np.zeros(5, np.int64)
        for at, kind in enumerate(kinds):
            self.columns[at, :2] = WIDTHS.get(kind.physical, 0), kind.optional

    def buffer_of(self, size: int) -> NDArray[np.uint8]:
        """Memory for the bytes of some parts, which those of the next ones take the place of."""
        if len(self.held) < size:
            self.held = self.room(size)
        return self.held

    def read(
        self, part: FewRows, chosen: _Chosen, buffer: NDArray[np.uint8], taken: _Taken
    ) -> bool:
        """Adds the values of a part, whose ranges are in ``buffer``; whether that is possible."""
        entries, self.buffer = part.entries, buffer
        limit = limit_of(self.memory, chosen.size)
        status = np.zeros(len(self.columns), np.int64)
        pages = self._walk(chosen.stops, chosen.values, status)
        if pages is None or status.any():
            return False
        left = self.kernels.claims(pages, entries.codecs, self.verify, self.claimed)
        if left == DAMAGED:
            return False
        other = self._prepare(pages, entries.codecs, self.claimed, left, limit)
        if other is None:
            return False
        self.columns[:, 2] = entries.codecs
        words = int(self.claimed[0]) + ROOM
        while True:
            end = self.kernels.take(
                self.buffer, other, pages, chosen.picks, entries.table, entries.of, self.columns,
                part.rows, self.plain, words, self.valid, self.codes, self.starts, taken.words,
                taken.sizes, taken.valid, taken.rows, taken.heap, taken.end,
            )  # fmt: skip
            if end != FULL:
                break
            if not taken.grow(limit):
                return False
        if end < 0:
            return False
        taken.end, taken.rows = int(end), taken.rows + len(part.rows)
        return True

    def _walk(self, stops: I64, values: I64, status: I64) -> I64 | None:
        """The headers of all pages; ``None`` where there are more than the bytes can hold."""
        starts, bound = np.empty_like(stops), len(stops) + int(stops[-1]) // _SHORTEST
        starts[0], starts[1:] = 0, stops[:-1]
        before = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values, out=before[1:])
        while True:
            count = self.kernels.walk(
                self.buffer, starts, stops, before, status, self.pages, self.stack
            )
            if count >= 0:
                return self.pages[:count]
            if len(self.pages) >= bound:
                return None
            self.pages = np.empty((min(8 * len(self.pages), bound), COLUMNS), np.int64)

    def _prepare(
        self, pages: I64, codecs: I64, found: I64, left: int, limit: int
    ) -> NDArray[np.uint8] | None:
        """Makes room for what pages claim. What is ``left`` to do: checks checksums, and
        decompresses the pages that the kernels cannot. ``None`` where a page is damaged, or takes
        more than the limit."""
        words, page, entries, rows, more = found.tolist()
        if words + page + more + 8 * (entries + rows) > limit:
            return None
        # The kernel writes a few bytes behind the dictionary, and behind the page.
        if len(self.plain) < words + page + 2 * ROOM:
            self.plain = self.room(words + page + 2 * ROOM)
        if len(self.starts) < entries + 2:
            self.starts = np.empty(entries + 2, np.int64)
        if len(self.codes) < rows:
            self.codes, self.valid = np.empty(rows, np.int32), _new(rows)
        if not left:
            return self.none
        view = memoryview(self.buffer.data)
        if self.verify:
            for at, stored, crc in pages[pages[:, CRC] >= 0][:, (AT, STORED, CRC)].tolist():
                if zlib.crc32(view[at : at + stored]) != crc:
                    return None
        codec = codecs[pages[:, CHUNK]]
        other, to = _new(more + ROOM), 0
        unknown = (codec > CompressionCodec.SNAPPY) & (pages[:, COMPRESSED] == 1)
        for n in np.flatnonzero(unknown).tolist():
            at, stored, whole, before = pages[n, (AT, STORED, SIZE, LEVELS)].tolist()
            levels = max(before, 0)
            try:
                made = decompress(int(codec[n]), view[at + levels : at + stored], whole - levels)
            except SkipstoneError:
                return None
            other[to : to + levels] = self.buffer[at : at + levels]
            other[to + levels : to + whole] = np.frombuffer(made, np.uint8)
            pages[n, AT], pages[n, COMPRESSED] = to, 2
            to += whole
        return other
