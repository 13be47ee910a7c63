"""The schema of a table of plain Parquet files, as Spark reads it: canonical Arrow types.

The physical schema counts, and not the ``ARROW:schema`` that Arrow writers also store: INT96
is an instant, a duration is a bigint. Spark's own schema in the footer (key
``org.apache.spark.sql.parquet.row.metadata``) is the only one with defaults, collations and
intervals: it counts for the columns whose physical type it agrees with.

The schema of a table is merged from those of all its files (``merge_schemas``), so it does not
depend on which file is listed first, nor on an index.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import numbers as as_numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.human import of_total, plural
from skipstone.predicate.types import (
    MapKey,
    column_name,
    column_path,
    is_list,
    spark_type,
    value_of_key,
)

from .column_types import widens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray


def find_field(schema: pa.Schema, column: str) -> pa.Field | None:
    """The field that ``column`` (dotted, backquotes for names with dots) names, else ``None``.

    An exact spelling wins; otherwise case is ignored where just one field fits, as Spark does.
    """
    path = find_path(schema, column)
    return None if path is None else path[-1]


def find_path(schema: pa.Schema, column: str) -> tuple[pa.Field, ...] | None:
    """The field that ``column`` names, after all the structs that it lies in, else ``None``."""
    fields: list[pa.Field] = list(schema)
    path: list[pa.Field] = []
    for part in column_path(column):
        if _is_key(part, path):
            value = value_of_key(path[-1] if path else None, part)
            if value is None:
                return None
            path.append(value)
            fields = []
            continue
        fits = [field for field in fields if field.name == part]
        fits = fits or [field for field in fields if field.name.lower() == part.lower()]
        if len(fits) != 1:
            return None
        path.append(fits[0])
        fields = list(fits[0].type) if pa.types.is_struct(fits[0].type) else []
    return tuple(path)


def spelled_path(schema: pa.Schema, column: str) -> tuple[str, ...] | None:
    """The path of ``find_path`` by its names; keys of maps stay unchanged."""
    found = find_path(schema, column)
    if found is None:
        return None
    return tuple(
        MapKey(part) if _is_key(part, found[:at]) else found[at].name
        for at, part in enumerate(column_path(column))
    )


def _is_key(part: str, above: Sequence[pa.Field]) -> bool:
    """Whether a part of a path is a key: ``m.k`` is ``m['k']``."""
    return isinstance(part, MapKey) or bool(above and pa.types.is_map(above[-1].type))


def spelled_as(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """``schema`` with its top columns in the case of ``names``, the first of which counts; as it is
    where two of its columns differ in case alone."""
    known: dict[str, str] = {}
    for name in names:
        known.setdefault(name.lower(), name)
    lower = [name.lower() for name in schema.names]
    if len(set(lower)) < len(lower):
        return schema
    fields = [
        field.with_name(known.get(key, field.name))
        for key, field in zip(lower, schema, strict=True)
    ]
    return pa.schema(fields, metadata=schema.metadata)


def schema_of_columns(columns: Mapping[str, pa.Field]) -> pa.Schema:
    """The schema in which each dotted column is a field of its own, inside structs as needed."""
    nested: dict[str, Any] = {}
    for column, field in columns.items():
        *parents, name = column_path(column)
        if isinstance(name, MapKey):
            field = field.with_type(pa.map_(pa.string(), field.type))
            name = parents.pop()
        level = nested
        for parent in parents:
            level = level.setdefault(parent, {})
        level[name] = field.with_name(name)

    def fields(level: dict[str, Any]) -> list[pa.Field]:
        return [
            pa.field(name, pa.struct(fields(inner))) if isinstance(inner, dict) else inner
            for name, inner in level.items()
        ]

    return pa.schema(fields(nested))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileSchema:
    """The columns of a file, or of all files: ``arrow`` has the types in which rows are returned,
    ``spark`` the canonical types that predicates and indexes see. The metadata of ``spark`` mark
    defaults and collations, so they count where schemas are compared."""

    arrow: pa.Schema
    spark: pa.Schema

    @classmethod
    def canonical(cls, schema: pa.Schema) -> FileSchema:
        """The schema of a file whose columns already have canonical types."""
        return cls(arrow=schema, spark=schema)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FileSchema)
            and self.arrow.equals(other.arrow, check_metadata=True)
            and self.spark.equals(other.spark, check_metadata=True)
        )

    def __hash__(self) -> int:
        return hash((tuple(self.arrow), tuple(self.spark)))

    def to_text(self) -> str:
        """JSON of two Arrow IPC schemas in base64; ``spark`` is null where it equals ``arrow``."""
        same = self.spark.equals(self.arrow, check_metadata=True)
        return json.dumps([in_base64(self.arrow), None if same else in_base64(self.spark)])

    @classmethod
    def from_text(cls, text: str) -> FileSchema:
        """What ``to_text`` wrote; ``FormatError`` for other text."""
        try:
            arrow, spark = json.loads(text)
            read = schema_of_base64(arrow)
            return cls(arrow=read, spark=read if spark is None else schema_of_base64(spark))
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise FormatError(f"not the schema of a file ({error})") from error


def in_base64(schema: pa.Schema) -> str:
    """The Arrow IPC message of a schema, in base64."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_of_base64(text: str) -> pa.Schema:
    """What ``in_base64`` made; ``ValueError`` or Arrow's error for other text."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except OSError as error:  # a damaged message: no file is read
        raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KnownSchemas:
    """The schemas of files that need not be opened for it: ``number`` is, for each file of a
    listing, the position of its schema in ``schemas``, -1 where it is not known."""

    number: NDArray[np.int64]
    schemas: Sequence[FileSchema]

    @classmethod
    def of(
        cls,
        names: pa.Array,
        texts: Mapping[str, str],
        file_of_row: NDArray[np.int64],
        files: int,
    ) -> tuple[KnownSchemas, dict[str, FormatError]]:
        """The schemas that rows name, the newest row last; ``file_of_row`` is -1 for a row about no
        file. ``texts`` are the schemas by name; the second result says which cannot be read."""
        encoded = pc.dictionary_encode(names)
        known = encoded.dictionary.to_pylist()
        schemas: list[FileSchema] = []
        errors: dict[str, FormatError] = {}
        at = np.full(len(known) + 1, -1, np.int64)  # the last one for null
        for code, name in enumerate(known):
            try:
                schemas.append(FileSchema.from_text(texts.get(name, "")))
            except FormatError as error:
                errors[name] = error
            else:
                at[code] = len(schemas) - 1
        numbers = at[as_numbers(encoded.indices, -1)]
        rows = np.flatnonzero((file_of_row >= 0) & (numbers >= 0))
        number = np.full(files, -1, np.int64)
        number[file_of_row[rows]] = numbers[rows]  # of equal indexes NumPy keeps the last
        return cls(number=number, schemas=schemas), errors

    def unrelated(self) -> NDArray[np.bool_]:
        """Flags of the files that share no column with the largest group. Files of one group share
        columns, directly or through other files. Names match without case."""
        known = self.number >= 0
        files = np.bincount(self.number[known], minlength=len(self.schemas))
        # Each group: the columns of some schemas, and the positions of these.
        groups: list[tuple[set[str], set[int]]] = []
        for at in np.flatnonzero(files).tolist():
            columns, members = {name.lower() for name in self.schemas[at].spark.names}, {at}
            near = [group for group in groups if not columns.isdisjoint(group[0])]
            groups = [group for group in groups if group not in near]
            for group in near:
                columns, members = columns | group[0], members | group[1]
            groups.append((columns, members))
        sets = [sorted(members) for _, members in groups]
        most = max(sets, key=lambda at: files[at].sum(), default=[])
        return known & ~np.isin(self.number, most)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableSchema:
    """The schema ``merged`` of all files of a listing, and how it was found: of ``files_total``
    files ``from_facts`` had it in their facts, ``from_footers`` were opened, and the others cannot
    be read. ``distinct`` is the number of different schemas. Where ``said_by`` names a version of a
    table format, its log has the schema, and no file was asked. ``untyped`` are the columns that
    have Arrow's null type in some files, by their dotted names, with the type of the others."""

    merged: FileSchema
    distinct: int
    files_total: int
    from_facts: int = 0
    from_footers: int = 0
    said_by: str = ""
    untyped: tuple[pa.Field, ...] = ()

    def __str__(self) -> str:
        if self.said_by:
            return f"that of {self.said_by}: no footer read"
        total = of_total(self.from_facts, self.files_total, "files")
        lost = self.files_total - self.from_facts - self.from_footers
        unknown = f", {lost:,} not readable" if lost else ""
        footers = plural(self.from_footers, "footer")
        return f"{self.distinct:,} distinct, by the facts of {total} and {footers}{unknown}"

    def to_dict(self) -> dict[str, int]:
        """As JSON-ready values."""
        return {
            "distinct": self.distinct,
            "files": self.files_total,
            "from_facts": self.from_facts,
            "from_footers": self.from_footers,
        }


def merge_schemas(files: Sequence[tuple[str, FileSchema]]) -> FileSchema:
    """The schema of a table with these files, pairs of a path and the schema of that file.

    Columns are those of the first file, then those that later files add, at each level of structs;
    names match without case, and have the spelling of the first file. A column gets the one type of
    all files that each of the others widens to (``column_types.widens``), whatever their order. A
    type that only nulls have widens to any. ``UnsupportedError`` names two files whose types do not
    merge. The types of ``arrow`` are those of the files where they agree, else the canonical ones.
    """
    spark = _merged([(list(each.spark), path) for path, each in files], ())
    arrow = _arrow_fields([list(each.arrow) for _, each in files], spark)
    return FileSchema(arrow=pa.schema(arrow), spark=pa.schema(spark))


def untyped_columns(files: Iterable[FileSchema], merged: FileSchema) -> tuple[pa.Field, ...]:
    """The columns that have Arrow's null type in one of ``files``, by their dotted names, with
    their types in ``merged``, the schema of all of these files."""
    whole = pa.struct(list(merged.spark))
    found = (_untyped(pa.struct(list(each.spark)), whole, ()) for each in files)
    return (*dict.fromkeys(field for fields in found for field in fields),)


def _untyped(type: pa.DataType, merged: pa.DataType, column: tuple[str, ...]) -> Iterator[pa.Field]:
    if pa.types.is_null(type):
        if not pa.types.is_null(merged):
            yield pa.field(column_name(column), merged)
    elif pa.types.is_struct(type):
        spelled = _by_case([list(type), list(merged)])
        whole = {spelled(field.name): field for field in merged}
        for field in type:
            found = whole[spelled(field.name)]
            yield from _untyped(field.type, found.type, (*column, found.name))
    elif is_list(type):
        yield from _untyped(type.value_type, merged.value_type, (*column, "element"))
    elif pa.types.is_map(type):
        yield from _untyped(type.item_type, merged.item_type, (*column, "value"))


_Found: TypeAlias = "list[tuple[pa.Field, str]]"


def _merged(files: Sequence[tuple[Sequence[pa.Field], str]], above: tuple[str, ...]) -> list[Any]:
    groups: dict[str, _Found] = {}
    spelled = _by_case([fields for fields, _ in files])
    for fields, path in files:
        for field in fields:
            groups.setdefault(spelled(field.name), []).append((field, path))
    return [_one(found, (*above, found[0][0].name)) for found in groups.values()]


def _by_case(files: Sequence[Sequence[pa.Field]]) -> Callable[[str], str]:
    """A key that is equal for the names of one column: without case, except for names that differ
    only in case within a file."""
    doubled: set[str] = set()
    for fields in files:
        lower = Counter(field.name.lower() for field in fields)
        doubled.update(name for name, count in lower.items() if count > 1)
    return lambda name: name if name.lower() in doubled else name.lower()


def _one(found: _Found, column: tuple[str, ...]) -> pa.Field:
    first = found[0][0]
    types = list(dict.fromkeys(field.type for field, _ in found))
    if len(types) == 1:
        type = types[0]
    elif all(map(pa.types.is_struct, types)):
        type = pa.struct(_merged([(list(field.type), path) for field, path in found], column))
    elif all(map(is_list, types)):
        elements = [(field.type.value_field.with_name("element"), path) for field, path in found]
        type = pa.list_(_one(elements, (*column, "element")))
    elif all(map(pa.types.is_map, types)):
        keys = [(field.type.key_field, path) for field, path in found]
        items = [(field.type.item_field, path) for field, path in found]
        item = _one(items, (*column, "value"))
        type = pa.map_(_one(keys, (*column, "key")).type, item.type)
    else:
        type = _widest(found, column)
    metadata: dict[bytes, bytes] = {}
    for field, _ in found:
        metadata = {**(field.metadata or {}), **metadata}
    return pa.field(first.name, type, True, metadata=metadata or None)


def _widest(found: _Found, column: tuple[str, ...]) -> pa.DataType:
    """The type that all others widen to."""
    seen: dict[pa.DataType, str] = {}
    for field, path in found:
        if not pa.types.is_null(field.type):
            seen.setdefault(spark_type(field.type) or field.type, path)
    for type in seen:
        if all(_fits(other, type) for other in seen):
            return type
    # Types that widen to each other pair by pair have a widest one, so such a pair exists.
    (one, first), (other, second) = next(
        pair
        for pair in combinations(seen.items(), 2)
        if not (_fits(pair[0][0], pair[1][0]) or _fits(pair[1][0], pair[0][0]))
    )
    raise UnsupportedError(
        f"the types of column {column_name(column)} do not merge: {one} in {first}, {other} in"
        f" {second}",
        hint="read the files of one type by themselves, or rewrite those of the other",
    )


def _fits(narrow: pa.DataType, wide: pa.DataType) -> bool:
    if narrow == wide:
        return True
    if spark_type(narrow) is None or spark_type(wide) is None or pa.types.is_duration(wide):
        return False
    return widens(narrow, wide)


def _arrow_fields(
    files: Sequence[Sequence[pa.Field]], merged: Sequence[pa.Field]
) -> list[pa.Field]:
    """The fields of ``merged``, with Arrow's types where those of all files are equal."""
    spelled = _by_case(files)
    groups: dict[str, list[pa.Field]] = {}
    for fields in files:
        for field in fields:
            groups.setdefault(spelled(field.name), []).append(field)
    return [
        pa.field(field.name, _arrow_type(groups.get(spelled(field.name), []), field.type))
        for field in merged
    ]


def _arrow_type(found: Sequence[pa.Field], merged: pa.DataType) -> pa.DataType:
    types = list(dict.fromkeys(field.type for field in found))
    if len(types) == 1:
        return types[0]
    if types and all(map(pa.types.is_struct, [*types, merged])):
        return pa.struct(_arrow_fields([list(each) for each in types], list(merged)))
    if types and all(map(is_list, [*types, merged])):
        element = _arrow_type([each.value_field for each in types], merged.value_type)
        return pa.list_(pa.field("element", element))
    return merged
