"""What is told of the keys of joins, and the settings about them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import skipstone
from skipstone import Table
from skipstone.errors import UnsupportedError
from tests.spark.joins.layout import both, conf, session_of, uses

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


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
        with session_of(spark):
            frame = spark.sql(query.format(f="fact", d="dim"))
            explained = skipstone.explain(frame)
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
        ("(SELECT k FROM {d} GROUP BY k HAVING avg(i) > 0.1)", "floating-point"),
    ],
)
def test_a_small_side_that_may_differ_is_not_run(
    spark: SparkSession, tables: Path, small: str, reason: str
) -> None:
    query = f"SELECT /*+ MERGE(d) */ f.n FROM {{f}} f JOIN {small} d ON f.k = d.k"
    with conf(spark), session_of(spark):
        spark.sql(query.format(f="fact", d="dim")).collect()
        scans = skipstone.last_scan(spark)
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
