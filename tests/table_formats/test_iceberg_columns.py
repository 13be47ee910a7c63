"""Columns of tables of Apache Iceberg: new ones, wider ones, and names that meant others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import (
    LongType,
    StringType,
)

import skipstone
from tests.table_formats.iceberg_tables import (
    History,
    assert_same,
    catalog,
    folder,
    ids,
    refused,
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
    assert assert_same(made, None, "text is null", "text = 'x'", "inner.b = 'y'")
    assert table.query().column_names == ["text", "id", "inner"]


def test_schemas_that_the_metadata_have_lost(catalog: SqlCatalog) -> None:
    """A column was renamed and named back, and an upkeep dropped the schema between."""
    made = table_of(catalog, ids(1, a=[1]))
    for old, new in (("a", "b"), ("b", "a")):
        with made.update_schema() as change:
            change.rename_column(old, new)
        made.append(ids(2, **{new: [2]}))
    assert refused(skipstone.Table(folder(made)))
    path = Path(made.metadata_location.removeprefix("file://"))
    stored = json.loads(path.read_text())
    stored["schemas"] = [each for each in stored["schemas"] if each["schema-id"] == 0]
    for each in stored["snapshots"]:
        each["schema-id"] = 0
    path.write_text(json.dumps({**stored, "current-schema-id": 0}))
    assert refused(skipstone.Table(folder(made)))


@pytest.mark.parametrize("indexed", [False, True])
def test_a_column_under_the_name_of_another_is_never_read(
    catalog: SqlCatalog, indexed: bool
) -> None:
    """Dropped and added again, renamed, or swapped: refused until the files are rewritten; older
    snapshots keep their own names."""
    made = table_of(catalog, ids(1, 2, a=[1, 2], b=[10, 20], inner=pa.array([{"x": 1}, {"x": 2}])))
    path, first = folder(made), made.snapshots()[0].snapshot_id
    table = skipstone.Table(path)
    if indexed:
        table.build(indexes=["a:minmax", "b:bloom"])

    def aside(change: Any) -> None:
        change.rename_column("a", "c")

    def over(change: Any) -> None:
        change.rename_column("b", "a")

    def back(change: Any) -> None:
        change.rename_column("c", "b")

    def add_again(change: Any) -> None:
        change.delete_column("a")

    def again(change: Any) -> None:
        change.add_column("a", LongType())

    def inside(change: Any) -> None:
        change.rename_column("inner.x", "y")

    def case(change: Any) -> None:
        change.rename_column("a", "A")

    for changes in ([aside, over, back], [add_again, again], [inside], [case]):
        for each in changes:
            with made.update_schema() as change:
                each(change)
        assert refused(table), changes
        assert skipstone.Table(path, version=first).count("a = 2 AND b = 20") == 1
        made.overwrite(made.scan().to_arrow())
        assert not refused(table)
        assert assert_same(made, None, "id = 2")
    if indexed:
        table.refresh()
    assert assert_same(made, None, "id = 2", "inner.y = 2")


def test_a_dropped_column_that_differs_in_case_is_not_read(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1, B=[5]))
    with made.update_schema() as change:
        change.delete_column("B")
    assert assert_same(made)
    with made.update_schema() as change:
        change.add_column("b", LongType())
    assert refused(skipstone.Table(folder(made)))


def test_files_without_ids(catalog: SqlCatalog) -> None:
    """Files that were made elsewhere have the ids of the table's mapping of names."""
    made = table_of(catalog, ids(1, text=["a"]))
    for at in (2, 3):
        path = f"{folder(made)}/data/{at}.parquet"
        pq.write_table(ids(at, text=["b"]), path)
        made.add_files([f"file://{path}"])
    assert assert_same(made, None, "id = 2", "text = 'b'")
    with made.update_schema() as change:
        change.rename_column("text", "word")
    assert refused(skipstone.Table(folder(made)))
    made.overwrite(made.scan().to_arrow())
    assert assert_same(made, None, "word = 'b'")


def test_a_table_of_version_1(catalog: SqlCatalog) -> None:
    """Its metadata need not have the schemas of the past, so the ids in the files decide."""
    history = History(catalog, 3, names=True, version=1)
    for _ in range(8):
        history.step()
    for each in history.table.snapshots():
        assert_same(history.table, each.snapshot_id, "id = 7")
