"""Records put together from levels: any nesting, odd schemas, parts of a group, hostile levels."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.arrow import arrow_types, arrow_values, assembly
from skipstone.parquet.arrow.arrow_types import arrow_schema, natural_type, shape_of
from skipstone.parquet.arrow.arrow_values import TooLongError
from skipstone.parquet.arrow.assembly import assemble, assemble_rows
from skipstone.parquet.format.enums import ConvertedType, FieldRepetitionType, Type
from skipstone.parquet.format.footer import MAGIC, Tail, read_metadata
from skipstone.parquet.format.metadata import LogicalType, SchemaElement
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.pages.column_values import LeafColumn, Run
from skipstone.parquet.reading.file import ParquetFile
from tests.parquet.format.files import golden_files, nested_types, same, same_table, written
from tests.parquet.whole_file import read_row_group, read_table

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from tests.parquet.format.files import Written

REQUIRED, OPTIONAL, REPEATED = FieldRepetitionType


def arrow_reads(data: bytes) -> pa.Table | None:
    try:
        return pq.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError):
        return None


# -- any table -------------------------------------------------------------------------------------


@given(written(nested_types()))
def test_whatever_pyarrow_writes_reads_as_pyarrow_reads_it(file: Written) -> None:
    if not file.data:
        event("pyarrow refuses to write it")
        return
    expected = arrow_reads(file.data)
    found = read_table(file.data, verify_crc=True)
    found.validate(full=True)
    assert expected is None or same_table(found, expected)


@given(written(nested_types()))
def test_without_arrow_the_types_are_arrows_own(file: Written) -> None:
    if not file.data:
        return
    metadata = read_metadata(file.data)
    schema = Schema.of(metadata.schema)
    asked = arrow_schema(schema, metadata.schema, None)
    for node, field in zip(schema.root.children, asked, strict=True):
        natural = natural_type(node, schema)
        assert natural == storage(field.type)


def storage(type_: pa.DataType) -> pa.DataType:
    """With the types below all extension types, and maps' children by the names in the file."""
    if isinstance(type_, pa.BaseExtensionType):
        return storage(type_.storage_type)
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(storage(f.type)) for f in type_])
    if pa.types.is_map(type_):
        key, item = type_.key_field, type_.item_field
        return pa.map_(key.with_type(storage(key.type)), item.with_type(storage(item.type)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(storage(type_.value_type)))
    return type_


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.int32(), 3),
        pa.list_(pa.struct({"a": pa.string(), "b": pa.float64()}), 2),
        pa.large_list(pa.list_(pa.int8())),
    ],
)
def test_lists_of_other_kinds_as_their_schema_says(type_: pa.DataType) -> None:
    size = type_.list_size if pa.types.is_fixed_size_list(type_) else 2
    element = [1, 2] if pa.types.is_list(type_.value_type) else None
    value = [element] * size
    table = pa.table({"a": pa.array([value, None, value], type_)})
    out = io.BytesIO()
    pq.write_table(table, out)
    found = read_table(out.getvalue())
    assert found.schema == table.schema
    assert found.to_pylist() == table.to_pylist()


def test_a_table_without_columns_or_rows() -> None:
    for table in (pa.table({}), pa.table({"a": pa.array([], pa.list_(pa.int8()))})):
        out = io.BytesIO()
        pq.write_table(table, out)
        assert read_table(out.getvalue()).equals(table)


# -- old and odd schemas ---------------------------------------------------------------------------


def with_schema(data: bytes, elements: Sequence[SchemaElement]) -> bytes:
    """The same pages under another schema: levels do not depend on names and annotations."""
    metadata = dataclasses.replace(
        read_metadata(data), schema=tuple(elements), key_value_metadata=None
    )
    footer = metadata.to_bytes()
    head = data[: Tail.from_bytes(data[-8:], len(data)).offset]
    return head + footer + len(footer).to_bytes(4, "little") + MAGIC


@given(written(nested_types()), st.randoms(use_true_random=False))
def test_schemas_of_older_writers_mean_what_arrow_takes_them_for(
    file: Written, rng: random.Random
) -> None:
    # Annotations are dropped or become the old MAP_KEY_VALUE, repeated groups get the names that
    # made them elements themselves.
    if not file.data:
        return
    made: list[SchemaElement] = []
    above = ""
    for element in read_metadata(file.data).schema:
        given: dict[str, Any] = {}
        annotation = element.converted_type
        if annotation in (ConvertedType.LIST, ConvertedType.MAP) and rng.random() < 0.4:
            given = {"converted_type": None, "logicalType": None}
            if annotation == ConvertedType.MAP and rng.random() < 0.5:
                given["converted_type"] = ConvertedType.MAP_KEY_VALUE
        if element.repetition_type == REPEATED and rng.random() < 0.4:
            given["name"] = rng.choice(["array", f"{above}_tuple", "bag"])
        above = element.name
        made.append(dataclasses.replace(element, **given))
    data = with_schema(file.data, made)
    expected = arrow_reads(data)
    event("read by Arrow" if expected is not None else "refused by Arrow")
    found = read_table(data)
    found.validate(full=True)
    assert expected is None or same_table(found, expected)


def elements(*rows: tuple[Any, ...]) -> list[SchemaElement]:
    """``(name, repetition, type or number of children, converted type)``, the root aside."""
    made = [SchemaElement(name="root", num_children=1)]
    for name, repetition, what, *converted in rows:
        leaf = isinstance(what, Type)
        made.append(
            SchemaElement(
                name=name,
                repetition_type=repetition,
                type=what if leaf else None,
                num_children=None if leaf else what,
                converted_type=converted[0] if converted else None,
            )
        )
    return made


LIST, MAP = ConvertedType.LIST, ConvertedType.MAP
INT = Type.INT32


@pytest.mark.parametrize(
    "rows, expected",
    [
        ([("a", REPEATED, INT)], "list<a: int32 not null>"),
        ([("a", OPTIONAL, 1, LIST), ("element", REPEATED, INT)], "list<element: int32 not null>"),
        (
            [("a", OPTIONAL, 1, LIST), ("list", REPEATED, 1), ("item", OPTIONAL, INT)],
            "list<item: int32>",
        ),
        (
            [("a", OPTIONAL, 1, LIST), ("array", REPEATED, 1), ("x", OPTIONAL, INT)],
            "list<array: struct<x: int32> not null>",
        ),
        (
            [("a", OPTIONAL, 1, LIST), ("a_tuple", REPEATED, 1), ("x", REQUIRED, INT)],
            "list<a_tuple: struct<x: int32 not null> not null>",
        ),
        (
            [
                ("a", OPTIONAL, 1, LIST),
                ("element", REPEATED, 2),
                ("x", OPTIONAL, INT),
                ("y", OPTIONAL, INT),
            ],
            "list<element: struct<x: int32, y: int32> not null>",
        ),
        (
            [("a", OPTIONAL, 1, LIST), ("list", REPEATED, 1, LIST), ("x", REPEATED, INT)],
            "list<list: list<x: int32 not null> not null>",
        ),
        (
            [("a", OPTIONAL, 1, MAP), ("key_value", REPEATED, 1), ("key", REQUIRED, INT)],
            "list<key: int32 not null>",
        ),
        ([("a", REPEATED, 1), ("x", OPTIONAL, INT)], "list<a: struct<x: int32> not null>"),
    ],
)
def test_shapes_of_old_schemas(rows: list[tuple[Any, ...]], expected: str) -> None:
    made = elements(*rows)
    schema = Schema.of(made)
    assert str(natural_type(schema.root.children[0], schema)) == expected
    # Arrow agrees wherever it takes the schema at all.
    assert str(arrow_schema(schema, made).field(0).type) == expected


@pytest.mark.parametrize(
    "rows",
    [
        [("a", OPTIONAL, 1, LIST), ("element", OPTIONAL, INT)],
        [("a", OPTIONAL, 2, LIST), ("x", REPEATED, INT), ("y", REPEATED, INT)],
        [("a", OPTIONAL, 1, MAP), ("key_value", REPEATED, INT)],
    ],
)
def test_lists_and_maps_that_are_none(rows: list[tuple[Any, ...]]) -> None:
    schema = Schema.of(elements(*rows))
    with pytest.raises(FormatError):
        natural_type(schema.root.children[0], schema)


def test_names_that_are_not_text() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [{"b": 1}]}), out)
    found = [
        dataclasses.replace(each, name=f"{each.name}\udcff")
        for each in read_metadata(out.getvalue()).schema
    ]
    table = read_table(with_schema(out.getvalue(), found))
    assert table.to_pylist() == [{"a\ufffd": {"b\ufffd": 1}}]


# -- parts of a group ------------------------------------------------------------------------------


def test_leaves_read_alone_are_joined_into_their_groups(golden: Path) -> None:
    compared = 0
    for path in golden_files(golden, largest=20_000):
        data = path.read_bytes()
        metadata = read_metadata(data)
        schema = Schema.of(metadata.schema)
        if path.name == "incorrect_map_schema.parquet" or not any(
            len(leaf.path) > 1 for leaf in schema.leaves
        ):
            continue
        file = pq.ParquetFile(io.BytesIO(data))
        wanted = arrow_schema(schema, metadata.schema, metadata.key_value_metadata)
        columns = read_row_group(data, metadata, metadata.row_groups[0], schema)
        for node in schema.root.children:
            ordinals = range(node.first_leaf, node.stop_leaf)
            if len(ordinals) < 2:
                continue
            for ordinal in ordinals:
                leaf = schema.leaves[ordinal]
                expected = file.read_row_group(0, columns=[".".join(leaf.path)])
                # Arrow has no map of keys alone, and fails on one of values alone.
                if expected.num_columns != 1 or "map<" in str(expected.schema):
                    continue
                column = expected.column(0)
                whole = wanted.field(node.name).type
                shape = shape_of(node, whole, {ordinal})
                # Arrow names the lists of keys alone differently.
                found = assemble(shape, columns).cast(column.type)
                assert same(found, column.chunk(0)), (path, leaf.name)
                compared += 1
    assert compared > 40


def test_a_map_without_its_values_is_a_list_of_what_is_left() -> None:
    out = io.BytesIO()
    maps = pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int8()))
    pq.write_table(pa.table({"m": maps}), out)
    data = out.getvalue()
    metadata = read_metadata(data)
    schema = Schema.of(metadata.schema)
    columns = read_row_group(data, metadata, metadata.row_groups[0], schema)
    (node,) = schema.root.children
    keys = assemble(shape_of(node, maps.type, {0}), columns)
    assert keys.to_pylist() == [[{"key": "a"}], None, [{"key": "b"}, {"key": "c"}]]
    values = assemble(shape_of(node, maps.type, {1}), columns)
    assert values.to_pylist() == [[{"value": 1}], None, [{"value": 2}, {"value": None}]]
    assert assemble(shape_of(node, maps.type, {0, 1}), columns).to_pylist() == maps.to_pylist()
    with pytest.raises(UnsupportedError):
        assemble(shape_of(node, maps.type, ()), {})


def test_a_group_without_columns_is_refused_by_its_name(tmp_path: Path) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), out)
    found = list(read_metadata(out.getvalue()).schema)
    found[0] = dataclasses.replace(found[0], num_children=2)
    found.append(SchemaElement(name="g", repetition_type=OPTIONAL, num_children=0))
    path = tmp_path / "a.parquet"
    path.write_bytes(with_schema(out.getvalue(), found))
    file = ParquetFile(path)
    assert file.read_rows(["a"]).to_pydict() == {"a": [1]}
    with pytest.raises(UnsupportedError, match="g has no columns"):
        file.read_rows()


# -- levels that do not fit ------------------------------------------------------------------------

PAIRS = Schema.of(
    elements(
        ("a", OPTIONAL, 1, LIST),
        ("list", REPEATED, 1),
        ("element", OPTIONAL, 2),
        ("x", OPTIONAL, INT),
        ("y", OPTIONAL, INT),
    )
)
PAIRS_SHAPE = shape_of(PAIRS.root.children[0], natural_type(PAIRS.root.children[0], PAIRS), {0, 1})


def column(ordinal: int, levels: Sequence[tuple[int, int]]) -> LeafColumn:
    """Of ``(repetition level, definition level)``."""
    leaf = PAIRS.leaves[ordinal]
    repetition, definition = np.array(levels, np.uint8).reshape(-1, 2).T
    count = int((definition == leaf.max_definition_level).sum())
    return LeafColumn(
        leaf=leaf,
        num_entries=len(levels),
        definition_levels=definition,
        repetition_levels=repetition,
        runs=(Run(np.arange(count, dtype=np.int32)),),
    )


GOOD = [(0, 4), (1, 3), (0, 0), (0, 1), (0, 2), (1, 4)]


def test_levels_to_lists() -> None:
    made = assemble(PAIRS_SHAPE, {0: column(0, GOOD), 1: column(1, GOOD)})
    assert made.to_pylist() == [
        [{"x": 0, "y": 0}, {"x": None, "y": None}],
        None,
        [],
        [None, {"x": 1, "y": 1}],
    ]


@pytest.mark.parametrize(
    "other",
    [
        GOOD[:-1],
        [(0, 4), (0, 3), *GOOD[2:]],
        [(0, 4), (1, 2), *GOOD[2:]],
        [(0, 4), (1, 3), (0, 1), *GOOD[3:]],
        [(0, 4), (1, 1), *GOOD[2:]],
        [(1, 4), *GOOD[1:]],
    ],
)
def test_leaves_of_one_group_must_tell_the_same(other: list[tuple[int, int]]) -> None:
    for pair in ({0: GOOD, 1: other}, {0: other, 1: GOOD}):
        columns = {ordinal: column(ordinal, levels) for ordinal, levels in pair.items()}
        with pytest.raises(FormatError, match=r"levels of column|the leaves of a"):
            assemble(PAIRS_SHAPE, columns)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), max_size=12))
def test_any_levels_are_an_array_or_an_error(levels: list[tuple[int, int]]) -> None:
    try:
        made = assemble(PAIRS_SHAPE, {0: column(0, levels), 1: column(1, levels)})
    except FormatError:
        assert levels
        assert levels[0][0] == 1
    else:
        made.validate(full=True)
        assert len(made) == sum(not repetition for repetition, _ in levels)


def test_null_keys_are_no_map() -> None:
    out = io.BytesIO()
    pairs = pa.list_(pa.struct({"key": pa.string(), "value": pa.int8()}))
    pq.write_table(pa.table({"a": pa.array([[{"key": None, "value": 1}]], pairs)}), out)
    found = list(read_metadata(out.getvalue()).schema)
    # list -> element {key, value} has one group too many for a map: leave that out of the schema,
    # and its level out of the key with it.
    assert [each.name for each in found] == ["schema", "a", "list", "element", "key", "value"]
    found[1] = dataclasses.replace(found[1], logicalType=None, converted_type=MAP)
    found[2] = dataclasses.replace(found[2], repetition_type=OPTIONAL)
    found[3] = dataclasses.replace(found[3], repetition_type=REPEATED)
    found[1:3] = [
        dataclasses.replace(found[2], logicalType=None, converted_type=None, name="a"),
        dataclasses.replace(found[1], name="map"),
    ]
    with pytest.raises(FormatError, match="keys are null"):
        read_table(with_schema(out.getvalue(), found))


# -- too long for 32-bit offsets -------------------------------------------------------------------


def test_arrays_too_long_for_their_offsets_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    table = pa.table({"a": [["x" * 9, "y"], [], None, ["z"] * 5, ["w" * 12]], "b": ["q" * 7] * 5})
    pq.write_table(table, out)
    data = out.getvalue()
    monkeypatch.setattr(arrow_values, "_LONGEST", 14)
    monkeypatch.setattr(assembly, "_LONGEST", 4)
    with pytest.raises(TooLongError):
        read_table(data)  # one row alone is too long
    monkeypatch.setattr(assembly, "_LONGEST", 5)
    found = read_table(data)
    assert found.equals(table)
    assert [column.num_chunks for column in found.columns] == [4, 3]


# -- types and rows of whole fields ----------------------------------------------------------------


def test_arrow_refuses_one_field_and_the_others_stay_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [
        SchemaElement(name="root", num_children=2),
        SchemaElement(
            name="id",
            repetition_type=REQUIRED,
            type=Type.FIXED_LEN_BYTE_ARRAY,
            type_length=16,
            logicalType=LogicalType.from_bytes(b"\xec\x00\x00"),
        ),
        *elements(
            ("m", OPTIONAL, 1, MAP),
            ("key_value", REPEATED, 2),
            ("key", OPTIONAL, INT),
            ("value", OPTIONAL, INT),
        )[1:],
    ]
    found = arrow_schema(Schema.of(made), made)
    assert found.field("id").type == pa.uuid()
    assert found.field("m").type == pa.map_(pa.int32(), pa.int32())
    monkeypatch.setattr(arrow_types, "_ask", lambda *_: None)
    assert arrow_schema(Schema.of(made), made).field("id").type == pa.binary(16)


def test_rows_must_be_those_of_the_row_group() -> None:
    columns = {0: column(0, GOOD), 1: column(1, GOOD)}
    assert len(assemble_rows(PAIRS_SHAPE, columns, 4)[0]) == 4
    with pytest.raises(FormatError, match="rows of column"):
        assemble_rows(PAIRS_SHAPE, columns, 5)
