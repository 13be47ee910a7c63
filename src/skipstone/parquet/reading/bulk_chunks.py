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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._numba import CompiledKernels
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.format.enums import CompressionCodec, Encoding, Type

if TYPE_CHECKING:
    from collections.abc import Callable

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


#: gives so many bytes, whose content means nothing
Room: TypeAlias = "Callable[[int], NDArray[np.uint8]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkKernels:
    """The compiled loops (``bulk_jit``)."""

    walk: Callable[..., Any]
    decompress: Callable[..., Any]
    indices: Callable[..., Any]
    flags: Callable[..., Any]
    validity: Callable[..., Any]
    fixed: Callable[..., Any]
    words: Callable[..., Any]
    strings: Callable[..., Any]


#: In values: below the total, other readers take less time than the kernels take to load.
KERNELS: Final = CompiledKernels[BulkKernels](
    module=f"{__package__}.bulk_jit",
    once=8_000_000,
    total=8_000_000,
    share=1 / 16,
    least=1,
    patience=1.5,
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


class ChunkSpan(NamedTuple):
    """What is read of a chunk: ``ranges`` of offset and length, whose data pages hold ``rows``."""

    ranges: tuple[tuple[int, int], ...]
    rows: int
    codec: int

    @property
    def length(self) -> int:
        """Bytes of all ranges."""
        return sum(length for _, length in self.ranges)


@dataclass(frozen=True, slots=True, eq=False)
class _DictionaryStrings:
    """The strings of the dictionaries: those of chunk ``c`` begin at ``base[c]``."""

    base: NDArray[np.int64]
    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CodedStrings:
    """Strings by dictionary, whose indices are decoded when they are needed.

    ``lookup`` and ``valid`` raise ``FormatError`` where a chunk does not decode.
    """

    kind: BulkKind
    kernels: BulkKernels
    pages: NDArray[np.int64]
    places: NDArray[np.int64]
    plain: NDArray[np.uint8]
    first: NDArray[np.int64]
    words: _DictionaryStrings
    entries: NDArray[np.int64]
    #: of each chunk; decoding adds failures
    status: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def dictionary(self) -> pa.Array:
        """The strings of all dictionaries, one after another."""
        words = self.words
        return string_array(self.kind.type, len(words.offsets) - 1, None, words.offsets, words.data)

    def lookup(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """For each row the flag of its string; False for nulls."""
        out, valid, nulls = np.zeros(len(self), np.bool_), self._room, np.zeros_like(self.status)
        self.kernels.flags(
            self.plain, self.pages, self.places, self.kind.optional, self.first[:-1],
            self.words.base, self.entries, self.status, flags.view(np.uint8), out.view(np.uint8),
            valid, nulls, _scratch(self.pages),
        )  # fmt: skip
        self._check()
        return out

    def valid(self) -> NDArray[np.bool_]:
        """For each row whether it is not null."""
        if not self.kind.optional:
            return np.ones(len(self), np.bool_)
        valid, nulls = np.zeros(len(self), np.uint8), np.zeros_like(self.status)
        self.kernels.validity(
            self.plain, self.pages, self.places, True, self.first[:-1], self.status, valid, nulls
        )
        self._check()
        return valid.view(np.bool_)

    def to_arrow(self) -> pa.Array:
        """The rows as a ``DictionaryArray``; null in chunks that do not decode."""
        indices, valid = np.zeros(len(self), np.int32), self._room
        nulls = np.zeros_like(self.status)
        self.kernels.indices(
            self.plain, self.pages, self.places, self.kind.optional, self.first[:-1],
            self.words.base, self.entries, self.status, indices, valid, nulls,
        )  # fmt: skip
        blank(self.status, self.first, valid, nulls, indices)
        if len(self.words.offsets) == 1:  # no value at all
            return pa.nulls(len(indices), self.kind.type)
        buffers = [validity_buffer(valid, nulls), pa.py_buffer(indices)]
        places = pa.Array.from_buffers(pa.int32(), len(indices), buffers)
        return pa.DictionaryArray.from_arrays(places, self.dictionary, safe=False)

    def take(self, at: pa.Array) -> pa.Array:
        """Some rows."""
        found = self.to_arrow().take(at)
        self._check()
        return found

    @property
    def _room(self) -> NDArray[np.uint8]:
        return np.empty(len(self) if self.kind.optional else 0, np.uint8)

    def _check(self) -> None:
        if self.status.any():
            raise FormatError("a chunk of strings does not decode")


@dataclass(slots=True, eq=False, kw_only=True)
class BulkChunks:
    """The chunks of one column while they are decoded, and which of them have ``failed``."""

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
    status: NDArray[np.int64] = field(init=False)
    places: NDArray[np.int64] = field(init=False)
    entries: NDArray[np.int64] = field(init=False)
    valid: NDArray[np.uint8] = field(init=False)
    nulls: NDArray[np.int64] = field(init=False)

    def decoded(
        self, kernels: BulkKernels, *, lazy: bool = False
    ) -> tuple[pa.Array | CodedStrings, NDArray[np.bool_]]:
        """All rows as one array, and the chunks that have failed; with ``lazy`` strings by
        dictionary are not decoded yet."""
        self.status = self.failed.astype(np.int64)
        pages = self._walked(kernels)
        plain = None if pages is None else self._decompressed(pages, kernels)
        made = None
        if pages is not None and plain is not None:
            made = self._values(pages, plain, kernels)
            if isinstance(made, CodedStrings) and not lazy:
                made = made.to_arrow()
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
        plain = self.room(int(size.sum()) + ROOM)
        plain[-ROOM:] = 0
        # What the kernel does with a body: copy it, decompress it, pass it over.
        how = np.where(snappy & (pages[:, COMPRESSED] == 1), 1, 0)
        other = (codec != CompressionCodec.UNCOMPRESSED) & ~snappy & (pages[:, COMPRESSED] == 1)
        how[other] = 2
        kernels.decompress(self.buffer, pages, self.places, how, self.status, plain)
        # The kernel writes a few bytes behind a page, so these come after it.
        view = memoryview(self.buffer.data)
        for n in np.flatnonzero(other & (self.status[pages[:, CHUNK]] == 0)).tolist():
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
    ) -> pa.Array | CodedStrings | None:
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
    ) -> _DictionaryStrings:
        """The strings of all dictionaries."""
        base = np.cumsum(self.entries) - self.entries
        offsets = np.zeros(int(self.entries.sum()) + 1, np.int32)
        out = np.empty(len(plain) + ROOM, np.uint8)
        kernels.words(plain, pages, self.places, base, self.entries, self.status, offsets, out)
        return _DictionaryStrings(base, offsets, out)

    def _coded(
        self,
        pages: NDArray[np.int64],
        plain: NDArray[np.uint8],
        kernels: BulkKernels,
        words: _DictionaryStrings,
    ) -> CodedStrings:
        return CodedStrings(
            kind=self.kind,
            kernels=kernels,
            pages=pages,
            places=self.places,
            plain=plain,
            first=self.first,
            words=words,
            entries=self.entries,
            status=self.status,
        )

    def _strings(
        self,
        pages: NDArray[np.int64],
        plain: NDArray[np.uint8],
        kernels: BulkKernels,
        words: _DictionaryStrings,
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
                blank(self.status, self.first, self.valid, self.nulls, None)
                bitmap = validity_buffer(self.valid, self.nulls)
                return string_array(self.kind.type, rows, bitmap, offsets, out)
            room *= 4
        return None

    def _numbers(
        self, pages: NDArray[np.int64], plain: NDArray[np.uint8], kernels: BulkKernels
    ) -> pa.Array:
        width, rows = WIDTHS[self.kind.physical], int(self.first[-1])
        out = np.empty(rows, f"u{width}")
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
        blank(self.status, self.first, self.valid, self.nulls, out)
        return number_array(self.kind, out, validity_buffer(self.valid, self.nulls))


def blank(
    status: NDArray[np.int64],
    first: NDArray[np.int64],
    valid: NDArray[np.uint8],
    nulls: NDArray[np.int64],
    values: NDArray[Any] | None,
) -> None:
    """Makes the rows of failed chunks null, so that no array holds what was not decoded."""
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


def _scratch(pages: NDArray[np.int64]) -> NDArray[np.int32]:
    """Room for the indices of any data page: at most as many as the rows of its chunk."""
    return np.empty(int(pages[pages[:, VERSION] > 0, VALUES].max(initial=0)), np.int32)


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
