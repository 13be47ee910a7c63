"""Tables of a Hive metastore by name: `python -m tests.spark.hive_job`, with Derby embedded, and
`python -m tests.spark.hive_job connect`, through a server of Spark Connect.

A session of its own, because a catalog is chosen when a process starts Spark. `ev` is partitioned
by `day` and `kind`, both strings; one partition lies outside the table, in a folder whose name says
another day, and one folder below the table is not in the metastore. Exit code 1 on a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import skipstone
from skipstone import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(home: Path) -> SparkSession:
    """A session with Hive's catalog below `home`."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
    )
    for name, value in hive(home).items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def hive(home: Path) -> dict[str, str]:
    """The settings of a Hive metastore in Derby, below `home`."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={home / 'metastore'};create=true"
        ),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={home}",
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
    }


def backdate(home: Path) -> None:
    """Make new files old: a build leaves files that were written just now for later."""
    for file in home.rglob("*.parquet"):
        if file.stat().st_mtime > 1_700_000_000:
            os.utime(file, (1_700_000_000, 1_700_000_000))


def lay_out(spark: SparkSession, home: Path) -> None:
    """The table `db.ev`."""
    spark.sql("CREATE DATABASE db")
    spark.sql(
        "CREATE TABLE db.ev (id BIGINT, userName STRING) PARTITIONED BY (day STRING, kind STRING) "
        f"STORED AS PARQUET LOCATION '{(home / 'ev').as_uri()}' "
        "TBLPROPERTIES ('skipstone.indexes' = 'id:minmax; username:bloom')"
    )
    spark.sql(
        "INSERT INTO db.ev SELECT id, concat('s', id), concat('0', id div 25), "
        "if(id % 2 = 0, 'a, kind=b', NULL) FROM range(100)"
    )
    parts = {"else/day=07": (1000, 1010), "ev/day=09/kind=unlisted": (0, 5)}
    for folder, (start, stop) in parts.items():
        rows = spark.range(start, stop).selectExpr("id", "concat('s', id) AS username")
        rows.coalesce(1).write.parquet(str(home / folder))
    place = f"file:{home}/else/day=07"
    spark.sql(f"ALTER TABLE db.ev ADD PARTITION (day='2024', kind='x') LOCATION '{place}'")
    spark.sql(
        "ALTER TABLE db.ev ADD PARTITION (day='2025', kind='gone') LOCATION '/nowhere/at/all'"
    )
    backdate(home)


QUERIES = {
    "SELECT * FROM db.ev WHERE id = 1003": (1, 9),
    "SELECT * FROM db.ev WHERE day = '07'": (0, 0),
    "SELECT * FROM db.ev WHERE day = '2024' AND id = 1003": (1, 1),
    "SELECT * FROM db.ev WHERE day = '2024' OR id = 3": (9, 9),
    "SELECT id FROM db.ev WHERE kind IS NULL AND id < 10": (1, 4),
    "SELECT count(*) FROM db.ev WHERE userName = 's7'": (1, 9),
    "SELECT * FROM db.ev WHERE kind = 'a, kind=b' AND id IN (2, 98)": (2, 4),
    "SELECT * FROM db.v WHERE id = 60": (2, 8),
}


def check(spark: SparkSession, home: Path) -> None:
    """Everything that `Table` promises of a name."""
    table = Table(spark, "db.ev")
    assert repr(table) == "Table(spark, 'spark_catalog.db.ev')", table
    assert table.catalog is not None
    places = {p.location: dict(p.values) for p in table.catalog.partitions()}
    assert places[str(home / "else/day=07")] == {"day": "2024", "kind": "x"}, places
    assert {"day": "01", "kind": "a, kind=b"} in places.values(), places
    assert {"day": "01", "kind": None} in places.values(), places
    listing = table.listing()
    assert len(listing) == 9, listing.paths
    assert not [path for path in listing.paths if "unlisted" in path]
    built = table.build(spark)
    assert (built.files_built, built.files_failed) == (9, ()), built
    names = [index.column for index in table.describe().indexes]
    assert names == ["id", "userName"], names

    spark.sql("CREATE VIEW db.v AS SELECT * FROM db.ev WHERE day < '2024'")
    for query, (kept, total) in QUERIES.items():
        plain = sorted(map(repr, spark.sql(query).collect()))
        skipstone.enable(spark)
        found = sorted(map(repr, spark.sql(query).collect()))
        scans = skipstone.last_scan(spark)
        skipstone.disable(spark)
        assert found == plain, query
        got = (scans.files_kept, scans.files_total)
        assert got == (kept, total), (query, got)

    plan = table.plan("day = '2024' AND id = 1003")
    assert plan.files_kept == 1, plan
    rows = table.query("kind IS NULL AND id < 5 AND day = '00'").to_pylist()
    assert sorted(row["id"] for row in rows) == [1, 3], rows
    assert {row["day"] for row in rows} == {"00"}, rows
    assert table.read(spark, "id = 1003").collect()[0].day == "2024"
    assert skipstone.last_scan(spark).files_kept == 1

    # A partition that is moved, dropped or added is where the catalog says, at the next call.
    spark.sql("ALTER TABLE db.ev DROP PARTITION (day='2024', kind='x')")
    assert table.count("id >= 1000") == 0
    spark.sql("INSERT INTO db.ev PARTITION (day='05', kind='z') SELECT 7000, 'new'")
    backdate(home)
    assert table.count("id = 7000") == 1
    refreshed = table.refresh(spark)
    assert refreshed.files_built == 1, refreshed.to_dict()
    skipstone.enable(spark)
    assert spark.sql("SELECT count(*) FROM db.ev WHERE id = 7000").collect()[0][0] == 1
    assert skipstone.last_scan(spark).files_kept == 1
    spark.sql("INSERT OVERWRITE db.ev PARTITION (day='05', kind='z') SELECT 7001, 'newer'")
    assert spark.sql("SELECT id FROM db.ev WHERE id >= 7000").collect()[0].id == 7001
    skipstone.disable(spark)

    place = f"file:{home}/ev/day=05/kind=z"
    spark.sql(f"ALTER TABLE db.ev ADD PARTITION (day='06', kind='z') LOCATION '{place}'")
    refused("both lie at", lambda: table.listing())
    spark.sql("CREATE TABLE db.txt (a INT) STORED AS TEXTFILE")
    refused("Hive reads it by", lambda: Table(spark, "db.txt"))
    refused("is a view", lambda: Table(spark, "db.v"))

    spark.sql("CREATE TABLE db.o (a INT, b STRING) STORED AS ORC")
    spark.sql("INSERT INTO db.o VALUES (1, 'x'), (2, 'y')")
    for file in (home / "warehouse").rglob("*"):
        os.utime(file, (1_700_000_000, 1_700_000_000))
    assert Table(spark, "db.o").build(spark, ["a:minmax"]).ok
    skipstone.enable(spark)
    assert spark.sql("SELECT * FROM db.o WHERE a = 7").collect() == []
    assert skipstone.last_scan(spark).files_kept == 0
    skipstone.disable(spark)


def check_connect(spark: SparkSession, home: Path, address: str) -> None:
    """What `Table` promises of a name to a client of Spark Connect."""
    table = Table(spark, "db.ev")
    assert repr(table) == "Table(spark, 'spark_catalog.db.ev')", table
    listing = table.listing()
    assert len(listing) == 9, listing.paths
    assert not [path for path in listing.paths if "unlisted" in path]
    built = table.build(spark)
    assert (built.files_built, built.files_failed) == (9, ()), built
    names = [index.column for index in table.describe().indexes]
    assert names == ["id", "userName"], names
    kept = {
        "id = 1003": 1,
        "day = '07'": 0,
        "day = '2024' AND id = 1003": 1,
        "kind IS NULL AND id < 10": 1,
        "userName = 's7'": 1,
        "kind = 'a, kind=b' AND id IN (2, 98)": 2,
    }
    for where, files in kept.items():
        plain = spark.table("db.ev").where(where).collect()
        assert sorted(map(repr, table.read(spark, where).collect())) == sorted(map(repr, plain))
        assert table.plan(where).files_kept == files, where
        assert table.query(where).num_rows == len(plain), where
    (row,) = table.query("id = 1003").to_pylist()
    assert (row["day"], row["kind"]) == ("2024", "x"), row
    assert table.catalog is not None
    assert table.catalog.described is not None
    assert "no column _metadata" in table.catalog.described.read_in_full("id = 1", keyed=False)

    command = [sys.executable, "-m", "skipstone", "query", "--table", "db.ev", "id = 1003", "--csv"]
    here = {**os.environ, "SKIPSTONE_MASTER": address}
    said = subprocess.run(command, env=here, capture_output=True, text=True, check=False)
    assert said.stdout.splitlines()[1:] == ["1003,s1003,2024,x"], said

    # A partition that is moved, dropped or added is where the catalog says, at the next call.
    spark.sql("ALTER TABLE db.ev DROP PARTITION (day='2024', kind='x')")
    assert table.count("id >= 1000") == 0
    spark.sql("INSERT INTO db.ev PARTITION (day='05', kind='z') SELECT 7000, 'new'")
    backdate(home)
    command = [sys.executable, "-m", "skipstone", "refresh", "--table", "db.ev"]
    command += ["--master", address]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "indexed 1 of 9 files" in said.stdout, said
    assert table.refresh(spark).files_built == 0
    assert table.explain("id = 7000 AND day = '05'").plan.files_kept == 1
    place = f"file:{home}/ev/day=05/kind=z"
    spark.sql(f"ALTER TABLE db.ev ADD PARTITION (day='06', kind='z') LOCATION '{place}'")
    refused("both lie at", lambda: table.listing())
    spark.sql("CREATE TABLE db.txt (a INT) STORED AS TEXTFILE")
    refused("Hive's LazySimpleSerDe", lambda: Table(spark, "db.txt"))
    spark.sql("CREATE VIEW db.v AS SELECT * FROM db.ev")
    refused("is a view", lambda: Table(spark, "db.v"))
    spark.conf.set("spark.sql.hive.convertMetastoreParquet", "false")
    refused("convertMetastoreParquet is false", lambda: Table(spark, "db.ev"))


def refused(text: str, call: object) -> None:
    """The call is an `UnsupportedError` with this text."""
    try:
        call()  # type: ignore[operator]
    except skipstone.SkipstoneError as error:
        said = str(error)
    else:
        said = "nothing"
    assert text in said, said


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hive-job-") as directory:
        home = Path(directory)
        if sys.argv[1:] == ["connect"]:
            connected(home)
            return
        spark = session(home)
        try:
            lay_out(spark, home)
            check(spark, home)
            print(f"PySpark {spark.version} with Hive: every check holds")
        finally:
            spark.stop()


def connected(home: Path) -> None:
    """The checks of a client of Spark Connect."""
    from tests.spark_servers import connect_server

    server, address = connect_server(home, hive(home))
    try:
        from pyspark.sql.connect.session import SparkSession as Remote

        spark: SparkSession = Remote.builder.remote(address).getOrCreate()  # type: ignore[assignment]
        lay_out(spark, home)
        check_connect(spark, home, address)
        print(f"PySpark {spark.version} with Hive: every check holds")
        spark.stop()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
