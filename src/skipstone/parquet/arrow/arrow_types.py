"""The Arrow types of a file's columns, and how they map to Parquet nodes.

The types are those of Arrow itself, where it can read the schema, except INT96: it is an instant in
microseconds, as Spark reads it. Arrow's nanoseconds wrap outside the years 1677 to 2262.

``arrow_schema`` passes Arrow a footer with this schema and the key-value metadata, without row
groups. ``ARROW:schema`` restores types that Parquet lacks: dictionaries, views, durations, time
zones, fixed-size lists. Fields that Arrow refuses get the types of ``natural_type``:

    BOOLEAN        bool
    INT32          int32, or date32, time32(ms), decimal128, (u)int8/16/32 by annotation
    INT64          int64, or time64, timestamp, decimal128, uint64
    INT96          timestamp(us, UTC)
    FLOAT, DOUBLE  float, double
    BYTE_ARRAY     binary, or string (STRING, ENUM, JSON), decimal128/256
    FIXED          fixed_size_binary(k), or halffloat (FLOAT16), decimal128/256
    UNKNOWN        null

An annotation that is unknown, or does not fit the physical type, is ignored.

A ``Shape`` matches each part of a field's Arrow type with its Parquet node, for the wanted leaves
only. Arrow decides what a group means (``LIST`` in its two- and three-level forms, ``MAP``, a
repeated field without annotation); its type is taken as it is. A repeated group with one child may
be the element or only contain it: the type decides. A map without its keys, or without its values,
becomes a list of structs.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone._parquet import ArrowParquetFile
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import FieldRepetitionType, Type
from skipstone.parquet.format.footer import file_of
from skipstone.parquet.format.metadata import FileMetaData, KeyValue, LogicalType, SchemaElement
from skipstone.parquet.format.schema import ColumnDescriptor, Node, Schema, arrow_name
from skipstone.predicate.types import TIMESTAMP, is_list

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


def arrow_schema(
    schema: Schema,
    elements: Sequence[SchemaElement],
    key_value_metadata: Sequence[KeyValue] | None = None,
) -> pa.Schema:
    """The schema that Arrow gives for a file with these ``elements``; see the module."""
    found = _ask(elements, key_value_metadata)
    if found is not None and len(found) == len(schema.root.children):
        return _with_instants(found, schema)
    fields: list[pa.Field] = []
    for node in schema.root.children:
        alone = _ask([schema.root.element, *(each.element for each in node.walk())], None, 1)
        if alone is not None and len(alone) == 1:
            fields.append(alone.field(0))
        else:
            fields.append(_field(node, schema))
    return _with_instants(pa.schema(fields), schema)


def _with_instants(found: pa.Schema, schema: Schema) -> pa.Schema:
    """``found`` with ``TIMESTAMP`` for INT96 at any depth."""
    if not any(leaf.type is Type.INT96 for leaf in schema.leaves):
        return found
    fields = []
    for field, node in zip(found, schema.root.children, strict=True):
        leaves = schema.leaves[node.first_leaf : node.stop_leaf]
        if any(leaf.type is Type.INT96 for leaf in leaves):
            field = field.with_type(_instants(field.type, iter(leaves)))
        fields.append(field)
    return pa.schema(fields, found.metadata)


def _instants(type: pa.DataType, leaves: Iterator[ColumnDescriptor]) -> pa.DataType:
    """``type`` with ``TIMESTAMP`` for INT96; ``leaves`` are its parts without children."""
    t = pa.types
    if t.is_struct(type):
        return pa.struct([each.with_type(_instants(each.type, leaves)) for each in type])
    if is_list(type):
        return _list_of(type, _instants(type.value_type, leaves))
    if t.is_map(type):
        key = type.key_field.with_type(_instants(type.key_type, leaves))
        item = type.item_field.with_type(_instants(type.item_type, leaves))
        return pa.map_(key, item, type.keys_sorted)
    if isinstance(type, pa.BaseExtensionType):
        _instants(type.storage_type, leaves)  # its storage cannot change: only takes its leaves
        return type
    is_int96 = next(leaves).type is Type.INT96
    return TIMESTAMP if is_int96 and t.is_timestamp(type) else type


def _ask(
    elements: Sequence[SchemaElement],
    key_value_metadata: Sequence[KeyValue] | None,
    num_children: int | None = None,
) -> pa.Schema | None:
    if num_children is not None:
        root = dataclasses.replace(elements[0], num_children=num_children)
        elements = [root, *elements[1:]]
    if not all(each.name.isprintable() or _is_utf8(each.name) for each in elements):
        return None
    footer = FileMetaData(
        version=2,
        schema=tuple(elements),
        num_rows=0,
        row_groups=(),
        key_value_metadata=None if key_value_metadata is None else tuple(key_value_metadata),
        created_by="skipstone",
    ).to_bytes()
    try:
        found = ArrowParquetFile(pa.BufferReader(file_of(footer))).schema_arrow
        _read_zones(pa.struct(found))
        return found
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None


def _read_zones(type: pa.DataType) -> None:
    """``UnicodeDecodeError`` where a time zone that ``ARROW:schema`` names is not text."""
    if pa.types.is_timestamp(type):
        _ = type.tz
    for at in range(type.num_fields):
        _read_zones(type.field(at).type)


def _is_utf8(name: str) -> bool:
    # Bytes that are not UTF-8 were read as surrogates; Arrow fails on them only for names.
    return not any("\ud800" <= character <= "\udfff" for character in name)


def natural_type(node: Node, schema: Schema) -> pa.DataType:
    """The Arrow type of a field by the schema alone; ``FormatError`` for lists and maps that are
    malformed."""
    if node.is_leaf or not (node.is_list or node.is_map):
        value = _value_type(node, schema)
        if node.repetition is not FieldRepetitionType.REPEATED:
            return value
        return pa.list_(pa.field(arrow_name(node), value, nullable=False))
    repeated = _repeated_child(node, "LIST" if node.is_list else "MAP")
    if node.is_list:
        return pa.list_(_element(repeated, node, schema))
    if repeated.is_leaf or len(repeated.children) not in (1, 2):
        raise FormatError(
            f"{'.'.join(node.path)} is not a map", expected="a group of a key and a value"
        )
    fields = [_field(child, schema) for child in repeated.children]
    if len(fields) == 1:
        return pa.list_(fields[0])
    return pa.map_(fields[0].with_nullable(False), fields[1])


def _value_type(node: Node, schema: Schema) -> pa.DataType:
    """The type of one value of a node, whatever its repetition."""
    if node.is_leaf:
        return leaf_type(schema.leaves[node.first_leaf])
    return pa.struct([_field(child, schema) for child in node.children])


def _field(node: Node, schema: Schema) -> pa.Field:
    nullable = node.repetition is FieldRepetitionType.OPTIONAL
    return pa.field(arrow_name(node), natural_type(node, schema), nullable)


def _element(repeated: Node, outer: Node, schema: Schema) -> pa.Field:
    if repeated.is_list or repeated.is_map:
        # A list or map that is repeated, without an outer group.
        return _field(repeated, schema)
    (child, *more) = repeated.children or (repeated,)
    if (
        child is not repeated
        and not more
        and child.repetition is not FieldRepetitionType.REPEATED
        and repeated.name not in ("array", f"{outer.name}_tuple")
    ):
        return _field(child, schema)
    return pa.field(arrow_name(repeated), _value_type(repeated, schema), nullable=False)


def _repeated_child(node: Node, kind: str) -> Node:
    if len(node.children) != 1 or node.children[0].repetition is not FieldRepetitionType.REPEATED:
        raise FormatError(
            f"{'.'.join(node.path)} is annotated {kind}", expected="one child, which is repeated"
        )
    return node.children[0]


def leaf_type(leaf: ColumnDescriptor) -> pa.DataType:
    """The Arrow type of a leaf by its physical type and its annotation."""
    kind = leaf.element.annotation
    if kind.UNKNOWN is not None:
        return pa.null()
    found = None
    match leaf.type:
        case Type.BOOLEAN:
            return pa.bool_()
        case Type.INT96:
            return TIMESTAMP
        case Type.FLOAT:
            return pa.float32()
        case Type.DOUBLE:
            return pa.float64()
        case Type.INT32 | Type.INT64:
            found = _decimal(leaf, kind) or _integer(leaf.type, kind)
            return found or (pa.int32() if leaf.type is Type.INT32 else pa.int64())
        case Type.BYTE_ARRAY:
            is_text = any((kind.STRING, kind.ENUM, kind.JSON))
            return _decimal(leaf, kind) or (pa.string() if is_text else pa.binary())
        case Type.FIXED_LEN_BYTE_ARRAY:
            if kind.FLOAT16 is not None and leaf.type_length == 2:
                return pa.float16()
            return _decimal(leaf, kind) or pa.binary(leaf.type_length)


def _decimal(leaf: ColumnDescriptor, kind: LogicalType) -> pa.DataType | None:
    if kind.DECIMAL is None:
        return None
    precision, scale = kind.DECIMAL.precision, kind.DECIMAL.scale
    most = {Type.INT32: 9, Type.INT64: 18}.get(leaf.type, 76)
    if not 1 <= precision <= most:
        raise UnsupportedError(f"column {leaf.name} is a decimal of {precision} digits")
    if not -most <= scale <= precision:
        raise UnsupportedError(f"column {leaf.name} is a decimal of scale {scale}")
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


_INTEGERS = {
    (True, 8): pa.int8(),
    (True, 16): pa.int16(),
    (False, 8): pa.uint8(),
    (False, 16): pa.uint16(),
    (False, 32): pa.uint32(),
}


def _integer(type_: Type, kind: LogicalType) -> pa.DataType | None:
    unit = None if kind.TIME is None else kind.TIME.unit.arrow
    if type_ is Type.INT32:
        if kind.DATE is not None:
            return pa.date32()
        if unit == "ms":
            return pa.time32("ms")
        if kind.INTEGER is not None:
            return _INTEGERS.get((kind.INTEGER.isSigned, kind.INTEGER.bitWidth))
        return None
    if unit in ("us", "ns"):
        return pa.time64(unit)
    if kind.TIMESTAMP is not None and kind.TIMESTAMP.unit.arrow is not None:
        zone = "UTC" if kind.TIMESTAMP.isAdjustedToUTC else None
        return pa.timestamp(kind.TIMESTAMP.unit.arrow, zone)
    if kind.INTEGER is not None and not kind.INTEGER.isSigned:
        return pa.uint64() if kind.INTEGER.bitWidth == 64 else None
    return None


def storage_type(type_: pa.DataType) -> pa.DataType:
    """The type below an extension type, or the type itself."""
    return storage_type(type_.storage_type) if isinstance(type_, pa.BaseExtensionType) else type_


def is_binary(type: pa.DataType) -> bool:
    """Whether values are strings or binary, with offsets."""
    t = pa.types
    return bool(
        t.is_string(type) or t.is_binary(type) or t.is_large_string(type) or t.is_large_binary(type)
    )


# -- shapes ----------------------------------------------------------------------------------------


class ShapeKind(Enum):
    """Kinds of parts of a type."""

    LEAF = "leaf"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One part of a type over ``node``.

    ``leaves`` are the wanted leaves below it. The children of a LIST are its element, of a MAP its
    key and its value. ``bare``: the list is the repeated node itself, with no group around it, and
    so never null.
    """

    kind: ShapeKind
    node: Node
    type: pa.DataType
    leaves: tuple[int, ...]
    children: tuple[Shape, ...] = ()
    bare: bool = False

    @property
    def nullable(self) -> bool:
        """Whether it may be null: never a bare list, nor an element without a group around it."""
        return self.node.repetition is FieldRepetitionType.OPTIONAL

    @property
    def repeated(self) -> Node:
        """The repeated node of a LIST or MAP."""
        return self.node if self.bare else self.node.children[0]


def shape_of(node: Node, type: pa.DataType, wanted: Collection[int]) -> Shape:
    """The shape of a field of the root, whose Arrow type is ``type``."""
    return _of_field(node, type, frozenset(wanted))


def _of_field(node: Node, type: pa.DataType, wanted: frozenset[int]) -> Shape:
    if node.repetition is not FieldRepetitionType.REPEATED:
        return _of_value(node, type, wanted)
    if not is_list(type):
        raise _no_fit(node, type)
    element = _of_value(node, type.value_type, wanted)
    return Shape(
        kind=ShapeKind.LIST,
        node=node,
        type=_list_of(type, element.type),
        leaves=element.leaves,
        children=(element,),
        bare=True,
    )


def _of_value(node: Node, type: pa.DataType, wanted: frozenset[int]) -> Shape:
    if node.is_leaf:
        return Shape(kind=ShapeKind.LEAF, node=node, type=type, leaves=(node.first_leaf,))
    storage = storage_type(type)
    mine = tuple(leaf for leaf in range(node.first_leaf, node.stop_leaf) if leaf in wanted)
    whole = len(mine) == node.stop_leaf - node.first_leaf
    if pa.types.is_map(storage):
        found = _map(node, storage, mine, wanted)
    elif is_list(storage):
        found = _list(node, storage, mine, wanted)
    elif pa.types.is_struct(storage) and storage.num_fields == len(node.children):
        found = _struct(node, storage, mine, wanted)
    else:
        raise _no_fit(node, type)
    if storage is not type and whole:
        return Shape(kind=found.kind, node=node, type=type, leaves=mine, children=found.children)
    return found


def _struct(node: Node, type: pa.DataType, mine: tuple[int, ...], wanted: frozenset[int]) -> Shape:
    fields, children = [], []
    for at, child in enumerate(node.children):
        if not wanted.isdisjoint(range(child.first_leaf, child.stop_leaf)):
            field = type.field(at)
            shape = _of_field(child, field.type, wanted)
            fields.append(field.with_type(shape.type))
            children.append(shape)
    return Shape(
        kind=ShapeKind.STRUCT,
        node=node,
        type=pa.struct(fields),
        leaves=mine,
        children=tuple(children),
    )


def _list(node: Node, type: pa.DataType, mine: tuple[int, ...], wanted: frozenset[int]) -> Shape:
    repeated = _repeated(node, type)
    element = _element_of(repeated, node, type, wanted)
    return Shape(
        kind=ShapeKind.LIST,
        node=node,
        type=_list_of(type, element.type),
        leaves=mine,
        children=(element,),
    )


def _element_of(repeated: Node, node: Node, type: pa.DataType, wanted: frozenset[int]) -> Shape:
    """The element of a list: the repeated node itself, or its only child."""
    value = type.value_type
    if repeated.is_leaf or len(repeated.children) != 1:
        return _of_value(repeated, value, wanted)
    child = repeated.children[0]
    itself, held = _fits(repeated, value), _fits_field(child, value)
    if itself and held:
        itself = repeated.name in ("array", f"{node.name}_tuple")
    return _of_value(repeated, value, wanted) if itself else _of_field(child, value, wanted)


def _map(node: Node, type: pa.DataType, mine: tuple[int, ...], wanted: frozenset[int]) -> Shape:
    entries = _repeated(node, type)
    if len(entries.children) != 2:
        raise _no_fit(node, type)
    types = type.key_type, type.item_type
    kept = [
        (child, _of_field(child, each, wanted), field)
        for child, each, field in zip(
            entries.children, types, (type.key_field, type.item_field), strict=True
        )
        if not wanted.isdisjoint(range(child.first_leaf, child.stop_leaf))
    ]
    if len(kept) == 2:
        (_, key, key_field), (_, item, item_field) = kept
        made = pa.map_(
            key_field.with_type(key.type), item_field.with_type(item.type), type.keys_sorted
        )
        return Shape(kind=ShapeKind.MAP, node=node, type=made, leaves=mine, children=(key, item))
    entry = Shape(
        kind=ShapeKind.STRUCT,
        node=entries,
        type=pa.struct([field.with_type(shape.type) for _, shape, field in kept]),
        leaves=mine,
        children=tuple(shape for _, shape, _ in kept),
    )
    made = pa.list_(pa.field(entries.name, entry.type, nullable=False))
    return Shape(kind=ShapeKind.LIST, node=node, type=made, leaves=mine, children=(entry,))


def _repeated(node: Node, type: pa.DataType) -> Node:
    if len(node.children) != 1 or (node.children[0].repetition is not FieldRepetitionType.REPEATED):
        raise _no_fit(node, type)
    return node.children[0]


def _list_of(type: pa.DataType, element: pa.DataType) -> pa.DataType:
    """``type`` with another element type."""
    if element == type.value_type:
        return type
    field = type.value_field.with_type(element)
    if pa.types.is_large_list(type):
        return pa.large_list(field)
    if pa.types.is_fixed_size_list(type):
        return pa.list_(field, type.list_size)
    if pa.types.is_list_view(type):
        return pa.list_view(field)
    if pa.types.is_large_list_view(type):
        return pa.large_list_view(field)
    return pa.list_(field)


def _fits_field(node: Node, type: pa.DataType) -> bool:
    if node.repetition is FieldRepetitionType.REPEATED:
        return is_list(type) and _fits(node, type.value_type)
    return _fits(node, type)


def _fits(node: Node, type: pa.DataType) -> bool:
    """Whether a value of ``node``, without its own repetition, may have this type."""
    if node.is_leaf:
        return not pa.types.is_nested(type)
    if isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    if node.is_list or node.is_map:
        return bool(is_list(type) or pa.types.is_map(type))
    return bool(
        pa.types.is_struct(type)
        and [child.name for child in node.children] == [field.name for field in type.fields]
        and all(
            _fits_field(child, field.type)
            for child, field in zip(node.children, type.fields, strict=True)
        )
    )


def _no_fit(node: Node, type: pa.DataType) -> UnsupportedError:
    return UnsupportedError(f"column {'.'.join(node.path)} as {type}")
