"""What is published is read back as it was, and is nothing that the original would misread."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import UnsupportedError
from skipstone.xskipper.format.bloom_probe import BlobColumn
from skipstone.xskipper.format.encryption import StoreEncryption
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.part import part_name, read_part, slices, to_bytes
from skipstone.xskipper.format.rows import BloomRows, MinMaxRows, ValueListRows, decode
from skipstone.xskipper.format.schema import StoreSchema
from skipstone.xskipper.format.v4_store import (
    BloomFacts,
    Facts,
    MinMaxFacts,
    ValueListFacts,
    published,
    supports,
)
from skipstone.xskipper.upgrade import upgrade
from tests.xskipper.format.reference_bloom import SketchBuilder, each_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

UTC = dt.UTC
NAN = float("nan")
# Type -> smallest and largest of three files; the third has no value.
ENDS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "byte": (pa.int8(), [-128, 0], [127, 0]),
    "short": (pa.int16(), [-(2**15), 1], [2**15 - 1, 1]),
    "int": (pa.int32(), [-(2**31), 2], [2**31 - 1, 2]),
    "long": (pa.int64(), [-(2**63), 3], [2**63 - 1, 3]),
    "float": (pa.float32(), [-0.0, 1.5], [0.0, NAN]),
    "double": (pa.float64(), [NAN, -1e308], [NAN, float("inf")]),
    "flag": (pa.bool_(), [False, True], [True, True]),
    "text": (pa.string(), ["", "é"], ["\U0010ffff", "\uffff"]),
    "day": (
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(1582, 10, 14)],
        [dt.date(9999, 12, 31), dt.date(1969, 12, 31)],
    ),
    "at": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)],
        [dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2300, 1, 1, tzinfo=UTC)],
    ),
    "d9": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal(0)], [Decimal(1), Decimal(0)]),
    "d18": (pa.decimal128(18, 0), [Decimal(-(10**18) + 1), Decimal(0)], [Decimal(7)] * 2),
    "d38": (pa.decimal128(38, 38), [Decimal(0), Decimal(0)], [Decimal("0." + "9" * 38)] * 2),
}
EMPTY = np.array([False, False, True])
FILES = pa.array([f"/t/p={n}/é f %20.parquet#170000000000{n}" for n in range(3)])
IDENTIFIER = "/t"


def minmax(name: str) -> MinMaxFacts:
    type_, low, high = ENDS[name]
    return MinMaxFacts(
        column=name.title(),
        minimum=pa.array([*low, None], type_),
        maximum=pa.array([*high, None], type_),
        empty=EMPTY,
    )


def lists(name: str, type_: pa.DataType, values: list[Any]) -> ValueListFacts:
    array = pa.array(values, pa.list_(type_))
    empty = np.array([not value for value in values])
    return ValueListFacts(column=name, values=array, empty=empty)


def blooms(values: list[list[str] | None]) -> BloomFacts:
    blobs: list[bytes | None] = []
    for texts in values:
        builder = SketchBuilder.sized(max(1, len(texts or [])), 0.01)
        builder.put(pa.array(texts or [], pa.string()))
        blob = BloomFilterMetaData.of(builder.build()).to_bytes()
        blobs.append(None if texts is None else blob)
    return BloomFacts(
        column="text", blobs=pa.array(blobs, pa.binary()), type=pa.string(), fpp=0.01, ndv=100
    )


def whole() -> tuple[pa.Table, StoreSchema]:
    facts: list[Facts] = [minmax(name) for name in ENDS]
    facts.append(lists("long", pa.int64(), [[3, 1], [None, 2], []]))
    facts.append(lists("at", ENDS["at"][0], [ENDS["at"][1], ENDS["at"][2], None]))
    facts.append(lists("raw", pa.large_binary(), [[b"\x00", b""], [b"\xff"], []]))
    facts.append(lists("Nest.a", pa.string_view(), [["a"], ["b", "é"], []]))
    facts.append(blooms([["x"], None, []]))
    days = pa.array([dt.date(2024, 1, 1), None, dt.date(2024, 1, 3)])
    return published(
        table_identifier=IDENTIFIER,
        obj_names=FILES,
        facts=facts,
        virtual={"Dt": days, "p": pa.array([0, 1, 2], pa.int32())},
    )


def same(a: pa.Array, b: pa.Array) -> bool:
    return repr(a.to_pylist()) == repr(b.to_pylist())


def test_what_is_published_is_read_back() -> None:
    table, schema = whole()
    part = read_part(to_bytes(table, schema))
    assert part.footer.schema == schema
    assert part.footer.own
    assert part.unreadable == ()
    rows = decode(part)
    assert rows.path.to_pylist() == [f"/t/p={n}/é f %20.parquet" for n in range(3)]
    assert rows.mtime_ms.to_pylist() == [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002]
    assert part.table["virtual_Dt"].to_pylist() == [dt.date(2024, 1, 1), None, dt.date(2024, 1, 3)]
    assert part.table["virtual_p"].to_pylist() == [0, 1, 2]
    for name, index in zip(ENDS, rows.indexes, strict=False):
        fact = minmax(name)
        assert isinstance(index, MinMaxRows)
        assert index.index.columns == (name,)
        assert index.minimum.type == ENDS[name][0]
        assert same(index.minimum, fact.minimum)
        assert same(index.maximum, fact.maximum)
        assert index.empty.tolist() == [False, False, True]
    long, at, raw, nest, bloom = rows.indexes[len(ENDS) :]
    for index, expected in (
        (long, [[3, 1], [2], []]),
        (at, [ENDS["at"][1], ENDS["at"][2], []]),
        (raw, [[b"\x00", b""], [b"\xff"], []]),
        (nest, [["a"], ["b", "é"], []]),
    ):
        assert isinstance(index, ValueListRows)
        assert index.values.to_pylist() == expected
        assert index.empty.tolist() == [False, False, True]
    assert nest.index.name == "nest$#$a_valuelist_8"
    assert isinstance(bloom, BloomRows)
    column = BlobColumn(bloom.blobs)
    assert column.ok.all()
    # The second filter was never built: it may contain everything. The third is of no values.
    assert each_in(column, [b"x", b"absent"]).tolist() == [
        [True, True, False],
        [False, True, False],
    ]
    assert ("io.xskipper.index.bloom.fpp", "0.01") in bloom.index.params


def test_physical_types_are_those_of_real_stores() -> None:
    table, schema = whole()
    data = to_bytes(table, schema)
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert set(metadata.metadata) == {
        b"org.apache.spark.sql.parquet.row.metadata",
        b"org.apache.spark.version",
        b"skipstone.version",
    }
    physical = {}
    for at in range(metadata.num_columns):
        column = metadata.schema.column(at)
        physical[column.path] = (column.physical_type, str(column.logical_type))
        assert column.max_definition_level >= 1, "every column is nullable"
        assert metadata.row_group(0).column(at).compression == "SNAPPY"
    assert physical["obj_name"] == ("BYTE_ARRAY", "String")
    assert physical["virtual_Dt"] == ("INT32", "Date")
    assert physical["at_minmax_2.min"][0] == "INT96"
    assert physical["at_valuelist_2.list.element"][0] == "INT96"
    assert physical["d9_minmax_2.max"][0] == "INT32"
    assert physical["d18_minmax_3.max"][0] == "INT64"
    assert physical["d38_minmax_3.max"][0] == "FIXED_LEN_BYTE_ARRAY"
    assert physical["byte_minmax_4.min"] == ("INT32", "Int(bitWidth=8, isSigned=true)")
    assert physical["text_bloomfilter_4"] == ("BYTE_ARRAY", "None")


def test_a_missing_fact_is_never_published_as_null() -> None:
    ends = pa.array([1, None, None], pa.int64())
    some = MinMaxFacts(column="a", minimum=ends, maximum=ends, empty=EMPTY)
    half = MinMaxFacts(
        column="a", minimum=pa.array([1, 2, None], pa.int64()), maximum=ends, empty=EMPTY
    )
    values = pa.array([[1], None, None], pa.list_(pa.int64()))
    for fact in (some, half, ValueListFacts(column="a", values=values, empty=EMPTY)):
        with pytest.raises(UnsupportedError, match="1 of 3 files have no fact"):
            published(table_identifier=IDENTIFIER, obj_names=FILES, facts=[fact])


def test_an_empty_file_is_null_whatever_was_handed_in() -> None:
    ends = pa.array([1, 2, 99], pa.int64())
    fact = MinMaxFacts(column="a", minimum=ends, maximum=ends, empty=EMPTY)
    table, _ = published(table_identifier=IDENTIFIER, obj_names=FILES, facts=[fact])
    assert table.column(1).to_pylist()[2] == {"min": None, "max": None}


def test_value_lists_hold_both_zeros_or_none() -> None:
    fact = lists("f", pa.float32(), [[-0.0, 2.0], [0.0, NAN], [1.0]])
    table, _ = published(table_identifier=IDENTIFIER, obj_names=FILES, facts=[fact])
    assert [sorted(map(repr, row)) for row in table.column(1).to_pylist()] == [
        ["-0.0", "0.0", "2.0"],
        ["-0.0", "0.0", "nan"],
        ["1.0"],
    ]


@pytest.mark.parametrize(
    "kind,type_",
    [
        ("minmax", pa.binary()),
        ("bloomfilter", pa.float64()),
        ("bloomfilter", pa.date32()),
        ("bloomfilter", pa.decimal128(9, 0)),
        ("valuelist", pa.timestamp("us")),
        ("minmax", pa.uint16()),
        ("prefixlist", pa.string()),
    ],
    ids=str,
)
def test_what_the_original_cannot_use(kind: str, type_: pa.DataType) -> None:
    assert supports(kind, type_) is not None


def test_names_that_would_meet_are_refused() -> None:
    a, b = lists("A", pa.int64(), [[1]] * 3), lists("a", pa.int64(), [[1]] * 3)
    with pytest.raises(UnsupportedError, match="one name"):
        published(table_identifier=IDENTIFIER, obj_names=FILES, facts=[a, b])
    index = lists("virtual", pa.int64(), [[1]] * 3)
    column = {"valuelist_7": pa.array([1, 2, 3])}
    with pytest.raises(UnsupportedError, match="one name"):
        published(table_identifier=IDENTIFIER, obj_names=FILES, facts=[index], virtual=column)


def test_rows_are_unique_and_complete() -> None:
    facts = [lists("a", pa.int64(), [[1]] * 3)]
    for names in (["x#1", "x#1", "y#1"], ["x#1", None, "y#1"]):
        with pytest.raises(ValueError, match="unique"):
            published(table_identifier=IDENTIFIER, obj_names=pa.array(names), facts=facts)
    with pytest.raises(ValueError, match="3 rows"):
        published(table_identifier=IDENTIFIER, obj_names=FILES[:2], facts=facts)


def test_nothing_encrypted_is_written_in_clear() -> None:
    table, schema = whole()
    fields = json.loads(schema.to_json())
    fields["fields"][0]["metadata"]["encryption"] = {
        "encryption.column.keys": "k1:obj_name",
        "encryption.footer.key": "k1",
    }
    secret = StoreSchema.from_json(json.dumps(fields))
    assert secret.encryption == StoreEncryption(footer_key="k1", column_keys="k1:obj_name")
    with pytest.raises(UnsupportedError, match="encrypted"):
        to_bytes(table, secret)
    # Of version 4 already: an upgrade leaves it as it is, encryption and all.
    assert upgrade(table, secret)[1] == secret


def test_only_version_4_is_written() -> None:
    text = json.loads(whole()[1].to_json())
    text["fields"][0]["metadata"]["version"] = 3
    with pytest.raises(UnsupportedError, match="version 3"):
        to_bytes(whole()[0], StoreSchema.from_json(json.dumps(text)))
    with pytest.raises(ValueError, match="columns"):
        to_bytes(whole()[0].select([0, 1]), whole()[1])


def test_parts_are_cut_by_rows_and_bytes() -> None:
    """At most 50,000 rows and 32 MiB each, but at least a row."""
    table = pa.table({"obj_name": range(100_001)})
    assert [piece.num_rows for piece in slices(table)] == [50_000, 50_000, 1]
    large = pa.table({"blob": pa.array([bytes(12 << 20)] * 5)})
    assert [piece.num_rows for piece in slices(large)] == [2, 2, 1]
    larger = pa.table({"blob": pa.array([bytes(33 << 20)] * 2)})
    assert [piece.num_rows for piece in slices(larger)] == [1, 1]
    assert [piece.num_rows for piece in slices(table.slice(0, 0))] == [0]


def test_an_empty_store_is_a_store() -> None:
    none = np.zeros(0, np.bool_)
    facts: list[Facts] = [
        MinMaxFacts(
            column="a", minimum=pa.nulls(0, pa.int8()), maximum=pa.nulls(0, pa.int8()), empty=none
        ),
        ValueListFacts(column="a", values=pa.nulls(0, pa.list_(pa.string())), empty=none),
        BloomFacts(column="a", blobs=pa.nulls(0, pa.binary()), type=pa.int8(), fpp=0.1, ndv=1),
    ]
    names = pa.nulls(0, pa.string())
    table, schema = published(table_identifier=IDENTIFIER, obj_names=names, facts=facts)
    rows = decode(read_part(to_bytes(table, schema)))
    assert (len(rows), len(rows.indexes)) == (0, 3)


def test_names_of_parts_are_like_sparks_and_unique() -> None:
    assert re.fullmatch(r"part-00003-[0-9a-f-]{36}-c000\.snappy\.parquet", part_name(3))
    assert part_name() != part_name()


@given(
    st.lists(st.lists(st.floats(width=32) | st.just(-0.0) | st.just(NAN), max_size=5), min_size=1)
)
def test_any_lists_of_floats(values: list[list[float]]) -> None:
    names = pa.array([f"/t/{n}#{n}" for n in range(len(values))])
    fact = lists("x", pa.float32(), values)
    table, schema = published(table_identifier=IDENTIFIER, obj_names=names, facts=[fact])
    [index] = decode(read_part(to_bytes(table, schema))).indexes
    assert isinstance(index, ValueListRows)
    assert index.empty.tolist() == [not row for row in values]
    for before, after in zip(values, index.values.to_pylist(), strict=True):
        wanted = {repr(v) for v in before}
        if wanted & {"0.0", "-0.0"}:
            wanted |= {"0.0", "-0.0"}
        assert {repr(v) for v in after} == wanted


@pytest.mark.spark
def test_spark_reads_the_same_values(spark: SparkSession, tmp_path: Path) -> None:
    table, schema = whole()
    (tmp_path / part_name()).write_bytes(to_bytes(table, schema))
    # Without Xskipper's class on the path Spark takes the plain Parquet schema, and the filters
    # as bytes.
    frame = spark.read.parquet(str(tmp_path)).orderBy("obj_name")
    types = dict(frame.dtypes)
    assert types["at_minmax_2"] == "struct<min:timestamp,max:timestamp>"
    assert types["d9_minmax_2"] == "struct<min:decimal(9,2),max:decimal(9,2)>"
    assert types["nest$#$a_valuelist_8"] == "array<string>"
    assert types["byte_minmax_4"] == "struct<min:tinyint,max:tinyint>"
    assert types["virtual_Dt"] == "date"
    got = frame.selectExpr(
        "obj_name",
        "unix_micros(at_minmax_2.min) as low",
        "unix_micros(at_minmax_2.max) as high",
        "transform(at_valuelist_2, x -> unix_micros(x)) as all",
        "day_minmax_3.min as first",
        "d38_minmax_3.max as most",
    ).toArrow()
    micros = table.column("at_minmax_2").combine_chunks()
    low, high = (micros.field(end).cast(pa.int64()).to_pylist() for end in ("min", "max"))
    assert got.column("low").to_pylist() == low
    assert got.column("high").to_pylist() == high
    assert got.column("all").to_pylist() == [low[:2], high[:2], []]
    days = table.column("day_minmax_3").combine_chunks().field("min")
    assert got.column("first").to_pylist() == days.to_pylist()
    assert got.column("most").to_pylist() == [*ENDS["d38"][2], None]
