"""The schema as a tree: groups, leaves, and the levels of their values.

``FileMetaData.schema`` lists the nodes depth first, the root first, each group with its
``num_children``. Going down, a node raises the levels of everything below it:

    REQUIRED   nothing
    OPTIONAL   max_definition_level + 1
    REPEATED   max_definition_level + 1, max_repetition_level + 1

An entry with the definition level ``max_definition_level`` has a value; at a lower level it is null
or empty at the ancestor of that level. Repetition level 0 begins a row. Source: Dremel, and
README.md of parquet-format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from skipstone.errors import FormatError, UnsupportedError
from skipstone.predicate.types import column_name

from .enums import ConvertedType, FieldRepetitionType, Type

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from .metadata import SchemaElement


_DEEPEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with its place in the tree; ``path`` excludes the root.

    ``first_leaf`` and ``stop_leaf`` are the ordinals of the leaves below it (or of itself).
    """

    element: SchemaElement
    path: tuple[str, ...]
    max_definition_level: int
    max_repetition_level: int
    children: tuple[Node, ...] = ()
    first_leaf: int = 0
    stop_leaf: int = 0

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.element.name

    @property
    def is_leaf(self) -> bool:
        """True for a primitive column; DuckDB writes ``num_children`` 0 for these."""
        return self.element.type is not None and not self.element.num_children

    @property
    def repetition(self) -> FieldRepetitionType:
        """How often it occurs in its parent; the root counts as REQUIRED."""
        return FieldRepetitionType(self.element.repetition_type or 0)

    @property
    def is_list(self) -> bool:
        """True for a group annotated LIST."""
        logical = self.element.logicalType
        return (logical is not None and logical.LIST is not None) or (
            self.element.converted_type == ConvertedType.LIST
        )

    @property
    def is_map(self) -> bool:
        """True for a group annotated MAP, or MAP_KEY_VALUE where MAP is meant."""
        logical = self.element.logicalType
        return (logical is not None and logical.MAP is not None) or self.element.converted_type in (
            ConvertedType.MAP,
            ConvertedType.MAP_KEY_VALUE,
        )

    def walk(self) -> Iterator[Node]:
        """This node and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A primitive column: ``ordinal`` is its place in ``RowGroup.columns``."""

    ordinal: int
    node: Node
    type: Type
    type_length: int
    ancestors: tuple[Node, ...] = field(repr=False)

    @property
    def path(self) -> tuple[str, ...]:
        """From below the root to the leaf."""
        return self.node.path

    @property
    def name(self) -> str:
        """The dotted path."""
        return column_name(self.node.path)

    @property
    def element(self) -> SchemaElement:
        """The schema element."""
        return self.node.element

    @property
    def max_definition_level(self) -> int:
        """The definition level of a value that is not null."""
        return self.node.max_definition_level

    @property
    def max_repetition_level(self) -> int:
        """0 for a column with one value per row."""
        return self.node.max_repetition_level

    @property
    def flat(self) -> bool:
        """True for a column of the root: no group above it, not repeated."""
        return len(self.node.path) == 1 and not self.node.max_repetition_level


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The tree below ``root``, and its ``leaves`` in order."""

    root: Node
    leaves: tuple[Leaf, ...]

    @classmethod
    def of(cls, elements: Sequence[SchemaElement]) -> Schema:
        """From the flattened list; ``FormatError`` where it is not a tree."""
        if not elements:
            raise FormatError("a schema without a root", expected="at least 1 element", got=0)
        builder = _Builder(elements)
        root = builder.node((), 0, 0, is_root=True)
        if builder.at != len(elements):
            raise FormatError(
                "schema elements outside the tree", expected=builder.at, got=len(elements)
            )
        leaves: list[Leaf] = []
        _collect(root, (), leaves)
        return cls(root=root, leaves=tuple(leaves))

    def leaf(self, path: tuple[str, ...] | str) -> Leaf | None:
        """The leaf of this path (or dotted name), ``None`` where there is none."""
        for leaf in self.leaves:
            if leaf.path == path or leaf.name == path:
                return leaf
        return None

    def field(self, name: str) -> Node | None:
        """The field of the root with this name."""
        return next((child for child in self.root.children if child.name == name), None)


class _Builder:
    def __init__(self, elements: Sequence[SchemaElement]) -> None:
        self.elements, self.at, self.leaves = elements, 0, 0

    def node(
        self, above: tuple[str, ...], definition: int, repetition: int, *, is_root: bool = False
    ) -> Node:
        if self.at >= len(self.elements):
            raise FormatError("a schema that ends within a group", got=len(self.elements))
        element = self.elements[self.at]
        self.at += 1
        path = above if is_root else (*above, element.name)
        if len(path) > _DEEPEST:
            raise FormatError("a schema nested too deeply", expected=f"at most {_DEEPEST}")
        if not is_root:
            match element.repetition_type:
                case FieldRepetitionType.REQUIRED | None:
                    pass
                case FieldRepetitionType.OPTIONAL:
                    definition += 1
                case FieldRepetitionType.REPEATED:
                    definition, repetition = definition + 1, repetition + 1
                case other:
                    raise FormatError(
                        f"an unknown repetition of {element.name!r}", expected="0 to 2", got=other
                    )
        first = self.leaves
        children: tuple[Node, ...] = ()
        if element.type is None or is_root:
            count = element.num_children or 0
            if not 0 <= count <= len(self.elements) - self.at:
                raise FormatError(
                    f"num_children of {element.name!r} is beyond the schema",
                    expected=f"0 to {len(self.elements) - self.at}",
                    got=count,
                )
            children = tuple([self.node(path, definition, repetition) for _ in range(count)])
        else:
            if element.num_children:
                raise FormatError(f"{element.name!r} has both a type and children")
            if not isinstance(element.type, Type):
                raise FormatError(
                    f"an unknown type of {element.name!r}", expected="0 to 7", got=element.type
                )
            fixed = element.type is Type.FIXED_LEN_BYTE_ARRAY
            if fixed and (element.type_length or 0) <= 0:
                raise FormatError(
                    f"type_length of {element.name!r}", expected="a length", got=element.type_length
                )
            self.leaves += 1
        return Node(
            element=element,
            path=path,
            max_definition_level=definition,
            max_repetition_level=repetition,
            children=children,
            first_leaf=first,
            stop_leaf=self.leaves,
        )


def _collect(node: Node, above: tuple[Node, ...], leaves: list[Leaf]) -> None:
    element = node.element
    if isinstance(element.type, Type) and not node.children and above:
        leaves.append(
            Leaf(
                ordinal=len(leaves),
                node=node,
                type=element.type,
                type_length=element.type_length or 0,
                ancestors=above,
            )
        )
    for child in node.children:
        _collect(child, (*above, node), leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafShape:
    """One leaf; ``definition_level`` is that of a value that is not null."""

    name: str
    ordinal: int
    nullable: bool
    definition_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StructShape:
    """A struct; below ``definition_level`` the struct itself is null."""

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

    FormatError for malformed lists and maps, UnsupportedError where no leaf remains.
    """
    shape = _shape(node, leaves)
    if shape is None:
        raise UnsupportedError(f"no leaf of {'.'.join(node.path)} is to be read")
    return shape


def arrow_name(node: Node) -> str:
    """The node's name; bytes that are not UTF-8 are replaced, because Arrow refuses them."""
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
    # A repeated node represents one of its elements here, which is never null.
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
    # A list or map that is repeated, without an outer group.
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
