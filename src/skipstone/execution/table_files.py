"""The files of a table: their columns by its names, and their row groups and pages for the planner.

A file may lack a column of the table, spell it in another case, or store it in a narrower type. It
does not hold the partition columns of its path. A column that it lacks is null in all its rows,
unless Spark has written a default for it.

Files are opened when the planner needs them, all files of a level together. A file that cannot
be opened, or has changed since it was listed, has no parts: the planner keeps it whole, and the
reader reports the error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, distinct_at, numbers
from skipstone.errors import SkipstoneError, StaleError, UnsupportedError
from skipstone.parquet.evidence import PageSource, RowGroupSource
from skipstone.parquet.reading.file import ParquetFile
from skipstone.predicate.literals import stored
from skipstone.predicate.types import EXISTS_DEFAULT, MapKey, column_path, is_list
from skipstone.pruning import Level, Units
from skipstone.pruning.column_types import values_of_key
from skipstone.pruning.evidence import Source
from skipstone.pruning.table_schema import FileSchema, TableSchema, merge_schemas

from .open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.evidence.indexed_file import IndexedFile
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import Evidence, Fetched
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.pruning.table_schema import KnownSchemas
    from skipstone.storage import ByteRange, Listing, Storage


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
    """One file's columns by the table's names; ``file`` is its ordinal in the listing."""

    def __init__(self, table: TableColumns, opened: ParquetFile, ordinal: int) -> None:
        self.table, self.opened, self.ordinal = table, opened, ordinal
        self._paths: dict[str, tuple[str, ...] | None] = {}

    @property
    def locked(self) -> Mapping[int, SkipstoneError]:
        """Why leaves cannot be read: their keys are not available."""
        return self.opened.unavailable

    def path(self, column: str) -> tuple[str, ...] | None:
        """The path of ``column`` in the file, ``None`` if the file lacks it."""
        if column not in self._paths:
            found = self._find(column)
            whole = found is not None and len(found) == len(column_path(column))
            self._paths[column] = found if whole else None
        return self._paths[column]

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
        if column_path(column)[0] in self.table.partitions.values:
            return None
        fields: list[pa.Field] = list(self.opened.schema)
        path: list[str] = []
        for part in column_path(column):
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
            try:
                path = self.path(column)
            except UnsupportedError:
                continue
            keyed = path is None or any(isinstance(part, MapKey) for part in path)
            leaf = None if path is None or keyed else tree.leaf(path)
            if leaf is not None:
                found[column] = leaf.ordinal
        return found

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


def spelled(name: str, names: Sequence[str]) -> int | None:
    """The position of ``name`` among ``names`` as Spark finds it: the exact spelling, else the only
    one that is equal without case; ``None`` for none, or several."""
    fits = [at for at, each in enumerate(names) if each == name]
    fits = fits or [at for at, each in enumerate(names) if each.lower() == name.lower()]
    return fits[0] if len(fits) == 1 else None


def as_type(values: pa.Array, type: pa.DataType) -> pa.Array:
    """``values`` of a file as ``type``, which the table has: every value is kept exactly.

    Fields of structs are matched by name, as Spark does; a field that the file lacks is null.
    Raises ``pa.ArrowException`` where a value does not fit.
    """
    t = pa.types
    if values.type.equals(type):
        return values
    if isinstance(values.type, pa.BaseExtensionType) and not isinstance(type, pa.BaseExtensionType):
        return as_type(values.storage, type)
    if t.is_struct(values.type) and t.is_struct(type):
        names = [each.name for each in values.type]
        children = []
        for each in type:
            at = spelled(each.name, names)
            if at is None:
                children.append(pa.nulls(len(values), each.type))
            else:
                children.append(as_type(values.field(at), each.type))
        fields = [each.with_nullable(True) for each in type]
        made = pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
        return made if made.type.equals(type) else made.cast(type)
    if is_list(values.type) and t.is_list(type):
        offsets, mask = _offsets(values, pc.list_value_length(values))
        items = as_type(pc.list_flatten(values), type.value_type)
        return pa.ListArray.from_arrays(offsets, items, type=type, mask=mask)
    if t.is_map(values.type) and t.is_map(type):
        entries = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
        offsets, mask = _offsets(values, pc.list_value_length(entries))
        both = pc.list_flatten(entries)
        keys = as_type(both.field(0), type.key_type)
        items = as_type(both.field(1), type.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=type, mask=mask)
    return stored(values, type) if t.is_string(type) else values.cast(type)


def _offsets(values: pa.Array, lengths: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Offsets of lists of these ``lengths``, without gaps, and which lists are null."""
    counts = numbers(lengths).astype(np.int64)
    offsets = arrow(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return offsets, values.is_null() if values.null_count else None


class Footers:
    """The opened files of one listing."""

    def __init__(self, files: OpenFiles, listing: Listing, table: TableColumns) -> None:
        self.files, self.listing, self.table = files, listing, table
        self.opened: dict[int, FileColumns] = {}
        self.failed: dict[int, Exception] = {}
        self.indexed: dict[int, IndexedFile] = {}

    @property
    def sources(self) -> tuple[FooterRowGroups, PageIndexes]:
        """Row groups by the footers, then pages."""
        return FooterRowGroups(self), PageIndexes(self)

    def open(self, ordinals: Sequence[int]) -> None:
        """Opens the files that are not open yet; ``failed`` keeps the errors."""
        wanted = [at for at in ordinals if at not in self.opened and at not in self.failed]
        found = self.files.open([self.listing.object_id(at) for at in wanted])
        for at, file in zip(wanted, found, strict=True):
            if isinstance(file, ParquetFile):
                self.opened[at] = FileColumns(self.table, file, at)
            else:
                self.failed[at] = _said(file, self.listing.paths[at])

    def fresh(self, ordinal: int) -> bool:
        """Whether a file is open in the version of the listing."""
        found = self.opened.get(ordinal)
        return found is not None and found.opened.id.same_version(self.listing.object_id(ordinal))

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

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Reads ranges of the opened versions; unreadable ranges are left out."""
        versions = {file.opened.path: file.opened.id for file in self.opened.values()}
        for file in self.opened.values():
            versions.update({id.path: id for id in file.opened.column_files.values()})
        return self.files.storage.read_ranges(ranges, versions)


def _said(error: Exception, path: str) -> Exception:
    """The error in terms of the table."""
    if isinstance(error, FileNotFoundError):
        return StaleError(
            f"{path} is gone since it was listed",
            hint="query again: a new plan leaves out files that are gone",
        )
    return error


class FooterRowGroups(Source):
    """Row groups of undecided files, from their footers."""

    level = Level.ROW_GROUP

    def __init__(self, footers: Footers) -> None:
        self.footers = footers
        self._source = RowGroupSource({})

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, IntArray]:
        """Opens the files and gives the row groups of those that have not changed.

        A unit that a ``_pm`` has already cut to a row group stays: its footer may prove more.
        """
        files = list(dict.fromkeys(units.file.tolist()))
        found = self.footers.index(files, columns)
        self._source = RowGroupSource(found)
        total = np.full(len(self.footers.listing), -1, np.int64)
        for at, file in found.items():
            total[at] = file.footer.row_starts[-1]
        # A unit without a row count is a whole file without a fact.
        counted = (units.first_row == 0) & (units.rows == total[units.file])
        whole = np.flatnonzero(counted | ((units.rows < 0) & (total[units.file] >= 0)))
        parts, parent = self._source.split(units.where(whole), columns)
        parent = whole[parent]
        cut = np.ones(len(units), np.bool_)
        cut[whole] = False
        same = [at for at in np.flatnonzero(cut).tolist() if _is_row_group(units, at, found)]
        if not same:
            return parts, parent
        kept = units.where(np.array(same, np.int64))
        joined = Units(
            level=Level.ROW_GROUP,
            file=np.concatenate([parts.file, kept.file]),
            ordinal=np.concatenate([parts.ordinal, kept.ordinal]),
            first_row=np.concatenate([parts.first_row, kept.first_row]),
            rows=np.concatenate([parts.rows, kept.rows]),
        )
        return joined, np.concatenate([parent, np.array(same, np.int64)])

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """Statistics, Bloom filters, dictionaries."""
        return self._source.evidence(units, columns)


class PageIndexes(Source):
    """Pages of undecided row groups."""

    level = Level.PAGE

    def __init__(self, footers: Footers) -> None:
        self.footers = footers
        self._source = PageSource({}, footers.fetch)

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, IntArray]:
        """Reads the page indexes of the predicate's columns, in one wave."""
        files = [at for at in dict.fromkeys(units.file.tolist()) if self.footers.fresh(at)]
        found = self.footers.index(files, columns)
        self._source = PageSource(found, self.footers.fetch)
        # A unit that was kept as a whole has no pages.
        at = [each for each in range(len(units)) if _is_row_group(units, each, found)]
        parts, parent = self._source.split(units.where(np.array(at, np.int64)), columns)
        return parts, np.array(at, np.int64)[parent]

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """Column indexes, and searches where columns are sorted."""
        return self._source.evidence(units, columns)


def _is_row_group(units: Units, at: int, found: Mapping[int, IndexedFile]) -> bool:
    """Whether the footer has the unit as the row group of its ordinal, too."""
    file = found.get(int(units.file[at]))
    ordinal = int(units.ordinal[at])
    if file is None or not 0 <= ordinal < file.footer.num_row_groups:
        return False
    starts = file.footer.row_starts
    first, stop = int(starts[ordinal]), int(starts[ordinal + 1])
    return bool(units.first_row[at] == first and units.rows[at] == stop - first)


class Engine:
    """Opened files and the schema of the files of one table."""

    def __init__(self, storage: Storage, storage_options: Mapping[str, str] | None = None) -> None:
        self.files = OpenFiles(storage, storage_options)
        self._schema: tuple[Listing, TableSchema] | None = None

    def schema(self, listing: Listing, facts: KnownSchemas | None = None) -> TableSchema:
        """The schema of all files of ``listing``: from ``facts`` where they have it, else from the
        footers, which are opened together and stay open.

        Files that cannot be opened are skipped here: reading them reports the error. If none can,
        the first one's error is raised. ``UnsupportedError`` where types do not merge. An empty
        listing has an empty schema.
        """
        if self._schema is not None and self._schema[0].same_files(listing):
            return self._schema[1]
        n = len(listing)
        found: dict[FileSchema, str] = {}
        if facts is not None:
            number = facts.number
            used, first = distinct_at(number[number >= 0])
            where = np.flatnonzero(number >= 0)[first]
            for each, at in zip(used.tolist(), where.tolist(), strict=True):
                found.setdefault(facts.schemas[each], listing.paths[at])
            left = np.flatnonzero(number < 0).tolist()
        else:
            left = list(range(n))
        failures: list[Exception] = []
        for at, file in zip(
            left, self.files.open([listing.object_id(i) for i in left]), strict=True
        ):
            try:
                if isinstance(file, Exception):
                    raise file
                found.setdefault(file.file_schema, listing.paths[at])
            except (SkipstoneError, OSError, ValueError, LookupError) as error:
                failures.append(_said(error, listing.paths[at]))
        if failures and not found:
            raise failures[0]
        in_order = sorted(found.items(), key=lambda each: each[1])
        made = TableSchema(
            merged=merge_schemas([(path, schema) for schema, path in in_order]),
            distinct=len(found),
            files_total=n,
            from_facts=n - len(left),
            from_footers=len(left) - len(failures),
        )
        if not failures:
            self._schema = listing, made
        return made

    def footers(
        self,
        listing: Listing,
        schema: FileSchema,
        partitions: PartitionColumns,
    ) -> Footers:
        """The footers of these files; none is opened yet. ``schema`` is that of all files; its
        canonical types are those that predicates are bound to."""
        return Footers(self.files, listing, TableColumns.of(schema, partitions))
