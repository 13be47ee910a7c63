"""``Table`` over a directory with a ``_txn``: exact skipping, and the rows of brute force."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import UnsupportedError
from skipstone.planning.explain import Explanation
from skipstone.questdb.format.txn import Partitioning, PartitionUnit
from skipstone.table import Table
from tests.questdb.format.converting import pm_of
from tests.txn_tables import DAY, TxnFolder, appended, micros, rows_at

if TYPE_CHECKING:
    import pyarrow as pa

MONDAY = micros(2024, 1, 1)


def days(root: Path, count: int = 4, *, pm: bool = True, **options: Any) -> TxnFolder:
    """Day ``i`` has ids 20 i to 20 i + 19 in two row groups of ten, a minute apart."""
    table = TxnFolder(root)
    for at in range(count):
        start = MONDAY + at * DAY
        rows = rows_at(start, range(20 * at, 20 * at + 20))
        table.add(start, rows, name_txn=at - 1, pm=pm, row_group_size=10, **options)
    table.commit()
    return table


def kept(table: Table, where: str) -> list[str]:
    """Directories of the partitions that a plan reads."""
    return [Path(path).parent.name for path in table.plan(where).paths]


def test_partitions_are_skipped_by_their_time_and_row_groups_by_their_pm(tmp_path: Path) -> None:
    table = Table(str(days(tmp_path / "t").root))
    assert kept(table, "ts >= '2024-01-03T00:00:00Z'") == ["2024-01-03.1", "2024-01-04.2"]
    assert kept(table, "ts < '2024-01-01T00:00:01Z'") == ["2024-01-01"]
    # The last minute of a day is within the day, whatever there is; its row groups say there is
    # nothing.
    assert kept(table, "ts = '2024-01-02T23:59:00Z'") == []
    assert kept(table, "id = 47") == ["2024-01-03.1"]
    plan = table.plan("id = 47")
    (file,) = plan.files
    assert file.detail.row_groups == (0,)
    assert "partition" in str(Explanation(table.plan("ts < '2024-01-02T00:00:00Z'")))


def test_without_a_pm_it_is_all_read_and_said(tmp_path: Path) -> None:
    made = days(tmp_path / "t", pm=False)
    table = Table(str(made.root))
    plan = table.plan("id = 47 and ts > '2024-01-02T00:00:00Z'")
    assert plan.files_kept == 4
    assert "_pm: partitions that have none (4)" in str(Explanation(plan))
    assert table.count("id = 47") == 1


def test_a_pm_of_another_file_says_nothing(tmp_path: Path) -> None:
    made = days(tmp_path / "t")
    # It claims another file's values, rows or size.
    other = pm_of(Path(made.data(1)).read_bytes(), blooms=False)
    (made.folder(0) / "_pm").write_bytes(other)
    (made.folder(2) / "_pm").write_bytes(b"\0" * 100)
    table = Table(str(made.root))
    assert table.count("id = 5") == 1
    assert table.count("id = 45") == 1
    assert "2024-01-01/_pm" in str(Explanation(table.plan("id = 5")))


def test_swapped_pms_of_equal_sizes_are_told_apart_by_their_times(tmp_path: Path) -> None:
    made = days(tmp_path / "t", 3, use_dictionary=False, compression="none")
    assert made.data(0).stat().st_size == made.data(1).stat().st_size
    one, other = (made.folder(at) / "_pm" for at in (0, 1))
    kept_open = Table(str(made.root))
    assert kept(kept_open, "id = 5") == ["2024-01-01"]
    swapped = other.read_bytes(), one.read_bytes()
    for path, data in zip((one, other), swapped, strict=True):
        path.write_bytes(data)
    table = Table(str(made.root))
    for where in ("id = 5", "id = 25", "id = 45", "city = 'c2' and id < 20"):
        assert table.count(where) == kept_open.count(where) > 0
    assert kept(table, "id = 5") == ["2024-01-01", "2024-01-02.0"]
    reasons = str(Explanation(table.plan("id = 5")))
    assert "the times of row group 0 of a _pm" in reasons
    assert "those of the partition" in reasons
    assert kept(table, "id = 45") == ["2024-01-01", "2024-01-02.0", "2024-01-03.1"]


def test_a_count_without_a_predicate_reads_no_rows(tmp_path: Path) -> None:
    made = days(tmp_path / "t")
    for at in range(4):
        with made.data(at).open("r+b") as file:
            file.seek(4)
            file.write(b"\xff" * 300)
    table = Table(str(made.root))
    assert table.count() == 80
    assert table.count("ts < '2023-01-01T00:00:00Z'") == 0


def test_counts_stay_within_the_snapshot(tmp_path: Path) -> None:
    made = days(tmp_path / "t", 2)
    table = Table(str(made.root))
    before = made.data(0).read_bytes()
    # Being written: rows, no footer. Then written, not committed. Then committed.
    made.data(0).write_bytes(before + b"\1" * 99)
    assert table.count("city = 'c2'") == 8
    made.data(0).write_bytes(before)
    made.grow(0, rows_at(MONDAY + DAY // 2, range(100, 130)))
    assert table.count("city = 'c2'") == 8
    assert table.schema(table.listing()).names == ["ts", "id", "city"]
    made.commit()
    assert table.count("city = 'c2'") == 14
    assert table.count("id >= 100") == 30


def test_an_index_lives_with_the_snapshots(tmp_path: Path) -> None:
    made = days(tmp_path / "t")
    table = Table(str(made.root))
    assert table.build(indexes=["city:valuelist", "id:bloom"]).files_built == 4
    plan = table.plan("city = 'nowhere'")
    assert (plan.files_kept, plan.facts_fresh) == (0, 4)
    made.grow(1, rows_at(MONDAY + DAY + DAY // 2, range(200, 203)))
    # What is written and not committed is no change of the snapshot's bytes, but one of the file.
    assert table.count("id = 25") == 1
    made.commit()
    plan = table.plan("id = 201")
    assert kept(table, "id = 201") == ["2024-01-02.0"]
    assert (plan.facts_fresh, plan.facts_stale) == (3, 1)
    report = table.refresh()
    assert (report.files_built, report.files_already) == (1, 3)
    assert table.plan("id = 201").facts_fresh == 4
    assert not table.check(deep=True).untrue


def test_dead_directories_are_no_part_of_the_table(tmp_path: Path) -> None:
    made = days(tmp_path / "t", 2)
    stray = made.root / "2024-01-02.9"
    stray.mkdir()
    (stray / "data.parquet").write_bytes(made.data(0).read_bytes())
    (made.root / "2024-01-09").mkdir()
    assert Table(str(made.root)).count() == 40


def test_partial_counts_say_so(tmp_path: Path) -> None:
    made = days(tmp_path / "t", 2)
    start = MONDAY + 2 * DAY
    made.add(start, rows_at(start, range(3)), parquet=False)
    made.commit()
    with pytest.raises(UnsupportedError, match="partition 2024-01-03 of"):
        Table(str(made.root)).count()
    table = Table(str(made.root), partial=True)
    assert table.count() == 40
    assert str(table.count("id < 25")) == "25 (of 2 of 3 partitions)"
    assert repr(table) == f"Table({str(made.root)!r}, 2 of 3 partitions)"
    assert table.plan("id < 25").to_dict()["partitions"]["left_out"] == ["2024-01-03"]
    assert "2 of 3 partitions" in table.describe().notes[0]


def test_a_renamed_column_is_found_by_the_name_in_each_file(tmp_path: Path) -> None:
    # The designated timestamp was called `ts`, then `at`; the second file has another `ts`.
    made = TxnFolder(tmp_path / "t")
    made.add(MONDAY, rows_at(MONDAY, range(3)))
    rows = rows_at(MONDAY + DAY, range(3, 6)).rename_columns(["at", "id", "city"])
    early = rows_at(MONDAY - 50 * DAY, range(3)).column("ts")
    made.add(MONDAY + DAY, rows.append_column("ts", early))
    made.add(MONDAY + 2 * DAY, rows_at(MONDAY + 2 * DAY, range(6, 9)))
    made.commit()
    table = Table(str(made.root))
    assert kept(table, "ts < '2023-12-24T00:00:00Z'") == ["2024-01-02"]
    assert kept(table, "ts >= '2024-01-03T00:00:00Z'") == ["2024-01-03"]


@given(st.data())
def test_rows_are_those_of_brute_force(data: st.DataObject) -> None:
    unit: PartitionUnit = data.draw(st.sampled_from(["year", "month", "week", "day", "hour"]))
    hours = {"hour": 1, "day": 24, "week": 168, "month": 31 * 24, "year": 366 * 24}[unit]
    starts = {
        "hour": MONDAY,
        "day": MONDAY,
        "week": MONDAY,
        "month": MONDAY,
        "year": MONDAY,
    }
    with TemporaryDirectory() as base:
        made = TxnFolder(Path(base) / "t", Partitioning(unit))
        rows: list[tuple[int, int]] = []
        start = starts[unit]
        for _ in range(data.draw(st.integers(1, 4))):
            end = unit_after(unit, start)
            count = data.draw(st.integers(0, 12))
            step = max(1, (end - start - 1) // max(1, count - 1))
            part = rows_at(start, range(len(rows), len(rows) + count), step=step)
            made.add(start, part, pm=data.draw(st.booleans()), row_group_size=5)
            rows += pairs(part)
            start = unit_after(unit, start) if data.draw(st.booleans()) else unit_after(unit, end)
        made.commit()
        table = Table(str(made.root))
        for _ in range(4):
            low = MONDAY + data.draw(st.integers(-2, 5 * hours)) * DAY // 24
            high = low + data.draw(st.integers(0, 3 * hours)) * DAY // 24
            where = f"ts >= '{iso(low)}' and ts <= '{iso(high)}' and id <> 1"
            expected = sum(low <= time <= high and id != 1 for time, id in rows)
            assert table.count(where) == expected


def pairs(rows: pa.Table) -> list[tuple[int, int]]:
    times = rows.column("ts").cast("int64").to_pylist()
    return list(zip(times, rows.column("id").to_pylist(), strict=True))


def iso(at: int) -> str:
    return datetime.fromtimestamp(at // 10**6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unit_after(unit: str, at: int) -> int:
    """The beginning of the next unit."""
    time = datetime.fromtimestamp(at // 10**6, UTC)
    if unit == "year":
        return micros(time.year + 1, 1, 1)
    if unit == "month":
        return micros(time.year + time.month // 12, time.month % 12 + 1, 1)
    return at + {"week": 7 * DAY, "day": DAY, "hour": DAY // 24}[unit]


def test_a_committed_append_is_read_whole(tmp_path: Path) -> None:
    made = days(tmp_path / "t", 1)
    data = made.data(0).read_bytes()
    assert len(appended(data, rows_at(MONDAY, range(3)))) > len(data)
    for more in range(3):
        made.grow(0, rows_at(MONDAY + (more + 1) * 3600 * 10**6, range(100, 105)))
        made.commit()
        assert Table(str(made.root)).count() == 20 + 5 * (more + 1)
        assert Table(str(made.root)).count("id >= 100") == 5 * (more + 1)
