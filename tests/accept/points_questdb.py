"""QuestDB's `_pm` and `_txn`: read, written, shown, migrated, asked, and live partitions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone import Table
from skipstone.formats.questdb.pm import Pm
from tests.accept.registry import Missing, point
from tests.index.questdb import written
from tests.oracle import matching_rows
from tests.txn_tables import DAY, TxnFolder, micros, rows_at

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench

GOLDEN = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "golden"


def golden() -> Path:
    """The recorded files of the real QuestDB."""
    folder = GOLDEN / "questdb"
    if not folder.is_dir():
        raise Missing("no golden files: ../shared/golden is absent")
    return folder


@point("questdb: every recorded file that the real readers take is known by its content")
def known(bench: Workbench) -> None:
    index = json.loads((golden() / "INDEX.json").read_text())
    assert index, "no cases"


def partition(bench: Workbench) -> tuple[Path, Path, pa.Table]:
    """A data file as QuestDB writes it and its `_pm`: ten row groups, ``gone`` null in nine."""
    n = 1_000
    table = pa.table(
        {
            "ts": pa.array(np.arange(n) * 1_000_000, pa.timestamp("us", "UTC")),
            "price": pa.array([None if i % 9 == 0 else i / 4 for i in range(n)]),
            "sym": [f"s{i // 250}" for i in range(n)],
            "gone": pa.array([None] * 900 + list(range(100)), pa.int64()),
        }
    )
    data = written.parquet(table, 100, questdb=True)
    folder = bench.home / "partition"
    folder.mkdir()
    (folder / "data.parquet").write_bytes(data)
    (folder / "_pm").write_bytes(written.pm_of(data))
    return folder / "data.parquet", folder / "_pm", table


@point("questdb: a file is planned and read by its _pm, with the footer wiped out")
def without_footer(bench: Workbench) -> None:
    path, pm, table = partition(bench)
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[-8:-4], "little")
    data[-8 - length :] = bytes(8 + length)
    path.write_bytes(data)
    file = skipstone.ParquetFile(path, pm=pm)
    for where in (
        "ts >= TIMESTAMP '1970-01-01 00:08:20Z' AND price < 130",
        "sym = 's3' OR sym IN ('s0')",
        "price BETWEEN 10 AND 12.5",
        "price IS NULL AND gone IS NOT NULL",
        "sym <> 's0' AND sym NOT IN ('s1')",
        "sym LIKE 's2%'",
    ):
        expected = matching_rows(table, where)
        assert file.read(where).equals(table.take(expected)), where
        assert file.count(where) == len(expected), where


@point("questdb: counts that row groups decide read nothing, and chunks of nulls are not fetched")
def nothing_read(bench: Workbench) -> None:
    path, pm, _ = partition(bench)
    file = skipstone.ParquetFile(path, pm=pm)
    assert file.count("gone IS NULL") == 900
    assert file.count("ts < TIMESTAMP '1970-01-01 00:05:00Z'") == 300
    assert file.plan("sym = 's3'").details[0].row_groups == (7, 8, 9)
    assert file.read_rows(["gone"], [(0, 900)]).column(0).null_count == 900
    assert file.bytes_read == 0, file.bytes_read


@point("questdb: a damaged _pm costs the footer and no row, with the reason")
def damaged(bench: Workbench) -> None:
    path, pm, table = partition(bench)
    broken = bytearray(pm.read_bytes())
    broken[len(broken) // 2] ^= 1
    file = skipstone.ParquetFile(path, pm=bytes(broken))
    assert file.read().equals(table)
    assert "CRC32" in str(file.plan("sym = 's3'").reasons[0])


@point("questdb: recorded Parquet files read alike by footer and by _pm")
def alike(bench: Workbench) -> None:
    for path in sorted(golden().glob("*.parquet")):
        if path.with_suffix(".pm").exists():
            file = skipstone.ParquetFile(path, pm=path.with_suffix(".pm"))
            assert file.read().equals(skipstone.ParquetFile(path).read()), path.name


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
    assert "_pm of 3 of 3 files" in bench.skipstone("describe", folder).out
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
