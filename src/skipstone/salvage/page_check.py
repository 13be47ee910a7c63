"""Pages found without a footer: their possible columns, their codec, and whether they are complete.

A header states the encoding, the sizes and the number of values. They limit the columns that a page
may belong to:

    encoding       RLE: booleans; DELTA_BINARY_PACKED: integers; DELTA_…BYTE_ARRAY: byte arrays; …
    required       no definition levels; PLAIN and of fixed width: exactly ``num_values`` × width
    v2             no nulls where the schema allows none; as many rows as values if flat

No header states the codec. A codec fits a page if it decompresses the body to as many bytes as the
header declares. If two codecs fit with different bytes, the one whose values decode is right. If
both decode, the codec stays unknown.

Values that decode may still not belong to the column:

    STRING, ENUM, JSON     UTF-8, all of it
    INT(8), INT(16)        within their range, signed or not
    PLAIN byte arrays      the last value ends with the page
    statistics             of a page: as many nulls; bounds of a value's width; all values within

Only what the specification requires of every writer is checked: a page that is wrongly excluded
from its column could make a wrong division of the pages look certain.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.human import Report
from skipstone.parquet.encodings import TYPES_OF
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.encodings.plain import DTYPES
from skipstone.parquet.format.enums import (
    PLAIN_WIDTHS,
    CompressionCodec,
    Encoding,
    PageType,
    Type,
)
from skipstone.parquet.pages.column_values import (
    LeafColumn,
    decode_data_page,
    decode_dictionary_page,
    decode_pages,
)
from skipstone.parquet.pages.levels import levels_v1, levels_v2, rows_begun
from skipstone.parquet.pages.page import Page, read_page
from skipstone.parquet.pages.page_headers import (
    DATA_PAGES,
    DEFINITION_LENGTH,
    ENCODING,
    INDICES,
    NUM_NULLS,
    NUM_ROWS,
    NUM_VALUES,
    OFFSET,
    REPETITION_LENGTH,
    TYPE,
    UNCOMPRESSED,
    page_stop,
)
from skipstone.parquet.values import ByteArrays, Values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.parquet.format.metadata import Statistics
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.pages.page_headers import I64


_TEXTS: Final = ("STRING", "ENUM", "JSON")
# Brotli is not here. It is tried after these, since it decompresses almost anything, and slowly.
_CODECS: Final = (
    CompressionCodec.UNCOMPRESSED,
    CompressionCodec.SNAPPY,
    CompressionCodec.ZSTD,
    CompressionCodec.GZIP,
    CompressionCodec.LZ4_RAW,
    CompressionCodec.LZ4,
)
# Pages that are tried to find the codec of a chunk.
_TRIES: Final = 4
_PADDING: Final = 1 << 13
# Up to this many bytes of Brotli may also fit another codec, so Brotli is always tried for them.
_TINY: Final = 64


def _width(leaf: ColumnDescriptor) -> int:
    """Bytes of a PLAIN value; 0 for byte arrays and bits. Writers set ``type_length`` for other
    types too."""
    if leaf.type is Type.FIXED_LEN_BYTE_ARRAY:
        return leaf.type_length
    return 0 if leaf.type is Type.BOOLEAN else PLAIN_WIDTHS.get(leaf.type, 0)


def header_fits(row: I64, leaf: ColumnDescriptor) -> bool:
    """Whether the header of a page (one row of ``page_headers``) allows it to be of this column."""
    kind, values = int(row[TYPE]), int(row[NUM_VALUES])
    if kind == PageType.INDEX_PAGE:
        return True
    encoding, size = int(row[ENCODING]), int(row[UNCOMPRESSED])
    width = _width(leaf)
    if kind == PageType.DICTIONARY_PAGE:
        if encoding not in (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY):
            return False
        return leaf.type is not Type.BOOLEAN and (not width or size == values * width)
    # An unknown encoding excludes nothing.
    if leaf.type not in TYPES_OF.get(encoding, (leaf.type,)):
        return False
    fixed = width and encoding in (Encoding.PLAIN, Encoding.BYTE_STREAM_SPLIT)
    if kind == PageType.DATA_PAGE_V2:
        levels = int(row[DEFINITION_LENGTH] + row[REPETITION_LENGTH])
        if (not leaf.max_definition_level and row[NUM_NULLS]) or (
            not leaf.max_repetition_level and row[NUM_ROWS] != values
        ):
            return False
        held = values - int(row[NUM_NULLS])
        return not fixed or size - levels == held * width
    if not fixed:
        return True
    if not leaf.max_definition_level:
        return size == values * width
    # Writers pad levels, DuckDB to 256 of them.
    return size <= values * (width + 2) + _PADDING


@dataclass(frozen=True, slots=True, kw_only=True)
class BadPage(Report):
    """A damaged page and the evidence; ``page`` is its number in the chunk."""

    offset: int
    page: int
    column: str
    why: str


@dataclass(slots=True, kw_only=True)
class ChunkCheck:
    """The outcome of checking a chunk. ``rows`` counts those of the good data pages."""

    codec: int
    bad: list[BadPage]
    rows: int
    with_checksum: int
    #: why the chunk could not be checked; its pages are then neither good nor bad
    why: str = ""


class PageCheck:
    """Checks pages of one file, and caches the answers."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self._begins: dict[tuple[int, int, int], tuple[int, bool] | None] = {}
        self._decodes: dict[tuple[int, tuple[int | str, ...]], bool] = {}
        self._codecs: dict[int, frozenset[int]] = {}
        self._annotations: dict[int, str] = {}

    def page(self, row: I64) -> Page:
        """The page of one row of ``page_headers``."""
        start = int(row[OFFSET])
        return read_page(self.data[start : page_stop(row)], base=start)

    def fitting_codecs(self, page: Page) -> list[int]:
        """The codecs that decompress the page to its declared size, each to different bytes."""
        if page.uncompressed_page_size <= _levels_length(page) or not page.is_compressed:
            return [CompressionCodec.UNCOMPRESSED]
        made: dict[int, bytes | memoryview] = {}
        for codec, plain in _decompressed(page, *_CODECS):
            if not any(plain == each for each in made.values()):
                made[codec] = plain
        return list(made or dict(_decompressed(page, CompressionCodec.BROTLI)))

    def begins(self, row: I64, leaf: ColumnDescriptor) -> tuple[int, bool] | None:
        """Rows that begin in a data page if it is of this column, and whether it continues a row;
        ``None`` if it cannot be of the column."""
        if row[TYPE] not in DATA_PAGES:
            return 0, False
        if not leaf.max_repetition_level:
            return int(row[NUM_VALUES]), False
        if int(row[TYPE]) == PageType.DATA_PAGE_V2:
            return int(row[NUM_ROWS]), False
        key = int(row[OFFSET]), leaf.max_repetition_level, leaf.max_definition_level
        if key not in self._begins:
            self._begins[key] = self._rows(self.page(row), leaf)
        return self._begins[key]

    def _rows(self, page: Page, leaf: ColumnDescriptor) -> tuple[int, bool] | None:
        for codec in self.fitting_codecs(page):
            try:
                body = decompress(codec, page.body, page.uncompressed_page_size)
                return rows_begun(page, body, leaf)
            except (FormatError, UnsupportedError):
                continue
        return None

    def codecs(self, row: I64) -> frozenset[int]:
        """Every codec that a page may have; none where it is damaged or not compressed."""
        key = int(row[OFFSET])
        if key not in self._codecs:
            page, found = self.page(row), set[int]()
            at = _levels_length(page)
            if page.uncompressed_page_size > at and page.is_compressed:
                found.update(codec for codec, _ in _decompressed(page, *_CODECS))
                if not found or len(page.body) - at <= _TINY:
                    found.update(dict(_decompressed(page, CompressionCodec.BROTLI)))
            self._codecs[key] = frozenset(found)
        return self._codecs[key]

    def decodes(self, row: I64, leaf: ColumnDescriptor, *, check_values: bool = False) -> bool:
        """Whether a page can be read as one of this column, without its dictionary.

        ``check_values``: its values must also be plausible for the column.
        """
        kind = (
            int(leaf.type),
            leaf.type_length,
            leaf.max_definition_level,
            leaf.max_repetition_level,
            self._annotation(leaf) if check_values else "",
        )
        key = int(row[OFFSET]), kind
        if key not in self._decodes:
            page = self.page(row)
            self._decodes[key] = any(
                self._decoded(page, leaf, codec, check_values)
                for codec in self.fitting_codecs(page)
            )
        return self._decodes[key]

    def _annotation(self, leaf: ColumnDescriptor) -> str:
        """The annotations of a column as text: a key for columns with the same ones."""
        if leaf.ordinal not in self._annotations:
            element = leaf.element
            self._annotations[leaf.ordinal] = repr((element.converted_type, element.logicalType))
        return self._annotations[leaf.ordinal]

    def _decoded(
        self, page: Page, leaf: ColumnDescriptor, codec: int, check_values: bool = False
    ) -> bool:
        try:
            if page.type == PageType.DICTIONARY_PAGE:
                values = decode_dictionary_page(page, leaf, codec, page.body)
                return not check_values or _plausible_values(leaf, values)
            if page.is_data and page.encoding in INDICES:
                _levels(page, leaf, codec)
            elif page.is_data:
                column = decode_data_page(page, leaf, codec, None, page.body)
                _check_counts(page, leaf, codec, column)
                if check_values:
                    size = page.uncompressed_page_size - _levels(page, leaf, codec)
                    return _plausible_page(page, column, size)
        except (FormatError, MemoryError):
            return False
        except UnsupportedError:
            return True
        return True

    # -- chunks ------------------------------------------------------------------------------------

    def chunk(self, rows: I64, leaf: ColumnDescriptor, hint: int | None) -> ChunkCheck:
        """Every page of a chunk decoded; ``hint`` is a codec that may be the right one."""
        pages = [self.page(row) for row in rows]
        codec = self._codec(pages, leaf, hint)
        made = ChunkCheck(codec=codec or 0, bad=[], rows=0, with_checksum=0)
        if codec is None:
            made.why = f"column {leaf.name}: two codecs fit, and both decode"
            return made
        dictionary: Values | None = None
        encodings: set[int] = set()
        data_pages = 0
        for number, page in enumerate(pages):
            why = ""
            if page.crc is not None:
                made.with_checksum += 1
                if not page.crc_matches():
                    why = "another checksum than its header states"
            if not why:
                try:
                    if page.type == PageType.DICTIONARY_PAGE:
                        dictionary = decode_dictionary_page(page, leaf, codec, page.body)
                    elif page.is_data:
                        column = decode_data_page(page, leaf, codec, dictionary, page.body)
                        _check_counts(page, leaf, codec, column)
                        begun = column.repetition_levels
                        if not data_pages and begun is not None and begun[0]:
                            raise FormatError("the first page of a chunk does not begin a row")
                        data_pages += 1
                        made.rows += column.num_rows
                        if page.encoding not in INDICES:
                            encodings.add(page.encoding)
                except (FormatError, MemoryError) as error:
                    why = str(getattr(error, "message", error)) or "out of memory"
                except UnsupportedError as error:
                    made.why = f"column {leaf.name}: {error.message}"
                    return made
            if why:
                made.bad.append(BadPage(offset=page.offset, page=number, column=leaf.name, why=why))
        # No writer changes the encoding of a chunk twice, so one of the headers is damaged.
        if len(encodings) > 1:
            known = {int(each): each.name for each in Encoding}
            names = ", ".join(sorted(known.get(each, str(each)) for each in encodings))
            made.why = f"column {leaf.name}: pages of one chunk in {names}"
        return made

    def column(self, rows: I64, leaf: ColumnDescriptor, codec: int) -> LeafColumn:
        """All entries of a chunk whose pages are good."""
        return decode_pages(map(self.page, rows), leaf, codec)

    def _codec(self, pages: Sequence[Page], leaf: ColumnDescriptor, hint: int | None) -> int | None:
        """The codec of these pages; ``None`` if it may be one of several."""
        telling = [
            page
            for page in pages
            if len(page.body)
            and page.uncompressed_page_size
            and page.crc_matches() is not False
            # Index pages are never compressed.
            and (page.is_data or page.type == PageType.DICTIONARY_PAGE)
        ]
        telling.sort(key=lambda page: page.uncompressed_page_size < 64)
        for page in telling[:_TRIES]:
            found = self.fitting_codecs(page)
            if len(found) > 1:
                found = [each for each in found if self._decoded(page, leaf, each)]
            if hint in found and (len(found) == 1 or page.uncompressed_page_size < 64):
                return hint
            if len(found) == 1 and (page.is_compressed or len(telling) == 1):
                return found[0]
            if len(found) > 1 and page is telling[min(_TRIES, len(telling)) - 1]:
                return None
        return hint or 0


def _levels_length(page: Page) -> int:
    """Bytes of the levels of a v2 page, which are never compressed."""
    return page.definition_levels_byte_length + page.repetition_levels_byte_length


def _decompressed(page: Page, *codecs: int) -> Iterator[tuple[int, bytes | memoryview]]:
    """The codecs that make as many bytes of the page as it declares, each with the bytes."""
    at = _levels_length(page)
    for codec in codecs:
        with suppress(FormatError, UnsupportedError, MemoryError):
            yield codec, decompress(codec, page.body[at:], page.uncompressed_page_size - at)


def _levels(page: Page, leaf: ColumnDescriptor, codec: int) -> int:
    """Where the values begin in the decompressed page."""
    if page.type == PageType.DATA_PAGE_V2:
        return levels_v2(page, page.body, leaf)[2]
    plain = decompress(codec, page.body, page.uncompressed_page_size)
    return levels_v1(page, plain, leaf)[2]


def _check_counts(page: Page, leaf: ColumnDescriptor, codec: int, column: LeafColumn) -> None:
    """A page must hold no more than its values, and v2 the rows and nulls of its header."""
    if page.type == PageType.DATA_PAGE_V2 and (
        column.num_nulls != page.num_nulls or column.num_rows != page.num_rows
    ):
        raise FormatError(
            "rows and nulls of a page",
            expected=(page.num_rows, page.num_nulls),
            got=(column.num_rows, column.num_nulls),
        )
    width = _width(leaf)
    if width and page.encoding == Encoding.PLAIN:
        at = _levels(page, leaf, codec)
        if page.uncompressed_page_size - at != column.num_values * width:
            raise FormatError(
                "bytes of a page",
                expected=column.num_values * width,
                got=page.uncompressed_page_size - at,
            )


# -- plausible values ------------------------------------------------------------------------------


def _plausible_page(page: Page, column: LeafColumn, values_size: int) -> bool:
    """Whether ``column``, decoded from ``page``, may be that column. ``values_size``: the bytes of
    the page from its values on."""
    values: Any = column.values() if column.runs else None
    if (
        isinstance(values, ByteArrays)
        and page.encoding == Encoding.PLAIN
        and int(values.lengths.sum()) + 4 * len(values) != values_size
    ):
        return False
    if values is not None and not _plausible_values(column.leaf, values):
        return False
    return _as_stated(page, column, values)


def _plausible_values(leaf: ColumnDescriptor, values: Values) -> bool:
    """Whether these values, without their levels, may be those of the column."""
    if not len(values):
        return True
    if isinstance(values, ByteArrays):
        return leaf.element.annotation.name not in _TEXTS or _utf8(values)
    return _in_range(leaf, values)


def _utf8(values: ByteArrays) -> bool:
    import pyarrow as pa

    try:
        values.to_arrow(pa.binary()).cast(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _in_range(leaf: ColumnDescriptor, values: Any) -> bool:
    kind = leaf.element.annotation.INTEGER
    if kind is None or kind.bitWidth not in (8, 16) or leaf.type is not Type.INT32:
        return True
    least = -(1 << kind.bitWidth - 1) if kind.isSigned else 0
    return bool(least <= values.min() and values.max() < least + (1 << kind.bitWidth))


def _as_stated(page: Page, column: LeafColumn, values: Any) -> bool:
    statistics = _statistics(page)
    if statistics is None:
        return True
    leaf = column.leaf
    nulls = statistics.null_count
    if nulls is not None and not leaf.max_repetition_level and nulls != column.num_nulls:
        return False
    low, high = statistics.min_value, statistics.max_value
    # The specification defines no bounds of INT96.
    width = None if leaf.type is Type.INT96 else PLAIN_WIDTHS.get(leaf.type)
    if width is not None and any(each is not None and len(each) != width for each in (low, high)):
        return False
    kind, integer = DTYPES.get(leaf.type), leaf.element.annotation.INTEGER
    signed = integer is None or integer.isSigned
    if kind is None or low is None or high is None or values is None or not signed:
        return True
    held = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if not len(held):
        return True
    least, most = np.frombuffer(low, kind)[0], np.frombuffer(high, kind)[0]
    return bool(least <= held.min() and held.max() <= most)


def _statistics(page: Page) -> Statistics | None:
    try:
        header = page.header
    except FormatError:
        return None
    data = header.data_page_header or header.data_page_header_v2
    return None if data is None else data.statistics
