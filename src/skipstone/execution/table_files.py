"""The files of a table: their columns by its names, and their row groups and pages for the planner.

A file may lack a column of the table, spell it in another case, or store it in a narrower type. It
does not hold the partition columns of its path. A column that it lacks is null in all its rows,
unless Spark has written a default for it.

Files are opened when the planner needs them, all files of a level together. A file that cannot
be opened, or has changed since it was listed, has no parts: the planner keeps it whole, and the
reader reports the error.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow
from skipstone.errors import SkipstoneError, StaleError, UnsupportedError
from skipstone.parquet.format.footer import TAIL_GUESS
from skipstone.predicate.tree import is_expression
from skipstone.predicate.types import EXISTS_DEFAULT, MapKey, column_path, is_list, spark_type
from skipstone.pruning import Evidence, Fetched, Level, RowSet, Units
from skipstone.pruning.column_types import values_of_key
from skipstone.pruning.evidence import Source
from skipstone.storage.base import carried

from .._arrays import distinct
from .open_files import KEPT, OpenFiles
from .table_types import spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.identity import ObjectId
    from skipstone.parquet.evidence.indexed_file import IndexedFile
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.pruning.table_schema import FileSchema
    from skipstone.storage import ByteRange, Listing


IntArray: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableColumns:
    """The columns of a table: ``schema`` is Arrow's; ``partitions`` are the values by file of
    those in the paths."""

    schema: pa.Schema
    partitions: PartitionColumns
    defaults: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, schema: FileSchema, partitions: PartitionColumns) -> TableColumns:
        """``schema`` is that of the files."""
        defaults = {each.name for each in schema.spark if EXISTS_DEFAULT in (each.metadata or {})}
        return cls(
            schema=partitions.added_to(schema.arrow),
            partitions=partitions,
            defaults=frozenset(defaults),
        )

    def of_files(self, files: Sequence[int]) -> TableColumns:
        """The same for some files of the listing, by their ordinals."""
        at = arrow(np.asarray(files, np.int64))
        values = {name: each.take(at) for name, each in self.partitions.values.items()}
        return replace(self, partitions=type(self.partitions)(values))

    def partition_value(self, column: str, file: int) -> pa.Scalar | None:
        """The value of a partition column for a file; ``None`` for any other column.

        ``UnsupportedError`` where the value depends on the Spark session.
        """
        values = self.partitions.values.get(column)
        if values is None:
            return None
        if pa.types.is_null(values.type):
            raise UnsupportedError(
                f"the values of {column!r} in the paths depend on how a Spark session reads them",
                hint="read the table with Spark: Table.read(spark, where)",
            )
        return values[file]


class FileColumns:
    """One file's columns by the table's names; ``ordinal`` is its place in the listing, and
    ``fresh`` says whether it is open in the version of the listing."""

    def __init__(
        self,
        table: TableColumns,
        opened: ParquetFile,
        ordinal: int,
        found: dict[str, tuple[str, ...] | None] | None = None,
        *,
        fresh: bool = True,
    ) -> None:
        """``found`` are the paths of columns in files of the same schema, which files share."""
        self.table, self.opened, self.ordinal, self.fresh = table, opened, ordinal, fresh
        self._found: dict[str, tuple[str, ...] | None] = {} if found is None else found
        self._tops: dict[str, int] = {}
        #: what ``batches`` knows of the whole file, by the names of columns
        self.whole: dict[tuple[str, ...], Any] = {}

    @property
    def locked(self) -> Mapping[int, SkipstoneError]:
        """Why leaves cannot be read: their keys are not available."""
        return self.opened.unavailable

    def path(self, column: str) -> tuple[str, ...] | None:
        """The path of ``column`` in the file, ``None`` if the file lacks it."""
        found = self._find(column)
        whole = found is not None and len(found) == len(column_path(column))
        return found if whole else None

    def read_path(self, column: str) -> tuple[str, ...] | None:
        """What to read for ``column``: for a key of a map the whole map; for a field that the file
        lacks, the structs above it, which show where it is inside a null; ``None`` where the file
        has none of these."""
        path = self._find(column)
        if path is None:
            return None
        keys = [at for at, part in enumerate(path) if isinstance(part, MapKey)]
        return path[: keys[0]] if keys else path

    def _find(self, column: str) -> tuple[str, ...] | None:
        """The part of the path of ``column`` that the file has, ``None`` for none of it."""
        if column not in self._found:
            self._found[column] = self._look(column)
        return self._found[column]

    def _look(self, column: str) -> tuple[str, ...] | None:
        parts, path = column_path(column), list[str]()
        if parts[0] in self.table.partitions.values:
            return None
        schema = self.opened.schema
        if not self._tops:  # a file may have ten thousand columns
            self._tops = {name: at for at, name in enumerate(schema.names)}
        at = self._tops.get(parts[0])
        if at is not None and len(self._tops) == len(schema):
            path, parts = [parts[0]], parts[1:]
            type = schema.field(at).type
            fields: list[pa.Field] = list(type) if pa.types.is_struct(type) else []
        else:
            fields = list(schema)
        for part in parts:
            if isinstance(part, MapKey):
                path.append(part)
                fields = []
                continue
            found = spelled(part, [each.name for each in fields])
            if found is None and part.lower() in {each.name.lower() for each in fields}:
                raise UnsupportedError(
                    f"several columns of {self.opened.path} are called {part!r}, in different case",
                    hint="read this file by itself, by its own names",
                )
            if found is None:
                if column_path(column)[0] in self.table.defaults:
                    raise UnsupportedError(
                        f"{self.opened.path} lacks {column!r}, for which Spark has a default",
                        hint="read the table with Spark: Table.read(spark, where)",
                    )
                break
            path.append(fields[found].name)
            type = fields[found].type
            fields = list(type) if pa.types.is_struct(type) else []
        return tuple(path) or None

    def leaves(self, columns: frozenset[str]) -> dict[str, int]:
        """Ordinals of the file's leaves for these columns of the table."""
        tree = self.opened.footer.schema
        found: dict[str, int] = {}
        for column in columns:
            kernel = None
            try:
                if is_expression(column):
                    from skipstone.predicate.indexed import elements_of_name

                    source, kernel = elements_of_name(column)
                path = self.path(column if kernel is None else source)
            except UnsupportedError:
                continue
            if kernel is not None:
                ordinal = None if path is None else self._elements(path, kernel)
                if ordinal is not None:
                    found[column] = ordinal
                continue
            keyed = path is None or any(isinstance(part, MapKey) for part in path)
            leaf = None if path is None or keyed else tree.leaf(path)
            if leaf is not None:
                found[column] = leaf.ordinal
        return found

    def _elements(self, path: tuple[str, ...], kernel: str) -> int | None:
        """The leaf of the elements of the lists at ``path``, or of one side of the maps; ``None``
        where they are not atomic."""
        field = self.opened.schema.field(path[0])
        for part in path[1:]:
            field = field.type.field(part)
        leaves = self.opened.footer.schema.leaves
        below = [leaf for leaf in leaves if leaf.path[: len(path)] == path]
        if kernel == "column":
            elements, at = field.type.value_type if is_list(field.type) else None, 0
        elif not pa.types.is_map(field.type):
            return None
        elif kernel == "map_keys":
            elements, at = field.type.key_type, 0
        else:
            elements, at = field.type.item_type, 1
        return None if elements is None or spark_type(elements) is None else below[at].ordinal

    def values(
        self, column: str, have: Mapping[str, pa.ChunkedArray], rows: int, type: pa.DataType
    ) -> pa.ChunkedArray | pa.Array:
        """``rows`` values of a predicate's column; ``have`` are the columns read from the file, by
        their names in it.

        A column that the file lacks is all null; a partition column has one value throughout.
        """
        given = self.table.partition_value(column_path(column)[0], self.ordinal)
        if given is not None:
            return pa.repeat(given, rows)
        path = self.path(column)
        if path is None:
            return pa.nulls(rows, type)
        values = have[path[0]]
        for part in path[1:]:
            if isinstance(part, MapKey):
                values = values_of_key(values, part)
            else:
                values = pc.struct_field(values, [part])
        return values


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
                found = self._paths.setdefault(file.selection.shared, {})
                fresh = file.id.same_version(id)
                made = FileColumns(self.table, file, at, found, fresh=fresh)
                self.opened[at] = made
                if fresh and len(known) < KEPT:
                    known[at] = made
            else:
                self.failed[at] = with_path(file, self.listing.paths[at])

    @contextmanager
    def _chunks_ahead(self, wanted: Sequence[int], ids: Sequence[ObjectId]) -> Iterator[None]:
        """Reads the chunks of files while these are opened, unless there are many, which statistics
        may yet leave out. Small files are read whole."""
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
            # What cannot be read now is read again, and that read has the error.
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
    """The row groups of some of ``total`` files, one after another: those of file ``f`` begin at
    ``base[f]``, -1 for all other files, and are ``count[f]``."""

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
        """Flags of the units that the footer, too, has as the row group of their ordinal."""
        base, ordinal = self.base[units.file], units.ordinal
        found = (base >= 0) & (ordinal >= 0) & (ordinal < self.count[units.file])
        at = base[found] + ordinal[found]
        same = (self.first[at] == units.first_row[found]) & (self.rows[at] == units.rows[found])
        found[found] = same
        return found
