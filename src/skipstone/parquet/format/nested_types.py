"""What the groups of a schema mean: structs, lists and maps, also those of older writers.

    optional group a (LIST)   { repeated group list { optional int32 element } }     3 levels
    optional group a (LIST)   { repeated int32 element }                             2 levels
    optional group a (LIST)   { repeated group array { … } }                         2 levels
    repeated int32 a                                                                 no annotation
    optional group a (MAP)    { repeated group key_value { required key; value } }
    optional group a (MAP)    { repeated group key_value { required key } }          a list of keys

The repeated node of a LIST is itself the element if it is no group, has several children or a
repeated one, is called ``array`` or ``<list's name>_tuple``, or is annotated LIST or MAP; else its
only child is. Source: LogicalTypes.md of parquet-format, "Nested Types", and what Arrow does.

A shape can be pruned to some of its leaves: a struct loses the other children, and a map without
its keys or without its values is a list of what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from skipstone.errors import FormatError, UnsupportedError

from .enums import FieldRepetitionType

if TYPE_CHECKING:
    from collections.abc import Container

    from .schema import Node

__all__ = [
    "LeafShape",
    "ListShape",
    "MapShape",
    "Shape",
    "StructShape",
    "arrow_name",
    "field_shape",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafShape:
    """One leaf; ``definition_level`` is that of a value that is there."""

    name: str
    ordinal: int
    nullable: bool
    definition_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StructShape:
    """Children side by side; below ``definition_level`` the struct itself is null."""

    name: str
    nullable: bool
    definition_level: int
    children: tuple[Shape, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListShape:
    """Elements under one more repetition level.

    Below ``definition_level`` the list is null; from it to below ``element_level`` it is empty.
    """

    name: str
    nullable: bool
    definition_level: int
    element_level: int
    element: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class MapShape:
    """A list whose elements are keys with values."""

    name: str
    nullable: bool
    definition_level: int
    element_level: int
    key: Shape
    value: Shape


Shape: TypeAlias = LeafShape | StructShape | ListShape | MapShape


def field_shape(node: Node, leaves: Container[int] | None = None) -> Shape:
    """The shape of a node (mostly a field of the root), pruned to ``leaves`` (ordinals) if given.

    FormatError for lists and maps that are none, UnsupportedError where no leaf is left.
    """
    shape = _shape(node, leaves)
    if shape is None:
        raise UnsupportedError(f"no leaf of {'.'.join(node.path)} is to be read")
    return shape


def arrow_name(node: Node) -> str:
    """The node's name; bytes that are not UTF-8, which Arrow would not take, are replaced."""
    return node.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _shape(node: Node, leaves: Container[int] | None) -> Shape | None:
    if node.is_list and not node.is_leaf:
        return _list(node, leaves)
    if node.is_map and not node.is_leaf:
        return _map(node, leaves)
    if node.repetition is FieldRepetitionType.REPEATED:
        return _listed(node, None, _plain(node, leaves))
    return _plain(node, leaves)


def _plain(node: Node, leaves: Container[int] | None) -> Shape | None:
    # A repeated node stands here for one of its elements, which is never null.
    nullable = node.repetition is FieldRepetitionType.OPTIONAL
    if node.is_leaf:
        if leaves is not None and node.first_leaf not in leaves:
            return None
        return LeafShape(
            name=arrow_name(node),
            ordinal=node.first_leaf,
            nullable=nullable,
            definition_level=node.max_definition_level,
        )
    shapes = [_shape(child, leaves) for child in node.children]
    children = tuple(shape for shape in shapes if shape is not None)
    if shapes and not children:
        return None
    return StructShape(
        name=arrow_name(node),
        nullable=nullable,
        definition_level=node.max_definition_level,
        children=children,
    )


def _listed(repeated: Node, outer: Node | None, element: Shape | None) -> Shape | None:
    if element is None:
        return None
    return ListShape(
        name=arrow_name(outer or repeated),
        nullable=outer is not None and outer.repetition is FieldRepetitionType.OPTIONAL,
        definition_level=repeated.max_definition_level - 1,
        element_level=repeated.max_definition_level,
        element=element,
    )


def _list(node: Node, leaves: Container[int] | None) -> Shape | None:
    repeated = _repeated_child(node, "LIST")
    if repeated.is_leaf or _is_element(repeated, node):
        element = (
            _shape_of_element(repeated, leaves)
            if repeated.is_list or repeated.is_map
            else _plain(repeated, leaves)
        )
    else:
        element = _shape(repeated.children[0], leaves)
    return _listed(repeated, node, element)


def _shape_of_element(repeated: Node, leaves: Container[int] | None) -> Shape | None:
    # A list or map that is repeated without a group of its own around it.
    return _list(repeated, leaves) if repeated.is_list else _map(repeated, leaves)


def _is_element(repeated: Node, outer: Node) -> bool:
    if len(repeated.children) != 1 or repeated.is_list or repeated.is_map:
        return True
    if repeated.children[0].repetition is FieldRepetitionType.REPEATED:
        return True
    return repeated.name in ("array", f"{outer.name}_tuple")


def _map(node: Node, leaves: Container[int] | None) -> Shape | None:
    repeated = _repeated_child(node, "MAP")
    if repeated.is_leaf or len(repeated.children) not in (1, 2):
        raise FormatError(
            f"{'.'.join(node.path)} is no map", expected="a group of a key and a value"
        )
    if len(repeated.children) == 1:
        return _listed(repeated, node, _shape(repeated.children[0], leaves))
    key, value = (_shape(child, leaves) for child in repeated.children)
    if key is None or value is None:
        return _listed(repeated, node, _plain(repeated, leaves))
    return MapShape(
        name=arrow_name(node),
        nullable=node.repetition is FieldRepetitionType.OPTIONAL,
        definition_level=repeated.max_definition_level - 1,
        element_level=repeated.max_definition_level,
        key=key,
        value=value,
    )


def _repeated_child(node: Node, kind: str) -> Node:
    if len(node.children) != 1 or node.children[0].repetition is not FieldRepetitionType.REPEATED:
        raise FormatError(
            f"{'.'.join(node.path)} is annotated {kind}", expected="one child, which is repeated"
        )
    return node.children[0]
