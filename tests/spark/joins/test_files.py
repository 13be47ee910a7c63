"""Joins: the keys of one side skip files of the other, and rows are those of plain Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.joins.layout import both, conf, session_of
from tools.scanned import scanned

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


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


def test_spark_itself_reads_these_files(spark: SparkSession, tables: Path) -> None:
    query = "SELECT f.n FROM {f} f JOIN {d} d ON f.k = d.k WHERE d.c IN (2, 3, 7)"
    with conf(spark, spark__sql__adaptive__enabled="false"):
        with session_of(spark):
            frame = spark.sql(query.format(f="fact", d="dim"))
            frame.collect()
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
