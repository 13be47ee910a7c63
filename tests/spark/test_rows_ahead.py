"""``Table.read`` reads few rows of many files at once, and the plan of the DataFrame holds them.

Here every table is large enough for that (``NOW``). Rows, types and names are those of plain Spark.
"""

from __future__ import annotations

import datetime
import decimal
import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.pruning import costs as cost
from skipstone.spark.session import is_connect
from tests.spark.layout import rows, ten_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW = replace(cost.SPARK, worth=0.0)
AHEAD = "rows read ahead: "
NATIVE = "Spark's own reader: "


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone.spark.read_choice.SPARK", NOW)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> skipstone.Table:
    found = skipstone.Table(str(ten_files(tmp_path_factory.mktemp("ahead") / "ten files é%")))
    found.build(indexes=["id:minmax"])
    return found


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "skipstone")

    def last() -> str:
        found = [each.getMessage().partition(" is read by ") for each in caplog.records]
        return [why for _, by, why in found if by][-1]

    return last


def test_the_rows_are_those_of_plain_spark(
    session: SparkSession, table: skipstone.Table, said: Any
) -> None:
    where = "id BETWEEN 5 AND 24 AND parity = 1"
    plain = session.read.parquet(table.path).where(where)
    found = table.read(session, where)
    assert said().startswith(f"{AHEAD}10 rows from ")
    assert "of row groups" in said()
    assert found.schema == plain.schema
    assert rows(found) == rows(plain)
    some = table.read(session, where, columns=["s"], order_by="id desc")
    assert said().startswith(AHEAD)
    assert [row.s for row in some.collect()] == [f"s{at}" for at in range(23, 4, -2)]
    none = table.read(session, "id = 500")
    assert said().startswith(f"{AHEAD}0 rows from ")
    assert none.schema == plain.schema
    assert none.count() == 0
    # As Spark resolves a name that is spelled otherwise.
    assert table.read(session, where, columns=["ID"]).columns == plain.select("ID").columns


def test_files_without_a_match_lie_between_those_with_one(
    session: SparkSession, table: skipstone.Table, said: Any
) -> None:
    # Bounds keep every file; every second one is read for nothing.
    none = ", ".join(f"'s{tens}3'" for tens in range(1, 10, 2))
    found = table.read(session, f"s LIKE '%3' AND s NOT IN ({none})")
    assert said().startswith(f"{AHEAD}5 rows from ")
    assert sorted(row.id for row in found.collect()) == [3, 23, 43, 63, 83]


def test_no_columns_and_a_column_twice(
    session: SparkSession, table: skipstone.Table, said: Any
) -> None:
    assert table.read(session, "id < 7", columns=[]).count() == 7
    assert said() == f"{NATIVE}no columns are asked for"
    twice = table.read(session, "id = 7", columns=["id", "s", "ID"])
    assert said() == f"{NATIVE}a column is asked for twice"
    assert [tuple(row) for row in twice.collect()] == [(7, "s7", 7)]
    assert table.read(session, columns=[], limit=3).count() == 3


def test_explain_has_the_plan_of_rows_that_are_part_of_another(
    spark: SparkSession, table: skipstone.Table
) -> None:
    found = table.read(spark, "id IN (3, 42)")
    last = skipstone.last_scan(spark)
    assert last is not None
    joined = found.alias("a").join(spark.read.parquet(table.path).alias("b"), "id")
    told = skipstone.explain(joined.groupBy("a.parity").count())
    assert len(told.scans) == 1
    assert told.scans[0] == last.scans[0]
    assert (told.files_kept, told.files_total) == (2, 10)
    assert f"read by: {AHEAD}2 rows" in str(told)
    assert joined.count() == 2


def test_more_than_a_few_rows_are_left_to_spark(
    session: SparkSession, table: skipstone.Table, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.spark.read_choice.SPARK", replace(NOW, few_rows=9))
    found = table.read(session, "parity = 1")
    assert said().startswith(NATIVE)
    assert found.count() == 50
    assert table.read(session, "id < 9").count() == 9
    assert said().startswith(AHEAD)
    monkeypatch.setattr("skipstone.spark.read_choice.SPARK", replace(NOW, few_bytes=9))
    assert table.read(session, "id < 9").count() == 9
    assert said().startswith(NATIVE)


def test_every_type_is_what_spark_makes_of_it(
    session: SparkSession, tmp_path: Path, said: Any
) -> None:
    """Zoned and local times, INT96, NaN, a negative zero, nested values and nulls."""
    root = tmp_path / "t"
    root.mkdir()
    utc = datetime.datetime(2024, 7, 1, 1, 30, 0, 1, tzinfo=datetime.UTC)
    local = utc.replace(tzinfo=None)
    columns = {
        "n": pa.array([0, 1, 2], pa.int8()),
        "f": pa.array([math.nan, -0.0, None], pa.float32()),
        "d": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]),
        "day": pa.array([datetime.date(1890, 1, 1), None, datetime.date(2024, 2, 29)]),
        "at": pa.array([utc, None, utc], pa.timestamp("us", "UTC")),
        "raw": pa.array([b"\x00\xff", b"", None]),
        "text": pa.array(["é\u0000", "", None]),
        "yes": pa.array([True, None, False]),
    }
    more = {
        "local": pa.array([local, None, local], pa.timestamp("us")),
        "many": pa.array([[1, None], [], None]),
        "deep": pa.array([{"a": [utc], "b": "x"}, {"a": None, "b": None}, None]),
        "tags": pa.array([[("k", 1.0)], [], None], pa.map_(pa.string(), pa.float64())),
        "unsigned": pa.array([0, None, 2**32 - 1], pa.uint32()),
    }
    for name, made in {"plain": columns, "nested": {**columns, **more}}.items():
        (root / name).mkdir()
        pq.write_table(pa.table(made), root / name / "a.parquet")
    (root / "int96").mkdir()
    old = pa.table({"n": columns["n"], "local": more["local"].cast(pa.timestamp("ns"))})
    pq.write_table(old, root / "int96" / "a.parquet", use_deprecated_int96_timestamps=True)
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        for name in ("plain", "nested", "int96"):
            path = str(root / name)
            for where in ("n >= 0", "n = 1", "n > 5"):
                plain = session.read.parquet(path).where(where)
                found = skipstone.Table(path).read(session, where)
                assert said().startswith(AHEAD), (name, said())
                assert found.schema == plain.schema
                assert repr(sorted(found.collect())) == repr(sorted(plain.collect()))
                assert found.unionByName(plain).count() == 2 * plain.count()
        text = "at = '2024-07-01 03:30:00.000001'"
        assert skipstone.Table(str(root / "plain")).read(session, text).count() == 2
    finally:
        session.conf.set("spark.sql.session.timeZone", zone)


def test_columns_of_folders_and_of_files_that_differ(
    session: SparkSession, tmp_path: Path, said: Any
) -> None:
    root = tmp_path / "t"
    for month, made in ((1, {"a": [1, 2]}), (2, {"a": [3], "b": ["x"]})):
        folder = root / f"month={month}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table(made), folder / "f.parquet")
    found = skipstone.Table(str(root)).read(session, "month = 2 OR a = 1")
    assert said().startswith(AHEAD)
    plain = session.read.option("mergeSchema", "true").parquet(str(root))
    assert found.schema == plain.schema
    assert rows(found) == rows(plain.where("month = 2 OR a = 1"))


def test_a_schema_that_a_setting_changes_is_the_one_of_spark(
    session: SparkSession, tmp_path: Path, said: Any
) -> None:
    root = tmp_path / "t"
    root.mkdir()
    made = pa.table({"n": [1, 2], "raw": pa.array([b"a", b"b"])})
    pq.write_table(made.replace_schema_metadata(None), root / "a.parquet")
    table = skipstone.Table(str(root))
    key = "spark.sql.parquet.binaryAsString"
    session.conf.set(key, "true")
    try:
        found = table.read(session, "n = 1")
        assert "raw is string to Spark here" in said()
        assert [tuple(row) for row in found.collect()] == [(1, "a")]
    finally:
        session.conf.unset(key)
    assert [tuple(row) for row in table.read(session, "n = 1").collect()] == [(1, b"a")]
    assert said().startswith(AHEAD)


def test_a_damaged_file_is_an_error_of_spark(
    spark: SparkSession, tmp_path: Path, said: Any
) -> None:
    root = ten_files(tmp_path / "t")
    damaged = next(root.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-20])
    found = skipstone.Table(str(root)).read(spark, "id >= 0")
    assert said().startswith(NATIVE)
    with pytest.raises(Exception, match=r"(?i)parquet|footer|magic"):
        found.collect()
    assert not is_connect(spark)
