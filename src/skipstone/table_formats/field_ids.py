"""Columns by the ids that table formats give them, and the names of the columns in data files.

A format knows a column by its id, at any depth, and writes it into the footer of each data file
(``PARQUET:field_id`` to Arrow). A file without any id gets those of ``assigned``, where the table
maps names to ids. Only the file itself says which names it has: it may be older than all schemas
that the table keeps, come from elsewhere, or come from a writer that spells names differently.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import UnsupportedError
from skipstone.predicate.naming import SAME, Named, Naming
from skipstone.predicate.types import column_name, is_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

READERS = 16
_ID = b"PARQUET:field_id"


class FieldWithId(NamedTuple):
    """A field, its id, and the fields below it: those of a struct, or ``element``, ``key`` and
    ``value``, which need no id. ``default``: in files without the field, its value is not null."""

    name: str
    id: int | None
    below: Fields = ()
    default: bool = False


Fields = tuple[FieldWithId, ...]


def columns_by_id(fields: Fields, above: tuple[str, ...] = ()) -> dict[int, str]:
    """The columns and the fields of structs, by their names in plans and facts."""
    found: dict[int, str] = {}
    for each in fields:
        path = (*above, each.name)
        if each.id is not None:
            found[each.id] = column_name(path)
        found |= columns_by_id(each.below, path)
    return found


def former_names(now: Fields, past: Iterable[Fields]) -> dict[str, str]:
    """The columns of ``now`` by their former names, without names that a column has now."""
    ours = columns_by_id(now)
    names = set(ours.values())
    before = (pair for fields in past for pair in columns_by_id(fields).items())
    return {each: ours[id] for id, each in before if id in ours and each not in names}


class FilesByIds:
    """The names of columns in data files by the ids in their footers, each of which is read once.

    ``open`` opens a file by what ``of`` gets.
    """

    def __init__(self) -> None:
        self._known: dict[str, Fields] = {}

    @property
    def without_ids(self) -> frozenset[str]:
        """The files of the last call that got their ids from the table."""
        return frozenset(path for path, each in self._known.items() if not _any(each))

    def of(
        self,
        table: Fields,
        files: Mapping[str, Callable[[], AbstractContextManager[Any]]],
        assigned: Any = None,
    ) -> dict[str, Naming]:
        """The naming of each file, one object for all files with the same names. ``files`` has a
        function that opens the file, by path; ``assigned`` as for ``with_ids``."""
        fresh = [path for path in files if path not in self._known]
        with ThreadPoolExecutor(READERS) as pool:
            read = list(pool.map(lambda path: _read(files[path]), fresh))
        held = self._known | dict(zip(fresh, read, strict=True))
        self._known = {path: held[path] for path in files}
        made: dict[Fields, Naming] = {}
        alike: dict[str, Naming] = {}
        found = {}
        for path, fields in self._known.items():
            if fields not in made:
                naming = _named(table, with_ids(fields, assigned), path)
                made[fields] = alike.setdefault(_text(naming), naming)
            found[path] = made[fields]
        return found


def _read(opened: Callable[[], AbstractContextManager[Any]]) -> Fields:
    with opened() as file:
        return fields_of(pq.ParquetFile(file).schema_arrow)


def _text(naming: Naming) -> str:
    return repr(sorted((k, v.name, _text(v.below)) for k, v in naming.fields.items()))


def fields_of(schema: pa.Schema | Sequence[pa.Field]) -> Fields:
    """The fields of a file."""
    return tuple(_of_arrow(each.name, each) for each in schema)


def _of_arrow(name: str, field: pa.Field) -> FieldWithId:
    id, type = (field.metadata or {}).get(_ID), field.type
    below: Fields = ()
    if pa.types.is_struct(type):
        below = fields_of(list(type))
    elif is_list(type):
        below = (_of_arrow("element", type.value_field),)
    elif pa.types.is_map(type):
        below = _of_arrow("key", type.key_field), _of_arrow("value", type.item_field)
    return FieldWithId(name, None if id is None else int(id), below)


def with_ids(fields: Fields, assigned: Any) -> Fields:
    """``fields``, or those with the ids of ``assigned`` where none has an id.

    ``assigned`` has one entry for each field: its ``field_id``, the ``names`` that it may have, and
    the ``fields`` below it.
    """
    return fields if assigned is None or _any(fields) else _assigned(fields, assigned)


def _any(fields: Fields) -> bool:
    return any(each.id is not None or _any(each.below) for each in fields)


def _assigned(fields: Fields, entries: Sequence[Any]) -> Fields:
    known = {name: each for each in entries for name in each.names}
    found = []
    for field in fields:
        entry = known.get(field.name)
        below = _assigned(field.below, () if entry is None else entry.fields)
        found.append(field._replace(id=None if entry is None else entry.field_id, below=below))
    return tuple(found)


def _named(table: Fields, file: Fields, path: str) -> Naming:
    try:
        return naming_of(table, file)
    except LookupError as error:
        raise UnsupportedError(
            f"{path} has two columns of the id {error}",
            hint="write the file again, or correct the mapping of names to ids",
        ) from None


def naming_of(table: Fields, file: Fields) -> Naming:
    """The names of the fields of ``table`` in a file that has the fields ``file``; ``LookupError``
    with an id that two of these have."""
    by_id: dict[int | None, FieldWithId] = {}
    for field in file:
        if field.id is not None and by_id.setdefault(field.id, field) is not field:
            raise LookupError(field.id)
    by_name = {each.name: each for each in file}
    taken = {each.name.lower() for each in file}
    found: dict[str, Named] = {}
    for field in table:
        own = by_name.get(field.name) if field.id is None else by_id.get(field.id)
        if own is None:
            # A reader would take a field of this name, in any spelling of its case, for the column.
            if field.default or field.name.lower() in taken:
                found[field.name] = Named(None, SAME)
            continue
        below = naming_of(field.below, own.below)
        if own.name != field.name or below:
            found[field.name] = Named(own.name, below)
    return Naming(found) if found else SAME
