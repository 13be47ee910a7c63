"""Which columns are read: names to fields of the root, with only the leaves below the names.

A name is a field of the root, or a dotted path to any node below one (``a.b``, and as Parquet
spells it ``l.list.element``; a part with a dot in it is backquoted). Several names in one field
give one column with the leaves of all. Types are those that Arrow gives for the whole file.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone._arrays import no_rows
from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.human import some_of
from skipstone.parquet.arrow.arrow_types import (
    Shape,
    ShapeKind,
    arrow_schema,
    shape_of,
)
from skipstone.parquet.format.schema import ColumnDescriptor, Node, Schema, arrow_name
from skipstone.predicate.types import (
    column_name,
    column_path,
    is_list,
    schema_from_spark,
    spark_type,
)
from skipstone.pruning.table_schema import FileSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.metadata import KeyValue


# Where Spark writes the schema of its own files.
_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
# Names that an error lists.
_SHOWN = 20
# Selections of columns whose shapes are cached.
_REMEMBERED = 64
# Up to this length of schema and key-value pairs, files with equal ones share the derived values.
_SHARED = 32 << 10


@dataclass(frozen=True, slots=True, eq=False)
class SelectedField:
    """One column of the result: ``field`` is its Arrow field, ``shape`` its structure; ``leaf`` is
    set if the column is a leaf."""

    node: Node
    field: pa.Field
    shape: Shape
    leaf: ColumnDescriptor | None


class OfSchema:
    """What was derived from one schema; ``frames`` are those of ``arrow_footer``, ``templates``
    those of ``splice_pages``."""

    def __init__(self) -> None:
        self.schema: pa.Schema | None = None
        self.file_schema: FileSchema | None = None
        self.fields: LruCache[tuple[str, ...] | None, tuple[SelectedField, ...]] = LruCache(
            _REMEMBERED
        )
        self.paths: LruCache[tuple[tuple[str, ...], ...], tuple[SelectedField, ...]] = LruCache(
            _REMEMBERED
        )
        self.frames: LruCache[Any, Any] = LruCache(_REMEMBERED)
        self.templates: LruCache[Any, Any] = LruCache(_REMEMBERED)
        self.empty: LruCache[tuple[str, ...] | None, pa.Table] = LruCache(_REMEMBERED)


@lru_cache(maxsize=64)
def _shared(schema: bytes, pairs: bytes) -> OfSchema:
    return OfSchema()


def _of_schema(footer: FooterArrays) -> OfSchema:
    written = footer.schema_bytes, footer.key_value_bytes
    return OfSchema() if sum(map(len, written)) > _SHARED else _shared(*written)


class Selection:
    """The columns that the file with this footer has."""

    def __init__(self, footer: FooterArrays, path: str) -> None:
        self._footer, self.path = footer, path
        self._of_schema = _of_schema(footer)
        self._fields = self._of_schema.fields

    @property
    def shared(self) -> OfSchema:
        """What all open files with the same schema have in common."""
        return self._of_schema

    @cached_property
    def tree(self) -> Schema:
        """The Parquet schema."""
        return self._footer.schema

    @property
    def created_by(self) -> str | None:
        """The writer."""
        return self._footer.created_by

    @cached_property
    def typed(self) -> bool:
        """Whether the writer stored its Arrow schema."""
        pairs = self._footer.key_value_metadata or ()
        return any(pair.key == "ARROW:schema" for pair in pairs)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema as pyarrow gives it, except INT96 (``arrow_types``)."""
        known, footer = self._of_schema, self._footer
        if known.schema is None:
            known.schema = arrow_schema(
                self.tree, footer.schema_elements, footer.key_value_metadata
            )
        return known.schema

    @cached_property
    def file_schema(self) -> FileSchema:
        """That schema without the file's metadata, and the schema as Spark reads it."""
        known = self._of_schema
        if known.file_schema is None:
            pairs = self._footer.key_value_metadata
            known.file_schema = FileSchema(
                arrow=pa.schema([field.remove_metadata() for field in self.schema]),
                spark=_spark_schema(self.schema, pairs),
            )
        return known.file_schema

    @cached_property
    def _leaf_types(self) -> dict[int, pa.DataType]:
        found: dict[int, pa.DataType] = {}
        for field in self.fields(None):
            pending = [field.shape]
            while pending:
                shape = pending.pop()
                if shape.kind is ShapeKind.LEAF:
                    found[shape.leaves[0]] = shape.type
                pending += shape.children
        return found

    def leaf_type(self, leaf: int) -> pa.DataType:
        """The Arrow type of a leaf."""
        return self._leaf_types[leaf]

    def fields(self, columns: Sequence[str] | None) -> tuple[SelectedField, ...]:
        """The fields that ``columns`` name, in their order; all of them for ``None``.

        ``SkipstoneError`` for a name that the file does not have, ``TypeError`` for a single string
        in place of a sequence of names.
        """
        if isinstance(columns, str):
            raise TypeError(f"columns is a sequence of names: [{columns!r}], not {columns!r}")
        key = None if columns is None else tuple(columns)
        found = self._fields.get(key)
        if found is None:
            wanted = self._every() if key is None else self._named(key)
            found = tuple([self._field(at, leaves) for at, leaves in wanted])
            self._fields.put(key, found)
        return found

    def of_paths(self, paths: Sequence[tuple[str, ...]]) -> tuple[SelectedField, ...]:
        """The fields that these paths name part by part, each field once."""
        key, kept = tuple(paths), self._of_schema.paths
        found = kept.get(key)
        if found is None:
            wanted: dict[int, set[int]] = {}
            for path in paths:
                at, node = self._at(path, column_name(path))
                wanted.setdefault(at, set()).update(range(node.first_leaf, node.stop_leaf))
            found = tuple([self._field(at, leaves) for at, leaves in wanted.items()])
            kept.put(key, found)
        return found

    def table_schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """The schema of a table of these columns."""
        return self.empty_table(columns).schema

    def empty_table(self, columns: Sequence[str] | None) -> pa.Table:
        """These columns without rows."""
        key = None if columns is None else tuple(columns)
        kept = self._of_schema.empty
        found = kept.get(key)
        if found is None:
            fields = [each.field for each in self.fields(columns)]
            found = no_rows(pa.schema(fields, self.schema.metadata))
            kept.put(key, found)
        return found

    def _every(self) -> Iterable[tuple[int, set[int]]]:
        for at, node in enumerate(self.tree.root.children):
            yield at, set(range(node.first_leaf, node.stop_leaf))

    def _named(self, columns: tuple[str, ...]) -> Iterable[tuple[int, set[int]]]:
        wanted: dict[int, set[int]] = {}
        for name in columns:
            if name in self._names:
                at = self._names[name]
                node = self.tree.root.children[at]
            else:
                at, node = self._at(column_path(name), name)
            wanted.setdefault(at, set()).update(range(node.first_leaf, node.stop_leaf))
        return wanted.items()

    @cached_property
    def _names(self) -> dict[str, int]:
        names: dict[str, int] = {}
        for at, node in enumerate(self.tree.root.children):
            names.setdefault(node.name, at)
        # Names that are not UTF-8 also have the name that the schema shows.
        for at, node in enumerate(self.tree.root.children):
            names.setdefault(arrow_name(node), at)
        return names

    def node(self, path: tuple[str, ...]) -> Node:
        """The node that this path names part by part; ``SkipstoneError`` where there is none."""
        return self._at(path, column_name(path))[1]

    def _at(self, path: tuple[str, ...], name: str) -> tuple[int, Node]:
        at = self._names.get(path[0])
        node: Node | None = None if at is None else self.tree.root.children[at]
        for part in path[1:]:
            if node is None:
                break
            node = next(
                (child for child in node.children if part in (child.name, arrow_name(child))), None
            )
        if at is None or node is None:
            raise SkipstoneError(f"no column {name!r} in {self.path}", hint=self._meant(name))
        return at, node

    def _meant(self, name: str) -> str:
        """A hint: the nearest column name, or the columns that exist."""
        import difflib

        names = list(dict.fromkeys((*self._names, *(leaf.name for leaf in self.tree.leaves))))
        alike = {each.lower(): each for each in reversed(names)}
        near = difflib.get_close_matches(name.lower(), alike, 1)
        if near:
            return f"did you mean {alike[near[0]]!r}?"
        return f"the columns are {some_of([each.name for each in self.tree.root.children], _SHOWN)}"

    def _field(self, at: int, leaves: set[int]) -> SelectedField:
        node, field = self.tree.root.children[at], self.schema.field(at)
        shape = shape_of(node, field.type, leaves)
        leaf = self.tree.leaves[node.first_leaf] if shape.kind is ShapeKind.LEAF else None
        return SelectedField(node, field.with_type(shape.type), shape, leaf)


def _spark_schema(
    arrow: pa.Schema, key_value_metadata: Sequence[KeyValue] | None = None
) -> pa.Schema:
    """The schema of the same file as Spark reads it; ``arrow`` is that of ``arrow_schema``.

    A duration is its number. Only Spark's own schema in the footer has defaults, collations and
    intervals: it counts for the columns whose stored type it agrees with.
    """
    fields = list(map(_as_spark, arrow))
    for pair in key_value_metadata or ():
        if pair.key == _SPARK_SCHEMA:
            try:
                noted = schema_from_spark(pair.value or "")
            except ValueError:
                break  # foreign or damaged: the physical schema still holds
            return pa.schema(_with_notes(fields, noted))
    return pa.schema(fields)


def _as_spark(field: pa.Field) -> pa.Field:
    type_ = field.type
    if pa.types.is_struct(type_):
        type_ = pa.struct(list(map(_as_spark, type_)))
    elif pa.types.is_duration(type_):
        type_ = pa.int64()
    return pa.field(field.name, type_, field.nullable)


def _with_notes(fields: Iterable[pa.Field], noted: Iterable[pa.Field]) -> list[pa.Field]:
    """``fields`` as in Spark's schema, except those that are stored as another type."""
    notes = {each.name: each for each in noted}
    found = []
    for field in fields:
        note = notes.get(field.name)
        if note is None:
            found.append(field)
        elif pa.types.is_struct(field.type) and pa.types.is_struct(note.type):
            found.append(note.with_type(pa.struct(_with_notes(field.type, note.type))))
        else:
            found.append(note if _agrees(field.type, note.type) else field)
    return found


def _agrees(stored: pa.DataType, noted: pa.DataType) -> bool:
    """Whether values that are stored as one type are also values of the other."""
    t = pa.types
    if t.is_null(noted):  # a type that only Spark knows
        return True
    if t.is_duration(noted):
        return bool(t.is_int64(stored))
    if t.is_struct(noted) and t.is_struct(stored):
        own = {each.name: each.type for each in stored}
        return len(own) == noted.num_fields and all(
            each.name in own and _agrees(own[each.name], each.type) for each in noted
        )
    if t.is_map(noted) and t.is_map(stored):
        return _agrees(stored.key_type, noted.key_type) and _agrees(
            stored.item_type, noted.item_type
        )
    if is_list(noted) and is_list(stored):
        return _agrees(stored.value_type, noted.value_type)
    canonical = spark_type(stored)
    return canonical is not None and canonical == spark_type(noted)
