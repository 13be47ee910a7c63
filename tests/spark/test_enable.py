"""``enable``: a session skips wherever it reads an indexed table, with the rows of plain Spark.

``events`` has ids 0 to 99, ten to a file, in a table of the catalog with the view ``events_view``;
``k`` is the number of the file. Its index lies next to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
import skipstone.run
from skipstone import Table
from skipstone.spark.enable import locations_of, unhook
from skipstone.spark.relation import ENABLED, INDEX_LOCATION
from tests.processes import environment
from tools.scanned import scanned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def write(root: Path, number: int, ids: range) -> None:
    """File ``number`` of a table, an hour old, so that a build takes it."""
    root.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "id": pa.array(list(ids), pa.int64()),
            "k": pa.array([number] * len(ids), pa.int32()),
            "s": pa.array([None if i % 7 == 0 else f"s{i}" for i in ids]),
        }
    )
    path = root / f"part-{number}.parquet"
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


@pytest.fixture(scope="module")
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("enable") / "events"
    for number in range(10):
        write(root, number, range(number * 10, number * 10 + 10))
    Table(str(root)).build(indexes=["id:minmax", "s:valuelist"])
    spark.sql(f"CREATE TABLE events USING parquet LOCATION '{root.as_uri()}'")
    spark.sql("CREATE VIEW events_view AS SELECT id, s, k FROM events WHERE k < 9")
    yield root
    spark.sql("DROP VIEW events_view")
    spark.sql("DROP TABLE events")


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    with skipping(spark):
        yield spark


@contextmanager
def skipping(spark: SparkSession) -> Iterator[None]:
    """An enabled session."""
    skipstone.enable(spark)
    try:
        yield
    finally:
        skipstone.disable(spark)
        unhook()


def kept(df: DataFrame) -> int:
    """How many files Spark itself says that it read."""
    df.collect()
    return scanned(df).files


def test_every_way_to_a_table(enabled: SparkSession, events: Path) -> None:
    spark = enabled
    spark.table("events").createOrReplaceTempView("of_frame")
    spark.sql("CREATE OR REPLACE TEMP VIEW of_text AS SELECT * FROM events")
    ways = {
        "read.parquet": spark.read.parquet(str(events)).where("id = 15"),
        "read.load": spark.read.format("parquet").load(str(events)).where("id = 15"),
        "read.table": spark.read.table("events").where("id = 15"),
        "table": spark.table("events").where("id = 15"),
        "view": spark.table("events_view").where("id = 15"),
        "sql": spark.sql("SELECT * FROM events WHERE id = 15"),
        "sql of a path": spark.sql(f"SELECT * FROM parquet.`{events}` WHERE id = 15"),
        "sql of a view": spark.sql("SELECT * FROM events_view WHERE id = 15"),
        "sql with arguments": spark.sql("SELECT * FROM events WHERE id = :id", {"id": 15}),
        "sql of a frame": spark.sql("SELECT * FROM {t} WHERE id = 15", t=spark.table("events")),
        "sql of a temporary view": spark.sql("SELECT * FROM of_text WHERE id = 15"),
        "sql of a frame's view": spark.sql("SELECT * FROM of_frame WHERE id = 15"),
        "another session object": type(spark)(spark.sparkContext, spark._jsparkSession).sql(
            "SELECT * FROM events WHERE id = 15"
        ),
    }
    found = {way: (len(df.collect()), scanned(df).files) for way, df in ways.items()}
    assert found == dict.fromkeys(ways, (1, 1))
    # As a cell in SQL, which Python does not see.
    jvm = spark._jsparkSession.sql("SELECT * FROM of_frame WHERE id = 15")
    assert jvm.count() == 1
    assert skipstone.last_scan(spark).files_kept == 1


def test_only_the_enabled_session(enabled: SparkSession, events: Path) -> None:
    other = enabled.newSession()
    assert kept(other.sql("SELECT * FROM events WHERE id = 15")) == 10
    assert kept(enabled.sql("SELECT * FROM events WHERE id = 15")) == 1


def test_disable_restores_everything(spark: SparkSession, events: Path) -> None:
    before = type(spark).sql, type(spark).table, type(spark.read)._df
    with skipping(spark):
        frame = spark.sql("SELECT * FROM events WHERE id = 15")
        spark.table("events").createOrReplaceTempView("of_before")
        skipstone.disable(spark)
        assert kept(frame) == 10, "made before, planned after"
        assert kept(spark.sql("SELECT * FROM of_before WHERE id = 15")) == 10
        assert kept(spark.table("events").where("id = 15")) == 10
        assert spark.conf.get(ENABLED, None) is None
    assert (type(spark).sql, type(spark).table, type(spark.read)._df) == before


def test_the_setting_is_the_switch(enabled: SparkSession, events: Path) -> None:
    spark = enabled
    spark.sql(f"SET {ENABLED}=false")
    assert kept(spark.sql("SELECT * FROM events WHERE id = 15")) == 10
    spark.sql(f"SET {ENABLED}=true")
    assert kept(spark.sql("SELECT * FROM events WHERE id = 15")) == 1


def test_commands_read_less_too(enabled: SparkSession, events: Path) -> None:
    spark = enabled
    try:
        spark.sql("CREATE TABLE copied USING parquet AS SELECT * FROM events WHERE id = 15")
        assert skipstone.last_scan(spark).files_kept == 1
        spark.sql("INSERT INTO copied SELECT * FROM events WHERE id IN (3, 98)")
        assert skipstone.last_scan(spark).files_kept == 2
        assert sorted(row.id for row in spark.table("copied").collect()) == [3, 15, 98]
        spark.sql("INSERT OVERWRITE copied SELECT id, k, s FROM events_view WHERE id = 77")
        assert [row.id for row in spark.table("copied").collect()] == [77]
        spark.sql("INSERT INTO copied VALUES (1, 2, 'x')")
        assert spark.table("copied").count() == 2
        spark.sql("WITH c AS (SELECT * FROM events WHERE id = 16) INSERT INTO copied TABLE c")
        assert skipstone.last_scan(spark).files_kept == 1
        spark.sql(
            "WITH c AS (SELECT id FROM events WHERE id < 12), copied AS (SELECT id + 1 x FROM c) "
            "INSERT OVERWRITE copied SELECT e.* FROM events e JOIN copied ON id = x WHERE x = 12"
        )
        assert [row.id for row in spark.table("copied").collect()] == [12]
        with pytest.raises(Exception, match=r"(?i)overwrite"):
            spark.sql("INSERT OVERWRITE events SELECT * FROM events WHERE id = 1")
        with pytest.raises(Exception, match="nowhere"):
            spark.sql("INSERT INTO copied SELECT nowhere FROM events")
    finally:
        spark.sql("DROP TABLE IF EXISTS copied")


def test_a_command_runs_once(enabled: SparkSession, events: Path, tmp_path: Path) -> None:
    """Whether its query skips or not: a command that ran is not planned again."""
    spark = enabled
    try:
        spark.sql("CREATE TABLE once (id BIGINT) USING parquet")
        spark.sql("CREATE TABLE twice (id BIGINT) USING parquet")
        commands = [
            "INSERT INTO once SELECT id FROM events WHERE id = 1",
            "WITH c AS (SELECT id FROM events WHERE id = 2) INSERT INTO once SELECT id FROM c",
            "FROM events INSERT INTO once SELECT id WHERE id = 3 "
            "INSERT INTO twice SELECT id WHERE id = 4",
        ]
        frames = [spark.sql(command) for command in commands]
        frames.append(spark.sql("INSERT INTO once SELECT id FROM events WHERE id = :id", {"id": 5}))
        for frame in frames:
            skipstone.skip(frame)
            skipstone.explain(frame)
        assert sorted(row.id for row in spark.table("once").collect()) == [1, 2, 3, 5]
        assert [row.id for row in spark.table("twice").collect()] == [4]
        spark.sql("CACHE TABLE few AS SELECT * FROM events WHERE id = 6")
        assert spark.sql("SELECT id FROM few").collect() == [(6,)]
        spark.sql("UNCACHE TABLE few")
    finally:
        spark.sql("DROP TABLE IF EXISTS once")
        spark.sql("DROP TABLE IF EXISTS twice")
        spark.catalog.dropTempView("few")


def test_matched_once(enabled: SparkSession, tmp_path: Path) -> None:
    """Spark keeps the files of a table, and so what the index says of them; every change of either
    is noticed."""
    spark, root = enabled, tmp_path / "t"
    for number in range(4):
        write(root, number, range(number * 10, number * 10 + 10))
    Table(str(root)).build(indexes=["id:minmax"])
    spark.sql(f"CREATE TABLE matched USING parquet LOCATION '{root.as_uri()}'")

    def asked(where: str) -> tuple[list[int], int, bool]:
        """The ids, the files that were kept, and whether the listing was matched."""
        ids = [row.id for row in spark.sql(f"SELECT id FROM matched WHERE {where}").collect()]
        (scan,) = skipstone.last_scan(spark).scans
        return sorted(ids), scan.files_kept, "matching" in scan.milliseconds

    try:
        assert asked("id = 15") == ([15], 1, True)
        assert asked("id = 16") == ([16], 1, False)
        assert asked("id IN (1, 39)") == ([1, 39], 2, False)
        # The values of a file change, in place.
        write(root, 3, range(110, 120))
        os.utime(root / "part-3.parquet", (1_700_000_500, 1_700_000_500))
        assert asked("id = 115") == ([115], 1, False), "a file that changed is read"
        Table(str(root)).refresh()
        assert asked("id = 115") == ([115], 1, True), "another version of the index"
        assert asked("id = 16") == ([16], 1, False)
        write(root, 9, range(90, 100))
        spark.sql("REFRESH TABLE matched")
        assert asked("id = 95") == ([95], 1, True), "another listing"
        assert asked("id = 16") == ([16], 2, False), "a file without facts"
        Table(str(root)).drop()
        assert spark.sql("SELECT id FROM matched WHERE id = 16").collect() == [(16,)]
        Table(str(root)).build(indexes=["id:minmax"])
        assert asked("id = 16") == ([16], 1, True), "an index that was built again"
        spark.sql(f"SET {ENABLED}=false")
        assert kept(spark.sql("SELECT id FROM matched WHERE id = 16")) == 5
    finally:
        spark.sql("DROP TABLE matched")


def test_an_index_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "t", number, range(number * 10, number * 10 + 10))
    Table(str(tmp_path / "t"), index_location=str(tmp_path / "x")).build(indexes=["id:minmax"])
    with skipping(spark):
        assert kept(spark.read.parquet(str(tmp_path / "t")).where("id = 5")) == 3
        try:
            for place in (
                str(tmp_path / "x"),
                json.dumps({str(tmp_path / "t"): str(tmp_path / "x")}),
            ):
                spark.conf.set(INDEX_LOCATION, place)
                assert kept(spark.read.parquet(str(tmp_path / "t")).where("id = 5")) == 1
        finally:
            spark.conf.unset(INDEX_LOCATION)
        named = skipstone.skip(spark.read.parquet(str(tmp_path / "t")), str(tmp_path / "x"))
        assert kept(named.where("id = 5")) == 1


def test_failures_leave_plain_frames(
    enabled: SparkSession, events: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spark = enabled
    spark.conf.set(INDEX_LOCATION, "{not JSON")
    try:
        frame = spark.sql("SELECT * FROM events WHERE id = 15")
        assert (kept(frame), frame.count()) == (10, 1)
        assert "is not JSON" in caplog.text
        spark.conf.set(INDEX_LOCATION, "nowhere://index")
        frame = spark.sql("SELECT * FROM events WHERE id = 15")
        assert (kept(frame), frame.count()) == (10, 1)
    finally:
        spark.conf.unset(INDEX_LOCATION)
    with pytest.raises(Exception, match="no_such_table"):
        spark.sql("SELECT * FROM no_such_table")


def test_a_mapping_of_locations() -> None:
    assert locations_of(None) is None
    assert locations_of(" ") is None
    assert locations_of("s3://x") == "s3://x"
    assert locations_of('{"file:///a/": "s3://x"}') == {"/a": "s3://x"}


def test_a_callback_for_metrics(
    spark: SparkSession, events: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, int, int]] = []

    def on_scan(scan: object) -> None:
        seen.append((scan.table, scan.files_kept, scan.files_total))  # type: ignore[attr-defined]
        raise RuntimeError("the metrics server is gone")

    skipstone.enable(spark, on_scan=on_scan)
    try:
        assert spark.sql("SELECT * FROM events WHERE id = 15").count() == 1
        spark.sql("SELECT * FROM events").count()
    finally:
        skipstone.disable(spark)
        unhook()
    name = "spark_catalog.default.events"
    assert seen == [(name, 1, 10), (name, 10, 10)]
    assert "the metrics server is gone" in caplog.text
    spark.sql("SELECT * FROM events WHERE id = 15").count()
    assert len(seen) == 2


SCRIPT = """
import sys
from beside import condition
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
found = spark.read.parquet(sys.argv[1]).where(condition)
print(__name__, found.collect()[0].id, len(sys.argv))
import skipstone
print(repr(skipstone.last_scan(spark)))
sys.exit(7)
"""


@pytest.mark.slow
@pytest.mark.parametrize("as_file, setting, files", [(True, None, 1), (False, "false", 0)])
def test_a_job_that_stays_as_it_is(
    events: Path, tmp_path: Path, as_file: bool, setting: str | None, files: int
) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("condition = 'id = 15'")
    confs = {"spark.master": "local[1]", "spark.ui.enabled": "false"}
    if setting is not None:
        confs[ENABLED] = setting
    entry = [skipstone.run.__file__] if as_file else ["-m", "skipstone.run"]
    submitted = " ".join(f"--conf {key}={value}" for key, value in confs.items())
    done = subprocess.run(
        [sys.executable, *entry, tmp_path / "job.py", events, "two"],
        env={**environment(), "PYSPARK_SUBMIT_ARGS": f"{submitted} pyspark-shell"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    scans = "1 scan: 1 of 10" if files else "0 scans"
    assert "__main__ 15 3" in done.stdout
    assert f"QueryScans({scans}" in done.stdout


def test_jobs_say_what_they_do(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "t", number, range(number * 10, number * 10 + 10))
    spark.sparkContext.setJobDescription("nightly load")
    try:
        Table(str(tmp_path / "t")).build(spark, indexes=["id:minmax"])
        Table(str(tmp_path / "t")).build(spark, ["s:bloom"], progress=lambda done, total: None)
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "nightly load"
    finally:
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    told = [str(jobs.apply(at).description()) for at in range(jobs.size())]
    for index in ("id:minmax", "s:bloomfilter"):
        wanted = f"skipstone build: {index}"
        assert [text for text in told if wanted in text and "3 files" in text], told[:5]
