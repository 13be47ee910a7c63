"""Tables of Delta Lake in Spark, in a session that has no jar of Delta."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import skipstone
from skipstone.errors import UnsupportedError
from tests.s3 import S3, s3, s3_server
from tests.table_formats.delta_tables import delete_by_vectors, engine_table
from tests.table_formats.make_golden import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["s3", "s3_server"]

pytestmark = pytest.mark.spark


def ids(frame: DataFrame | pa.Table) -> list[int]:
    if isinstance(frame, pa.Table):
        return sorted(frame["id"].to_pylist())
    return sorted(row.id for row in frame.select("id").collect())


def made(folder: Path) -> str:
    """Eight files of 500 rows in two partitions, some of whose rows are deleted."""
    path = str(folder / "t")
    vectors = {"delta.enableDeletionVectors": "true"}
    for at in range(4):
        numbers = list(range(at * 1_000, at * 1_000 + 1_000))
        kinds = ["a b" if each % 2 else None for each in numbers]
        data = pa.table({"kind": kinds, "id": numbers, "x": [each / 2 for each in numbers]})
        write_deltalake(path, data, mode="append", partition_by=["kind"], configuration=vectors)
    delete_by_vectors(path, 0.2, random.Random(1))
    return path


@pytest.mark.parametrize("indexed", [False, True])
def test_every_way_has_the_rows_of_the_snapshot(
    spark: SparkSession, tmp_path: Path, indexed: bool
) -> None:
    """Rows read ahead, pages, and predicates, orders and keys that only Spark decides."""
    path = made(tmp_path)
    table = skipstone.Table(path)
    if indexed:
        table.build(spark, indexes=["id:bloom", "x:minmax"])
    left = ids(engine_table(path))
    assert ids(table.read(spark)) == left
    assert table.read(spark).columns == ["kind", "id", "x"]
    ways: dict[str, list[int]] = {
        "id = 1234": [each for each in left if each == 1_234],
        "x >= 1900": [each for each in left if each >= 3_800],
        "kind IS NULL AND id < 50": [each for each in left if each < 50 and not each % 2],
        "hash(id) % 2 = 0 AND id < 0": [],
        "kind RLIKE 'a.b' AND id < 99": [each for each in left if each < 99 and each % 2],
    }
    for where, wanted in ways.items():
        assert ids(table.read(spark, where)) == wanted, where
        assert table.read(spark, where).count() == len(wanted)
    first = table.read(spark, columns=["id"], order_by="id desc", limit=7)
    assert [row.id for row in first.collect()] == left[::-1][:7]
    asked: Any = {"id": [left[3], left[4], 10**9]}
    assert ids(table.read(spark, keys=asked)) == left[3:5]


def test_a_table_with_column_mapping(spark: SparkSession, tmp_path: Path) -> None:
    """Workers find columns by the names that the files have."""
    shutil.copytree(GOLDEN / "mapped", tmp_path / "mapped")
    table = skipstone.Table(tmp_path / "mapped")
    table.build(spark, indexes=["title:bloom", "s.aa:minmax"])
    every = engine_table(str(tmp_path / "mapped")).to_pylist()
    ways: dict[str, list[int]] = {
        "title = 't44'": [44],
        "s.aa = 7 OR name = 'x22'": [7, 22],
        "hash(title) <> 0 AND s.b = 'b41' AND folder = 'p0'": [41],
    }
    for where, wanted in ways.items():
        assert ids(table.read(spark, where)) == wanted, where
    load = spark.read.format("skipstone").load(str(tmp_path / "mapped"))
    for frame in (table.read(spark), load):
        found = sorted((row.asDict(recursive=True) for row in frame.collect()), key=str)
        assert found == sorted(every, key=str)


def test_a_dataframe_keeps_to_its_version(spark: SparkSession, tmp_path: Path) -> None:
    path = made(tmp_path)
    table = skipstone.Table(path)
    every, some = table.read(spark), table.read(spark, "id < 900")
    before = every.count(), some.count()
    write_deltalake(path, pa.table({"kind": ["a b"], "id": [1], "x": [0.5]}), mode="append")
    assert (every.count(), some.count()) == before
    assert table.read(spark, "id < 900").count() == before[1] + 1
    options: tuple[tuple[dict[str, str], int], ...] = (
        ({}, before[0] + 1),
        ({"version": "0"}, 1_000),
        ({"timestamp": "2999-01-01"}, before[0] + 1),
    )
    for given, rows in options:
        assert spark.read.format("skipstone").options(**given).load(path).count() == rows


def test_options_of_the_reader_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="options of Spark's reader"):
        skipstone.Table(made(tmp_path)).read(spark, mergeSchema="true")


def test_a_watch_follows_commits(spark: SparkSession, tmp_path: Path) -> None:
    path = made(tmp_path)
    table = skipstone.Table(path)
    table.build(spark, indexes=["id:bloom"])
    write_deltalake(path, pa.table({"kind": ["a b"], "id": [1], "x": [0.5]}), mode="append")
    with skipstone.watch(spark, table, interval=0.2) as watching:
        while table.plan("id = 1").facts_missing:
            assert watching.isActive
            watching.awaitTermination(1)
        assert watching.last_error is None
    with pytest.raises(UnsupportedError, match="newest"):
        skipstone.watch(spark, skipstone.Table(path, version=0))


def test_workers_get_the_options_of_a_store_that_are_no_secret(
    spark: SparkSession, s3: S3, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    for day in range(3):
        write_deltalake(path, pa.table({"id": [day * 10, day * 10 + 1]}), mode="append")
    s3.upload(tmp_path / "t", "t")
    s3.client.put_bucket_acl(Bucket=s3.bucket, ACL="public-read")
    for key in s3.keys("t"):
        s3.client.put_object_acl(Bucket=s3.bucket, Key=key, ACL="public-read")
    told = {"endpoint": s3.options["endpoint"], "region": "us-east-1", "skip_signature": "true"}
    table = skipstone.Table(f"{s3.base}/t", storage_options=told)
    frame = table.read(spark, "id >= 10 or id % 7 = 0")
    assert sorted(row.id for row in frame.collect()) == [0, 10, 11, 20, 21]
    with pytest.raises(UnsupportedError, match=r"would show .*: access_key_id, secret_access_key"):
        skipstone.Table(f"{s3.base}/t", storage_options=s3.options).read(spark)
