"""Whole columns of many files, decoded together.

Where many files are read, the time goes into opening, calling and combining, file by file and page
by page. Here the chunks of one column in a batch of row groups are read into one buffer, and each
step (page headers, decompression, levels, values) is one call of compiled code over all of them,
without the lock of the interpreter (``bulk_jit``). The result is one Arrow array: for strings by
dictionary, indices into the dictionaries of all chunks, one after another.

This is a faster way to the same values, for the usual forms:

    columns       flat, plaintext, in the file itself
    types         integers, floats, dates, times and decimals of INT32 and INT64; strings and binary
    encodings     PLAIN and dictionary, of both page versions
    codecs        all; Snappy in compiled code

A chunk in any other form, or with anything wrong in it, is not decoded here (``BulkColumns.done``).
``FileReader`` reads it, and reports the error. Sizes that pages claim are checked against the
limit of memory before anything is allocated.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from skipstone.errors import SkipstoneError
from skipstone.parquet.arrow.arrow_types import ShapeKind, leaf_type
from skipstone.parquet.format.enums import Encoding, Type

from .bulk_chunks import (
    ROOM,
    VALUE,
    WIDTHS,
    BulkChunks,
    BulkKernels,
    BulkKind,
    is_text,
)
from .bulk_values import StoredColumn
from .decoding_memory import limit_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import ColumnDescriptor

    from .bulk_chunks import Room
    from .chunk_pages import ChunkPages
    from .pinned_file import PinnedReader
    from .selection import SelectedField


# Arrays that ``Scratch`` keeps.
_LARGEST_KEPT: Final = 16 << 20
_MOST_KEPT: Final = 6
# Of values and of levels. BIT_PACKED is named for levels that a required column does not have.
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
    if leaf.type not in WIDTHS:
        return False
    t, natural = pa.types, leaf_type(leaf)
    if t.is_timestamp(type) and t.is_timestamp(natural):
        return bool(type.unit == natural.unit)
    usual = (
        t.is_integer(type) or t.is_floating(type) or t.is_date32(type) or t.is_time(type)
        or t.is_decimal128(type)
    )  # fmt: skip
    return bool(usual and type == natural)


class ChunkSpan(NamedTuple):
    """What is read of a chunk: ``ranges`` of offset and length, the dictionary page first, whose
    data pages hold ``rows``; ``page_rows`` are those of each where these are only some pages."""

    ranges: tuple[tuple[int, int], ...]
    rows: int
    codec: int
    page_rows: tuple[int, ...] | None = None

    @property
    def length(self) -> int:
        """Bytes of all ranges."""
        return sum(length for _, length in self.ranges)


@dataclass(frozen=True, slots=True, eq=False)
class LeafChunks:
    """The whole chunks of one leaf of a file, by row group."""

    leaf: int
    kind: BulkKind
    spans: tuple[ChunkSpan, ...]
    _sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        sizes = tuple([2 * span.length + VALUE * span.rows for span in self.spans])
        object.__setattr__(self, "_sizes", sizes)

    def size(self, groups: Sequence[int]) -> int:
        """About how many bytes some chunks take, stored and decoded."""
        return sum([self._sizes[group] for group in groups])


def leaf_chunks(
    footer: FooterArrays, chunk_pages: ChunkPages, selected: SelectedField
) -> LeafChunks | None:
    """The chunks of a field of the root; ``None`` where they are not of the usual forms."""
    if selected.shape.kind is not ShapeKind.LEAF or not footer.num_row_groups:
        return None
    leaf = selected.shape.leaves[0]
    described = footer.schema.leaves[leaf]
    if described.max_repetition_level or described.max_definition_level > 1:
        return None
    type, is_string = selected.field.type, described.type is Type.BYTE_ARRAY
    encodings = footer.chunk("encodings")[:, leaf]
    values, rows = footer.chunk("num_values")[:, leaf], footer.group("num_rows")
    try:
        if is_string:
            usual = is_text(type) and is_text(leaf_type(described))
        else:
            usual = _is_number(type, described)
        if (
            not usual
            or np.any(encodings & ~_READABLE)
            or np.any(values != rows)
            or np.any(footer.chunk("encrypted")[:, leaf] > 0)
            or np.any(footer.chunk("has_meta_data")[:, leaf] != 1)
            or np.any(footer.places("file_path")[0][:, leaf] >= 0)
        ):
            return None
        places = [chunk_pages.place((group, leaf)) for group in range(len(rows))]
    except SkipstoneError:
        return None
    spans = [
        ChunkSpan(((each.start, each.stop - each.start),), each.rows, each.codec) for each in places
    ]
    kind = _kind(type, described.type, described.max_definition_level == 1)
    return LeafChunks(leaf, kind, tuple(spans))


# One object for equal kinds: types of Arrow take long to compare.
_kind = lru_cache(1024)(BulkKind)


@dataclass(frozen=True, slots=True, eq=False)
class FilePart:
    """What is read of the file at ``path``: for each column the chunks."""

    path: str
    reader: PinnedReader
    columns: tuple[Sequence[ChunkSpan], ...]


@dataclass(frozen=True, slots=True, eq=False)
class BulkColumns:
    """The decoded columns; ``done[i]`` is False where part ``i`` was not decoded, and its values
    mean nothing.

    ``first[c]`` are the rows of column ``c`` before each part, and all its rows at the end.
    """

    #: Arrow arrays, or each a ``StoredColumn``
    arrays: tuple[Any, ...]
    first: tuple[NDArray[np.int64], ...]
    done: NDArray[np.bool_]


def read_bulk(
    parts: Sequence[FilePart],
    kinds: Sequence[BulkKind],
    kernels: BulkKernels,
    *,
    lazy: bool = False,
    verify_checksums: bool = True,
    memory: int | None = None,
    room: Room | None = None,
) -> BulkColumns:
    """Columns of these ``kinds``, each of the chunks of all parts. A file that cannot be read is
    not ``done``. With ``lazy``, columns are not decoded yet (``StoredColumn``)."""
    done = np.ones(len(parts), np.bool_)
    room = _new if room is None else room
    fetched = _fetched(parts, len(kinds), done, room)
    arrays, firsts = [], []
    for at, kind in enumerate(kinds):
        spans = [span for part in parts for span in part.columns[at]]
        part_of = np.repeat(np.arange(len(parts)), [len(part.columns[at]) for part in parts])
        buffer, stops = fetched[at]
        limit = limit_of(memory, len(buffer))
        every = [span.rows for span in spans]
        if sum(every) * VALUE > limit:
            return _none(parts, kinds)
        rows = np.array(every, np.int64)
        chunks = BulkChunks(
            kind=kind,
            buffer=buffer,
            stops=stops,
            codec=np.array([span.codec for span in spans], np.int64),
            first=np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)]),
            failed=~done[part_of],
            page_rows={
                chunk: list(span.page_rows)
                for chunk, span in enumerate(spans)
                if span.page_rows is not None
            },
            verify=verify_checksums,
            limit=limit,
            room=room,
            kernels=kernels,
        )
        made: pa.Array | StoredColumn
        try:
            if not lazy:
                made, failed = chunks.decoded()
            elif chunks.walked():
                made, failed = StoredColumn(chunks), chunks.status != 0
            else:
                made, failed = chunks.nothing
        except MemoryError:  # pages that claim much, where less is allowed to the process
            made, failed = chunks.nothing
        arrays.append(made)
        done[part_of[failed]] = False
        held = np.bincount(part_of, weights=rows, minlength=len(parts)).astype(np.int64)
        firsts.append(np.concatenate([np.zeros(1, np.int64), np.cumsum(held)]))
    return BulkColumns(tuple(arrays), tuple(firsts), done)


def _none(parts: Sequence[FilePart], kinds: Sequence[BulkKind]) -> BulkColumns:
    """No part is decoded."""
    first = np.zeros(len(parts) + 1, np.int64)
    arrays = tuple([pa.nulls(0, kind.type) for kind in kinds])
    return BulkColumns(arrays, (first,) * len(kinds), np.zeros(len(parts), np.bool_))


def _new(size: int) -> NDArray[np.uint8]:
    return np.empty(size, np.uint8)


class Scratch:
    """Memory that is used again: new pages of memory cost more than the copies that fill them."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []

    @contextmanager
    def lease(self) -> Iterator[Room]:
        """Gives arrays that are taken back at the end of the block."""
        given: list[NDArray[np.uint8]] = []

        def room(size: int) -> NDArray[np.uint8]:
            try:
                found = self._free.pop()
            except IndexError:
                found = _new(0)
            if len(found) < size:
                found = _new(size)
            if size <= _LARGEST_KEPT:
                given.append(found)
            return found[:size]

        try:
            yield room
        finally:
            self._free += given
            del self._free[:-_MOST_KEPT]


def _fetched(
    parts: Sequence[FilePart], columns: int, done: NDArray[np.bool_], room: Room
) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """For each column the bytes of all chunks, one after another, and where each ends."""
    found, views = [], []
    for at in range(columns):
        lengths = [span.length for part in parts for span in part.columns[at]]
        stops = np.cumsum(np.array(lengths, np.int64))
        buffer = room((int(stops[-1]) if len(stops) else 0) + ROOM)
        found.append((buffer, stops))
        views.append(memoryview(buffer.data))
    ends = [0] * columns
    for number, part in enumerate(parts):
        wanted: list[tuple[int, memoryview]] = []
        for at, (spans, view) in enumerate(zip(part.columns, views, strict=True)):
            for span in spans:
                for offset, length in span.ranges:
                    wanted.append((offset, view[ends[at] : ends[at] + length]))
                    ends[at] += length
        offsets, into = [each[0] for each in wanted], [each[1] for each in wanted]
        try:
            done[number] = part.reader.read_into(part.path, offsets, into)
        except (SkipstoneError, OSError):  # the reader of single files reports it
            done[number] = False
    return found
