"""Tables with a ``_txn`` through Spark: the rows of the snapshot, whatever else lies there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from skipstone import last_scan
from skipstone.errors import UnsupportedError
from skipstone.questdb import txn_snapshot
from skipstone.table import Table, explain
from tests.spark.since import since
from tests.txn_tables import DAY, SCHEMA, TxnFolder, appended, micros, rows_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

MONDAY = micros(2024, 1, 1)


def ids(df: DataFrame) -> list[int]:
    return sorted(row.id for row in df.select("id").collect())


@pytest.fixture
def table(tmp_path: Path) -> TxnFolder:
    """Three days of ten ids; a directory that nobody names any more, and files of others."""
    made = TxnFolder(tmp_path / "é b%20[x]" / "trades")
    for at in range(3):
        start = MONDAY + at * DAY
        made.add(start, rows_at(start, range(10 * at, 10 * at + 10)), name_txn=at - 1)
    made.commit()
    stray = made.root / "2024-01-02.7"
    stray.mkdir()
    (stray / "data.parquet").write_bytes(made.data(1).read_bytes())
    (made.root / "_meta").write_bytes(b"\0" * 32)
    return made


def test_the_snapshot_and_nothing_else(spark: SparkSession, table: TxnFolder) -> None:
    df = Table(str(table.root)).read(spark)
    assert df.columns == SCHEMA.names
    assert ids(df) == list(range(30))
    assert df.where("city is null").count() == 3


def test_days_are_skipped_by_their_names_and_files_by_their_row_groups(
    spark: SparkSession, table: TxnFolder
) -> None:
    df = Table(str(table.root)).read(spark).where("ts >= timestamp'2024-01-02 00:00:00Z'")
    assert ids(df) == list(range(10, 30))
    scans = last_scan(spark)
    assert (scans.files_kept, scans.files_total) == (2, 3)
    assert "ts  partition  3 -> 2 files" in str(scans)
    assert ids(Table(str(table.root)).read(spark, "ts = timestamp'2025-01-01'")) == []
    assert last_scan(spark).files_kept == 0


def test_facts_of_the_table_are_used(spark: SparkSession, table: TxnFolder) -> None:
    opened = Table(str(table.root))
    assert opened.build(spark, ["id:minmax"]).files_built == 3
    df = opened.read(spark, "id = 17")
    assert ids(df) == [17]
    assert (last_scan(spark).files_kept, last_scan(spark).files_total) == (1, 3)
    # Two partitions are as they were; one is another file now.
    table.grow(2, rows_at(MONDAY + 2 * DAY, range(30, 40)))
    table.commit()
    assert ids(opened.read(spark, "id = 35")) == [35]
    assert last_scan(spark).files_kept == 1
    report = opened.refresh(spark)
    assert (report.files_built, report.files_already) == (1, 2)


def test_a_dataframe_stays_with_its_snapshot(spark: SparkSession, table: TxnFolder) -> None:
    df = Table(str(table.root)).read(spark)
    table.grow(0, rows_at(MONDAY + DAY // 2, range(100, 150)))
    assert ids(df) == list(range(30))
    table.commit()
    assert ids(df) == list(range(30))
    assert ids(df.where("id >= 0")) == list(range(30))
    newer = Table(str(table.root)).read(spark)
    assert ids(newer) == [*range(30), *range(100, 150)]
    assert ids(newer.where("id >= 100")) == list(range(100, 150))


def test_a_file_that_is_longer_when_it_is_opened(spark: SparkSession, table: TxnFolder) -> None:
    table.grow(0, rows_at(MONDAY + DAY // 2, range(100, 150)))
    assert ids(Table(str(table.root)).read(spark)) == list(range(30))


def test_an_append_that_is_being_written_is_waited_for(
    spark: SparkSession, table: TxnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(txn_snapshot, "_PATIENCE", 0.0)
    df = Table(str(table.root)).read(spark)
    before = table.data(0).read_bytes()
    table.data(0).write_bytes(before + bytes(50))
    with pytest.raises(Exception, match="has no footer at its end"):
        df.count()
    table.data(0).write_bytes(before)
    assert df.count() == 30


def test_a_row_group_that_was_replaced_is_not_lost_without_a_word(
    spark: SparkSession, table: TxnFolder
) -> None:
    df = Table(str(table.root)).read(spark)
    other = appended(table.data(0).read_bytes(), rows_at(MONDAY, range(5)))
    from tests.questdb.test_txn_snapshot import replaced_footer

    table.data(0).write_bytes(other + replaced_footer(other))
    with pytest.raises(Exception, match="were replaced since"):
        df.count()


def test_partial_says_so(spark: SparkSession, table: TxnFolder) -> None:
    start = MONDAY + 3 * DAY
    table.add(start, rows_at(start, range(30, 35)), parquet=False)
    table.commit()
    with pytest.raises(UnsupportedError, match="partition 2024-01-04 of"):
        Table(str(table.root)).read(spark)
    opened = Table(str(table.root), partial=True)
    df = opened.read(spark)
    assert ids(df) == list(range(30))
    assert "these are 3 of 4 partitions" in str(last_scan(spark))
    assert ids(df.where("id < 12")) == list(range(12))
    assert "3 of 4 partitions" in str(last_scan(spark))
    assert "3 of 4 partitions" in str(explain(df.where("id < 12")))


@since(4, 0, "reading INT32 as bigint")
def test_columns_that_came_and_went(spark: SparkSession, tmp_path: Path) -> None:
    # `city` is dropped and `price` added on the second day, where `id` is wider.
    table = TxnFolder(tmp_path / "t")
    table.add(MONDAY, rows_at(MONDAY, range(3)).cast(SCHEMA.set(1, pa.field("id", pa.int32()))))
    late = rows_at(MONDAY + DAY, range(3, 6)).drop(["city"])
    table.add(MONDAY + DAY, late.append_column("price", pa.array([1.5, None, 2.5])))
    table.commit()
    opened = Table(str(table.root))
    rows = opened.read(spark, "price > 2 or city = 'c1'").collect()
    assert sorted(row.id for row in rows) == [1, 5]
    assert ids(opened.read(spark, "price is null")) == [0, 1, 2, 4]
    assert ids(opened.read(spark, "id = 4")) == [4]


def test_connect_reads_the_snapshot_or_says_why_not(
    spark_connect: SparkSession, table: TxnFolder
) -> None:
    opened = Table(str(table.root))
    assert ids(opened.read(spark_connect)) == list(range(30))
    assert ids(opened.read(spark_connect, "ts >= timestamp'2024-01-02 00:00:00Z'")) == list(
        range(10, 30)
    )
    table.grow(0, rows_at(MONDAY + DAY // 2, range(100, 150)))
    with pytest.raises(UnsupportedError, match="is longer than its snapshot"):
        opened.read(spark_connect)
    table.commit()
    assert ids(opened.read(spark_connect, "id >= 100")) == list(range(100, 150))
