"""Values of a file in the type that the table has: every value exactly, or an error. The columns
that a query names, as the table has them.

Where files have nanoseconds and others do not, the table has the microseconds by which rows are
decided, and finer digits are cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.human import some_of
from skipstone.predicate.literals import stored
from skipstone.predicate.naming import SAME
from skipstone.predicate.types import column_name, column_path, is_list
from skipstone.pruning.table_schema import spelled_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.predicate.naming import Naming


def spelled(name: str, names: Sequence[str]) -> int | None:
    """The position of ``name`` among ``names`` as Spark finds it: the exact spelling, else the only
    one that is equal without case; ``None`` for none, or several."""
    fits = [at for at, each in enumerate(names) if each == name]
    fits = fits or [at for at, each in enumerate(names) if each.lower() == name.lower()]
    return fits[0] if len(fits) == 1 else None


def as_type(values: pa.Array, type: pa.DataType, naming: Naming = SAME) -> pa.Array:
    """``values`` of a file as ``type``, which the table has; see the module.

    Fields of structs are matched by name, as Spark does, or by those that ``naming`` gives them in
    the file; a field that the file lacks is null.
    Raises ``pa.ArrowException`` where a value does not fit.
    """
    t = pa.types
    if values.type.equals(type) and not naming:
        return values
    if isinstance(values.type, pa.BaseExtensionType) and not isinstance(type, pa.BaseExtensionType):
        return as_type(values.storage, type, naming)
    if t.is_struct(values.type) and t.is_struct(type):
        names = [each.name for each in values.type]
        children = []
        for each in type:
            named = naming.fields.get(each.name)
            if named is None:
                at = spelled(each.name, names)
            else:
                at = names.index(named.name) if named.name in names else None
            if at is None:
                children.append(pa.nulls(len(values), each.type))
            else:
                below = naming.below(each.name)
                children.append(as_type(values.field(at), each.type, below))
        fields = [each.with_nullable(True) for each in type]
        made = pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
        return made if made.type.equals(type) else made.cast(type)
    if is_list(values.type) and t.is_list(type):
        offsets, mask = _offsets(values, pc.list_value_length(values))
        items = as_type(pc.list_flatten(values), type.value_type, naming.below("element"))
        return pa.ListArray.from_arrays(offsets, items, type=type, mask=mask)
    if t.is_map(values.type) and t.is_map(type):
        entries = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
        offsets, mask = _offsets(values, pc.list_value_length(entries))
        both = pc.list_flatten(entries)
        keys = as_type(both.field(0), type.key_type, naming.below("key"))
        items = as_type(both.field(1), type.item_type, naming.below("value"))
        return pa.MapArray.from_arrays(offsets, keys, items, type=type, mask=mask)
    if t.is_timestamp(type) and t.is_timestamp(values.type) and values.type.unit == "ns":
        values = stored(values, pa.timestamp("us", values.type.tz and "UTC"))
    return stored(values, type) if t.is_string(type) else values.cast(type)


def in_type(
    column: pa.ChunkedArray, field: pa.Field, path: str, naming: Naming = SAME
) -> pa.ChunkedArray:
    """A column of the file at ``path`` in the type of the table's ``field``, with the ``naming`` of
    what is below it; ``UnsupportedError`` where a value does not fit."""
    if column.type.equals(field.type) and not naming:
        return column
    try:
        found = [as_type(each, field.type, naming) for each in column.chunks]
        return pa.chunked_array(found, field.type)
    except pa.ArrowException as error:
        raise UnsupportedError(
            f"{field.name} of {path} is {column.type}, and the table's is {field.type}",
            hint="its values do not fit: read this file by itself",
        ) from error


def _offsets(values: pa.Array, lengths: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Offsets of lists of these ``lengths``, without gaps, and which lists are null."""
    counts = np.asarray(pc.fill_null(lengths, 0).cast(pa.int64()))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    return offsets, values.is_null() if values.null_count else None


# -- the columns of a query ------------------------------------------------------------------------


def output_schema(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The fields of ``schema`` that ``columns`` name, in their order, pruned to paths below them.

    ``SkipstoneError`` for an unknown name.
    """
    if columns is None:
        return schema
    found = by_field(resolved(schema, columns))
    return pa.schema([_pruned(schema.field(name), below) for name, below in found.items()])


def resolved(schema: pa.Schema, columns: Sequence[str]) -> list[str]:
    """Each of ``columns`` as ``schema`` spells it, found as Spark finds columns.

    ``SkipstoneError`` for an unknown or ambiguous name.
    """
    if isinstance(columns, str):
        raise TypeError(f"columns is a sequence of names: [{columns!r}], not {columns!r}")
    found = []
    for each in columns:
        path = spelled_path(schema, each)
        if path is None:
            raise _unknown(schema, column_path(each))
        found.append(column_name(path))
    return found


def _unknown(schema: pa.Schema, path: tuple[str, ...]) -> SkipstoneError:
    """The error for a path that ``schema`` does not have."""
    import difflib

    fields: list[pa.Field] = list(schema)
    for at, part in enumerate(path):
        names = [each.name for each in fields]
        place = spelled(part, names)
        if place is not None:
            type = fields[place].type
            fields = list(type) if pa.types.is_struct(type) else []
            continue
        name, above = column_name(path[: at + 1]), column_name(path[:at])
        alike = [each for each in names if each.lower() == part.lower()]
        if alike:
            return SkipstoneError(
                f"{name} is ambiguous: {' and '.join(alike)} differ only in case",
                hint="spell it as one of them",
            )
        near = difflib.get_close_matches(part, names, 1)
        shown = some_of(names, 20) or "no fields"
        told = f"the columns are {shown}" if not at else f"{above} has {shown}"
        return SkipstoneError(
            f"there is no column {name}", hint=f"did you mean {near[0]!r}?" if near else told
        )
    raise AssertionError(f"{path} is there")


def by_field(columns: Sequence[str]) -> dict[str, list[str]]:
    """The names, grouped by their root field."""
    found: dict[str, list[str]] = {}
    for each in columns:
        found.setdefault(column_path(each)[0], []).append(each)
    return found


def _pruned(field: pa.Field, columns: Sequence[str]) -> pa.Field:
    """``field`` with only what ``columns`` name below it."""
    return _cut(field, [column_path(each)[1:] for each in columns])


def _cut(field: pa.Field, paths: Sequence[tuple[str, ...]]) -> pa.Field:
    if any(not path for path in paths) or not pa.types.is_struct(field.type):
        return field
    by_name: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        by_name.setdefault(path[0], []).append(path[1:])
    kept = [_cut(each, by_name[each.name]) for each in field.type if each.name in by_name]
    return field.with_type(pa.struct(kept))
