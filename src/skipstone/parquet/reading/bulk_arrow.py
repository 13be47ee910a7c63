"""Whole columns of many files, decoded by Arrow as one file.

The compiled loops of ``bulk_chunks`` take time to load. Until that pays, batches are read like
this: the chunks of a column become row groups of one file in memory, with a footer of checked
values (``arrow_footer``) and a column of the bare physical type.

Arrow does not check that a chunk has as many values as its row group has rows: values of the next
chunk would take their place. So the page headers are checked first, for numbers those of all chunks
at once. If one is unusual, nothing is decoded here, and the readers of single files report the
errors.

Texts with dictionaries become indices into the dictionaries of all chunks, one after another. Arrow
would hash every word for that. So it decodes the dictionaries as pages of values, and the indices
as numbers, by a dictionary of INT32 in place of each: the places of its words. The results of Arrow
are those of its checked decoder of numbers: no index lies outside its dictionary.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa

from skipstone._arrays import numbers
from skipstone._dataclasses import dataclass
from skipstone._parquet import ArrowParquetFile, read_metadata
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.encodings.codecs import compress
from skipstone.parquet.format.enums import Encoding, FieldRepetitionType, PageType, Type
from skipstone.parquet.format.footer import file_of
from skipstone.parquet.format.metadata import (
    DataPageHeader,
    DictionaryPageHeader,
    PageHeader,
    SchemaElement,
)
from skipstone.parquet.pages.page import Page, walk_pages
from skipstone.parquet.pages.page_headers import INDICES
from skipstone.parquet.thrift.compact import I32, STRUCT
from skipstone.parquet.thrift.kernel_lanes import FEW, Lanes, OutError, Round, over_lanes
from skipstone.parquet.thrift.kernel_wire import (
    ENDS,
    MISSING,
    OTHER_TYPE,
    STACK,
    TWICE,
    failed,
    field,
    skip,
    zigzag,
)
from skipstone.parquet.thrift.structs import field_ids

from .arrow_footer import ArrowChunks, ArrowFrame
from .bulk_chunks import (
    CODEC,
    LENGTH,
    MOST_STRINGS,
    NUMBER_WIDTHS,
    ROWS,
    VALUE,
    BulkKind,
    number_array,
    string_array,
)
from .decoding_memory import dictionary_as_data, limit_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FunctionType

    from numpy.typing import NDArray


_DATA: Final = int(PageType.DATA_PAGE)
_DATA_V2: Final = int(PageType.DATA_PAGE_V2)
_HEADER = field_ids(PageHeader)
_TYPE: Final = _HEADER["type"]
_SIZE: Final = _HEADER["uncompressed_page_size"]
_STORED: Final = _HEADER["compressed_page_size"]
_V1: Final = _HEADER["data_page_header"]
_V2: Final = _HEADER["data_page_header_v2"]
# Bytes of the length of a text.
_LENGTH: Final = 4
#: the id in both headers
_VALUES: Final = field_ids(DataPageHeader)["num_values"]


def pages(data: Any, at: Any, end: Any, left: Any, most: Any, stack: Any) -> Any:
    """The place after the pages with the ``left`` values of a chunk; negative where they hold
    another number of values, end beyond the chunk, or claim more than ``most`` bytes. A header has
    one struct of values, that of its type: Arrow would count those of another."""
    while left > 0:
        previous = 0
        type = -1
        size = -1
        stored = -1
        values = -1
        form = -1
        while True:
            kind, previous, at = field(data, at, end, previous)
            if at < 0:
                return at
            if kind == 0:
                break
            if kind == I32 and previous == _TYPE:
                type, at = zigzag(data, at, end)
            elif kind == I32 and previous == _SIZE:
                size, at = zigzag(data, at, end)
            elif kind == I32 and previous == _STORED:
                stored, at = zigzag(data, at, end)
            elif kind == STRUCT and previous in (_V1, _V2):
                if form >= 0:
                    return failed(at, TWICE)
                form = previous
                last = 0
                while True:
                    kind, last, at = field(data, at, end, last)
                    if at < 0:
                        return at
                    if kind == 0:
                        break
                    if kind == I32 and last == _VALUES:
                        values, at = zigzag(data, at, end)
                    else:
                        at = skip(data, at, end, kind, stack)
                    if at < 0:
                        return at
            else:
                at = skip(data, at, end, kind, stack)
            if at < 0:
                return at
        if size < 0 or size > most or stored < 0 or stored > end - at:
            return failed(at, ENDS)
        at = at + stored
        if (type == _DATA) != (form == _V1) or (type == _DATA_V2) != (form == _V2):
            return failed(at, OTHER_TYPE)
        if form >= 0:
            if values < 0:
                return failed(at, MISSING)
            left = left - values
    if left < 0:
        return failed(at, ENDS)
    return at


_pages = over_lanes(cast("FunctionType", pages))

#: the codec of a chunk, its rows, and its bytes
_Made: TypeAlias = "tuple[int, int, Sequence[bytes | memoryview]]"


def decoded(
    kind: BulkKind,
    spans: NDArray[np.int64],
    buffer: NDArray[np.uint8],
    *,
    verify_checksums: bool = True,
    memory: int | None = None,
) -> pa.Array | None:
    """The rows of whole chunks, which lie one after another in ``buffer``; ``None`` if they are not
    of the expected form."""
    rows, length = spans[:, ROWS], spans[:, LENGTH]
    starts = np.cumsum(length) - length
    limit = limit_of(memory, len(buffer))
    if float(rows.sum(dtype=np.float64)) * VALUE > limit:
        return None
    if kind.physical not in NUMBER_WIDTHS:
        return _texts(kind, spans, buffer, limit, verify_checksums)
    places = starts, length, rows
    if not (_are_whole(buffer, *places, limit) or _are_whole_alone(buffer, *places, limit)):
        return None
    chunks = _Chunks(kind.physical, kind.optional, buffer, spans[:, CODEC], rows, starts, length)
    found = chunks.read(verify_checksums)
    if found is None:
        return None
    bitmap, values = found.buffers()
    width, total = NUMBER_WIDTHS[kind.physical], len(found)
    words = np.frombuffer(values, f"u{width}", total) if total else np.empty(0, f"u{width}")
    return number_array(kind, words, bitmap)


@dataclass(frozen=True, slots=True, eq=False)
class _Chunks:
    """Chunks of a column of a bare physical type, somewhere in ``buffer``."""

    physical: Type
    optional: bool
    buffer: NDArray[np.uint8]
    codec: NDArray[np.int64]
    rows: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    @classmethod
    def of(cls, physical: Type, optional: bool, made: Sequence[_Made]) -> _Chunks:
        """The chunks ``made``, one after another in a buffer."""
        length = np.array([sum(map(len, parts)) for _, _, parts in made], np.int64)
        buffer = np.frombuffer(b"".join(chain.from_iterable(each[2] for each in made)), np.uint8)
        codec, rows = (np.array([each[at] for each in made], np.int64) for at in range(2))
        return cls(physical, optional, buffer, codec, rows, np.cumsum(length) - length, length)

    def read(self, verify_checksums: bool) -> pa.Array | None:
        """All rows; ``None`` if Arrow refuses them, or finds another number."""
        places = np.zeros((len(self.rows), 1, 6), np.int64)
        for at, each in ((0, self.codec), (1, self.rows), (3, self.length), (4, self.start)):
            places[:, 0, at] = each
        footer = _frame(self.physical, self.optional).footer_of(ArrowChunks(places, self.rows))
        try:
            source = ArrowParquetFile(
                pa.BufferReader(pa.py_buffer(self.buffer)),
                metadata=read_metadata(file_of(footer)),
                page_checksum_verification=verify_checksums,
            )
            found = source.read().column(0).combine_chunks()
        except (pa.ArrowException, OSError):
            return None  # our own decoders report the error and its place
        whole = isinstance(found, pa.Array) and not found.offset
        return found if whole and len(found) == int(self.rows.sum()) else None


# -- texts -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _TextChunk:
    """The pages of one chunk: its dictionary, where the data pages lie, the bytes of all pages
    after decompression, and whether all or any of them are encoded by the dictionary."""

    rows: int
    codec: int
    dictionary: Page | None
    start: int
    stop: int
    size: int
    coded: bool
    repeats: bool

    @property
    def words(self) -> int:
        """The entries of the dictionary."""
        return 0 if self.dictionary is None else self.dictionary.num_values


def _texts(
    kind: BulkKind,
    spans: NDArray[np.int64],
    buffer: NDArray[np.uint8],
    limit: int,
    verify_checksums: bool,
) -> pa.Array | None:
    """Strings or binary: by dictionary, if all pages of all chunks are encoded by theirs."""
    rows, length = spans[:, ROWS], spans[:, LENGTH]
    view, stop = memoryview(buffer.data), 0
    chunks: list[_TextChunk] = []
    try:
        for _, size, count, codec, _ in spans.tolist():
            chunks.append(_text_chunk(view[stop : stop + size], stop, count, codec))
            stop += size
        needed, most = sum(each.size for each in chunks), min(limit, MOST_STRINGS)
        words = _words(chunks, verify_checksums) if needed <= most else None
        if words is None:
            return None
        if all(each.coded for each in chunks):
            return _coded(kind, chunks, buffer, words, verify_checksums)
    except SkipstoneError:
        return None  # our own decoders report the error and its place
    longest = int(np.diff(_offsets(words)).max(initial=0))
    needed += longest * sum(each.rows for each in chunks if each.repeats)
    if needed > most:
        return None
    start = np.cumsum(length) - length
    whole = _Chunks(Type.BYTE_ARRAY, kind.optional, buffer, spans[:, CODEC], rows, start, length)
    found = whole.read(verify_checksums)
    return None if found is None else _typed(found, kind.type)


def _text_chunk(data: memoryview, start: int, rows: int, codec: int) -> _TextChunk:
    """The chunk at ``start`` of the buffer; ``FormatError`` where its pages are not usual."""
    pages = list(walk_pages(data, base=start, num_values=rows))
    has_words = bool(pages) and pages[0].type == PageType.DICTIONARY_PAGE
    head, others = (pages[0], pages[1:]) if has_words else (None, pages)
    coded = [page.encoding in INDICES for page in others]
    # Texts of another encoding may take any size, whatever encodings the footer lists.
    usual = (page.encoding == Encoding.PLAIN or page.encoding in INDICES for page in others)
    if (
        not all(page.is_data for page in others)
        or not all(usual)
        or sum(page.num_values for page in others) != rows
        or (any(coded) and head is None)
        or (head is not None and head.num_values * _LENGTH > head.uncompressed_page_size)
    ):
        raise FormatError("unusual pages", offset=start)
    first = start if head is None else head.stop
    stop = pages[-1].stop if pages else start
    size = sum(page.uncompressed_page_size for page in pages)
    return _TextChunk(rows, codec, head, first, stop, size, all(coded), any(coded))


def _words(chunks: Sequence[_TextChunk], verify_checksums: bool) -> pa.Array | None:
    """The words of all dictionaries, binary: each is decoded as a page of values."""
    made: list[_Made] = []
    for each in chunks:
        if (page := each.dictionary) is not None:
            header = dictionary_as_data(
                page.num_values, page.uncompressed_page_size, page.compressed_page_size, page.crc
            )
            made.append((each.codec, page.num_values, (header.to_bytes(), page.body)))
    return _Chunks.of(Type.BYTE_ARRAY, False, made).read(verify_checksums)


def _coded(
    kind: BulkKind,
    chunks: Sequence[_TextChunk],
    buffer: NDArray[np.uint8],
    words: pa.Array,
    verify_checksums: bool,
) -> pa.Array | None:
    """Indices into ``words``, decoded as numbers by dictionaries of their places."""
    view, made, before = memoryview(buffer.data), list[_Made](), 0
    for each in chunks:
        places = np.arange(before, before + each.words, dtype=np.int32).tobytes()
        before += each.words
        body = compress(each.codec, places)
        header = PageHeader(
            type=PageType.DICTIONARY_PAGE,
            uncompressed_page_size=len(places),
            compressed_page_size=len(body),
            dictionary_page_header=DictionaryPageHeader(
                num_values=each.words, encoding=Encoding.PLAIN
            ),
        )
        data = view[each.start : each.stop]
        made.append((each.codec, each.rows, (header.to_bytes(), body, data)))
    found = _Chunks.of(Type.INT32, kind.optional, made).read(verify_checksums)
    if found is None:
        return None
    if not len(words):  # no value at all
        return pa.nulls(len(found), kind.type) if found.null_count == len(found) else None
    if found.null_count:  # a place is read even where its value is null
        buffers = [found.buffers()[0], pa.py_buffer(numbers(found, 0))]
        found = pa.Array.from_buffers(pa.int32(), len(found), buffers)
    return pa.DictionaryArray.from_arrays(found, _typed(words, kind.type), safe=False)


def _offsets(texts: pa.Array) -> NDArray[np.int32]:
    buffer = texts.buffers()[1]
    return np.frombuffer(buffer, np.int32, len(texts) + 1) if len(texts) else np.zeros(1, np.int32)


def _typed(texts: pa.Array, type: pa.DataType) -> pa.Array:
    """Binary values as ``type``; the bytes of texts are taken as they are."""
    bitmap, _, data = texts.buffers()
    held = np.frombuffer(b"" if data is None else data, np.uint8)
    return string_array(type, len(texts), bitmap, _offsets(texts), held)


# -- checks ----------------------------------------------------------------------------------------


def _are_whole(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    length: NDArray[np.int64],
    rows: NDArray[np.int64],
    limit: int,
) -> bool:
    """Whether the pages of each chunk hold its rows; False too if those of a chunk look unlike the
    others."""
    # Lanes need many chunks: few chunks are repeated.
    times = -(-FEW // max(len(starts), 1))
    run = Round(buffer, np.tile(starts, times))
    at, end, left = (
        Lanes(run, np.tile(each, times)) for each in (np.zeros_like(rows), length, rows)
    )
    try:
        stop = _pages(run, at, end, left, limit, [0] * STACK)
        return bool(run.alive.all()) and not stop < 0
    except OutError:
        return False


def _are_whole_alone(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    length: NDArray[np.int64],
    rows: NDArray[np.int64],
    limit: int,
) -> bool:
    """As ``_are_whole``, but chunk by chunk: the pages of different files need not be alike."""
    view, places = memoryview(buffer.data), np.stack([starts, starts + length, rows], axis=1)
    try:
        for start, stop, count in places.tolist():
            left = count
            for page in walk_pages(view[start:stop], base=start, num_values=count):
                left -= page.num_values if page.is_data else 0
                if page.uncompressed_page_size > limit:
                    return False
            if left:
                return False
    except SkipstoneError:
        return False
    return True


@cache
def _frame(physical: Type, optional: bool) -> ArrowFrame:
    repetition = FieldRepetitionType.OPTIONAL if optional else FieldRepetitionType.REQUIRED
    leaf = SchemaElement(name="0", type=physical, repetition_type=repetition)
    root = SchemaElement(name="schema", num_children=1)
    return ArrowFrame.of((root, leaf), ((physical, ("0",)),), (0,))
