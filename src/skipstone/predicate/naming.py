"""The names of a table's columns in its files, where they differ from those in the table.

A table format renames a column without a change of its files. Facts and footers describe files, so
they always have the names of the file. Code that asks them translates: ``Naming.to_file`` before,
and ``Naming.to_table`` after.

The elements of a list are the field ``element`` below it; a map has the fields ``key`` and
``value``.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass

from .tree import is_expression
from .types import MapKey, column_name, column_path, is_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


class Named(NamedTuple):
    """A field in a file: its exact name, and the fields below it. The name is ``None`` if the file
    lacks the field, but may have another one of the same name."""

    name: str | None
    below: Naming


@dataclass(frozen=True, eq=False)
class Naming:
    """The ``fields`` of a table, or below one of its fields, that some files name differently, by
    their names in the table. All other fields have the same name in these files, or are not in
    them."""

    fields: Mapping[str, Named] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fields)

    def below(self, name: str) -> Naming:
        """The fields below a field of the table."""
        found = self.fields.get(name)
        return SAME if found is None else found.below

    @cached_property
    def _back(self) -> Naming:
        """The inverse: the fields of the table by the names in the file."""
        found = {name: Named(None, SAME) for name in self.fields}
        for name, (own, below) in self.fields.items():
            if own is not None:
                found[own] = Named(name, below._back)
        return Naming(found)

    def to_file(self, column: str) -> str | None:
        """The name of a column of the table in the files; ``None`` where they lack it, or where an
        expression reads a column of another name."""
        if not self.fields:
            return column
        if is_expression(column):
            from .indexed import columns_of_name

            same = all(self.to_file(each) == each for each in columns_of_name(column))
            return column if same else None
        naming, path = self, list[str]()
        for part in column_path(column):
            if isinstance(part, MapKey):
                path.append(part)
                naming = naming.below("value")
                continue
            named = naming.fields.get(part, Named(part, SAME))
            if named.name is None:
                return None
            path.append(named.name)
            naming = named.below
        return column_name(tuple(path))

    def to_table(self, column: str) -> str | None:
        """The name in the table of a column of the files; ``None`` where the table has another
        column of this name, and not this one."""
        return self._back.to_file(column)

    def in_file(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the table that the files may have, by their names there."""
        return pa.schema(_fields(schema, self))


#: the naming of files that have the names of the table
SAME: Final = Naming()


def _fields(fields: Sequence[pa.Field] | pa.Schema, naming: Naming) -> list[pa.Field]:
    found = []
    for each in fields:
        named = naming.fields.get(each.name, Named(each.name, SAME))
        if named.name is not None:
            found.append(each.with_name(named.name).with_type(_type(each.type, named.below)))
    return found


def _type(type: pa.DataType, naming: Naming) -> pa.DataType:
    if not naming:
        return type
    if pa.types.is_struct(type):
        return pa.struct(_fields(list(type), naming))
    if is_list(type):
        inner = type.value_field
        return pa.list_(inner.with_type(_type(inner.type, naming.below("element"))))
    if pa.types.is_map(type):
        key, value = _type(type.key_type, naming.below("key")), naming.below("value")
        return pa.map_(key, _type(type.item_type, value))
    return type


@dataclass(frozen=True, eq=False)
class Namings:
    """The naming of each file: ``distinct[number[file]]``."""

    number: NDArray[np.int64]
    distinct: tuple[Naming, ...]

    @classmethod
    def of(cls, namings: Sequence[Naming]) -> Namings | None:
        """From the naming of each file; files with equal names share one object. ``None`` if all
        files have the names of the table."""
        if not any(namings):
            return None
        distinct = list(dict.fromkeys(namings))
        place = {id(each): at for at, each in enumerate(distinct)}
        return cls(np.array([place[id(each)] for each in namings], np.int64), tuple(distinct))

    def __getitem__(self, file: int) -> Naming:
        return self.distinct[int(self.number[file])]

    def where(self, files: Sequence[int]) -> Namings:
        """The namings of some files."""
        return Namings(self.number[np.asarray(files, np.int64)], self.distinct)
