"""The schema JSON: what it says, that nothing of it is lost, and types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.xskipper.format.encryption import StoreEncryption
from skipstone.xskipper.format.schema import (
    BLOOM_UDT,
    IndexColumn,
    StoreSchema,
    VirtualColumn,
    arrow_type,
    spark_type,
)
from skipstone.xskipper.format.v4_store import bloom_params, java_double

if TYPE_CHECKING:
    from pathlib import Path

INT_RANGE = {
    "type": "struct",
    "fields": [
        {"name": end, "type": "integer", "nullable": True, "metadata": {}} for end in ("min", "max")
    ],
}


def master(**metadata: Any) -> dict[str, Any]:
    return {"name": "obj_name", "type": "string", "nullable": True, "metadata": metadata}


def document(*fields: dict[str, Any], **extra: Any) -> str:
    return json.dumps({"type": "struct", "fields": list(fields), **extra})


def indexed(column: str, type_: Any, /, **index: Any) -> dict[str, Any]:
    return {"name": column, "type": type_, "nullable": True, "metadata": {"index": index}}


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("footer", ["encrypted_footer", "plaintext_footer"])
def test_golden_schemas_with_encryption(golden: Path, version: int, footer: str) -> None:
    folder = golden / "xskipper" / "schema_extraction" / f"version={version}" / footer
    text = (folder / "schema.json").read_text()
    schema = StoreSchema.from_json(text)
    assert json.loads(schema.to_json()) == json.loads(text)
    assert (schema.version, schema.table_identifier) == (version, "foo/bar")
    end = "" if version == 1 else "_4"
    paths = [f"temp_minmax{end}.min", f"temp_minmax{end}.max", f"city_bloomfilter{end}"]
    paths += ["obj_name", *(["virtual_dt", "virtual_year"] if version == 4 else [])]
    encryption = schema.encryption
    assert encryption is not None
    assert encryption.plaintext_footer is (footer == "plaintext_footer")
    assert encryption.labels() == ("k1",)
    assert encryption.paths() == {"k1": tuple(paths)}
    assert [(i.kind, i.columns, i.key_metadata) for i in schema.indexes] == [
        ("minmax", ("temp",), "k1"),
        ("bloomfilter", ("city",), "k1"),
        ("valuelist", ("city",), None),
    ]
    bloom = schema.indexes[1]
    assert sorted(bloom.current_params()) == sorted(bloom_params(0.01, 100_000))
    assert [index.value_type() for index in schema.indexes] == [
        pa.int32(),
        pa.binary(),
        pa.string(),
    ]
    virtual = [(c.column, c.type) for c in schema.virtual_columns]
    assert virtual == ([("dt", '"date"'), ("year", '"string"')] if version == 4 else [])


def test_version_0_is_described_and_not_used() -> None:
    udt = {"type": "udt", "class": "com.ibm.Old", "pyClass": None, "sqlType": "binary"}
    index = indexed("a:b_someindex", udt, cols=["a", "b"], name="someindex", tableIdentifier="t")
    for metadata in ({}, {"version": 0}):
        schema = StoreSchema.from_json(document(master(**metadata), index))
        assert (schema.version, schema.table_identifier, schema.usable) == (0, "t", False)
        assert schema.indexes[0].columns == ("a", "b")
        with pytest.raises(UnsupportedError, match="version 0"):
            schema.require_usable()


def test_versions_above_4_are_refused_with_a_clear_reason() -> None:
    with pytest.raises(UnsupportedError, match=r"version 5; the newest known is 4.*update"):
        StoreSchema.from_json(document(master(version=5, tableIdentifier="/t")))


def test_what_is_not_understood_is_kept() -> None:
    text = document(
        {**master(version=4, tableIdentifier="/t", future=[1, {"a": None}]), "novel": 1.5},
        indexed("loc_geobox_3", {"type": "udt", "class": "x"}, name="geobox", cols=["loc"], zoom=3),
        {"name": "stray", "type": {"type": "array", "elementType": "long"}, "metadata": {"m": 1}},
        {"name": "virtual_dt", "type": "timestamp_ntz", "nullable": True, "metadata": {}},
        comment="é😀",
    )
    schema = StoreSchema.from_json(text)
    again = json.loads(text)
    again["fields"][2]["nullable"] = True
    assert json.loads(schema.to_json()) == again
    assert StoreSchema.from_json(schema.to_json()) == schema
    with pytest.raises(UnsupportedError, match="geobox"):
        schema.indexes[0].value_type()
    assert schema.virtual_columns[0].type == '"timestamp_ntz"'


def test_params_in_both_forms() -> None:
    for params in (["a:b:c", "k:"], {"a": "b:c", "k": ""}):
        index = indexed("c_x_1", "long", name="x", cols=["c"], params=params)
        schema = StoreSchema.from_json(document(master(version=2, tableIdentifier="/t"), index))
        assert schema.indexes[0].params == (("a", "b:c"), ("k", ""))


def test_a_collated_column_is_not_compared_by_its_bytes() -> None:
    entry = indexed("c_minmax_1", INT_RANGE, name="minmax", cols=["c"])
    entry["metadata"]["__COLLATIONS"] = {"c": "icu.UNICODE_CI"}
    schema = StoreSchema.from_json(document(master(version=4, tableIdentifier="/t"), entry))
    with pytest.raises(UnsupportedError, match="collated"):
        schema.indexes[0].value_type()


GOOD = indexed("c_minmax_1", INT_RANGE, name="minmax", cols=["c"])
V4 = {"version": 4, "tableIdentifier": "/t"}
BROKEN: dict[str, str | bytes] = {
    "no JSON": "{",
    "no UTF-8": b"\xff\xfe\xfa",
    "a list": "[]",
    "no struct": '{"type": "map", "fields": []}',
    "no fields": '{"type": "struct"}',
    "no obj_name": document(GOOD),
    "a field that is a number": '{"type": "struct", "fields": [1]}',
    "a field without type": '{"type": "struct", "fields": [{"name": "obj_name"}]}',
    "a name that is a number": document(master(**V4), {"name": 1, "type": "long"}),
    "the same name twice": document(master(**V4), GOOD, GOOD),
    "a version that is a text": document(master(version="4")),
    "a version that is true": document(master(version=True)),
    "a version below 0": document(master(version=-1)),
    "an identifier that is a list": document(master(version=4, tableIdentifier=[])),
    "an index that is a list": document(master(**V4), {**GOOD, "metadata": {"index": []}}),
    "an index without cols": document(master(**V4), indexed("x", "long", name="x")),
    "cols of numbers": document(master(**V4), indexed("x", "long", name="x", cols=[1])),
    "params of numbers": document(
        master(**V4), indexed("x", "long", name="x", cols=["x"], params={"a": 1})
    ),
    "params without colon": document(
        master(**V4), indexed("x", "long", name="x", cols=["x"], params=["a"])
    ),
    "encryption that is a text": document(master(**V4, encryption="k1")),
    "encryption without keys": document(master(**V4, encryption={})),
    "an infinite number": document(master(**V4)).replace("4", "1e999"),
    "a lone surrogate": document(master(**V4), indexed("\ud800", "long", name="x", cols=["x"])),
    "ten thousand levels": '{"type":' * 10_000,
    "a number of 10,000 digits": document(master(**V4)).replace("4", "4" * 10_000),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_documents(name: str) -> None:
    with pytest.raises(FormatError):
        StoreSchema.from_json(BROKEN[name])


def test_a_new_store() -> None:
    schema = StoreSchema.build(
        table_identifier="/é/t",
        virtual_columns=[VirtualColumn(name="virtual_dt", type='"date"')],
        indexes=[
            IndexColumn(
                name="s_bloomfilter_1",
                kind="bloomfilter",
                columns=("s",),
                params=bloom_params(1e-4, 5),
                type=json.dumps({"type": "udt", "class": BLOOM_UDT, "sqlType": "binary"}),
            )
        ],
    )
    fields = json.loads(schema.to_json())["fields"]
    assert [field["nullable"] for field in fields] == [True] * 3
    assert fields[0]["metadata"] == {"tableIdentifier": "/é/t", "version": 4}
    assert fields[2]["metadata"]["index"]["params"] == {
        "io.xskipper.index.bloom.fpp": "1.0E-4",
        "io.xskipper.index.bloom.ndv": "5",
    }
    assert StoreSchema.from_json(schema.to_json()) == schema


def test_an_encrypted_index_is_never_described_in_clear() -> None:
    secret = IndexColumn(name="a_minmax_1", kind="minmax", columns=("a",), key_metadata="k1")
    with pytest.raises(UnsupportedError, match="never written in clear"):
        StoreSchema.build(table_identifier="/t", indexes=[secret])


def test_key_labels_of_several_groups() -> None:
    encryption = StoreEncryption(footer_key="f", column_keys="k1:a.min,a.max;k2:b;k1:c;f:obj_name")
    assert encryption.labels() == ("f", "k1", "k2")
    assert encryption.paths() == {"k1": ("a.min", "a.max", "c"), "k2": ("b",), "f": ("obj_name",)}


# Printed by Java 17's Double.toString.
JAVA_DOUBLES = {
    0.01: "0.01",
    0.05: "0.05",
    1e-3: "0.001",
    1e-4: "1.0E-4",
    1.5e-10: "1.5E-10",
    1.0: "1.0",
    100.0: "100.0",
    123456.789: "123456.789",
    9999999.0: "9999999.0",
    1e7: "1.0E7",
    12345678.9: "1.23456789E7",
    1.7976931348623157e308: "1.7976931348623157E308",
    0.0: "0.0",
    -2.5: "-2.5",
    float("inf"): "Infinity",
}


@pytest.mark.parametrize("value", JAVA_DOUBLES)
def test_doubles_as_java_prints_them(value: float) -> None:
    assert java_double(value) == JAVA_DOUBLES[value]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_read_back(value: float) -> None:
    assert float(java_double(value)) == value


TYPES = ["byte", "short", "integer", "long", "float", "double", "boolean", "string", "binary"]
TYPES += ["date", "timestamp", "decimal(1,0)", "decimal(10,2)", "decimal(38,38)"]


@pytest.mark.parametrize("name", TYPES)
def test_types_there_and_back(name: str) -> None:
    assert spark_type(arrow_type(name)) == name


def test_other_spellings_of_types() -> None:
    assert arrow_type("decimal") == pa.decimal128(10, 0)
    assert arrow_type("varchar(9)") == arrow_type("char(9)") == pa.string()
    assert spark_type(pa.large_string()) == spark_type(pa.string_view()) == "string"
    assert spark_type(pa.large_binary()) == spark_type(pa.binary_view()) == "binary"
    assert spark_type(pa.timestamp("ms", "Europe/Berlin")) == "timestamp"


FOREIGN: list[Any] = ["timestamp_ntz", "interval day to second", "variant", "void", "time(6)"]
FOREIGN += ["string collate UTF8_LCASE", {"type": "map"}, INT_RANGE, ""]


@pytest.mark.parametrize("type_", FOREIGN, ids=str)
def test_types_that_a_store_has_no_place_for(type_: Any) -> None:
    with pytest.raises(UnsupportedError):
        arrow_type(type_)


@pytest.mark.parametrize("type_", [None, 1, [], "decimal(0,0)", "decimal(39,1)", "decimal(5,6)"])
def test_what_is_no_type(type_: Any) -> None:
    with pytest.raises(FormatError):
        arrow_type(type_)


ARROW_FOREIGN = [pa.uint8(), pa.uint64(), pa.timestamp("us"), pa.timestamp("ns", "UTC")]
ARROW_FOREIGN += [pa.list_(pa.int64()), pa.decimal256(50, 2), pa.float16(), pa.time64("us")]


@pytest.mark.parametrize("type_", ARROW_FOREIGN, ids=str)
def test_arrow_types_that_a_store_has_no_place_for(type_: pa.DataType) -> None:
    with pytest.raises(UnsupportedError):
        spark_type(type_)
