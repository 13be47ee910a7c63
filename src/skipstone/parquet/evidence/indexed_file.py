"""One Parquet file for evidence: its footer, and the indexes that were read so far.

Everything that was parsed stays: bounds of all row groups of a leaf, page indexes, the headers of
Bloom filters, dictionaries. This makes a warm file faster than a cold one. Nothing here does I/O:
ranges are named, and their bytes are parsed when they were fetched. ``offset_index_of`` and
``column_index_of`` check an index and raise; ``take_index`` is for planning, and leaves a
``Reason`` in place of unusable bytes, so that they are not requested again.

A file without a page index may have index pages of 2013. If the roots of a chunk's trees are also
the parents of its data pages, they hold what an offset index holds, and the keys bound the pages:
page ``i`` holds values from key ``i - 1`` to key ``i``. They come in one request. Planning ignores
a tree of several levels, and one of keys alone.
"""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.parquet.encryption.modules import ModuleType
from skipstone.parquet.encryption.open_footer import chunk_decryptor
from skipstone.parquet.format.enums import BoundaryOrder
from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
from skipstone.parquet.pages.index_page import ROLL_OVER
from skipstone.parquet.pages.page import chunk_range_at
from skipstone.parquet.values import ByteArrays
from skipstone.predicate.tree import is_expression
from skipstone.pruning import BaseEvidence, BoolArray, Bounds, Cause, Fetched, Reason
from skipstone.storage import ByteRange

from .stored_values import StoredColumn
from .value_bounds import (
    ValueBounds,
    check_page_range,
    chunk_bounds,
    miscounts_nulls,
    order_of,
    page_bounds,
    with_nulls_by_level,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.encryption.file_decryptor import FileDecryptor
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.values import I64
    from skipstone.predicate.tree import Leaf


# A larger page index or filter is damaged, or not worth its bytes.
_LONGEST = 256 << 20
_INDEXES = {"column_index": ModuleType.COLUMN_INDEX, "offset_index": ModuleType.OFFSET_INDEX}


def index_place(footer: FooterArrays, kind: str, key: tuple[int, int]) -> tuple[int, int] | None:
    """Offset and length of the ``column_index`` or ``offset_index`` of a chunk, by row group and
    leaf; ``None`` if the footer names none."""
    offset = int(footer.chunk(f"{kind}_offset")[key])
    length = int(footer.chunk(f"{kind}_length")[key])
    return (offset, length) if offset > 0 and length > 0 else None


def chunk_bytes(footer: FooterArrays, row_group: int, leaf: int, size: int) -> tuple[int, int]:
    """First byte of a chunk and the byte after it, in a file of ``size`` bytes."""

    def of(field: str) -> int:
        return int(footer.chunk(field)[row_group, leaf])

    return chunk_range_at(
        of("data_page_offset"),
        of("dictionary_page_offset"),
        of("total_compressed_size"),
        file_size=size,
        created_by=footer.created_by,
    )


def bounds_of_parts(
    leaf: Leaf,
    count: int,
    parts: Iterable[tuple[I64 | BoolArray, I64 | slice, ValueBounds]],
) -> Bounds[BoolArray] | None:
    """Bounds of ``count`` units, from ``parts``: positions of units, their places in the bounds,
    and the bounds.

    Units without bounds may match. ``None`` where no part decides ``leaf``.
    """
    must, may = np.zeros(count, np.bool_), np.ones(count, np.bool_)
    decided = False
    for at, place, bounds in parts:
        found = bounds.bounds_of(leaf)
        if found is not None:
            must[at], may[at] = found.must[place], found.may[place]
            decided = True
    return Bounds(must, may) if decided else None


def files_with(column: str, files: Mapping[int, IndexedFile]) -> dict[int, IndexedFile]:
    """The files that have this column."""
    return {ordinal: file for ordinal, file in files.items() if column in file.columns}


class ColumnEvidence(BaseEvidence):
    """Evidence about one column, from the files that have it, by their ordinals in the listing."""

    name: ClassVar[str]

    def __init__(self, column: str, files: Mapping[int, IndexedFile]) -> None:
        self.column, self.files = column, files

    @classmethod
    def of(cls, column: str, files: Mapping[int, IndexedFile]) -> Self | None:
        """The evidence from those of ``files`` that have it for ``column``; ``None`` if none do."""
        some = {at: file for at, file in files.items() if cls.exists(file, file.columns[column])}
        return cls(column, some) if some else None

    @staticmethod
    def exists(file: IndexedFile, leaf: int) -> bool:
        """Whether a file has this evidence for a leaf."""
        return True

    def named(self, reasons: Iterable[Reason]) -> tuple[Reason, ...]:
        """``reasons`` with the subject of this evidence, each once."""
        made = [Reason(cause=each.cause, subject=self.subject, text=each.text) for each in reasons]
        return tuple(dict.fromkeys(made))


class IndexedFile:
    """One file with its footer and parsed indexes; see the module.

    ``columns`` maps predicate columns (dotted names) to ordinals of leaves; by default every leaf
    that is not below a list or map has its own name. Elements of lists have the name of an
    expression, and answer only conditions that hold if any element matches. ``size`` is the file's,
    where it is known. ``homes`` are path and size of other files that hold whole columns, by leaf,
    where these files are known (``reading/pinned_file.py``). ``verified`` holds ``(row group,
    leaf)`` where a check found that the row group is sorted by that leaf, as its
    ``sorting_columns`` say.
    """

    def __init__(
        self,
        path: str,
        footer: FooterArrays,
        decryptor: FileDecryptor | None = None,
        *,
        size: int | None = None,
        homes: Mapping[int, tuple[str, int]] | None = None,
    ) -> None:
        self.path, self.footer, self.decryptor, self.size = path, footer, decryptor, size
        self._homes = homes or {}
        self.columns = self._reachable({leaf.name: leaf.ordinal for leaf in footer.schema.leaves})
        self.verified: set[tuple[int, int]] = set()
        self.offset_indexes: dict[tuple[int, int], OffsetIndexArrays | Reason] = {}
        self.column_indexes: dict[tuple[int, int], ColumnIndexArrays | Reason] = {}
        self.page_bounds: dict[tuple[int, int], ValueBounds | Reason] = {}
        #: whether a page that is read is checked against the checksum that its header states
        self.verify_crc = True
        #: caches of the kinds of evidence, by keys of their own
        self.cache: dict[Any, Any] = {}
        self._decryptors: dict[tuple[int, int], ColumnDecryptor | None] = {}
        self._stored: dict[int, StoredColumn] = {}
        self._bounds: dict[int, ValueBounds] = {}

    def _reachable(self, columns: Mapping[str, int]) -> dict[str, int]:
        # A leaf below a list or map may have any number of values per row.
        leaves = self.footer.schema.leaves
        return {
            name: leaf
            for name, leaf in columns.items()
            if not leaves[leaf].max_repetition_level or is_expression(name)
        }

    def named(self, columns: Mapping[str, int]) -> IndexedFile:
        """The same file and caches, under other names of columns."""
        other = copy.copy(self)
        other.columns = self._reachable(columns)
        return other

    def stored(self, leaf: int) -> StoredColumn:
        """The stored type of a leaf."""
        found = self._stored.get(leaf)
        if found is None:
            found = self._stored[leaf] = StoredColumn.of(self.footer.schema.leaves[leaf])
        return found

    def chunk_bounds(self, leaf: int) -> ValueBounds:
        """Bounds of a leaf over all row groups."""
        found = self._bounds.get(leaf)
        if found is None:
            found = chunk_bounds(self.footer, self.stored(leaf), below_lists=True)
            if self.stored(leaf).column.max_repetition_level:
                found = found.of_elements()
            self._bounds[leaf] = found
        return found

    def decryptor_of(self, row_group: int, leaf: int) -> ColumnDecryptor | None:
        """The decryptor of a chunk, ``None`` if it is not encrypted; ``KeyUnavailableError``."""
        key = (row_group, leaf)
        if key not in self._decryptors:
            self._decryptors[key] = self._decryptor(row_group, leaf)
        return self._decryptors[key]

    def _decryptor(self, row_group: int, leaf: int) -> ColumnDecryptor | None:
        if self.footer.chunk("encrypted")[row_group, leaf] <= 0:
            return None
        if self.decryptor is None:
            raise FormatError("an encrypted column in a file that is not", file=self.path)
        return chunk_decryptor(self.footer, self.decryptor, row_group, leaf)

    def elsewhere(self, row_group: int, leaf: int) -> bool:
        """True if the chunk lies in another file that is not known: its offsets count there."""
        if leaf in self._homes:
            return False
        return bool(self.footer.value_bytes("file_path", row_group, leaf))

    def home(self, leaf: int) -> tuple[str, int | None]:
        """The file that holds a column, and its size where it is known."""
        return self._homes.get(leaf) or (self.path, self.size)

    def fits(self, offset: int, length: int, leaf: int) -> bool:
        """Whether this range can lie in the file that holds a column."""
        if offset < 0 or not 0 < length <= _LONGEST:
            return False
        size = self.home(leaf)[1]
        return size is None or offset <= size - length

    # -- the page index ----------------------------------------------------------------------------

    def index_range(self, kind: str, row_group: int, leaf: int) -> ByteRange | None:
        """Where the ``column_index`` or ``offset_index`` of a chunk lies, ``None`` if absent."""
        place = index_place(self.footer, kind, (row_group, leaf))
        if place is None or not self.fits(*place, leaf) or self.elsewhere(row_group, leaf):
            return None
        return ByteRange(self.home(leaf)[0], *place)

    def plain_index(
        self, kind: str, key: tuple[int, int], data: bytes | memoryview, base: int
    ) -> bytes | memoryview:
        """The bytes of an index, decrypted if they are encrypted. ``FormatError``,
        ``KeyUnavailableError``."""
        decryptor = self.decryptor_of(*key)
        return data if decryptor is None else decryptor.decrypt(_INDEXES[kind], data, base=base)

    def offset_index_of(
        self, key: tuple[int, int], data: bytes | memoryview, *, base: int, size: int | None
    ) -> OffsetIndexArrays:
        """The offset index of a chunk from its bytes at ``base`` of a file of ``size`` bytes.
        ``FormatError``, ``KeyUnavailableError``."""
        return OffsetIndexArrays.from_bytes(
            self.plain_index("offset_index", key, data, base),
            size=size,
            num_rows=int(self.footer.group("num_rows")[key[0]]),
            base=base,
        )

    def column_index_of(
        self, key: tuple[int, int], data: bytes | memoryview, *, base: int
    ) -> ColumnIndexArrays:
        """The column index of a chunk from its bytes at ``base``; raises likewise."""
        plain = self.plain_index("column_index", key, data, base)
        return ColumnIndexArrays.from_bytes(plain, base=base)

    def take_index(self, kind: str, row_group: int, leaf: int, have: Fetched) -> ByteRange | None:
        """Parse an index unless it is known; returns the range that is still needed, if any."""
        known: dict[tuple[int, int], Any] = (
            self.column_indexes if kind == "column_index" else self.offset_indexes
        )
        key = (row_group, leaf)
        if key in known:
            return None
        subject = f"{kind.replace('_', ' ')} of {self.footer.schema.leaves[leaf].name}"
        need = self.index_range(kind, row_group, leaf)
        if need is None:
            need = self._tree_range(row_group, leaf)
            if need is not None:
                return self._take_tree(kind, key, need, have)
            known[key] = Reason(cause=Cause.ABSENT, subject=subject, text="not in the file")
            return None
        data = have.get(need)
        if data is None:
            return need
        try:
            if kind == "column_index":
                known[key] = self.column_index_of(key, data, base=need.offset)
            else:
                size = self.home(leaf)[1]
                known[key] = self.offset_index_of(key, data, base=need.offset, size=size)
        except (SkipstoneError, ValueError) as error:
            known[key] = Reason.of_error(subject, error)
        return None

    def _tree_range(self, row_group: int, leaf: int) -> ByteRange | None:
        """Where the roots of a chunk's index pages lie, if it has any and no offset index."""
        offset = int(self.footer.chunk("index_page_offset")[row_group, leaf])
        if offset <= 0 or self.index_range("offset_index", row_group, leaf) is not None:
            return None
        if self.elsewhere(row_group, leaf) or self.footer.chunk("encrypted")[row_group, leaf] > 0:
            return None
        try:
            start, stop = self._chunk_range(row_group, leaf)
        except FormatError:
            return None
        if not start <= offset < stop:
            return None
        return ByteRange(self.home(leaf)[0], offset, min(stop - offset, _LONGEST_ROOTS))

    def _take_tree(
        self, kind: str, key: tuple[int, int], need: ByteRange, have: Fetched
    ) -> ByteRange | None:
        """Both indexes from the roots, which are fetched once."""
        data = have.get(need)
        if data is None:
            return need if kind == "offset_index" else None
        leaf = self.footer.schema.leaves[key[1]]
        places: OffsetIndexArrays | Reason
        bounds: ColumnIndexArrays | Reason | None
        try:
            places, bounds = _page_index_of(
                data,
                leaf,
                base=need.offset,
                start=self._chunk_range(*key)[0],
                data_page_offset=int(self.footer.chunk("data_page_offset")[key]),
                size=self.home(key[1])[1],
                num_rows=int(self.footer.group("num_rows")[key[0]]),
            )
        except (SkipstoneError, ValueError) as error:
            places = bounds = Reason.of_error(f"index pages of {leaf.name}", error)
        self.offset_indexes[key] = places
        if bounds is None:
            subject, text = f"index pages of {leaf.name}", "they have no keys"
            bounds = Reason(cause=Cause.ABSENT, subject=subject, text=text)
        self.column_indexes[key] = bounds
        return None

    def bounds_of_pages(self, row_group: int, leaf: int) -> ValueBounds | Reason:
        """Bounds of the pages of a chunk, once both indexes are parsed."""
        key = (row_group, leaf)
        found = self.page_bounds.get(key)
        if found is not None:
            return found
        offsets, index = self.offset_indexes.get(key), self.column_indexes.get(key)
        if isinstance(index, Reason):
            found = index
        elif isinstance(offsets, Reason):
            found = offsets
        elif index is None or offsets is None:
            subject = f"page index of {self.footer.schema.leaves[leaf].name}"
            return Reason(cause=Cause.UNREADABLE, subject=subject, text="not fetched")
        else:
            null_count = int(self.footer.chunk("null_count")[row_group, leaf])
            if miscounts_nulls(self.footer, self.stored(leaf)):
                null_count, index = -1, with_nulls_by_level(index)
            try:
                check_page_range(offsets, *self._chunk_range(row_group, leaf))
                found = page_bounds(
                    self.stored(leaf),
                    order_of(self.footer, leaf),
                    index,
                    offsets,
                    num_rows=int(self.footer.group("num_rows")[row_group]),
                    null_count=null_count,
                    chunk=self.chunk_bounds(leaf).where(np.array([row_group])),
                )
            except FormatError as error:
                name = self.footer.schema.leaves[leaf].name
                found = Reason.of_error(f"page index of {name}", error)
        self.page_bounds[key] = found
        return found

    def _chunk_range(self, row_group: int, leaf: int) -> tuple[int, int]:
        size = self.home(leaf)[1]
        return chunk_bytes(self.footer, row_group, leaf, sys.maxsize if size is None else size)

    def first_rows(self, row_group: int, leaf: int) -> I64 | None:
        """First rows of the pages of a chunk, from the start of the row group; ``None`` where its
        offset index is not known."""
        found = self.offset_indexes.get((row_group, leaf))
        return found.first_row_index if isinstance(found, OffsetIndexArrays) else None


#: the bytes of two roots of the largest usual size, with their headers
_LONGEST_ROOTS = 2 * (ROLL_OVER + 256)


def _page_index_of(
    data: bytes | memoryview,
    leaf: ColumnDescriptor,
    *,
    base: int,
    start: int,
    data_page_offset: int,
    size: int | None,
    num_rows: int,
) -> tuple[OffsetIndexArrays, ColumnIndexArrays | None]:
    """Both indexes of a chunk that begins at ``start``, from the roots at the start of ``data``, at
    byte ``base`` of the file.

    ``FormatError`` where they are damaged, ``UnsupportedError`` where they lack what is needed.
    """
    from skipstone.parquet.pages.index_page import read_root

    root, ordinals = read_root(data, leaf.type, leaf.type_length, base=base)
    rows = root if root.keys is None else ordinals
    if rows is None or rows.ordinals is None:
        raise UnsupportedError("index pages without the rows of their pages")
    if int(rows.page_offset[0]) != data_page_offset - start:
        raise UnsupportedError("index pages of several levels")
    if not np.array_equal(rows.page_offset, root.page_offset):
        raise FormatError("keys and ordinals of other pages", offset=base)
    made = OffsetIndexArrays(
        offset=rows.page_offset + start,
        compressed_page_size=rows.page_len,
        first_row_index=rows.ordinals,
    )
    # Parsed again, so that it gets the checks of an offset index.
    places = OffsetIndexArrays.from_bytes(made.to_bytes(), size=size, num_rows=num_rows, base=base)
    if root.keys is None:
        return places, None
    count = len(root)
    # The first page has no lower bound: empty bytes are the smallest text, and not a number.
    lower = ByteArrays.concat([ByteArrays.from_list([b""]), root.keys[: count - 1]])
    return places, ColumnIndexArrays(
        null_pages=np.zeros(count, np.bool_),
        min_values=lower,
        max_values=root.keys,
        boundary_order=BoundaryOrder.ASCENDING,
    )
