"""The ``_pm`` of every indexed file: made by a build, asked by plans, kept, checked and published.

Four files of ten row groups of ten rows: ``k`` counts through all 400 rows, ``r`` is 3 times the
row's number in its file plus the file's number, ``s`` is ``k`` as text, ``x`` is awkward (NaN,
-0.0, null). Only ``k`` has an index over whole files.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.planning import pm_row_groups as row_groups
from skipstone.planning.explain import Explanation
from skipstone.pruning import Cause, Level
from skipstone.questdb.format.pm import Pm
from skipstone.storage.base import metered
from tests.oracle import matching_rows
from tests.questdb.format import converting

FILES, GROUPS, ROWS = 4, 10, 10
OLD = time.time() - 1_000
NAMES = ("p=0/0 é%.parquet", "p=0/1=.parquet", "p=0/2.parquet", "p=1/3.parquet")


def rows_of(file: int) -> pa.Table:
    number = np.arange(GROUPS * ROWS)
    k = number + file * 100
    x = [None if i % 7 == 0 else (float("nan"), -0.0, 0.0, float(i))[i % 4] for i in k.tolist()]
    return pa.table(
        {
            "k": k,
            "r": number * 3 + file,
            "s": [f"v{i:04d}" for i in k],
            "x": pa.array(x, pa.float64()),
            "u": pa.array(number + 2**31, pa.uint32()),
        }
    )


def lay(home: Path, file: int, data: pa.Table | None = None) -> Path:
    path = home / NAMES[file]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows_of(file) if data is None else data, path, row_group_size=ROWS)
    os.utime(path, (OLD, OLD))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Table:
    for file in range(FILES):
        lay(tmp_path / "t", file)
    table = Table(str(tmp_path / "t"))
    table.build(indexes=["k:minmax"])
    return table


def row_group_step(plan: object, column: str) -> tuple[int, int]:
    steps = [
        step
        for step in plan.steps  # type: ignore[attr-defined]
        if step.level is Level.ROW_GROUP and step.column == column and step.used
    ]
    assert len(steps) == 1, steps
    return steps[0].considered, steps[0].kept


def holds(table: Table, where: str) -> None:
    """No file or row that matches is lost."""
    plan = table.plan(where, inside=False) if _has_inside(table) else table.plan(where)
    for at, path in enumerate(plan.listing.paths):
        file = NAMES.index(path.removeprefix(table.path + "/"))
        rows = matching_rows(rows_of(file), where)
        if not plan.keep[at]:
            assert rows == []
        elif (detail := plan.details.get(at)) is not None and detail.rows is not None:
            assert detail.rows.mask(GROUPS * ROWS)[rows].all()
        if plan.must[at]:
            assert len(rows) == GROUPS * ROWS


def _has_inside(table: Table) -> bool:
    return "inside" in Table.plan.__annotations__


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is open, as in a process that has just begun."""
    row_groups._opened.cache_clear()
    monkeypatch.setattr(row_groups, "_FILES", type(row_groups._FILES)(10))


def pm_of(path: Path) -> bytes:
    return converting.pm_of(path.read_bytes(), own=True, blooms=False)


@pytest.mark.parametrize(
    "where",
    [
        "k = 105",
        "r = 151",
        "s = 'v0399'",
        "s >= 'v0120' AND s < 'v0125'",
        "r < 30 OR k > 390",
        "x IS NULL",
        "x = 'NaN'",
        "x = 0.0",
        "NOT (r < 290)",
        "u = 2147483650",
        "r IN (0, 299)",
        "r <> 3",
    ],
)
def test_no_row_is_lost(table: Table, where: str) -> None:
    holds(table, where)


def test_a_column_without_an_index_skips_row_groups_and_files(table: Table) -> None:
    """Row group 5 is 150 to 177 in file 0, 151 to 178 in file 1, and from 152 on in files 2 and 3,
    whose row groups 4 end at 149 and 150: they hold 151 nowhere."""
    plan = table.plan("r = 151")
    assert row_group_step(plan, "r") == (40, 2)
    assert plan.keep.tolist() == [True, True, False, False]
    assert [plan.details[file].row_groups for file in (0, 1)] == [(5,), (5,)]
    assert "40 -> 2 row groups" in str(Explanation(plan))
    assert any(step.bytes_read for step in plan.steps)


def test_a_plan_is_the_same_whichever_footers_are_open(table: Table) -> None:
    """A query that finds its files open needs no ``_pm`` of them, and has the same rows."""
    where = "r between 30 and 62 or x > 380"
    before = table.plan(where)
    wanted = table.query(where, ["k"]).to_pylist()
    assert len(wanted) > 40
    again = Table(table.path)
    for _ in range(2):
        assert again.query(where, ["k"]).to_pylist() == wanted
    after = again.plan(where)
    told = [
        [(step.index, step.column, step.kept) for step in each.steps] for each in (before, after)
    ]
    assert told[0] == told[1]
    assert "_pm statistics" in {index for index, _, _ in told[0]}


def test_an_indexed_column_skips_within_the_files_that_are_left(table: Table) -> None:
    plan = table.plan("k = 105")
    assert row_group_step(plan, "k") == (10, 1)
    assert plan.keep.tolist() == [False, True, False, False]
    assert plan.details[1].row_groups == (0,)


def test_rows_are_counted_where_row_groups_decide(table: Table) -> None:
    """Row groups of r are wholly below 90 in files 0 to 2: 0 to 87, 1 to 88, 2 to 89; of file 3
    row group 2 is 63 to 90."""
    plan = table.plan("r < 90")
    assert plan.keep.all()
    assert [len(plan.details[file].rows or ()) for file in range(4)] == [30] * 4
    assert table.count("r < 90") == 30 + 30 + 30 + 29


def test_unsigned_columns_say_nothing(table: Table) -> None:
    plan = table.plan("u = 1")
    assert plan.keep.all()
    assert not any(step.level is Level.ROW_GROUP and step.used for step in plan.steps[:1])


def test_what_was_made_is_what_the_footer_gives(table: Table, tmp_path: Path) -> None:
    report = table.export(str(tmp_path / "out"), kind="questdb")
    assert report.files == FILES
    assert report.kind == "questdb"
    for file, name in enumerate(NAMES):
        out = tmp_path / "out" / ("p=1/_pm" if name.startswith("p=1/") else f"{name}._pm")
        assert out.read_bytes() == pm_of(Path(table.path) / NAMES[file])


def test_export_by_the_command_line(table: Table, tmp_path: Path) -> None:
    from skipstone.cli import cli as main

    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["export", table.path, "--questdb", str(out)])
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in out.rglob("*_pm")) == ["0 é%.parquet._pm", "1=.parquet._pm",
                                                         "2.parquet._pm", "_pm"]  # fmt: skip
    inside = CliRunner().invoke(main, ["export", table.path, "--questdb", f"{table.path}/x"])
    assert inside.exit_code == 1
    assert CliRunner().invoke(main, ["export", table.path, "--questdb"]).exit_code == 2


def test_none_are_made_where_nobody_wants_them(tmp_path: Path) -> None:
    lay(tmp_path / "t", 0)
    table = Table(str(tmp_path / "t"))
    table.build(indexes=["k:minmax"], pm="none")
    assert table.describe().pm_files == 0
    assert not any(step.index.startswith("_pm") for step in table.plan("r = 1").steps)
    with pytest.raises(UnsupportedError, match="no row group metadata"):
        table.export(str(tmp_path / "out"), kind="questdb")
    report = table.refresh()  # from now on it is wanted
    assert report.files_built == 1
    assert table.describe().pm_files == 1
    assert table.refresh().files_built == 0
    assert row_group_step(table.plan("r = 0"), "r") == (10, 1)


def test_a_later_index_makes_no_second_one(table: Table) -> None:
    before = table.describe().pm_bytes
    packs = table.store.storage.list_all(table.location.packs).paths
    table.build(indexes=["s:bloom"])
    assert table.store.storage.list_all(table.location.packs).paths == packs
    assert (
        table.describe().pm_bytes
        == before
        == sum(len(pm_of(Path(p))) for p in table.listing().paths)
    )
    assert "row group statistics (_pm) of 4 of 4 files" in str(table.describe())


def test_refresh_compact_vacuum_and_check(table: Table) -> None:
    from datetime import timedelta

    """148 is the last value of r in file 1 when half of it is left, and 250 is beyond it."""
    lay(Path(table.path), 1, rows_of(1).slice(0, 50))
    assert 1 not in table.plan("r = 250").details  # stale: read in full
    table.refresh()
    assert table.plan("r = 250").keep.tolist() == [True, False, True, True]
    table.build(indexes=["s:bloom"])
    table.compact()
    table.vacuum(timedelta(0))
    assert table.describe().pm_files == FILES
    assert table.plan("r = 250").keep.tolist() == [True, False, True, True]
    assert table.check(deep=True).ok
    assert table.drop().dropped
    assert not table.store.storage.list_all(table.location.packs).paths


def test_the_last_index_takes_them_along(table: Table) -> None:
    table.build(indexes=["s:bloom"])
    table.drop("k:minmax")
    assert table.describe().pm_files == FILES
    table.drop("s:bloom")
    assert not table.store.storage.list_all(table.location.packs).paths
    assert table.plan("r = 151").keep.all()


def test_of_a_replaced_file_it_is_never_used(table: Table) -> None:
    """The new file holds 151 in other row groups than the old one, at another size."""
    assert not table.plan("r = 151").keep[2]
    swapped = rows_of(2).set_column(1, "r", pa.array([151] * 100, pa.int64()))
    lay(Path(table.path), 2, swapped)
    plan = table.plan("r = 151")
    assert plan.keep[2]
    assert 2 not in plan.details


def test_a_damaged_one_says_nothing(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget(monkeypatch)
    for path in table.store.storage.list_all(table.location.packs).paths:
        data = bytearray(Path(path).read_bytes())
        data[200] ^= 0x40  # in the first _pm of the pack
        Path(path).write_bytes(data)
    with caplog.at_level(logging.WARNING):
        plan = table.plan("r = 10000")
    lost = [reason for reason in plan.reasons if reason.cause is Cause.CORRUPT]
    assert len(lost) == int(plan.keep.sum()) >= 1
    assert not plan.keep.all()
    assert all("_pm of" in reason.subject for reason in lost)
    report = table.check(deep=True)
    assert not report.ok
    exported = table.export(str(tmp_path / "out"), kind="questdb")
    assert exported.files == FILES - len(lost)
    assert len(exported.left_out) == len(lost)
    holds(table, "r = 151")


def test_a_lost_pack_says_nothing_and_is_made_anew(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    for path in table.store.storage.list_all(table.location.packs).paths:
        Path(path).unlink()
    assert table.plan("r = 151").keep.all()
    assert table.refresh().files_built == FILES
    assert row_group_step(table.plan("r = 151"), "r") == (40, 2)


def test_a_query_over_few_files_takes_their_footers_instead(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The packs are lost: only a plan that is shown asks for the ``_pm`` and finds that."""
    forget(monkeypatch)
    for path in table.store.storage.list_all(table.location.packs).paths:
        Path(path).unlink()
    assert Table(table.path).query("r = 151", ["r"])["r"].to_pylist() == [151]
    assert "_pm" not in caplog.text
    table.plan("r = 151")
    assert "the _pm of" in caplog.text


def test_a_file_whose_footer_names_other_files_has_none(tmp_path: Path) -> None:
    from skipstone.questdb.pm_of_data_file import make_pm

    path = lay(tmp_path / "t", 0)
    metadata = pq.read_metadata(path)
    metadata.set_file_path("other.parquet")
    out = tmp_path / "_metadata"
    metadata.write_metadata_file(out)
    data = out.read_bytes()
    tail = Tail.from_bytes(data[-8:], len(data))
    with pytest.raises(UnsupportedError, match="another file"):
        make_pm(FooterArrays.scan(data[tail.offset : -8]), 10**6)


def test_a_reason_is_said_once_and_the_build_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skipstone.build import data_file as build

    def refuse(*args: object, **kwargs: object) -> bytes:
        raise UnsupportedError("cannot be said")

    lay(tmp_path / "t", 0)
    table = Table(str(tmp_path / "t"))
    monkeypatch.setattr(build, "make_pm", refuse)
    report = table.build(indexes=["k:minmax"])
    assert report.files_built == 1
    assert [str(reason.subject) for reason in report.left_out] == ["_pm"]
    assert "cannot be said" in str(report)
    assert table.refresh().files_built == 0
    assert table.plan("k = 1000").files_kept == 0


def test_filters_are_external_unless_asked(tmp_path: Path) -> None:
    home = tmp_path / "t"
    home.mkdir()
    data = pa.table({"k": range(40), "s": [f"{i * 7 % 40:03d}" for i in range(40)]})
    pq.write_table(
        data, home / "a.parquet", row_group_size=10,
        bloom_filter_options={"s": {"ndv": 10, "fpp": 0.001}},
    )  # fmt: skip
    os.utime(home / "a.parquet", (OLD, OLD))
    where = "s = '0035'"  # within the bounds of every row group, and in none
    kept = {}
    for pm in ("external", "inlined"):
        table = Table(str(home), index_location=str(tmp_path / pm))
        table.build(indexes=["k:minmax"], pm=pm)
        table.export(str(tmp_path / f"out-{pm}"), kind="questdb")
        made = Pm((tmp_path / f"out-{pm}" / "_pm").read_bytes())
        assert made.bloom_columns == (1,)
        assert made.bloom_external == (pm == "external")
        if _has_inside(table):
            kept[pm] = table.plan(where, inside=False).files_kept
        else:
            kept[pm] = table.plan(where).files_kept
        assert table.check(deep=True).ok
    assert kept == {"external": 1, "inlined": 0}


@pytest.mark.parametrize(
    "kind, asked",
    [("minmax", []), ("valuelist", []), ("bitmap", []), ("bloom", ["_pm statistics"])],
)
def test_one_row_group_is_not_asked_what_its_facts_say(
    tmp_path: Path, kind: str, asked: list[str]
) -> None:
    home = tmp_path / "t"
    home.mkdir()
    for file in range(3):
        pq.write_table(rows_of(file), home / f"{file}.parquet")
        os.utime(home / f"{file}.parquet", (OLD, OLD))
    table = Table(str(home))
    table.build(indexes=[f"k:{kind}"])
    steps = {step.index for step in table.plan("k BETWEEN 105 AND 106").steps}
    assert sorted(steps & {"_pm statistics"}) == asked
    plan = table.plan("r = 299")  # 99 * 3 + 2
    assert plan.keep.tolist() == [False, False, True]


def test_a_sample_decides_whether_the_others_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten files, two of them asked first: 5 of 20 row groups go, so the others are asked; where
    none goes, they are not."""
    monkeypatch.setattr(row_groups, "SAMPLE", 2)
    home = tmp_path / "t"
    home.mkdir()
    for file in range(10):
        data = pa.table({"a": np.arange(100), "b": np.tile(np.arange(10), 10)})
        pq.write_table(data, home / f"{file}.parquet", row_group_size=10)
        os.utime(home / f"{file}.parquet", (OLD, OLD))
    table = Table(str(home))
    table.build(indexes=["a:bloom"])
    assert row_group_step(table.plan("a < 50 AND a <> 7"), "a") == (100, 50)
    plan = table.plan("b = 5")
    assert row_group_step(plan, "b") == (20, 20)
    text = "_pm asked in 2 of 10 files, where it skipped too little"
    assert text in [reason.text for reason in plan.reasons]
    monkeypatch.setattr(row_groups, "MOST_FILES", 3)
    plan = table.plan("a < 50 AND a <> 7")
    assert row_group_step(plan, "a") == (50, 25)
    assert [reason.units for reason in plan.reasons if reason.cause is Cause.COSTLY][:1] == [5]
    assert table.count("a < 50 AND a <> 7") == 490


def test_what_a_sample_pays_for_decides_about_all_files(tmp_path: Path) -> None:
    """40 files, with other values of ``b`` in each. A query asks the ``_pm`` of a sample, and then
    those of the other files: it opens one file."""
    home = tmp_path / "t"
    home.mkdir()
    for file in range(40):
        data = pa.table({"a": np.arange(100), "b": np.arange(100) + 100 * file})
        pq.write_table(data, home / f"{file}.parquet", row_group_size=10)
        os.utime(home / f"{file}.parquet", (OLD, OLD))
    Table(str(home)).build(indexes=["a:bloom"])
    with metered() as meter:
        assert Table(str(home)).query("b = 777").to_pylist() == [{"a": 77, "b": 777}]
    assert {path for path in meter.paths if path.endswith(".parquet")} == {f"{home}/7.parquet"}
