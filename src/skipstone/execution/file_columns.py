"""Maps the columns of a table to the columns of a file.

A file may lack a column of the table, spell it in another case, or store it in a narrower type. It
does not hold the partition columns of its path. A column that it lacks is null in all its rows,
unless Spark has written a default for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import UnsupportedError
from skipstone.predicate.types import EXISTS_DEFAULT, MapKey, column_name, column_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.errors import SkipstoneError
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.pruning.partitions import PartitionColumns


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableColumns:
    """The columns of a table: ``schema`` is Arrow's, those in the paths last; ``partitions`` are
    their values by file."""

    schema: pa.Schema
    partitions: PartitionColumns
    defaults: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(
        cls, canonical: pa.Schema, arrow: pa.Schema, partitions: PartitionColumns
    ) -> TableColumns:
        """``canonical`` is the schema that predicates are bound to, ``arrow`` that of the files."""
        folders = {name.lower() for name in partitions.values}
        fields = [each for each in arrow if each.name.lower() not in folders]
        fields += [pa.field(name, each.type) for name, each in partitions.values.items()]
        defaults = {each.name for each in canonical if EXISTS_DEFAULT in (each.metadata or {})}
        return cls(schema=pa.schema(fields), partitions=partitions, defaults=frozenset(defaults))

    def of_files(self, files: Sequence[int]) -> TableColumns:
        """The same for some files of the listing, by their ordinals."""
        at = pa.array(files, pa.int64())
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
            self._paths[column] = self._find(column)
        return self._paths[column]

    def _find(self, column: str) -> tuple[str, ...] | None:
        if column_path(column)[0] in self.table.partitions.values:
            return None
        fields: list[pa.Field] = list(self.opened.schema)
        path: list[str] = []
        for part in column_path(column):
            if isinstance(part, MapKey):
                path.append(part)
                fields = []
                continue
            fits = [each for each in fields if each.name == part]
            fits = fits or [each for each in fields if each.name.lower() == part.lower()]
            if len(fits) > 1:
                raise UnsupportedError(
                    f"several columns of {self.opened.path} are called {part!r} but for case",
                    hint="read this file by itself, by its own names",
                )
            if not fits:
                if column_path(column)[0] in self.table.defaults:
                    raise UnsupportedError(
                        f"{self.opened.path} lacks {column!r}, for which Spark has a default",
                        hint="read the table with Spark: Table.read(spark, where)",
                    )
                return None
            path.append(fits[0].name)
            type = fits[0].type
            fields = list(type) if pa.types.is_struct(type) else []
        return tuple(path)

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
            leaf = None if path is None or keyed else tree.leaf(column_name(path))
            if leaf is not None:
                found[column] = leaf.ordinal
        return found

    def values(
        self, column: str, have: Mapping[str, pa.ChunkedArray], rows: int, type: pa.DataType
    ) -> pa.ChunkedArray | pa.Array:
        """``rows`` values of a predicate's column; ``have`` are the columns read from the file.

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
                # Of several entries with one key Spark takes the first.
                key = pa.scalar(str(part), values.type.key_type)
                values = pc.map_lookup(values, key, "first")
            else:
                values = pc.struct_field(values, [part])
        return values
