"""Tables of Apache Iceberg: partitions and statistics, and what they prune."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    LongType,
)

import skipstone
from skipstone.errors import UnsupportedError
from tests.table_formats.iceberg_tables import (
    assert_same,
    catalog,
    folder,
    ids,
    table_of,
)

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

__all__ = ["catalog"]


def test_values_of_partitions_come_from_the_manifests(catalog: SqlCatalog) -> None:
    """Of every type, with nulls; the names of folders mean nothing."""
    instants = [dt.datetime(2026, 1, day, 12, 30, 0, 5, tzinfo=dt.UTC) for day in (1, 2, 3)]
    data = pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "kind": ["x y", "a/b%2=", "ü", None],
            "at": pa.array([*instants, None], pa.timestamp("us", "UTC")),
            "local": pa.array([None, *(each.replace(tzinfo=None) for each in instants)]),
            "day": pa.array([None, *(each.date() for each in instants)]),
            "price": pa.array([Decimal("1.50"), None, Decimal("-2"), Decimal(0)]).cast(
                pa.decimal128(9, 2)
            ),
            "flag": [True, False, None, True],
        }
    )
    made = catalog.create_table("db.t", data.schema)
    with made.update_spec() as update:
        for name in data.column_names[1:]:
            update.add_field(name, IdentityTransform())
    made.append(data)
    table = skipstone.Table(folder(made))
    found = table.query(order_by="id")
    assert found.column_names == data.column_names
    assert found.to_pylist() == made.scan().to_arrow().sort_by("id").to_pylist()
    for where, expected in {
        "at >= '2026-01-02'": [2, 3],
        "kind = 'a/b%2='": [2],
        "day = DATE '2026-01-03'": [4],
        "price = -2": [3],
        "flag IS NULL": [3],
    }.items():
        plan = table.plan(where)
        assert plan.files_kept == len(expected), where
        assert table.query(where, order_by="id").column("id").to_pylist() == expected
    with pytest.raises(UnsupportedError, match="partition column"):
        table.build(indexes=["kind:bloom"])


def test_a_renamed_partition_column(catalog: SqlCatalog) -> None:
    """Its values are those of the manifests, by whatever name the files have it."""
    made = catalog.create_table("db.t", ids(1, kind=["a"]).schema)
    with made.update_spec() as update:
        update.add_field("kind", IdentityTransform())
    made.append(ids(1, 2, kind=["a", "b"]))
    with made.update_schema() as change:
        change.rename_column("kind", "sort")
    assert skipstone.Table(folder(made)).plan("sort = 'a'").files_kept == 1
    assert_same(made, None, "sort = 'a'")


def test_hidden_partitions_prune_where_there_are_no_bounds(catalog: SqlCatalog) -> None:
    days = [dt.datetime(year, 5, 17, 23, 59, 59, 999_999) for year in (1950, 1969, 1970, 2026)]
    data = ids(5, 15, 25, 35, at=pa.array(days, pa.timestamp("us")), kind=["aa", "ab", "b", "c"])
    metrics = {"write.metadata.metrics.default": "none"}
    made = catalog.create_table("db.t", data.schema, properties=metrics)
    with made.update_spec() as update:
        update.add_field("at", DayTransform(), "day")
        update.add_field("id", TruncateTransform(10), "tens")
        update.add_field("kind", TruncateTransform(1), "letter")
    made.append(data)
    table = skipstone.Table(folder(made))
    for where, kept in {
        "at > '2020-01-01'": 1,
        "at < '1951-01-01'": 1,
        "at = '1969-05-17 23:59:59.999999'": 1,
        "id BETWEEN 10 AND 19": 1,
        "id = 35": 1,
        "kind < 'b'": 4,
    }.items():
        assert table.plan(where).files_kept == kept, where
        assert_same(made)
    assert table.query("at = '1950-05-17 23:59:59.999999'").column("id").to_pylist() == [5]


def test_the_last_width_ends_with_the_type(catalog: SqlCatalog) -> None:
    most = 2**31 - 1
    data = pa.table({"n": pa.array([5, most], pa.int32())})
    metrics = {"write.metadata.metrics.default": "none"}
    made = catalog.create_table("db.t", data.schema, properties=metrics)
    with made.update_spec() as update:
        update.add_field("n", TruncateTransform(10), "tens")
    made.append(data)
    table = skipstone.Table(folder(made))
    assert table.query(f"n = {most}").column("n").to_pylist() == [most]
    assert table.plan(f"n = {most}").files_kept == 1


def test_partitions_that_changed(catalog: SqlCatalog) -> None:
    """Files of several specs: the column is read from the files, and all of them prune."""
    part = ids(1, 2, kind=["a", "b"])
    made = table_of(catalog, part)
    with made.update_spec() as update:
        update.add_field("kind", IdentityTransform())
    made.append(ids(3, 4, kind=["a", "c"]))
    table = skipstone.Table(folder(made))
    assert (table.plan("kind = 'c'").files_kept, table.plan("kind = 'a'").files_kept) == (1, 2)
    table.build(indexes=["kind:bloom"])
    assert_same(made, None, "kind = 'a'", "kind > 'b'")
    # A file without the column, as those that were made by Hive: its value may be in no file.
    bare = f"{folder(made)}/data/bare.parquet"
    pq.write_table(ids(5, kind=["a"]), bare)
    made.add_files([f"file://{bare}"])
    assert_same(made)


def test_statistics_prune_and_explain_says_so(catalog: SqlCatalog) -> None:
    parts = [ids(*range(at, 100, 10), day=pa.array([at] * 10, pa.int64())) for at in range(10)]
    made = table_of(catalog, *parts)
    table = skipstone.Table(folder(made))
    assert table.plan("day = 3").files_kept == 1
    assert table.plan("id = 53", inside=False).files_kept == 10
    table.build(indexes=["id:bloom"])
    plan = table.plan("id = 53 AND day >= 3")
    steps = {(step.index, step.column): (step.considered, step.kept) for step in plan.steps}
    assert steps["Apache Iceberg", "day"] == (10, 7)
    assert steps["bloomfilter", "id"][1] == 1
    text = str(table.explain("id = 53 AND day >= 3"))
    assert "day  Apache Iceberg" in text
    assert "bloomfilter" in text


def test_cut_old_and_missing_statistics_lose_no_row(catalog: SqlCatalog) -> None:
    """Bounds leave NaN out, texts and binaries are cut, numbers are older than their type."""
    values = [
        (1, 1.5, "z" * 100, b"\xff" * 100, Decimal("1.25"), 0.5),
        (2, float("nan"), "z" * 15 + "\U0010ffff" * 9, b"\x00" * 100, Decimal("-9.99"), -0.0),
    ]
    parts = []
    for n, number, text, binary, price, zero in values:
        parts.append(
            pa.table(
                {
                    "id": pa.array([n], pa.int32()),
                    "number": pa.array([number], pa.float32()),
                    "text": [text],
                    "binary": [binary],
                    "price": pa.array([price], pa.decimal128(3, 2)),
                    "inner": pa.array([{"n": zero, "t": text}]),
                }
            )
        )
    made = table_of(catalog, *parts)
    with made.update_schema() as update:
        update.update_column("id", LongType())
        update.update_column("number", DoubleType())
        update.update_column("price", DecimalType(12, 2))
    big = parts[0].set_column(0, "id", pa.array([2**40], pa.int64()))
    made.append(big.set_column(1, "number", pa.array([1e300])))
    table = skipstone.Table(folder(made))
    for indexes in ([], ["id:minmax", "number:minmax", "price:minmax", "text:bloom"]):
        if indexes:
            table.build(indexes=indexes)
        for where, count in {
            "id = 1": 1,
            f"id >= {2**40}": 1,
            "number > 1e200": 2,
            "number = 'NaN'": 1,
            "number < 2": 1,
            f"text = '{'z' * 100}'": 2,
            f"text > '{'z' * 15}\U0010ffff'": 1,
            f"binary = X'{'FF' * 100}'": 2,
            f"binary <= X'{'00' * 100}'": 1,
            "price = -9.99": 1,
            "price > 1.2": 2,
            "inner.n = 0.0": 1,
            "inner.t IS NULL": 0,
        }.items():
            assert table.count(where) == count, where
    assert table.plan("id > 100").files_kept == 1
