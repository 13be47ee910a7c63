"""A footer as arrays: one pass over the Thrift bytes, everything else decoded when it is asked for.

``FileMetaData`` of 10,000 columns and 10 row groups is 100,000 chunks: as objects seconds, as arrays
milliseconds. What planning needs of every chunk is an int64 array of shape (R, C), for R row groups
and C leaves; what is rarely needed (a whole ``RowGroup``, ``ColumnChunk`` or ``FileMetaData``, the
schema tree, key-value pairs) is a lazy view of the same bytes.

    small footers   the kernel as plain Python: numba's import alone takes 0.4 s
    large footers   the kernel compiled; also small ones once it is loaded

-1 is absent: a count that is unknown, an index that is not there. A ``dictionary_page_offset`` of 0
counts as absent. ``num_rows`` of the footer is kept as written; ``first_row`` counts the row groups'
own, which may differ (``repeated_no_annotation`` of parquet-testing says 0 for 6).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import FormatError, UnsupportedError

from . import footer_kernel
from .crypto import EncryptionAlgorithm
from .declared import list_of, struct
from .footer_layout import (
    GROUP_SLOTS,
    GROUPS,
    NARROW,
    NARROW_SLOTS,
    WIDE,
    WIDE_SLOTS,
)
from .footer_meta import meta_data
from .footer_wire import STACK, cause, skip
from .metadata import (
    ColumnChunk,
    ColumnMetaData,
    ColumnOrder,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
    SortingColumn,
)
from .schema import Schema
from .thrift import BINARY, I32, I64, LIST, STRUCT, Limits, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    I64Array = NDArray[np.int64]

__all__ = ["FooterArrays", "Kernels"]

# Plain Python takes about 0.3 ms per 1,000 bytes, loading the kernels 0.4 s once.
_LARGE = 256 << 10
_LARGE_WHEN_LOADED = 4 << 10
_LONGEST = (1 << 31) - 1

_WIDE_SLOT = {name: slot for slot, name in enumerate(WIDE)}


def _narrow_slots() -> tuple[dict[str, int], dict[str, int]]:
    values: dict[str, int] = {}
    places: dict[str, int] = {}
    slot = 0
    for each in NARROW:
        if isinstance(each, str):
            values[each] = slot
            slot += 1
        else:
            places[each[0]] = slot
            slot += each[1]
    return values, places


_NARROW_SLOT, _PLACE_SLOT = _narrow_slots()


@dataclass(frozen=True, slots=True)
class Kernels:
    """``schema`` and ``row_groups`` of ``footer_kernel``, and how they like their memory."""

    schema: Callable[..., Any]
    row_groups: Callable[..., Any]
    over: Callable[[bytes], Any]
    absent: Callable[[int, Any], Any]


def _absent_list(size: int, dtype: Any) -> list[int]:
    return [-1] * size


_PLAIN = Kernels(
    schema=footer_kernel.schema,
    row_groups=footer_kernel.row_groups,
    over=lambda data: data,
    absent=_absent_list,
)


def _kernels(size: int) -> Kernels:
    loaded = f"{__package__}.footer_jit" in sys.modules
    if size < (_LARGE_WHEN_LOADED if loaded else _LARGE):
        return _PLAIN
    from .footer_jit import compiled

    return compiled()


def _check(at: int, base: int) -> int:
    if at < 0:
        where, why = cause(at)
        raise FormatError(f"footer: {why}", offset=base + where)
    return at


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FooterArrays:
    """The metadata of one file; made by ``scan``.

    ``data`` holds the Thrift bytes, and after them what ``adopt`` added: places are indices into
    it. ``base`` is where ``data`` begins in the file, ``end`` where ``FileMetaData`` ends in
    ``data`` (a signature may follow). Arrays are not to be written to.
    """

    data: bytes
    base: int
    end: int
    num_row_groups: int
    num_leaves: int
    _fields: Mapping[int, tuple[int, int, int]]
    _wide: NDArray[np.int64]
    _narrow: NDArray[np.int32]
    _groups: NDArray[np.int64]
    _adopted: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def scan(
        cls, data: bytes | memoryview, base: int = 0, *, kernels: Kernels | None = None
    ) -> FooterArrays:
        """From the Thrift bytes of ``FileMetaData``, which lie at ``base`` of the file.

        ``FormatError`` where they are not what the format says: cut, lying about sizes, a required
        field missing, negative sizes or offsets, a row group without exactly one chunk of the right
        type per leaf. Time and memory are linear in the bytes.
        """
        data = bytes(data)
        if len(data) > _LONGEST:
            raise UnsupportedError(f"a footer of {len(data)} bytes, more than 2 GiB")
        return _scan(data, base, kernels or _kernels(len(data)))

    def __repr__(self) -> str:
        return (
            f"FooterArrays({self.num_row_groups} row groups, {self.num_leaves} leaves,"
            f" {self.num_rows} rows, {self.end} bytes)"
        )

    # Values of the whole file.

    def _reader(self, start: int, end: int | None = None) -> Reader:
        limits = Limits(values=max(1 << 16, 2 * len(self.data)))
        return Reader(self.data, start, end, base=self.base, limits=limits)

    def _value(self, id: int, kind: int) -> Any:
        place = self._fields.get(id)
        if place is None or place[0] != kind:
            return None
        return self._reader(place[1], place[2]).value(kind)

    def _structs(self, id: int, kind: Any) -> Any:
        place = self._fields.get(id)
        if place is None or place[0] != LIST:
            return None
        return list_of(struct(kind)).read(self._reader(place[1], place[2]))

    @cached_property
    def version(self) -> int:
        """``FileMetaData.version``: 1 and 2 say nothing about the features used."""
        found = self._value(1, I32)
        if found is None:
            raise FormatError("footer: a required field is missing: version", offset=self.base)
        return int(found)

    @cached_property
    def num_rows(self) -> int:
        """Rows of the file, as the footer says; the row groups may say otherwise."""
        found = self._value(3, I64)
        if found is None or found < 0:
            raise FormatError("footer: num_rows", offset=self.base, expected=">= 0", got=found)
        return int(found)

    @cached_property
    def created_by(self) -> str | None:
        """The writer."""
        found = self._value(6, BINARY)
        return None if found is None else found.decode("utf-8", "surrogateescape")

    @cached_property
    def key_value_metadata(self) -> tuple[KeyValue, ...] | None:
        """Free metadata of the file."""
        found: tuple[KeyValue, ...] | None = self._structs(5, KeyValue)
        return found

    @cached_property
    def column_orders(self) -> tuple[ColumnOrder, ...] | None:
        """The order of the bounds of each leaf."""
        found: tuple[ColumnOrder, ...] | None = self._structs(7, ColumnOrder)
        return found

    @cached_property
    def encryption_algorithm(self) -> EncryptionAlgorithm | None:
        """Set in files with a plaintext footer and encrypted columns."""
        place = self._fields.get(8)
        if place is None or place[0] != STRUCT:
            return None
        return EncryptionAlgorithm.read(self._reader(place[1], place[2]))

    @cached_property
    def footer_signing_key_metadata(self) -> bytes | None:
        """How to get the key that signs a plaintext footer."""
        found: bytes | None = self._value(9, BINARY)
        return found

    @cached_property
    def schema_elements(self) -> tuple[SchemaElement, ...]:
        """The schema as it is written."""
        found: tuple[SchemaElement, ...] = self._structs(2, SchemaElement)
        return found

    @cached_property
    def schema(self) -> Schema:
        """The schema as a tree; ``FormatError`` where it is none."""
        return Schema.of(self.schema_elements)

    @cached_property
    def metadata(self) -> FileMetaData:
        """All of it as frozen values: seconds for 100,000 chunks."""
        whole = FileMetaData.read(self._reader(0, self.end))
        if not self._adopted:
            return whole
        groups = list(whole.row_groups)
        for r in {r for r, _ in self._adopted}:
            columns = list(groups[r].columns)
            for row, c in self._adopted:
                if row == r:
                    columns[c] = self.column_chunk(r, c)
            groups[r] = replace(groups[r], columns=tuple(columns))
        return replace(whole, row_groups=tuple(groups))

    # Values of row groups and chunks.

    @cached_property
    def _cache(self) -> dict[str, Any]:
        return {}

    def group(self, field: str) -> I64Array:
        """A field of all row groups, int64 (R,), -1 absent.

        num_rows, total_byte_size, total_compressed_size, file_offset, ordinal; first_row is
        computed: rows of the file before the row group.
        """
        if field == "first_row":
            return self.row_starts[:-1]
        if field not in GROUPS:
            raise KeyError(field)
        return self._groups[:, GROUPS.index(field)]

    @cached_property
    def row_starts(self) -> I64Array:
        """Rows before each row group, and all rows at the end: int64 (R + 1,)."""
        rows = self.group("num_rows").tolist()
        starts = list(accumulate(rows, initial=0))
        if starts[-1] >= 1 << 62:
            raise FormatError("footer: more rows than can be", offset=self.base, got=starts[-1])
        return np.array(starts, np.int64)

    def chunk(self, field: str) -> I64Array:
        """A field of all chunks, int64 (R, C), -1 absent.

        Of ``ColumnChunk``: file_offset, offset_index_offset, offset_index_length,
        column_index_offset, column_index_length; of ``ColumnMetaData``: type, codec, num_values,
        total_uncompressed_size, total_compressed_size, data_page_offset, index_page_offset,
        dictionary_page_offset, bloom_filter_offset, bloom_filter_length; of ``Statistics``:
        null_count, distinct_count, nan_count, is_max_value_exact, is_min_value_exact (1 and 0); of
        ``SizeStatistics``: unencoded_byte_array_data_bytes. Further

        encodings      bit mask of all encodings used; bit 62 for any that is out of range
        dict_only      1 if all data pages are proved to be dictionary-encoded, 0 if one is not
        encrypted      1 if the chunk has ``crypto_metadata``, else 0
        has_meta_data  1 if ``ColumnMetaData`` is there in the clear or adopted, else 0
        start, stop    computed: the bytes of the chunk's pages in its file
        """
        found: I64Array | None = self._cache.get(field)
        if found is None:
            found = self._cache[field] = self._find(field)
        return found

    def _find(self, field: str) -> I64Array:
        if field == "start":
            data, dictionary = (
                self.chunk("data_page_offset"),
                self.chunk("dictionary_page_offset"),
            )
            return np.where((dictionary > 0) & (dictionary < data), dictionary, data)
        if field == "stop":
            size = self.chunk("total_compressed_size")
            return np.where(size >= 0, self.chunk("start") + size, -1)
        if field in _WIDE_SLOT:
            column = self._wide[:, _WIDE_SLOT[field]]
        elif field in _NARROW_SLOT:
            column = self._narrow[:, _NARROW_SLOT[field]].astype(np.int64)
        else:
            raise KeyError(field)
        return np.ascontiguousarray(column).reshape(self.num_row_groups, self.num_leaves)

    def places(self, field: str) -> tuple[I64Array, I64Array]:
        """Start and length in ``data`` of a part of every chunk, int64 (R, C) each, -1 absent.

        max, min, max_value, min_value, file_path and encrypted_column_metadata are the bytes
        without their length; column_chunk, meta_data, statistics, size_statistics,
        geospatial_statistics, crypto_metadata are structs; key_value_metadata, encoding_stats and
        path_in_schema are lists.
        """
        found = self._cache.get(f"{field} places")
        if found is None:
            slot = _PLACE_SLOT[field]
            shape = self.num_row_groups, self.num_leaves
            pair = self._narrow[:, slot : slot + 2].astype(np.int64)
            found = (
                np.ascontiguousarray(pair[:, 0]).reshape(shape),
                np.ascontiguousarray(pair[:, 1]).reshape(shape),
            )
            self._cache[f"{field} places"] = found
        return found

    def bytes_of(self, field: str, row_groups: Any, leaf: int) -> tuple[I64Array, I64Array]:
        """``places`` of one leaf in some row groups (any NumPy index), int64 (n,) each."""
        cells = np.arange(self.num_row_groups)[row_groups] * self.num_leaves + leaf
        pair = self._narrow[:, _PLACE_SLOT[field] : _PLACE_SLOT[field] + 2][cells]
        return pair[:, 0].astype(np.int64), pair[:, 1].astype(np.int64)

    def part(self, field: str, r: int, c: int) -> bytes | None:
        """The bytes of one of ``places``, ``None`` where it is absent."""
        slot = _PLACE_SLOT[field]
        start, length = self._narrow[self._row(r, c), slot : slot + 2].tolist()
        return None if start < 0 else self.data[start : start + length]

    @cached_property
    def buffer(self) -> NDArray[np.uint8]:
        """``data`` as an array, for gathering from places."""
        return np.frombuffer(self.data, np.uint8)

    def _row(self, r: int, c: int) -> int:
        if not (0 <= r < self.num_row_groups and 0 <= c < self.num_leaves):
            raise IndexError(f"no chunk ({r}, {c}) in {self!r}")
        return r * self.num_leaves + c

    def column_chunk(self, r: int, c: int) -> ColumnChunk:
        """One chunk, decoded alone."""
        slot = _PLACE_SLOT["column_chunk"]
        start, length = self._narrow[self._row(r, c), slot : slot + 2].tolist()
        chunk = ColumnChunk.read(self._reader(start, start + length))
        if (r, c) in self._adopted:
            return replace(chunk, meta_data=self.column_meta_data(r, c))
        return chunk

    def column_meta_data(self, r: int, c: int) -> ColumnMetaData | None:
        """Its metadata alone, ``None`` where it is encrypted and was not adopted."""
        slot = _PLACE_SLOT["meta_data"]
        start, length = self._narrow[self._row(r, c), slot : slot + 2].tolist()
        if start < 0:
            return None
        return ColumnMetaData.read(self._reader(start, start + length))

    def row_group(self, r: int) -> RowGroup:
        """One row group with all its chunks."""
        if not 0 <= r < self.num_row_groups:
            raise IndexError(f"no row group {r} in {self!r}")
        at = GROUPS.index("row_group_start")
        start, length = self._groups[r, at : at + 2].tolist()
        found = RowGroup.read(self._reader(start, start + length))
        mine = {c for row, c in self._adopted if row == r}
        if not mine:
            return found
        columns = [
            self.column_chunk(r, c) if c in mine else each for c, each in enumerate(found.columns)
        ]
        return replace(found, columns=tuple(columns))

    def sorting_columns(self, r: int) -> tuple[SortingColumn, ...] | None:
        """The sort order that a row group claims."""
        if not 0 <= r < self.num_row_groups:
            raise IndexError(f"no row group {r} in {self!r}")
        at = GROUPS.index("sorting_columns_start")
        start, length = self._groups[r, at : at + 2].tolist()
        if start < 0:
            return None
        reader = self._reader(start, start + length)
        found: tuple[SortingColumn, ...] = list_of(struct(SortingColumn)).read(reader)
        return found

    def check_extent(self, size: int) -> None:
        """``FormatError`` if a chunk of this file (not of a ``file_path``) reaches beyond ``size``.

        The ends of the places of column indexes, offset indexes and bloom filters count as well.
        """
        here = self.places("file_path")[0] < 0
        for name, offset, length in (
            ("a column chunk", self.chunk("start"), self.chunk("total_compressed_size")),
            *(
                (f"a {what}", self.chunk(f"{what}_offset"), self.chunk(f"{what}_length"))
                for what in ("offset_index", "column_index", "bloom_filter")
            ),
        ):
            beyond = here & (offset >= 0) & (offset + np.maximum(length, 0) > size)
            if beyond.any():
                r, c = (int(each) for each in np.argwhere(beyond)[0])
                raise FormatError(
                    f"footer: {name} beyond the file, row group {r}, column {c}",
                    offset=int(offset[r, c]),
                    expected=f"at most {size}",
                    got=int(offset[r, c]) + max(int(length[r, c]), 0),
                )

    def adopt(self, decrypted: Mapping[tuple[int, int], bytes]) -> FooterArrays:
        """With the decrypted ``ColumnMetaData`` bytes of chunks (row group, leaf) filled in."""
        if not decrypted:
            return self
        wide, narrow = self._wide.copy(), self._narrow.copy()
        pieces, total = [self.data], len(self.data)
        for (r, c), piece in decrypted.items():
            row = self._row(r, c)
            own, small = [-1] * WIDE_SLOTS, [-1] * NARROW_SLOTS
            own[:] = wide[row].tolist()
            small[:] = narrow[row].tolist()
            at = meta_data(piece, 0, len(piece), own, 0, small, 0, [0] * STACK)
            if at < 0:
                where, why = cause(at)
                raise FormatError(
                    f"decrypted column metadata of row group {r}, column {c}: {why} (byte {where})"
                )
            _shift_places(small, total)
            wide[row], narrow[row] = own, small
            pieces.append(piece)
            total += len(piece)
        if total > _LONGEST:
            raise UnsupportedError(f"column metadata of {total} bytes, more than 2 GiB")
        return replace(
            self,
            data=b"".join(pieces),
            _wide=wide,
            _narrow=narrow,
            _adopted=self._adopted | set(decrypted),
        )


# Places inside ColumnMetaData, which move with it.
_WITHIN = (
    "meta_data",
    "max",
    "min",
    "max_value",
    "min_value",
    "statistics",
    "size_statistics",
    "geospatial_statistics",
    "key_value_metadata",
    "encoding_stats",
    "path_in_schema",
)


def _shift_places(narrow: list[int], by: int) -> None:
    for name in _WITHIN:
        slot = _PLACE_SLOT[name]
        if narrow[slot] >= 0:
            narrow[slot] += by


def _scan(data: bytes, base: int, kernels: Kernels) -> FooterArrays:
    reader = Reader(data, base=base)
    source, end = kernels.over(data), len(data)
    stack = kernels.absent(STACK, np.int64)
    fields: dict[int, tuple[int, int, int]] = {}
    types: Any = None
    previous = leaves = 0
    rows: tuple[Any, Any, Any] | None = None
    while True:
        kind, previous = reader.field_head(previous)
        if not kind:
            break
        start = reader.at
        if previous in (2, 4) and kind == LIST:
            if previous in fields:
                raise reader.fail(f"field {previous} of FileMetaData twice")
            element, size = reader.list_head()
            if size and element != STRUCT:
                raise reader.fail("a list of other elements", expected=STRUCT, got=element)
        if previous == 2 and kind == LIST:
            types = kernels.absent(size, np.int32)
            leaves, at = kernels.schema(source, reader.at, end, size, types, stack)
            reader.at = _check(at, base)
        elif previous == 4 and kind == LIST and types is not None:
            rows, reader.at = _row_groups(kernels, source, reader, size, leaves, types, stack)
        else:
            reader.at = _check(skip(data, start, end, kind, [0] * STACK), base)
        fields[previous] = kind, start, reader.at
    stop = reader.at
    if types is None or 4 not in fields or fields[4][0] != LIST:
        raise FormatError("footer: a required field is missing: schema or row_groups", offset=base)
    if rows is None:  # row groups that lie before the schema
        reader.at = fields[4][1]
        _, size = reader.list_head()
        rows, _ = _row_groups(kernels, source, reader, size, leaves, types, stack)
    groups, wide, narrow = rows
    found = FooterArrays(
        data=data,
        base=base,
        end=stop,
        num_row_groups=len(groups),
        num_leaves=int(leaves),
        _fields=fields,
        _wide=wide,
        _narrow=narrow,
        _groups=groups,
    )
    _ = found.version, found.num_rows, found.row_starts
    if len(data) < _LARGE:
        _ = found.schema  # refused here where it costs little, on first use where it is large
    return found


def _row_groups(
    kernels: Kernels, source: Any, reader: Reader, size: int, leaves: int, types: Any, stack: Any
) -> tuple[tuple[Any, Any, Any], int]:
    chunks, left = size * leaves, reader.end - reader.at
    smallest = chunks * footer_kernel.SMALLEST_CHUNK + size * footer_kernel.SMALLEST_ROW_GROUP
    if smallest > left:
        raise reader.fail(f"{size} row groups of {leaves} columns", expected=left, got=smallest)
    groups: Any = np.full(size * GROUP_SLOTS, -1, np.int64)
    if isinstance(stack, list):
        groups = groups.tolist()
    wide = kernels.absent(chunks * WIDE_SLOTS, np.int64)
    narrow = kernels.absent(chunks * NARROW_SLOTS, np.int32)
    at = kernels.row_groups(
        source, reader.at, reader.end, (size, leaves), types, groups, wide, narrow, stack
    )
    _check(at, reader.base)
    arrays = (
        np.asarray(groups, np.int64).reshape(size, GROUP_SLOTS),
        np.asarray(wide, np.int64).reshape(chunks, WIDE_SLOTS),
        np.asarray(narrow, np.int32).reshape(chunks, NARROW_SLOTS),
    )
    return arrays, int(at)
