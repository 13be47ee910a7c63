"""``ParquetFile``: one Parquet file, its metadata as data, and its rows page by page.

>>> file = skipstone.ParquetFile("events.parquet")
>>> file.read("user_id = 'u-8814'", columns=["ts", "amount"])   # pages that may match
>>> file.read_rows(["amount"], [(1_000_000, 1_001_000)])        # pages that hold these rows

Opening takes the file's last 64 KiB in one request, a longer footer one more. What was parsed stays
in the object: footer, page indexes, headers of Bloom filters. Every later read checks that the file
is still the version that was opened; one that has changed is a ``StaleError``. Chunks that name
another file (``file_path``, as in ``_metadata`` summaries) are read from there.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.human import plural
from skipstone.identity import canonical_path
from skipstone.parquet.evidence.indexed_file import IndexedFile
from skipstone.parquet.format.decoded_size import decoded_size
from skipstone.parquet.index_pages.index_pages import IndexPages
from skipstone.parquet.tables.metadata_tables import chunks, row_groups
from skipstone.questdb.evidence.opened_pm import OpenedPm
from skipstone.questdb.format.pm import PmSnapshot
from skipstone.questdb.pm_views import PmViews, open_given
from skipstone.storage import open_storage

from .chunk_indexes import bloom_filter
from .chunk_pages import ChunkPages
from .column_files import homes_of
from .fetch import GroupRows, Templates, group_rows, read_groups
from .file_errors import names_its_file
from .list_entries import check_row_counts
from .opened_footer import TAIL_GUESS, OpenedFooter, open_footer
from .page_metadata import cell_of, column_index, offset_index, page_table
from .pinned_reader import PinnedReader
from .query import Queries
from .row_ranges import row_set
from .selection import Selection
from .take_rows import rows_alone

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.errors import SkipstoneError
    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.bloom_filter import BloomFilter
    from skipstone.parquet.format.footer import Tail
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.metadata import FileMetaData
    from skipstone.parquet.format.page_header import PageHeader
    from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
    from skipstone.pruning import Reason
    from skipstone.pruning.plan import Plan
    from skipstone.questdb.pm_views import PmGiven, View

    from .query import Where
    from .row_ranges import RowRanges
    from .selection import Field
    from .verify import Verification

__all__ = ["ParquetFile", "read_rows"]

log = logging.getLogger("skipstone")

# Bytes of one wave, stored and decoded: as many row groups as fit, at least one.
_WAVE = 128 << 20


class ParquetFile:
    """One Parquet file: its metadata as data, and its rows page by page.

    ``read`` and ``count`` take a predicate, ``read_rows`` and ``iter_rows`` positions; ``plan``
    says what a predicate leaves to read; ``row_groups``, ``chunks`` and ``pages`` are the metadata
    as tables, ``metadata`` as values; ``verify`` holds it against what is there. Sizes and offsets
    are bytes, rows count from 0. Nothing stays open between calls: there is nothing to close.

    ``path`` is local or a URI (``s3://…``); ``storage_options`` are an object store's;
    ``decryption`` holds the keys of an encrypted file (``skipstone.Decryption``). Raises
    ``FileNotFoundError``, ``FormatError`` for a file that is no Parquet, and
    ``KeyUnavailableError`` for an encrypted footer without its key; every method raises
    ``StaleError`` when the file is no longer the one that was opened.

    ``pm`` is the ``_pm`` of the file (a path, bytes, or what was opened of it): ``plan``, ``read``,
    ``read_rows`` and ``count`` then take row groups, statistics and places from it, and read no
    footer, for the columns that a ``_pm`` describes fully. For others, for all that is metadata,
    and where the ``_pm`` is no use (a warning, and a reason in the plan), the footer is read.
    ``page_index`` lets predicates read it too, where it says more than it costs. ``size``: only so
    many bytes of the file count, and it may grow meanwhile; the footer is the one that ends there.
    """

    #: of a file that is seen by its ``_pm``: what it was made of
    view: View | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        decryption: Decryption | None = None,
        pm: PmGiven | None = None,
        size: int | None = None,
        page_index: bool = False,
    ) -> None:
        if decryption is not None and not hasattr(decryption, "has_keys"):
            raise TypeError(
                f"decryption is a skipstone.Decryption, not {type(decryption).__name__}"
            )
        #: the canonical path or URI
        self.path = canonical_path(path)
        #: ranges of this version of the file
        self.reader = reader = PinnedReader(open_storage(self.path, storage_options))
        self._decryption = decryption
        tail: memoryview | None = None
        if pm is None and size is None:
            found, tail = reader.storage.read_tail(self.path, TAIL_GUESS)
            reader.bytes_read += len(tail)
        else:
            found = reader.storage.stat(self.path)
            if size is None and isinstance(pm, OpenedPm | PmSnapshot):
                own = (pm.snapshot if isinstance(pm, OpenedPm) else pm).parquet_size
                size = None if own == found.size else own
        if size is None:
            reader.pin(found)
        else:
            found = reader.pin_beginning(found, size)
        #: the version that was opened, and that every read is checked against
        self.id: ObjectId = found
        #: why a ``_pm`` is not used
        self.reasons: tuple[Reason, ...] = ()
        self._views: PmViews | None = None
        if pm is not None:
            given = open_given(pm, self.path, reader.storage, self.size)
            if isinstance(given, OpenedPm):
                self._views = PmViews(self, given, page_index=page_index)
                return
            self.reasons = (given,)
            log.warning("%s: the footer is read instead: %s", self.path, given)
        self._opened = open_footer(reader, self.path, decryption, tail)

    @cached_property
    def _opened(self) -> OpenedFooter:
        return open_footer(self.reader, self.path, self._decryption)

    @classmethod
    def of_footer(cls, id: ObjectId, reader: PinnedReader, opened: OpenedFooter) -> ParquetFile:
        """The version of a file that ``reader`` has pinned, by a footer that is known to be its."""
        made = object.__new__(cls)
        made.path, made.reader, made.id, made._opened = id.path, reader, id, opened
        made._decryption, made.reasons, made._views = None, (), None
        return made

    def through(self, opened: OpenedFooter | None, view: View | None = None) -> ParquetFile:
        """The same version of the file by another footer, ``None`` its own; ``view`` says of what
        it was made."""
        other = object.__new__(ParquetFile)
        other.path, other.reader, other.id = self.path, self.reader, self.id
        other._decryption, other.reasons, other._views = self._decryption, self.reasons, None
        other._opened = self._opened if opened is None else opened
        other.view = view
        return other

    def __repr__(self) -> str:
        rows, groups = plural(self.num_rows, "row"), plural(self.num_row_groups, "row group")
        return f"ParquetFile({self.path!r}, {rows} in {groups})"

    def __dir__(self) -> list[str]:
        # What completion offers; the rest is for the modules beside this one.
        return [name for name in super().__dir__() if name.startswith("__") or name in _PUBLIC]

    # -- metadata ----------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.reader.size(self.path)

    @property
    def num_rows(self) -> int:
        """Rows of all row groups."""
        return int(self._plain_starts[-1])

    @property
    def _plain_starts(self) -> NDArray[np.int64]:
        return self.footer.row_starts if self._views is None else self._views.file.row_starts

    @property
    def num_row_groups(self) -> int:
        """Row groups."""
        return len(self._plain_starts) - 1

    @property
    def footer(self) -> FooterArrays:
        """The footer as arrays."""
        return self._opened.footer

    @property
    def tail(self) -> Tail:
        """Where the footer lies."""
        return self._opened.tail

    @property
    def encrypted_footer(self) -> bool:
        """True where the footer is encrypted."""
        return self.tail.encrypted

    @property
    def signature_verified(self) -> bool:
        """True where a plaintext footer is signed, and its key was at hand."""
        return self._opened.signature_verified

    @property
    def unavailable(self) -> Mapping[int, SkipstoneError]:
        """Why columns cannot be read, by leaf ordinal: their keys are not at hand."""
        return self._opened.unavailable

    @property
    def column_files(self) -> Mapping[str, ObjectId]:
        """The versions of the files that its columns lie in, by ``file_path``, where known."""
        opened: OpenedFooter | None = self.__dict__.get("_opened")
        return {} if opened is None else opened.column_files

    @property
    def bytes_read(self) -> int:
        """Bytes asked for so far, the footer included."""
        return self.reader.bytes_read

    @property
    def requests(self) -> int:
        """Requests made so far; for a local file, system calls."""
        return self.reader.storage.requests

    @property
    @names_its_file
    def metadata(self) -> FileMetaData:
        """The footer as frozen values: ``FileMetaData`` with the names of parquet.thrift.

        ``row_groups`` and ``chunks`` give the same as tables, which is quicker where there is much.
        """
        return self.footer.metadata

    @property
    @names_its_file
    def schema(self) -> pa.Schema:
        """The Arrow schema that pyarrow gives for the file."""
        return self._through(None).selection.schema

    def _through(self, columns: Sequence[str] | None, where: Where = None) -> ParquetFile:
        """The file by its ``_pm`` where that is enough for these columns."""
        return self if self._views is None else self._views.of(columns, where)

    @names_its_file
    def row_groups(self) -> pa.Table:
        """One row per row group; columns have the names of parquet.thrift."""
        return row_groups(self.footer)

    @names_its_file
    def chunks(self) -> pa.Table:
        """One row per column chunk: sizes and offsets in bytes, statistics as bytes and as text.

        Columns have the names of parquet.thrift; ``leaf`` is the ordinal of ``column`` (a dotted
        path) in the schema, ``dict_only`` whether all its data pages are dictionary-encoded. Null
        is what the file does not say.
        """
        return chunks(self.footer)

    @names_its_file
    def pages(self, columns: Sequence[str] | None = None) -> pa.Table:
        """One row per page: what its header says, and the page index where there is one.

        ``offset``, ``header_size``, ``compressed_size`` (header and body) and
        ``uncompressed_page_size`` are bytes; ``first_row_index`` counts from the row group's first
        row. Reads the page headers of ``columns`` (all that can be read, by default).
        """
        return page_table(self, columns)

    @names_its_file
    def page_headers(self, row_group: int, column: str) -> list[PageHeader]:
        """The headers of all pages of a chunk, the dictionary's first."""
        return [found.header for found in self.chunks_pages.walk(self.cell(row_group, column))]

    @names_its_file
    def offset_index(self, row_group: int, column: str) -> OffsetIndexArrays | None:
        """Where the pages of a chunk lie, ``None`` if the file does not say."""
        return offset_index(self, self.cell(row_group, column))

    @names_its_file
    def column_index(self, row_group: int, column: str) -> ColumnIndexArrays | None:
        """What bounds the values of each page of a chunk, ``None`` if the file does not say."""
        return column_index(self, self.cell(row_group, column))

    @names_its_file
    def bloom_filter(self, row_group: int, column: str) -> BloomFilter | None:
        """The whole Bloom filter of a chunk, ``None`` if it has none."""
        return bloom_filter(self, self.cell(row_group, column))

    def index_pages(self, column: str) -> IndexPages:
        """The index pages of 2013 of a leaf: its data pages by key or by row, and rows by these."""
        return IndexPages(self, column)

    @names_its_file
    def cell(self, row_group: int, column: str) -> tuple[int, int]:
        """Row group and leaf; ``column`` is the dotted path of one leaf."""
        return cell_of(self, row_group, column)

    @cached_property
    def selection(self) -> Selection:
        """Names to columns."""
        return Selection(self.footer, self.path)

    @cached_property
    def row_starts(self) -> NDArray[np.int64]:
        """First row of each row group, and the number of rows; columns agree with them."""
        check_row_counts(self.footer)
        return self.footer.row_starts

    @cached_property
    def indexed(self) -> IndexedFile:
        """The file as evidence sees it, with what was read of its indexes."""
        opened, homes = self._opened, homes_of(self.footer, self.column_files)
        return IndexedFile(self.path, self.footer, opened.decryptor, size=self.size, homes=homes)

    @cached_property
    def chunks_pages(self) -> ChunkPages:
        """Where the pages of its chunks lie."""
        return ChunkPages(
            self.reader,
            self.path,
            self.footer,
            self._opened.decryptor,
            self.indexed.offset_indexes,
            None if self.view is None else self.view.nulls,
        )

    @cached_property
    def _queries(self) -> Queries:
        return Queries(self)

    @cached_property
    def _decoded_size(self) -> NDArray[np.int64]:
        return decoded_size(self.footer)

    @cached_property
    def _templates(self) -> Templates:
        return Templates(self.selection)

    # -- rows --------------------------------------------------------------------------------------

    @names_its_file
    def read_rows(
        self, columns: Sequence[str] | None = None, row_ranges: RowRanges | None = None
    ) -> pa.Table:
        """Rows of the file, fetched page by page; equal to the same slice of the whole.

        ``columns`` are names of fields or dotted paths below them, ``None`` is all; ``row_ranges``
        half-open ranges ``(start, stop)`` of row positions (pairs, an integer array of two columns,
        or a ``RowSet``), ``None`` is all. Rows come in file order and once, whatever order the
        ranges are given in and however they overlap; those past the end are left out.
        """
        file = self._through(columns)
        pieces = list(file.waves(file.selection.fields(columns), row_ranges))
        if len(pieces) == 1:
            return pieces[0]
        return pa.concat_tables(pieces) if pieces else file.selection.empty_table(columns)

    @names_its_file
    def iter_rows(
        self, columns: Sequence[str] | None = None, row_ranges: RowRanges | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The same rows as record batches.

        So many row groups are held at a time as make up 128 MiB, and at least one.
        """
        file = self._through(columns)
        tables = file.waves(file.selection.fields(columns), row_set(row_ranges))
        return (batch for table in tables for batch in table.to_batches())

    def read_row_group(self, row_group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of one row group, whatever the others say of theirs."""
        if self._views is not None:
            return self._through(columns).read_row_group(row_group, columns)
        fields = self.selection.fields(columns)
        count = self.footer.group("num_rows")[row_group : row_group + 1]
        groups = [GroupRows(row_group, np.zeros(1, np.int64), count)]
        read = read_groups(self.chunks_pages, self._templates, fields, groups)
        return pa.Table.from_arrays(read, schema=self._schema_of(fields))

    # -- predicates --------------------------------------------------------------------------------

    @names_its_file
    def plan(self, where: Where = None, *, time_zone: str = "UTC") -> Plan:
        """Which rows may match ``where``, and why the others need not be read.

        ``where`` is a Spark SQL predicate (or DNF tuples), ``time_zone`` that of timestamps in it
        that have none. Nothing but indexes is read: statistics of the footer, blocks of Bloom
        filters, page indexes. Raises ``PredicateError``.
        """
        return self._through((), where)._queries.plan(where, time_zone)

    @names_its_file
    def read(
        self, where: Where = None, columns: Sequence[str] | None = None, *, time_zone: str = "UTC"
    ) -> pa.Table:
        """The rows that match ``where``, with Spark's meaning (NaN is equal to itself and the
        largest, 0.0 equals -0.0), in file order.

        Raises as ``plan``, and ``UnsupportedError`` where ``where`` has a part that cannot be
        decided here (a function call, a subquery).
        """
        return self._through(columns, where)._queries.read(where, columns, time_zone)

    @names_its_file
    def count(self, where: Where = None, *, time_zone: str = "UTC") -> int:
        """How many rows match; from the indexes alone where they decide it."""
        return self._through((), where)._queries.count(where, time_zone)

    @names_its_file
    def verify(self, columns: Sequence[str] | None = None) -> Verification:
        """Read everything, and hold what the file says of itself against its values.

        Sorting columns that hold are relied on by later plans of this object.
        """
        from .verify import verify_file

        return verify_file(self, columns)

    # -- waves -------------------------------------------------------------------------------------

    @names_its_file
    def waves(self, fields: Sequence[Field], row_ranges: RowRanges | None) -> Iterator[pa.Table]:
        """Rows as tables, as many row groups in each as are fetched together."""
        leaves = [leaf for field in fields for leaf in field.shape.leaves]
        for leaf in leaves:
            if leaf in self.unavailable:
                raise self.unavailable[leaf]
        groups = group_rows(row_set(row_ranges), self.row_starts)
        if not fields:
            yield rows_alone(sum(group.count for group in groups))
            return
        schema = self._schema_of(fields)
        for wave in self._in_waves(groups, leaves):
            columns = read_groups(self.chunks_pages, self._templates, fields, wave)
            yield pa.Table.from_arrays(columns, schema=schema)

    def _in_waves(
        self, groups: Sequence[GroupRows], leaves: Sequence[int]
    ) -> Iterator[list[GroupRows]]:
        # Both are held at once: the pages as stored, and what is decoded of them.
        stored, decoded = self.footer.chunk("total_compressed_size"), self._decoded_size
        rows = self.footer.group("num_rows")
        wave: list[GroupRows] = []
        held = 0
        for group in groups:
            at = group.row_group
            whole = int(stored[at, leaves].sum()) + int(decoded[at, leaves].sum())
            # Pages are whole, so this is a guess from below; waves need not be exact.
            size = whole * group.count // max(int(rows[group.row_group]), 1)
            if wave and held + size > _WAVE:
                yield wave
                wave, held = [], 0
            wave.append(group)
            held += size
        if wave:
            yield wave

    def _schema_of(self, fields: Sequence[Field]) -> pa.Schema:
        return pa.schema([field.field for field in fields], self.schema.metadata)


_OWN = {"cell", "chunks_pages", "footer", "indexed", "selection", "tail", "through", "waves"}
_PUBLIC = {name for name in vars(ParquetFile) if name[0] != "_"} - _OWN - {"view"} | {"path"}


def read_rows(
    file: str | os.PathLike[str] | ParquetFile,
    columns: Sequence[str] | None = None,
    row_ranges: RowRanges | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    decryption: Decryption | None = None,
) -> pa.Table:
    """Rows of a Parquet file by position, reading only the pages that hold them.

    ``columns`` are names or dotted paths, ``row_ranges`` half-open pairs ``(start, stop)``, and
    ``None`` is all. This is ``ParquetFile.read_rows`` of a file that is opened for it; keep a
    ``ParquetFile`` to read more than once.
    """
    if not isinstance(file, ParquetFile):
        file = ParquetFile(file, storage_options=storage_options, decryption=decryption)
    return file.read_rows(columns, row_ranges)
