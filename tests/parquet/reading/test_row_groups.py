"""``read_row_group`` of row groups without rows, and of those that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile
from skipstone.errors import SkipstoneError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> ParquetFile:
    """A row group of 0 rows, then one of one row."""
    path = tmp_path / "f.parquet"
    rows = pa.table({"a": [1], "l": [[1, 2]], "s": [{"x": 1}]})
    with pq.ParquetWriter(path, rows.schema) as writer:
        writer.write_table(rows.schema.empty_table())
        writer.write_table(rows)
    return ParquetFile(path)


@pytest.mark.parametrize("columns", [None, ["a"], ["l", "s.x"], []])
def test_no_rows(file: ParquetFile, columns: list[str] | None) -> None:
    found = file.read_row_group(0, columns)
    assert found.num_rows == 0
    assert found.schema == file.read_row_group(1, columns).schema


@pytest.mark.parametrize("row_group", [-1, -2, 2, 1 << 40])
def test_no_such_row_group(file: ParquetFile, row_group: int) -> None:
    with pytest.raises(SkipstoneError, match=f"no row group {row_group} in ") as caught:
        file.read_row_group(row_group)
    assert "it has 2, counted from 0" in caught.value.hint
