"""The columns of a table in one of its files.

A file may lack a column of the table, spell it in another case, have another name for it by the
rules of a table format (``Naming``), or store it in a narrower type. It does not hold the partition
columns of its path. A column that the file lacks is null in all its rows, unless it has a default,
by the table or by Spark.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow
from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.predicate.naming import SAME
from skipstone.predicate.tree import is_expression
from skipstone.predicate.types import (
    EXISTS_DEFAULT,
    MapKey,
    column_name,
    column_path,
    is_list,
    spark_type,
)
from skipstone.pruning.column_types import values_of_key

from .table_types import spelled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.errors import SkipstoneError
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.predicate.naming import Naming, Namings
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.pruning.table_schema import FileSchema
    from skipstone.table_formats import TableSnapshot


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableColumns:
    """The columns of a table. ``schema`` is Arrow's. ``partitions`` are the partition columns in
    the paths, with the values by file. ``defaults`` are columns whose defaults only Spark applies;
    ``absent`` has the values of other columns in files that lack them. ``names`` are the names in
    the files, where they differ from the table's."""

    schema: pa.Schema
    partitions: PartitionColumns
    defaults: frozenset[str] = field(default_factory=frozenset)
    names: Namings | None = None
    absent: Mapping[str, pa.Scalar] = field(default_factory=dict)

    @classmethod
    def of(
        cls, schema: FileSchema, partitions: PartitionColumns, snapshot: TableSnapshot | None = None
    ) -> TableColumns:
        """``schema`` is that of the files, and ``snapshot`` that of a table of a table format."""
        defaults = {each.name for each in schema.spark if EXISTS_DEFAULT in (each.metadata or {})}
        return cls(
            schema=partitions.added_to(schema.arrow),
            partitions=partitions,
            defaults=frozenset(defaults),
            names=None if snapshot is None else snapshot.names,
            absent={} if snapshot is None else snapshot.defaults,
        )

    def of_files(self, files: Sequence[int]) -> TableColumns:
        """The columns for some files of the listing, by their ordinals."""
        at = arrow(np.asarray(files, np.int64))
        values = {name: each.take(at) for name, each in self.partitions.values.items()}
        names = None if self.names is None else self.names.where(files)
        return replace(self, partitions=type(self.partitions)(values), names=names)

    def naming(self, file: int) -> Naming:
        """The names of the columns in a file."""
        return SAME if self.names is None else self.names[file]

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
        self.naming = table.naming(ordinal)
        self._found: dict[str, tuple[str, ...] | None] = {} if found is None else found
        #: the positions of top-level columns, by their names in lower case
        self._tops: dict[str, list[int]] = {}
        #: what ``batches`` knows of the whole file, by the names of columns
        self.whole: dict[tuple[str, ...], Any] = {}

    @property
    def locked(self) -> Mapping[int, SkipstoneError]:
        """Why leaves cannot be read, where their keys are not available."""
        return self.opened.unavailable

    def path(self, column: str) -> tuple[str, ...] | None:
        """The path of ``column`` in the file, ``None`` if the file lacks it."""
        found = self._find(column)
        whole = found is not None and len(found) == len(column_path(column))
        return found if whole else None

    def read_path(self, column: str) -> tuple[str, ...] | None:
        """The path to read for ``column``, ``None`` where the file has nothing of it. For a key of
        a map this is the whole map. For a field that the file lacks it is the nearest struct above,
        which shows where the field is inside a null."""
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
        schema, naming = self.opened.schema, self.naming
        if not self._tops:  # a file may have ten thousand columns
            for at, name in enumerate(schema.names):
                self._tops.setdefault(name.lower(), []).append(at)
        named = naming.fields.get(parts[0])
        top = parts[0] if named is None else named.name
        fields: list[pa.Field] = []
        if top is not None:  # the file may lack a renamed column
            fields = [schema.field(at) for at in self._tops.get(top.lower(), ())]
        for part in parts:
            if isinstance(part, MapKey):
                path.append(part)
                fields = []
                continue
            names = [each.name for each in fields]
            named, naming = naming.fields.get(part), naming.below(part)
            if named is not None:  # the exact name, if the file has the column
                found = names.index(named.name) if named.name in names else None
            else:
                found = spelled(part, names)
            if named is None and found is None and part.lower() in {each.lower() for each in names}:
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

    @property
    def only_by_ids(self) -> str | None:
        """A top-level column, if any, for which a reader by names would find a wrong column."""
        names = self.opened.schema.names
        lower = {name.lower() for name in names}
        for name, (own, below) in self.naming.fields.items():
            if below or (own is None and name.lower() in lower) or len(lower) < len(names):
                return name
        return None

    def given(self, name: str) -> pa.Scalar | None:
        """The one value that a column has in all rows, as a partition column and a default have;
        ``None`` for any other column. ``UnsupportedError`` as of ``partition_value``."""
        value = self.table.partition_value(name, self.ordinal)
        if value is None and name in self.table.absent and not self._find(column_name((name,))):
            return self.table.absent[name]
        return value

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

        A column that the file lacks is all null, as is one whose type in the file has no other
        value; a partition column has one value throughout.
        """
        given = self.given(column_path(column)[0])
        if given is not None:
            return pa.repeat(given, rows)
        path = self.path(column)
        if path is None:
            return pa.nulls(rows, type)
        values = have[path[0]]
        for part in path[1:]:
            if pa.types.is_null(values.type):
                break
            if isinstance(part, MapKey):
                values = values_of_key(values, part)
            else:
                values = pc.struct_field(values, [part])
        return pa.nulls(rows, type) if pa.types.is_null(values.type) else values
