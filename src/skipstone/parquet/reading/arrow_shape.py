"""How a field's Arrow type lies over its Parquet nodes, pruned to the leaves that are wanted.

Arrow decides what a group means (``LIST`` in its two- and three-level forms, ``MAP``, a repeated
field without annotation); its type is taken as it is, and each part of it is matched with the node
that it comes from. Where a repeated group of one child may be the element or only hold it, the one
that fits the type is meant.

A map without its keys, or without its values, becomes a list of structs: that is what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import UnsupportedError
from skipstone.parquet.format.enums import FieldRepetitionType

if TYPE_CHECKING:
    from collections.abc import Collection

    from skipstone.parquet.format.schema import Node

__all__ = ["Kind", "Shape", "shape_of"]


class Kind(Enum):
    """What a part of a type is made of."""

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

    kind: Kind
    node: Node
    type: pa.DataType
    leaves: tuple[int, ...]
    children: tuple[Shape, ...] = ()
    bare: bool = False


def shape_of(node: Node, type: pa.DataType, wanted: Collection[int]) -> Shape:
    """The shape of a field of the root, whose Arrow type is ``type``."""
    return _of_field(node, type, frozenset(wanted))


def _of_field(node: Node, type: pa.DataType, wanted: frozenset[int]) -> Shape:
    if node.repetition is not FieldRepetitionType.REPEATED:
        return _of_value(node, type, wanted)
    if not _is_list(type):
        raise _no_fit(node, type)
    element = _of_value(node, type.value_type, wanted)
    return Shape(
        kind=Kind.LIST,
        node=node,
        type=_list_of(type, element),
        leaves=element.leaves,
        children=(element,),
        bare=True,
    )


def _of_value(node: Node, type: pa.DataType, wanted: frozenset[int]) -> Shape:
    if node.is_leaf:
        return Shape(kind=Kind.LEAF, node=node, type=type, leaves=(node.first_leaf,))
    storage = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
    mine = tuple(leaf for leaf in range(node.first_leaf, node.stop_leaf) if leaf in wanted)
    whole = len(mine) == node.stop_leaf - node.first_leaf
    if pa.types.is_map(storage):
        found = _map(node, storage, mine, wanted)
    elif _is_list(storage):
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
        kind=Kind.STRUCT,
        node=node,
        type=pa.struct(fields),
        leaves=mine,
        children=tuple(children),
    )


def _list(node: Node, type: pa.DataType, mine: tuple[int, ...], wanted: frozenset[int]) -> Shape:
    repeated = _repeated(node, type)
    element = _of_field_of(repeated, node, type, wanted)
    return Shape(
        kind=Kind.LIST,
        node=node,
        type=_list_of(type, element),
        leaves=mine,
        children=(element,),
    )


def _of_field_of(repeated: Node, node: Node, type: pa.DataType, wanted: frozenset[int]) -> Shape:
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
        return Shape(kind=Kind.MAP, node=node, type=made, leaves=mine, children=(key, item))
    entry = Shape(
        kind=Kind.STRUCT,
        node=entries,
        type=pa.struct([field.with_type(shape.type) for _, shape, field in kept]),
        leaves=mine,
        children=tuple(shape for _, shape, _ in kept),
    )
    made = pa.list_(pa.field(entries.name, entry.type, nullable=False))
    return Shape(kind=Kind.LIST, node=node, type=made, leaves=mine, children=(entry,))


def _repeated(node: Node, type: pa.DataType) -> Node:
    if len(node.children) != 1 or (node.children[0].repetition is not FieldRepetitionType.REPEATED):
        raise _no_fit(node, type)
    return node.children[0]


def _list_of(type: pa.DataType, element: Shape) -> pa.DataType:
    """``type`` with another element type."""
    if element.type == type.value_type:
        return type
    field = type.value_field.with_type(element.type)
    if pa.types.is_large_list(type):
        return pa.large_list(field)
    if pa.types.is_fixed_size_list(type):
        return pa.list_(field, type.list_size)
    if pa.types.is_list_view(type):
        return pa.list_view(field)
    if pa.types.is_large_list_view(type):
        return pa.large_list_view(field)
    return pa.list_(field)


def _is_list(type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_list(type)
        or t.is_large_list(type)
        or t.is_fixed_size_list(type)
        or t.is_list_view(type)
        or t.is_large_list_view(type)
    )


def _fits_field(node: Node, type: pa.DataType) -> bool:
    if node.repetition is FieldRepetitionType.REPEATED:
        return _is_list(type) and _fits(node, type.value_type)
    return _fits(node, type)


def _fits(node: Node, type: pa.DataType) -> bool:
    """Whether a value of ``node``, its own repetition left aside, may have this type."""
    if node.is_leaf:
        return not pa.types.is_nested(type)
    if isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    if node.is_list or node.is_map:
        return bool(_is_list(type) or pa.types.is_map(type))
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
