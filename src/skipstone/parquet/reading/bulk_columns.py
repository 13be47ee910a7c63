"""Whole columns of many files, decoded together.

When many files are read, most time goes into opening, calling and combining, file by file and page
by page. Here the chunks of one column in a batch of row groups are read into one buffer. Each step
(page headers, decompression, levels, values) is one call of compiled code over all of them, without
the lock of the interpreter (``bulk_jit``). The result is one Arrow array: for strings by
dictionary, indices into the dictionaries of all chunks, one after another.

This is a faster way to read the same values, for the usual forms:

    columns       flat, plaintext, in the file itself
    types         integers, floats, dates, times and decimals of INT32 and INT64; strings and binary
    encodings     PLAIN and dictionary, of both page versions
    codecs        all; Snappy in compiled code

A chunk in any other form, or with anything wrong in it, is not decoded here (``BulkColumns.done``).
``FileReader`` reads it, and reports the error. Sizes that pages claim are checked against the
limit of memory before anything is allocated.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate, pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.parquet.arrow.arrow_types import is_binary, leaf_type
from skipstone.parquet.format.enums import Encoding, Type
from skipstone.parquet.pages.page import dictionaries_lack_headers

from .bulk_chunks import (
    CODEC,
    LENGTH,
    NUMBER_WIDTHS,
    OFFSET,
    ROOM,
    ROWS,
    SPAN,
    VALUE,
    BulkChunks,
    BulkKernels,
    BulkKind,
    Room,
)
from .bulk_values import BulkColumn
from .decoding_memory import limit_of
from .pinned_file import PinnedReader, read_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import ColumnDescriptor

    from .selection import SelectedField


# The most bytes and arrays that ``Scratch`` keeps for each thread.
_MOST_KEPT: Final = 64 << 20
_ARRAYS_KEPT: Final = 4
# The spans of all leaves of a file with up to so many are found together.
_NARROW: Final = 64
# The encodings of values and of levels. Writers name BIT_PACKED for a required column, which has no
# levels.
_READABLE: Final = sum(
    1 << each
    for each in (
        Encoding.PLAIN,
        Encoding.PLAIN_DICTIONARY,
        Encoding.RLE_DICTIONARY,
        Encoding.RLE,
        Encoding.BIT_PACKED,
    )
)


def _is_number(type: pa.DataType, leaf: ColumnDescriptor) -> bool:
    """Whether Arrow's ``type`` holds the numbers of a leaf as they are stored, or narrower.

    The type in a stored Arrow schema may have another unit than the numbers.
    """
    if leaf.type not in NUMBER_WIDTHS:
        return False
    t, natural = pa.types, leaf_type(leaf)
    if t.is_timestamp(type) and t.is_timestamp(natural):
        return bool(type.unit == natural.unit)
    usual = (
        t.is_integer(type) or t.is_floating(type) or t.is_date32(type) or t.is_time(type)
        or t.is_decimal128(type)
    )  # fmt: skip
    return bool(usual and type == natural)


@dataclass(frozen=True, slots=True, eq=False)
class LeafChunks:
    """The whole chunks of one leaf of a file: ``spans`` by row group (``bulk_chunks``)."""

    leaf: int
    kind: BulkKind
    spans: NDArray[np.int64]
    #: about how many bytes each takes, stored and decoded
    sizes: Sequence[int]

    def of(self, groups: Sequence[int]) -> NDArray[np.int64]:
        """The spans of some row groups, ascending."""
        return self.spans if len(groups) == len(self.spans) else self.spans[list(groups)]

    def size(self, groups: Sequence[int]) -> int:
        """About how many bytes some chunks take, stored and decoded."""
        return sum([self.sizes[group] for group in groups])


def leaf_chunks(footer: FooterArrays, size: int, selected: SelectedField) -> LeafChunks | None:
    """The chunks of a field of the root in a file of ``size`` bytes; ``None`` where they are not of
    the usual forms."""
    kind = _kind(selected)
    if kind is None or not footer.num_row_groups or dictionaries_lack_headers(footer.created_by):
        return None
    leaf = selected.shape.leaves[0]
    together = footer.num_leaves <= _NARROW
    first, stop = (0, footer.num_leaves) if together else (leaf, leaf + 1)
    spans = footer.by_row_group(_spans, first, stop)[:, leaf - first]
    sizes = []
    for start, length, rows, _, decoded in spans.tolist():
        if start < 0 or length > size - start:
            return None
        sizes.append(length + max(length, decoded) + VALUE * rows)
    return LeafChunks(leaf, kind, spans, sizes)


@lru_cache(maxsize=256)
def _kind(selected: SelectedField) -> BulkKind | None:
    """What chunks of this field share; ``None`` if they are not of a usual type."""
    type, leaf = selected.field.type, selected.leaf
    if leaf is None or leaf.max_repetition_level or leaf.max_definition_level > 1:
        return None
    try:
        if leaf.type is Type.BYTE_ARRAY:
            usual = is_binary(type) and is_binary(leaf_type(leaf))
        else:
            usual = _is_number(type, leaf)
    except SkipstoneError:
        return None
    return _shared(type, leaf.type, leaf.max_definition_level == 1) if usual else None


# Equal kinds share one object: comparing types of Arrow takes long.
_shared = lru_cache(1024)(BulkKind)


def _spans(footer: FooterArrays, first: int, stop: int) -> NDArray[np.int64]:
    """The spans of the chunks of some leaves, int64 (R, stop - first, SPAN); the offset of an
    unusual one is -1."""

    def of(name: str) -> NDArray[np.int64]:
        return footer.chunk(name)[:, first:stop]

    start, end = of("start"), of("stop")
    rows = np.broadcast_to(footer.group("num_rows")[:, np.newaxis], start.shape)
    usual = (
        (of("encodings") & ~_READABLE == 0)
        & (of("num_values") == rows)
        & (of("encrypted") <= 0)
        & (of("has_meta_data") == 1)
        & (footer.places("file_path")[0][:, first:stop] < 0)
        & (start >= 0)
        & (end >= start)
    )
    offset, length = np.where(usual, start, -1), np.where(usual, end - start, 0)
    decoded = of("total_uncompressed_size")
    return np.stack([offset, length, rows, of("codec"), decoded], axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class FilePart:
    """A read of the file at ``path``: for each column the spans of chunks."""

    path: str
    reader: PinnedReader
    columns: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, eq=False)
class BulkColumns:
    """The decoded columns; ``done[i]`` is False if part ``i`` was not decoded: then its values are
    undefined.

    ``first[c]`` are the rows of column ``c`` before each part, and all its rows at the end.
    """

    #: Arrow arrays, or each a ``BulkColumn``
    arrays: tuple[Any, ...]
    first: tuple[NDArray[np.int64], ...]
    done: NDArray[np.bool_]


def read_bulk(
    parts: Sequence[FilePart],
    kinds: Sequence[BulkKind],
    kernels: BulkKernels | None,
    *,
    lazy: bool = False,
    verify_checksums: bool = True,
    memory: int | None = None,
    room: Room | None = None,
) -> BulkColumns:
    """Columns of these ``kinds``, each of the chunks of all parts. A file that cannot be read is
    not ``done``. With ``lazy``, columns are not decoded yet (``BulkColumn``). Without ``kernels``
    all parts are done, or none."""
    room = new_memory if room is None else room
    columns = [
        [part.columns[at] for part in parts] or [np.empty((0, SPAN), np.int64)]
        for at in range(len(kinds))
    ]
    counts = [[len(each) for each in column] for column in columns]
    spans = [np.concatenate(column) for column in columns]
    files = [(part.reader, part.path) for part in parts]
    buffers, done = fetched(files, spans, counts, room)
    arrays, firsts = [], []
    for kind, mine, count, buffer in zip(kinds, spans, counts, buffers, strict=True):
        part_of = np.repeat(np.arange(len(count)), count)
        rows, limit = mine[:, ROWS], limit_of(memory, len(buffer))
        if kernels is None:
            from .bulk_arrow import decoded

            whole = decoded(kind, mine, buffer, verify_checksums=verify_checksums, memory=memory)
            if whole is None or not done.all():
                return _none(parts, kinds)
            arrays.append(whole)
            firsts.append(_first_rows(part_of, rows, len(parts)))
            continue
        if float(rows.sum(dtype=np.float64)) * VALUE > limit:
            return _none(parts, kinds)
        chunks = BulkChunks(
            kind=kind,
            buffer=buffer,
            stops=np.cumsum(mine[:, LENGTH]),
            codec=mine[:, CODEC],
            first=np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)]),
            failed=~done[part_of],
            verify=verify_checksums,
            limit=limit,
            room=room,
            kernels=kernels,
        )
        made, failed = _column(chunks, lazy)
        arrays.append(made)
        done[part_of[failed]] = False
        firsts.append(_first_rows(part_of, rows, len(parts)))
    return BulkColumns(tuple(arrays), tuple(firsts), done)


def _column(chunks: BulkChunks, lazy: bool) -> tuple[pa.Array | BulkColumn, NDArray[np.bool_]]:
    """The column, decoded or to be decoded, and the chunks that have failed."""
    try:
        if not lazy:
            return chunks.decoded()
        if chunks.walked():
            return BulkColumn(chunks), chunks.status != 0
    except MemoryError:  # pages that claim more memory than the process may use
        pass
    return chunks.nothing


def _first_rows(
    part_of: NDArray[np.int64], rows: NDArray[np.int64], parts: int
) -> NDArray[np.int64]:
    held = np.bincount(part_of, weights=rows, minlength=parts).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(held)])


def _none(parts: Sequence[FilePart], kinds: Sequence[BulkKind]) -> BulkColumns:
    """The result if no part is decoded."""
    first = np.zeros(len(parts) + 1, np.int64)
    arrays = tuple([pa.nulls(0, kind.type) for kind in kinds])
    return BulkColumns(arrays, (first,) * len(kinds), np.zeros(len(parts), np.bool_))


def new_memory(size: int) -> NDArray[np.uint8]:
    """A ``Room`` of new memory for each call."""
    return np.empty(size, np.uint8)


class Scratch:
    """Memory for repeated use: new pages of memory cost more than the copies that fill them."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        #: ascending by length
        self._free: list[NDArray[np.uint8]] = []
        self._lock = Lock()

    @contextmanager
    def lease(self) -> Iterator[Room]:
        """Lends arrays until the end of the block."""
        given: list[NDArray[np.uint8]] = []

        def room(size: int) -> NDArray[np.uint8]:
            with self._lock:
                at = bisect_left(self._free, size, key=len)
                found = self._free.pop(at) if at < len(self._free) else new_memory(size)
            given.append(found)
            return found[:size]

        try:
            yield room
        finally:
            with self._lock:
                free = sorted([*self._free, *given], key=len)[-_ARRAYS_KEPT * self._threads :]
                while sum(map(len, free)) > _MOST_KEPT * self._threads:
                    free.pop()
                self._free = free


def fetched(
    files: Sequence[tuple[PinnedReader, str]],
    ranges: Sequence[NDArray[np.int64]],
    counts: Sequence[Sequence[int]],
    room: Room,
    gap: int = 0,
) -> tuple[list[NDArray[np.uint8]], NDArray[np.bool_]]:
    """For each column the bytes of all its ``ranges``, one after another, and which files could be
    read. ``counts`` says how many ranges each file has, and may cover the files several times. One
    call reads ranges of a file that are at most ``gap`` apart."""
    sizes = [int(mine[:, LENGTH].sum()) + ROOM for mine in ranges]
    ends = list(accumulate(sizes, initial=0))
    into = room(ends[-1] + gap)
    found, owners = [], []
    for mine, count, start in zip(ranges, counts, ends, strict=False):
        length = mine[:, LENGTH]
        place = np.cumsum(length) - length + start
        found.append(np.stack([mine[:, OFFSET], length, place], axis=1))
        owners.append(np.repeat(np.resize(np.arange(len(files)), len(count)), count))
    every, owner = np.concatenate(found), np.concatenate(owners)
    order = np.lexsort((every[:, 0], owner))
    every, owner = every[order], owner[order]
    if gap:
        # The bytes between two ranges are put where nothing reads them.
        stop = every[:-1, 0] + every[:-1, 1]
        between = every[1:, 0] - stop
        near = np.flatnonzero((owner[1:] == owner[:-1]) & (between > 0) & (between <= gap))
        if len(near):
            aside = np.stack([stop[near], between[near], np.full(len(near), ends[-1])], axis=1)
            every = np.insert(every, near + 1, aside, axis=0)
            owner = np.insert(owner, near + 1, owner[near])
    first = np.searchsorted(owner, np.arange(len(files) + 1))
    done = read_files(files, first, every, into)
    return [into[a:b] for a, b in pairwise(ends)], done
