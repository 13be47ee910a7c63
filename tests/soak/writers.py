"""Writes a file of a table by pyarrow, DuckDB or polars."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_file(
    path: str, rows: pa.Table, writer: str, how: Mapping[str, Any], changed: int
) -> None:
    """Write ``rows`` to ``path``, last modified at ``changed`` (seconds)."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).unlink(missing_ok=True)
    if writer == "duckdb":
        import duckdb

        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            relation = connection.from_arrow(rows)
            relation.write_parquet(path, **how)
    elif writer == "polars":
        import polars as pl

        frame = pl.DataFrame(pl.from_arrow(rows))
        frame.write_parquet(path, **how)
    else:
        pq.write_table(rows, path, **how)
    os.utime(path, (changed, changed))
