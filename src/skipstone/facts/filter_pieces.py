"""Bloom filters in pieces: a lookup of a few keys reads the KiB of each filter that has the bit,
and not the whole column.

In a part with large filters, each column of filters has a column ``<name>~pieces``: one binary per
fact row, null where the filter is null or cannot be parsed. Its value is uint32, little-endian::

    length   of the stored filter, in bytes
    base     of its first block (``xskipper/format/bloom_probe.py``), from its first byte
    hashes   hash functions
    words    64-bit words
    version  of the sketch
    seed     of the sketch, as int32
    CRC-32   of each 1,024 bytes of the stored filter; the last piece may be shorter

The column takes 0.4 % of the size of the filters. ``encode_part`` makes it whenever it writes a
part, so pieces always fit the filters next to them.

**Soundness.** The column of pieces is read like any other, with the checksums of its pages. The
checksum of a piece is compared before any byte of the piece decides anything. The place of a filter
follows from the page headers and the lengths of the filters, which must fill the pages exactly; a
wrong place has a wrong checksum. If anything is wrong, the whole column is read, and its own
checksums find the damage.

Only unencrypted parts on a local disk are read in pieces: a request to an object store takes longer
than reading the column.
"""

from __future__ import annotations

import copy
import os
from functools import partial
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from skipstone._arrays import validity
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, in_words
from skipstone.indexes.bloom import Bloom, items_of
from skipstone.pruning import Answer, Bounds, Cause, Reason
from skipstone.pruning.column_types import binary_parts
from skipstone.pruning.interval import with_nulls
from skipstone.pruning.kind import Stored
from skipstone.storage import LocalStorage
from skipstone.storage.base import count_read, naming
from skipstone.xskipper.format.bloom_probe import FRAMED, BlobChunk, BlobColumn
from skipstone.xskipper.format.java_bloom import BLOCK
from skipstone.xskipper.format.sketch import MAX_HASHES

from .parts import PIECES
from .slices import filters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Fetched, Units
    from skipstone.pruning.kind import Rows
    from skipstone.storage import Storage
    from skipstone.xskipper.format.bloom_probe import Items

    from .match import FileMatch, Identities
    from .part_columns import FactField
    from .parts import Part

    I64 = NDArray[np.int64]


PIECE: Final = 1024
_HEAD: Final = 6
# The most bytes of a page header and of the length of its levels.
_HEADER: Final = 512
# Below this many bytes per filter, or per column, reading the whole column is as fast.
_LEAST_FILTER, _LEAST_COLUMN = 4 << 10, 256 << 10


def pieces_of(filters: pa.ChunkedArray) -> pa.Array | None:
    """The column of pieces of ``filters``; ``None`` if reading the whole column is as fast."""
    count = len(filters) - filters.null_count
    if filters.nbytes < max(_LEAST_COLUMN, count * _LEAST_FILTER):
        return None
    found: list[bytes | None] = []
    for array in filters.chunks:
        (chunk,) = BlobColumn(array).chunks
        data, offsets = binary_parts(array)
        view, starts, ends = data.data, offsets[:-1], offsets[1:]
        numbers = (ends - starts, chunk.base - starts, chunk.hashes, chunk.words)
        heads = np.stack([*numbers, chunk.version, chunk.seed & 0xFFFFFFFF], axis=1).astype("<u4")
        rows = zip(chunk.ok.tolist(), starts.tolist(), ends.tolist(), heads, strict=True)
        for usable, start, end, head in rows:
            if not usable:
                found.append(None)
                continue
            sums = [crc32(view[at : min(at + PIECE, end)]) for at in range(start, end, PIECE)]
            found.append(head.tobytes() + np.array(sums, "<u4").tobytes())
    return pa.array(found, pa.binary())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceChunk(BlobChunk):
    """The filters of one part, read piece by piece. A filter has ``length`` bytes at ``at`` of the
    file; ``base`` counts from its first byte.

    ``sums`` are the checksums of all filters; ``first`` is where those of each filter begin.
    Probes raise ``FormatError`` and ``OSError``.
    """

    path: str
    storage: LocalStorage
    at: I64
    length: I64
    sums: NDArray[np.uint32]
    first: I64

    def taken(self, rows: I64, place: I64) -> NDArray[np.uint8]:
        """The bytes at these places of the filters, from checked pieces."""
        number, inside = np.divmod(place, PIECE)
        size = np.minimum(PIECE, self.length[rows] - number * PIECE)
        offset = self.at[rows] + number * PIECE
        with naming(self.path), self.storage.open(self.path) as file:
            descriptor, pread = file.fileno(), os.pread
            pairs = zip(size.tolist(), offset.tolist(), strict=True)
            read = [pread(descriptor, length, at) for length, at in pairs]
        data = b"".join(read)
        count_read(self.path, int(offset.min(initial=0)), len(data))
        found = np.fromiter(map(crc32, read), np.uint32, len(read))
        wrong = np.flatnonzero(found != self.sums[self.first[rows] + number])
        if len(data) != size.sum() or len(wrong):
            offset = offset[wrong] if len(wrong) else offset
            text = "the checksum of a piece of a Bloom filter is wrong"
            raise FormatError(text, file=self.path, offset=int(offset[0]))
        starts = np.cumsum(size) - size
        taken: NDArray[np.uint8] = np.frombuffer(data, np.uint8)[starts + inside]
        return taken


def open_pieces(part: Part, name: str, storage: Storage) -> BlobColumn | None:
    """The filters of the column ``name`` of a part, ready to be read in pieces; ``None`` if the
    column must be read whole."""
    column = f"{name}{PIECES}"
    if not isinstance(storage, LocalStorage) or part.opened is not None or part.group is not None:
        return None
    if column not in part.schema.names or part.schema.field(column).type != pa.binary():
        return None
    try:
        pieces = part.read(storage, [column]).column(0).combine_chunks()
        return BlobColumn.of_chunks([_chunk(part, name, pieces, storage)])
    except (OSError, SkipstoneError, ValueError, LookupError):
        return None  # the column of the filters reports what is wrong with them


def _chunk(part: Part, name: str, pieces: pa.Array, storage: LocalStorage) -> PieceChunk:
    data, offsets = binary_parts(pieces)
    ok = validity(pieces)
    if np.any(offsets % 4) or np.any(np.diff(offsets)[ok] < 4 * _HEAD):
        raise FormatError("pieces of filters", file=part.path)
    numbers = data[: len(data) // 4 * 4].view("<u4")
    first = offsets[:-1] // 4
    heads = np.zeros((_HEAD, len(ok)), np.int64)
    heads[:, ok] = numbers[first[ok][:, None] + np.arange(_HEAD)].T
    length, base, hashes, words, version, seed = heads
    start = np.where(version == 2, 16, 12)
    payload = start + 8 * words
    full, tail = np.divmod(payload, BLOCK)
    framed = base + full * FRAMED + tail + np.where(tail == 0, 0, np.where(tail <= 0xFF, 2, 5)) + 1
    count = np.diff(offsets) // 4 - _HEAD
    right = (framed == length) & (count == -(-length // PIECE)) & (words >= 1)
    right &= (hashes >= 1) & (hashes <= MAX_HASHES) & ((version == 1) | (version == 2))
    if not right[ok].all():
        raise FormatError("pieces of filters", file=part.path)
    return PieceChunk(
        data=np.empty(0, np.uint8),
        ok=ok,
        base=base,
        payload=payload,
        start=start,
        hashes=hashes,
        words=words,
        version=version,
        seed=np.where(seed >= 1 << 31, seed - (1 << 32), seed),
        path=part.path,
        storage=storage,
        at=_places(part, name, length, storage),
        length=length,
        sums=numbers,
        first=first + _HEAD,
    )


def _places(part: Part, name: str, length: I64, storage: LocalStorage) -> I64:
    """Where each filter lies in the file; those of ``length`` 0 are null."""
    found = np.zeros(len(length), np.int64)
    row = 0
    with storage.open(part.path) as file:
        for group, (start, stored) in enumerate(part.places([name])):
            first, last = row, row + part.metadata.row_group(group).num_rows
            at, stop = start, start + stored
            while row < last:
                at, count = _page(file.fileno(), at, stop, length[row:last], found[row:last])
                row += count
            if at != stop or row != last:
                raise FormatError("pages of filters", file=part.path, offset=first)
    if row != len(length):
        raise FormatError("filters", file=part.path, expected=len(length), got=row)
    return found


def _page(descriptor: int, at: int, stop: int, length: I64, places: I64) -> tuple[int, int]:
    """Fills in the places of the filters of the page at ``at``; returns where it ends, and its
    rows."""
    from skipstone.parquet.format.enums import Encoding, PageType
    from skipstone.parquet.format.metadata import PageHeader
    from skipstone.parquet.thrift.compact import Reader

    reader = Reader(memoryview(os.pread(descriptor, _HEADER, at)), 0, base=at)
    header = PageHeader.read(reader)
    page = header.data_page_header
    body = at + reader.at
    end = body + header.compressed_page_size
    if (
        header.type != PageType.DATA_PAGE
        or page is None
        or page.encoding != Encoding.PLAIN
        or header.compressed_page_size != header.uncompressed_page_size
        or not 0 < page.num_values <= len(length)
        or not body < end <= stop
    ):
        raise FormatError("a page of filters", offset=at)
    levels = int.from_bytes(os.pread(descriptor, 4, body), "little")
    mine = length[: page.num_values]
    sizes = np.where(mine > 0, mine + 4, 0)
    ends = np.cumsum(sizes) + body + 4 + levels
    if ends[-1] != end:
        raise FormatError("a page of filters", offset=at, expected=int(ends[-1]), got=end)
    places[: page.num_values] = ends - mine
    return end, int(page.num_values)


# -- as evidence -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PiecedPart:
    """The filters of one part: its rows among those of ``Stored``, and how to read all of them."""

    name: str
    rows: slice
    blobs: BlobColumn
    read: Callable[[], pa.Array]


class PiecedBloom(Bloom):
    """Bloom filters that are read piece by piece, with the answers of whole filters."""

    parts: Sequence[PiecedPart]
    notes: list[Reason]

    def known(self, stored: Stored) -> BoolArray:
        """Flags of the rows with a filter."""
        found: BoolArray = stored.cache["known"]
        return found

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf."""
        asking = copy.copy(self)
        asking.notes = []
        answers = super(PiecedBloom, asking).answer(leaves, units, have)
        notes = tuple(dict.fromkeys(asking.notes))
        return [Answer(bounds=each.bounds, reasons=(*each.reasons, *notes)) for each in answers]

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """``may`` where any value of the leaf may occur; never ``must``."""
        among = np.ones(len(rows.stored.rows), np.bool_)
        if rows.at is not None:
            among[:] = False
            among[rows.at] = True
        items, some = items_of(leaf), np.ones(len(among), np.bool_)
        for part in self.parts:
            try:
                found = part.blobs.might_contain_any(items, among[part.rows])
            except (OSError, SkipstoneError) as error:
                found = self._whole(part, items, among[part.rows], error)
            some[part.rows] = found
        if rows.at is not None:
            some = some[rows.at]
        return with_nulls(leaf.op, some, np.zeros_like(some), rows.rows, rows.nulls)

    def _whole(
        self, part: PiecedPart, items: Items, among: BoolArray, error: Exception
    ) -> BoolArray:
        """The answer of the whole column, for a part whose pieces cannot be used."""
        text = f"{in_words(error)}: the filters are read whole"
        self.notes.append(Reason(cause=Cause.CORRUPT, subject=self._subject, text=text))
        try:
            return BlobColumn(part.read()).might_contain_any(items, among)
        except Exception as whole:  # evidence is advice
            self.notes.append(Reason.of_error(f"fact part {part.name}", whole))
            return np.ones(len(among), np.bool_)


def read_back_pieces(
    field: FactField,
    sliced: Collection[str],
    identities: Identities,
    match: FileMatch,
    nulls: Callable[[], NDArray[np.int64]],
    storage: Storage,
) -> tuple[list[PiecedBloom], frozenset[str]]:
    """The evidence, if any, of the filters that can be read in pieces, and the names of their
    parts. Parts in ``sliced`` are left out. ``nulls`` gives counts over all fact rows."""
    parts: list[PiecedPart] = []
    held: list[NDArray[np.int64]] = []
    first = 0
    for part in identities.parts:
        if field.key not in part.by_key or part.name in sliced:
            continue
        name = part.by_key[field.key].arrow.name
        blobs = open_pieces(part, name, storage)
        if blobs is not None:
            rows, read = slice(first, first + part.rows), partial(filters_of, part, name, storage)
            parts.append(PiecedPart(name=part.name, rows=rows, blobs=blobs, read=read))
            held.append(identities.starts[part.name] + np.arange(part.rows))
            first += part.rows
    if not parts:
        return [], frozenset()
    assert field.types is not None
    assert field.definition is not None
    at, known = np.concatenate(held), np.concatenate([each.blobs.ok for each in parts])
    stored = Stored(
        type=field.types.field(0).type,
        values=pa.nulls(0, pa.binary()),
        rows=identities.rows[at],
        nulls=nulls()[at],
        row_of_file=match.row_of_file(at, known),
        cache={"known": known},
    )
    made = PiecedBloom.from_params(field.types.field(0).name, dict(field.definition.params))
    made.parts, made.notes = parts, []
    return [made.read_back(stored)], frozenset(part.name for part in parts)
