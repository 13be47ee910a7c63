"""``skip(df)``: the rows of plain Spark, from exactly the files that hold a match.

The pruner of these tests knows every row (``fake.py``), so the files to be read are known exactly.
``ten_files`` has ids 0 to 99, ten to a file, under awkward names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.errors import UnsupportedError
from skipstone.spark.last_query import last_scan
from skipstone.spark.skip import explain, skip
from tests.spark.fake import Finder, finder
from tests.spark.layout import read_by_spark, rows, rows_of_each, ten_files, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ten_files(tmp_path_factory.mktemp("skip") / "t é%")


@pytest.fixture(scope="module")
def find(table: Path) -> Finder:
    return finder(table)


@pytest.fixture
def skipping(spark: SparkSession, table: Path, find: Finder) -> DataFrame:
    return skip(spark.read.parquet(str(table)), find)


def glob_free(path: Path) -> str:
    """A path for Spark's reader, which takes globs."""
    return "".join(f"\\{c}" if c in "[]{}*?\\" else c for c in str(path))


@pytest.mark.parametrize(
    "condition, files",
    [
        ("id = 5", 1),
        ("id = 1000", 0),
        ("id IN (5, 15, 16, 99)", 3),
        ("id BETWEEN 8 AND 11", 2),
        ("id < 3 OR s = 's77'", 2),
        ("NOT (id < 95)", 1),
        ("s LIKE 's9%'", 2),  # s9 in the first file, s90 to s99 in the last
        ("id IS NULL", 0),
        ("parity = 1", 10),
        ("length(s) = 2", 10),
        ("id = 5 AND length(s) = 2", 1),
        ("id = 5 OR length(s) = 2", 10),
        ("TRUE", 10),
        (f"id IN ({', '.join(map(str, range(40, 60)))})", 2),
    ],
)
def test_rows_and_files(
    spark: SparkSession, table: Path, skipping: DataFrame, condition: str, files: int
) -> None:
    plain, all_files = read_by_spark(spark.read.parquet(str(table)).where(condition))
    found, read = read_by_spark(skipping.where(condition))
    assert found == plain
    assert read == files
    assert all_files == 10
    scans = last_scan(spark)
    assert scans is not None
    assert (scans.files_kept, scans.files_total) == (files, 10)
    assert scans.bytes_total == sum(f.stat().st_size for f in table.iterdir())
    assert 0 <= scans.bytes_kept <= scans.bytes_total


def test_sparks_own_reader_reads(skipping: DataFrame) -> None:
    """Columns, filters and batches go down as without us."""
    plan = skipping.where("id = 5").select("s")._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet [id" in plan
    assert "Batched: true" in plan
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,5)]" in plan
    assert "ReadSchema: struct<id:bigint,s:string>" in plan


bounds = st.integers(-5, 105)
leaf = (
    st.builds("id {} {}".format, st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>"]), bounds)
    | st.builds("s = 's{}'".format, bounds)
    | st.lists(bounds, min_size=1, max_size=14).map(lambda v: f"id IN ({', '.join(map(str, v))})")
    | st.sampled_from(
        ["s IS NULL", "s IS NOT NULL", "id IN (7, NULL)", "s LIKE 's_7%'", "id % 7 = 0"]
    )
)
conditions = st.recursive(
    leaf,
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
        | st.builds("NOT {}".format, inner)
    ),
    max_leaves=5,
)


@settings(max_examples=4)
@given(several=st.lists(conditions, min_size=4, max_size=8))
def test_any_condition_gives_the_same_rows(
    spark: SparkSession, table: Path, find: Finder, several: list[str]
) -> None:
    plain = spark.read.parquet(str(table))
    skipping = skip(plain, find)
    for condition, expected in zip(several, rows_of_each(plain, several), strict=True):
        assert rows(skipping.where(condition)) == expected, condition


# -- plans ---------------------------------------------------------------------------------------


@pytest.fixture
def views(spark: SparkSession, table: Path, tmp_path: Path) -> Iterator[Finder]:
    """``t`` over ten files, ``u`` over two: ids 0 to 4 and 90 to 94; both have an index."""
    other = tmp_path / "u"
    other.mkdir()
    write(other / "low.parquet", range(5))
    write(other / "high.parquet", range(90, 95))
    spark.read.parquet(str(table)).createOrReplaceTempView("t")
    spark.read.parquet(str(other)).createOrReplaceTempView("u")
    yield finder(table, other)
    for view in ("t", "u"):
        spark.catalog.dropTempView(view)


@pytest.mark.parametrize(
    "query, files",
    [
        ("SELECT * FROM t WHERE id = 5", 1),
        ("SELECT t.s, u.s FROM t JOIN u ON t.id = u.id WHERE t.id = 3", 2),
        ("SELECT t.s FROM t JOIN u USING (id) WHERE u.s = 's91' AND t.id > 80", 2),
        ("SELECT parity, count(*), max(s) FROM t WHERE id < 10 GROUP BY parity", 1),
        ("SELECT * FROM t WHERE id < 5 UNION ALL SELECT * FROM u WHERE id = 90", 2),
        ("SELECT a.id FROM t a JOIN t b ON a.id = b.id + 10 WHERE a.id = 15 AND b.id = 5", 2),
        ("WITH c AS (SELECT * FROM t WHERE id = 42) SELECT c.id, d.id FROM c, c d", 2),
        ("SELECT * FROM t WHERE id = 7 AND EXISTS (SELECT 1 FROM u WHERE id = 3)", 2),
        ("SELECT * FROM t WHERE id IN (SELECT id FROM u WHERE id = 90) AND id > 80", 2),
        ("SELECT * FROM t WHERE id = 5 AND parity = (SELECT max(parity) FROM u WHERE id = 1)", 2),
        ("SELECT * FROM (SELECT id + 1 AS j, s FROM t) WHERE s = 's50' ORDER BY j LIMIT 1", 1),
        ("SELECT count(*) FROM t LEFT JOIN (SELECT * FROM u WHERE id = 2) u ON t.id = u.id", 11),
    ],
)
def test_under_joins_aggregates_and_subqueries(
    spark: SparkSession, views: Finder, query: str, files: int
) -> None:
    plain = spark.sql(query)
    skipped = skip(spark.sql(query), views)
    assert rows(plain) == rows(skipped)
    scans = last_scan(spark)
    assert scans is not None
    assert scans.files_kept == files


def test_a_view_over_a_skipping_dataframe(spark: SparkSession, skipping: DataFrame) -> None:
    skipping.createOrReplaceTempView("skipping")
    try:
        found, read = read_by_spark(spark.sql("SELECT s FROM skipping WHERE id = 5"))
    finally:
        spark.catalog.dropTempView("skipping")
    assert found == ["Row(s='s5')"]
    assert read == 1


def test_skipping_twice_wraps_once(skipping: DataFrame, find: Finder) -> None:
    asked = len(find.seen)
    again = skip(skipping, find)
    assert again is skipping
    assert len(find.seen) == asked
    assert read_by_spark(skip(again.where("id = 5"), find))[1] == 1


def test_data_in_the_cache_is_used(spark: SparkSession, table: Path, find: Finder) -> None:
    df = spark.read.parquet(str(table))
    df.cache()
    try:
        df.count()
        skipped = skip(df, find).where("id = 5")
        assert rows(skipped) == rows(df.where("id = 5"))
        plan = skipped._jdf.queryExecution().executedPlan().toString()
        assert "InMemoryTableScan" in plan
    finally:
        df.unpersist()


def test_a_skipping_dataframe_can_be_cached_and_written(
    spark: SparkSession, skipping: DataFrame, tmp_path: Path
) -> None:
    kept = skipping.where("id = 5").cache()
    try:
        assert kept.count() == kept.count() == 1
    finally:
        kept.unpersist()
    skipping.where("id >= 90").write.parquet(str(tmp_path / "out"))
    scans = last_scan(spark)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 10
    assert scans is not None
    assert scans.files_kept == 1


def test_outside_an_execution(spark: SparkSession, skipping: DataFrame) -> None:
    """``df.rdd`` plans without an execution of Spark SQL."""
    assert skipping.where("id = 5").rdd.map(lambda row: row.s).collect() == ["s5"]
    scans = last_scan(spark)
    assert scans is not None
    assert (len(scans), scans.files_kept) == (1, 1)


# -- where tables are ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def partitioned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ids 0 to 39; p = id // 10 and q one of two awkward values by parity: eight folders, one file
    of five ids each."""
    root = tmp_path_factory.mktemp("hive") / "p é"
    values = "CASE WHEN id % 2 = 0 THEN 'a/b=c %' ELSE 'é' END"
    spark.range(0, 40, 1, 1).selectExpr(
        "id", "concat('s', id) AS s", "id DIV 10 AS p", f"{values} AS q"
    ).write.partitionBy("p", "q").parquet(str(root))
    return root


@pytest.mark.parametrize(
    "condition, files, total",
    [
        ("id = 15", 1, 8),
        ("id = 15 AND p = 1", 1, 2),
        ("id = 15 AND p = 2", 0, 2),
        ("id = 15 AND q = 'é'", 1, 4),
        ("id IN (14, 15, 16) AND q = 'a/b=c %'", 1, 4),
        ("id IN (4, 15)", 2, 8),
        ("p = 1", 2, 2),
        ("p = 1 AND id < 100", 2, 2),
        ("p = 1 OR id = 25", 8, 8),  # Spark gives no filter at all for a mixed OR
        ("id = 1000", 0, 8),
        ("TRUE", 8, 8),
    ],
)
def test_hive_partitions(
    spark: SparkSession, partitioned: Path, condition: str, files: int, total: int
) -> None:
    plain = spark.read.parquet(str(partitioned)).where(condition)
    skipped = skip(spark.read.parquet(str(partitioned)), finder(partitioned)).where(condition)
    expected, plain_files = read_by_spark(plain)
    found, read = read_by_spark(skipped)
    assert found == expected
    assert (read, plain_files) == (files, total)
    scans = last_scan(spark)
    assert scans is not None
    assert (scans.files_kept, scans.files_total) == (files, total)


@pytest.mark.parametrize("by_partition", [False, True])
def test_tables_of_the_catalog(
    spark: SparkSession, tmp_path: Path, partitioned: Path, by_partition: bool
) -> None:
    name = f"skip_catalog_{by_partition}".lower()
    folder = tmp_path / "t é%"
    source = spark.read.parquet(str(partitioned)).drop("q")
    writer = source.repartition(1).write.option("path", str(folder))
    (writer.partitionBy("p") if by_partition else writer).saveAsTable(name)
    try:
        find = finder(folder)
        for condition, files, total in (
            ("id = 15", 1, 4 if by_partition else 1),
            ("id = 15 AND p = 1", 1, 1),
            ("id = 15 AND p = 2", 0, 1),
            ("id = 1000", 0, 4 if by_partition else 1),
        ):
            plain = spark.table(name).where(condition)
            skipped = skip(spark.table(name), find).where(condition)
            assert rows(plain) == rows(skipped)
            scans = last_scan(spark)
            assert scans is not None
            assert (scans.files_kept, scans.files_total) == (files, total), condition
            assert name in scans.scans[0].table
        # Partitions that come later are read, and the same DataFrame sees them as Spark's own does.
        before = skip(spark.table(name), find).where("id = 777")
        assert rows(before) == []
        spark.sql(f"INSERT INTO {name} VALUES (777, 's777', 9)")
        assert rows(skip(spark.table(name), find).where("id = 777")) == rows(
            spark.table(name).where("id = 777")
        )
        assert skip(spark.table(name), find).where("id = 777").count() == 1
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_a_part_of_an_indexed_table(spark: SparkSession, partitioned: Path) -> None:
    """A folder, a glob, several folders and a single file: identity is by full path."""
    find = finder(partitioned)
    root = str(partitioned)
    single = next((partitioned / "p=1").rglob("*.parquet"))
    for paths, condition, files, total in (
        ([f"{root}/p=1"], "id = 15", 1, 2),
        ([f"{root}/p=[12]"], "id = 15 AND p > 0", 1, 4),
        ([f"{root}/p=1", f"{root}/p=3"], "id IN (15, 39)", 2, 4),
        ([glob_free(single)], "id = 1000", 0, 1),
    ):
        reader = spark.read.option("basePath", root)
        plain = reader.parquet(*paths).where(condition)
        skipped = skip(reader.parquet(*paths), find).where(condition)
        expected, plain_files = read_by_spark(plain)
        found, read = read_by_spark(skipped)
        assert found == expected, paths
        assert (read, plain_files) == (files, total), paths


def test_filters_on_metadata_stay(spark: SparkSession, table: Path, find: Finder) -> None:
    """Spark prunes by its own ``_metadata`` too; both count."""
    plain = spark.read.parquet(str(table))
    condition = "_metadata.file_name IN ('a%20b.parquet', 'plain.parquet') AND id IN (5, 25)"
    found, read = read_by_spark(skip(plain, find).where(condition))
    scans = last_scan(spark)
    assert found == rows(plain.where(condition))
    assert len(found) == 1
    assert read == 1
    assert scans is not None
    assert (scans.files_kept, scans.files_total, scans.scans[0].files_listed) == (1, 2, 10)


@pytest.mark.parametrize("option", ["recursiveFileLookup", "pathGlobFilter", "modifiedBefore"])
def test_options_of_the_listing(spark: SparkSession, partitioned: Path, option: str) -> None:
    """Spark applies them while it lists; what is listed skips."""
    value = {"pathGlobFilter": "*.parquet", "modifiedBefore": "2100-01-01T00:00:00"}
    reader = spark.read.option(option, value.get(option, "true"))
    df = reader.parquet(str(partitioned)).where("id = 15")
    found, read = read_by_spark(skip(df, finder(partitioned)))
    assert found == rows(df)
    assert read == 1


def test_dynamic_partition_pruning(spark: SparkSession, partitioned: Path, tmp_path: Path) -> None:
    """Spark prunes partitions again while the query runs, among those that are left."""
    (tmp_path / "dim").mkdir()
    write(tmp_path / "dim" / "x.parquet", range(4))  # ids 0 to 3 are partitions here
    spark.read.parquet(str(partitioned)).createOrReplaceTempView("fact")
    spark.read.parquet(str(tmp_path / "dim")).createOrReplaceTempView("dim")
    query = spark.sql(
        "SELECT fact.id, dim.s FROM fact JOIN dim ON fact.p = dim.id"
        " WHERE dim.s = 's2' AND fact.id IN (4, 5, 24, 25, 35)"
    )
    plan = query._jdf.queryExecution().executedPlan().toString()
    assert "dynamicpruning" in plan.lower()
    skipped = skip(query, finder(partitioned, tmp_path / "dim"))
    assert rows(skipped) == rows(query)
    assert len(rows(skipped)) == 2
    scans = last_scan(spark)
    assert scans is not None
    assert sorted(scan.files_kept for scan in scans) == [1, 5]
    for view in ("fact", "dim"):
        spark.catalog.dropTempView(view)


def test_bucketed_tables(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """Buckets are told by file names; joins of bucketed tables need no shuffle, as without us."""
    names = ("skip_left", "skip_right")
    for name in names:
        df = spark.read.parquet(str(table))
        writer = df.write.option("path", str(tmp_path / name)).bucketBy(4, "id").sortBy("id")
        writer.saveAsTable(name)
    try:
        find = finder(*(tmp_path / name for name in names))
        left, right = (spark.table(name) for name in names)
        query = left.where("id IN (3, 50)").join(right.hint("merge"), "id")
        skipped = skip(query, find)
        assert rows(query) == rows(skipped)
        plans = [df._jdf.queryExecution().executedPlan().toString() for df in (query, skipped)]
        assert [plan.count("Exchange hashpartitioning") for plan in plans] == [0, 0]
        scans = last_scan(spark)
        assert scans is not None
        assert scans.files_kept < scans.files_total
    finally:
        for name in names:
            spark.sql(f"DROP TABLE {name}")


def test_csv_json_and_orc(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """Other sources come to the finder with their format, options and schema."""
    df = spark.read.parquet(str(table))
    df.write.option("header", True).csv(str(tmp_path / "csv"))
    read = spark.read.option("header", True).schema("id LONG, s STRING, parity INT")
    find = Finder({})
    skip(read.csv(str(tmp_path / "csv")), find)
    (info,) = find.seen
    assert info.format == "csv"
    assert info.options["header"] == "true"
    assert '"name":"parity","type":"integer"' in info.schema
    assert info.roots == (str(tmp_path / "csv"),)


# -- what is left alone ----------------------------------------------------------------------------


def test_what_is_left_alone_says_why(
    spark: SparkSession, table: Path, find: Finder, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "x.parquet", range(3))
    other = spark.read.parquet(str(tmp_path / "other"))
    assert skip(other, find) is other
    assert "no index" in str(explain(other))
    stream = spark.readStream.schema(other.schema).parquet(str(tmp_path / "other"))
    assert skip(stream, find) is stream
    before = spark.conf.get("spark.sql.sources.useV1SourceList")
    spark.conf.set("spark.sql.sources.useV1SourceList", "")
    try:
        second = spark.read.parquet(str(table)).where("id = 5")
        assert rows(skip(second, find)) == rows(second)
        assert "version 2" in str(explain(second))
    finally:
        spark.conf.set("spark.sql.sources.useV1SourceList", str(before))
    local = spark.range(3)
    assert skip(local, find) is local
    assert str(explain(local)) == "no scan of files"


def test_a_finder_that_fails_leaves_the_query_alone(
    spark: SparkSession, table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(relation: object) -> None:
        raise OSError("the store is away")

    df = spark.read.parquet(str(table))
    assert skip(df, broken) is df
    assert "the store is away" in caplog.text


def test_connect_is_refused_with_a_way_out() -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(UnsupportedError, match="where"):
        skip(frame, Finder({}))


# -- explain and settings --------------------------------------------------------------------------


def test_explain_runs_nothing_and_disturbs_nothing(
    spark: SparkSession, table: Path, find: Finder, skipping: DataFrame
) -> None:
    skipping.where("id = 15").count()
    before = last_scan(spark)
    query = skipping.where("id = 5").join(spark.read.parquet(str(table)).limit(3), "id")
    tracker = spark.sparkContext.statusTracker()
    jobs = set(tracker.getJobIdsForGroup(None))
    shown = explain(query)
    assert set(tracker.getJobIdsForGroup(None)) == jobs
    assert (shown.files_kept, shown.files_total) == (1, 10)
    assert str(table) in str(shown)
    assert "1 of 10 files" in str(shown)
    assert shown.to_dict()["files"] == {"kept": 1, "total": 10}
    assert "1 of 10 files" in shown._repr_html_()
    assert len(shown.untouched) == 1
    assert last_scan(spark) == before
    assert len(rows(query)) <= 1


def test_settings_of_the_session_reach_the_pruner(
    spark: SparkSession, table: Path, find: Finder
) -> None:
    pruner = find.pruners[str(table)]
    df = skip(spark.read.parquet(str(table)), find)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        df.where("id = 1").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
        spark.conf.unset("spark.sql.caseSensitive")
    df.where("ID = 2").collect()
    first, second = pruner.settings[-2:]
    assert (first.time_zone, first.case_sensitive) == ("Asia/Kolkata", True)
    assert (second.time_zone, second.case_sensitive) == (before, False)
