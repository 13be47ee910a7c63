"""The engines that the embedded one is compared with, each on the same files, and the bytes they
read.

All keep what they can between queries: DuckDB its cache of footers, polars its lazy frame,
DataFusion its registered table, pyarrow its dataset with the metadata of every fragment.
"""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from .figure import median

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["PEERS", "asked", "engines", "least", "milliseconds", "read_so_far", "same_rows"]


def asked(path: str) -> dict[str, Callable[[str], pa.Table]]:
    """By engine what runs ``SELECT … FROM t …`` over the Parquet files below ``path``."""
    return {name: make(path) for name, make in PEERS.items()}


def _duckdb(path: str) -> Callable[[str], pa.Table]:
    import duckdb

    session = duckdb.connect()
    session.execute("SET parquet_metadata_cache = true")
    session.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet('{path}/*.parquet')")

    def run(text: str) -> pa.Table:
        return session.sql(text).to_arrow_table()

    return run


def _polars(path: str) -> Callable[[str], pa.Table]:
    import polars as pl

    session = pl.SQLContext(t=pl.scan_parquet(f"{path}/*.parquet"))

    def run(text: str) -> pa.Table:
        return session.execute(text, eager=True).to_arrow()

    return run


def _datafusion(path: str, pushdown: bool = True) -> Callable[[str], pa.Table]:
    import datafusion

    config = datafusion.SessionConfig()
    config = config.set("datafusion.execution.parquet.enable_page_index", "true")
    config = config.set("datafusion.execution.parquet.pushdown_filters", str(pushdown).lower())
    session = datafusion.SessionContext(config)
    session.register_parquet("t", path)

    def run(text: str) -> pa.Table:
        return session.sql(text).to_arrow_table()

    return run


def _pyarrow(path: str) -> Callable[[str], pa.Table]:
    """Only ``SELECT * FROM t [WHERE column = number [AND …]]``, and ``<``."""
    dataset = ds.dataset(path, format="parquet")
    for fragment in dataset.get_fragments():
        fragment.ensure_complete_metadata()

    def run(text: str) -> pa.Table:
        head, _, where = text.partition(" WHERE ")
        if head != "SELECT * FROM t":
            raise ValueError(f"pyarrow has no SQL: {text}")
        found: ds.Expression | None = None
        for part in filter(None, where.split(" AND ")):
            name, sign, value = part.split(" ")
            field, number = ds.field(name), float(value) if "." in value else int(value)
            test = field == number if sign == "=" else field < number
            found = test if found is None else found & test
        return dataset.to_table(filter=found)

    return run


PEERS: Mapping[str, Callable[[str], Callable[[str], pa.Table]]] = {
    "duckdb": _duckdb,
    "polars": _polars,
    "datafusion": _datafusion,
    "pyarrow": _pyarrow,
}


def engines(path: str) -> dict[str, Callable[[str], pa.Table]]:
    """The peers that run any SQL, DataFusion with its filters pushed down and without."""
    made = {name: make(path) for name, make in PEERS.items() if name != "pyarrow"}
    return made | {"datafusion, no pushdown": _datafusion(path, pushdown=False)}


def same_rows(tables: Mapping[str, pa.Table], order: str) -> None:
    """``AssertionError`` unless all hold the same rows, which ``order`` puts into one order."""
    plain: dict[str, list[dict[str, Any]]] = {}
    for name, table in tables.items():
        plain[name] = sorted(table.to_pylist(), key=itemgetter(order))
    first = next(iter(plain.values()))
    for name, rows in plain.items():
        if rows != first:
            raise AssertionError(f"the rows of {name} differ: {rows[:3]} and {first[:3]}")


def milliseconds(taken: Mapping[str, list[float]]) -> dict[str, float]:
    """Median of each."""
    return {name: median(seconds) * 1e3 for name, seconds in taken.items()}


def least(figures: Mapping[str, float]) -> tuple[str, float]:
    """The best of some, and whose it is."""
    name = min(figures, key=lambda each: figures[each])
    return name, figures[name]


def read_so_far() -> int:
    """Bytes that this process has read by system calls; not what it has mapped."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    return 0
