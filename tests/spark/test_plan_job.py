"""Facts asked by a job of Spark say what they say when held in memory.

The layout is that of `tests/planning/test_runs.py`: facts of one file in several parts, a changed
file, row groups of three facts. Spark's workers are processes: they know the parts alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import skipstone
from skipstone.planning.explain import Explanation
from skipstone.spark import jobs
from tests.planning.test_runs import FILES, WHERES, names, planned, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["table"]  # the fixture

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("where", ["id = 47 OR s = 'v9'", "x IS NULL", "NOT (id < 100)"])
def test_a_job_is_as_in_memory(spark: SparkSession, table: skipstone.Table, where: str) -> None:
    held = table.plan(where)
    job = table.plan(where, spark=spark, memory=0)
    assert job.paths == held.paths
    assert job.must.tolist() == held.must.tolist()
    assert 0 < job.files_kept < FILES


def test_a_job_says_what_it_did(spark: SparkSession, table: skipstone.Table) -> None:
    plan = table.plan("id = 47", spark=spark, memory=0)
    assert names(plan) == ["02", "03", "10", "11"]
    (step,) = (step for step in plan.steps if step.index == "minmax" and step.used)
    assert (step.column, step.considered, step.kept) == ("id", 9, 1)


def test_one_task_may_have_many_runs(
    spark: SparkSession, table: skipstone.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [names(table.plan(where)) for where in WHERES[:4]]
    for size in (1, 2**40):
        monkeypatch.setattr(jobs, "FACT_BYTES_PER_TASK", size)
        found = [names(table.plan(where, spark=spark, memory=0)) for where in WHERES[:4]]
        assert found == every


def test_a_job_that_fails_keeps_every_file(spark: SparkSession, table: skipstone.Table) -> None:
    def broken(*arguments: object) -> object:
        raise RuntimeError("no executors")

    runner = jobs.plan_on_spark(spark)
    assert names(planned(table, "id = 47", runner)) == ["02", "03", "10", "11"]
    plan = planned(table, "id = 47", broken)
    assert plan.files_kept == FILES
    assert "no executors" in str(Explanation(plan))


def test_transparent_reading_plans_by_a_job(spark: SparkSession, table: skipstone.Table) -> None:
    """The call back into Python while Spark plans starts a job of its own."""
    key = "spark.skipstone.facts.memory"
    plain = spark.read.parquet(table.path).where("id = 47")
    rows = plain.collect()
    spark.conf.set(key, "0")
    try:
        df = skipstone.skip(plain)
        assert df.collect() == rows
        assert len(rows) == 1
        scan = skipstone.last_scan(spark)
        assert scan is not None
        assert scan.files_kept == 4
        assert "evaluated run by run" in str(scan)
    finally:
        spark.conf.unset(key)
