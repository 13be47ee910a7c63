"""Spark's types and Arrow's, and Spark's schema JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from skipstone.errors import UnsupportedError
from skipstone.predicate.preimage import exact_cast
from skipstone.predicate.types import (
    Kind,
    column_name,
    column_path,
    indexable,
    kind_of,
    parse_type,
    schema_from_spark,
    spark_name,
    spark_type,
)
from tests.strategies import SPARK_TYPES

TS, NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")


def dec(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


@pytest.mark.parametrize("type", SPARK_TYPES, ids=str)
def test_canonical_types_stay_and_have_a_name_that_reads_back(type: pa.DataType) -> None:
    assert spark_type(type) == type
    assert parse_type(spark_name(type)) == type
    assert parse_type(spark_name(type).upper()) == type
    assert isinstance(kind_of(type), Kind)


@pytest.mark.parametrize(
    "type, read",
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), dec(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.decimal256(38, 2), dec(38, 2)),
        (pa.decimal256(39, 2), None),
        (pa.decimal128(5, -2), None),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns"), NTZ),
        (pa.timestamp("ms", "Europe/Berlin"), TS),
        (pa.duration("ns"), pa.duration("us")),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.uuid(), pa.binary()),
        (pa.time64("us"), None),
        (pa.list_(pa.int32()), None),
        (pa.map_(pa.string(), pa.int32()), None),
        (pa.struct([("a", pa.int32())]), None),
        (pa.null(), None),
        (pa.month_day_nano_interval(), None),
    ],
    ids=str,
)
def test_other_types_read_as_the_nearest_or_not_at_all(
    type: pa.DataType, read: pa.DataType | None
) -> None:
    assert spark_type(type) == read
    if read is None:
        with pytest.raises(UnsupportedError):
            kind_of(type)


@pytest.mark.parametrize(
    "name, type",
    [
        ("decimal(5,2)", dec(5, 2)),
        ("DECIMAL ( 5 , 2 )", dec(5, 2)),
        ("numeric(5)", dec(5, 0)),
        ("decimal", dec(10, 0)),
        ("decimal(39,0)", None),
        ("decimal(5,6)", None),
        ("interval day to second", pa.duration("us")),
        ("interval year to month", pa.int32()),
        ("timestamp_ltz", TS),
        ("string collate UTF8_LCASE", None),
        ("char(5)", None),
        ("variant", None),
        ("array<int>", None),
        ("time(6)", None),
    ],
)
def test_names(name: str, type: pa.DataType | None) -> None:
    assert parse_type(name) == type


def field(name: str, type: Any, **extra: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "nullable": True, "metadata": extra}


def test_schema_of_spark() -> None:
    inner = {"type": "struct", "fields": [field("leaf", "decimal(38,10)")]}
    schema = schema_from_spark(
        json.dumps(
            {
                "type": "struct",
                "fields": [
                    field("i", "integer"),
                    field("ts", "timestamp"),
                    field("ntz", "timestamp_ntz"),
                    field("nest", inner),
                    field("list", {"type": "array", "elementType": "long", "containsNull": True}),
                    field("map", {"type": "map", "keyType": "string", "valueType": inner}),
                    field("udt", {"type": "udt", "class": "x", "sqlType": "double"}),
                ],
            }
        )
    )  # fmt: skip
    assert schema.field("i").type == pa.int32()
    assert schema.field("ts").type == TS
    assert schema.field("ntz").type == NTZ
    assert schema.field("nest").type == pa.struct([("leaf", dec(38, 10))])
    assert pa.types.is_list(schema.field("list").type)
    assert pa.types.is_map(schema.field("map").type)
    assert schema.field("udt").type == pa.float64()
    assert [f.name for f in schema if indexable(f) is None] == ["nest", "list", "map"]


@pytest.mark.parametrize(
    "node, why",
    [
        (field("c", "string", __COLLATIONS={"c": "icu.UNICODE_CI"}), "icu.UNICODE_CI"),
        (field("c", "string collate UTF8_LCASE"), "utf8_lcase"),
        (field("c", "string", __CHAR_VARCHAR_TYPE_STRING="char(5)"), "padding"),
        (field("c", "char(5)"), "padding"),
        (field("c", "variant"), "variant"),
        (field("c", "time(6)"), "time"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_does_not_compare_as_its_bytes_is_not_indexable(node: Any, why: str) -> None:
    found = schema_from_spark({"type": "struct", "fields": [node]}).field("c")
    assert indexable(found) is None
    assert any(why in value.decode() for value in found.metadata.values())


def test_varchar_compares_as_a_string() -> None:
    node = field("c", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(5)")
    assert (
        indexable(schema_from_spark({"type": "struct", "fields": [node]}).field(0)) == pa.string()
    )


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '"integer"', '{"type": "struct"}', '{"type": "row", "fields": []}', "{"],
)
def test_no_schema_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        schema_from_spark(text)


@pytest.mark.parametrize(
    "path, name",
    [
        (("a",), "a"),
        (("a", "b", "c"), "a.b.c"),
        (("a.b", "c"), "`a.b`.c"),
        (("x`y",), "`x``y`"),
        (("with blank", "é"), "with blank.é"),
        (("a", ".", "`"), "a.`.`.````"),
        (("",), "``"),
    ],
)
def test_dotted_names(path: tuple[str, ...], name: str) -> None:
    assert column_name(path) == name
    assert column_path(name) == path


@pytest.mark.parametrize(
    "source, target, exact",
    [
        (pa.int8(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int32(), pa.int32(), True),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int32(), pa.float64(), False),
        (pa.int64(), pa.float64(), False),
        (pa.int32(), dec(10, 0), True),
        (pa.int32(), dec(11, 2), False),
        (pa.int64(), dec(19, 0), True),
        (pa.int64(), dec(18, 0), False),
        (dec(5, 2), dec(7, 4), True),
        (dec(5, 2), dec(7, 5), False),
        (dec(5, 2), dec(5, 1), False),
        (pa.date32(), NTZ, True),
        (pa.date32(), TS, False),
        (TS, NTZ, False),
        (pa.string(), pa.int32(), False),
        (pa.string(), pa.binary(), False),
        (pa.bool_(), pa.int32(), False),
    ],
    ids=str,
)
def test_exact_casts(source: pa.DataType, target: pa.DataType, exact: bool) -> None:
    assert exact_cast(source, target) is exact
