"""Tables of Delta Lake: rows, versions, partition values and statistics of the log."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import shutil
from decimal import Decimal
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import skipstone
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.parquet.reading.bulk_chunks import KERNELS
from skipstone.storage.base import metered
from skipstone.table_formats.snapshot import outer_bounds
from tests.fuzz.mutate import mutated
from tests.s3 import S3, s3, s3_server
from tests.table_formats.delta_tables import (
    PREDICATES,
    History,
    assert_same,
    names_below,
    read,
    rows,
)
from tests.table_formats.make_golden import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["s3", "s3_server"]


# Together the two histories have every kind of commit.
@pytest.mark.parametrize("seed, partitions", [(5, None), (2, ["kind"])])
def test_every_version_of_a_random_history(
    tmp_path: Path, seed: int, partitions: list[str] | None
) -> None:
    """Appends, deletes, updates, merges, new columns, compaction, z-order and checkpoints: each
    version has the rows of the library's own engine, with and without an index."""
    history = History(tmp_path / "t", seed, partitions)
    table = skipstone.Table(history.path)
    table.build(indexes=["id:bloom", "id:minmax", "amount:minmax"])
    for at in range(12):
        history.step()
        if at % 4 == 0:
            table.refresh()
        if at % 7 == 0:
            table.compact()
        assert rows(table.query()) == read(history.path)
        assert_same(history.path, None, *PREDICATES)
    for version in range(0, history.table.version() + 1, 3):
        assert_same(history.path, version, *PREDICATES)


def test_nothing_is_written_into_the_table(tmp_path: Path) -> None:
    history = History(tmp_path / "t", 1)
    history.append()
    before = names_below(tmp_path / "t")
    table = skipstone.Table(history.path)
    table.build(indexes=["id:bloom", "id:bitmap"])
    assert table.query("id = 3").num_rows == 1
    table.refresh()
    table.compact()
    table.vacuum()
    assert names_below(tmp_path / "t") == before
    assert (tmp_path / "_t.skipstone").is_dir()


def test_values_of_partitions_come_from_the_log(tmp_path: Path) -> None:
    """Folders are encoded twice in the log, timestamps are typed, and a folder's name means
    nothing."""
    path = str(tmp_path / "t")
    instants = [dt.datetime(2026, 1, day, 12, 30, 0, 5, tzinfo=dt.UTC) for day in (1, 2, 3, 4)]
    data = pa.table(
        {
            "kind": ["x y", "a/b%2=", "ü", None],
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "at": pa.array(instants, pa.timestamp("us", "UTC")),
            "day": pa.array([dt.date(2026, 1, day) for day in (1, 2, 3, 4)]),
        }
    )
    write_deltalake(path, data, partition_by=["kind", "at", "day"])
    table = skipstone.Table(path)
    found = table.query(order_by="id")
    assert found.column_names == data.column_names
    assert found.to_pylist() == data.to_pylist()
    plan = table.plan("at >= '2026-01-03'")
    assert (plan.files_kept, plan.files_total) == (2, 4)
    assert table.query("kind = 'a/b%2='").column("id").to_pylist() == [2]
    assert table.plan("day = DATE '2026-01-04'").files_kept == 1
    with pytest.raises(UnsupportedError, match="partition column"):
        table.build(indexes=["kind:bloom"])


def test_statistics_of_the_log_prune_and_explain_says_so(tmp_path: Path) -> None:
    """Ten files of ten ids: the log prunes by bounds; our Bloom filter prunes what it cannot."""
    path = str(tmp_path / "t")
    for at in range(10):
        ids = pa.array(range(at, 100, 10), pa.int64())
        data = pa.table({"id": ids, "day": pa.array([at] * 10, pa.int64())})
        write_deltalake(path, data, mode="append")
    table = skipstone.Table(path)
    assert table.plan("day = 3").files_kept == 1
    assert table.plan("id = 53", inside=False).files_kept == 10
    table.build(indexes=["id:bloom"])
    plan = table.plan("id = 53 AND day >= 3")
    steps = {(step.index, step.column): (step.considered, step.kept) for step in plan.steps}
    assert steps["Delta Lake", "day"] == (10, 7)
    assert steps["bloomfilter", "id"][1] == 1
    text = str(table.explain("id = 53 AND day >= 3"))
    assert "day  Delta Lake" in text
    assert "bloomfilter" in text


def test_the_only_file_left_is_read_at_once_and_each_commit_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of a small file in one request, nested ones in another; a commit, also one that
    removes a file, is seen by the next query."""
    # Where another test has loaded compiled code, that reads the pages of the one row.
    monkeypatch.setattr(KERNELS, "disabled", True)
    path = str(tmp_path / "t")

    def file(at: int) -> pa.Table:
        ids = range(at * 100, at * 100 + 100)
        return pa.table({"id": ids, "s": [f"t{x}" for x in ids], "l": [[x, x] for x in ids]})

    for at in range(5):
        write_deltalake(path, file(at), mode="append")
    table, flat = skipstone.Table(path), ["id", "s"]
    whole = {"id": 207, "s": "t207", "l": [207, 207]}
    assert table.query("id = 207").to_pylist() == [whole]
    for columns, wanted, requests in ((flat, {"id": 207, "s": "t207"}, 1), (None, whole, 2)):
        for _ in range(2):
            with metered() as meter:
                assert table.query("id = 207", columns).to_pylist() == [wanted]
            assert meter.requests == requests
    assert table.query("id = 208 AND s = 't209'").num_rows == 0
    for at in range(5, 9):
        assert table.count(f"id = {at * 100}") == 0
        write_deltalake(path, file(at), mode="append")
        assert table.query(f"id = {at * 100}", flat).to_pylist() == [
            {"id": at * 100, "s": f"t{at * 100}"}
        ]
    DeltaTable(path).delete("id < 300")
    assert table.query("id = 207").num_rows == 0
    assert table.query("id = 307", flat).num_rows == 1


def test_cut_and_missing_statistics_lose_no_row(tmp_path: Path) -> None:
    """The log cuts timestamps to milliseconds and texts to 64 bytes, has no NaN, and writes
    decimals as doubles."""
    path = str(tmp_path / "t")
    instants = [dt.datetime(1960, 1, 1, 0, 0, 0, 123_456), dt.datetime(2026, 1, 1, 0, 0, 0, 999)]
    large = [Decimal("12345678901234567.89"), Decimal("12345678901234567.91")]
    for instant, value, number in zip(instants, large, [1.5, float("nan")], strict=True):
        data = pa.table(
            {
                "id": pa.array([1], pa.int64()),
                "at": pa.array([instant], pa.timestamp("us", "UTC")),
                "local": pa.array([instant], pa.timestamp("us")),
                "text": ["z" * 100],
                "money": pa.array([value], pa.decimal128(20, 2)),
                "number": [number],
                "inner": pa.array([{"n": number, "t": "q"}]),
            }
        )
        write_deltalake(path, data, mode="append")
    table = skipstone.Table(path)
    for where in (
        "at = '1960-01-01 00:00:00.123456'",
        "local = '2026-01-01 00:00:00.000999'",
        "at > '2026-01-01 00:00:00.000998'",
        "money = 12345678901234567.89",
        "money > 12345678901234567.90",
        "number > 100",
        "number = 'NaN'",
        "inner.n > 100",
    ):
        assert table.query(where).num_rows == 1, where
    assert table.query(f"text = '{'z' * 100}'").num_rows == 2
    assert table.plan("inner.t = 'other'").files_kept == 0
    assert table.plan("number < 1").files_kept == 1


def test_names_fields_keys_and_expressions(tmp_path: Path) -> None:
    """The log has statistics of fields, too; a name may have a dot, and has any case."""
    path = str(tmp_path / "t")
    for at in range(3):
        columns = {
            "User.Id": pa.array([f"u{at}"]),
            "n": pa.array([at], pa.int64()),
            "m": pa.array([[("k", at)]], pa.map_(pa.string(), pa.int64())),
            "s": pa.array([{"a.b": at}], pa.struct([("a.b", pa.int64())])),
        }
        write_deltalake(path, pa.table(columns), mode="append")
    table = skipstone.Table(path)
    wheres = ("upper(`User.Id`) = 'U1'", "m['k'] = 2", "s.`a.b` = 1", "`user.id` = 'u2'", "N = 1")
    for where in (*wheres, "n + 1 = 2"):
        assert table.count(where) == 1, where
    assert table.plan("s.`a.b` = 1", inside=False).files_kept == 1
    table.build(indexes=["upper(`User.Id`):bloom", "m.k:minmax", "s.`a.b`:minmax"])
    for where in wheres:
        assert table.count(where) == 1, where
        assert table.plan(where, inside=False).files_kept == 1, where


def test_a_version_and_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for at in range(3):
        write_deltalake(path, pa.table({"id": pa.array([at], pa.int64())}), mode="append")
    assert [skipstone.Table(path, version=at).count() for at in range(3)] == [1, 2, 3]
    assert skipstone.Table(path, version="1").count() == 2
    made = dt.datetime.now(dt.UTC) + dt.timedelta(hours=5)
    for at in range(3):  # the format takes the time of a version from its file
        moment = (made + dt.timedelta(hours=at - 1, minutes=-1)).timestamp()
        os.utime(tmp_path / "t" / "_delta_log" / f"{at:020}.json", (moment, moment))
    assert skipstone.Table(path, timestamp=made).count() == 2
    assert skipstone.Table(path, timestamp=made.isoformat()).count() == 2
    assert skipstone.Table(path, timestamp="2999-01-01 00:00:00").count() == 3
    assert "Delta Lake, version 1, of 20" in str(skipstone.Table(path, timestamp=made).describe())
    for wrong in ({"timestamp": "2020-01-01"}, {"timestamp": "soon"}, {"version": 9}):
        with pytest.raises(SkipstoneError):
            skipstone.Table(path, **wrong).count()
    with pytest.raises(SkipstoneError, match="not at both"):
        skipstone.Table(path, version=1, timestamp=made)
    with pytest.raises(UnsupportedError, match="newest"):
        skipstone.Table(path, version=1).compact()


def test_a_table_and_its_plans_travel(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for at in range(3):
        write_deltalake(path, pa.table({"id": pa.array([at], pa.int64())}), mode="append")
    table, first = skipstone.Table(path), skipstone.Table(path, version=0)
    assert (len(table.listing()), len(first.listing())) == (3, 1)
    assert pickle.loads(pickle.dumps(table)).count("id >= 1") == 2
    assert pickle.loads(pickle.dumps(first)).count() == 1
    plan = table.plan("id = 1")
    assert pickle.loads(pickle.dumps(plan)).paths == plan.paths


def test_a_plain_table_has_no_versions(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t" / "a.parquet")
    with pytest.raises(UnsupportedError, match="no versions"):
        skipstone.Table(tmp_path / "t", version=1).count()


def test_a_table_without_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64()), "text": ["a"]}))
    DeltaTable(path).delete()
    table = skipstone.Table(path)
    assert (table.count(), table.query().num_rows, table.min("id")) == (0, 0, None)
    assert table.query("id = 1").column_names == ["id", "text"]
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert skipstone.Table(path).count() == 0


def test_another_schema_takes_the_place_of_the_old(tmp_path: Path) -> None:
    """Facts of the old column of the same name say nothing of the new one."""
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": pa.array([1, 2], pa.int64())}))
    table = skipstone.Table(path)
    table.build(indexes=["id:minmax", "id:bloom"])
    new = pa.table({"id": ["1", "x"]})
    write_deltalake(path, new, mode="overwrite", schema_mode="overwrite")
    assert rows(table.query("id = 'x'")) == rows(new.slice(1))
    assert table.count("id = '1'") == 1
    assert skipstone.Table(path, version=0).count("id = 1") == 1


def test_types_that_were_widened(tmp_path: Path) -> None:
    """A file has INT32 where the table has bigint now."""
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": pa.array([1, 2], pa.int32())}))
    log = tmp_path / "t" / "_delta_log"
    first = log / f"{0:020}.json"
    first.write_text(first.read_text().replace('\\"integer\\"', '\\"long\\"'))
    write_deltalake(path, pa.table({"id": pa.array([2**40], pa.int64())}), mode="append")
    table = skipstone.Table(path)
    assert rows(table.query()) == read(path)
    assert table.query().schema.field("id").type == pa.int64()
    table.build(indexes=["id:minmax", "id:bloom"])
    assert_same(path, None, "id = 2", f"id >= {2**40}")


def test_files_that_a_vacuum_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64())}))
    write_deltalake(path, pa.table({"id": pa.array([2], pa.int64())}), mode="overwrite")
    old, new = skipstone.Table(path, version=0), skipstone.Table(path)
    assert (old.count(), new.count()) == (1, 1)
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SkipstoneError, match="1 of 1 files of Delta Lake, version 0 are gone") as e:
        old.query()
    assert "vacuum" in str(e.value.hint)
    assert new.query().column("id").to_pylist() == [2]


def test_files_are_vacuumed_between_plan_and_read(tmp_path: Path) -> None:
    """A scan in hand fails with words; a query plans again, from the newest version."""
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64())}))
    table = skipstone.Table(path)
    scan = table.scan("id = 1", inside=False)
    asked = []

    def read_after_vacuum(found: Any) -> int:
        asked.append(found)
        if len(asked) == 1:
            write_deltalake(path, pa.table({"id": pa.array([1], pa.int64())}), mode="overwrite")
            DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
        return int(found.to_arrow().num_rows)

    assert table.retried(read_after_vacuum, "id = 1", inside=False) == 1
    assert len(asked) == 2
    with pytest.raises((SkipstoneError, FileNotFoundError)):
        scan.to_arrow()


def test_a_file_that_is_not_the_one_of_the_log(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64())}))
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(SkipstoneError, match="never change"):
        skipstone.Table(path).query()


def test_files_of_a_snapshot_may_lie_in_folders_that_spark_hides(tmp_path: Path) -> None:
    """As those of a null partition of Hudi do (``__HIVE_DEFAULT_PARTITION__``)."""
    root = tmp_path / "t"
    for first in range(0, 30, 10):
        write_deltalake(root, pa.table({"id": range(first, first + 10)}), mode="append")
    hidden = root / "__HIVE_DEFAULT_PARTITION__" / ".x"
    hidden.mkdir(parents=True)
    log = root / "_delta_log" / f"{1:020}.json"
    (file,) = (each for each in root.glob("*.parquet") if each.name in log.read_text())
    file.rename(hidden / file.name)
    below = (hidden / file.name).relative_to(root).as_posix()
    log.write_text(log.read_text().replace(f'"{file.name}"', f'"{below}"'))
    (root / "_stray.parquet").write_bytes(b"no file of the table")
    assert_same(str(root), None, "id = 15", "id > 8 and id < 12")
    table = skipstone.Table(root)
    assert table.build(indexes=["id:bloom", "id:bitmap"]).files_built == 3
    assert table.plan("id = 15").paths == [str(hidden / file.name)]
    assert_same(str(root), None, "id = 15", "id = 25")
    assert not table.check(deep=True).untrue
    (hidden / file.name).unlink()
    with pytest.raises(SkipstoneError, match="1 of 3 files of Delta Lake, version 2 are gone"):
        table.query()


@pytest.mark.parametrize("version", [-1, 2**70, 1.5, True, "", "0x1"])
def test_versions_that_are_no_numbers(tmp_path: Path, version: Any) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64())}))
    with pytest.raises(SkipstoneError, match="is a whole number from 0"):
        skipstone.Table(path, version=version).count()
    with pytest.raises(SkipstoneError, match="5 is not a time"):
        skipstone.Table(path, timestamp=5).count()  # type: ignore[arg-type]


def test_the_log_of_another_directory_is_never_read(tmp_path: Path) -> None:
    """``deltalake`` takes ``a%20b`` for the directory ``a b``."""
    write_deltalake(str(tmp_path / "a b"), pa.table({"id": pa.array([1], pa.int64())}))
    shutil.copytree(tmp_path / "a b", tmp_path / "a%20b")
    write_deltalake(str(tmp_path / "a b"), pa.table({"id": [2]}), mode="overwrite")
    for path in (tmp_path / "a b").glob("*.parquet"):
        shutil.copy(path, tmp_path / "a%20b")
    shutil.copy(
        tmp_path / "a b/_delta_log/00000000000000000001.json", tmp_path / "a%20b/_delta_log"
    )
    with pytest.raises(UnsupportedError, match="percent sign"):
        skipstone.Table(str(tmp_path / "a%20b")).query()
    assert skipstone.Table(str(tmp_path / "a b")).query().column("id").to_pylist() == [2]


def test_a_damaged_log_is_told_in_words(tmp_path: Path) -> None:
    """``describe`` reads the history too, in which more can be wrong than in the snapshot."""
    path = tmp_path / "t"
    shutil.copytree(GOLDEN / "vectors", path)
    log = path / "_delta_log/00000000000000000005.json"
    stored = log.read_bytes()
    for seed in range(100, 120):
        log.write_bytes(mutated(stored, seed))
        try:
            skipstone.Table(str(path)).describe()
        except SkipstoneError as error:
            last = str(error)
    assert "does not " in last


def test_verbs_that_would_write_into_the_table_refuse(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64())}))
    before = names_below(tmp_path / "t")
    table = skipstone.Table(path)
    for verb in (table.retrofit, table.write_metadata, table.salvage):
        with pytest.raises(UnsupportedError, match="is a table of Delta Lake"):
            verb()
    with pytest.raises(SkipstoneError):
        skipstone.ingest(
            pa.table({"id": [1], "ts": [dt.datetime(2026, 1, 1)]}), path, timestamp="ts"
        )
    with pytest.raises(UnsupportedError, match="name the directory"):
        skipstone.Table(f"{path}/*.parquet").query()
    assert names_below(tmp_path / "t") == before


def test_a_build_keeps_to_its_snapshot(tmp_path: Path) -> None:
    """Commits during a build: its files are those of the snapshot at its start."""
    history = History(tmp_path / "t", 5)
    history.append()
    table = skipstone.Table(history.path)
    seen: list[int] = []

    def commit(done: int, total: int) -> None:
        seen.append(total)
        if done == 1:
            history.append()
            history.compact()

    report = table.build(indexes=["id:minmax"], progress=commit)
    assert report.files_total == 2
    assert set(seen) == {2}
    assert table.refresh().files_built == 1
    compacted = table.compact()
    assert compacted.facts_after == 1
    assert_same(history.path, None, *PREDICATES)


def test_queries_while_others_commit(tmp_path: Path) -> None:
    """A writer appends, compacts and vacuums; each query has the rows of one version."""
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": pa.array([0], pa.int64())}))
    table = skipstone.Table(path)
    table.build(indexes=["id:bloom"])
    failed: list[BaseException] = []

    def commit() -> None:
        try:
            for at in range(1, 40):
                write_deltalake(path, pa.table({"id": pa.array([at], pa.int64())}), mode="append")
                if at % 5 == 0:
                    DeltaTable(path).optimize.compact()
                    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
        except BaseException as error:
            failed.append(error)

    writer = Thread(target=commit)
    writer.start()
    seen = 0
    while writer.is_alive():
        found = sorted(table.query("id >= 0")["id"].to_pylist())
        assert found == list(range(len(found)))
        assert len(found) >= seen
        seen = len(found)
        table.refresh()
    writer.join()
    assert not failed
    assert table.count() == 40


def test_in_an_object_store(s3: S3) -> None:
    """The log through the library, the files and the index through our own storage."""
    path = f"{s3.base}/lake/t"
    wanted = {**s3.options, "allow_http": "true", "conditional_put": "etag"}
    for at in range(3):
        ids = pa.array(range(at * 10, at * 10 + 10), pa.int64())
        data = pa.table({"id": ids, "kind": [f"k {at}"] * 10})
        write_deltalake(path, data, partition_by=["kind"], mode="append", storage_options=wanted)
    table = skipstone.Table(path, storage_options=s3.options)
    assert table.count() == 30
    table.build(indexes=["id:bloom"])
    assert table.query("id = 13").to_pylist() == [{"id": 13, "kind": "k 1"}]
    assert table.plan("kind = 'k 2'").files_kept == 1
    before = skipstone.Table(path, version=0, storage_options=s3.options)
    assert before.count() == 10


def test_bounds_that_writers_cut_hold_every_value() -> None:
    """Also at the ends of the type, where one that is moved outwards would wrap around."""
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    times = pa.array([least, least + 5, -1, 0, 1_999, most - 5, most, None], pa.timestamp("us"))
    count = len(times)
    rows, nulls = np.ones(count, np.int64), np.zeros(count, np.int64)
    unknown = pa.nulls(count, times.type)
    for low, high in ((times, times), (unknown, times), (times, unknown)):
        found = outer_bounds(low, high, rows, nulls)
        for at, value in enumerate(times.cast(pa.int64()).to_pylist()):
            if value is not None:
                assert not found.lo.valid[at] or found.lo.data[at] <= value
                assert not found.hi.valid[at] or found.hi.data[at] >= min(value + 999, most)
    floats = pa.array([0.0, -0.0, float("inf"), None])
    found = outer_bounds(floats, floats, rows[:4], nulls[:4])
    assert found.lo.valid.tolist() == [True, True, True, False]
    assert not found.hi.valid.any()  # it may not count NaN
