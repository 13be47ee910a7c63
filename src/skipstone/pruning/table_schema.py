"""The schema of a table of plain Parquet files, as Spark reads it: canonical Arrow types.

Spark's own schema in the footer (key ``org.apache.spark.sql.parquet.row.metadata``) wins where
it is there: it alone knows collations and intervals. Otherwise the physical schema counts and
not the ``ARROW:schema`` that Arrow writers leave beside it: INT96 is an instant, a duration is a
bigint.

Without a declared schema a table's is found from a spread sample of its footers, widened where they
differ and exactly widen, and from all footers only when a column that was asked for is in none.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import FormatError
from skipstone.predicate.types import (
    TIMESTAMP,
    MapKey,
    column_path,
    schema_from_spark,
    value_of_key,
)

from .column_types import widens

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from skipstone.storage import Listing


SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
_SAMPLE = 16


def file_schema(source: Any, path: str) -> pa.Schema:
    """The schema of one Parquet file, opened as ``source``; ``FormatError`` where it is none."""
    try:
        with pq.ParquetFile(source) as parquet:
            metadata = parquet.metadata.metadata or {}
            if SPARK_SCHEMA_KEY in metadata:
                try:
                    return schema_from_spark(metadata[SPARK_SCHEMA_KEY].decode())
                except ValueError:
                    pass  # a foreign or damaged note: the physical schema still stands
            columns = [parquet.schema.column(i) for i in range(len(parquet.schema))]
            int96 = frozenset(c.path for c in columns if c.physical_type == "INT96")
            return pa.schema(
                [_physical(field, field.name, int96) for field in parquet.schema_arrow]
            )
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise FormatError(f"not readable as Parquet: {error}", file=path) from error


def _physical(field: pa.Field, path: str, int96: frozenset[str]) -> pa.Field:
    type_ = field.type
    if pa.types.is_struct(type_):
        children = [_physical(child, f"{path}.{child.name}", int96) for child in type_]
        return pa.field(field.name, pa.struct(children), field.nullable)
    if path in int96:
        type_ = TIMESTAMP
    elif pa.types.is_duration(type_):
        type_ = pa.int64()
    return pa.field(field.name, type_, field.nullable)


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
        if isinstance(part, MapKey):
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
    """The path of ``find_path`` by its names; keys of maps stay what they are."""
    found = find_path(schema, column)
    if found is None:
        return None
    return tuple(
        part if isinstance(part, MapKey) else field.name
        for part, field in zip(column_path(column), found, strict=True)
    )


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


def sampled(n: int) -> list[int]:
    """Of so many files those that are looked at first."""
    return sorted({round(i * (n - 1) / max(_SAMPLE - 1, 1)) for i in range(min(n, _SAMPLE))})


def table_schema(
    listing: Listing, open_file: Callable[[str], Any], needed: Collection[str] = ()
) -> pa.Schema:
    """The schema of all files of ``listing``; ``needed`` are columns that should be in it.

    ``open_file`` gives a seekable file for a path. Files that cannot be read are passed over; if
    none can, the first one's ``FormatError`` is raised. An empty listing has an empty schema.
    """
    n, spread = len(listing), sampled(len(listing))
    schemas, failures = _read(listing, spread, open_file)
    merged = _merge(schemas)
    if any(find_field(merged, column) is None for column in needed):
        rest = sorted(set(range(n)) - set(spread))
        more, failed = _read(listing, rest, open_file)
        merged, failures = _merge([*schemas, *more]), [*failures, *failed]
    if not len(merged) and failures:
        raise failures[0]
    return merged


def _read(
    listing: Listing, ordinals: Collection[int], open_file: Callable[[str], Any]
) -> tuple[list[pa.Schema], list[FormatError]]:
    def one(path: str) -> pa.Schema | FormatError:
        try:
            with open_file(path) as source:
                return file_schema(source, path)
        except FormatError as error:
            return error
        except OSError as error:
            return FormatError(f"not readable: {error}", file=path)

    with ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(one, [listing.paths[i] for i in ordinals]))
    return (
        [item for item in found if isinstance(item, pa.Schema)],
        [item for item in found if isinstance(item, FormatError)],
    )


def _merge(schemas: Iterable[pa.Schema]) -> pa.Schema:
    merged: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            known = merged.get(field.name)
            merged[field.name] = field if known is None else _wider(known, field)
    return pa.schema(list(merged.values()))


def _wider(a: pa.Field, b: pa.Field) -> pa.Field:
    """The field that both fit into; the first where they do not."""
    if a.type == b.type:
        return a
    if pa.types.is_struct(a.type) and pa.types.is_struct(b.type):
        inner = _merge([pa.schema(list(a.type)), pa.schema(list(b.type))])
        return pa.field(a.name, pa.struct(list(inner)), True, metadata=a.metadata)
    try:
        return b if widens(a.type, b.type) else a
    except (KeyError, AttributeError):
        return a
