"""Some rows of many files: only the pages that hold one are read, and the dictionary.

If an index has found the rows, a file has one or two of them (``read_few_rows``). Then the pages of
all columns of all files are treated like whole chunks in ``bulk_columns``: walked together, and
decompressed only as far as the values need (``BulkColumn``). If an index leaves some rows to be
decided, columns are read one by one, and decoded when they are needed (``read_pages``).

The supported forms are those of ``bulk_columns``. For anything else, and for anything wrong in a
file, both functions return ``None``, and ``FileReader`` reads the rows and reports the error.

Entries of a chunk are int64 (n, 4):

    OFFSET LENGTH FIRST_ROW ROWS

An entry is a page of the offset index, or a whole chunk. Its pages must hold exactly its rows.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from skipstone._arrays import runs_up_to
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

from .bulk_chunks import (
    CODEC,
    FIRST,
    LENGTH,
    MOST_STRINGS,
    NUMBER_WIDTHS,
    OFFSET,
    ROWS,
    VALUE,
    VERSION,
    BulkChunks,
)
from .bulk_columns import fetched, new_memory
from .bulk_values import BulkColumn
from .decoding_memory import limit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .bulk_chunks import BulkKernels, BulkKind, Room
    from .page_tables import PageTable
    from .pinned_file import PinnedReader

    I64 = NDArray[np.int64]


# Ranges of a file this near are read by one call, as by ``LocalStorage``.
_GAP: Final = 16 * 1024
# The bytes of parts that are read together, and their share of the user's limit of memory.
_TOGETHER: Final = 12 << 20
_SHARE: Final = 1 / 8


class ChunkEntries(NamedTuple):
    """The entries of a chunk; ``dictionary`` is offset and length, 0 for none."""

    table: I64
    dictionary: tuple[int, int]
    codec: int


def chunk_entries(found: PageTable | None, span: I64) -> ChunkEntries:
    """The entries of a page table; without one, the whole chunk of ``span`` (``bulk_chunks``)."""
    codec = int(span[CODEC])
    if found is None:
        whole = np.array([(span[OFFSET], span[LENGTH], 0, span[ROWS])], np.int64)
        return ChunkEntries(whole, (0, 0), codec)
    first = found.first_row
    table = np.stack([found.offset, found.length, first[:-1], np.diff(first)], axis=1)
    return ChunkEntries(table, found.dictionary, codec)


@dataclass(frozen=True, slots=True, eq=False)
class FewRows:
    """``rows`` of a row group of the file at ``path``, ascending and counted from its first; the
    entries of its ``columns``."""

    path: str
    reader: PinnedReader
    columns: tuple[ChunkEntries, ...]
    rows: I64


def read_few_rows(
    parts: Sequence[FewRows],
    kinds: Sequence[BulkKind],
    kernels: BulkKernels,
    *,
    verify_checksums: bool = True,
    memory: int | None = None,
    room: Room | None = None,
) -> list[pa.Array] | None:
    """An array per column of these ``kinds``: the rows of all parts, one after another."""
    every = _chosen(parts, range(len(kinds)), kernels)
    if every is None:
        return None
    most = _TOGETHER if memory is None else min(_TOGETHER, int(_SHARE * memory))
    sizes = every.lengths.reshape(len(kinds), len(parts)).sum(axis=0)
    groups = list(runs_up_to(sizes.tolist(), most))
    buffer, plain = _ReusedMemory(room or new_memory), _ReusedMemory(room or new_memory)
    made: list[list[pa.Array]] = []
    taken, stored = np.zeros(len(kinds), np.int64), 0
    for start, stop in groups:
        some = parts[start:stop]
        chosen = every if len(groups) == 1 else _chosen(some, range(len(kinds)), kernels)
        files = [(part.reader, part.path) for part in some]
        if chosen is None:
            return None
        (data,), done = fetched(files, [chosen.ranges], [chosen.spans.tolist()], buffer, _GAP)
        limit = limit_of(memory, len(data))
        if not done.all() or float(chosen.first[-1]) * VALUE > limit:
            return None
        widths = np.repeat([NUMBER_WIDTHS.get(kind.physical, 0) for kind in kinds], len(some))
        verify = verify_checksums
        try:
            chunks = chosen.walked(kinds[0], data, kernels, plain, verify, limit, widths)
            if chunks is None:
                return None
            column = BulkColumn(chunks)
            optional = np.repeat(np.array([kind.optional for kind in kinds], np.uint8), len(some))
            where, size = (
                each.reshape(len(kinds), -1) for each in column.places(chosen.at, optional, widths)
            )
            made.append([column.values_of(*each) for each in zip(kinds, where, size, strict=True)])
        except (FormatError, MemoryError):
            return None
        stored += len(data)
        taken += [each.nbytes for each in made[-1]]
        if taken.max() > min(limit_of(memory, stored), MOST_STRINGS):
            return None  # long texts, which do not fit into one array
    columns = zip(*made, strict=True)
    return [each[0] if len(each) == 1 else pa.concat_arrays(each) for each in columns]


def read_pages(
    parts: Sequence[FewRows],
    kinds: Sequence[BulkKind],
    kernels: BulkKernels,
    *,
    verify_checksums: bool = True,
    memory: int | None = None,
    room: Room | None = None,
) -> list[BulkColumn] | None:
    """A column per kind of the rows of all parts, one after another, not decoded yet."""
    chosen = [_chosen(parts, [at], kernels) for at in range(len(kinds))]
    every = [each for each in chosen if each is not None]
    if len(every) < len(chosen):
        return None
    room = room or new_memory
    files = [(part.reader, part.path) for part in parts]
    ranges, counts = [each.ranges for each in every], [each.spans.tolist() for each in every]
    buffers, done = fetched(files, ranges, counts, room, _GAP)
    if not done.all():
        return None
    columns = []
    for kind, each, data in zip(kinds, every, buffers, strict=True):
        limit, rows = limit_of(memory, len(data)), int(each.first[-1])
        if float(rows) * VALUE > limit:
            return None
        try:
            chunks = each.walked(kind, data, kernels, room, verify_checksums, limit)
        except MemoryError:
            return None
        if chunks is None:
            return None
        columns.append(BulkColumn(chunks, each.at if len(each.at) < rows else None))
    return columns


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    """The entries that hold one of the rows, of all parts of a column, then of the next.

    A chunk is a part of a column: it has ``spans`` of the ``ranges``, which take ``lengths`` bytes;
    ``first`` are the rows of the entries before it, and all. ``begins`` are the rows before each
    entry, ``at`` the wanted rows among them.
    """

    ranges: I64
    spans: I64
    lengths: I64
    codecs: I64
    first: I64
    begins: I64
    at: I64

    def walked(
        self,
        kind: BulkKind,
        data: NDArray[np.uint8],
        kernels: BulkKernels,
        room: Room,
        verify: bool,
        limit: int,
        widths: I64 | None = None,
    ) -> BulkChunks | None:
        """The chunks in ``data``, which holds the ranges; ``None`` if one is damaged, or an entry
        does not begin with a page: its rows would be others."""
        chunks = BulkChunks(
            kind=kind,
            buffer=data,
            stops=np.cumsum(self.lengths),
            codec=self.codecs,
            first=self.first,
            failed=np.zeros(len(self.lengths), np.bool_),
            verify=verify,
            limit=limit,
            room=room,
            kernels=kernels,
            widths=widths,
        )
        if not chunks.walked() or chunks.status.any():
            return None
        first = chunks.pages[chunks.pages[:, VERSION] > 0, FIRST]
        at = np.searchsorted(first, self.begins)
        found = np.all(at < len(first))
        found = found and np.all(first[np.minimum(at, len(first) - 1)] == self.begins)
        return chunks if found else None


def _chosen(
    parts: Sequence[FewRows], columns: Sequence[int], kernels: BulkKernels
) -> _Chosen | None:
    """The entries that hold the rows; ``None`` if a row is in none, or a place is negative."""
    found = [part.columns[at] for at in columns for part in parts]
    # The rows may be nearly all of a large row group, so their positions are only copied if needed.
    alone = len(found) == 1
    rows = parts[0].rows if alone else np.concatenate([part.rows for part in parts] * len(columns))
    rows_of = np.array([0, *accumulate([len(part.rows) for part in parts] * len(columns))])
    table = np.concatenate([each.table for each in found])
    of = np.array([0, *accumulate(len(each.table) for each in found)])
    dictionary = np.array([each.dictionary for each in found], np.int64)
    ranges = np.empty((len(table) + len(found), 2), np.int64)
    spans, first = np.empty(len(found), np.int64), np.zeros(len(found) + 1, np.int64)
    begins, at = np.empty(len(table), np.int64), np.empty(len(rows), np.int64)
    chosen = kernels.choose(table, of, dictionary, rows, rows_of, ranges, spans, first, begins, at)
    ranges = ranges[: int(spans.sum())] if chosen >= 0 else ranges[:0]
    if chosen < 0 or np.any(ranges < 0):
        return None
    lengths = np.diff(np.concatenate([[0], np.cumsum(ranges[:, 1])])[np.cumsum([0, *spans])])
    codecs = np.array([each.codec for each in found], np.int64)
    return _Chosen(ranges, spans, lengths, codecs, first, begins[:chosen], at)


class _ReusedMemory:
    """Returns the same memory each time, with some reserve, so that it suffices for later calls."""

    def __init__(self, room: Room) -> None:
        self.room, self.held = room, new_memory(0)

    def __call__(self, size: int) -> NDArray[np.uint8]:
        if len(self.held) < size:
            self.held = self.room(size + size // 2)
        return self.held[:size]
