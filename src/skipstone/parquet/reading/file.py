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
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass
from skipstone.human import plural
from skipstone.identity import ObjectId, canonical_path
from skipstone.parquet.evidence import PageSource, RowGroupSource
from skipstone.parquet.format.footer import TAIL_GUESS
from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays, place_of_index
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import (
    And,
    Bound,
    Comparison,
    Const,
    Membership,
    Not,
    NullTest,
    Opaque,
    Or,
    PatternMatch,
    Truth,
    columns_read,
)
from skipstone.predicate.types import column_path
from skipstone.pruning import RowSet
from skipstone.pruning.planner import ObjectLevel, PlanInput, make_plan
from skipstone.pruning.residual import matching, require_decidable
from skipstone.storage import ByteRange, open_storage
from skipstone.storage.listing import Listing

from .file_reader import FileReader, names_its_file
from .pinned_file import OpenedFooter, PinnedReader, load_footer
from .row_ranges import column_at, rows_alone, take_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone._arrays import ArrowTable
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.bloom_filter import BloomFilter
    from skipstone.parquet.format.metadata import FileMetaData, PageHeader
    from skipstone.parquet.reading.index_pages import IndexPages
    from skipstone.pruning.plan import Plan

    from .verify import Verification


#: SQL text, pyarrow's DNF tuples, or a tree of ``skipstone.predicate``
Where: TypeAlias = "str | Any"

_TREES = (And, Or, Not, Comparison, Membership, NullTest, PatternMatch, Truth, Opaque, Const)

# Bound predicates that are remembered.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True, eq=False)
class _Predicate:
    """A predicate bound to the file's schema, and its text."""

    tree: Bound
    text: str


def _read_end(
    reader: PinnedReader,
    path: str,
    length: int,
    decryption: Decryption | None,
    listed: ObjectId | None = None,
) -> tuple[ObjectId, OpenedFooter]:
    """The current version of the file, which ``reader`` pins, and its footer. One request suffices
    if it is the ``listed`` version."""
    found, tail = listed, None
    if listed is not None and listed.size is not None:
        length = min(length, listed.size)
        end = ByteRange(path, listed.size - length, length)
        tail = reader.storage.read_ranges([end], {path: listed}).get(end)
    if found is None or tail is None:
        # Not every store has ranges that count from the end.
        found, tail = reader.storage.read_tail(path, length)
    reader.bytes_read += len(tail)
    reader.pin(found)
    opened = load_footer(reader, path, decryption, tail)
    # Only the reader of a table keeps data pages: it checks the version each time.
    start, kept = opened.tail.size - len(tail), 0
    if listed is None:
        kept = max(place_of_index(opened.footer, opened.tail.offset)[0] - start, 0)
    reader.storage.keep_end(found, tail[kept:])
    return found, opened


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

    ``verify_checksums=False`` reads pages whose checksum is wrong: either their values are damaged,
    or the checksum itself is.

    ``memory`` limits the bytes of pages that are decoded together, those of one run of row groups.
    A read that needs more raises ``MemoryLimitError`` before anything is decoded. The default is 2
    GiB, or 32 times the bytes of the pages as stored where that is more.

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
        verify_checksums: bool = True,
        memory: int | None = None,
    ) -> None:
        if decryption is not None and not hasattr(decryption, "has_keys"):
            raise TypeError(
                f"decryption is a skipstone.Decryption, not {type(decryption).__name__}"
            )
        where = canonical_path(path)
        reader = PinnedReader(open_storage(where, storage_options))
        if size is None:
            found, opened = _read_end(reader, where, TAIL_GUESS, decryption)
        else:
            found = reader.pin_beginning(reader.storage.stat(where), size)
            opened = load_footer(reader, where, decryption)
        super().__init__(found, reader, opened, verify_checksums=verify_checksums, memory=memory)

    @classmethod
    def of_tail(
        cls, reader: PinnedReader, id: ObjectId, length: int, decryption: Decryption | None = None
    ) -> ParquetFile:
        """A file that was listed, through ``reader``; the first request reads its last ``length``
        bytes, and what they hold is not read again."""
        found, opened = _read_end(reader, id.path, length, decryption, id)
        return cls.of_footer(found, reader, opened)

    @classmethod
    def of_footer(
        cls,
        id: ObjectId,
        reader: PinnedReader,
        opened: OpenedFooter,
        *,
        verify_checksums: bool = True,
        memory: int | None = None,
    ) -> ParquetFile:
        """The version of a file that ``reader`` has pinned, with its footer, which was opened."""
        made = object.__new__(cls)
        FileReader.__init__(
            made, id, reader, opened, verify_checksums=verify_checksums, memory=memory
        )
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
        from skipstone.parquet.arrow.metadata_tables import row_groups

        return row_groups(self.footer)

    @names_its_file
    def chunks(self) -> pa.Table:
        """One row per column chunk: sizes and offsets in bytes, statistics as bytes and as text.

        Columns have the names of parquet.thrift; ``leaf`` is the ordinal of ``column`` (a dotted
        path) in the schema, ``dict_only`` whether all its data pages are dictionary-encoded. Null
        means that the file does not have the value.
        """
        from skipstone.parquet.arrow.metadata_tables import chunks

        return chunks(self.footer)

    @names_its_file
    def pages(self, columns: Sequence[str] | None = None) -> pa.Table:
        """One row per page: what its header says, and the page index where there is one.

        ``offset``, ``header_size``, ``compressed_size`` (header and body) and
        ``uncompressed_page_size`` are bytes; ``first_row_index`` counts from the row group's first
        row. Reads the page headers of ``columns`` (all that can be read, by default).
        """
        from .page_metadata import page_table

        return page_table(self, columns)

    @names_its_file
    def page_headers(self, row_group: int, column: str) -> list[PageHeader]:
        """The headers of all pages of a chunk, the dictionary's first."""
        key = self.chunk_key(row_group, column)
        return [found.header for found in self.chunk_pages.walk(key)]

    @names_its_file
    def offset_index(self, row_group: int, column: str) -> OffsetIndexArrays | None:
        """Where the pages of a chunk lie, ``None`` if the file does not say."""
        from .page_metadata import offset_index

        return offset_index(self, self.chunk_key(row_group, column))

    @names_its_file
    def column_index(self, row_group: int, column: str) -> ColumnIndexArrays | None:
        """Bounds of the values of each page of a chunk, ``None`` if the file does not say."""
        from .page_metadata import column_index

        return column_index(self, self.chunk_key(row_group, column))

    @names_its_file
    def bloom_filter(self, row_group: int, column: str) -> BloomFilter | None:
        """The whole Bloom filter of a chunk, ``None`` if it has none."""
        from .page_metadata import read_bloom_filter

        return read_bloom_filter(self, self.chunk_key(row_group, column))

    def index_pages(self, column: str) -> IndexPages:
        """The index pages of 2013 of a leaf: its data pages by key or by row, and rows by these."""
        from skipstone.parquet.reading.index_pages import IndexPages

        return IndexPages(self, column)

    # -- predicates --------------------------------------------------------------------------------

    @names_its_file
    def plan(self, where: Where = None, *, time_zone: str = "UTC") -> Plan:
        """Which rows may match ``where``, and why the others need not be read.

        ``where`` is a Spark SQL predicate (or DNF tuples), ``time_zone`` that of timestamps in it
        that have none. Only indexes are read: statistics of the footer, blocks of Bloom filters,
        page indexes. Raises ``PredicateError``.
        """
        return self._plan(self._bind(where, time_zone))

    @names_its_file
    def query(
        self, where: Where = None, columns: Sequence[str] | None = None, *, time_zone: str = "UTC"
    ) -> ArrowTable:
        """The rows that match ``where``, with Spark's meaning (NaN is equal to itself and the
        largest, 0.0 equals -0.0), in file order.

        The predicate's columns are read first, where the indexes leave rows. Then only those
        pages of other columns are fetched that hold a matching row. Raises as ``plan``, and
        ``UnsupportedError`` where ``where`` has a part that cannot be decided here (a function
        call, a subquery).
        """
        found: ArrowTable = self._found(self._bind(where, time_zone), columns)
        return found

    def _found(self, predicate: _Predicate, columns: Sequence[str] | None) -> pa.Table:
        selection = self.selection
        fields = selection.fields(columns)
        rows, exact = self._planned(predicate)
        if not rows:
            return selection.empty_table(columns)
        if exact:
            return self.read_rows(columns, rows)
        require_decidable(predicate.tree)
        if not fields:
            masks = self._matching(predicate, rows)
            return rows_alone(sum(int(np.count_nonzero(mask)) for _, mask in masks))
        names = [field.node.name for field in fields]
        # A file may have two columns of one name, or names that Arrow must change.
        alone = len(set(names)) == len(names) and names == [each.field.name for each in fields]
        pieces: list[pa.Table] = []
        for table, found, at in self._decided(predicate, rows):
            if not len(found):
                continue
            have = [
                name
                for name, field in zip(names, fields, strict=True)
                if name in table.column_names and field.node.is_leaf and alone
            ]
            if not have:
                pieces.append(self.read_rows(columns, RowSet.of(found)))
                continue
            taken = take_rows(table.select(have), at)
            rest = [name for name in names if name not in have]
            if rest:
                later = self.read_rows(_below(columns, rest), RowSet.of(found))
                parts = {**_by_name(taken), **_by_name(later)}
                taken = pa.Table.from_arrays([parts[name] for name in names], names=names)
            pieces.append(taken)
        if not pieces:
            return selection.empty_table(columns)
        made = pieces[0] if len(pieces) == 1 else pa.concat_tables(pieces)
        return pa.Table.from_arrays(made.columns, schema=selection.table_schema(columns))

    @names_its_file
    def count(self, where: Where = None, *, time_zone: str = "UTC") -> int:
        """How many rows match; from the indexes alone where they decide it."""
        predicate = self._bind(where, time_zone)
        rows, exact = self._planned(predicate)
        if exact:
            return len(rows)
        require_decidable(predicate.tree)
        return sum(int(np.count_nonzero(mask)) for _, mask in self._matching(predicate, rows))

    @names_its_file
    def verify(self, columns: Sequence[str] | None = None) -> Verification:
        """Read everything, and check all metadata against the values.

        Later plans of this object rely on sorting columns that hold.
        """
        from .verify import verify_file

        return verify_file(self, columns)

    @cached_property
    def _bound(self) -> LruCache[tuple[str, str], _Predicate]:
        return LruCache(_REMEMBERED)

    @cached_property
    def _listing(self) -> Listing:
        id = self.id
        return Listing.of(self.path, [id], unit=id.unit)

    @cached_property
    def _finer(self) -> tuple[Any, ...]:
        files = {0: self.indexed}
        return RowGroupSource(files), PageSource(files, self.reader.fetch)

    def _bind(self, where: Where, time_zone: str) -> _Predicate:
        from skipstone.predicate.dnf import from_dnf
        from skipstone.predicate.render import to_sql

        if where is None:
            return _Predicate(Const(True), "TRUE")
        if not isinstance(where, str):
            expr = where if isinstance(where, _TREES) else from_dnf(where)
            tree = bind(expr, self.schema, session_zone=time_zone)
            return _Predicate(tree, to_sql(expr))
        found = self._bound.get((where, time_zone))
        if found is None:
            tree = bind(parse_sql(where), self.schema, session_zone=time_zone, text=where)
            found = _Predicate(tree, where)
            self._bound.put((where, time_zone), found)
        return found

    def _plan(self, predicate: _Predicate) -> Plan:
        return make_plan(
            PlanInput(
                tree=predicate.tree,
                listing=self._listing,
                table=self.path,
                predicate=predicate.text,
                objects=ObjectLevel(row_counts=self.row_starts[-1:]),
                finer=self._finer,
                fetch=self.reader.fetch,
            )
        )

    def _planned(self, predicate: _Predicate) -> tuple[RowSet, bool]:
        """The rows that may match, and whether all of them do."""
        plan = self._plan(predicate)
        if not plan.keep[0]:
            return RowSet(), True
        detail = plan.details.get(0)
        if detail is None or detail.rows is None:
            return RowSet.all(self.num_rows), bool(plan.must[0])
        return detail.rows, detail.exact

    def _decided(
        self, predicate: _Predicate, rows: RowSet
    ) -> Iterator[tuple[pa.Table, NDArray[np.int64], NDArray[np.int64]]]:
        """Wave by wave: the predicate's columns, the matching rows of the file, and their positions
        in those columns."""
        before = 0
        for table, mask in self._matching(predicate, rows):
            at = np.flatnonzero(mask)
            yield table, rows.at(before + at), at
            before += table.num_rows

    def _matching(
        self, predicate: _Predicate, rows: RowSet
    ) -> Iterator[tuple[pa.Table, NDArray[np.bool_]]]:
        """Wave by wave: the predicate's columns, and whether each row matches."""
        paths = {name: column_path(name) for name in columns_read(predicate.tree)}
        fields = self.selection.of_paths(list(paths.values()))
        for table in self.tables(fields, rows):
            columns = {name: column_at(table, path) for name, path in paths.items()}
            yield table, matching(predicate.tree, columns, table.num_rows, self.path)


_INTERNAL = {
    "chunk_key", "chunk_pages", "indexed", "of_footer", "read_groups", "row_waves", "selection",
    "tables", "waves",
}  # fmt: skip
_PUBLIC = {
    name for each in (FileReader, ParquetFile) for name in vars(each) if name[0] != "_"
} - _INTERNAL | {"path"}


def _by_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _below(columns: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """Those of ``columns`` that lie in the fields ``names``."""
    if columns is None:
        return list(names)
    wanted = set(names)
    return [each for each in columns if each in wanted or column_path(each)[0] in wanted]
