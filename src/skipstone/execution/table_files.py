"""The files of a table: their row groups and pages for the planner.

Files are opened when the planner needs them, all files of a level together. A file that cannot
be opened, or has changed since it was listed, has no parts: the planner keeps it whole, and the
reader reports the error.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, StaleError
from skipstone.parquet.format.footer import TAIL_GUESS
from skipstone.pruning import Evidence, Fetched, Level, RowSet, Units
from skipstone.pruning.evidence import Source
from skipstone.storage.base import carried

from .._arrays import distinct
from .file_columns import FileColumns, TableColumns
from .open_files import KEPT, OpenFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.identity import ObjectId
    from skipstone.parquet.evidence.indexed_file import IndexedFile
    from skipstone.predicate.tree import Leaf
    from skipstone.storage import ByteRange, Listing


IntArray: TypeAlias = "NDArray[np.int64]"


# Files whose chunks are read with their ends.
_FEW = 16
# A smaller piece is read on the calling thread.
_SMALL = 4 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """``rows`` of one file, ``None`` for all; ``sure`` when all of them match. ``size`` estimates
    the bytes of its pages, stored and decoded."""

    file: FileColumns
    rows: RowSet | None
    sure: bool
    size: int = 0

    @property
    def is_small(self) -> bool:
        """Whether reading the piece takes less time than passing it to another thread."""
        return self.size < _SMALL


class Footers:
    """The opened files of one listing."""

    def __init__(
        self,
        files: OpenFiles,
        listing: Listing,
        table: TableColumns,
        known: dict[int, FileColumns] | None = None,
        ends: Callable[[], IntArray] | None = None,
        chunks: Callable[[Sequence[int]], Sequence[ByteRange]] | None = None,
    ) -> None:
        """``known`` are files that earlier queries of the same listing have opened; ``ends`` as for
        ``OpenFiles.open``, over the listing; ``chunks`` of some files are read with the ends."""
        self.files, self.listing, self.table = files, listing, table
        self._known = {} if known is None else known
        self._ends = ends if files.storage.remote else None
        self._chunks = chunks if files.storage.remote else None
        self.opened: dict[int, FileColumns] = {}
        self.failed: dict[int, Exception] = {}
        self.indexed: dict[int, IndexedFile] = {}
        #: the paths of columns, by what files of one schema share
        self._paths: dict[object, dict[str, tuple[str, ...] | None]] = {}

    @property
    def sources(self) -> tuple[FooterRowGroups, PageIndexes]:
        """Row groups by the footers, then pages."""
        return FooterRowGroups(self), PageIndexes(self)

    def open(self, ordinals: Sequence[int]) -> None:
        """Opens the files that are not open yet; ``failed`` keeps the errors."""
        known = self._known
        self.opened.update({at: known[at] for at in ordinals if at in known})
        wanted = [at for at in ordinals if at not in self.opened and at not in self.failed]
        if not wanted:
            return
        ids = [self.listing.object_id(at) for at in wanted]
        ends = None if self._ends is None else self._ends()[wanted].tolist()
        with self._chunks_ahead(wanted, ids):
            files = self.files.open(ids, ends)
        for at, id, file in zip(wanted, ids, files, strict=True):
            if not isinstance(file, Exception):
                # Files of one schema may still name the columns of the table differently.
                shared = file.selection.shared, self.table.naming(at)
                found = self._paths.setdefault(shared, {})
                fresh = file.id.same_version(id)
                made = FileColumns(self.table, file, at, found, fresh=fresh)
                self.opened[at] = made
                if fresh and len(known) < KEPT:
                    known[at] = made
            else:
                self.failed[at] = with_path(file, self.listing.paths[at])

    @contextmanager
    def _chunks_ahead(self, wanted: Sequence[int], ids: Sequence[ObjectId]) -> Iterator[None]:
        """Reads chunks of files while the files are opened, unless there are many files: statistics
        may still exclude those. Small files are read whole anyway."""
        few = self._chunks is not None and len(wanted) <= _FEW
        versions = {id.path: id for id in ids if (id.size or 0) > TAIL_GUESS}
        chunks = self._chunks(wanted) if self._chunks is not None and few and versions else ()
        chunks = [each for each in chunks if each.path in versions]
        if not chunks:
            yield
            return
        keep = partial(self.files.storage.keep_ahead, versions=versions)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(carried(keep), chunks)
            yield
            # What cannot be read now is read again, and that read raises the error.
            with suppress(SkipstoneError, OSError):
                reading.result()

    def is_open(self, file: int) -> bool:
        """Whether the footer of the listed version of a file is at hand, for this plan or not."""
        return self.files.holds(self.listing.object_id(file))

    def fresh(self, ordinal: int) -> bool:
        """Whether a file is open in the version of the listing."""
        found = self.opened.get(ordinal)
        return found is not None and found.fresh

    def index(self, ordinals: Sequence[int], columns: frozenset[str]) -> dict[int, IndexedFile]:
        """The files whose own indexes can be used, with the leaves of these columns."""
        self.open(ordinals)
        found: dict[int, IndexedFile] = {}
        for at in ordinals:
            if not self.fresh(at):
                continue
            view = self.opened[at]
            # Parsed indexes stay with the file; the names are the table's.
            found[at] = view.opened.indexed.named(view.leaves(columns))
        self.indexed.update(found)
        return found

    def stored(self, units: Units, columns: frozenset[str]) -> IntArray:
        """Bytes of the columns in each unit: of its row group, or of the whole file; -1 where the
        file is not open."""
        files = {at: self.indexed[at] for at in distinct(units.file).tolist() if at in self.indexed}
        if not files:
            return np.full(len(units), -1, np.int64)
        places = _Groups(files, len(self.listing))
        sizes = []
        for file in files.values():
            leaves = [file.columns[column] for column in columns if column in file.columns]
            sizes.append(file.footer.chunk("total_compressed_size")[:, leaves].sum(axis=1))
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes))])
        base, count = places.base[units.file], places.count[units.file]
        whole = np.zeros(len(units), np.bool_)
        alone = whole if units.level is Level.OBJECT else places.holds(units)
        first = np.maximum(base + np.where(alone, units.ordinal, 0), 0)
        stop = np.maximum(np.where(alone, first + 1, base + count), 0)
        return np.where(base < 0, -1, before[stop] - before[first])

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Reads ranges of the opened versions; unreadable ranges are left out."""
        versions = {file.opened.path: file.opened.id for file in self.opened.values()}
        for file in self.opened.values():
            versions.update({id.path: id for id in file.opened.column_files.values()})
        return self.files.storage.read_ranges(ranges, versions)


def with_path(error: Exception, path: str) -> Exception:
    """The error in terms of the table."""
    if isinstance(error, FileNotFoundError):
        return StaleError(
            f"{path} is gone since it was listed",
            hint="query again: a new plan leaves out files that are gone",
        )
    return error


class _FooterSource(Source):
    """Parts of undecided files, from their footers; ``source`` has those of the last ``split``."""

    source: Source

    def __init__(self, footers: Footers) -> None:
        self.footers = footers

    def stored(self, units: Units, columns: frozenset[str]) -> IntArray:
        """Sizes of chunks, from the footers that are open."""
        return self.footers.stored(units, columns)

    def decoded(self, index: str, column: str, units: Units) -> int:
        """The bytes of dictionary pages."""
        return self.source.decoded(index, column, units)

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """Statistics, Bloom filters, dictionaries; column indexes, and searches where columns are
        sorted."""
        return self.source.evidence(units, columns)


class FooterRowGroups(_FooterSource):
    """Row groups of undecided files, from their footers."""

    level = Level.ROW_GROUP

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, IntArray]:
        """Opens the files and gives the row groups of those that have not changed.

        A unit that a ``_pm`` has already cut to a row group stays: its footer may prove more.
        """
        from skipstone.parquet.evidence import RowGroupSource

        files = list(dict.fromkeys(units.file.tolist()))
        found = self.footers.index(files, columns)
        self.source = RowGroupSource(found)
        total = np.full(len(self.footers.listing), -1, np.int64)
        for at, file in found.items():
            total[at] = file.footer.row_starts[-1]
        # A unit without a row count is a whole file without a fact.
        counted = (units.first_row == 0) & (units.rows == total[units.file])
        whole = np.flatnonzero(counted | ((units.rows < 0) & (total[units.file] >= 0)))
        parts, parent = self.source.split(units.where(whole), columns)
        parent = whole[parent]
        rest = np.ones(len(units), np.bool_)
        rest[whole] = False
        cut = np.flatnonzero(rest)
        same = cut[_Groups(found, len(total)).holds(units.where(cut))] if found else cut[:0]
        if not len(same):
            return parts, parent
        return units.where(same).with_finer(parts), np.concatenate([same, parent])


class PageIndexes(_FooterSource):
    """Pages of undecided row groups."""

    level = Level.PAGE

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, IntArray]:
        """Reads the page indexes of the predicate's columns, in one wave."""
        from skipstone.parquet.evidence import PageSource

        files = [at for at in dict.fromkeys(units.file.tolist()) if self.footers.fresh(at)]
        found = self.footers.index(files, columns)
        self.source = PageSource(found, self.footers.fetch)
        # A unit that was kept as a whole has no pages.
        held = _Groups(found, len(self.footers.listing)).holds(units)
        at = np.flatnonzero(held)
        parts, parent = self.source.split(units.where(at), columns)
        return parts, at[parent]


class _Groups:
    """The row groups of some of ``total`` files, one after another: file ``f`` has ``count[f]`` of
    them, from position ``base[f]`` on, which is -1 for all other files."""

    def __init__(self, files: Mapping[int, IndexedFile], total: int) -> None:
        self.base = np.full(total, -1, np.int64)
        self.count = np.zeros(total, np.int64)
        starts = [file.footer.row_starts for file in files.values()]
        counts = np.array([len(each) - 1 for each in starts], np.int64)
        at = np.fromiter(files, np.int64, len(files))
        self.base[at], self.count[at] = np.cumsum(counts) - counts, counts
        none = np.empty(0, np.int64)
        self.first = np.concatenate([none, *(each[:-1] for each in starts)])
        self.rows = np.concatenate([none, *(each[1:] - each[:-1] for each in starts)])

    def holds(self, units: Units) -> NDArray[np.bool_]:
        """Flags of the units that are exactly the footer's row group of the same ordinal."""
        base, ordinal = self.base[units.file], units.ordinal
        found = (base >= 0) & (ordinal >= 0) & (ordinal < self.count[units.file])
        at = base[found] + ordinal[found]
        same = (self.first[at] == units.first_row[found]) & (self.rows[at] == units.rows[found])
        found[found] = same
        return found
