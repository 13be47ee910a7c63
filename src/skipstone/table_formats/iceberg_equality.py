"""Equality deletes of Apache Iceberg: a file of keys deletes the rows that have one of them.

A delete applies to data files that are older than it, of its own partition, or of all partitions
where it has none. A null of a key is a null of the data. The key columns of these data files are
read when the snapshot is opened, and the rows found are kept, as none of the files ever changes.

Refused are keys of floats, keys inside structs, keys of columns that were dropped, and keys that a
data file lacks while it may have another value than null there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import _compute as pc
from skipstone._arrays import numbers
from skipstone.errors import UnsupportedError
from skipstone.predicate.naming import SAME, Named
from skipstone.predicate.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.naming import Naming

    from .iceberg_columns import DataFile


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """The columns of the keys: of ``table`` in ``schema``, by its own ``fields``; ``names`` are
    those of some files by their paths."""

    table: Any
    schema: pa.Schema
    fields: Any
    names: Mapping[str, Naming]


class EqualityDeletes:
    """The rows that equality deletes of a table delete."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._rows: dict[tuple[str, str], NDArray[np.int64]] = {}

    def of(
        self, keys: Keys, data: Sequence[DataFile], deletes: Sequence[DataFile]
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The ordinals of data files, with rows that are deleted; a file may come again."""
        known, self._rows = self._rows, {}
        read: dict[tuple[str, ...], dict[str, list[pa.Array]]] = {}
        for delete in deletes:
            own = delete.file
            spec = keys.table.specs()[own.spec_id]
            parted = any(str(each.transform) != "void" for each in spec.fields)
            for at, each in enumerate(data):
                file = each.file
                if each.sequence >= delete.sequence or (
                    parted and (file.spec_id, file.partition) != (own.spec_id, own.partition)
                ):
                    continue
                pair = delete.path, each.path
                if pair not in known:
                    names = self._names(delete, keys.fields)
                    some = read.setdefault(names, {})
                    for path in (delete, each):
                        if path.path not in some:
                            some[path.path] = self._columns(keys, path, names)
                    known[pair] = _matches(some[each.path], some[delete.path])
                self._rows[pair] = known[pair]
                yield at, known[pair]

    def _names(self, delete: DataFile, fields: Any) -> tuple[str, ...]:
        """The columns of the keys."""
        tops = {each.field_id: each for each in fields.fields}
        found = [tops.get(id) for id in delete.file.equality_ids or ()]
        if not found or None in found or delete.kind != "PARQUET":
            raise self._refused(delete, "by columns that the table does not have")
        return tuple(each.name for each in found if each is not None)

    def _columns(self, keys: Keys, file: DataFile, names: tuple[str, ...]) -> list[pa.Array]:
        table, naming = keys.table, keys.names.get(file.path, SAME)
        with table.io.new_input(file.file.file_path).open() as opened:
            stored = pq.ParquetFile(opened)
            have = stored.schema_arrow.names
            own = {each: naming.fields.get(each, Named(each, SAME)).name for each in names}
            held = [each for each in own.values() if each in have]
            rows = stored.read(held, use_threads=False)
        found = []
        for name in names:
            type, field = keys.schema.field(name).type, keys.fields.find_field(name)
            if pa.types.is_floating(type) or spark_type(type) is None:
                raise self._refused(file, f"by {name!r}, of type {type}")
            if own[name] in held:
                found.append(rows.column(own[name]).combine_chunks().cast(type))
                continue
            sources = {each.source_id for spec in table.specs().values() for each in spec.fields}
            if (
                file.file.equality_ids
                or field.initial_default is not None
                or (field.field_id in sources)
            ):
                raise self._refused(file, f"by {name!r}, which it lacks")
            found.append(pa.nulls(len(rows), type))
        return found

    def _refused(self, file: DataFile, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name}: rows of {file.path} are deleted {why}, which is not applied here",
            hint="compact the table in Iceberg (rewrite_data_files)",
        )


def _matches(columns: list[pa.Array], keys: list[pa.Array]) -> NDArray[np.int64]:
    """The rows whose values in all columns are those of one key; null equals null."""
    row, key = np.zeros(len(columns[0]), np.int64), np.zeros(len(keys[0]), np.int64)
    found = np.ones(len(row), np.bool_)
    for values, wanted in zip(columns, keys, strict=True):
        known = wanted.unique()
        at = numbers(pc.index_in(values, known), -1)
        found &= at >= 0
        # Codes of the keys so far, which stay below their number.
        row = row * len(known) + at
        codes, key = np.unique(
            key * len(known) + numbers(pc.index_in(wanted, known), -1), return_inverse=True
        )
        place = np.minimum(np.searchsorted(codes, row), len(codes) - 1)
        found &= codes[place] == row
        row = place
    return np.flatnonzero(found)
