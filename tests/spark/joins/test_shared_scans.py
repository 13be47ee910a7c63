"""Scans that several parts of a query use, and queries at the same time and later."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

import skipstone
from tests.spark.joins.layout import answers, both, conf, session_of, uses, write
from tests.spark.layout import rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


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
    spark: SparkSession, tables: Path, query: str
) -> None:
    with conf(spark, spark__sql__adaptive__enabled="true"):
        found, plain, _ = answers(spark, query)
    assert found == plain != []
    with conf(spark, spark__sql__adaptive__enabled="false"), session_of(spark):
        assert rows(spark.sql(query.format(f="fact", d="dim"))) == plain


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


def test_queries_of_several_threads(spark: SparkSession, tables: Path) -> None:
    """Each takes the keys of its own joins, and last_scan is that of its own thread."""
    found: dict[int, tuple[list[int], int, int]] = {}

    def ask(c: int) -> None:
        wanted = f"SELECT f.k FROM fact f JOIN dim d ON f.k = d.k WHERE d.c = {c} AND f.n >= 0"
        for _ in range(2):
            kept = [row.k for row in spark.sql(wanted).collect()]
            scans = skipstone.last_scan(spark)
            found[c] = kept, scans.files_kept, len(uses(scans))

    with conf(spark), session_of(spark):
        threads = [Thread(target=ask, args=(c,)) for c in range(1, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    keys = {1: 1, 2: 5, 3: 17, 4: 17, 5: 33}
    assert found == {c: ([key], 1, 1) for c, key in keys.items()}


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
        assert sorted(row.k for row in old[0].collect()) == [5, 17]
        write(side / "b.parquet", [95])
        mine, plain = (sorted(row.k for row in each.collect()) for each in old)
        assert mine == plain == [5, 17]
        new = frames()
        assert sorted(row.k for row in new[0].collect()) == [5, 17, 95]
        # Spark itself may take the two small sides for one.
        both = [old[at].union(new[at]) for at in (0, 1)]
        mine, plain = (sorted(row.k for row in each.collect()) for each in both)
        assert mine == plain


def test_a_query_takes_few_calls_to_the_jvm(
    spark: SparkSession, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's own calls count as well; freed objects do not, which another thread sends."""
    from py4j.clientserver import ClientServerConnection

    sent: list[str] = []
    send = ClientServerConnection.send_command

    def count(self: Any, command: str, *more: Any, **named: Any) -> Any:
        if not command.startswith("m\n"):
            sent.append(command)
        return send(self, command, *more, **named)

    def calls(text: str) -> list[str]:
        frame = spark.sql(text)
        sent.clear()
        frame.collect()
        return list(sent)

    monkeypatch.setattr(ClientServerConnection, "send_command", count)
    joined = "SELECT f.n FROM fact f JOIN dim d ON f.k = d.k WHERE d.c = 2"
    compared = "SELECT n FROM fact WHERE k = (SELECT max(k) FROM dim WHERE c = 2)"
    with conf(spark), session_of(spark):
        for text, most in (("SELECT n FROM fact WHERE k = 5", 40), (joined, 230), (compared, 330)):
            calls(text)
            assert 0 < len(calls(text)) <= most
            scans = skipstone.last_scan(spark)
            assert scans.files_kept < scans.files_total
        both = calls(" UNION ALL ".join(f"SELECT n FROM fact WHERE k = {k}" for k in (5, 17)))
    # Whatever the number of scans, a query without joins is looked at once.
    assert sum("\ncontainsAnyPattern\n" in command for command in both) == 1
    names = ("executedPlan", "nodeName", "containsPattern")
    assert not any(f"\n{name}\n" in command for name in names for command in both)
