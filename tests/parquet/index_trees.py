"""Leaves of columns by themselves, for trees of index pages without a file."""

from __future__ import annotations

from skipstone.parquet.format.enums import FieldRepetitionType, Type
from skipstone.parquet.format.metadata import SchemaElement
from skipstone.parquet.format.schema import ColumnDescriptor, Node


def leaf_of(type_: Type, width: int = 0) -> ColumnDescriptor:
    """A required column ``k`` of a physical type."""
    element = SchemaElement(
        name="k",
        type=type_,
        type_length=width or None,
        repetition_type=FieldRepetitionType.REQUIRED,
    )
    node = Node(
        element=element,
        path=("k",),
        max_definition_level=0,
        max_repetition_level=0,
        first_leaf=0,
        stop_leaf=1,
    )
    return ColumnDescriptor(ordinal=0, node=node, type=type_, type_length=width, ancestors=())
