"""A few rows of many files: of each page only the wanted values are decoded.

Where an index has found the rows, a file has one or two of them. Only the pages that hold one are
read, and the dictionary; the pages of one column of all files are then what whole chunks are in
``bulk_columns``: walked together, decompressed as far as a value takes (``StoredColumn``).

The forms are those of ``bulk_columns``. Anything else, and anything that is wrong in a file, is
left to ``FileReader``, which reports the error: ``read_few_rows`` gives ``None``.

Entries of a chunk are int64 (n, 4):

    OFFSET LENGTH FIRST_ROW ROWS

An entry is a page of the offset index, or a whole chunk. Its pages must hold exactly its rows.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from skipstone._dataclass import dataclass
from skipstone.errors import FormatError

from .bulk_chunks import CODEC, FIRST, LENGTH, OFFSET, ROWS, VALUE, VERSION, BulkChunks
from .bulk_columns import fetched, new_memory
from .bulk_values import StoredColumn
from .decoding_memory import limit_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from .bulk_chunks import BulkKernels, BulkKind, Room
    from .page_tables import PageTable
    from .pinned_file import PinnedReader

    I64 = NDArray[np.int64]


# Ranges of a file so near are read by one call, as by ``LocalStorage``.
_GAP: Final = 16 * 1024
# Bytes of parts that are read together, and their share of the user's limit of memory.
_TOGETHER: Final = 16 << 20
_SHARE: Final = 1 / 8


class ChunkEntries(NamedTuple):
    """The entries of a chunk; ``dictionary`` is offset and length, 0 for none."""

    table: I64
    dictionary: tuple[int, int]
    codec: int


def chunk_entries(found: PageTable | None, span: I64) -> ChunkEntries:
    """The entries by a page table, or as a whole by the span (``bulk_chunks``)."""
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
    rows = np.concatenate([part.rows for part in parts])
    rows_of = np.array([0, *accumulate(len(part.rows) for part in parts)])
    columns = []
    for at in range(len(kinds)):
        found = _chosen([part.columns[at] for part in parts], rows, rows_of, kernels)
        if found is None:
            return None
        columns.append(found)
    buffer, plain = _Again(room or new_memory), _Again(room or new_memory)
    made: list[list[pa.Array]] = [[] for _ in kinds]
    most = _TOGETHER if memory is None else min(_TOGETHER, int(_SHARE * memory))
    sizes = np.sum([each.lengths for each in columns], axis=0)
    for start, stop in _groups(sizes.tolist(), most):
        files = [(part.reader, part.path) for part in parts[start:stop]]
        some = [each.of(start, stop) for each in columns]
        ranges, counts = [each.ranges for each in some], [each.spans.tolist() for each in some]
        buffers, done = fetched(files, ranges, counts, buffer, _GAP)
        if not done.all():
            return None
        for kind, each, data, arrays in zip(kinds, some, buffers, made, strict=True):
            limit = limit_of(memory, len(data))
            if float(each.first[-1]) * VALUE > limit:
                return None
            chunks = BulkChunks(
                kind=kind,
                buffer=data,
                stops=np.cumsum(each.lengths),
                codec=each.codecs,
                first=each.first,
                failed=np.zeros(len(files), np.bool_),
                verify=verify_checksums,
                limit=limit,
                room=plain,
                kernels=kernels,
            )
            try:
                if not chunks.walked() or not _are_entries(chunks, each.begins):
                    return None
                arrays.append(StoredColumn(chunks).located(each.at))
            except (FormatError, MemoryError):
                return None
    return [each[0] if len(each) == 1 else pa.concat_arrays(each) for each in made]


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    """The entries of a column that hold one of the rows: ``spans`` of the ``ranges`` are of each
    part, which are so many bytes (``lengths``). ``first`` are the rows of the entries before each
    part, and all; ``begins`` those before each entry; ``at`` the wanted rows among them, of which
    those of part ``p`` begin at ``rows_of[p]``."""

    ranges: I64
    spans: I64
    lengths: I64
    codecs: I64
    first: I64
    begins: I64
    at: I64
    rows_of: I64

    def of(self, start: int, stop: int) -> _Chosen:
        """The same of some parts alone."""
        if stop - start == len(self.spans):
            return self
        before, after = int(self.spans[:start].sum()), int(self.spans[:stop].sum())
        base = self.first[start]
        begins = self.begins[np.searchsorted(self.begins, base) :]
        return _Chosen(
            self.ranges[before:after],
            self.spans[start:stop],
            self.lengths[start:stop],
            self.codecs[start:stop],
            self.first[start : stop + 1] - base,
            begins[: np.searchsorted(begins, self.first[stop])] - base,
            self.at[self.rows_of[start] : self.rows_of[stop]] - base,
            self.rows_of[start : stop + 1] - self.rows_of[start],
        )


def _chosen(
    found: Sequence[ChunkEntries], rows: I64, rows_of: I64, kernels: BulkKernels
) -> _Chosen | None:
    """``None`` where a row is in no entry, or an entry cannot be."""
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
    return _Chosen(ranges, spans, lengths, codecs, first, begins[:chosen], at, rows_of)


def _groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Parts that are read together, in order."""
    start, held = 0, 0
    for at, size in enumerate(sizes):
        if at > start and held + size > most:
            yield start, at
            start, held = at, 0
        held += size
    yield start, len(sizes)


def _are_entries(chunks: BulkChunks, begins: I64) -> bool:
    """Whether all chunks are sound so far, and a page begins where each entry does: a page may not
    have another's rows."""
    if chunks.status.any():
        return False
    pages = chunks.pages
    first = pages[pages[:, VERSION] > 0, FIRST]
    at = np.searchsorted(first, begins)
    return bool(np.all(at < len(first)) and np.all(first[np.minimum(at, len(first) - 1)] == begins))


class _Again:
    """Gives the same memory each time; some more than is asked for, so that it is enough."""

    def __init__(self, room: Room) -> None:
        self.room, self.held = room, new_memory(0)

    def __call__(self, size: int) -> NDArray[np.uint8]:
        if len(self.held) < size:
            self.held = self.room(size + size // 2)
        return self.held[:size]
