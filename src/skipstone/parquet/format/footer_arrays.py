"""A footer as arrays: one pass over its bytes; the rest is decoded on first use.

``FileMetaData`` of 10,000 columns and 10 row groups is 100,000 chunks: seconds as objects,
milliseconds as arrays. Fields of chunks that planning needs are int64 arrays of shape (R, C), for R
row groups and C leaves. Values that are rarely needed (a whole ``RowGroup``, ``ColumnChunk`` or
``FileMetaData``, the schema tree, key-value pairs) are lazy views of the same bytes.

-1 means absent: an unknown count, no index. A ``dictionary_page_offset`` of 0 and a negative count
are absent, too. ``num_rows`` of the footer is kept as written; ``first_row`` adds up the counts of
the row groups, which may differ (parquet-testing has a file of 6 rows whose footer says 0).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.thrift.compact import BINARY, I32, I64, LIST, STRUCT, Limits, Reader
from skipstone.parquet.thrift.structs import field_ids, list_of, struct

from .footer import MAGIC
from .footer_layout import (
    AT_CHUNK,
    BYTES,
    G_AT,
    G_AT_SORTING,
    GROUPS,
    NARROW,
    PARTS,
    WIDE,
)
from .footer_scan import COMPILED, PLAIN, FooterKernels, Scanned, scan
from .metadata import (
    ColumnChunk,
    ColumnMetaData,
    ColumnOrder,
    EncryptionAlgorithm,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
    SortingColumn,
)
from .schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    I64Array = NDArray[np.int64]


_IDS = field_ids(FileMetaData)
# Footers up to this length have their schema checked at once.
_EAGER = 256 << 10
# Up to this length, files with the same schema or orders (as those of a table) share them.
_SHARED = 32 << 10


@lru_cache(maxsize=64)
def _shared(kind: Any, written: bytes) -> Any:
    reader = Reader(written, limits=Limits(values=max(1 << 16, 2 * len(written))))
    return list_of(struct(kind)).read(reader)


@lru_cache(maxsize=64)
def _shared_schema(written: bytes) -> Schema:
    return Schema.of(_shared(SchemaElement, written))


@dataclass(frozen=True, slots=True, eq=False)
class FooterPart:
    """The place of a footer that was scanned together with others: its row groups begin at row
    group ``first`` of ``whole``."""

    whole: FooterArrays
    first: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FooterArrays:
    """The metadata of one file; made by ``scan``, or for many files by ``footer_lanes``.

    ``data`` holds the Thrift bytes, and after them the bytes that ``adopt`` added; places are
    indices into it. ``base`` is where ``data`` begins in the file. Do not write to the arrays.
    """

    data: bytes
    base: int
    scanned: Scanned
    adopted: frozenset[tuple[int, int]] = frozenset()
    selected: tuple[int, ...] | None = None
    part: FooterPart | None = None

    @classmethod
    def scan(
        cls, data: bytes | memoryview, base: int = 0, *, kernels: FooterKernels | None = None
    ) -> FooterArrays:
        """From the Thrift bytes of ``FileMetaData``, which lie at ``base`` of the file.

        ``FormatError`` where they break the format: truncated, wrong sizes, a required field
        missing, negative sizes or offsets, a row group without exactly one chunk of the right type
        per leaf. Time and memory are linear in the bytes. ``check_extent`` checks that places lie
        inside the file.
        """
        data = bytes(data)
        found = cls(
            data=data,
            base=base,
            scanned=scan(data, base, kernels or COMPILED.for_work(len(data)) or PLAIN),
        )
        _ = found.version, found.num_rows, found.row_starts
        if len(data) < _EAGER:
            _ = found.schema  # small schemas are checked here, large ones on first use
        return found

    @property
    def num_row_groups(self) -> int:
        """The number R of row groups."""
        return len(self.scanned.groups)

    @property
    def num_leaves(self) -> int:
        """The number C of leaves."""
        return self.scanned.leaves

    @property
    def end(self) -> int:
        """Where ``FileMetaData`` ends in ``data``; a signature may follow."""
        return self.scanned.end

    def __repr__(self) -> str:
        return (
            f"FooterArrays({self.num_row_groups} row groups, {self.num_leaves} leaves,"
            f" {self.num_rows} rows, {self.end} bytes)"
        )

    # Values of the whole file.

    def _reader(self, start: int, end: int | None = None) -> Reader:
        limits = Limits(values=max(1 << 16, 2 * len(self.data)))
        return Reader(self.data, start, end, base=self.base, limits=limits)

    def _value(self, name: str, kind: int) -> Any:
        place = self.scanned.fields.get(_IDS[name])
        if place is None or place[0] != kind:
            return None
        return self._reader(place[1], place[2]).value(kind)

    def _structs(self, name: str, kind: Any, *, shared: bool = False) -> Any:
        place = self.scanned.fields.get(_IDS[name])
        if place is None or place[0] != LIST:
            return None
        _, start, stop = place
        if shared and stop - start <= _SHARED:
            with suppress(FormatError):  # read again below, so that the error has its place here
                return _shared(kind, self.data[start:stop])
        return list_of(struct(kind)).read(self._reader(start, stop))

    @cached_property
    def version(self) -> int:
        """``FileMetaData.version``; neither 1 nor 2 determines which features the file uses."""
        found = self._value("version", I32)
        if found is None:
            raise FormatError("footer: a required field is missing: version", offset=self.base)
        return int(found)

    @cached_property
    def num_rows(self) -> int:
        """Rows of the file, as the footer says; the sum of the row groups may differ.

        For a selection of row groups, the sum of their rows.
        """
        if self.selected is not None:
            return int(self.row_starts[-1])
        found = self._value("num_rows", I64)
        if found is None or found < 0:
            raise FormatError("footer: num_rows", offset=self.base, expected=">= 0", got=found)
        return int(found)

    @cached_property
    def created_by(self) -> str | None:
        """The writer."""
        found = self._value("created_by", BINARY)
        return None if found is None else found.decode("utf-8", "surrogateescape")

    @cached_property
    def key_value_metadata(self) -> tuple[KeyValue, ...] | None:
        """Free metadata of the file."""
        found: tuple[KeyValue, ...] | None = self._structs("key_value_metadata", KeyValue)
        return found

    @cached_property
    def column_orders(self) -> tuple[ColumnOrder, ...] | None:
        """The order of the bounds of each leaf."""
        found: tuple[ColumnOrder, ...] | None
        found = self._structs("column_orders", ColumnOrder, shared=True)
        return found

    @cached_property
    def encryption_algorithm(self) -> EncryptionAlgorithm | None:
        """Set in files with a plaintext footer and encrypted columns."""
        place = self.scanned.fields.get(_IDS["encryption_algorithm"])
        if place is None or place[0] != STRUCT:
            return None
        return EncryptionAlgorithm.read(self._reader(place[1], place[2]))

    @cached_property
    def footer_signing_key_metadata(self) -> bytes | None:
        """How to get the key that signs a plaintext footer."""
        found: bytes | None = self._value("footer_signing_key_metadata", BINARY)
        return found

    @cached_property
    def schema_elements(self) -> tuple[SchemaElement, ...]:
        """The schema as written."""
        found: tuple[SchemaElement, ...] = self._structs("schema", SchemaElement, shared=True)
        return found

    @cached_property
    def schema(self) -> Schema:
        """The schema as a tree; ``FormatError`` where it is not one."""
        written = self.schema_bytes
        if len(written) <= _SHARED:
            with suppress(FormatError):
                return _shared_schema(written)
        return Schema.of(self.schema_elements)

    @property
    def schema_bytes(self) -> bytes:
        """The bytes of the field ``schema``."""
        return self._bytes_of("schema")

    @property
    def key_value_bytes(self) -> bytes:
        """The bytes of the field ``key_value_metadata``; empty where there is none."""
        return self._bytes_of("key_value_metadata")

    def _bytes_of(self, name: str) -> bytes:
        _, start, stop = self.scanned.fields.get(_IDS[name], (0, 0, 0))
        return self.data[start:stop]

    @cached_property
    def metadata(self) -> FileMetaData:
        """The whole footer as frozen values, which takes seconds for 100,000 chunks."""
        whole = FileMetaData.read(self._reader(0, self.end))
        groups = whole.row_groups
        if self.selected is not None:
            groups = tuple([groups[r] for r in self.selected])
        groups = tuple([self._with_adopted(group, r) for r, group in enumerate(groups)])
        return replace(whole, num_rows=self.num_rows, row_groups=groups)

    # Values of row groups and chunks.

    @cached_property
    def _cache(self) -> dict[Any, Any]:
        return {}

    def group(self, field: str) -> I64Array:
        """A field of all row groups, int64 (R,), -1 absent.

        num_rows, total_byte_size, total_compressed_size, file_offset, ordinal; row_group_start and
        row_group_length, sorting_columns_start and sorting_columns_length: places in ``data``;
        first_row: computed, rows of the file before the row group.
        """
        if field == "first_row":
            return self.row_starts[:-1]
        return self.scanned.groups[:, GROUPS[field]] - 1

    @cached_property
    def row_starts(self) -> I64Array:
        """Rows before each row group, and all rows at the end: int64 (R + 1,)."""
        starts = list(accumulate(self.group("num_rows").tolist(), initial=0))
        if starts[-1] >> 62:
            raise FormatError("footer: more rows than possible", offset=self.base, got=starts[-1])
        return np.array(starts, np.int64)

    def chunk(self, field: str) -> I64Array:
        """A field of all chunks, int64 (R, C), -1 absent.

        Of ``ColumnChunk``: offset_index_offset, offset_index_length, column_index_offset,
        column_index_length; of ``ColumnMetaData``: type, codec, num_values,
        total_uncompressed_size, total_compressed_size, data_page_offset, index_page_offset,
        dictionary_page_offset, bloom_filter_offset, bloom_filter_length; of ``Statistics``:
        null_count, distinct_count, nan_count, is_max_value_exact, is_min_value_exact (1 and 0); of
        ``SizeStatistics``: unencoded_byte_array_data_bytes. Further

        encodings      bit mask of all encodings used; bit 61 for any that is out of range
        dict_only      1 if all data pages are proved to be dictionary-encoded, 0 if one is not
        encrypted      1 if the chunk has ``crypto_metadata``, else 0
        has_meta_data  1 if ``ColumnMetaData`` is plaintext or adopted, else 0
        start, stop    computed: the bytes of the chunk's pages in its file
        """
        found: I64Array | None = self._cache.get(field)
        if found is None:
            part = self.part
            if part is None:
                found = self._find(field)
            else:
                found = self._of_part(part, part.whole.chunk(field))
            self._cache[field] = found
        return found

    def _of_part(self, part: FooterPart, rows: NDArray[Any]) -> NDArray[Any]:
        return rows[part.first : part.first + self.num_row_groups]

    def by_row_group(
        self, derive: Callable[..., NDArray[Any]], *arguments: Hashable
    ) -> NDArray[Any]:
        """``derive(footer, *arguments)``, an array with a value for each row group. It is computed
        once for all footers that were scanned together. So ``derive`` may use only the schema and
        the fields of row groups and chunks, neither ``data`` nor values of the file."""
        part, key = self.part, (derive, arguments)
        held = (self if part is None else part.whole)._cache
        found: NDArray[Any] | None = held.get(key)
        if found is None:
            found = held[key] = derive(self if part is None else part.whole, *arguments)
        return found if part is None else self._of_part(part, found)

    def _slot(self, array: NDArray[Any], slot: int) -> I64Array:
        values: I64Array = array[slot].astype(np.int64)
        values -= 1
        return values.reshape(self.num_row_groups, self.num_leaves)

    def _find(self, field: str) -> I64Array:
        if field in WIDE:
            return self._slot(self.scanned.wide, WIDE[field])
        if field in NARROW:
            return self._slot(self.scanned.narrow, NARROW[field])
        if field == "start":
            data = self.chunk("data_page_offset")
            dictionary = self.chunk("dictionary_page_offset")
            # Some writers store the dictionary's place only in data_page_offset. A place within the
            # magic is that of a chunk without data pages.
            before = (dictionary < data) | (data < len(MAGIC))
            return np.where((dictionary > 0) & before, dictionary, data)
        if field == "stop":
            size = self.chunk("total_compressed_size")
            return np.where(size >= 0, self.chunk("start") + size, -1)
        if field == "type":
            return np.where(self.chunk("has_meta_data") == 1, self.scanned.types, -1)
        if field == "has_meta_data":
            return (self.parts("meta_data") >= 0).astype(np.int64)
        if field == "encrypted":
            return (self.parts("crypto_metadata") >= 0).astype(np.int64)
        raise KeyError(field)

    def places(self, field: str) -> tuple[I64Array, I64Array]:
        """Start and length in ``data`` of bytes of every chunk, int64 (R, C) each, -1 absent.

        max, min, max_value, min_value, file_path, encrypted_column_metadata: without the length
        that lies before them; column_chunk: the whole struct.
        """
        slot = BYTES[field]
        return self._slot(self.scanned.narrow, slot), self._slot(self.scanned.narrow, slot + 1)

    def parts(self, field: str) -> I64Array:
        """Start in ``data`` of a part of every chunk, int64 (R, C), -1 absent.

        meta_data, statistics, size_statistics, geospatial_statistics, crypto_metadata: structs;
        key_value_metadata, encoding_stats: lists.
        """
        return self._slot(self.scanned.narrow, PARTS[field])

    def bytes_of(self, field: str, row_groups: Any, leaf: int) -> tuple[I64Array, I64Array]:
        """``places`` of one leaf in some row groups (any NumPy index), int64 (n,) each."""
        cells = np.arange(self.num_row_groups)[row_groups] * self.num_leaves + leaf
        slot, narrow = BYTES[field], self.scanned.narrow
        return narrow[slot, cells].astype(np.int64) - 1, narrow[slot + 1, cells].astype(
            np.int64
        ) - 1

    def value_bytes(self, field: str, r: int, c: int) -> bytes | None:
        """The bytes of one of ``places``, ``None`` where they are absent."""
        start, length = self._place(BYTES[field], r, c)
        return None if start < 0 else self.data[start : start + length]

    def _place(self, slot: int, r: int, c: int) -> tuple[int, int]:
        row = self.row_of(r, c)
        start, length = self.scanned.narrow[slot, row], self.scanned.narrow[slot + 1, row]
        return int(start) - 1, int(length) - 1

    @cached_property
    def buffer(self) -> NDArray[np.uint8]:
        """``data`` as an array, for gathering from places."""
        return np.frombuffer(self.data, np.uint8)

    def row_of(self, r: int, c: int) -> int:
        if not (0 <= r < self.num_row_groups and 0 <= c < self.num_leaves):
            raise IndexError(f"no chunk ({r}, {c}) in {self!r}")
        return r * self.num_leaves + c

    def column_chunk(self, r: int, c: int) -> ColumnChunk:
        """One chunk, decoded alone."""
        start, length = self._place(AT_CHUNK, r, c)
        chunk = ColumnChunk.read(self._reader(start, start + length))
        if (r, c) in self.adopted:
            return replace(chunk, meta_data=self.column_meta_data(r, c))
        return chunk

    def column_meta_data(self, r: int, c: int) -> ColumnMetaData | None:
        """The metadata of one chunk, ``None`` where it is encrypted and was not adopted."""
        start = int(self.scanned.narrow[PARTS["meta_data"], self.row_of(r, c)]) - 1
        return None if start < 0 else ColumnMetaData.read(self._reader(start))

    def row_group(self, r: int) -> RowGroup:
        """One row group with all its chunks."""
        start, length = self._group_place(G_AT, r)
        found = RowGroup.read(self._reader(start, start + length))
        return self._with_adopted(found, r)

    def _with_adopted(self, group: RowGroup, r: int) -> RowGroup:
        mine = [c for row, c in self.adopted if row == r]
        if not mine:
            return group
        columns = list(group.columns)
        for c in mine:
            columns[c] = replace(columns[c], meta_data=self.column_meta_data(r, c))
        return replace(group, columns=tuple(columns))

    def sorting_columns(self, r: int) -> tuple[SortingColumn, ...] | None:
        """The sort order that a row group claims."""
        start, length = self._group_place(G_AT_SORTING, r)
        if start < 0:
            return None
        reader = self._reader(start, start + length)
        found: tuple[SortingColumn, ...] = list_of(struct(SortingColumn)).read(reader)
        return found

    def _group_place(self, slot: int, r: int) -> tuple[int, int]:
        if not 0 <= r < self.num_row_groups:
            raise IndexError(f"no row group {r} in {self!r}")
        start, length = self.scanned.groups[r, slot : slot + 2].tolist()
        return start - 1, length - 1

    def check_extent(self, size: int) -> None:
        """``FormatError`` if a chunk of this file (without ``file_path``) ends beyond ``size``.

        Its column index, offset index and Bloom filter must end before it too, if they have places.
        """
        here = self.places("file_path")[0] < 0
        for name, offset, length in (
            ("column chunk", self.chunk("start"), self.chunk("total_compressed_size")),
            *(
                (f"{what} of a chunk", self.chunk(f"{what}_offset"), self.chunk(f"{what}_length"))
                for what in ("offset_index", "column_index", "bloom_filter")
            ),
        ):
            stop = offset + np.maximum(length, 0)
            beyond = here & (offset >= 0) & (stop > size)
            if beyond.any():
                r, c = (int(each) for each in np.argwhere(beyond)[0])
                raise FormatError(
                    f"footer: the {name} ends beyond the data, row group {r}, column {c}",
                    offset=int(offset[r, c]),
                    expected=f"at most {size}",
                    got=int(stop[r, c]),
                )

    def select(self, row_groups: Sequence[int]) -> FooterArrays:
        """Some of the row groups, in this order, as a footer of their own over the same bytes."""
        rows = np.asarray(row_groups, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < self.num_row_groups:
            raise IndexError(f"row groups beyond {self!r}")
        cells = (rows[:, np.newaxis] * self.num_leaves + np.arange(self.num_leaves)).reshape(-1)
        before = self.selected or tuple(range(self.num_row_groups))
        chosen = rows.tolist()
        return FooterArrays(
            data=self.data,
            base=self.base,
            scanned=replace(
                self.scanned,
                groups=self.scanned.groups[rows],
                wide=self.scanned.wide[:, cells],
                narrow=self.scanned.narrow[:, cells],
            ),
            adopted=frozenset(
                {(new, c) for new, old in enumerate(chosen) for r, c in self.adopted if r == old}
            ),
            selected=tuple([before[r] for r in chosen]),
        )
