"""Row groups replaced, partitions compacted, old directories removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile
from skipstone.errors import SkipstoneError
from skipstone.live import LiveTable
from skipstone.live.directories import is_due
from tests.live.tables import DAY, HOUR, SCHEMA, cut, keys, read_bytes, rows, run, snapshot


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    """A day of row groups at seconds 0-9, 10-19, 20-29, and another day of one row."""
    made = LiveTable.create(
        str(tmp_path / "live"), SCHEMA, timestamp="ts", row_group_rows=10, durable=False
    )
    made.append(run(30))
    made.append(rows(DAY, first=30))
    return made


def test_a_row_group_is_replaced_and_the_old_snapshot_still_reads(table: LiveTable) -> None:
    """Twelve rows for the second row group's ten: it becomes two, in their place."""
    (before, _) = snapshot(table.root).files
    old = Path(before.path).read_bytes()[: before.size]
    done = table.replace("1970-01-01", 1, run(12, start=10_000_000, step=800_000, first=100))
    assert (done.rows, done.row_groups, done.partitions) == (2, 2, ("1970-01-01",))
    (after, other) = snapshot(table.root).files
    assert cut(after)["key"].to_pylist() == [*range(10), *range(100, 112), *range(20, 30)]
    metadata = pq.read_metadata(after.path)
    assert [metadata.row_group(r).num_rows for r in range(4)] == [10, 6, 6, 10]
    assert ParquetFile(after.path).verify().ok
    assert other.rows == 1
    assert Path(after.path).read_bytes()[: before.size] == old
    assert read_bytes(old)["key"].to_pylist() == list(range(30))
    (partition, _) = table.describe().partitions
    replaced = read_extent(old, 1)
    assert partition.dead_bytes == replaced + 8 + int.from_bytes(old[-8:-4], "little")
    for file in (before, after):
        parquet = ParquetFile(file.path, size=file.size)
        assert parquet.query()["key"].to_pylist() == cut(file)["key"].to_pylist()


def read_extent(data: bytes, row_group: int) -> int:
    """Bytes from the beginning of a row group's pages to that of the next, and its page indexes."""
    from skipstone.parquet.format.footer import read_metadata

    total = 0
    for chunk in read_metadata(data).row_groups[row_group].columns:
        assert chunk.meta_data is not None
        total += chunk.meta_data.total_compressed_size
        total += (chunk.offset_index_length or 0) + (chunk.column_index_length or 0)
    return total


def test_a_replacement_that_breaks_the_order_is_refused(table: LiveTable) -> None:
    """Before its predecessor's end, after its successor's start, of another day, or of no rows."""
    for bad, message in (
        (rows(8_000_000), "do not fit between the neighbours of row group 1"),
        (rows(20_000_001), "do not fit between the neighbours of row group 1"),
        (rows(10_000_000, DAY), "rows of 2 partitions"),
        (rows(DAY), "rows of 1 partitions"),
        (SCHEMA.empty_table(), "rows of 0 partitions"),
    ):
        with pytest.raises(SkipstoneError, match=message):
            table.replace("1970-01-01", 1, bad)
    with pytest.raises(SkipstoneError, match="row group 3 of partition 1970-01-01"):
        table.replace("1970-01-01", 3, rows(1))
    with pytest.raises(SkipstoneError, match="no partition '1980'"):
        table.replace("1980", 0, rows(1))
    assert keys(table.root) == list(range(31))
    table.replace("1970-01-01", 1, rows(9_000_000, 20_000_000, first=50))
    assert keys(table.root) == [*range(10), *range(20, 31), 50, 51]


def test_compaction_is_due_beyond_half_or_a_gibibyte() -> None:
    assert not is_due(100, 50)
    assert is_due(100, 51)
    assert not is_due(1 << 40, 1 << 30)
    assert is_due(1 << 40, (1 << 30) + 1)


def test_compaction_makes_full_row_groups_and_keeps_the_old_directory(table: LiveTable) -> None:
    """Twenty appends of one row: most of the file is old footers. After the compaction there are
    none; the old snapshot still opens, until vacuum finds its directory old enough."""
    for at in range(20):
        table.append(rows(DAY + at + 1, first=31 + at))
    old = snapshot(table.root).files[1]
    assert table.describe().partitions[1].row_groups == 21
    assert table.compact() == ("1970-01-02",)
    described = table.describe()
    assert described.superseded == ("1970-01-02",)
    assert [each.directory for each in described.partitions] == ["1970-01-01", "1970-01-02.23"]
    assert described.partitions[1].dead_bytes == 0
    new = snapshot(table.root).files[1]
    metadata = pq.read_metadata(new.path)
    assert [metadata.row_group(r).num_rows for r in range(3)] == [10, 10, 1]
    assert ParquetFile(new.path).verify().ok
    assert keys(table.root) == list(range(51))
    assert cut(old)["key"].to_pylist() == cut(new)["key"].to_pylist()
    assert table.compact() == ()
    assert table.vacuum() == ()
    assert Path(old.path).exists()
    mark = Path(old.path).with_name("_superseded")
    past = time.time() - 86_401
    os.utime(mark, (past, past))
    assert table.vacuum() == ("1970-01-02",)
    assert not Path(old.path).parent.exists()
    assert keys(table.root) == list(range(51))
    table.append(rows(DAY + HOUR, first=51))
    assert keys(table.root) == list(range(52))


def test_a_partition_is_compacted_again_and_again(table: LiveTable) -> None:
    """Each time a directory with the number of its commit; by either name of the partition."""
    names = []
    for turn in range(3):
        table.append(rows(turn * 1_000_000, first=100 + turn))
        directory = table.describe().partitions[0].directory
        assert table.compact(directory if turn else "1970-01-01") == ("1970-01-01",)
        names.append(table.describe().partitions[0].directory)
    assert names == ["1970-01-01.4", "1970-01-01.6", "1970-01-01.8"]
    assert table.vacuum(older_than=-1) == ("1970-01-01", "1970-01-01.4", "1970-01-01.6")
    assert keys(table.root) == [*range(31), 100, 101, 102]


def test_under_another_order_compaction_keeps_every_row(tmp_path: Path) -> None:
    """Sorted by city: new row groups are sorted in themselves, and no row is lost."""
    root = str(tmp_path / "by city")
    with LiveTable.create(
        root, SCHEMA, timestamp="ts", sort_by="city é", row_group_rows=40, durable=False
    ) as made:
        for turn in range(5):
            made.append(run(15, start=(9 - turn) * HOUR, first=15 * turn))
        made.compact("1970-01-01")
        (file,) = snapshot(root).files
        with pq.ParquetFile(file.path) as parquet:
            for r in range(2):
                cities = parquet.read_row_group(r)["city é"].drop_null().to_pylist()
                assert cities == sorted(cities)
        assert keys(root) == list(range(75))


def test_a_failed_write_leaves_the_table_as_it_was(
    table: LiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at every one of its writes in turn; the tail is cut at once."""
    before = {file.path: Path(file.path).read_bytes() for file in snapshot(table.root).files}
    real, calls = os.pwrite, 0

    for failing in range(100):
        calls = 0

        def full(descriptor: int, data: bytes, offset: int, failing: int = failing) -> int:
            nonlocal calls
            calls += 1
            if calls == failing + 1:
                raise OSError(28, "No space left on device")
            return real(descriptor, data, offset)

        monkeypatch.setattr(os, "pwrite", full)
        try:
            table.append(rows(5_000_000, 2 * DAY, first=70))
        except OSError:
            monkeypatch.setattr(os, "pwrite", real)
            for path, data in before.items():
                assert Path(path).read_bytes() == data
            assert keys(table.root) == list(range(31))
            assert not Path(table.root, "1970-01-03").exists()
        else:
            break
    monkeypatch.setattr(os, "pwrite", real)
    assert failing > 5
    assert keys(table.root) == [*range(31), 70, 71]


def test_files_of_others_are_left_alone(table: LiveTable) -> None:
    """A directory with a partition's name in which somebody else keeps a file, other names, and
    names of partitions of another unit, whatever is in them."""
    home = Path(table.root)
    for name in ("1999", "1999-01", "1999-01-01T05", "default"):
        (home / name).mkdir()
        (home / name / "data.parquet").touch()
    (home / "1999-01-01").mkdir()
    (home / "1999-01-01" / "notes.txt").touch()
    (home / "archive").mkdir()
    (home / "1999-01-02").mkdir()
    table.close()
    with LiveTable.open(table.root) as again:
        again.vacuum(older_than=-1)
    assert (home / "1999-01-01" / "notes.txt").exists()
    assert (home / "archive").exists()
    for name in ("1999", "1999-01", "1999-01-01T05", "default"):
        assert (home / name / "data.parquet").exists()
    assert not (home / "1999-01-02").exists()
