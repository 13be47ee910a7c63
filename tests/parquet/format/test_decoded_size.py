"""Decoded sizes out of the footer, held against what Arrow makes of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile
from skipstone.parquet.reading.file_reader import decoded_size

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 10_000


@pytest.mark.parametrize(
    "values, slack",
    [
        (pa.array(np.arange(ROWS)), 1.05),
        (pa.array(np.arange(ROWS, dtype=np.int32)), 1.05),
        (pa.array(np.arange(ROWS) % 2 == 0), 10.0),
        (pa.array([f"text {n}" for n in range(ROWS)]), 1.5),
        # 10,000 times the same 1,000 letters: a dictionary of one value
        (pa.array(["x" * 1000] * ROWS), 1.05),
        (pa.array([b"0123456789abcdef"] * ROWS, pa.binary(16)), 1.05),
    ],
)
def test_what_a_column_takes(tmp_path: Path, values: pa.Array, slack: float) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": values}), path, row_group_size=ROWS // 2)
    file = ParquetFile(str(path))
    sizes = decoded_size(file.footer)
    assert sizes.shape == (2, 1)
    real = pq.read_table(path).combine_chunks().nbytes
    assert real <= sizes.sum() <= slack * real + ROWS


def test_waves_are_bounded_by_what_size_statistics_say(tmp_path: Path) -> None:
    """20 row groups of 16 MB each when decoded, and next to nothing as stored."""
    path = tmp_path / "a.parquet"
    values = pa.array(["y" * 16_000] * 20_000)
    pq.write_table(pa.table({"c": values}), path, row_group_size=1000)
    file = ParquetFile(str(path))
    assert file.size < 500_000
    tables = list(file.tables(file.selection.fields(["c"]), None))
    assert sum(len(table) for table in tables) == 20_000
    assert 2 < len(tables) < 20
    assert max(table.nbytes for table in tables) <= 140 << 20
