"""The same ``_pm`` as ``convert`` makes, of a footer as arrays: no object per column chunk.

For the job that makes one of every file of a table, where a footer of 10,000 columns must not take
seconds. Bloom filters are external only. The bytes are those of ``convert(…).to_bytes()``.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError, UnsupportedError

from .footer_to_pm import ENCODING_BITS, BloomPlace, PmColumns, bloom_of
from .layout import (
    CHUNK,
    CHUNK_SIZE,
    MAX_BLOCK_OFFSET,
    MAX_OUT_OF_LINE,
    MAX_STAT_EXACT,
    MAX_STAT_INLINED,
    MAX_STAT_PRESENT,
    MIN_STAT_EXACT,
    MIN_STAT_INLINED,
    MIN_STAT_PRESENT,
    NULL_COUNT_PRESENT,
    TRAILER,
)
from .layout import DISTINCT_COUNT_PRESENT as DISTINCT
from .writer import PmFooter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from skipstone.parquet.format.footer import Tail
    from skipstone.parquet.format.footer_arrays import FooterArrays

    from .layout import Bools, Bytes, Ints, Structs

__all__ = ["bloom_places_of", "convert_arrays", "describe"]

_ENDS = (
    ("MIN_STAT", "min_value", MIN_STAT_PRESENT, MIN_STAT_INLINED, MIN_STAT_EXACT, 0),
    ("MAX_STAT", "max_value", MAX_STAT_PRESENT, MAX_STAT_INLINED, MAX_STAT_EXACT, 4),
)


def describe(footer: FooterArrays) -> PmColumns:
    """The columns; a JSON of another schema is ignored."""
    return PmColumns.of(
        footer.schema,
        footer.key_value_metadata,
        [footer.sorting_columns(number) for number in range(footer.num_row_groups)],
        on_stale="ignore",
    )


def bloom_places_of(footer: FooterArrays) -> tuple[BloomPlace, ...]:
    """The filters whose offset and length the footer tells."""
    offsets, lengths = footer.chunk("bloom_filter_offset"), footer.chunk("bloom_filter_length")
    there = (offsets > 0) & (lengths > 0) & ~_encrypted(footer)
    return tuple(
        BloomPlace(r, c, int(offsets[r, c]), int(lengths[r, c]))
        for r, c in np.argwhere(there).tolist()
    )


def convert_arrays(
    footer: FooterArrays,
    tail: Tail,
    described: PmColumns,
    *,
    blooms: Mapping[BloomPlace, bytes] | None = None,
    silent: Collection[int] = (),
) -> bytes:
    """The file; arguments and errors are those of ``convert``."""
    shape = footer.num_row_groups, footer.num_leaves
    if np.any(footer.places("file_path")[0] >= 0):
        raise UnsupportedError(
            "a column chunk in another file", hint="make the _pm of the file that holds the data"
        )
    if np.any(footer.chunk("has_meta_data") != 1):
        raise UnsupportedError("a column has encrypted metadata", hint="decrypt the footer first")
    hidden = _encrypted(footer)
    hidden[:, list(silent)] = True
    entries = np.zeros((*shape, 2), "<u8")
    for place, data in (blooms or {}).items():
        found = bloom_of(place, data, "external")
        if isinstance(found, tuple) and not hidden[place.row_group, place.leaf]:
            entries[place.row_group, place.leaf] = found
    used = np.flatnonzero(np.any(entries[:, :, 1] > 0, axis=0))
    head = described.head(used.tolist(), external=True)
    head.check()
    chunks, lengths, values = _chunks(footer, hidden)

    rows = _natural("num_rows", footer.group("num_rows"))
    out = bytearray(head.to_bytes())
    blocks = []
    ends = np.cumsum(lengths.sum(axis=(1, 2)))
    for number, end in enumerate(ends.tolist()):
        out += bytes(-len(out) % 8)
        if len(out) > MAX_BLOCK_OFFSET:
            raise UnsupportedError(f"a row group block at byte {len(out)}")
        blocks.append(len(out))
        start = end - int(lengths[number].sum())
        out += struct.pack("<Q", rows[number]) + chunks[number].tobytes()
        out += values[start:end].tobytes()
    end_of_file = PmFooter.of_parquet(tail.size, tail.length)
    last = end_of_file.to_bytes(previous=0, blocks=blocks, blooms=entries[:, used].tobytes())
    out += last
    body = memoryview(out)[8:]
    crc = zlib.crc32(body)
    body.release()
    out += TRAILER.pack(crc, len(last) + 4)
    out[:8] = struct.pack("<Q", len(out))
    return bytes(out)


def _encrypted(footer: FooterArrays) -> Bools:
    return np.asarray(footer.chunk("encrypted") > 0)


def _natural(what: str, numbers: Ints) -> Ints:
    if numbers.size and int(numbers.min()) < 0:
        raise FormatError(what, expected="0 or more", got=int(numbers.min()))
    return numbers


def _chunks(footer: FooterArrays, hidden: Bools) -> tuple[Structs, Ints, Bytes]:
    """CHUNKs; lengths of what lies out of line, shape (row groups, columns, 2); and its bytes."""
    chunks = np.zeros(hidden.shape, CHUNK)
    assert CHUNK.itemsize == CHUNK_SIZE
    codec = _natural("codec of a column chunk", footer.chunk("codec"))
    if codec.size and int(codec.max()) > 0xFF:
        raise FormatError("codec of a column chunk", expected="0 to 255", got=int(codec.max()))
    mask = footer.chunk("encodings")
    encodings = np.zeros(hidden.shape, np.uint8)
    for encoding, bit in ENCODING_BITS.items():
        encodings[(mask >= 0) & (mask >> int(encoding) & 1 > 0)] |= bit
    dictionary = footer.chunk("dictionary_page_offset")
    start = np.where(dictionary > 0, dictionary, footer.chunk("data_page_offset"))
    chunks["CODEC"], chunks["ENCODINGS"] = codec, encodings
    chunks["NUM_VALUES"] = _natural("num_values", footer.chunk("num_values"))
    chunks["BYTE_RANGE_START"] = _natural("the start of a column chunk", start)
    size = footer.chunk("total_compressed_size")
    chunks["TOTAL_COMPRESSED"] = _natural("total_compressed_size", size)
    flags, sizes = np.zeros(hidden.shape, np.uint8), np.zeros(hidden.shape, np.uint8)
    for field, bit in (("null_count", NULL_COUNT_PRESENT), ("distinct_count", DISTINCT)):
        count = np.where(hidden, -1, footer.chunk(field))
        chunks[field.upper()] = np.maximum(count, 0)
        flags[count >= 0] |= bit
    outside = np.zeros((*hidden.shape, 2), np.int64)
    starts = np.zeros_like(outside)
    buffer = footer.buffer
    for at, (slot, field, present, inlined, exact, shift) in enumerate(_ENDS):
        begin, length = footer.places(field)
        length = np.where(hidden | (begin < 0) | (length > MAX_OUT_OF_LINE), 0, length)
        there, short = length > 0, (length > 0) & (length <= 8)
        flags[there] |= present
        flags[there & (footer.chunk(f"is_{field}_exact") != 0)] |= exact
        flags[short] |= inlined
        sizes[short] |= (length[short] << shift).astype(np.uint8)
        within = np.arange(8)
        taken = np.where(within < length[short][:, None], begin[short][:, None] + within, 0)
        bytes_ = np.where(within < length[short][:, None], buffer[taken], 0).astype(np.uint8)
        chunks[slot][short] = np.ascontiguousarray(bytes_).view("<u8").ravel()
        outside[:, :, at] = np.where(there & ~short, length, 0)
        starts[:, :, at] = begin
    chunks["STAT_FLAGS"], chunks["STAT_SIZES"] = flags, sizes
    # By column: the minimum, then the maximum.
    flat = outside.reshape(len(outside), -1)
    offsets = (np.cumsum(flat, axis=1) - flat).reshape(outside.shape)
    for at, (slot, *_) in enumerate(_ENDS):
        long = outside[:, :, at] > 0
        slots = offsets[:, :, at][long] << 16 | outside[:, :, at][long]
        chunks[slot][long] = slots.astype(np.uint64)
    lengths, total = outside.ravel(), int(outside.sum())
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    values = buffer[np.repeat(starts.ravel(), lengths) + np.arange(total) - first]
    return chunks, outside, values
