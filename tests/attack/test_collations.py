"""Columns with a collation: nothing may order or compare them by their bytes.

Comparisons were refused already; orders, least and greatest values were not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"


@pytest.fixture
def collated(tmp_path: Path) -> Table:
    """Under UTF8_LCASE ``B`` is the greatest and ``a`` equals ``A``; by their bytes ``a`` is the
    greatest. The second file has no collation."""
    root = tmp_path / "t"
    root.mkdir()
    field = {"name": "s", "type": "string", "nullable": True}
    field["metadata"] = {"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}
    note = json.dumps({"type": "struct", "fields": [field]})
    rows = pa.table({"s": ["a", "B", "A"], "k": [1, 2, 3]})
    pq.write_table(rows.replace_schema_metadata({SPARK_SCHEMA: note}), root / "a.parquet")
    pq.write_table(pa.table({"s": ["c"], "k": [4]}), root / "b.parquet")
    return Table(str(root))


@pytest.mark.parametrize(
    "ask, aim",
    [
        (lambda table: table.query(order_by="s desc", limit=1), "sort by"),
        (lambda table: table.query(order_by=["k", "s"]), "sort by"),
        (lambda table: table.scan(order_by="S"), "sort by"),
        (lambda table: table.min("s"), "take the least value of"),
        (lambda table: table.max("s", "k < 4"), "take the greatest value of"),
        (lambda table: table.top("s", 1), "sort by"),
        (lambda table: table.top("k, s", 1), "sort by"),
    ],
)
def test_a_collation_has_no_order_here(
    collated: Table, ask: Callable[[Table], object], aim: str
) -> None:
    with pytest.raises(UnsupportedError, match=rf"cannot {aim} \w: collation spark\.UTF8_LCASE"):
        ask(collated)


def test_other_columns_have_their_order(collated: Table) -> None:
    assert collated.query(order_by="k desc", limit=2).to_pydict() == {"s": ["c", "A"], "k": [4, 3]}
    assert collated.max("k") == 4
