"""Columns of tables of Apache Iceberg: new ones, wider ones, and names that meant others."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

import skipstone
from skipstone.errors import UnsupportedError
from tests.table_formats.delta_tables import rows
from tests.table_formats.iceberg_tables import (
    History,
    assert_same,
    catalog,
    folder,
    ids,
    table_of,
)

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

__all__ = ["catalog"]


def test_new_wider_and_reordered_columns(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1, 2, inner=pa.array([{"a": 1}, None])))
    with made.update_schema() as update:
        update.add_column("text", StringType())
        update.add_column(("inner", "b"), StringType())
        update.move_first("text")
    made.append(
        pa.table({"text": ["x"], "id": pa.array([3]), "inner": pa.array([{"a": 2, "b": "y"}])})
    )
    table = skipstone.Table(folder(made))
    table.build(indexes=["id:minmax", "text:bloom"])
    assert_same(made, None, "text is null", "text = 'x'", "inner.b = 'y'")
    assert table.query().column_names == ["text", "id", "inner"]


def test_schemas_that_the_metadata_have_lost(catalog: SqlCatalog) -> None:
    """A column was renamed and named back, and an upkeep dropped the schema between."""
    made = table_of(catalog, ids(1, a=[1]))
    for old, new in (("a", "b"), ("b", "a")):
        with made.update_schema() as change:
            change.rename_column(old, new)
        made.append(ids(2, **{new: [2]}))
    path = Path(made.metadata_location.removeprefix("file://"))
    stored = json.loads(path.read_text())
    stored["schemas"] = [each for each in stored["schemas"] if each["schema-id"] == 0]
    for each in stored["snapshots"]:
        each["schema-id"] = 0
    path.write_text(json.dumps({**stored, "current-schema-id": 0}))
    table = skipstone.Table(folder(made))
    assert sorted(table.query().column("a").to_pylist()) == [1, 2, 2]
    assert table.count("a = 2") == 2


def test_a_column_under_the_name_of_another(catalog: SqlCatalog) -> None:
    """Swapped, dropped and added again, renamed inside a struct, and spelled in another case: an
    index from before serves the column that it is about, and never that of its name."""
    parts = [
        ids(at, at + 1, a=[at, at + 1], b=[-at, -at - 1], s=pa.array([{"x": at}, {"x": at + 1}]))
        for at in range(0, 8, 2)
    ]
    made = table_of(catalog, *parts, **{"write.metadata.metrics.default": "none"})
    path, first = folder(made), made.snapshots()[-1].snapshot_id
    table = skipstone.Table(path)
    table.build(indexes=["a:minmax", "a:bitmap", "b:valuelist", "s.x:minmax"])

    def rename(*names: tuple[str, str]) -> None:
        for old, new in names:
            with made.update_schema() as change:
                change.rename_column(old, new)

    def found(where: str) -> tuple[int, int]:
        """The files of the plan, and the matching rows, as the library's own reader has them."""
        assert_same(made, None, where)
        return table.plan(where, inside=False).files_kept, table.count(where)

    assert found("a = 5") == found("b = -5") == found("s.x = 5") == (1, 1)
    rename(("a", "c"), ("b", "a"), ("c", "b"), ("s.x", "y"))
    assert found("b = 5") == found("a = -5") == found("s.y = 5") == (1, 1)
    assert found("a = 5") == (0, 0)
    made.append(ids(5, a=[-5], b=[5], s=pa.array([{"y": 5}])))
    assert found("b = 5") == found("a = -5") == found("s.y = 5") == (2, 2)
    assert table.plan("b = 6", inside=False).files_kept == 2  # the new file has no facts
    assert table.refresh().files_built == 1
    assert found("b = 6") == found("a = -6") == found("s.y = 6") == (1, 1)
    shown = {(each.name, each.files) for each in table.describe().indexes}
    assert shown == {
        ("b:minmax", 5),
        ("b:bitmap", 5),
        ("a:valuelist", 5),
        ("s.y:minmax", 5),
    }
    rename(("b", "B"), ("s", "a.b"))
    assert found("B = 6") == (1, 1)
    assert table.count("`a.b`.y = 6") == table.plan("`a.b`.y = 6", inside=False).files_kept == 1
    with made.update_schema() as change:
        change.delete_column("a")
    with made.update_schema() as change:
        change.add_column("a", LongType())
        change.add_column(("a.b", "x"), LongType())
    assert found("a = -6") == (5, 0)
    assert table.count("a IS NULL") == table.count("`a.b`.x IS NULL") == 9
    assert table.check(deep=True).ok
    assert table.compact().facts_after == 5
    assert found("B = 6") == (1, 1)
    assert [index.split("(")[0] for index in table.drop("B:minmax").dropped] == ["B:minmax"]
    made.overwrite(made.scan().to_arrow())
    table.refresh()  # of the columns by their names of now, of which files have no other
    assert found("B = 6") == (1, 1)
    built = {each.name for each in table.describe().indexes if each.files}
    assert built >= {"B:bitmap", "`a.b`.y:minmax"}
    old = skipstone.Table(path, version=first)
    assert old.count("a = 5 AND b = -5 AND s.x = 5") == 1
    assert old.plan("a = 5", inside=False).files_kept == 1


def test_other_engines_get_what_they_read_by_names(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1, 2, a=[1, 2], b=[10, 20], s=pa.array([{"x": 1}, {"x": 2}])))
    for old, new in (("a", "c"), ("b", "a")):
        with made.update_schema() as change:
            change.rename_column(old, new)
    scan = skipstone.Table(folder(made)).scan()
    wanted = rows(made.scan().to_arrow())
    assert rows(scan.to_arrow()) == rows(scan.to_duckdb().to_arrow_table()) == wanted
    assert rows(scan.to_polars().collect().to_arrow()) == wanted
    with pytest.raises(UnsupportedError, match="calls the column"):
        scan.to_pyarrow()
    for old, new in (("s.x", "y"), ("c", "d")):
        with made.update_schema() as change:
            change.rename_column(old, new)
        scan = skipstone.Table(folder(made)).scan()
        for export in (scan.to_duckdb, scan.to_polars, scan.to_pyarrow):
            with pytest.raises(UnsupportedError, match="'s' or a field of it"):
                export()


def test_columns_that_differ_in_case(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1, B=[5]))
    with made.update_schema() as change:
        change.delete_column("B")
    assert_same(made)
    with made.update_schema() as change:
        change.add_column("b", LongType())
    assert_same(made, None, "b IS NULL")
    with made.update_schema() as change:
        change.add_column("B", LongType())
    made.append(ids(2, b=[6], B=[7]))
    assert_same(made)


def test_names_that_files_spell_otherwise(catalog: SqlCatalog) -> None:
    made = table_of(catalog, pa.table({"id": pa.array([1]), "a.b": [5], "ü x": ["y"]}))
    table = skipstone.Table(folder(made))
    table.build(indexes=["`a.b`:minmax"])
    assert_same(made)
    assert table.count("`a.b` = 5") == table.count("`ü x` = 'y'") == 1
    assert table.plan("`a.b` = 6").files_kept == 0


def test_files_without_ids(catalog: SqlCatalog) -> None:
    """Files that were made elsewhere have the ids of the table's mapping of names."""
    made = table_of(catalog, ids(1, text=["a"]))
    for at in (2, 3):
        path = f"{folder(made)}/data/{at}.parquet"
        pq.write_table(ids(at, text=["b"]), path)
        made.add_files([f"file://{path}"])
    table = skipstone.Table(folder(made))
    table.build(indexes=["text:bloom"])
    assert_same(made, None, "id = 2", "text = 'b'")
    with made.update_schema() as change:
        change.rename_column("text", "word")
    assert_same(made, None, "id = 2", "word = 'b'")
    assert table.plan("word = 'c'", inside=False).files_kept == 0
    with made.update_schema() as change:
        change.add_column("text", StringType())
    assert_same(made, None, "text IS NULL", "word = 'b'")


#: columns: their types, and a default as the metadata have it, as a value, and another value
_AT = dt.datetime(2026, 1, 31, 12, 0, 0, 1, dt.UTC)
OTHERS = {
    "day": (DateType(), "2026-01-31", dt.date(2026, 1, 31), dt.date(2027, 1, 1)),
    "at": (TimestamptzType(), "2026-01-31T12:00:00.000001+00:00", _AT, None),
    "local": (TimestampType(), "1969-12-31T23:59:59", dt.datetime(1969, 12, 31, 23, 59, 59), None),
    "price": (DecimalType(9, 2), "12.34", Decimal("12.34"), Decimal("-1.00")),
    "data": (BinaryType(), "01ff", b"\x01\xff", b""),
}


def test_values_of_columns_that_files_lack(catalog: SqlCatalog) -> None:
    """Defaults of version 3: files that lack a column have its value, also where another column
    had the name. (``pyiceberg`` does not write version 3.)"""
    made = table_of(catalog, ids(1, 2, x=["p", "q"]), ids(3, x=["r"]))
    skipstone.Table(folder(made)).build(indexes=["x:bloom", "x:minmax", "id:bloom"])
    with made.update_schema() as change:
        change.delete_column("x")
    added = {"x": StringType(), "n": LongType(), **{each: OTHERS[each][0] for each in OTHERS}}
    for name, type in added.items():
        with made.update_schema() as change:
            change.add_column(name, type)
    last = {each: [value] for each, (_, _, _, value) in OTHERS.items()}
    made.append(
        pa.table({"id": [4], "x": ["p"], "n": [None], **last}, schema=made.schema().as_arrow())
    )
    path = Path(made.metadata_location.removeprefix("file://"))
    stored = json.loads(path.read_text())
    for schema in stored["schemas"]:
        for each in schema["fields"]:
            if each["id"] > 2:
                other = {name: text for name, (_, text, _, _) in OTHERS.items()}
                each["initial-default"] = {"x": "new", "n": 5, **other}[each["name"]]
    path.write_text(json.dumps({**stored, "format-version": 3, "next-row-id": 0}))
    old = tuple(value for _, _, value, _ in OTHERS.values())
    model = [(at, "new", 5, *old) for at in (1, 2, 3)]
    model.append((4, "p", None, *(value for *_, value in OTHERS.values())))
    table = skipstone.Table(folder(made))
    for indexed in (False, True):
        if indexed:
            table.build(indexes=["n:minmax", "n:bitmap", "x:bloom", "day:minmax", "at:bitmap"])
        for where, holds in {
            "x = 'new'": {1, 2, 3},
            "x = 'p'": {4},
            "x = 'q'": set(),
            "n = 5": {1, 2, 3},
            "n > 5": set(),
            "n IS NULL": {4},
            "n IS NOT NULL AND id >= 2": {2, 3},
            "day = DATE'2026-01-31'": {1, 2, 3},
            "day > DATE'2026-01-31'": {4},
            "at = TIMESTAMP'2026-01-31 12:00:00.000001Z'": {1, 2, 3},
            "local < TIMESTAMP_NTZ'2026-01-01 00:00:00'": {1, 2, 3},
            "price = 12.34 AND id <> 2": {1, 3},
            "data = X'01FF'": {1, 2, 3},
        }.items():
            wanted = [row for row in model if row[0] in holds]
            found = table.query(where, order_by="id").to_pylist()
            assert [tuple(row.values()) for row in found] == wanted, where
            assert table.count(where) == len(wanted), where
        assert [tuple(row.values()) for row in table.query(order_by="id").to_pylist()] == model
        first = table.query(columns=["id"], order_by="n desc nulls last, id", limit=2)
        assert first.column("id").to_pylist() == [1, 2]
        assert (table.min("n"), table.max("n"), table.min("x")) == (5, 5, "new")
        with pytest.raises(UnsupportedError, match="'x' or a field of it"):
            table.scan().to_duckdb()
    assert table.plan("id = 3", inside=False).files_kept == 1


def test_a_table_of_version_1(catalog: SqlCatalog) -> None:
    """Its metadata need not have the schemas of the past, so the ids in the files decide."""
    history = History(catalog, 3, names=True, version=1)
    for _ in range(8):
        history.step()
    for each in history.table.snapshots():
        assert_same(history.table, each.snapshot_id, "id = 7")
