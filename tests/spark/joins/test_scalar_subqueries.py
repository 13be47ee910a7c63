"""Comparisons with a scalar subquery skip files as joins do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import skipstone
from skipstone.spark.session import Jvm, items
from tests.spark.joins.layout import both, conf, session_of, uses
from tests.spark.layout import rows, rows_of_each

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


# What is asked, and how many files are kept for it.
ASKED = [
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
    # NaN is greater than every number. Its file is kept, but Spark's own pushed filter may lose the
    # row: "NaN" in the text has `rows_of_each` ask plain Spark by a filter too.
    ("x > (SELECT x FROM {d} WHERE c = 7) /* and NaN */", 2),
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
    # A value that another run may not have: it is the one that Spark itself compares with.
    ("k = (SELECT k FROM {d} WHERE c = 3 AND rand() < 0.999999999)", 1),
    ("k = (SELECT k FROM {d} WHERE c < 4 ORDER BY k LIMIT 1)", 1),
    # Of the same table: a file for each scan.
    ("k = (SELECT max(k) FROM {f} WHERE n = 3)", 2),
]


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tables: Path) -> dict[str, list[str]]:
    """The rows of plain Spark for each condition."""
    texts = [where for where, _ in ASKED]
    asked = [where.format(f="plain_fact", d="plain_dim") for where in texts]
    every = rows_of_each(spark.table("plain_fact"), asked)
    return dict(zip(texts, every, strict=True))


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("where, files", ASKED)
def test_scalar_subqueries(
    spark: SparkSession, plain: dict[str, list[str]], where: str, files: int, adaptive: str
) -> None:
    with conf(spark, spark__sql__adaptive__enabled=adaptive), session_of(spark):
        query = "SELECT * FROM fact WHERE " + where.format(f="fact", d="dim")
        assert rows(spark.sql(query)) == plain[where]
        scans = skipstone.last_scan(spark)
    assert scans.files_kept == files, str(scans)
    # Spark's own value is asked for: no job computes it again.
    assert {use.source for use in uses(scans) if use.keys} <= {"the subquery"}


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


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_value_that_may_be_that_of_another_subquery_is_not_taken(
    spark: SparkSession, tables: Path, adaptive: str
) -> None:
    """Two look the same, another run of them may differ, and Spark may take one for both."""
    one = "(SELECT k FROM {d} WHERE c < 4 ORDER BY k LIMIT 1)"
    with conf(spark, spark__sql__adaptive__enabled=adaptive):
        scans = both(spark, f"SELECT {one} AS other, k FROM {{f}} WHERE k = {one}")
        assert scans.files_kept == 10, str(scans)
        # Of the same rows for certain, it is.
        one = "(SELECT max(k) FROM {d} WHERE c < 4)"
        scans = both(spark, f"SELECT {one} AS other, k FROM {{f}} WHERE k = {one}")
        assert scans.files_kept == 1, str(scans)


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
        scans = both(spark, f"SELECT * FROM {{f}} WHERE {where}")
    assert scans.files_kept == 10, str(scans)


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


def test_no_node_of_a_plan_that_runs_is_hashed(spark: SparkSession, tables: Path) -> None:
    """A hash takes the locks of all nodes below it. Other threads of the query hold these while
    they list files: a broadcast and a subquery that list at the same time waited for each other."""
    query = (
        "SELECT /*+ BROADCAST(d) */ f.k FROM fact f JOIN dim d ON f.k = d.k "
        "WHERE f.n < (SELECT count(c) FROM dim WHERE k > 20)"
    )
    with conf(spark, spark__sql__adaptive__enabled="false"), session_of(spark):
        frame = spark.sql(query)
        assert sorted(row.k for row in frame.collect()) == [0, 1, 5, 17, 17, 33, 34]
        assert uses(skipstone.last_scan(spark))
    node = "org.apache.spark.sql.catalyst.trees.TreeNode"
    plan = frame._jdf.queryExecution().executedPlan()
    below = list(items(plan.subqueriesAll()))
    assert below
    for each in (plan, *below):
        known = hidden(spark, node, "_hashCode", each)
        if not isinstance(known, int):  # newer versions of Spark, which take no lock
            known = hidden(spark, "org.apache.spark.util.BestEffortLazyVal", "cached", known)
        assert not known


def hidden(spark: SparkSession, name: str, field: str, item: Any) -> Any:
    """A private field of an object in the JVM."""
    found = Jvm.of(spark).static("java.lang.Class", "forName")(name).getDeclaredField(field)
    found.setAccessible(True)
    return found.get(item)
