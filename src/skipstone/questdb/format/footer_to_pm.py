"""Makes a ``_pm`` for any Parquet file from only its footer, without an object per column chunk.

A footer of 10,000 columns takes milliseconds, so that a build can make a ``_pm`` for every file.

Statistics are ``min_value`` and ``max_value`` verbatim. The deprecated ``min`` and ``max`` are left
out, and so are values that are too long for a ``_pm``. Statistics and filters of an encrypted
column are left out: a ``_pm`` is not encrypted. Out-of-line bytes of a block are in the order in
which QuestDB converts a footer: minimum, maximum and Bloom filter of each column in turn.

Bloom filters take bytes of the file: ``bloom_places`` says which.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.bloom_filter import BloomFilterHeader
from skipstone.parquet.format.enums import Encoding
from skipstone.parquet.thrift.compact import Reader

from ..._arrays import within
from .layout import (
    BOUNDS,
    CHUNK,
    CHUNK_SIZE,
    DISTINCT_COUNT_PRESENT,
    MAX_BLOCK_OFFSET,
    MAX_OUT_OF_LINE,
    MAX_STAT_PRESENT,
    MIN_STAT_PRESENT,
    NULL_COUNT_PRESENT,
)
from .writer import ended

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from skipstone.parquet.format.footer_arrays import FooterArrays

    from .layout import Bools, Bytes, Ints, Structs
    from .pm_columns import PmColumns
    from .writer import PmFooter


#: What to do with filters: their bitsets into the _pm, or where they lie in the Parquet file.
BloomMode: TypeAlias = Literal["inlined", "external"]

# ENCODINGS of a chunk: the bit of each encoding of Parquet.
_ENCODING_BITS: Final[dict[int, int]] = {
    Encoding.PLAIN: 1 << 0,
    Encoding.PLAIN_DICTIONARY: 1 << 1,
    Encoding.RLE_DICTIONARY: 1 << 1,
    Encoding.DELTA_BINARY_PACKED: 1 << 2,
    Encoding.DELTA_LENGTH_BYTE_ARRAY: 1 << 3,
    Encoding.DELTA_BYTE_ARRAY: 1 << 4,
    Encoding.BYTE_STREAM_SPLIT: 1 << 5,
}
#: No header of a bloom filter is longer.
HEADER_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class BloomPlace:
    """Where the filter of a leaf in a row group lies in the Parquet file, its header included."""

    row_group: int
    leaf: int
    offset: int
    length: int


def bloom_places(footer: FooterArrays) -> tuple[BloomPlace, ...]:
    """The filters whose offset and length the footer states. For "external" the first
    ``HEADER_BYTES`` bytes of each are enough.
    """
    offsets, lengths = footer.chunk("bloom_filter_offset"), footer.chunk("bloom_filter_length")
    there = (offsets > 0) & (lengths > 0) & ~_encrypted(footer)
    return tuple(
        BloomPlace(r, c, int(offsets[r, c]), int(lengths[r, c]))
        for r, c in np.argwhere(there).tolist()
    )


def convert(
    footer: FooterArrays,
    columns: PmColumns,
    end: PmFooter,
    *,
    blooms: Mapping[BloomPlace, bytes] | None = None,
    bloom_mode: BloomMode = "inlined",
    silent: Collection[int] = (),
    timestamps: Mapping[int, tuple[int, int]] | None = None,
) -> bytes:
    """The ``_pm`` of a Parquet file with this footer; ``columns`` are ``PmColumns.of`` the footer.

    ``blooms`` are bytes by place (see ``bloom_places``). A filter that is missing there, or is not
    an uncompressed split-block filter, is left out. ``silent`` leaves get no statistics and no
    filters. ``timestamps`` are (minimum, maximum) of the designated timestamp by row group, for row
    groups whose footer has none.

    ``FormatError`` where the footer contradicts itself; ``UnsupportedError`` for chunks in other
    files and for metadata that is encrypted.
    """
    if np.any(footer.places("file_path")[0] >= 0):
        raise UnsupportedError(
            "a column chunk in another file", hint="make the _pm of the file that holds the data"
        )
    if np.any(footer.chunk("has_meta_data") != 1):
        raise UnsupportedError("a column has encrypted metadata", hint="decrypt the footer first")
    hidden = _encrypted(footer)
    hidden[:, list(silent)] = True
    external = bloom_mode == "external"
    entries, bitsets = _filters(blooms or {}, hidden, bloom_mode)
    if external:
        used = np.flatnonzero(np.any(entries[:, :, 1] > 0, axis=0))
    else:
        used = np.unique(np.array([column for _, column in bitsets], np.int64))
    head = columns.head(used.tolist(), external=external)
    head.check()
    chunks = _chunks(footer, hidden)
    outside = _outside(footer, hidden, chunks)
    if columns.designated >= 0:
        _fill_timestamps(chunks[:, columns.designated], outside[:, columns.designated], timestamps)
    region, starts, bitset_places = _region(footer, chunks, outside, bitsets)
    rows = _natural("num_rows", footer.group("num_rows"))
    out = bytearray(head.to_bytes())
    blocks: list[int] = []
    block_head = 8 + CHUNK_SIZE * hidden.shape[1]
    for number in range(len(rows)):
        out += bytes(-len(out) % 8)
        if len(out) > MAX_BLOCK_OFFSET:
            raise UnsupportedError(f"a row group block at byte {len(out)}")
        blocks.append(len(out))
        out += struct.pack("<Q", rows[number]) + chunks[number].tobytes()
        out += region[starts[number] : starts[number + 1]].tobytes()
    if external:
        section = entries[:, used].tobytes()
    else:
        offsets = np.zeros(hidden.shape, np.int64)
        for (group, column), at in bitset_places.items():
            offsets[group, column] = blocks[group] + block_head + at
        section = (offsets[:, used] >> 3).astype("<u4").tobytes()
    return ended(out, end.to_bytes(previous=0, blocks=blocks, blooms=section))


def _filters(
    blooms: Mapping[BloomPlace, bytes], hidden: Bools, mode: BloomMode
) -> tuple[NDArray[np.uint64], dict[tuple[int, int], bytes]]:
    """Places of external filters, uint64 (R, C, 2), and the bytes of inlined ones by place."""
    entries = np.zeros((*hidden.shape, 2), "<u8")
    bitsets: dict[tuple[int, int], bytes] = {}
    for place, data in blooms.items():
        found = _filter(place, data, mode)
        if found is None or hidden[place.row_group, place.leaf]:
            continue
        if isinstance(found, bytes):
            bitsets[place.row_group, place.leaf] = found
        else:
            entries[place.row_group, place.leaf] = found
    return entries, bitsets


def _encrypted(footer: FooterArrays) -> Bools:
    return np.asarray(footer.chunk("encrypted") > 0)


def _natural(what: str, numbers: Ints) -> Ints:
    if numbers.size and int(numbers.min()) < 0:
        raise FormatError(what, expected="0 or more", got=int(numbers.min()))
    return numbers


def _chunks(footer: FooterArrays, hidden: Bools) -> Structs:
    """CHUNKs with everything but their bounds."""
    chunks = np.zeros(hidden.shape, CHUNK)
    codec = _natural("codec of a column chunk", footer.chunk("codec"))
    if codec.size and int(codec.max()) > 0xFF:
        raise FormatError("codec of a column chunk", expected="0 to 255", got=int(codec.max()))
    mask = footer.chunk("encodings")
    encodings = np.zeros(hidden.shape, np.uint8)
    for encoding, bit in _ENCODING_BITS.items():
        encodings[(mask >= 0) & (mask >> int(encoding) & 1 > 0)] |= bit
    # Some writers put 0 for "no dictionary"; no page lies there.
    dictionary = footer.chunk("dictionary_page_offset")
    start = np.where(dictionary > 0, dictionary, footer.chunk("data_page_offset"))
    chunks["CODEC"], chunks["ENCODINGS"] = codec, encodings
    chunks["NUM_VALUES"] = _natural("num_values", footer.chunk("num_values"))
    chunks["BYTE_RANGE_START"] = _natural("the start of a column chunk", start)
    size = footer.chunk("total_compressed_size")
    chunks["TOTAL_COMPRESSED"] = _natural("total_compressed_size", size)
    flags = np.zeros(hidden.shape, np.uint8)
    for field, bit in (
        ("null_count", NULL_COUNT_PRESENT),
        ("distinct_count", DISTINCT_COUNT_PRESENT),
    ):
        count = np.where(hidden, -1, footer.chunk(field))
        chunks[field.upper()] = np.maximum(count, 0)
        flags[count >= 0] |= bit
    chunks["STAT_FLAGS"] = flags
    return chunks


def _outside(footer: FooterArrays, hidden: Bools, chunks: Structs) -> Ints:
    """Puts bounds of up to 8 bytes into ``chunks``. Gives start and length, in the footer, of those
    that lie out of line: shape (row groups, columns, minimum and maximum, 2)."""
    found = np.zeros((*hidden.shape, 2, 2), np.int64)
    flags, sizes = chunks["STAT_FLAGS"], chunks["STAT_SIZES"]
    for at, (name, bound) in enumerate(BOUNDS.items()):
        field = f"{name.lower()}_value"
        begin, length = footer.places(field)
        length = np.where(hidden | (begin < 0) | (length > MAX_OUT_OF_LINE), 0, length)
        there, short = length > 0, (length > 0) & (length <= 8)
        flags[there] |= bound.present
        # Writers from before this field gave exact bounds or none: absent means exact.
        flags[there & (footer.chunk(f"is_{field}_exact") != 0)] |= bound.exact
        flags[short] |= bound.inlined
        sizes[short] |= (length[short] << bound.shift).astype(np.uint8)
        inside = np.arange(8) < length[short][:, None]
        taken = np.where(inside, begin[short][:, None] + np.arange(8), 0)
        raw = np.where(inside, footer.buffer[taken], 0).astype(np.uint8)
        chunks[bound.slot][short] = np.ascontiguousarray(raw).view("<u8").ravel()
        found[:, :, at, 0] = begin
        found[:, :, at, 1] = np.where(there & ~short, length, 0)
    return found


def _fill_timestamps(
    chunks: Structs, outside: Ints, bounds: Mapping[int, tuple[int, int]] | None
) -> None:
    """Exact bounds of the designated timestamp, where the footer lacks one of the two."""
    both = MIN_STAT_PRESENT | MAX_STAT_PRESENT
    filled = sum(bound.present | bound.inlined | bound.exact for bound in BOUNDS.values())
    for group, (low, high) in (bounds or {}).items():
        chunk = chunks[group]
        if chunk["STAT_FLAGS"] & both != both:
            chunk["STAT_FLAGS"] |= filled
            chunk["STAT_SIZES"] = 8 | 8 << 4
            chunk["MIN_STAT"], chunk["MAX_STAT"] = low % (1 << 64), high % (1 << 64)
            outside[group] = 0


def _region(
    footer: FooterArrays,
    chunks: Structs,
    outside: Ints,
    bitsets: Mapping[tuple[int, int], bytes],
) -> tuple[Bytes, Ints, dict[tuple[int, int], int]]:
    """The out-of-line regions of all row groups, back to back; where each begins; and where each
    bitset lies in the region of its row group. References to bounds are put into ``chunks``."""
    count, width = chunks.shape
    lengths = np.zeros((count, width, 3), np.int64)
    lengths[:, :, :2] = outside[:, :, :, 1]
    before = np.cumsum(lengths.sum(axis=2), axis=1)
    added = np.zeros(count, np.int64)
    places: dict[tuple[int, int], int] = {}
    for group, column in sorted(bitsets, key=lambda at: (at[1], at[0])):
        at = int(before[group, column] + added[group])
        places[group, column] = at + -at % 8
        # An i32 length and the bitset, at a multiple of 8.
        lengths[group, column, 2] = -at % 8 + 4 + len(bitsets[group, column])
        added[group] += lengths[group, column, 2]
    flat = lengths.reshape(count, -1)
    ends = np.cumsum(flat, axis=1)
    starts = np.append(0, np.cumsum(flat.sum(axis=1)))
    offsets = (ends - flat).reshape(lengths.shape)
    for at, bound in enumerate(BOUNDS.values()):
        long = outside[:, :, at, 1] > 0
        slots = offsets[:, :, at][long] << 16 | outside[:, :, at, 1][long]
        chunks[bound.slot][long] = slots.astype(np.uint64)
    out = np.zeros(int(starts[-1]), np.uint8)
    size = outside[..., 1].ravel()
    target = (offsets[:, :, :2] + starts[:-1, None, None]).ravel()
    inside = within(size)
    source = np.repeat(outside[..., 0].ravel(), size) + inside
    out[np.repeat(target, size) + inside] = footer.buffer[source]
    for (group, column), at in places.items():
        begin = int(starts[group]) + at
        raw = struct.pack("<i", len(bitsets[group, column])) + bitsets[group, column]
        out[begin : begin + len(raw)] = np.frombuffer(raw, np.uint8)
    return out, starts, places


def _filter(place: BloomPlace, data: bytes, mode: BloomMode) -> bytes | tuple[int, int] | None:
    """The bitset of the filter whose first bytes are ``data``, or its offset and length in the
    file; ``None`` for one that a ``_pm`` cannot have."""
    reader = Reader(memoryview(data)[:HEADER_BYTES], base=place.offset)
    try:
        header = BloomFilterHeader.read(reader)
    except FormatError:
        return None
    begin, size = reader.at, header.numBytes
    plain = header.algorithm.BLOCK and header.hash.XXHASH and header.compression.UNCOMPRESSED
    if not plain or size <= 0 or size % 32 or begin + size > place.length:
        return None
    if mode == "external":
        return place.offset + begin, size
    bitset = bytes(data[begin : begin + size])
    return bitset if len(bitset) == size else None
