"""Bitmaps of many files asked together: the counts and rows of the files one by one, whatever else
the predicate names, and damage costs time alone.

The bitmaps of each file take more than is read at once. The first query parses their heads; the
next ones ask all files together, with one read for each.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.pruning import Cause, Level

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.pruning.plan import Plan

FILES, ROWS = 24, 30_000


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pa.Table]:
    """A table of 24 files and its rows."""
    home = tmp_path_factory.mktemp("bulk") / "table"
    home.mkdir()
    pieces = []
    for number in range(FILES):
        rng = np.random.default_rng(number)
        # `rare` and `late` are in some files only, once; `c` lacks a value in some.
        text = rng.integers(0, 40, ROWS)
        text[text == number % 40] = 39
        city = np.array([f"c-{each:02d}" for each in range(40)])[text].astype(object)
        if number % 3 == 0:
            city[17] = "rare"
        piece = pa.table(
            {
                "city": pa.array(city, mask=rng.random(ROWS) < 0.01 * (number % 2)),
                "kind": pa.array(rng.integers(0, 30, ROWS)),
                "amount": pa.array(rng.random(ROWS)),
            }
        )
        pq.write_table(piece, home / f"part-{number:02d}.parquet")
        pieces.append(piece)
    skipstone.Table(str(home)).build(indexes=["city:bitmap", "kind:bitmap"])
    return str(home), pa.concat_tables(pieces)


def warm(path: str) -> skipstone.Table:
    """The table after a query that has parsed the heads of all bitmaps."""
    table = skipstone.Table(path)
    table.count("city = 'c-39' and kind = 29")
    table.count("city = 'c-01'")
    return table


def requests(plan: Plan, column: str) -> int:
    return sum(step.requests for step in plan.steps if step.column == column)


PREDICATES = {
    "city = 'c-07'": lambda city, kind: city == "c-07",
    "city = 'rare'": lambda city, kind: city == "rare",
    "city = 'nowhere'": lambda city, kind: city == "nowhere",
    "city in ('c-03', 'rare', 'c-11')": lambda city, kind: city in ("c-03", "rare", "c-11"),
    "city is null": lambda city, kind: city is None,
    "city <> 'c-07'": lambda city, kind: city is not None and city != "c-07",
    "city = 'c-07' and kind = 3": lambda city, kind: city == "c-07" and kind == 3,
    "city = 'c-07' or kind = 3": lambda city, kind: city == "c-07" or kind == 3,
    "city is null and kind = 4": lambda city, kind: city is None and kind == 4,
    "city = 'c-07' and kind < 3": lambda city, kind: city == "c-07" and kind < 3,
}


@pytest.mark.parametrize("where", PREDICATES)
def test_counts_are_those_of_the_rows(laid: tuple[str, pa.Table], where: str) -> None:
    path, rows = laid
    cities, kinds = rows["city"].to_pylist(), rows["kind"].to_pylist()
    expected = sum(map(PREDICATES[where], cities, kinds))
    table = warm(path)
    assert table.count(where) == expected
    assert table.count(where) == expected, "as they are remembered"
    assert table.query(where, ["kind"]).num_rows == expected


def test_one_read_for_each_file_and_none_the_second_time(laid: tuple[str, pa.Table]) -> None:
    table = warm(laid[0])
    plan = table.plan("city = 'c-30'")
    assert plan.count() is not None
    assert 0 < requests(plan, "city") <= FILES
    assert requests(table.plan("city = 'c-30'"), "city") == 0


def test_damage_costs_time_and_is_told(laid: tuple[str, pa.Table], tmp_path: Path) -> None:
    """Every byte of the packs is inverted once the heads are parsed."""
    path, rows = laid
    expected = rows["city"].to_pylist().count("c-07")
    location = tmp_path / "index"
    table = skipstone.Table(path, index_location=str(location))
    table.build(indexes=["city:bitmap"])
    table.count("city = 'c-39'")
    table.count("city = 'c-20'")
    packs = list(location.rglob("*.pack"))
    assert packs
    for pack in packs:
        data = np.frombuffer(pack.read_bytes(), np.uint8)
        pack.write_bytes((~data).tobytes())
    plan = table.plan("city = 'c-07'")
    assert any(reason.cause is Cause.CORRUPT for step in plan.steps for reason in step.reasons)
    assert table.count("city = 'c-07'") == expected


HALF = tuple(f"c-{each:02d}" for each in range(20))


@pytest.mark.parametrize(
    "where", ["city < 'c-20'", f"city in {HALF}", "kind < 15 and city < 'c-30'"]
)
def test_unions_that_leave_half_of_the_rows_are_made_for_a_sample(
    laid: tuple[str, pa.Table], where: str
) -> None:
    """To join the rows of many values takes longer than to read the column: 8 files say so, also
    where their answers are known from the query before."""
    path, rows = laid
    table = skipstone.Table(path)
    cities, kinds = rows["city"].to_pylist(), rows["kind"].to_pylist()
    if "kind" in where:
        pairs = zip(cities, kinds, strict=True)
        expected = [city is not None and city < "c-30" and kind < 15 for city, kind in pairs]
    else:
        expected = [city in HALF for city in cities]
    right = rows.filter(pa.array(expected))
    few = None
    for _ in range(3):
        plan = table.scan(where).plan
        asked = [step for step in plan.steps if step.level is Level.ROW and step.considered]
        assert max(step.considered for step in asked) == 8 * ROWS
        text = "rows: asked in 8 of 24 files, where it skipped too little"
        assert text in [str(reason) for reason in plan.reasons]
        read = sum(step.requests for step in asked), sum(step.bytes_read for step in asked)
        few = few or read
        assert read <= few
        assert table.count(where) == right.num_rows
        assert table.query(where).equals(right)
    one = table.scan("city = 'c-07'").plan
    assert [step.considered for step in one.steps if step.level is Level.ROW] == [FILES * ROWS]


def test_an_index_that_leaves_rows_in_every_page_is_left_alone(
    laid: tuple[str, pa.Table],
) -> None:
    """Of each page another condition needs a row, so every page is read: 8 of 24 files say so. The
    8 files with a rare value are all asked."""
    path, rows = laid
    table = skipstone.Table(path)
    for city in ("c-07", "rare"):
        where = f"city = '{city}' and amount > 0.5"
        plan = table.scan(where).plan
        (step,) = (each for each in plan.steps if each.level is Level.ROW and each.considered)
        assert step.considered == 8 * ROWS
        text = "rows: asked in 8 of 24 files, where it skipped too little"
        assert (text in [str(reason) for reason in plan.reasons]) is (city == "c-07")
        right = rows.filter((pc.field("city") == city) & (pc.field("amount") > 0.5))
        assert right.num_rows
        assert table.query(where).equals(right)


COUNTED = {
    "city <> 'c-07'": lambda city, kind: city is not None and city != "c-07",
    "kind <> 3 and city <> 'c-01'": lambda city, kind: city not in (None, "c-01") and kind != 3,
    "city in ('c-01', 'c-02', 'c-03')": lambda city, kind: city in ("c-01", "c-02", "c-03"),
}


@pytest.mark.parametrize("where", COUNTED)
def test_a_count_asks_indexes_that_leave_most_rows(laid: tuple[str, pa.Table], where: str) -> None:
    """To take most rows out of a file takes longer than to read all. A count takes none, and
    ``explain`` without columns has its plan."""
    path, rows = laid
    expected = sum(map(COUNTED[where], rows["city"].to_pylist(), rows["kind"].to_pylist()))

    def asked(columns: list[str] | None) -> int:
        plan = skipstone.Table(path).explain(where, columns=columns).plan
        considered = [step.considered for step in plan.steps if step.level is Level.ROW]
        settled = sum(detail.exact for detail in plan.details.values())
        assert settled in (8, FILES)
        assert max(considered) == settled * ROWS
        return settled

    assert asked(None) == asked(["city"]) == 8
    assert asked([]) == FILES
    table = skipstone.Table(path)
    assert table.count(where) == table.count(where) == expected
    assert table.query(where, []).num_rows == table.query(where).num_rows == expected


def test_a_count_reads_what_indexes_do_not_decide(
    laid: tuple[str, pa.Table], tmp_path: Path
) -> None:
    """A pattern leaves rows undecided, and files that changed have no facts."""
    path, rows = laid
    cities = [each or "" for each in rows["city"].to_pylist()]
    table = skipstone.Table(path)
    like = "city like 'c-%7'"
    assert table.count(like) == sum(each.endswith("7") for each in cities)
    home = tmp_path / "table"
    shutil.copytree(path, home)
    changed = skipstone.Table(str(home))
    changed.build(indexes=["city:bitmap", "kind:bitmap"])
    where = "city <> 'c-07'"
    before = sum(each not in ("", "c-07") for each in cities)
    assert changed.count(where) == before
    pq.write_table(rows.slice(0, 100), home / "part-05.parquet")
    gone = sum(each not in ("", "c-07") for each in cities[5 * ROWS : 6 * ROWS])
    new = sum(each not in ("", "c-07") for each in cities[:100])
    assert changed.count(where) == before - gone + new
    plan = changed.explain(where, columns=[]).plan
    assert sum(detail.exact for detail in plan.details.values()) == FILES - 1
