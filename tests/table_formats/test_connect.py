"""Tables of table formats under Spark Connect, whose server has no jar of a format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import skipstone
from skipstone.errors import UnsupportedError
from tests.table_formats.delta_tables import engine_table, rows
from tests.table_formats.iceberg_tables import History, catalog, folder, read
from tests.table_formats.test_delta_spark import ids, made

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog.sql import SqlCatalog
    from pyspark.sql import SparkSession

__all__ = ["catalog"]

pytestmark = pytest.mark.spark


def loaded(spark: SparkSession, path: str, **options: str) -> list[int]:
    """The ids that ``format("skipstone")`` reads."""
    return ids(spark.read.format("skipstone").options(**options).load(path))


def test_delta(spark_connect: SparkSession, tmp_path: Path) -> None:
    """Rows read ahead, pages of workers, what only Spark decides, keys, orders and versions; rows
    of deletion vectors are in none."""
    spark, path = spark_connect, made(tmp_path)
    table = skipstone.Table(path)
    table.build(indexes=["id:bloom", "x:minmax"])
    left = ids(engine_table(path))
    frame = table.read(spark)
    assert frame.columns == ["kind", "id", "x"]
    assert ids(frame) == loaded(spark, path) == left
    ways: dict[str, list[int]] = {
        f"id = {left[7]}": left[7:8],
        "id = 10000": [],
        "x >= 100": [each for each in left if each >= 200],
        "kind IS NULL AND id < 50": [each for each in left if each < 50 and not each % 2],
        "hash(id) = hash(id) AND kind RLIKE 'a.b'": [each for each in left if each % 2],
    }
    for where, wanted in ways.items():
        assert ids(table.read(spark, where)) == wanted, where
    assert loaded(spark, path, where="x >= 100") == [each for each in left if each >= 200]
    first = table.read(spark, columns=["id"], order_by="id desc", limit=7)
    assert [row.id for row in first.collect()] == left[::-1][:7]
    asked: Any = {"id": [left[3], left[4], 10**9]}
    assert ids(table.read(spark, keys=asked)) == left[3:5]
    write_deltalake(path, pa.table({"kind": ["a b"], "id": [9_999], "x": [0.5]}), mode="append")
    assert ids(frame) == left
    assert ids(table.read(spark, "id >= 0")) == [*left, 9_999]
    assert loaded(spark, path, version="0") == list(range(1_000))
    with pytest.raises(UnsupportedError, match="skip"):
        skipstone.skip(frame)


def test_iceberg(spark_connect: SparkSession, catalog: SqlCatalog) -> None:
    """New and wider columns, partitions that changed, deleted rows; by directory and by name."""
    spark, history = spark_connect, History(catalog, 11, names=False)
    for step in (history.promote, history.add, history.partition, history.append):
        step()
    for _ in range(3):
        history.delete_positions()
        history.append()
    iceberg = history.table
    table = skipstone.Table(folder(iceberg))
    table.build(indexes=["id:bloom", "amount:minmax"])
    frame, expected = table.read(spark), read(iceberg)
    assert frame.columns == [each.name for each in iceberg.schema().fields]

    def found(frame: Any) -> list[str]:
        """The rows, as lists of ``rows``; an empty result has columns, too."""
        return rows(pa.Table.from_pylist([row.asDict() for row in frame.collect()]))

    for where in ("id = 7", "id >= 0", "amount > 50", "day IS NULL", "hash(id) % 2 = 0"):
        assert found(table.read(spark, where)) == found(frame.where(where)), where
    history.append()
    assert found(frame) == expected
    named = skipstone.Table(f"iceberg:{iceberg.metadata_location}")
    assert found(named.read(spark)) == read(iceberg)
    first = iceberg.snapshots()[0].snapshot_id
    assert loaded(spark, folder(iceberg), version=str(first)) == ids(
        iceberg.scan(snapshot_id=first).to_arrow()
    )
