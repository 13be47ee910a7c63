"""``skipstone.ingest`` and the verb of that name: tables, batches, streams, files; once each."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import skipstone
from skipstone import Table, ingest
from skipstone.cli import cli
from skipstone.errors import SkipstoneError
from skipstone.live import LiveTable
from skipstone.table import ingest as ingesting
from tests.live.tables import DAY, HOUR, keys, rows, run, snapshot

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "trades é")


def test_the_name_is_the_function_whatever_is_imported() -> None:
    import_module("skipstone.live")
    import_module("skipstone.table.ingest")
    assert callable(skipstone.ingest)
    assert skipstone.ingest is ingest


def test_the_first_call_makes_the_table_and_later_ones_know_it(root: str) -> None:
    """A table, a batch, a reader of batches, a generator: each adds its rows."""
    done: Any = ingest(run(10), root, timestamp="ts", partition_by="hour", sort_by=["ts", "key"])
    assert (done.rows, done.partitions) == (10, ("1970-01-01T00",))
    ingest(run(10, start=HOUR, first=10).to_batches()[0], root)
    ingest(run(10, start=2 * HOUR, first=20).to_reader(max_chunksize=3), root, timestamp="ts")
    later = (run(5, start=at * HOUR, first=5 * at) for at in (6, 7))
    done = ingest(later, root, partition_by="hour")
    assert done.partitions == ("1970-01-01T06", "1970-01-01T07")
    assert keys(root) == list(range(40))


def test_a_stream_is_many_commits_but_a_batch_is_one(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 batches of 4 rows: a commit for every 12 rows or more; with a batch id a single one."""
    monkeypatch.setattr(ingesting, "ROWS_PER_COMMIT", 12)
    batches = [run(4, start=4_000_000 * at, first=4 * at).to_batches()[0] for at in range(25)]
    done: Any = ingest(iter(batches), root, timestamp="ts", compact=False)
    assert (done.rows, done.txn) == (100, 9)
    more = [rows(DAY + at, first=100 + at).to_batches()[0] for at in range(20)]
    done = ingest(iter(more), root, batch_id=0, compact=False)
    assert (done.rows, done.txn) == (20, 10)
    again: Any = ingest(iter(more), root, batch_id=0)
    assert (again.applied, again.rows) == (False, 0)
    assert keys(root) == list(range(120))


def test_partitions_of_dead_bytes_are_compacted_on_the_way(root: str) -> None:
    """Fifty single rows: the footers would be most of the file."""
    for at in range(50):
        ingest(rows(at, first=at), root, timestamp="ts")
    with LiveTable.open(root) as table:
        (partition,) = table.describe().partitions
        assert 2 * partition.dead_bytes <= partition.bytes
        assert partition.directory != "1970-01-01"
    assert keys(root) == list(range(50))
    for at in range(5):
        ingest(rows(DAY + at, first=50 + at), root, compact=False)
    assert snapshot(root).files[1].directory == "1970-01-02"


def test_what_contradicts_the_table_is_refused(root: str, tmp_path: Path) -> None:
    with pytest.raises(SkipstoneError, match="needs a timestamp"):
        ingest(run(1), root)
    ingest(run(1), root, timestamp="ts")
    with pytest.raises(SkipstoneError, match="partition_by='day', not 'hour'"):
        ingest(run(1), root, partition_by="hour")
    with pytest.raises(SkipstoneError, match="has sort_by="):
        ingest(run(1), root, sort_by="key")
    with pytest.raises(SkipstoneError, match="for streaming DataFrames"):
        ingest(run(1), root, checkpoint_location="x")
    with pytest.raises(SkipstoneError, match="rows of type int"):
        ingest(1, root)
    with pytest.raises(SkipstoneError, match="without any batch"):
        ingest(iter([]), root)
    with LiveTable.open(root), pytest.raises(SkipstoneError, match="is being written to"):
        ingest(run(1), root)
    ingest(run(1, first=1), root, timestamp="ts", partition_by="day", sort_by="ts", durable=False)
    assert keys(root) == [0, 1]


def test_a_live_table_is_a_table(root: str) -> None:
    """Planned and read by ``Table`` as its snapshot, superseded directories left alone."""
    ingest(run(50), root, timestamp="ts", partition_by="day", row_group_rows=10)
    ingest(run(50, start=DAY, first=50), root)
    with LiveTable.open(root) as table:
        table.compact("1970-01-01")
    table_ = Table(root)
    assert table_.query("key >= 45 AND key < 53").num_rows == 8
    assert table_.count() == 100


def test_the_verb(root: str, tmp_path: Path) -> None:
    """A Parquet file, a directory of them, a CSV file; a batch once; errors with a hint."""
    pq.write_table(run(10), tmp_path / "one.parquet")
    (tmp_path / "more").mkdir()
    for at in (1, 2):
        pq.write_table(run(10, start=at * DAY, first=10 * at), tmp_path / "more" / f"{at}.parquet")
    call = CliRunner().invoke
    first = ["ingest", root, str(tmp_path / "one.parquet")]
    assert call(cli, first).exit_code == 1
    done = call(cli, [*first, "--timestamp", "ts", "--partition-by", "day", "--batch-id", "0"])
    assert done.exit_code == 0, done.output
    assert "10 rows into 1 partition, 1 row group" in done.output
    again = call(cli, [*first, "--batch-id", "0", "--json"])
    assert json.loads(again.output)["applied"] is False
    told = call(cli, ["ingest", root, str(tmp_path / "more"), "--json"])
    assert json.loads(told.output)["partitions"] == ["1970-01-02", "1970-01-03"]
    assert keys(root) == list(range(30))
    plain = pa.table({"at": ["2024-02-29T10:00:00", "2024-03-01T00:00:00"], "n": [1, 2]})
    pyarrow.csv.write_csv(plain, tmp_path / "rows.csv")
    other = str(tmp_path / "other")
    made = ["ingest", other, str(tmp_path / "rows.csv"), "--timestamp", "at", "--sort-by", "at,n"]
    assert call(cli, made).exit_code == 0
    assert [file.directory for file in snapshot(other).files] == ["2024-02-29", "2024-03-01"]
    assert call(cli, ["ingest", other, str(tmp_path / "nowhere")]).exit_code == 1
    pq.write_table(pa.table({"at": pa.array([2, 1], pa.timestamp("us")), "a,b": [1, 2]}), first[2])
    made = ["ingest", str(tmp_path / "c"), first[2], "--timestamp", "at", "--sort-by", "at,`a,b`"]
    done = call(cli, made)
    assert done.exit_code == 0, done.output


def test_a_directory_gives_the_columns_of_all_files_and_of_its_folders(tmp_path: Path) -> None:
    """The second file has a column more and a wider one; the folders have ``day``."""
    first = pa.table(
        {"at": pa.array([1, 2], pa.timestamp("us")), "n": pa.array([1, 2], pa.int32())}
    )
    second = pa.table(
        {"at": pa.array([3], pa.timestamp("us")), "n": pa.array([2**40]), "more": ["x"]}
    )
    for day, part in enumerate((first, second)):
        folder = tmp_path / f"from/day={day}"
        folder.mkdir(parents=True)
        pq.write_table(part, folder / "a.parquet")
    root = str(tmp_path / "all")
    made = ["ingest", root, str(tmp_path / "from"), "--timestamp", "at"]
    done = CliRunner().invoke(cli, made)
    assert (done.exit_code, done.stderr) == (0, "")
    assert Table(root).query(columns=["n", "more", "day"]).to_pylist() == [
        {"n": 1, "more": None, "day": 0},
        {"n": 2, "more": None, "day": 0},
        {"n": 2**40, "more": "x", "day": 1},
    ]
    pq.write_table(first.drop_columns("n").append_column("n", [["a", "b"]]), folder / "b.parquet")
    done = CliRunner().invoke(cli, made)
    assert done.exit_code == 1
    assert "a column has types that no column holds together" in done.stderr
    assert "ingest the files of one type by themselves" in done.stderr


@pytest.mark.parametrize(
    "one, other, told",
    [
        (pa.array([Decimal("12345678901234567.25")]), pa.array([0.1]), "double rounds decimal128"),
        (
            pa.array([[Decimal("12345678901234567.25")]]),
            pa.array([[0.1]]),
            "element: double rounds decimal128",
        ),
        (pa.array([{"d": Decimal("0.25")}]), pa.array([{"d": 0.1}]), "v: d: double rounds"),
        (pa.array([2**53 + 1]), pa.array([0.5]), "9007199254740993 not in range"),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([-1]), "18446744073709551615 not in range"),
        (pa.array([True]), pa.array([7]), "Field v has incompatible types"),
        (pa.array([dt.date(2024, 2, 29)]), pa.array([10**15], pa.timestamp("us")), "date32"),
    ],
)
def test_no_value_changes_with_the_type_of_all_files(
    tmp_path: Path, one: pa.Array, other: pa.Array, told: str
) -> None:
    for turn, pair in enumerate(((one, other), (other, one))):
        folder = tmp_path / str(turn)
        folder.mkdir()
        for at, values in enumerate(pair):
            times = pa.array([at], pa.timestamp("us"))
            pq.write_table(pa.table({"at": times, "v": values}), folder / f"{at}.parquet")
        made = ["ingest", str(tmp_path / f"t{turn}"), str(folder), "--timestamp", "at"]
        done = CliRunner().invoke(cli, made)
        assert done.exit_code == 1
        assert told in done.stderr
        assert "ingest the files of one type by themselves" in done.stderr


def test_codes_in_one_file_are_texts_in_another(tmp_path: Path) -> None:
    folder = tmp_path / "from"
    folder.mkdir()
    for at, values in enumerate((pa.array(["x"]).dictionary_encode(), pa.array(["y"]))):
        times = pa.array([at], pa.timestamp("us"))
        pq.write_table(pa.table({"at": times, "v": values}), folder / f"{at}.parquet")
    made = ["ingest", str(tmp_path / "t"), str(folder), "--timestamp", "at"]
    done = CliRunner().invoke(cli, made)
    assert (done.exit_code, done.stderr) == (0, "")
    assert Table(str(tmp_path / "t")).query().column("v").to_pylist() == ["x", "y"]


def test_a_directory_of_two_formats_is_refused(tmp_path: Path) -> None:
    """Arrow would read all files as CSV. It ignores names that begin with _ or a dot."""
    folder, rows = tmp_path / "from" / "day=1", pa.table({"at": [dt.datetime(2024, 1, 1)]})
    folder.mkdir(parents=True)
    pyarrow.csv.write_csv(rows, folder / "a.csv")
    for name in ("_SUCCESS", ".b.parquet"):
        (folder / name).touch()
    made = ["ingest", str(tmp_path / "t"), str(tmp_path / "from"), "--timestamp", "at"]
    assert CliRunner().invoke(cli, made).exit_code == 0
    pq.write_table(rows, folder / "b.parquet")
    done = CliRunner().invoke(cli, made)
    assert done.exit_code == 1
    told = "1 of 2 files are CSV, such as from/day=1/a.csv, and not from/day=1/b.parquet"
    assert told in done.stderr
    assert "from a directory of their own" in done.stderr
    assert Table(str(tmp_path / "t")).count() == 1


def test_a_directory_without_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    made = ["ingest", str(tmp_path / "t"), str(tmp_path / "from"), "--timestamp", "at"]
    done = CliRunner().invoke(cli, made)
    assert done.exit_code == 1
    assert f"{tmp_path / 'from'}: no file to ingest" in done.stderr
    assert not (tmp_path / "t").exists()
