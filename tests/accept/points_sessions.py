"""Spark where people use it: whole sessions, tables by name, jobs as they are, and the log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import skipstone
import skipstone.run
from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.spark.relation import LOG_FILE
from tests.accept.points_spark import indexed
from tests.accept.registry import point
from tests.accept.tables import FILES
from tests.processes import environment

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


def files(bench: Workbench, query: str) -> tuple[int, int]:
    """Files kept of the total by an enabled session, whose rows are those of plain Spark."""
    spark = bench.spark
    skipstone.disable(spark)
    plain = sorted(map(repr, spark.sql(query).collect()))
    skipstone.enable(spark)
    assert sorted(map(repr, spark.sql(query).collect())) == plain, query
    scans = skipstone.last_scan(spark)
    return scans.files_kept, scans.files_total


@point("sessions: enable(spark) makes paths, names, views, SQL and INSERT skip until disable")
def whole_session(bench: Workbench) -> None:
    spark, root = bench.spark, indexed(bench)
    spark.sql(f"CREATE TABLE session_events USING parquet LOCATION '{root.as_uri()}'")
    spark.sql("CREATE VIEW session_view AS SELECT * FROM session_events WHERE day < 11")
    skipstone.enable(spark)
    try:
        spark.table("session_events").createOrReplaceTempView("session_cell")
        for source in ("session_events", "session_view", "session_cell", f"parquet.`{root}`"):
            assert files(bench, f"SELECT * FROM {source} WHERE day = 3") == (1, FILES), source
        assert files(
            bench,
            "SELECT count(*) FROM session_events WHERE day IN (SELECT day + 1 FROM session_view "
            "WHERE day = 2)",
        ) == (1 + 1, 2 * FILES), "the key of the subquery skips files of the outer table"
        place = (bench.home / "copy").as_uri()
        spark.sql(
            f"CREATE TABLE session_copy USING parquet LOCATION '{place}' "
            "AS SELECT * FROM session_view LIMIT 0"
        )
        spark.sql("INSERT INTO session_copy SELECT * FROM session_events WHERE day = 5")
        assert skipstone.last_scan(spark).files_kept == 1
        skipstone.disable(spark)
        spark.table("session_cell").where("day = 3").collect()
        assert skipstone.last_scan(spark).files_kept == FILES, "a view made before disable"
    finally:
        skipstone.disable(spark)
        spark.sql("DROP TABLE IF EXISTS session_copy")
        spark.sql("DROP VIEW session_view")
        spark.sql("DROP TABLE session_events")


@point("sessions: the files of a table are matched once, and a command runs once")
def once(bench: Workbench) -> None:
    spark, root = bench.spark, indexed(bench)
    spark.sql(f"CREATE TABLE once_events USING parquet LOCATION '{root.as_uri()}'")
    place = (bench.home / "written").as_uri()
    spark.sql(f"CREATE TABLE once_copy (day INT) USING parquet LOCATION '{place}'")
    skipstone.enable(spark)
    try:
        for day, matched in ((3, True), (4, False), (5, False)):
            spark.sql(f"SELECT * FROM once_events WHERE day = {day}").collect()
            (scan,) = skipstone.last_scan(spark).scans
            assert ("matching" in scan.milliseconds, scan.files_kept) == (matched, 1), scan
        spark.sql("REFRESH TABLE once_events")
        spark.sql("SELECT * FROM once_events WHERE day = 3").collect()
        assert "matching" in skipstone.last_scan(spark).scans[0].milliseconds
        wanted = spark.sql("SELECT * FROM once_events WHERE day = 6").count()
        spark.sql(
            "WITH c AS (SELECT day FROM once_events WHERE day = 6) INSERT INTO once_copy TABLE c"
        )
        assert skipstone.last_scan(spark).files_kept == 1
        assert spark.table("once_copy").count() == wanted
        spark.sql("FROM once_events INSERT INTO once_copy SELECT day WHERE day = 6")
        assert spark.table("once_copy").count() == 2 * wanted
    finally:
        skipstone.disable(spark)
        spark.sql("DROP TABLE once_copy")
        spark.sql("DROP TABLE once_events")


@point("sessions: spark-submit runs a job that knows nothing of Skipstone, and it skips")
def job_as_it_is(bench: Workbench) -> None:
    root = indexed(bench)
    log = bench.home / "scans.log"
    (bench.home / "job.py").write_text(
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "print('rows', spark.read.parquet(sys.argv[1]).where('day = 3').count())\n"
    )
    confs = {"spark.master": "local[1]", "spark.ui.enabled": "false", LOG_FILE: str(log)}
    shell = " ".join(f"--conf {key}={value}" for key, value in confs.items())
    done = subprocess.run(
        [sys.executable, skipstone.run.__file__, bench.home / "job.py", root],
        env={**environment(), "PYSPARK_SUBMIT_ARGS": f"{shell} pyspark-shell"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rows " in done.stdout
    found = json.loads(log.read_text().splitlines()[-1])
    assert found["files"] == {"kept": 1, "total": FILES}, found


@point("sessions: every scan is a line of the log, and usage says which indexes pay")
def log_and_usage(bench: Workbench) -> None:
    spark, root = bench.spark, indexed(bench)
    log = bench.home / "scans.log"
    spark.conf.set(LOG_FILE, str(log))
    seen: list[int] = []
    skipstone.enable(spark, on_scan=lambda scan: seen.append(scan.files_kept))
    try:
        for day in range(22):
            spark.read.parquet(str(root)).where(f"day = {day}").count()
    finally:
        skipstone.disable(spark)
        spark.conf.unset(LOG_FILE)
    assert len(seen) == len(log.read_text().splitlines()) == 22
    ran = bench.skipstone("usage", str(root), "--log", str(log), "--json")
    assert ran.code == 0, ran.err
    found = {each["name"].partition("(")[0]: each for each in json.loads(ran.out)["indexes"]}
    assert found["day:minmax"]["used"] == 22
    assert found["day:minmax"]["verdict"] == "keep", found["day:minmax"]
    assert found["kind:valuelist"]["verdict"] == "drop: no scan used it"


@point("names: Table(spark, name) builds, explains and reads; a view is refused in words")
def by_name(bench: Workbench) -> None:
    spark = bench.spark
    spark.sql(
        "CREATE TABLE named_events (id BIGINT, p STRING) USING parquet PARTITIONED BY (p) "
        f"LOCATION '{(bench.home / 'named').as_uri()}' "
        "TBLPROPERTIES ('skipstone.indexes' = 'id:minmax')"
    )
    try:
        spark.sql("INSERT INTO named_events SELECT id, concat('0', id div 10) FROM range(50)")
        table = Table(spark, "named_events")
        for file in Path(table.path).rglob("*.parquet"):
            os.utime(file, (1_700_000_000, 1_700_000_000))
        assert table.build(spark).ok
        assert table.plan("p = '03' AND id = 31").files_kept == 1
        assert table.count("p = '03'") == 10
        rows = table.read(spark, "id = 17").collect()
        assert [(row.id, row.p) for row in rows] == [(17, "01")]
        spark.sql("CREATE VIEW named_view AS SELECT * FROM named_events")
        said = ""
        try:
            Table(spark, "named_view")
        except UnsupportedError as error:
            said = str(error)
        assert "is a view" in said, said
    finally:
        spark.sql("DROP VIEW IF EXISTS named_view")
        spark.sql("DROP TABLE named_events")


@point("names: a Hive table whose partitions lie elsewhere is one index, on embedded Derby")
def hive(bench: Workbench) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.hive_job"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
