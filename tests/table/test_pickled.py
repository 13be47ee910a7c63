"""A table travels to Spark's workers."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.table import Table

if TYPE_CHECKING:
    from pathlib import Path


def test_a_table_of_files_with_a_summary_is_the_same_after_its_travel(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    for part in range(3):
        pq.write_table(pa.table({"n": range(10 * part, 10 * part + 10)}), root / f"{part}.parquet")
    table = Table(str(root))
    table.write_metadata()
    arrived: Table = pickle.loads(pickle.dumps(table))
    assert arrived.count("n > 17") == table.count("n > 17") == 12
