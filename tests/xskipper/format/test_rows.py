"""What a foreign row must not be believed, and what of a broken column says nothing."""

from __future__ import annotations

import datetime as dt
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import FormatError, UnsupportedError
from skipstone.xskipper.format.part import Calendar, PartContents, PartFooter, read_part, to_bytes
from skipstone.xskipper.format.rows import IndexRows, MinMaxRows, UnreadRows, ValueListRows, decode
from skipstone.xskipper.format.schema import StoreSchema
from skipstone.xskipper.format.v4_store import Facts, MinMaxFacts, ValueListFacts, published


def part(facts: list[Facts], *, names: list[str], own: bool, spark: str = "3.5.0") -> PartContents:
    table, schema = published(table_identifier="/t", obj_names=pa.array(names), facts=facts)
    footer = PartFooter(
        schema=schema,
        rows=len(names),
        calendar=Calendar(),
        own=own,
        keys=(("org.apache.spark.version", spark),),
    )
    return read_part(to_bytes(table, schema, like=None if own else footer))


def bounds(column: str, type_: pa.DataType, low: list[Any], high: list[Any]) -> MinMaxFacts:
    empty = np.array([value is None for value in low])
    return MinMaxFacts(
        column=column, minimum=pa.array(low, type_), maximum=pa.array(high, type_), empty=empty
    )


def ends(index: IndexRows) -> list[tuple[Any, Any, bool]]:
    assert isinstance(index, MinMaxRows)
    return list(
        zip(index.minimum.to_pylist(), index.maximum.to_pylist(), index.empty.tolist(), strict=True)
    )


FOUR = ["/t/a.parquet#1", "/t/b#1", "/t/c.csv#1", "/t/d.JSON.gz#1"]


def test_float_bounds_from_parquet_footers_say_nothing() -> None:
    # Only min/max over plain numbers: the original takes footers, which leave NaN out. Files that
    # are evidently not Parquet were read row by row.
    d = bounds("d", pa.float64(), [1.0, None, 1.0, None], [2.0, None, 2.0, None])
    n = bounds("n", pa.int32(), [1, None, 1, None], [2, None, 2, None])
    found = decode(part([d, n], names=FOUR, own=False)).indexes
    nothing = (None, None, False)
    assert ends(found[0]) == [nothing, nothing, (1.0, 2.0, False), (None, None, True)]
    assert ends(found[1]) == [(1, 2, False), (None, None, True)] * 2


def test_float_bounds_beside_another_index_are_believed() -> None:
    d = bounds("d", pa.float64(), [1.0] * 4, [float("nan")] * 4)
    s = bounds("s", pa.string(), ["a"] * 4, ["b"] * 4)
    found = decode(part([d, s], names=FOUR, own=False)).indexes[0]
    assert repr(ends(found)) == repr([(1.0, float("nan"), False)] * 4)
    alone = decode(part([d], names=FOUR, own=True)).indexes[0]
    assert repr(ends(alone)) == repr([(1.0, float("nan"), False)] * 4)


def test_string_bounds_in_the_order_of_utf16_are_believed_where_the_orders_agree() -> None:
    low = ["a", "é", "\ufb00", "😀"]
    high = ["b", "\ud7ff", "\ufb00", "😀z"]
    fact = bounds("s", pa.string(), low, high)
    foreign = decode(part([fact], names=FOUR, own=False)).indexes[0]
    # A file of "\ufb00" and "😀" has the maximum "\ufb00" in UTF-16, where UTF-8 has "😀"; and the
    # minimum "😀" in UTF-16, where UTF-8 has "\ufb00".
    assert ends(foreign) == [
        ("a", "b", False),
        ("é", "\ud7ff", False),
        ("\ufb00", None, False),
        (None, "😀z", False),
    ]
    own = decode(part([fact], names=FOUR, own=True)).indexes[0]
    assert ends(own) == [(a, b, False) for a, b in zip(low, high, strict=True)]


@pytest.mark.parametrize(
    "spark,days,instants",
    [("2.4.8", True, True), ("3.0.1", False, True), ("3.1.0", False, False), ("x", False, False)],
)
def test_old_days_in_the_hybrid_calendar_say_nothing(
    spark: str, days: bool, instants: bool
) -> None:
    first, old = dt.date(1582, 10, 15), dt.date(1582, 10, 14)
    day = bounds("day", pa.date32(), [old, first], [first, first])
    utc = dt.UTC
    modern = dt.datetime(1900, 1, 1, tzinfo=utc)
    early = modern - dt.timedelta(microseconds=1)
    at = bounds("at", pa.timestamp("us", "UTC"), [early, modern], [modern, modern])
    values = ValueListFacts(
        column="at",
        values=pa.array([[modern, early], [modern]], pa.list_(pa.timestamp("us", "UTC"))),
        empty=np.zeros(2, np.bool_),
    )
    names = ["/t/a#1", "/t/b#1"]
    got = decode(part([day, at, values], names=names, own=False, spark=spark)).indexes
    nothing = (None, None, False)
    assert ends(got[0]) == [nothing if days else (old, first, False), (first, first, False)]
    assert ends(got[1]) == [
        nothing if instants else (early, modern, False),
        (modern, modern, False),
    ]
    assert isinstance(got[2], ValueListRows)
    assert got[2].values.to_pylist() == [None if instants else [modern, early], [modern]]
    assert got[2].empty.tolist() == [False, False]


def test_flags_of_the_footer_name_the_calendar_too() -> None:
    keys = {
        "org.apache.spark.version": "3.5.0",
        "org.apache.spark.legacyINT96": "",
        "org.apache.spark.legacyDateTime": "",
    }
    assert Calendar.of(keys) == Calendar(legacy_dates=True, legacy_timestamps=True)
    assert Calendar.of({}) == Calendar()


def changed(part: PartContents, **columns: pa.Array) -> PartContents:
    table = part.table
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column)
    return replace(part, table=table)


def two() -> PartContents:
    fact = bounds("n", pa.int64(), [1, 2], [3, 4])
    values = ValueListFacts(column="n", values=pa.array([[1], [2]]), empty=np.zeros(2, np.bool_))
    return part([fact, values], names=["/t/a#1", "/t/b#2"], own=False)


def test_one_end_without_the_other_says_nothing() -> None:
    odd = pa.array([{"min": 1, "max": None}, {"min": None, "max": 2}], two().table.schema[1].type)
    assert ends(decode(changed(two(), n_minmax_1=odd)).indexes[0]) == [(None, None, False)] * 2


def test_text_that_is_no_utf8_says_nothing() -> None:
    fact = bounds("s", pa.string(), ["a"], ["b"])
    whole = part([fact], names=["/t/a#1"], own=False)
    broken = pa.Array.from_buffers(
        pa.string(),
        1,
        [None, pa.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00"), pa.py_buffer(b"\xff")],
    )
    column = pa.StructArray.from_arrays([broken, broken], ["min", "max"])
    [index] = decode(changed(whole, s_minmax_1=column)).indexes
    assert isinstance(index, UnreadRows)
    with pytest.raises(FormatError, match="obj_name"):
        decode(changed(whole, obj_name=broken))


def test_a_null_struct_is_an_empty_file() -> None:
    nulls = pa.nulls(2, two().table.schema[1].type)
    assert ends(decode(changed(two(), n_minmax_1=nulls)).indexes[0]) == [(None, None, True)] * 2
    nulls = pa.nulls(2, two().table.schema[2].type)
    index = decode(changed(two(), n_valuelist_1=nulls)).indexes[1]
    assert isinstance(index, ValueListRows)
    assert index.empty.tolist() == [True, True]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2]),
        pa.array([{"min": 1.0, "max": 2.0}] * 2),
        pa.array([{"min": 1}] * 2),
        pa.array([{"low": 1, "high": 2}] * 2),
    ],
    ids=str,
)
def test_a_column_of_another_type_says_nothing_alone(column: pa.Array) -> None:
    first, second = decode(changed(two(), n_minmax_1=column)).indexes
    assert isinstance(first, UnreadRows)
    assert "type of a" in first.reason
    assert isinstance(second, ValueListRows)


def test_names_that_are_none_are_null() -> None:
    names = pa.array(["/t/#a#b\n#12", None])
    rows = decode(changed(two(), obj_name=names))
    assert rows.path.to_pylist() == ["/t/#a#b\n", None]
    assert rows.mtime_ms.to_pylist() == [12, None]
    with pytest.raises(FormatError, match="obj_name"):
        decode(changed(two(), obj_name=pa.array([1, 2])))


def test_columns_that_the_part_lacks_are_named() -> None:
    whole = two()
    schema = json.loads(whole.footer.schema.to_json())
    schema["fields"].append({**schema["fields"][1], "name": "m_minmax_1"})
    schema["fields"][-1]["metadata"] = {"index": {"name": "minmax", "cols": ["m"]}}
    lacking = StoreSchema.from_json(json.dumps(schema))
    table = whole.table.append_column("m_minmax_1", whole.table.column("n_minmax_1"))
    data = to_bytes(table, lacking)
    assert len(decode(read_part(data)).indexes) == 3
    fewer = to_bytes(whole.table, whole.footer.schema, like=whole.footer)
    read = read_part(fewer)
    described = replace(read, footer=replace(read.footer, schema=lacking))
    last = decode(replace(described, unreadable=(("m_minmax_1", "not there"),))).indexes[2]
    assert isinstance(last, UnreadRows)
    assert last.reason == "not there"


def test_kinds_that_are_not_known_say_nothing() -> None:
    whole = two()
    schema = json.loads(whole.footer.schema.to_json())
    schema["fields"][1]["metadata"]["index"]["name"] = "geobox"
    strange = replace(
        whole, footer=replace(whole.footer, schema=StoreSchema.from_json(json.dumps(schema)))
    )
    first = decode(strange).indexes[0]
    assert isinstance(first, UnreadRows)
    assert "geobox" in first.reason


def test_version_0_is_not_read() -> None:
    whole = two()
    schema = json.loads(whole.footer.schema.to_json())
    del schema["fields"][0]["metadata"]["version"]
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, whole.table.schema) as writer:
        writer.write_table(whole.table)
        writer.add_key_value_metadata(
            {"org.apache.spark.sql.parquet.row.metadata": json.dumps(schema)}
        )
    with pytest.raises(UnsupportedError, match="version 0"):
        read_part(sink.getvalue())
