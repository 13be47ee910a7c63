"""Tables of Apache Iceberg in Spark, in a session that has no jar of Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import skipstone
from skipstone.errors import UnsupportedError
from tests.table_formats.delta_tables import rows
from tests.table_formats.iceberg_tables import (
    History,
    catalog,
    folder,
    ids,
    in_configuration,
    read,
    table_of,
)

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyspark.sql import SparkSession

__all__ = ["catalog"]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("indexed", [False, True])
def test_spark_reads_a_table_without_a_jar_of_iceberg(
    spark: SparkSession, catalog: SqlCatalog, indexed: bool
) -> None:
    """New and wider columns, partitions that changed, deleted rows; a frame keeps its snapshot."""
    history = History(catalog, 11, names=False)
    for step in (history.promote, history.add, history.partition, history.append):
        step()
    for _ in range(3):
        history.delete_positions()
        history.append()
    made = history.table
    table = skipstone.Table(folder(made))
    if indexed:
        table.build(spark, indexes=["id:bloom", "amount:minmax"])
    frame = table.read(spark)
    expected = read(made)
    assert frame.columns == [each.name for each in made.schema().fields]
    for where in ("id = 7", "amount > 50", "day IS NULL", "hash(id) % 2 = 0"):
        wanted = sorted(map(repr, frame.where(where).collect()))
        assert sorted(map(repr, table.read(spark, where).collect())) == wanted, where
    history.append()
    found = pa.Table.from_pylist([row.asDict() for row in frame.collect()])
    assert rows(found) == expected
    assert table.read(spark).count() > len(expected)
    name = f"iceberg:{made.metadata_location}"
    assert skipstone.Table(name).read(spark).count() == len(read(made))
    first = made.snapshots()[0].snapshot_id
    reader = spark.read.format("skipstone").option("version", first)
    assert reader.load(folder(made)).count() == len(read(made, first))


def test_columns_that_change_without_a_snapshot(spark: SparkSession, catalog: SqlCatalog) -> None:
    """Two swap their names after the last commit; and a table that has none yet. A frame keeps the
    columns of its call."""
    made = table_of(catalog, ids(*range(20), a=["x"] * 20, b=["y"] * 20))
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        with made.update_schema() as change:
            change.rename_column(old, new)
    table = skipstone.Table(folder(made))
    frame = table.read(spark)
    made.append(ids(20, b=["z"], a=["z"]))
    with made.update_schema() as change:
        change.rename_column("a", "d")
    wanted = [{"id": 3, "b": "x", "a": "y"}]
    for where in ("id = 3", "hash(id) = hash(3L)", "a = 'y' AND id = 3"):
        assert [row.asDict() for row in frame.where(where).collect()] == wanted
    assert frame.count() == 20
    assert [row.d for row in table.read(spark, "hash(id) = hash(3L)").collect()] == ["y"]
    empty = catalog.create_table("db.empty", made.schema())
    assert skipstone.Table(folder(empty)).read(spark).collect() == []
    assert skipstone.Table(folder(empty)).read(spark, "hash(id) = hash(3L)").collect() == []


@pytest.mark.parametrize("named", [False, True])
def test_a_watch_follows_commits(
    spark: SparkSession, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """By the directory, and by the name in a catalog: new files, and deletes, which add no file."""
    made = table_of(catalog, ids(*range(10)), ids(*range(10, 20)))
    name = in_configuration(catalog, monkeypatch) if named else folder(made)
    table = skipstone.Table(name)
    table.build(spark, indexes=["id:bloom"])
    with skipstone.watch(spark, name, interval=0.2) as watching:
        for at in (20, 30):
            made.append(ids(*range(at, at + 10)))
            made.delete(f"id = {at - 20}")
            while table.plan(f"id = {at}").facts_missing:
                assert watching.isActive
                watching.awaitTermination(1)
        assert watching.last_error is None
    assert table.plan("id = 31").files_kept == 1
    assert table.count() == 38
    first = skipstone.Table(name, version=made.snapshots()[0].snapshot_id)
    with pytest.raises(UnsupportedError, match="newest"):
        skipstone.watch(spark, first)


def test_a_watch_of_a_server_of_connect(spark_connect: SparkSession, catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(*range(10)))
    table = skipstone.Table(folder(made))
    table.build(indexes=["id:bloom"])
    made.append(ids(*range(10, 20)))
    with skipstone.watch(spark_connect, table, interval=0.2) as watching:
        while table.plan("id = 11").facts_missing:
            assert watching.isActive
            watching.awaitTermination(1)
    assert table.plan("id = 11").files_kept == 1
