"""An enabled session has the rows of plain Spark, whatever happens to a table between queries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone import Table
from tests.spark.layout import rows
from tests.spark.test_enable import skipping, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

bounds = st.integers(-5, 115)
conditions = st.one_of(
    st.builds("{} {} {}".format, st.just("id"), st.sampled_from(["=", "<", ">=", "<>"]), bounds),
    st.builds("s = 's{}'".format, bounds),
    st.builds("id BETWEEN {0} AND {0} + 12".format, bounds),
    st.sampled_from(["s IS NULL", "k IN (1, 4)", "id % 3 = 0", "NOT (id < 90 OR s IS NULL)"]),
)
sources = st.sampled_from(["live", "live_view", "temporary", "other"])
selects = st.one_of(
    st.builds("SELECT id, k, s FROM {} WHERE {}".format, sources, conditions),
    st.builds("SELECT k, count(*), max(s) FROM {} WHERE {} GROUP BY k".format, sources, conditions),
    st.builds(
        "SELECT a.id, b.s FROM {} a JOIN {} b ON a.id = b.id + 1 WHERE a.{} AND b.{}".format,
        sources,
        sources,
        conditions.filter(lambda text: not text.startswith("NOT")),
        conditions.filter(lambda text: not text.startswith("NOT")),
    ),
    st.builds(
        "SELECT id FROM {} WHERE {} UNION ALL SELECT k FROM {} WHERE {}".format,
        sources,
        conditions,
        sources,
        conditions,
    ),
    st.builds(
        "SELECT id FROM {} WHERE id IN (SELECT id + 1 FROM {} WHERE {})".format,
        sources,
        sources,
        conditions,
    ),
    st.builds(
        "SELECT id FROM {} t WHERE EXISTS (SELECT 1 FROM {} u WHERE u.id = t.id AND u.{})".format,
        sources,
        sources,
        conditions.filter(lambda text: not text.startswith("NOT")),
    ),
    st.builds(
        "WITH c AS (SELECT * FROM {} WHERE {}) SELECT c.id, d.k FROM c LEFT JOIN c d USING (id)"
        "".format,
        sources,
        conditions,
    ),
)
# What may happen to the table ``live`` before a query.
events_between = st.sampled_from(
    [
        "nothing",
        "insert",
        "overwrite",
        "replace file",
        "add file",
        "remove file",
        "refresh index",
        "cache",
        "uncache",
        "cache frame",
        "view",
        "lose index",
    ]
)


class World:
    """A table ``live`` with views, and the table ``other``; each step changes one of them."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.root, self.number = spark, home / "live", 10
        self.frames: list[DataFrame] = []
        for number in range(6):
            write(self.root, number, range(number * 10, number * 10 + 10))
        other = home / "other"
        write(other, 0, range(0, 30, 3))
        write(other, 1, range(31, 90, 3))
        for root in (self.root, other):
            Table(str(root)).build(indexes=["id:minmax", "s:valuelist"])
        spark.sql(f"CREATE TABLE live USING parquet LOCATION '{self.root.as_uri()}'")
        spark.sql(f"CREATE TABLE other USING parquet LOCATION '{other.as_uri()}'")
        spark.sql("CREATE VIEW live_view AS SELECT * FROM live WHERE id >= 5")
        self.step("view")

    def step(self, what: str) -> None:
        """Change the world."""
        spark, files = self.spark, sorted(self.root.glob("*.parquet"))
        self.number += 1
        if what == "insert":
            spark.sql("INSERT INTO live SELECT id + 50, k, s FROM other WHERE id < 12")
        elif what == "overwrite":
            spark.sql("INSERT OVERWRITE live SELECT id, k + 1, s FROM other WHERE id > 20")
        elif what == "replace file" and files:
            files[0].unlink()
            write(self.root, self.number, range(70, 80))
        elif what == "add file":
            write(self.root, self.number, range(95, 105))
        elif what == "remove file" and len(files) > 1:
            files[-1].unlink()
        elif what == "refresh index":
            for file in self.root.glob("*.parquet"):
                os.utime(file, (1_700_000_000, 1_700_000_000))
            Table(str(self.root)).build(indexes=["id:minmax", "s:valuelist"])
        elif what == "cache":
            spark.sql("CACHE TABLE live")
        elif what == "uncache":
            spark.sql("UNCACHE TABLE IF EXISTS live")
        elif what == "cache frame":
            self.frames.append(spark.sql("SELECT * FROM live WHERE id < 40").cache())
        elif what == "view":
            spark.table("live").createOrReplaceTempView("temporary")
        elif what == "lose index":
            Table(str(self.root)).drop()
        if what.endswith("file"):
            spark.catalog.refreshTable("live")  # as a job does that changes files
            spark.table("live").createOrReplaceTempView("temporary")

    def close(self) -> None:
        """Remove it."""
        for frame in self.frames:
            frame.unpersist()
        self.spark.sql("UNCACHE TABLE IF EXISTS live")
        self.spark.catalog.dropTempView("temporary")
        self.spark.sql("DROP VIEW live_view")
        for name in ("live", "other"):
            self.spark.sql(f"DROP TABLE {name}")


def outcomes(spark: SparkSession, home: Path, steps: list[tuple[str, str]]) -> list[object]:
    """The rows after each step, or that Spark fails: it keeps lists of files with cached data."""
    world = World(spark, home)
    found: list[object] = []
    try:
        for what, query in steps:
            try:
                world.step(what)
                found.append(rows(spark.sql(query)))
            except Exception as error:
                if "does not exist" not in str(error):
                    raise
                found.append("a file is gone")
        return found
    finally:
        world.close()


# Few worlds of many steps: most of the time is that of making the tables.
@settings(max_examples=4)
@given(steps=st.lists(st.tuples(events_between, selects), min_size=3, max_size=6))
def test_rows_are_those_of_plain_spark(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str]],
) -> None:
    plain = outcomes(spark, tmp_path_factory.mktemp("plain"), steps)
    with skipping(spark):
        assert outcomes(spark, tmp_path_factory.mktemp("enabled"), steps) == plain
