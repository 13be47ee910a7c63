"""``Table.read`` chooses between Spark's own reader and planned pages; rows are the same.

``table`` has ids 0 to 99, ten to a file, under awkward names (``ten_files``), with a row index on
``parity``. What is chosen is told by ``last_scan``, and by the physical plan.
"""

from __future__ import annotations

import datetime
import logging
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

import skipstone
from skipstone.errors import PredicateError, UnsupportedError
from skipstone.pruning import costs as cost
from skipstone.spark.read_choice import Way, by_cost
from skipstone.spark.session import is_connect
from tests.spark.layout import rows, ten_files
from tools.scanned import scanned

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# As if Spark's reader were slow, pages cost nothing to begin with, and this process had no time.
QUICK_PAGES = replace(cost.SPARK, native=1.0, pages=1e12, start=0.0, longest=0.0)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> skipstone.Table:
    root = ten_files(tmp_path_factory.mktemp("choice") / "ten files é%")
    for path in root.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    found = skipstone.Table(str(root))
    found.build(indexes=["id:minmax", "parity:bitmap"])
    return found


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    """Which way the last DataFrame went, by the log: the only place under Connect."""
    caplog.set_level(logging.INFO, "skipstone")

    def last() -> str:
        found = [
            each.getMessage() for each in caplog.records if " is read by " in each.getMessage()
        ]
        return found[-1].partition(" is read by ")[2] if found else ""

    return last


def told(df: DataFrame, session: SparkSession) -> str:
    """What ``last_scan`` says after the rows were taken."""
    df.collect()
    scans = skipstone.last_scan(session)
    assert scans is not None
    return str(scans)


def test_both_choices_give_the_same_rows(
    session: SparkSession, table: skipstone.Table, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "parity = 1 AND id BETWEEN 5 AND 24"
    native = table.read(session, where, columns=["s", "id"])
    assert said().startswith("Spark's own reader: ")
    assert "less than it takes to start" in said()
    if not is_connect(session):
        assert "read by: Spark's own reader" in told(native, session)
    monkeypatch.setattr("skipstone.spark.read_choice.SPARK", QUICK_PAGES)
    paged = table.read(session, where, columns=["s", "id"])
    assert said().startswith("planned pages: about ")
    assert "of row groups" in said()
    if not is_connect(session):
        text = told(paged, session)
        assert "read by: planned pages" in text
        assert "read 3 of 10 files" in text
    assert native.schema == paged.schema
    assert rows(native) == rows(paged)
    assert sorted(row.id for row in paged.collect()) == list(range(5, 25, 2))


def test_a_limit_goes_by_pages_and_an_order_alone_does_not(
    session: SparkSession, table: skipstone.Table, said: Any
) -> None:
    top = table.read(session, "id > 7", order_by=["parity desc", "id"], limit=3, columns=["id"])
    assert said() == "planned pages: the first 3 rows of an order: reading ends there"
    assert [tuple(row) for row in top.collect()] == [(9,), (11,), (13,)]
    few = table.read(session, limit=4)
    assert said().startswith("planned pages")
    assert few.count() == 4
    ordered = table.read(session, "id < 4", order_by="id desc")
    assert said().startswith("Spark's own reader")
    assert [row.id for row in ordered.collect()] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    "key, value",
    [
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.parquet.int96TimestampConversion", "true"),
    ],
)
def test_settings_that_change_what_is_meant_go_to_spark(
    spark: SparkSession, table: skipstone.Table, said: Any, key: str, value: str
) -> None:
    spark.conf.set(key, value)
    try:
        found = table.read(spark, "id >= 98", order_by="id desc", limit=5, columns=["id"])
        assert said() == f"Spark's own reader: {key} is {value}"
        assert [row.id for row in found.collect()] == [99, 98]
    finally:
        spark.conf.unset(key)


def test_the_zone_of_the_session_is_handed_on(
    session: SparkSession, tmp_path: Path, said: Any
) -> None:
    """Hours of a night in UTC; 03:30 in Berlin is 01:30 there."""
    root = tmp_path / "t"
    root.mkdir()
    hours = [datetime.datetime(2024, 7, 1, h, 30, tzinfo=datetime.UTC) for h in range(4)]
    rows_ = pa.table({"h": [0, 1, 2, 3], "at": pa.array(hours, pa.timestamp("us", "UTC"))})
    pq.write_table(rows_, root / "a.parquet")
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        where = "at = '2024-07-01 03:30:00'"
        found = skipstone.Table(str(root)).read(session, where, limit=9)
        assert said().startswith("planned pages")
        assert [row.h for row in found.collect()] == [1]
    finally:
        session.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_what_only_spark_can_do_goes_to_spark(
    spark: SparkSession, table: skipstone.Table, tmp_path: Path, said: Any
) -> None:
    found = table.read(spark, "length(s) = 2 AND id < 50", limit=20)
    assert said().startswith("Spark's own reader: Spark itself computes length(s) = 2")
    assert found.count() == 10
    table.read(spark, "soundex(s) = 'S000' AND id < 50", limit=20)
    assert said().startswith("Spark's own reader: cannot decide")
    text = table.read(spark, "id IN (SELECT max(id) FROM VALUES (3) AS t(id))", columns=["s"])
    assert said().startswith("Spark's own reader")
    assert [row.s for row in text.collect()] == ["s3"]
    options = table.read(spark, "id = 3", limit=2, mergeSchema="true")
    assert "options of Spark's reader are given (mergeSchema)" in said()
    assert options.count() == 1
    # What is text in one file and a number in another has a type by Spark's choice of file.
    root = tmp_path / "t"
    root.mkdir()
    stamps = pa.array([1, 2], pa.timestamp("us"))
    pq.write_table(pa.table({"a": [1, 2], "at": stamps}), root / "a.parquet")
    spark.conf.set("spark.sql.parquet.inferTimestampNTZ.enabled", "false")
    try:
        read = skipstone.Table(str(root)).read(spark, limit=5)
        assert "at is timestamp to Spark here" in said()
        assert read.count() == 2
    finally:
        spark.conf.unset("spark.sql.parquet.inferTimestampNTZ.enabled")


def test_awkward_values_are_the_same_by_pages(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    """NaN, both zeros and nulls in rows of both parities; names with a dot and a backquote."""
    root = tmp_path / "t"
    root.mkdir()
    values = [math.nan, 0.0, -0.0, None, 1.5, math.inf]
    made = pa.table({"p": pa.array([0, 1] * 3, pa.int8()), "a.b": values, "c`d": values[::-1]})
    pq.write_table(made, root / "x.parquet", write_statistics=False)
    os.utime(root / "x.parquet", (1_700_000_000, 1_700_000_000))
    table = skipstone.Table(str(root))
    table.build(indexes=["p:bitmap"])
    native = table.read(spark, "p = 0 OR `a.b` = 'NaN'")
    assert said().startswith("Spark's own reader")
    monkeypatch.setattr("skipstone.spark.read_choice.SPARK", QUICK_PAGES)
    paged = table.read(spark, "p = 0")
    assert said().startswith("planned pages")
    assert rows(paged) == rows(native.where("p = 0"))
    assert native.count() == 3
    nan = table.read(spark, "`a.b` = 'NaN'", limit=5)
    assert [row.p for row in nan.collect()] == [0]


def test_explain_has_what_was_planned(spark: SparkSession, table: skipstone.Table) -> None:
    found = table.read(spark, "id = 42", limit=1)
    told = skipstone.explain(found.where("parity = 0").select("s"))
    assert "read by: planned pages: the first 1 rows" in str(told)
    assert (told.files_kept, told.files_total) == (1, 10)
    own = spark.read.format("skipstone").option("where", "id = 42").load(table.path)
    assert "last_scan shows them" in str(skipstone.explain(own))


@pytest.mark.parametrize(
    "where, ids",
    [
        ("nest.x IS NULL", [1]),
        ("NOT (NOT (NEST.X IS NULL))", [1]),
        ("id = 1 AND nest.x <=> NULL", [1]),
        ("NOT (nest.x <=> 'a')", [1, 2, 3]),
        ("nest.in.`y` IS NULL OR id > 2", [1, 3]),
        ("CASE WHEN nest.x IS NULL THEN true ELSE false END", [1]),
    ],
)
def test_nulls_that_arrow_does_not_count_are_found(
    session: SparkSession, uncounted: skipstone.Table, where: str, ids: list[int]
) -> None:
    found = uncounted.read(session, where)
    assert sorted(row.id for row in found.collect()) == ids


def test_row_groups_are_skipped_where_no_null_is_asked_for(
    spark: SparkSession, uncounted: skipstone.Table
) -> None:
    """Spark's reader leaves out a row group of two rows; the last scan says where it does not."""
    for where, taken in (("nest.x = 'c'", 2), ("id = 3 AND id IS NOT NULL", 2), ("id IS NULL", 0)):
        assert rows_taken(uncounted.read(spark, where)) == taken
    found = uncounted.read(spark, "nest.x IS NULL")
    assert rows_taken(found) == 4
    assert "null counts of strings in structs" in told(found, spark)


@pytest.fixture(scope="module")
def uncounted(tmp_path_factory: pytest.TempPathFactory) -> skipstone.Table:
    """Ids 0 to 3 in two row groups; the struct of id 1 is null, which the null counts of its
    dictionary-encoded strings leave out."""
    root = tmp_path_factory.mktemp("uncounted")
    words = pa.array(["a", "a", "c", "c"]).dictionary_encode()
    mask = pa.array([False, True, False, False])
    inner = pa.StructArray.from_arrays([words], names=["y"])
    nest = pa.StructArray.from_arrays([words, inner], names=["x", "in"], mask=mask)
    path = root / "a.parquet"
    pq.write_table(pa.table({"id": [0, 1, 2, 3], "nest": nest}), path, row_group_size=2)
    group = pq.read_metadata(path).row_group(0)
    assert [group.column(i).statistics.null_count for i in range(3)] == [0, 0, 0]
    os.utime(path, (1_700_000_000, 1_700_000_000))
    table = skipstone.Table(str(root))
    table.build(indexes=["id:minmax"])
    return table


def rows_taken(df: DataFrame) -> int:
    df.collect()
    return scanned(df).rows


def test_wrong_arguments_are_errors(spark: SparkSession, table: skipstone.Table) -> None:
    with pytest.raises(ValueError, match="limit is 0 or more"):
        table.read(spark, limit=-1)
    with pytest.raises(AnalysisException, match="nope"):
        table.read(spark, columns=["nope"])
    with pytest.raises(AnalysisException, match="nope"):
        table.read(spark, order_by="nope", limit=1)
    with pytest.raises(TypeError, match="sequence of names"):
        table.read(spark, columns="id")


def test_what_is_cheaper_by_the_constants(tmp_path: Path) -> None:
    """One file of 400,000 rows in 8 row groups, 40 rows of which a row index leaves, all over it:
    pages for them where the file is large against the start, and Spark's reader where it is not;
    also where half of all rows are left, and where no index says which rows."""
    root = tmp_path / "t"
    root.mkdir()
    n = np.arange(400_000)
    made = pa.table(
        {"rare": n % 10_000, "half": n % 2, "noise": np.random.default_rng(1).random(400_000)}
    )
    path = root / "a.parquet"
    pq.write_table(
        made,
        path,
        row_group_size=50_000,
        write_page_index=True,
        max_rows_per_page=1_000,
        write_batch_size=1_000,
        use_dictionary=False,
    )
    os.utime(path, (1_700_000_000, 1_700_000_000))
    table = skipstone.Table(str(root))
    table.build(indexes=["rare:bitmap", "half:bitmap", "noise:minmax"])
    scale = replace(cost.SPARK, start=0.0)

    def chosen(where: str, costs: cost.SparkCosts) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("skipstone.spark.read_choice.SPARK", costs)
            return by_cost(table.scan(where, inside=False)).way is Way.PAGES

    assert chosen("rare = 77", scale)
    assert not chosen("rare = 77", cost.SPARK)
    assert not chosen("half = 1", scale)
    assert not chosen("noise > 0.5", scale)


def test_nested_columns_are_taken_from_the_frame(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(pa.table({"r": [{"a": 1, "b": 2}]}), root / "a.parquet")
    table = skipstone.Table(str(root))
    assert table.read(spark, columns=["r"], limit=1).select("r.b").collect()[0].b == 2
    with pytest.raises(UnsupportedError, match="lies below a column"):
        table.read(spark, columns=["r.a"], limit=1)


def test_a_function_of_the_session_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": range(number * 10, number * 10 + 10)}), root / f"{number}")
    table = skipstone.Table(str(root))
    table.build(indexes=["id:minmax"])
    spark.udf.register("one_more", lambda value: value + 1, "bigint")
    found = table.read(spark, "one_more(id) = 13 AND id < 15")
    assert [row.id for row in found.collect()] == [12]
    assert "the session may define it" in str(table.explain("one_more(id) = 13", spark=spark))
    with pytest.raises(PredicateError, match="no function one_more"):
        table.explain("one_more(id) = 13")
