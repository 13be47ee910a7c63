"""Which type QuestDB sees in a column of any Parquet file, and where that loses something.

BOOLEAN BOOLEAN     FLOAT FLOAT     DOUBLE DOUBLE, or ARRAY in nothing but LISTs
INT32   DECIMAL, SHORT and BYTE where signed, DATE, else INT (unsigned and times too)
INT64   TIMESTAMP, TIMESTAMP_NS or DATE by the unit, DECIMAL, else LONG (unsigned and times too)
INT96   TIMESTAMP_NS
BYTE_ARRAY            DECIMAL, VARCHAR where STRING, else BINARY
FIXED_LEN_BYTE_ARRAY  DECIMAL, UUID or LONG128 of 16, LONG256 of 32
else    -1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.parquet.format.enums import ConvertedType, Type

from .types import ColumnType, Tag

if TYPE_CHECKING:
    from skipstone.parquet.format.schema import Leaf

__all__ = ["infer", "is_timestamp", "order_is_told"]

_UNSIGNED = (
    ConvertedType.UINT_8,
    ConvertedType.UINT_16,
    ConvertedType.UINT_32,
    ConvertedType.UINT_64,
)
_MOST_DIMENSIONS = 32


def infer(leaf: Leaf) -> ColumnType | None:
    """The type that QuestDB takes the leaf for, ``None`` where it has none."""
    match leaf.type:
        case Type.BOOLEAN:
            return ColumnType(tag=Tag.BOOLEAN)
        case Type.FLOAT:
            return ColumnType(tag=Tag.FLOAT)
        case Type.DOUBLE:
            return _array(leaf) or ColumnType(tag=Tag.DOUBLE)
        case Type.INT32:
            return _int32(leaf)
        case Type.INT64:
            return _int64(leaf)
        case Type.INT96:
            plain = leaf.element.converted_type is None and leaf.element.logicalType is None
            return ColumnType(tag=Tag.TIMESTAMP, nanos=True) if plain else None
        case Type.BYTE_ARRAY:
            if _is_decimal(leaf):
                return _decimal(leaf)
            return ColumnType(tag=Tag.VARCHAR if _is_text(leaf) else Tag.BINARY)
    if _is_decimal(leaf):
        return _decimal(leaf)
    if leaf.type_length == 16:
        logical = leaf.element.logicalType
        is_uuid = logical is not None and logical.UUID is not None
        return ColumnType(tag=Tag.UUID if is_uuid else Tag.LONG128)
    return ColumnType(tag=Tag.LONG256) if leaf.type_length == 32 else None


def is_timestamp(leaf: Leaf) -> bool:
    """True for an INT64 instant or local time of any unit."""
    logical, converted = leaf.element.logicalType, leaf.element.converted_type
    stamped = logical is not None and logical.TIMESTAMP is not None
    return leaf.type is Type.INT64 and (
        stamped or converted in (ConvertedType.TIMESTAMP_MILLIS, ConvertedType.TIMESTAMP_MICROS)
    )


def order_is_told(leaf: Leaf, type: ColumnType | None) -> bool:
    """False where the order of the leaf's statistics does not follow from QuestDB's type.

    A ``_pm`` does not know the logical type. So a reader of it would compare unsigned integers as
    signed ones, decimals of an odd width at another width, and text of other kinds as it likes.
    """
    if type is None or leaf.type is Type.INT96:
        return False
    logical, converted = leaf.element.logicalType, leaf.element.converted_type
    unsigned = converted in _UNSIGNED or (
        logical is not None and logical.INTEGER is not None and not logical.INTEGER.isSigned
    )
    if unsigned:
        # These two are unsigned to QuestDB as well: CHAR never has its highest bit set.
        return type.tag in (Tag.IPV4, Tag.CHAR)
    if type.is_decimal:
        if leaf.type is Type.FIXED_LEN_BYTE_ARRAY:
            return leaf.type_length == type.decimal_width
        return leaf.type in (Type.INT32, Type.INT64)
    if leaf.type is Type.FIXED_LEN_BYTE_ARRAY:
        # LONG128 and LONG256 are little-endian numbers, and Parquet orders their bytes.
        return type.tag is Tag.UUID
    return type.tag is not Tag.ARRAY


def _int32(leaf: Leaf) -> ColumnType | None:
    logical, converted = leaf.element.logicalType, leaf.element.converted_type
    if _is_decimal(leaf):
        return _decimal(leaf)
    if logical is not None:
        if logical.DATE is not None:
            return ColumnType(tag=Tag.DATE)
        if logical.INTEGER is not None and logical.INTEGER.isSigned:
            tag = {8: Tag.BYTE, 16: Tag.SHORT}.get(logical.INTEGER.bitWidth, Tag.INT)
            return ColumnType(tag=tag)
        return ColumnType(tag=Tag.INT)
    tags: dict[int | None, Tag] = {
        ConvertedType.DATE: Tag.DATE,
        ConvertedType.INT_8: Tag.BYTE,
        ConvertedType.INT_16: Tag.SHORT,
    }
    return ColumnType(tag=tags.get(converted, Tag.INT))


def _int64(leaf: Leaf) -> ColumnType | None:
    logical, converted = leaf.element.logicalType, leaf.element.converted_type
    if _is_decimal(leaf):
        return _decimal(leaf)
    unit = None
    if logical is not None:
        if logical.TIMESTAMP is not None:
            unit = logical.TIMESTAMP.unit.arrow
    elif converted == ConvertedType.TIMESTAMP_MILLIS:
        unit = "ms"
    elif converted == ConvertedType.TIMESTAMP_MICROS:
        unit = "us"
    match unit:
        case "ms":
            return ColumnType(tag=Tag.DATE)
        case "us" | "ns":
            return ColumnType(tag=Tag.TIMESTAMP, nanos=unit == "ns")
    return ColumnType(tag=Tag.LONG)


def _is_decimal(leaf: Leaf) -> bool:
    logical = leaf.element.logicalType
    if logical is not None:
        return logical.DECIMAL is not None
    return leaf.element.converted_type == ConvertedType.DECIMAL


def _decimal(leaf: Leaf) -> ColumnType | None:
    logical = leaf.element.logicalType
    if logical is not None and logical.DECIMAL is not None:
        return ColumnType.decimal(logical.DECIMAL.precision, logical.DECIMAL.scale)
    return ColumnType.decimal(leaf.element.precision or 0, leaf.element.scale or 0)


def _is_text(leaf: Leaf) -> bool:
    logical = leaf.element.logicalType
    if logical is not None:
        return logical.STRING is not None
    return leaf.element.converted_type == ConvertedType.UTF8


def _array(leaf: Leaf) -> ColumnType | None:
    """The ARRAY of a DOUBLE under a LIST whose groups have one child each."""
    groups = leaf.ancestors[1:]
    if not groups or not groups[0].is_list or any(len(group.children) != 1 for group in groups):
        return None
    dimensions = leaf.max_repetition_level
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        return None
    return ColumnType(tag=Tag.ARRAY, element=int(Tag.DOUBLE), dimensions=dimensions)
