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

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.bounds import RowSet
from skipstone.errors import FormatError, SkipstoneError
from skipstone.formats.parquet.decoded_size import decoded_size
from skipstone.formats.parquet.encryption.column_metadata import adopt_column_metadata
from skipstone.formats.parquet.encryption.file_decryptor import EncryptedFooter, FileDecryptor
from skipstone.formats.parquet.encryption.material import key_material_path
from skipstone.formats.parquet.footer import TAIL_LENGTH, Tail
from skipstone.formats.parquet.footer_arrays import FooterArrays
from skipstone.formats.parquet.tables import chunks, row_groups
from skipstone.human import plural
from skipstone.identity import canonical_path
from skipstone.index.parquet.indexed_file import IndexedFile
from skipstone.storage import open_storage

from .chunk_pages import ChunkPages, in_file
from .entries import check_row_counts
from .fetch import GroupRows, Templates, group_rows, read_groups
from .index_parts import bloom_filter
from .naming import names_its_file
from .page_metadata import column_index, offset_index, page_table
from .pinned import PinnedReader
from .query import Queries
from .selection import Selection
from .taking import rows_alone

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.formats.parquet.bloom_filter import BloomFilter
    from skipstone.formats.parquet.encryption.keys import Decryption
    from skipstone.formats.parquet.metadata import FileMetaData
    from skipstone.formats.parquet.page_header import PageHeader
    from skipstone.formats.parquet.page_index import ColumnIndexArrays, OffsetIndexArrays
    from skipstone.identity import ObjectId
    from skipstone.plan import Plan

    from .query import Where
    from .selection import Field
    from .verify import Verification

__all__ = ["ParquetFile", "read_rows"]

#: half-open ranges of row positions: pairs, an integer array of two columns, or a ``RowSet``
RowRanges: TypeAlias = "RowSet | Sequence[tuple[int, int]] | NDArray[np.integer]"

_TAIL_GUESS = 64 * 1024
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
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        decryption: Decryption | None = None,
    ) -> None:
        if decryption is not None and not hasattr(decryption, "has_keys"):
            raise TypeError(
                f"decryption is a skipstone.Decryption, not {type(decryption).__name__}"
            )
        #: the canonical path or URI
        self.path = canonical_path(path)
        #: ranges of this version of the file
        self.reader = PinnedReader(open_storage(self.path, storage_options))
        #: the version that was opened, and that every read is checked against
        self.id: ObjectId
        self.id, tail = self.reader.storage.read_tail(self.path, _TAIL_GUESS)
        self.reader.pin(self.id)
        self.reader.bytes_read += len(tail)
        try:
            self._open(tail, decryption)
        except FormatError as error:
            raise in_file(error, self.path) from error

    def _open(self, tail: memoryview, decryption: Decryption | None) -> None:
        size = self.size
        #: where the footer lies
        self.tail = end = Tail.from_bytes(tail[-TAIL_LENGTH:], size)
        self.encrypted_footer = end.encrypted
        if end.length + TAIL_LENGTH <= len(tail):
            data = tail[len(tail) - TAIL_LENGTH - end.length : -TAIL_LENGTH]
        else:
            data = self.reader.one(self.path, end.offset, end.length)
        #: True where a plaintext footer is signed, and its key was at hand
        self.signature_verified = False
        decryptor: FileDecryptor | None
        if end.encrypted:
            sealed = EncryptedFooter.from_bytes(data, base=end.offset)
            decryptor = FileDecryptor.of_encrypted_footer(
                decryption,
                sealed.crypto,
                file=self.path,
                load_key_material=self._key_material,
            )
            plain = decryptor.decrypt_footer(sealed.module, base=sealed.offset)
            footer = FooterArrays.scan(plain, end.offset)
        else:
            footer = FooterArrays.scan(data, end.offset)
            decryptor = FileDecryptor.of_plaintext_footer(
                decryption,
                footer.encryption_algorithm,
                footer.footer_signing_key_metadata,
                file=self.path,
                load_key_material=self._key_material,
            )
            if decryptor is not None:
                self.signature_verified = decryptor.verify_if_possible(data, base=end.offset)
        #: why columns cannot be read, by leaf ordinal: their keys are not at hand
        self.unavailable: Mapping[int, SkipstoneError] = {}
        if decryptor is not None:
            footer, self.unavailable = adopt_column_metadata(footer, decryptor)
        self.footer, self._decryptor = footer, decryptor

    def _key_material(self) -> bytes:
        return self.reader.storage.read(key_material_path(self.path))

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
        return int(self.footer.row_starts[-1])

    @property
    def num_row_groups(self) -> int:
        """Row groups."""
        return self.footer.num_row_groups

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
        return self.selection.schema

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

    @names_its_file
    def cell(self, row_group: int, column: str) -> tuple[int, int]:
        """Row group and leaf; ``column`` is the dotted path of one leaf."""
        if not 0 <= row_group < self.num_row_groups:
            raise SkipstoneError(
                f"no row group {row_group} in {self.path}",
                hint=f"it has {self.num_row_groups}, counted from 0",
            )
        found = self.footer.schema.leaf(column)
        if found is None:
            leaves = [
                leaf for each in self.selection.fields([column]) for leaf in each.shape.leaves
            ]
            if len(leaves) != 1:
                names = [self.footer.schema.leaves[leaf].name for leaf in leaves[:4]]
                raise SkipstoneError(
                    f"{column!r} has {len(leaves)} leaves", hint=f"name one: {', '.join(names)}"
                )
            return row_group, leaves[0]
        return row_group, found.ordinal

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
        return IndexedFile(self.path, self.footer, self._decryptor, size=self.size)

    @cached_property
    def chunks_pages(self) -> ChunkPages:
        """Where the pages of its chunks lie."""
        return ChunkPages(
            self.reader, self.path, self.footer, self._decryptor, self.indexed.offset_indexes
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
        self,
        columns: Sequence[str] | None = None,
        row_ranges: RowRanges | None = None,
    ) -> pa.Table:
        """Rows of the file, fetched page by page; equal to the same slice of the whole.

        ``columns`` are names of fields or dotted paths below them, ``None`` is all; ``row_ranges``
        half-open ranges ``(start, stop)`` of row positions (pairs, an integer array of two columns,
        or a ``RowSet``), ``None`` is all. Rows come in file order and once, whatever order the
        ranges are given in and however they overlap; those past the end are left out.
        """
        fields = self.selection.fields(columns)
        pieces = list(self._waves(fields, row_ranges))
        if len(pieces) == 1:
            return pieces[0]
        return pa.concat_tables(pieces) if pieces else self.selection.empty_table(columns)

    @names_its_file
    def iter_rows(
        self,
        columns: Sequence[str] | None = None,
        row_ranges: RowRanges | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The same rows as record batches.

        So many row groups are held at a time as make up 128 MiB, and at least one.
        """
        tables = self._waves(self.selection.fields(columns), _row_set(row_ranges))
        return (batch for table in tables for batch in table.to_batches())

    def waves(
        self,
        fields: Sequence[Field],
        row_ranges: RowRanges | None,
    ) -> Iterator[pa.Table]:
        """The same rows as tables, as many row groups in each as are fetched together."""
        return self._waves(fields, row_ranges)

    def read_row_group(self, row_group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of one row group, whatever the others say of theirs."""
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
        return self._queries.plan(where, time_zone)

    @names_its_file
    def read(
        self,
        where: Where = None,
        columns: Sequence[str] | None = None,
        *,
        time_zone: str = "UTC",
    ) -> pa.Table:
        """The rows that match ``where``, with Spark's meaning (NaN is equal to itself and the
        largest, 0.0 equals -0.0), in file order.

        Raises as ``plan``, and ``UnsupportedError`` where ``where`` has a part that cannot be
        decided here (a function call, a subquery).
        """
        return self._queries.read(where, columns, time_zone)

    @names_its_file
    def count(self, where: Where = None, *, time_zone: str = "UTC") -> int:
        """How many rows match; from the indexes alone where they decide it."""
        return self._queries.count(where, time_zone)

    @names_its_file
    def verify(self, columns: Sequence[str] | None = None) -> Verification:
        """Read everything, and hold what the file says of itself against its values.

        Sorting columns that hold are relied on by later plans of this object.
        """
        from .verify import verify_file

        return verify_file(self, columns)

    # -- waves -------------------------------------------------------------------------------------

    def _groups(self, row_ranges: RowRanges | None) -> list[GroupRows]:
        return group_rows(_row_set(row_ranges), self.row_starts)

    @names_its_file
    def _waves(
        self,
        fields: Sequence[Field],
        row_ranges: RowRanges | None,
    ) -> Iterator[pa.Table]:
        leaves = [leaf for field in fields for leaf in field.shape.leaves]
        for leaf in leaves:
            if leaf in self.unavailable:
                raise self.unavailable[leaf]
        groups = self._groups(row_ranges)
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


_OWN = {"cell", "chunks_pages", "indexed", "selection", "waves"}
_PUBLIC = {name for name in vars(ParquetFile) if name[0] != "_"} - _OWN
_PUBLIC |= {"path", "encrypted_footer", "signature_verified", "unavailable"}


def _row_set(row_ranges: RowRanges | None) -> RowSet | None:
    if row_ranges is None or isinstance(row_ranges, RowSet):
        return row_ranges
    try:
        pairs = np.asarray(row_ranges)
    except ValueError:  # of several lengths
        pairs = np.empty(0, np.object_)
    if pairs.shape[0:1] == (0,) and pairs.dtype != np.object_:
        return RowSet()
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise TypeError("row_ranges are pairs of whole numbers: [(start, stop), …]")
    return RowSet(pairs[:, 0], pairs[:, 1])


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
