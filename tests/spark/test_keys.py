"""``Table.read(keys=…)``: the rows of a left semi join, from the files that may hold a key."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import PredicateError
from skipstone.pruning import costs as cost
from skipstone.spark.session import is_connect, set_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def content(number: int) -> pa.Table:
    ids = np.arange(100) + 100 * number
    return pa.table(
        {
            "id": ids,
            "user": [f"u-{n:03}" for n in ids.tolist()],
            "x": pa.array([None if n % 10 == 9 else n % 7 / 2 for n in ids.tolist()]),
            "day": pa.array((ids // 50).astype(np.int32), pa.date32()),
            "price": pa.array([Decimal(n) for n in ids.tolist()], pa.decimal128(9, 2)),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> skipstone.Table:
    root = tmp_path_factory.mktemp("keys") / "t é%"
    root.mkdir()
    for number in range(8):
        pq.write_table(content(number), root / f"{number}.parquet")
    made = skipstone.Table(str(root))
    made.build(indexes=["id:minmax", "user:bloom", "day:valuelist", "x:valuelist"])
    return made


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def kept(session: SparkSession) -> int | None:
    """Files of the last scan; not known under Connect."""
    return None if is_connect(session) else skipstone.last_scan(session).files_kept


def test_a_column_of_a_dataframe(session: SparkSession, table: skipstone.Table) -> None:
    keys = session.createDataFrame([("u-003",), ("u-250",), (None,), ("u-003",)], ["user"])
    found = table.read(session, keys=keys)
    assert found.columns == content(0).column_names
    assert ids(found) == [3, 250]
    assert kept(session) in (2, 3, None)
    assert ids(table.read(session, "id < 100", keys=keys)) == [3]
    best = table.read(session, keys=keys, columns=["id"], order_by="id desc", limit=1)
    assert [row.id for row in best.collect()] == [250]
    assert ids(table.read(session, keys=keys.where("user = 'none'"))) == []
    assert ids(table.read(session, keys=keys.selectExpr("user AS USER"))) == [3, 250]
    assert ids(skipstone.read(session, table.path, "id > 9", keys=keys)) == [250]


def test_the_columns_of_a_dataframe_are_one_key(
    session: SparkSession, table: skipstone.Table
) -> None:
    keys = session.createDataFrame([(3, "u-003"), (4, "u-005"), (250, None)], ["id", "user"])
    assert ids(table.read(session, keys=keys)) == [3]
    if not is_connect(session):
        assert kept(session) == 1
        assert "id IN (3 keys) AND user IN (3 keys)" in str(skipstone.last_scan(session))


def test_arrays_are_those_of_a_query(session: SparkSession, table: skipstone.Table) -> None:
    for keys in (
        {"id": [5, 250, None, 10**12]},
        {"id": np.array([5, 250], np.uint64)},
        {"id": pa.array(["5", "250"])},
        {"user": pa.array(["u-005", "u-250", "x"]).dictionary_encode()},
        {"user": ["u-005", "u-250", "u-300"], "day": [date(1970, 1, 1), date(1970, 1, 6)]},
        {"price": [Decimal("5.00"), Decimal("250.000")]},
    ):
        assert ids(table.read(session, keys=keys)) == [5, 250], keys
        assert sorted(table.query(keys=keys).column("id").to_pylist()) == [5, 250], keys


def test_values_are_equal_as_in_spark(session: SparkSession, table: skipstone.Table) -> None:
    keys = session.createDataFrame([(-0.0,), (float("nan"),), (1.5,)], ["x"])
    plain = session.read.parquet(table.path).join(keys, "x", "left_semi")
    assert ids(table.read(session, keys=keys)) == ids(plain)
    assert len(ids(plain)) > 100
    narrow = keys.selectExpr("CAST(x AS float) AS x")
    assert ids(table.read(session, keys=narrow)) == ids(plain)
    days = session.createDataFrame([("1970-01-02",), ("1970-1-3",)], ["day"])
    assert ids(table.read(session, keys=days)) == list(range(50, 150))
    doubles = session.createDataFrame([(3.0,), (250.5,)], ["id"])
    assert ids(table.read(session, keys=doubles)) == [3]


def test_rows_are_read_ahead(session: SparkSession, table: skipstone.Table) -> None:
    with pytest.MonkeyPatch.context() as patch:
        small = {"worth": 0.0}
        patch.setattr("skipstone.spark.read_choice.SPARK", _with(small))
        keys = session.createDataFrame([(3,), (250,)], ["id"])
        found = table.read(session, "user > 'u-1'", keys=keys)
        assert ids(found) == [250]


def _with(values: dict[str, float]) -> Any:
    from dataclasses import replace

    return replace(cost.SPARK, **values)  # type: ignore[arg-type]


def test_scans_for_other_keys_are_other_scans(spark: SparkSession, table: skipstone.Table) -> None:
    """Spark reuses the shuffle of a scan for an equal one: these read other files."""
    settings = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    with set_to(spark, settings):
        frames = [
            table.read(spark, keys=spark.createDataFrame([(n, f"u-{n:03}")], ["id", "user"]))
            for n in (5, 405, 705)
        ]
        both = frames[0].union(frames[1]).union(frames[2])
        assert ids(both) == [5, 405, 705]
        assert ids(frames[0].cache().union(frames[1])) == [5, 405]
        assert ids(frames[0].join(frames[0].select("user"), "user")) == [5]
        frames[0].unpersist()


def test_keys_that_change_are_collected_once(session: SparkSession, table: skipstone.Table) -> None:
    """Rows and files are chosen by the same keys."""
    drawn = session.range(200).selectExpr("CAST(rand() * 800 AS int) AS id")
    found = table.read(session, keys=drawn)
    first = ids(found)
    assert len(first) > 50
    assert ids(found) == first


def test_too_many_keys_are_joined_as_they_are(
    session: SparkSession, table: skipstone.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.table.spark_keys.MOST_KEYS", 3)
    assert ids(table.read(session, keys=session.range(2, 5))) == [2, 3, 4]
    assert ids(table.read(session, keys=session.range(2, 6))) == [2, 3, 4, 5]
    if not is_connect(session):
        assert "keys)" not in str(skipstone.last_scan(session))


def test_what_is_wrong_is_said(session: SparkSession, table: skipstone.Table) -> None:
    with pytest.raises(PredicateError, match="no column usr, which the keys name"):
        table.read(session, keys=session.createDataFrame([("a",)], ["usr"]))
    with pytest.raises(PredicateError, match="keys have the columns id, ID"):
        table.read(session, keys=session.range(3).selectExpr("id", "id AS ID"))
    with pytest.raises(PredicateError, match="keys names no column"):
        table.read(session, keys={})


def test_a_join_of_other_meaning_prunes_nothing(
    spark: SparkSession, table: skipstone.Table
) -> None:
    """Without ANSI mode a text is compared with a number as a number."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        keys = spark.createDataFrame([("5",), ("250.9",), ("x",)], ["id"])
        wanted = ids(spark.read.parquet(table.path).join(keys, "id", "left_semi"))
        assert ids(table.read(spark, keys=keys)) == wanted
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
