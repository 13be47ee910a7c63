"""Index data that one DataFrame has read is cached for the next one, and never outdated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.facts import Store
from skipstone.facts.xskipper_store import XskipperStore
from skipstone.spark.facts import StoreCache, store_cache

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def write(path: Path, number: int) -> None:
    pq.write_table(pa.table({"id": np.arange(10) + 10 * number}), path)
    os.utime(path, (1_600_000_000 + number,) * 2)


@pytest.fixture
def table(tmp_path: Path) -> skipstone.Table:
    """Four files of ten ids each: file i has 10 i to 10 i + 9."""
    (tmp_path / "t").mkdir()
    for number in range(4):
        write(tmp_path / "t" / f"{number}.parquet", number)
    table = skipstone.Table(str(tmp_path / "t"))
    table.build(indexes=["id:minmax"])
    return table


def read(table: skipstone.Table) -> Store:
    """A store of the table's facts that has read the columns about `id`."""
    store = skipstone.Table(table.path).store
    store.snapshot().match(table.listing()).evidence({"id"})
    assert store.nbytes > 0
    return store


def test_the_store_of_a_place_is_kept(table: skipstone.Table) -> None:
    kept = StoreCache()
    first = kept.kept(read(table))
    assert kept.kept(skipstone.Table(table.path).store) is first


def test_the_one_used_longest_ago_goes_first(tmp_path: Path) -> None:
    kept = StoreCache(most=2)
    a, b, c = (Store.of_table(str(tmp_path / name)) for name in "abc")
    for store in (a, b, a, c):
        assert kept.kept(store) is store
    assert kept.kept(Store.of_table(str(tmp_path / "a"))) is a
    assert kept.kept(Store.of_table(str(tmp_path / "b"))) is not b
    assert len(kept) == 2


def test_no_more_bytes_are_kept_than_allowed(table: skipstone.Table, tmp_path: Path) -> None:
    kept = StoreCache(limit=1)
    first = kept.kept(read(table))
    assert kept.kept(skipstone.Table(table.path).store) is first, "the only one is in use"
    kept.kept(Store.of_table(str(tmp_path / "other")))
    assert len(kept) == 1
    assert kept.kept(skipstone.Table(table.path).store) is not first


def test_a_foreign_store_is_not_kept(table: skipstone.Table) -> None:
    kept = StoreCache()
    foreign = XskipperStore(table.store.location, table.store.storage)
    assert kept.kept(foreign) is foreign
    assert len(kept) == 0


@pytest.mark.spark
def test_a_second_frame_reads_no_facts_again(spark: SparkSession, table: skipstone.Table) -> None:
    def files(where: str) -> int:
        df = skipstone.skip(spark.read.parquet(table.path)).where(where)
        rows = df.collect()
        scan = skipstone.last_scan(spark)
        assert rows == spark.read.parquet(table.path).where(where).collect()
        return int(scan.files_kept)

    assert files("id = 25") == 1
    store = store_cache(spark).kept(skipstone.Table(table.path).store)
    held = store.snapshot()
    assert held.nbytes > 0
    assert files("id >= 25") == 2
    assert store.snapshot() is held
    # A refresh, a drop and a build anew are seen by the very next frame.
    write(tmp := table_path(table, "4.parquet"), 4)
    assert files("id >= 45") == 1
    table.refresh()
    assert files("id = 25") == 1
    tmp.unlink()
    assert files("id >= 25") == 2
    table.drop()
    assert skipstone.skip(spark.read.parquet(table.path)).where("id = 25").count() == 1
    table.build(indexes=["id:valuelist"])
    assert files("id = 25") == 1


def table_path(table: skipstone.Table, name: str) -> Path:
    from pathlib import Path

    return Path(table.path) / name
