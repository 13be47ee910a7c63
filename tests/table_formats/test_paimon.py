"""Tables of Apache Paimon: rows of every snapshot, statistics, deletion vectors, and refusals."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

import skipstone
from skipstone.errors import SkipstoneError, UnsupportedError
from tests.s3 import S3, s3, s3_server
from tests.table_formats.delta_tables import names_below, rows
from tests.table_formats.paimon_tables import VECTORS, History, Made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["s3", "s3_server"]

IDS = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("vectors, partitions", [(False, []), (True, ["kind"])])
def test_every_snapshot_of_a_random_history(
    tmp_path: Path, vectors: bool, partitions: list[str]
) -> None:
    """Appends, deletion vectors, overwrites, new columns and tags: each snapshot has the rows of
    the library's own reader, with and without an index."""
    history = History(tmp_path, 3, partitions, vectors=vectors)
    table = skipstone.Table(history.path)
    table.build(indexes=["id:bloom", "id:bitmap", "amount:minmax"])
    for at in range(8):
        history.step()
        if at % 4 == 0:
            table.refresh()
        if at % 7 == 0:
            table.compact()
        assert rows(table.query()) == rows(history.read())
        history.assert_same()
    last = history.table.snapshot_manager().get_latest_snapshot()
    for snapshot in range(1, last.id + 1, 2):
        history.assert_same(snapshot)


def test_a_snapshot_a_tag_and_a_time(tmp_path: Path) -> None:
    made = Made(tmp_path, IDS)
    times = []
    for at in range(3):
        made.append(id=[at])
        times.append(made.table.snapshot_manager().get_latest_snapshot().time_millis / 1e3)
        while dt.datetime.now().timestamp() * 1e3 < times[-1] * 1e3 + 2:
            pass
    made.table.create_tag("first", 1)
    path = made.path
    assert [skipstone.Table(path, version=at).count() for at in (1, 2, 3)] == [1, 2, 3]
    assert skipstone.Table(path, version="first").query()["id"].to_pylist() == [0]
    moment = dt.datetime.fromtimestamp(times[1] + 0.001, dt.UTC)
    assert skipstone.Table(path, timestamp=moment).count() == 2
    assert skipstone.Table(path, timestamp="2999-01-01 00:00:00").count() == 3
    assert "Apache Paimon, version 2, of 20" in str(skipstone.Table(path, version=2).describe())
    for wrong in ({"version": 9}, {"version": "none"}, {"timestamp": "2020-01-01"}):
        with pytest.raises(SkipstoneError, match="has no snapshot"):
            skipstone.Table(path, **wrong).count()
    with pytest.raises(UnsupportedError, match="newest"):
        skipstone.Table(path, version=1).compact()
    table, first = skipstone.Table(path), skipstone.Table(path, version=1)
    assert pickle.loads(pickle.dumps(table)).count("id >= 1") == 2
    assert pickle.loads(pickle.dumps(first)).count() == 1
    assert pickle.loads(pickle.dumps(table.plan("id = 1"))).files_kept == 1


def test_nothing_is_written_into_the_table(tmp_path: Path) -> None:
    made = Made(tmp_path, IDS)
    made.append(id=[1, 2, 3])
    before = names_below(Path(made.path))
    table = skipstone.Table(made.path)
    table.build(indexes=["id:bloom", "id:bitmap"])
    assert table.query("id = 3").num_rows == 1
    table.refresh()
    table.compact()
    table.vacuum()
    for verb in (table.retrofit, table.write_metadata, table.salvage):
        with pytest.raises(UnsupportedError, match="is a table of Apache Paimon"):
            verb()
    assert names_below(Path(made.path)) == before


def test_statistics_and_partition_values_prune_and_explain_says_so(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("kind", pa.string())])
    made = Made(tmp_path, schema, partitions=["day", "kind"])
    for at in range(10):
        day = dt.date(2026, 1, at + 1)
        made.append(id=range(at, 100, 10), day=[day] * 10, kind=["a/b =%" if at % 2 else None] * 10)
    table = skipstone.Table(made.path)
    assert table.plan("day = DATE '2026-01-04'").files_kept == 1
    assert table.plan("kind = 'a/b =%'").files_kept == 5
    assert rows(table.query("kind IS NULL")) == rows(
        made.read().filter(pa.compute.field("kind").is_null())
    )
    assert table.plan("id = 53", inside=False).files_kept == 10
    assert table.plan("id > 97").files_kept == 2
    table.build(indexes=["id:bloom"])
    plan = table.plan("id = 53 AND day >= DATE '2026-01-02'")
    steps = {(step.index, step.column): (step.considered, step.kept) for step in plan.steps}
    assert steps["Apache Paimon", "id"] == (9, 9)
    assert steps["bloomfilter", "id"] == (9, 1)
    assert "id  Apache Paimon" in str(table.explain("id > 97"))
    with pytest.raises(UnsupportedError, match="partition column"):
        table.build(indexes=["kind:bloom"])


def test_bounds_lose_no_row(tmp_path: Path) -> None:
    """Statistics of a writer in Python leave NaN out; timestamps have several precisions."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us")),
            ("zoned", pa.timestamp("us", "UTC")),
            ("coarse", pa.timestamp("ms")),
            ("text", pa.string()),
            ("money", pa.decimal128(20, 2)),
            ("number", pa.float64()),
            ("bytes", pa.binary()),
            ("small", pa.int8()),
            ("inner", pa.struct([("n", pa.float32())])),
        ]
    )
    made = Made(tmp_path, schema)
    moments = [dt.datetime(1960, 1, 1, 0, 0, 0, 123_456), dt.datetime(2026, 1, 1, 0, 0, 0, 999)]
    large = [Decimal("12345678901234567.89"), Decimal("12345678901234567.91")]
    for moment, value, number in zip(moments, large, [1.5, float("nan")], strict=True):
        made.append(
            id=[1],
            at=[moment],
            zoned=[moment.replace(tzinfo=dt.UTC)],
            coarse=[moment.replace(microsecond=moment.microsecond // 1000 * 1000)],
            text=["z" * 100],
            money=[value],
            number=[number],
            bytes=[b"\xff\x00"],
            small=[-128],
            inner=[{"n": number}],
        )
    table = skipstone.Table(made.path)
    assert rows(table.query(columns=["id", "money", "number", "small", "inner", "text"])) == rows(
        made.read().select(["id", "money", "number", "small", "inner", "text"])
    )
    for where in (
        "at = '1960-01-01 00:00:00.123456'",
        "at > '2026-01-01 00:00:00.000998'",
        "zoned = '2026-01-01 00:00:00.000999'",
        "coarse = '1960-01-01 00:00:00.123'",
        "money = 12345678901234567.89",
        "money > 12345678901234567.90",
        "number > 100",
        "number = 'NaN'",
        "inner.n > 100",
    ):
        assert table.query(where).num_rows == 1, where
    for where in (f"text = '{'z' * 100}'", "bytes = X'FF00'", "small < -127"):
        assert table.query(where).num_rows == 2, where
    for where in ("money > 12345678901234567.91", "small > 0", "zoned < '1950-01-01 00:00:00'"):
        assert table.plan(where).files_kept == 0, where


def test_deleted_rows_are_in_no_result(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    made = Made(tmp_path, schema, options=VECTORS)
    for at in range(4):
        ids = list(range(at * 100, at * 100 + 100))
        made.append(id=ids, text=[f"t{each % 7}" for each in ids])
    gone = [0, 1, 2, 150, *range(200, 300), 399]
    made.delete(gone)
    left = sorted(set(range(400)) - set(gone))
    table = skipstone.Table(made.path)
    for _ in range(2):
        assert table.count() == len(left) == table.query().num_rows
        assert table.count(f"id IN ({', '.join(map(str, gone))})") == 0
        assert table.count("text = 't3'") == sum(each % 7 == 3 for each in left)
        assert (table.min("id"), table.max("id")) == (left[0], left[-1])
        assert table.query(keys={"id": gone[:3] + left[:20]}).num_rows == 20
        last = table.query(columns=["id"], order_by="id desc", limit=5)["id"].to_pylist()
        assert last == left[::-1][:5]
        assert "105 deleted rows in 4 of 4 files" in str(table.describe())
        assert "105 deleted rows in 4 of 4 files" in str(table.explain("id = 5"))
        table.build(indexes=["id:bitmap", "text:valuelist", "id:rangebitmap"])
    assert skipstone.Table(made.path, version=4).count() == 400


def test_a_primary_key_is_read_where_no_merge_is_needed(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string())])
    made = Made(tmp_path, schema, keys=["id"], options={"bucket": "1"})
    made.append(id=range(10), kind=["a"] * 10)
    made.append(id=range(20, 30), kind=["b"] * 10)
    table = skipstone.Table(made.path)
    assert rows(table.query()) == rows(made.read())
    made.append(id=range(5, 15), kind=["c"] * 10)
    with pytest.raises(UnsupportedError, match=r"have to be merged by the primary key") as caught:
        table.query()
    assert "compact" in str(caught.value.hint)
    assert skipstone.Table(made.path, version=2).count() == 20


def test_names_and_types_of_old_files(tmp_path: Path) -> None:
    """A wider type and another name are read, a column is never read for another one, and older
    snapshots are read by their own schema. Another type is refused."""
    made = Made(tmp_path, pa.schema([("id", pa.int32()), ("a", pa.string()), ("b", pa.string())]))
    made.append(id=[1, 2], a=["x", "y"], b=["u", "v"])
    made.alter(SchemaChange.update_column_type("id", AtomicType("BIGINT")))
    made.append(id=[2**40], a=["z"], b=["w"])
    table = skipstone.Table(made.path)
    assert rows(table.query()) == rows(made.read())
    assert table.query().schema.field("id").type == pa.int64()
    table.build(indexes=["id:minmax", "id:bloom", "a:bloom", "b:bloom"])
    assert (table.count("id = 2"), table.count(f"id >= {2**40}")) == (1, 1)
    made.alter(SchemaChange.drop_column("b"))
    assert rows(table.query()) == rows(made.read())
    made.alter(SchemaChange.add_column("b", AtomicType("STRING")))
    assert table.query("id = 1").to_pylist() == [{"id": 1, "a": "x", "b": None}]
    assert (table.count("b = 'u'"), table.count("b IS NULL")) == (0, 3)
    made.alter(SchemaChange.rename_column("b", "t"))
    made.alter(SchemaChange.rename_column("a", "b"))
    made.alter(SchemaChange.rename_column("t", "a"))
    made.append(id=[7], b=["x"], a=["y"])
    assert rows(table.query()) == rows(made.read())
    assert sorted(table.query("b = 'x'")["id"].to_pylist()) == [1, 7]
    assert table.query("a = 'y'")["id"].to_pylist() == [7]
    assert table.plan("b = 'nothing'", inside=False).files_kept == 0
    assert table.plan("b > 'y'", inside=False).files_kept == 1
    assert skipstone.Table(made.path, version=2).query("b = 'u'").num_rows == 1
    made.alter(SchemaChange.update_column_type("id", AtomicType("STRING")))
    with pytest.raises(UnsupportedError, match="'id' is INT in some files, and STRING"):
        table.query()


def test_what_is_not_applied_is_refused(tmp_path: Path) -> None:
    orc = Made(tmp_path / "orc", IDS, options={"file.format": "orc"})
    orc.append(id=[1])
    with pytest.raises(UnsupportedError, match="1 of 1 files are not Parquet files"):
        skipstone.Table(orc.path).query()
    fine = Made(tmp_path / "ns", pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns"))]))
    with pytest.raises(UnsupportedError, match="'at' has nanoseconds"):
        skipstone.Table(fine.path).query()
    wide = pa.schema([("id", pa.int64()), ("a", pa.string())])
    parts = Made(tmp_path / "parts", wide, options=VECTORS)
    parts.append(id=[1, 2], a=["x", "y"])
    builder = parts.table.new_batch_write_builder()
    update = builder.new_update().with_update_type(["a"])
    ids = pa.table({"_ROW_ID": pa.array([0, 1], pa.int64()), "a": ["p", "q"]})
    commit = builder.new_commit()
    commit.commit(update.update_by_arrow_with_row_id(ids))
    with pytest.raises(UnsupportedError, match="some rows are in several files"):
        skipstone.Table(parts.path).query()
    assert skipstone.Table(parts.path, version=1).count("a = 'x'") == 1


def test_a_table_without_rows(tmp_path: Path) -> None:
    made = Made(tmp_path, IDS)
    table = skipstone.Table(made.path)
    assert (table.count(), table.query().num_rows, table.min("id")) == (0, 0, None)
    assert table.query("id = 1").column_names == ["id"]
    made.append(id=[1])
    assert table.count() == 1


def test_files_that_are_gone(tmp_path: Path) -> None:
    """A named snapshot without its files is an error; a query of the newest plans again."""
    made = Made(tmp_path, IDS)
    made.append(id=[1])
    table = skipstone.Table(made.path)
    scan = table.scan("id = 1", inside=False)
    asked: list[Any] = []

    def read_after_expiry(found: Any) -> int:
        asked.append(found)
        if len(asked) == 1:
            made.commit(pa.table({"id": [1]}, schema=IDS), overwrite=True)
            for path in scan.plan.paths:
                Path(path).unlink()
        return int(found.to_arrow().num_rows)

    assert table.retried(read_after_expiry, "id = 1", inside=False) == 1
    assert len(asked) == 2
    with pytest.raises((SkipstoneError, FileNotFoundError)):
        scan.to_arrow()
    with pytest.raises(SkipstoneError, match="1 of 1 files of Apache Paimon, version 1 are gone"):
        skipstone.Table(made.path, version=1).query()


def test_builds_and_queries_while_others_commit(tmp_path: Path) -> None:
    made = Made(tmp_path, IDS)
    made.append(id=[0])
    table = skipstone.Table(made.path)
    seen: list[int] = []

    def commit(done: int, total: int) -> None:
        seen.append(total)
        made.append(id=[len(seen)])

    assert table.build(indexes=["id:minmax"], progress=commit).files_total == 1
    assert set(seen) == {1}
    assert table.refresh().files_built == len(seen)
    start = table.count()
    failed: list[BaseException] = []

    def append() -> None:
        try:
            for at in range(start, start + 15):
                made.append(id=[at])
        except BaseException as error:
            failed.append(error)

    writer = Thread(target=append)
    writer.start()
    while writer.is_alive():
        found = sorted(table.query("id >= 0")["id"].to_pylist())
        assert found == list(range(len(found)))
    writer.join()
    assert not failed
    assert table.count() == start + 15


@pytest.mark.spark
def test_spark_reads_it_without_a_jar(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("kind", pa.string())])
    made = Made(tmp_path, schema, partitions=["kind"], options=VECTORS)
    for at in range(3):
        ids = range(at * 100, at * 100 + 100)
        made.append(id=ids, kind=["a b" if each % 2 else None for each in ids])
    made.delete([5, 7, 201])
    table = skipstone.Table(made.path)
    table.build(spark, indexes=["id:bloom"])
    left = sorted(set(range(300)) - {5, 7, 201})

    def ids_of(where: str | None) -> list[int]:
        return sorted(row.id for row in table.read(spark, where).select("id").collect())

    assert ids_of(None) == left
    assert ids_of("id < 9") == [0, 1, 2, 3, 4, 6, 8]
    assert ids_of("kind IS NULL AND hash(id) % 2 = 0 AND id < 0") == []
    assert spark.read.format("skipstone").load(made.path).count() == len(left)
    old = spark.read.format("skipstone").option("version", "3").load(made.path)
    assert old.count() == 300
    made.append(id=[1_000], kind=["a b"])
    made.alter(SchemaChange.add_column("more", AtomicType("INT")))
    assert [tuple(row) for row in table.read(spark, "hash(id) = hash(9L)").collect()] == [
        (9, "a b", None)
    ]
    with skipstone.watch(spark, table, interval=0.2) as watching:
        while table.plan("id = 1000").facts_missing:
            assert watching.isActive
            watching.awaitTermination(1)
        assert watching.last_error is None


def test_branches_and_tags(tmp_path: Path) -> None:
    """A branch has its own snapshots and columns, whose numbers the main one has, too. The version
    that a plan carries names the same rows again; a tag outlives its snapshot."""
    made = Made(tmp_path, pa.schema([("id", pa.int64()), ("kind", pa.string())]))
    made.append(id=[1, 2], kind=["a", "b"])
    made.table.create_tag("first")
    made.append(id=[3], kind=["c"])
    made.table.branch_manager().create_branch("audit", "first")
    branch = made.catalog.get_table("db.t$branch_audit")
    made.catalog.alter_table(
        "db.t$branch_audit", [SchemaChange.add_column("more", AtomicType("INT"))], False
    )
    branch = made.catalog.get_table("db.t$branch_audit")
    builder = branch.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    schema = pa.schema([*made.schema, ("more", pa.int32())])
    write.write_arrow(pa.table({"id": [9], "kind": ["z"], "more": [7]}, schema=schema))
    commit.commit(write.prepare_commit())
    skipstone.Table(made.path).build(indexes=["id:bloom"])
    wanted = {
        None: [1, 2, 3],
        2: [1, 2, 3],
        "first": [1, 2],
        "audit": [1, 2, 9],
        "audit@1": [1, 2],
        "audit@2": [1, 2, 9],
    }
    (Path(made.path) / "snapshot" / "snapshot-1").unlink()
    for version, ids in wanted.items():
        table = skipstone.Table(made.path, version=version)
        snapshots = table.snapshots()
        assert snapshots is not None
        again = skipstone.Table(made.path, version=table.kept_at(snapshots.kept()).version)
        for each in (table, again):
            assert sorted(each.query()["id"].to_pylist()) == ids, version
            assert each.count("id = 9") == (9 in ids)
        assert ("more" in table.query().column_names) == (9 in ids)
    assert skipstone.Table(made.path, version="audit").min("more") == 7
    for wrong in ("other", "audit@5", "audit@", 9):
        with pytest.raises(SkipstoneError, match=f"has no snapshot {wrong}"):
            skipstone.Table(made.path, version=wrong).count()
    made.table.branch_manager().create_branch("blank")
    for name in ("audit", "blank"):
        change = SchemaChange.rename_column("kind", f"kind_of_{name}")
        made.catalog.alter_table(f"db.t$branch_{name}", [change], False)
    for version, found in {
        "audit": [{"id": 9, "kind_of_audit": "z", "more": 7}],
        "audit@2": [{"id": 9, "kind": "z", "more": 7}],
        "blank": [],
    }.items():
        table = skipstone.Table(made.path, version=version)
        snapshots = table.snapshots()
        assert snapshots is not None
        again = skipstone.Table(made.path, version=table.kept_at(snapshots.kept()).version)
        for each in (table, again):
            assert each.query("id = 9").to_pylist() == found, version
            assert each.count() == (3 if found else 0)
            assert f"kind_of_{version}" in each.query().column_names or "@" in version
    with pytest.raises(SkipstoneError, match="has no snapshot blank@1"):
        skipstone.Table(made.path, version="blank@1").count()
    made.alter(SchemaChange.rename_column("kind", "sort"))
    snapshots = skipstone.Table(made.path).snapshots()
    assert snapshots is not None
    again = skipstone.Table(made.path, version=snapshots.source.snapshot().reopened)
    assert again.query("id = 3").to_pylist() == [{"id": 3, "sort": "c"}]
    assert skipstone.Table(made.path, version=2).query().column_names == ["id", "kind"]
    made.alter(SchemaChange.set_option("scan.fallback-branch", "audit"))
    with pytest.raises(UnsupportedError, match=r"scan\.fallback-branch"):
        skipstone.Table(made.path).count()


def test_in_an_object_store(s3: S3, tmp_path: Path) -> None:
    """The manifests through the library, the files and the index through our own storage."""
    history = History(tmp_path, 5, ["kind"], vectors=True)
    for _ in range(12):
        history.step()
    s3.upload(Path(history.path), "lake/db.db/t")
    path = f"{s3.base}/lake/db.db/t"
    table = skipstone.Table(path, storage_options=s3.options)
    wanted = history.read()
    assert rows(table.query()) == rows(wanted)
    table.build(indexes=["id:bloom"])
    for id in wanted["id"].to_pylist()[:3]:
        assert table.query(f"id = {id}")["id"].to_pylist() == [id]
        assert table.plan(f"id = {id}").files_kept == 1
    before = skipstone.Table(path, version=1, storage_options=s3.options)
    assert rows(before.query()) == rows(history.read(1))


def test_folders_of_floats_may_be_spelled_in_another_way(tmp_path: Path) -> None:
    """Java's Paimon writes f=Infinity, where pypaimon looks for f=inf."""
    made = Made(tmp_path, pa.schema([("id", pa.int64()), ("f", pa.float32())]), partitions=["f"])
    infinite = pa.array([float("inf"), 1.5], pa.float32())
    made.commit(pa.table({"id": [1, 2], "f": infinite}))
    assert skipstone.Table(made.path).count("f > 2") == 1
    (Path(made.path) / "f=inf").rename(Path(made.path) / "f=Infinity")
    with pytest.raises(SkipstoneError, match=r"1 of 2 files of .* are not there, .*/f=inf/") as e:
        skipstone.Table(made.path).count("f > 2")
    assert "as Infinity for inf: then read it through" in str(e.value)
