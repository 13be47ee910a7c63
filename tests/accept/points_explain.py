"""What a plan says of itself, before and after it ran; and plans handed to other engines."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.errors import UnsupportedError
from tests.accept.registry import point
from tests.accept.tables import backdate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

FILES, ROWS, GROUP, PAGE = 4, 100_000, 25_000, 5_000


def sizable(root: Path) -> Path:
    """Four files below folders of days, of four row groups of five pages: id ascends through all,
    text is its name."""
    for part in range(FILES):
        n = np.arange(ROWS) + ROWS * part
        path = root / f"day=2026-01-0{part // 2 + 1}" / f"part {part} [é]%.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = pa.table({"id": n, "text": [f"row {each:07d}" for each in n]})
        pq.write_table(
            rows, path, row_group_size=GROUP, max_rows_per_page=PAGE, write_page_index=True
        )
        backdate(path)
    return root


@point("explain: files, row groups, pages and rows, each with its denominator and what it took")
def levels(bench: Workbench) -> None:
    root = sizable(bench.home / "four")
    Table(str(root)).build(indexes=["id:minmax"])
    ran = bench.skipstone("explain", root, "id = 150003")
    assert ran.code == 0, ran
    assert re.search(r"files +id +minmax +4 -> 1 files", ran.out), ran.out
    assert re.search(r"row groups +id +\S.* 4 -> 1 row groups", ran.out), ran.out
    assert re.search(r"pages +id +page index +5 -> 1 row ranges", ran.out), ran.out
    left = "left: 1 of 4 files, 1 of 4 row groups, 2 of 10 pages, 5,000 of 400,000 rows"
    assert left in ran.out, ran.out
    document = json.loads(bench.skipstone("explain", root, "id = 150003", "--json").out)
    assert document["rows"] == {"kept": PAGE, "total": FILES * ROWS}, document["rows"]
    assert document["forecast"]["pages"] == {"kept": 2, "total": 10}, document["forecast"]
    facts = json.loads(
        bench.skipstone("explain", root, "id = 150003", "--facts-only", "--json").out
    )
    assert facts["forecast"]["files_looked_into"] == 0, facts["forecast"]


@point("explain --analyze: what was read is what was planned, in bytes and requests")
def analyzed(bench: Workbench) -> None:
    root = sizable(bench.home / "four")
    ran = bench.skipstone("explain", root, "id = 150003", "--analyze")
    assert ran.code == 0, ran
    assert "ran: 1 row returned" in ran.out, ran.out
    document = json.loads(
        bench.skipstone("explain", root, "id = 150003", "--analyze", "--json").out
    )
    done, planned = document["analyzed"], document["forecast"]
    assert done["rows"] == 1, done
    assert not planned["about"], planned
    for unit in ("bytes", "requests"):
        assert done[unit] == planned["certain"][unit] + planned["possible"][unit], (done, planned)


@point("hand-over: DuckDB, polars and pyarrow read the planned files and rows, and no others")
def handed(bench: Workbench) -> None:
    root = sizable(bench.home / "four")
    table = Table(str(root))
    table.build(indexes=["id:minmax"])
    plan = table.scan("id = 150003")
    given = {
        "duckdb": (plan.to_duckdb().to_arrow_table(), PAGE),
        "polars": (plan.to_polars().collect().to_arrow(), PAGE),
        "pyarrow": (plan.to_pyarrow().to_table(), GROUP),
    }
    for name, (rows, count) in given.items():
        assert rows.num_rows == count, (name, rows.num_rows)
        assert rows.column_names == ["id", "text", "day"], (name, rows.schema)
        found = [row for row in rows.to_pylist() if row["id"] == 150_003]
        assert [str(row["day"]) for row in found] == ["2026-01-01"], (name, found)
    nothing = table.scan("id < 0")
    assert nothing.to_duckdb().to_arrow_table().num_rows == 0
    assert nothing.to_polars().collect().columns == ["id", "text", "day"]
    assert nothing.to_pyarrow().to_table().num_rows == 0


@point("hand-over: columns alike but for case, which engines take for one, are refused")
def refused(bench: Workbench) -> None:
    root = bench.home / "case"
    root.mkdir()
    pq.write_table(pa.table({"a": [1], "A": [2]}), root / "x.parquet")
    backdate(root / "x.parquet")
    plan = Table(str(root)).scan()
    for way in (plan.to_duckdb, plan.to_polars, plan.to_pyarrow):
        with pytest.raises(UnsupportedError) as told:
            way()
        assert told.value.hint, told.value
