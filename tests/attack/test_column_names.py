"""Names that are not well formed: they name the column that is called so, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile, Table
from skipstone.errors import SkipstoneError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> Table:
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(pa.table({"a": [1, 5], "a`b": [10, 20], "b": [3, 4]}), root / "x.parquet")
    return Table(str(root))


def test_a_backquote_within_a_name(table: Table) -> None:
    # The name was read up to the backquote, and column a came back.
    file = ParquetFile(f"{table.path}/x.parquet")
    for _ in range(2):
        assert table.query(columns=["a`b"]).to_pydict() == {"a`b": [10, 20]}
        assert file.query(columns=["a`b"]).to_pydict() == {"a`b": [10, 20]}
        assert (table.min("a`b"), table.max("`a``b`")) == (10, 20)
        assert table.query(order_by="a`b desc", limit=1)["a"].to_pylist() == [5]
        table.build(indexes=["`a``b`:minmax", "`a``b`:rangebitmap"])


@pytest.mark.parametrize("name", ["a`", "`a", "`a`b", "a`x", "a.`b", "`a`.", "a['b", "`"])
def test_a_name_that_no_column_has(table: Table, name: str) -> None:
    with pytest.raises(SkipstoneError):
        table.query(columns=[name])
    with pytest.raises(SkipstoneError):
        table.min(name)
    with pytest.raises((SkipstoneError, ValueError)):
        table.build(indexes=[f"{name}:minmax"])
