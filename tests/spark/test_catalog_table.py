"""``Table(spark, name)``: tables of the catalog, in Spark's own and in Hive's on embedded Derby."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import skipstone
from skipstone import SkipstoneError, Table
from skipstone.errors import UnsupportedError
from skipstone.spark.catalog_table import _parsed
from tests.processes import environment
from tests.spark.layout import read_by_spark, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def printed(values: str, location: str = "file:/t/p") -> str:
    return f"CatalogPartition(\n\tPartition Values: [{values}]\n\tLocation: {location}\n\tSerde: x)"


@pytest.mark.parametrize(
    "values, names, expected",
    [
        ("day=1", ["day"], {"day": "1"}),
        ("day=a, day=b]", ["day"], {"day": "a, day=b]"}),
        ("day=__HIVE_DEFAULT_PARTITION__", ["day"], {"day": None}),
        ("a=1, b=2", ["a", "b"], {"a": "1", "b": "2"}),
        ("a=, b==", ["a", "b"], {"a": "", "b": "="}),
        ("a=1, b=2, b=3", ["a", "b"], None),
        ("a=x, a=1, b=2", ["a", "b"], None),
        ("b=2, a=1", ["a", "b"], None),
        ("a=1]\n\tLocation: file:/u\n\t, b=2", ["a", "b"], None),
    ],
)
def test_a_partition_by_its_text(
    values: str, names: list[str], expected: dict[str, str | None] | None
) -> None:
    found = _parsed(printed(values), names)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (dict(found.values), found.location) == (expected, "/t/p")


@pytest.mark.spark
@pytest.mark.long
def test_hive() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.hive_job"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every check holds" in done.stdout


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    spark.sql("CREATE DATABASE names")
    yield "names"
    spark.sql("DROP DATABASE names CASCADE")


def backdate(table: Table) -> None:
    for file in Path(table.path).rglob("*"):
        os.utime(file, (1_700_000_000, 1_700_000_000))


@pytest.mark.spark
def test_a_table_of_sparks_own_catalog(spark: SparkSession, database: str, tmp_path: Path) -> None:
    place = tmp_path / "index"
    spark.sql(
        f"CREATE TABLE {database}.ev (id BIGINT, s STRING, p STRING) USING parquet "
        "PARTITIONED BY (p) CLUSTERED BY (id) INTO 2 BUCKETS TBLPROPERTIES "
        f"('skipstone.index.location' = '{place}', 'file-index.bitmap.columns' = 's')"
    )
    spark.sql(
        f"INSERT INTO {database}.ev SELECT id, concat('s', id), concat('0', id div 10) "
        "FROM range(40)"
    )
    table = Table(spark, f"{database}.ev")
    backdate(table)
    assert table.location.root == str(place)
    report = table.build(spark, ["id:minmax"])
    assert report.files_built == report.files_total == 8
    told = str(table.describe())
    assert "2 buckets" in told
    assert "bitmap" in told
    assert "partitioned by p" in told
    # The folder p=03 is the text 03, as the catalog says, and not the number 3.
    assert table.count("p = '03'") == 10
    assert table.count("p = '3'") == 0
    plain = spark.table(f"{database}.ev").where("id = 15")
    found, files = read_by_spark(skipstone.skip(plain))
    assert (found, files) == (rows(plain), 1)
    assert table.explain("id = 15").plan.files_kept == 1
    with pytest.raises(UnsupportedError, match="the catalog has the format"):
        Table(spark, f"{database}.ev", format="orc")


@pytest.mark.spark
def test_text_files(spark: SparkSession, database: str) -> None:
    spark.sql(f"CREATE TABLE {database}.c (a INT, b STRING) USING csv OPTIONS (sep '|')")
    for number in range(3):
        spark.sql(f"INSERT INTO {database}.c VALUES ({number}, 'x|{number}')")
    table = Table(spark, f"{database}.c")
    backdate(table)
    assert table.build(spark, ["a:minmax"]).files_built == 3
    plain = spark.table(f"{database}.c").where("a = 1")
    assert read_by_spark(skipstone.skip(plain)) == (rows(plain), 1)


@pytest.mark.spark
def test_what_is_no_table(spark: SparkSession, database: str) -> None:
    spark.range(3).createOrReplaceTempView("temporary_names")
    spark.sql(f"CREATE VIEW {database}.v AS SELECT 1 AS one")
    for name in ("temporary_names", f"{database}.v"):
        with pytest.raises(UnsupportedError, match=f"{name} is a view"):
            Table(spark, name)
    for name in (f"{database}.nothing", "nowhere.nothing"):
        with pytest.raises(SkipstoneError, match="there is no table"):
            Table(spark, name)
    with pytest.raises(SkipstoneError, match="not a name"):
        Table(spark, "not a name")
    with pytest.raises(TypeError, match="a session and a name"):
        Table(spark)
    with pytest.raises(TypeError, match="the session comes first"):
        Table("names.ev", "names.ev")
