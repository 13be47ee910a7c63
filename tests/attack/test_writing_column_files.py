"""Columns in files of their own, attacked: names that become the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from skipstone import ParquetFile
from skipstone.rewrite import split_columns

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "names",
    [["x-", "x-.2", "x/"], ["a", "a.2", "a"], ["a", "a.3", "a.3.3", "a"], ["", "-", "-.2", "/"]],
)
def test_columns_whose_names_make_one_name_of_a_file(tmp_path: Path, names: list[str]) -> None:
    """A column took the file of another, which was lost without a word."""
    columns = [pa.array([10**at, 2 * 10**at]) for at in range(len(names))]
    rows = pa.Table.from_arrays(columns, names=names)
    path = tmp_path / "a.parquet"
    report = split_columns(rows, path)
    assert len(report.files) == len(names)
    file = ParquetFile(path)
    assert file.query().equals(rows)
    assert file.verify().ok
