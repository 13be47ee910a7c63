"""A needle in many files by other engines, each with the plan of it and without.

DuckDB, polars and pyarrow answer the same question over the files of events: as they do it
themselves, and over the exports of ``TableScan.to_duckdb``, ``to_polars`` and ``to_pyarrow``. The
time with a plan is that of planning, export and reading. Filters per file leave some ten files of a
thousand to read; absent keys likewise. Rows are equal, or there is no figure.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from .engine_peers import asked, same_rows
from .events import absent_keys, present_keys
from .figure import Figure, Peer, median
from .needle import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import skipstone

    from .workbench import Workbench

__all__ = ["figures"]

_TARGET = 3.0


def figures(bench: Workbench) -> Iterator[Figure]:
    """Each engine: a key that is there, and one that is not."""
    table, _ = events(bench)
    plain = asked(table.path)
    files, rows = bench.sizes.files, bench.sizes.rows_per_file
    runs, warm = bench.sizes.runs, 1
    few = warm + max(2, runs // 3) if runs > 1 else warm + 1
    kinds = {
        "needle": present_keys(files, rows, few),
        "absent": absent_keys(few),
    }
    for kind, keys in kinds.items():
        for name, way in handed(table).items():
            alone: list[float] = []
            planned: list[float] = []
            asked_files: list[float] = []
            for turn, key in enumerate(keys):
                text = f"SELECT * FROM t WHERE key = {key}"
                started = time.perf_counter()
                without = plain[name](text)
                between = time.perf_counter()
                found, count = way(key)
                ended = time.perf_counter()
                same_rows({name: without, f"{name} with a plan": found}, "key")
                if turn >= warm:
                    alone.append(between - started)
                    planned.append(ended - between)
                    asked_files.append(count)
            mine, peer = median(planned), median(alone)
            yield Figure(
                name=f"handover.{kind}.{name}",
                value=mine * 1e3,
                unit="ms",
                peer=Peer(what=f"{name} on the same files", value=peer * 1e3),
                ratio=peer / mine,
                target=f"{name} without a plan takes at least {_TARGET:.0f} times as long",
                met=peer / mine >= _TARGET,
                details={"files": files, "files_read": median(asked_files), "runs": len(planned)},
            )


def handed(table: skipstone.Table) -> dict[str, Callable[[int], tuple[pa.Table, int]]]:
    """By engine what plans, hands over and reads a key: the rows, and how many files it read."""
    import duckdb

    session: Any = duckdb.connect()
    session.execute("SET parquet_metadata_cache = true")  # as it has alone

    def by_duckdb(key: int) -> tuple[pa.Table, int]:
        scan = table.scan(f"key = {key}")
        return scan.to_duckdb(session).filter(f"key = {key}").to_arrow_table(), scan.plan.files_kept

    def by_polars(key: int) -> tuple[pa.Table, int]:
        import polars as pl

        scan = table.scan(f"key = {key}")
        return scan.to_polars().filter(
            pl.col("key") == key
        ).collect().to_arrow(), scan.plan.files_kept

    def by_pyarrow(key: int) -> tuple[pa.Table, int]:
        scan = table.scan(f"key = {key}")
        return scan.to_pyarrow().to_table(filter=ds.field("key") == key), scan.plan.files_kept

    return {"duckdb": by_duckdb, "polars": by_polars, "pyarrow": by_pyarrow}
