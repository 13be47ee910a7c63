"""Joins: the keys of one side skip files of the other, and rows are those of plain Spark.

``fact`` has ten files of ten rows. ``k`` is 0 to 99 in order, so file i has 10 i to 10 i + 9; ``i``
is the same as int, ``s`` its text, ``day`` a day, ``at`` an instant, ``x`` a double, ``p`` a
decimal, ``b`` bytes, each one to one with ``k``; ``n`` is the number of the file. The last row of
file 9 is NULL everywhere but in ``n``. In file 0, ``x`` is NaN for k = 1 and -0.0 for k = 0.

``dim`` is one file without an index: keys of the same types, some of which ``fact`` lacks, a NULL,
NaN and 0.0; ``c`` tells its rows apart.
"""

from __future__ import annotations

import datetime as dt
import json
from contextlib import contextmanager
from decimal import Decimal
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import skipstone
from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.spark.joins.keys import MIN_BYTES
from skipstone.spark.joins.rows import columns_of_rows, packed_columns
from skipstone.spark.literals import UnreadableLiteral
from skipstone.spark.session import set_to
from tests.accept.tables import backdate
from tests.spark.layout import rows
from tools.scanned import scanned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from skipstone.spark.scans import QueryScans

pytestmark = pytest.mark.spark

_DAY = dt.date(2020, 1, 1)
_INSTANT = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_INDEXES = [f"{column}:minmax" for column in ("k", "s", "day", "at", "x", "p", "i", "b")]


def columns(keys: list[int | None]) -> dict[str, Any]:
    """The columns of these keys: one to one with them, but for NaN and the zeros."""

    def each(make: Any, type: pa.DataType) -> pa.Array:
        return pa.array([None if key is None else make(key) for key in keys], type)

    def double(key: int) -> float:
        return {0: -0.0, 1: float("nan")}.get(key, key / 4)

    return {
        "k": each(int, pa.int64()),
        "i": each(int, pa.int32()),
        "s": each(lambda key: f"s{key:03d}", pa.string()),
        "day": each(lambda key: _DAY + dt.timedelta(days=key), pa.date32()),
        "at": each(lambda key: _INSTANT + dt.timedelta(hours=key), pa.timestamp("us", "UTC")),
        "x": each(double, pa.float64()),
        "p": each(lambda key: Decimal(key).scaleb(-1), pa.decimal128(25, 1)),
        "b": each(lambda key: bytes([key % 256, 0]), pa.binary()),
    }


def write(path: Path, keys: list[int | None], **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({**columns(keys), **more}), path)
    backdate(path)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """``fact`` and ``dim`` through an enabled session, ``plain_fact`` as Spark reads it."""
    root = tmp_path_factory.mktemp("joins")
    for number in range(10):
        keys: list[int | None] = list(range(number * 10, number * 10 + 10))
        if number == 9:
            keys[-1] = None
        n = pa.array([number] * 10, pa.int32())
        write(root / "fact" / f"part-{number}.parquet", keys, n=n)
    Table(str(root / "fact")).build(indexes=_INDEXES)
    of_dim: list[int | None] = [0, 1, 5, 17, 17, 33, 34, 95, 500, -7, None]
    write(root / "dim" / "all.parquet", of_dim, c=pa.array(range(len(of_dim)), pa.int64()))
    for name in ("fact", "dim"):
        spark.read.parquet(str(root / name)).createOrReplaceTempView(f"plain_{name}")
    skipstone.enable(spark)
    for name in ("fact", "dim"):
        spark.read.parquet(str(root / name)).createOrReplaceTempView(name)
    skipstone.disable(spark)
    yield root
    for view in ("fact", "dim", "plain_fact", "plain_dim"):
        spark.catalog.dropTempView(view)


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Settings of the session, with ``__`` for a dot; a job for keys runs whatever it costs."""
    made = {name.replace("__", "."): text for name, text in settings.items()}
    with set_to(spark, {MIN_BYTES: "0", **made}):
        yield


def both(spark: SparkSession, query: str) -> QueryScans:
    """The scans of a query with ``{f}`` and ``{d}``, whose rows are those of plain Spark."""
    plain = rows(spark.sql(query.format(f="plain_fact", d="plain_dim")))
    skipstone.enable(spark)
    try:
        frame = spark.sql(query.format(f="fact", d="dim"))
        assert rows(frame) == plain, query
        return skipstone.last_scan(spark)
    finally:
        skipstone.disable(spark)


# -- which files are read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query, files",
    [
        # 5, 17 and 95 of c = 2, 3 and 7 lie in the files 0, 1 and 9.
        ("SELECT * FROM {f} f JOIN {d} d ON f.k = d.k WHERE d.c IN (2, 3, 7)", 3),
        ("SELECT * FROM {d} d JOIN {f} f ON f.k = d.k WHERE d.c IN (2, 3, 7)", 3),
        ("SELECT /*+ BROADCAST(d) */ f.n FROM {f} f JOIN {d} d USING (k) WHERE d.c = 2", 1),
        ("SELECT /*+ MERGE(d) */ f.n FROM {f} f JOIN {d} d USING (k) WHERE d.c = 2", 1),
        ("SELECT /*+ SHUFFLE_HASH(d) */ f.n FROM {f} f JOIN {d} d USING (k) WHERE d.c = 2", 1),
        ("SELECT * FROM {f} WHERE k IN (SELECT k FROM {d} WHERE c = 3)", 1),
        ("SELECT * FROM {f} f WHERE EXISTS (SELECT 1 FROM {d} d WHERE d.k = f.k AND c = 3)", 1),
        ("SELECT * FROM {f} f LEFT SEMI JOIN {d} d ON f.k = d.k AND d.c > 7", 0),
        ("SELECT * FROM {d} d LEFT SEMI JOIN {f} f ON f.k = d.k WHERE d.c = 2", 1),
        ("SELECT * FROM {d} d LEFT ANTI JOIN {f} f ON f.k = d.k WHERE d.c IN (2, 8)", 1),
        ("SELECT * FROM {f} f RIGHT JOIN {d} d ON f.k = d.k WHERE d.c IN (2, 8)", 1),
        ("SELECT * FROM {d} d LEFT JOIN {f} f ON f.k = d.k WHERE d.c IN (2, 8)", 1),
        ("SELECT c, (SELECT max(s) FROM {f} f WHERE f.k = d.k) FROM {d} d WHERE c < 3", 1),
        ("SELECT c FROM {d} d WHERE c = 8 OR EXISTS (SELECT 1 FROM {f} f WHERE f.k = d.k)", 4),
        # A row with NULL has a partner only under <=>: c = 10 is the NULL, in file 9.
        ("SELECT * FROM {f} f JOIN {d} d ON f.k = d.k WHERE d.c IN (2, 10)", 1),
        ("SELECT * FROM {f} f JOIN {d} d ON f.k <=> d.k WHERE d.c IN (2, 10)", 2),
        ("SELECT /*+ MERGE(d) */ * FROM {f} f JOIN {d} d ON f.k <=> d.k WHERE d.c IN (2, 10)", 2),
        ("SELECT * FROM {f} f JOIN {d} d ON f.k <=> d.k WHERE d.c = 2", 1),
        # Rows without a partner are in the result: nothing may be skipped.
        ("SELECT * FROM {f} f LEFT JOIN {d} d ON f.k = d.k AND d.c = 2", 10),
        ("SELECT * FROM {d} d RIGHT JOIN {f} f ON f.k = d.k AND d.c = 2", 10),
        ("SELECT * FROM {f} f FULL JOIN {d} d ON f.k = d.k AND d.c = 2", 10),
        ("SELECT * FROM {f} f LEFT ANTI JOIN {d} d ON f.k = d.k AND d.c = 2", 10),
        ("SELECT * FROM {f} WHERE k NOT IN (SELECT k FROM {d} WHERE c = 2)", 10),
        ("SELECT * FROM {f} f WHERE NOT EXISTS (SELECT 1 FROM {d} d WHERE d.k = f.k)", 10),
        # NOT IN over the big side: it matters whether it has a NULL or any row at all.
        ("SELECT * FROM {d} WHERE c = 2 AND k NOT IN (SELECT k FROM {f})", 10),
        ("SELECT * FROM {d} WHERE c = 2 AND k NOT IN (SELECT k FROM {f} WHERE n > 0)", 9),
        ("SELECT * FROM {f} f JOIN {d} d ON f.k = d.k OR d.c = 2", 10),
        ("SELECT * FROM {f} f JOIN {d} d ON f.k > d.k AND d.c = 2", 10),
        # Other types, and casts of the key.
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.i = d.k WHERE d.c = 3", 1),
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.i WHERE d.c = 3", 1),
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.s = d.s WHERE d.c = 3", 1),
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.day = d.day WHERE d.c = 3", 1),
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.at = d.at WHERE d.c = 3", 1),
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.p = d.p WHERE d.c = 3", 1),
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.b = d.b WHERE d.c = 3", 1),
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.x = d.x WHERE d.c IN (0, 1, 3)", 2),
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.c + 15 WHERE d.c < 3", 1),
        # Two keys of one join, and several dimensions: the files of all of them.
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.k AND f.i = d.i WHERE d.c = 3", 1),
        ("SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.k AND f.s = d.s WHERE d.c = 3", 1),
        (
            "SELECT f.n FROM {f} f JOIN {d} a ON f.k = a.k JOIN {d} b ON f.s = b.s "
            "WHERE a.c IN (2, 3) AND b.c IN (3, 7)",
            1,
        ),
        # From the join down to the relation.
        ("SELECT * FROM (SELECT k AS q, n FROM {f}) f JOIN {d} d ON f.q = d.k WHERE c = 2", 1),
        (
            "SELECT * FROM (SELECT k FROM {f} WHERE n > 1 UNION ALL "
            "SELECT i FROM {f} WHERE n < 2) f JOIN {d} d ON f.k = d.k WHERE c = 2",
            1,
        ),
        ("SELECT * FROM (SELECT DISTINCT k, n FROM {f}) f JOIN {d} d USING (k) WHERE c = 2", 1),
        (
            "SELECT * FROM (SELECT k, max(s) FROM {f} GROUP BY k) f JOIN {d} d USING (k) "
            "WHERE c = 2",
            1,
        ),
        (
            "SELECT * FROM (SELECT k, sum(n) OVER (PARTITION BY k ORDER BY s) FROM {f}) f "
            "JOIN {d} d USING (k) WHERE c = 2",
            1,
        ),
        (
            "SELECT * FROM (SELECT f.k, explode(array(n, 1)) FROM {f} f) f JOIN {d} d USING (k) "
            "WHERE c = 2",
            1,
        ),
        (
            "SELECT * FROM (SELECT n, max(k) AS k FROM {f} GROUP BY n) f JOIN {d} d USING (k) "
            "WHERE c = 2",
            10,
        ),
        (
            "SELECT * FROM (SELECT k, rank() OVER (ORDER BY s) FROM {f}) f JOIN {d} d USING (k) "
            "WHERE c = 2",
            10,
        ),
        (
            "SELECT * FROM (SELECT k FROM {f} ORDER BY s LIMIT 20) f JOIN {d} d USING (k) "
            "WHERE c = 2",
            10,
        ),
        # The keys of a dimension reach a third table through an equality.
        (
            "SELECT e.n FROM {f} f JOIN {d} d ON f.k = d.k JOIN {f} e ON e.k = f.k WHERE d.c = 3",
            2,
        ),
        # Rows of the driver.
        ("SELECT n FROM {f} JOIN (VALUES (5L), (17L)) v(k) USING (k)", 2),
        ("SELECT n FROM {f} JOIN (VALUES (NULL), (17L)) v(k) USING (k)", 1),
        # With a predicate of its own.
        ("SELECT * FROM {f} f JOIN {d} d ON f.k = d.k WHERE d.c IN (2, 3, 7) AND f.k > 50", 1),
    ],
)
def test_rows_and_files(spark: SparkSession, tables: Path, query: str, files: int) -> None:
    with conf(spark):
        scans = both(spark, query)
    assert scans.files_kept == files, str(scans)
    assert scans.files_total % 10 == 0


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize(
    "where, files",
    [
        ("k = (SELECT max(k) FROM {d} WHERE c < 4)", 1),
        ("k = (SELECT k FROM {d} WHERE c = 3)", 1),
        ("(SELECT k FROM {d} WHERE c = 3) = k", 1),
        ("i = (SELECT max(k) FROM {d} WHERE c < 4)", 1),
        ("k = (SELECT max(i) FROM {d} WHERE c < 4) + 1", 1),
        ("k >= (SELECT max(k) FROM {d} WHERE c < 8)", 1),
        ("k > (SELECT max(k) - 6 FROM {d} WHERE c < 8)", 1),
        ("k < (SELECT max(k) FROM {d} WHERE c < 4)", 2),
        # Spark merges these two subqueries into one.
        (
            "k BETWEEN (SELECT max(k) - 3 FROM {d} WHERE c < 4) "
            "AND (SELECT max(k) FROM {d} WHERE c < 4)",
            1,
        ),
        ("(SELECT min(k) FROM {d} WHERE c = 2) >= k", 1),
        ("s <= (SELECT min(s) FROM {d} WHERE c = 2)", 1),
        ("day = (SELECT max(day) FROM {d} WHERE c < 4)", 1),
        ("x > (SELECT x FROM {d} WHERE c = 7)", 2),  # and NaN, which is greater
        ("p = (SELECT max(p) FROM {d} WHERE c < 4) AND n >= 0", 1),
        # NULL, and no row at all, compare with nothing.
        ("k = (SELECT k FROM {d} WHERE c = 10)", 0),
        ("k >= (SELECT k FROM {d} WHERE c = 99)", 0),
        # NULL is equal to NULL here; another condition may be TRUE; negations.
        ("k <=> (SELECT k FROM {d} WHERE c = 99)", 10),
        ("k = (SELECT k FROM {d} WHERE c = 3) OR n = 0", 10),
        ("NOT (k = (SELECT k FROM {d} WHERE c = 3))", 10),
        ("k <> (SELECT k FROM {d} WHERE c = 3)", 10),
        ("k = (SELECT max(k) FROM {d}) - k", 10),
        # A value that another run may not have.
        ("k = (SELECT k FROM {d} WHERE c = 3 AND rand() < 0.999999999)", 10),
        ("k = (SELECT k FROM {d} WHERE c < 4 ORDER BY k LIMIT 1)", 10),
    ],
)
def test_scalar_subqueries(
    spark: SparkSession, tables: Path, where: str, files: int, adaptive: str
) -> None:
    with conf(spark, spark__sql__adaptive__enabled=adaptive):
        scans = both(spark, f"SELECT * FROM {{f}} WHERE {where}")
    assert scans.files_kept == files, str(scans)


def test_scalar_subqueries_among_other_rows(spark: SparkSession, tables: Path) -> None:
    """In a branch of a union, below an aggregate, beside a join; two scans that look the same."""
    one, two = "(SELECT k FROM {d} WHERE c = 3)", "(SELECT max(k) FROM {d} WHERE c < 8)"
    with conf(spark):
        union = (
            f"SELECT k FROM {{f}} WHERE k = {one} UNION ALL SELECT k FROM {{f}} WHERE k >= {two}"
        )
        assert both(spark, union).files_kept in (2, 4)  # both scans may need the files of either
        query = f"SELECT n, count(*) FROM {{f}} WHERE k >= {two} GROUP BY n"
        assert both(spark, query).files_kept == 1
        query = f"SELECT f.k FROM {{f}} f JOIN {{d}} d USING (k) WHERE d.c < 8 AND k >= {two}"
        assert both(spark, query).files_kept == 1


@pytest.mark.parametrize(
    "where",
    [
        "k >= coalesce({none}, 0)",
        "k = nvl({none}, 3)",
        "k <= if({none} > 1, 1, 5)",
        "(k = 3) = ({none} IS NULL)",
        "k > size(array({none}))",
    ],
)
def test_functions_of_a_subquery_without_rows_need_not_be_null(
    spark: SparkSession, tables: Path, where: str
) -> None:
    where = where.format(none="(SELECT k FROM {d} WHERE c = 99)")
    with conf(spark):
        both(spark, f"SELECT * FROM {{f}} WHERE {where}")


def test_a_subquery_of_several_rows_is_an_error_as_in_spark(
    spark: SparkSession, tables: Path
) -> None:
    for rows_of in ("c IN (3, 4)", "c IN (2, 3)"):  # the same key twice, and two keys
        for op in ("=", ">="):
            query = f"SELECT * FROM fact WHERE k {op} (SELECT k FROM dim WHERE {rows_of})"
            with (
                conf(spark),
                session_of(spark),
                pytest.raises(Exception, match=r"SUBQUERY|subquery"),
            ):
                spark.sql(query).collect()


def test_spark_itself_reads_these_files(spark: SparkSession, tables: Path) -> None:
    query = "SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.k WHERE d.c IN (2, 3, 7)"
    with conf(spark, spark__sql__adaptive__enabled="false"):
        skipstone.enable(spark)
        try:
            frame = spark.sql(query.format(f="fact", d="dim"))
            frame.collect()
        finally:
            skipstone.disable(spark)
        assert scanned(frame).files == 3 + 1  # and that of dim


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize(
    "form",
    [
        "SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.k WHERE d.c = 2",
        "SELECT e.n FROM {f} f JOIN {f} e USING (k) JOIN {d} d USING (k) WHERE f.n = 0 AND c = 2",
        "SELECT n, count(*) FROM {f} WHERE k IN (SELECT k FROM {d} WHERE c = 2) GROUP BY n",
    ],
)
def test_adaptive_or_not(spark: SparkSession, tables: Path, adaptive: str, form: str) -> None:
    with conf(spark, spark__sql__adaptive__enabled=adaptive):
        scans = both(spark, form)
    assert scans.files_kept == len(scans), str(scans)


# -- where the same scan is used twice -------------------------------------------------------------


def test_an_exchange_that_two_joins_share(spark: SparkSession, tables: Path) -> None:
    """One shuffle of ``fact`` serves both branches: only one of them has keys."""
    query = (
        "SELECT /*+ MERGE(d) */ f.k FROM {f} f JOIN {d} d ON f.k = d.k AND d.c = 2 UNION ALL "
        "SELECT /*+ MERGE(e) */ f.k FROM {f} f JOIN {f} e ON f.k = e.k"
    )
    for adaptive in ("true", "false"):
        with conf(spark, spark__sql__adaptive__enabled=adaptive):
            scans = both(spark, query)
            assert scans.files_kept == scans.files_total, "the other branch needs every file"


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize(
    "query",
    [
        # The same rows are broadcast by other keys, for another join.
        "SELECT /*+ BROADCAST(d) */ f.k FROM {f} f JOIN {d} d ON f.k = d.k + 1 UNION ALL "
        "SELECT /*+ MERGE(e) */ f.k FROM {f} f JOIN {d} e ON f.k = e.k + 40",
        "SELECT /*+ BROADCAST(d) */ f.k FROM {f} f JOIN {d} d ON f.k = d.k + 1 WHERE f.n < 100 "
        "UNION ALL SELECT /*+ BROADCAST(e) */ f.k FROM {f} f JOIN {d} e ON f.k = e.k + 40 "
        "WHERE f.n > -1",
        "SELECT /*+ BROADCAST(d) */ f.k FROM {f} f JOIN {d} d ON f.x = d.k UNION ALL "
        "SELECT /*+ BROADCAST(e) */ f.k FROM {f} f JOIN {d} e ON f.k = e.k WHERE f.n > -1",
        # One branch of a union has the keys of its own rows only.
        "SELECT f.k FROM {f} f JOIN (SELECT a.k FROM {d} a JOIN (VALUES (5L)) v(k) ON a.k = v.k "
        "UNION ALL SELECT k FROM {d} WHERE c = 7) s ON f.k = s.k",
        "SELECT /*+ MERGE(s) */ f.k FROM {f} f JOIN (SELECT /*+ BROADCAST(b) */ a.k FROM {d} a "
        "JOIN {d} b ON a.k = b.k WHERE b.c = 2 UNION ALL SELECT k FROM {d} WHERE c = 7) s "
        "ON f.k = s.k",
    ],
)
def test_keys_of_another_join_or_of_some_rows_are_not_taken(
    spark: SparkSession, tables: Path, query: str, adaptive: str
) -> None:
    with conf(spark, spark__sql__adaptive__enabled=adaptive):
        both(spark, query)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_two_listings_of_one_directory_are_two_sides(
    spark: SparkSession, tables: Path, tmp_path: Path, adaptive: str
) -> None:
    """Spark takes them for the same result; the broadcast is of the older one."""
    side = tmp_path / "side"
    write(side / "a.parquet", [5])
    old = spark.read.parquet(str(side))
    assert old.count() == 1
    write(side / "b.parquet", [95])
    new = spark.read.parquet(str(side))
    fact = skipstone.skip(spark.read.parquet(str(tables / "fact")))
    with conf(spark, spark__sql__adaptive__enabled=adaptive):
        joined = fact.join(old.hint("broadcast"), "k").select("k")
        other = fact.where("n > -1").join(new.hint("merge"), "k").select("k")
        assert sorted(row.k for row in joined.union(other).collect()) == [5, 5, 95]


def test_a_query_within_a_batch_of_a_stream_has_all_rows(
    spark: SparkSession, tables: Path, tmp_path: Path
) -> None:
    """It runs under the number of the batch, whose joins are none of its own."""
    from pyspark.sql import functions

    write(tmp_path / "stream" / "a.parquet", [5])
    schema = spark.read.parquet(str(tmp_path / "stream")).select("k").schema
    fact = skipstone.skip(spark.read.parquet(str(tables / "fact")))
    counts: list[int] = []

    def look(batch: DataFrame, number: int) -> None:
        counts.append(fact.where("k IS NOT NULL").select("k", "n").rdd.count())
        counts.append(batch.count())

    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "stream"))
    joined = fact.select("k", "n").join(functions.broadcast(stream), "k")
    with conf(spark):
        query = (
            joined.writeStream.foreachBatch(look)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert counts == [99, 1]


def test_a_cache_that_the_query_fills_has_all_rows(spark: SparkSession, tables: Path) -> None:
    with conf(spark):
        skipstone.enable(spark)
        try:
            cached = spark.table("fact").select("k", "n").cache()
            joined = cached.join(spark.table("dim").where("c = 2"), "k")
            assert len(joined.collect()) == 1
            assert cached.count() == 100
        finally:
            spark.catalog.clearCache()
            skipstone.disable(spark)


def test_a_small_side_in_the_cache(spark: SparkSession, tables: Path) -> None:
    with conf(spark):
        skipstone.enable(spark)
        try:
            small = spark.table("dim").where("c = 2").cache()
            for hint in ("broadcast", "merge"):
                frame = spark.table("fact").join(small.hint(hint), "k")
                assert [row["n"] for row in frame.collect()] == [0]
                assert skipstone.last_scan(spark).files_kept == 1
        finally:
            spark.catalog.clearCache()
            skipstone.disable(spark)


def test_a_small_side_in_the_cache_is_computed_once(spark: SparkSession, tables: Path) -> None:
    """Also where keys come from a job of their own, before the query itself reads the cache."""
    taken = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            taken.add(batch.num_rows)
            yield batch

    with conf(spark), session_of(spark) as enabled:
        for hint in ("broadcast", "merge"):
            taken.value = 0
            dim = enabled.table("dim").where("c IN (2, 3)").select("k")
            small = dim.mapInArrow(count, "k long").cache()
            try:
                frame = enabled.table("fact").join(small.hint(hint), "k")
                assert sorted(row.k for row in frame.collect()) == [5, 17]
                scans = skipstone.last_scan(enabled)
                assert scans.files_kept == 2, str(scans)
                assert sorted(row.k for row in small.collect()) == [5, 17]
            finally:
                small.unpersist(blocking=True)
            assert taken.value == 2


# -- other queries at the same time, and later -----------------------------------------------------


@contextmanager
def session_of(spark: SparkSession) -> Iterator[SparkSession]:
    skipstone.enable(spark)
    try:
        yield spark
    finally:
        skipstone.disable(spark)


def test_queries_of_several_threads(spark: SparkSession, tables: Path) -> None:
    """Each takes the keys of its own joins, and last_scan is that of its own thread."""
    found: dict[int, tuple[list[int], int, int]] = {}

    def ask(c: int) -> None:
        wanted = f"SELECT f.k FROM fact f JOIN dim d ON f.k = d.k WHERE d.c = {c} AND f.n >= 0"
        for _ in range(3):
            kept = [row.k for row in spark.sql(wanted).collect()]
            scans = skipstone.last_scan(spark)
            found[c] = kept, scans.files_kept, len(uses(scans))

    with conf(spark), session_of(spark):
        threads = [Thread(target=ask, args=(c,)) for c in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    keys = [0, 1, 5, 17, 17, 33, 34, 95]
    assert found == {c: ([key], 1, 1) for c, key in enumerate(keys)}


def test_two_sessions(spark: SparkSession, tables: Path) -> None:
    """Views and settings of one are none of the other's."""
    other = spark.newSession()
    query = "SELECT f.k FROM fact f JOIN dim d ON f.k = d.k WHERE d.c = 3"
    with (
        conf(spark),
        conf(other, spark__skipstone__joins__maxKeys="0"),
        session_of(spark),
        session_of(other),
    ):
        other.read.parquet(str(tables / "fact")).createOrReplaceTempView("fact")
        of_other = other.read.parquet(str(tables / "dim"))
        of_other.selectExpr("k + 1 AS k", "c").createOrReplaceTempView("dim")
        for _ in range(2):
            assert [row.k for row in other.sql(query).collect()] == [18]
            assert skipstone.last_scan(other).files_kept == 10
            assert [row.k for row in spark.sql(query).collect()] == [17]
            assert skipstone.last_scan(spark).files_kept == 1


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("hint", ["broadcast", "merge"])
def test_a_query_that_runs_again_after_its_small_side_changed(
    spark: SparkSession, tables: Path, tmp_path: Path, hint: str, adaptive: str
) -> None:
    """The same DataFrame has the rows of plain Spark's; a new one has the new keys."""
    side = tmp_path / "side"
    write(side / "a.parquet", [5, 17])
    fact = skipstone.skip(spark.read.parquet(str(tables / "fact")))
    with conf(spark, spark__sql__adaptive__enabled=adaptive):

        def frames() -> list[DataFrame]:
            small = spark.read.parquet(str(side)).select("k").hint(hint)
            return [
                each.where("n >= 0").join(small, "k").select("k")
                for each in (fact, spark.table("plain_fact"))
            ]

        old = frames()
        assert [sorted(row.k for row in each.collect()) for each in old] == [[5, 17]] * 2
        write(side / "b.parquet", [95])
        mine, plain = (sorted(row.k for row in each.collect()) for each in old)
        assert mine == plain == [5, 17]
        new = frames()
        assert [sorted(row.k for row in each.collect()) for each in new] == [[5, 17, 95]] * 2
        # Spark itself may take the two small sides for one.
        both = [old[at].union(new[at]) for at in (0, 1)]
        mine, plain = (sorted(row.k for row in each.collect()) for each in both)
        assert mine == plain


def test_a_query_without_joins_pays_next_to_nothing(
    spark: SparkSession, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three calls to Spark for a query, whatever the number of its scans."""
    from py4j.clientserver import ClientServerConnection

    sent: list[str] = []
    send = ClientServerConnection.send_command

    def count(self: Any, command: str, *more: Any, **named: Any) -> Any:
        sent.append(command)
        return send(self, command, *more, **named)

    def calls(method: str) -> int:
        return sum(f"\n{method}\n" in command for command in sent)

    with conf(spark), session_of(spark):
        frame = spark.sql(" UNION ALL ".join(f"SELECT n FROM fact WHERE k = {k}" for k in (5, 17)))
        monkeypatch.setattr(ClientServerConnection, "send_command", count)
        assert len(frame.collect()) == 2
        assert skipstone.last_scan(spark).files_kept == 2
    assert calls("optimizedPlan") == calls("containsAnyPattern") == 1
    assert calls("getQueryExecution") <= 3  # that of the log, of its thread, and of the joins
    assert calls("executedPlan") == calls("nodeName") == calls("containsPattern") == 0


# -- what it says, and settings --------------------------------------------------------------------


def uses(scans: QueryScans) -> list[Any]:
    return [use for scan in scans for use in scan.joins]


def test_last_scan_and_explain_show_keys_and_savings(spark: SparkSession, tables: Path) -> None:
    query = "SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.k WHERE d.c IN (2, 3, 8)"
    with conf(spark):
        scans = both(spark, query)
        (use,) = uses(scans)
        assert (use.kind, use.keys, use.source) == ("Inner", 3, "the broadcast")
        assert (use.files_kept, use.files_total, use.reason) == (2, 10, None)
        assert 0 < use.bytes_kept < use.bytes_total
        assert "3 keys from the broadcast" in str(scans)
        assert "2 of 10 files may have one" in str(scans)
        (told,) = json.loads(json.dumps(scans.to_dict()))["scans"][0]["joins"]
        assert (told["keys"], told["files"]) == (3, {"kept": 2, "total": 10})
        skipstone.enable(spark)
        try:
            frame = spark.sql(query.format(f="fact", d="dim"))
            explained = skipstone.explain(frame)
        finally:
            skipstone.disable(spark)
        (use,) = uses(explained)
        assert (use.keys, use.source, use.files_kept) == (3, "a job", 2)


def test_usage_credits_the_indexes_of_joins(
    spark: SparkSession, tables: Path, tmp_path: Path
) -> None:
    log = tmp_path / "scans.log"
    with conf(spark, spark__skipstone__log__file=str(log), spark__skipstone__log__format="json"):
        both(spark, "SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.k WHERE d.c IN (2, 3, 8)")
        both(spark, "SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.k WHERE d.c = 2 AND f.k < 50")
    with log.open() as lines:
        (found,) = [
            each
            for each in Table(str(tables / "fact")).usage(lines).indexes
            if each.name == "k:minmax"
        ]
    # Two of ten files, and one of the five that the predicate has left.
    assert (found.used, found.files, found.considered) == (2, 8 + 5 + 4, 10 + 10 + 5)
    assert found.verdict == "keep" or found.saved > 0


@pytest.mark.parametrize(
    "most, on, reason",
    [("2", "f.k = d.k AND d.c < 4", "more than 2 keys"), ("10", "f.k = d.k AND d.c < 4", "")],
)
def test_the_most_keys(spark: SparkSession, tables: Path, most: str, on: str, reason: str) -> None:
    with conf(spark, spark__skipstone__joins__maxKeys=most):
        scans = both(spark, f"SELECT * FROM {{f}} f JOIN {{d}} d ON {on}")
    assert scans.files_kept == (10 if reason else 2)
    assert reason in str(scans)


def test_keys_that_are_everywhere_are_given_up(spark: SparkSession, tables: Path) -> None:
    """A thousand keys, of which the first 256 are in all files, are not brought to the driver."""
    many = "(SELECT id AS k FROM range(1000))"
    with conf(spark):
        scans = both(spark, f"SELECT /*+ BROADCAST(d) */ n FROM {{f}} f JOIN {many} d USING (k)")
    assert scans.files_kept == 10
    assert "256 of the keys are in nearly all files" in str(scans)


@pytest.mark.parametrize(
    "small, reason",
    [
        ("(SELECT k FROM {d} WHERE rand() < 0.999999999)", "not deterministic"),
        ("(SELECT k FROM {d} LIMIT 3)", "a second run may give other rows"),
        ("(SELECT first(k) AS k FROM {d} GROUP BY c)", "another value"),
        ("(SELECT k FROM {d} GROUP BY k HAVING sum(x) > 0.1)", "floating-point"),
    ],
)
def test_a_small_side_that_may_differ_is_not_run(
    spark: SparkSession, tables: Path, small: str, reason: str
) -> None:
    query = f"SELECT /*+ MERGE(d) */ f.n FROM {{f}} f JOIN {small} d ON f.k = d.k"
    with conf(spark):
        skipstone.enable(spark)
        try:
            spark.sql(query.format(f="fact", d="dim")).collect()
            scans = skipstone.last_scan(spark)
        finally:
            skipstone.disable(spark)
    assert scans.files_kept == 10
    assert reason in str(scans)


def test_no_job_runs_for_little_to_read(spark: SparkSession, tables: Path) -> None:
    query = "SELECT /*+ MERGE(d) */ f.n FROM {f} f JOIN {d} d ON f.k = d.k AND d.c = 2"
    with conf(spark, spark__skipstone__joins__minBytes="1000000"):
        scans = both(spark, query)
    assert scans.files_kept == 10
    assert "fewer than spark.skipstone.joins.minBytes" in str(scans)
    with conf(spark, spark__skipstone__joins__maxKeys="0"):
        scans = both(spark, query)
    assert scans.files_kept == 10
    assert not uses(scans)


def test_skip_and_joins_made_after_it(spark: SparkSession, tables: Path) -> None:
    with conf(spark):
        fact = skipstone.skip(spark.read.parquet(str(tables / "fact")))
        dim = spark.read.parquet(str(tables / "dim"))
        frame = fact.join(dim.where("c = 3"), fact["k"] == dim["k"], "left_semi")
        assert [row["k"] for row in frame.collect()] == [17]
        assert skipstone.last_scan(spark).files_kept == 1
        assert skipstone.explain(frame).files_kept == 1


def test_rows_of_python(spark: SparkSession, tables: Path) -> None:
    """An RDD may give other rows each time: its keys are those of the broadcast, or none."""
    with conf(spark):
        small = spark.createDataFrame([(5,), (17,)], "k long")
        fact = skipstone.skip(spark.read.parquet(str(tables / "fact")))
        for hint, files in (("broadcast", 2), ("merge", 10)):
            assert len(fact.join(small.hint(hint), "k").collect()) == 2
            scans = skipstone.last_scan(spark)
            kept = scans.files_kept
            is_local = "rows of the driver" in str(scans)
            assert kept == (2 if is_local else files), str(scans)


def test_connect_has_no_joins_to_see(spark_connect: SparkSession, tables: Path) -> None:
    with pytest.raises(UnsupportedError, match="classic session"):
        skipstone.skip(spark_connect.read.parquet(str(tables / "fact")))


# -- any join --------------------------------------------------------------------------------------

_KEYS = ["k", "i", "s", "day", "at", "x", "p", "b"]
_PAIRS = [(key, key) for key in _KEYS] + [("k", "i"), ("i", "k"), ("n", "c"), ("k", "c")]
facts = st.sampled_from(
    [
        "{f}",
        "{f}",
        "(SELECT * FROM {f} WHERE n <> 3)",
        "(SELECT * FROM {f} UNION ALL SELECT * FROM {f} WHERE n > 7)",
        "(SELECT *, k + 1 AS more FROM {f})",
        "(SELECT DISTINCT * FROM {f})",
        "(SELECT f.* FROM {f} f LEFT JOIN {d} e ON f.k = e.k)",
        "(SELECT f.* FROM {f} f JOIN {f} e ON f.k = e.k AND e.n < 5)",
        "(SELECT e.* FROM {d} f RIGHT JOIN {f} e ON f.k = e.k)",
        "(SELECT f.* FROM {f} f WHERE f.k IN (SELECT k FROM {d} WHERE c > 1))",
        "(SELECT * FROM {f} WHERE k >= (SELECT max(k) FROM {d} WHERE c < 4))",
        "(SELECT * FROM {f} WHERE i <= (SELECT c FROM {d} WHERE c > 9) OR n = 2)",
        "(SELECT * FROM {f} WHERE s = (SELECT s FROM {d} WHERE c = 2) "
        "UNION ALL SELECT * FROM {f} WHERE s < (SELECT s FROM {d} WHERE c = 4))",
        "(SELECT f.* FROM {f} f LEFT JOIN (SELECT * FROM {f} WHERE k = (SELECT k FROM {d} "
        "WHERE c = 2)) e ON f.k = e.k)",
    ]
)
dims = st.sampled_from(
    [
        "(SELECT * FROM {d} WHERE c IN (2, 3, 10))",
        "(SELECT * FROM {d} WHERE c < 2)",
        "(SELECT * FROM {d} WHERE c > 20)",
        "(SELECT * FROM {d} WHERE k IS NULL)",
        "(SELECT * FROM {d} UNION ALL SELECT * FROM {d} WHERE c = 4)",
        "(SELECT a.* FROM {d} a JOIN {d} b ON a.k = b.k AND b.c = 2)",
        "(SELECT a.* FROM {d} a JOIN {d} b ON a.k = b.k AND b.c = 2 "
        "UNION ALL SELECT * FROM {d} WHERE c = 7)",
        "(SELECT * FROM {d} WHERE c IN (SELECT n FROM {f} WHERE n BETWEEN 2 AND 3))",
        "(SELECT *, 7L AS c FROM (SELECT * EXCEPT (n) FROM {f} WHERE k < 4))",
        "{d}",
    ]
)
equalities = st.builds(
    "f.{0[0]} {1} d.{0[1]}{2}".format,
    st.sampled_from(_PAIRS),
    st.sampled_from(["=", "=", "<=>"]),
    st.just(""),
) | st.builds("f.k = d.k + {}".format, st.sampled_from([1, 40]))
conditions = st.one_of(
    equalities,
    st.builds("{} AND {}".format, equalities, equalities),
    st.builds("{} AND f.n < 6".format, equalities),
    st.builds("{} AND d.c <> 2".format, equalities),
    st.builds("({} OR d.c = 2)".format, equalities),
)
hints = st.sampled_from(
    ["", "", "/*+ BROADCAST(d) */", "/*+ MERGE(d) */", "/*+ SHUFFLE_HASH(d) */"]
)
whole_joins = st.builds(
    "SELECT {0} f.n, f.s, d.c FROM {1} f {2} JOIN {3} d ON {4}".format,
    hints,
    facts,
    st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"]),
    dims,
    conditions,
)
one_sided = st.builds(
    "SELECT {0} f.n, f.s FROM {1} f {2} JOIN {3} d ON {4}".format,
    hints,
    facts,
    st.sampled_from(["LEFT SEMI", "LEFT ANTI"]),
    dims,
    conditions,
)
mirrored = st.builds(
    "SELECT {0} d.c, d.s FROM {1} d {2} JOIN {3} f ON {4}".format,
    hints,
    dims,
    st.sampled_from(["LEFT SEMI", "LEFT ANTI"]),
    facts,
    conditions,
)
subqueries = st.builds(
    "SELECT n, s FROM {0} f WHERE {1} (SELECT d.{2} FROM {3} d {4})".format,
    facts,
    st.sampled_from(["k IN", "k NOT IN", "n = 3 OR k IN", "NOT (k IN", "n < 8 AND k NOT IN"]),
    st.just("k"),
    dims,
    st.sampled_from(["", "WHERE d.c <> 10", "WHERE d.s = f.s"]),
).map(lambda query: query + ")" * (query.count("(") - query.count(")")))
existing = st.builds(
    "SELECT n, s FROM {0} f WHERE {1} EXISTS (SELECT 1 FROM {2} d WHERE {3})".format,
    facts,
    st.sampled_from(["", "NOT", "n = 3 OR"]),
    dims,
    conditions,
)
stars = st.builds(
    "SELECT f.n, d.c, e.c AS o FROM {0} f JOIN {1} d ON {2} {3} JOIN {4} e ON f.s = e.s".format,
    facts,
    dims,
    conditions,
    st.sampled_from(["", "LEFT", "FULL"]),
    dims,
)


pairs = st.builds("{} UNION ALL {}".format, whole_joins, whole_joins)


# A broadcast without rows, and keys that are texts.
@settings(max_examples=settings().max_examples * 2 // 5)
@given(
    query=st.one_of(
        whole_joins, whole_joins, one_sided, mirrored, subqueries, existing, stars, pairs
    ),
    adaptive=st.sampled_from(["true", "true", "false"]),
)
@example(
    query="SELECT /*+ BROADCAST(d) */ f.n, d.c FROM {f} f "
    "JOIN (SELECT * FROM {d} WHERE c > 20) d ON f.k = d.k",
    adaptive="false",
)
@example(
    query="SELECT /*+ MERGE(d) */ f.n FROM {f} f JOIN (SELECT * FROM {d} WHERE c < 2) d USING (s)",
    adaptive="true",
)
def test_any_join_gives_the_rows_of_plain_spark(
    spark: SparkSession, tables: Path, query: str, adaptive: str
) -> None:
    with conf(spark, spark__sql__adaptive__enabled=adaptive):
        both(spark, query)


# -- rows as text ----------------------------------------------------------------------------------


def test_words_of_rows() -> None:
    text = "[0,fffffffb,1000000003,303035][2,7,0][0,7,1800000000]"
    number, word = columns_of_rows(text, ["integer", "string"])
    assert number.array().to_pylist() == [-5, 7]
    assert word.nulls.tolist() == [False, True, False]
    with pytest.raises(UnreadableLiteral, match="interval"):
        columns_of_rows(text, ["interval day", "string"])
    assert [len(column.nulls) for column in columns_of_rows("", ["long", "date"])] == [0, 0]


@given(
    values=st.lists(
        st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**15), 2**15 - 1)), max_size=5
    )
)
def test_packed_keys(values: list[tuple[int, int]]) -> None:
    packed = [np.int64((first << 16) | (second & 0xFFFF)) for first, second in values]
    text = "".join(f"[{each}]" for each in packed)
    columns = packed_columns(text, ["integer", "short"])
    found = [each.values.view(np.int64).tolist() for each in columns]  # type: ignore[union-attr]
    assert list(zip(*found, strict=True)) == values
