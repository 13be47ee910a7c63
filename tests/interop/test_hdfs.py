"""Tables on a real HDFS: through the session's JVM, over WebHDFS, and by Spark's workers.

The rows of plain Spark are the oracle. ``events`` has ten files of 200 rows: ``id`` is the number
of the file times 1,000 and more, so bounds tell files apart; ``name`` has 50 values in every file,
so only a row index skips by it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import skipstone
from skipstone import SkipstoneError, Table
from skipstone.errors import StaleError
from skipstone.storage import ByteRange, open_storage
from tests.interop.hdfs import Hdfs, mini_hdfs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from skipstone.storage import Storage

pytestmark = [pytest.mark.interop, pytest.mark.spark]

AWKWARD = ("plain", "a b é%20#?;&=+.bin", "x; isDirectory=true; length=5", "[1]{2}*")
FILES, ROWS = 10, 200
WHERE = (
    ("id = 4017", 1),
    ("id BETWEEN 2190 AND 3005", 2),
    ("id > 99999", 0),
    ("name = 'n7' AND id < 2000", 2),
    ("name IS NULL", FILES),
)


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with mini_hdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@pytest.fixture(params=["session", "webhdfs"])
def storage(request: pytest.FixtureRequest, hdfs: Hdfs, spark: SparkSession) -> Storage:
    """The storage of the user's home, by both ways."""
    options = hdfs.options if request.param == "webhdfs" else None
    return open_storage(hdfs.home, options)


@pytest.fixture
def folder(request: pytest.FixtureRequest, hdfs: Hdfs) -> str:
    """A directory of this test's own; it does not exist."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"{hdfs.home}/{name}"


def rows_of_file(number: int) -> pa.Table:
    ids = range(number * 1000, number * 1000 + ROWS)
    names = [None if i % 50 == 9 else f"n{i % 50}" for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": names})


def parquet(table: pa.Table, size: int = 4_000) -> bytes:
    """A file of exactly ``size`` bytes: metadata fills it up."""
    missing = 0
    for _ in range(2):
        sink = pa.BufferOutputStream()
        # From 128 bytes on, the length of a text takes two bytes.
        with pq.ParquetWriter(sink, table.schema) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({"fill": "x" * (200 + missing)})
        missing = size - sink.getvalue().size
    assert missing == 0
    return bytes(sink.getvalue())


def write_events(storage: Storage, root: str, files: range = range(FILES)) -> None:
    for number in files:
        storage.put(f"{root}/part {number:02}.parquet", parquet(rows_of_file(number)))


def sorted_rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


# -- the storage -----------------------------------------------------------------------------------


def test_files_are_listed_and_read_as_they_were_written(storage: Storage, folder: str) -> None:
    data = os.urandom(300_000)
    names = sorted(AWKWARD)
    for name in names:
        storage.put(f"{folder}/k=1/{name}", data)
    storage.put(f"{folder}/_hidden/x", b"x")
    storage.put(f"{folder}/empty", b"")
    storage.put(f"{folder}/_metadata", b"summary")
    listing = storage.list_files(folder)
    assert listing.paths == [f"{folder}/k=1/{name}" for name in names]
    assert listing.sizes.tolist() == [len(data)] * len(names)
    assert (listing.unit, listing.empty) == ("ms", 1)
    assert set(listing.top or ()) == {"k=1/", "_hidden/", "empty", "_metadata"}
    assert storage.list_files(folder) is listing, "nothing has changed"
    assert len(storage.list_all(folder)) == len(names) + 3
    assert storage.list_files(listing.paths[0]).paths == listing.paths[:1]
    summary = storage.summary(folder)
    assert summary is not None
    assert summary.size == 7
    for at, path in enumerate(listing.paths):
        version = listing.object_id(at)
        assert storage.stat(path).same_version(version)
        assert storage.read(path) == data
        inside = ByteRange(path, 100_000, 50_000)
        apart, beyond = ByteRange(path, 299_990, 10), ByteRange(path, 299_995, 10)
        found = storage.read_ranges([inside, apart, beyond], {path: version})
        assert {each: bytes(view) for each, view in found.items()} == {
            inside: data[100_000:150_000],
            apart: data[-10:],
        }
        tail, end = storage.read_tail(path, 64)
        assert tail.same_version(version)
        assert bytes(end) == data[-64:]
        with storage.open(path, version) as file:
            file.seek(-3, os.SEEK_END)
            assert file.read() == data[-3:]


def test_a_replaced_file_is_another_version(storage: Storage, folder: str) -> None:
    path = f"{folder}/x"
    storage.put(path, b"old" * 100)
    version = storage.stat(path)
    storage.put(path, b"new" * 100)
    assert not storage.stat(path).same_version(version)
    assert storage.read_ranges([ByteRange(path, 0, 3)], {path: version}) == {}
    with pytest.raises(StaleError), storage.open(path, version) as file:
        file.read()


def test_missing_files_and_directories_are_told_apart(storage: Storage, folder: str) -> None:
    assert not storage.exists(f"{folder}/x")
    assert not storage.has_children(folder)
    assert len(storage.list_all(folder)) == 0
    with pytest.raises(FileNotFoundError):
        storage.stat(f"{folder}/x")
    with pytest.raises(SkipstoneError, match="no such file or directory"):
        storage.list_files(folder)
    storage.put(f"{folder}/d/x", b"x")
    with pytest.raises(FileNotFoundError):
        storage.stat(f"{folder}/d")
    storage.remove_empty(f"{folder}/d")
    assert storage.exists(f"{folder}/d/x"), "the directory is not empty"
    storage.delete(f"{folder}/d/x", f"{folder}/d/never")
    storage.remove_empty(f"{folder}/d")
    assert not storage.has_children(folder)


def test_publishers_of_one_name_replace_each_other_whole(storage: Storage, folder: str) -> None:
    """Two write one name again and again. A reader sees the content of one of them, never a part,
    and never none after the first."""
    path = f"{folder}/raced"
    failures: list[BaseException] = []

    def publish(letter: bytes) -> None:
        try:
            for _ in range(10):
                storage.put(path, letter * 5_000)
        except BaseException as error:
            failures.append(error)

    storage.put(path, b"0" * 5_000)
    writers = [threading.Thread(target=publish, args=(each,)) for each in (b"a", b"b")]
    for writer in writers:
        writer.start()
    seen: set[bytes] = set()
    while any(writer.is_alive() for writer in writers):
        data = storage.read(path)
        assert len(data) == 5_000
        assert len(set(data)) == 1
        seen.add(data[:1])
    for writer in writers:
        writer.join()
    assert not failures
    assert storage.read(path)[:1] in (b"a", b"b")
    assert storage.list_all(folder).paths == [path], "no temporary file is left"


def test_a_rename_does_not_replace_unless_it_is_told_to(storage: Storage, folder: str) -> None:
    storage.put(f"{folder}/x", b"x")
    storage.put(f"{folder}/y", b"y")
    files = storage.files  # type: ignore[attr-defined]
    with pytest.raises(FileExistsError):
        files.rename(f"{folder}/x", f"{folder}/y", overwrite=False)
    assert storage.read(f"{folder}/y") == b"y"
    files.rename(f"{folder}/x", f"{folder}/y", overwrite=True)
    assert storage.read(f"{folder}/y") == b"x"
    assert not storage.exists(f"{folder}/x")


def test_what_the_user_may_not_do_is_an_error_in_words(
    storage: Storage, hdfs: Hdfs, folder: str
) -> None:
    other = hdfs.as_superuser()
    closed = f"{hdfs.root}{folder.removeprefix(hdfs.home)}"
    other.put(f"{closed}/x", b"x")
    with pytest.raises(PermissionError, match="denied"):
        storage.put(f"{closed}/y", b"y")
    assert other.list_all(closed).paths == [f"{closed}/x"]
    hdfs.change(closed, "SETPERMISSION", permission="700")
    with pytest.raises(SkipstoneError, match="denied"):
        storage.list_files(closed)
    with pytest.raises(PermissionError):
        storage.read(f"{closed}/x")


def test_a_long_listing_takes_as_many_calls_as_a_short_one(
    hdfs: Hdfs, spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_storage(hdfs.home, hdfs.options)
    for number in range(40):
        other.put(f"{folder}/long/k={number % 4}/{number}", b"x")
    other.put(f"{folder}/short/1", b"x")
    storage = open_storage(hdfs.home)
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    calls = 0
    send = type(client).send_command

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal calls
        # Objects that Python forgets are released at any time.
        calls += not str(args[1]).startswith("m\n")
        return send(*args, **more)

    monkeypatch.setattr(type(client), "send_command", counted)
    storage.list_files(f"{folder}/short")
    short, calls = calls, 0
    assert len(storage.list_files(f"{folder}/long")) == 40
    assert calls <= short <= 15


# -- tables ----------------------------------------------------------------------------------------


def test_build_refresh_and_every_way_to_read(hdfs: Hdfs, spark: SparkSession, folder: str) -> None:
    """The session lists and publishes, Spark's reader gives workers the files."""
    write_events(open_storage(folder), folder)
    table = Table(folder)
    report = table.build(spark, ["id:minmax", "name:bitmap", "name:bloom"])
    assert (report.files_built, report.files_total) == (FILES, FILES)
    assert report.ok
    assert report.location == f"{folder.rpartition('/')[0]}/_{folder.rpartition('/')[2]}.skipstone"
    for where, kept in WHERE:
        expected = sorted_rows(spark.read.parquet(folder).where(where))
        skipped = skipstone.skip(spark.read.parquet(folder)).where(where)
        assert sorted_rows(skipped) == expected, where
        scan = skipstone.last_scan(spark)
        assert (scan.files_kept, scan.files_total) == (kept, FILES), where
        assert sorted_rows(table.read(spark, where)) == expected, where
        found = table.query(where)
        assert sorted(zip(*found.to_pydict().values(), strict=True), key=repr) == expected, where
        assert table.plan(where).files_kept == kept, where
    write_events(open_storage(folder), folder, range(FILES, FILES + 2))
    assert table.refresh(spark).files_built == 2
    assert table.refresh(spark).files_built == 0
    assert table.plan("id = 11003").files_kept == 1
    assert [row.id for row in table.read(spark, "id = 11003").collect()] == [11003]
    table.compact()
    assert table.plan("id = 11003").files_kept == 1
    assert table.check().ok
    table.vacuum()
    table.drop()
    assert not open_storage(folder).has_children(report.location)
    assert len(table.query("id = 11003")) == 1


def test_a_replaced_file_is_read_until_it_is_indexed(
    hdfs: Hdfs, spark: SparkSession, folder: str
) -> None:
    """The new file has the length of the old one, and other values."""
    storage = open_storage(folder)
    write_events(storage, folder)
    table = Table(folder)
    table.build(spark, ["id:minmax"])
    path = f"{folder}/part 03.parquet"
    before = storage.stat(path)
    storage.put(path, parquet(rows_of_file(77)))
    assert storage.stat(path).size == before.size
    for frame in (
        skipstone.skip(spark.read.parquet(folder)).where("id = 77001"),
        table.read(spark, "id = 77001"),
    ):
        assert [row.id for row in frame.collect()] == [77001]
    assert table.query("id = 77001").num_rows == 1
    assert table.query("id = 3001").num_rows == 0
    assert table.refresh(spark).files_built == 1
    assert table.plan("id = 77001").files_kept == 1


def test_a_damaged_file_is_reported_and_the_others_are_indexed(
    hdfs: Hdfs, spark: SparkSession, folder: str
) -> None:
    storage = open_storage(folder)
    write_events(storage, folder, range(3))
    storage.put(f"{folder}/part 03.parquet", b"PAR1 this is no Parquet file PAR1")
    storage.put(f"{folder}/part 04.parquet", b"")
    report = Table(folder).build(spark, ["id:minmax"])
    assert [path for path, _ in report.files_failed] == [f"{folder}/part 03.parquet"]
    assert (report.files_built, report.files_total) == (3, 4), "an empty file is no data"


def test_rows_that_spark_parses(hdfs: Hdfs, spark: SparkSession, folder: str) -> None:
    storage = open_storage(folder)
    for number in range(4):
        rows = "".join(f"{number * 100 + i},n{i}\n" for i in range(20))
        storage.put(f"{folder}/{number}.csv", f"id,name\n{rows}".encode())
    options, schema = {"header": "true"}, "id int, name string"
    table = Table(folder, format="csv", options=options, schema=schema)
    assert table.build(spark, ["id:minmax"]).files_built == 4
    plain = spark.read.options(**options).schema(schema).csv(folder)
    skipped = skipstone.skip(plain).where("id = 207")
    assert sorted_rows(skipped) == [(207, "n7")]
    assert skipstone.last_scan(spark).files_kept == 1


def test_the_index_and_the_data_may_lie_apart(
    hdfs: Hdfs, spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    """On HDFS and local, either way."""
    local = tmp_path / "events"
    local.mkdir()
    for number in range(FILES):
        pq.write_table(rows_of_file(number), local / f"{number}.parquet")
    write_events(open_storage(folder), folder)
    for data, index in ((folder, str(tmp_path / "index")), (str(local), f"{folder}-index")):
        table = Table(data, index_location=index)
        assert table.build(spark, ["id:minmax"]).files_built == FILES
        assert table.plan("id = 4017").files_kept == 1
        again = skipstone.skip(spark.read.parquet(data), index).where("id = 4017")
        assert [row.id for row in again.collect()] == [4017]
        assert skipstone.last_scan(spark).files_kept == 1


def test_a_table_that_the_user_may_only_read(hdfs: Hdfs, spark: SparkSession, folder: str) -> None:
    """The index does not fit next to it, and goes elsewhere."""
    data = f"{hdfs.root}/shared{folder.removeprefix(hdfs.home)}"
    write_events(hdfs.as_superuser(), data)
    with pytest.raises(PermissionError, match="denied"):
        Table(data).build(spark, ["id:minmax"])
    table = Table(data, index_location=f"{folder}-index")
    assert table.build(spark, ["id:minmax"]).files_built == FILES
    assert table.plan("id = 4017").files_kept == 1
    assert table.query("id = 4017").num_rows == 1


def test_without_a_session_the_same_index_serves(
    hdfs: Hdfs, spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    """The command line reads over WebHDFS what the session built, and builds what it can read."""
    write_events(open_storage(folder), folder)
    Table(folder).build(spark, ["id:minmax", "name:bitmap"])
    way = ["--storage-option", f"webhdfs={hdfs.web}"]
    where = "id BETWEEN 2190 AND 3005 AND name = 'n3'"
    expected = sorted_rows(spark.read.parquet(folder).where(where))
    found = cli("query", folder, where, "--json", *way)
    assert sorted(map(tuple, json.loads(found)["rows"])) == expected
    assert f"read 2 of {FILES} files" in cli("explain", folder, where, *way)
    assert "fresh" in cli("check", folder, *way)
    # The address from Hadoop's configuration, as a nameservice of one node.
    conf = tmp_path / "conf"
    conf.mkdir()
    names = {
        "dfs.ha.namenodes.cluster": "n1,n2",
        "dfs.namenode.http-address.cluster.n1": "127.0.0.1:9",
        "dfs.namenode.http-address.cluster.n2": hdfs.web.removeprefix("http://"),
    }
    site = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in names.items()
    )
    (conf / "hdfs-site.xml").write_text(f"<configuration>{site}</configuration>")
    by_name = folder.replace(hdfs.root, "hdfs://cluster")
    found = cli("query", by_name, "id = 4017", "--json", env={"HADOOP_CONF_DIR": str(conf)})
    assert [row[0] for row in json.loads(found)["rows"]] == [4017]
    # A table of its own, built by the process itself.
    table = Table(f"{folder}-own", storage_options=hdfs.options)
    write_events(table.storage, f"{folder}-own")
    assert table.build(indexes=["id:minmax"]).files_built == FILES
    assert table.plan("id = 4017").files_kept == 1
    skipped = skipstone.skip(spark.read.parquet(f"{folder}-own")).where("id = 4017")
    assert [row.id for row in skipped.collect()] == [4017]
    assert skipstone.last_scan(spark).files_kept == 1


def test_format_skipstone_over_webhdfs(hdfs: Hdfs, spark: SparkSession, folder: str) -> None:
    """Workers have no way to the session: they read over WebHDFS, or say what to do."""
    write_events(open_storage(folder), folder)
    Table(folder).build(spark, ["id:minmax", "name:bitmap"])
    where = "name = 'n7' AND id < 2000"
    reader = spark.read.format("skipstone").option("where", where)
    expected = sorted_rows(spark.read.parquet(folder).where(where))
    options = {f"storage.{name}": value for name, value in hdfs.options.items()}
    assert sorted_rows(reader.options(**options).load(folder)) == expected
    with pytest.raises(PySparkException) as caught:
        spark.read.format("skipstone").load(folder).collect()
    said = str(caught.value)
    assert f"cannot list {folder}: WebHDFS at http://localhost:9870 does not answer" in said
    assert "storage.webhdfs is its option" in said
    assert "libhdfs" in said
    table = Table(folder, storage_options=hdfs.options)
    assert sorted_rows(table.read(spark, where)) == expected
    assert table.build(spark, ["name:bloom"]).files_built == FILES, "its tasks publish themselves"


def test_tables_by_name(hdfs: Hdfs, spark: SparkSession, folder: str) -> None:
    """On HDFS: a table of one folder, and one whose partitions lie where the catalog says."""
    write_events(open_storage(folder), f"{folder}/plain")
    spark.sql(f"CREATE TABLE hdfs_plain USING parquet LOCATION '{folder}/plain'")
    spark.sql(
        "CREATE TABLE hdfs_days (id BIGINT, name STRING, day INT) USING parquet "
        f"PARTITIONED BY (day) LOCATION '{folder}/days'"
    )
    try:
        for day in (1, 2):
            write_events(open_storage(folder), f"{folder}/of {day}", range(day * 4, day * 4 + 4))
            spark.sql(
                f"ALTER TABLE hdfs_days ADD PARTITION (day={day}) LOCATION '{folder}/of {day}'"
            )
        for name, where, kept, total in (
            ("hdfs_plain", "id = 4017", 1, FILES),
            ("hdfs_days", "id BETWEEN 6190 AND 8005", 3, 8),
            ("hdfs_days", "day = 2 AND id > 10000", 2, 8),
        ):
            table = Table(spark, name)
            table.build(spark, ["id:minmax"])
            expected = sorted_rows(spark.table(name).where(where))
            skipped = skipstone.skip(spark.table(name)).where(where)
            assert sorted_rows(skipped) == expected, where
            assert skipstone.last_scan(spark).files_kept == kept, where
            assert (table.plan(where).files_kept, len(table.listing())) == (kept, total), where
            assert sorted_rows(table.read(spark, where)) == expected, where
    finally:
        spark.sql("DROP TABLE hdfs_plain")
        spark.sql("DROP TABLE hdfs_days")


def test_a_path_without_a_name_node_is_that_of_the_session(
    hdfs: Hdfs, spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    """In a process of its own: ``fs.defaultFS`` belongs to the session."""
    write_events(open_storage(folder), folder)
    script = f"""
import skipstone
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.bindAddress", "127.0.0.1")
         .config("spark.hadoop.fs.defaultFS", "{hdfs.root}").getOrCreate())
table = skipstone.Table("hdfs://{folder.removeprefix(hdfs.root)}")
built = table.build(spark, ["id:minmax"]).files_built
frame = skipstone.skip(spark.read.parquet("{folder.removeprefix(hdfs.root)}")).where("id = 4017")
rows = frame.collect()
print("RESULT", table.path, built, len(rows), skipstone.last_scan(spark).files_kept)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert f"RESULT {folder} {FILES} 1 1" in done.stdout, done.stderr[-3000:]


def cli(*arguments: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "skipstone", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
