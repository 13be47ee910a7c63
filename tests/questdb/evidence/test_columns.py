"""Which columns are asked about: by ID, name and type together, and never by the name alone."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from skipstone.predicate.tree import Leaf, Op
from skipstone.predicate.types import spark_type
from skipstone.questdb.evidence.opened_pm import OpenedPm, open_pm
from skipstone.questdb.format.types import ColumnType, Tag
from skipstone.questdb.format.values import PmColumn, PmHead
from skipstone.questdb.format.writer import PmFooter
from tests.questdb.evidence.asked import ask
from tests.questdb.evidence.written import parquet, with_ids
from tests.questdb.format.converting import pm_of
from tests.questdb.format.row_groups import PmChunk, PmRowGroup
from tests.questdb.format.writing import write


def pm_file(table: pa.Table, **known: Any) -> OpenedPm:
    data = parquet(table, questdb=True)
    own = bool(known.get("own"))
    snapshot = open_pm(pm_of(data, own=own), parquet_size=len(data))
    return OpenedPm.of(snapshot, path="x", **known)


def field(name: str, type: pa.DataType, id: int | None = None) -> pa.Schema:
    metadata = None if id is None else {"PARQUET:field_id": str(id)}
    return pa.schema([pa.field(name, type, metadata=metadata)])


def test_a_column_that_was_dropped_and_another_of_its_name_are_two() -> None:
    """``a`` of the file has ID 0; the table's ``a`` was added later, as 7."""
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([3, 4], pa.int32())})
    assert dict(pm_file(table, schema=field("a", pa.int32(), 7)).columns) == {}
    assert dict(pm_file(table, schema=field("a", pa.int32(), 0)).columns) == {"a": 0}


def test_a_column_that_was_renamed_is_found_by_its_id() -> None:
    """``a`` is called ``b`` now, and what was ``b`` is gone: the name leads to the wrong one."""
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([30, 40], pa.int32())})
    file = pm_file(table, schema=field("b", pa.int32()), ids={"b": 0})
    assert dict(file.columns) == {"b": 0}
    assert ask(file, Leaf("b", pa.int32(), Op.LT, (10,))).must == [True]
    assert dict(pm_file(table, schema=field("b", pa.int32()), ids={"b": 9}).columns) == {}


def test_an_id_of_minus_one_is_the_position() -> None:
    data = parquet(pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([2], pa.int32())}))
    snapshot = open_pm(pm_of(data), parquet_size=len(data))
    schema = pa.schema([("x", pa.int32())])
    file = OpenedPm.of(snapshot, path="x", schema=schema, ids={"x": 1})
    assert dict(file.columns) == {"x": 1}


@pytest.mark.parametrize(
    "stored, table, own, asked",
    [
        (pa.int32(), pa.int32(), False, True),
        # INT is what uint32 is called, too: only an own _pm says that it is none.
        (pa.int32(), pa.int64(), False, False),
        (pa.int32(), pa.int64(), True, True),
        (pa.int16(), pa.int64(), False, True),
        (pa.int64(), pa.int32(), True, False),
        (pa.int32(), pa.string(), True, False),
        (pa.float32(), pa.float64(), False, True),
        (pa.string(), pa.binary(), False, True),
        (pa.int64(), pa.time64("us"), True, False),
        (pa.uint32(), pa.int64(), False, False),
        (pa.uint64(), pa.decimal128(20, 0), False, False),
        (pa.timestamp("us"), pa.timestamp("us"), False, True),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), False, True),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC"), False, True),
        (pa.date32(), pa.date32(), False, True),
    ],
)
def test_types_decide(stored: pa.DataType, table: pa.DataType, own: bool, asked: bool) -> None:
    file = pm_file(pa.table({"c": pa.nulls(3, stored)}), schema=field("c", table), own=own)
    assert ("c" in file.columns) == asked


@pytest.mark.parametrize("type_", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_unsigned_columns_of_an_own_pm_lose_no_row(type_: pa.DataType) -> None:
    most = 2**type_.bit_width - 1
    file = pm_file(pa.table({"c": pa.array([0, most], type_)}), schema=field("c", type_), own=True)
    read = spark_type(type_)
    assert ask(file, Leaf("c", read, Op.EQ, (most,))).may == [True]


def test_what_lies_in_groups_and_names_that_occur_twice_are_not_asked() -> None:
    struct = pa.array([{"a": 1}, {"a": 2}])
    table = pa.table([struct, [1, 2], [3, 4], [[1], [2]]], names=["s", "x", "x", "l"])
    file = pm_file(with_ids(table))
    assert [name for name in ("s", "s.a", "x", "l") if name in file.columns] == []
    schema = pa.schema([("s", struct.type), ("l", pa.list_(pa.int64()))])
    file = pm_file(with_ids(table), schema=schema, own=True)
    assert dict(file.columns) == {}


def test_ipv4_and_char_are_unsigned() -> None:
    """Addresses 1.0.0.0 to 255.255.255.255: as a signed number the last is -1."""
    columns = tuple(
        PmColumn(
            name=tag.name, type=ColumnType(tag=tag).code, physical_type=1, id=at, flags=1 << 2,
            fixed_byte_len=0, max_rep_level=0, max_def_level=1,
        )
        for at, tag in enumerate((Tag.IPV4, Tag.CHAR))
    )  # fmt: skip
    bounds = [(1 << 24, 2**32 - 1), (0x41, 0xFFFF)]
    chunks = tuple(
        PmChunk(
            num_values=9, byte_range_start=4, total_compressed=10, null_count=0,
            min=low.to_bytes(4, "little"), max=high.to_bytes(4, "little"),
        )
        for low, high in bounds
    )  # fmt: skip
    head = PmHead(columns=columns, designated_timestamp=-1, sorting_columns=())
    data = write(head, (PmRowGroup(num_rows=9, chunks=chunks),), PmFooter.of_parquet(1000, 100))
    file = OpenedPm.of(open_pm(data, parquet_size=1000), path="x")
    assert file.columns["IPV4"] == 0
    assert ask(file, Leaf("IPV4", pa.int64(), Op.EQ, (2**32 - 1,))).may == [True]
    assert ask(file, Leaf("IPV4", pa.int64(), Op.LT, (1 << 24,))).may == [False]
    assert ask(file, Leaf("CHAR", pa.int32(), Op.GE, (0x41,))).must == [True]


def test_decimals_of_odd_width_are_ordered_at_their_own() -> None:
    """decimal(5, 2) takes 3 bytes here, where QuestDB has 4."""
    column = pa.array([Decimal("-100.25"), Decimal("7.5")], pa.decimal128(5, 2))
    file = pm_file(pa.table({"d": column}), schema=field("d", pa.decimal128(5, 2)))
    assert file.snapshot.pm.descriptors["FIXED_BYTE_LEN"][0] == 3
    assert ask(file, Leaf("d", pa.decimal128(5, 2), Op.LT, (-10025,))).may == [False]
    assert ask(file, Leaf("d", pa.decimal128(5, 2), Op.LE, (750,))).must == [True]


def test_dates_in_days_and_in_milliseconds() -> None:
    day = datetime.date(2024, 2, 29)
    instant = datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)
    table = pa.table({"d": [day], "ms": pa.array([instant], pa.timestamp("ms", "UTC"))})
    file = pm_file(table, schema=table.schema)
    days = (day - datetime.date(1970, 1, 1)).days
    assert ask(file, Leaf("d", pa.date32(), Op.EQ, (days,))).must == [True]
    micros = days * 86_400_000_000
    stamp = pa.timestamp("us", "UTC")
    assert ask(file, Leaf("ms", stamp, Op.EQ, (micros,))).must == [True]
    assert ask(file, Leaf("ms", stamp, Op.EQ, (micros + 1,))).may == [False]


def test_one_name_among_many() -> None:
    """Names that begin alike, lie in one another, and occur twice, among more than a few."""
    names = [f"c{n}" for n in range(40)] + ["é", "twice", "twice", "xtwice"]
    table = pa.table([pa.array([n], pa.int64()) for n in range(len(names))], names=names)
    file = pm_file(table)
    for n, name in enumerate(names):
        expected = None if name == "twice" else n
        assert file.columns.get(name) == expected, name
    assert [file.columns.get(name) for name in ("c40", "", "0c1", "c")] == [None] * 4
