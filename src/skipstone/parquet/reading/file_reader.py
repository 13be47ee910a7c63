"""``FileReader``: one version of a Parquet file, where its pages lie, and its rows by position.

This is the lower half of ``ParquetFile``: queries, checks and searches take it. What was parsed
once stays in the object: footer, page indexes, headers of Bloom filters, page tables.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa

from skipstone._arrays import no_rows, runs_up_to
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.evidence.indexed_file import IndexedFile
from skipstone.parquet.format.enums import Type
from skipstone.pruning import Reason, RowSet

from .bulk_chunks import LENGTH
from .bulk_columns import LeafChunks, leaf_chunks
from .chunk_pages import ChunkKey, ChunkPages
from .decoding_memory import (
    WIDTHS,
)
from .fetch import Templates, read_groups
from .few_rows import ChunkEntries, chunk_entries
from .pinned_file import OpenedFooter, PinnedReader, files_of_leaves
from .row_ranges import (
    GroupRows,
    RowRanges,
    are_sorted,
    check_row_counts,
    group_rows,
    joined,
    row_set,
    rows_alone,
)
from .selection import SelectedField, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.identity import ObjectId
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.metadata import SortingColumn
    from skipstone.parquet.format.page_index import OffsetIndexArrays
    from skipstone.pruning.table_schema import FileSchema

    I64 = NDArray[np.int64]


P = ParamSpec("P")
R = TypeVar("R")

# Stored and decoded bytes that are read together: as many row groups as fit, at least one.
_WAVE = 128 << 20
# A chunk of up to this many bytes is read whole for some of its rows.
SMALL_CHUNK = 128 << 10
# Page headers are read if a chunk has ``_WALKED`` bytes or more and at most the share ``_FEW`` of
# its rows is wanted: that takes less time than reading the chunk.
_WALKED, _FEW = 4 << 20, 0.5


class _HasPath(Protocol):
    path: str


def names_its_file(method: Callable[P, R]) -> Callable[P, R]:
    """Decorates a method of an object with a ``path``: each ``FormatError`` names that file.

    An error that names another file already keeps it. For a generator this includes errors that
    are raised while it is read.
    """

    def named(error: FormatError, args: tuple[Any, ...]) -> FormatError:
        return error.in_file(cast("_HasPath", args[0]).path)

    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def generated(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                yield from method(*args, **kwargs)
            except FormatError as error:
                if error.file is not None:
                    raise
                raise named(error, args) from error

        return cast("Callable[P, R]", generated)

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except FormatError as error:
            if error.file is not None:
                raise
            raise named(error, args) from error

    return called


class FileReader:
    """The version ``id`` of a file, which ``reader`` has pinned, with its footer."""

    def __init__(
        self,
        id: ObjectId,
        reader: PinnedReader,
        opened: OpenedFooter,
        *,
        verify_checksums: bool = True,
        memory: int | None = None,
    ) -> None:
        #: the canonical path or URI
        self.path = id.path
        #: the version that was opened, and that every read is checked against
        self.id = id
        #: reads ranges of this version
        self.reader = reader
        #: whether a page is checked against the checksum that its header states
        self.verify_checksums = verify_checksums
        #: the most bytes that are decoded together; ``None`` is the default (``decoding_memory``)
        self.memory = memory
        self._opened = opened
        #: the footer as arrays, and where it lies
        self.footer, self.tail = opened.footer, opened.tail
        #: decrypts the file, ``None`` if it is not encrypted
        self.decryptor = opened.decryptor

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.reader.size(self.path)

    @property
    def num_rows(self) -> int:
        """Rows of all row groups."""
        return int(self.footer.row_starts[-1])

    @property
    def num_row_groups(self) -> int:
        """Row groups."""
        return len(self.footer.row_starts) - 1

    @property
    def encrypted_footer(self) -> bool:
        """True where the footer is encrypted."""
        return self.tail.encrypted

    @property
    def signature_verified(self) -> bool:
        """True where a plaintext footer is signed, and its key was available."""
        return self._opened.signature_verified

    @property
    def unavailable(self) -> Mapping[int, SkipstoneError]:
        """Why columns cannot be read, by leaf ordinal: their keys are not available."""
        return self._opened.unavailable

    @property
    def column_files(self) -> Mapping[str, ObjectId]:
        """The versions of the files that its columns lie in, by ``file_path``, where known."""
        return self._opened.column_files

    @property
    def bytes_read(self) -> int:
        """Bytes requested so far, the footer included."""
        return self.reader.bytes_read

    @property
    def requests(self) -> int:
        """Requests made so far; for a local file, system calls."""
        return self.reader.storage.requests

    @property
    @names_its_file
    def schema(self) -> pa.Schema:
        """The Arrow schema that pyarrow gives for the file, except INT96: an instant in
        microseconds, as Spark reads it."""
        return self.selection.schema

    @property
    @names_its_file
    def file_schema(self) -> FileSchema:
        """The schema as Arrow and as Spark read it."""
        return self.selection.file_schema

    @cached_property
    def selection(self) -> Selection:
        """Maps names to columns."""
        return Selection(self.footer, self.path)

    @cached_property
    def row_starts(self) -> NDArray[np.int64]:
        """First row of each row group, and the number of rows; columns agree with them."""
        check_row_counts(self.footer)
        return self.footer.row_starts

    @cached_property
    def indexed(self) -> IndexedFile:
        """The file for evidence, with the indexes that were read so far."""
        homes = files_of_leaves(self.footer, self.column_files)
        found = IndexedFile(self.path, self.footer, self.decryptor, size=self.size, homes=homes)
        found.verify_crc = self.verify_checksums
        return found

    @cached_property
    def chunk_pages(self) -> ChunkPages:
        """Where the pages of its chunks lie."""
        return self.chunk_pages_of(self.indexed.offset_indexes)

    def chunk_pages_of(self, known: Mapping[ChunkKey, OffsetIndexArrays | Reason]) -> ChunkPages:
        """``chunk_pages`` with these ``known`` offset indexes."""
        return ChunkPages(self.reader, self.indexed, known, self.memory)

    def bulk_chunks(self, field: SelectedField) -> LeafChunks | None:
        """The chunks of a field for ``bulk_columns``; ``None`` where they are not of the usual
        forms."""
        key = field.shape.leaves
        if key not in self._bulk:
            usual = not self.encrypted_footer and not self.unavailable
            found = leaf_chunks(self.footer, self.size, field) if usual else None
            self._bulk[key] = found
        return self._bulk[key]

    def page_entries(
        self, chunks: Sequence[LeafChunks], group: int, share: float = 1.0
    ) -> tuple[ChunkEntries, ...]:
        """Where the pages of chunks of a row group lie, for ``few_rows``: by the offset indexes
        where chunks are large and have them, else the whole chunk. Where only a small ``share`` of
        its rows is wanted of a very large chunk without an index, its page headers are read."""
        key = (group, *(each.leaf for each in chunks))
        if share <= _FEW and not self.reader.storage.remote:
            self._walk_large(chunks, group, key)
        if key not in self._entries:
            pages, wanted = self.chunk_pages, [(group, each.leaf) for each in chunks]
            large = [each.spans[group, LENGTH] > SMALL_CHUNK for each in chunks]
            indexed = [
                each
                for each, is_large in zip(wanted, large, strict=True)
                if pages.is_known(each) or (is_large and pages.has_index(each))
            ]
            tables = dict(zip(indexed, pages.tables(indexed), strict=True))
            self._entries[key] = tuple(
                [
                    chunk_entries(tables.get(each), one.spans[group])
                    for each, one in zip(wanted, chunks, strict=True)
                ]
            )
        return self._entries[key]

    def _walk_large(self, chunks: Sequence[LeafChunks], group: int, key: tuple[int, ...]) -> None:
        """Finds the pages of local chunks of ``_WALKED`` bytes or more that have no index."""
        pages = self.chunk_pages
        wanted = [(group, each.leaf) for each in chunks if each.spans[group, LENGTH] >= _WALKED]
        missing = [each for each in wanted if not (pages.is_known(each) or pages.has_index(each))]
        if missing:
            with suppress(FormatError):  # the reader of the whole chunk reports the error
                pages.tables(missing)
                self._entries.pop(key, None)

    @cached_property
    def _entries(self) -> dict[tuple[int, ...], tuple[ChunkEntries, ...]]:
        return {}

    @cached_property
    def _bulk(self) -> dict[tuple[int, ...], LeafChunks | None]:
        return {}

    @cached_property
    def row_group_rows(self) -> tuple[tuple[int, ...], NDArray[np.int64], NDArray[np.int64]]:
        """Ordinals of the row groups with rows, the first row of each, and its number of rows."""
        counts = np.diff(self.row_starts)
        at = np.flatnonzero(counts)
        return tuple(at.tolist()), self.row_starts[at], counts[at]

    def _require_row_group(self, row_group: int) -> None:
        if not 0 <= row_group < self.num_row_groups:
            raise SkipstoneError(
                f"no row group {row_group} in {self.path}",
                hint=f"it has {self.num_row_groups}, counted from 0",
            )

    @names_its_file
    def chunk_key(self, row_group: int, column: str) -> ChunkKey:
        """Row group and leaf; ``column`` is the dotted path of one leaf."""
        self._require_row_group(row_group)
        found = self.footer.schema.leaf(column)
        if found is not None:
            return row_group, found.ordinal
        leaves = [leaf for each in self.selection.fields([column]) for leaf in each.shape.leaves]
        if len(leaves) != 1:
            names = [self.footer.schema.leaves[leaf].name for leaf in leaves[:4]]
            raise SkipstoneError(
                f"{column!r} has {len(leaves)} leaves", hint=f"name one: {', '.join(names)}"
            )
        return row_group, leaves[0]

    # -- rows --------------------------------------------------------------------------------------

    @cached_property
    def _templates(self) -> Templates:
        return Templates(self.selection)

    @names_its_file
    def read_rows(
        self, columns: Sequence[str] | None = None, row_ranges: RowRanges | None = None
    ) -> pa.Table:
        """Rows of the file, fetched page by page; equal to the same slice of the whole.

        ``columns`` are names of fields or dotted paths below them, ``None`` is all; ``row_ranges``
        half-open ranges ``(start, stop)`` of row positions (pairs, an integer array of two columns,
        or a ``RowSet``), ``None`` is all. Rows come in file order and once, whatever order the
        ranges are given in and however they overlap; rows past the end are left out.
        """
        return self.read_fields(self.selection.fields(columns), row_ranges)

    @names_its_file
    def read_fields(
        self, fields: Sequence[SelectedField], row_ranges: RowRanges | None = None
    ) -> pa.Table:
        """As ``read_rows``, for ``fields`` of the selection."""
        pieces = list(self.tables(fields, row_ranges))
        if not pieces:
            return no_rows(pa.schema([each.field for each in fields], self.schema.metadata))
        return joined(pieces)

    @names_its_file
    def iter_rows(
        self, columns: Sequence[str] | None = None, row_ranges: RowRanges | None = None
    ) -> Iterator[pa.RecordBatch]:
        """As ``read_rows``, but yields record batches.

        At most 128 MiB of row groups are held at a time, and at least one row group.
        """
        tables = self.tables(self.selection.fields(columns), row_set(row_ranges))
        return (batch for table in tables for batch in table.to_batches())

    @names_its_file
    def read_row_group(self, row_group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of one row group, whatever the row counts of the others are."""
        self._require_row_group(row_group)
        count = self.footer.group("num_rows")[row_group : row_group + 1]
        if not count.any():
            return self.selection.empty_table(columns)
        groups = [GroupRows(row_group, np.zeros(1, np.int64), count)]
        return self.read_groups(self.selection.fields(columns), groups)

    def read_groups(
        self,
        fields: Sequence[SelectedField],
        groups: Sequence[GroupRows],
        chunk_pages: ChunkPages | None = None,
    ) -> pa.Table:
        """Wanted rows of some row groups, fetched together; ``chunk_pages`` say where they lie."""
        pages = self.chunk_pages if chunk_pages is None else chunk_pages
        columns = read_groups(pages, self._templates, fields, groups)
        schema = pa.schema([field.field for field in fields], self.schema.metadata)
        return pa.Table.from_arrays(columns, schema=schema)

    @names_its_file
    def tables(
        self, fields: Sequence[SelectedField], row_ranges: RowRanges | None
    ) -> Iterator[pa.Table]:
        """Rows as tables, each of as many row groups as are fetched together."""
        leaves = [leaf for field in fields for leaf in field.shape.leaves]
        for leaf in leaves:
            if leaf in self.unavailable:
                raise self.unavailable[leaf]
        rows = row_set(row_ranges)
        if not fields:
            yield rows_alone(sum(group.count for group in group_rows(rows, self.row_starts)))
            return
        for wave, _ in self.waves(leaves, rows, _WAVE):
            yield self.read_groups(fields, wave)

    def waves(
        self, leaves: Sequence[int], rows: RowSet | None, limit: int
    ) -> Iterator[tuple[list[GroupRows], int]]:
        """``rows`` in runs of row groups, each with its bytes: those of the chunks of ``leaves``,
        stored and decoded. A run takes up to ``limit`` bytes, or is a single row group."""
        size, counts = self._chunk_sizes(tuple(leaves)), self.footer.group("num_rows")
        groups = group_rows(rows, self.row_starts)
        # Pages are read whole, so this is too low; waves need not be exact.
        parts = [
            int(size[each.row_group]) * each.count // max(int(counts[each.row_group]), 1)
            for each in groups
        ]
        for start, stop in runs_up_to(parts, limit):
            yield groups[start:stop], sum(parts[start:stop])

    def read_size(self, leaves: tuple[int, ...]) -> int:
        """The bytes of all chunks of ``leaves``, stored and decoded."""
        found = self._sizes.get(leaves)
        if found is None:
            self.row_starts  # noqa: B018 - FormatError where the counts of rows contradict each other
            found = self._sizes[leaves] = int(self._chunk_sizes(leaves).sum())
        return found

    @cached_property
    def _sizes(self) -> dict[tuple[int, ...], int]:
        return {}

    def _chunk_sizes(self, leaves: tuple[int, ...]) -> NDArray[np.int64]:
        """The bytes of the chunks of ``leaves`` in each row group: of their pages as stored, and of
        their decoded values, which are held at once."""
        return self.footer.by_row_group(_read_sizes, leaves)

    def row_waves(
        self, leaves: Sequence[int], rows: RowSet | None, limit: int
    ) -> Iterator[tuple[RowSet, int]]:
        """As ``waves``, with ranges of rows of the file."""
        for wave, held in self.waves(leaves, rows, limit):
            first = [self.row_starts[group.row_group] for group in wave]
            starts = [group.starts + each for group, each in zip(wave, first, strict=True)]
            stops = [group.stops + each for group, each in zip(wave, first, strict=True)]
            yield RowSet(np.concatenate(starts), np.concatenate(stops)), held


_OFFSET = 8


def _read_sizes(footer: FooterArrays, leaves: tuple[int, ...]) -> NDArray[np.int64]:
    at = list(leaves)
    stored, decoded = footer.chunk("total_compressed_size"), footer.by_row_group(decoded_size)
    return np.asarray(stored[:, at].sum(axis=1) + decoded[:, at].sum(axis=1))


def decoded_size(footer: FooterArrays) -> NDArray[np.int64]:
    """The memory that every decoded chunk takes, int64 (R, C); 0 where its metadata are absent.

        fixed width   num_values × width
        byte arrays   unencoded_byte_array_data_bytes + 8 × num_values     with size statistics
                      total_uncompressed_size + 8 × num_values             without them

    and an eighth of a byte per value for validity. Without size statistics, the estimate for byte
    arrays is too low where one dictionary entry stands for many long values.
    """
    leaves = footer.schema.leaves
    widths = np.array([WIDTHS.get(leaf.type, leaf.type_length) for leaf in leaves], np.float64)
    texts = np.array([leaf.type is Type.BYTE_ARRAY for leaf in leaves], np.bool_)
    values = np.maximum(footer.chunk("num_values"), 0).astype(np.float64)
    said = footer.chunk("unencoded_byte_array_data_bytes")
    plain = np.maximum(footer.chunk("total_uncompressed_size"), 0)
    content = np.where(said >= 0, said, plain) + _OFFSET * values
    # Floats, because wrong counts must not wrap around to small ones.
    sizes = np.where(texts, content, values * widths) + values / 8
    return np.minimum(sizes, 2.0**50).astype(np.int64)


def is_sorted(file: FileReader, row_group: int, claimed: Sequence[SortingColumn]) -> bool | None:
    """Whether the rows of a row group have this order; ``None`` where a type has no order."""
    if not file.footer.group("num_rows")[row_group]:
        return True
    leaves = file.footer.schema.leaves

    def values(each: SortingColumn) -> tuple[Any, pa.DataType | None]:
        leaf = leaves[each.column_idx]
        type_ = file.indexed.stored(each.column_idx).type
        if type_ is None:
            return None, None
        return file.read_row_group(row_group, [leaf.name]).column(0), type_

    return are_sorted((each, leaves[each.column_idx], *values(each)) for each in claimed)
