"""``ParquetFile``: one Parquet file, its metadata as data, and its rows page by page.

>>> file = skipstone.ParquetFile("events.parquet")
>>> file.query("user_id = 'u-8814'", columns=["ts", "amount"])  # pages that may match
>>> file.read_rows(["amount"], [(1_000_000, 1_001_000)])        # pages that hold these rows

Opening takes the file's last 64 KiB in one request, and one more for a longer footer. Parsed
metadata stays in the object. Every later read checks that the file is still the version that was
opened; a changed file is a ``StaleError``. Chunks that name another file (``file_path``, as in
``_metadata`` summaries) are read from there.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from skipstone.human import plural
from skipstone.identity import canonical_path
from skipstone.parquet.arrow.metadata_tables import chunks, row_groups
from skipstone.parquet.index_pages.index_pages import IndexPages
from skipstone.storage import open_storage

from .file_reader import FileReader, names_its_file
from .opened_footer import TAIL_GUESS, load_footer
from .page_metadata import column_index, offset_index, page_table, read_bloom_filter
from .pinned_reader import PinnedReader
from .query import FileQueries

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.bloom_filter import BloomFilter
    from skipstone.parquet.format.metadata import FileMetaData, PageHeader
    from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
    from skipstone.pruning.plan import Plan

    from .opened_footer import OpenedFooter
    from .query import Where
    from .verify import Verification


class ParquetFile(FileReader):
    """One Parquet file: its metadata as data, and its rows page by page.

    ``query`` and ``count`` take a predicate, ``read_rows`` and ``iter_rows`` positions; ``plan``
    says what a predicate leaves to read; ``row_groups``, ``chunks`` and ``pages`` are the metadata
    as tables, ``metadata`` as values; ``verify`` checks it against the values. Sizes and offsets
    are bytes, rows count from 0. Nothing stays open between calls: there is nothing to close.

    ``path`` is local or a URI (``s3://…``); ``storage_options`` are an object store's;
    ``decryption`` holds the keys of an encrypted file (``skipstone.Decryption``). Raises
    ``FileNotFoundError``, ``FormatError`` for a file that is not Parquet, and
    ``KeyUnavailableError`` for an encrypted footer without its key; every method raises
    ``StaleError`` when the file is no longer the one that was opened.

    ``size``: only this many bytes of the file count, and the file may grow meanwhile. The footer is
    the one that ends there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        decryption: Decryption | None = None,
        size: int | None = None,
    ) -> None:
        if decryption is not None and not hasattr(decryption, "has_keys"):
            raise TypeError(
                f"decryption is a skipstone.Decryption, not {type(decryption).__name__}"
            )
        where = canonical_path(path)
        reader = PinnedReader(open_storage(where, storage_options))
        tail: memoryview | None = None
        if size is None:
            found, tail = reader.storage.read_tail(where, TAIL_GUESS)
            reader.bytes_read += len(tail)
            reader.pin(found)
        else:
            found = reader.pin_beginning(reader.storage.stat(where), size)
        super().__init__(found, reader, load_footer(reader, where, decryption, tail))

    @classmethod
    def of_footer(cls, id: ObjectId, reader: PinnedReader, opened: OpenedFooter) -> ParquetFile:
        """The version of a file that ``reader`` has pinned, by its footer, which is known."""
        made = object.__new__(cls)
        FileReader.__init__(made, id, reader, opened)
        return made

    def __repr__(self) -> str:
        rows, groups = plural(self.num_rows, "row"), plural(self.num_row_groups, "row group")
        return f"ParquetFile({self.path!r}, {rows} in {groups})"

    def __dir__(self) -> list[str]:
        # The names that completion offers; the others are for modules of this project.
        return [name for name in super().__dir__() if name.startswith("__") or name in _PUBLIC]

    # -- metadata ----------------------------------------------------------------------------------

    @property
    @names_its_file
    def metadata(self) -> FileMetaData:
        """The footer as frozen values: ``FileMetaData`` with the names of parquet.thrift.

        ``row_groups`` and ``chunks`` give the same as tables, which is faster for large footers.
        """
        return self.footer.metadata

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
        key = self.chunk_key(row_group, column)
        return [found.header for found in self.chunk_pages.walk(key)]

    @names_its_file
    def offset_index(self, row_group: int, column: str) -> OffsetIndexArrays | None:
        """Where the pages of a chunk lie, ``None`` if the file does not say."""
        return offset_index(self, self.chunk_key(row_group, column))

    @names_its_file
    def column_index(self, row_group: int, column: str) -> ColumnIndexArrays | None:
        """Bounds of the values of each page of a chunk, ``None`` if the file does not say."""
        return column_index(self, self.chunk_key(row_group, column))

    @names_its_file
    def bloom_filter(self, row_group: int, column: str) -> BloomFilter | None:
        """The whole Bloom filter of a chunk, ``None`` if it has none."""
        return read_bloom_filter(self, self.chunk_key(row_group, column))

    def index_pages(self, column: str) -> IndexPages:
        """The index pages of 2013 of a leaf: its data pages by key or by row, and rows by these."""
        return IndexPages(self, column)

    # -- predicates --------------------------------------------------------------------------------

    @cached_property
    def _queries(self) -> FileQueries:
        return FileQueries(self)

    @names_its_file
    def plan(self, where: Where = None, *, time_zone: str = "UTC") -> Plan:
        """Which rows may match ``where``, and why the others need not be read.

        ``where`` is a Spark SQL predicate (or DNF tuples), ``time_zone`` that of timestamps in it
        that have none. Only indexes are read: statistics of the footer, blocks of Bloom filters,
        page indexes. Raises ``PredicateError``.
        """
        return self._queries.plan(where, time_zone)

    @names_its_file
    def query(
        self, where: Where = None, columns: Sequence[str] | None = None, *, time_zone: str = "UTC"
    ) -> pa.Table:
        """The rows that match ``where``, with Spark's meaning (NaN is equal to itself and the
        largest, 0.0 equals -0.0), in file order.

        Raises as ``plan``, and ``UnsupportedError`` where ``where`` has a part that cannot be
        decided here (a function call, a subquery).
        """
        return self._queries.query(where, columns, time_zone)

    @names_its_file
    def count(self, where: Where = None, *, time_zone: str = "UTC") -> int:
        """How many rows match; from the indexes alone where they decide it."""
        return self._queries.count(where, time_zone)

    @names_its_file
    def verify(self, columns: Sequence[str] | None = None) -> Verification:
        """Read everything, and check all metadata against the values.

        Later plans of this object rely on sorting columns that hold.
        """
        from .verify import verify_file

        return verify_file(self, columns)


_INTERNAL = {
    "chunk_key", "chunk_pages", "decryptor", "footer", "indexed", "of_footer", "read_groups",
    "row_waves", "selection", "tables", "tail", "waves",
}  # fmt: skip
_PUBLIC = {
    name for each in (FileReader, ParquetFile) for name in vars(each) if name[0] != "_"
} - _INTERNAL | {"path"}
