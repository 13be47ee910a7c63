"""QuestDB's `_pm` and `_txn`: read, written, shown, migrated, asked, and live partitions."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone import Table
from skipstone.live import LiveTable
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.txn import Partition
from skipstone.questdb.txn_snapshot import TxnSnapshot
from skipstone.storage import open_storage
from tests.accept.registry import Missing, point
from tests.folders import GOLDEN
from tests.questdb import partitions as migrating
from tests.questdb.format.golden import case
from tests.txn_tables import DAY, TxnFolder, micros, rows_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench


def golden() -> Path:
    """The recorded files of the real QuestDB."""
    folder = GOLDEN / "questdb"
    if not folder.is_dir():
        raise Missing("no golden files: ../shared/golden is absent")
    return folder


def _holds(recorded: Any, found: Any, place: str) -> None:
    """Every recorded field is there with its value; there may be more."""
    if isinstance(recorded, dict):
        for key, value in recorded.items():
            assert key in found, f"{place}/{key} is not shown"
            _holds(value, found[key], f"{place}/{key}")
    elif isinstance(recorded, list):
        assert len(recorded) == len(found), f"{place}: {len(found)} of {len(recorded)}"
        for at, (one, other) in enumerate(zip(recorded, found, strict=True)):
            _holds(one, other, f"{place}/{at}")
    else:
        assert recorded == found, f"{place}: {found}, not {recorded}"


@point("questdb: inspect shows every field of recorded files, by each Parquet size too")
def inspected(bench: Workbench) -> None:
    folder = golden()
    for name in ("all_types", "update_bloom_3_snapshots", "dead_footer_appended_past"):
        _, recorded = case(GOLDEN, name)
        asked = {None: recorded["dump"], **recorded["by_parquet_size"]}
        for size, dump in asked.items():
            options = [] if size is None else ["--parquet-size", size]
            done = bench.skipstone("inspect", folder / f"{name}.pm", "--json", *options)
            if "error" in dump:
                assert done.code == 1, f"{name} is shown for {size} bytes"
            else:
                assert done.code == 0, done.err
                _holds(dump, json.loads(done.out), name)
    done = bench.skipstone("inspect", folder / "txn" / "txn_3_two_parquet._txn")
    assert "2 of 3 partitions" in done.out, done.err


@point("questdb: inspect refuses damaged files in one line, with the place and exit code 1")
def refused(bench: Workbench) -> None:
    for name in ("bad_crc_stored", "bad_footer_length_plus8", "bad_name_utf8", "bad_truncated_1"):
        done = bench.skipstone("inspect", golden() / f"{name}.pm")
        error, hint = done.err.splitlines()
        assert (done.code, done.out) == (1, ""), name
        assert f"{name}.pm: at byte " in error, error
        assert hint.startswith("hint: ")


@point("questdb: migrate makes what QuestDB made of the same files, and leaves good ones alone")
def migrated(bench: Workbench) -> None:
    folder = golden()
    root, partitions = bench.home / "db" / "t", []
    for number, path in enumerate(sorted(folder.glob("convert_sorted_*.parquet"))):
        (root / f"2024-01-{number + 1:02}").mkdir(parents=True)
        shutil.copy(path, root / f"2024-01-{number + 1:02}" / "data.parquet")
        size = path.stat().st_size
        start = migrating.FIRST + migrating.DAY * number
        partitions.append(
            Partition(timestamp=start, row_count=1, parquet_format=True, parquet_file_size=size)
        )
    migrating.write_txn(root, partitions)
    done = bench.skipstone("migrate", root, "--json")
    found = json.loads(done.out)
    assert (done.code, found["made"], found["files_total"]) == (0, 4, 4), done.err
    for number, path in enumerate(sorted(folder.glob("convert_sorted_*.pm"))):
        made = root / f"2024-01-{number + 1:02}" / "_pm"
        assert made.read_bytes() == path.read_bytes(), path.name
    assert "4 of 4 files had a good one already" in bench.skipstone("migrate", root).out


@point("questdb: migrate refuses a table that a server has open, and never writes into a plain one")
def unmigrated(bench: Workbench) -> None:
    root = migrating.questdb(bench.home / "db" / "trades", 1)
    lock = root.parent / "tables.d.lock"
    lock.touch()
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = bench.skipstone("migrate", root)
    assert (done.code, list(root.rglob("_pm"))) == (1, [])
    assert "a QuestDB server has" in done.err
    plain = migrating.day(bench.home / "plain" / "x.parquet", 0, own=False).parent
    before = sorted(plain.rglob("*"))
    assert bench.skipstone("migrate", plain).code == 0
    assert sorted(plain.rglob("*")) == before
    assert (bench.home / "_plain.skipstone" / "pm" / "_pm").is_file()


def _row_groups(home: Path, files: int = 3) -> Path:
    """Ten row groups of ten rows a file; ``k`` is indexed, ``r`` (3 per row) is not."""
    folder = home / "t"
    folder.mkdir()
    for file in range(files):
        number = np.arange(100)
        data = pa.table({"k": number + file, "r": number * 3 + 1_000 * file})
        pq.write_table(data, folder / f"{file}.parquet", row_group_size=10)
        os.utime(folder / f"{file}.parquet", (1_600_000_000, 1_600_000_000))
    return folder


@point("questdb: a build makes the _pm of every file, and plans drop row groups and files by it")
def built(bench: Workbench) -> None:
    folder = _row_groups(bench.home)
    done = bench.skipstone("build", folder, "-c", "k:bloom", "--no-spark")
    assert done.code == 0, done.err
    assert "(_pm) of 3 of 3 files" in bench.skipstone("describe", folder).out
    plan = Table(str(folder)).plan("r = 1030")
    step = next(step for step in plan.steps if step.index == "_pm statistics")
    assert (step.considered, step.kept) == (30, 1)
    assert plan.keep.tolist() == [False, True, False]
    assert plan.details[1].row_groups == (1,)
    assert bench.skipstone("check", folder, "--deep").code == 0


@point("questdb: export --questdb writes the _pm of each file, as the footer of the file gives it")
def exported(bench: Workbench) -> None:
    folder = _row_groups(bench.home)
    assert bench.skipstone("build", folder, "-c", "k:minmax", "--no-spark").code == 0
    out = bench.home / "out"
    done = bench.skipstone("export", folder, "--questdb", out)
    assert done.code == 0, done.err
    assert sorted(path.name for path in out.iterdir()) == [f"{i}.parquet._pm" for i in range(3)]
    for path in out.iterdir():
        data = (folder / path.name.removesuffix("._pm")).read_bytes()
        snapshot = Pm(path.read_bytes()).snapshot(len(data))
        snapshot.verify()
        assert snapshot.num_rows.tolist() == [10] * 10


@point("questdb: the _pm of a file that was replaced is never used")
def replaced(bench: Workbench) -> None:
    folder = _row_groups(bench.home)
    assert bench.skipstone("build", folder, "-c", "k:minmax", "--no-spark").code == 0
    table = Table(str(folder))
    assert table.plan("r = 77777").files_kept == 0
    pq.write_table(pa.table({"k": [1], "r": [77777]}), folder / "1.parquet")
    assert table.plan("r = 77777").keep.tolist() == [False, True, False]


def trades(folder: Path, *, live: bool) -> TxnFolder:
    """Three days of twenty ids in two row groups each; a live table's fourth is not Parquet."""
    table = TxnFolder(folder / "trades")
    for at in range(3 + live):
        start = micros(2024, 1, 1 + at)
        rows = rows_at(start, range(20 * at, 20 * at + 20))
        table.add(start, rows, parquet=at < 3, name_txn=at - 1, row_group_size=10)
    table.commit()
    return table


@point("questdb: a live table is refused with the partition's name, and read in part where told so")
def partial(bench: Workbench) -> None:
    table = trades(bench.home, live=True)
    refused = bench.skipstone("explain", table.root, "id = 3")
    assert refused.code == 1
    assert "partition 2024-01-04.2 of" in refused.err
    found = json.loads(bench.skipstone("explain", table.root, "id = 3", "--partial", "--json").out)
    assert found["partitions"] == {"read": 3, "total": 4, "left_out": ["2024-01-04.2"]}
    assert found["files"] == {"kept": 1, "total": 3}
    opened = skipstone.Table(str(table.root), partial=True)
    assert str(opened.count()) == "60 (of 3 of 4 partitions)"
    assert opened.read(bench.spark).count() == 60
    assert "3 of 4 partitions" in str(skipstone.last_scan(bench.spark))


@point("questdb: partitions are skipped by their time, row groups by their _pm, without an index")
def skipped(bench: Workbench) -> None:
    opened = skipstone.Table(str(trades(bench.home, live=False).root))
    plan = opened.plan("ts >= '2024-01-02T00:00:00Z' AND id = 47")
    (file,) = plan.files
    assert "2024-01-03" in file.path
    assert file.detail.row_groups == (0,)
    frame = opened.read(bench.spark).where("ts >= timestamp'2024-01-03 00:00:00Z'")
    assert frame.count() == 20
    assert skipstone.last_scan(bench.spark).files_kept == 1


@point("questdb: a DataFrame stays with its snapshot while rows are appended")
def stays(bench: Workbench) -> None:
    table = trades(bench.home, live=False)
    opened = skipstone.Table(str(table.root))
    before = opened.read(bench.spark)
    table.grow(2, rows_at(micros(2024, 1, 3) + DAY // 2, range(100, 120)))
    assert (before.count(), opened.count()) == (60, 60)
    table.commit()
    assert (before.count(), opened.count()) == (60, 80)
    assert opened.read(bench.spark).count() == 80


def ticks(count: int, start: int = 0, first: int = 0) -> pa.Table:
    """A row each second from ``start`` (in seconds) on, with ids from ``first`` on."""
    n = np.arange(count)
    at = pa.array((n + start) * 1_000_000).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": at, "id": n + first})


def live_ids(root: Path) -> list[int]:
    """The ids in the newest snapshot, each partition within its size."""
    snapshot = TxnSnapshot.open(str(root), open_storage(str(root)))
    found: list[int] = []
    for file in snapshot.files:
        rows = skipstone.ParquetFile(file.path, size=file.size).query()
        assert len(rows) == file.rows
        found += rows["id"].to_pylist()
    return sorted(found)


@point("questdb: rows are appended to a partition in place, and any Parquet reader reads it")
def in_place(bench: Workbench) -> None:
    root = bench.home / "db"
    with LiveTable.create(str(root), ticks(1).schema, timestamp="ts") as table:
        table.append(ticks(5_000))
        data = root / "1970-01-01" / "data.parquet"
        before, inode = data.read_bytes(), data.stat().st_ino
        table.append(ticks(5_000, 5_000, 5_000))
        assert data.stat().st_ino == inode
        assert data.read_bytes().startswith(before)
    assert pq.read_table(data)["id"].to_pylist() == list(range(10_000))
    assert skipstone.ParquetFile(data).verify().ok
    assert skipstone.Table(str(root)).count("id >= 4998 AND id < 5003") == 5
    assert bench.spark.read.parquet(str(data)).count() == 10_000


@point("questdb: late rows go into the row groups where they belong, and dead bytes are compacted")
def late(bench: Workbench) -> None:
    root = bench.home / "db"
    schema = ticks(1).schema
    with LiveTable.create(str(root), schema, timestamp="ts", row_group_rows=100) as table:
        table.append(ticks(1_000))
        for turn in range(8):
            table.append(ticks(600, 100, 1_000 * (turn + 1)))
        (partition,) = table.describe().partitions
        assert partition.dead_bytes > partition.live_bytes
        times = pq.read_table(root / "1970-01-01" / "data.parquet")["ts"].to_pylist()
        assert times == sorted(times)
        assert table.compact() == ("1970-01-01",)
        assert table.describe().dead_bytes == 0
        assert (root / "1970-01-01").exists()
        assert table.vacuum(older_than=-1) == ("1970-01-01",)
    assert len(live_ids(root)) == 1_000 + 8 * 600


_KILLED = """
import os, signal, sys
from skipstone.live import LiveTable
from tests.accept.points_questdb import ticks
table, writes, real = LiveTable.open(sys.argv[1]), 0, os.pwrite
def pwrite(*arguments):
    global writes
    if writes == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    writes += 1
    return real(*arguments)
os.pwrite = pwrite
table.append(ticks(100, 100, 100))
"""


@point("questdb: a writer killed before any of its writes leaves the old rows, or all of the new")
def killed(bench: Workbench) -> None:
    root = bench.home / "db"
    with LiveTable.create(str(root), ticks(1).schema, timestamp="ts") as table:
        table.append(ticks(100))
    code, count, write = -9, 100, 0
    while code == -9:
        code = subprocess.run(
            [sys.executable, "-c", _KILLED, str(root), str(write)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=False,
        ).returncode
        found = live_ids(root)
        assert found == list(range(100 if code else 200)), (write, len(found))
        with LiveTable.open(str(root)) as table:
            assert table.describe().rows == (100 if code else 200)
        write, count = write + 1, len(found)
    assert (code, count) == (0, 200)
    assert write > 5


@point("questdb: one writer at a time, and never in a table of a QuestDB")
def one_writer(bench: Workbench) -> None:
    root = bench.home / "db"
    rows = bench.home / "rows.parquet"
    pq.write_table(ticks(10), rows)
    with LiveTable.create(str(root), ticks(1).schema, timestamp="ts"):
        refused = bench.skipstone("ingest", root, rows)
        assert refused.code == 1
        assert "is being written to by process" in refused.err
        assert "hint: a live table has one writer at a time" in refused.err
    theirs = trades(bench.home, live=False).root
    (theirs / "_meta").touch()
    refused = bench.skipstone("ingest", theirs, rows, "--timestamp", "ts")
    assert refused.code == 1
    assert "is a table of a QuestDB" in refused.err


@point("questdb: ingest makes a live table of files, and a batch counts once")
def ingested(bench: Workbench) -> None:
    root, rows = bench.home / "db", bench.home / "rows"
    rows.mkdir()
    for day in range(3):
        pq.write_table(ticks(10, 86_400 * day, 10 * day), rows / f"{day}.parquet")
    call = ("ingest", root, rows, "--timestamp", "ts", "--batch-id", "7", "--json")
    first, second = (json.loads(bench.skipstone(*call).out) for _ in range(2))
    assert first["partitions"] == ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert (first["applied"], second["applied"]) == (True, False)
    assert live_ids(root) == list(range(30))


@point("questdb: Spark ingests DataFrames and streams, every batch exactly once")
def streamed(bench: Workbench) -> None:
    root, source = bench.home / "db", bench.home / "source"
    source.mkdir()
    for turn in range(2):
        pq.write_table(ticks(50, 50 * turn, 50 * turn), source / f"{turn}.parquet")
        stream = bench.spark.readStream.schema(bench.spark.read.parquet(str(source)).schema)
        query: Any = skipstone.ingest(
            stream.parquet(str(source)),
            str(root),
            timestamp="ts",
            partition_by="hour",
            checkpoint_location=str(bench.home / "checkpoint"),
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        again: Any = skipstone.ingest(
            bench.spark.read.parquet(str(source)), str(root), batch_id=turn
        )
        assert not again.applied
    assert live_ids(root) == list(range(100))
