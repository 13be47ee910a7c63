"""Rows into a live table, and back by every reader: order, partitions, indexes, dead bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.live import LiveTable
from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.questdb.format.pm import Pm
from tests.live.tables import DAY, HOUR, SCHEMA, cut, keys, read_bytes, rows, run, snapshot


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "trades é %20")


def made(root: str, **options: object) -> LiveTable:
    given = {"timestamp": "ts", "row_group_rows": 100} | options
    return LiveTable.create(root, SCHEMA, **given)  # type: ignore[arg-type]


def test_rows_come_back_by_every_reader(root: str) -> None:
    """250 rows of one day in two appends: row groups of 100, 50, 100; each reader sees all rows."""
    with made(root) as table:
        table.append(run(150))
        table.append(run(100, start=200_000_000, first=150))
    (file,) = snapshot(root).files
    expected = pa.concat_tables([run(150), run(100, start=200_000_000, first=150)])
    assert repr(cut(file).to_pylist()) == repr(expected.to_pylist())
    metadata = pq.read_metadata(file.path)
    assert [metadata.row_group(r).num_rows for r in range(3)] == [100, 50, 100]
    path = file.path.replace("'", "''")
    with duckdb.connect() as connection:
        counted = connection.execute(f"SELECT count(*), sum(key) FROM '{path}'").fetchone()
    assert counted == (250, sum(range(250)))
    assert polars.read_parquet(file.path, glob=False)["key"].to_list() == list(range(250))


@pytest.mark.parametrize(
    "unit, name, span",
    [
        ("hour", "1969-12-31T23", HOUR),
        ("day", "1969-12-31", DAY),
        ("month", "1969-12", 31 * DAY),
        ("year", "1969", 365 * DAY),
        ("none", "default", 0),
    ],
)
def test_partitions_begin_in_utc_also_before_1970(
    root: str, unit: str, name: str, span: int
) -> None:
    """One row on each side of the epoch: two partitions, but one where there are none."""
    with made(root, partition_by=unit) as table:
        done = table.append(rows(-1, 0))
        assert done.partitions[0] == name
        described = table.describe()
        assert [each.rows for each in described.partitions] == ([1, 1] if span else [2])
    files = snapshot(root).files
    assert [file.timestamp for file in files] == ([-span, 0] if span else [0])
    txn = snapshot(root).txn
    assert (txn.min_timestamp, txn.max_timestamp) == (-1, 0)
    assert keys(root) == [0, 1]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_every_unit_of_timestamps(root: str, unit: str) -> None:
    """Leap day and the day after, in each unit, with and without a zone."""
    for zone in ("UTC", None):
        home = f"{root} {zone}"
        schema = pa.schema([("ts", pa.timestamp(unit, zone)), ("key", pa.int64())])
        stamps = pa.array(np.array(["2024-02-29T23:59", "2024-03-01"], f"M8[{unit}]"))
        data = pa.table({"ts": stamps.cast(schema.field("ts").type), "key": [1, 2]}, schema=schema)
        with LiveTable.create(home, schema, timestamp="ts", partition_by="day") as table:
            assert table.append(data).partitions == ("2024-02-29", "2024-03-01")
            found = snapshot(home)
            assert [pq.read_table(file.path)["key"].to_pylist() for file in found.files] == [
                [1],
                [2],
            ]
            assert found.partitioning is not None
            assert found.partitioning.nanos == (unit == "ns")


def test_late_rows_go_where_they_belong(root: str) -> None:
    """Row groups of times 0-99, 100-199, 200-299. Rows at 50, 150 and 299.5 rewrite the first two
    and the last only; the partition stays in order, row groups are divided evenly."""
    with made(root) as table:
        table.append(run(300))
        late = rows(150_000_000, 50_000_000, 299_500_000, first=1000)
        done = table.append(late)
        assert done.rows == 3
        assert done.row_groups == 5
        (partition,) = table.describe().partitions
        assert partition.row_groups == 6
        assert partition.dead_bytes > 0
    (file,) = snapshot(root).files
    found = cut(file)
    times = pc.cast(found["ts"], pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()
    metadata = pq.read_metadata(file.path)
    sizes = [metadata.row_group(r).num_rows for r in range(metadata.num_row_groups)]
    assert sizes == [51, 50, 51, 50, 100, 1]
    assert keys(root) == sorted([*range(300), 1000, 1001, 1002])


def test_another_order_sorts_within_row_groups_and_never_rewrites(root: str) -> None:
    """Sorted by city, then time downwards: two appends, the second older; nothing is replaced."""
    with made(root, sort_by=["city é", ("ts", "descending")]) as table:
        table.append(run(100, start=500_000_000))
        table.append(run(100, first=100))
        (partition,) = table.describe().partitions
        assert partition.row_groups == 2
    (file,) = snapshot(root).files
    with pq.ParquetFile(file.path) as parquet:
        for r in range(2):
            group = parquet.read_row_group(r)
            by_hand = group.sort_by([("city é", "ascending"), ("ts", "descending")])
            assert group["key"].to_pylist() == by_hand["key"].to_pylist()
    pm = Pm(Path(file.pm).read_bytes())
    assert (pm.designated_timestamp, pm.sorting_columns) == (-1, (2, 0))
    assert keys(root) == list(range(200))


def test_the_timestamp_is_designated_and_columns_have_ids(root: str) -> None:
    """Sorted by the timestamp alone: the _pm says so, and knows every column by its position."""
    with made(root) as table:
        table.append(run(10))
    (file,) = snapshot(root).files
    pm = Pm(Path(file.pm).read_bytes())
    assert (pm.designated_timestamp, pm.sorting_columns) == (0, (0,))
    assert pm.descriptors["ID"].tolist() == list(range(6))


def test_page_indexes_and_bloom_filters_are_carried_along(root: str) -> None:
    """Three appends; every chunk's offset index leads to its pages, and filters find their keys."""
    with made(root, bloom_filters=["key"]) as table:
        for turn in range(3):
            table.append(run(100, start=turn * 100_000_000, first=100 * turn))
    (file,) = snapshot(root).files
    data = Path(file.path).read_bytes()
    tail = Tail.from_bytes(data[-8:], len(data))
    footer = FooterArrays.scan(data[tail.offset : -8], tail.offset)
    footer.check_extent(tail.offset)
    assert (footer.chunk("offset_index_offset") > 0).all()
    assert (footer.chunk("column_index_offset") > 0).all()
    parquet = ParquetFile(file.path)
    checked = parquet.verify()
    assert checked.ok, checked.problems
    assert {"offset index", "column index", "bloom filter"} <= set(checked.checked)
    for turn in range(3):
        assert parquet.plan(f"key = {100 * turn + 7}").files[0].detail.row_groups == (turn,)
        found = parquet.query(where=f"key = {100 * turn + 7}")
        assert found["key"].to_pylist() == [100 * turn + 7]
    pm = Pm(Path(file.pm).read_bytes())
    places, lengths = pm.snapshot(file.size).bloom_places
    assert pm.bloom_columns == (1,)
    assert ((lengths > 0) & (lengths <= 256)).all()  # for 100 keys each, not for a million
    inlined = [
        bytes(pm.data[at : at + n]) for at, n in zip(places[:, 0], lengths[:, 0], strict=True)
    ]
    offsets = footer.chunk("bloom_filter_offset")[:, 1].tolist()
    for bitset, offset in zip(inlined, offsets, strict=True):
        assert bitset in data[offset : offset + len(bitset) + 64]


def test_dead_bytes_are_the_old_footers(root: str) -> None:
    """Three appends: the first two footers, each with its length and magic, are dead."""
    with made(root) as table:
        sizes, dead = [], 0
        for turn in range(3):
            table.append(run(10, start=turn * 100_000_000, first=10 * turn))
            (partition,) = table.describe().partitions
            assert partition.dead_bytes == dead
            assert partition.live_bytes == partition.bytes - dead
            sizes.append(partition.bytes)
            data = Path(snapshot(root).files[0].path).read_bytes()
            dead += 8 + Tail.from_bytes(data[-8:], len(data)).length
    data = Path(snapshot(root).files[0].path).read_bytes()
    for turn, size in enumerate(sizes):
        assert read_bytes(data[:size])["key"].to_pylist() == list(range(10 * turn + 10))


def test_a_forked_child_does_not_let_go_of_the_lock(root: str) -> None:
    """It inherits the writer, and ends; the parent still writes, and then really lets go."""
    with made(root) as table:
        child = os.fork()
        if not child:
            table.close()
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(SkipstoneError, match="is being written to"):
            LiveTable.open(root)
        table.append(run(1))
    LiveTable.open(root).close()


def test_a_batch_counts_once(root: str, caplog: pytest.LogCaptureFixture) -> None:
    """Batch 0, 0 again, 5, 3, 6 without rows: 0 and 5 bring rows, 6 is remembered; 3 is odd."""
    with made(root) as table:
        assert table.batch_id is None
        assert table.append(run(10), batch_id=0).applied
        again = table.append(run(10), batch_id=0)
        assert not again.applied
        assert again.reason == "batch 0 is not newer than 0, which is committed"
        assert table.append(run(10, first=10, start=HOUR), batch_id=5).applied
        assert not caplog.records
        assert not table.append(run(10), batch_id=3).applied
        assert "batch 3 is skipped, 5 is committed" in caplog.text
        assert table.append(SCHEMA.empty_table(), batch_id=6).applied
        assert table.append(run(1, first=99)).applied
    with LiveTable.open(root) as table:
        assert table.batch_id == 6
        assert not table.append(run(10), batch_id=6).applied
    assert keys(root) == [*range(20), 99]


def test_no_rows_no_commit(root: str) -> None:
    with made(root) as table:
        done = table.append(SCHEMA.empty_table())
        assert (done.applied, done.reason, done.txn) == (False, "no rows", 0)
        assert table.describe().to_dict()["rows"] == 0


def test_rows_that_do_not_fit_change_nothing(root: str) -> None:
    """Wrong columns, types, null times, times without a name: all are said, no byte is moved."""
    with made(root) as table:
        table.append(run(10))
        before = Path(snapshot(root).files[0].path).read_bytes()
        null_time = run(3).set_column(
            0, "ts", pa.array([1, None, 2]).cast(pa.timestamp("us", "UTC"))
        )
        for bad, message in (
            (run(3).drop_columns(["f"]), "f missing"),
            (run(3).append_column("extra", pa.array([1, 2, 3])), "extra unknown"),
            (run(3).set_column(1, "key", pa.array(["x", "1", "2"])), "does not fit int64"),
            (null_time, "1 nulls in column 'ts'"),
            (rows(-(1 << 63)), "timestamps from"),
            (rows((1 << 63) - 1), "timestamps from"),
            ([1, 2], "rows of type list"),
        ):
            with pytest.raises(SkipstoneError, match=message):
                table.append(bad)
        assert Path(snapshot(root).files[0].path).read_bytes() == before
        columns = run(3, first=10).select(list(reversed(SCHEMA.names)))
        table.append(columns.to_batches()[0])
    assert keys(root) == list(range(13))


def test_one_writer_at_a_time(root: str) -> None:
    """The second is told who writes; readers are not kept out, and do not write."""
    with made(root) as table:
        table.append(run(5))
        with pytest.raises(
            SkipstoneError, match=r"is being written to by process \d+ of"
        ) as caught:
            LiveTable.open(root)
        assert "one writer at a time" in caught.value.hint
        with LiveTable.open(root, write=False) as reader:
            assert reader.describe().rows == 5
            with pytest.raises(SkipstoneError, match="not open for writing"):
                reader.append(run(5))
    with pytest.raises(SkipstoneError, match="not open for writing"):
        table.append(run(5))
    with LiveTable.open(root) as table:
        table.append(run(5, first=5, start=HOUR))
    assert keys(root) == list(range(10))


def test_what_belongs_to_others_is_refused(tmp_path: Path) -> None:
    """A QuestDB's table, a directory with something in it, an object store, nothing at all."""
    questdb = tmp_path / "questdb"
    questdb.mkdir()
    for name in ("_meta", "_cv", "_txn"):
        (questdb / name).write_bytes(bytes(64))
        with pytest.raises(UnsupportedError, match="is a table of a QuestDB: it has _"):
            made(str(questdb))
        with pytest.raises(UnsupportedError, match="is a table of a QuestDB: it has _"):
            LiveTable.open(str(questdb))
    assert sorted(each.name for each in questdb.iterdir()) == ["_cv", "_meta", "_txn"]
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "notes.txt").touch()
    with pytest.raises(SkipstoneError, match="is not empty"):
        made(str(taken))
    with pytest.raises(UnsupportedError, match="POSIX"):
        made("s3://bucket/trades")
    with pytest.raises(SkipstoneError, match="is not a live table"):
        LiveTable.open(str(tmp_path / "nowhere"))
    home = str(tmp_path / "ours")
    made(home).close()
    with pytest.raises(SkipstoneError, match="is not empty"):
        made(home)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"timestamp": "key"}, "is of type int64"),
        ({"timestamp": "nope"}, "no column 'nope'"),
        ({"sort_by": "nope"}, "no column 'nope'"),
        ({"sort_by": [("ts", "up")]}, "order 'up'"),
        ({"sort_by": ["ts", "ts"]}, "twice in sort_by"),
        ({"partition_by": "week"}, "partition_by='week'"),
        ({"row_group_rows": 0}, "row_group_rows=0"),
        ({"compression": "nope"}, "cannot write"),
    ],
)
def test_a_definition_that_cannot_be_is_refused(
    root: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(SkipstoneError, match=message):
        made(root, **options)
    assert not Path(root).exists()


def test_a_damaged_definition_is_a_format_error(root: str) -> None:
    made(root).close()
    marker = Path(root, "_live.json")
    good = json.loads(marker.read_bytes())
    for bad in ({}, {**good, "schema": "x"}, {**good, "sort_by": 3}, {**good, "timestamp": "no"}):
        marker.write_text(json.dumps(bad))
        with pytest.raises(FormatError):
            LiveTable.open(root)
    marker.write_text(json.dumps({**good, "version": 2}))
    with pytest.raises(UnsupportedError, match="version 2"):
        LiveTable.open(root)
    marker.write_text("{")
    with pytest.raises(FormatError):
        LiveTable.open(root)


def test_a_partition_that_lost_bytes_is_not_written_to(root: str) -> None:
    """Cut below the committed size, and a _pm with another CRC: both are said."""
    with made(root) as table:
        table.append(run(10))
    (file,) = snapshot(root).files
    pm, data = Path(file.pm), Path(file.path)
    whole, sidecar = data.read_bytes(), pm.read_bytes()
    data.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match="cut short"):
        LiveTable.open(root)
    data.write_bytes(whole)
    pm.write_bytes(sidecar[:40] + bytes([sidecar[40] ^ 1]) + sidecar[41:])
    with LiveTable.open(root) as table, pytest.raises(FormatError, match="CRC32"):
        table.append(run(10))
    assert data.read_bytes() == whole
