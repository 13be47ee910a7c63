"""The chunks of one column of many files while they are decoded together (``bulk_columns``).

A page table is int64 (n, 15), a row per page:

    CHUNK VERSION ENCODING AT STORED SIZE VALUES LEVELS COMPRESSED CRC FIRST PLACE HOW READY NEXT

``VERSION`` is 1 or 2, and 0 for a dictionary. ``AT`` and ``STORED`` are place and length of the
body in the buffer of all chunks, ``SIZE`` its length after decompression. ``LEVELS`` are the bytes
of the levels of a v2 page, -1 for v1, -2 for v1 with levels that are not RLE. ``COMPRESSED`` is 0
or 1, ``CRC`` the checksum or -1. ``FIRST`` is the first row.

Pages are decompressed when they are needed, a Snappy dictionary only as far as needed. ``PLACE`` is
where the body goes, ``READY`` how many bytes of it are decompressed (-1 before the first), ``NEXT``
where decompression continues, ``HOW`` one of ``COPIED``, ``SNAPPY`` and ``OTHER``.

A span is where a chunk lies, its rows, its codec, and its size after decompression as the footer
claims it, int64 (n, 5):

    OFFSET LENGTH ROWS CODEC DECODED

The ``status`` of a chunk says why it failed: 1 page headers, 2 compression, 3 encoding, 4 values.

Every size that a page claims is checked before it is used: against its chunk, against what its
codec can yield, and in sum against the limit of memory.
"""

from __future__ import annotations

import zlib
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone._numba import CompiledKernels
from skipstone.errors import SkipstoneError
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.format.enums import CompressionCodec, Encoding, Type
from skipstone.parquet.pages.page_headers import FIELDS, STACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


# Columns of a page table, and of spans; see the module.
CHUNK: Final = 0
VERSION: Final = 1
ENCODING: Final = 2
AT: Final = 3
STORED: Final = 4
SIZE: Final = 5
VALUES: Final = 6
LEVELS: Final = 7
COMPRESSED: Final = 8
CRC: Final = 9
FIRST: Final = 10
PLACE: Final = 11
HOW: Final = 12
READY: Final = 13
NEXT: Final = 14
COLUMNS: Final = 15
OFFSET: Final = 0
LENGTH: Final = 1
ROWS: Final = 2
CODEC: Final = 3
DECODED: Final = 4
SPAN: Final = 5
#: how a page is decompressed
COPIED, SNAPPY, OTHER = 0, 1, 2
#: bytes that kernels may read or write beyond the last page
ROOM: Final = 96
#: bytes that they may write beyond any page
BEHIND: Final = 32


#: returns this many bytes of undefined content
Room: TypeAlias = "Callable[[int], NDArray[np.uint8]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkKernels:
    """The compiled loops (``bulk_jit``)."""

    walk: Callable[..., Any]
    unpack: Callable[..., Any]
    indices: Callable[..., Any]
    flags: Callable[..., Any]
    validity: Callable[..., Any]
    fixed: Callable[..., Any]
    words: Callable[..., Any]
    strings: Callable[..., Any]
    candidates: Callable[..., Any]
    choose: Callable[..., Any]
    locate: Callable[..., Any]
    gather: Callable[..., Any]
    copy_some: Callable[..., Any]


#: The limits in values: below the total, other readers take less time than loading the kernels.
KERNELS: Final = CompiledKernels[BulkKernels](
    module=f"{__package__}.bulk_jit",
    once=8_000_000,
    total=8_000_000,
    share=1 / 16,
    least=1,
    patience=1.5,
)

#: bytes of a number of a physical type
NUMBER_WIDTHS: Final = {Type.INT32: 4, Type.INT64: 8, Type.FLOAT: 4, Type.DOUBLE: 8}
#: bytes of a decoded value: the widest number or an offset, and whether it is null
VALUE: Final = 9

#: the encodings by a dictionary
DICTIONARY: Final = (1 << Encoding.PLAIN_DICTIONARY) | (1 << Encoding.RLE_DICTIONARY)
# Pages per chunk that are expected at first, and the bytes of the shortest page header.
_PAGES = 8
_SHORTEST = 8
#: output bytes by one input byte of a Snappy block, rounded up
SNAPPY_RATIO = 32
#: Arrow's strings have 32-bit offsets
MOST_STRINGS = (1 << 31) - 64


@dataclass(frozen=True, slots=True)
class BulkKind:
    """What chunks must share to be decoded together."""

    type: pa.DataType
    physical: Type
    optional: bool


@dataclass(frozen=True, slots=True, eq=False)
class _DictionaryStrings:
    """The strings of the dictionaries: those of chunk ``c`` begin at ``base[c]``."""

    base: NDArray[np.int64]
    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]


@dataclass(slots=True, eq=False, kw_only=True)
class BulkChunks:
    """The chunks of one column while they are decoded, or of several columns (``widths``) while a
    few rows are located. ``failed`` marks chunks that could not be read."""

    kind: BulkKind
    buffer: NDArray[np.uint8]
    stops: NDArray[np.int64]
    codec: NDArray[np.int64]
    first: NDArray[np.int64]
    failed: NDArray[np.bool_]
    verify: bool
    limit: int
    #: gives memory for what is needed until the batch has been read
    room: Room
    kernels: BulkKernels
    #: bytes of a number by chunk, 0 for strings, where these are chunks of several columns
    widths: NDArray[np.int64] | None = None
    status: NDArray[np.int64] = field(init=False)
    pages: NDArray[np.int64] = field(init=False)
    #: the bodies of pages, as far as they are decompressed
    plain: NDArray[np.uint8] = field(init=False)
    #: values of the dictionary of each chunk
    entries: NDArray[np.int64] = field(init=False)
    valid: NDArray[np.uint8] = field(init=False)
    nulls: NDArray[np.int64] = field(init=False)

    def walked(self) -> bool:
        """Finds the pages; returns whether they are complete and may be decompressed."""
        self.status = self.failed.astype(np.int64)
        pages = self._walked()
        if pages is None:
            return False
        self.pages = pages
        return self._placed()

    def decoded(self) -> tuple[pa.Array, NDArray[np.bool_]]:
        """All rows as one array, and the chunks that have failed."""
        made = None
        if self.walked():
            made = self.values()
        return self.nothing if made is None else (made, self.status != 0)

    @property
    def nothing(self) -> tuple[pa.Array, NDArray[np.bool_]]:
        """The result if nothing is decoded: no rows, all chunks failed."""
        return pa.nulls(0, self.kind.type), np.ones(len(self.stops), np.bool_)

    def _walked(self) -> NDArray[np.int64] | None:
        stops = self.stops
        size = np.diff(stops, prepend=0)
        most = _PAGES * len(size)
        # One more for each chunk: a row is taken before its header is read.
        bound = len(size) + int(size.sum()) // _SHORTEST
        while True:
            pages = np.empty((most, COLUMNS), np.int64)
            status = self.status.copy()
            header, stack = np.empty(FIELDS, np.int64), np.empty(STACK, np.int64)
            count = self.kernels.walk(
                self.buffer, stops - size, stops, self.first, status, pages, header, stack
            )
            if count >= 0:
                self.status = status
                pages = pages[:count]
                if self.verify and np.any(pages[:, CRC] >= 0):
                    self._check(pages)
                return pages
            if most >= bound:
                return None
            most = min(8 * most, bound)

    def _check(self, pages: NDArray[np.int64]) -> None:
        view = memoryview(self.buffer.data)
        columns = (CHUNK, AT, STORED, CRC)
        for chunk, at, stored, crc in pages[pages[:, CRC] >= 0][:, columns].tolist():
            if zlib.crc32(view[at : at + stored]) != crc:
                self.status[chunk] = 1

    def _placed(self) -> bool:
        """Gives each page its place; False if they take more memory than the limit."""
        pages = self.pages
        codec = self.codec[pages[:, CHUNK]]
        snappy = codec == CompressionCodec.SNAPPY
        size, stored, version = pages[:, SIZE], pages[:, STORED], pages[:, VERSION]
        self.status[pages[snappy & (size > SNAPPY_RATIO * stored + 8), CHUNK]] = 1
        # A dictionary page has four bytes per string at least.
        width: int | NDArray[np.int64] = NUMBER_WIDTHS.get(self.kind.physical, 4)
        words = version == 0
        if self.widths is not None:
            width = np.where(self.widths > 0, self.widths, 4)[pages[:, CHUNK]]
        self.status[pages[words & (width * pages[:, VALUES] > size), CHUNK]] = 3
        self.entries = np.zeros(len(self.stops), np.int64)
        self.entries[pages[words, CHUNK]] = pages[words, VALUES]
        self.entries[self.status != 0] = 0
        sound = self.status[pages[:, CHUNK]] == 0
        room = np.where(sound, size + BEHIND, 0)
        if int(size[sound].sum()) > self.limit:
            return False
        pages[:, PLACE] = np.cumsum(room) - room
        packed = (codec != CompressionCodec.UNCOMPRESSED) & (pages[:, COMPRESSED] == 1)
        pages[:, HOW] = np.where(packed, np.where(snappy, SNAPPY, OTHER), COPIED)
        self.plain = self.room(int(room.sum()) + ROOM)
        self.plain[-ROOM:] = 0
        return True

    def unpack(self, wanted: NDArray[np.bool_]) -> None:
        """Decompresses the ``wanted`` pages."""
        self.unpack_others(wanted)
        self.kernels.unpack(self.buffer, self.pages, wanted, self.status, self.plain)

    def unpack_others(self, wanted: NDArray[np.bool_]) -> None:
        """Decompresses the ``wanted`` pages that the kernels cannot decompress."""
        pages = self.pages
        others = wanted & (pages[:, HOW] == OTHER) & (pages[:, READY] < 0)
        for n in np.flatnonzero(others & (self.status[pages[:, CHUNK]] == 0)).tolist():
            self.unpack_other(pages[n], self.plain)

    def unpack_other(self, page: NDArray[np.int64], plain: NDArray[np.uint8]) -> None:
        """Decompresses such a page into its place in ``plain``."""
        if not decompress_page(page, int(self.codec[page[CHUNK]]), self.buffer, plain):
            self.status[page[CHUNK]] = 2

    def values(self) -> pa.Array | None:
        """All rows; null in chunks that do not decode."""
        pages, every = self.pages, np.ones(len(self.pages), np.bool_)
        rows, version = int(self.first[-1]), pages[:, VERSION]
        self.valid = np.empty(rows if self.kind.optional else 0, np.uint8)
        self.nulls = np.zeros(len(self.stops), np.int64)
        if self.kind.physical in NUMBER_WIDTHS:
            self.unpack_others(every)
            return self._numbers()
        self.unpack(every)
        if len(self.plain) > MOST_STRINGS or int(self.entries.sum()) > MOST_STRINGS:
            return None
        words = self._words()
        coded = (1 << pages[version > 0, ENCODING]) & DICTIONARY != 0
        return self._coded(words) if coded.all() else self._strings(words)

    def _words(self) -> _DictionaryStrings:
        """The strings of all dictionaries."""
        base = np.cumsum(self.entries) - self.entries
        offsets = np.zeros(int(self.entries.sum()) + 1, np.int32)
        out = np.empty(len(self.plain) + ROOM, np.uint8)
        self.kernels.words(self.plain, self.pages, base, self.entries, self.status, offsets, out)
        return _DictionaryStrings(base, offsets, out)

    def _coded(self, words: _DictionaryStrings) -> pa.Array:
        indices = np.zeros(int(self.first[-1]), np.int32)
        self.kernels.indices(
            self.plain, self.pages, self.kind.optional, words.base, self.entries, self.status,
            indices, self.valid, self.nulls,
        )  # fmt: skip
        blank(self.status, self.first, self.valid, self.nulls, indices)
        if len(words.offsets) == 1:  # no value at all
            return pa.nulls(len(indices), self.kind.type)
        buffers = [validity_buffer(self.valid, self.nulls), pa.py_buffer(indices)]
        places = pa.Array.from_buffers(pa.int32(), len(indices), buffers)
        dictionary = string_array(
            self.kind.type, len(words.offsets) - 1, None, words.offsets, words.data
        )
        return pa.DictionaryArray.from_arrays(places, dictionary, safe=False)

    def _strings(self, words: _DictionaryStrings) -> pa.Array | None:
        rows, room = int(self.first[-1]), 2 * len(self.plain) + ROOM
        some = self.scratch(np.int32)
        while room <= min(self.limit, MOST_STRINGS):
            status, nulls = self.status.copy(), self.nulls.copy()
            offsets, out = np.zeros(rows + 1, np.int32), np.empty(room, np.uint8)
            end = self.kernels.strings(
                self.plain, self.pages, self.kind.optional, self.first, words.base, self.entries,
                words.offsets, words.data, status, offsets, out, self.valid, nulls, some,
            )  # fmt: skip
            if end >= 0:
                self.status, self.nulls = status, nulls
                blank(self.status, self.first, self.valid, self.nulls, None)
                bitmap = validity_buffer(self.valid, self.nulls)
                return string_array(self.kind.type, rows, bitmap, offsets, out)
            room *= 4
        return None

    def _numbers(self) -> pa.Array:
        width, rows, pages = NUMBER_WIDTHS[self.kind.physical], int(self.first[-1]), self.pages
        out = np.empty(rows, f"u{width}")
        is_dictionary = pages[:, VERSION] == 0
        dictionary = np.zeros(len(self.stops), np.int64)
        dictionary[pages[is_dictionary, CHUNK]] = pages[is_dictionary, PLACE]
        self.kernels.fixed(
            self.buffer, self.plain, pages, self.kind.optional, dictionary, self.entries,
            out.view(np.uint8), self.status, out, self.valid, self.nulls, self.scratch(np.int32),
        )  # fmt: skip
        blank(self.status, self.first, self.valid, self.nulls, out)
        return number_array(self.kind, out, validity_buffer(self.valid, self.nulls))

    def scratch(self, type: Any) -> NDArray[Any]:
        """Memory for a number per value of any data page: at most the rows of its chunk."""
        data = self.pages[self.pages[:, VERSION] > 0, VALUES]
        return np.empty(int(data.max(initial=0)), type)


def decompress_page(
    page: NDArray[np.int64], codec: int, data: NDArray[np.uint8], plain: NDArray[np.uint8]
) -> bool:
    """Decompresses a page in ``data`` into its place in ``plain``; returns whether it succeeded."""
    levels, at = max(int(page[LEVELS]), 0), int(page[AT])
    body = memoryview(data.data)[at + levels : at + int(page[STORED])]
    to, count = int(page[PLACE]), int(page[SIZE])
    try:
        made = decompress(codec, body, count - levels)
    except SkipstoneError:
        return False
    plain[to : to + levels] = data[at : at + levels]
    plain[to + levels : to + count] = np.frombuffer(made, np.uint8)
    page[READY] = count
    return True


def blank(
    status: NDArray[np.int64],
    first: NDArray[np.int64],
    valid: NDArray[np.uint8],
    nulls: NDArray[np.int64],
    values: NDArray[Any] | None,
) -> None:
    """Makes the rows of failed chunks null, so that no array holds undecoded bytes."""
    for chunk in np.flatnonzero(status != 0).tolist():
        start, stop = first[chunk], first[chunk + 1]
        if len(valid):
            valid[start:stop] = 0
            nulls[chunk] = stop - start
        if values is not None:
            values[start:stop] = 0


def validity_buffer(valid: NDArray[np.uint8], nulls: NDArray[np.int64]) -> pa.Buffer | None:
    """The bitmap of Arrow; ``None`` where nothing is null."""
    if not len(valid) or not nulls.any():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def string_array(
    type: pa.DataType,
    count: int,
    validity: pa.Buffer | None,
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
) -> pa.Array:
    text = pa.types.is_string(type) or pa.types.is_large_string(type)
    narrow = pa.string() if text else pa.binary()
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    made = pa.Array.from_buffers(narrow, count, buffers)
    return made if made.type == type else made.cast(type)


def number_array(kind: BulkKind, words: NDArray[Any], validity: pa.Buffer | None) -> pa.Array:
    """Numbers of a physical type as Arrow's."""
    type, count = kind.type, len(words)
    if pa.types.is_decimal128(type):
        pairs = np.empty((count, 2), np.int64)
        pairs[:, 0] = words.view(np.int64 if words.itemsize == 8 else np.int32)
        pairs[:, 1] = pairs[:, 0] >> 63
        words = pairs.reshape(-1)
    elif pa.types.is_integer(type) and type.bit_width < 8 * words.itemsize:
        words = words.astype(f"u{type.bit_width // 8}")
    return pa.Array.from_buffers(type, count, [validity, pa.py_buffer(words)])
