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

from dataclasses import field
from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.predicate.types import column_name

from .enums import FieldRepetitionType, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        return self.element.annotation.LIST is not None

    @property
    def is_map(self) -> bool:
        """True for a group annotated MAP, or MAP_KEY_VALUE where MAP is meant."""
        return self.element.annotation.MAP is not None

    def walk(self) -> Iterator[Node]:
        """This node and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDescriptor:
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
    leaves: tuple[ColumnDescriptor, ...]

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
        leaves: list[ColumnDescriptor] = []
        _collect(root, (), leaves)
        return cls(root=root, leaves=tuple(leaves))

    def leaf(self, path: tuple[str, ...] | str) -> ColumnDescriptor | None:
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
                    f"unknown physical type {element.type} of column {column_name(path)}:"
                    " Parquet has 0 to 7",
                    hint="the schema is damaged, or of a newer format: write the file again"
                    " without this column",
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


def _collect(node: Node, above: tuple[Node, ...], leaves: list[ColumnDescriptor]) -> None:
    element = node.element
    if isinstance(element.type, Type) and not node.children and above:
        leaves.append(
            ColumnDescriptor(
                ordinal=len(leaves),
                node=node,
                type=element.type,
                type_length=element.type_length or 0,
                ancestors=above,
            )
        )
    for child in node.children:
        _collect(child, (*above, node), leaves)


def arrow_name(node: Node) -> str:
    """The node's name; bytes that are not UTF-8 are replaced, because Arrow refuses them."""
    return node.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
