"""Sidecars of Paimon's, published for others and found beside the files; first rows and counts."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import PaimonFileIndex, ParquetFile, Table
from skipstone.errors import PredicateError, UnsupportedError
from skipstone.paimon.adjacent_index import without_sidecars
from skipstone.paimon.format import container
from tests.oracle import matching_rows, sort_key

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = 1_700_000_000, 1_700_000_100
NAMES = ["p=0/a b.parquet", "p=1/50%é.parquet", "p=2/plain.parquet"]


def rows_of(part: int) -> pa.Table:
    """500 rows: city of 5 and null, age 0 … 89 and null, f with NaN and both zeros."""
    n = np.arange(500) + 500 * part
    city = np.array(["Oslo", "Bergen", "", "Å", "Tromsø"], object)[n % 5]
    floats = np.array([np.nan, 0.0, -0.0, 1.5, -np.inf, np.inf])[n % 6]
    return pa.table(
        {
            "id": pa.array(n),
            "city": pa.array(city.tolist(), mask=n % 7 == 0),
            "age": pa.array((n * 31 % 90).astype(np.int32), mask=n % 11 == 0),
            "f": pa.array(floats),
        }
    )


def table_at(home: Path, *, flat: bool = False) -> Table:
    """Three files, each in a folder unless ``flat``."""
    for part in range(3):
        path = home / (f"{part}.parquet" if flat else NAMES[part])
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows_of(part), path, row_group_size=200)
        os.utime(path, (OLD, OLD))
    return Table(str(home))


KINDS = ["city:bitmap", "city:paimonbloom(items=100)", "age:rangebitmap", "f:rangebitmap"]
QUESTIONS = [
    "city = 'Oslo'",
    "city <> 'Oslo'",
    "city IN ('Å', 'nowhere') AND age < 30",
    "city IS NULL OR age BETWEEN 80 AND 85",
    "NOT (city = 'Oslo' OR age >= 10)",
    "f = double('NaN')",
    "f = 0.0 AND city = ''",
    "f > 1.5",
    "age = 1000",
]


@pytest.fixture
def built(tmp_path: Path) -> Table:
    table = table_at(tmp_path / "t", flat=True)
    table.build(indexes=KINDS, pm="none")
    return table


# -- export ----------------------------------------------------------------------------------------


def test_sidecars_are_the_containers_byte_for_byte(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.build(indexes=KINDS, options=None)
    report = table.export(str(tmp_path / "out"), kind="paimon")
    assert (report.files, report.files_total, report.kind) == (3, 3, "paimon")
    for name in NAMES:
        raw = (tmp_path / "out" / f"{name}.index").read_bytes()
        _, blobs = container.from_bytes(raw)
        assert set(blobs) == {
            ("city", "bitmap"),
            ("city", "bloom-filter"),
            ("age", "range-bitmap"),
            ("f", "range-bitmap"),
        }
        packs = (tmp_path / "_t.skipstone" / "packs").glob("*.pack")
        assert any(raw in pack.read_bytes() for pack in packs)
    assert report.bytes == sum(f.stat().st_size for f in (tmp_path / "out").rglob("*.index"))


def test_containers_of_several_builds_become_one(built: Table, tmp_path: Path) -> None:
    built.build(indexes=["id:bitmap"])
    built.export(str(tmp_path / "out"), kind="paimon")
    index = PaimonFileIndex(str(tmp_path / "out" / "1.parquet.index"), types=rows_of(1).schema)
    assert index.count("id = 700") == 1
    assert index.count("city = 'Oslo'") == len(matching_rows(rows_of(1), "city = 'Oslo'"))


def test_a_lost_pack_is_left_out_with_the_reason(built: Table, tmp_path: Path) -> None:
    for pack in (tmp_path / "_t.skipstone" / "packs").glob("*.pack"):
        pack.write_bytes(b"\0" * pack.stat().st_size)
    report = built.export(str(tmp_path / "out"), kind="paimon")
    assert (report.files, len(report.left_out)) == (0, 3)
    assert "not a file index" in str(report.left_out[0])


def test_exports_that_are_refused(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.build(indexes=["id:minmax"])
    with pytest.raises(UnsupportedError, match="no file index"):
        table.export(str(tmp_path / "out"), kind="paimon")
    with pytest.raises(UnsupportedError, match="within the table"):
        table.export(str(tmp_path / "t" / "sub"), kind="paimon")
    with pytest.raises(UnsupportedError, match="needs a destination"):
        table.export(kind="paimon")


# -- beside ----------------------------------------------------------------------------------------


@pytest.fixture
def beside(built: Table, tmp_path: Path) -> Path:
    """A copy of the files with their sidecars, and no index of ours."""
    built.export(str(tmp_path / "out"), kind="paimon")
    shutil.copytree(tmp_path / "t", tmp_path / "b")
    for file in (tmp_path / "out").glob("*.index"):
        shutil.copy(file, tmp_path / "b")
    for file in (tmp_path / "b").iterdir():
        moment = NEW if file.name.endswith(".index") else OLD
        os.utime(file, (moment, moment))
    return tmp_path / "b"


@pytest.mark.parametrize("where", QUESTIONS)
def test_sidecars_beside_decide_every_row(beside: Path, where: str) -> None:
    table = Table(str(beside))
    plan = table.plan(where)
    expected = [matching_rows(rows_of(part), where) for part in range(3)]
    assert plan.keep.tolist() == [bool(rows) for rows in expected]
    assert plan.count() == table.count(where) == sum(map(len, expected))
    for at, detail in plan.details.items():
        assert detail.exact
        assert detail.rows is not None
        assert detail.rows.positions().tolist() == expected[at]


def test_sidecars_are_no_data_files_whether_they_are_used_or_not(beside: Path) -> None:
    for sidecars in (None, True, False):
        table = Table(str(beside), sidecars=sidecars)
        assert len(table.listing()) == 3
        assert table.plan("age = 1000").keep.any() == (sidecars is False)
        assert table.count("age = 1000") == 0


def test_a_sidecar_older_than_its_file_says_nothing(beside: Path) -> None:
    os.utime(beside / "1.parquet.index", (OLD - 10, OLD - 10))
    plan = Table(str(beside)).plan("city = 'nowhere'")
    assert plan.keep.tolist() == [False, True, False]
    assert any("older than the data file" in str(reason) for reason in plan.reasons)


def test_a_sidecar_of_another_file_says_nothing(beside: Path) -> None:
    pq.write_table(rows_of(1).slice(0, 499), beside / "1.parquet")
    os.utime(beside / "1.parquet", (OLD, OLD))
    plan = Table(str(beside)).plan("age = 1000")
    assert plan.keep.tolist() == [False, True, False]


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b"short"])
def test_a_damaged_sidecar_says_nothing(beside: Path, damage: bytes) -> None:
    (beside / "1.parquet.index").write_bytes(damage)
    table = Table(str(beside))
    assert table.plan("age = 1000").keep.tolist() == [False, True, False]
    assert table.count("city = 'Oslo'") == sum(
        len(matching_rows(rows_of(part), "city = 'Oslo'")) for part in range(3)
    )


def test_what_was_opened_once_is_kept_until_it_changes(beside: Path) -> None:
    table = Table(str(beside))
    table.plan("age = 1")
    before = table.storage.requests
    table.plan("age = 1")
    again = table.storage.requests - before
    shutil.copy(beside / "0.parquet.index", beside / "2.parquet.index")
    assert table.plan("id = 1").keep.tolist() == [True, True, True]
    assert again < before


def test_the_newest_of_rewritten_sidecars_counts(beside: Path) -> None:
    shutil.copy(beside / "0.parquet.index", beside / "0.parquet-2.index")
    (beside / "0.parquet.index").write_bytes(b"old")
    (beside / "0.parquet-1.index").write_bytes(b"older")
    table = Table(str(beside))
    listing, sidecars = without_sidecars(table.storage.list_files(table.path))
    assert len(listing) == 3
    assert sidecars[0].path.endswith("0.parquet-2.index")
    assert table.plan("age = 1000").keep.tolist() == [False] * 3


def test_reading_can_be_switched_off(beside: Path, built: Table) -> None:
    off = {"file-index.read.enabled": "false"}
    for table in (Table(str(beside), options=off), Table(built.path, options=off)):
        assert table.plan("city = 'Nowhere'").keep.all()
    assert not built.plan("city = 'Nowhere'").keep.any()


# -- first rows and counts -------------------------------------------------------------------------


@pytest.mark.parametrize("where", QUESTIONS)
def test_counts_are_those_of_brute_force(built: Table, where: str) -> None:
    expected = sum(len(matching_rows(rows_of(part), where)) for part in range(3))
    assert built.count(where) == built.plan(where).count() == expected


def test_what_no_index_decides_is_read(built: Table) -> None:
    where = "city LIKE '%er%' AND id < 700"
    assert built.plan(where).count() is None
    assert built.count(where) == sum(len(matching_rows(rows_of(p), where)) for p in range(3))
    assert built.count() == 1_500


@pytest.mark.parametrize(
    "order_by, limit",
    [("age", 5), ("age desc", 5), ("age ASC NULLS LAST", 7), ("f desc", 300), ("age", 5_000)],
)
def test_the_first_rows_of_a_table(built: Table, order_by: str, limit: int) -> None:
    top = built.top(order_by, limit)
    assert top.exact
    column = order_by.split()[0]
    got = pa.concat_tables(
        [ParquetFile(p).read_rows([column], rows) for p, rows in top.rows.items()]
    )
    every = pa.concat_tables([rows_of(part).select([column]) for part in range(3)])
    nulls_last = "LAST" in order_by or "desc" in order_by

    def first(table: pa.Table) -> list[Any]:
        values = table[column].to_pylist()
        present = sorted((sort_key(v) for v in values if v is not None), reverse="desc" in order_by)
        nulls = [None] * values.count(None)
        return ([*present, *nulls] if nulls_last else [*nulls, *present])[:limit]

    assert first(got) == first(every)
    assert got.num_rows == min(limit, 1_500)


def test_first_rows_among_those_that_match(built: Table) -> None:
    top = built.top("age desc", 3, where="city = 'Oslo'")
    assert top.exact
    got = [
        row
        for path, rows in top.rows.items()
        for row in ParquetFile(path).read_rows(["city", "age"], rows).to_pylist()
    ]
    ages = sorted(
        (
            row["age"]
            for part in range(3)
            for row in rows_of(part).to_pylist()
            if row["city"] == "Oslo" and row["age"] is not None
        ),
        reverse=True,
    )
    assert {row["city"] for row in got} == {"Oslo"}
    assert sorted((row["age"] for row in got), reverse=True) == ages[:3]


def test_several_sort_keys_keep_all_that_tie(built: Table) -> None:
    top = built.top("age NULLS LAST, id DESC", 3)
    assert not top.exact
    got = pa.concat_tables(
        [ParquetFile(p).read_rows(["age"], rows) for p, rows in top.rows.items()]
    )
    every = [a for part in range(3) for a in rows_of(part)["age"].to_pylist() if a is not None]
    last = sorted(every)[2]
    assert sorted(got["age"].to_pylist()) == sorted(a for a in every if a <= last)


def test_files_without_an_index_keep_their_rows(built: Table, tmp_path: Path) -> None:
    pq.write_table(rows_of(3), tmp_path / "t" / "new.parquet")
    top = Table(built.path).top("age desc", 2)
    assert not top.exact
    assert top.rows[str(tmp_path / "t" / "new.parquet")] is None
    assert "all rows" in str(top)
    assert top.to_dict()["rows"][str(tmp_path / "t" / "new.parquet")] is None


def test_first_rows_from_sidecars_beside(beside: Path, built: Table) -> None:
    table = Table(str(beside))
    for order_by in ("age desc", "age", "f NULLS LAST"):
        ours, theirs = built.top(order_by, 9), table.top(order_by, 9)
        assert theirs.exact
        assert list(ours.rows.values()) == list(theirs.rows.values())
    (beside / "1.parquet.index").write_bytes(b"?")
    assert not table.top("age desc", 9).exact


@pytest.mark.parametrize("order_by", ["nope", "age sideways", "agee desc"])
def test_sort_keys_that_are_none(built: Table, order_by: str) -> None:
    with pytest.raises(PredicateError):
        built.top(order_by, 3)
    with pytest.raises(ValueError, match="limit"):
        built.top("age", -1)
