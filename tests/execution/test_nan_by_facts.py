"""ORDER BY of doubles: facts rule out NaN where page maxima cannot, and never where one is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table
from tests.accept.tables import backdate

if TYPE_CHECKING:
    from pathlib import Path

FILES, ROWS = 6, 60_000


def lay(root: Path, nan_in: int | None) -> Table:
    """Six files of twelve pages; ``x`` is below 1, and in one file one value is NaN."""
    root.mkdir()
    for number in range(FILES):
        x = np.random.default_rng(number).random(ROWS)
        if number == nan_in:
            x[ROWS // 3] = np.nan
        path = root / f"part-{number}.parquet"
        table = pa.table({"id": np.arange(ROWS) + number * ROWS, "x": x})
        pq.write_table(
            table, path, use_dictionary=False, write_page_index=True, max_rows_per_page=ROWS // 12
        )
        backdate(path)
    found = Table(str(root))
    found.build(indexes=["x:minmax"])
    return found


def test_a_nan_comes_first_although_its_page_has_a_smaller_maximum(tmp_path: Path) -> None:
    table = lay(tmp_path / "t", nan_in=4)
    first = table.query(columns=["id", "x"], order_by="x desc", limit=1)
    assert first["id"].to_pylist() == [4 * ROWS + ROWS // 3]
    assert math.isnan(first["x"][0].as_py())
    assert math.isnan(table.max("x"))  # type: ignore[arg-type]  # a float


def test_a_file_that_got_a_nan_after_the_build_is_read(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = lay(root, nan_in=None)
    x = np.zeros(ROWS)
    x[7] = np.nan
    path = root / "part-2.parquet"
    pq.write_table(
        pa.table({"id": np.arange(ROWS) + 2 * ROWS, "x": x}), path, write_page_index=True
    )
    backdate(path, age=5)
    first = table.query(columns=["id"], order_by="x desc", limit=1)
    assert first["id"].to_pylist() == [2 * ROWS + 7]


def test_without_nan_few_pages_are_read(tmp_path: Path) -> None:
    table = lay(tmp_path / "t", nan_in=None)
    scan = table.scan(columns=["id", "x"], order_by="x desc", limit=1)
    everything = table.query(columns=["id", "x"])
    best = int(np.argmax(everything["x"].to_numpy()))
    assert scan.to_arrow()["id"].to_pylist() == [everything["id"][best].as_py()]
    read = table.scan(columns=["id", "x"], order_by="x desc", limit=1).analyze().read
    assert read.bytes < 0.25 * sum(each.stat().st_size for each in (tmp_path / "t").iterdir())
