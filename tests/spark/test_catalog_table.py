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
from skipstone.spark.catalog.table import _parsed
from tests.processes import environment
from tests.spark.layout import read_by_spark, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession


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
    assert _parsed(printed(values, "file:/t/a%20b"), names) is None
    found = _parsed(printed(values), names)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (dict(found.values), found.location) == (expected, "/t/p")


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("session", ["classic", "connect"])
def test_hive(session: str) -> None:
    if session == "connect":
        pytest.importorskip("grpc")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.hive_job", session],
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
def test_names_that_are_escaped_in_folders(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    spark.sql(
        f"CREATE TABLE {database}.c (id BIGINT, city STRING) USING parquet PARTITIONED BY (city) "
        f"LOCATION '{tmp_path}/a b%41'"
    )
    for at, city in enumerate(("Paris", "New York", "é%20", "x/y=z")):
        spark.sql(f"INSERT INTO {database}.c VALUES ({at}, '{city}')")
    table = Table(spark, f"{database}.c")
    assert table.count("id >= 0") == 4
    assert table.count("city = 'New York'") == 1
    backdate(table)
    assert table.build(spark, ["id:minmax"]).files_built == 4
    plain = spark.table(f"{database}.c").where("id = 1")
    assert read_by_spark(skipstone.skip(plain)) == (rows(plain), 1)


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


@pytest.fixture
def remote(spark_connect: SparkSession) -> Iterator[str]:
    """A database of a server of Spark Connect."""
    spark_connect.sql("CREATE DATABASE names")
    yield "names"
    spark_connect.sql("DROP DATABASE names CASCADE")


def files_of(frame: DataFrame) -> int:
    return frame.selectExpr("_metadata.file_path").distinct().count()


@pytest.mark.spark
def test_a_client_of_connect(spark_connect: SparkSession, remote: str, tmp_path: Path) -> None:
    """Partitions by a date, one of them elsewhere and one without rows."""
    spark, name = spark_connect, f"{remote}.ev"
    place = tmp_path / "index"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, s STRING, c CHAR(4), day DATE) USING parquet "
        f"PARTITIONED BY (day) CLUSTERED BY (id) INTO 2 BUCKETS LOCATION '{tmp_path}/a b%41' "
        f"TBLPROPERTIES ('skipstone.index.location' = '{place}', "
        "'skipstone.indexes' = 'id:minmax; s:bloom')"
    )
    with pytest.raises(UnsupportedError, match="a URI or a path"):
        Table(spark, name)
    spark.sql(
        f"INSERT INTO {name} SELECT id, concat('s', id), 'c', "
        "date_add(DATE'2024-01-01', CAST(id div 10 AS INT)) FROM range(40)"
    )
    other = tmp_path / "it's else 100%" / "day=2024-01-01"
    other.mkdir(parents=True)
    spark.sql(
        f"ALTER TABLE {name} ADD PARTITION (day = DATE'2024-02-01') "
        f"LOCATION '{other.as_uri().replace(chr(39), '%27')}'"
    )
    table = Table(spark, name)
    assert table.location.root == str(place)
    backdate(table)
    assert len(table.listing()) == 8
    spark.sql(f"INSERT INTO {name} PARTITION (day = DATE'2024-02-01') SELECT 99, 's99', 'c'")
    for file in other.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    assert table.build(spark).files_built == 9
    assert "2 buckets" in str(table.describe())
    assert table.explain("day = DATE'2024-02-01'").plan.files_kept == 1
    (row,) = table.query("id = 99").to_pylist()
    assert str(row["day"]) == "2024-02-01"
    expected = {"id = 15": 1, "day < DATE'2024-01-02' AND id > 4": 2, "id = 99": 1, "s = 'no'": 0}
    for where, files in expected.items():
        found = table.read(spark, where)
        assert rows(found) == rows(spark.table(name).where(where)), where
        assert files_of(found) <= files, where
    # What is stored is padded: only Spark compares such texts.
    padded = table.read(spark, "c = 'c' AND id = 15")
    assert [row.id for row in padded.collect()] == [15]
    spark.sql(f"INSERT INTO {name} VALUES (7, 'new', 'c', DATE'2024-01-03')")
    assert [row.day.day for row in table.read(spark, "s = 'new'").collect()] == [3]
    with pytest.raises(UnsupportedError, match="the catalog has the format"):
        Table(spark, name, format="orc")


@pytest.mark.spark
def test_what_connect_does_not_show(spark_connect: SparkSession, remote: str) -> None:
    spark = spark_connect
    spark.range(3).createOrReplaceTempView("temporary_names")
    spark.sql(f"CREATE VIEW {remote}.v AS SELECT 1 AS one")
    for name in ("temporary_names", f"{remote}.v"):
        with pytest.raises(UnsupportedError, match=f"{name} is a view"):
            Table(spark, name)
    for name in (f"{remote}.nothing", "nowhere.nothing"):
        with pytest.raises(SkipstoneError, match="there is no table"):
            Table(spark, name)
    with pytest.raises(SkipstoneError, match=r"not a name: .*PARSE"):
        Table(spark, "not a name")
    spark.sql(
        f"CREATE TABLE {remote}.u (url STRING) USING parquet "
        "TBLPROPERTIES ('skipstone.indexes' = 'url:bloom')"
    )
    with pytest.raises(UnsupportedError, match="Spark hides the property"):
        Table(spark, f"{remote}.u")
    spark.sql(f"CREATE TABLE {remote}.m (_metadata STRING) USING parquet")
    with pytest.raises(UnsupportedError, match="a column _metadata"):
        Table(spark, f"{remote}.m")


@pytest.mark.spark
def test_text_files_under_connect(spark_connect: SparkSession, remote: str) -> None:
    spark = spark_connect
    spark.sql(f"CREATE TABLE {remote}.c (a INT, b STRING) USING csv OPTIONS (sep '|')")
    for number in range(3):
        spark.sql(f"INSERT INTO {remote}.c VALUES ({number}, 'x|{number}')")
    if spark.version < "4":
        with pytest.raises(UnsupportedError, match="options of its reader are not known"):
            Table(spark, f"{remote}.c")
        return
    table = Table(spark, f"{remote}.c")
    backdate(table)
    assert table.build(spark, ["a:minmax"]).files_built == 3
    found = table.read(spark, "a = 1")
    assert rows(found) == rows(spark.table(f"{remote}.c").where("a = 1"))
    assert files_of(found) == 1
