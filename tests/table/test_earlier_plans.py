"""Levels that skipped nothing in earlier queries of a table are left out, and asked again later."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.pruning import costs
from skipstone.table.planning import PlanRequest, planned

FILES, ROWS = 6, 60_000
LEFT_OUT = "not looked at: nothing was skipped there in 4 earlier queries like this"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pa.Table]:
    """``mixed`` has any value in any page, ``ordered`` ascends through the files."""
    root = tmp_path_factory.mktemp("lake")
    mixed = np.random.default_rng(7).integers(0, 500_000, FILES * ROWS)
    whole = pa.table({"mixed": mixed, "ordered": np.arange(FILES * ROWS)})
    for at in range(FILES):
        part = whole.slice(at * ROWS, ROWS)
        path = root / f"{at}.parquet"
        pq.write_table(
            part, path, write_page_index=True, data_page_size=16_384, use_dictionary=False
        )
    return str(root), whole


def left_out(table: Table, where: str) -> list[str]:
    """The levels that a query leaves out for what earlier ones skipped."""
    plan = planned(table, PlanRequest(where=where, shown=False)).plan
    return [each.subject for each in plan.reasons if each.text.startswith(LEFT_OUT)]


def asked(table: Table, whole: pa.Table, column: str, value: int) -> None:
    found = table.query(f"{column} = {value}")
    expected = whole.filter(pc.equal(whole[column], value))
    assert found.sort_by("ordered").equals(expected)


def test_levels_that_skip_nothing_are_left_out_for_a_while(lake: tuple[str, pa.Table]) -> None:
    path, whole = lake
    table = Table(path)
    for value in range(100_000, 100_004):
        asked(table, whole, "mixed", value)
    for number in range(15):
        assert left_out(table, f"mixed = {250_000 + number}") == ["pages", "row groups"]
        # what is shown does not depend on it
        assert LEFT_OUT not in str(table.explain(f"mixed = {250_000 + number}"))
    assert left_out(table, "mixed = 260000") == []
    assert left_out(table, "mixed > 260000") == []
    for value in range(200_000, 200_040):
        asked(table, whole, "mixed", value)


def test_a_level_that_skips_is_always_asked(lake: tuple[str, pa.Table]) -> None:
    path, whole = lake
    table = Table(path)
    for value in range(0, FILES * ROWS, 17_000):
        assert left_out(table, f"ordered = {value}") == []
        asked(table, whole, "ordered", value)


def test_one_that_skips_again_is_asked_again(lake: tuple[str, pa.Table]) -> None:
    path, whole = lake
    table = Table(path)
    for value in range(20):
        asked(table, whole, "mixed", 100_000 + value)
    # the plan that asks again finds no page with the value, so the next ones ask, too
    while left_out(table, "mixed = 600000"):
        pass
    assert left_out(table, "mixed = 250000") == []


def test_a_level_is_asked_where_reading_would_take_long(
    lake: tuple[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = lake
    table = Table(path)
    for value in range(300_000, 300_008):
        asked(table, whole, "mixed", value)
    assert left_out(table, "mixed = 250000")
    monkeypatch.setattr(costs, "_LITTLE", 1e-4)
    assert not left_out(table, "mixed = 250001")
