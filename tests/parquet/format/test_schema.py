"""The schema's tree: levels as Arrow has them, for golden files, random tables and none."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import FieldRepetitionType, Type
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.format.metadata import SchemaElement
from skipstone.parquet.format.schema import Schema
from tests.parquet.format.files import golden_files, nested_types

if TYPE_CHECKING:
    from pathlib import Path


def check(schema: Schema, theirs: pq.ParquetSchema) -> None:
    assert len(schema.leaves) == len(theirs)
    for leaf in schema.leaves:
        column = theirs.column(leaf.ordinal)
        assert ".".join(leaf.path) == column.path
        assert leaf.type.name == column.physical_type
        assert leaf.max_definition_level == column.max_definition_level
        assert leaf.max_repetition_level == column.max_repetition_level


def test_levels_of_golden_files_are_those_of_arrow(golden: Path) -> None:
    compared = 0
    for path in golden_files(golden):
        try:
            theirs = pq.read_metadata(path).schema
        except (OSError, pa.ArrowException):
            continue
        check(Schema.of(read_metadata(path.read_bytes()).schema), theirs)
        compared += 1
    assert compared > 95


@given(st.lists(nested_types(), min_size=1, max_size=4))
def test_levels_of_random_schemas_are_those_of_arrow(types: list[pa.DataType]) -> None:
    file = io.BytesIO()
    pq.ParquetWriter(file, pa.schema([(f"c{at}", each) for at, each in enumerate(types)])).close()
    schema = Schema.of(read_metadata(file.getvalue()).schema)
    check(schema, pq.read_metadata(io.BytesIO(file.getvalue())).schema)
    for at, child in enumerate(schema.root.children):
        assert schema.field(f"c{at}") is child
        leaves = schema.leaves[child.first_leaf : child.stop_leaf]
        assert {leaf.path[0] for leaf in leaves} == {f"c{at}"}
        assert [leaf.node for leaf in leaves] == [node for node in child.walk() if node.is_leaf]


def leaf(name: str, **others: object) -> SchemaElement:
    return SchemaElement(name=name, type=Type.INT32, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "elements",
    [
        [],
        [SchemaElement(name="root", num_children=2), leaf("a")],
        [SchemaElement(name="root", num_children=-1)],
        [SchemaElement(name="root", num_children=1 << 30), leaf("a")],
        [SchemaElement(name="root", num_children=1), leaf("a"), leaf("b")],
        [SchemaElement(name="root", num_children=1), leaf("a", repetition_type=3)],
        [SchemaElement(name="root", num_children=1), leaf("a", num_children=1), leaf("b")],
        [SchemaElement(name="root", num_children=1), SchemaElement(name="a", type=99)],
        [
            SchemaElement(name="root", num_children=1),
            SchemaElement(name="a", type=Type.FIXED_LEN_BYTE_ARRAY),
        ],
        [SchemaElement(name=f"g{depth}", num_children=1) for depth in range(200)] + [leaf("a")],
    ],
)
def test_what_is_no_tree_is_refused(elements: list[SchemaElement]) -> None:
    with pytest.raises(FormatError):
        Schema.of(elements)


def test_levels_go_up_with_what_may_be_absent_or_repeated() -> None:
    schema = Schema.of(
        [
            SchemaElement(name="root", num_children=2),
            SchemaElement(
                name="list", repetition_type=FieldRepetitionType.OPTIONAL, num_children=1
            ),
            leaf("element", repetition_type=FieldRepetitionType.REPEATED),
            leaf("id", repetition_type=FieldRepetitionType.REQUIRED),
        ]
    )
    element, id = schema.leaves
    assert (element.max_definition_level, element.max_repetition_level) == (2, 1)
    assert (id.max_definition_level, id.max_repetition_level) == (0, 0)
    assert id.flat
    assert not element.flat
    assert schema.leaf("list.element") is element
    assert schema.leaf(("id",)) is id
    assert schema.leaf("nothing") is None
