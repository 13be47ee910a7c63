"""The chunks of one column of many files while they are decoded together (``bulk_columns``).

A page table is int64 (n, 10), a row per page:

    CHUNK VERSION ENCODING AT STORED SIZE VALUES LEVELS COMPRESSED CRC

``VERSION`` is 1 or 2, and 0 for a dictionary. ``AT`` and ``STORED`` are place and length of the
body in the buffer of all chunks, ``SIZE`` its length after decompression. ``LEVELS`` are the bytes
of the levels of a v2 page, -1 for v1, -2 for v1 with levels that are not RLE. ``COMPRESSED`` is 0
or 1, ``CRC`` the checksum or -1. The ``status`` of a chunk says why it was given up: 1 page
headers, 2 compression, 3 encoding, 4 values.

Every size that a page claims is checked before it is used: against its chunk, against what its
codec can yield, and in sum against the limit of memory.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone._numba import CompiledKernels
from skipstone.errors import SkipstoneError
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.format.enums import CompressionCodec, Encoding, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


# Columns of a page table; see the module.
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
COLUMNS: Final = 10
#: bytes that kernels may write beyond the last page
ROOM: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkKernels:
    """The compiled loops (``bulk_jit``)."""

    walk: Callable[..., Any]
    decompress: Callable[..., Any]
    indices: Callable[..., Any]
    fixed: Callable[..., Any]
    words: Callable[..., Any]
    strings: Callable[..., Any]


#: In values: below the total, other readers take less time than the kernels take to load.
KERNELS: Final = CompiledKernels[BulkKernels](
    module=f"{__package__}.bulk_jit", once=8_000_000, total=8_000_000, share=1 / 16, least=1
)

#: bytes of a number of a physical type
WIDTHS: Final = {Type.INT32: 4, Type.INT64: 8, Type.FLOAT: 4, Type.DOUBLE: 8}
#: bytes of a decoded value: the widest number or an offset, and whether it is null
VALUE: Final = 9

_DICTIONARY = (1 << Encoding.PLAIN_DICTIONARY) | (1 << Encoding.RLE_DICTIONARY)
# Pages per chunk that are expected at first, and the bytes of the shortest page header.
_PAGES = 8
_SHORTEST = 8
# Scratch of ``kernel_wire.skip``.
_STACK = 80
# Output bytes by one input byte of a Snappy block, rounded up.
_SNAPPY_RATIO = 32
# Arrow's strings have 32-bit offsets.
_MOST_STRINGS = (1 << 31) - 64


@dataclass(frozen=True, slots=True)
class BulkKind:
    """What chunks must share to be decoded together."""

    type: pa.DataType
    physical: Type
    optional: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Words:
    """The strings of the dictionaries: those of chunk ``c`` begin at ``base[c]``."""

    base: NDArray[np.int64]
    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]


@dataclass(slots=True, eq=False, kw_only=True)
class BulkChunks:
    """The chunks of one column while they are decoded, and which of them have ``failed``."""

    kind: BulkKind
    buffer: NDArray[np.uint8]
    stops: NDArray[np.int64]
    codec: NDArray[np.int64]
    first: NDArray[np.int64]
    failed: NDArray[np.bool_]
    #: of chunks of which only some pages are there: the rows of each
    page_rows: Mapping[int, list[int]]
    verify: bool
    limit: int
    status: NDArray[np.int64] = field(init=False)
    places: NDArray[np.int64] = field(init=False)
    entries: NDArray[np.int64] = field(init=False)
    valid: NDArray[np.uint8] = field(init=False)
    nulls: NDArray[np.int64] = field(init=False)

    def decoded(self, kernels: BulkKernels) -> tuple[pa.Array, NDArray[np.bool_]]:
        """All rows as one array, and the chunks that have failed."""
        self.status = self.failed.astype(np.int64)
        pages = self._walked(kernels)
        plain = None if pages is None else self._decompressed(pages, kernels)
        made = None
        if pages is not None and plain is not None:
            made = self._values(pages, plain, kernels)
        if made is None:
            return self.nothing
        return made, self.status != 0

    @property
    def nothing(self) -> tuple[pa.Array, NDArray[np.bool_]]:
        """No rows, and all chunks as failed."""
        return pa.nulls(0, self.kind.type), np.ones(len(self.stops), np.bool_)

    def _walked(self, kernels: BulkKernels) -> NDArray[np.int64] | None:
        stops = self.stops
        size = np.diff(stops, prepend=0)
        values, most = np.diff(self.first), _PAGES * len(size)
        # One more for each chunk: a row is taken before its header is read.
        bound = len(size) + int(size.sum()) // _SHORTEST
        while True:
            pages = np.empty((most, COLUMNS), np.int64)
            status = self.status.copy()
            stack = np.empty(_STACK, np.int64)
            count = kernels.walk(self.buffer, stops - size, stops, values, status, pages, stack)
            if count >= 0:
                self.status = status
                pages = pages[:count]
                if self.verify and np.any(pages[:, CRC] >= 0):
                    self._check(pages)
                self._check_rows(pages)
                return pages
            if most >= bound:
                return None
            most = min(8 * most, bound)

    def _check_rows(self, pages: NDArray[np.int64]) -> None:
        """Some pages of a chunk: each must hold as many rows as the index says, not only all."""
        data = pages[pages[:, VERSION] > 0]
        ends = np.searchsorted(data[:, CHUNK], np.arange(len(self.stops) + 1)).tolist()
        for chunk, rows in self.page_rows.items():
            if data[ends[chunk] : ends[chunk + 1], VALUES].tolist() != rows:
                self.status[chunk] = 1

    def _check(self, pages: NDArray[np.int64]) -> None:
        view = memoryview(self.buffer.data)
        columns = (CHUNK, AT, STORED, CRC)
        for chunk, at, stored, crc in pages[pages[:, CRC] >= 0][:, columns].tolist():
            if zlib.crc32(view[at : at + stored]) != crc:
                self.status[chunk] = 1

    def _decompressed(
        self, pages: NDArray[np.int64], kernels: BulkKernels
    ) -> NDArray[np.uint8] | None:
        """The bodies of all pages; ``None`` where they take more memory than the limit."""
        codec = self.codec[pages[:, CHUNK]]
        snappy = codec == CompressionCodec.SNAPPY
        size, stored = pages[:, SIZE], pages[:, STORED]
        self.status[pages[snappy & (size > _SNAPPY_RATIO * stored + 8), CHUNK]] = 1
        sound = self.status[pages[:, CHUNK]] == 0
        size = np.where(sound, size, 0)
        if int(size.sum()) > self.limit:
            return None
        self.places = np.cumsum(size) - size
        plain = np.empty(int(size.sum()) + ROOM, np.uint8)
        plain[-ROOM:] = 0
        # What the kernel does with a body: copy it, decompress it, pass it over.
        how = np.where(snappy & (pages[:, COMPRESSED] == 1), 1, 0)
        other = (codec != CompressionCodec.UNCOMPRESSED) & ~snappy & (pages[:, COMPRESSED] == 1)
        how[other] = 2
        # The kernel may write a few bytes beyond a page, so it goes first.
        kernels.decompress(self.buffer, pages, self.places, how, self.status, plain)
        view = memoryview(self.buffer.data)
        for n in np.flatnonzero(other & sound).tolist():
            levels, at = max(int(pages[n, LEVELS]), 0), int(pages[n, AT])
            body = view[at + levels : at + int(pages[n, STORED])]
            to, count = int(self.places[n]), int(size[n])
            try:
                made = decompress(int(codec[n]), body, count - levels)
            except SkipstoneError:
                self.status[pages[n, CHUNK]] = 2
                continue
            plain[to : to + levels] = self.buffer[at : at + levels]
            plain[to + levels : to + count] = np.frombuffer(made, np.uint8)
        return plain

    def _values(
        self, pages: NDArray[np.int64], plain: NDArray[np.uint8], kernels: BulkKernels
    ) -> pa.Array | None:
        chunks, rows = len(self.stops), int(self.first[-1])
        is_dictionary = pages[:, VERSION] == 0
        self.entries = np.zeros(chunks, np.int64)
        self.entries[pages[is_dictionary, CHUNK]] = pages[is_dictionary, VALUES]
        self.valid = np.empty(rows if self.kind.optional else 0, np.uint8)
        self.nulls = np.zeros(chunks, np.int64)
        if self.kind.physical in WIDTHS:
            return self._numbers(pages, plain, kernels)
        coded = (1 << pages[~is_dictionary, ENCODING]) & _DICTIONARY != 0
        # A dictionary page has four bytes per string at least.
        sizes = np.zeros(chunks, np.int64)
        sizes[pages[is_dictionary, CHUNK]] = pages[is_dictionary, SIZE]
        self.status[4 * self.entries > sizes] = 3
        self.entries[self.status != 0] = 0
        if len(plain) > _MOST_STRINGS or int(self.entries.sum()) > _MOST_STRINGS:
            return None
        words = self._words(pages, plain, kernels)
        return (self._coded if coded.all() else self._strings)(pages, plain, kernels, words)

    def _words(
        self, pages: NDArray[np.int64], plain: NDArray[np.uint8], kernels: BulkKernels
    ) -> _Words:
        """The strings of all dictionaries."""
        base = np.cumsum(self.entries) - self.entries
        offsets = np.zeros(int(self.entries.sum()) + 1, np.int32)
        out = np.empty(len(plain) + ROOM, np.uint8)
        kernels.words(plain, pages, self.places, base, self.entries, self.status, offsets, out)
        return _Words(base, offsets, out)

    def _coded(
        self,
        pages: NDArray[np.int64],
        plain: NDArray[np.uint8],
        kernels: BulkKernels,
        words: _Words,
    ) -> pa.Array:
        indices = np.zeros(int(self.first[-1]), np.int32)
        kernels.indices(
            plain, pages, self.places, self.kind.optional, self.first[:-1], words.base,
            self.entries, self.status, indices, self.valid, self.nulls,
        )  # fmt: skip
        self._blank(indices)
        if len(words.offsets) == 1:  # no value at all
            return pa.nulls(len(indices), self.kind.type)
        dictionary = _string_array(
            self.kind.type, len(words.offsets) - 1, None, words.offsets, words.data
        )
        buffers = [self._validity, pa.py_buffer(indices)]
        places = pa.Array.from_buffers(pa.int32(), len(indices), buffers)
        return pa.DictionaryArray.from_arrays(places, dictionary, safe=False)

    def _strings(
        self,
        pages: NDArray[np.int64],
        plain: NDArray[np.uint8],
        kernels: BulkKernels,
        words: _Words,
    ) -> pa.Array | None:
        rows, room = int(self.first[-1]), 2 * len(plain) + ROOM
        some = _scratch(pages)
        while room <= min(self.limit, _MOST_STRINGS):
            status, nulls = self.status.copy(), self.nulls.copy()
            offsets, out = np.zeros(rows + 1, np.int32), np.empty(room, np.uint8)
            end = kernels.strings(
                plain, pages, self.places, self.kind.optional, self.first, words.base,
                self.entries, words.offsets, words.data, status, offsets, out, self.valid, nulls,
                some,
            )  # fmt: skip
            if end >= 0:
                self.status, self.nulls = status, nulls
                self._blank(None)
                return _string_array(self.kind.type, rows, self._validity, offsets, out)
            room *= 4
        return None

    def _numbers(
        self, pages: NDArray[np.int64], plain: NDArray[np.uint8], kernels: BulkKernels
    ) -> pa.Array:
        width, rows = WIDTHS[self.kind.physical], int(self.first[-1])
        out = np.zeros(rows, f"u{width}")
        is_dictionary = pages[:, VERSION] == 0
        dictionary = np.zeros(len(self.stops), np.int64)
        dictionary[pages[is_dictionary, CHUNK]] = self.places[is_dictionary]
        sizes = np.zeros(len(self.stops), np.int64)
        sizes[pages[is_dictionary, CHUNK]] = pages[is_dictionary, SIZE]
        self.status[width * self.entries > sizes] = 3
        some = _scratch(pages)
        kernels.fixed(
            plain, pages, self.places, self.kind.optional, self.first[:-1], dictionary,
            self.entries, out.view(np.uint8), self.status, out, self.valid, self.nulls, some,
        )  # fmt: skip
        self._blank(out)
        return _number_array(self.kind, out, self._validity)

    def _blank(self, values: NDArray[Any] | None) -> None:
        """Makes the rows of failed chunks null, so that no array holds what was not decoded."""
        for chunk in np.flatnonzero(self.status != 0).tolist():
            start, stop = self.first[chunk], self.first[chunk + 1]
            if self.kind.optional:
                self.valid[start:stop] = 0
                self.nulls[chunk] = stop - start
            if values is not None:
                values[start:stop] = 0

    @property
    def _validity(self) -> pa.Buffer | None:
        if not self.kind.optional or not self.nulls.any():
            return None
        return pa.py_buffer(np.packbits(self.valid, bitorder="little"))


def _scratch(pages: NDArray[np.int64]) -> NDArray[np.int32]:
    """Room for the indices of any data page: at most as many as the rows of its chunk."""
    return np.empty(int(pages[pages[:, VERSION] > 0, VALUES].max(initial=0)), np.int32)


def _string_array(
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


def _number_array(kind: BulkKind, words: NDArray[Any], validity: pa.Buffer | None) -> pa.Array:
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
