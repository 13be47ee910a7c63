"""Joins: the keys of a small side skip files of the big one, and rows never depend on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import skipstone
from skipstone.spark.joins.keys import MAX_KEYS, MIN_BYTES
from tests.accept.points_sessions import files
from tests.accept.points_spark import indexed
from tests.accept.registry import point
from tests.accept.tables import FILES, write

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


def views(bench: Workbench) -> None:
    """``facts`` is the table of twelve files, one for a day; ``days`` has rows for 3, 5, 99 and
    NULL."""
    spark, root = bench.spark, indexed(bench)
    days = {"day": pa.array([3, 5, 99, None], pa.int32()), "name": ["a", "b", "c", "d"]}
    dim = write(bench.home / "days" / "all.parquet", days)
    skipstone.enable(spark)
    spark.read.parquet(str(root)).createOrReplaceTempView("facts")
    spark.read.parquet(str(dim.parent)).createOrReplaceTempView("days")


@point("joins: the keys of a filtered dimension skip files of the big table, whatever the join")
def dimension(bench: Workbench) -> None:
    spark = bench.spark
    views(bench)
    try:
        for query, kept in (
            ("SELECT count(*) FROM facts JOIN days USING (day) WHERE name = 'a'", 1),
            ("SELECT id FROM facts WHERE day IN (SELECT day FROM days)", 2),
            ("SELECT id FROM facts f WHERE EXISTS (SELECT 1 FROM days d WHERE d.day = f.day)", 2),
            ("SELECT name, id FROM days d LEFT JOIN facts f ON d.day = f.day", None),
            (
                "SELECT id FROM facts WHERE day NOT IN (SELECT day FROM days WHERE name < 'd')",
                FILES,
            ),
            ("SELECT id FROM facts LEFT JOIN days USING (day) WHERE length(kind) > 0", FILES),
        ):
            found, total = files(bench, query)
            assert (found, total) == (found if kept is None else kept, FILES), query
        (scan,) = skipstone.last_scan(spark).scans
        assert scan.joins == ()
    finally:
        skipstone.disable(spark)


@point("joins: last_scan and explain show the keys, their cost and what they saved")
def shown(bench: Workbench) -> None:
    spark = bench.spark
    views(bench)
    try:
        frame = spark.sql("SELECT count(*) FROM facts JOIN days USING (day) WHERE name < 'c'")
        frame.collect()
        (use,) = skipstone.last_scan(spark).scans[0].joins
        assert (use.keys, use.files_kept, use.files_total) == (2, 2, FILES)
        assert use.bytes_kept < use.bytes_total
        assert use.source == "the broadcast", use.source
        assert skipstone.explain(frame).files_kept == 2
    finally:
        skipstone.disable(spark)


@point("joins: a join that shuffles takes its keys by a job, where that is worth it")
def settings(bench: Workbench) -> None:
    spark = bench.spark
    views(bench)
    query = "SELECT /*+ MERGE(days) */ id FROM facts JOIN days USING (day) WHERE name = 'a'"
    try:
        assert files(bench, query) == (FILES, FILES)
        spark.conf.set(MIN_BYTES, "0")
        assert files(bench, query) == (1, FILES)
        spark.conf.set(MAX_KEYS, "0")
        assert files(bench, query) == (FILES, FILES)
    finally:
        skipstone.disable(spark)
        for name in (MIN_BYTES, MAX_KEYS):
            spark.conf.unset(name)


@point("joins: comparisons with a scalar subquery skip, and NULL or an error stay as they are")
def subqueries(bench: Workbench) -> None:
    spark = bench.spark
    views(bench)
    try:
        spark.conf.set(MIN_BYTES, "0")
        for where, kept in {
            "day = (SELECT min(day) FROM days WHERE name < 'c')": 1,
            "day < (SELECT min(day) - 1 FROM days WHERE name < 'c')": 2,
            "day = (SELECT day FROM days WHERE name = 'nobody')": 0,
            "day <> (SELECT min(day) FROM days)": FILES,
        }.items():
            assert files(bench, f"SELECT id FROM facts WHERE {where}") == (kept, FILES), where
        several = spark.sql("SELECT id FROM facts WHERE day = (SELECT day FROM days)")
        with pytest.raises(Exception, match=r"(?i)subquery"):
            several.collect()
    finally:
        skipstone.disable(spark)
        spark.conf.unset(MIN_BYTES)
