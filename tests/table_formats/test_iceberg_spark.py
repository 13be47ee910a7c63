"""Tables of Apache Iceberg with merge on read: position deletes and deletion vectors of Spark."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import skipstone
from skipstone.errors import UnsupportedError
from tests.folders import ROOT
from tests.interop.java_systems import all_jars
from tests.java import options_of
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
    from pathlib import Path

    from pyiceberg.catalog.sql import SqlCatalog
    from pyspark.sql import SparkSession

__all__ = ["catalog"]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of ``iceberg_spark``, with their rows as Spark reads them."""
    spark = ROOT / ".venv-spark4.1"
    python = spark / "bin" / "python"
    if not python.exists():
        pytest.skip("no environment with PySpark 4.1: `make long` makes it")
    jars = ",".join(map(str, all_jars("iceberg.xml")))
    home = tmp_path_factory.mktemp("iceberg")
    done = subprocess.run(
        [python, "-m", "tests.table_formats.iceberg_spark", home, jars],
        cwd=ROOT,
        env={
            **os.environ,
            **options_of(spark),
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": str(python),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return home


def text(table: Any) -> list[str]:
    """The rows as ``rows.json`` has them."""
    found = []
    for row in table.to_pylist():
        inner = row["s"] or {"n": None, "t": None}
        found.append(repr([row["id"], row["k"], row["d"], inner["n"], inner["t"]]))
    return sorted(found)


@pytest.mark.long
def test_every_snapshot_has_the_rows_of_spark(written: Path) -> None:
    """With and without an index, of tables of version 2 and 3, partitioned in several ways."""
    stored = json.loads((written / "rows.json").read_text())
    deleted = 0
    for name, by_snapshot in stored.items():
        path = str(written / "db" / name)
        for indexes in ([], ["id:bloom", "id:minmax", "s.t:bloom", "d:minmax"]):
            if indexes:
                skipstone.Table(path).build(indexes=indexes)
            for version, expected in by_snapshot.items():
                table = skipstone.Table(path, version=version)
                assert text(table.query()) == expected
                assert table.count() == len(expected)
                held = [int(row[1:].split(",")[0]) for row in expected]
                assert (table.min("id"), table.max("id")) == (min(held), max(held))
                for id in (3, 17, 44, 61):
                    assert table.count(f"id = {id}") == held.count(id)
                nan = sum(", nan, " in row for row in expected)
                assert table.count("s.n > 1e300") == nan
                news = [row for row in expected if row.endswith("'new']")]
                assert text(table.query("s.t = 'new'")) == news
                deleted += "deleted row" in str(table.describe())
    assert deleted > 10


@pytest.mark.long
def test_statistics_inside_structs_prune(written: Path) -> None:
    table = skipstone.Table(written / "db" / "t1")
    assert table.plan("s.t < 'a long'").files_kept == 0
    assert table.plan("d < DATE'2025-01-01'").files_kept == 0
    assert "Apache Iceberg" in str(table.explain("s.t < 'a long'"))


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
