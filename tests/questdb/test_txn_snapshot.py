"""Snapshots of tables with a ``_txn``: whole, whoever commits meanwhile, or refused with a name."""

from __future__ import annotations

import multiprocessing
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, StaleError, UnsupportedError
from skipstone.questdb import is_txn_table, txn_snapshot
from skipstone.questdb.format.txn import Partition, Partitioning, PartitionUnit, Txn, created, read
from skipstone.questdb.txn_snapshot import (
    TxnSnapshot,
    open_partition,
    read_txn,
    ready_for_spark,
)
from skipstone.storage import LocalStorage
from tests.txn_tables import DAY, TxnFolder, appended, micros, rows_at

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

MONDAY = micros(2024, 1, 1)


def opened(table: TxnFolder, *, partial: bool = False) -> TxnSnapshot:
    return TxnSnapshot.open(str(table.root), LocalStorage(), partial=partial)


def three_days(root: Path) -> TxnFolder:
    """Days 1 and 2 in Parquet (ids 0-9, 10-19), day 3 native: a live table."""
    table = TxnFolder(root)
    table.add(MONDAY, rows_at(MONDAY, range(10)))
    table.add(MONDAY + DAY, rows_at(MONDAY + DAY, range(10, 20)), name_txn=3)
    table.add(MONDAY + 2 * DAY, rows_at(MONDAY + 2 * DAY, range(20, 25)), parquet=False)
    table.commit()
    return table


def test_a_live_table_names_the_partition_that_is_not_parquet(tmp_path: Path) -> None:
    table = three_days(tmp_path / "a b%é")
    with pytest.raises(UnsupportedError, match=r"partition 2024-01-03 of .* Parquet") as told:
        opened(table)
    assert "partial=True" in (told.value.hint or "")
    found = opened(table, partial=True)
    assert (found.partial, found.left_out) == (True, ("2024-01-03",))
    assert found.coverage == "2 of 3 partitions"
    assert [each.directory for each in found.files] == ["2024-01-01", "2024-01-02.3"]
    assert [each.rows for each in found.files] == [10, 10]
    assert found.partitioning == Partitioning("day")


def test_the_size_is_that_of_the_snapshot_whatever_the_file_has_become(tmp_path: Path) -> None:
    table = TxnFolder(tmp_path / "t")
    table.add(MONDAY, rows_at(MONDAY, range(10)))
    table.commit()
    before = opened(table)
    table.grow(0, rows_at(MONDAY + 1, range(10, 30)))
    # Written, and not committed.
    between = opened(table)
    assert [(f.size, f.rows) for f in between.files] == [(f.size, f.rows) for f in before.files]
    assert between.files[0].length > between.files[0].size
    listing = between.listing()
    assert listing.sizes.tolist() == [before.files[0].size]
    assert listing.row_counts.tolist() == [10]
    assert pq.read_table(open_partition(between.files[0], LocalStorage())).num_rows == 10
    table.commit()
    assert [each.rows for each in opened(table).files] == [30]


def test_row_counts_follow_the_listing_not_the_order_of_time(tmp_path: Path) -> None:
    # "2024-W01" sorts behind "2023-W52"; by path and by time alike only within one spelling.
    table = TxnFolder(tmp_path / "t", Partitioning("year"))
    for at, year in enumerate((999, 1000, 2024)):
        start = micros(year, 1, 1)
        table.add(start, rows_at(start, range(at + 1)), name_txn=7 - at)
    table.commit()
    listing = opened(table).listing()
    assert listing.paths == sorted(listing.paths)
    assert listing.row_counts.tolist() == [1, 2, 3]
    assert listing.where([2, 0]).row_counts.tolist() == [3, 1]


@pytest.mark.parametrize(
    "unit, start",
    [
        ("hour", micros(2024, 2, 29, 13)),
        ("day", micros(2024, 2, 29)),
        ("week", micros(2024, 1, 8)),
        ("month", micros(2024, 2, 1)),
        ("year", micros(2024, 1, 1)),
        ("none", 0),
    ],
)
@pytest.mark.parametrize("nanos", [False, True])
def test_every_unit(tmp_path: Path, unit: PartitionUnit, start: int, nanos: bool) -> None:
    nanos = nanos and unit != "none"
    table = TxnFolder(tmp_path / "t", Partitioning(unit, nanos))
    table.add(start * 1000 if nanos else start, rows_at(start, range(3)))
    table.commit()
    found = opened(table)
    assert found.partitioning == Partitioning(unit, nanos)
    assert found.rows == 3


def test_two_units_that_fit_are_an_error(tmp_path: Path) -> None:
    table = TxnFolder(tmp_path / "t", Partitioning("year"))
    table.add(micros(2024, 1, 1), rows_at(micros(2024, 1, 1), range(3)))
    table.commit()
    shutil.copytree(table.folder(0), table.root / "2024-01")
    with pytest.raises(FormatError, match="several partition units fit"):
        opened(table)


def test_without_a_table_of_partitions_all_rows_are_in_one(tmp_path: Path) -> None:
    # QuestDB ignores the table for PARTITION BY NONE; there its one partition is never Parquet.
    root = tmp_path / "t"
    (root / "default").mkdir(parents=True)
    (root / "_txn").write_bytes(created(Txn(txn=1, transient_row_count=7)))
    with pytest.raises(UnsupportedError, match="partition default of"):
        TxnSnapshot.open(str(root), LocalStorage())
    found = TxnSnapshot.open(str(root), LocalStorage(), partial=True)
    assert (found.coverage, found.rows) == ("0 of 1 partitions", 0)


def test_an_empty_table(tmp_path: Path) -> None:
    table = TxnFolder(tmp_path / "t")
    table.commit()
    found = opened(table)
    assert (found.files, found.partitions_total, found.partitioning) == ((), 0, None)
    assert len(found.listing()) == 0


def test_what_is_no_table(tmp_path: Path) -> None:
    assert not is_txn_table(str(tmp_path), LocalStorage())
    with pytest.raises(FileNotFoundError):
        TxnSnapshot.open(str(tmp_path), LocalStorage())


def test_files_that_do_not_fit_the_table(tmp_path: Path) -> None:
    table = three_days(tmp_path / "t")
    table.data(0).write_bytes(table.data(0).read_bytes()[:-1])
    with pytest.raises(FormatError, match=r"data\.parquet"):
        opened(table, partial=True)
    table.data(0).unlink()
    with pytest.raises(FormatError, match="a partition without its file"):
        opened(table, partial=True)
    shutil.rmtree(table.folder(0))
    with pytest.raises(FormatError, match="no partition unit fits"):
        opened(table, partial=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:7],
        lambda data: data[:63],
        lambda data: data[:-1],
        lambda data: struct.pack("<q", 6) + data[8:],
        lambda data: struct.pack("<q", -1) + data[8:],
        lambda data: data[:32] + struct.pack("<iii", 1, 2, 3) + data[44:],
        lambda data: data[:8] + struct.pack("<i", 1 << 30) + data[12:],
    ],
)
def test_a_damaged_file_is_refused_at_once(tmp_path: Path, damage: Any) -> None:
    table = TxnFolder(tmp_path / "t")
    table.add(MONDAY, rows_at(MONDAY, range(3)))
    table.commit()
    path = table.root / "_txn"
    path.write_bytes(damage(path.read_bytes()))
    # A slot that is not current may hold anything.
    if damage(path.read_bytes()) and read_or_none(path.read_bytes()) is not None:
        assert opened(table).rows == 3
        return
    with pytest.raises(FormatError) as told:
        opened(table)
    assert told.value.file == str(path)


def read_or_none(data: bytes) -> Txn | None:
    try:
        return read(data)
    except FormatError:
        return None


def test_files_of_questdb(tmp_path: Path, golden: Path) -> None:
    # Day 1 and day 2 are Parquet, day 3 is not; sizes and names as recorded.
    path = golden / "questdb" / "txn" / "txn_5_append._txn"
    root = tmp_path / "trades"
    for name, size in (("2024-01-01", 10508), ("2024-01-02.3", 8500), ("2024-01-03.4", None)):
        (root / name).mkdir(parents=True)
        if size is not None:
            (root / name / "data.parquet").write_bytes(bytes(size))
    shutil.copy(path, root / "_txn")
    with pytest.raises(UnsupportedError, match=r"partition 2024-01-03\.4 "):
        TxnSnapshot.open(str(root), LocalStorage())
    found = TxnSnapshot.open(str(root), LocalStorage(), partial=True)
    assert [(f.directory, f.size, f.rows, f.length) for f in found.files] == [
        ("2024-01-01", 10508, 1000, 10508),
        ("2024-01-02.3", 8408, 2000, 8500),
    ]
    assert found.left_out == ("2024-01-03.4",)


# -- commits in between ---------------------------------------------------------------------------


class Meddling(LocalStorage):
    """Somebody commits between any two of our steps, as long as there is something to commit."""

    def __init__(self, table: TxnFolder, steps: list[Any]) -> None:
        super().__init__()
        self.table, self.steps = table, steps

    def _step(self) -> None:
        if self.steps:
            self.steps.pop(0)(self.table)

    def read(self, path: str) -> bytes:
        data = super().read(path)
        self._step()
        return data

    def stat(self, path: str) -> Any:
        self._step()
        return super().stat(path)


def rewritten(table: TxnFolder) -> None:
    """The first partition goes to a new directory, and the old one is gone."""
    old = table.folder(0)
    table.partitions[0] = replace(table.partitions[0], name_txn=table.number + 1)
    shutil.copytree(old, table.folder(0))
    table.commit()
    shutil.rmtree(old)


def test_a_commit_at_every_step(tmp_path: Path) -> None:
    for count in range(8):
        table = TxnFolder(tmp_path / str(count))
        table.add(MONDAY, rows_at(MONDAY, range(3)))
        table.add(MONDAY + DAY, rows_at(MONDAY + DAY, range(4)))
        table.commit()
        storage = Meddling(table, [rewritten] * count)
        found = TxnSnapshot.open(str(table.root), storage)
        assert [each.rows for each in found.files] == [3, 4]
        assert all(Path(each.path).exists() for each in found.files)


def test_commits_that_never_end_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TxnFolder(tmp_path / "t")
    table.commit()
    monkeypatch.setattr(txn_snapshot, "_PATIENCE", 0.0)
    storage = Meddling(table, [TxnFolder.commit] * 1000)
    with pytest.raises(StaleError, match="changes faster than it can be read"):
        read_txn(str(table.root), storage)
    assert len(storage.steps) > 900


def keep_committing(root: str, count: int, done: Event) -> None:
    """Partitions come and grow; of each commit, rows are a function of its number."""
    table = TxnFolder(Path(root))
    table.number = 0
    table.partitions = list(committed(0))
    try:
        for number in range(1, count + 1):
            table.partitions = list(committed(number))
            table.commit()
    finally:
        done.set()


def committed(number: int) -> tuple[Partition, ...]:
    """Commit ``number``: 1 to 5 partitions; all rows together are 1000 + number."""
    days = 1 + number % 5
    counts = [100] * (days - 1)
    counts.append(1000 + number - sum(counts))
    return tuple(
        Partition(
            timestamp=MONDAY + at * DAY,
            row_count=rows,
            parquet_file_size=1000 + rows,
            parquet_format=True,
        )
        for at, rows in enumerate(counts)
    )


def test_every_snapshot_is_whole_while_another_process_commits_500_times(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = TxnFolder(root, partitions=list(committed(0)))
    for at in range(5):
        folder = root / f"2024-01-0{at + 1}"
        folder.mkdir()
        (folder / "data.parquet").write_bytes(bytes(10_000))
    table.commit()
    context = multiprocessing.get_context("spawn")
    done = context.Event()
    writer = context.Process(target=keep_committing, args=(str(root), 500, done))
    writer.start()
    try:
        seen: list[int] = []
        while not seen or seen[-1] < 500:
            over = done.is_set()
            found = TxnSnapshot.open(str(root), LocalStorage())
            assert found.txn.partitions == committed(found.txn.txn)
            assert found.rows == found.txn.row_count == 1000 + found.txn.txn
            seen.append(found.txn.txn)
            assert not over or found.txn.txn == 500
    finally:
        writer.join(30)
    assert writer.exitcode == 0
    assert seen == sorted(seen)
    assert len(set(seen)) > 2


@given(st.data())
def test_any_partitions_and_commits(data: st.DataObject) -> None:
    unit: PartitionUnit = data.draw(st.sampled_from(["year", "month", "week", "day", "hour"]))
    nanos = data.draw(st.booleans())
    scale = 1000 if nanos else 1
    step = {
        "hour": 3_600 * 10**6,
        "day": DAY,
        "week": 7 * DAY,
        "month": 40 * DAY,
        "year": 400 * DAY,
    }
    with TemporaryDirectory() as base:
        table = TxnFolder(Path(base) / "t", Partitioning(unit, nanos))
        for _ in range(data.draw(st.integers(1, 3))):
            for _ in range(data.draw(st.integers(1, 3))):
                at = len(table.partitions)
                start = floor(unit, MONDAY + at * step[unit])
                table.add(
                    start * scale,
                    rows_at(start, range(data.draw(st.integers(0, 5)))),
                    parquet=data.draw(st.booleans()),
                    name_txn=data.draw(st.integers(-1, 9)),
                    pm=False,
                )
            table.commit()
        parquet = [at for at, each in enumerate(table.partitions) if each.parquet_format]
        native = [at for at, each in enumerate(table.partitions) if not each.parquet_format]
        if native:
            name = table.folder(native[0]).name
            with pytest.raises(UnsupportedError, match=f"partition {name} of"):
                opened(table)
        found = opened(table, partial=True)
        assert [each.path for each in found.files] == [str(table.data(at)) for at in parquet]
        assert [each.rows for each in found.files] == [
            table.partitions[at].row_count for at in parquet
        ]
        assert list(found.left_out) == [table.folder(at).name for at in native]
        assert found.partitions_total == len(table.partitions)
        assert found.partitioning == Partitioning(unit, nanos)
        for each in found.files:
            with open_partition(each, LocalStorage()) as source:
                assert pq.read_table(source).num_rows == each.rows


def floor(unit: str, at: int) -> int:
    """The beginning of the unit that an instant lies in."""
    from datetime import UTC, datetime

    time = datetime.fromtimestamp(at / 10**6, UTC)
    if unit == "month":
        return micros(time.year, time.month, 1)
    if unit == "year":
        return micros(time.year, 1, 1)
    return at


# -- what Spark would read ------------------------------------------------------------------------


def test_spark_is_told_of_what_it_would_read_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(txn_snapshot, "_PATIENCE", 0.0)
    table = TxnFolder(tmp_path / "t")
    table.add(MONDAY, rows_at(MONDAY, range(20)), row_group_size=10)
    table.commit()
    files, storage = opened(table).files, LocalStorage()
    path = table.data(0)
    before = path.read_bytes()
    ready_for_spark(files, storage)
    # More row groups, and a footer that has them all: the length selects the old ones.
    path.write_bytes(appended(before, rows_at(MONDAY, range(5))))
    ready_for_spark(files, storage)
    # A row group without its footer: nobody can read that from the end.
    path.write_bytes(before + b"PAR1" + bytes(100))
    with pytest.raises(StaleError, match="no footer at its end"):
        ready_for_spark(files, storage)
    # A footer in which the first row group is another one.
    other = appended(before, rows_at(MONDAY, range(7)))
    path.write_bytes(other + replaced_footer(other))
    with pytest.raises(StaleError, match="were replaced"):
        ready_for_spark(files, storage)
    path.write_bytes(before[:-1])
    with pytest.raises(StaleError, match="shorter"):
        ready_for_spark(files, storage)
    path.unlink()
    with pytest.raises(StaleError, match="is gone"):
        ready_for_spark(files, storage)


def replaced_footer(data: bytes) -> bytes:
    """A footer of this file's last row groups alone."""
    from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.writing.footer_editor import row_group_bytes
    from tests.parquet.writing.footers import with_more
    from tests.txn_tables import encoded

    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    footer = FooterArrays.scan(data[tail.offset : -TAIL_LENGTH], tail.offset)
    groups = [row_group_bytes(footer, r) for r in range(1, footer.num_row_groups)]
    empty = encoded(rows_at(MONDAY, range(0)))
    end = Tail.from_bytes(empty[-TAIL_LENGTH:], len(empty))
    plain = FooterArrays.scan(empty[end.offset : -TAIL_LENGTH], end.offset)
    made = with_more(plain, groups)
    return made + struct.pack("<I", len(made)) + b"PAR1"
