"""The page index of a column chunk as arrays: places and bounds of its P pages.

    OffsetIndex     page_locations                     P × (offset, compressed_page_size,
                                                            first_row_index)
                    unencoded_byte_array_data_bytes    P numbers, or absent
    ColumnIndex     null_pages                         P flags
                    min_values, max_values             P byte strings each, PLAIN without length
                    boundary_order                     of the pages that are not null pages
                    null_counts, nan_counts            P numbers each; absent or -1: unknown
                    repetition_level_histograms        P × (max_repetition_level + 1), or absent
                    definition_level_histograms        P × (max_definition_level + 1), or absent

``compressed_page_size`` includes the page's header; ``first_row_index`` counts from the first row
of the row group, and a page begins with a row. The bounds of a null page are placeholders. Some
writers without statistics leave -1 in ``null_counts`` and mark the page as a null page.
Both structs are Thrift compact. Their lists are read as arrays, since each varint ends at a byte
below 128. So does every part of a page location, because the heads of its fields (``16 v 15 v 16 v
00``) are bytes below 128 too. Lists that are written in another way, and those of a few pages, are
read value by value.
Source: PageIndex.md and parquet.thrift of parquet-format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.thrift import arrays
from skipstone.parquet.thrift import compact as thrift
from skipstone.parquet.thrift.compact import Field, Reader, Writer
from skipstone.parquet.thrift.structs import (
    BINARY,
    BOOL,
    I32,
    I64,
    Declared,
    Wire,
    declared,
    enum,
    list_of,
    optional,
    required,
    struct,
)

from .enums import BoundaryOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.values import ByteArrays

    from .footer_arrays import FooterArrays


IntArray: TypeAlias = "NDArray[np.int64]"
BoolArray: TypeAlias = "NDArray[np.bool_]"
_Columns: TypeAlias = "tuple[IntArray, IntArray, IntArray]"

# Heads of the three fields of a page location in order, and the end of the struct.
_LOCATION = bytes((0x16, 0x15, 0x16, 0x00))
# The locations of up to so many pages are read, and written, one by one.
_FEW, _FEW_WRITTEN = 16, 6


@declared
class PageLocation(Declared):
    """Where a data page lies."""

    offset: int = required(1, I64)
    compressed_page_size: int = required(2, I32)
    first_row_index: int = required(3, I64)


@declared
class OffsetIndex(Declared):
    """Where the data pages of a chunk lie, in their order; a page begins with a row."""

    page_locations: tuple[PageLocation, ...] = required(1, list_of(struct(PageLocation)))
    unencoded_byte_array_data_bytes: tuple[int, ...] | None = optional(2, list_of(I64))


@declared
class ColumnIndex(Declared):
    """Bounds of each data page of a chunk, in the column's order."""

    null_pages: tuple[bool, ...] = required(1, list_of(BOOL))
    min_values: tuple[bytes, ...] = required(2, list_of(BINARY))
    max_values: tuple[bytes, ...] = required(3, list_of(BINARY))
    boundary_order: BoundaryOrder | int = required(4, enum(BoundaryOrder))
    null_counts: tuple[int, ...] | None = optional(5, list_of(I64))
    repetition_level_histograms: tuple[int, ...] | None = optional(6, list_of(I64))
    definition_level_histograms: tuple[int, ...] | None = optional(7, list_of(I64))
    nan_counts: tuple[int, ...] | None = optional(8, list_of(I64))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OffsetIndexArrays:
    """Places of the pages of a chunk, int64 ``(P,)`` each; see the module."""

    offset: IntArray
    compressed_page_size: IntArray
    first_row_index: IntArray
    unencoded_byte_array_data_bytes: IntArray | None = None
    unknown: tuple[Field, ...] = ()

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def from_bytes(
        cls,
        data: bytes | memoryview,
        *,
        size: int | None = None,
        num_rows: int | None = None,
        base: int = 0,
    ) -> OffsetIndexArrays:
        """The index at the start of ``data``. ``FormatError`` if it is malformed, or contradicts
        the ``size`` of the file or the ``num_rows`` of the row group, if given."""
        reader = Reader(bytes(data), base=base)
        locations: _Columns | None = None
        unencoded: IntArray | None = None
        unknown: list[Field] = []
        reader.down()
        previous = 0
        while True:
            kind, previous = reader.field_head(previous)
            if not kind:
                break
            if previous == 1 and kind == thrift.LIST:
                locations = _locations(reader)
            elif previous == 2 and kind == thrift.LIST:
                unencoded = arrays.integers(reader)
            else:
                unknown.append(Field(previous, kind, reader.value(kind)))
        if locations is None:
            raise reader.fail("OffsetIndex.page_locations is missing")
        offset, sizes, rows = locations
        made = cls(
            offset=offset,
            compressed_page_size=sizes,
            first_row_index=rows,
            unencoded_byte_array_data_bytes=unencoded,
            unknown=tuple(unknown),
        )
        made._check(size, num_rows, base)
        return made

    def _check(self, size: int | None, num_rows: int | None, base: int) -> None:
        count = len(self)
        unencoded = self.unencoded_byte_array_data_bytes
        if unencoded is not None:
            _check_length("unencoded_byte_array_data_bytes", unencoded, count, base)
        if not count:
            if num_rows:
                raise FormatError("an offset index without pages", offset=base, expected=num_rows)
            return
        offset, length, first = self.offset, self.compressed_page_size, self.first_row_index
        if offset.min() < 0 or length.min() < 0:
            raise FormatError("a page at a negative offset or of a negative size", offset=base)
        if first[0] != 0 or np.any(first[1:] < first[:-1]):
            raise FormatError("first_row_index that does not ascend from 0", offset=base)
        if num_rows is not None and first[-1] > num_rows:
            raise FormatError(
                "a page past the rows of its row group",
                offset=base,
                expected=f"at most {num_rows}",
                got=int(first[-1]),
            )
        # Compared so that no sum can overflow.
        if size is not None and np.any(length > size - offset):
            raise FormatError("a page that ends past the file", offset=base, expected=size)

    def rows(self, num_rows: int) -> IntArray:
        """Rows of each page, in a row group of ``num_rows`` rows."""
        return np.diff(self.first_row_index, append=num_rows)

    def to_bytes(self) -> bytes:
        """As Thrift bytes."""
        unencoded = self.unencoded_byte_array_data_bytes
        return _Written(
            page_locations=(self.offset, self.compressed_page_size, self.first_row_index),
            unencoded_byte_array_data_bytes=_listed(unencoded),
            unknown=self.unknown,
        ).to_bytes()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ColumnIndexArrays:
    """Bounds of the pages of a chunk; see the module.

    ``null_pages`` bool ``(P,)``; ``min_values`` and ``max_values`` P byte strings; counts int64
    ``(P,)``; histograms int64 ``(P, levels)``.
    """

    null_pages: BoolArray
    min_values: ByteArrays
    max_values: ByteArrays
    boundary_order: BoundaryOrder | int
    null_counts: IntArray | None = None
    repetition_level_histograms: IntArray | None = None
    definition_level_histograms: IntArray | None = None
    nan_counts: IntArray | None = None
    unknown: tuple[Field, ...] = ()

    def __len__(self) -> int:
        return len(self.null_pages)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, base: int = 0) -> ColumnIndexArrays:
        """The index at the start of ``data``. ``FormatError`` where it is malformed."""
        reader = Reader(bytes(data), base=base)
        flags: BoolArray | None = None
        bounds: dict[int, ByteArrays] = {}
        numbers: dict[int, IntArray] = {}
        order: int | None = None
        unknown: list[Field] = []
        reader.down()
        previous = 0
        while True:
            kind, previous = reader.field_head(previous)
            if not kind:
                break
            if previous == 4 and kind == thrift.I32:
                order = reader.integer(32)
            elif kind != thrift.LIST or previous not in _LISTS:
                unknown.append(Field(previous, kind, reader.value(kind)))
            elif previous == 1:
                flags = arrays.flags(reader)
            elif previous in (2, 3):
                bounds[previous] = arrays.byte_strings(reader, flags)
            else:
                numbers[previous] = arrays.integers(reader)
        if flags is None or 2 not in bounds or 3 not in bounds or order is None:
            raise reader.fail("a required field of ColumnIndex is missing")
        count = len(flags)
        _check_length("min_values", bounds[2], count, base)
        _check_length("max_values", bounds[3], count, base)
        for id, name in ((5, "null_counts"), (8, "nan_counts")):
            if id in numbers:
                _check_length(name, numbers[id], count, base)
                if count and numbers[id].min() < -1:
                    raise FormatError(f"a negative number in {name}", offset=base)
        return cls(
            null_pages=flags,
            min_values=bounds[2],
            max_values=bounds[3],
            boundary_order=BoundaryOrder(order) if 0 <= order <= 2 else order,
            null_counts=numbers.get(5),
            repetition_level_histograms=_histogram(numbers.get(6), count, base),
            definition_level_histograms=_histogram(numbers.get(7), count, base),
            nan_counts=numbers.get(8),
            unknown=tuple(unknown),
        )

    def to_bytes(self) -> bytes:
        """As Thrift bytes."""
        return ColumnIndex(
            null_pages=tuple(self.null_pages.tolist()),
            min_values=tuple(self.min_values),
            max_values=tuple(self.max_values),
            boundary_order=self.boundary_order,
            null_counts=_listed(self.null_counts),
            repetition_level_histograms=_listed(self.repetition_level_histograms),
            definition_level_histograms=_listed(self.definition_level_histograms),
            nan_counts=_listed(self.nan_counts),
            unknown=self.unknown,
        ).to_bytes()


_LISTS = frozenset((1, 2, 3, 5, 6, 7, 8))


def place_of_index(footer: FooterArrays, end: int) -> tuple[int, int]:
    """Offset and length of the page index of a file whose footer begins at ``end``; ``(end, 0)`` if
    it has none."""
    starts, stops = [end], []
    for kind in ("offset_index", "column_index"):
        offset, length = footer.chunk(f"{kind}_offset"), footer.chunk(f"{kind}_length")
        held = (offset > 0) & (length > 0) & (length <= end) & (offset <= end - length)
        starts += offset[held].tolist()
        stops += (offset + length)[held].tolist()
    start = min(starts)
    return start, max(stops, default=start) - start


def _check_length(name: str, values: ByteArrays | IntArray, count: int, base: int) -> None:
    if len(values) != count:
        raise FormatError(
            f"{name} of another length than the pages", offset=base, expected=count, got=len(values)
        )


def _histogram(values: IntArray | None, count: int, base: int) -> IntArray | None:
    if values is None:
        return None
    levels, rest = divmod(len(values), count) if count else (0, len(values))
    if rest:
        raise FormatError(
            "a histogram that is not a multiple of the pages",
            offset=base,
            expected=count,
            got=len(values),
        )
    return values.reshape(count, levels)


def _listed(values: IntArray | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values.ravel().tolist())


# -- places of pages -------------------------------------------------------------------------------


def _locations(reader: Reader) -> _Columns:
    size = arrays.list_size(reader, thrift.STRUCT)
    few = _few_locations(reader, size) if 0 < size <= _FEW else None
    if few is not None:
        return few
    buffer = arrays.rest(reader)[: 34 * size]
    ends = np.flatnonzero(buffer < 0x80)[: 7 * size]
    if len(ends) == 7 * size:
        starts = np.concatenate((np.zeros(min(size, 1), np.int64), ends[:-1] + 1))
        heads = buffer[ends.reshape(size, 7)[:, ::2]]
        alone = (starts == ends).reshape(size, 7)[:, ::2]
        if alone.all() and (heads == np.frombuffer(_LOCATION, np.uint8)).all():
            first, last = (each.reshape(size, 7)[:, 1::2].ravel() for each in (starts, ends))
            offset, length, row = _columns(arrays.zigzag(reader, buffer, first, last))
            reader.take(int(ends[-1]) + 1 if size else 0)
            if size and (length.min() < -(1 << 31) or length.max() >= 1 << 31):
                raise reader.fail("a compressed_page_size of more than 32 bits")
            return offset, length, row
    found = [PageLocation.read(reader) for _ in range(size)]
    rows = [(each.offset, each.compressed_page_size, each.first_row_index) for each in found]
    return _columns(rows)


def _columns(locations: IntArray | Sequence[int] | Sequence[tuple[int, int, int]]) -> _Columns:
    offset, length, row = np.array(locations, np.int64).reshape(-1, 3).T.copy()
    return offset, length, row


def _few_locations(reader: Reader, size: int) -> _Columns | None:
    """The locations of ``size`` pages in the usual form, one by one: for three pages this takes a
    third of the time of arrays. ``None`` for any other form."""
    data, at, values = reader.data, reader.at, []
    try:
        for _ in range(size):
            for head in _LOCATION[:3]:
                if data[at] != head:
                    return None
                value, shift, byte = 0, 0, 0x80
                while byte >= 0x80:
                    at += 1
                    byte = data[at]
                    value |= (byte & 0x7F) << shift
                    shift += 7
                    if shift > 63:  # nine bytes at most
                        return None
                values.append(value >> 1 ^ -(value & 1))
                at += 1
            if data[at]:
                return None
            at += 1
    except IndexError:
        return None
    lengths = values[1::3]
    if at > reader.end or min(lengths) < -(1 << 31) or max(lengths) >= 1 << 31:
        return None
    reader.take(at - reader.at)
    return _columns(values)


# -- writing ---------------------------------------------------------------------------------------


_PLACES = list_of(struct(PageLocation))


def _write_locations(writer: Writer, columns: _Columns) -> None:
    size = len(columns[0])
    if size <= _FEW_WRITTEN:
        rows = zip(*[each.tolist() for each in columns], strict=True)
        places = [
            PageLocation(offset=at, compressed_page_size=length, first_row_index=row)
            for at, length, row in rows
        ]
        _PLACES.write(writer, tuple(places))
        return
    data, written = np.empty((size, 34), np.uint8), np.ones((size, 34), np.bool_)
    data[:, ::11] = np.frombuffer(_LOCATION, np.uint8)
    for at, column in zip((1, 12, 23), columns, strict=True):
        data[:, at : at + 10], written[:, at : at + 10] = arrays.varints(column)
    writer.list_head(thrift.STRUCT, size)
    writer.out += data[written].tobytes()


@declared
class _Written(Declared):
    """An ``OffsetIndex`` whose locations are arrays."""

    page_locations: _Columns = required(1, Wire((thrift.LIST,), _PLACES.read, _write_locations))
    unencoded_byte_array_data_bytes: tuple[int, ...] | None = optional(2, list_of(I64))
