"""The Arrow types of a file's columns: those of Arrow itself, where it can read the schema.

``arrow_schema`` passes Arrow a footer with this schema and the key-value metadata, without row
groups. ``ARROW:schema`` restores types that Parquet lacks: dictionaries, views, durations, time
zones, fixed-size lists. Fields that Arrow refuses get the types of ``natural_type``:

    BOOLEAN        bool
    INT32          int32, or date32, time32(ms), decimal128, (u)int8/16/32 by annotation
    INT64          int64, or time64, timestamp, decimal128, uint64
    INT96          timestamp(ns)
    FLOAT, DOUBLE  float, double
    BYTE_ARRAY     binary, or string (STRING, ENUM, JSON), decimal128/256
    FIXED          fixed_size_binary(k), or halffloat (FLOAT16), decimal128/256
    UNKNOWN        null

Annotations that are unknown, or do not fit the physical type, do not change the type.
"""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import UnsupportedError
from skipstone.parquet.format.enums import ConvertedType, Type
from skipstone.parquet.format.footer import MAGIC
from skipstone.parquet.format.metadata import FileMetaData
from skipstone.parquet.format.schema import (
    LeafShape,
    ListShape,
    MapShape,
    StructShape,
    arrow_name,
    field_shape,
)
from skipstone.predicate.types import TIMESTAMP, schema_from_spark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.parquet.format.metadata import KeyValue, LogicalType, SchemaElement
    from skipstone.parquet.format.schema import Leaf, Node, Schema, Shape


def arrow_schema(
    schema: Schema,
    elements: Sequence[SchemaElement],
    key_value_metadata: Sequence[KeyValue] | None = None,
) -> pa.Schema:
    """The schema that Arrow gives for a file with these ``elements``; see the module."""
    found = _ask(elements, key_value_metadata)
    if found is not None and len(found) == len(schema.root.children):
        return found
    fields: list[pa.Field] = []
    for node in schema.root.children:
        alone = _ask([schema.root.element, *(each.element for each in node.walk())], None, 1)
        if alone is not None and len(alone) == 1:
            fields.append(alone.field(0))
        else:
            shape = field_shape(node)
            fields.append(pa.field(arrow_name(node), natural_type(shape, schema), shape.nullable))
    return pa.schema(fields)


#: where Spark writes the schema of its own files
SPARK_SCHEMA_KEY = "org.apache.spark.sql.parquet.row.metadata"


def spark_schema(
    arrow: pa.Schema, schema: Schema, key_value_metadata: Sequence[KeyValue] | None = None
) -> pa.Schema:
    """The schema of the same file as Spark reads it; ``arrow`` is that of ``arrow_schema``.

    Spark's own schema in the footer wins where it is there: it alone knows collations and
    intervals. Else INT96 is an instant, and a duration its number.
    """
    for pair in key_value_metadata or ():
        if pair.key == SPARK_SCHEMA_KEY:
            try:
                return schema_from_spark(pair.value or "")
            except ValueError:
                break  # a foreign or damaged note: the physical schema still stands
    int96 = frozenset(leaf.ordinal for leaf in schema.leaves if leaf.type is Type.INT96)
    return pa.schema(
        [
            _as_spark(field, node, int96)
            for field, node in zip(arrow, schema.root.children, strict=True)
        ]
    )


def _as_spark(field: pa.Field, node: Node, int96: frozenset[int]) -> pa.Field:
    type_ = field.type
    if pa.types.is_struct(type_) and type_.num_fields == len(node.children):
        children = [
            _as_spark(each, below, int96) for each, below in zip(type_, node.children, strict=True)
        ]
        return pa.field(field.name, pa.struct(children), field.nullable)
    if node.is_leaf and node.first_leaf in int96:
        type_ = TIMESTAMP
    elif pa.types.is_duration(type_):
        type_ = pa.int64()
    return pa.field(field.name, type_, field.nullable)


def _ask(
    elements: Sequence[SchemaElement],
    key_value_metadata: Sequence[KeyValue] | None,
    num_children: int | None = None,
) -> pa.Schema | None:
    import pyarrow.parquet as pq

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
    file = MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC
    try:
        return pq.ParquetFile(io.BytesIO(file)).schema_arrow
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None


def _is_utf8(name: str) -> bool:
    # Bytes that are not UTF-8 were read as surrogates; Arrow fails on them only for names.
    return not any("\ud800" <= character <= "\udfff" for character in name)


def natural_type(shape: Shape, schema: Schema) -> pa.DataType:
    """The Arrow type of a shape by the schema alone."""
    match shape:
        case LeafShape():
            return leaf_type(schema.leaves[shape.ordinal])
        case StructShape():
            return pa.struct([_field(child, schema) for child in shape.children])
        case ListShape():
            return pa.list_(_field(shape.element, schema))
        case MapShape():
            key, value = _field(shape.key, schema), _field(shape.value, schema)
            return pa.map_(key.with_nullable(False), value)


def _field(shape: Shape, schema: Schema) -> pa.Field:
    return pa.field(shape.name, natural_type(shape, schema), shape.nullable)


def leaf_type(leaf: Leaf) -> pa.DataType:
    """The Arrow type of a leaf by its physical type and its annotation."""
    element = leaf.element
    logical = element.logicalType
    if logical is not None and logical.UNKNOWN is not None:
        return pa.null()
    found = None
    match leaf.type:
        case Type.BOOLEAN:
            return pa.bool_()
        case Type.INT96:
            return pa.timestamp("ns")
        case Type.FLOAT:
            return pa.float32()
        case Type.DOUBLE:
            return pa.float64()
        case Type.INT32 | Type.INT64:
            found = _decimal(leaf) or _integer(leaf.type, logical, element.converted_type)
            return found or (pa.int32() if leaf.type is Type.INT32 else pa.int64())
        case Type.BYTE_ARRAY:
            return _decimal(leaf) or (pa.string() if _is_text(element) else pa.binary())
        case Type.FIXED_LEN_BYTE_ARRAY:
            if logical is not None and logical.FLOAT16 is not None and leaf.type_length == 2:
                return pa.float16()
            return _decimal(leaf) or pa.binary(leaf.type_length)


def _is_text(element: SchemaElement) -> bool:
    logical = element.logicalType
    if logical is not None and any((logical.STRING, logical.ENUM, logical.JSON)):
        return True
    return element.converted_type in (
        ConvertedType.UTF8,
        ConvertedType.ENUM,
        ConvertedType.JSON,
    )


def _decimal(leaf: Leaf) -> pa.DataType | None:
    element = leaf.element
    logical = element.logicalType
    if logical is not None and logical.DECIMAL is not None:
        precision, scale = logical.DECIMAL.precision, logical.DECIMAL.scale
    elif element.converted_type == ConvertedType.DECIMAL:
        precision, scale = element.precision or 0, element.scale or 0
    else:
        return None
    most = {Type.INT32: 9, Type.INT64: 18}.get(leaf.type, 76)
    if not 1 <= precision <= most:
        raise UnsupportedError(f"column {leaf.name} is a decimal of {precision} digits")
    if not -most <= scale <= precision:
        raise UnsupportedError(f"column {leaf.name} is a decimal of scale {scale}")
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


_CONVERTED_32 = {
    ConvertedType.DATE: pa.date32(),
    ConvertedType.TIME_MILLIS: pa.time32("ms"),
    ConvertedType.UINT_8: pa.uint8(),
    ConvertedType.UINT_16: pa.uint16(),
    ConvertedType.UINT_32: pa.uint32(),
    ConvertedType.INT_8: pa.int8(),
    ConvertedType.INT_16: pa.int16(),
}
_CONVERTED_64 = {
    ConvertedType.TIME_MICROS: pa.time64("us"),
    ConvertedType.TIMESTAMP_MILLIS: pa.timestamp("ms", "UTC"),
    ConvertedType.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
    ConvertedType.UINT_64: pa.uint64(),
}
_INTEGERS = {
    (True, 8): pa.int8(),
    (True, 16): pa.int16(),
    (False, 8): pa.uint8(),
    (False, 16): pa.uint16(),
    (False, 32): pa.uint32(),
}


def _integer(
    type_: Type, logical: LogicalType | None, converted: ConvertedType | int | None
) -> pa.DataType | None:
    if logical is None or not logical.to_dict():
        table = _CONVERTED_32 if type_ is Type.INT32 else _CONVERTED_64
        return table.get(ConvertedType(converted)) if converted in table else None
    if type_ is Type.INT32:
        if logical.DATE is not None:
            return pa.date32()
        if logical.TIME is not None and logical.TIME.unit.arrow == "ms":
            return pa.time32("ms")
        if logical.INTEGER is not None:
            return _INTEGERS.get((logical.INTEGER.isSigned, logical.INTEGER.bitWidth))
        return None
    if logical.TIME is not None and logical.TIME.unit.arrow in ("us", "ns"):
        return pa.time64(logical.TIME.unit.arrow)
    if logical.TIMESTAMP is not None and logical.TIMESTAMP.unit.arrow is not None:
        zone = "UTC" if logical.TIMESTAMP.isAdjustedToUTC else None
        return pa.timestamp(logical.TIMESTAMP.unit.arrow, zone)
    if logical.INTEGER is not None and not logical.INTEGER.isSigned:
        return pa.uint64() if logical.INTEGER.bitWidth == 64 else None
    return None


def storage_type(type_: pa.DataType) -> pa.DataType:
    """The type below an extension type, or the type itself."""
    return storage_type(type_.storage_type) if isinstance(type_, pa.BaseExtensionType) else type_
